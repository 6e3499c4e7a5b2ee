/* The hooks of graphs: instantiated, launched, changed, destroyed. */
#include "split.h"

static CUresult launch_one(graph_call real, CUgraphExec exec, uint64_t usual_ns, CUstream stream,
                           bool per_thread)
{
    struct launch l = {.kind = LAUNCH_GRAPH,
                       .per_thread = per_thread,
                       .stream = stream,
                       .usual_ns = usual_ns,
                       .key = learn_key(exec, NULL, LAUNCH_GRAPH)};
    launch_before(&l);
    gate_inside = 1;
    CUresult result = real(exec, stream);
    gate_inside = 0;
    launch_after(&l, result);
    return result;
}

static uint64_t length_of(const struct part *part)
{
    uint64_t key = learn_key(part->exec, NULL, LAUNCH_GRAPH);
    struct lesson lesson = learn_lesson(key, key);
    if (learn_known(&lesson))
        return learn_high(&lesson);
    return part->half[0] ? length_of(part->half[0]) + length_of(part->half[1]) : part->usual_ns;
}

static CUresult launch_part(graph_call real, struct parted *of, struct part *part,
                            uint64_t budget_ns, CUstream stream, bool per_thread)
{
    uint64_t length = length_of(part);
    if (length <= budget_ns || !part_divide(of, part))
        return launch_one(real, part->exec, part->usual_ns, stream, per_thread);
    for (int i = 0; i < 2; i++) {
        if (!part->half[i]->usual_ns)
            part->half[i]->usual_ns = length / 2;
        CUresult result =
            launch_part(real, of, part->half[i], budget_ns, stream, per_thread);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult launch_graph(graph_call real, CUgraphExec exec, CUstream stream, bool per_thread)
{
    if (capturing(stream, per_thread))
        return real(exec, stream);
    struct parted *of = parted_take(exec);
    if (!of)
        return launch_one(real, exec, 1 * MS, stream, per_thread);
    uint64_t budget_ns = launch_bound(stream, per_thread);
    bool parts = budget_ns && !of->root.whole && length_of(&of->root) > budget_ns;
    parts = parted_follow(of, stream, per_thread, parts) && parts;
    CUresult result =
        parts ? launch_part(real, of, &of->root, budget_ns, stream, per_thread)
              : launch_one(real, exec, of->root.usual_ns, stream, per_thread);
    parted_launched(of, stream, per_thread);
    parted_give(of);
    return result;
}

#define LAUNCH_HOOK(name, per_thread)                             \
    EXPORT CUresult name(CUgraphExec exec, CUstream stream)       \
    {                                                             \
        graph_call real = REAL(name);                             \
        if (unlikely(!real))                                      \
            return CUDA_ERROR_NOT_FOUND;                          \
        if (unlikely(gate_inside))                                \
            return real(exec, stream);                            \
        return launch_graph(real, exec, stream, per_thread);      \
    }
LAUNCH_HOOK(cuGraphLaunch, false)
LAUNCH_HOOK(cuGraphLaunch_ptsz, true)

static CUresult instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph,
                             unsigned long long flags)
{
    if (!result && !gate_inside)
        parted_keep(*exec, graph, flags);
    return result;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    CUresult result;
    THROUGH(cuGraphInstantiateWithFlags, exec, graph, flags);
    return instantiated(result, exec, graph, flags);
}

/* Those before CUDA 12 have no flags. */
#define OLD_INSTANTIATE(name)                                                            \
    EXPORT CUresult name(CUgraphExec *exec, CUgraph graph, CUgraphNode *at, char *text,  \
                         size_t size)                                                    \
    {                                                                                    \
        CUresult result;                                                                 \
        THROUGH(name, exec, graph, at, text, size);                                      \
        return instantiated(result, exec, graph, 0);                                     \
    }
OLD_INSTANTIATE(cuGraphInstantiate)
OLD_INSTANTIATE(cuGraphInstantiate_v2)

/* `parameters` begin with the flags. */
#define INSTANTIATE_WITH(name)                                                            \
    EXPORT CUresult name(CUgraphExec *exec, CUgraph graph, unsigned long long *parameters) \
    {                                                                                     \
        CUresult result;                                                                  \
        THROUGH(name, exec, graph, parameters);                                           \
        return instantiated(result, exec, graph, parameters ? *parameters : 0);           \
    }
INSTANTIATE_WITH(cuGraphInstantiateWithParams)
INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz)

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    CUresult result;
    parted_forget(exec);
    learn_forget(learn_key(exec, NULL, LAUNCH_GRAPH));
    THROUGH(cuGraphExecDestroy, exec);
    return result;
}

/* Whatever is changed in it, it is no longer the graph that was kept. All their arguments are
 * pointers or fit where one does, in registers of their own. */
#define CHANGE(name)                                                               \
    EXPORT CUresult name(CUgraphExec exec, void *a, void *b, void *c, void *d)     \
    {                                                                              \
        CUresult result;                                                           \
        parted_changed(exec);                                                      \
        THROUGH(name, exec, a, b, c, d);                                           \
        return result;                                                             \
    }
CHANGE(cuGraphExecUpdate)
CHANGE(cuGraphExecUpdate_v2)
CHANGE(cuGraphExecKernelNodeSetParams)
CHANGE(cuGraphExecKernelNodeSetParams_v2)
CHANGE(cuGraphExecMemcpyNodeSetParams)
CHANGE(cuGraphExecMemsetNodeSetParams)
CHANGE(cuGraphExecNodeSetParams)
CHANGE(cuGraphNodeSetEnabled)
