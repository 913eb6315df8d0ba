/* Memory that is allocated in the order of a stream: pools and graphs keep more than the program has.
 *
 * What counts is what a pool holds, which its own attribute says; a freed block in it is as gone for others as a used one.
 * Before an allocation its bytes are reserved, after it the pool is asked what it holds now. Where it grew past the limit,
 * in steps that only the driver knows, the allocation is undone.
 * A graph's nodes count from the moment that they are added, until neither it nor what was made of it is left; what the
 * device holds for graphs beyond that counts too. */
#include <pthread.h>
#include <stdlib.h>

#include "driver.h"
#include "library.h"

struct pool {
    handle pool;
    int device; /* UNCOUNTED: of the host's memory, or another process's, which counts it */
    uint64_t counted_bytes;
    struct pool *next;
};
static struct pool *pools;
static _Atomic uint64_t node_bytes[MOST_DEVICES];
static uint64_t kept_by_graphs[MOST_DEVICES];
static unsigned graph_devices; /* a bit for each */
static _Atomic int is_used;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static uint64_t attribute_of(handle pool, int attribute)
{
    uint64_t bytes = 0;
    result outcome = CALL(cuMemPoolGetAttribute, (handle, int, uint64_t *), (pool, attribute, &bytes));
    return outcome == CUDA_OK ? bytes : 0;
}

/* Let the count go from one amount to another; 0 where the container then has more than it may. */
static int recount(int device, uint64_t from, uint64_t to)
{
    if (to < from) usage_release(device, from - to);
    return to <= from || usage_add(device, to - from);
}

static int refresh_pool(struct pool *pool, uint64_t reserved_bytes)
{
    uint64_t now = attribute_of(pool->pool, POOL_RESERVED_BYTES);
    int fits = recount(pool->device, pool->counted_bytes + reserved_bytes, now);
    pool->counted_bytes = now;
    return fits;
}

static void refresh_graphs(int device)
{
    uint64_t reserved = 0, of_nodes = node_bytes[device];
    CALL(cuDeviceGetGraphMemAttribute, (ordinal, int, uint64_t *), (ordinal_of(device), GRAPH_RESERVED_BYTES, &reserved));
    uint64_t kept = reserved > of_nodes ? reserved - of_nodes : 0;
    recount(device, kept_by_graphs[device], kept);
    kept_by_graphs[device] = kept;
}

static void refresh_all(void)
{
    for (struct pool *pool = pools; pool; pool = pool->next)
        if (pool->device >= 0) refresh_pool(pool, 0);
    for (int device = 0; device < MOST_DEVICES; device++)
        if (graph_devices & 1U << device) refresh_graphs(device);
}

void pools_refresh(void)
{
    if (!is_used) return;
    pthread_mutex_lock(&mutex);
    refresh_all();
    pthread_mutex_unlock(&mutex);
}

static struct pool *add_pool(handle of, int device)
{
    struct pool *pool = malloc(sizeof *pool);
    if (!pool) return NULL;
    *pool = (struct pool){of, device, 0, pools};
    pools = pool;
    is_used = 1;
    return pool;
}

static struct pool *known_pool(handle of)
{
    struct pool *pool = pools;
    while (pool && pool->pool != of) pool = pool->next;
    return pool;
}

/* The pool that a device has by itself is not created by anybody: it is the device's to which it was asked for. */
static struct pool *pool_of(handle of, ordinal device)
{
    struct pool *pool = known_pool(of);
    return pool ? pool : add_pool(of, device_of(device));
}

static void learn(handle of, int device)
{
    pthread_mutex_lock(&mutex);
    if (!known_pool(of)) add_pool(of, device);
    pthread_mutex_unlock(&mutex);
}

static int is_own_stream(handle stream) { return (uintptr_t)stream > 2; } /* 1 and 2 are the default streams by number */

static ordinal device_of_stream(handle stream)
{
    ordinal device = -1;
    handle context = NULL;
    if (is_own_stream(stream) && CALL(cuStreamGetCtx, (handle, handle *), (stream, &context)) == CUDA_OK && context &&
        CALL(cuCtxPushCurrent_v2, (handle), (context)) == CUDA_OK) {
        CALL(cuCtxGetDevice, (ordinal *), (&device));
        CALL(cuCtxPopCurrent_v2, (handle *), (&context));
        return device;
    }
    CALL(cuCtxGetDevice, (ordinal *), (&device));
    return device;
}

/* The graph that a stream is being written into, or NULL. */
static handle captured_graph(handle stream, int is_per_thread)
{
    int is_capturing = 0;
    handle graph = NULL;
    if (is_per_thread) {
        CALL(cuStreamIsCapturing_ptsz, (handle, int *), (stream, &is_capturing));
        if (is_capturing)
            CALL(cuStreamGetCaptureInfo_v2_ptsz, (handle, int *, uint64_t *, handle *, void *, size_t *),
                 (stream, &is_capturing, NULL, &graph, NULL, NULL));
    } else {
        CALL(cuStreamIsCapturing, (handle, int *), (stream, &is_capturing));
        if (is_capturing)
            CALL(cuStreamGetCaptureInfo_v2, (handle, int *, uint64_t *, handle *, void *, size_t *),
                 (stream, &is_capturing, NULL, &graph, NULL, NULL));
    }
    return graph;
}

int graph_reserve(int device, uint64_t bytes)
{
    if (!reserve(device, bytes)) return 0;
    pthread_mutex_lock(&mutex);
    graph_devices |= 1U << device;
    is_used = 1;
    pthread_mutex_unlock(&mutex);
    return 1;
}

void graph_put(handle graph, int device, uint64_t bytes)
{
    ledger_put(GRAPH, (uintptr_t)graph, bytes, block_of(device, bytes, NULL, &node_bytes[device]));
}

struct request {
    address *pointer;
    uint64_t bytes;
    handle pool, stream; /* no pool: the one that the stream's device has now */
    int is_per_thread;
};

static result call_driver(const struct request *request)
{
    if (request->pool && request->is_per_thread)
        return FORWARD(cuMemAllocFromPoolAsync_ptsz, (request->pointer, request->bytes, request->pool, request->stream));
    if (request->pool)
        return FORWARD(cuMemAllocFromPoolAsync, (request->pointer, request->bytes, request->pool, request->stream));
    if (request->is_per_thread)
        return FORWARD(cuMemAllocAsync_ptsz, (request->pointer, request->bytes, request->stream));
    return FORWARD(cuMemAllocAsync, (request->pointer, request->bytes, request->stream));
}

static result allocate_in_graph(const struct request *request, handle graph, int device)
{
    if (!graph_reserve(device, request->bytes)) return CUDA_OUT_OF_MEMORY;
    result outcome = call_driver(request);
    if (outcome) usage_release(device, request->bytes);
    else graph_put(graph, device, request->bytes);
    return outcome;
}

/* The pool grew past the limit: the allocation goes, and what it made the pool grow by. */
static void undo(const struct request *request, struct pool *pool)
{
    FORWARD(cuMemFreeAsync, (*request->pointer, request->stream));
    FORWARD(cuStreamSynchronize, (request->stream));
    FORWARD(cuMemPoolTrimTo, (pool->pool, (size_t)attribute_of(pool->pool, POOL_USED_BYTES)));
    refresh_pool(pool, 0);
    *request->pointer = 0;
}

static result allocate_from(const struct request *request, struct pool *pool)
{
    uint64_t reserved = request->bytes;
    refresh_pool(pool, 0);
    if (!usage_reserve(pool->device, reserved)) {
        refresh_all();
        uint64_t unused = pool->counted_bytes - attribute_of(pool->pool, POOL_USED_BYTES);
        if (!usage_reserve(pool->device, reserved)) {
            if (unused > pool->counted_bytes || unused < request->bytes) return CUDA_OUT_OF_MEMORY;
            reserved = 0; /* it has what was freed in it, and need not grow */
        }
    }
    result outcome = call_driver(request);
    int fits = refresh_pool(pool, reserved);
    if (outcome == CUDA_OK && !fits) {
        undo(request, pool);
        outcome = CUDA_OUT_OF_MEMORY;
    }
    return outcome;
}

static result allocate(const struct request *request)
{
    ordinal device = device_of_stream(request->stream);
    if (!has_limits() || device < 0) return call_driver(request);
    handle of = request->pool, graph = captured_graph(request->stream, request->is_per_thread);
    if (!of) CALL(cuDeviceGetMemPool, (handle *, ordinal), (&of, device));
    pthread_mutex_lock(&mutex);
    struct pool *pool = pool_of(of, device);
    pthread_mutex_unlock(&mutex);
    if (!pool || pool->device == NO_DEVICE) return CUDA_OUT_OF_MEMORY;
    if (pool->device == UNCOUNTED) return call_driver(request);
    if (graph) return allocate_in_graph(request, graph, pool->device);
    pthread_mutex_lock(&mutex);
    result outcome = allocate_from(request, pool);
    pthread_mutex_unlock(&mutex);
    return outcome;
}

EXPORT result cuMemAllocAsync(address *pointer, size_t bytes, handle stream)
{
    return allocate(&(struct request){pointer, bytes, NULL, stream, 0});
}
EXPORT result cuMemAllocAsync_ptsz(address *pointer, size_t bytes, handle stream)
{
    return allocate(&(struct request){pointer, bytes, NULL, stream, 1});
}
EXPORT result cuMemAllocFromPoolAsync(address *pointer, size_t bytes, handle pool, handle stream)
{
    return allocate(&(struct request){pointer, bytes, pool, stream, 0});
}
EXPORT result cuMemAllocFromPoolAsync_ptsz(address *pointer, size_t bytes, handle pool, handle stream)
{
    return allocate(&(struct request){pointer, bytes, pool, stream, 1});
}

EXPORT result cuMemPoolCreate(handle *pool, const struct pool_properties *properties)
{
    result outcome = FORWARD(cuMemPoolCreate, (pool, properties));
    if (outcome == CUDA_OK && has_limits()) learn(*pool, device_of_location(&properties->location));
    return outcome;
}
EXPORT result cuMemPoolImportFromShareableHandle(handle *pool, void *shared, int type, uint64_t flags)
{
    result outcome = FORWARD(cuMemPoolImportFromShareableHandle, (pool, shared, type, flags));
    if (outcome == CUDA_OK && has_limits()) learn(*pool, UNCOUNTED);
    return outcome;
}
EXPORT result cuMemGetDefaultMemPool(handle *pool, const struct location *location, int type)
{
    result outcome = FORWARD(cuMemGetDefaultMemPool, (pool, location, type));
    if (outcome == CUDA_OK && has_limits()) learn(*pool, device_of_location(location));
    return outcome;
}
EXPORT result cuMemGetMemPool(handle *pool, const struct location *location, int type)
{
    result outcome = FORWARD(cuMemGetMemPool, (pool, location, type));
    if (outcome == CUDA_OK && has_limits()) learn(*pool, device_of_location(location));
    return outcome;
}

EXPORT result cuMemPoolDestroy(handle of)
{
    result outcome = FORWARD(cuMemPoolDestroy, (of));
    if (outcome || !has_limits()) return outcome;
    pthread_mutex_lock(&mutex);
    struct pool **place = &pools;
    while (*place && (*place)->pool != of) place = &(*place)->next;
    struct pool *pool = *place;
    if (pool) *place = pool->next;
    if (pool && pool->device >= 0) usage_release(pool->device, pool->counted_bytes);
    free(pool);
    pthread_mutex_unlock(&mutex);
    return outcome;
}

/* Pools and graphs may hold less, or more, after these. */
#define REFRESHED(name, types, values) \
    EXPORT result name types \
    { \
        result outcome = FORWARD(name, values); \
        pools_refresh(); \
        return outcome; \
    }
REFRESHED(cuMemPoolTrimTo, (handle pool, size_t keep_bytes), (pool, keep_bytes))
REFRESHED(cuDeviceGraphMemTrim, (ordinal device), (device))
REFRESHED(cuCtxSynchronize, (void), ())
REFRESHED(cuCtxSynchronize_v2, (handle context), (context))
REFRESHED(cuEventSynchronize, (handle event), (event))
REFRESHED(cuStreamSynchronize, (handle stream), (stream))
REFRESHED(cuStreamSynchronize_ptsz, (handle stream), (stream))
REFRESHED(cuGraphUpload, (handle executable, handle stream), (executable, stream))
REFRESHED(cuGraphUpload_ptsz, (handle executable, handle stream), (executable, stream))
REFRESHED(cuGraphLaunch, (handle executable, handle stream), (executable, stream))
REFRESHED(cuGraphLaunch_ptsz, (handle executable, handle stream), (executable, stream))

void pools_before_fork(void) { pthread_mutex_lock(&mutex); }

void pools_after_fork(int is_child)
{
    while (is_child && pools) {
        struct pool *pool = pools;
        pools = pool->next;
        free(pool);
    }
    for (int device = 0; is_child && device < MOST_DEVICES; device++) node_bytes[device] = kept_by_graphs[device] = 0;
    if (is_child) graph_devices = 0;
    pthread_mutex_unlock(&mutex);
}
