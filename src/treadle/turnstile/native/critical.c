/* Marks for programs that set none: a mark is set at the first launch and cleared when the GPU
 * has finished and a learned pause has passed.
 *
 * That the GPU has finished is heard from the program's own synchronisation. As a backstop, a
 * helper thread records an event behind the last launch once launches pause, and queries it. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gaps.h"
#include "launch.h"

#define STREAMS 32
#define EVENTS 128
#define SEATS 8
#define PAUSE (30 * US)       /* launches have paused: worth an event of our own */
#define LOOK (100 * US)       /* between looks of the helper while marked */
#define LOOK_MOST (1000 * US)

struct stream {
    CUstream stream;
    CUcontext context;
    uint64_t last; /* sequence number of its last launch; 0: nothing unfinished */
    uint64_t event_last;
    CUevent event;
    unsigned launching;  /* threads on their way into the driver with a launch */
    bool used, per_thread, lent; /* lent: the helper is in the driver with it */
};

struct recorded { CUevent event; CUstream stream; bool per_thread; uint64_t upto; };
struct marked { struct seat *seat; unsigned class_; };

static struct spin lock;
static struct stream streams[STREAMS];
static struct recorded events[EVENTS];
static struct marked marked[SEATS];
static unsigned marks;
static uint64_t clear_at; /* 0: work is unfinished, or nothing is marked */
static uint64_t last_launch_ns, idle_since;
static struct gaps gaps = {.hold_ns = 100 * US};
static _Atomic uint64_t sequence;
static _Atomic uint32_t bell; /* of the helper */
static _Atomic bool helper_runs, helper_sleeps, helper_busy, by_hand, stopping;
_Atomic bool urgent_active;

static void *helper(void *unused);

uint64_t urgent_sequence(void)
{
    return load(&sequence);
}

static void start_helper(void)
{
    bool runs = false;
    if (!atomic_compare_exchange_strong(&helper_runs, &runs, true))
        return;
    atexit(urgent_stop); /* registered after the driver's, so it runs before it */
    helper_start(helper);
}

static void wake_helper(void)
{
    atomic_fetch_add(&bell, 1);
    if (load(&helper_sleeps))
        syscall(SYS_futex, (uint32_t *)&bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool own_stream(CUstream stream, bool per_thread)
{
    return stream_meant(stream, per_thread) == CU_STREAM_PER_THREAD;
}

static struct stream *slot_of(CUstream stream, bool per_thread, bool take)
{
    struct stream *free_ = NULL;
    bool own = own_stream(stream, per_thread);
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (s->used && s->stream == stream && s->per_thread == own)
            return s;
        if (!free_ && !s->last && !s->lent && !s->launching)
            free_ = s;
    }
    if (!take || !free_)
        return NULL;
    CUevent event = free_->event;
    CUcontext context = free_->context;
    *free_ = (struct stream){.stream = stream, .per_thread = own, .used = true};
    free_->event = event;
    free_->context = context; /* of the event */
    return free_;
}

static void mark_seat(struct seat *seat, unsigned class_)
{
    for (unsigned i = 0; i < marks; i++)
        if (marked[i].seat == seat && marked[i].class_ == class_)
            return;
    if (marks == SEATS)
        return;
    marked[marks++] = (struct marked){seat, class_};
    seat_mark(seat, class_);
}

/* Before a launch: mark. The launch has no number that others may wait for until it returns. */
void urgent_launch(struct launch *l)
{
    struct seat *seat = l->seat;
    const struct driver *d = driver();
    if (load(&by_hand) || load(&stopping) || !d)
        return;
    store(&urgent_active, true);
    uint64_t now = clock_ns();
    spin_take(&lock);
    bool first = marks == 0;
    mark_seat(seat, l->class_);
    struct stream *s = slot_of(l->stream, l->per_thread, true);
    if (!s) /* more streams than slots: behind the default stream is behind most of them */
        s = slot_of(CU_STREAM_LEGACY, false, true);
    if (s) {
        if (!s->last && s->context == NULL)
            d->cuCtxGetCurrent(&s->context);
        s->launching++;
        s->last = l->urgent_number = add(&sequence, 1) + 1;
    }
    l->urgent = s;
    if (idle_since)
        gap_seen(&gaps, now - idle_since, knob(seat->page, TREADLE_KNOB_gap_ns));
    idle_since = 0;
    clear_at = 0;
    last_launch_ns = now;
    spin_give(&lock);
    store(&seat->record->last_launch_ns, now);
    if (first) {
        start_helper();
        wake_helper();
    }
}

/* Called with the lock taken, gives it. */
static void clear_marks(void)
{
    unsigned n = marks;
    struct marked was[SEATS];
    for (unsigned i = 0; i < n; i++)
        was[i] = marked[i];
    marks = 0;
    clear_at = 0;
    spin_give(&lock);
    for (unsigned i = 0; i < n; i++)
        seat_unmark(was[i].seat, was[i].class_);
}

/* Everything is finished: clear the marks, now or after the pause. Called with the lock taken,
 * gives it. */
static void maybe_idle(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].last || streams[i].launching) {
            spin_give(&lock);
            return;
        }
    if (!marks || clear_at) {
        spin_give(&lock);
        return;
    }
    uint64_t now = clock_ns();
    idle_since = now;
    if (gaps.hold_ns) {
        clear_at = now + gaps.hold_ns;
        spin_give(&lock);
        wake_helper();
        return;
    }
    clear_marks();
}

/* After it: what was asked of the driver before now said nothing about this launch. */
void urgent_launched(struct launch *l)
{
    struct stream *s = l->urgent;
    if (!s)
        return;
    spin_take(&lock);
    if (s->launching)
        s->launching--;
    if (!l->synchronous)
        s->last = add(&sequence, 1) + 1;
    else if (s->last == l->urgent_number)
        s->last = 0;
    if (l->synchronous)
        maybe_idle();
    else
        spin_give(&lock);
}

void urgent_done_stream(CUstream stream, bool per_thread, uint64_t upto)
{
    spin_take(&lock);
    struct stream *s = slot_of(stream, per_thread, false);
    if (s && !s->launching && s->last <= upto)
        s->last = 0;
    maybe_idle();
}

void urgent_done_all(uint64_t upto)
{
    spin_take(&lock);
    for (int i = 0; i < STREAMS; i++)
        if (!streams[i].launching && streams[i].last <= upto)
            streams[i].last = 0;
    maybe_idle();
}

static struct recorded *recorded(CUevent event)
{
    return &events[((uintptr_t)event >> 4) * 2654435761u % EVENTS];
}

void urgent_event_recorded(CUevent event, CUstream stream, bool per_thread)
{
    spin_take(&lock);
    *recorded(event) = (struct recorded){event, stream, per_thread, load(&sequence)};
    spin_give(&lock);
}

void urgent_event_done(CUevent event)
{
    spin_take(&lock);
    struct recorded r = *recorded(event);
    if (r.event != event) {
        spin_give(&lock);
        return;
    }
    struct stream *s = slot_of(r.stream, r.per_thread, false);
    if (s && !s->launching && s->last <= r.upto)
        s->last = 0;
    maybe_idle();
}

void urgent_forget_event(CUevent event)
{
    spin_take(&lock);
    if (recorded(event)->event == event)
        recorded(event)->event = NULL;
    spin_give(&lock);
}

/* A stream is about to be destroyed (NULL: a context is, and all of them). */
void urgent_forget_stream(CUstream stream)
{
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        spin_take(&lock);
        while (s->lent) { /* a query or a record, no wait */
            spin_give(&lock);
            sleep_until(clock_ns() + 10 * US);
            spin_take(&lock);
        }
        if (!stream)
            *s = (struct stream){0};
        else if (s->stream == stream)
            s->last = 0, s->used = false;
        spin_give(&lock);
    }
    spin_take(&lock);
    maybe_idle();
}

/* ---- the helper ---- */

/* Has the work of this slot finished? The helper is the only one that lends. */
static bool finished(const struct driver *d, struct stream *s, uint64_t last)
{
    CUcontext context = NULL;
    bool done = false;
    d->cuCtxGetCurrent(&context);
    if (context != s->context && d->cuCtxSetCurrent(s->context))
        return false;
    int mode = quiet_begin(d);
    if (s->event_last != last) {
        CUstream at = s->per_thread ? CU_STREAM_LEGACY : s->stream;
        if ((s->event || !d->cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING)) &&
            !d->cuEventRecord(s->event, at))
            s->event_last = last;
    } else {
        CUresult state = d->cuEventQuery(s->event);
        done = state != CUDA_ERROR_NOT_READY; /* an error ends the work as well */
    }
    quiet_end(d, mode);
    return done;
}

static void look(const struct driver *d)
{
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        spin_take(&lock);
        uint64_t last = s->last;
        bool paused = last && !s->launching && clock_ns() - last_launch_ns > PAUSE;
        if (!paused || load(&captures_active)) {
            spin_give(&lock);
            continue;
        }
        s->lent = true;
        spin_give(&lock);
        bool done = finished(d, s, last);
        spin_take(&lock);
        s->lent = false;
        if (done && s->last == last)
            s->last = 0;
        spin_give(&lock);
    }
    spin_take(&lock);
    maybe_idle();
}

static void *helper(void *unused)
{
    uint64_t pace = LOOK;
    gate_inside = 1; /* nothing that this thread does is the program's */
    for (;;) {
        uint32_t rung = atomic_load(&bell);
        uint64_t now = clock_ns(), nap = 0;
        spin_take(&lock);
        bool any = marks != 0;
        uint64_t due = clear_at;
        if (any && due && now >= due) {
            clear_marks();
            any = false;
        } else {
            spin_give(&lock);
        }
        if (load(&stopping))
            return unused;
        if (any && due) {
            nap = due - now;
            pace = LOOK;
        } else if (any) {
            const struct driver *d = driver();
            atomic_store(&helper_busy, true);
            if (d && !atomic_load(&stopping))
                look(d);
            atomic_store(&helper_busy, false);
            nap = pace;
            pace = pace * 5 / 4 > LOOK_MOST ? LOOK_MOST : pace * 5 / 4;
        } else {
            pace = LOOK;
        }
        struct timespec t = {0, (long)nap};
        store(&helper_sleeps, true);
        atomic_thread_fence(memory_order_seq_cst);
        syscall(SYS_futex, (uint32_t *)&bell, FUTEX_WAIT_PRIVATE, rung, any ? &t : NULL, NULL, 0);
        store(&helper_sleeps, false);
    }
}

/* The program marks for itself: leave it to that. */
void urgent_by_hand(void)
{
    store(&by_hand, true);
}

void urgent_after_fork(void)
{
    lock = (struct spin){0};
    for (int i = 0; i < STREAMS; i++)
        streams[i] = (struct stream){0};
    marks = 0;
    clear_at = idle_since = 0;
    store(&helper_runs, false);
    store(&helper_sleeps, false);
    store(&helper_busy, false);
    store(&urgent_active, false);
}

/* The process ends, and the driver with it: the helper must not be inside. */
void urgent_stop(void)
{
    atomic_store(&stopping, true);
    wake_helper();
    for (int i = 0; i < 200 && atomic_load(&helper_busy); i++)
        sleep_until(clock_ns() + 100 * US);
}
