// threads.h - threads that run one function together and wait for each other inside of it.
//
// The pool of puffer.h distributes independent items. Here all threads are inside the function at
// the same time, so phases of a few microseconds can follow one another.
#ifndef PUF_NN_THREADS_H
#define PUF_NN_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "puffer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PUF_FEW_PHASES = 1024 };

typedef struct PufThreads PufThreads;
typedef void (*PufBody)(void* context, int32_t worker);

PufThreads* puf_threads_create(int32_t count);  // NULL, with an error set, on failure
void puf_threads_destroy(PufThreads* threads);
int32_t puf_threads_count(const PufThreads* threads);  // 1 in a fork of the process that made them
// Runs `body` once on each thread, worker 0 on the caller's; returns when all have returned. `body`
// may claim the items of `phases` phases; only memory to count them can be lacking, for more than
// PUF_FEW_PHASES.
PufCode puf_threads_run(PufThreads* threads, size_t phases, PufBody body, void* context);
// Inside a body: waits until all threads have called it. All must call it equally often.
void puf_threads_meet(PufThreads* threads);
// Inside a body: the next of the `count` items of a phase, -1 when none is left. A worker takes
// those of its own range first, the same ones in every run, because they are in its cache; then it
// helps the others.
int32_t puf_threads_claim(const PufThreads* threads, int32_t worker, size_t phase, int32_t count);

// Room for memory that one thread writes while others run, from a multiple of PUF_APART on. What
// another thread writes is far behind it: processors also fetch what follows the memory in use.
enum { PUF_APART = 1 << 14 };  // bytes
static inline size_t puf_apart(size_t bytes) {
    return (bytes + PUF_APART - 1) / PUF_APART * PUF_APART + PUF_APART;
}

#ifdef __cplusplus
}
#endif
#endif
