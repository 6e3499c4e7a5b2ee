/* Seats: taking one, leaving it, marks, and taking back what the dead have left.
 *
 * A seat belongs to whoever holds the write lock on one byte of the file, through an open file
 * description of its own. The kernel drops that lock when the process dies, whatever it was
 * doing. To take anything back from a record one first takes its lock, so nobody ever clears
 * the words of a living member or of one that is just sitting down. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate.h"

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static struct spin reaping; /* two threads share a description: their locks do not conflict */

static int byte_lock(int fd, unsigned index, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    lock.l_start = (off_t)(__builtin_offsetof(struct treadle_page, record) +
                           index * sizeof(struct treadle_record));
    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* Take record `index` out of every word of the header, and let go of whom it holds: the next to
 * sit there knows nothing of them. The caller holds its lock. */
static void clear_words(struct treadle_page *page, unsigned index)
{
    uint64_t bit = 1ull << index;
    bool was_marked = false;
    for (unsigned c = 0; c < TREADLE_CLASSES; c++) {
        was_marked |= (atomic_fetch_and(&page->marks[c], ~bit) & bit) != 0;
        atomic_fetch_and(&page->members[c], ~bit);
        atomic_fetch_and(&page->want[c], ~bit);
        uint64_t turn = atomic_load(&page->turn[c]);
        if ((turn & 0xff) == index + 1)
            atomic_compare_exchange_strong(&page->turn[c], &turn, 0);
    }
    atomic_fetch_and(&page->waiting, ~bit);
    store(&page->running_since_ns[index], 0);
    bool held = false;
    for (unsigned i = 0; i < TREADLE_RECORDS; i++) {
        uint32_t by = index + 1;
        if (unlikely(load(&page->record[i].hold) == by))
            held |= atomic_compare_exchange_strong(&page->record[i].hold, &by, 0);
    }
    if (was_marked || held)
        bell_ring(page);
}

static void clear_record(struct treadle_record *record)
{
    uint32_t generation = load(&record->generation);
    memset((void *)record, 0, sizeof *record);
    store(&record->generation, generation + 1);
}

/* Map the page and remember which file it was. */
static struct seat *look(const char *path, const char *uuid, bool create, int *error)
{
    struct seat *seat = calloc(1, sizeof *seat);
    if (!seat) {
        *error = -ENOMEM;
        return NULL;
    }
    struct stat about;
    for (int tries = 0; tries < 5; tries++) {
        *error = page_open(path, uuid, create, &seat->fd, &seat->page);
        if (*error != -ESTALE && *error != -ENOENT)
            break;
    }
    if (*error || fstat(seat->fd, &about) < 0) {
        free(seat);
        return NULL;
    }
    seat->device = about.st_dev;
    seat->inode = about.st_ino;
    snprintf(seat->path, sizeof seat->path, "%s", path);
    store(&seat->next_check_ns, clock_ns() + 1000 * MS);
    return seat;
}

struct seat *seat_watch(const char *path, int *error)
{
    const char *slash = strrchr(path, '/');
    return look(path, slash ? slash + 1 : path, true, error);
}

struct seat *seat_take(const char *path, const char *uuid, unsigned class_, const char *name,
                       int *error)
{
    struct seat *seat = look(path, uuid, true, error);
    if (!seat)
        return NULL;
    for (unsigned i = 0; i < TREADLE_RECORDS; i++) {
        struct treadle_record *record = &seat->page->record[i];
        if (byte_lock(seat->fd, i, F_WRLCK) < 0)
            continue;
        clear_words(seat->page, i);
        clear_record(record);
        seat->index = i;
        seat->bit = 1ull << i;
        seat->record = record;
        store(&record->class_, class_);
        store(&record->pid, (uint32_t)getpid());
        store(&record->joined_ns, clock_ns());
        snprintf(record->name, sizeof record->name, "%s", name);
        atomic_store(&record->state, TREADLE_SEATED);
        if (class_ < TREADLE_CLASSES)
            seat_add_class(seat, class_);
        return seat;
    }
    *error = -EAGAIN; /* 64 living members */
    munmap(seat->page, TREADLE_PAGE_BYTES);
    close(seat->fd);
    free(seat);
    return NULL;
}

void seat_add_class(struct seat *seat, unsigned class_)
{
    if (seat->record && class_ < TREADLE_CLASSES &&
        !(load(&seat->page->members[class_]) & seat->bit))
        atomic_fetch_or(&seat->page->members[class_], seat->bit);
}

/* Not while it is marked: the mark is taken back by members of that class only. */
void seat_drop_class(struct seat *seat, unsigned class_)
{
    if (!seat->record || load(&seat->broken))
        return;
    spin_take(&seat->mark_lock);
    if (!seat->mark_count[class_]) {
        atomic_fetch_and(&seat->page->members[class_], ~seat->bit);
        atomic_fetch_and(&seat->page->want[class_], ~seat->bit);
    }
    spin_give(&seat->mark_lock);
}

/* Is the descriptor still ours? A program that closes all it finds may have closed it. */
static bool descriptor_ours(const struct seat *seat)
{
    struct stat about;
    return fstat(seat->fd, &about) == 0 && about.st_dev == seat->device &&
           about.st_ino == seat->inode;
}

/* Give the seat up in order. The mapping stays: another thread may be looking at it. */
void seat_leave(struct seat *seat)
{
    atomic_store(&seat->broken, 1);
    if (!descriptor_ours(seat))
        return;
    if (seat->record && page_check(seat->page) == 0) {
        clear_words(seat->page, seat->index);
        clear_record(seat->record);
    }
    close(seat->fd);
    seat->fd = -1;
}

void seat_after_fork(void)
{
    reaping = (struct spin){0};
}

/* In a forked child: the seat is the parent's. */
void seat_forget(struct seat *seat)
{
    atomic_store(&seat->broken, 1);
    if (seat->fd >= 0 && descriptor_ours(seat))
        close(seat->fd);
    seat->fd = -1;
}

/* Take back what dead members among `suspects` have left. True if anything was. In another file,
 * whose descriptor has the number now, nobody has a lock and all would seem dead. */
bool seat_reap(struct seat *seat, uint64_t suspects)
{
    bool any = false;
    if (seat->record)
        suspects &= ~seat->bit;
    if (!suspects || seat->fd < 0 || !descriptor_ours(seat) || !spin_try(&reaping))
        return false;
    for (; suspects; suspects &= suspects - 1) {
        unsigned i = (unsigned)__builtin_ctzll(suspects);
        if (byte_lock(seat->fd, i, F_WRLCK) < 0)
            continue;
        clear_words(seat->page, i);
        if (load(&seat->page->record[i].state) != TREADLE_FREE)
            clear_record(&seat->page->record[i]);
        byte_lock(seat->fd, i, F_UNLCK);
        any = true;
    }
    spin_give(&reaping);
    if (any)
        bell_ring(seat->page);
    return any;
}

/* Clear marks of this process's own that it never set: the page was damaged. */
void seat_clear_stray(struct seat *seat)
{
    if (!seat->record)
        return;
    spin_take(&seat->mark_lock);
    for (unsigned c = 0; c < TREADLE_CLASSES; c++)
        if (!seat->mark_count[c] && load(&seat->page->marks[c]) & seat->bit)
            atomic_fetch_and(&seat->page->marks[c], ~seat->bit);
    spin_give(&seat->mark_lock);
    uint32_t hold = load(&seat->record->hold);
    if (hold == seat->index + 1)
        store(&seat->record->hold, 0);
}

/* Its marks go to the seat that takes this one's place, as do those taken back later by whoever
 * set them here. */
static void hand_marks(struct seat *seat, struct seat *next)
{
    spin_take(&seat->mark_lock);
    for (unsigned c = 0; c < TREADLE_CLASSES; c++)
        if (seat->mark_count[c]) {
            seat_mark(next, c);
            next->mark_count[c] = seat->mark_count[c];
            seat->mark_count[c] = 0;
        }
    seat->successor = next;
    spin_give(&seat->mark_lock);
}

/* Takes the lock on the marks of a seat, or of the one that took its place. */
static struct seat *lock_marks(struct seat *seat)
{
    spin_take(&seat->mark_lock);
    while (seat->successor) {
        struct seat *next = seat->successor;
        spin_give(&seat->mark_lock);
        spin_take(&next->mark_lock);
        seat = next;
    }
    return seat;
}

/* Now and then: is this the page that others use, and is the seat still ours? Returns the seat
 * to use from now on, which is a new one where the page was removed or replaced, where this
 * process was told to move, or where its lock was lost. */
struct seat *seat_renew(struct seat *seat)
{
    uint64_t now = clock_ns(), due = load(&seat->next_check_ns);
    if (now < due ||
        !atomic_compare_exchange_strong(&seat->next_check_ns, &due, now + 1000 * MS))
        return seat;
    int bad = page_check(seat->page);
    seat_clear_stray(seat);
    uint64_t members = 0;
    for (unsigned c = 0; c < TREADLE_CLASSES; c++)
        members |= load(&seat->page->members[c]);
    if (!bad)
        seat_reap(seat, members); /* the dead bound others no longer */
    char path[512];
    snprintf(path, sizeof path, "%s", seat->path);
    bool move = false;
    if (!bad && seat->record && seat->record->moved_to[0]) {
        char to[sizeof seat->record->moved_to + 1] = {0};
        memcpy(to, seat->record->moved_to, sizeof to - 1);
        char *slash = strrchr(path, '/');
        if (page_name_ok(to) && slash && (size_t)(slash - path) + strlen(to) + 2 < sizeof path) {
            strcpy(slash + 1, to);
            move = strcmp(path, seat->path) != 0;
        }
    }
    struct stat about;
    bool same = stat(seat->path, &about) == 0 && about.st_dev == seat->device &&
                about.st_ino == seat->inode && about.st_size >= (off_t)TREADLE_PAGE_BYTES;
    bool owned = descriptor_ours(seat);
    bool seated = !seat->record || (owned &&
                                    load(&seat->record->state) == TREADLE_SEATED &&
                                    load(&seat->record->pid) == (uint32_t)getpid());
    if (same && seated && !bad && !move)
        return seat;
    int error = 0;
    const char *slash = strrchr(path, '/');
    struct seat *next;
    if (!seat->record)
        next = seat_watch(path, &error);
    else
        next = seat_take(path, slash ? slash + 1 : path, load(&gate_me.class_), gate_me.name,
                         &error);
    if (!next) {
        atomic_store(&seat->broken, 1);
        gate_say_once(error == -EPROTONOSUPPORT ? 1 : 2,
                      "the turnstile %s cannot be used (%s): the gate stays open", path,
                      error == -EPROTONOSUPPORT ? "another version"
                      : error == -EPROTO        ? "not a turnstile"
                                                : strerror(-error));
        return seat;
    }
    memcpy(next->gang, seat->gang, sizeof next->gang);
    next->gang_size = seat->gang_size;
    if (next->record && seat->record && !bad) {
        store(&next->record->memory_limit_bytes, load(&seat->record->memory_limit_bytes));
        store(&next->record->memory_used_bytes, load(&seat->record->memory_used_bytes));
    }
    hand_marks(seat, next);
    if (owned)
        seat_leave(seat);
    else /* its number may be the new one's, and its record another member's */
        atomic_store(&seat->broken, 1);
    return next;
}

void seat_mark(struct seat *seat, unsigned class_)
{
    if (!seat->record || class_ >= TREADLE_CLASSES)
        return;
    uint64_t now = clock_ns();
    seat = lock_marks(seat);
    struct treadle_page *page = seat->page;
    if (!load(&seat->broken) && seat->mark_count[class_]++ == 0) {
        store(&seat->marked_since_ns, now);
        add(&seat->record->marks_taken, 1);
        store(&page->last_urgent_ns, now);
        seat_add_class(seat, class_);
        if (!atomic_fetch_or(&page->marks[class_], seat->bit))
            atomic_fetch_add(&page->marks_set, 1);
    }
    spin_give(&seat->mark_lock);
}

void seat_unmark(struct seat *seat, unsigned class_)
{
    if (!seat->record || class_ >= TREADLE_CLASSES)
        return;
    uint64_t now = clock_ns(), before = 0;
    seat = lock_marks(seat);
    struct treadle_page *page = seat->page;
    if (!load(&seat->broken) && seat->mark_count[class_] && --seat->mark_count[class_] == 0) {
        uint64_t linger = knob(page, TREADLE_KNOB_linger_ns);
        store(&page->last_urgent_ns, now);
        if (linger && class_ < TREADLE_CLASSES - 1)
            store(&page->closed_until_ns[class_], now + linger);
        before = atomic_fetch_and(&page->marks[class_], ~seat->bit);
        if (before & seat->bit)
            add(&seat->record->marked_ns, now - load(&seat->marked_since_ns));
    }
    spin_give(&seat->mark_lock);
    if (before == seat->bit && atomic_load(&page->waiting))
        bell_ring(page);
}
