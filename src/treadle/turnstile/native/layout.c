/* The page described in words, so that other languages can check their idea of it. */
#include <stddef.h>
#include <stdio.h>

#include "gate.h"
#include "treadle.h"

#define HEADER(F) \
    F(magic) F(abi) F(size) F(generation) F(records) F(record_bytes) F(uuid) F(marks) F(members) \
    F(closed_until_ns) F(bell) F(waiting) F(marks_set) F(last_urgent_ns) F(turn) F(want) F(knobs) \
    F(running_since_ns) F(record)
#define RECORD(F) \
    F(state) F(class_) F(generation) F(hold) F(pid) F(flags) F(joined_ns) F(name) F(launches)     \
    F(copies) F(predicted_ns) F(busy_until_ns) F(last_launch_ns) F(marks_taken) F(waits)          \
    F(waited_ns) F(measured_ns) F(samples) F(budget_waits) F(budget_waited_ns)                    \
    F(memory_limit_bytes) F(memory_used_bytes) F(memory_failures) F(waiting_since_ns) F(moved_to) \
    F(turns) F(duty_passes) F(marked_ns)

EXPORT const char *treadle_layout(void)
{
    static char text[8192];
    size_t n = 0;
#define LINE(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    LINE("abi %u\n", TREADLE_ABI);
#define F(name)                                                                   \
    LINE("header %s %zu %zu\n", #name, offsetof(struct treadle_page, name),      \
         sizeof(((struct treadle_page *)0)->name));
    HEADER(F)
#undef F
#define F(name)                                                                   \
    LINE("record %s %zu %zu\n", #name, offsetof(struct treadle_record, name),    \
         sizeof(((struct treadle_record *)0)->name));
    RECORD(F)
#undef F
#define K(name, least, most, usual)                                               \
    LINE("knob %s %d %llu %llu %llu\n", #name, TREADLE_KNOB_##name,               \
         (unsigned long long)least, (unsigned long long)most, (unsigned long long)usual);
    TREADLE_KNOBS(K)
#undef K
    return text;
}
