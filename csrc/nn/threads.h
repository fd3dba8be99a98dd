// threads.h - threads that run one function together and wait for each other inside of it.
//
// The pool of puffer.h distributes independent items. Here all threads are inside the function at
// the same time, so phases of a few microseconds can follow one another.
#ifndef PUF_NN_THREADS_H
#define PUF_NN_THREADS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PufThreads PufThreads;
typedef void (*PufBody)(void* context, int32_t worker);

PufThreads* puf_threads_create(int32_t count);  // NULL, with an error set, on failure
void puf_threads_destroy(PufThreads* threads);
int32_t puf_threads_count(const PufThreads* threads);  // 1 in a fork of the process that made them
// Runs `body` once on each thread, worker 0 on the caller's; returns when all have returned.
void puf_threads_run(PufThreads* threads, PufBody body, void* context);
// Inside a body: waits until all threads have called it. All must call it equally often.
void puf_threads_meet(PufThreads* threads);
// Inside a body: the next of `count` items, -1 when none is left. `taken` [threads] begins with
// zeros. A worker takes those of its own range first, the same ones in every run, because they are
// in its cache; then it helps the others.
int32_t puf_threads_claim(const PufThreads* threads, int32_t* taken, int32_t worker, int32_t count);

#ifdef __cplusplus
}
#endif
#endif
