/* Getting driver functions in each of the ways that programs do. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "program_calls.h"
#include "standin.h"

struct calls cu;
void (*stats)(char *, size_t);
unsigned (*graph_nodes)(CUgraph);

#ifdef PLT /* exported names carry their versions */
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define C(name, args) extern CUresult name args;
CALLS(C)
#undef C
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuStreamDestroy
#undef cuStreamBeginCapture
#endif

static void *versioned(void *library, const char *name)
{
    char v2[96];
    snprintf(v2, sizeof v2, "%s_v2", name);
    void *p = dlsym(library, v2);
    return p ? p : dlsym(library, name);
}

static const char *way_;
static void *library;
static CUresult (*one)(const char *, void **, int, uint64_t);
static CUresult (*two)(const char *, void **, int, uint64_t, int *);

void *lookup(const char *name)
{
    int version = !strcmp(way_, "future") ? 99000 : !strcmp(way_, "proc12") ? 12080 : 13000;
    uint64_t flags = !strcmp(way_, "own") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    void *p = NULL;
    if (!strcmp(way_, "dlsym"))
        p = versioned(library, name);
    else if (!strcmp(way_, "proc1"))
        one(name, &p, 11030, flags);
    else
        two(name, &p, version, flags, NULL);
    if (!p)
        p = versioned(library, name);
    if (!p)
        fprintf(stderr, "no %s\n", name);
    return p;
}

int get(const char *way)
{
    way_ = way;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    stats = (void (*)(char *, size_t))dlsym(library, "standin_stats");
    graph_nodes = (unsigned (*)(CUgraph))dlsym(library, "standin_graph_nodes");
    one = (CUresult(*)(const char *, void **, int, uint64_t))dlsym(library, "cuGetProcAddress");
    two = (CUresult(*)(const char *, void **, int, uint64_t, int *))dlsym(library,
                                                                         "cuGetProcAddress_v2");
    if (!strcmp(way, "proc3")) { /* ask the first ABI for the second */
        void *p = NULL;
        one("cuGetProcAddress", &p, 12000, 0);
        two = (CUresult(*)(const char *, void **, int, uint64_t, int *))p;
        way_ = "proc2";
    }
#define C(name, args) cu.name = (CUresult(*) args)lookup(#name);
    CALLS(C)
#undef C
    get_copies(!strcmp(way, "proc12"));
#ifdef PLT
    cu.cuLaunchKernel = cuLaunchKernel;
    cu.cuLaunchKernelEx = cuLaunchKernelEx;
    cu.cuLaunchCooperativeKernel = cuLaunchCooperativeKernel;
    cu.cuLaunchCooperativeKernelMultiDevice = cuLaunchCooperativeKernelMultiDevice;
    cu.cuGraphLaunch = cuGraphLaunch;
    cu.cuLaunch = cuLaunch;
    cu.cuLaunchGrid = cuLaunchGrid;
    cu.cuLaunchGridAsync = cuLaunchGridAsync;
    cu.cuMemcpyAsync = cuMemcpyAsync;
    cu.cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2;
    cu.cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2;
    cu.cuMemcpyDtoDAsync = cuMemcpyDtoDAsync_v2;
    cu.cuStreamBeginCapture = cuStreamBeginCapture_v2;
    cu.cuStreamEndCapture = cuStreamEndCapture;
    cu.cuModuleGetFunction = cuModuleGetFunction;
#endif
    return 0;
}
