/* A program under test. It reads a command a line and answers each with a line.
 *
 * Its first argument is the way in which it gets driver functions: dlsym, proc1 and proc2 (both
 * ABIs of cuGetProcAddress), own (per-thread default streams), and plt where it is linked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "program.h"
#include "program_calls.h"
#include "standin.h"

static CUstream stream;
static int device;
static CUfunction functions[4];
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&output);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&output);
    va_end(args);
}

static int begin(int number)
{
    device = number;
    CUcontext context;
    char name[32];
    if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context, device) ||
        cu.cuCtxSetCurrent(context) || cu.cuStreamCreate(&stream, 0))
        return 1;
    const int lengths[] = {10, 100, 1000, 20};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, i == 3 ? "ncclDevKernel_%d" : "kernel_%d", lengths[i]);
        cu.cuModuleGetFunction(&functions[i], NULL, name);
    }
    return 0;
}

/* The function of kernels this long, in microseconds. */
static CUfunction of_length(int us)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct { int us; CUfunction f; } known[64];
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < 63 && known[i].us != us && known[i].f)
        i++;
    if (!known[i].f) {
        char name[32];
        snprintf(name, sizeof name, "kernel_%d", us);
        cu.cuModuleGetFunction(&known[i].f, NULL, name);
        known[i].us = us;
    }
    pthread_mutex_unlock(&lock);
    return known[i].f;
}

static CUresult entry(const char *name, int us)
{
    CUfunction f = of_length(us);
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    CUDA_LAUNCH_PARAMS list = {f, 1, 1, 1, 1, 1, 1, 0, stream, NULL};
    static char buffer[8];
    size_t big = 4 << 20;
    if (!strcmp(name, "cuLaunchKernel"))
        return cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    if (!strcmp(name, "cuLaunchKernelEx"))
        return cu.cuLaunchKernelEx(&config, f, NULL, NULL);
    if (!strcmp(name, "cuLaunchCooperativeKernel"))
        return cu.cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL);
    if (!strcmp(name, "cuLaunchCooperativeKernelMultiDevice"))
        return cu.cuLaunchCooperativeKernelMultiDevice(&list, 1, 0);
    if (!strcmp(name, "cuLaunch"))
        return cu.cuLaunch(f);
    if (!strcmp(name, "cuLaunchGrid"))
        return cu.cuLaunchGrid(f, 1, 1);
    if (!strcmp(name, "cuLaunchGridAsync"))
        return cu.cuLaunchGridAsync(f, 1, 1, stream);
    if (!strcmp(name, "cuGraphLaunch")) {
        static CUgraphExec exec;
        if (!exec) {
            CUgraph graph;
            cu.cuStreamBeginCapture(stream, 0);
            cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
            cu.cuStreamEndCapture(stream, &graph);
            cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
        }
        return cu.cuGraphLaunch(exec, stream);
    }
    if (!strcmp(name, "cuMemcpyAsync"))
        return cu.cuMemcpyAsync(1, 2, big, stream);
    if (!strcmp(name, "cuMemcpyHtoDAsync"))
        return cu.cuMemcpyHtoDAsync(1, buffer, big, stream);
    if (!strcmp(name, "cuMemcpyDtoHAsync"))
        return cu.cuMemcpyDtoHAsync(buffer, 1, big, stream);
    if (!strcmp(name, "cuMemcpyDtoDAsync"))
        return cu.cuMemcpyDtoDAsync(1, 2, big, stream);
    return copy(name, big, stream);
}

struct job { int count, us; CUresult result; };
static void *many(void *argument)
{
    struct job *job = argument;
    CUcontext context;
    cu.cuDevicePrimaryCtxRetain(&context, device);
    cu.cuCtxSetCurrent(context);
    CUfunction f = of_length(job->us);
    for (int i = 0; i < job->count && !job->result; i++)
        job->result = cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    return NULL;
}

static _Atomic bool running;
static pthread_t endless_thread;
static void *endless(void *argument)
{
    struct job job = *(struct job *)argument;
    job.count = 1;
    while (running)
        many(&job);
    return NULL;
}

/* On `at`, with launches of other threads elsewhere. */
static void capture(CUstream at)
{
    CUgraph graph = NULL;
    cu.cuStreamBeginCapture(at, 0);
    for (int i = 0; i < 2000; i++)
        cu.cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, at, NULL, NULL);
    CUresult result = cu.cuStreamEndCapture(at, &graph);
    say("capture result=%d nodes=%u", result, graph ? graph_nodes(graph) : 0);
}

/* Collectives between compute kernels, as a step of data-parallel training has them. */
static void steps(int count, int us)
{
    CUfunction f = of_length(us);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3; k++)
            cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        cu.cuLaunchKernel(functions[3], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    }
    cu.cuStreamSynchronize(stream);
    say("steps %d", count);
}

/* A server: a request is some launches with pauses, then a wait for the end. */
static void serve(int requests, int launches, int us, int pause_us)
{
    CUfunction f = of_length(us);
    for (int r = 0; r < requests; r++) {
        for (int i = 0; i < launches; i++) {
            cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
            cu.cuStreamSynchronize(stream);
            if (pause_us && i + 1 < launches)
                usleep((useconds_t)pause_us);
        }
    }
    say("served %d", requests);
}

static void run_fork(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        unsigned long long before = standin_now();
        CUresult stale = cu.cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        int failed = begin(0);
        CUresult fresh = cu.cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        say("child stale=%d begin=%d fresh=%d pid=%d ns=%llu", stale, failed, fresh, getpid(),
            standin_now() - before);
        char line[16];
        if (!fgets(line, sizeof line, stdin))
            _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    say("parent status=%d", status);
}

/* As daemon(3) has it: nobody waits for what goes on, and nothing is given up in order. */
static void run_daemon(void)
{
    fflush(stdout);
    if (fork())
        _exit(0);
    setsid();
    if (fork())
        _exit(0);
    int failed = begin(0);
    say("daemon pid=%d begin=%d", getpid(), failed);
}

unsigned long long standin_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

/* The turnstile's own functions, which are there when the gate is preloaded. */
static int turnstile(const char *name, int argument)
{
    int (*call)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, name);
    return call ? call(argument) : -1;
}

static void *background(void *argument)
{
    struct job *job = argument;
    turnstile("treadle_set_thread_class", 2);
    many(job);
    say("background result=%d", job->result);
    return NULL;
}

static void obey(char **word, int words)
{
    int a = words > 1 ? atoi(word[1]) : 0, b = words > 2 ? atoi(word[2]) : 0;
    if (!strcmp(word[0], "launch")) {
        struct job job = {a, b, 0};
        many(&job);
        say("launched %d result=%d", a, job.result);
    } else if (!strcmp(word[0], "persistent")) { /* one function and grid, any length */
        unsigned long long length = 1000ull * (unsigned)a;
        void *parameters[] = {&length};
        CUresult result =
            cu.cuLaunchKernel(functions[0], 132, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
        say("persistent result=%d", result);
    } else if (!strcmp(word[0], "pair")) { /* alternately on two streams */
        static CUstream other;
        CUresult result = other ? 0 : cu.cuStreamCreate(&other, 0);
        for (int i = 0; i < a && !result; i++) {
            result = cu.cuLaunchKernel(of_length(b), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
            result |= cu.cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL);
        }
        say("pair result=%d", result);
    } else if (!strcmp(word[0], "shuffle")) { /* brief kernels in an order that does not repeat */
        CUresult result = 0;
        unsigned long long chance = 1;
        for (int i = 0; i < a && !result; i++) {
            chance = chance * 6364136223846793005ull + 1442695040888963407ull;
            result = cu.cuLaunchKernel(functions[0], 1 + (unsigned)(chance >> 58), 1, 1, 1, 1, 1, 0,
                                       stream, NULL, NULL);
        }
        say("shuffle result=%d", result);
    } else if (!strcmp(word[0], "entry")) {
        CUresult result = entry(word[1], b);
        char text[256];
        stats(text, sizeof text);
        say("entry result=%d %s", result, text);
    } else if (!strcmp(word[0], "copy")) { /* copy NAME BYTES */
        say("copy result=%d", copy(word[1], (size_t)b, stream));
    } else if (!strcmp(word[0], "threads")) {
        struct job jobs[32];
        pthread_t threads[32];
        int bad = 0;
        for (int i = 0; i < a; i++) {
            jobs[i] = (struct job){b, atoi(word[3]), 0};
            pthread_create(&threads[i], NULL, many, &jobs[i]);
        }
        for (int i = 0; i < a; i++) {
            pthread_join(threads[i], NULL);
            bad |= jobs[i].result;
        }
        say("threads result=%d", bad);
    } else if (!strcmp(word[0], "start")) {
        static struct job job;
        job = (struct job){1, a, 0};
        running = true;
        pthread_create(&endless_thread, NULL, endless, &job);
        say("started");
    } else if (!strcmp(word[0], "stop")) {
        running = false;
        pthread_join(endless_thread, NULL);
        say("stopped");
    } else if (!strcmp(word[0], "sync")) {
        say("sync result=%d", cu.cuStreamSynchronize(stream));
    } else if (!strcmp(word[0], "contextsync")) { /* as CUDA 13 has it, with an argument */
        CUcontext context;
        cu.cuDevicePrimaryCtxRetain(&context, device);
        say("contextsync result=%d", cu.cuCtxSynchronize(context));
    } else if (!strcmp(word[0], "unload")) {
        say("unload result=%d", cu.cuModuleUnload(NULL));
    } else if (!strcmp(word[0], "stats")) {
        char text[256];
        stats(text, sizeof text);
        say("%s", text);
    } else if (!strcmp(word[0], "capture")) {
        capture(stream);
    } else if (!strcmp(word[0], "capture2")) {
        CUstream other;
        cu.cuStreamCreate(&other, 0);
        capture(other);
        cu.cuStreamDestroy(other);
    } else if (!strcmp(word[0], "steps")) {
        steps(a, b);
    } else if (!strcmp(word[0], "serve")) {
        serve(a, b, atoi(word[3]), atoi(word[4]));
    } else if (!strcmp(word[0], "device")) {
        say("device result=%d", begin(a));
    } else if (!strcmp(word[0], "fork")) {
        run_fork();
    } else if (!strcmp(word[0], "daemon")) {
        run_daemon();
    } else if (!strcmp(word[0], "closeall")) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        say("closed");
    } else if (!strcmp(word[0], "openall")) { /* every descriptor is this file's */
        int file = open(word[1], O_RDWR | O_CREAT, 0600);
        for (int fd = 3; fd < 1024; fd++)
            dup2(file, fd);
        say("opened");
    } else if (!strcmp(word[0], "mark") || !strcmp(word[0], "unmark")) {
        char name[32];
        snprintf(name, sizeof name, "treadle_%s", word[0]);
        cu.cuStreamQuery(stream);
        say("%s %d", word[0], turnstile(name, 0));
    } else if (!strcmp(word[0], "background")) {
        static struct job job;
        pthread_t thread;
        job = (struct job){a, b, 0};
        pthread_create(&thread, NULL, background, &job);
        pthread_detach(thread);
    } else if (!strcmp(word[0], "class")) { /* of this thread */
        say("class %d", turnstile("treadle_set_thread_class", a));
    } else if (!strcmp(word[0], "assign")) { /* the program's stream */
        int (*call)(void *, int) =
            (int (*)(void *, int))dlsym(RTLD_DEFAULT, "treadle_set_stream_class");
        say("assign %d", call ? call(stream, a) : -1);
    } else if (!strcmp(word[0], "assigned")) { /* to a new stream, and to it once it is gone */
        int (*give)(void *, int) =
            (int (*)(void *, int))dlsym(RTLD_DEFAULT, "treadle_set_stream_class");
        int (*ask)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "treadle_stream_class");
        CUstream other;
        cu.cuStreamCreate(&other, 0);
        give(other, 2);
        int before = ask(other);
        cu.cuStreamDestroy(other);
        say("assigned before=%d after=%d", before, ask(other));
    } else if (!strcmp(word[0], "brief")) {
        CUstream other;
        cu.cuStreamCreate(&other, 0);
        CUresult result =
            cu.cuLaunchKernel(of_length(a), 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL);
        usleep(50);
        cu.cuStreamDestroy(other);
        say("brief result=%d", result);
    } else if (!strcmp(word[0], "exec")) {
        say("exec");
        execvp(word[1], word + 1);
        say("exec failed %d", errno);
    } else if (!memory_command(word, words) && !graph_command(word, words)) {
        say("unknown %s", word[0]);
    }
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "dlsym";
    if (get(way) || begin(0))
        return 1;
    say("ready %d", getpid());
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        char *word[16], *rest = line, *item;
        int words = 0;
        while (words < 15 && (item = strsep(&rest, " \n")))
            if (*item)
                word[words++] = item;
        word[words] = NULL;
        if (words)
            obey(word, words);
    }
    return 0;
}
