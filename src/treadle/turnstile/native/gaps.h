/* The pauses of a program that marks nothing itself: which of them are inside a request? */
#ifndef TREADLE_GAPS_H
#define TREADLE_GAPS_H

#include "gate.h"

#define GAP_BUCKETS 20

struct gaps {
    uint32_t count[GAP_BUCKETS]; /* bucket b: up to 4 us << b */
    uint32_t total, since;
    uint64_t hold_ns;
};

static inline unsigned gap_bucket(uint64_t ns)
{
    unsigned b = 0;
    while (b < GAP_BUCKETS - 1 && ns > (4 * US) << b)
        b++;
    return b;
}

/* Learn one pause. Where at least half are short, hold the mark through 19 of 20 short ones;
 * else a hold would cost others more, at the end of every request, than it protects. */
static inline void gap_seen(struct gaps *g, uint64_t ns, uint64_t longest)
{
    g->count[gap_bucket(ns)]++;
    g->total++;
    if (++g->since < 8)
        return;
    g->since = 0;
    uint32_t brief = 0, sum = 0;
    for (unsigned b = 0; b < GAP_BUCKETS && (4 * US) << b <= longest; b++)
        brief += g->count[b];
    uint64_t hold = 0;
    if (brief * 2 >= g->total)
        for (unsigned b = 0; b < GAP_BUCKETS && sum * 20 < brief * 19; b++) {
            sum += g->count[b];
            hold = (4 * US) << b;
        }
    g->hold_ns = hold > longest ? longest : hold;
    if (g->total >= 512) {
        g->total = 0;
        for (unsigned b = 0; b < GAP_BUCKETS; b++)
            g->total += g->count[b] /= 2;
    }
}

#endif
