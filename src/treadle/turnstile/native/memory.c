/* The memory limit: bytes are reserved before the driver is asked, and given back where it
 * refuses, so that no moment is over the limit however many threads allocate. pools.c says where
 * that is not so.
 *
 * TREADLE_MEMORY_BYTES is the limit, which includes what the context and its libraries take:
 * measured, or TREADLE_CONTEXT_BYTES. Beyond it, TREADLE_MEMORY_WAIT_MS is waited for room, then
 * it is CUDA's error. */
#include "memory.h"

#define GRANULE (2ull << 20) /* the driver takes larger allocations in pieces of this size */
#define PIECE 512ull

/* What an allocation takes from the GPU. */
uint64_t memory_charge(uint64_t bytes)
{
    uint64_t unit = bytes >= GRANULE / 2 ? GRANULE : PIECE;
    return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

struct account { _Atomic uint64_t used, context, failures; _Atomic bool begun; };
static struct account accounts[MAX_GPUS];

/* The current context's GPU. */
int memory_gpu(void)
{
    int gpu = driver_ordinal();
    return gpu >= 0 && gpu < MAX_GPUS ? gpu : 0;
}

/* Show the account on its GPU's page, whichever GPU the calling thread is at. Whoever writes last
 * writes what is true. */
static void show(int gpu)
{
    struct account *a = &accounts[gpu];
    struct seat *seat = gpu == memory_gpu() ? seat_current() : seats_ordinal(gpu);
    if (!seat || !seat->record || load(&seat->broken))
        return;
    uint64_t used;
    do {
        used = atomic_load(&a->used);
        atomic_store(&seat->record->memory_used_bytes, used);
    } while (atomic_load(&a->used) != used);
    store(&seat->record->memory_failures, load(&a->failures));
}

static struct account *account(int gpu)
{
    struct account *a = &accounts[gpu];
    bool begun = false;
    if (unlikely(!load(&a->begun)) && atomic_compare_exchange_strong(&a->begun, &begun, true)) {
        atomic_fetch_add(&a->context, gate_me.context_bytes);
        atomic_fetch_add(&a->used, gate_me.context_bytes);
    }
    return a;
}

static bool try(struct account *a, uint64_t bytes)
{
    uint64_t limit = gate_me.memory_limit_bytes, used = atomic_load(&a->used);
    do {
        if (limit && (bytes > limit || used > limit - bytes))
            return false;
    } while (!atomic_compare_exchange_weak(&a->used, &used, used + bytes));
    return true;
}

bool memory_try(int gpu, uint64_t bytes)
{
    overhead_look(gpu);
    bool done = try(account(gpu), bytes);
    if (done)
        show(gpu);
    return done;
}

/* Where it does not fit, what this process's own pools only keep goes first: their frees may have
 * been carried out since they were last asked, and if not, they can be told to let go. */
static bool make_room(int gpu, uint64_t bytes)
{
    struct account *a = account(gpu);
    return try(a, bytes) || (pools_release(gpu, false) && try(a, bytes)) ||
           (pools_release(gpu, true) && try(a, bytes));
}

bool memory_reserve(int gpu, uint64_t bytes)
{
    overhead_look(gpu);
    bool done = make_room(gpu, bytes);
    uint64_t end = done ? 0 : clock_ns() + gate_me.memory_wait_ns;
    while (!done && bytes <= gate_me.memory_limit_bytes && clock_ns() < end) {
        sleep_until(clock_ns() + 1 * MS);
        done = make_room(gpu, bytes);
    }
    if (!done)
        atomic_fetch_add(&account(gpu)->failures, 1);
    show(gpu);
    return done;
}

void memory_return(int gpu, uint64_t bytes)
{
    atomic_fetch_sub(&accounts[gpu].used, bytes);
    show(gpu);
}

void memory_change(int gpu, uint64_t by)
{
    if (!by)
        return;
    atomic_fetch_add(&account(gpu)->used, by);
    show(gpu);
}

uint64_t memory_allocated(int gpu)
{
    struct account *a = account(gpu);
    return atomic_load(&a->used) - atomic_load(&a->context);
}

/* One thread at a time. */
void memory_context(int gpu, uint64_t bytes)
{
    struct account *a = account(gpu);
    uint64_t before = atomic_exchange(&a->context, bytes);
    memory_change(gpu, bytes - before);
}

bool memory_over(int gpu)
{
    uint64_t limit = gate_me.memory_limit_bytes;
    return limit && atomic_load(&account(gpu)->used) > limit;
}

/* A seat taken: the context is there, or about to be. */
void memory_joined(struct seat *seat)
{
    struct account *a = account(memory_gpu());
    store(&seat->record->memory_limit_bytes, gate_me.memory_limit_bytes);
    store(&seat->record->memory_used_bytes, atomic_load(&a->used));
}

void memory_after_fork(void)
{
    holdings_after_fork();
    pools_after_fork();
    overhead_after_fork();
    for (int i = 0; i < MAX_GPUS; i++) {
        store(&accounts[i].used, 0);
        store(&accounts[i].context, 0);
        store(&accounts[i].begun, false);
    }
}

/* What a program should see of its GPU. */
void memory_see(int gpu, uint64_t *free_, uint64_t *total)
{
    uint64_t limit = gate_me.memory_limit_bytes;
    if (!limit)
        return;
    pools_release(gpu, false);
    uint64_t used = atomic_load(&account(gpu)->used);
    uint64_t left = used < limit ? limit - used : 0;
    if (*total > limit)
        *total = limit;
    if (free_ && *free_ > left)
        *free_ = left;
}
