/* Those of our functions that more than one file calls what they stand in front of. */
#ifndef MUSTER_DRIVER_H
#define MUSTER_DRIVER_H

#include "driver_types.h"

EXPORT result cuMemAllocAsync(address *pointer, size_t bytes, handle stream);
EXPORT result cuMemAllocAsync_ptsz(address *pointer, size_t bytes, handle stream);
EXPORT result cuMemAllocFromPoolAsync(address *pointer, size_t bytes, handle pool, handle stream);
EXPORT result cuMemAllocFromPoolAsync_ptsz(address *pointer, size_t bytes, handle pool, handle stream);
EXPORT result cuMemFreeAsync(address pointer, handle stream);
EXPORT result cuMemFreeAsync_ptsz(address pointer, handle stream);
EXPORT result cuStreamSynchronize(handle stream);
EXPORT result cuMemPoolTrimTo(handle pool, size_t keep_bytes);
EXPORT result cuDevicePrimaryCtxRelease(ordinal device);
EXPORT result cuDevicePrimaryCtxRelease_v2(ordinal device);

#endif
