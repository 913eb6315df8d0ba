/* The driver's functions that allocate, free and tell totals, but for pools (pools.c). */
#include <pthread.h>

#include "driver.h"
#include "library.h"

/* ---- Counted by the current context's device, freed by a handle ---- */

/* Reserve, call, and write down what `key` frees; or undo. */
#define COUNTED(kind, amount, key, call) \
    do { \
        int device = has_limits() ? current_device() : NO_CONTEXT; \
        uint64_t bytes_ = device == NO_CONTEXT ? 0 : (amount); \
        if (device == NO_CONTEXT) return call; \
        if (!reserve(device, bytes_)) return CUDA_OUT_OF_MEMORY; \
        result outcome_ = call; \
        if (outcome_) usage_release(device, bytes_); \
        else ledger_put(kind, (uint64_t)(key), bytes_, block_of(device, bytes_, current_context(), NULL)); \
        return outcome_; \
    } while (0)

/* Take out what is written down before the driver can give the same handle to somebody else; put it back if it stays. */
#define FREED(kind, key, call) \
    do { \
        uint64_t length_ = 0; \
        struct block *block_ = has_limits() ? ledger_take(kind, (uint64_t)(key), &length_) : NULL; \
        result outcome_ = call; \
        if (outcome_) ledger_put(kind, (uint64_t)(key), length_, block_); \
        else block_drop(block_); \
        return outcome_; \
    } while (0)

static uint64_t times(uint64_t one, uint64_t other)
{
    uint64_t product;
    return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

EXPORT result cuMemAlloc_v2(address *pointer, size_t bytes)
{
    COUNTED(ADDRESS, bytes, *pointer, FORWARD(cuMemAlloc_v2, (pointer, bytes)));
}

EXPORT result cuMemAllocManaged(address *pointer, size_t bytes, unsigned flags)
{
    COUNTED(ADDRESS, bytes, *pointer, FORWARD(cuMemAllocManaged, (pointer, bytes, flags)));
}

EXPORT result cuMemAllocPitch_v2(address *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    enum { PITCH_STEP = 512 }; /* what drivers round rows up to; the row that they say counts in the end */
    int device = has_limits() ? current_device() : NO_CONTEXT;
    if (device == NO_CONTEXT) return FORWARD(cuMemAllocPitch_v2, (pointer, pitch, width, height, element));
    uint64_t row = width > SIZE_MAX - PITCH_STEP ? width : (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
    uint64_t bytes = times(row, height);
    if (!reserve(device, bytes)) return CUDA_OUT_OF_MEMORY;
    result outcome = FORWARD(cuMemAllocPitch_v2, (pointer, pitch, width, height, element));
    if (outcome) {
        usage_release(device, bytes);
        return outcome;
    }
    uint64_t taken = times(*pitch, height);
    if (taken > bytes && !usage_reserve(device, taken - bytes)) {
        CALL(cuMemFree_v2, (address), (*pointer));
        usage_release(device, bytes);
        return CUDA_OUT_OF_MEMORY;
    }
    if (taken < bytes) usage_release(device, bytes - taken);
    ledger_put(ADDRESS, *pointer, taken, block_of(device, taken, current_context(), NULL));
    return CUDA_OK;
}

EXPORT result cuMemFree_v2(address pointer)
{
    uint64_t length = 0;
    struct block *block = has_limits() ? ledger_take(ADDRESS, pointer, &length) : NULL;
    result outcome = FORWARD(cuMemFree_v2, (pointer));
    if (outcome) ledger_put(ADDRESS, pointer, length, block);
    else block_drop(block);
    if (!block) pools_refresh(); /* memory of a pool may be freed so too */
    return outcome;
}

static result free_in_stream(address pointer, handle stream, int is_per_thread)
{
    uint64_t length = 0;
    struct block *block = has_limits() ? ledger_take(ADDRESS, pointer, &length) : NULL;
    result outcome = is_per_thread ? FORWARD(cuMemFreeAsync_ptsz, (pointer, stream)) : FORWARD(cuMemFreeAsync, (pointer, stream));
    if (outcome) ledger_put(ADDRESS, pointer, length, block);
    else block_drop(block);
    return outcome;
}
EXPORT result cuMemFreeAsync(address pointer, handle stream) { return free_in_stream(pointer, stream, 0); }
EXPORT result cuMemFreeAsync_ptsz(address pointer, handle stream) { return free_in_stream(pointer, stream, 1); }

/* ---- Arrays ---- */

static uint64_t bytes_of_format(int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;            /* 8 bits */
    case 0x02: case 0x09: case 0x10: return 2; /* 16 bits, half */
    default: break;
    }
    /* 32 bits; of formats with several planes or blocks, whose channels share an element, no channel has more */
    return 4;
}

static uint64_t elements(uint64_t width, uint64_t height, uint64_t depth)
{
    return times(times(width, height ? height : 1), depth ? depth : 1);
}

static uint64_t bytes_of_level(const struct array3d_properties *asked, unsigned level)
{
    int is_stack = (asked->flags & (ARRAY_LAYERED | ARRAY_CUBE)) != 0; /* its depth is a number of layers */
    uint64_t width = asked->width >> level, height = asked->height >> level;
    uint64_t depth = is_stack ? asked->depth : asked->depth >> level;
    return times(elements(width ? width : 1, height, depth), times(asked->channels, bytes_of_format(asked->format)));
}

static uint64_t bytes_of_array(const struct array3d_properties *asked, unsigned levels)
{
    uint64_t bytes = 0;
    if (asked->flags & (ARRAY_SPARSE | ARRAY_WITHOUT_MEMORY)) return 0; /* its memory is what cuMemCreate gives */
    for (unsigned level = 0; level < levels && level < 64; level++)
        if (__builtin_add_overflow(bytes, bytes_of_level(asked, level), &bytes)) return UINT64_MAX;
    return bytes;
}

EXPORT result cuArrayCreate_v2(handle *array, const struct array_properties *asked)
{
    struct array3d_properties flat = {asked->width, asked->height, 0, asked->format, asked->channels, 0};
    COUNTED(ARRAY, bytes_of_array(&flat, 1), (uintptr_t)*array, FORWARD(cuArrayCreate_v2, (array, asked)));
}
EXPORT result cuArray3DCreate_v2(handle *array, const struct array3d_properties *asked)
{
    COUNTED(ARRAY, bytes_of_array(asked, 1), (uintptr_t)*array, FORWARD(cuArray3DCreate_v2, (array, asked)));
}
EXPORT result cuMipmappedArrayCreate(handle *array, const struct array3d_properties *asked, unsigned levels)
{
    COUNTED(MIPMAP, bytes_of_array(asked, levels), (uintptr_t)*array,
            FORWARD(cuMipmappedArrayCreate, (array, asked, levels)));
}
EXPORT result cuArrayDestroy(handle array) { FREED(ARRAY, (uintptr_t)array, FORWARD(cuArrayDestroy, (array))); }
EXPORT result cuMipmappedArrayDestroy(handle array)
{
    FREED(MIPMAP, (uintptr_t)array, FORWARD(cuMipmappedArrayDestroy, (array)));
}

/* ---- Physical memory: lives until its handles are released and its mappings are gone ---- */

EXPORT result cuMemCreate(address *created, size_t bytes, const struct allocation_properties *asked, uint64_t flags)
{
    int device = has_limits() && asked ? device_of_location(&asked->location) : UNCOUNTED;
    if (device == UNCOUNTED) return FORWARD(cuMemCreate, (created, bytes, asked, flags));
    if (!reserve(device, bytes)) return CUDA_OUT_OF_MEMORY;
    result outcome = FORWARD(cuMemCreate, (created, bytes, asked, flags));
    if (outcome) usage_release(device, bytes);
    else ledger_put(CREATED, *created, bytes, block_of(device, bytes, NULL, NULL));
    return outcome;
}
EXPORT result cuMemMap(address pointer, size_t bytes, size_t offset, address created, uint64_t flags)
{
    struct block *block = has_limits() ? ledger_share(CREATED, created) : NULL;
    result outcome = FORWARD(cuMemMap, (pointer, bytes, offset, created, flags));
    if (outcome) block_drop(block);
    else ledger_put(MAPPING, pointer, bytes, block);
    return outcome;
}
EXPORT result cuMemRetainAllocationHandle(address *created, void *pointer)
{
    result outcome = FORWARD(cuMemRetainAllocationHandle, (created, pointer));
    if (outcome == CUDA_OK && has_limits())
        ledger_put(CREATED, *created, 0, ledger_share_covering(MAPPING, (uintptr_t)pointer));
    return outcome;
}
EXPORT result cuMemRelease(address created) { FREED(CREATED, created, FORWARD(cuMemRelease, (created))); }
EXPORT result cuMemUnmap(address pointer, size_t bytes)
{
    result outcome = FORWARD(cuMemUnmap, (pointer, bytes));
    if (outcome == CUDA_OK && has_limits()) ledger_drop_range(MAPPING, pointer, bytes);
    return outcome;
}

/* ---- Memory that Vulkan or another interface allocated, which has no hooks: it counts where it comes in ---- */

EXPORT result cuImportExternalMemory(handle *memory, const struct external_memory *asked)
{
    COUNTED(EXTERNAL, asked->bytes, (uintptr_t)*memory, FORWARD(cuImportExternalMemory, (memory, asked)));
}
EXPORT result cuDestroyExternalMemory(handle memory)
{
    FREED(EXTERNAL, (uintptr_t)memory, FORWARD(cuDestroyExternalMemory, (memory)));
}

/* ---- Heaps of kernels: as large as the program asks; their first size, which is small, is a part of the context ---- */

EXPORT result cuCtxSetLimit(int limit, size_t bytes)
{
    handle context = has_limits() ? current_context() : NULL;
    if (!context || (limit != LIMIT_MALLOC_HEAP && limit != LIMIT_PRINTF_BUFFER))
        return FORWARD(cuCtxSetLimit, (limit, bytes));
    uint64_t key = (uintptr_t)context + (uint64_t)limit;
    int device = current_device();
    struct block *before = ledger_take(LIMIT, key, NULL);
    if (!reserve(device, bytes)) {
        ledger_put(LIMIT, key, 0, before);
        return CUDA_OUT_OF_MEMORY;
    }
    result outcome = FORWARD(cuCtxSetLimit, (limit, bytes));
    if (outcome) {
        usage_release(device, bytes);
        ledger_put(LIMIT, key, 0, before);
        return outcome;
    }
    block_drop(before);
    ledger_put(LIMIT, key, 0, block_of(device, bytes, context, NULL));
    return outcome;
}

/* ---- Graphs that allocate ---- */

#define COUNTED_NODE(graph, node, call) \
    do { \
        const struct alloc_node *node_ = (node); \
        int device = has_limits() && node_ ? device_of_location(&node_->pool.location) : UNCOUNTED; \
        if (device == UNCOUNTED) return call; \
        uint64_t bytes_ = node_->bytes; \
        if (device == NO_DEVICE || !graph_reserve(device, bytes_)) return CUDA_OUT_OF_MEMORY; \
        result outcome_ = call; \
        if (outcome_) usage_release(device, bytes_); \
        else graph_put(graph, device, bytes_); \
        return outcome_; \
    } while (0)

EXPORT result cuGraphAddMemAllocNode(handle *node, handle graph, const handle *after, size_t count, struct alloc_node *asked)
{
    COUNTED_NODE(graph, asked, FORWARD(cuGraphAddMemAllocNode, (node, graph, after, count, asked)));
}
EXPORT result cuGraphAddNode(handle *node, handle graph, const handle *after, size_t count, struct graph_node *asked)
{
    COUNTED_NODE(graph, asked && asked->type == NODE_ALLOCATES ? &asked->alloc : NULL,
                 FORWARD(cuGraphAddNode, (node, graph, after, count, asked)));
}
EXPORT result cuGraphAddNode_v2(handle *node, handle graph, const handle *after, const void *edges, size_t count,
                                struct graph_node *asked)
{
    COUNTED_NODE(graph, asked && asked->type == NODE_ALLOCATES ? &asked->alloc : NULL,
                 FORWARD(cuGraphAddNode_v2, (node, graph, after, edges, count, asked)));
}
EXPORT result cuGraphAddNode_v3(handle *node, handle graph, const handle *after, const void *edges, size_t count,
                                struct graph_node *asked)
{
    COUNTED_NODE(graph, asked && asked->type == NODE_ALLOCATES ? &asked->alloc : NULL,
                 FORWARD(cuGraphAddNode_v3, (node, graph, after, edges, count, asked)));
}

/* An executable keeps the amounts of the graph that it was made of. */
static result instantiated(result outcome, const handle *executable, handle graph)
{
    if (outcome == CUDA_OK && has_limits()) ledger_share_all(GRAPH, (uintptr_t)graph, EXECUTABLE, (uintptr_t)*executable);
    return outcome;
}
EXPORT result cuGraphInstantiate(handle *executable, handle graph, handle *node, char *log, size_t length)
{
    return instantiated(FORWARD(cuGraphInstantiate, (executable, graph, node, log, length)), executable, graph);
}
EXPORT result cuGraphInstantiate_v2(handle *executable, handle graph, handle *node, char *log, size_t length)
{
    return instantiated(FORWARD(cuGraphInstantiate_v2, (executable, graph, node, log, length)), executable, graph);
}
EXPORT result cuGraphInstantiateWithFlags(handle *executable, handle graph, uint64_t flags)
{
    return instantiated(FORWARD(cuGraphInstantiateWithFlags, (executable, graph, flags)), executable, graph);
}
EXPORT result cuGraphInstantiateWithParams(handle *executable, handle graph, void *asked)
{
    return instantiated(FORWARD(cuGraphInstantiateWithParams, (executable, graph, asked)), executable, graph);
}
EXPORT result cuGraphInstantiateWithParams_ptsz(handle *executable, handle graph, void *asked)
{
    return instantiated(FORWARD(cuGraphInstantiateWithParams_ptsz, (executable, graph, asked)), executable, graph);
}
static result graph_ended(result outcome, enum kind kind, handle of)
{
    if (outcome || !has_limits()) return outcome;
    for (struct block *block; (block = ledger_take(kind, (uintptr_t)of, NULL));) block_drop(block);
    pools_refresh(); /* the device keeps a graph's memory until it is trimmed */
    return outcome;
}
EXPORT result cuGraphDestroy(handle graph) { return graph_ended(FORWARD(cuGraphDestroy, (graph)), GRAPH, graph); }
EXPORT result cuGraphExecDestroy(handle executable)
{
    return graph_ended(FORWARD(cuGraphExecDestroy, (executable)), EXECUTABLE, executable);
}

/* ---- Contexts: with one goes all that was allocated in it ---- */

static result context_ended(result outcome, handle context)
{
    if (outcome == CUDA_OK && has_limits() && context) ledger_drop_context(context);
    return outcome;
}
EXPORT result cuCtxDestroy(handle context) { return context_ended(FORWARD(cuCtxDestroy, (context)), context); }
EXPORT result cuCtxDestroy_v2(handle context) { return context_ended(FORWARD(cuCtxDestroy_v2, (context)), context); }
EXPORT result cuCtxDetach(handle context)
{
    unsigned version; /* answers for as long as there are other references to it */
    result outcome = FORWARD(cuCtxDetach, (context));
    int is_left = CALL(cuCtxGetApiVersion, (handle, unsigned *), (context, &version)) == CUDA_OK;
    return is_left ? outcome : context_ended(outcome, context);
}

static int is_active(ordinal device)
{
    unsigned flags;
    int active = 0;
    CALL(cuDevicePrimaryCtxGetState, (ordinal, unsigned *, int *), (device, &flags, &active));
    return active;
}
static handle primary_context(ordinal device)
{
    handle context = NULL;
    if (!has_limits() || !is_active(device)) return NULL;
    if (CALL(cuDevicePrimaryCtxRetain, (handle *, ordinal), (&context, device)) != CUDA_OK) return NULL;
    if (FORWARD(cuDevicePrimaryCtxRelease_v2, (device)) != CUDA_OK) FORWARD(cuDevicePrimaryCtxRelease, (device));
    return context;
}
#define PRIMARY_CONTEXT_ENDED(name) \
    EXPORT result name(ordinal device) \
    { \
        handle context = primary_context(device); \
        result outcome = FORWARD(name, (device)); \
        return context && !is_active(device) ? context_ended(outcome, context) : outcome; \
    }
PRIMARY_CONTEXT_ENDED(cuDevicePrimaryCtxRelease)
PRIMARY_CONTEXT_ENDED(cuDevicePrimaryCtxRelease_v2)
PRIMARY_CONTEXT_ENDED(cuDevicePrimaryCtxReset)
PRIMARY_CONTEXT_ENDED(cuDevicePrimaryCtxReset_v2)

/* ---- Totals ---- */

static size_t at_most(uint64_t bytes, uint64_t most) { return bytes < most ? bytes : most; }

EXPORT result cuDeviceTotalMem_v2(size_t *bytes, ordinal device)
{
    result outcome = FORWARD(cuDeviceTotalMem_v2, (bytes, device));
    if (outcome == CUDA_OK && has_limits()) *bytes = at_most(*bytes, limit_of_ordinal(device));
    return outcome;
}
EXPORT result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ordinal device;
    result outcome = FORWARD(cuMemGetInfo_v2, (free_bytes, total));
    if (outcome || !has_limits() || CALL(cuCtxGetDevice, (ordinal *), (&device)) != CUDA_OK) return outcome;
    pools_refresh();
    uint64_t limit = limit_of_ordinal(device), used = usage_total(device_of(device));
    *total = at_most(*total, limit);
    *free_bytes = at_most(*free_bytes, used < limit ? limit - used : 0);
    return outcome;
}

/* ---- As it was before CUDA 3.2, with sizes of 32 bits: nobody builds for it, so it tells totals and gives nothing ---- */

#define OLD_ALLOCATION(name, types, values) \
    EXPORT result name types { return has_limits() ? CUDA_NOT_SUPPORTED : FORWARD(name, values); }
OLD_ALLOCATION(cuMemAlloc, (unsigned *pointer, unsigned bytes), (pointer, bytes))
OLD_ALLOCATION(cuMemAllocPitch, (unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element),
               (pointer, pitch, width, height, element))
OLD_ALLOCATION(cuArrayCreate, (handle *array, const void *asked), (array, asked))
OLD_ALLOCATION(cuArray3DCreate, (handle *array, const void *asked), (array, asked))
EXPORT result cuMemFree(unsigned pointer) { return FORWARD(cuMemFree, (pointer)); }
EXPORT result cuDeviceTotalMem(unsigned *bytes, ordinal device)
{
    result outcome = FORWARD(cuDeviceTotalMem, (bytes, device));
    if (outcome == CUDA_OK && has_limits()) *bytes = (unsigned)at_most(*bytes, limit_of_ordinal(device));
    return outcome;
}
EXPORT result cuMemGetInfo(unsigned *free_bytes, unsigned *total)
{
    size_t wide_free = 0, wide_total = 0;
    result outcome = FORWARD(cuMemGetInfo, (free_bytes, total));
    if (outcome || !has_limits() || cuMemGetInfo_v2(&wide_free, &wide_total) != CUDA_OK) return outcome;
    *free_bytes = (unsigned)at_most(*free_bytes, wide_free);
    *total = (unsigned)at_most(*total, wide_total);
    return outcome;
}

/* ---- A child has none of its parent's memory ---- */

static void before_fork(void)
{
    pools_before_fork();
    ledger_before_fork();
    usage_before_fork();
}
static void after_fork(int is_child)
{
    usage_after_fork(is_child);
    ledger_after_fork(is_child);
    pools_after_fork(is_child);
}
static void after_fork_in_parent(void) { after_fork(0); }
static void after_fork_in_child(void) { after_fork(1); }
__attribute__((constructor)) static void load(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }
