/* The stand-in's memory: addresses that nothing lies at, and books to hold against the gate's. */
#include "standin.h"

#define API __attribute__((visibility("default")))
#define BLOCKS 65536

struct block { unsigned long long at, bytes; unsigned uses; };
static struct block blocks[BLOCKS];
static unsigned long long used, most, next = 0x700000000000ull;
static unsigned fail;

static unsigned long long total(void)
{
    const char *text = getenv("STANDIN_MEMORY");
    return text ? strtoull(text, NULL, 10) : 80ull << 30;
}

/* With the lock taken: memory that a pool takes or gives back. */
bool standin_occupy(unsigned long long bytes)
{
    if (used + bytes > total())
        return false;
    used += bytes;
    most = used > most ? used : most;
    return true;
}
void standin_vacate(unsigned long long bytes) { used -= bytes; }

static CUresult take(unsigned long long *at, unsigned long long bytes)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    static bool asked;
    if (!asked) {
        const char *text = getenv("STANDIN_FAIL_ALLOC"); /* every so many fail */
        fail = text ? (unsigned)atoi(text) : 0;
        asked = true;
    }
    static unsigned calls;
    bool refuse = fail && ++calls % fail == 0;
    for (int i = 0; i < BLOCKS && !refuse && used + bytes <= total(); i++)
        if (!blocks[i].uses) {
            /* Addresses are used again at once, as a driver may. */
            if (!blocks[i].at) {
                blocks[i].at = next;
                next += 1ull << 40;
            }
            blocks[i].bytes = bytes;
            blocks[i].uses = 1;
            *at = blocks[i].at;
            used += bytes;
            most = used > most ? used : most;
            result = 0;
            break;
        }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static CUresult change(unsigned long long at, int by)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < BLOCKS && blocks[i].at; i++)
        if (blocks[i].at == at && blocks[i].uses) {
            blocks[i].uses += (unsigned)by;
            if (!blocks[i].uses)
                used -= blocks[i].bytes;
            result = 0;
            break;
        }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { return take(p, n); }
API CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned f) { (void)f; return take(p, n); }
API CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned e)
{
    (void)e;
    *pitch = (w + 511) / 512 * 512;
    return take(p, *pitch * h);
}
API CUresult cuMemFree_v2(CUdeviceptr p)
{
    return standin_pool_free(p) ? change(p, -1) : 0;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *w,
                         unsigned long long f)
{
    (void)w, (void)f;
    return take(h, n);
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h) { return change(h, -1); }
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *at)
{
    *h = (CUmemGenericAllocationHandle)(uintptr_t)at - 4096; /* mapped 4096 above */
    return change(*h, 1);
}
API CUresult cuMemMap(CUdeviceptr p, size_t n, size_t o, CUmemGenericAllocationHandle h,
                      unsigned long long f)
{
    (void)p, (void)n, (void)o, (void)f;
    return change(h, 1);
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t n)
{
    (void)n;
    return change(p - 4096, -1);
}
API CUresult cuArrayCreate_v2(CUarray *a, const CUDA_ARRAY_DESCRIPTOR *d)
{
    return take((unsigned long long *)a, d->Width * (d->Height ? d->Height : 1) * d->NumChannels);
}
API CUresult cuArray3DCreate_v2(CUarray *a, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return take((unsigned long long *)a, d->Width * (d->Height ? d->Height : 1) * d->NumChannels);
}
API CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                    unsigned levels)
{
    (void)levels;
    return cuArray3DCreate_v2((CUarray *)a, d);
}
API CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) { return change((uintptr_t)a, -1); }
API CUresult cuArrayDestroy(CUarray a) { return change((uintptr_t)a, -1); }
API CUresult cuMemGetInfo_v2(size_t *f, size_t *t)
{
    *f = total() - used;
    *t = total();
    return standin_check();
}
API CUresult cuDeviceTotalMem_v2(size_t *t, int device)
{
    (void)device;
    *t = total();
    return standin_check();
}
API void standin_books(unsigned long long *now, unsigned long long *peak)
{
    *now = used;
    *peak = most;
}
