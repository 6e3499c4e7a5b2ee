/* What this process holds on its GPUs: a table by address or handle, under one short lock. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static struct spin lock;
static struct holding *table;
static size_t room, used; /* used counts removed entries, which keep probes going */

#define REMOVED 0xff

static size_t start_of(enum holding_kind kind, uint64_t key)
{
    uint64_t h = (key ^ (uint64_t)kind << 56) * 0x9e3779b97f4a7c15ull;
    return (size_t)(h >> 20) & (room - 1);
}

static void put(struct holding holding)
{
    size_t i = start_of(holding.kind, holding.key);
    while (table[i].kind != HOLD_NONE)
        i = (i + 1) & (room - 1);
    table[i] = holding;
    used++;
}

static bool grow(void)
{
    struct holding *old = table;
    size_t before = room, live = 0;
    for (size_t i = 0; i < before; i++)
        live += old[i].kind != HOLD_NONE && old[i].kind != REMOVED;
    size_t want = 1024;
    while (want < live * 4)
        want *= 2;
    struct holding *fresh = calloc(want, sizeof *fresh);
    if (!fresh)
        return used + 1 < room;
    table = fresh;
    room = want;
    used = 0;
    for (size_t i = 0; i < before; i++)
        if (old[i].kind != HOLD_NONE && old[i].kind != REMOVED)
            put(old[i]);
    free(old);
    return true;
}

static struct holding *find(enum holding_kind kind, uint64_t key)
{
    if (!room)
        return NULL;
    for (size_t i = start_of(kind, key); table[i].kind != HOLD_NONE; i = (i + 1) & (room - 1))
        if (table[i].kind == kind && table[i].key == key)
            return &table[i];
    return NULL;
}

bool holding_put(struct holding holding)
{
    spin_take(&lock);
    bool fits = used * 2 < room || grow();
    if (fits)
        put(holding);
    spin_give(&lock);
    return fits;
}

bool holding_take(enum holding_kind kind, uint64_t key, struct holding *was)
{
    spin_take(&lock);
    struct holding *found = find(kind, key);
    if (found) {
        *was = *found;
        found->kind = REMOVED;
    }
    spin_give(&lock);
    return found != NULL;
}

bool holding_use(uint64_t handle, int change, struct holding *was)
{
    bool gone = false;
    spin_take(&lock);
    struct holding *found = find(HOLD_HANDLE, handle);
    if (found) {
        found->uses += (uint32_t)change;
        if (!found->uses) {
            *was = *found;
            found->kind = REMOVED;
            gone = true;
        }
    }
    spin_give(&lock);
    return gone;
}

bool holding_take_map(uint64_t from, uint64_t bytes, struct holding *was)
{
    bool any = false;
    spin_take(&lock);
    struct holding *found = find(HOLD_MAP, from); /* mostly one map is unmapped as a whole */
    for (size_t i = 0; !found && i < room; i++)
        if (table[i].kind == HOLD_MAP && table[i].key - from < bytes)
            found = &table[i];
    if (found) {
        *was = *found;
        found->kind = REMOVED;
        any = true;
    }
    spin_give(&lock);
    return any;
}

/* A child has no GPU memory of its parent's. */
void holdings_after_fork(void)
{
    lock = (struct spin){0};
    for (size_t i = 0; i < room; i++)
        table[i].kind = HOLD_NONE;
    used = 0;
}
