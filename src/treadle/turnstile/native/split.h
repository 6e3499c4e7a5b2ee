/* Graphs in parts: what would be one long launch becomes several that fit the budget. */
#ifndef TREADLE_SPLIT_H
#define TREADLE_SPLIT_H

#include "launch.h"

struct part {
    CUgraph graph; /* what it is instantiated from; NULL: not kept, it stays whole */
    CUgraphExec exec;
    size_t nodes;
    uint64_t usual_ns; /* its length until one is known */
    struct part *half[2]; /* both or none */
    bool whole;           /* cannot be divided further */
};

/* A stream that is told from others of the same name. */
struct whereabouts { CUstream stream; uint64_t thread, gone; };

/* An instantiated graph of the program's. */
struct parted {
    struct parted *next;
    struct part root; /* its exec is the program's own */
    unsigned long long flags;
    bool taken; /* by a thread that launches or changes it */
    bool launched, recorded;
    struct whereabouts last; /* where it was launched last, and the event behind that */
    CUevent done;
};

typedef CUresult (*graph_call)(CUgraphExec, CUstream);

void parted_keep(CUgraphExec exec, CUgraph graph, unsigned long long flags);
void parted_forget(CUgraphExec exec);
void parted_changed(CUgraphExec exec);
void parted_after_fork(void);
struct parted *parted_take(CUgraphExec exec);
void parted_give(struct parted *of);
bool part_divide(const struct parted *of, struct part *part);

/* order.c */
void parted_stream_gone(void);
bool parted_follow(struct parted *of, CUstream stream, bool per_thread, bool parts);
void parted_launched(struct parted *of, CUstream stream, bool per_thread);

#endif
