/* What NVML says about memory: programs that read it should see their slot as well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "memory.h"

typedef struct { unsigned long long total, free, used; } memory_one;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_two;
typedef int (*memory_call)(void *device, void *memory);
typedef int (*uuid_call)(void *device, char *uuid, unsigned size);

int nvmlDeviceGetMemoryInfo(void *device, memory_one *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_two *memory);

static _Atomic(memory_call) real_one, real_two;

static void *in_library(const char *name)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library || !dlsym_libc)
        return NULL;
    void *p = dlsym_libc(library, name);
    dlclose(library);
    return p;
}

void *nvml_hook(const char *name, void *real)
{
    if (!strcmp(name, "nvmlDeviceGetMemoryInfo") && real != (void *)nvmlDeviceGetMemoryInfo) {
        store(&real_one, (memory_call)real);
        return (void *)nvmlDeviceGetMemoryInfo;
    }
    if (!strcmp(name, "nvmlDeviceGetMemoryInfo_v2") &&
        real != (void *)nvmlDeviceGetMemoryInfo_v2) {
        store(&real_two, (memory_call)real);
        return (void *)nvmlDeviceGetMemoryInfo_v2;
    }
    return real;
}

/* The ordinal of this device among the process's GPUs, or -1 if it is not one of them. Where
 * CUDA was not started yet, any may become one: its slot is empty. */
static int ordinal_of(void *device)
{
    char uuid[96] = "", own[64];
    uuid_call get = (uuid_call)in_library("nvmlDeviceGetUUID");
    int gpus = driver() ? driver_gpus() : 0;
    if (!gpus || !get || get(device, uuid, sizeof uuid))
        return 0;
    for (int i = 0; i < gpus && i < MAX_GPUS; i++) {
        driver_uuid(i, own, sizeof own);
        if (!strcmp(own, uuid))
            return i;
    }
    return -1;
}

static memory_call real_of(_Atomic(memory_call) *known, const char *name)
{
    memory_call call = load(known);
    if (!call) {
        call = (memory_call)in_library(name);
        store(known, call);
    }
    return call;
}

static void see(void *device, unsigned long long *total, unsigned long long *free_,
                unsigned long long *used)
{
    int gpu = gate_me.memory_limit_bytes ? ordinal_of(device) : -1;
    if (gpu < 0)
        return;
    uint64_t t = *total, f = *free_;
    memory_see(gpu, &f, &t);
    *total = t;
    *free_ = f;
    *used = t - f;
}

#define NVML_ERROR_FUNCTION_NOT_FOUND 13

EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory_one *memory)
{
    memory_call real = real_of(&real_one, "nvmlDeviceGetMemoryInfo");
    int result = real ? real(device, memory) : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (!result && memory)
        see(device, &memory->total, &memory->free, &memory->used);
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, memory_two *memory)
{
    memory_call real = real_of(&real_two, "nvmlDeviceGetMemoryInfo_v2");
    int result = real ? real(device, memory) : NVML_ERROR_FUNCTION_NOT_FOUND;
    if (!result && memory)
        see(device, &memory->total, &memory->free, &memory->used);
    return result;
}
