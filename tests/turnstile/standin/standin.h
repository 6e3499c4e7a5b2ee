/* The stand-in for libcuda.so.1: what its parts share. Time is the host's monotonic clock. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_min.h"

#define GPUS_MOST 8

struct kernel { char name[64]; unsigned long long length_ns; bool collective; };
struct event { bool recorded, known; unsigned long long done_ns, elapsed_from; CUcontext context; };
enum op_kind { OP_WORK, OP_COLLECTIVE, OP_EVENT, OP_WAIT };
struct op { enum op_kind kind; unsigned long long at, length; struct event *event; unsigned index; };
struct stream {
    int device;
    unsigned long long tail_ns;
    struct op *ops;
    size_t first, count, room;
    int capturing; /* 0, 1, 2: invalidated */
    int mode;
    struct graph *captured;
    bool destroyed;
};
struct graph;

extern pthread_mutex_t standin_lock;
extern _Thread_local int standin_mode;

unsigned long long standin_now(void);
struct stream *standin_stream(CUstream stream, bool per_thread);
int standin_check(void);   /* initialised, and not in a forked child */
int standin_device(void);  /* of the current context, or -1 */
void standin_add(struct stream *s, struct op op);
bool standin_settle(struct stream *s);
void standin_count(const char *symbol);
bool standin_occupy(unsigned long long bytes); /* false: the GPU is full */
void standin_vacate(unsigned long long bytes);
CUresult standin_pool_free(CUdeviceptr p); /* not 0: it comes from no pool */
CUresult standin_waited(CUresult result);  /* the program synchronised: returns the result */
int standin_unsafe(void); /* a call that a global capture forbids: 900 and the capture is void */

CUresult standin_launch(const char *symbol, struct kernel *kernel, CUstream stream,
                        bool per_thread, void **parameters);

/* standin_graphs.c */
struct graph *standin_graph(void);
void standin_capture(struct stream *s, const struct kernel *kernel, unsigned long long length_ns);
unsigned standin_disorder(void); /* nodes that ran out of their turn */
unsigned standin_overlaps(void); /* graphs, or parts, that began before the one before had ended */

#endif
