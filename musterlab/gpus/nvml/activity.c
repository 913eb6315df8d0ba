/* What the GPUs do: memory, utilization, sensors, ECC errors, processes. */
#include "library.h"

#include <time.h>

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static unsigned long long free_of(const struct gpu *gpu)
{
    unsigned long long taken = gpu->memory_reserved + gpu->memory_used;
    return taken < gpu->memory_total ? gpu->memory_total - taken : 0;
}

API result nvmlDeviceGetMemoryInfo(handle device, struct memory *memory)
{
    DEVICE(0);
    *memory = (struct memory){gpu->memory_total, free_of(gpu), gpu->memory_used};
    return leave(OK);
}

API result nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory)
{
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    DEVICE(0);
    *memory = (struct memory_v2){memory->version, gpu->memory_total, gpu->memory_reserved, free_of(gpu), gpu->memory_used};
    return leave(OK);
}

API result nvmlDeviceGetBAR1MemoryInfo(handle device, struct memory *memory)
{
    DEVICE(0);
    *memory = (struct memory){gpu->bar1_total, gpu->bar1_total, 0};
    return leave(OK);
}

API result nvmlDeviceGetUtilizationRates(handle device, unsigned rates[2])
{
    DEVICE(0);
    rates[0] = (unsigned)gpu->utilization;
    rates[1] = (unsigned)gpu->memory_utilization;
    return leave(OK);
}

API result nvmlDeviceGetTemperature(handle device, unsigned sensor, unsigned *celsius)
{
    DEVICE(0);
    if (sensor) return leave(INVALID);
    *celsius = (unsigned)gpu->temperature;
    return leave(OK);
}

GETTER(nvmlDeviceGetPowerUsage, unsigned, power)

API result nvmlDeviceGetClockInfo(handle device, unsigned kind, unsigned *megahertz)
{
    enum { GRAPHICS, SM, MEMORY };
    DEVICE(0);
    if (kind > MEMORY) return leave(kind == MEMORY + 1 ? NOT_SUPPORTED : INVALID);
    *megahertz = (unsigned)(kind == MEMORY ? gpu->memory_clock : gpu->sm_clock);
    return leave(OK);
}

API result nvmlDeviceGetEccMode(handle device, unsigned *current, unsigned *pending)
{
    DEVICE(0);
    *current = *pending = 1;
    return leave(OK);
}

API result nvmlDeviceGetTotalEccErrors(handle device, unsigned kind, unsigned counter, unsigned long long *count)
{
    DEVICE(0);
    if (kind > 1 || counter > 1) return leave(INVALID);
    *count = kind ? gpu->ecc_uncorrected : gpu->ecc_corrected;
    return leave(OK);
}

struct running {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

API result nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct running *list)
{
    DEVICE(0);
    unsigned room = list ? *count : 0;
    *count = gpu->process_count;
    if (room < gpu->process_count) return leave(TOO_SMALL);
    for (unsigned i = 0; i < gpu->process_count; i++)
        list[i] = (struct running){gpu->processes[i].pid, gpu->processes[i].memory, (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
    return leave(OK);
}

API result nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *count, struct running *list)
{
    (void)list;
    DEVICE(0);
    *count = 0;
    return leave(OK);
}

struct sample {
    unsigned pid;
    unsigned long long microseconds;
    unsigned sm, memory, encoder, decoder;
};

unsigned long long wall_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

API result nvmlDeviceGetProcessUtilization(handle device, struct sample *list, unsigned *count, unsigned long long since)
{
    (void)since;
    DEVICE(0);
    unsigned room = list ? *count : 0;
    *count = gpu->process_count;
    if (!gpu->process_count) return leave(NOT_FOUND);
    if (room < gpu->process_count) return leave(TOO_SMALL);
    for (unsigned i = 0; i < gpu->process_count; i++)
        list[i] = (struct sample){gpu->processes[i].pid, wall_microseconds(), (unsigned)gpu->utilization, 0, 0, 0};
    return leave(OK);
}
