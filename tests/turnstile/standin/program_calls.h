/* The driver functions that the program under test uses, however it got at them. */
#ifndef PROGRAM_CALLS_H
#define PROGRAM_CALLS_H

#include <stdbool.h>

#include "cuda_min.h"

#define CALLS(C)                                                                              \
    C(cuInit, (unsigned))                                                                     \
    C(cuDevicePrimaryCtxRetain, (CUcontext *, int))                                           \
    C(cuCtxSetCurrent, (CUcontext))                                                           \
    C(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                            \
    C(cuModuleUnload, (CUmodule))                                                             \
    C(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       unsigned, CUstream, void **, void **))                                 \
    C(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))               \
    C(cuLaunchCooperativeKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned,         \
                                  unsigned, unsigned, unsigned, CUstream, void **))           \
    C(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *, unsigned, unsigned))       \
    C(cuGraphLaunch, (CUgraphExec, CUstream))                                                 \
    C(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))              \
    C(cuGraphExecDestroy, (CUgraphExec))                                                      \
    C(cuGraphExecUpdate, (CUgraphExec, CUgraph, CUgraphNode *, int *))                        \
    C(cuGraphDestroy, (CUgraph))                                                              \
    C(cuLaunch, (CUfunction))                                                                 \
    C(cuLaunchGrid, (CUfunction, int, int))                                                   \
    C(cuLaunchGridAsync, (CUfunction, int, int, CUstream))                                    \
    C(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                            \
    C(cuMemcpyHtoDAsync, (CUdeviceptr, const void *, size_t, CUstream))                       \
    C(cuMemcpyDtoHAsync, (void *, CUdeviceptr, size_t, CUstream))                             \
    C(cuMemcpyDtoDAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                        \
    C(cuStreamCreate, (CUstream *, unsigned))                                                 \
    C(cuStreamDestroy, (CUstream))                                                            \
    C(cuStreamQuery, (CUstream))                                                              \
    C(cuStreamSynchronize, (CUstream))                                                        \
    C(cuStreamBeginCapture, (CUstream, int))                                                  \
    C(cuStreamEndCapture, (CUstream, CUgraph *))                                              \
    C(cuCtxSynchronize, (CUcontext))                                                          \
    C(cuEventCreate, (CUevent *, unsigned))                                                   \
    C(cuEventRecord, (CUevent, CUstream))                                                     \
    C(cuEventQuery, (CUevent))                                                                \
    C(cuStreamWaitEvent, (CUstream, CUevent, unsigned))

struct calls {
#define C(name, args) CUresult(*name) args;
    CALLS(C)
#undef C
};
extern struct calls cu;
extern void (*stats)(char *, size_t);
extern unsigned (*graph_nodes)(CUgraph);

int get(const char *way); /* 0, or 1 where there is no driver */
void *lookup(const char *name); /* in the way that was said */

/* program_copies.c. Old: batches have the arguments of CUDA 12. */
void get_copies(bool old);
CUresult copy(const char *name, size_t bytes, CUstream stream); /* -1: there is no such call */

#endif
