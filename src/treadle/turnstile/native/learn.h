/* Kernel lengths, learned; and the events by which they are learned and predictions corrected. */
#ifndef TREADLE_LEARN_H
#define TREADLE_LEARN_H

#include "driver.h"

struct entry {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint32_t count;
    _Atomic uint32_t length_ns; /* the mean, for the clock of work in flight; 0: not known yet */
    _Atomic uint32_t high_ns;   /* a high quantile, to decide whether it fits the budget */
    float mean, deviation;      /* written by one thread at a time: the one that polls events */
    _Atomic uint32_t samples;
};

uint64_t learn_key(const void *what, const unsigned shape[6], unsigned kind);
struct entry *learn_find(uint64_t key);
uint64_t learn_length(struct entry *entry);
uint64_t learn_high(struct entry *entry);
bool learn_due(struct entry *entry);
void learn_result(struct entry *entry, uint64_t key, uint64_t ns);
void learn_forget_all(void);
void learn_forget(uint64_t key);

/* track.c */
struct launch;
void track_begin(struct launch *launch);
void track_end(struct launch *launch);
void track_anchor(struct launch *launch, uint64_t now);
void track_poll(struct seat *seat, uint64_t now, bool waiting);
void track_drain(struct launch *launch, uint64_t most_ns);
void track_forget_events(void);
void track_after_fork(void);
#define POLL_WAITING (4 * US)
void track_taint(void);

#endif
