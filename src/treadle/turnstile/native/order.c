/* A graph never runs beside itself, so its parts must not either: a launch in another stream waits
 * for those of the launch before. */
#include "split.h"

static _Atomic uint64_t streams_gone; /* handles of streams before that may be others' now */

void parted_stream_gone(void)
{
    add(&streams_gone, 1);
}

/* A thread's own stream has one name in all threads: it is another in each. */
static uint64_t this_thread(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t number;
    if (!number)
        number = add(&threads, 1) + 1;
    return number;
}

static struct whereabouts whereabouts(CUstream stream, bool per_thread)
{
    CUstream meant = stream_meant(stream, per_thread);
    return (struct whereabouts){.stream = meant,
                                .thread = meant == CU_STREAM_PER_THREAD ? this_thread() : 0,
                                .gone = load(&streams_gone)};
}

static bool record_done(struct parted *of, CUstream stream, bool per_thread)
{
    const struct driver *d = driver();
    return of->done &&
           !(per_thread ? d->cuEventRecord_ptsz : d->cuEventRecord)(of->done, stream);
}

/* Before a launch, in parts or not: behind parts in another stream, wait for them. The driver
 * orders what is launched as a whole behind the like. False if it must be whole this time: because
 * there is nothing to wait by, or because what comes next would have nothing. */
bool parted_follow(struct parted *of, CUstream stream, bool per_thread, bool parts)
{
    const struct driver *d = driver();
    CUresult (*wait)(CUstream, CUevent, unsigned) =
        per_thread ? d->cuStreamWaitEvent_ptsz : d->cuStreamWaitEvent;
    struct whereabouts here = whereabouts(stream, per_thread);
    bool same = of->launched && of->last.stream == here.stream &&
                of->last.thread == here.thread && of->last.gone == here.gone;
    if (same ? !parts || of->recorded : !parts && !of->recorded)
        return true;
    int mode = quiet_begin(d);
    bool fine = same || !of->launched;
    if (!fine && of->recorded)
        fine = !wait(stream, of->done, 0);
    if (parts && !of->done && d->cuEventCreate(&of->done, CU_EVENT_DISABLE_TIMING))
        of->done = NULL;
    fine = fine && (!parts || record_done(of, stream, per_thread));
    quiet_end(d, mode);
    return fine;
}

/* Behind a launch: where it was, and an event once that may matter. */
void parted_launched(struct parted *of, CUstream stream, bool per_thread)
{
    of->launched = true;
    of->last = whereabouts(stream, per_thread);
    if (!of->done)
        return;
    int mode = quiet_begin(driver());
    of->recorded = record_done(of, stream, per_thread);
    quiet_end(driver(), mode);
}
