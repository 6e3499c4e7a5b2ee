/* Which page a call belongs to: from the environment, by the GPU of the current context.
 *
 * TREADLE_TURNSTILE is a page file (for every GPU that the process can see), a folder of pages
 * named by GPU UUID, or a list `key=file,key=file` where a key is a device ordinal or a UUID.
 * TREADLE_GANG lists the pages of all GPUs that the ranks of one job use, separated by commas. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_min.h"
#include "driver.h"
#include "gate.h"

#define PLACES 32

/* A page that this process sits at, or sat at before a fork. */
struct place {
    char path[512];
    _Atomic(struct seat *) seat;
};

static struct place places[PLACES];
static _Atomic int places_used;
static _Atomic int by_ordinal[MAX_GPUS]; /* 1 + place; -1: no page for this GPU; 0: unknown */
static _Atomic bool configured;
static char setting[4096], gang_setting[4096];
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;

_Atomic(struct seat *) seat_only;
struct identity gate_me = {.class_ = TREADLE_BACKGROUND};

static unsigned parse_class(const char *text, unsigned otherwise)
{
    static const char *const names[] = {"critical", "normal", "background"};
    for (unsigned c = 0; text && c < TREADLE_CLASSES; c++)
        if (!strcmp(text, names[c]))
            return c;
    if (text && *text)
        gate_say_once(3, "TREADLE_CLASS=%s is not critical, normal or background", text);
    return otherwise;
}

static uint64_t parse_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end) {
        gate_say_once(4, "%s=%s is not a whole number", name, text);
        return otherwise;
    }
    return value;
}

void seats_read_environment(void)
{
    const char *text = getenv("TREADLE_TURNSTILE");
    if (text && *text)
        snprintf(setting, sizeof setting, "%s", text);
    text = getenv("TREADLE_GANG");
    if (text)
        snprintf(gang_setting, sizeof gang_setting, "%s", text);
    store(&gate_me.class_, parse_class(getenv("TREADLE_CLASS"), TREADLE_BACKGROUND));
    text = getenv("TREADLE_NAME");
    snprintf(gate_me.name, sizeof gate_me.name, "%s",
             text && *text ? text : program_invocation_short_name);
    gate_me.memory_limit_bytes = parse_number("TREADLE_MEMORY_BYTES", 0);
    gate_me.context_measured = !getenv("TREADLE_CONTEXT_BYTES");
    gate_me.context_bytes = parse_number("TREADLE_CONTEXT_BYTES", 500ull << 20);
    gate_me.memory_wait_ns = parse_number("TREADLE_MEMORY_WAIT_MS", 0) * MS;
    store(&configured, setting[0] != 0);
}

/* Join a page, or find that this process sits there already. Returns the place, or an error. */
static int join_locked(const char *path, const char *uuid, unsigned class_, const char *name)
{
    int used = load(&places_used), free_ = -1;
    for (int i = 0; i < used; i++) {
        struct seat *seat = atomic_load(&places[i].seat);
        if (!seat)
            free_ = i;
        else if (!strcmp(places[i].path, path) && !load(&seat->broken)) {
            seat_add_class(seat, class_);
            return i;
        }
    }
    if (free_ < 0 && used == PLACES)
        return -1;
    int error;
    struct seat *seat = seat_take(path, uuid, class_, name, &error);
    if (!seat)
        return error;
    store(&seat->record->memory_limit_bytes, gate_me.memory_limit_bytes);
    if (free_ < 0)
        free_ = atomic_fetch_add(&places_used, 1);
    snprintf(places[free_].path, sizeof places[free_].path, "%s", path);
    atomic_store_explicit(&places[free_].seat, seat, memory_order_release);
    classes_join(seat);
    return free_;
}

int seats_join(const char *path, const char *uuid, unsigned class_, const char *name)
{
    pthread_mutex_lock(&joining);
    int place = join_locked(path, uuid, class_, name);
    pthread_mutex_unlock(&joining);
    return place;
}

struct seat *seats_number(int number)
{
    if (number < 0 || number >= load(&places_used))
        return NULL;
    return atomic_load_explicit(&places[number].seat, memory_order_acquire);
}

/* Of a GPU that need not be the current context's; NULL where no seat was taken for it yet. */
struct seat *seats_ordinal(int ordinal)
{
    struct seat *only = atomic_load_explicit(&seat_only, memory_order_acquire);
    if (only)
        return only;
    int place = ordinal >= 0 && ordinal < MAX_GPUS ? load(&by_ordinal[ordinal]) : 0;
    return place > 0 ? seats_number(place - 1) : NULL;
}

int seats_count(void)
{
    return load(&places_used);
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* The file for one GPU, or an empty string. */
static void page_path(int ordinal, const char *uuid, char *path, size_t size)
{
    *path = 0;
    if (!strchr(setting, '=')) {
        int n = is_folder(setting) ? snprintf(path, size, "%s/%s", setting, uuid)
                                   : snprintf(path, size, "%s", setting);
        if (n < 0 || (size_t)n >= size)
            *path = 0;
        return;
    }
    char copy[sizeof setting], number[16], *rest = copy, *item;
    strcpy(copy, setting);
    snprintf(number, sizeof number, "%d", ordinal);
    while ((item = strsep(&rest, ","))) {
        char *equals = strchr(item, '=');
        if (!equals)
            continue;
        *equals = 0;
        if (!strcmp(item, number) || !strcmp(item, uuid)) {
            snprintf(path, size, "%s", equals + 1);
            return;
        }
    }
}

static void read_gang(struct seat *seat)
{
    char copy[sizeof gang_setting], *rest = copy, *item;
    strcpy(copy, gang_setting);
    while ((item = strsep(&rest, ",")) && seat->gang_size < MAX_GPUS) {
        int error;
        if (!*item || !strcmp(item, seat->path))
            continue;
        struct seat *peer = seat_watch(item, &error);
        if (peer)
            seat->gang[seat->gang_size++] = peer;
        else
            gate_say_once(5, "the turnstile %s of this gang cannot be used", item);
    }
}

static int join_ordinal(int ordinal)
{
    char uuid[64], path[512];
    driver_uuid(ordinal, uuid, sizeof uuid);
    page_path(ordinal, uuid, path, sizeof path);
    if (!path[0])
        return -1;
    unsigned class_ = load(&gate_me.class_);
    const char *slash = strrchr(path, '/');
    int place = join_locked(path, slash ? slash + 1 : path, class_, gate_me.name);
    if (place < 0) {
        gate_say_once(place == -EPROTONOSUPPORT ? 1 : 2,
                      "the turnstile %s cannot be used (%s): the gate stays open", path,
                      place == -EPROTONOSUPPORT ? "another version" : strerror(-place));
        return -1;
    }
    struct seat *seat = atomic_load(&places[place].seat);
    if (!seat->gang_size && gang_setting[0])
        read_gang(seat);
    driver_joined(seat);
    return place + 1;
}

/* The slow way: first use, several GPUs, or nothing to gate. */
struct seat *seats_find(void)
{
    if (!load(&configured))
        return NULL;
    int ordinal = driver_ordinal();
    if (ordinal < 0 || ordinal >= MAX_GPUS)
        return NULL;
    int place = load(&by_ordinal[ordinal]);
    if (unlikely(!place)) {
        pthread_mutex_lock(&joining);
        place = load(&by_ordinal[ordinal]);
        if (!place) {
            place = join_ordinal(ordinal);
            store(&by_ordinal[ordinal], place);
            bool one = driver_gpus() == 1 || (!strchr(setting, '=') && !is_folder(setting));
            if (one && place > 0)
                atomic_store_explicit(&seat_only, atomic_load(&places[place - 1].seat),
                                      memory_order_release);
            else if (one)
                store(&configured, false);
        }
        pthread_mutex_unlock(&joining);
    }
    return place > 0 ? seats_number(place - 1) : NULL;
}

/* Now and then (a second): see that the seat is still good, and publish its successor. */
struct seat *seats_check(struct seat *seat)
{
    struct seat *next = seat_renew(seat);
    for (unsigned i = 0; i < seat->gang_size; i++)
        next->gang[i] = seat_renew(seat->gang[i]);
    if (next == seat)
        return seat;
    struct seat *expected = seat;
    atomic_compare_exchange_strong(&seat_only, &expected, next);
    for (int i = 0; i < load(&places_used); i++) {
        expected = seat;
        if (atomic_compare_exchange_strong(&places[i].seat, &expected, next))
            snprintf(places[i].path, sizeof places[i].path, "%s", next->path);
    }
    classes_join(next);
    return next;
}

/* The child joins anew when it first uses a GPU. */
void seats_after_fork(void)
{
    pthread_mutex_init(&joining, NULL);
    for (int i = 0; i < load(&places_used); i++) {
        struct seat *seat = atomic_load(&places[i].seat);
        if (!seat)
            continue;
        for (unsigned g = 0; g < seat->gang_size; g++)
            seat_forget(seat->gang[g]);
        seat_forget(seat);
        atomic_store(&places[i].seat, NULL);
    }
    atomic_store(&seat_only, NULL);
    for (int i = 0; i < MAX_GPUS; i++)
        store(&by_ordinal[i], 0);
    store(&configured, setting[0] != 0);
}

/* Give up every seat. */
int seats_leave(void)
{
    int left = 0;
    pthread_mutex_lock(&joining);
    store(&configured, false);
    atomic_store(&seat_only, NULL);
    for (int i = 0; i < load(&places_used); i++) {
        struct seat *seat = atomic_exchange(&places[i].seat, NULL);
        if (!seat)
            continue;
        for (unsigned g = 0; g < seat->gang_size; g++)
            seat_leave(seat->gang[g]);
        seat_leave(seat);
        left++;
    }
    pthread_mutex_unlock(&joining);
    return left ? 0 : -ENOENT;
}

bool seats_configured(void)
{
    return setting[0] != 0;
}

/* A mark before the first launch: sit down where it is clear where. */
void seats_join_early(void)
{
    if (!load(&configured))
        return;
    if (strchr(setting, '=') || is_folder(setting)) {
        seats_find(); /* by the GPU of the current context, if there is one */
    } else if (strlen(setting) < 512) {
        const char *slash = strrchr(setting, '/');
        seats_join(setting, slash ? slash + 1 : setting, load(&gate_me.class_), gate_me.name);
    }
}
