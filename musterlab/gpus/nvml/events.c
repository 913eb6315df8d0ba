/* The errors that the driver tells of, by their Xid. */
#include "library.h"

#include <stdlib.h>
#include <unistd.h>

enum { EVENT_XID = 8, POLL_MICROSECONDS = 20000 };

struct event_set {
    int is_registered[MOST_GPUS];
    unsigned long long seen[MOST_GPUS];
};
struct event {
    handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

API result nvmlEventSetCreate(struct event_set **set)
{
    ENTER;
    *set = calloc(1, sizeof **set);
    return leave(*set ? OK : NOT_LOADED);
}

API result nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return OK;
}

API result nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types)
{
    DEVICE(0);
    *types = EVENT_XID;
    return leave(OK);
}

API result nvmlDeviceRegisterEvents(handle device, unsigned long long types, struct event_set *set)
{
    DEVICE(0);
    if (types & ~(unsigned long long)EVENT_XID) return leave(NOT_SUPPORTED);
    set->is_registered[gpu - node.gpus] = types != 0;
    set->seen[gpu - node.gpus] = gpu->xid_number;
    return leave(OK);
}

static int take_event(struct event_set *set, struct event *event)
{
    for (unsigned i = 0; i < node.count; i++) {
        const struct gpu *gpu = &node.gpus[i];
        if (!set->is_registered[i] || gpu->xid_number <= set->seen[i]) continue;
        set->seen[i] = gpu->xid_number;
        *event = (struct event){handle_of(i), EVENT_XID, gpu->xid, (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
        return 1;
    }
    return 0;
}

API result nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned milliseconds)
{
    unsigned long long end = wall_microseconds() + milliseconds * 1000ULL;
    for (;;) {
        ENTER;
        int is_taken = take_event(set, event);
        leave(OK);
        if (is_taken) return OK;
        if (wall_microseconds() >= end) return TIMEOUT;
        usleep(POLL_MICROSECONDS);
    }
}
