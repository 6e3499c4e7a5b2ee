/* The turnstile's page: one file of shared memory per GPU, mapped by everyone who takes part.
 *
 * A header and 64 records. Each record has one writer, its owner, except where a comment says
 * otherwise; the words of the header are changed by atomic operations only. Every offset is part
 * of the ABI: raise TREADLE_ABI when one changes. Python mirrors this file in page.py. */
#ifndef TREADLE_PAGE_H
#define TREADLE_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define TREADLE_MAGIC 0x454c444145525401ull /* "\1TREADLE", little-endian */
#define TREADLE_ABI 1u
#define TREADLE_RECORDS 64u
#define TREADLE_CLASSES 3u
#define TREADLE_PAGE_BYTES (1024u + TREADLE_RECORDS * 256u)

enum treadle_class { TREADLE_CRITICAL = 0, TREADLE_NORMAL = 1, TREADLE_BACKGROUND = 2 };
enum treadle_state { TREADLE_FREE = 0, TREADLE_SEATED = 1 };

/* Knobs, in the order of their words in the header: name, least, most, default. */
#define TREADLE_KNOBS(K)                                                                   \
    K(budget_ns, 0, 1000000000, 500000)        /* predicted GPU time in flight; 0: no bound */ \
    K(quiet_budget_ns, 0, 1000000000, 500000)  /* while urgent work is quiet; at last x 4 */   \
    K(quiet_ns, 0, 3600000000000, 1000000000)  /* silence after which urgent work is quiet */  \
    K(slack_ns, 0, 10000000, 20000)            /* rest in flight under a longer kernel */      \
    K(linger_ns, 0, 1000000000, 0)             /* the gate stays closed after the last mark */ \
    K(gap_ns, 0, 100000000, 1000000)           /* longest pause learned to be in a request */  \
    K(quantum_ns, 100000, 10000000000, 10000000) /* one equal's turn */                        \
    K(grace_ns, 10000, 1000000000, 200000)     /* idle time after which a turn is lost */      \
    K(duty_ppm, 0, 1000000, 10000)             /* least share of a lower class, per million */ \
    K(copy_bytes, 65536, 1099511627776, 1048576) /* copies of this size and above are gated */

enum treadle_knob {
#define K(name, least, most, usual) TREADLE_KNOB_##name,
    TREADLE_KNOBS(K)
#undef K
        TREADLE_KNOB_COUNT
};

struct treadle_record {
    /* Who: written while taking and leaving the seat. */
    _Atomic uint32_t state;
    _Atomic uint32_t class_;
    _Atomic uint32_t generation; /* of the seat: grows each time it is taken */
    _Atomic uint32_t hold;       /* written by others: 1 + the record of whoever holds this one */
    _Atomic uint32_t pid;        /* for people only: means nothing across containers */
    _Atomic uint32_t flags;      /* bit 0: marks are set by the program itself */
    _Atomic uint64_t joined_ns;
    char name[32];
    /* Hot: written at each launch. */
    _Atomic uint64_t launches;
    _Atomic uint64_t copies;
    _Atomic uint64_t predicted_ns;  /* GPU time of all launches so far, as predicted */
    _Atomic uint64_t busy_until_ns; /* predicted end of the work in flight, CLOCK_MONOTONIC */
    _Atomic uint64_t last_launch_ns;
    _Atomic uint64_t marks_taken;
    _Atomic uint64_t waits; /* launches that found the gate closed */
    _Atomic uint64_t waited_ns;
    /* Now and then. */
    _Atomic uint64_t measured_ns; /* GPU time of the launches that were sampled */
    _Atomic uint64_t samples;
    _Atomic uint64_t budget_waits;
    _Atomic uint64_t budget_waited_ns;
    _Atomic uint64_t memory_limit_bytes; /* 0: no limit */
    _Atomic uint64_t memory_used_bytes;
    _Atomic uint64_t memory_failures;
    _Atomic uint64_t waiting_since_ns; /* 0: not waiting */
    /* Moves and turns. */
    char moved_to[40]; /* written by others: name of the page to go to, empty: stay */
    _Atomic uint64_t turns;
    _Atomic uint64_t duty_passes; /* launches let through a closed gate */
    _Atomic uint64_t marked_ns;   /* time spent marked */
};

struct treadle_page {
    /* 0: what this is. */
    _Atomic uint64_t magic;
    _Atomic uint32_t abi;
    _Atomic uint32_t size;
    _Atomic uint64_t generation; /* grows when the page is taken out of use */
    _Atomic uint32_t records;
    _Atomic uint32_t record_bytes;
    uint64_t spare0[4];
    /* 64: */
    char uuid[64];
    /* 128: all that a launch looks at when nothing happens, one cache line. Bit n: record n. */
    _Atomic uint64_t marks[TREADLE_CLASSES];      /* busy */
    _Atomic uint64_t members[TREADLE_CLASSES];    /* seated */
    _Atomic uint64_t closed_until_ns[TREADLE_CLASSES - 1]; /* linger of each class */
    /* 192: */
    _Atomic uint32_t bell; /* futex; changes whenever someone waiting should look again */
    uint32_t spare1;
    _Atomic uint64_t waiting;       /* bit n: record n has a thread that waits */
    _Atomic uint64_t marks_set;     /* times that a class went from idle to busy */
    _Atomic uint64_t last_urgent_ns; /* last mark or unmark of a class above the lowest */
    uint64_t spare2[4];
    /* 256: turns among equals: 1 + record in the low 8 bits, since (ns) above; 0: free. */
    _Atomic uint64_t turn[TREADLE_CLASSES];
    _Atomic uint64_t want[TREADLE_CLASSES];
    uint64_t spare3[2];
    /* 320: */
    _Atomic uint64_t knobs[24];
    /* Since when a record's oldest unfinished launch has been running (CLOCK_MONOTONIC): 0 where
     * nothing runs, or nobody watches. One writer each, the record's owner. */
    _Atomic uint64_t running_since_ns[TREADLE_RECORDS];
    /* 1024: */
    struct treadle_record record[TREADLE_RECORDS];
};

_Static_assert(sizeof(struct treadle_record) == 256, "a record is four cache lines");
_Static_assert(sizeof(struct treadle_page) == TREADLE_PAGE_BYTES, "the page has its size");
_Static_assert(__builtin_offsetof(struct treadle_page, marks) == 128, "hot words in one line");
_Static_assert(__builtin_offsetof(struct treadle_page, record) == 1024, "records after header");
_Static_assert(TREADLE_KNOB_COUNT <= 24, "knobs fit");

#endif
