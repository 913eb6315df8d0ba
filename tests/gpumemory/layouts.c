/* gpumemory/driver_types.h against NVIDIA's cuda.h: compiles, or says what differs. */
#include <cuda.h>

#include "driver_types.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, member, theirs, their_member) \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, their_member), #ours "." #member)
#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME_SIZE(result, CUresult);
SAME_SIZE(ordinal, CUdevice);
SAME_SIZE(address, CUdeviceptr);
SAME_SIZE(address, CUmemGenericAllocationHandle);
SAME_SIZE(handle, CUcontext);
SAME_SIZE(struct location, CUmemLocation);
SAME_PLACE(struct location, id, CUmemLocation, id);
SAME_SIZE(struct allocation_properties, CUmemAllocationProp);
SAME_PLACE(struct allocation_properties, location, CUmemAllocationProp, location);
SAME_SIZE(struct pool_properties, CUmemPoolProps);
SAME_PLACE(struct pool_properties, location, CUmemPoolProps, location);
SAME_SIZE(struct array_properties, CUDA_ARRAY_DESCRIPTOR);
SAME_PLACE(struct array_properties, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(struct array3d_properties, CUDA_ARRAY3D_DESCRIPTOR);
SAME_PLACE(struct array3d_properties, format, CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_PLACE(struct array3d_properties, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(struct alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_PLACE(struct alloc_node, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_PLACE(struct graph_node, alloc, CUgraphNodeParams, alloc);
SAME_SIZE(struct external_memory, CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
SAME_PLACE(struct external_memory, bytes, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);

SAME_VALUE(CUDA_OK, CUDA_SUCCESS);
SAME_VALUE(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
SAME_VALUE(LOCATION_HOST_NUMA_CURRENT, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
SAME_VALUE(LOCATION_DEVICE_DOMAIN, CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN);
SAME_VALUE(LIMIT_PRINTF_BUFFER, CU_LIMIT_PRINTF_FIFO_SIZE);
SAME_VALUE(LIMIT_MALLOC_HEAP, CU_LIMIT_MALLOC_HEAP_SIZE);
SAME_VALUE(POOL_RESERVED_BYTES, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(POOL_USED_BYTES, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME_VALUE(GRAPH_RESERVED_BYTES, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(NODE_ALLOCATES, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME_VALUE(ARRAY_LAYERED, CUDA_ARRAY3D_LAYERED);
SAME_VALUE(ARRAY_CUBE, CUDA_ARRAY3D_CUBEMAP);
SAME_VALUE(ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE);
SAME_VALUE(ARRAY_WITHOUT_MEMORY, CUDA_ARRAY3D_DEFERRED_MAPPING);
