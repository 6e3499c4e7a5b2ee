/* The decision at each launch: count it, keep the time in flight within the budget, take turns,
 * and look at the turnstile last. No lock is held while anything here waits. */
#include "classes.h"
#include "launch.h"
#include "running.h"

#define SPIN_TAIL (50 * US)  /* the rest of a wait, too short to sleep through */
#define DRAIN_MOST (50 * MS)
#define CHECK_EVERY 4095u
#define QUIET_LONG 4

/* The budget grows with the silence of urgent work: the rarer its requests, the less the rare
 * late one weighs against what a small budget costs all the time. */
static uint64_t budget_now(const struct treadle_page *page, uint64_t now)
{
    uint64_t budget = knob(page, TREADLE_KNOB_budget_ns);
    uint64_t last = load(&page->last_urgent_ns), quiet = knob(page, TREADLE_KNOB_quiet_ns);
    if (budget && now > last && now - last > quiet) {
        uint64_t larger = knob(page, TREADLE_KNOB_quiet_budget_ns);
        if (!larger || larger > budget)
            budget = larger * (now - last > QUIET_LONG * quiet ? QUIET_LONG : 1);
    }
    return budget > 1000 * MS ? 1000 * MS : budget;
}

static _Atomic uint64_t *account_of(const struct launch *l)
{
    return l->kind == LAUNCH_COPY ? &l->seat->copy_until_ns : &l->seat->busy_until_ns;
}

/* How long until this launch fits into the budget: 0 if it does now. */
static uint64_t too_early(struct launch *l, uint64_t budget, uint64_t now)
{
    struct seat *seat = l->seat;
    uint64_t until = load(account_of(l));
    if (!budget)
        return 0;
    if (unlikely(load(&seat->late_until_ns) > now) && l->kind != LAUNCH_COPY)
        return POLL_WAITING; /* what should have ended has not: nothing fits behind it */
    if (until <= now)
        return 0;
    uint64_t slack = knob(seat->page, TREADLE_KNOB_slack_ns);
    uint64_t may = budget > l->high_ns + slack ? budget - l->high_ns : slack;
    uint64_t rest = until - now;
    return rest > may ? rest - may : 0;
}

/* Add the launch to the work in flight. False if another thread was quicker: look again. */
static bool enter(struct launch *l, uint64_t now)
{
    struct seat *seat = l->seat;
    _Atomic uint64_t *account = account_of(l);
    uint64_t until = load(account);
    uint64_t next = (until > now ? until : now) + l->length_ns;
    if (!atomic_compare_exchange_strong(account, &until, next))
        return false;
    if (l->kind != LAUNCH_COPY) {
        store(&seat->record->busy_until_ns, next);
        add(&seat->unanchored_ns, l->length_ns);
    }
    add(&seat->record->predicted_ns, l->length_ns);
    l->counted = true;
    return true;
}

static void pause_for(struct launch *l, uint64_t wait, uint64_t now)
{
    struct seat *seat = l->seat;
    uint64_t due = load(&seat->next_poll_ns);
    /* An event may complete before its time: ask now, then every few microseconds. */
    if (due && l->kind != LAUNCH_COPY && (now >= due || due > now + POLL_WAITING)) {
        track_poll(seat, now, true);
        due = load(&seat->next_poll_ns);
    }
    /* Work may end earlier than predicted: sleep most of the way, then look at its event. */
    uint64_t nap = due ? wait - wait / 8 : wait;
    if (nap > SPIN_TAIL + 20 * US) {
        sleep_until(now + nap - SPIN_TAIL);
        return;
    }
    uint64_t end = now + (wait < 3 * US ? wait : 3 * US);
    while (clock_ns() < end)
        cpu_relax();
}

/* Somebody more urgent, or an equal, is registered: budget, turn, turnstile, in this order. */
static void pass(struct launch *l, uint64_t equals)
{
    struct seat *seat = l->seat;
    struct treadle_page *page = seat->page;
    bool counts = l->kind <= LAUNCH_COPY;
    uint64_t now = clock_ns(), waited_from = 0;
    if (unlikely(now >= load(&seat->next_check_ns))) {
        l->seat = seat = seats_check(seat);
        page = seat->page;
    }
    for (;;) {
        uint64_t due = load(&seat->next_poll_ns);
        if (unlikely(due && now >= due))
            track_poll(seat, now, false);
        l->budget_ns = budget_now(page, now);
        uint64_t wait = counts ? too_early(l, l->budget_ns, now) : 0;
        if (wait) {
            if (!waited_from)
                waited_from = now;
            pause_for(l, wait, now);
            now = clock_ns();
            continue;
        }
        if (unlikely(equals) && !turn_mine(seat, l->class_, now)) {
            turn_wait(seat, l->class_);
            now = clock_ns();
            continue;
        }
        if (unlikely(!gate_open_for(seat, l->class_, now))) {
            if (counts && l->kind != LAUNCH_COPY)
                track_closed(l, now);
            gate_wait(seat, l->class_, l->high_ns);
            now = clock_ns();
            if (!gate_open_for(seat, l->class_, now) && (!counts || enter(l, now)))
                break; /* minimum duty, or closed again: this one goes */
            continue;
        }
        if (!counts || enter(l, now))
            break;
    }
    l->now = now;
    store(&seat->record->last_launch_ns, now);
    if (waited_from) {
        add(&seat->record->budget_waits, 1);
        add(&seat->record->budget_waited_ns, now - waited_from);
    }
}

/* Lengths are learned while nothing more urgent runs. */
static bool may_sample(const struct launch *l)
{
    uint64_t marks = 0;
    for (unsigned c = 0; c < l->class_; c++)
        marks |= load(&l->seat->page->marks[c]);
    return !marks;
}

/* Is there anybody whom a launch of this class may have to wait for? */
static inline bool minds(const struct seat *seat, unsigned class_, uint64_t equals)
{
    const struct treadle_page *page = seat->page;
    uint64_t urgent = load(&page->members[TREADLE_CRITICAL]);
    if (class_ == TREADLE_BACKGROUND)
        urgent |= load(&page->members[TREADLE_NORMAL]);
    return urgent | equals | seat->gang_size | load(&seat->record->hold);
}

/* The budget that a launch now would have to keep to; 0: none. */
uint64_t launch_bound(CUstream stream, bool per_thread)
{
    const struct seat *seat = seat_current();
    unsigned class_ = launch_class(stream, per_thread);
    if (!seat || load(&seat->broken) || class_ == TREADLE_CRITICAL)
        return 0;
    uint64_t equals = load(&seat->page->members[class_]) & ~seat->bit;
    return minds(seat, class_, equals) ? budget_now(seat->page, clock_ns()) : 0;
}

static void admit(struct launch *l)
{
    l->seat = NULL;
    if (capturing(l->stream, l->per_thread)) {
        if (l->kind == LAUNCH_KERNEL && l->caller)
            name_caller(l->function, l->caller); /* a graph that holds it stays whole */
        return;
    }
    struct seat *seat = seat_current();
    if (!seat || unlikely(load(&seat->broken)))
        return;
    struct treadle_page *page = seat->page;
    struct treadle_record *record = seat->record;
    unsigned class_ = launch_class(l->stream, l->per_thread);
    l->seat = seat;
    l->class_ = class_;
    l->sample = NULL;
    l->counted = false;
    l->urgent = NULL;
    uint64_t n = add(l->kind == LAUNCH_COPY ? &record->copies : &record->launches, 1);
    if (unlikely((n & CHECK_EVERY) == 0)) {
        l->seat = seat = seats_check(seat);
        page = seat->page;
        record = seat->record;
    }
    if (class_ == TREADLE_CRITICAL) {
        urgent_launch(l);
        return;
    }
    if (unlikely(l->kind == LAUNCH_COLLECTIVE))
        return;
    bool due = false;
    if (likely(l->kind <= LAUNCH_COPY)) {
        uint64_t place = l->kind == LAUNCH_KERNEL ? learn_place(l->key) : l->key;
        l->lesson = learn_lesson(l->key, place);
        l->length_ns = learn_length(&l->lesson);
        l->high_ns = learn_high(&l->lesson);
        if (unlikely(l->usual_ns && !learn_known(&l->lesson)))
            l->length_ns = l->high_ns = l->usual_ns;
        if (unlikely(learn_new(&l->lesson)) && l->caller && name_caller(l->function, l->caller)) {
            l->kind = LAUNCH_COLLECTIVE;
            return;
        }
        due = learn_due(&l->lesson);
    } else {
        l->length_ns = l->high_ns = 20 * US;
    }
    uint64_t equals = load(&page->members[class_]) & ~seat->bit;
    if (likely(!minds(seat, class_, equals))) {
        if (load(&seat->gated))
            store(&seat->gated, 0);
    } else {
        if (unlikely(!load(&seat->gated))) {
            store(&seat->gated, 1);
            if (n > 1)
                track_drain(l, DRAIN_MOST);
        }
        pass(l, equals);
    }
    if (unlikely(class_ != TREADLE_BACKGROUND))
        urgent_launch(l);
    if (unlikely(due) && may_sample(l)) {
        track_poll(seat, clock_ns(), false); /* while the gate is open nothing else does */
        track_begin(l);
    }
}

void launch_before(struct launch *l)
{
    admit(l);
    if (unlikely(load(&running_watched)) && l->seat)
        running_begin(l);
}

void launch_after(struct launch *l, CUresult result)
{
    if (!l->seat)
        return;
    if (unlikely(load(&running_watched)))
        running_launched(l, result);
    if (l->sample)
        track_end(l);
    if (unlikely(l->urgent != NULL))
        urgent_launched(l);
    if (!l->counted)
        return;
    if (unlikely(result != CUDA_SUCCESS))
        add(account_of(l), -l->length_ns);
    if (result != CUDA_SUCCESS || l->kind == LAUNCH_COPY)
        return;
    uintptr_t stream = (uintptr_t)stream_meant(l->stream, l->per_thread);
    if (unlikely(load(&l->seat->stream) != stream)) {
        store(&l->seat->stream, stream);
        store(&l->seat->mixed, 1);
    }
    track_anchor(l, l->now);
}
