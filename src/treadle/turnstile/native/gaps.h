/* The pauses of a program that marks nothing itself: which of them are inside a request? */
#ifndef TREADLE_GAPS_H
#define TREADLE_GAPS_H

#include "gate.h"

#define GAP_BUCKETS 20
#define GAP_BETWEEN (128 * US) /* longest from one request in line to the next */

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

/* The hold that bridges 19 of 20 of the pauses up to `longest`, where those are at least one in
 * `share` of all; else 0: it would cost others more, at the end of every request, than it
 * protects. */
static inline uint64_t gap_hold(const struct gaps *g, uint64_t longest, uint32_t share)
{
    uint32_t brief = 0, sum = 0;
    uint64_t hold = 0;
    for (unsigned b = 0; b < GAP_BUCKETS && (4 * US) << b <= longest; b++)
        brief += g->count[b];
    if (brief * share >= g->total)
        for (unsigned b = 0; b < GAP_BUCKETS && sum * 20 < brief * 19; b++) {
            sum += g->count[b];
            hold = (4 * US) << b;
        }
    return hold > longest ? longest : hold;
}

/* Learn one pause: between the launches of a request, or between requests that wait in line. The
 * latter are brief and fewer, but a long kernel let in between meets a whole queue. */
static inline void gap_seen(struct gaps *g, uint64_t ns, uint64_t longest)
{
    g->count[gap_bucket(ns)]++;
    g->total++;
    if (++g->since < 8)
        return;
    g->since = 0;
    g->hold_ns = gap_hold(g, longest, 2);
    if (!g->hold_ns)
        g->hold_ns = gap_hold(g, longest < GAP_BETWEEN ? longest : GAP_BETWEEN, 10);
    if (g->total >= 512) {
        g->total = 0;
        for (unsigned b = 0; b < GAP_BUCKETS; b++)
            g->total += g->count[b] /= 2;
    }
}

#endif
