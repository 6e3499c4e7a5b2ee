/* What the hooks of copies share. */
#ifndef TREADLE_COPIES_H
#define TREADLE_COPIES_H

#include "launch.h"

/* Fills `launch`, and waits, where the copy is large enough to be gated. `done`: it is over when
 * the call returns. `way`: copies of one size differ in speed by where they go. */
void copy_before(struct launch *launch, size_t bytes, CUstream stream, bool per_thread, bool done,
                 enum hook_id way);
void copy_after(struct launch *launch, CUresult result, uint64_t upto);

/* The body of a hook. `bytes` and `done` are worked out only once the call is known to count. */
#define COPY(name, bytes, stream, per_thread, done, ...)                             \
    {                                                                                \
        __typeof__(&name) real = REAL(name);                                         \
        if (unlikely(!real))                                                         \
            return CUDA_ERROR_NOT_FOUND;                                             \
        if (unlikely(gate_inside))                                                   \
            return real(__VA_ARGS__);                                                \
        struct launch l;                                                             \
        copy_before(&l, bytes, stream, per_thread, done, HOOK_##name);               \
        uint64_t upto = l.synchronous ? urgent_sequence() : 0;                       \
        gate_inside = 1;                                                             \
        CUresult result = real(__VA_ARGS__);                                         \
        gate_inside = 0;                                                             \
        copy_after(&l, result, upto);                                                \
        return result;                                                               \
    }

#endif
