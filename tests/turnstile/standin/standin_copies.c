/* The stand-in's copies, at 20 GB/s. Those with a side in host memory are over on return. */
#include "standin.h"

#define API __attribute__((visibility("default")))
#define P CUdeviceptr
#define A CUarray

static CUresult copy(const char *symbol, size_t bytes, CUstream stream, bool per_thread, bool wait)
{
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (bytes >> 40)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    standin_count(symbol);
    struct stream *s = standin_stream(stream, per_thread);
    if (s->capturing)
        standin_capture(s, NULL, 0);
    else
        standin_add(s, (struct op){.kind = OP_WORK, .length = bytes / 20});
    unsigned long long tail = s->tail_ns;
    pthread_mutex_unlock(&standin_lock);
    while (wait && standin_now() < tail)
        usleep(20);
    return 0;
}

/* Arguments by name, so that one list serves the declaration and the marks of no use. */
#define ASYNC(name, end, own, bytes, ...)                                                   \
    API CUresult name##end(__VA_ARGS__, CUstream t)                                         \
    {                                                                                       \
        return copy(#name #end, bytes, t, own, false);                                      \
    }
#define BOTH(name, bytes, ...)                                                              \
    ASYNC(name, , false, bytes, __VA_ARGS__)                                                \
    ASYNC(name, _ptsz, true, bytes, __VA_ARGS__)
#define SYNC(name, end, own, bytes, wait, ...)                                              \
    API CUresult name##end(__VA_ARGS__) { return copy(#name #end, bytes, NULL, own, wait); }
#define BOTH_SYNC(name, bytes, wait, ...)                                                   \
    SYNC(name, , false, bytes, wait, __VA_ARGS__)                                           \
    SYNC(name, _ptds, true, bytes, wait, __VA_ARGS__)

#pragma GCC diagnostic ignored "-Wunused-parameter"

BOTH(cuMemcpyAsync, n, P d, P s, size_t n)
BOTH(cuMemcpyHtoDAsync_v2, n, P d, const void *s, size_t n)
BOTH(cuMemcpyDtoHAsync_v2, n, void *d, P s, size_t n)
BOTH(cuMemcpyDtoDAsync_v2, n, P d, P s, size_t n)
BOTH(cuMemcpyPeerAsync, n, P d, CUcontext a, P s, CUcontext b, size_t n)
BOTH(cuMemcpyHtoAAsync_v2, n, A d, size_t o, const void *s, size_t n)
BOTH(cuMemcpyAtoHAsync_v2, n, void *d, A s, size_t o, size_t n)
BOTH_SYNC(cuMemcpy, n, false, P d, P s, size_t n)
BOTH_SYNC(cuMemcpyHtoD_v2, n, true, P d, const void *s, size_t n)
BOTH_SYNC(cuMemcpyDtoH_v2, n, true, void *d, P s, size_t n)
BOTH_SYNC(cuMemcpyDtoD_v2, n, false, P d, P s, size_t n)
BOTH_SYNC(cuMemcpyPeer, n, false, P d, CUcontext a, P s, CUcontext b, size_t n)
BOTH_SYNC(cuMemcpyDtoA_v2, n, false, A d, size_t o, P s, size_t n)
BOTH_SYNC(cuMemcpyAtoD_v2, n, false, P d, A s, size_t o, size_t n)
BOTH_SYNC(cuMemcpyHtoA_v2, n, true, A d, size_t o, const void *s, size_t n)
BOTH_SYNC(cuMemcpyAtoH_v2, n, true, void *d, A s, size_t o, size_t n)
BOTH_SYNC(cuMemcpyAtoA_v2, n, false, A d, size_t o, A s, size_t q, size_t n)

#define RECTANGLE (c->WidthInBytes * c->Height)
#define BOX (RECTANGLE * c->Depth)
#define HOST (c->src.memory == CU_MEMORYTYPE_HOST || c->dst.memory == CU_MEMORYTYPE_HOST)
BOTH_SYNC(cuMemcpy2D_v2, RECTANGLE, HOST, const CUDA_MEMCPY2D *c)
BOTH_SYNC(cuMemcpy2DUnaligned_v2, RECTANGLE, HOST, const CUDA_MEMCPY2D *c)
BOTH_SYNC(cuMemcpy3D_v2, BOX, HOST, const CUDA_MEMCPY3D *c)
BOTH_SYNC(cuMemcpy3DPeer, BOX, HOST, const CUDA_MEMCPY3D_PEER *c)
BOTH(cuMemcpy2DAsync_v2, RECTANGLE, const CUDA_MEMCPY2D *c)
BOTH(cuMemcpy3DAsync_v2, BOX, const CUDA_MEMCPY3D *c)
BOTH(cuMemcpy3DPeerAsync, BOX, const CUDA_MEMCPY3D_PEER *c)

static size_t sum(const size_t *sizes, size_t count)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += sizes[i];
    return all;
}
static size_t sum_boxes(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += list[i].extent.width * list[i].extent.height * list[i].extent.depth;
    return all;
}
#define MANY P *d, P *s, size_t *n, size_t c, CUmemcpyAttributes *a, size_t *i, size_t w
#define BOXES size_t c, CUDA_MEMCPY3D_BATCH_OP *list
BOTH(cuMemcpyBatchAsync, (*failed = 7, sum(n, c)), MANY, size_t *failed)
BOTH(cuMemcpyBatchAsync_v2, sum(n, c), MANY)
BOTH(cuMemcpy3DBatchAsync, (*failed = 7, sum_boxes(list, c)), BOXES, size_t *failed,
     unsigned long long flags)
BOTH(cuMemcpy3DBatchAsync_v2, sum_boxes(list, c), BOXES, unsigned long long flags)
