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

/* An instantiated graph of the program's. */
struct parted {
    struct parted *next;
    struct part root; /* its exec is the program's own */
    unsigned long long flags;
    CUstream last; /* where it was launched last, and the event behind that */
    bool launched, last_per_thread;
    CUevent done;
};

typedef CUresult (*graph_call)(CUgraphExec, CUstream);

void parted_keep(CUgraphExec exec, CUgraph graph, unsigned long long flags);
void parted_forget(CUgraphExec exec);
struct parted *parted_find(CUgraphExec exec);
bool part_divide(const struct parted *of, struct part *part);
bool parted_follow(struct parted *of, CUstream stream, bool per_thread);
void parted_launched(struct parted *of, CUstream stream, bool per_thread);

#endif
