/* The stand-in's stream captures. */
#include "standin.h"

#define API __attribute__((visibility("default")))

static CUresult capture_begin(CUstream stream, bool own_, int mode)
{
    pthread_mutex_lock(&standin_lock);
    struct stream *s = standin_stream(stream, own_);
    s->capturing = 1;
    s->mode = mode;
    s->captured = standin_graph();
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
static CUresult capture_end(CUstream stream, bool own_, CUgraph *graph)
{
    pthread_mutex_lock(&standin_lock);
    struct stream *s = standin_stream(stream, own_);
    int state = s->capturing;
    s->capturing = 0;
    *graph = NULL;
    if (state == 1) {
        *graph = (CUgraph)s->captured;
    }
    pthread_mutex_unlock(&standin_lock);
    return state == 1 ? 0 : state == 2 ? 901 : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuStreamBeginCapture_v2(CUstream s, int mode) { return capture_begin(s, false, mode); }
API CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, int m) { return capture_begin(s, true, m); }
#define TO(name, per_thread)                                                                      \
    API CUresult name(CUstream s, CUgraph g, const CUgraphNode *n, const void *e, size_t c, int m) \
    {                                                                                             \
        (void)g, (void)n, (void)e, (void)c;                                                       \
        return capture_begin(s, per_thread, m);                                                   \
    }
TO(cuStreamBeginCaptureToGraph, false)
TO(cuStreamBeginCaptureToGraph_ptsz, true)
API CUresult cuStreamEndCapture(CUstream s, CUgraph *g) { return capture_end(s, false, g); }
API CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *g) { return capture_end(s, true, g); }
API CUresult cuStreamIsCapturing(CUstream s, int *status)
{
    *status = standin_stream(s, false)->capturing;
    return 0;
}
API CUresult cuStreamIsCapturing_ptsz(CUstream s, int *status)
{
    *status = standin_stream(s, true)->capturing;
    return 0;
}
API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = standin_mode;
    standin_mode = *mode;
    *mode = before;
    return 0;
}
