/* The hooks of allocations from stream-ordered pools, and of the pools themselves. */
#include "launch.h"
#include "memory.h"

/* Undo an allocation that made its pool grow where only what it kept was to be used. */
static void undo(CUdeviceptr p, CUstream stream, bool per_thread)
{
    CUresult (*call)(CUdeviceptr, CUstream) = (CUresult(*)(CUdeviceptr, CUstream))driver_symbol(
        per_thread ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync");
    if (call)
        call(p, stream);
}

/* In a capture an allocation becomes part of the graph, and takes nothing yet. */
#define POOL_HOOK(name, per_thread, from, parameters, ...)                                  \
    EXPORT CUresult name parameters                                                         \
    {                                                                                       \
        CUresult result;                                                                    \
        struct claim claim;                                                                 \
        uint64_t bytes = pool_charge(n);                                                    \
        int number = gate_inside || capturing(stream, per_thread) ? -1 : pool_of(from);     \
        if (number < 0) {                                                                   \
            THROUGH(name, __VA_ARGS__);                                                     \
            return result;                                                                  \
        }                                                                                   \
        uint64_t end = clock_ns() + gate_me.memory_wait_ns;                                 \
        for (bool strict = false; pool_claim(number, bytes, strict, &claim);) {             \
            THROUGH(name, __VA_ARGS__);                                                     \
            if (result) {                                                                   \
                pool_refused(&claim);                                                       \
                if (result != CUDA_ERROR_OUT_OF_MEMORY || clock_ns() >= end)                \
                    return result;                                                          \
                sleep_until(clock_ns() + 5 * MS);                                           \
            } else if (pool_allocated(&claim, bytes)) {                                     \
                holding_put((struct holding){.kind = HOLD_MEMORY,                           \
                                             .key = *p,                                     \
                                             .bytes = bytes,                                \
                                             .uses = 1,                                     \
                                             .gpu = (uint8_t)claim.gpu,                     \
                                             .pool = (uint8_t)(number + 1)});               \
                return result;                                                              \
            } else {                                                                        \
                undo(*p, stream, per_thread);                                               \
                pool_undone(&claim, bytes);                                                 \
                strict = true;                                                              \
            }                                                                               \
        }                                                                                   \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
    }
#define ASYNC CUdeviceptr *p, size_t n, CUstream stream
POOL_HOOK(cuMemAllocAsync, false, NULL, (ASYNC), p, n, stream)
POOL_HOOK(cuMemAllocAsync_ptsz, true, NULL, (ASYNC), p, n, stream)

#define FROM_POOL CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream stream
POOL_HOOK(cuMemAllocFromPoolAsync, false, pool, (FROM_POOL), p, n, pool, stream)
POOL_HOOK(cuMemAllocFromPoolAsync_ptsz, true, pool, (FROM_POOL), p, n, pool, stream)

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *how)
{
    CUresult result;
    THROUGH(cuMemPoolCreate, pool, how);
    if (!result && !gate_inside) {
        bool here = how->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                    how->location.id >= 0 && how->location.id < MAX_GPUS;
        pool_created(*pool, here ? how->location.id : -1);
    }
    return result;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result;
    if (!gate_inside)
        pool_destroyed(pool);
    THROUGH(cuMemPoolDestroy, pool);
    return result;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult result;
    THROUGH(cuMemPoolTrimTo, pool, keep);
    if (!gate_inside)
        pools_settle();
    return result;
}
