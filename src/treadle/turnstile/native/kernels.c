/* The hooks of kernel launches. */
#include "launch.h"

#define KERNEL_PARAMETERS                                                                      \
    CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
        unsigned shared, CUstream stream, void **parameters
#define KERNEL_ARGUMENTS f, gx, gy, gz, bx, by, bz, shared, stream, parameters

static inline void prepare(struct launch *l, const void *f, const unsigned shape[6],
                           CUstream stream, bool per_thread, const void *caller)
{
    l->kind = unlikely(name_collective(f)) ? LAUNCH_COLLECTIVE : LAUNCH_KERNEL;
    l->per_thread = per_thread;
    l->stream = stream;
    l->function = f;
    l->caller = caller;
    l->usual_ns = 0;
    l->synchronous = false;
    l->key = learn_key(f, shape, LAUNCH_KERNEL);
}

/* `call` uses `real`; hooks are off in this thread meanwhile. */
#define GATED(launch, name, ...)                            \
    __typeof__(&name) real = REAL(name);                    \
    if (unlikely(!real))                                    \
        return CUDA_ERROR_NOT_FOUND;                        \
    if (unlikely(gate_inside))                              \
        return real(__VA_ARGS__);                           \
    launch_before(&(launch));                               \
    gate_inside = 1;                                        \
    CUresult result = real(__VA_ARGS__);                    \
    gate_inside = 0;                                        \
    launch_after(&(launch), result);                        \
    return result

#define LAUNCH_KERNEL_HOOK(name, per_thread)                                              \
    EXPORT CUresult name(KERNEL_PARAMETERS, void **extra)                                 \
    {                                                                                     \
        struct launch l;                                                                  \
        const unsigned shape[6] = {gx, gy, gz, bx, by, bz};                               \
        prepare(&l, f, shape, stream, per_thread, __builtin_return_address(0));           \
        GATED(l, name, KERNEL_ARGUMENTS, extra);                                          \
    }
LAUNCH_KERNEL_HOOK(cuLaunchKernel, false)
LAUNCH_KERNEL_HOOK(cuLaunchKernel_ptsz, true)

static bool cooperative(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.word)
            return true;
    return false;
}

#define LAUNCH_EX_HOOK(name, per_thread)                                                  \
    EXPORT CUresult name(const CUlaunchConfig *config, CUfunction f, void **parameters,   \
                         void **extra)                                                    \
    {                                                                                     \
        struct launch l;                                                                  \
        static const CUlaunchConfig none;                                                 \
        const CUlaunchConfig *c = config ? config : &none;                                \
        const unsigned shape[6] = {c->gridDimX,  c->gridDimY,  c->gridDimZ,               \
                                   c->blockDimX, c->blockDimY, c->blockDimZ};             \
        prepare(&l, f, shape, c->hStream, per_thread, __builtin_return_address(0));       \
        if (l.kind == LAUNCH_KERNEL && cooperative(c))                                    \
            l.kind = LAUNCH_UNCOUNTED;                                                    \
        GATED(l, name, config, f, parameters, extra);                                     \
    }
LAUNCH_EX_HOOK(cuLaunchKernelEx, false)
LAUNCH_EX_HOOK(cuLaunchKernelEx_ptsz, true)

static void prepare_uncounted(struct launch *l, const void *f, CUstream stream, bool per_thread)
{
    *l = (struct launch){.kind = name_collective(f) ? LAUNCH_COLLECTIVE : LAUNCH_UNCOUNTED,
                         .per_thread = per_thread,
                         .stream = stream,
                         .function = f};
}

#define COOPERATIVE_HOOK(name, per_thread)                    \
    EXPORT CUresult name(KERNEL_PARAMETERS)                   \
    {                                                         \
        struct launch l;                                      \
        prepare_uncounted(&l, f, stream, per_thread);         \
        GATED(l, name, KERNEL_ARGUMENTS);                     \
    }
COOPERATIVE_HOOK(cuLaunchCooperativeKernel, false)
COOPERATIVE_HOOK(cuLaunchCooperativeKernel_ptsz, true)

/* One kernel on several GPUs, whose parts wait for each other: like a collective. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned devices,
                                                     unsigned flags)
{
    struct launch l = {.kind = LAUNCH_COLLECTIVE};
    if (list && devices)
        l.stream = list[0].hStream;
    GATED(l, cuLaunchCooperativeKernelMultiDevice, list, devices, flags);
}

/* The calls of the first CUDA versions, still exported. */
EXPORT CUresult cuLaunch(CUfunction f)
{
    struct launch l;
    const unsigned shape[6] = {1, 1, 1, 0, 0, 0};
    prepare(&l, f, shape, NULL, false, __builtin_return_address(0));
    GATED(l, cuLaunch, f);
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    struct launch l;
    const unsigned shape[6] = {(unsigned)width, (unsigned)height, 1, 0, 0, 0};
    prepare(&l, f, shape, NULL, false, __builtin_return_address(0));
    GATED(l, cuLaunchGrid, f, width, height);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    struct launch l;
    const unsigned shape[6] = {(unsigned)width, (unsigned)height, 1, 0, 0, 0};
    prepare(&l, f, shape, stream, false, __builtin_return_address(0));
    GATED(l, cuLaunchGridAsync, f, width, height, stream);
}
