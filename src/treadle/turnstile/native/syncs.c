/* The hooks of calls that tell when work is done, and of those that end what they tell about. */
#include "classes.h"
#include "launch.h"
#include "memory.h"
#include "running.h"
#include "split.h"

#define STREAM_DONE_HOOK(name, per_thread, waits)                                \
    EXPORT CUresult name(CUstream stream)                                        \
    {                                                                            \
        CUresult result;                                                         \
        uint64_t upto = urgent_sequence();                                       \
        THROUGH(name, stream);                                                   \
        if (unlikely(load(&urgent_active)) && result == CUDA_SUCCESS)            \
            urgent_done_stream(stream, per_thread, upto);                        \
        if (waits)                                                               \
            pools_waited();                                                      \
        return result;                                                           \
    }
STREAM_DONE_HOOK(cuStreamSynchronize, false, true)
STREAM_DONE_HOOK(cuStreamSynchronize_ptsz, true, true)
STREAM_DONE_HOOK(cuStreamQuery, false, false)
STREAM_DONE_HOOK(cuStreamQuery_ptsz, true, false)

#define EVENT_DONE_HOOK(name, waits)                                             \
    EXPORT CUresult name(CUevent event)                                          \
    {                                                                            \
        CUresult result;                                                         \
        THROUGH(name, event);                                                    \
        if (unlikely(load(&urgent_active)) && result == CUDA_SUCCESS)            \
            urgent_event_done(event);                                            \
        if (waits)                                                               \
            pools_waited();                                                      \
        return result;                                                           \
    }
EVENT_DONE_HOOK(cuEventQuery, false)
EVENT_DONE_HOOK(cuEventSynchronize, true)

EXPORT CUresult cuCtxSynchronize(void)
{
    CUresult result;
    uint64_t upto = urgent_sequence();
    THROUGH(cuCtxSynchronize);
    if (unlikely(load(&urgent_active)) && result == CUDA_SUCCESS)
        urgent_done_all(upto);
    pools_waited();
    return result;
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    CUresult result;
    uint64_t upto = urgent_sequence();
    THROUGH(cuCtxSynchronize_v2, context);
    if (unlikely(load(&urgent_active)) && result == CUDA_SUCCESS)
        urgent_done_all(upto);
    pools_waited();
    return result;
}

#define RECORD_HOOK(name, per_thread)                                            \
    EXPORT CUresult name(CUevent event, CUstream stream)                         \
    {                                                                            \
        CUresult result;                                                         \
        if (unlikely(load(&urgent_active)))                                      \
            urgent_event_recorded(event, stream, per_thread);                    \
        THROUGH(name, event, stream);                                            \
        return result;                                                           \
    }
RECORD_HOOK(cuEventRecord, false)
RECORD_HOOK(cuEventRecord_ptsz, true)

#define RECORD_FLAGS_HOOK(name, per_thread)                                      \
    EXPORT CUresult name(CUevent event, CUstream stream, unsigned flags)         \
    {                                                                            \
        CUresult result;                                                         \
        if (unlikely(load(&urgent_active)))                                      \
            urgent_event_recorded(event, stream, per_thread);                    \
        THROUGH(name, event, stream, flags);                                     \
        return result;                                                           \
    }
RECORD_FLAGS_HOOK(cuEventRecordWithFlags, false)
RECORD_FLAGS_HOOK(cuEventRecordWithFlags_ptsz, true)

/* From here on the stream may wait for anything: what its events say about time means little. */
#define WAIT_HOOK(name)                                                          \
    EXPORT CUresult name(CUstream stream, CUevent event, unsigned flags)         \
    {                                                                            \
        CUresult result;                                                         \
        track_taint();                                                           \
        THROUGH(name, stream, event, flags);                                     \
        return result;                                                           \
    }
WAIT_HOOK(cuStreamWaitEvent)
WAIT_HOOK(cuStreamWaitEvent_ptsz)

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult result;
    if (unlikely(load(&urgent_active)))
        urgent_forget_event(event);
    THROUGH(cuEventDestroy_v2, event);
    return result;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result;
    if (unlikely(load(&urgent_active)))
        urgent_forget_stream(stream);
    class_forget_stream(stream);
    parted_stream_gone();
    THROUGH(cuStreamDestroy_v2, stream);
    return result;
}

static void context_goes(void)
{
    track_forget_events();
    running_forget_events();
    class_forget_streams();
    if (load(&urgent_active))
        urgent_forget_stream(NULL);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult result;
    context_goes();
    THROUGH(cuCtxDestroy_v2, context);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result;
    context_goes();
    THROUGH(cuDevicePrimaryCtxReset_v2, device);
    return result;
}

/* Often one of a pair that only looked: the context goes with the last user. */
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result;
    CUresult (*state)(CUdevice, unsigned *, int *) =
        (CUresult(*)(CUdevice, unsigned *, int *))driver_symbol("cuDevicePrimaryCtxGetState");
    unsigned flags;
    int active = 0;
    THROUGH(cuDevicePrimaryCtxRelease_v2, device);
    if (!state || state(device, &flags, &active) || !active)
        context_goes();
    return result;
}
