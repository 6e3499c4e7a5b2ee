/* The gate: who may launch now, waiting until one may, and turns among equals. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate.h"

#define LOOK_AGAIN (2 * MS)   /* longest sleep between looks at who is alive */
#define SPIN (20 * US)
#define AWAKE (40 * US) /* before the probable end of a mark, and twice that after it */
#define SHORT_MARK (20 * MS)
#define LINGER_MOST (1000 * MS)
#define OWN_MOST (1000 * MS)
#define DUTY_WINDOW (1000 * MS)

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, value, &t, NULL, 0);
}

void bell_ring(struct treadle_page *page)
{
    atomic_fetch_add(&page->bell, 1);
    syscall(SYS_futex, (uint32_t *)&page->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleep to about a moment; the caller spins the rest. */
void sleep_until(uint64_t when_ns)
{
    static _Thread_local bool sharp;
    if (!sharp) {
        sharp = true;
        prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    }
    struct timespec t = {(time_t)(when_ns / 1000000000ull), (long)(when_ns % 1000000000ull)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* The records whose marks hold back class `class_`, and its lingering: 0 when open. */
static uint64_t holders(const struct treadle_page *page, unsigned class_)
{
    uint64_t marks = 0;
    for (unsigned c = 0; c < class_ && c < TREADLE_CLASSES; c++)
        marks |= atomic_load(&page->marks[c]);
    return marks;
}

static bool lingering(const struct treadle_page *page, unsigned class_, uint64_t now)
{
    for (unsigned c = 0; c < class_ && c < TREADLE_CLASSES - 1; c++) {
        uint64_t until = load(&page->closed_until_ns[c]);
        if (unlikely(until > now) && until - now <= LINGER_MOST)
            return true;
    }
    return false;
}

static bool held(const struct seat *seat)
{
    return seat->record && unlikely(load(&seat->record->hold));
}

static bool page_open_for(const struct seat *seat, unsigned class_, uint64_t now)
{
    if (unlikely(load(&seat->broken)))
        return true;
    if (class_ == TREADLE_CRITICAL)
        return true;
    return !holders(seat->page, class_) && !lingering(seat->page, class_, now) && !held(seat);
}

/* The first closed page among this one and those of its gang, or NULL. */
static const struct seat *closed_page(const struct seat *seat, unsigned class_, uint64_t now)
{
    if (!page_open_for(seat, class_, now))
        return seat;
    for (unsigned i = 0; i < seat->gang_size; i++)
        if (!page_open_for(seat->gang[i], class_, now))
            return seat->gang[i];
    return NULL;
}

bool gate_open_for(const struct seat *seat, unsigned class_, uint64_t now)
{
    return closed_page(seat, class_, now) == NULL;
}

/* Whoever holds others must itself be alive. */
static void check_hold(struct seat *seat)
{
    uint32_t by = seat->record ? load(&seat->record->hold) : 0;
    if (!by)
        return;
    if (by > TREADLE_RECORDS || seat_reap(seat, 1ull << (by - 1)) ||
        load(&seat->page->record[by - 1].state) != TREADLE_SEATED)
        store(&seat->record->hold, 0);
}

/* After a while of waiting: whoever is waited for must be alive, and mean it. */
static void look_after(struct seat *seat, uint64_t suspects)
{
    seat_clear_stray(seat);
    seat_reap(seat, suspects);
    check_hold(seat);
}

/* Minimum duty over a window: a class is owed its share of all time, and paid by the time that
 * the gate stands open and by what is let through. What it had in excess counts for a window. */
static void duty_pay(struct seat *seat, uint64_t now, bool open)
{
    int64_t duty = (int64_t)knob(seat->page, TREADLE_KNOB_duty_ppm);
    spin_take(&seat->duty_lock);
    uint64_t elapsed = now > seat->duty_at_ns ? now - seat->duty_at_ns : 0;
    if (elapsed > DUTY_WINDOW)
        elapsed = DUTY_WINDOW;
    seat->duty_at_ns = now;
    int64_t owed = (int64_t)elapsed / 1000 * duty / 1000, most = (int64_t)DUTY_WINDOW / 1000 * duty / 1000;
    seat->duty_ns += owed - (open ? (int64_t)elapsed : 0);
    if (seat->duty_ns < -most)
        seat->duty_ns = -most;
    if (seat->duty_ns > most)
        seat->duty_ns = most;
    spin_give(&seat->duty_lock);
}

/* May a launch of this length pass a closed gate? If so it is paid for. */
static bool duty_passes(struct seat *seat, uint64_t now, uint64_t length)
{
    if (!knob(seat->page, TREADLE_KNOB_duty_ppm) || held(seat))
        return false;
    duty_pay(seat, now, false);
    spin_take(&seat->duty_lock);
    bool passes = seat->duty_ns > 0 && seat->duty_ns >= (int64_t)length;
    /* Longer than all that a window can owe: then as soon as that is owed. */
    int64_t most = (int64_t)(DUTY_WINDOW / 1000 * knob(seat->page, TREADLE_KNOB_duty_ppm) / 1000);
    passes |= seat->duty_ns >= most && most > 0;
    if (passes)
        seat->duty_ns -= (int64_t)length;
    spin_give(&seat->duty_lock);
    return passes;
}

static void waiting_begins(struct seat *seat, uint64_t now)
{
    if (!seat->record)
        return;
    if (add(&seat->threads_waiting, 1) == 0) {
        store(&seat->record->waiting_since_ns, now);
        atomic_fetch_or(&seat->page->waiting, seat->bit);
    }
}

static void waiting_ends(struct seat *seat)
{
    if (!seat->record)
        return;
    if (atomic_fetch_sub(&seat->threads_waiting, 1) == 1) {
        store(&seat->record->waiting_since_ns, 0);
        atomic_fetch_and(&seat->page->waiting, ~seat->bit);
        /* Another thread may have begun to wait in between; it sets the bit at its next look. */
    }
}

/* When the mark that closes the gate will probably fall, if marks are short; 0 if not known. */
static uint64_t probable_end(const struct treadle_page *page, uint64_t marks)
{
    if (!marks)
        return 0;
    const struct treadle_record *holder = &page->record[__builtin_ctzll(marks)];
    uint64_t taken = load(&holder->marks_taken);
    uint64_t usual = taken ? load(&holder->marked_ns) / taken : 0;
    return usual && usual < SHORT_MARK ? load(&page->last_urgent_ns) + usual : 0;
}

/* Is it only this process's own mark that still holds it, for too long? What that marks may itself
 * wait for this launch; where this very thread has set it, it does. */
static bool own_mark_only(const struct seat *seat, unsigned class_, uint64_t waited)
{
    return seat->record && !held(seat) && holders(seat->page, class_) == seat->bit &&
           (gate_thread_marks || waited > OWN_MOST);
}

/* Wait until class `class_` may launch work of `length_ns`, or minimum duty lets it through. */
void gate_wait(struct seat *seat, unsigned class_, uint64_t length_ns)
{
    uint64_t start = clock_ns(), now = start;
    const struct seat *closed;
    while ((closed = closed_page(seat, class_, now)) && now - start < SPIN) {
        for (int i = 0; i < 16; i++)
            cpu_relax();
        now = clock_ns();
    }
    if (closed) {
        struct seat *at = (struct seat *)closed;
        uint64_t looked = start;
        waiting_begins(seat, start);
        duty_pay(seat, start, true);
        for (;;) {
            uint32_t bell = atomic_load(&at->page->bell);
            if (at->record)
                atomic_fetch_or(&at->page->waiting, at->bit);
            now = clock_ns();
            closed = closed_page(seat, class_, now);
            if (!closed)
                break;
            if (closed != at) {
                at = (struct seat *)closed;
                continue;
            }
            if (duty_passes(seat, now, length_ns)) {
                if (seat->record)
                    add(&seat->record->duty_passes, 1);
                break;
            }
            if (unlikely(own_mark_only(at, class_, now - start)))
                break;
            uint64_t nap = seat->gang_size ? LOOK_AGAIN / 4 : LOOK_AGAIN;
            /* Be awake when the gate opens: to wake up takes as long as a short kernel. */
            uint64_t end = probable_end(at->page, holders(at->page, class_));
            if (end > now + AWAKE && end - now - AWAKE < nap) {
                nap = end - now - AWAKE;
            } else if (end && now < end + 2 * AWAKE && now + AWAKE >= end &&
                       now - looked < 2 * LOOK_AGAIN) {
                for (int i = 0; i < 16; i++)
                    cpu_relax();
                continue;
            }
            if (!holders(at->page, class_)) {
                uint64_t until = now + nap;
                for (unsigned c = 0; c < TREADLE_CLASSES - 1; c++) {
                    uint64_t linger = load(&at->page->closed_until_ns[c]);
                    if (linger > now && linger < until)
                        until = linger;
                }
                nap = until - now;
            }
            futex_wait(&at->page->bell, bell, nap);
            now = clock_ns();
            if (now - looked < LOOK_AGAIN)
                continue;
            looked = now;
            if (page_check(at->page)) {
                atomic_store(&at->broken, 1);
                gate_say_once(2, "the turnstile %s is damaged: the gate stays open", at->path);
                continue;
            }
            look_after(at, holders(at->page, class_));
        }
        waiting_ends(seat);
        duty_pay(seat, clock_ns(), false);
    }
    now = clock_ns();
    if (seat->record) {
        add(&seat->record->waits, 1);
        add(&seat->record->waited_ns, now - start);
    }
}

/* ---- turns among equals ---- */

static uint64_t turn_word(unsigned index, uint64_t since)
{
    return since << 8 | (index + 1);
}

static void hand_over(struct seat *seat, unsigned class_, uint64_t turn, uint64_t now)
{
    struct treadle_page *page = seat->page;
    uint64_t want = atomic_load(&page->want[class_]) & ~seat->bit;
    if (!want)
        return;
    unsigned shift = (seat->index + 1) % TREADLE_RECORDS;
    uint64_t turned = shift ? want >> shift | want << (64 - shift) : want;
    unsigned next = ((unsigned)__builtin_ctzll(turned) + shift) % TREADLE_RECORDS;
    if (atomic_compare_exchange_strong(&page->turn[class_], &turn, turn_word(next, now)))
        bell_ring(page);
}

static bool stale(struct seat *seat, unsigned class_, uint64_t turn, uint64_t now)
{
    unsigned index = (unsigned)(turn & 0xff) - 1;
    if (index >= TREADLE_RECORDS)
        return true;
    struct treadle_record *holder = &seat->page->record[index];
    if (load(&holder->state) != TREADLE_SEATED ||
        !(load(&seat->page->members[class_]) & 1ull << index))
        return true;
    uint64_t grace = knob(seat->page, TREADLE_KNOB_grace_ns);
    uint64_t active = load(&holder->busy_until_ns), launch = load(&holder->last_launch_ns);
    uint64_t since = turn >> 8;
    if (launch > active)
        active = launch;
    if (since > active)
        active = since;
    if (active > now + 10000 * MS) /* nonsense, not a promise */
        return true;
    return now > active + grace;
}

/* May this process launch as far as its equals are concerned? Passes the turn on when due. */
bool turn_mine(struct seat *seat, unsigned class_, uint64_t now)
{
    struct treadle_page *page = seat->page;
    if (class_ == TREADLE_CRITICAL || !seat->record || load(&seat->broken))
        return true;
    if (likely(!(load(&page->members[class_]) & ~seat->bit)))
        return true;
    uint64_t turn = atomic_load(&page->turn[class_]);
    if ((turn & 0xff) == seat->index + 1) {
        uint64_t since = turn >> 8;
        /* At least one launch a turn: else two that wake late would pass it to and fro. */
        if (likely(now < since + knob(page, TREADLE_KNOB_quantum_ns)) ||
            load(&seat->record->last_launch_ns) < since ||
            !(atomic_load(&page->want[class_]) & ~seat->bit))
            return true;
        hand_over(seat, class_, turn, now);
        return false;
    }
    bool free_ = turn == 0;
    if (!free_ && gate_open_for(seat, class_, now))
        free_ = stale(seat, class_, turn, now);
    if (!free_)
        return false;
    return atomic_compare_exchange_strong(&page->turn[class_], &turn,
                                          turn_word(seat->index, now));
}

/* The work that others still have in flight counts against whoever has the turn now. */
static void inherit_flight(struct seat *seat, uint64_t now)
{
    uint64_t latest = 0, limit = now + 1000 * MS;
    for (unsigned i = 0; i < TREADLE_RECORDS; i++) {
        struct treadle_record *record = &seat->page->record[i];
        if (record == seat->record || load(&record->state) != TREADLE_SEATED)
            continue; /* a critical process's time is that of its less urgent work */
        uint64_t until = load(&record->busy_until_ns);
        if (until > latest && until < limit)
            latest = until;
    }
    uint64_t mine = load(&seat->busy_until_ns);
    while (latest > mine &&
           !atomic_compare_exchange_weak(&seat->busy_until_ns, &mine, latest)) {
    }
}

void turn_wait(struct seat *seat, unsigned class_)
{
    struct treadle_page *page = seat->page;
    uint64_t start = clock_ns(), now = start, looked = start;
    waiting_begins(seat, start);
    for (;;) {
        uint32_t bell = atomic_load(&page->bell);
        atomic_fetch_or(&page->want[class_], seat->bit);
        atomic_fetch_or(&page->waiting, seat->bit);
        now = clock_ns();
        if (turn_mine(seat, class_, now))
            break;
        uint64_t nap = knob(page, TREADLE_KNOB_grace_ns) / 2;
        if (nap > LOOK_AGAIN)
            nap = LOOK_AGAIN;
        futex_wait(&page->bell, bell, nap);
        now = clock_ns();
        if (now - looked < LOOK_AGAIN)
            continue;
        looked = now;
        if (page_check(page)) {
            atomic_store(&seat->broken, 1);
            gate_say_once(2, "the turnstile %s is damaged: the gate stays open", seat->path);
            break;
        }
        uint64_t turn = atomic_load(&page->turn[class_]), suspects = holders(page, class_);
        unsigned index = (unsigned)(turn & 0xff) - 1;
        if (turn && index < TREADLE_RECORDS)
            suspects |= 1ull << index;
        look_after(seat, suspects);
    }
    atomic_fetch_and(&page->want[class_], ~seat->bit);
    waiting_ends(seat);
    inherit_flight(seat, now);
    add(&seat->record->turns, 1);
    add(&seat->record->waits, 1);
    add(&seat->record->waited_ns, now - start);
}
