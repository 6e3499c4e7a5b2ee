/* The turnstile for C programs, and for Python through ctypes. Results below 0 are -errno. */
#ifndef TREADLE_H
#define TREADLE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Take a seat at the page `folder/uuid`, made where there is none. class_: 0 critical, 1 normal,
 * 2 background, 3 looks after others. Returns the number of the place. -EPROTO: not a turnstile;
 * -EPROTONOSUPPORT: one of another version; -EAGAIN: every seat is taken. */
int treadle_join(const char *folder, const char *uuid, unsigned class_, const char *name);
int treadle_leave(void);

/* This process is busy with work of its class, on every page it sits at, until as many unmarks. */
int treadle_mark(void);
int treadle_unmark(void);

/* The class of the calling thread; -1: that of the process. Set it to -1 before the thread ends. */
int treadle_set_thread_class(int class_);
int treadle_thread_class(void);

/* The class of what is launched on a stream, whichever thread does; -1: that of the thread. NULL
 * and 1 are the legacy default stream, 2 each thread's own. Destroying the stream takes it back.
 * -ENOSPC: hundreds have one. */
int treadle_set_stream_class(void *stream, int class_);
int treadle_stream_class(void *stream);

/* Wait, as a launch of this length would, while more urgent work is marked. */
int treadle_wait(int place, unsigned long long length_ns);

/* Hold a member at the gate, for as long as the caller lives. */
int treadle_hold(int place, unsigned index, int on);

/* Take away a member's marks, as when it was stopped or locked while busy. It marks again when
 * it is next busy. */
int treadle_clear_marks(int place, unsigned index);

/* Take back what dead members have left; 1 if there was any. */
int treadle_reap(int place);

int treadle_seat(int place);

/* The layout of the page: lines `field name offset bytes`, `knob name word least most usual`. */
const char *treadle_layout(void);

#ifdef __cplusplus
}
#endif
#endif
