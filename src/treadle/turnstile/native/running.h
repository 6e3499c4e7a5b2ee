/* For how long this process's oldest unfinished launch has been running, where that is wanted. */
#ifndef TREADLE_RUNNING_H
#define TREADLE_RUNNING_H

#include "launch.h"

extern _Atomic bool running_watched; /* TREADLE_WATCH: false costs a launch one look at this */

/* running.c */
void running_read_environment(void);
void running_begin(struct launch *launch); /* just before the launch */
void running_launched(struct launch *launch, CUresult result);
void running_forget_events(void);
void running_after_fork(void);
void running_stop(void);

/* named.c: the names of functions */
void named_put(const void *function, const char *name);
void named_same(const void *function, const void *as);
bool named_get(const void *function, char *name, size_t size);
void named_after_fork(void);

#endif
