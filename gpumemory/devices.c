/* Which device a call is about, and whether the container may have more of it. */
#include "library.h"

enum { MOST_ORDINALS = 64, NOT_ASKED = 0 };

static _Atomic int devices[MOST_ORDINALS]; /* one more than the number, so that 0 is one that nobody asked for */
static _Atomic int ordinals[MOST_DEVICES];

static int uuid_of(ordinal device, unsigned char uuid[UUID_BYTES])
{
    /* the second form knows MIG instances; drivers before 11.4 have the first one only */
    return CALL(cuDeviceGetUuid_v2, (unsigned char *, ordinal), (uuid, device)) == CUDA_OK ||
           CALL(cuDeviceGetUuid, (unsigned char *, ordinal), (uuid, device)) == CUDA_OK;
}

int device_of(ordinal device)
{
    unsigned char uuid[UUID_BYTES];
    int is_known = device >= 0 && device < MOST_ORDINALS;
    if (is_known && devices[device] != NOT_ASKED) return devices[device] - 1;
    int number = uuid_of(device, uuid) ? usage_device(uuid) : NO_DEVICE;
    if (is_known && number != NO_DEVICE) {
        devices[device] = number + 1;
        ordinals[number] = device;
    }
    return number;
}

int ordinal_of(int device) { return ordinals[device]; }

uint64_t limit_of_ordinal(ordinal device)
{
    unsigned char uuid[UUID_BYTES];
    return uuid_of(device, uuid) ? limit_of(uuid) : 0;
}

int current_device(void)
{
    ordinal device;
    if (CALL(cuCtxGetDevice, (ordinal *), (&device)) != CUDA_OK) return NO_CONTEXT;
    return device_of(device);
}

int device_of_location(const struct location *location)
{
    if (location->type == LOCATION_DEVICE) return device_of(location->id);
    if (location->type == LOCATION_DEVICE_DOMAIN) return device_of(location->id & 0xff);
    if (location->type >= LOCATION_HOST && location->type <= LOCATION_HOST_NUMA_CURRENT) return UNCOUNTED;
    int device = current_device();
    return device == NO_CONTEXT ? UNCOUNTED : device;
}

handle current_context(void)
{
    handle context = NULL;
    return CALL(cuCtxGetCurrent, (handle *), (&context)) == CUDA_OK ? context : NULL;
}

int reserve(int device, uint64_t bytes)
{
    if (usage_reserve(device, bytes)) return 1;
    pools_refresh();
    return usage_reserve(device, bytes);
}
