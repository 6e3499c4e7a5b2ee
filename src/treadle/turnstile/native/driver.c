/* The gate's own view of the driver: looked up in libcuda directly, past every hook. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "driver.h"

dlsym_call dlsym_libc, dlsym_next;

/* The C library's dlsym under its versioned names: ours is unversioned and does not match. */
void find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17",
                                           "GLIBC_2.0"};
    if (dlsym_libc)
        return;
    for (unsigned i = 0; i < sizeof versions / sizeof *versions && !dlsym_libc; i++)
        dlsym_libc = (dlsym_call)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    for (unsigned i = 0; i < sizeof versions / sizeof *versions && !dlsym_libc; i++)
        dlsym_libc = (dlsym_call)dlvsym(RTLD_DEFAULT, "dlsym", versions[i]);
    /* Another preloaded library may answer dlsym after us: what it changes stays changed. */
    dlsym_call next = dlsym_libc ? (dlsym_call)dlsym_libc(RTLD_NEXT, "dlsym") : NULL;
    dlsym_next = next ? next : dlsym_libc;
}

static void *library(void)
{
    static _Atomic(void *) found;
    void *handle = load(&found);
    if (!handle) {
        handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        store(&found, handle);
    }
    return handle;
}

void *driver_symbol(const char *name)
{
    void *handle = library();
    return handle && dlsym_libc ? dlsym_libc(handle, name) : NULL;
}

const struct driver *driver(void)
{
    static struct driver table;
    static _Atomic int ready;
    if (likely(atomic_load_explicit(&ready, memory_order_acquire)))
        return &table;
    if (!library())
        return NULL;
    struct driver fresh;
    bool all = true;
#define D(name, args) all &= (fresh.name = (CUresult(*) args)driver_symbol(#name)) != NULL;
    DRIVER_CALLS(D)
#undef D
    if (!all) {
        gate_say_once(6, "this CUDA driver lacks calls that the gate needs: it stays open");
        return NULL;
    }
    table = fresh; /* two threads write the same values */
    atomic_store_explicit(&ready, 1, memory_order_release);
    return &table;
}

int driver_ordinal(void)
{
    const struct driver *d = driver();
    CUdevice device;
    if (!d || d->cuCtxGetDevice(&device))
        return -1;
    return device;
}

int driver_gpus(void)
{
    const struct driver *d = driver();
    int count = 0;
    if (d)
        d->cuDeviceGetCount(&count);
    return count;
}

void driver_uuid(int ordinal, char *text, size_t size)
{
    const struct driver *d = driver();
    CUuuid id;
    *text = 0;
    if (!d || d->cuDeviceGetUuid_v2(&id, ordinal))
        return;
    const unsigned char *b = (const unsigned char *)id.bytes;
    snprintf(text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

int quiet_begin(const struct driver *d)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return d->cuThreadExchangeStreamCaptureMode(&mode) ? -1 : mode;
}

void quiet_end(const struct driver *d, int before)
{
    if (before >= 0)
        d->cuThreadExchangeStreamCaptureMode(&before);
}
