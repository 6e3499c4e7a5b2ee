/* A stand-in for libcuda.so.1 with a simulated GPU: streams in order, kernels whose function
 * encodes their length, events, graphs, captures and collectives between processes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

#include "standin.h"

#define API __attribute__((visibility("default")))
#define STREAMS 64

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local int standin_mode; /* capture mode of the thread: 0 global, 1 thread, 2 relaxed */
static _Thread_local CUcontext current;
static _Thread_local struct stream own;
static struct stream defaults[GPUS_MOST];
static struct stream *streams[STREAMS];
static pid_t initialised;
static unsigned long long launches, most_backlog_ns, launch_cost_ns, uncounted;
static char last_symbol[64];
static int gpus = 1;
static unsigned fail_launch;
/* Collectives: one row of arrival times for each rank, in shared memory. */
static volatile unsigned long long (*arrivals)[65536];
static unsigned rank, ranks, collectives;

unsigned long long standin_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

void standin_count(const char *symbol)
{
    snprintf(last_symbol, sizeof last_symbol, "%s", symbol);
}

int standin_check(void)
{
    return initialised && initialised == getpid() ? 0 : CUDA_ERROR_NOT_INITIALIZED;
}

int standin_device(void)
{
    return current ? (int)(((size_t)current >> 8) - 1) : -1;
}

struct stream *standin_stream(CUstream stream, bool per_thread)
{
    int device = standin_device();
    if (device < 0)
        device = 0;
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
        return &own;
    if (!stream || stream == CU_STREAM_LEGACY)
        return &defaults[device];
    return (struct stream *)stream;
}

void standin_add(struct stream *s, struct op op)
{
    op.at = standin_now();
    if (s->first + s->count == s->room) {
        if (s->first) {
            memmove(s->ops, s->ops + s->first, s->count * sizeof *s->ops);
            s->first = 0;
        } else {
            s->room = s->room ? s->room * 2 : 256;
            s->ops = realloc(s->ops, s->room * sizeof *s->ops);
        }
    }
    s->ops[s->first + s->count++] = op;
    standin_settle(s);
}

/* Run what can be run: everything up to a collective or an event that others have not reached. */
bool standin_settle(struct stream *s)
{
    while (s->count) {
        struct op *op = &s->ops[s->first];
        unsigned long long start = s->tail_ns > op->at ? s->tail_ns : op->at;
        if (op->kind == OP_COLLECTIVE) {
            unsigned long long last = 0;
            if (!arrivals[rank][op->index])
                arrivals[rank][op->index] = start;
            for (unsigned r = 0; r < ranks; r++) {
                unsigned long long arrived = arrivals[r][op->index];
                if (!arrived)
                    return false;
                last = arrived > last ? arrived : last;
            }
            s->tail_ns = last + op->length;
        } else if (op->kind == OP_WORK) {
            s->tail_ns = start + op->length;
        } else if (op->kind == OP_EVENT) {
            op->event->done_ns = start;
            op->event->known = true;
        } else if (op->kind == OP_WAIT) {
            if (op->event->recorded && !op->event->known)
                return false;
            if (op->event->known && op->event->done_ns > s->tail_ns)
                s->tail_ns = op->event->done_ns;
        }
        s->first++;
        s->count--;
    }
    s->first = 0;
    return true;
}

static void settle_all(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i])
            standin_settle(streams[i]);
    for (int i = 0; i < GPUS_MOST; i++)
        standin_settle(&defaults[i]);
    standin_settle(&own);
}

int standin_unsafe(void)
{
    int bad = 0;
    for (int i = 0; i < STREAMS && standin_mode != 2; i++)
        if (streams[i] && streams[i]->capturing == 1 && streams[i]->mode == 0) {
            streams[i]->capturing = 2;
            bad = 900;
        }
    return bad;
}

static void log_line(const char *what, const char *name, unsigned long long backlog,
                     unsigned long long length)
{
    static int fd = -1;
    const char *path = getenv("STANDIN_LOG");
    if (!path)
        return;
    if (fd < 0)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    char line[256];
    int n = snprintf(line, sizeof line, "%s %s %d %d %llu %llu %llu\n", what, name, (int)getpid(),
                     standin_device(), standin_now(), backlog, length);
    ssize_t ignored = write(fd, line, (size_t)n);
    (void)ignored;
}

CUresult standin_launch(const char *symbol, struct kernel *k, CUstream stream, bool per_thread,
                        void **parameters)
{
    if (standin_check())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!k)
        return CUDA_ERROR_INVALID_HANDLE;
    unsigned long long cost = launch_cost_ns ? standin_now() + launch_cost_ns : 0;
    pthread_mutex_lock(&standin_lock);
    standin_count(symbol);
    struct stream *s = standin_stream(stream, per_thread);
    unsigned long long length = k->length_ns;
    if (parameters && parameters[0])
        length = *(unsigned long long *)parameters[0];
    CUresult result = 0;
    if (fail_launch && --fail_launch == 0) {
        result = 719;
    } else if (s->capturing == 2) {
        result = 901;
    } else if (s->capturing) {
        standin_capture(s, k, length);
    } else {
        unsigned long long now = standin_now();
        standin_settle(s);
        unsigned long long backlog = s->tail_ns > now ? s->tail_ns - now : 0;
        launches++;
        uncounted += k->collective;
        if (!k->collective && backlog > most_backlog_ns)
            most_backlog_ns = backlog;
        struct op op = {.kind = OP_WORK, .length = length};
        if (k->collective && arrivals) {
            op.kind = OP_COLLECTIVE;
            op.index = collectives++;
        }
        log_line("launch", k->name, backlog, length);
        standin_add(s, op);
    }
    pthread_mutex_unlock(&standin_lock);
    while (cost && standin_now() < cost) {
    }
    return result;
}

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned m
#define UNUSED (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)m
#define KERNEL(name, per_thread)                                                             \
    API CUresult name(CUfunction f, SHAPE, CUstream s, void **p, void **x)                   \
    {                                                                                        \
        UNUSED, (void)x;                                                                     \
        return standin_launch(#name, (struct kernel *)f, s, per_thread, p);                          \
    }
KERNEL(cuLaunchKernel, false)
KERNEL(cuLaunchKernel_ptsz, true)
#define COOPERATIVE(name, per_thread)                                                        \
    API CUresult name(CUfunction f, SHAPE, CUstream s, void **p)                             \
    {                                                                                        \
        UNUSED;                                                                              \
        return standin_launch(#name, (struct kernel *)f, s, per_thread, p);                          \
    }
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
#define EX(name, per_thread)                                                                 \
    API CUresult name(const CUlaunchConfig *c, CUfunction f, void **p, void **x)             \
    {                                                                                        \
        (void)x;                                                                             \
        return standin_launch(#name, (struct kernel *)f, c->hStream, per_thread, p);                 \
    }
EX(cuLaunchKernelEx, false)
EX(cuLaunchKernelEx_ptsz, true)
API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned f)
{
    (void)f;
    for (unsigned i = 0; i < n; i++)
        standin_launch("cuLaunchCooperativeKernelMultiDevice", (struct kernel *)list[i].function,
               list[i].hStream, false, NULL);
    return 0;
}
API CUresult cuLaunch(CUfunction f)
{
    return standin_launch("cuLaunch", (struct kernel *)f, NULL, false, NULL);
}
API CUresult cuLaunchGrid(CUfunction f, int w, int h)
{
    (void)w, (void)h;
    return standin_launch("cuLaunchGrid", (struct kernel *)f, NULL, false, NULL);
}
API CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream s)
{
    (void)w, (void)h;
    return standin_launch("cuLaunchGridAsync", (struct kernel *)f, s, false, NULL);
}

/* ---- initialisation, devices, contexts ---- */

API CUresult cuInit(unsigned flags)
{
    (void)flags;
    initialised = getpid();
    const char *text = getenv("STANDIN_GPUS");
    gpus = text ? atoi(text) : 1;
    text = getenv("STANDIN_LAUNCH_NS");
    launch_cost_ns = text ? strtoull(text, NULL, 10) : 0;
    text = getenv("STANDIN_FAIL_LAUNCH");
    fail_launch = text ? (unsigned)atoi(text) : 0;
    text = getenv("STANDIN_PEERS"); /* file,rank,ranks */
    char file[256];
    if (text && sscanf(text, "%255[^,],%u,%u", file, &rank, &ranks) == 3) {
        int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (ftruncate(fd, (off_t)(sizeof *arrivals * ranks)) == 0)
            arrivals = mmap(NULL, sizeof *arrivals * ranks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    return 0;
}
API CUresult cuDeviceGetCount(int *n) { *n = gpus; return standin_check(); }
API CUresult cuDeviceGet(int *d, int i) { *d = i; return standin_check(); }
API CUresult cuDeviceGetUuid_v2(CUuuid *id, int device)
{
    const char *base = getenv("STANDIN_UUID"); /* its first byte; devices count up */
    memset(id, 0, sizeof *id);
    id->bytes[0] = (char)(base ? atoi(base) : 0);
    id->bytes[15] = (char)device;
    return 0;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, int device)
{
    *c = (CUcontext)(((size_t)device + 1) << 8);
    return standin_check();
}
API CUresult cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
API CUresult cuDevicePrimaryCtxReset_v2(int device) { (void)device; return 0; }
API CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return 0;
}
API CUresult cuCtxDestroy_v2(CUcontext c) { (void)c; return 0; }
API CUresult cuCtxSetCurrent(CUcontext c) { current = c; return standin_check(); }
API CUresult cuCtxGetCurrent(CUcontext *c) { *c = current; return standin_check(); }
API CUresult cuCtxGetDevice(int *d)
{
    *d = standin_device();
    return current ? standin_check() : 201;
}
/* ---- streams ---- */

API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    struct stream *s = calloc(1, sizeof *s);
    s->device = standin_device();
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < STREAMS; i++)
        if (!streams[i]) {
            streams[i] = s;
            break;
        }
    pthread_mutex_unlock(&standin_lock);
    *out = (CUstream)s;
    return standin_check();
}
API CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct stream *s = (struct stream *)stream;
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i] == s)
            streams[i] = NULL;
    s->destroyed = true; /* not freed: a use after this is counted, not undefined */
    pthread_mutex_unlock(&standin_lock);
    return 0;
}
static CUresult done(CUstream stream, bool per_thread, bool block)
{
    struct stream *s = standin_stream(stream, per_thread);
    for (;;) {
        pthread_mutex_lock(&standin_lock);
        settle_all();
        bool finished = standin_settle(s) && standin_now() >= s->tail_ns;
        pthread_mutex_unlock(&standin_lock);
        if (finished)
            return 0;
        if (!block)
            return CUDA_ERROR_NOT_READY;
        usleep(20);
    }
}
API CUresult cuStreamSynchronize(CUstream s) { return standin_waited(done(s, false, true)); }
API CUresult cuStreamSynchronize_ptsz(CUstream s) { return standin_waited(done(s, true, true)); }
API CUresult cuStreamQuery(CUstream s) { return done(s, false, false); }
API CUresult cuStreamQuery_ptsz(CUstream s) { return done(s, true, false); }
API CUresult cuCtxSynchronize(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i])
            done((CUstream)streams[i], false, true);
    return standin_waited(done(NULL, false, true) || done(NULL, true, true));
}

/* CUDA 13's, which takes a context: 201 where it is not the one that is current. */
API CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return context == current ? cuCtxSynchronize() : 201;
}

/* ---- what the tests read ---- */

API void standin_stats(char *text, size_t size)
{
    pthread_mutex_lock(&standin_lock);
    snprintf(text, size,
             "launches=%llu most_backlog_ns=%llu collectives=%llu disorder=%u overlaps=%u last=%s",
             launches, most_backlog_ns, uncounted, standin_disorder(), standin_overlaps(),
             last_symbol);
    most_backlog_ns = 0;
    pthread_mutex_unlock(&standin_lock);
}
