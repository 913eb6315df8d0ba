/* The parts of the library, in the order in which they build on each other. */
#ifndef MUSTER_LIBRARY_H
#define MUSTER_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver_types.h"

enum { UUID_BYTES = 16, MOST_DEVICES = 16, MOST_PROCESSES = 1024, NO_DEVICE = -1 };

/* ---- lookup.c: functions of libraries that are loaded, without dlsym, which is itself one of ours ---- */

/* Return a symbol of the library whose file name begins with `library`; NULL where it is not loaded or has none. */
void *symbol_of(const char *library, const char *name);
/* Return a function of libcuda, or of libnvidia-ml, or NULL. */
void *driver_function(const char *name);
void *management_function(const char *name);

/* ---- limits.c: what the container may have ---- */

/* Whether there are limits at all; without any, every call goes through as it is. */
int has_limits(void);
/* Return the bytes that the container may have of a device: 0 for one that the limits do not name. */
uint64_t limit_of(const unsigned char uuid[UUID_BYTES]);
/* Return where the count of the container's processes is kept. */
const char *state_directory(void);
/* Read `GPU-...` or `MIG-...`; 0 where it is not a UUID. */
int read_uuid(const char *text, size_t length, unsigned char uuid[UUID_BYTES]);
/* Write one line to standard error. */
void complain(const char *problem, const char *about);

/* ---- usage.c: what all processes of the container have ---- */

/* Return the number by which a device is counted, the same in every process; NO_DEVICE where nothing can be counted. */
int usage_device(const unsigned char uuid[UUID_BYTES]);
/* Count `bytes` for this process and return 1, or return 0 where that is more than the container may have. */
int usage_reserve(int device, uint64_t bytes);
/* Count bytes that are there already, whatever the limit is. Returns 0 where the container now has more than it may. */
int usage_add(int device, uint64_t bytes);
void usage_release(int device, uint64_t bytes);
/* Return the bytes of all living processes. */
uint64_t usage_total(int device);
/* Fill up to `room` processes that have memory of the device, and return how many there are. */
unsigned usage_processes(int device, pid_t *pids, uint64_t *bytes, unsigned room);

void usage_before_fork(void);
void usage_after_fork(int is_child);

/* ---- ledger.c: what this process has, by the handle that frees it ---- */

enum kind { ADDRESS = 1, ARRAY, MIPMAP, CREATED, MAPPING, EXTERNAL, LIMIT, GRAPH, EXECUTABLE };

struct block; /* an amount that was counted; freed when nothing refers to it any more */

/* Return a block, with one reference, of bytes that are reserved; `sum`, if any, has the bytes of such blocks. */
struct block *block_of(int device, uint64_t bytes, handle context, _Atomic uint64_t *sum);
void block_drop(struct block *block); /* one reference less; NULL is none */

void ledger_put(enum kind kind, uint64_t key, uint64_t length, struct block *block); /* takes the reference over */
struct block *ledger_take(enum kind kind, uint64_t key, uint64_t *length);          /* removes one; NULL where none is */
struct block *ledger_share(enum kind kind, uint64_t key);                           /* one more reference, or NULL */
void ledger_share_all(enum kind from, uint64_t key, enum kind to, uint64_t other_key);
struct block *ledger_share_covering(enum kind kind, uint64_t key);                  /* of the length that covers the key */
void ledger_drop_range(enum kind kind, uint64_t start, uint64_t length);
void ledger_drop_context(handle context);
void ledger_before_fork(void);
void ledger_after_fork(int is_child);

/* ---- devices.c ---- */

enum { NO_CONTEXT = -2, UNCOUNTED = -3 };

int device_of(ordinal device); /* the number by which a device is counted, or NO_DEVICE */
int ordinal_of(int device);    /* the other way round */
int current_device(void);      /* of the thread's context; NO_CONTEXT without one */
/* The device whose memory it is; UNCOUNTED for the host's. What has no place, as managed memory, is the current device's. */
int device_of_location(const struct location *location);
handle current_context(void);
uint64_t limit_of_ordinal(ordinal device);
/* Count bytes, after another look at what pools gave back; 0 where they are too many. */
int reserve(int device, uint64_t bytes);

/* ---- pools.c: memory that pools and graphs keep ---- */

void pools_refresh(void); /* counts what they hold now */
/* Count what is added to a graph, and what an executable shares with the graph that it was made of. */
int graph_reserve(int device, uint64_t bytes);
void graph_put(handle graph, int device, uint64_t bytes);
void pools_before_fork(void);
void pools_after_fork(int is_child);

/* ---- table.c: the hooks ---- */

enum hook {
#define DRIVER(name, request, version, per_thread) HOOK_##name,
#define MANAGEMENT(name) HOOK_##name,
#include "hooks.h"
#undef DRIVER
#undef MANAGEMENT
    HOOK_COUNT
};

/* Return the function that a hook stands in front of, or NULL. */
void *real_function(enum hook hook);

/* Return our function for an exported name, NULL where it is none of ours. */
void *hook_of(const char *name);
/* Return our function for what cuGetProcAddress is asked. */
void *hook_of_request(const char *name, int version, uint64_t flags);

/* Call what a hook stands in front of: FORWARD(cuMemFree_v2, (pointer)) */
#define FORWARD(name, values) \
    __extension__({ \
        __typeof__(&name) function_ = (__typeof__(&name))real_function(HOOK_##name); \
        function_ ? function_ values : CUDA_NOT_INITIALIZED; \
    })
/* Call a function of libcuda that has no hook: CALL(cuCtxGetDevice, (ordinal *), (&device)) */
#define CALL(name, types, values) \
    __extension__({ \
        static _Atomic(void *) cached; \
        void *function_ = cached; \
        if (!function_) cached = function_ = driver_function(#name); \
        function_ ? ((result(*) types)function_) values : CUDA_NOT_INITIALIZED; \
    })

#endif
