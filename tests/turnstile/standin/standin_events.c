/* The stand-in's events, copies and memory, and its cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "standin.h"

#define API __attribute__((visibility("default")))

static CUresult event_record(CUevent event, CUstream stream, bool per_thread)
{
    struct event *e = (struct event *)event;
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&standin_lock);
    struct stream *s = standin_stream(stream, per_thread);
    CUresult result = 0;
    if (s->destroyed) {
        fprintf(stderr, "standin: event recorded on a destroyed stream\n");
        abort();
    } else if (s->capturing) {
        s->nodes++; /* an event in a capture is part of the graph */
    } else {
        e->recorded = true;
        e->known = false;
        standin_add(s, (struct op){.kind = OP_EVENT, .event = e});
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
API CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    *e = (CUevent)calloc(1, sizeof(struct event));
    return standin_check();
}
API CUresult cuEventDestroy_v2(CUevent e) { (void)e; return 0; }
API CUresult cuEventRecord(CUevent e, CUstream s) { return event_record(e, s, false); }
API CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return event_record(e, s, true); }
API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned f)
{
    (void)f;
    return event_record(e, s, false);
}
API CUresult cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned f)
{
    (void)f;
    return event_record(e, s, true);
}
API CUresult cuEventQuery(CUevent event)
{
    struct event *e = (struct event *)event;
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&standin_lock);
    CUresult result = standin_unsafe();
    if (!result && e->recorded && (!e->known || standin_now() < e->done_ns))
        result = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&standin_lock);
    return result;
}
API CUresult cuEventSynchronize(CUevent e)
{
    while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
        usleep(20);
    return 0;
}
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    struct event *from = (struct event *)a, *to = (struct event *)b;
    if (!from->known || !to->known || standin_now() < to->done_ns)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(to->done_ns - from->done_ns) / 1e6);
    return 0;
}
static CUresult wait_event(CUstream stream, CUevent event, bool per_thread)
{
    pthread_mutex_lock(&standin_lock);
    struct stream *s = standin_stream(stream, per_thread);
    standin_add(s, (struct op){.kind = OP_WAIT, .event = (struct event *)event});
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned f)
{
    (void)f;
    return wait_event(s, e, false);
}
API CUresult cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned f)
{
    (void)f;
    return wait_event(s, e, true);
}

/* ---- copies, at 20 GB/s ---- */

static CUresult copy(const char *symbol, size_t bytes, CUstream stream, bool per_thread, bool wait)
{
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&standin_lock);
    standin_count(symbol);
    struct stream *s = standin_stream(stream, per_thread);
    if (s->capturing)
        s->nodes++;
    else
        standin_add(s, (struct op){.kind = OP_WORK, .length = bytes / 20});
    unsigned long long tail = s->tail_ns;
    pthread_mutex_unlock(&standin_lock);
    while (wait && standin_now() < tail)
        usleep(20);
    return 0;
}
#define P CUdeviceptr
#define COPIES(name, to, from)                                                              \
    API CUresult name(to d, from s, size_t n, CUstream t)                                   \
    {                                                                                       \
        (void)d, (void)s;                                                                   \
        return copy(#name, n, t, false, false);                                             \
    }                                                                                       \
    API CUresult name##_ptsz(to d, from s, size_t n, CUstream t)                            \
    {                                                                                       \
        (void)d, (void)s;                                                                   \
        return copy(#name "_ptsz", n, t, true, false);                                      \
    }
COPIES(cuMemcpyAsync, P, P)
COPIES(cuMemcpyHtoDAsync_v2, P, const void *)
COPIES(cuMemcpyDtoHAsync_v2, void *, P)
COPIES(cuMemcpyDtoDAsync_v2, P, P)
API CUresult cuMemcpyPeerAsync(P d, CUcontext a, P s, CUcontext b, size_t n, CUstream t)
{
    (void)d, (void)a, (void)s, (void)b;
    return copy("cuMemcpyPeerAsync", n, t, false, false);
}
API CUresult cuMemcpyPeerAsync_ptsz(P d, CUcontext a, P s, CUcontext b, size_t n, CUstream t)
{
    (void)d, (void)a, (void)s, (void)b;
    return copy("cuMemcpyPeerAsync_ptsz", n, t, true, false);
}
#define SYNC(name, own, to, from)                                                            \
    API CUresult name(to d, from s, size_t n)                                               \
    {                                                                                       \
        (void)d, (void)s;                                                                   \
        return copy(#name, n, NULL, own, true);                                             \
    }
SYNC(cuMemcpyHtoD_v2, false, P, const void *)
SYNC(cuMemcpyHtoD_v2_ptds, true, P, const void *)
SYNC(cuMemcpyDtoH_v2, false, void *, P)
SYNC(cuMemcpyDtoH_v2_ptds, true, void *, P)
SYNC(cuMemcpy, false, P, P)
SYNC(cuMemcpy_ptds, true, P, P)

/* ---- cuGetProcAddress ---- */

static const struct { const char *base, *symbol; int since; bool own; } versions[] = {
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020, true},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020, true},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020, true},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010, true},
    {"cuMemAlloc", "cuMemAlloc_v2", 3020, false},
    {"cuMemFree", "cuMemFree_v2", 3020, false},
    {"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020, false},
    {"cuMemGetInfo", "cuMemGetInfo_v2", 3020, false},
    {"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020, false},
    {"cuEventDestroy", "cuEventDestroy_v2", 4000, false},
    {"cuStreamDestroy", "cuStreamDestroy_v2", 4000, false},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000, false},
    {"cuCtxDestroy", "cuCtxDestroy_v2", 4000, false},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000, false},
};

static void *find(const char *symbol, int version, unsigned long long flags)
{
    static void *self;
    char name[96];
    if (!self) {
        Dl_info about;
        dladdr((void *)find, &about);
        self = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    void *(*plain)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(
        RTLD_NEXT, "dlsym", "GLIBC_2.34"); /* as a driver would: not through hooks of dlsym */
    if (!plain)
        plain = dlsym;
    snprintf(name, sizeof name, "%s", symbol);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(versions[i].base, symbol) && version >= versions[i].since)
            snprintf(name, sizeof name, "%s", versions[i].symbol);
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
        char own[112];
        snprintf(own, sizeof own, "%s_ptsz", name);
        void *p = plain(self, own);
        if (p)
            return p;
    }
    return plain(self, name);
}
API CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
    *pfn = find(symbol, version, flags);
    return *pfn ? 0 : CUDA_ERROR_NOT_FOUND;
}
API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                                 int *status)
{
    *pfn = find(symbol, version, flags);
    if (status)
        *status = *pfn ? 0 : 1;
    return *pfn ? 0 : CUDA_ERROR_NOT_FOUND;
}
