/* The hooks of allocations, and of what programs read about memory. */
#include "launch.h"
#include "memory.h"

/* Reserve, call, and give back where the driver refuses. `key` is known after the call. */
#define ALLOCATE(name, kind_, size, gpu_, key_, ...)                                        \
    __typeof__(&name) real = REAL(name);                                                    \
    if (!real)                                                                              \
        return CUDA_ERROR_NOT_FOUND;                                                        \
    if (gate_inside)                                                                        \
        return real(__VA_ARGS__);                                                           \
    int gpu = gpu_;                                                                         \
    uint64_t bytes = memory_charge(size);                                                   \
    if (!memory_reserve(gpu, bytes))                                                        \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
    gate_inside = 1;                                                                        \
    CUresult result = real(__VA_ARGS__);                                                  \
    uint64_t end = result == CUDA_ERROR_OUT_OF_MEMORY ? clock_ns() + gate_me.memory_wait_ns : 0; \
    while (end && clock_ns() < end && result == CUDA_ERROR_OUT_OF_MEMORY) {                 \
        sleep_until(clock_ns() + 5 * MS);                                                   \
        result = real(__VA_ARGS__);                                                         \
    }                                                                                       \
    gate_inside = 0;                                                                        \
    if (result || !holding_put((struct holding){.kind = kind_,                              \
                                                .key = key_,                                \
                                                .bytes = bytes,                             \
                                                .uses = 1,                                  \
                                                .gpu = (uint8_t)gpu}))                      \
        memory_return(gpu, bytes);                                                          \
    return result

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    ALLOCATE(cuMemAlloc_v2, HOLD_MEMORY, n, memory_gpu(), *p, p, n);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags)
{
    ALLOCATE(cuMemAllocManaged, HOLD_MEMORY, n, memory_gpu(), *p, p, n, flags);
}

/* The driver widens rows to its own pitch, at most the next 512 bytes. */
EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height,
                                   unsigned element)
{
    size_t row = (width + 511) / 512 * 512;
    if (height && row > SIZE_MAX / height)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ALLOCATE(cuMemAllocPitch_v2, HOLD_MEMORY, row * height, memory_gpu(), *p, p, pitch, width,
             height, element);
}

static void give_back(const struct holding *was)
{
    if (was->pool)
        pool_freed(was->pool - 1, was->bytes);
    else
        memory_return(was->gpu, was->bytes);
}

/* Taken from the table before the driver can hand the address to another thread. */
#define RELEASE(name, kind_, key_, ...)                      \
    {                                                        \
        CUresult result;                                     \
        struct holding was;                                  \
        bool known = holding_take(kind_, key_, &was);        \
        THROUGH(name, __VA_ARGS__);                          \
        if (known && result)                                 \
            holding_put(was);                                \
        else if (known)                                      \
            give_back(&was);                                 \
        return result;                                       \
    }
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) RELEASE(cuMemFree_v2, HOLD_MEMORY, p, p)

/* In a capture a free becomes part of the graph, and frees nothing yet. */
#define FREE_ASYNC_HOOK(name, per_thread)                    \
    EXPORT CUresult name(CUdeviceptr p, CUstream s)          \
    {                                                        \
        if (capturing(s, per_thread)) {                      \
            CUresult result;                                 \
            THROUGH(name, p, s);                             \
            return result;                                   \
        }                                                    \
        RELEASE(name, HOLD_MEMORY, p, p, s)                  \
    }
FREE_ASYNC_HOOK(cuMemFreeAsync, false)
FREE_ASYNC_HOOK(cuMemFreeAsync_ptsz, true)

/* ---- virtual memory: physical memory lives while a reference or a map of it does ---- */

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t n,
                            const CUmemAllocationProp *where, unsigned long long flags)
{
    if (!where || where->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        where->location.id < 0 || where->location.id >= MAX_GPUS) {
        CUresult result;
        THROUGH(cuMemCreate, handle, n, where, flags);
        return result;
    }
    ALLOCATE(cuMemCreate, HOLD_HANDLE, n, where->location.id, *handle, handle, n, where, flags);
}

static void unuse(uint64_t handle)
{
    struct holding was;
    if (holding_use(handle, -1, &was))
        memory_return(was.gpu, was.bytes);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;
    THROUGH(cuMemRelease, handle);
    if (!result && !gate_inside)
        unuse(handle);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at)
{
    CUresult result;
    struct holding was;
    THROUGH(cuMemRetainAllocationHandle, handle, at);
    if (!result && !gate_inside)
        holding_use(*handle, 1, &was);
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result;
    struct holding was;
    THROUGH(cuMemMap, p, n, offset, handle, flags);
    if (!result && !gate_inside &&
        holding_put((struct holding){.kind = HOLD_MAP, .key = p, .handle = handle}))
        holding_use(handle, 1, &was);
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t n)
{
    CUresult result;
    struct holding was;
    THROUGH(cuMemUnmap, p, n);
    while (!result && !gate_inside && holding_take_map(p, n, &was))
        unuse(was.handle);
    return result;
}

/* ---- arrays ---- */

static size_t array_bytes(size_t width, size_t height, size_t depth, int format, unsigned channels)
{
    size_t element = 1; /* CU_AD_FORMAT_*: 8, 16 and 32 bits, signed or not, half and float */
    if (format == 0x02 || format == 0x09 || format == 0x10)
        element = 2;
    else if (format == 0x03 || format == 0x0a || format == 0x20)
        element = 4;
    return width * (height ? height : 1) * (depth ? depth : 1) * element * channels;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    size_t n = d ? array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels) : 0;
    ALLOCATE(cuArrayCreate_v2, HOLD_ARRAY, n, memory_gpu(), (uintptr_t)*array, array, d);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    size_t n = d ? array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels) : 0;
    ALLOCATE(cuArray3DCreate_v2, HOLD_ARRAY, n, memory_gpu(), (uintptr_t)*array, array, d);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
    RELEASE(cuArrayDestroy, HOLD_ARRAY, (uintptr_t)array, array)

/* Each level has half of the one before in every direction. */
static size_t levels_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        size_t width = d->Width >> i, height = d->Height >> i, depth = d->Depth >> i;
        bytes += array_bytes(width ? width : 1, height, depth, d->Format, d->NumChannels);
    }
    return bytes;
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                       unsigned levels)
{
    size_t n = d ? levels_bytes(d, levels) : 0;
    ALLOCATE(cuMipmappedArrayCreate, HOLD_ARRAY, n, memory_gpu(), (uintptr_t)*array, array, d,
             levels);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
    RELEASE(cuMipmappedArrayDestroy, HOLD_ARRAY, (uintptr_t)array, array)

/* ---- what programs read ---- */

EXPORT CUresult cuMemGetInfo_v2(size_t *free_, size_t *total)
{
    CUresult result;
    THROUGH(cuMemGetInfo_v2, free_, total);
    if (!result && free_ && total && !gate_inside) {
        uint64_t f = *free_, t = *total;
        memory_see(memory_gpu(), &f, &t);
        *free_ = f;
        *total = t;
    }
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *total, CUdevice device)
{
    CUresult result;
    THROUGH(cuDeviceTotalMem_v2, total, device);
    if (!result && total && !gate_inside && device >= 0 && device < MAX_GPUS) {
        uint64_t t = *total;
        memory_see(device, NULL, &t);
        *total = t;
    }
    return result;
}
