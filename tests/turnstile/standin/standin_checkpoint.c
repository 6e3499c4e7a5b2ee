/* The stand-in's process checkpoint: the state of a process is a file of its number. */
#include "standin.h"

#define API __attribute__((visibility("default")))

static char *file_of(int pid)
{
    static char path[256];
    const char *folder = getenv("STANDIN_CHECKPOINT");
    snprintf(path, sizeof path, "%s/%d", folder ? folder : "/nonexistent", pid);
    return path;
}

API CUresult cuCheckpointProcessGetState(int pid, int *state)
{
    FILE *file = fopen(file_of(pid), "r");
    *state = 0;
    if (file) {
        if (fscanf(file, "%d", state) != 1)
            *state = 3;
        fclose(file);
    }
    return standin_check();
}

API CUresult cuCheckpointProcessLock(int pid, void *how)
{
    const char *fails = getenv("STANDIN_CHECKPOINT_FAILS");
    if (fails && !strcmp(fails, "hang"))
        pause();
    if (fails)
        return atoi(fails);
    if (!*(unsigned *)how) /* for ever is too long */
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(file_of(pid), "w");
    if (!file)
        return CUDA_ERROR_INVALID_VALUE;
    fputs("1", file);
    fclose(file);
    return 0;
}

API CUresult cuCheckpointProcessUnlock(int pid, void *how)
{
    (void)how;
    return unlink(file_of(pid)) ? CUDA_ERROR_INVALID_VALUE : 0;
}

API CUresult cuGetErrorName(CUresult code, const char **name)
{
    *name = code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
    return *name ? 0 : CUDA_ERROR_INVALID_VALUE;
}
