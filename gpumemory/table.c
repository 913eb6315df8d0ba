/* The hooks by their names. */
#include <string.h>

#include "library.h"

#define DRIVER(name, request, version, per_thread) void name(void); /* their types are where they are defined */
#define MANAGEMENT(name) void name(void);
#include "hooks.h"
#undef DRIVER
#undef MANAGEMENT

static const struct {
    const char *name, *request;
    int version, is_per_thread;
    void (*function)(void);
} hooks[HOOK_COUNT] = {
#define DRIVER(name, request, version, per_thread) {#name, #request, version, per_thread, name},
#define MANAGEMENT(name) {#name, NULL, 0, 0, name},
#include "hooks.h"
#undef DRIVER
#undef MANAGEMENT
};

enum { PER_THREAD_DEFAULT_STREAM = 2 }; /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

void *hook_of(const char *name)
{
    for (int i = 0; i < HOOK_COUNT; i++)
        if (!strcmp(hooks[i].name, name)) return (void *)hooks[i].function;
    return NULL;
}

void *hook_of_request(const char *name, int version, uint64_t flags)
{
    int best = -1, wants_per_thread = (flags & PER_THREAD_DEFAULT_STREAM) != 0;
    /* the one name that went to another function: cuda.h has defined it so since CUDA 12.0 */
    if (version >= 12000 && !strcmp(name, "cuGraphInstantiate")) name = "cuGraphInstantiateWithFlags";
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (!hooks[i].request || strcmp(hooks[i].request, name) || hooks[i].version > version) continue;
        if (hooks[i].is_per_thread && !wants_per_thread) continue;
        int is_better = best < 0 || hooks[i].is_per_thread > hooks[best].is_per_thread ||
                        (hooks[i].is_per_thread == hooks[best].is_per_thread && hooks[i].version > hooks[best].version);
        if (is_better) best = i;
    }
    return best < 0 ? NULL : (void *)hooks[best].function;
}

void *real_function(enum hook hook)
{
    static _Atomic(void *) cache[HOOK_COUNT];
    void *function = cache[hook];
    if (!function) {
        const char *name = hooks[hook].name;
        cache[hook] = function = hooks[hook].request ? driver_function(name) : management_function(name);
    }
    return function;
}
