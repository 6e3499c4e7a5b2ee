/* The memory limit: an exact account of what this process has allocated on each GPU. */
#ifndef TREADLE_MEMORY_H
#define TREADLE_MEMORY_H

#include "hooks.h"

/* accounts.c: what is allocated, by address or handle */
enum holding_kind { HOLD_NONE, HOLD_MEMORY, HOLD_HANDLE, HOLD_MAP, HOLD_ARRAY };

struct holding {
    uint64_t key;
    uint64_t bytes;
    uint64_t handle;    /* of a map: what it maps */
    uint32_t uses;      /* of a handle: references and maps */
    uint8_t kind, gpu;
    uint8_t pool;       /* 1 + the number of the pool it comes from; 0: of none */
};

bool holding_put(struct holding holding);
bool holding_take(enum holding_kind kind, uint64_t key, struct holding *was);
/* Change the uses of a handle; at none it is removed, returned in `was`, and true. */
bool holding_use(uint64_t handle, int change, struct holding *was);
/* Remove one map inside a range, if there is one. */
bool holding_take_map(uint64_t from, uint64_t bytes, struct holding *was);
void holdings_after_fork(void);

/* memory.c: the limit. `gpu` is a device ordinal. */
int memory_gpu(void);
bool memory_reserve(int gpu, uint64_t bytes);
bool memory_try(int gpu, uint64_t bytes); /* at once, or not at all */
void memory_return(int gpu, uint64_t bytes);
void memory_change(int gpu, uint64_t by); /* by a difference: below 0 wraps */
bool memory_over(int gpu);                /* more is used than the limit allows */
uint64_t memory_charge(uint64_t bytes);
uint64_t memory_allocated(int gpu); /* without what the context is charged */
void memory_context(int gpu, uint64_t bytes); /* what it takes, measured */
void memory_joined(struct seat *seat);
void memory_after_fork(void);
void memory_see(int gpu, uint64_t *free_, uint64_t *total);

/* overhead.c: measure what the context takes, if it is time to. */
void overhead_look(int gpu);
void overhead_after_fork(void);

/* pools.c: stream-ordered pools, known by number. Below 0: one that is not charged. */
#define POOLS_MOST 64
struct claim { int pool, gpu; uint64_t bytes; };
int pool_of(CUmemoryPool handle); /* NULL: the current one of this context's GPU */
/* Where this is true, one of the three that follow must be called. */
bool pool_claim(int number, uint64_t bytes, bool strict, struct claim *claim);
bool pool_allocated(const struct claim *claim, uint64_t bytes); /* false: undo it, and say so */
void pool_refused(const struct claim *claim);
void pool_undone(const struct claim *claim, uint64_t bytes);
void pool_freed(int number, uint64_t bytes);
void pool_created(CUmemoryPool handle, int gpu); /* below 0: not on a GPU */
void pool_destroyed(CUmemoryPool handle);
void pools_settle(void);
bool pools_release(int gpu, bool trim); /* true if the account became smaller */
void pools_after_fork(void);

/* What a pool hands out: in pieces of 512 bytes. */
static inline uint64_t pool_charge(uint64_t bytes)
{
    return bytes > UINT64_MAX - 511 ? bytes : (bytes + 511) / 512 * 512;
}

/* After the program has waited for its GPU: what was freed may have left the pools. */
extern _Atomic bool pools_due;
static inline void pools_waited(void)
{
    if (unlikely(load(&pools_due)))
        pools_settle();
}

/* nvml.c */
void *nvml_hook(const char *name, void *real);

#endif
