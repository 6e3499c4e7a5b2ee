/* The driver as the gate itself calls it: functions looked up in libcuda, never hooked ones. */
#ifndef TREADLE_DRIVER_H
#define TREADLE_DRIVER_H

#include "cuda_min.h"
#include "gate.h"

#define DRIVER_CALLS(D)                                                  \
    D(cuCtxGetCurrent, (CUcontext *))                                    \
    D(cuCtxSetCurrent, (CUcontext))                                      \
    D(cuCtxGetDevice, (CUdevice *))                                      \
    D(cuDeviceGetCount, (int *))                                         \
    D(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                          \
    D(cuEventCreate, (CUevent *, unsigned))                              \
    D(cuEventRecord, (CUevent, CUstream))                                \
    D(cuEventRecord_ptsz, (CUevent, CUstream))                           \
    D(cuEventQuery, (CUevent))                                           \
    D(cuEventElapsedTime, (float *, CUevent, CUevent))                   \
    D(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                  \
    D(cuStreamWaitEvent_ptsz, (CUstream, CUevent, unsigned))             \
    D(cuStreamIsCapturing, (CUstream, int *))                            \
    D(cuStreamIsCapturing_ptsz, (CUstream, int *))                       \
    D(cuThreadExchangeStreamCaptureMode, (int *))

struct driver {
#define D(name, args) CUresult(*name) args;
    DRIVER_CALLS(D)
#undef D
};

/* NULL until libcuda is loaded. */
const struct driver *driver(void);
void *driver_symbol(const char *name); /* in libcuda itself */
int driver_ordinal(void);              /* of the current context; -1: none */
int driver_gpus(void);
void driver_uuid(int ordinal, char *text, size_t size);
void driver_joined(struct seat *seat); /* called once for each seat taken */

/* The real dlsym of the C library, and the one that comes after this library. */
typedef void *(*dlsym_call)(void *, const char *);
extern dlsym_call dlsym_libc, dlsym_next;
void find_dlsym(void);

/* Calls of the gate's own must not disturb a capture: they run in relaxed mode. */
int quiet_begin(const struct driver *d);
void quiet_end(const struct driver *d, int before);

#endif
