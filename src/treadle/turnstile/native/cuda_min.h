/* The few declarations of the CUDA driver API that the gate needs, written from its public
 * documentation: the library builds without CUDA. */
#ifndef TREADLE_CUDA_MIN_H
#define TREADLE_CUDA_MIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct { char bytes[16]; } CUuuid;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
};

enum {
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
};
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

/* NULL means one of the two default streams, which have handles of their own. */
static inline CUstream stream_meant(CUstream stream, bool per_thread)
{
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* 72 bytes: an identifier, padding to 8, and a value of 64 whose first word is all that is read. */
typedef struct {
    int id;
    char pad[4];
    union { char bytes[64]; int word; } value;
} CUlaunchAttribute;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

/* Where memory is made; what follows is not read. */
typedef struct {
    int type, handle_types;
    struct { int type, id; } location;
} CUmemAllocationProp;
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
typedef CUmemAllocationProp CUmemPoolProps; /* they begin alike */
enum {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
};

typedef struct { size_t Width, Height; int Format; unsigned NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct {
    size_t Width, Height, Depth;
    int Format;
    unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

/* Copies of rectangles and boxes. Of either side only the kind of memory is read. */
enum { CU_MEMORYTYPE_HOST = 1 };
typedef struct {
    size_t x, y;
    int memory;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
} CUrectangle;
typedef struct { CUrectangle src, dst; size_t WidthInBytes, Height; } CUDA_MEMCPY2D;

/* The context is that of a copy between GPUs, and reserved in others. */
typedef struct {
    size_t x, y, z, level;
    int memory;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    CUcontext context;
    size_t pitch, height;
} CUbox;
typedef struct { CUbox src, dst; size_t WidthInBytes, Height, Depth; } CUDA_MEMCPY3D;
typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER;

/* One of a batch: pointer or array with its place, in four words each. */
typedef struct { int type; uint64_t place[4]; } CUmemcpy3DOperand;
typedef struct {
    CUmemcpy3DOperand src, dst;
    struct { size_t width, height, depth; } extent;
    int order;
    unsigned flags;
} CUDA_MEMCPY3D_BATCH_OP;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;

#endif
