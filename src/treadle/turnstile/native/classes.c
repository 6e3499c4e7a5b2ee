/* Which class a launch has: its stream's if that was given one, else its thread's, else the
 * process's. One process may so hold critical and background work at one seat: the seat is a
 * member of every class that a thread or a stream of the process has. */
#include <errno.h>

#include "classes.h"
#include "treadle.h"

#define SET 512u /* streams with a class; twice as many are taken as full */

/* A stream, by its handle, which others may read while one thread at a time writes. */
struct assigned { _Atomic uintptr_t stream; _Atomic int class_; };

static struct spin lock;
static struct assigned set[SET];
static unsigned users[TREADLE_CLASSES]; /* threads and streams with a class of their own */
_Atomic uint32_t class_streams;
_Thread_local int gate_thread_class = -1;

static void use(int class_)
{
    if (class_ < 0 || users[class_]++)
        return;
    for (int i = 0; i < seats_count(); i++) {
        struct seat *seat = seats_number(i);
        if (seat)
            seat_add_class(seat, (unsigned)class_);
    }
}

/* Nothing of this class is left: others need not mind it any more. */
static void unuse(int class_)
{
    if (class_ < 0 || --users[class_] || (unsigned)class_ == load(&gate_me.class_))
        return;
    for (int i = 0; i < seats_count(); i++) {
        struct seat *seat = seats_number(i);
        if (seat)
            seat_drop_class(seat, (unsigned)class_);
    }
}

void classes_join(struct seat *seat)
{
    spin_take(&lock);
    for (unsigned c = 0; c < TREADLE_CLASSES; c++)
        if (users[c])
            seat_add_class(seat, c);
    spin_give(&lock);
}

static uintptr_t handle_of(CUstream stream, bool per_thread)
{
    return (uintptr_t)stream_meant(stream, per_thread);
}

/* The entry of a stream, or where it would be put: NULL only if the set is full. */
static struct assigned *entry_of(uintptr_t handle, bool put)
{
    struct assigned *free_ = NULL;
    for (unsigned i = 0, at = (unsigned)(handle >> 4) * 2654435761u; i < SET; i++) {
        struct assigned *a = &set[(at + i) % SET];
        uintptr_t found = load(&a->stream);
        if (found == handle)
            return a;
        if (put && !free_ && load(&a->class_) < 0)
            free_ = a; /* was another stream's */
        if (!found)
            return put && free_ ? free_ : a;
    }
    return free_;
}

int class_of_stream(CUstream stream, bool per_thread)
{
    struct assigned *a = entry_of(handle_of(stream, per_thread), false);
    return a && load(&a->stream) == handle_of(stream, per_thread) ? load(&a->class_) : -1;
}

static int assign(uintptr_t handle, int class_)
{
    int error = 0;
    spin_take(&lock);
    struct assigned *a = entry_of(handle, true);
    bool mine = a && load(&a->stream) == handle;
    int before = mine ? load(&a->class_) : -1;
    if (class_ >= 0 && before < 0 && (!a || load(&class_streams) >= SET / 2)) {
        error = -ENOSPC;
    } else if (class_ != before) {
        if (!mine) {
            store(&a->class_, -1);
            store(&a->stream, handle);
        }
        use(class_);
        store(&a->class_, class_);
        unuse(before);
        add(&class_streams, (uint32_t)((class_ >= 0) - (before >= 0)));
    }
    spin_give(&lock);
    return error;
}

void class_forget_stream(CUstream stream)
{
    if (unlikely(load(&class_streams)))
        assign(handle_of(stream, false), -1);
}

void class_forget_streams(void)
{
    for (unsigned i = 0; load(&class_streams) && i < SET; i++)
        if (load(&set[i].stream))
            assign(load(&set[i].stream), -1);
}

/* Only the thread that forked is left, and none of its streams. */
void classes_after_fork(void)
{
    lock = (struct spin){0};
    for (unsigned i = 0; i < SET; i++)
        store(&set[i].stream, 0);
    store(&class_streams, 0);
    for (int c = 0; c < (int)TREADLE_CLASSES; c++)
        users[c] = c == gate_thread_class;
}

EXPORT int treadle_set_thread_class(int class_)
{
    if (class_ < -1 || class_ >= (int)TREADLE_CLASSES)
        return -EINVAL;
    if (class_ == gate_thread_class)
        return 0;
    spin_take(&lock);
    use(class_);
    unuse(gate_thread_class);
    gate_thread_class = class_;
    spin_give(&lock);
    return 0;
}

EXPORT int treadle_thread_class(void)
{
    return gate_thread_class;
}

EXPORT int treadle_set_stream_class(void *stream, int class_)
{
    if (class_ < -1 || class_ >= (int)TREADLE_CLASSES)
        return -EINVAL;
    return assign(handle_of(stream, false), class_);
}

EXPORT int treadle_stream_class(void *stream)
{
    return class_of_stream(stream, false);
}
