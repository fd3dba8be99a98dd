// flags.h - turns between a parent process and its workers, in shared memory.
//
// A turn is a worker's permission to run. The parent gives it (`start`), the worker does its work
// and gives it back (`finish`). A waiting side spins on the shared memory while that pays, then
// sleeps in the kernel on a word of it. Each turn wakes every process once. Every few milliseconds
// of sleep, a side checks a file descriptor (`life_fd`) that becomes readable when the other side
// sends a message or dies.
#ifndef PUF_FLAGS_H
#define PUF_FLAGS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PufFlags PufFlags;  // in the shared memory itself, initially zeroed

typedef enum {
    PUF_TURN,         // the awaited turn has come
    PUF_READABLE,     // `life_fd` is readable: a message, or the other side is dead
    PUF_TIMEOUT,      // neither in time
    PUF_INTERRUPTED,  // a signal arrived; wait again
} PufWaited;

// How long one side spins before it sleeps: up to twice its mean wait; not at all if the mean wait
// exceeds `limit_ns`; and not for a while after another process needed the core. Private to that
// side; initially zeroed except for the limit.
typedef struct {
    int64_t limit_ns;  // 0: sleep at once
    int64_t mean_ns;   // of recent waits, each clamped to twice the limit
    int32_t rests;     // number of next waits that sleep at once
} PufSpin;

size_t puf_flags_bytes(int32_t num_workers);  // a multiple of 64, as the memory's address must be

// ---- The parent's side ------------------------------------------------------------------------

// Gives each of these workers a turn and wakes those that sleep. None may have a turn already.
void puf_flags_start(PufFlags* flags, const int32_t* workers, int32_t num_workers);

// Makes a worker that waits for its turn check its `life_fd`, to which the caller has written.
void puf_flags_call(PufFlags* flags, int32_t worker);

// Waits until `count` of the workers in `pending` have finished their turns.
PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int life_fd, PufSpin* spin, int32_t timeout_ms);

// Writes the workers of `pending` that have finished to `out`, earliest first; returns their
// number.
int32_t puf_flags_ready(PufFlags* flags, const int32_t* pending, int32_t num_pending, int32_t* out);

// The status that the worker passed to `finish` last; the worker's progress in its turn.
uint32_t puf_flags_status(const PufFlags* flags, int32_t worker);
uint32_t puf_flags_progress(const PufFlags* flags, int32_t worker);

// Takes the turn back from a dead worker, as if it had finished with status 0. Must be called
// before a new process waits in its place: that process would take the old turn for its own.
void puf_flags_revoke(PufFlags* flags, int32_t worker);

// ---- A worker's side --------------------------------------------------------------------------

PufWaited puf_flags_wait_turn(PufFlags* flags, int32_t worker, int life_fd, PufSpin* spin,
                              int32_t timeout_ms);
void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t status);

// A word that only the worker writes, to show the parent that a long turn makes progress.
uint32_t* puf_flags_progress_word(PufFlags* flags, int32_t worker);

// Makes the kernel kill this process when its parent dies; returns 0 if unsupported.
int puf_die_with_parent(void);
// Makes this process the parent of its orphaned descendants; returns 0 if unsupported.
int puf_adopt_orphans(void);

#ifdef __cplusplus
}
#endif
#endif
