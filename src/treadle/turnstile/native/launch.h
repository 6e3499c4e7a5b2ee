/* One launch on its way through the gate. */
#ifndef TREADLE_LAUNCH_H
#define TREADLE_LAUNCH_H

#include "hooks.h"
#include "learn.h"

enum launch_kind {
    LAUNCH_KERNEL,
    LAUNCH_GRAPH,
    LAUNCH_COPY,       /* an account of its own: copies and kernels overlap */
    LAUNCH_UNCOUNTED,  /* may wait for others on the GPU: gated, neither timed nor counted */
    LAUNCH_COLLECTIVE, /* waits for other processes: never even gated */
};

struct launch {
    enum launch_kind kind;
    bool per_thread; /* a _ptsz call: stream NULL means this thread's own */
    CUstream stream;
    uint64_t key;
    const void *function, *caller; /* of a kernel, and of whoever launches it */
    uint64_t usual_ns; /* length to count while unknown; 0: the table's default */
    /* filled in by launch_before */
    struct seat *seat; /* NULL: leave alone */
    struct lesson lesson;
    uint64_t length_ns, high_ns;
    uint64_t now, budget_ns; /* at the decision */
    unsigned class_;
    void *sample;
    bool counted; /* added to the work in flight */
    bool synchronous; /* done when the call returns */
    void *watched;    /* where running.c follows it; set only if running_watched */
    CUevent watched_end;
    uint32_t watched_epoch;
    void *urgent;     /* its stream, where the gate marks for the program */
    uint64_t urgent_number;
};

void launch_before(struct launch *launch);
void launch_after(struct launch *launch, CUresult result);
uint64_t launch_bound(CUstream stream, bool per_thread);

/* capture.c */
extern _Atomic uint32_t captures_active;
bool capture_ask(CUstream stream, bool per_thread);
static inline bool capturing(CUstream stream, bool per_thread)
{
    return unlikely(load(&captures_active) != 0) && capture_ask(stream, per_thread);
}

/* critical.c: marks set by the gate itself, for programs that do not */
void urgent_launch(struct launch *launch);
void urgent_launched(struct launch *launch);
void urgent_done_stream(CUstream stream, bool per_thread, uint64_t upto);
void urgent_done_all(uint64_t upto);
uint64_t urgent_sequence(void);
void urgent_event_recorded(CUevent event, CUstream stream, bool per_thread);
void urgent_event_done(CUevent event);
void urgent_forget_event(CUevent event);
void urgent_forget_stream(CUstream stream);
void urgent_by_hand(void);
void urgent_after_fork(void);
void urgent_stop(void);
extern _Atomic bool urgent_active; /* this process has launched as a class above the lowest */

/* names.c: kernels that wait for other processes */
bool name_collective(const void *function);
bool name_caller(const void *function, const void *caller);
void name_seen(const void *function, const char *name);
void name_same(const void *function, const void *kernel);

#endif
