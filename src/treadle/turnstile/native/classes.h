/* The class of a launch. */
#ifndef TREADLE_CLASSES_H
#define TREADLE_CLASSES_H

#include "cuda_min.h"
#include "gate.h"

extern _Atomic uint32_t class_streams; /* how many streams have a class of their own */
int class_of_stream(CUstream stream, bool per_thread); /* -1: none of its own */
void class_forget_stream(CUstream stream);
void class_forget_streams(void);
void classes_after_fork(void);

static inline unsigned launch_class(CUstream stream, bool per_thread)
{
    int own = unlikely(load(&class_streams)) ? class_of_stream(stream, per_thread) : -1;
    return unlikely(own >= 0) ? (unsigned)own : my_class();
}

#endif
