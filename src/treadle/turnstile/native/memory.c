#include "memory.h"
void memory_joined(struct seat *seat) { (void)seat; }
void memory_after_fork(void) {}
void *nvml_hook(const char *name, void *real) { (void)name; return real; }
