/* Every function that the gate stands in front of: exported symbol, name by which
 * cuGetProcAddress knows it, whether it is the per-thread-default-stream variant, and the first
 * CUDA version that means this one by that name. */
#ifndef TREADLE_HOOKS_H
#define TREADLE_HOOKS_H

#include "driver.h"

#define BOTH(H, name, since) H(name, name, 0, since) H(name##_ptsz, name, 1, since)

/* The same for a second version's symbols, of which the calls without a stream say _ptds. */
#define BOTH_V2(H, name, since) \
    H(name##_v2, name, 0, since) H(name##_v2_ptsz, name, 1, (since) < 7000 ? 7000 : (since))
#define BOTH_SYNC(H, name, since) H(name, name, 0, since) H(name##_ptds, name, 1, 7000)
#define BOTH_SYNC_V2(H, name, since) H(name##_v2, name, 0, since) H(name##_v2_ptds, name, 1, 7000)

#define HOOKS(H)                                                      \
    BOTH(H, cuLaunchKernel, 4000)                                     \
    BOTH(H, cuLaunchKernelEx, 11060)                                  \
    BOTH(H, cuLaunchCooperativeKernel, 9000)                          \
    H(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 0, 9000) \
    BOTH(H, cuGraphLaunch, 10000)                                     \
    H(cuLaunch, cuLaunch, 0, 2000)                                    \
    H(cuLaunchGrid, cuLaunchGrid, 0, 2000)                            \
    H(cuLaunchGridAsync, cuLaunchGridAsync, 0, 2000)                  \
    BOTH(H, cuMemcpyAsync, 4000)                                      \
    BOTH(H, cuMemcpyPeerAsync, 4000)                                  \
    BOTH_V2(H, cuMemcpyHtoDAsync, 3020)                               \
    BOTH_V2(H, cuMemcpyDtoHAsync, 3020)                               \
    BOTH_V2(H, cuMemcpyDtoDAsync, 3020)                               \
    BOTH_V2(H, cuMemcpyHtoAAsync, 3020)                               \
    BOTH_V2(H, cuMemcpyAtoHAsync, 3020)                               \
    BOTH_V2(H, cuMemcpy2DAsync, 3020)                                 \
    BOTH_V2(H, cuMemcpy3DAsync, 3020)                                 \
    BOTH(H, cuMemcpy3DPeerAsync, 4000)                                \
    BOTH(H, cuMemcpyBatchAsync, 12080)                                \
    BOTH_V2(H, cuMemcpyBatchAsync, 13000)                             \
    BOTH(H, cuMemcpy3DBatchAsync, 12080)                              \
    BOTH_V2(H, cuMemcpy3DBatchAsync, 13000)                           \
    BOTH(H, cuMemcpyWithAttributesAsync, 13020)                       \
    BOTH(H, cuMemcpy3DWithAttributesAsync, 13020)                     \
    BOTH_SYNC(H, cuMemcpy, 4000)                                      \
    BOTH_SYNC(H, cuMemcpyPeer, 4000)                                  \
    BOTH_SYNC(H, cuMemcpy3DPeer, 4000)                                \
    BOTH_SYNC_V2(H, cuMemcpyHtoD, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyDtoH, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyDtoD, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyDtoA, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyAtoD, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyHtoA, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyAtoH, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpyAtoA, 3020)                               \
    BOTH_SYNC_V2(H, cuMemcpy2D, 3020)                                 \
    BOTH_SYNC_V2(H, cuMemcpy2DUnaligned, 3020)                        \
    BOTH_SYNC_V2(H, cuMemcpy3D, 3020)                                 \
    H(cuStreamBeginCapture_v2, cuStreamBeginCapture, 0, 10010)        \
    H(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 1, 10010)   \
    BOTH(H, cuStreamBeginCaptureToGraph, 12030)                       \
    BOTH(H, cuStreamEndCapture, 10000)                                \
    BOTH(H, cuStreamSynchronize, 2000)                                \
    BOTH(H, cuStreamQuery, 2000)                                      \
    BOTH(H, cuStreamWaitEvent, 3020)                                  \
    BOTH(H, cuEventRecord, 2000)                                      \
    BOTH(H, cuEventRecordWithFlags, 11010)                            \
    H(cuEventQuery, cuEventQuery, 0, 2000)                            \
    H(cuEventSynchronize, cuEventSynchronize, 0, 2000)                \
    H(cuEventDestroy_v2, cuEventDestroy, 0, 4000)                     \
    H(cuStreamDestroy_v2, cuStreamDestroy, 0, 4000)                   \
    H(cuCtxSynchronize, cuCtxSynchronize, 0, 2000)                    \
    H(cuCtxSynchronize_v2, cuCtxSynchronize, 0, 13000)                \
    H(cuCtxDestroy_v2, cuCtxDestroy, 0, 4000)                         \
    H(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 0, 11000)  \
    H(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 0, 11000) \
    H(cuModuleGetFunction, cuModuleGetFunction, 0, 2000)              \
    H(cuLibraryGetKernel, cuLibraryGetKernel, 0, 12000)               \
    H(cuKernelGetFunction, cuKernelGetFunction, 0, 12000)             \
    H(cuModuleUnload, cuModuleUnload, 0, 2000)                        \
    H(cuLibraryUnload, cuLibraryUnload, 0, 12000)                     \
    H(cuGraphInstantiate, cuGraphInstantiate, 0, 10000)               \
    H(cuGraphInstantiate_v2, cuGraphInstantiate, 0, 11000)            \
    H(cuGraphInstantiateWithFlags, cuGraphInstantiate, 0, 12000)      \
    BOTH(H, cuGraphInstantiateWithParams, 12000)                      \
    H(cuGraphExecUpdate, cuGraphExecUpdate, 0, 10020)                 \
    H(cuGraphExecUpdate_v2, cuGraphExecUpdate, 0, 12000)              \
    H(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 0, 10010) \
    H(cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams, 0, 12000) \
    H(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 0, 10020) \
    H(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 0, 10020) \
    H(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 0, 12020)   \
    H(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 0, 11060)         \
    H(cuGraphExecDestroy, cuGraphExecDestroy, 0, 10000)               \
    H(cuMemAlloc_v2, cuMemAlloc, 0, 3020)                             \
    H(cuMemAllocPitch_v2, cuMemAllocPitch, 0, 3020)                   \
    H(cuMemAllocManaged, cuMemAllocManaged, 0, 6000)                  \
    BOTH(H, cuMemAllocAsync, 11020)                                   \
    BOTH(H, cuMemAllocFromPoolAsync, 11020)                           \
    H(cuMemPoolCreate, cuMemPoolCreate, 0, 11020)                     \
    H(cuMemPoolDestroy, cuMemPoolDestroy, 0, 11020)                   \
    H(cuMemPoolTrimTo, cuMemPoolTrimTo, 0, 11020)                     \
    H(cuMemFree_v2, cuMemFree, 0, 3020)                               \
    BOTH(H, cuMemFreeAsync, 11020)                                    \
    H(cuMemCreate, cuMemCreate, 0, 10020)                             \
    H(cuMemRelease, cuMemRelease, 0, 10020)                           \
    H(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 0, 11000) \
    H(cuMemMap, cuMemMap, 0, 10020)                                   \
    H(cuMemUnmap, cuMemUnmap, 0, 10020)                               \
    H(cuArrayCreate_v2, cuArrayCreate, 0, 3020)                       \
    H(cuArray3DCreate_v2, cuArray3DCreate, 0, 3020)                   \
    H(cuArrayDestroy, cuArrayDestroy, 0, 2000)                        \
    H(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 0, 5000)        \
    H(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 0, 5000)      \
    H(cuMemGetInfo_v2, cuMemGetInfo, 0, 3020)                         \
    H(cuDeviceTotalMem_v2, cuDeviceTotalMem, 0, 3020)                 \
    H(cuGetProcAddress, cuGetProcAddress, 0, 11030)                   \
    H(cuGetProcAddress_v2, cuGetProcAddress, 0, 12000)

enum hook_id {
#define H(symbol, base, ptsz, since) HOOK_##symbol,
    HOOKS(H)
#undef H
        HOOK_COUNT
};

struct hook {
    const char *symbol, *base;
    int ptsz, since;
    void *wrapper;
    _Atomic(void *) real;   /* what the program would have called: maybe another library's hook */
    _Atomic(void *) direct; /* the driver's own */
};
extern struct hook gate_hooks[HOOK_COUNT];

/* Set while this thread is inside one of the gate's wrappers: whatever the driver, or another
 * library's hook, calls from there goes straight through. */
extern _Thread_local int gate_inside;

void *hook_resolve(enum hook_id id);
static inline void *hook_real(enum hook_id id)
{
    void *p = unlikely(gate_inside)
                  ? NULL
                  : atomic_load_explicit(&gate_hooks[id].real, memory_order_relaxed);
    return likely(p != NULL) ? p : hook_resolve(id);
}
#define REAL(name) ((__typeof__(&name))hook_real(HOOK_##name))

/* Call the real function with hooks of this thread switched off. `result` is set. */
#define THROUGH(name, ...)                       \
    do {                                         \
        __typeof__(&name) call_ = REAL(name);    \
        gate_inside++;                           \
        result = call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND; \
        gate_inside--;                           \
    } while (0)

#endif
