/* The stand-in's graphs: each captured kernel is a node behind the one before it. */
#include "standin.h"

#define API __attribute__((visibility("default")))

struct node {
    const struct kernel *kernel;
    unsigned long long length_ns;
    unsigned number, of; /* its place in the graph that was captured, and the size of that */
    struct node *original;
    struct graph *graph;
    bool removed;
};
struct graph { struct node **nodes; size_t count, room; };
struct executable { size_t count; unsigned *numbers, of; unsigned long long length_ns, until_ns; };

static unsigned disorder, expected, overlaps;
static unsigned long long until_ns; /* of the last graph launched, or part of one */

struct graph *standin_graph(void)
{
    return calloc(1, sizeof(struct graph));
}

unsigned standin_disorder(void)
{
    return disorder + expected;
}

unsigned standin_overlaps(void)
{
    return overlaps;
}

static struct node *add_node(struct graph *g, struct node content)
{
    if (g->count == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->nodes = realloc(g->nodes, g->room * sizeof *g->nodes);
    }
    struct node *node = malloc(sizeof *node);
    *node = content;
    node->graph = g;
    g->nodes[g->count++] = node;
    return node;
}

void standin_capture(struct stream *s, const struct kernel *kernel, unsigned long long length_ns)
{
    unsigned number = (unsigned)s->captured->count;
    add_node(s->captured,
             (struct node){.kernel = kernel, .length_ns = length_ns, .number = number});
}

static size_t living(const struct graph *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        n += !g->nodes[i]->removed;
    return n;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    struct graph *g = (struct graph *)graph;
    struct executable *e = calloc(1, sizeof *e);
    e->numbers = calloc(g->count + 1, sizeof *e->numbers);
    for (size_t i = 0; i < g->count; i++) {
        struct node *node = g->nodes[i];
        e->of = node->of ? node->of : (unsigned)g->count;
        if (!node->removed) {
            e->numbers[e->count++] = node->number;
            e->length_ns += node->length_ns;
        }
    }
    *exec = (CUgraphExec)e;
    return 0;
}

API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    free(((struct executable *)exec)->numbers);
    free(exec);
    return 0;
}

API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
    (void)exec, (void)graph, (void)node;
    *result = 0;
    return 0;
}

static CUresult graph_launch(const char *symbol, CUgraphExec exec, CUstream stream, bool own_)
{
    struct executable *e = (struct executable *)exec;
    struct kernel k = {.name = "graph", .length_ns = e->length_ns};
    pthread_mutex_lock(&standin_lock);
    for (size_t i = 0; i < e->count; i++) {
        disorder += e->numbers[i] != expected;
        expected = (e->numbers[i] + 1) % e->of;
    }
    /* A driver runs one after the other what is launched from one executable graph. */
    struct stream *s = standin_stream(stream, own_);
    unsigned long long now = standin_now();
    standin_settle(s);
    if (s->tail_ns < e->until_ns)
        s->tail_ns = e->until_ns;
    overlaps += s->tail_ns < until_ns && now < until_ns;
    e->until_ns = until_ns = (s->tail_ns > now ? s->tail_ns : now) + e->length_ns;
    pthread_mutex_unlock(&standin_lock);
    return standin_launch(symbol, &k, stream, own_, NULL);
}
API CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
    return graph_launch("cuGraphLaunch", e, s, false);
}
API CUresult cuGraphLaunch_ptsz(CUgraphExec e, CUstream s)
{
    return graph_launch("cuGraphLaunch_ptsz", e, s, true);
}

API CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
    struct graph *from = (struct graph *)original, *to = standin_graph();
    for (size_t i = 0; i < from->count; i++) {
        struct node content = *from->nodes[i];
        content.of = content.of ? content.of : (unsigned)from->count;
        content.original = from->nodes[i];
        if (!content.removed)
            add_node(to, content);
    }
    *clone = (CUgraph)to;
    return 0;
}

API CUresult cuGraphDestroy(CUgraph graph)
{
    struct graph *g = (struct graph *)graph;
    for (size_t i = 0; i < g->count; i++)
        free(g->nodes[i]);
    free(g->nodes);
    free(g);
    return 0;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    struct graph *g = (struct graph *)graph;
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        if (!g->nodes[i]->removed && (!nodes || n < *count)) {
            if (nodes)
                nodes[n] = (CUgraphNode)g->nodes[i];
            n++;
        }
    *count = n;
    return 0;
}

/* From each node to the next that is still there, and that was next when they were captured. */
API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    struct graph *g = (struct graph *)graph;
    bool backwards = getenv("STANDIN_GRAPH_BACKWARDS") != NULL;
    size_t n = 0;
    for (size_t i = 0; i + 1 < g->count; i++) {
        struct node *a = g->nodes[i], *b = g->nodes[i + 1];
        if (a->removed || b->removed)
            continue;
        if (from && n < *count) {
            from[n] = (CUgraphNode)(backwards ? b : a);
            to[n] = (CUgraphNode)(backwards ? a : b);
        }
        n++;
    }
    *count = n;
    return 0;
}

API CUresult cuGraphNodeGetType(CUgraphNode node, int *kind)
{
    const struct kernel *kernel = ((struct node *)node)->kernel;
    *kind = !kernel || strstr(kernel->name, "host") ? 3 : 0;
    return 0;
}

API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, void *parameters)
{
    *(const void **)parameters = ((struct node *)node)->kernel;
    return 0;
}

API CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph clone)
{
    struct graph *g = (struct graph *)clone;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->original == (struct node *)original && !g->nodes[i]->removed) {
            *found = (CUgraphNode)g->nodes[i];
            return 0;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphDestroyNode(CUgraphNode node)
{
    ((struct node *)node)->removed = true;
    return 0;
}

API unsigned standin_graph_nodes(CUgraph graph)
{
    return (unsigned)living((struct graph *)graph);
}
