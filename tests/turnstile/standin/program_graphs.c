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

/* replay COUNT: launch it, each time in another of so many streams. */
static void replay(int count, int among)
{
    CUresult result = 0;
    for (int i = 0; i < count && !result; i++)
        result = cu.cuGraphLaunch(exec, streams[i % among]);
    say("replayed result=%d", result);
}

bool graph_command(char **word, int words)
{
    int result;
    if (!strcmp(word[0], "graph"))
        make(word, words);
    else if (!strcmp(word[0], "replay"))
        replay(atoi(word[1]), 1);
    else if (!strcmp(word[0], "alternate"))
        replay(atoi(word[1]), 2);
    else if (!strcmp(word[0], "change"))
        say("changed result=%d", cu.cuGraphExecUpdate(exec, NULL, NULL, &result));
    else if (!strcmp(word[0], "discard"))
        say("discarded result=%d", cu.cuGraphExecDestroy(exec));
    else
        return false;
    return true;
}
