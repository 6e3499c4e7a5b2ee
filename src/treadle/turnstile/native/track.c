/* Events: how kernel lengths are measured and how predictions are held against what happened.
 *
 * An anchor is an event after some launch together with the predicted end of the work in flight
 * at that moment. Seen complete early, the prediction is pulled in; seen incomplete late, it is
 * pushed out, and given up at twice the prediction. A sample is a pair of events around one
 * launch. Both are only ever queried, under a lock that is only ever tried. */
#include "launch.h"

#define POOLS 8
#define SAMPLES 8
#define ANCHORS 8
#define SPAN_LEAST (25 * US) /* of predicted time, from one anchor to the next */
#define SPAN_MOST (200 * US)
#define POLL_LATE (20 * US)

struct slot {
    bool pending;
    struct pool *pool;
    struct seat *seat;
    struct lesson lesson;
    CUevent begin, end;
    uint64_t recorded_ns, predicted_ns, span_ns, late_ns, marks, turn;
    uint64_t host_ns;  /* when the first event was on its way; then: how long the launch took */
    unsigned class_;
    bool idle_before, tainted;
};

struct pool {
    CUcontext context;
    struct slot samples[SAMPLES];
    struct slot anchors[ANCHORS];
    unsigned first, count; /* anchors in order */
};

static struct pool pools[POOLS];
static struct spin tracking;
static _Atomic uint32_t pending; /* slots in use */
static _Atomic uint32_t taint;   /* a stream was told to wait since the last anchor */

static struct pool *pool_of(const struct driver *d)
{
    CUcontext context = NULL;
    if (d->cuCtxGetCurrent(&context) || !context)
        return NULL;
    for (int i = 0; i < POOLS; i++) {
        if (pools[i].context == context)
            return &pools[i];
        if (!pools[i].context) {
            pools[i].context = context;
            return &pools[i];
        }
    }
    return NULL;
}

static CUresult record(const struct driver *d, const struct launch *l, CUevent event)
{
    return l->per_thread ? d->cuEventRecord_ptsz(event, l->stream)
                         : d->cuEventRecord(event, l->stream);
}

static bool make(const struct driver *d, CUevent *event, unsigned flags)
{
    return *event || !d->cuEventCreate(event, flags);
}

void track_taint(void)
{
    store(&taint, 1);
}

static uint64_t turn_of(const struct launch *l)
{
    return load(&l->seat->page->turn[l->class_]) & 0xff;
}

/* Record the first event of a sample, if one can be taken now. */
void track_begin(struct launch *l)
{
    const struct driver *d = driver();
    if (!d || !spin_try(&tracking))
        return;
    struct pool *pool = pool_of(d);
    struct slot *slot = NULL;
    for (int i = 0; pool && i < SAMPLES && !slot; i++)
        if (!pool->samples[i].pending)
            slot = &pool->samples[i];
    if (slot) {
        int mode = quiet_begin(d);
        if (make(d, &slot->begin, CU_EVENT_DEFAULT) && make(d, &slot->end, CU_EVENT_DEFAULT) &&
            !record(d, l, slot->begin)) {
            slot->pending = true;
            slot->pool = pool;
            slot->recorded_ns = 0; /* not complete before track_end */
            slot->seat = l->seat;
            slot->lesson = l->lesson;
            slot->marks = load(&l->seat->page->marks_set);
            slot->turn = turn_of(l);
            slot->class_ = l->class_;
            slot->host_ns = clock_ns();
            l->sample = slot;
            add(&pending, 1);
        }
        quiet_end(d, mode);
    }
    spin_give(&tracking);
}

void track_end(struct launch *l)
{
    const struct driver *d = driver();
    struct slot *slot = l->sample;
    if (!slot->pending) /* its context has gone, and the events with it */
        return;
    slot->host_ns = clock_ns() - slot->host_ns;
    int mode = quiet_begin(d);
    slot->idle_before = d->cuEventQuery(slot->begin) == CUDA_SUCCESS;
    CUresult failed = record(d, l, slot->end);
    quiet_end(d, mode);
    uint64_t now = clock_ns();
    spin_take(&tracking);
    if (!slot->pending) {
        spin_give(&tracking);
        return;
    }
    if (failed) {
        slot->pending = false;
        atomic_fetch_sub(&pending, 1);
    } else {
        uint64_t until = load(&l->seat->busy_until_ns);
        slot->predicted_ns = until > now ? until : now;
        slot->recorded_ns = now;
        uint64_t due = load(&l->seat->next_poll_ns);
        if (!due || due > slot->predicted_ns)
            store(&l->seat->next_poll_ns, slot->predicted_ns);
    }
    spin_give(&tracking);
}

static void anchor(const struct launch *l, uint64_t now)
{
    struct seat *seat = l->seat;
    const struct driver *d = driver();
    if (!d || !spin_try(&tracking))
        return;
    struct pool *pool = pool_of(d);
    if (pool && pool->count < ANCHORS) {
        struct slot *slot = &pool->anchors[(pool->first + pool->count) % ANCHORS];
        int mode = quiet_begin(d);
        if (make(d, &slot->end, CU_EVENT_DISABLE_TIMING) && !record(d, l, slot->end)) {
            slot->seat = seat;
            slot->recorded_ns = now;
            slot->late_ns = 0;
            slot->predicted_ns = load(&seat->busy_until_ns);
            slot->span_ns = slot->predicted_ns > now ? slot->predicted_ns - now : 0;
            slot->tainted = atomic_exchange(&taint, 0) | atomic_exchange(&seat->mixed, 0);
            slot->pending = true;
            pool->count++;
            add(&pending, 1);
            store(&seat->unanchored_ns, 0);
            uint64_t due = load(&seat->next_poll_ns);
            if (!due || due > slot->predicted_ns)
                store(&seat->next_poll_ns, slot->predicted_ns);
        }
        quiet_end(d, mode);
    }
    spin_give(&tracking);
}

/* After a counted launch: put an event behind it once enough predicted time has gathered. */
void track_anchor(const struct launch *l, uint64_t now)
{
    struct seat *seat = l->seat;
    uint64_t gathered = load(&seat->unanchored_ns);
    if (likely(gathered < SPAN_LEAST))
        return;
    uint64_t span = l->budget_ns / 2;
    span = span < SPAN_LEAST ? SPAN_LEAST : span > SPAN_MOST ? SPAN_MOST : span;
    /* Far from the budget a prediction decides nothing: look more rarely whether it holds. */
    uint64_t until = load(&seat->busy_until_ns);
    if (gathered < span || (until < now + l->budget_ns / 4 && gathered < 8 * SPAN_MOST))
        return;
    anchor(l, now);
}

/* The gate is closed: whoever closed it may delay what is in flight beyond its prediction. An
 * event says so only behind that work, in the stream that it was launched on. */
void track_closed(const struct launch *l, uint64_t now)
{
    uintptr_t stream = (uintptr_t)stream_meant(l->stream, l->per_thread);
    if (load(&l->seat->unanchored_ns) && load(&l->seat->stream) == stream)
        anchor(l, now);
}

/* Move every prediction after this one by the same amount. */
static void shift(struct pool *pool, struct seat *seat, int64_t by)
{
    add(&seat->busy_until_ns, (uint64_t)by);
    for (unsigned i = 0; i < pool->count; i++) {
        struct slot *slot = &pool->anchors[(pool->first + i) % ANCHORS];
        if (slot->seat == seat)
            slot->predicted_ns += (uint64_t)by;
    }
}

static void drop_first(struct pool *pool)
{
    pool->anchors[pool->first].pending = false;
    pool->first = (pool->first + 1) % ANCHORS;
    pool->count--;
    atomic_fetch_sub(&pending, 1);
}

static void poll_anchors(const struct driver *d, struct pool *pool, uint64_t now)
{
    while (pool->count) {
        struct slot *slot = &pool->anchors[pool->first];
        CUresult state = d->cuEventQuery(slot->end);
        uint64_t predicted = slot->predicted_ns;
        if (state == CUDA_SUCCESS) {
            store(&slot->seat->late_until_ns, 0);
            if (!slot->tainted && predicted > now)
                shift(pool, slot->seat, -(int64_t)(predicted - now));
            drop_first(pool);
            continue;
        }
        if (state != CUDA_ERROR_NOT_READY) {
            drop_first(pool);
            continue;
        }
        if (now > predicted) {
            /* Twice the first prediction, then no more: it may wait for something else. */
            if (slot->tainted || slot->late_ns > slot->span_ns + SPAN_MOST) {
                store(&slot->seat->late_until_ns, 0);
                drop_first(pool);
                continue;
            }
            slot->late_ns += now - predicted;
            shift(pool, slot->seat, (int64_t)(now - predicted));
            store(&slot->seat->late_until_ns, now + POLL_LATE);
        }
        return;
    }
}

static void poll_samples(const struct driver *d, struct pool *pool, uint64_t now)
{
    for (int i = 0; i < SAMPLES; i++) {
        struct slot *slot = &pool->samples[i];
        if (!slot->pending || !slot->recorded_ns || now < slot->predicted_ns)
            continue;
        CUresult state = d->cuEventQuery(slot->end);
        if (state == CUDA_ERROR_NOT_READY) {
            slot->predicted_ns = now + POLL_LATE;
            continue;
        }
        float ms;
        struct treadle_page *page = slot->seat->page;
        if (state == CUDA_SUCCESS && load(&page->marks_set) == slot->marks &&
            (load(&page->turn[slot->class_]) & 0xff) == slot->turn &&
            !d->cuEventElapsedTime(&ms, slot->begin, slot->end) && ms >= 0) {
            uint64_t ns = (uint64_t)(ms * 1e6f);
            /* An idle GPU waited for the launch after the first event: that is not the kernel. */
            if (slot->idle_before)
                ns = ns > slot->host_ns + ns / 3 ? ns - slot->host_ns : ns / 3;
            learn_result(&slot->lesson, ns);
            add(&slot->seat->record->measured_ns, ns);
            add(&slot->seat->record->samples, 1);
        }
        slot->pending = false;
        atomic_fetch_sub(&pending, 1);
    }
}

/* Look at the events that are due. `waiting`: this thread has nothing better to do. */
void track_poll(struct seat *seat, uint64_t now, bool waiting)
{
    const struct driver *d = driver();
    if (!load(&pending)) {
        store(&seat->next_poll_ns, 0);
        return;
    }
    if (!d || !spin_try(&tracking))
        return;
    struct pool *pool = pool_of(d);
    uint64_t due = 0;
    if (pool) {
        int mode = quiet_begin(d);
        poll_anchors(d, pool, now);
        poll_samples(d, pool, now);
        quiet_end(d, mode);
        if (pool->count)
            due = pool->anchors[pool->first].predicted_ns;
        for (int i = 0; i < SAMPLES; i++)
            if (pool->samples[i].pending && pool->samples[i].recorded_ns &&
                (!due || pool->samples[i].predicted_ns < due))
                due = pool->samples[i].predicted_ns;
    }
    if (due && waiting)
        due = now + POLL_WAITING;
    else if (due && due < now + POLL_LATE)
        due = now + POLL_LATE;
    store(&seat->next_poll_ns, due);
    spin_give(&tracking);
}

/* The gate was fully open until now and much may be queued: let it run down, within a bound. */
void track_drain(struct launch *l, uint64_t most_ns)
{
    const struct driver *d = driver();
    CUevent event = NULL;
    if (!d)
        return;
    int mode = quiet_begin(d);
    if (!d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) && !record(d, l, event)) {
        uint64_t start = clock_ns();
        while (d->cuEventQuery(event) == CUDA_ERROR_NOT_READY && clock_ns() - start < most_ns)
            sleep_until(clock_ns() + 50 * US);
    }
    quiet_end(d, mode);
    if (event) {
        CUresult (*destroy)(CUevent) = (CUresult(*)(CUevent))driver_symbol("cuEventDestroy_v2");
        if (destroy)
            destroy(event);
    }
}

void track_after_fork(void)
{
    tracking = (struct spin){0}; /* another thread may have held it */
    track_forget_events();
}

/* Contexts are going away, and their events with them. */
void track_forget_events(void)
{
    spin_take(&tracking);
    for (int i = 0; i < POOLS; i++)
        pools[i] = (struct pool){0};
    store(&pending, 0);
    spin_give(&tracking);
}
