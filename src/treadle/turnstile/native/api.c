/* What programs call: to take part without CUDA, to mark by hand, to read and to describe. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launch.h"
#include "treadle.h"

static int page_path(char *path, size_t size, const char *folder, const char *uuid)
{
    if (!folder || !uuid || !page_name_ok(uuid))
        return -EINVAL;
    int n = snprintf(path, size, "%s/%s", folder, uuid);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

EXPORT int treadle_join(const char *folder, const char *uuid, unsigned class_, const char *name)
{
    char path[512];
    int error = page_path(path, sizeof path, folder, uuid);
    if (error)
        return error;
    if (class_ > TREADLE_CLASSES) /* one more: looks after others and launches nothing */
        return -EINVAL;
    if (class_ < TREADLE_CLASSES)
        store(&gate_me.class_, class_);
    if (name && *name)
        snprintf(gate_me.name, sizeof gate_me.name, "%s", name);
    int place = seats_join(path, uuid, class_, gate_me.name);
    if (place >= 0)
        guard_pages();
    return place;
}

/* What this thread has marked, so that it takes the same back whatever its class is then. */
#define DEPTH 64
_Thread_local unsigned gate_thread_marks;
static _Thread_local uint8_t marked_as[DEPTH];

static unsigned mark_class(void)
{
    unsigned class_ = my_class();
    return class_ < TREADLE_CLASSES ? class_ : TREADLE_CRITICAL;
}

/* The page may have been replaced since: a mark is a good moment to see. */
static struct seat *fresh(int number)
{
    struct seat *seat = seats_number(number);
    return seat && clock_ns() >= load(&seat->next_check_ns) ? seats_check(seat) : seat;
}

EXPORT int treadle_mark(void)
{
    int done = 0;
    unsigned class_ = mark_class();
    urgent_by_hand();
    if (!seats_count())
        seats_join_early();
    for (int i = 0; i < seats_count(); i++) {
        struct seat *seat = fresh(i);
        if (!seat || !seat->record)
            continue;
        store(&seat->record->flags, 1);
        seat_mark(seat, class_);
        done++;
    }
    if (done && gate_thread_marks++ < DEPTH)
        marked_as[gate_thread_marks - 1] = (uint8_t)class_;
    return done ? 0 : -ENOENT;
}

EXPORT int treadle_unmark(void)
{
    int done = 0;
    unsigned class_ = mark_class(); /* another thread's mark, of a thread like this one */
    if (gate_thread_marks && --gate_thread_marks < DEPTH)
        class_ = marked_as[gate_thread_marks];
    for (int i = 0; i < seats_count(); i++) {
        struct seat *seat = seats_number(i);
        if (!seat || !seat->record)
            continue;
        seat_unmark(seat, class_);
        done++;
    }
    return done ? 0 : -ENOENT;
}

EXPORT int treadle_leave(void)
{
    return seats_leave();
}

EXPORT int treadle_hold(int place, unsigned index, int on)
{
    struct seat *seat = seats_number(place);
    if (!seat || !seat->record || index >= TREADLE_RECORDS)
        return -EINVAL;
    store(&seat->page->record[index].hold, on ? seat->index + 1 : 0);
    bell_ring(seat->page);
    return 0;
}

EXPORT int treadle_clear_marks(int place, unsigned index)
{
    struct seat *seat = seats_number(place);
    if (!seat || index >= TREADLE_RECORDS)
        return -EINVAL;
    for (unsigned c = 0; c < TREADLE_CLASSES; c++)
        atomic_fetch_and(&seat->page->marks[c], ~(1ull << index));
    bell_ring(seat->page);
    return 0;
}

EXPORT int treadle_reap(int place)
{
    struct seat *seat = seats_number(place);
    return seat ? seat_reap(seat, ~0ull) : -EINVAL;
}

EXPORT int treadle_seat(int place)
{
    struct seat *seat = seats_number(place);
    return seat && seat->record ? (int)seat->index : -ENOENT;
}

EXPORT int treadle_wait(int place, unsigned long long length_ns)
{
    struct seat *seat = seats_number(place);
    if (!seat || !seat->record)
        return -ENOENT;
    uint64_t now = clock_ns();
    unsigned class_ = mark_class();
    if (!gate_open_for(seat, class_, now))
        gate_wait(seat, class_, length_ns);
    store(&seat->record->last_launch_ns, clock_ns());
    return 0;
}
