/* A double of libcuda.so.1 for contexts: CUDA_DOUBLE_INIT is the code of cuInit, CUDA_DOUBLE_GPUS lists GPUs as
 * `0000:1b:00.0=0`, each with the code of its context. Names and numbers of errors are those of cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 16 };
static struct { char address[16]; int code; } gpus[GPUS];
static int count;

int cuInit(unsigned flags)
{
    const char *text = getenv("CUDA_DOUBLE_GPUS"), *code = getenv("CUDA_DOUBLE_INIT");
    (void)flags;
    for (int used; text && sscanf(text, " %15[^=]=%d%n", gpus[count].address, &gpus[count].code, &used) == 2; text += used)
        count++;
    return code ? atoi(code) : 0;
}
int cuDeviceGetCount(int *found) { *found = count; return count ? 0 : 100; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < count ? 0 : 101; }
int cuDeviceGetPCIBusId(char *text, int length, int device) { snprintf(text, length, "%s", gpus[device].address); return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; *context = gpus; return gpus[device].code; }
int cuCtxDestroy_v2(void *context) { return context == gpus ? 0 : 201; }
int cuGetErrorName(int code, const char **name)
{
    *name = code == 0 ? "CUDA_SUCCESS" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return *name ? 0 : 1;
}
