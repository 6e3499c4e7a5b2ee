/* What the parts of the program under test share. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool memory_command(char **word, int words); /* program_memory.c; false: not one of its own */

#endif
