/* A double of NVIDIA's management library for nodes of a lab: the functions that NVIDIA's device plugin, its DRA driver, its
 * container toolkit and muster's agent call. It computes nothing; what it shows is in a file (state.h).
 *
 * library.c: the library itself; devices.c: which GPUs there are, and what they are; activity.c: what they do;
 * events.c: the errors that the driver tells of; absent.c: what the hardware that is shown does not have. */
#include "library.h"

#include <pthread.h>
#include <stdio.h>

struct node node;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static char slots[MOST_GPUS]; /* a handle is the address of one */

result enter(void)
{
    pthread_mutex_lock(&lock);
    result outcome = !users ? UNINITIALIZED : read_state(&node) ? OK : NOT_LOADED;
    if (outcome != OK) pthread_mutex_unlock(&lock);
    return outcome;
}

result leave(result outcome)
{
    pthread_mutex_unlock(&lock);
    return outcome;
}

const struct gpu *gpu_of(handle device)
{
    char *slot = device;
    return slot >= slots && slot < slots + node.count ? &node.gpus[slot - slots] : NULL;
}

handle handle_of(unsigned index) { return &slots[index]; }

API result nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    result outcome = read_state(&node) ? OK : NOT_LOADED;
    users += outcome == OK;
    return leave(outcome);
}

API result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API result nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    result outcome = users ? OK : UNINITIALIZED;
    users -= outcome == OK;
    return leave(outcome);
}

API const char *nvmlErrorString(result code)
{
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

API result nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    ENTER;
    return leave((unsigned)snprintf(text, size, "%s", node.driver) < size ? OK : TOO_SMALL);
}

API result nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    ENTER;
    return leave((unsigned)snprintf(text, size, "%d.%s", node.cuda / 1000, node.driver) < size ? OK : TOO_SMALL);
}

API result nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER;
    *version = node.cuda;
    return leave(OK);
}

API result nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

API result nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size)
{
    ENTER;
    for (unsigned i = 0; i < node.count; i++)
        for (unsigned j = 0; j < node.gpus[i].process_count; j++)
            if (node.gpus[i].processes[j].pid == pid)
                return leave((unsigned)snprintf(text, size, "%s", node.gpus[i].processes[j].name) < size ? OK : TOO_SMALL);
    return leave(NOT_FOUND);
}
