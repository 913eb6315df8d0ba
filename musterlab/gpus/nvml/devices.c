/* Which GPUs there are, and what they are.
 *
 * A GPU that fell off the bus still has UUID, index and minor number, by which its error is told from those of others. */
#include "library.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SAME_SWITCH = 10, SAME_SYSTEM = 50 };

static int has_device_file(const struct gpu *gpu)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/nvidia%llu", gpu->minor);
    return !access(path, F_OK);
}

/* Write the indices of the GPUs that this process may see, and return how many: in a container those whose device file is
 * there, and all if none is. */
static unsigned visible(unsigned indices[MOST_GPUS])
{
    unsigned count = 0;
    for (unsigned i = 0; !state_is_of_the_node() && i < node.count; i++)
        if (has_device_file(&node.gpus[i])) indices[count++] = i;
    for (unsigned i = 0; !count && i < node.count; i++) indices[i] = i;
    return count ? count : node.count;
}

API result nvmlDeviceGetCount_v2(unsigned *count)
{
    unsigned indices[MOST_GPUS];
    ENTER;
    *count = visible(indices);
    return leave(OK);
}

API result nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device)
{
    unsigned indices[MOST_GPUS];
    ENTER;
    if (index >= visible(indices)) return leave(INVALID);
    *device = handle_of(indices[index]);
    return leave(node.gpus[indices[index]].lost ? LOST : OK);
}

static result find(const char *text, size_t field, handle *device)
{
    unsigned indices[MOST_GPUS];
    ENTER;
    unsigned count = visible(indices);
    for (unsigned i = 0; i < count; i++) {
        const struct gpu *gpu = &node.gpus[indices[i]];
        if (strcasecmp((const char *)gpu + field, text)) continue;
        *device = handle_of(indices[i]);
        return leave(gpu->lost ? LOST : OK);
    }
    return leave(NOT_FOUND);
}

API result nvmlDeviceGetHandleByUUID(const char *uuid, handle *device)
{
    return find(uuid, offsetof(struct gpu, uuid), device);
}

/* A bus id is written with a domain of four digits or of eight; the state has four. */
API result nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *device)
{
    if (strlen(bus_id) == strlen("00000000:00:00.0") && !strncmp(bus_id, "0000", 4)) bus_id += 4;
    return find(bus_id, offsetof(struct gpu, bus_id), device);
}

API result nvmlDeviceGetIndex(handle device, unsigned *index)
{
    unsigned indices[MOST_GPUS];
    DEVICE(1);
    unsigned count = visible(indices);
    for (unsigned i = 0; i < count; i++)
        if (&node.gpus[indices[i]] == gpu) return *index = i, leave(OK);
    return leave(NOT_FOUND);
}

TEXT_GETTER(nvmlDeviceGetUUID, 1, uuid)
TEXT_GETTER(nvmlDeviceGetName, 0, name)
TEXT_GETTER(nvmlDeviceGetSerial, 0, serial)
GETTER(nvmlDeviceGetBrand, int, brand)
GETTER(nvmlDeviceGetArchitecture, unsigned, architecture)

API result nvmlDeviceGetMinorNumber(handle device, unsigned *minor)
{
    DEVICE(1);
    *minor = (unsigned)gpu->minor;
    return leave(OK);
}

API result nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor)
{
    DEVICE(0);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return leave(OK);
}

struct pci {
    char short_bus_id[16];
    unsigned domain, bus, slot, device, subsystem;
    char bus_id[32];
};

static void write_pci(const struct gpu *gpu, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->slot);
    snprintf(pci->short_bus_id, sizeof pci->short_bus_id, "%.15s", gpu->bus_id);
    snprintf(pci->bus_id, sizeof pci->bus_id, "0000%.27s", gpu->bus_id);
    pci->device = (unsigned)gpu->pci_device;
    pci->subsystem = (unsigned)gpu->pci_subsystem;
}

API result nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci)
{
    DEVICE(0);
    write_pci(gpu, pci);
    return leave(OK);
}

API result nvmlDeviceGetTopologyCommonAncestor(handle device, handle other, unsigned *level)
{
    DEVICE(0);
    const struct gpu *second = gpu_of(other);
    if (!second) return leave(INVALID);
    *level = strcmp(gpu->root, second->root) ? SAME_SYSTEM : SAME_SWITCH;
    return leave(OK);
}

API result nvmlDeviceGetNvLinkState(handle device, unsigned link, unsigned *is_active)
{
    DEVICE(0);
    if (link >= gpu->link_count) return leave(link < MOST_LINKS ? NOT_SUPPORTED : INVALID);
    *is_active = 1;
    return leave(OK);
}

API result nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, unsigned link, struct pci *pci)
{
    DEVICE(0);
    if (link >= gpu->link_count) return leave(INVALID);
    if (gpu->links[link] == TO_SWITCH || (unsigned)gpu->links[link] >= node.count) return leave(NOT_SUPPORTED);
    write_pci(&node.gpus[gpu->links[link]], pci);
    return leave(OK);
}

/* A handle of a device is never one of a part of it. */
API result nvmlDeviceIsMigDeviceHandle(handle device, unsigned *is_part)
{
    DEVICE(1);
    *is_part = 0;
    return leave(OK);
}
