/* The hooks of copies between addresses. Only large ones are gated; they have an account of their
 * own, since copies and kernels overlap. Those that return when they are done also say so. */
#include "copies.h"

/* A first guess, until a copy of about this size was measured. */
#define BYTES_PER_US 20000ull
#define USUAL_MOST (4000 * MS) /* nor is any measured as longer */

/* Sizes within a quarter of each other count as one kind of copy. */
static unsigned size_class(size_t bytes)
{
    unsigned top = 63 - (unsigned)__builtin_clzll((unsigned long long)bytes | 4);
    return top << 2 | (unsigned)(bytes >> (top - 2) & 3);
}

void copy_before(struct launch *l, size_t bytes, CUstream stream, bool per_thread, bool done,
                 enum hook_id way)
{
    *l = (struct launch){.stream = stream, .per_thread = per_thread, .synchronous = done};
    if (bytes < 65536)
        return;
    struct seat *seat = seat_current();
    if (!seat || bytes < knob(seat->page, TREADLE_KNOB_copy_bytes))
        return;
    l->kind = LAUNCH_COPY;
    l->usual_ns = bytes / BYTES_PER_US * US + 10 * US;
    if (l->usual_ns > USUAL_MOST)
        l->usual_ns = USUAL_MOST;
    unsigned shape[6] = {way, size_class(bytes)};
    l->key = learn_key(NULL, shape, LAUNCH_COPY);
    launch_before(l);
}

void copy_after(struct launch *l, CUresult result, uint64_t upto)
{
    if (l->seat)
        launch_after(l, result);
    if (l->synchronous && unlikely(load(&urgent_active)) && result == CUDA_SUCCESS)
        urgent_done_stream(l->stream, l->per_thread, upto);
}

#define D CUdeviceptr
#define COPY_HOOKS(name, plain, own, to, from)                                       \
    EXPORT CUresult plain(to dst, from src, size_t n, CUstream s)                    \
        COPY(plain, n, s, false, false, dst, src, n, s)                              \
    EXPORT CUresult own(to dst, from src, size_t n, CUstream s)                      \
        COPY(own, n, s, true, false, dst, src, n, s)
COPY_HOOKS(cuMemcpyAsync, cuMemcpyAsync, cuMemcpyAsync_ptsz, D, D)
COPY_HOOKS(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz, D, const void *)
COPY_HOOKS(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, void *, D)
COPY_HOOKS(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, D, D)

#define PEER_HOOK(name, per_thread)                                                       \
    EXPORT CUresult name(D dst, CUcontext to, D src, CUcontext from, size_t n, CUstream s) \
        COPY(name, n, s, per_thread, false, dst, to, src, from, n, s)
PEER_HOOK(cuMemcpyPeerAsync, false)
PEER_HOOK(cuMemcpyPeerAsync_ptsz, true)

#define SYNC_HOOK(name, per_thread, done, to, from) \
    EXPORT CUresult name(to dst, from src, size_t n) \
        COPY(name, n, NULL, per_thread, done, dst, src, n)
SYNC_HOOK(cuMemcpyHtoD_v2, false, true, D, const void *)
SYNC_HOOK(cuMemcpyHtoD_v2_ptds, true, true, D, const void *)
SYNC_HOOK(cuMemcpyDtoH_v2, false, true, void *, D)
SYNC_HOOK(cuMemcpyDtoH_v2_ptds, true, true, void *, D)

/* Between two places on GPUs nothing is over when the call returns, and of two plain addresses
 * nobody knows where they lie: that these are done is heard from what the program does next. */
SYNC_HOOK(cuMemcpyDtoD_v2, false, false, D, D)
SYNC_HOOK(cuMemcpyDtoD_v2_ptds, true, false, D, D)
SYNC_HOOK(cuMemcpy, false, false, D, D)
SYNC_HOOK(cuMemcpy_ptds, true, false, D, D)

#define SYNC_PEER_HOOK(name, per_thread)                                                \
    EXPORT CUresult name(D dst, CUcontext to, D src, CUcontext from, size_t n)          \
        COPY(name, n, NULL, per_thread, false, dst, to, src, from, n)
SYNC_PEER_HOOK(cuMemcpyPeer, false)
SYNC_PEER_HOOK(cuMemcpyPeer_ptds, true)
