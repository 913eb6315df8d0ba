/* Gives our functions to those who look them up: dlsym, dlvsym, cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "library.h"

#ifndef __x86_64__
#error "dlsym below is written for x86-64"
#endif

typedef void *(*dlsym_function)(void *, const char *);
typedef void *(*dlvsym_function)(void *, const char *, const char *);

__attribute__((visibility("hidden"))) dlsym_function muster_real_dlsym;
__attribute__((visibility("hidden"))) dlvsym_function muster_real_dlvsym;

static void *libc_function(const char *name)
{
    void *function = symbol_of("libc.so.6", name);
    return function ? function : symbol_of("libdl.so.2", name); /* where they are before glibc 2.34 */
}

/* Keep NVML loaded: programs unload it and load it again, at another address. */
static void pin(const char *library)
{
    void *(*open_library)(const char *, int) = (void *(*)(const char *, int))libc_function("dlopen");
    if (open_library) open_library(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

#define ABSENT ((void *)1) /* dlsym below answers NULL */

/* Return our function for a symbol of the driver's that was found; NULL where the symbol is none of ours. */
static void *hook_for(const char *name, void *found)
{
    void *hook = found ? hook_of(name) : NULL;
    if (!hook) return NULL;
    int is_management = name[0] == 'n';
    void *real = is_management ? management_function(name) : driver_function(name);
    if (!real && found == hook) { /* there is no driver, and nothing but this library has the symbol */
        muster_real_dlsym(RTLD_DEFAULT, "symbols of libcuda and libnvidia-ml without them"); /* for dlerror */
        return ABSENT;
    }
    if (found != real && found != hook) return NULL;
    if (is_management) pin("libnvidia-ml.so.1");
    return hook;
}

static int may_be_ours(const char *name)
{
    return name && ((name[0] == 'c' && name[1] == 'u') || !strncmp(name, "nvml", 4));
}

__attribute__((visibility("hidden"), used)) void *muster_hook_for_dlsym(void *library, const char *name)
{
    if (!muster_real_dlsym) muster_real_dlsym = (dlsym_function)libc_function("dlsym");
    return muster_real_dlsym && may_be_ours(name) ? hook_for(name, muster_real_dlsym(library, name)) : NULL;
}

__attribute__((visibility("hidden"), used)) void *muster_hook_for_dlvsym(void *library, const char *name,
                                                                        const char *version)
{
    if (!muster_real_dlsym) muster_real_dlsym = (dlsym_function)libc_function("dlsym");
    if (!muster_real_dlvsym) muster_real_dlvsym = (dlvsym_function)libc_function("dlvsym");
    return muster_real_dlsym && muster_real_dlvsym && may_be_ours(name) ? hook_for(name, muster_real_dlvsym(library, name, version)) : NULL;
}

/* RTLD_NEXT and RTLD_DEFAULT mean "as the caller sees it", by the address to which dlsym returns. So what is none of ours
 * goes on by a jump: the C library then sees its caller, not this library. */
#ifndef MUSTER_WITHOUT_DLSYM /* sanitizers look their own functions up before code that is checked can run */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call muster_hook_for_dlsym\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jnz 1f\n"
        "    jmpq *muster_real_dlsym(%rip)\n"
        "1:  cmpq $1, %rax\n"
        "    jne 2f\n"
        "    xorl %eax, %eax\n"
        "2:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, @function\n"
        "dlvsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call muster_hook_for_dlvsym\n"
        "    popq %rdx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jnz 1f\n"
        "    jmpq *muster_real_dlvsym(%rip)\n"
        "1:  cmpq $1, %rax\n"
        "    jne 2f\n"
        "    xorl %eax, %eax\n"
        "2:  ret\n"
        "    .cfi_endproc\n"
        ".size dlvsym, . - dlvsym\n");
#endif

EXPORT result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    result outcome = FORWARD(cuGetProcAddress_v2, (name, function, version, flags, status));
    void *hook = outcome || !function || !*function ? NULL : hook_of_request(name, version, flags);
    if (hook) *function = hook;
    return outcome;
}

EXPORT result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    result outcome = FORWARD(cuGetProcAddress, (name, function, version, flags));
    void *hook = outcome || !function || !*function ? NULL : hook_of_request(name, version, flags);
    if (hook) *function = hook;
    return outcome;
}
