/* What the parts of the double share: the lock, the state, handles, and how functions of the library begin and end. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "state.h"

#define API __attribute__((visibility("default")))

typedef int result;
typedef void *handle;

enum {
    OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, TIMEOUT = 10,
    LOST = 15, VERSION_MISMATCH = 25,
};
enum { NO_INSTANCE = -1 };

/* What the file said last. Read and written between enter() and leave(). */
extern struct node node;

/* Take the lock and read the state. Every function that succeeded here ends with leave(). */
result enter(void);

/* Give the lock back, and return the outcome. */
result leave(result outcome);

/* Microseconds since the epoch. */
unsigned long long wall_microseconds(void);

/* The GPU of a handle, or NULL. */
const struct gpu *gpu_of(handle device);

/* The handle of the GPU with this place in the state. */
handle handle_of(unsigned index);

#define ENTER \
    do { \
        result entered_ = enter(); \
        if (entered_ != OK) return entered_; \
    } while (0)
/* Begin a function of a device, which `gpu` is then; `even_if_lost` for those that answer for one that fell off the bus. */
#define DEVICE(even_if_lost) \
    ENTER; \
    const struct gpu *gpu = gpu_of(device); \
    if (!gpu) return leave(INVALID); \
    if (gpu->lost && !(even_if_lost)) return leave(LOST)

#define GETTER(function, type, field) \
    API result function(handle device, type *value) \
    { \
        DEVICE(0); \
        *value = (type)gpu->field; \
        return leave(OK); \
    }
#define TEXT_GETTER(function, even_if_lost, field) \
    API result function(handle device, char *text, unsigned size) \
    { \
        DEVICE(even_if_lost); \
        if (strlen(gpu->field) >= size) return leave(TOO_SMALL); \
        strcpy(text, gpu->field); \
        return leave(OK); \
    }

#endif
