// flags.h - turns between a parent process and its workers, in memory that all of them share.
//
// The parent gives a worker a turn (`start`), the worker does its work and gives it back
// (`finish`). A side that waits looks at the memory while that pays and then sleeps in the kernel
// on a word of it. A turn wakes every process once. After some milliseconds of sleep a side looks
// at a file descriptor that stands for the other side's life.
#ifndef PUF_FLAGS_H
#define PUF_FLAGS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PufFlags PufFlags;  // lies in the shared memory itself, zeroed at first

typedef enum {
    PUF_TURN,         // the awaited turn came
    PUF_SPOKEN,       // the other descriptor has something to read, or its peer is gone
    PUF_TIMEOUT,      // neither in time
    PUF_INTERRUPTED,  // a signal arrived; wait again
} PufWaited;

// How long one side looks before it sleeps: up to twice as long as its waits take on average, not
// at all where these take longer than `limit_ns`, and not for a while after another process wanted
// the core. Lies in the memory of that side alone, zeroed but for the limit.
typedef struct {
    int64_t limit_ns;  // 0: sleep at once
    int64_t mean_ns;   // of the last waits, each counted as twice the limit at most
    int32_t rests;     // waits left that sleep at once
} PufSpin;

size_t puf_flags_bytes(int32_t num_workers);  // a multiple of 64, as the memory's address must be

// ---- The parent's side ------------------------------------------------------------------------

// Gives workers their turns, which must not have one already, and wakes those that sleep.
void puf_flags_start(PufFlags* flags, const int32_t* workers, int32_t num_workers);

// Lets a worker that waits for its turn look at its `life_fd`, to which the caller has written.
void puf_flags_call(PufFlags* flags, int32_t worker);

// Waits until `count` of the workers `pending` have no turn any more.
PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int life_fd, PufSpin* spin, int32_t timeout_ms);

// Writes the workers of `pending` that have no turn any more to `out`, the earliest first; returns
// how many.
int32_t puf_flags_ready(PufFlags* flags, const int32_t* pending, int32_t num_pending, int32_t* out);

// What `finish` said of the worker's last turn, and where in its turn a worker is.
uint32_t puf_flags_said(const PufFlags* flags, int32_t worker);
uint32_t puf_flags_progress(const PufFlags* flags, int32_t worker);

// Takes the turn back from a worker that died, if it had it, as if it had finished in silence. Must
// come before another process waits in its place: that one would take the turn for its own.
void puf_flags_revoke(PufFlags* flags, int32_t worker);

// ---- A worker's side --------------------------------------------------------------------------

PufWaited puf_flags_wait_turn(PufFlags* flags, int32_t worker, int life_fd, PufSpin* spin,
                              int32_t timeout_ms);
void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t said);

// The worker's own word, which only it writes: shows the parent that a long turn gets on.
uint32_t* puf_flags_progress_word(PufFlags* flags, int32_t worker);

// Lets the kernel kill this process when its parent dies; 0 where that cannot be had.
int puf_die_with_parent(void);
// Makes this process the parent of whoever below it loses its own; 0 where that cannot be had.
int puf_adopt_orphans(void);

#ifdef __cplusplus
}
#endif
#endif
