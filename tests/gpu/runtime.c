/* A program of NVIDIA's runtime: each way to allocate until it is refused, a step of JSON for each, as programs/steps.py.
 * Built with the shared and with the static runtime. Managed memory is never asked for beyond what the device has free. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
enum { MOST_PIECES = 4096, ROW = 60000, ROWS = 1024, SIDE = 256 };
static const size_t piece_bytes = 64 * MIB;
static size_t most_bytes; /* no more is asked for, whatever the limit is */

union piece {
    void *memory;
    cudaArray_t array;
};
static union piece pieces[MOST_PIECES];

static cudaError_t allocate_plain(union piece *piece) { return cudaMalloc(&piece->memory, piece_bytes); }
static cudaError_t allocate_pitch(union piece *piece)
{
    size_t pitch;
    return cudaMallocPitch(&piece->memory, &pitch, ROW, ROWS);
}
static cudaError_t allocate_managed(union piece *piece)
{
    cudaError_t error = cudaMallocManaged(&piece->memory, piece_bytes, cudaMemAttachGlobal);
    return error ? error : cudaMemset(piece->memory, 1, piece_bytes); /* now it is on the device */
}
static cudaError_t allocate_async(union piece *piece) { return cudaMallocAsync(&piece->memory, piece_bytes, 0); }
static cudaError_t allocate_array(union piece *piece)
{
    struct cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindUnsigned);
    return cudaMalloc3DArray(&piece->array, &format, (struct cudaExtent){SIDE, SIDE, SIDE}, 0);
}
static cudaError_t give_back(union piece *piece) { return cudaFree(piece->memory); }
static cudaError_t give_back_async(union piece *piece) { return cudaFreeAsync(piece->memory, 0); }
static cudaError_t give_back_array(union piece *piece) { return cudaFreeArray(piece->array); }

static const struct way {
    const char *name;
    cudaError_t (*allocate)(union piece *), (*give_back)(union piece *);
    size_t bytes;
} ways[] = {
    {"cudaMalloc", allocate_plain, give_back, 64 * MIB},
    {"cudaMallocPitch", allocate_pitch, give_back, (size_t)60416 * ROWS},
    {"cudaMallocManaged", allocate_managed, give_back, 64 * MIB},
    {"cudaMallocAsync", allocate_async, give_back_async, 64 * MIB},
    {"cudaMalloc3DArray", allocate_array, give_back_array, (size_t)SIDE * SIDE * SIDE * 4},
};

static void wait_for_the_judge(void)
{
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar()) {}
}
static size_t free_bytes(void)
{
    size_t free_now = 0, total = 0;
    if (cudaMemGetInfo(&free_now, &total)) exit(3);
    return free_now;
}

static void run(const struct way *way)
{
    size_t count = 0;
    cudaError_t error = cudaSuccess;
    while (count < MOST_PIECES && (count + 1) * way->bytes <= most_bytes && !(error = way->allocate(&pieces[count]))) count++;
    cudaError_t first = cudaGetLastError();
    printf("{\"step\": \"full\", \"way\": \"%s\", \"allocated_bytes\": %zu, \"error\": \"%s\", \"last\": \"%s\", \"free_bytes\": %zu}\n",
           way->name, count * way->bytes, cudaGetErrorName(error), cudaGetErrorName(first), free_bytes());
    wait_for_the_judge();
    for (size_t i = 0; i < count; i++)
        if ((error = way->give_back(&pieces[i])) != cudaSuccess) break;
    cudaDeviceSynchronize();
    printf("{\"step\": \"emptied\", \"way\": \"%s\", \"error\": \"%s\", \"free_bytes\": %zu}\n", way->name,
           count ? cudaGetErrorName(error) : "", free_bytes());
    wait_for_the_judge();
}

int main(void)
{
    struct cudaDeviceProp properties;
    size_t free_at_first = 0, total = 0;
    int version = 0;
    if (cudaMemGetInfo(&free_at_first, &total) || cudaGetDeviceProperties(&properties, 0)) return 2;
    cudaRuntimeGetVersion(&version);
    most_bytes = free_at_first + 4 * piece_bytes < free_at_first * 2 ? free_at_first + 4 * piece_bytes : free_at_first;
    printf("{\"step\": \"start\", \"free_bytes\": %zu, \"total_bytes\": %zu, \"properties_total_bytes\": %zu, \"version\": %d}\n",
           free_at_first, total, properties.totalGlobalMem, version);
    wait_for_the_judge();
    cudaError_t too_much = cudaDeviceSetLimit(cudaLimitMallocHeapSize, total + 1);
    cudaGetLastError();
    cudaError_t enough = cudaDeviceSetLimit(cudaLimitMallocHeapSize, 256 * MIB);
    printf("{\"step\": \"heap\", \"beyond\": \"%s\", \"error\": \"%s\", \"free_bytes\": %zu}\n", cudaGetErrorName(too_much),
           cudaGetErrorName(enough), free_bytes());
    wait_for_the_judge();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) run(&ways[i]);
    return 0;
}
