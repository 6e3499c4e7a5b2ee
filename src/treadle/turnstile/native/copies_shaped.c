/* The hooks of copies of rectangles and boxes, to and from arrays, and of many at once. How large
 * they are says their description; whether they are over on return, whether the host is a side. */
#include "copies.h"

#define D CUdeviceptr
#define A CUarray

_Static_assert(sizeof(CUDA_MEMCPY2D) == 128 && sizeof(CUDA_MEMCPY3D) == 200 &&
                   sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112,
               "descriptions as the driver lays them out");

/* A product too large for a word is no copy that the driver takes, but still a large one. */
static size_t times(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static size_t plus(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t rectangle_bytes(const CUDA_MEMCPY2D *c)
{
    return c ? times(c->WidthInBytes, c->Height) : 0;
}

static size_t box_bytes(const CUDA_MEMCPY3D *c)
{
    return c ? times(times(c->WidthInBytes, c->Height), c->Depth) : 0;
}

static size_t batch_bytes(const size_t *sizes, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; sizes && i < count; i++)
        sum = plus(sum, sizes[i]);
    return sum;
}

/* Widths are in elements, whose size only an array's description tells: at least a byte each. */
static size_t boxes_bytes(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; list && i < count; i++)
        sum = plus(sum, times(times(list[i].extent.width, list[i].extent.height),
                              list[i].extent.depth));
    return sum;
}

#define WITH_HOST(c) \
    ((c) && ((c)->src.memory == CU_MEMORYTYPE_HOST || (c)->dst.memory == CU_MEMORYTYPE_HOST))

#define SHAPE_HOOK(name, per_thread, shape, size)                                \
    EXPORT CUresult name(const shape *c)                                         \
        COPY(name, size(c), NULL, per_thread, WITH_HOST(c), c)
SHAPE_HOOK(cuMemcpy2D_v2, false, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_HOOK(cuMemcpy2D_v2_ptds, true, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_HOOK(cuMemcpy2DUnaligned_v2, false, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_HOOK(cuMemcpy2DUnaligned_v2_ptds, true, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_HOOK(cuMemcpy3D_v2, false, CUDA_MEMCPY3D, box_bytes)
SHAPE_HOOK(cuMemcpy3D_v2_ptds, true, CUDA_MEMCPY3D, box_bytes)
SHAPE_HOOK(cuMemcpy3DPeer, false, CUDA_MEMCPY3D_PEER, box_bytes)
SHAPE_HOOK(cuMemcpy3DPeer_ptds, true, CUDA_MEMCPY3D_PEER, box_bytes)

#define SHAPE_ASYNC_HOOK(name, per_thread, shape, size)                          \
    EXPORT CUresult name(const shape *c, CUstream s)                             \
        COPY(name, size(c), s, per_thread, false, c, s)
SHAPE_ASYNC_HOOK(cuMemcpy2DAsync_v2, false, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_ASYNC_HOOK(cuMemcpy2DAsync_v2_ptsz, true, CUDA_MEMCPY2D, rectangle_bytes)
SHAPE_ASYNC_HOOK(cuMemcpy3DAsync_v2, false, CUDA_MEMCPY3D, box_bytes)
SHAPE_ASYNC_HOOK(cuMemcpy3DAsync_v2_ptsz, true, CUDA_MEMCPY3D, box_bytes)
SHAPE_ASYNC_HOOK(cuMemcpy3DPeerAsync, false, CUDA_MEMCPY3D_PEER, box_bytes)
SHAPE_ASYNC_HOOK(cuMemcpy3DPeerAsync_ptsz, true, CUDA_MEMCPY3D_PEER, box_bytes)

/* ---- to and from arrays ---- */

#define TO_ARRAY_HOOK(name, per_thread, done, from)                              \
    EXPORT CUresult name(A dst, size_t at, from src, size_t n)                   \
        COPY(name, n, NULL, per_thread, done, dst, at, src, n)
TO_ARRAY_HOOK(cuMemcpyDtoA_v2, false, false, D)
TO_ARRAY_HOOK(cuMemcpyDtoA_v2_ptds, true, false, D)
TO_ARRAY_HOOK(cuMemcpyHtoA_v2, false, true, const void *)
TO_ARRAY_HOOK(cuMemcpyHtoA_v2_ptds, true, true, const void *)

#define FROM_ARRAY_HOOK(name, per_thread, done, to)                              \
    EXPORT CUresult name(to dst, A src, size_t at, size_t n)                     \
        COPY(name, n, NULL, per_thread, done, dst, src, at, n)
FROM_ARRAY_HOOK(cuMemcpyAtoD_v2, false, false, D)
FROM_ARRAY_HOOK(cuMemcpyAtoD_v2_ptds, true, false, D)
FROM_ARRAY_HOOK(cuMemcpyAtoH_v2, false, true, void *)
FROM_ARRAY_HOOK(cuMemcpyAtoH_v2_ptds, true, true, void *)

#define BETWEEN_ARRAYS_HOOK(name, per_thread)                                    \
    EXPORT CUresult name(A dst, size_t to, A src, size_t from, size_t n)         \
        COPY(name, n, NULL, per_thread, false, dst, to, src, from, n)
BETWEEN_ARRAYS_HOOK(cuMemcpyAtoA_v2, false)
BETWEEN_ARRAYS_HOOK(cuMemcpyAtoA_v2_ptds, true)

#define HOST_TO_ARRAY_ASYNC_HOOK(name, per_thread)                               \
    EXPORT CUresult name(A dst, size_t at, const void *src, size_t n, CUstream s) \
        COPY(name, n, s, per_thread, false, dst, at, src, n, s)
HOST_TO_ARRAY_ASYNC_HOOK(cuMemcpyHtoAAsync_v2, false)
HOST_TO_ARRAY_ASYNC_HOOK(cuMemcpyHtoAAsync_v2_ptsz, true)

#define ARRAY_TO_HOST_ASYNC_HOOK(name, per_thread)                               \
    EXPORT CUresult name(void *dst, A src, size_t at, size_t n, CUstream s)      \
        COPY(name, n, s, per_thread, false, dst, src, at, n, s)
ARRAY_TO_HOST_ASYNC_HOOK(cuMemcpyAtoHAsync_v2, false)
ARRAY_TO_HOST_ASYNC_HOOK(cuMemcpyAtoHAsync_v2_ptsz, true)

/* ---- with attributes, one ---- */

#define WITH_HOOK(name, per_thread)                                              \
    EXPORT CUresult name(D dst, D src, size_t n, CUmemcpyAttributes *how, CUstream s) \
        COPY(name, n, s, per_thread, false, dst, src, n, how, s)
WITH_HOOK(cuMemcpyWithAttributesAsync, false)
WITH_HOOK(cuMemcpyWithAttributesAsync_ptsz, true)

#define BOX_WITH_HOOK(name, per_thread)                                          \
    EXPORT CUresult name(CUDA_MEMCPY3D_BATCH_OP *box, unsigned long long flags, CUstream s) \
        COPY(name, boxes_bytes(box, 1), s, per_thread, false, box, flags, s)
BOX_WITH_HOOK(cuMemcpy3DWithAttributesAsync, false)
BOX_WITH_HOOK(cuMemcpy3DWithAttributesAsync_ptsz, true)

/* ---- many at once: CUDA 13 took away the place for the index of the one that failed ---- */

#define BATCH_ARGUMENTS D *dst, D *src, size_t *sizes, size_t count, CUmemcpyAttributes *how, \
                        size_t *which, size_t ways
#define BATCH_12_HOOK(name, per_thread)                                          \
    EXPORT CUresult name(BATCH_ARGUMENTS, size_t *failed, CUstream s)            \
        COPY(name, batch_bytes(sizes, count), s, per_thread, false, dst, src, sizes, count, how, \
             which, ways, failed, s)
BATCH_12_HOOK(cuMemcpyBatchAsync, false)
BATCH_12_HOOK(cuMemcpyBatchAsync_ptsz, true)

#define BATCH_HOOK(name, per_thread)                                             \
    EXPORT CUresult name(BATCH_ARGUMENTS, CUstream s)                            \
        COPY(name, batch_bytes(sizes, count), s, per_thread, false, dst, src, sizes, count, how, \
             which, ways, s)
BATCH_HOOK(cuMemcpyBatchAsync_v2, false)
BATCH_HOOK(cuMemcpyBatchAsync_v2_ptsz, true)

#define BOXES_12_HOOK(name, per_thread)                                          \
    EXPORT CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, \
                         unsigned long long flags, CUstream s)                   \
        COPY(name, boxes_bytes(list, count), s, per_thread, false, count, list, failed, flags, s)
BOXES_12_HOOK(cuMemcpy3DBatchAsync, false)
BOXES_12_HOOK(cuMemcpy3DBatchAsync_ptsz, true)

#define BOXES_HOOK(name, per_thread)                                             \
    EXPORT CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,             \
                         unsigned long long flags, CUstream s)                   \
        COPY(name, boxes_bytes(list, count), s, per_thread, false, count, list, flags, s)
BOXES_HOOK(cuMemcpy3DBatchAsync_v2, false)
BOXES_HOOK(cuMemcpy3DBatchAsync_v2_ptsz, true)
