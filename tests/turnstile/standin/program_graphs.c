/* The program's commands about graphs. */
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "program_calls.h"
#include "standin.h"

static CUstream streams[2];
static CUgraph graph;
static CUgraphExec exec;

/* graph COUNT US [KERNEL]: capture COUNT kernels, the middle one of another name if one is given. */
static void make(char **word, int words)
{
    int count = atoi(word[1]);
    char name[64];
    CUfunction usual, other;
    for (int i = 0; i < 2 && !streams[i]; i++)
        cu.cuStreamCreate(&streams[i], 0);
    snprintf(name, sizeof name, "kernel_%s", word[2]);
    cu.cuModuleGetFunction(&usual, NULL, name);
    cu.cuModuleGetFunction(&other, NULL, words > 3 ? word[3] : name);
    cu.cuStreamBeginCapture(streams[0], 0);
    for (int i = 0; i < count; i++)
        cu.cuLaunchKernel(i == count / 2 ? other : usual, 1, 1, 1, 1, 1, 1, 0, streams[0], NULL,
                          NULL);
    cu.cuStreamEndCapture(streams[0], &graph);
    CUresult result = cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
    cu.cuGraphDestroy(graph); /* as most frameworks do: the executable one stays */
    say("graph result=%d", result);
}

/* replay COUNT: launch it, each time in another of so many streams, from this one on. */
static void replay(int count, int among, int from)
{
    CUresult result = 0;
    for (int i = 0; i < count && !result; i++)
        result = cu.cuGraphLaunch(exec, streams[from + i % among]);
    say("replayed result=%d", result);
}

static void *launch(void *stream)
{
    CUcontext context;
    cu.cuDevicePrimaryCtxRetain(&context, 0);
    cu.cuCtxSetCurrent(context);
    return cu.cuGraphLaunch(exec, stream) ? stream : NULL;
}

/* each COUNT: from a thread for each, in that thread's own stream. together COUNT: at once. */
static void threads(int count, bool together)
{
    pthread_t thread[64];
    void *failed = NULL;
    for (int i = 0; i < count; i++) {
        pthread_create(&thread[i], NULL, launch, together ? streams[0] : CU_STREAM_PER_THREAD);
        if (!together)
            pthread_join(thread[i], &failed);
    }
    for (int i = 0; i < count && together; i++)
        pthread_join(thread[i], &failed);
    say("replayed result=%d", failed != NULL);
}

bool graph_command(char **word, int words)
{
    int result;
    if (!strcmp(word[0], "graph"))
        make(word, words);
    else if (!strcmp(word[0], "replay"))
        replay(atoi(word[1]), 1, 0);
    else if (!strcmp(word[0], "alternate"))
        replay(atoi(word[1]), 2, 0);
    else if (!strcmp(word[0], "elsewhere"))
        replay(atoi(word[1]), 1, 1);
    else if (!strcmp(word[0], "each") || !strcmp(word[0], "together"))
        threads(atoi(word[1]), word[0][0] == 't');
    else if (!strcmp(word[0], "change"))
        say("changed result=%d", cu.cuGraphExecUpdate(exec, NULL, NULL, &result));
    else if (!strcmp(word[0], "discard"))
        say("discarded result=%d", cu.cuGraphExecDestroy(exec));
    else
        return false;
    return true;
}
