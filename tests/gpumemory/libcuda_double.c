/* A double of libcuda.so.1 whose allocations count and whose kernels do not exist.
 *
 * What all processes took of every device is in the file CUDA_DOUBLE_STATE, with the highest amount that there ever was:
 * the truth that the tests hold against the library. CUDA_DOUBLE_DEVICES devices of CUDA_DOUBLE_MEMORY bytes each.
 * CUDA_DOUBLE_VERSION is the version of the driver, 11.1 if it says nothing: newer runtimes ask for a proof that a driver
 * is NVIDIA's. CUDA_DOUBLE_ASKED names a file that gets every name that cuGetProcAddress was asked for.
 * names.h, which tests/gpumemory/conftest.py writes, has FUNCTION(name) for each exported function of this file: looking
 * them up by dlsym would give those of the library that is tested. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
       NOT_FOUND = 500, NOT_SUPPORTED = 801 };
enum { DEVICES = 8, PROCESSES = 256, LIVE = 65536, POOL_STEP = 2 << 20, ALLOC_NODE = 10, DRIVER_VERSION = 11010 };
#define EXPORT __attribute__((visibility("default")))

/* ---- What all processes took of the devices ---- */

struct state {
    _Atomic uint64_t used_bytes[DEVICES], highest_bytes[DEVICES];
    struct process { _Atomic int pid; _Atomic uint64_t used_bytes[DEVICES]; } processes[PROCESSES];
};
static struct state *state;
static struct process *own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}
static int device_count(void) { return (int)number("CUDA_DOUBLE_DEVICES", 1); }
static uint64_t device_bytes(void) { return number("CUDA_DOUBLE_MEMORY", 32ULL << 30); }

/* A process that has a slot locks the byte of its number, in a file that is not mapped: the kernel unlocks it at the end. */
static int lock_file = -1;
static int lock_slot(int operation, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    return fcntl(lock_file, operation, &lock) == 0 && (operation != F_OFD_GETLK || lock.l_type == F_UNLCK);
}
static void forget_slot(void)
{
    close(lock_file);
    own = NULL;
    lock_file = -1;
    pthread_mutex_init(&counting, NULL);
}
static void open_state(void)
{
    const char *path = getenv("CUDA_DOUBLE_STATE");
    int flags = MAP_SHARED, file = -1;
    if (path) {
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (file < 0 || ftruncate(file, sizeof *state)) abort();
    } else {
        flags |= MAP_ANONYMOUS;
    }
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, flags, file, 0);
    if (state == MAP_FAILED) abort();
    if (file >= 0) close(file);
    pthread_atfork(NULL, NULL, forget_slot);
}
/* A process that ends gives up its memory first and its files a moment later: what it mapped is gone before its lock. */
static int gave_up_its_memory(int pid)
{
    char path[32];
    unsigned long pages = 1;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%lu", &pages) != 1) pages = 1;
    fclose(file);
    return pages == 0;
}
static void forget_the_dead(void)
{
    for (int i = 0; i < PROCESSES; i++) {
        int pid = state->processes[i].pid;
        if (pid <= 0 || pid == getpid() || lock_file < 0) continue;
        if (!lock_slot(F_OFD_GETLK, i) && !gave_up_its_memory(pid)) continue;
        if (!atomic_compare_exchange_strong(&state->processes[i].pid, &pid, -1)) continue;
        for (int d = 0; d < DEVICES; d++)
            state->used_bytes[d] -= atomic_exchange(&state->processes[i].used_bytes[d], 0);
        state->processes[i].pid = 0;
    }
}
static void register_process(void)
{
    if (own) return;
    lock_file = open(getenv("CUDA_DOUBLE_STATE"), O_RDWR | O_CLOEXEC);
    for (int i = 0; i < PROCESSES; i++) {
        if (state->processes[i].pid || !lock_slot(F_OFD_SETLK, i)) continue;
        own = &state->processes[i];
        own->pid = getpid();
        return;
    }
    abort();
}
/* Device and process are counted one after the other: who is killed in between leaves bytes that nobody has. */
static void forget_what_nobody_has(CUdevice device)
{
    uint64_t used = state->used_bytes[device];
    for (int i = 0; i < PROCESSES; i++)
        if (state->processes[i].pid && &state->processes[i] != own) return;
    atomic_compare_exchange_strong(&state->used_bytes[device], &used, own->used_bytes[device]);
}
static int take(CUdevice device, uint64_t bytes)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        forget_the_dead();
        forget_what_nobody_has(device);
        uint64_t used = state->used_bytes[device];
        while (bytes <= device_bytes() && used <= device_bytes() - bytes)
            if (atomic_compare_exchange_weak(&state->used_bytes[device], &used, used + bytes)) {
                own->used_bytes[device] += bytes;
                uint64_t highest = state->highest_bytes[device];
                while (highest < used + bytes &&
                       !atomic_compare_exchange_weak(&state->highest_bytes[device], &highest, used + bytes)) {}
                return 1;
            }
    }
    return 0;
}
static int occupy(CUdevice device, uint64_t bytes)
{
    if (!state) open_state();
    register_process();
    pthread_mutex_lock(&counting);
    int taken = take(device, bytes);
    pthread_mutex_unlock(&counting);
    return taken;
}
static void vacate(CUdevice device, uint64_t bytes)
{
    pthread_mutex_lock(&counting);
    own->used_bytes[device] -= bytes;
    state->used_bytes[device] -= bytes;
    pthread_mutex_unlock(&counting);
}

/* ---- Contexts and streams ---- */

struct context { CUdevice device; int references; uint64_t limits[16]; };
struct stream { struct context *context; struct graph *captured; };
static struct context primary[DEVICES];
static __thread struct context *current;
static int initialized;

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    if (!state) open_state();
    for (int d = 0; d < DEVICES; d++) primary[d].device = d;
    initialized = 1;
    return SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int *version) { *version = (int)number("CUDA_DOUBLE_VERSION", DRIVER_VERSION); return SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *count) { *count = device_count(); return initialized ? SUCCESS : NOT_INITIALIZED; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < device_count() ? SUCCESS : INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    snprintf(name, (size_t)length, "Tesla V100-SXM2-32GB");
    return device < device_count() ? SUCCESS : INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device)
{
    memset(uuid, 0, 16);
    uuid[2] = 1;
    uuid[15] = (unsigned char)device;
    return SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; break;             /* threads of a block */
    case 10: *value = 32; break;              /* a warp */
    case 16: *value = 80; break;              /* multiprocessors */
    case 75: *value = 7; break;               /* compute capability 7.0 */
    case 76: *value = 0; break;
    case 41: case 83: case 89: case 102: case 115: *value = 1; break; /* unified, managed, VMM, pools */
    default: *value = 0;
    }
    return SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = device_bytes();
    return device < device_count() ? SUCCESS : INVALID_DEVICE;
}
EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    *bytes = device_bytes() > UINT32_MAX ? UINT32_MAX : (unsigned)device_bytes();
    return device < device_count() ? SUCCESS : INVALID_DEVICE;
}
static void end_context(struct context *context);
EXPORT CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device)
{
    primary[device].references++;
    *context = &primary[device];
    return SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    primary[device].references = 0;
    end_context(&primary[device]);
    return SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (!primary[device].references) return INVALID_CONTEXT;
    if (!--primary[device].references) end_context(&primary[device]);
    return SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = primary[device].references > 0;
    return SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) { (void)device, (void)flags; return SUCCESS; }
EXPORT CUresult cuCtxCreate_v2(struct context **context, unsigned flags, CUdevice device)
{
    (void)flags;
    *context = current = calloc(1, sizeof **context);
    current->device = device;
    current->references = 1;
    return SUCCESS;
}
EXPORT CUresult cuCtxDestroy_v2(struct context *context)
{
    end_context(context);
    if (current == context) current = NULL;
    context->references = 0; /* stays, so that it can be known as ended */
    return SUCCESS;
}
EXPORT CUresult cuCtxDestroy(struct context *context) { return cuCtxDestroy_v2(context); }
EXPORT CUresult cuCtxDetach(struct context *context) { return cuCtxDestroy_v2(context); }
EXPORT CUresult cuCtxSetCurrent(struct context *context) { current = context; return SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(struct context **context) { *context = current; return SUCCESS; }
static __thread struct context *pushed[64];
static __thread int pushed_count;
EXPORT CUresult cuCtxPushCurrent_v2(struct context *context)
{
    pushed[pushed_count++] = current;
    current = context;
    return SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(struct context **context)
{
    if (context) *context = current;
    current = pushed_count ? pushed[--pushed_count] : NULL;
    return SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    if (!current) return INVALID_CONTEXT;
    *device = current->device;
    return SUCCESS;
}
EXPORT CUresult cuCtxGetApiVersion(struct context *context, unsigned *version)
{
    *version = DRIVER_VERSION;
    return !context || context->references ? SUCCESS : INVALID_CONTEXT;
}
EXPORT CUresult cuCtxSetLimit(int limit, size_t bytes)
{
    if (!current) return INVALID_CONTEXT;
    if (limit == 1 || limit == 2) {
        if (!occupy(current->device, bytes)) return OUT_OF_MEMORY;
        vacate(current->device, current->limits[limit]);
    }
    current->limits[limit & 15] = bytes;
    return SUCCESS;
}
EXPORT CUresult cuStreamCreate(struct stream **stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = current;
    return SUCCESS;
}
EXPORT CUresult cuStreamDestroy_v2(struct stream *stream) { free(stream); return SUCCESS; }
static int is_of_its_own(const struct stream *stream) { return (uintptr_t)stream > 2; } /* 0, 1, 2: the default ones */
EXPORT CUresult cuStreamGetCtx(struct stream *stream, struct context **context)
{
    *context = is_of_its_own(stream) ? stream->context : current;
    return SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing(struct stream *stream, int *capturing)
{
    *capturing = is_of_its_own(stream) && stream->captured;
    return SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing_ptsz(struct stream *stream, int *capturing) { return cuStreamIsCapturing(stream, capturing); }
EXPORT CUresult cuStreamGetCaptureInfo_v2(struct stream *stream, int *capturing, uint64_t *id, struct graph **graph,
                                          const void ***nodes, size_t *count)
{
    (void)id, (void)nodes, (void)count;
    cuStreamIsCapturing(stream, capturing);
    if (graph) *graph = *capturing ? stream->captured : NULL;
    return SUCCESS;
}

/* ---- What is allocated ---- */

enum kind { ADDRESS = 1, ARRAY, MIPMAP, CREATED, FROM_POOL };
struct live {
    enum kind kind;
    CUdeviceptr handle;
    uint64_t bytes;
    CUdevice device;
    struct context *context;
    struct pool *pool;
    int handles, mappings;
};
struct mapping { CUdeviceptr address; uint64_t bytes; struct live *live; };
static struct live lives[LIVE];
static struct mapping mappings[LIVE];
static CUdeviceptr next_handle = 0x700000000000;

static struct live *live_of(enum kind kind, CUdeviceptr handle)
{
    for (int i = 0; handle && i < LIVE; i++)
        if (lives[i].kind == kind && lives[i].handle == handle) return &lives[i];
    return NULL;
}
static CUresult allocate(enum kind kind, void *handle, uint64_t bytes, CUdevice device)
{
    if (!bytes) return INVALID_VALUE;
    if (kind != CREATED && !current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    struct live *live = lives;
    while (live < lives + LIVE && live->kind) live++;
    CUresult result = live < lives + LIVE && occupy(device, bytes) ? SUCCESS : OUT_OF_MEMORY;
    if (!result) {
        *live = (struct live){.kind = kind, .handle = next_handle, .bytes = bytes, .device = device, .handles = 1,
                              .context = kind == CREATED ? NULL : current};
        next_handle += (bytes + 511) & ~511ULL;
        memcpy(handle, &live->handle, sizeof live->handle);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
static CUresult end(enum kind kind, CUdeviceptr handle)
{
    pthread_mutex_lock(&lock);
    struct live *live = live_of(kind, handle);
    if (live) {
        vacate(live->device, live->bytes);
        live->kind = 0;
    }
    pthread_mutex_unlock(&lock);
    return live ? SUCCESS : INVALID_VALUE;
}
static void end_context(struct context *context)
{
    for (int i = 0; i < LIVE; i++)
        if (lives[i].kind && lives[i].context == context) {
            vacate(lives[i].device, lives[i].bytes);
            lives[i].kind = 0;
        }
    for (int limit = 1; limit <= 2; limit++) {
        if (context->limits[limit]) vacate(context->device, context->limits[limit]);
        context->limits[limit] = 0;
    }
}
static CUdevice here(void) { return current ? current->device : 0; }

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    if (!current) return INVALID_CONTEXT;
    register_process();
    forget_the_dead();
    *total = device_bytes();
    *free_bytes = device_bytes() - state->used_bytes[current->device];
    return SUCCESS;
}
EXPORT CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total)
{
    size_t wide_free, wide_total;
    CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (!result) *free_bytes = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    if (!result) *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return result;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) { return allocate(ADDRESS, address, bytes, here()); }
EXPORT CUresult cuMemAlloc(unsigned *address, unsigned bytes)
{
    CUdeviceptr wide = 0;
    CUresult result = allocate(ADDRESS, &wide, bytes, here());
    *address = (unsigned)wide;
    return result;
}
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(ADDRESS, address, bytes, here());
}
EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    *pitch = (width + 511) & ~511ULL;
    return allocate(ADDRESS, address, *pitch * height, here());
}
EXPORT CUresult cuMemAllocPitch(unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
    (void)element;
    *pitch = (width + 511) & ~511U;
    return cuMemAlloc(address, *pitch * height);
}
struct array { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
static uint64_t bytes_of(int format) { return format == 0x20 || format == 3 || format == 10 ? 4 : format == 0x10 ? 2 : 1; }
EXPORT CUresult cuArrayCreate_v2(void **array, const struct array *asked)
{
    size_t rows = asked->height ? asked->height : 1;
    return allocate(ARRAY, array, asked->width * rows * asked->channels * bytes_of(asked->format), here());
}
EXPORT CUresult cuArrayCreate(void **array, const void *asked) { (void)asked; return allocate(ARRAY, array, 1 << 20, here()); }
EXPORT CUresult cuArray3DCreate(void **array, const void *asked) { return cuArrayCreate(array, asked); }
static uint64_t array3d_bytes(const struct array3d *asked)
{
    size_t rows = asked->height ? asked->height : 1, layers = asked->depth ? asked->depth : 1;
    return asked->width * rows * layers * asked->channels * bytes_of(asked->format);
}
EXPORT CUresult cuArray3DCreate_v2(void **array, const struct array3d *asked)
{
    return allocate(ARRAY, array, array3d_bytes(asked), here());
}
EXPORT CUresult cuMipmappedArrayCreate(void **array, const struct array3d *asked, unsigned levels)
{
    uint64_t bytes = 0;
    struct array3d level = *asked;
    for (unsigned i = 0; i < levels; i++) {
        bytes += array3d_bytes(&level);
        level.width = level.width > 1 ? level.width / 2 : 1;
        level.height = level.height > 1 ? level.height / 2 : level.height;
        level.depth = level.depth > 1 ? level.depth / 2 : level.depth;
    }
    return allocate(MIPMAP, array, bytes, here());
}
EXPORT CUresult cuArrayDestroy(void *array) { return end(ARRAY, (CUdeviceptr)array); }
EXPORT CUresult cuMipmappedArrayDestroy(void *array) { return end(MIPMAP, (CUdeviceptr)array); }

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr at, uint64_t flags)
{
    (void)bytes, (void)alignment, (void)at, (void)flags;
    *address = 0x1000000000;
    return SUCCESS;
}
EXPORT CUresult cuMemCreate(CUdeviceptr *handle, size_t bytes, const int *properties, uint64_t flags)
{
    (void)flags;
    if (properties[2] != 1) { /* on the host */
        *handle = 0x1000;
        return SUCCESS;
    }
    return allocate(CREATED, handle, bytes, properties[3]);
}
static CUresult let_go(struct live *live)
{
    if (live && !live->handles && !live->mappings) {
        vacate(live->device, live->bytes);
        live->kind = 0;
    }
    return live ? SUCCESS : INVALID_VALUE;
}
EXPORT CUresult cuMemRelease(CUdeviceptr handle)
{
    struct live *live = live_of(CREATED, handle);
    if (handle == 0x1000) return SUCCESS;
    if (live && live->handles) live->handles--;
    return let_go(live);
}
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUdeviceptr handle, uint64_t flags)
{
    (void)offset, (void)flags;
    struct mapping *mapping = mappings;
    while (mapping->live) mapping++;
    *mapping = (struct mapping){address, bytes, live_of(CREATED, handle)};
    if (!mapping->live) return INVALID_VALUE;
    mapping->live->mappings++;
    return SUCCESS;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    int unmapped = 0;
    for (struct mapping *m = mappings; m < mappings + LIVE; m++)
        if (m->live && m->address >= address && m->address < address + bytes) {
            m->live->mappings--;
            let_go(m->live);
            m->live = NULL;
            unmapped++;
        }
    return unmapped ? SUCCESS : INVALID_VALUE;
}
EXPORT CUresult cuMemRetainAllocationHandle(CUdeviceptr *handle, void *address)
{
    for (struct mapping *m = mappings; m < mappings + LIVE; m++)
        if (m->live && m->address <= (CUdeviceptr)address && (CUdeviceptr)address < m->address + m->bytes) {
            m->live->handles++;
            *handle = m->live->handle;
            return SUCCESS;
        }
    return INVALID_VALUE;
}
EXPORT CUresult cuMemImportFromShareableHandle(CUdeviceptr *handle, void *shared, int type)
{
    (void)shared, (void)type;
    *handle = 0x2000; /* memory that another process allocated */
    return SUCCESS;
}
EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, const void *handle, unsigned flags)
{
    (void)handle, (void)flags;
    *address = 0x600000000000;
    return SUCCESS;
}
EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) { return address == 0x600000000000 ? SUCCESS : INVALID_VALUE; }
EXPORT CUresult cuImportExternalMemory(void **memory, const void *description)
{
    (void)description;
    static CUdeviceptr next = 0x5000;
    *memory = (void *)(next += 16);
    return SUCCESS;
}
EXPORT CUresult cuDestroyExternalMemory(void *memory) { (void)memory; return SUCCESS; }

/* ---- Pools: freed memory stays reserved until the device is synchronized, above the threshold ---- */

struct pool { CUdevice device; uint64_t reserved_bytes, used_bytes, threshold_bytes; int on_host; };
static struct pool default_pools[DEVICES];
static struct pool *pools[256];
static int pool_count;

EXPORT CUresult cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device)
{
    *pool = &default_pools[device];
    (*pool)->device = device;
    return SUCCESS;
}
EXPORT CUresult cuDeviceGetMemPool(struct pool **pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }
EXPORT CUresult cuMemPoolCreate(struct pool **pool, const int *properties)
{
    *pool = pools[pool_count++] = calloc(1, sizeof **pool);
    (*pool)->on_host = properties[2] != 1;
    (*pool)->device = properties[3];
    return SUCCESS;
}
static void shrink(struct pool *pool, uint64_t keep)
{
    uint64_t least = (pool->used_bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    if (keep < least) keep = least;
    if (pool->reserved_bytes > keep) {
        vacate(pool->device, pool->reserved_bytes - keep);
        pool->reserved_bytes = keep;
    }
}
EXPORT CUresult cuMemPoolDestroy(struct pool *pool)
{
    for (int i = 0; i < pool_count; i++)
        if (pools[i] == pool) pools[i] = pools[--pool_count];
    pool->used_bytes = 0;
    if (!pool->on_host) shrink(pool, 0);
    free(pool);
    return SUCCESS;
}
EXPORT CUresult cuMemPoolTrimTo(struct pool *pool, size_t keep) { shrink(pool, keep); return SUCCESS; }
EXPORT CUresult cuMemPoolSetAttribute(struct pool *pool, int attribute, const uint64_t *value)
{
    if (attribute == 4) pool->threshold_bytes = *value;
    return SUCCESS;
}
EXPORT CUresult cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value)
{
    *value = attribute == 4 ? pool->threshold_bytes : attribute == 5 ? pool->reserved_bytes : pool->used_bytes;
    return SUCCESS;
}
static void settle(void)
{
    for (int i = 0; i < DEVICES; i++) shrink(&default_pools[i], default_pools[i].threshold_bytes);
    for (int i = 0; i < pool_count; i++)
        if (!pools[i]->on_host) shrink(pools[i], pools[i]->threshold_bytes);
}
EXPORT CUresult cuStreamSynchronize(struct stream *stream) { (void)stream; settle(); return SUCCESS; }
EXPORT CUresult cuStreamSynchronize_ptsz(struct stream *stream) { return cuStreamSynchronize(stream); }
EXPORT CUresult cuEventCreate(void **event, unsigned flags) { (void)flags; *event = (void *)0x10; return SUCCESS; }
EXPORT CUresult cuEventRecord(void *event, struct stream *stream) { (void)event, (void)stream; return SUCCESS; }
EXPORT CUresult cuEventSynchronize(void *event) { (void)event; settle(); return SUCCESS; }
EXPORT CUresult cuCtxSynchronize(void) { settle(); return SUCCESS; }
EXPORT CUresult cuCtxSynchronize_v2(struct context *context) { (void)context; settle(); return SUCCESS; }
EXPORT CUresult cuMemGetDefaultMemPool(struct pool **pool, const int *location, int type)
{
    static struct pool of_host = {.on_host = 1};
    (void)type;
    *pool = &of_host;
    return location[0] == 1 ? cuDeviceGetDefaultMemPool(pool, location[1]) : SUCCESS;
}
EXPORT CUresult cuMemGetMemPool(struct pool **pool, const int *location, int type)
{
    return cuMemGetDefaultMemPool(pool, location, type);
}
EXPORT CUresult cuMemPoolImportFromShareableHandle(struct pool **pool, void *shared, int type, uint64_t flags)
{
    static const int elsewhere[] = {1, 0, 2, 0};
    (void)shared, (void)type, (void)flags;
    return cuMemPoolCreate(pool, elsewhere);
}

static CUresult add_alloc_node(struct graph *graph, CUdevice device, size_t bytes, CUdeviceptr *address);
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, struct pool *pool, struct stream *stream)
{
    if (is_of_its_own(stream) && stream->captured) return add_alloc_node(stream->captured, pool->device, bytes, address);
    pthread_mutex_lock(&lock);
    CUresult result = SUCCESS;
    uint64_t needed = pool->used_bytes + bytes;
    if (!pool->on_host && needed > pool->reserved_bytes) {
        uint64_t growth = (needed - pool->reserved_bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
        if (occupy(pool->device, growth)) pool->reserved_bytes += growth;
        else result = OUT_OF_MEMORY;
    }
    if (!result) {
        struct live *live = lives;
        while (live->kind) live++;
        *live = (struct live){.kind = FROM_POOL, .handle = next_handle, .bytes = bytes, .pool = pool};
        *address = next_handle;
        next_handle += (bytes + 511) & ~511ULL;
        pool->used_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, struct pool *pool, struct stream *stream)
{
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, struct stream *stream)
{
    struct context *context;
    struct pool *pool;
    cuStreamGetCtx(stream, &context);
    if (!context) return INVALID_CONTEXT;
    cuDeviceGetDefaultMemPool(&pool, context->device);
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}
EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, struct stream *stream)
{
    return cuMemAllocAsync(address, bytes, stream);
}
static CUresult free_of_graph(CUdeviceptr address);
EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, struct stream *stream)
{
    (void)stream;
    if (free_of_graph(address) == SUCCESS) return SUCCESS;
    pthread_mutex_lock(&lock);
    struct live *live = live_of(FROM_POOL, address);
    if (live) {
        live->pool->used_bytes -= live->bytes;
        live->kind = 0;
    }
    pthread_mutex_unlock(&lock);
    return live ? SUCCESS : end(ADDRESS, address);
}
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, struct stream *stream) { return cuMemFreeAsync(address, stream); }
EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    return cuMemFreeAsync(address, NULL);
}
EXPORT CUresult cuMemFree(unsigned address) { return cuMemFree_v2(address); }

/* ---- Graphs: their memory is there from the first launch until it is freed, and then trimmed ---- */

struct graph { CUdevice device; uint64_t bytes; };
struct executable { CUdevice device; uint64_t bytes; int launched; };
struct graph_block { CUdevice device; CUdeviceptr address; uint64_t bytes; };
static struct graph_block graph_blocks[256];
static int graph_block_count;
static uint64_t graph_reserved[DEVICES], graph_used[DEVICES];

EXPORT CUresult cuGraphCreate(struct graph **graph, unsigned flags)
{
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return SUCCESS;
}
static CUresult add_alloc_node(struct graph *graph, CUdevice device, size_t bytes, CUdeviceptr *address)
{
    graph->device = device;
    graph->bytes += bytes;
    *address = next_handle;
    if (graph_block_count == 256) return OUT_OF_MEMORY;
    graph_blocks[graph_block_count++] = (struct graph_block){device, *address, bytes};
    next_handle += (bytes + 511) & ~511ULL;
    return SUCCESS;
}
struct alloc_node { int properties[4]; void *reserved[9]; const void *access; size_t access_count, bytes; CUdeviceptr address; };
EXPORT CUresult cuGraphAddMemAllocNode(void **node, struct graph *graph, void *const *dependencies, size_t count,
                                       struct alloc_node *asked)
{
    (void)dependencies, (void)count;
    *node = graph;
    return add_alloc_node(graph, asked->properties[3], asked->bytes, &asked->address);
}
struct node { int type, reserved[3]; struct alloc_node alloc; };
EXPORT CUresult cuGraphAddNode(void **node, struct graph *graph, void *const *dependencies, size_t count, struct node *asked)
{
    return asked->type == ALLOC_NODE ? cuGraphAddMemAllocNode(node, graph, dependencies, count, &asked->alloc) : SUCCESS;
}
EXPORT CUresult cuGraphAddNode_v2(void **node, struct graph *graph, void *const *dependencies, const void *edges,
                                  size_t count, struct node *asked)
{
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, asked);
}
EXPORT CUresult cuGraphAddNode_v3(void **node, struct graph *graph, void *const *dependencies, const void *edges,
                                  size_t count, struct node *asked)
{
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, asked);
}
static CUresult free_of_graph(CUdeviceptr address)
{
    for (int i = 0; i < graph_block_count; i++)
        if (graph_blocks[i].address == address && graph_used[graph_blocks[i].device] >= graph_blocks[i].bytes) {
            graph_used[graph_blocks[i].device] -= graph_blocks[i].bytes;
            graph_blocks[i] = graph_blocks[--graph_block_count];
            return SUCCESS;
        }
    return INVALID_VALUE;
}
static CUresult instantiate(struct executable **executable, const struct graph *graph)
{
    *executable = calloc(1, sizeof **executable);
    (*executable)->device = graph->device;
    (*executable)->bytes = graph->bytes;
    return SUCCESS;
}
EXPORT CUresult cuGraphInstantiate(struct executable **executable, struct graph *graph, void **node, char *log, size_t length)
{
    (void)node, (void)log, (void)length;
    return instantiate(executable, graph);
}
EXPORT CUresult cuGraphInstantiate_v2(struct executable **executable, struct graph *graph, void **node, char *log, size_t length)
{
    return cuGraphInstantiate(executable, graph, node, log, length);
}
EXPORT CUresult cuGraphInstantiateWithFlags(struct executable **executable, struct graph *graph, uint64_t flags)
{
    (void)flags;
    return instantiate(executable, graph);
}
EXPORT CUresult cuGraphInstantiateWithParams(struct executable **executable, struct graph *graph, void *parameters)
{
    (void)parameters;
    return instantiate(executable, graph);
}
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(struct executable **executable, struct graph *graph, void *parameters)
{
    return cuGraphInstantiateWithParams(executable, graph, parameters);
}
EXPORT CUresult cuGraphUpload(struct executable *executable, struct stream *stream)
{
    (void)stream;
    if (executable->launched) return SUCCESS;
    if (!occupy(executable->device, executable->bytes)) return OUT_OF_MEMORY;
    executable->launched = 1;
    graph_reserved[executable->device] += executable->bytes;
    graph_used[executable->device] += executable->bytes;
    return SUCCESS;
}
EXPORT CUresult cuGraphUpload_ptsz(struct executable *executable, struct stream *stream) { return cuGraphUpload(executable, stream); }
EXPORT CUresult cuGraphLaunch(struct executable *executable, struct stream *stream) { return cuGraphUpload(executable, stream); }
EXPORT CUresult cuGraphLaunch_ptsz(struct executable *executable, struct stream *stream) { return cuGraphUpload(executable, stream); }
EXPORT CUresult cuGraphExecDestroy(struct executable *executable)
{
    free(executable); /* what it allocated stays until it is freed */
    return SUCCESS;
}
EXPORT CUresult cuGraphDestroy(struct graph *graph) { free(graph); return SUCCESS; }
EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    vacate(device, graph_reserved[device] - graph_used[device]);
    graph_reserved[device] = graph_used[device];
    return SUCCESS;
}
EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, uint64_t *value)
{
    *value = attribute >= 2 ? graph_reserved[device] : graph_used[device];
    return SUCCESS;
}
EXPORT CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) { (void)mode; return cuGraphCreate(&stream->captured, 0); }
EXPORT CUresult cuStreamEndCapture(struct stream *stream, struct graph **graph)
{
    *graph = stream->captured;
    stream->captured = NULL;
    return SUCCESS;
}

/* ---- How the runtime library finds all this ---- */

static CUresult not_supported(void) { return NOT_SUPPORTED; }
static CUresult succeed(void) { return SUCCESS; }
EXPORT CUresult cuModuleGetLoadingMode(int *mode) { *mode = 2; return SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult error, const char **text) { *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }

/* What the runtime library needs of the tables that nobody documents: the context of a device, room for the callbacks of
 * profilers, and a value for each context. The first entry of some is their size. */
static CUresult primary_of(struct context **context, CUdevice device)
{
    *context = &primary[device];
    return SUCCESS;
}
static CUresult callbacks(void **room, size_t *count)
{
    static char none[4096];
    *room = none;
    *count = 512;
    return SUCCESS;
}
static struct { void *context, *key, *value; } storage[64];
static CUresult store(void *context, void *key, void *value, void *destructor)
{
    (void)destructor;
    for (int i = 0; i < 64; i++)
        if (!storage[i].key || (storage[i].key == key && storage[i].context == context)) {
            storage[i].context = context, storage[i].key = key, storage[i].value = value;
            return SUCCESS;
        }
    return OUT_OF_MEMORY;
}
static CUresult load(void **value, void *context, void *key)
{
    for (int i = 0; i < 64; i++)
        if (storage[i].key == key && storage[i].context == context) {
            *value = storage[i].value;
            return SUCCESS;
        }
    return INVALID_VALUE;
}
EXPORT CUresult cuGetExportTable(const void **table, const unsigned char *id)
{
    static const void *of_devices[64], *of_profilers[64], *of_contexts[64];
    of_devices[0] = of_profilers[0] = of_contexts[0] = (const void *)sizeof of_devices;
    for (int i = 1; i < 64; i++) of_devices[i] = of_profilers[i] = of_contexts[i] = (const void *)succeed;
    of_devices[2] = (const void *)primary_of;
    of_profilers[2] = of_profilers[6] = (const void *)callbacks;
    of_contexts[0] = (const void *)store;
    of_contexts[2] = (const void *)load;
    if (id[0] == 0xd4) return NOT_FOUND; /* by which runtimes and drivers from 11.2 on know each other: not ours to answer */
    *table = id[0] == 0xa0 ? of_profilers : id[0] == 0xc6 ? of_contexts : of_devices;
    return SUCCESS;
}
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);
EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
static const struct { const char *name; void *address; } functions[] = {
#define FUNCTION(name) {#name, (void *)name},
#include "names.h"
};
static void *function_of(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return functions[i].address;
    return NULL;
}
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    static const char *const with_stream[] = {"_ptsz", "_v2", ""}, *const without[] = {"_v2", "", ""};
    static const char *const old[] = {"", "", ""}, *const third[] = {"_v3", "_v2", ""};
    const char *const *suffixes = version < 3020 ? old : flags & 2 ? with_stream : version >= 13040 ? third : without;
    if (version < 13000 && !strcmp(symbol, "cuCtxSynchronize")) suffixes = old;
    const char *asked = getenv("CUDA_DOUBLE_ASKED");
    if (asked) {
        FILE *file = fopen(asked, "ae");
        if (file) fprintf(file, "%s %d %llu\n", symbol, version, (unsigned long long)flags), fclose(file);
    }
    int is_first_graph_add = !strcmp(symbol, "cuGraphAddNode") && version < 12030; /* its second form is of CUDA 12.3 */
    int is_first_proc = !strcmp(symbol, "cuGetProcAddress") && version < 12000;
    int is_flags = !strcmp(symbol, "cuGraphInstantiate") && version >= 12000;
    *function = is_flags ? (void *)cuGraphInstantiateWithFlags : NULL;
    for (int i = is_first_graph_add || is_first_proc ? 2 : 0; i < 3 && !*function; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
        *function = function_of(name);
    }
    if (!*function && !strncmp(symbol, "cu", 2)) *function = (void *)not_supported;
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
