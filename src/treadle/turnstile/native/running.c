/* Since when the oldest unfinished launch has been running: a word on the page for each member.
 *
 * Only where TREADLE_WATCH is set. Then each kernel and graph has an event before it and one behind
 * it in its stream: it has begun once the first is complete, and ended once the second is. What the
 * stream did before, or waited for, does not count. Events are queried by whoever launches, now and
 * then, and by a thread of the gate's own where nobody does. A moment is when it was seen, so that
 * a launch never seems to run for longer than it does.
 *
 * Not known: whether the GPU was its own all the time. Other processes' time slices count in, and so
 * do kernels of other streams that left it no room. A launch that comes while 1023 of its stream are
 * unfinished, or whose stream is the 17th with such, is not watched; nor are collectives, which wait
 * for other processes, copies, and launches inside a call that does not return before they end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "running.h"

#define LINES 16u
#define SLOTS 1024u
#define LOOK (10 * MS)            /* between looks of the thread */
#define LOOK_LAUNCHING (100 * US) /* between those of whoever launches */
#define AT_ONCE 64                /* finished launches, in one look */
#define NAME_AFTER (50 * MS)
#define NAME_MOST 512

/* A launch that is watched. */
enum slot_state { SLOT_FREE, SLOT_LAUNCHING, SLOT_LAUNCHED, SLOT_FAILED };
struct slot {
    _Atomic uint32_t state;
    CUevent begin, end;
    uint64_t since_ns; /* when it was seen to have begun; 0: it was not */
    const void *function;
    enum launch_kind kind;
};

/* The launches of one stream, in their order. */
struct line {
    CUcontext context;
    CUstream stream;
    uintptr_t thread; /* whose own stream it is; 0: everybody's */
    struct seat *seat;
    unsigned first, count;
    bool lent; /* somebody is in the driver with its oldest */
    uint64_t next_look_ns, told_ns;
    struct slot slots[SLOTS];
};

_Atomic bool running_watched;
static struct spin lock;
static struct line lines[LINES];
static _Atomic uint32_t epoch; /* changes when all is forgotten */
static _Atomic bool thread_runs, busy, stopping;

void running_read_environment(void)
{
    const char *text = getenv("TREADLE_WATCH");
    store(&running_watched, text && *text && strcmp(text, "0"));
}

static uint64_t since_of(const struct line *line)
{
    return line->count ? line->slots[line->first].since_ns : 0;
}

/* The seat's word: the oldest of its lines. With the lock. */
static uint64_t publish(struct seat *seat)
{
    uint64_t oldest = 0;
    for (unsigned i = 0; i < LINES; i++) {
        uint64_t since = lines[i].seat == seat ? since_of(&lines[i]) : 0;
        if (since && (!oldest || since < oldest))
            oldest = since;
    }
    _Atomic uint64_t *word = &seat->page->running_since_ns[seat->index];
    if (!load(&seat->broken) && load(word) != oldest)
        store(word, oldest);
    return oldest;
}

static void drop_first(struct line *line)
{
    struct slot *slot = &line->slots[line->first];
    slot->since_ns = 0;
    store(&slot->state, SLOT_FREE);
    line->first = (line->first + 1) % SLOTS;
    line->count--;
}

/* See whether the oldest launch has ended, or begun. With the lock, which is given back while the
 * driver is asked: what holds it never waits. True if it has ended: look at the next. */
static bool look_once(const struct driver *d, struct line *line)
{
    struct slot *slot = &line->slots[line->first];
    uint32_t now = load(&epoch);
    if (!line->count || line->lent)
        return false;
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (state == SLOT_FAILED)
        drop_first(line);
    if (state != SLOT_LAUNCHED)
        return state == SLOT_FAILED;
    CUevent begin = slot->since_ns ? NULL : slot->begin, end = slot->end;
    line->lent = true;
    spin_give(&lock);
    bool ended = d->cuEventQuery(end) != CUDA_ERROR_NOT_READY; /* an error ends it as well */
    bool begun = !ended && begin && d->cuEventQuery(begin) == CUDA_SUCCESS;
    uint64_t seen = begun ? clock_ns() : 0;
    spin_take(&lock);
    line->lent = false;
    if (load(&epoch) != now)
        return false;
    if (ended)
        drop_first(line);
    else if (begun)
        slot->since_ns = seen;
    return ended;
}

/* With the lock, as above. */
static void look(const struct driver *d, struct line *line)
{
    for (unsigned n = 0; n < AT_ONCE && look_once(d, line); n++) {
    }
    if (line->seat)
        publish(line->seat);
}

/* The line of a launch, or a free one; NULL: there is none. With the lock. */
static struct line *line_of(CUcontext context, const struct launch *l)
{
    static _Thread_local char here;
    struct line *free_ = NULL;
    CUstream meant = stream_meant(l->stream, l->per_thread);
    uintptr_t thread = meant == CU_STREAM_PER_THREAD ? (uintptr_t)&here : 0;
    for (unsigned i = 0; i < LINES; i++) {
        struct line *line = &lines[i];
        if (line->context == context && line->stream == meant && line->thread == thread)
            return line;
        if (!line->context || (!line->count && line->context == context && !free_))
            free_ = line; /* events are their context's */
    }
    if (free_) {
        free_->context = context;
        free_->stream = meant;
        free_->thread = thread;
    }
    return free_;
}

static CUresult record(const struct driver *d, const struct launch *l, CUevent event)
{
    return l->per_thread ? d->cuEventRecord_ptsz(event, l->stream)
                         : d->cuEventRecord(event, l->stream);
}

/* With the lock: a slot for this launch, or NULL. */
static struct slot *take(const struct driver *d, CUcontext context, struct launch *l)
{
    struct line *line = line_of(context, l);
    if (!line)
        return NULL;
    line->seat = l->seat;
    uint64_t now = clock_ns();
    if (now >= line->next_look_ns || line->count == SLOTS - 1) {
        uint32_t before = load(&epoch);
        line->next_look_ns = now + LOOK_LAUNCHING;
        look(d, line);
        if (load(&epoch) != before) /* all was forgotten meanwhile */
            return NULL;
    }
    if (line->count == SLOTS - 1)
        return NULL;
    struct slot *slot = &line->slots[(line->first + line->count++) % SLOTS];
    slot->function = l->function;
    slot->kind = l->kind;
    store(&slot->state, SLOT_LAUNCHING);
    return slot;
}

/* The events of a slot; made at its first use. */
static bool events_of(const struct driver *d, struct slot *slot, const struct launch *l,
                      CUevent *begin, CUevent *end)
{
    if (*begin)
        return true;
    if (d->cuEventCreate(begin, CU_EVENT_DISABLE_TIMING) ||
        d->cuEventCreate(end, CU_EVENT_DISABLE_TIMING))
        return false;
    spin_take(&lock);
    bool ours = load(&epoch) == l->watched_epoch;
    if (ours) {
        slot->begin = *begin;
        slot->end = *end;
    }
    spin_give(&lock);
    return ours;
}

static void start_thread(void);

void running_begin(struct launch *l)
{
    const struct driver *d = driver();
    CUcontext context = NULL;
    l->watched = NULL;
    if (l->kind == LAUNCH_COPY || l->kind == LAUNCH_COLLECTIVE || !l->seat->record || !d ||
        load(&stopping) || d->cuCtxGetCurrent(&context) || !context)
        return;
    int mode = quiet_begin(d);
    spin_take(&lock);
    struct slot *slot = take(d, context, l);
    CUevent begin = slot ? slot->begin : NULL, end = slot ? slot->end : NULL;
    l->watched_epoch = load(&epoch);
    spin_give(&lock);
    l->watched = slot;
    bool failed = slot && (!events_of(d, slot, l, &begin, &end) || record(d, l, begin));
    l->watched_end = end;
    quiet_end(d, mode);
    if (failed)
        running_launched(l, CUDA_ERROR_INVALID_HANDLE);
    else if (slot && unlikely(!load(&thread_runs)))
        start_thread();
}

void running_launched(struct launch *l, CUresult result)
{
    struct slot *slot = l->watched;
    if (!slot)
        return;
    l->watched = NULL;
    if (result == CUDA_SUCCESS) {
        const struct driver *d = driver();
        int mode = quiet_begin(d);
        result = record(d, l, l->watched_end);
        quiet_end(d, mode);
    }
    /* Its context may have gone meanwhile, and the slot with it. */
    if (load(&epoch) == l->watched_epoch)
        atomic_store_explicit(&slot->state, result ? SLOT_FAILED : SLOT_LAUNCHED,
                              memory_order_release);
}

/* ---- the thread ---- */

/* Beside the page, in a file of the seat's own: a name has no room on it. */
static void tell(const struct seat *seat, uint64_t since_ns, const char *name)
{
    char path[sizeof seat->path + 16], text[NAME_MOST + 32];
    const char *slash = strrchr(seat->path, '/');
    if (!slash)
        return;
    snprintf(path, sizeof path, "%.*s/.%s.%u", (int)(slash - seat->path), seat->path, slash + 1,
             seat->index);
    int size = snprintf(text, sizeof text, "%llu %s\n", (unsigned long long)since_ns, name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, text, (size_t)size);
    (void)ignored;
    close(fd);
}

static void look_at(const struct driver *d, struct line *line)
{
    char name[NAME_MOST] = "";
    uint64_t tell_ns = 0;
    CUcontext context = NULL;
    spin_take(&lock);
    CUcontext wanted = line->count ? line->context : NULL;
    spin_give(&lock);
    if (!wanted || d->cuCtxGetCurrent(&context) ||
        (context != wanted && d->cuCtxSetCurrent(wanted)))
        return;
    int mode = quiet_begin(d);
    spin_take(&lock);
    if (line->context == wanted)
        look(d, line);
    struct seat *seat = line->seat;
    uint64_t since = since_of(line);
    if (since && since != line->told_ns && clock_ns() - since > NAME_AFTER &&
        publish(seat) == since) {
        const struct slot *slot = &line->slots[line->first];
        line->told_ns = tell_ns = since;
        if (slot->kind == LAUNCH_GRAPH)
            strcpy(name, "a graph");
        else if (!named_get(slot->function, name, sizeof name))
            tell_ns = 0;
    }
    spin_give(&lock);
    quiet_end(d, mode);
    if (tell_ns)
        tell(seat, tell_ns, name);
}

static void *watch(void *unused)
{
    gate_inside = 1; /* nothing that this thread does is the program's */
    while (!atomic_load(&stopping)) {
        const struct driver *d = driver();
        atomic_store(&busy, true);
        for (unsigned i = 0; i < LINES && d && !atomic_load(&stopping); i++)
            look_at(d, &lines[i]);
        atomic_store(&busy, false);
        sleep_until(clock_ns() + LOOK);
    }
    return unused;
}

static void start_thread(void)
{
    bool runs = false;
    if (!atomic_compare_exchange_strong(&thread_runs, &runs, true))
        return;
    atexit(running_stop); /* registered after the driver's, so it runs before it */
    helper_start(watch);
}

/* A context goes away, and its events with it; those of others are made anew. */
void running_forget_events(void)
{
    if (!load(&running_watched))
        return;
    spin_take(&lock);
    add(&epoch, 1);
    for (unsigned i = 0; i < LINES; i++) {
        while (lines[i].lent) { /* a query, no wait */
            spin_give(&lock);
            sleep_until(clock_ns() + 10 * US);
            spin_take(&lock);
        }
        struct seat *seat = lines[i].seat;
        memset((void *)&lines[i], 0, sizeof lines[i]);
        if (seat)
            publish(seat);
    }
    spin_give(&lock);
}

/* In a forked child, which has no launches: the seats, and their words, are the parent's. */
void running_after_fork(void)
{
    lock = (struct spin){0};
    named_after_fork();
    if (!load(&running_watched))
        return;
    add(&epoch, 1);
    memset((void *)lines, 0, sizeof lines);
    store(&thread_runs, false);
    store(&busy, false);
}

/* The process ends, and the driver with it: the thread must not be inside. */
void running_stop(void)
{
    atomic_store(&stopping, true);
    for (int i = 0; i < 200 && atomic_load(&busy); i++)
        sleep_until(clock_ns() + 100 * US);
}
