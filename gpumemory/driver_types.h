/* What of the interfaces of libcuda and NVML this library reads or writes: layouts as of CUDA 13.5, names of our own.
 * tests/gpumemory/layouts.c holds them against NVIDIA's headers. */
#ifndef MUSTER_DRIVER_TYPES_H
#define MUSTER_DRIVER_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int result;    /* CUresult */
typedef int ordinal;   /* CUdevice */
typedef uint64_t address; /* CUdeviceptr, CUmemGenericAllocationHandle */
typedef void *handle;  /* contexts, streams, pools, arrays, graphs */

enum {
    CUDA_OK = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_NOT_SUPPORTED = 801,
};
enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_HOST_NUMA_CURRENT = 4, LOCATION_DEVICE_DOMAIN = 6 };
enum { LIMIT_PRINTF_BUFFER = 1, LIMIT_MALLOC_HEAP = 2 };
enum { POOL_RESERVED_BYTES = 5, POOL_USED_BYTES = 7, GRAPH_RESERVED_BYTES = 2 };
enum { NODE_ALLOCATES = 10 };
enum { ARRAY_SPARSE = 0x40, ARRAY_WITHOUT_MEMORY = 0x80, ARRAY_LAYERED = 0x01, ARRAY_CUBE = 0x04 };

struct location {
    int type, id; /* of a domain of a device: the device is the first byte of the number */
};
struct allocation_properties {
    int type, handle_types;
    struct location location;
    void *windows;
    unsigned char flags[8];
};
struct pool_properties {
    int type, handle_types;
    struct location location;
    void *windows;
    size_t most_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};
struct array_properties {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array3d_properties {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct alloc_node {
    struct pool_properties pool;
    const void *access;
    size_t access_count, bytes;
    address address;
};
struct graph_node {
    int type, reserved[3];
    struct alloc_node alloc;
};
struct external_memory {
    int type;
    union {
        int file;
        struct {
            void *handle;
            const void *name;
        } windows;
        const void *buffer;
    } source;
    unsigned long long bytes;
    unsigned flags, reserved[16];
};

enum { NVML_OK = 0, NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7,
       NVML_FUNCTION_NOT_FOUND = 13 };

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_bar1 {
    unsigned long long total, free, used;
};
struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used_bytes;
};
struct nvml_process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};
struct nvml_process_detail {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_bytes;
};
struct nvml_process_details {
    unsigned version, mode, count;
    struct nvml_process_detail *processes;
};
struct nvml_utilization {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
};
struct nvml_utilization_v1 {
    unsigned long long at;
    unsigned pid, sm, memory, encoder, decoder, jpeg, flow;
};
struct nvml_utilizations {
    unsigned version, count;
    unsigned long long since;
    struct nvml_utilization_v1 *processes;
};

#endif
