/* The program's commands that allocate. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "program.h"
#include "standin.h"

#define CALLS(C)                                                                              \
    C(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                 \
    C(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                   \
    C(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                \
    C(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                     \
    C(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))               \
    C(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *))                              \
    C(cuMemPoolDestroy, (CUmemoryPool))                                                       \
    C(cuMemPoolTrimTo, (CUmemoryPool, size_t))                                                \
    C(cuMemPoolSetAttribute, (CUmemoryPool, int, void *))                                     \
    C(cuDeviceGetDefaultMemPool, (CUmemoryPool *, int))                                       \
    C(cuStreamSynchronize, (CUstream))                                                        \
    C(cuMemFree_v2, (CUdeviceptr))                                                            \
    C(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                \
    C(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,      \
                    unsigned long long))                                                      \
    C(cuMemRelease, (CUmemGenericAllocationHandle))                                           \
    C(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *))                  \
    C(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) \
    C(cuMemUnmap, (CUdeviceptr, size_t))                                                      \
    C(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))                           \
    C(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned)) \
    C(cuMipmappedArrayDestroy, (CUmipmappedArray))                                            \
    C(cuArrayDestroy, (CUarray))                                                              \
    C(cuMemGetInfo_v2, (size_t *, size_t *))                                                  \
    C(cuDeviceTotalMem_v2, (size_t *, int))                                                   \
    C(cuDevicePrimaryCtxRetain, (CUcontext *, int))                                           \
    C(cuCtxSetCurrent, (CUcontext))

static struct {
#define C(name, args) CUresult(*name) args;
    CALLS(C)
#undef C
} cu;
static void (*books)(unsigned long long *, unsigned long long *);
static unsigned long long (*trims)(void);
static CUmemoryPool own; /* of the program's making */

static void get(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define C(name, args) cu.name = (CUresult(*) args)dlsym(library, #name);
    CALLS(C)
#undef C
    books = (void (*)(unsigned long long *, unsigned long long *))dlsym(library, "standin_books");
    trims = (unsigned long long (*)(void))dlsym(library, "standin_trims");
}

static CUresult allocate(const char *kind, CUdeviceptr *p, size_t n)
{
    size_t pitch;
    CUmemAllocationProp where = {0};
    where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUDA_ARRAY_DESCRIPTOR shape = {n, 1, 1, 1};
    if (!strcmp(kind, "managed"))
        return cu.cuMemAllocManaged(p, n, 1);
    if (!strcmp(kind, "pitch"))
        return cu.cuMemAllocPitch_v2(p, &pitch, n / 4, 4, 4);
    if (!strcmp(kind, "async"))
        return cu.cuMemAllocAsync(p, n, NULL);
    if (!strcmp(kind, "pool")) {
        CUmemoryPool pool = own;
        if (!pool)
            cu.cuDeviceGetDefaultMemPool(&pool, 0);
        return cu.cuMemAllocFromPoolAsync(p, n, pool, NULL);
    }
    if (!strcmp(kind, "create"))
        return cu.cuMemCreate(p, n, &where, 0);
    if (!strcmp(kind, "array"))
        return cu.cuArrayCreate_v2((CUarray *)p, &shape);
    CUDA_ARRAY3D_DESCRIPTOR base = {n, 0, 0, 1, 1, 0};
    if (!strcmp(kind, "mipmap"))
        return cu.cuMipmappedArrayCreate((CUmipmappedArray *)p, &base, 1);
    if (!strcmp(kind, "levels")) /* of a line: twice the base in all */
        return cu.cuMipmappedArrayCreate((CUmipmappedArray *)p, &base, 12);
    return cu.cuMemAlloc_v2(p, n);
}

static CUresult release(const char *kind, CUdeviceptr p)
{
    if (!strcmp(kind, "create"))
        return cu.cuMemRelease(p);
    if (!strcmp(kind, "array"))
        return cu.cuArrayDestroy((CUarray)(uintptr_t)p);
    if (!strcmp(kind, "mipmap") || !strcmp(kind, "levels"))
        return cu.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)p);
    if (!strcmp(kind, "async") || !strcmp(kind, "pool"))
        return cu.cuMemFreeAsync(p, NULL);
    return cu.cuMemFree_v2(p);
}

struct churn { unsigned seed; int rounds, refused, wrong; };
static void *churn(void *argument)
{
    static const char *const kinds[] = {"plain", "managed", "pitch", "async", "pool", "create"};
    struct churn *c = argument;
    struct { const char *kind; CUdeviceptr p; } held[32] = {0};
    CUcontext context;
    cu.cuDevicePrimaryCtxRetain(&context, 0);
    cu.cuCtxSetCurrent(context);
    for (int i = 0; i < c->rounds + 32; i++) {
        int at = i < c->rounds ? (int)(rand_r(&c->seed) % 32) : i - c->rounds;
        if (held[at].p) {
            c->wrong += release(held[at].kind, held[at].p) != 0;
            held[at].p = 0;
        } else if (i < c->rounds) {
            held[at].kind = kinds[rand_r(&c->seed) % 6];
            size_t n = (size_t)(rand_r(&c->seed) % 4000 + 4) << 10;
            CUresult result = allocate(held[at].kind, &held[at].p, n);
            c->refused += result == CUDA_ERROR_OUT_OF_MEMORY;
            c->wrong += result && result != CUDA_ERROR_OUT_OF_MEMORY;
            if (result)
                held[at].p = 0;
        }
    }
    return NULL;
}

static void churn_all(int threads, int rounds)
{
    struct churn jobs[16];
    pthread_t ids[16];
    unsigned long long now, peak;
    int refused = 0, wrong = 0;
    for (int i = 0; i < threads; i++) {
        jobs[i] = (struct churn){.seed = (unsigned)i + 1, .rounds = rounds};
        pthread_create(&ids[i], NULL, churn, &jobs[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        refused += jobs[i].refused;
        wrong += jobs[i].wrong;
    }
    cu.cuStreamSynchronize(NULL);
    books(&now, &peak);
    say("churn refused=%d wrong=%d now=%llu peak=%llu", refused, wrong, now, peak);
}

static void nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*one)(void *, unsigned long long *) =
        (int (*)(void *, unsigned long long *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*two)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    unsigned long long a[3], far[3];
    struct { unsigned version; unsigned long long total, reserved, free, used; } b;
    one((void *)0, a);
    two((void *)0, &b);
    one((void *)9, far); /* a GPU that is not this process's */
    say("nvml total=%llu free=%llu used=%llu total2=%llu free2=%llu far=%llu", a[0], a[1], a[2],
        b.total, b.free, far[0]);
}

static bool pool_command(char **word, unsigned long long a)
{
    CUmemoryPool pool = own;
    if (!pool)
        cu.cuDeviceGetDefaultMemPool(&pool, 0);
    if (!strcmp(word[0], "newpool")) { /* newpool DEVICE; below 0: in host memory */
        CUmemPoolProps how = {0};
        how.location.type = atoi(word[1]) < 0 ? 2 : CU_MEM_LOCATION_TYPE_DEVICE;
        how.location.id = atoi(word[1]) < 0 ? 0 : atoi(word[1]);
        say("newpool result=%d", cu.cuMemPoolCreate(&own, &how));
    } else if (!strcmp(word[0], "endpool")) {
        say("endpool result=%d", cu.cuMemPoolDestroy(own));
        own = NULL;
    } else if (!strcmp(word[0], "threshold")) {
        uint64_t bytes = a;
        say("threshold result=%d", cu.cuMemPoolSetAttribute(
                                       pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
    } else if (!strcmp(word[0], "trim")) {
        say("trim result=%d", cu.cuMemPoolTrimTo(pool, a));
    } else if (!strcmp(word[0], "books")) {
        unsigned long long now, peak;
        books(&now, &peak);
        say("books now=%llu peak=%llu trims=%llu", now, peak, trims());
    } else {
        return false;
    }
    return true;
}

bool memory_command(char **word, int words)
{
    static struct { char kind[16]; CUdeviceptr p; } held[64];
    if (!cu.cuMemAlloc_v2)
        get();
    unsigned long long a = words > 2 ? strtoull(word[2], NULL, 10) : 0;
    if (!strcmp(word[0], "alloc")) { /* alloc KIND BYTES */
        CUdeviceptr p = 0;
        CUresult result = allocate(word[1], &p, a);
        int i = 0;
        while (i < 63 && held[i].p)
            i++;
        if (!result) {
            held[i].p = p;
            snprintf(held[i].kind, sizeof held[i].kind, "%s", word[1]);
        }
        say("alloc result=%d number=%d", result, i);
    } else if (!strcmp(word[0], "free")) {
        int i = atoi(word[1]);
        CUresult result = release(held[i].kind, held[i].p);
        held[i].p = 0;
        say("free result=%d", result);
    } else if (!strcmp(word[0], "map")) {
        CUdeviceptr p = held[atoi(word[1])].p;
        say("map result=%d", cu.cuMemMap(p + 4096, 1, 0, p, 0));
    } else if (!strcmp(word[0], "unmap")) { /* by the number of a handle that may be released */
        say("unmap result=%d", cu.cuMemUnmap((strtoull(word[1], NULL, 10)) + 4096, 1));
    } else if (!strcmp(word[0], "address")) {
        say("address %llu", held[atoi(word[1])].p);
    } else if (!strcmp(word[0], "retain")) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr p = held[atoi(word[1])].p;
        say("retain result=%d",
            cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(p + 4096)));
    } else if (!strcmp(word[0], "info")) {
        size_t f, t, d;
        cu.cuMemGetInfo_v2(&f, &t);
        cu.cuDeviceTotalMem_v2(&d, 0);
        say("info free=%zu total=%zu device=%zu", f, t, d);
    } else if (!strcmp(word[0], "churn")) {
        churn_all(atoi(word[1]), (int)a);
    } else if (!strcmp(word[0], "nvml")) {
        nvml();
    } else {
        return pool_command(word, words > 1 ? strtoull(word[1], NULL, 10) : 0);
    }
    return true;
}
