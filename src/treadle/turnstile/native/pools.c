/* Stream-ordered pools. What a pool keeps after a free still occupies the GPU, so a pool is
 * charged with what the driver has reserved for it: asked after each allocation, when the program
 * has waited for its frees, and before anything is refused.
 *
 * An allocation first claims the most that its pool may grow by. Where only that does not fit, but
 * the pool keeps enough, it may try without: if the driver took more memory after all, it is given
 * back at once, the pools are trimmed, and the allocation has to claim its growth like others. */
#include <pthread.h>

#include "launch.h"
#include "memory.h"

#define STEP (32ull << 20) /* a pool grows by multiples of this: driver 580 on an H200 */

struct pool {
    CUmemoryPool handle;
    int gpu;          /* NOWHERE: not on a GPU, so not charged */
    bool taken, gone; /* gone: destroyed, while some of what it gave lives on */
    uint64_t charged, live;
};
#define NOWHERE (-1)

static struct pool pools[POOLS_MOST];
static unsigned used; /* entries that were ever taken */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, loading = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool any_pools;
_Atomic bool pools_due;

#define POOL_CALLS(D)                                        \
    D(cuMemPoolGetAttribute, (CUmemoryPool, int, void *))    \
    D(cuMemPoolTrimTo, (CUmemoryPool, size_t))               \
    D(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))        \
    D(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) \
    D(cuCtxSynchronize, (void))

struct calls {
#define D(name, args) CUresult(*name##_) args;
    POOL_CALLS(D)
#undef D
};

/* NULL where the driver is older than pools. */
static const struct calls *calls(void)
{
    static struct calls table;
    static _Atomic int state; /* 1: there, -1: not */
    int known = atomic_load_explicit(&state, memory_order_acquire);
    if (unlikely(!known && driver())) {
        pthread_mutex_lock(&loading);
        known = load(&state);
        if (!known) {
            known = 1;
#define D(name, args)                                               \
    table.name##_ = (CUresult(*) args)driver_symbol(#name);         \
    known = table.name##_ ? known : -1;
            POOL_CALLS(D)
#undef D
            atomic_store_explicit(&state, known, memory_order_release);
        }
        pthread_mutex_unlock(&loading);
    }
    return known > 0 ? &table : NULL;
}

static bool ask(const struct pool *p, int what, uint64_t *bytes)
{
    return !p->gone && !calls()->cuMemPoolGetAttribute_(p->handle, what, bytes);
}

/* Charge what the pool takes from its GPU now, in exchange for what was claimed for it. With the
 * lock taken, like all that follows up to pool_of. */
static void settle(struct pool *p, uint64_t claimed)
{
    uint64_t now;
    if (!ask(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now))
        now = p->live; /* an early driver, or a pool that was destroyed */
    memory_change(p->gpu, now - p->charged - claimed);
    p->charged = now;
    if (p->gone && !p->live)
        p->taken = false;
}

static struct pool *known(CUmemoryPool handle)
{
    for (unsigned i = 0; i < used; i++)
        if (pools[i].taken && !pools[i].gone && pools[i].handle == handle)
            return &pools[i];
    return NULL;
}

static struct pool *enter(CUmemoryPool handle, int gpu)
{
    unsigned i = 0;
    while (i < POOLS_MOST && pools[i].taken)
        i++;
    if (i == POOLS_MOST) {
        gate_say_once(9, "more than %d memory pools: the others are not counted", POOLS_MOST);
        return NULL;
    }
    used = i < used ? used : i + 1;
    pools[i] = (struct pool){.handle = handle, .gpu = gpu, .taken = true};
    store(&any_pools, true);
    return &pools[i];
}

/* Which GPU a pool that the program did not create lies on. */
static int default_of(CUmemoryPool handle)
{
    CUmemoryPool one;
    for (int gpu = 0; gpu < driver_gpus() && gpu < MAX_GPUS; gpu++)
        if (!calls()->cuDeviceGetDefaultMemPool_(&one, gpu) && one == handle)
            return gpu;
    return memory_gpu();
}

int pool_of(CUmemoryPool handle)
{
    const struct calls *c = calls();
    if (!c || (!handle && c->cuDeviceGetMemPool_(&handle, memory_gpu())))
        return -1;
    pthread_mutex_lock(&lock);
    struct pool *p = known(handle);
    if (!p)
        p = enter(handle, default_of(handle));
    int number = p && p->gpu != NOWHERE ? (int)(p - pools) : -1;
    pthread_mutex_unlock(&lock);
    return number;
}

/* The lock is kept from here until the outcome is known: what a pool keeps is then neither
 * promised twice nor taken away meanwhile. */
bool pool_claim(int number, uint64_t bytes, bool strict, struct claim *claim)
{
    struct pool *p = &pools[number];
    uint64_t growth = bytes > UINT64_MAX - STEP ? bytes : (bytes + STEP - 1) / STEP * STEP;
    uint64_t reserved, live;
    pthread_mutex_lock(&lock);
    *claim = (struct claim){number, p->gpu, 0};
    if (!gate_me.memory_limit_bytes)
        return true;
    bool told = ask(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
                ask(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &live);
    claim->bytes = told ? growth : memory_charge(bytes);
    if (memory_try(claim->gpu, claim->bytes))
        return true;
    if (!strict && told && reserved - live >= bytes) {
        claim->bytes = 0;
        return true;
    }
    pthread_mutex_unlock(&lock);
    if (!memory_reserve(claim->gpu, claim->bytes))
        return false;
    pthread_mutex_lock(&lock);
    return true;
}

bool pool_allocated(const struct claim *claim, uint64_t bytes)
{
    struct pool *p = &pools[claim->pool];
    p->live += bytes;
    settle(p, claim->bytes);
    if (!claim->bytes && memory_over(claim->gpu))
        return false;
    pthread_mutex_unlock(&lock);
    return true;
}

void pool_refused(const struct claim *claim)
{
    settle(&pools[claim->pool], claim->bytes);
    pthread_mutex_unlock(&lock);
}

void pool_undone(const struct claim *claim, uint64_t bytes)
{
    struct pool *p = &pools[claim->pool];
    p->live -= bytes;
    int mode = quiet_begin(driver());
    calls()->cuMemPoolTrimTo_(p->handle, 0);
    quiet_end(driver(), mode);
    store(&pools_due, true);
    pool_refused(claim);
}

/* The memory stays with the pool until the stream gets there and the program waits for it. */
void pool_freed(int number, uint64_t bytes)
{
    struct pool *p = &pools[number];
    pthread_mutex_lock(&lock);
    p->live -= bytes < p->live ? bytes : p->live;
    if (p->gone)
        settle(p, 0);
    pthread_mutex_unlock(&lock);
    store(&pools_due, true);
}

void pool_created(CUmemoryPool handle, int gpu)
{
    pthread_mutex_lock(&lock);
    struct pool *p = known(handle);
    if (p)
        p->gpu = gpu;
    else
        enter(handle, gpu);
    pthread_mutex_unlock(&lock);
}

/* Before the driver destroys it: from then on its handle may be another's. */
void pool_destroyed(CUmemoryPool handle)
{
    pthread_mutex_lock(&lock);
    struct pool *p = known(handle);
    if (p) {
        p->gone = true;
        settle(p, 0);
    }
    pthread_mutex_unlock(&lock);
}

/* The pools of one GPU, or of all: trimmed first if so wished. Under the lock, which keeps their
 * handles alive. */
static bool each(int gpu, bool trim)
{
    bool any = false;
    if (likely(!load(&any_pools)))
        return false;
    pthread_mutex_lock(&lock);
    int mode = trim ? quiet_begin(driver()) : -1;
    for (unsigned i = 0; i < used; i++) {
        struct pool *p = &pools[i];
        if (!p->taken || p->gpu == NOWHERE || (gpu >= 0 && p->gpu != gpu))
            continue;
        if (trim && !p->gone)
            calls()->cuMemPoolTrimTo_(p->handle, 0);
        uint64_t before = p->charged;
        settle(p, 0);
        any |= p->charged < before;
    }
    if (trim)
        quiet_end(driver(), mode);
    pthread_mutex_unlock(&lock);
    return any;
}

void pools_settle(void)
{
    store(&pools_due, false);
    each(-1, false);
}

/* A pool lets go only of memory whose frees the program has waited for: so wait, as the driver
 * does itself before it refuses anything. Never while something is captured, which it would end. */
bool pools_release(int gpu, bool trim)
{
    if (trim && !load(&captures_active) && gpu == memory_gpu() &&
        atomic_exchange(&pools_due, false))
        calls()->cuCtxSynchronize_();
    return each(gpu, trim);
}

void pools_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&loading, NULL);
    used = 0;
    for (int i = 0; i < POOLS_MOST; i++)
        pools[i] = (struct pool){0};
    store(&any_pools, false);
    store(&pools_due, false);
}
