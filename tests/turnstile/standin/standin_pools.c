/* The stand-in's stream-ordered pools. They grow by 32 MiB, keep what is freed, and give back what
 * is above their release threshold when the program synchronises. What it has not waited for they
 * may use again, but keep even when they are trimmed. */
#include "standin.h"

#define API __attribute__((visibility("default")))
#define STEP (32ull << 20)
#define POOLS 16
#define PIECES 4096

struct pool { bool taken; int device; unsigned long long reserved, used, pending, threshold; };
struct piece { unsigned long long at, bytes; struct pool *pool; };
static struct pool pools[POOLS]; /* the first of each device are their defaults */
static struct piece pieces[PIECES];
static unsigned long long next_at = 0x100000000000ull, trims;

/* Below 0: in host memory. */
static int device_of(const struct pool *pool)
{
    return pool < pools + GPUS_MOST ? (int)(pool - pools) : pool->device;
}

static unsigned long long up(unsigned long long bytes) { return (bytes + STEP - 1) / STEP * STEP; }

static CUresult allocate(CUdeviceptr *p, size_t n, CUmemoryPool handle)
{
    struct pool *pool = handle ? (struct pool *)handle : &pools[standin_device()];
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    n = (n + 511) / 512 * 512;
    pthread_mutex_lock(&standin_lock);
    const char *text = getenv("STANDIN_FAIL_ALLOC"); /* every so many fail */
    static unsigned calls;
    unsigned fail = text ? (unsigned)atoi(text) : 0;
    bool refuse = fail && ++calls % fail == 0;
    /* Fragmented: what a pool keeps is of no use to it. */
    unsigned long long keeps = getenv("STANDIN_FRAGMENTED") ? 0 : pool->reserved - pool->used;
    unsigned long long grow = n > keeps ? up(n - keeps) : 0;
    for (int i = 0; i < PIECES && !refuse; i++)
        if (!pieces[i].bytes) {
            if (grow && device_of(pool) >= 0 && !standin_occupy(grow))
                break;
            if (!pieces[i].at) {
                pieces[i].at = next_at;
                next_at += 1ull << 33;
            }
            pieces[i].bytes = n;
            pieces[i].pool = pool;
            pool->reserved += grow;
            pool->used += n;
            if (pool->pending > pool->reserved - pool->used)
                pool->pending = pool->reserved - pool->used;
            *p = pieces[i].at;
            result = 0;
            break;
        }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static void shrink(struct pool *pool, unsigned long long keep)
{
    unsigned long long least = up(pool->used + pool->pending);
    keep = keep > least ? keep : least;
    if (keep >= pool->reserved)
        return;
    if (device_of(pool) >= 0)
        standin_vacate(pool->reserved - keep);
    pool->reserved = keep;
}

CUresult standin_pool_free(CUdeviceptr p)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < PIECES && pieces[i].at; i++)
        if (pieces[i].at == p && pieces[i].bytes) {
            struct pool *pool = pieces[i].pool;
            pool->used -= pieces[i].bytes;
            pool->pending += pieces[i].bytes;
            pieces[i].bytes = 0;
            if (!pool->taken && pool >= pools + GPUS_MOST) /* it was destroyed before */
                pool->pending = 0, shrink(pool, 0);
            result = 0;
            break;
        }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

CUresult standin_waited(CUresult result)
{
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < POOLS; i++) {
        pools[i].pending = 0;
        shrink(&pools[i], pools[i].threshold);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

#define ASYNC(name)                                                                              \
    API CUresult name(CUdeviceptr *p, size_t n, CUstream s)                                      \
    {                                                                                            \
        (void)s;                                                                                 \
        return allocate(p, n, NULL);                                                             \
    }
ASYNC(cuMemAllocAsync)
ASYNC(cuMemAllocAsync_ptsz)
#define FROM_POOL(name)                                                                          \
    API CUresult name(CUdeviceptr *p, size_t n, CUmemoryPool q, CUstream s)                      \
    {                                                                                            \
        (void)s;                                                                                 \
        return allocate(p, n, q);                                                                \
    }
FROM_POOL(cuMemAllocFromPoolAsync)
FROM_POOL(cuMemAllocFromPoolAsync_ptsz)
API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { (void)s; return standin_pool_free(p); }
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return cuMemFreeAsync(p, s); }

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, int device)
{
    *pool = (CUmemoryPool)&pools[device];
    return 0;
}
API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, int device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}
API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *how)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&standin_lock);
    for (int i = GPUS_MOST; i < POOLS && result; i++)
        if (!pools[i].taken && !pools[i].used) {
            int at = how->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? how->location.id : -1;
            pools[i] = (struct pool){.taken = true, .device = at};
            *pool = (CUmemoryPool)&pools[i];
            result = 0;
        }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
API CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct pool *pool = (struct pool *)handle;
    pthread_mutex_lock(&standin_lock);
    pool->taken = false;
    pool->pending = 0;
    shrink(pool, 0);
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    pthread_mutex_lock(&standin_lock);
    trims++;
    shrink((struct pool *)handle, keep);
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int what, void *value)
{
    if (what != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    ((struct pool *)handle)->threshold = *(uint64_t *)value;
    return 0;
}
API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int what, void *value)
{
    struct pool *pool = (struct pool *)handle;
    if (getenv("STANDIN_OLD_POOLS") || (what != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
                                        what != CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    *(uint64_t *)value = what == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? pool->used : pool->reserved;
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
API unsigned long long standin_trims(void) { return trims; }
