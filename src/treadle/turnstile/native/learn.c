/* The length of each launch: a table that many threads read and add to without a lock.
 *
 * Kind of launch: function, grid and block, or a graph as a whole, or a copy of about one size.
 * The same kind behind other launches has an entry of its own: programs go in circles.
 * The clock of work in flight runs on means. Whether a launch fits the budget is decided by the
 * mean plus twice the mean deviation: one grid with many lengths counts as one of its long ones. */
#include <string.h>

#include "learn.h"

#define ENTRIES 8192u
#define PROBES 24u
#define PLACE (1ull << 63) /* in a key: of a place, not a kind */
#define DEFAULT_START (100 * US)
#define DEFAULT_LEAST (10 * US)
#define DEFAULT_MOST (1 * MS)

static struct entry table[ENTRIES];
static _Atomic uint64_t default_ns = DEFAULT_START;
static _Atomic uint64_t epoch = 1; /* part of every key: a new one forgets the old */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

uint64_t learn_key(const void *what, const unsigned shape[6], unsigned kind)
{
    uint64_t h = mix((uint64_t)(uintptr_t)what, load(&epoch) << 8 | kind);
    if (shape) {
        h = mix(h, (uint64_t)shape[0] << 32 | shape[1]);
        h = mix(h, (uint64_t)shape[2] << 32 | shape[3]);
        h = mix(h, (uint64_t)shape[4] << 32 | shape[5]);
    }
    h &= ~PLACE;
    return h ? h : 1;
}

/* The key of a launch of this kind behind the three that this thread made before it. In a
 * transformer's training, two left 7% of the time in places of several lengths, three none. */
uint64_t learn_place(uint64_t key)
{
    static _Thread_local uint64_t before[3];
    uint64_t place = mix(mix(mix(before[0], before[1]), before[2]), key);
    before[0] = before[1];
    before[1] = before[2];
    before[2] = key;
    return place | PLACE;
}

/* Where the table is full: a place gives way, never a kind. There are many more of them, and where
 * one is missing its kind serves. NULL if there is none. */
static struct entry *some_place(uint64_t key)
{
    struct entry *found = NULL;
    unsigned wanted = (unsigned)(key >> 40) % PROBES;
    for (unsigned i = 0; i < PROBES && (i <= wanted || !found); i++) {
        struct entry *e = &table[(key + i) & (ENTRIES - 1)];
        if (load(&e->key) & PLACE)
            found = e;
    }
    return found;
}

static void clear(struct entry *e)
{
    store(&e->length_ns, 0);
    store(&e->high_ns, 0);
    store(&e->samples, 0);
    store(&e->count, 0);
}

/* NULL for a place that finds no room. */
static struct entry *find(uint64_t key)
{
    for (unsigned i = 0; i < PROBES; i++) {
        struct entry *e = &table[(key + i) & (ENTRIES - 1)];
        uint64_t found = load(&e->key);
        if (likely(found == key))
            return e;
        if (!found) {
            if (atomic_compare_exchange_strong(&e->key, &found, key) || found == key)
                return e;
        }
    }
    /* Full hereabouts: make room. */
    struct entry *e = some_place(key);
    if (!e && key & PLACE)
        return NULL;
    if (!e)
        e = &table[key & (ENTRIES - 1)];
    clear(e);
    store(&e->key, key);
    return e;
}

struct lesson learn_lesson(uint64_t kind_key, uint64_t place_key)
{
    struct lesson l = {.kind = find(kind_key), .kind_key = kind_key, .place_key = place_key};
    l.place = place_key == kind_key ? l.kind : find(place_key);
    if (unlikely(!l.place))
        l.place = l.kind;
    return l;
}

bool learn_known(const struct lesson *l)
{
    return load(&l->place->length_ns) || load(&l->kind->length_ns);
}

bool learn_new(const struct lesson *l)
{
    return !load(&l->kind->count);
}

uint64_t learn_length(const struct lesson *l)
{
    uint64_t known = load(&l->place->length_ns);
    if (unlikely(!known))
        known = load(&l->kind->length_ns);
    return likely(known) ? known : load(&default_ns);
}

uint64_t learn_high(const struct lesson *l)
{
    uint64_t known = load(&l->place->high_ns);
    if (unlikely(!known))
        known = load(&l->kind->high_ns);
    return likely(known) ? known : load(&default_ns);
}

/* Count a launch; true if this one should be measured: early ones often, later one in 256. */
bool learn_due(const struct lesson *l)
{
    uint32_t n = add(&l->place->count, 1);
    if (unlikely(!n) && l->kind != l->place)
        add(&l->kind->count, 1);
    if (likely(n & 7))
        return n < 3;
    return !(n & 255) || (n < 256 && !(n & (n - 1)));
}

static void result(struct entry *e, uint64_t key, uint64_t ns)
{
    if (load(&e->key) != key)
        return;
    uint32_t samples = load(&e->samples);
    /* The first is often a cold one: it counts until there is a second. */
    if (samples == 0 || (samples == 1 && (float)ns < e->mean)) {
        e->mean = (float)ns;
        e->deviation = (float)ns / 32;
        uint64_t usual = load(&default_ns);
        usual = (usual * 7 + 2 * ns) / 8;
        usual = usual < DEFAULT_LEAST ? DEFAULT_LEAST : usual > DEFAULT_MOST ? DEFAULT_MOST : usual;
        store(&default_ns, usual);
    } else {
        float error = (float)ns - e->mean, size = error < 0 ? -error : error;
        e->mean += error / 4;
        e->deviation += (size - e->deviation) / 4;
    }
    store(&e->samples, samples + 1);
    store(&e->high_ns, (uint32_t)(e->mean + 2 * e->deviation));
    store(&e->length_ns, (uint32_t)e->mean);
}

void learn_result(const struct lesson *l, uint64_t ns)
{
    if (ns > 4000 * MS)
        ns = 4000 * MS;
    if (ns < 500)
        ns = 500;
    result(l->kind, l->kind_key, ns);
    if (l->place != l->kind)
        result(l->place, l->place_key, ns);
}

/* What was known goes at once, for kinds make no room for others. */
void learn_forget_all(void)
{
    add(&epoch, 1);
    for (unsigned i = 0; i < ENTRIES; i++) {
        clear(&table[i]);
        store(&table[i].key, 0);
    }
}

void learn_forget(uint64_t key)
{
    clear(find(key));
}
