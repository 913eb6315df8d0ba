/* A program that is linked to libcuda, and an interposer of its own as others are: prints whether each way is as it should be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uint64_t *pointer, uint64_t bytes);

char *getenv(const char *name)
{
    char *(*next)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    return next(name);
}

int main(void)
{
    void *context, *ours = (void *)cuMemAlloc_v2;
    uint64_t pointer;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    int direct = cuMemAlloc_v2(&pointer, 2ULL << 30);
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY), *math = dlopen("libm.so.6", RTLD_LAZY);
    int same = dlsym(cuda, "cuMemAlloc_v2") == ours && dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == ours;
    int next = dlsym(RTLD_NEXT, "cuMemAlloc_v2") == ours;
    int none = !dlsym(math, "cuMemAlloc_v2") && dlerror() && !dlsym(cuda, "cuNothing");
    int no_version = !dlvsym(cuda, "cuMemAlloc_v2", "NO_1");
    void *before = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5"), *after = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14");
    int versions = before && after && before != after;
    printf("%d %d %d %d %d %d %d\n", direct, same, next, none, no_version, versions, dlsym(math, "cos") && getenv("PATH"));
    return 0;
}
