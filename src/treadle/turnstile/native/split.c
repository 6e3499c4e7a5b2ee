/* Taking graphs apart. A graph's kernels lie in an order in which each comes after those that it
 * needs; cut in the middle of it, the two halves launched one after the other do the same work.
 *
 * A half is a clone of the graph without the other half's nodes, so that nothing of a node has to
 * be understood. Graphs stay whole that hold nodes of other kinds than kernels, copies and fills,
 * or collectives. Where a kernel may begin before the one ahead of it has ended, and the cut comes
 * between them, it begins after it. */
#include <stdlib.h>

#include "split.h"

#define BUCKETS 1024
#define NODES_MOST 65536
#define NODE_USUALLY (5 * US)
#define FLAG_UPLOAD 2         /* needs a stream: left out for halves */
#define FLAG_DEVICE_LAUNCH 4  /* may be launched by kernels, past every hook */
#define EDGE_DATA_BYTES 8

enum { KERNEL = 0, COPY = 1, FILL = 2, EMPTY = 5 }; /* kinds of node */

#define GRAPH_CALLS(G)                                                              \
    G(cuGraphClone, cuGraphClone, (CUgraph *, CUgraph))                             \
    G(cuGraphDestroy, cuGraphDestroy, (CUgraph))                                    \
    G(cuGraphGetNodes, cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))         \
    G(cuGraphGetEdges, cuGraphGetEdges, (CUgraph, CUgraphNode *, CUgraphNode *, size_t *)) \
    G(cuGraphNodeGetType, cuGraphNodeGetType, (CUgraphNode, int *))                 \
    G(cuGraphNodeFindInClone, cuGraphNodeFindInClone, (CUgraphNode *, CUgraphNode, CUgraph)) \
    G(cuGraphDestroyNode, cuGraphDestroyNode, (CUgraphNode))                        \
    G(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, (CUgraphNode, void *)) \
    G(instantiate, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    G(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))                        \
    G(cuEventDestroy, cuEventDestroy_v2, (CUevent))

struct graph_calls {
#define G(name, symbol, args) CUresult(*name) args;
    GRAPH_CALLS(G)
#undef G
    /* From CUDA 12.3 on: does not refuse edges that have more to say than "after". */
    CUresult (*cuGraphGetEdges_v2)(CUgraph, CUgraphNode *, CUgraphNode *, void *, size_t *);
    CUresult (*cuGraphKernelNodeGetParams_v2)(CUgraphNode, void *); /* from CUDA 12.0 on */
};

static struct spin lock;
static struct parted *buckets[BUCKETS];

/* NULL where the driver lacks one of them. */
static const struct graph_calls *calls(void)
{
    static struct graph_calls table;
    static _Atomic int state; /* 1: there, 2: not */
    if (!load(&state)) {
        struct graph_calls fresh;
        bool all = driver() != NULL;
#define G(name, symbol, args) all &= (fresh.name = (CUresult(*) args)driver_symbol(#symbol)) != NULL;
        GRAPH_CALLS(G)
#undef G
        fresh.cuGraphGetEdges_v2 =
            (__typeof__(fresh.cuGraphGetEdges_v2))driver_symbol("cuGraphGetEdges_v2");
        fresh.cuGraphKernelNodeGetParams_v2 =
            (__typeof__(fresh.cuGraphKernelNodeGetParams_v2))driver_symbol(
                "cuGraphKernelNodeGetParams_v2");
        if (all)
            table = fresh; /* two threads write the same values */
        atomic_store_explicit(&state, all ? 1 : 2, memory_order_release);
    }
    return atomic_load_explicit(&state, memory_order_acquire) == 1 ? &table : NULL;
}

static struct parted **bucket_of(CUgraphExec exec)
{
    return &buckets[((uintptr_t)exec >> 4) * 0x9e3779b97f4a7c15ull >> 54];
}

static struct parted **at_exec(CUgraphExec exec)
{
    struct parted **at = bucket_of(exec);
    while (*at && (*at)->root.exec != exec)
        at = &(*at)->next;
    return at;
}

/* What is kept of a graph, for one thread at a time: two that launch the same graph would run it
 * beside itself. Nobody waits here longer than another waits at the gate. */
static struct parted *take(CUgraphExec exec, bool unlink)
{
    for (;;) {
        spin_take(&lock);
        struct parted **at = at_exec(exec), *p = *at;
        bool taken = p && p->taken;
        if (p && !taken) {
            p->taken = true;
            if (unlink)
                *at = p->next;
        }
        spin_give(&lock);
        if (!taken)
            return p;
        sleep_until(clock_ns() + 20 * US);
    }
}

struct parted *parted_take(CUgraphExec exec)
{
    return take(exec, false);
}

void parted_give(struct parted *of)
{
    spin_take(&lock);
    of->taken = false;
    spin_give(&lock);
}

/* Of the graphs that a forked child was given nothing can be used, or destroyed. */
void parted_after_fork(void)
{
    lock = (struct spin){0};
    for (unsigned i = 0; i < BUCKETS; i++)
        buckets[i] = NULL;
}

/* A graph was instantiated: the program may destroy or change it, so keep a copy. */
void parted_keep(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
    const struct graph_calls *g = calls();
    size_t nodes = 0;
    CUgraph clone;
    free(take(exec, true)); /* of one that went with its context, and had this address */
    if (!g || (flags & FLAG_DEVICE_LAUNCH) || !seats_configured() || my_class() == TREADLE_CRITICAL)
        return;
    if (g->cuGraphGetNodes(graph, NULL, &nodes) || nodes < 2 || nodes > NODES_MOST)
        return;
    struct parted *p = calloc(1, sizeof *p);
    if (!p || g->cuGraphClone(&clone, graph)) {
        free(p);
        return;
    }
    p->root = (struct part){.graph = clone, .exec = exec, .nodes = nodes};
    p->root.usual_ns = nodes * NODE_USUALLY;
    p->flags = flags & ~(unsigned long long)FLAG_UPLOAD;
    spin_take(&lock);
    p->next = *bucket_of(exec);
    *bucket_of(exec) = p;
    spin_give(&lock);
}

static void drop(const struct graph_calls *g, struct part *part, bool own)
{
    if (!part)
        return;
    for (int i = 0; i < 2; i++) {
        drop(g, part->half[i], true);
        free(part->half[i]);
    }
    if (part->graph)
        g->cuGraphDestroy(part->graph);
    if (own && part->exec) {
        learn_forget(learn_key(part->exec, NULL, LAUNCH_GRAPH));
        g->cuGraphExecDestroy(part->exec);
    }
}

/* It becomes another than what was kept of it, and is whole from now on. Its parts may still run:
 * where its next launch has to wait for them is kept. */
void parted_changed(CUgraphExec exec)
{
    struct parted *p = take(exec, false);
    if (!p)
        return;
    int mode = quiet_begin(driver());
    drop(calls(), &p->root, false);
    quiet_end(driver(), mode);
    p->root.graph = NULL;
    p->root.half[0] = p->root.half[1] = NULL;
    p->root.whole = true;
    parted_give(p);
}

/* The graph is destroyed. */
void parted_forget(CUgraphExec exec)
{
    struct parted *p = take(exec, true);
    if (!p)
        return;
    const struct graph_calls *g = calls();
    int mode = quiet_begin(driver());
    drop(g, &p->root, false);
    if (p->done)
        g->cuEventDestroy(p->done);
    quiet_end(driver(), mode);
    free(p);
}

struct place { CUgraphNode node; size_t index; };

static int by_node(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct place *)a)->node;
    uintptr_t y = (uintptr_t)((const struct place *)b)->node;
    return x < y ? -1 : x > y;
}

static size_t index_of(const struct place *places, size_t count, CUgraphNode node)
{
    struct place key = {node, 0}, *found = bsearch(&key, places, count, sizeof key, by_node);
    return found ? found->index : count;
}

static CUresult get_edges(const struct graph_calls *g, CUgraph graph, CUgraphNode *from,
                          CUgraphNode *to, void *data, size_t *count)
{
    return g->cuGraphGetEdges_v2 ? g->cuGraphGetEdges_v2(graph, from, to, data, count)
                                 : g->cuGraphGetEdges(graph, from, to, count);
}

/* Does every edge lead from an earlier node to a later one? */
static bool edges_ascend(const struct graph_calls *g, CUgraph graph, const struct place *places,
                         size_t count)
{
    size_t edges = 0;
    if (get_edges(g, graph, NULL, NULL, NULL, &edges))
        return false;
    CUgraphNode *ends = malloc((2 * edges + 1) * sizeof *ends);
    char *data = malloc(edges * EDGE_DATA_BYTES + 1); /* not looked at */
    bool ascend = ends && data && !get_edges(g, graph, ends, ends + edges, data, &edges);
    for (size_t i = 0; ascend && i < edges; i++)
        ascend = index_of(places, count, ends[i]) < index_of(places, count, ends[edges + i]);
    free(data);
    free(ends);
    return ascend;
}

static bool movable(const struct graph_calls *g, CUgraphNode node)
{
    int kind;
    if (g->cuGraphNodeGetType(node, &kind))
        return false;
    if (kind == KERNEL) {
        void *parameters[32] = {NULL}; /* the function first, in the second version a kernel 8th */
        CUresult (*ask)(CUgraphNode, void *) = g->cuGraphKernelNodeGetParams_v2;
        return !(ask ? ask : g->cuGraphKernelNodeGetParams)(node, parameters) &&
               !name_collective(parameters[0]) &&
               !(ask && parameters[7] && name_collective(parameters[7]));
    }
    return kind == COPY || kind == FILL || kind == EMPTY;
}

/* The nodes in an order that may be cut anywhere; NULL if there is none. */
static CUgraphNode *in_order(const struct graph_calls *g, const struct part *part)
{
    size_t count = part->nodes;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    struct place *places = calloc(count, sizeof *places);
    bool fine = nodes && places && !g->cuGraphGetNodes(part->graph, nodes, &count) &&
                count == part->nodes;
    for (size_t i = 0; fine && i < count; i++) {
        fine = movable(g, nodes[i]);
        places[i] = (struct place){nodes[i], i};
    }
    if (fine) {
        qsort(places, count, sizeof *places, by_node);
        fine = edges_ascend(g, part->graph, places, count);
    }
    free(places);
    if (!fine) {
        free(nodes);
        return NULL;
    }
    return nodes;
}

/* What is left of a part's graph when only the nodes from `first` up to `end` stay. */
static struct part *cut(const struct graph_calls *g, const struct parted *of,
                        const struct part *part, CUgraphNode *nodes, size_t first, size_t end)
{
    struct part *half = calloc(1, sizeof *half);
    if (!half || g->cuGraphClone(&half->graph, part->graph)) {
        free(half);
        return NULL;
    }
    bool fine = true;
    for (size_t i = 0; fine && i < part->nodes; i++) {
        CUgraphNode here;
        if (i < first || i >= end)
            fine = !g->cuGraphNodeFindInClone(&here, nodes[i], half->graph) &&
                   !g->cuGraphDestroyNode(here);
    }
    half->nodes = end - first;
    half->whole = half->nodes < 2;
    if (fine && !g->instantiate(&half->exec, half->graph, of->flags))
        return half;
    half->exec = NULL;
    drop(g, half, true);
    free(half);
    return NULL;
}

/* Divide a part in two; false, now and later, if that cannot be. */
bool part_divide(const struct parted *of, struct part *part)
{
    const struct graph_calls *g = calls();
    if (part->half[0] || part->whole)
        return part->half[0] != NULL;
    int mode = quiet_begin(driver());
    CUgraphNode *nodes = in_order(g, part);
    size_t middle = part->nodes / 2;
    if (nodes) {
        part->half[0] = cut(g, of, part, nodes, 0, middle);
        part->half[1] = part->half[0] ? cut(g, of, part, nodes, middle, part->nodes) : NULL;
        if (part->half[0] && !part->half[1]) {
            drop(g, part->half[0], true);
            free(part->half[0]);
            part->half[0] = NULL;
        }
        free(nodes);
    }
    quiet_end(driver(), mode);
    part->whole = part->half[0] == NULL;
    return !part->whole;
}
