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

/* What is known of one launch: by its kind, and by its kind and what this thread launched before.
 * The second tells the lengths of persistent kernels apart, which have one grid for every size;
 * the first serves until the second is known. */
struct lesson {
    struct entry *kind, *place;
    uint64_t kind_key, place_key;
};

uint64_t learn_key(const void *what, const unsigned shape[6], unsigned kind);
uint64_t learn_place(uint64_t key);
struct lesson learn_lesson(uint64_t kind_key, uint64_t place_key);
bool learn_known(const struct lesson *lesson);
bool learn_new(const struct lesson *lesson);
uint64_t learn_length(const struct lesson *lesson);
uint64_t learn_high(const struct lesson *lesson);
bool learn_due(const struct lesson *lesson);
void learn_result(const struct lesson *lesson, uint64_t ns);
void learn_forget_all(void);
void learn_forget(uint64_t key);

/* track.c */
struct launch;
void track_begin(struct launch *launch);
void track_end(struct launch *launch);
void track_anchor(const struct launch *launch, uint64_t now);
void track_closed(const struct launch *launch, uint64_t now);
void track_poll(struct seat *seat, uint64_t now, bool waiting);
void track_drain(struct launch *launch, uint64_t most_ns);
void track_forget_events(void);
void track_after_fork(void);
#define POLL_WAITING (4 * US)
void track_taint(void);

#endif
