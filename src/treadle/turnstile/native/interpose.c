/* Getting in front: dlsym, both ABIs of cuGetProcAddress, and the exported symbols themselves.
 *
 * A program reaches a driver function in one of three ways: through its PLT, through dlsym, or
 * through cuGetProcAddress, which it reaches in one of the same ways. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "memory.h"

_Thread_local int gate_inside;

#define H(symbol, base, ptsz, since) extern void wrapper_##symbol(void) __asm__(#symbol);
HOOKS(H)
#undef H

struct hook gate_hooks[HOOK_COUNT] = {
#define H(symbol, base, ptsz, since) \
    {#symbol, #base, ptsz, since, (void *)wrapper_##symbol, NULL, NULL},
    HOOKS(H)
#undef H
};

static struct hook *by_symbol(const char *name)
{
    for (unsigned i = 0; i < HOOK_COUNT; i++)
        if (!strcmp(gate_hooks[i].symbol, name))
            return &gate_hooks[i];
    return NULL;
}

/* The hook that cuGetProcAddress means by `name` at this version and with these flags. */
static struct hook *by_base(const char *name, int version, uint64_t flags)
{
    int per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    struct hook *found = NULL, *plain = NULL;
    for (unsigned i = 0; i < HOOK_COUNT; i++) {
        struct hook *h = &gate_hooks[i];
        if (strcmp(h->base, name) || version < h->since)
            continue;
        if (h->ptsz == per_thread)
            found = h; /* the last that fits is the newest */
        else if (!h->ptsz)
            plain = h;
    }
    return found ? found : plain ? plain : by_symbol(name);
}

static void *direct(struct hook *h)
{
    void *p = load(&h->direct);
    if (!p) {
        p = driver_symbol(h->symbol);
        if (p == h->wrapper)
            p = NULL;
        if (p)
            store(&h->direct, p);
    }
    return p;
}

/* The program would have got `p`: remember it as the real one, unless it is ours. */
static void remember(struct hook *h, void *p)
{
    void *known = load(&h->real);
    if (p != h->wrapper && (!known || known == direct(h)))
        store(&h->real, p);
}

void *hook_resolve(enum hook_id id)
{
    struct hook *h = &gate_hooks[id];
    find_dlsym();
    void *p = direct(h);
    if (gate_inside)
        return p ? p : load(&h->real);
    if (!p && dlsym_libc) {
        p = dlsym_libc(RTLD_NEXT, h->symbol);
        if (p == h->wrapper)
            p = NULL;
    }
    if (p)
        remember(h, p);
    return p;
}

/* What a call of dlsym should return, or NULL with `*onward` set to the function to jump to. */
__attribute__((used, visibility("hidden"))) void *dlsym_answer(void *handle, const char *name,
                                                               dlsym_call *onward)
{
    find_dlsym();
    *onward = dlsym_libc;
    if (!name || handle == RTLD_NEXT)
        return NULL; /* answered by where the caller is: only a jump keeps that */
    if (!strcmp(name, "dlsym"))
        return handle == RTLD_DEFAULT ? NULL : (void *)dlsym;
    *onward = dlsym_next;
    bool cuda = name[0] == 'c' && name[1] == 'u', nvml = !strncmp(name, "nvml", 4);
    if ((!cuda && !nvml) || gate_inside)
        return NULL;
    struct hook *h = cuda ? by_symbol(name) : NULL;
    if (cuda && !h)
        return NULL;
    void *p = dlsym_next(handle, name);
    if (!p)
        return NULL;
    if (nvml)
        return nvml_hook(name, p);
    remember(h, p);
    return h->wrapper;
}

/* dlsym itself. A jump, not a call, where the answer depends on the caller's address. */
#if defined(__x86_64__)
__asm__(".text\n.globl dlsym\n.protected dlsym\n.type dlsym,@function\ndlsym:\n"
        "  push %rdi\n  push %rsi\n  sub $8, %rsp\n  mov %rsp, %rdx\n"
        "  call dlsym_answer\n"
        "  mov (%rsp), %r11\n  add $8, %rsp\n  pop %rsi\n  pop %rdi\n"
        "  test %rax, %rax\n  jne 1f\n  test %r11, %r11\n  je 1f\n  jmp *%r11\n1: ret\n"
        ".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl dlsym\n.protected dlsym\n.type dlsym,%function\ndlsym:\n"
        "  stp x29, x30, [sp, #-48]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n"
        "  add x2, sp, #32\n  bl dlsym_answer\n"
        "  mov x9, x0\n  ldr x10, [sp, #32]\n  ldp x0, x1, [sp, #16]\n"
        "  ldp x29, x30, [sp], #48\n"
        "  cbnz x9, 1f\n  cbz x10, 1f\n  br x10\n1: mov x0, x9\n  ret\n"
        ".size dlsym, .-dlsym\n");
#else
EXPORT void *dlsym(void *handle, const char *name)
{
    dlsym_call onward;
    void *p = dlsym_answer(handle, name, &onward);
    return p || !onward ? p : onward(handle, name);
}
#endif

/* A name may mean a call with other arguments to a CUDA newer than this file: wrap it only if
 * the newest version known here means the same function by it. */
#define NEWEST 13030

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                                    int *status);

static void replace(const char *symbol, void **pfn, int version, uint64_t flags)
{
    if (!symbol || !pfn || !*pfn)
        return;
    struct hook *h = by_base(symbol, version, flags);
    if (!h)
        return;
    if (version > NEWEST) {
        CUresult result;
        void *known = NULL;
        int status;
        THROUGH(cuGetProcAddress_v2, symbol, &known, NEWEST, flags, &status);
        if (result || known != *pfn) {
            gate_say_once(8, "this program asks for a newer CUDA's %s: not gated", symbol);
            return;
        }
    }
    remember(h, *pfn);
    *pfn = h->wrapper;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
    CUresult result;
    THROUGH(cuGetProcAddress, symbol, pfn, version, flags);
    if (!result && !gate_inside)
        replace(symbol, pfn, version, flags);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                                    int *status)
{
    CUresult result;
    THROUGH(cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    if (!result && !gate_inside)
        replace(symbol, pfn, version, flags);
    return result;
}
