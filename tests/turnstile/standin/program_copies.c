/* The copies that the program under test makes, beside the commonest four. */
#include <string.h>

#include "program_calls.h"

typedef CUdeviceptr P;
typedef CUarray A;
#define MANY P *, P *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t
#define BOXES size_t, CUDA_MEMCPY3D_BATCH_OP *
/* name, exported symbol, arguments, and those of a copy of `n` bytes */
#define COPIES(C)                                                                             \
    C(cuMemcpy, cuMemcpy, (P, P, size_t), (1, 2, n))                                          \
    C(cuMemcpyHtoD, cuMemcpyHtoD_v2, (P, const void *, size_t), (1, buffer, n))               \
    C(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, P, size_t), (buffer, 1, n))                     \
    C(cuMemcpyDtoD, cuMemcpyDtoD_v2, (P, P, size_t), (1, 2, n))                               \
    C(cuMemcpyDtoA, cuMemcpyDtoA_v2, (A, size_t, P, size_t), (a, 0, 1, n))                    \
    C(cuMemcpyAtoD, cuMemcpyAtoD_v2, (P, A, size_t, size_t), (1, a, 0, n))                    \
    C(cuMemcpyHtoA, cuMemcpyHtoA_v2, (A, size_t, const void *, size_t), (a, 0, buffer, n))    \
    C(cuMemcpyAtoH, cuMemcpyAtoH_v2, (void *, A, size_t, size_t), (buffer, a, 0, n))          \
    C(cuMemcpyAtoA, cuMemcpyAtoA_v2, (A, size_t, A, size_t, size_t), (a, 0, a, 0, n))         \
    C(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, (A, size_t, const void *, size_t, CUstream),   \
      (a, 0, buffer, n, s))                                                                   \
    C(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, (void *, A, size_t, size_t, CUstream),         \
      (buffer, a, 0, n, s))                                                                   \
    C(cuMemcpyPeer, cuMemcpyPeer, (P, CUcontext, P, CUcontext, size_t), (1, NULL, 2, NULL, n)) \
    C(cuMemcpyPeerAsync, cuMemcpyPeerAsync, (P, CUcontext, P, CUcontext, size_t, CUstream),   \
      (1, NULL, 2, NULL, n, s))                                                               \
    C(cuMemcpy2D, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *), (&flat))                            \
    C(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *), (&flat))          \
    C(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *, CUstream), (&flat, s))     \
    C(cuMemcpy3D, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *), (&deep))                            \
    C(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *, CUstream), (&deep, s))     \
    C(cuMemcpy3DPeer, cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *), (&deep))                  \
    C(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *, CUstream),       \
      (&deep, s))
#define BATCHES(C)                                                                            \
    C(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, (MANY, CUstream), ())                        \
    C(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, (BOXES, unsigned long long, CUstream), ())

#ifdef PLT
#define C(name, symbol, args, with) extern CUresult symbol args;
COPIES(C)
BATCHES(C)
#undef C
#endif

static struct {
#define C(name, symbol, args, with) CUresult(*name) args;
    COPIES(C)
    BATCHES(C)
#undef C
} cu_;
static bool old_batches;

void get_copies(bool old)
{
    old_batches = old;
#ifdef PLT
#define C(name, symbol, args, with) cu_.name = symbol;
#else
#define C(name, symbol, args, with) cu_.name = (CUresult(*) args)lookup(#name);
#endif
    COPIES(C)
    BATCHES(C)
#undef C
}

/* Two halves. What the older calls say of the one that failed must come back. */
static CUresult batch(size_t n, CUstream s)
{
    P at[2] = {1, 2};
    size_t sizes[2] = {n / 2, n - n / 2}, failed = 0;
    if (!old_batches)
        return cu_.cuMemcpyBatchAsync(at, at, sizes, 2, NULL, NULL, 0, s);
    CUresult (*call)(MANY, size_t *, CUstream) =
        (CUresult(*)(MANY, size_t *, CUstream))(void *)cu_.cuMemcpyBatchAsync;
    CUresult result = call(at, at, sizes, 2, NULL, NULL, 0, &failed, s);
    return failed == 7 ? result : -2;
}

static CUresult boxes(size_t n, CUstream s)
{
    CUDA_MEMCPY3D_BATCH_OP list[2] = {{.extent = {n / 4, 2, 1}}, {.extent = {n / 4, 1, 2}}};
    size_t failed = 0;
    if (!old_batches)
        return cu_.cuMemcpy3DBatchAsync(2, list, 0, s);
    CUresult (*call)(BOXES, size_t *, unsigned long long, CUstream) =
        (CUresult(*)(BOXES, size_t *, unsigned long long, CUstream))(void *)
            cu_.cuMemcpy3DBatchAsync;
    CUresult result = call(2, list, &failed, 0, s);
    return failed == 7 ? result : -2;
}

CUresult copy(const char *name, size_t n, CUstream s)
{
    static char buffer[8];
    A a = NULL;
    CUDA_MEMCPY2D flat = {.WidthInBytes = n / 2, .Height = 2};
    CUDA_MEMCPY3D deep = {.WidthInBytes = n / 4, .Height = 2, .Depth = 2};
    (void)buffer;
#define C(id, symbol, args, with)                                                             \
    if (!strcmp(name, #id))                                                                   \
        return cu_.id with;
    COPIES(C)
#undef C
    if (!strcmp(name, "cuMemcpyBatchAsync"))
        return batch(n, s);
    if (!strcmp(name, "cuMemcpy3DBatchAsync"))
        return boxes(n, s);
    return -1;
}
