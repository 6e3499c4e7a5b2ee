/* The stand-in's events, and its cuGetProcAddress. */
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
        standin_capture(s, NULL, 0); /* an event in a capture is part of the graph */
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

/* ---- cuGetProcAddress ---- */

static const struct { const char *base, *symbol; int since; } versions[] = {
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020},
    {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020},
    {"cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020},
    {"cuMemcpyDtoD", "cuMemcpyDtoD_v2", 3020},
    {"cuMemcpyDtoA", "cuMemcpyDtoA_v2", 3020},
    {"cuMemcpyAtoD", "cuMemcpyAtoD_v2", 3020},
    {"cuMemcpyHtoA", "cuMemcpyHtoA_v2", 3020},
    {"cuMemcpyAtoH", "cuMemcpyAtoH_v2", 3020},
    {"cuMemcpyAtoA", "cuMemcpyAtoA_v2", 3020},
    {"cuMemcpyHtoAAsync", "cuMemcpyHtoAAsync_v2", 3020},
    {"cuMemcpyAtoHAsync", "cuMemcpyAtoHAsync_v2", 3020},
    {"cuMemcpy2D", "cuMemcpy2D_v2", 3020},
    {"cuMemcpy2DUnaligned", "cuMemcpy2DUnaligned_v2", 3020},
    {"cuMemcpy3D", "cuMemcpy3D_v2", 3020},
    {"cuMemcpy2DAsync", "cuMemcpy2DAsync_v2", 3020},
    {"cuMemcpy3DAsync", "cuMemcpy3DAsync_v2", 3020},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2", 13000},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
    {"cuMemAlloc", "cuMemAlloc_v2", 3020},
    {"cuMemFree", "cuMemFree_v2", 3020},
    {"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020},
    {"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
    {"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020},
    {"cuEventDestroy", "cuEventDestroy_v2", 4000},
    {"cuStreamDestroy", "cuStreamDestroy_v2", 4000},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
    {"cuCtxDestroy", "cuCtxDestroy_v2", 4000},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
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
    if (strstr(symbol, "BatchAsync") && version < 12080)
        return NULL; /* younger than the caller */
    snprintf(name, sizeof name, "%s", symbol);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (!strcmp(versions[i].base, symbol) && version >= versions[i].since)
            snprintf(name, sizeof name, "%s", versions[i].symbol);
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
        static const char *const ends[] = {"_ptsz", "_ptds"};
        for (int i = 0; i < 2; i++) {
            char own[112];
            snprintf(own, sizeof own, "%s%s", name, ends[i]);
            void *p = plain(self, own);
            if (p)
                return p;
        }
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
