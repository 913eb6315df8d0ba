/* NVML tells what the container has: its part as the total, its own processes and no others. */
#include <string.h>

#include "library.h"

enum { UUID_TEXT_BYTES = 96, NO_INSTANCE = -1 };

/* Call what a hook stands in front of. */
#define FORWARD_NVML(name, values) \
    __extension__({ \
        __typeof__(&name) function_ = (__typeof__(&name))real_function(HOOK_##name); \
        function_ ? function_ values : NVML_FUNCTION_NOT_FOUND; \
    })

static int uuid_of(handle device, unsigned char uuid[UUID_BYTES])
{
    static _Atomic(void *) cached;
    char text[UUID_TEXT_BYTES] = "";
    void *function = cached;
    if (!function) cached = function = management_function("nvmlDeviceGetUUID");
    if (!function || ((result(*)(handle, char *, unsigned))function)(device, text, sizeof text) != NVML_OK) return 0;
    return read_uuid(text, strnlen(text, sizeof text), uuid);
}

struct share {
    unsigned long long total, used;
};

static struct share share_of(handle device, unsigned long long total)
{
    unsigned char uuid[UUID_BYTES];
    struct share share = {0, 0};
    if (!uuid_of(device, uuid)) return share;
    uint64_t limit = limit_of(uuid), used = usage_total(usage_device(uuid));
    share.total = total < limit ? total : limit;
    share.used = used < share.total ? used : share.total;
    return share;
}

EXPORT result nvmlDeviceGetMemoryInfo(handle device, struct nvml_memory *memory)
{
    result outcome = FORWARD_NVML(nvmlDeviceGetMemoryInfo, (device, memory));
    if (outcome != NVML_OK || !has_limits()) return outcome;
    struct share share = share_of(device, memory->total);
    *memory = (struct nvml_memory){share.total, share.total - share.used, share.used};
    return outcome;
}

EXPORT result nvmlDeviceGetMemoryInfo_v2(handle device, struct nvml_memory_v2 *memory)
{
    result outcome = FORWARD_NVML(nvmlDeviceGetMemoryInfo_v2, (device, memory));
    if (outcome != NVML_OK || !has_limits()) return outcome;
    struct share share = share_of(device, memory->total);
    *memory = (struct nvml_memory_v2){memory->version, share.total, 0, share.total - share.used, share.used};
    return outcome;
}

/* How much of the device's memory the host can map: no more than there is of it. */
EXPORT result nvmlDeviceGetBAR1MemoryInfo(handle device, struct nvml_bar1 *memory)
{
    result outcome = FORWARD_NVML(nvmlDeviceGetBAR1MemoryInfo, (device, memory));
    if (outcome != NVML_OK || !has_limits()) return outcome;
    struct share share = share_of(device, memory->total);
    unsigned long long used = memory->used < share.total ? memory->used : share.total;
    *memory = (struct nvml_bar1){share.total, share.total - used, used};
    return outcome;
}

/* ---- Processes: the container's, by the ids that they have in it ---- */

struct processes {
    unsigned count;
    pid_t pids[MOST_PROCESSES];
    uint64_t bytes[MOST_PROCESSES];
};

static void list_processes(handle device, struct processes *processes)
{
    unsigned char uuid[UUID_BYTES];
    processes->count = 0;
    if (uuid_of(device, uuid))
        processes->count = usage_processes(usage_device(uuid), processes->pids, processes->bytes, MOST_PROCESSES);
}

static result fill_v1(handle device, unsigned *count, struct nvml_process_v1 *infos)
{
    struct processes processes;
    if (!count) return NVML_INVALID_ARGUMENT;
    list_processes(device, &processes);
    unsigned room = infos ? *count : 0;
    *count = processes.count;
    if (room < processes.count) return NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < processes.count; i++)
        infos[i] = (struct nvml_process_v1){(unsigned)processes.pids[i], processes.bytes[i]};
    return NVML_OK;
}

static result fill(handle device, unsigned *count, struct nvml_process *infos)
{
    struct processes processes;
    if (!count) return NVML_INVALID_ARGUMENT;
    list_processes(device, &processes);
    unsigned room = infos ? *count : 0;
    *count = processes.count;
    if (room < processes.count) return NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < processes.count; i++)
        infos[i] = (struct nvml_process){(unsigned)processes.pids[i], processes.bytes[i], (unsigned)NO_INSTANCE,
                                         (unsigned)NO_INSTANCE};
    return NVML_OK;
}

/* Graphics are not counted, and clients of MPS are in the list of those that compute. */
static result fill_nothing(unsigned *count)
{
    if (!count) return NVML_INVALID_ARGUMENT;
    *count = 0;
    return NVML_OK;
}

#define PROCESSES(name, type, answer) \
    EXPORT result name(handle device, unsigned *count, struct type *infos) \
    { \
        return has_limits() ? answer : FORWARD_NVML(name, (device, count, infos)); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvml_process_v1, fill_v1(device, count, infos))
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvml_process, fill(device, count, infos))
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvml_process, fill(device, count, infos))
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvml_process_v1, fill_nothing(count))
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvml_process, fill_nothing(count))
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvml_process, fill_nothing(count))
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvml_process_v1, fill_nothing(count))
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvml_process, fill_nothing(count))
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvml_process, fill_nothing(count))

EXPORT result nvmlDeviceGetRunningProcessDetailList(handle device, struct nvml_process_details *list)
{
    struct processes processes;
    if (!has_limits()) return FORWARD_NVML(nvmlDeviceGetRunningProcessDetailList, (device, list));
    if (!list) return NVML_INVALID_ARGUMENT;
    list_processes(device, &processes);
    unsigned room = list->processes ? list->count : 0;
    list->count = processes.count;
    if (room < processes.count) return NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < processes.count; i++)
        list->processes[i] = (struct nvml_process_detail){(unsigned)processes.pids[i], processes.bytes[i],
                                                          (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE, 0};
    return NVML_OK;
}

static int is_listed(const struct processes *processes, unsigned pid)
{
    for (unsigned i = 0; i < processes->count; i++)
        if ((unsigned)processes->pids[i] == pid) return 1;
    return 0;
}

EXPORT result nvmlDeviceGetProcessUtilization(handle device, struct nvml_utilization *samples, unsigned *count,
                                              unsigned long long since)
{
    struct processes processes;
    result outcome = FORWARD_NVML(nvmlDeviceGetProcessUtilization, (device, samples, count, since));
    if (outcome != NVML_OK || !samples || !has_limits()) return outcome;
    unsigned kept = 0;
    list_processes(device, &processes);
    for (unsigned i = 0; i < *count; i++)
        if (is_listed(&processes, samples[i].pid)) samples[kept++] = samples[i];
    *count = kept;
    return kept ? NVML_OK : NVML_NOT_FOUND;
}

EXPORT result nvmlDeviceGetProcessesUtilizationInfo(handle device, struct nvml_utilizations *list)
{
    struct processes processes;
    result outcome = FORWARD_NVML(nvmlDeviceGetProcessesUtilizationInfo, (device, list));
    if (outcome != NVML_OK || !list->processes || !has_limits()) return outcome;
    unsigned kept = 0;
    list_processes(device, &processes);
    for (unsigned i = 0; i < list->count; i++)
        if (is_listed(&processes, list->processes[i].pid)) list->processes[kept++] = list->processes[i];
    list->count = kept;
    return kept ? NVML_OK : NVML_NOT_FOUND;
}
