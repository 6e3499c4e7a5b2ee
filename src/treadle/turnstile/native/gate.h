/* What the files of the gate share. See turnstile.c for seats, wait.c for the gate itself. */
#ifndef TREADLE_GATE_H
#define TREADLE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "page.h"

/* Seen by others, and what this library itself means by the name, whoever else exports it. */
#define EXPORT __attribute__((visibility("protected")))
#define MAX_GPUS 16
#define US 1000ull
#define MS 1000000ull

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* A lock that is only ever tried or held for a few instructions, never while waiting. */
struct spin { _Atomic uint32_t taken; };
static inline bool spin_try(struct spin *s)
{
    return !atomic_exchange_explicit(&s->taken, 1, memory_order_acquire);
}
static inline void spin_take(struct spin *s)
{
    while (!spin_try(s))
        cpu_relax();
}
static inline void spin_give(struct spin *s)
{
    atomic_store_explicit(&s->taken, 0, memory_order_release);
}

/* One GPU's page as this process sits at it. Never freed once published: another thread may
 * still be reading it. A new seat replaces it when the page is replaced. */
struct seat {
    struct treadle_page *page;
    struct treadle_record *record; /* NULL: only looks, as at the other pages of a gang */
    uint64_t bit;
    unsigned index;
    int fd;
    dev_t device;
    ino_t inode;
    char path[512];
    _Atomic uint32_t threads_waiting;
    _Atomic uint32_t gated; /* the last launch was counted: nothing unknown is queued */
    _Atomic uint32_t broken; /* not a turnstile any more: the gate stays open */
    _Atomic uint64_t next_check_ns;
    _Atomic uint64_t busy_until_ns;
    _Atomic uint64_t copy_until_ns;
    _Atomic uint64_t unanchored_ns; /* predicted since the last event */
    _Atomic uint64_t next_poll_ns;  /* when to look at events again */
    _Atomic uintptr_t stream; /* of the last launch counted */
    _Atomic uint32_t mixed;   /* since the last event, others were launched on: it says nothing */
    _Atomic uint64_t late_until_ns; /* until then, unfinished work is known to run over time */
    _Atomic uint64_t marked_since_ns;
    struct spin duty_lock;
    int64_t duty_ns;      /* under duty_lock: what the class is owed; below 0: it had more */
    uint64_t duty_at_ns;
    struct spin mark_lock;
    uint32_t mark_count[TREADLE_CLASSES]; /* under mark_lock */
    struct seat *successor; /* under mark_lock: who has the marks now; NULL: this one */
    struct seat *gang[MAX_GPUS];
    unsigned gang_size;
};

/* What this process is. */
struct identity {
    _Atomic uint32_t class_;
    char name[32];
    char folder[400];
    uint64_t memory_limit_bytes;
    uint64_t context_bytes;
    bool context_measured; /* context_bytes is only where to begin */
    uint64_t memory_wait_ns;
};
extern struct identity gate_me;
extern _Thread_local int gate_thread_class; /* -1: the process's */

#define load(p) atomic_load_explicit((p), memory_order_relaxed)
#define store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)

/* A knob within its range; one that a damaged page holds counts as its usual value. */
struct knob_range { uint64_t least, most, usual; };
extern const struct knob_range gate_knobs[TREADLE_KNOB_COUNT];

static inline uint64_t knob(const struct treadle_page *page, enum treadle_knob which)
{
    uint64_t value = load(&page->knobs[which]);
    const struct knob_range *range = &gate_knobs[which];
    return likely(value >= range->least && value <= range->most) ? value : range->usual;
}

static inline unsigned my_class(void)
{
    int own = gate_thread_class;
    return own >= 0 ? (unsigned)own : load(&gate_me.class_);
}

/* page.c: files and folders */
int page_open(const char *path, const char *uuid, bool create, int *fd, struct treadle_page **page);
int page_check(const struct treadle_page *page);
bool page_name_ok(const char *name);
void gate_say_once(unsigned what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* turnstile.c: seats */
struct seat *seat_take(const char *path, const char *uuid, unsigned class_, const char *name,
                       int *error);
struct seat *seat_watch(const char *path, int *error);
void seat_leave(struct seat *seat);
void seat_forget(struct seat *seat);
void seat_add_class(struct seat *seat, unsigned class_);
void seat_drop_class(struct seat *seat, unsigned class_);
struct seat *seat_renew(struct seat *seat);
void seat_after_fork(void);
void seat_clear_stray(struct seat *seat);
bool seat_reap(struct seat *seat, uint64_t suspects);
void seat_mark(struct seat *seat, unsigned class_);
void seat_unmark(struct seat *seat, unsigned class_);

/* wait.c: the gate */
bool gate_open_for(const struct seat *seat, unsigned class_, uint64_t now);
void gate_wait(struct seat *seat, unsigned class_, uint64_t length_ns);
bool turn_mine(struct seat *seat, unsigned class_, uint64_t now);
void turn_wait(struct seat *seat, unsigned class_);
void bell_ring(struct treadle_page *page);
void sleep_until(uint64_t when_ns);

/* helper.c: threads of the gate's own */
void helper_start(void *(*work)(void *));

/* seats.c: which seat a call belongs to */
extern _Atomic(struct seat *) seat_only; /* where one page serves every GPU that is visible */
struct seat *seats_find(void);
int seats_join(const char *path, const char *uuid, unsigned class_, const char *name);
struct seat *seats_number(int number);
struct seat *seats_ordinal(int ordinal);
int seats_count(void);
void seats_read_environment(void);
void seats_after_fork(void);
struct seat *seats_check(struct seat *seat);
int seats_leave(void);
void seats_join_early(void);
bool seats_configured(void);

/* classes.c */
void classes_join(struct seat *seat); /* a seat just taken: the classes of threads and streams */

/* api.c */
extern _Thread_local unsigned gate_thread_marks; /* that this thread has set and not cleared */

/* init.c */
void guard_pages(void);

/* The seat of the current context's GPU, or NULL where nothing is gated. */
static inline struct seat *seat_current(void)
{
    struct seat *only = atomic_load_explicit(&seat_only, memory_order_acquire);
    return likely(only != NULL) ? only : seats_find();
}

#endif
