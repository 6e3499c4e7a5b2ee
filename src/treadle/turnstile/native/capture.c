/* Stream captures: nothing of the gate's may end up in a graph, or disturb one in the making.
 *
 * The driver is asked about a stream only while some capture is active, which is counted here. */
#include "launch.h"

_Atomic uint32_t captures_active;

bool capture_ask(CUstream stream, bool per_thread)
{
    const struct driver *d = driver();
    if (!d)
        return true;
    int status = 0;
    CUresult result = per_thread ? d->cuStreamIsCapturing_ptsz(stream, &status)
                                 : d->cuStreamIsCapturing(stream, &status);
    return result != CUDA_SUCCESS || status != 0;
}

/* Counted before it begins, so that no other thread is too late to notice. */
#define BEGIN_HOOK(name)                                        \
    EXPORT CUresult name(CUstream stream, int mode)             \
    {                                                           \
        CUresult result;                                        \
        atomic_fetch_add(&captures_active, 1);                  \
        THROUGH(name, stream, mode);                            \
        if (result)                                             \
            atomic_fetch_sub(&captures_active, 1);              \
        return result;                                          \
    }
BEGIN_HOOK(cuStreamBeginCapture_v2)
BEGIN_HOOK(cuStreamBeginCapture_v2_ptsz)

#define BEGIN_TO_HOOK(name)                                                                   \
    EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode *nodes,            \
                         const void *edges, size_t count, int mode)                           \
    {                                                                                         \
        CUresult result;                                                                      \
        atomic_fetch_add(&captures_active, 1);                                                \
        THROUGH(name, stream, graph, nodes, edges, count, mode);                              \
        if (result)                                                                           \
            atomic_fetch_sub(&captures_active, 1);                                            \
        return result;                                                                        \
    }
BEGIN_TO_HOOK(cuStreamBeginCaptureToGraph)
BEGIN_TO_HOOK(cuStreamBeginCaptureToGraph_ptsz)

/* A capture that was invalidated ends with an error, but it ends: ask whether it was one. */
#define END_HOOK(name, per_thread)                              \
    EXPORT CUresult name(CUstream stream, CUgraph *graph)       \
    {                                                           \
        CUresult result;                                        \
        bool was = capturing(stream, per_thread);               \
        THROUGH(name, stream, graph);                           \
        if (was && !capture_ask(stream, per_thread))            \
            atomic_fetch_sub(&captures_active, 1);              \
        return result;                                          \
    }
END_HOOK(cuStreamEndCapture, false)
END_HOOK(cuStreamEndCapture_ptsz, true)
