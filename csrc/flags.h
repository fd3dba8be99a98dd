// flags.h - turns between a parent process and its workers, in memory that all of them share.
//
// The parent gives a worker a turn (`start`), the worker does its work and gives it back
// (`finish`). Whoever waits looks at the memory for a moment and then sleeps in the kernel until it
// is woken or a file descriptor that stands for the other side's life becomes readable.
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

size_t puf_flags_bytes(int32_t num_workers);  // a multiple of 64, as the memory's address must be

// ---- The parent's side ------------------------------------------------------------------------

// Gives `worker` its turn; it must not have one already. `wake_fd` wakes it if it sleeps.
void puf_flags_start(PufFlags* flags, int32_t worker, int wake_fd);

// The same for several; `wake_fds` has a descriptor for every worker of the vector. Who is woken
// may take this core before the next is: with a `shout_fd`, which all workers of the vector sleep
// on, one write wakes everybody. It is -1 where only some of them are started.
void puf_flags_start_all(PufFlags* flags, const int32_t* workers, int32_t num_workers,
                         const int32_t* wake_fds, int shout_fd);

// Waits until `count` of the workers `pending` have no turn any more.
PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int own_fd, int life_fd, int32_t spins, int32_t timeout_ms);

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

// Returns a descriptor to sleep on until one of the others (-1 for none) is written to or, for
// `life_fd`, has something to read; -1 where that cannot be had. Whoever wakes need not take what
// was written, so one write to `shout_fd` wakes all who sleep on it.
int puf_flags_sleeper(int own_fd, int shout_fd, int life_fd);

PufWaited puf_flags_wait_turn(PufFlags* flags, int32_t worker, int sleeper, int32_t spins,
                              int32_t timeout_ms);
void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t said, int parent_fd);

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
