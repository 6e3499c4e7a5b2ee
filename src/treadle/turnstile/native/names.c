/* Kernels that wait for other processes: collectives. To hold one back, or to wait for one,
 * could stop every rank of a job, so they are recognised by name, or by who launches them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "running.h"

#define SET 512u

static _Atomic(const void *) set[SET];
static _Atomic uint32_t size;

static bool telling(const char *name)
{
    return name && (strstr(name, "nccl") || strstr(name, "nvshmem") || strstr(name, "rccl") ||
                    strstr(name, "AllReduce") || strstr(name, "AllGather"));
}

static unsigned place(const void *function)
{
    return (unsigned)((uintptr_t)function >> 4) * 2654435761u % SET;
}

static void put(const void *function)
{
    for (unsigned i = 0; i < 32; i++) {
        _Atomic(const void *) *at = &set[(place(function) + i) % SET];
        const void *found = load(at);
        if (found == function)
            return;
        if (!found && atomic_compare_exchange_strong(at, &found, function)) {
            add(&size, 1);
            return;
        }
    }
}

bool name_collective(const void *function)
{
    if (likely(!load(&size)))
        return false;
    for (unsigned i = 0; i < 32; i++) {
        const void *found = load(&set[(place(function) + i) % SET]);
        if (found == function)
            return true;
        if (!found)
            return false;
    }
    return false;
}

/* At the first launch of a function: does it come from a library of collectives? */
bool name_caller(const void *function, const void *caller)
{
    Dl_info about;
    if (!dladdr(caller, &about) || !about.dli_fname)
        return false;
    const char *slash = strrchr(about.dli_fname, '/');
    const char *file = slash ? slash + 1 : about.dli_fname;
    if (strncmp(file, "libnccl", 7) && strncmp(file, "libnvshmem", 10))
        return false;
    put(function);
    return true;
}

void name_seen(const void *function, const char *name)
{
    named_put(function, name);
    if (telling(name))
        put(function);
}

void name_same(const void *function, const void *kernel)
{
    named_same(function, kernel);
    if (name_collective(kernel))
        put(function);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult result;
    THROUGH(cuModuleGetFunction, function, module, name);
    if (!result && function)
        name_seen(*function, name);
    return result;
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult result;
    THROUGH(cuLibraryGetKernel, kernel, library, name);
    if (!result && kernel)
        name_seen(*kernel, name);
    return result;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUresult result;
    THROUGH(cuKernelGetFunction, function, kernel);
    if (!result && function)
        name_same(*function, kernel);
    return result;
}

/* What is unloaded may leave its address to something else. */
EXPORT CUresult cuModuleUnload(CUmodule module)
{
    CUresult result;
    learn_forget_all();
    THROUGH(cuModuleUnload, module);
    return result;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult result;
    learn_forget_all();
    THROUGH(cuLibraryUnload, library);
    return result;
}
