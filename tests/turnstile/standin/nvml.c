/* The stand-in for libnvidia-ml.so.1: a device with 80 GiB, of which one is in use. */
#include <stdio.h>

#define API __attribute__((visibility("default")))
#define GIB (1ull << 30)

API int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    snprintf(uuid, size, "GPU-00000000-0000-0000-0000-0000000000%02x", (unsigned)(size_t)device);
    return 0;
}
API int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 80 * GIB, memory[1] = 79 * GIB, memory[2] = 1 * GIB;
    return 0;
}
API int nvmlDeviceGetMemoryInfo_v2(void *device, void *memory)
{
    struct { unsigned version; unsigned long long total, reserved, free, used; } *m = memory;
    (void)device;
    m->total = 80 * GIB, m->reserved = 0, m->free = 79 * GIB, m->used = 1 * GIB;
    return 0;
}
