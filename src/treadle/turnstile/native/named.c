/* What functions are called, as the program asked for them: remembered where launches are watched.
 * A name is looked for seldom, and only once its launch takes long. */
#include <stdlib.h>
#include <string.h>

#include "running.h"

#define NAMES 8192u /* of functions; beyond that they have none */
#define PROBES 64u

static struct spin lock;
static struct { const void *function; char *name; } names[NAMES];

/* The place of a function, or a free one; the caller has the lock. NULL: there is none. */
static char **place_of(const void *function, bool take)
{
    unsigned start = (unsigned)((uintptr_t)function >> 4) * 2654435761u;
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned at = (start + i) % NAMES;
        if (names[at].function == function)
            return &names[at].name;
        if (!names[at].function) {
            if (!take)
                return NULL;
            names[at].function = function;
            return &names[at].name;
        }
    }
    return NULL;
}

void named_put(const void *function, const char *name)
{
    if (!load(&running_watched) || !function || !name)
        return;
    char *fresh = strdup(name), *old = NULL;
    spin_take(&lock);
    char **place = place_of(function, true);
    if (place) { /* what was unloaded has left its address to this one */
        old = *place;
        *place = fresh;
        fresh = NULL;
    }
    spin_give(&lock);
    free(old);
    free(fresh);
}

void named_same(const void *function, const void *as)
{
    char name[512];
    if (load(&running_watched) && named_get(as, name, sizeof name))
        named_put(function, name);
}

bool named_get(const void *function, char *name, size_t size)
{
    spin_take(&lock);
    char **place = function ? place_of(function, false) : NULL;
    bool known = place && *place;
    if (known) {
        strncpy(name, *place, size - 1);
        name[size - 1] = 0;
    }
    spin_give(&lock);
    return known;
}

void named_after_fork(void)
{
    lock = (struct spin){0};
}
