/* The memory limit: see memory.c. */
#ifndef TREADLE_MEMORY_H
#define TREADLE_MEMORY_H

#include "hooks.h"

void memory_joined(struct seat *seat);
void memory_after_fork(void);

#endif
