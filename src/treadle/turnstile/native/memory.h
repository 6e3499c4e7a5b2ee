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
void memory_return(int gpu, uint64_t bytes);
uint64_t memory_charge(uint64_t bytes);
void memory_joined(struct seat *seat);
void memory_after_fork(void);
void memory_see(int gpu, uint64_t *free_, uint64_t *total);

/* nvml.c */
void *nvml_hook(const char *name, void *real);

#endif
