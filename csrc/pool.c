// pool.c - threads that run one job over fixed contiguous ranges, again and again.
//
// A job is announced by a counter. Workers look at it for a moment, since the next step of a busy
// vector comes within microseconds, and then sleep, so that an idle one costs nothing.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "puffer.h"

enum { SPINS = 4000 };  // about 20-60 us: longer than a policy-free step, shorter than a minibatch

typedef struct {
    PufPool* pool;
    int32_t worker;
    pthread_t thread;
} Worker;

struct PufPool {
    int32_t num_workers;
    PufJob job;
    void* context;
    _Alignas(64) atomic_uint announced;  // jobs handed out so far
    _Alignas(64) atomic_int running;     // helpers still at work on the last one
    _Alignas(64) atomic_bool closing;
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    int32_t num_started;
    Worker* helpers;  // num_workers - 1 of them; the caller is worker 0
};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static unsigned wait_for_job(PufPool* pool, unsigned seen) {
    for (int32_t i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&pool->announced, memory_order_acquire);
        if (now != seen) return now;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->announced, memory_order_acquire) == seen)
        pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load_explicit(&pool->announced, memory_order_acquire);
}

static void* work(void* argument) {
    Worker* self = argument;
    PufPool* pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load_explicit(&pool->closing, memory_order_acquire)) return NULL;
        pool->job(pool->context, self->worker, pool->num_workers);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->mutex);  // pairs with the check of a caller about to sleep
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void announce(PufPool* pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->announced, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

PufPool* puf_pool_create(int32_t num_workers) {
    PufPool* pool = aligned_alloc(64, (sizeof(PufPool) + 63) / 64 * 64);
    if (!pool) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate a thread pool");
        return NULL;
    }
    *pool = (PufPool){.num_workers = num_workers};
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->helpers = calloc((size_t)num_workers, sizeof(Worker));
    if (!pool->helpers) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate %d threads", num_workers);
        puf_pool_destroy(pool);
        return NULL;
    }
    for (int32_t i = 1; i < num_workers; i++) {
        Worker* helper = &pool->helpers[pool->num_started];
        *helper = (Worker){.pool = pool, .worker = i};
        if (pthread_create(&helper->thread, NULL, work, helper)) {
            puf_fail(PUF_NO_THREAD, "cannot start thread %d of %d", i + 1, num_workers);
            puf_pool_destroy(pool);
            return NULL;
        }
        pool->num_started++;
    }
    return pool;
}

void puf_pool_run(PufPool* pool, PufJob job, void* context) {
    if (pool->num_workers == 1) {
        job(context, 0, 1);
        return;
    }
    pool->job = job;
    pool->context = context;
    atomic_store_explicit(&pool->running, pool->num_workers - 1, memory_order_relaxed);
    announce(pool);
    job(context, 0, pool->num_workers);
    for (int32_t i = 0; i < SPINS; i++) {
        if (!atomic_load_explicit(&pool->running, memory_order_acquire)) return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->running, memory_order_acquire))
        pthread_cond_wait(&pool->finished, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void puf_pool_destroy(PufPool* pool) {
    if (!pool) return;
    atomic_store_explicit(&pool->closing, true, memory_order_release);
    announce(pool);
    for (int32_t i = 0; i < pool->num_started; i++) pthread_join(pool->helpers[i].thread, NULL);
    free(pool->helpers);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}
