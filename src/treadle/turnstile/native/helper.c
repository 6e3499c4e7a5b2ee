/* Threads of the gate's own, beside the program's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "gate.h"

/* Start one that nobody waits for, and that no signal of the program's is handled on. */
void helper_start(void *(*work)(void *))
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20); /* room for the driver */
    pthread_create(&thread, &attributes, work, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
