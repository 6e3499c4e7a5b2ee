/* What the parts of the program under test share. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* False: not one of its own commands. */
bool memory_command(char **word, int words);
bool graph_command(char **word, int words);

#endif
