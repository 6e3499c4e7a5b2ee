/* What the context and its libraries take, which no allocation shows. NVML knows what the process
 * holds on a GPU as a whole: what that is more than the account is theirs. Asked now and then
 * while the program allocates, unless TREADLE_CONTEXT_BYTES says what to charge. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "memory.h"

#define EVERY (1000 * MS) /* an answer may take most of a millisecond */
#define EVERY_NEAR (20 * MS)
#define NEAR (64ull << 20) /* the limit: what small allocations take more than they ask matters */
#define PROCESSES 128

struct process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };
typedef int (*init_call)(void);
typedef int (*handle_call)(const char *uuid, void **device);
typedef int (*processes_call)(void *device, unsigned *count, struct process *list);

static struct spin asking; /* only tried: one thread asks, and the others go on */
static _Atomic uint64_t next_ns[MAX_GPUS];
static uint64_t last[MAX_GPUS]; /* under asking, like what follows */
static void *devices[MAX_GPUS];
static processes_call processes;
static bool tried;

static void start(void)
{
    tried = true;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!library || !dlsym_libc)
        return;
    init_call init = (init_call)dlsym_libc(library, "nvmlInit_v2");
    handle_call handle = (handle_call)dlsym_libc(library, "nvmlDeviceGetHandleByUUID");
    if (!init || !handle || init())
        return;
    char uuid[64];
    for (int gpu = 0; gpu < driver_gpus() && gpu < MAX_GPUS; gpu++) {
        driver_uuid(gpu, uuid, sizeof uuid);
        if (handle(uuid, &devices[gpu]))
            devices[gpu] = NULL;
    }
    processes = (processes_call)dlsym_libc(library, "nvmlDeviceGetComputeRunningProcesses_v3");
}

/* All that this process holds; 0: not known, as where its number means nothing outside. */
static uint64_t held(int gpu)
{
    struct process list[PROCESSES];
    unsigned count = PROCESSES, own = (unsigned)getpid();
    if (!processes || !devices[gpu] || processes(devices[gpu], &count, list))
        return 0;
    for (unsigned i = 0; i < count && i < PROCESSES; i++)
        if (list[i].pid == own && list[i].bytes != ~0ull)
            return list[i].bytes;
    return 0;
}

void overhead_look(int gpu)
{
    if (!gate_me.context_measured || !gate_me.memory_limit_bytes || !driver())
        return;
    uint64_t now = clock_ns();
    if (now < load(&next_ns[gpu]) || !spin_try(&asking))
        return;
    bool near = memory_allocated(gpu) + gate_me.context_bytes + NEAR > gate_me.memory_limit_bytes;
    store(&next_ns[gpu], now + (near ? EVERY_NEAR : EVERY));
    if (!tried)
        start();
    uint64_t before = memory_allocated(gpu), all = held(gpu), after = memory_allocated(gpu);
    if (all && before == after) {
        /* What another thread is about to allocate, or has just freed, makes theirs seem less, for
         * a moment: so the larger of two. */
        uint64_t theirs = all > after ? all - after : 0;
        uint64_t larger = theirs > last[gpu] ? theirs : last[gpu];
        last[gpu] = theirs;
        memory_context(gpu, larger > gate_me.context_bytes ? larger : gate_me.context_bytes);
    }
    spin_give(&asking);
}

void overhead_after_fork(void)
{
    asking = (struct spin){0};
    tried = false;
    for (int i = 0; i < MAX_GPUS; i++) {
        store(&next_ns[i], 0);
        last[i] = 0;
    }
}
