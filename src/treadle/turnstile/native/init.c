/* The life of the library in a process: load, fork, exit, and a page that shrinks under it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "classes.h"
#include "launch.h"
#include "memory.h"
#include "running.h"
#include "split.h"

static struct sigaction before_us;
static bool guarding;

/* Someone truncated a page: put zeros under it, which opens the gate, instead of dying. Only
 * where the program had no handler of its own; async-signal-safe. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < seats_count(); i++) {
        struct seat *seat = seats_number(i);
        for (unsigned g = 0; seat && g <= seat->gang_size; g++) {
            struct seat *s = g < seat->gang_size ? seat->gang[g] : seat;
            uintptr_t page = (uintptr_t)s->page;
            if (at < page || at >= page + TREADLE_PAGE_BYTES)
                continue;
            atomic_store(&s->broken, 1);
            if (mmap((void *)page, TREADLE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
                static const char text[] =
                    "treadle: the turnstile was truncated: the gate stays open\n";
                ssize_t ignored = write(2, text, sizeof text - 1);
                (void)ignored;
                return;
            }
        }
    }
    (void)number;
    (void)context;
    sigaction(SIGBUS, &before_us, NULL); /* not ours: it happens again, as it would have */
}

void guard_pages(void)
{
    struct sigaction now;
    if (guarding || sigaction(SIGBUS, NULL, &now) || now.sa_handler != SIG_DFL)
        return;
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&ours.sa_mask);
    guarding = sigaction(SIGBUS, &ours, &before_us) == 0;
}

static void after_fork(void)
{
    gate_inside = 0;
    urgent_after_fork();
    seats_after_fork();
    memory_after_fork();
    track_after_fork();
    running_after_fork();
    seat_after_fork();
    classes_after_fork();
    parted_after_fork();
    store(&captures_active, 0);
}

void driver_joined(struct seat *seat)
{
    guard_pages();
    memory_joined(seat);
}

/* Is the program's dlsym this one? Where another preloaded library comes first, it is asked, and
 * what it gets from the C library passes the gate by. */
static void check_order(void)
{
    void *first = dlsym_libc ? dlsym_libc(NULL, "dlsym") : NULL;
    extern void *dlsym(void *, const char *);
    if (first && first != (void *)dlsym && seats_configured())
        gate_say_once(7, "another preloaded library answers dlsym before the gate does: "
                         "put libtreadle_gate.so first in LD_PRELOAD");
}

__attribute__((constructor)) static void start(void)
{
    find_dlsym();
    seats_read_environment();
    running_read_environment();
    pthread_atfork(NULL, NULL, after_fork);
    check_order();
}

__attribute__((destructor)) static void end(void)
{
    urgent_stop();
    running_stop();
    seats_leave(); /* in order: nobody has to find out */
}
