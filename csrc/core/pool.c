// pool.c - threads that share the items of one job after another.
//
// Every worker has a contiguous range of items, the same in each job, so that its memory stays in
// its cache. Idle threads steal work: a thread that the system has suspended delays a job by the
// chunk it has claimed, and no more. Results must not depend on which thread runs an item.
//
// A job is announced by a counter. Workers spin on it for a moment, because a busy vector steps
// every few microseconds, and then sleep, so that an idle pool costs nothing.
//
// In a background pool two jobs may run at once: a worker that finds no items left in the first
// continues with the second, so that the threads never wait for the caller between the two.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "puffer.h"
#include "sync/waiting.h"

enum { SPINS = 2000, CHUNKS = 8 };  // spins before sleeping: 10 to 40 us; claims per range
enum { NUM_JOBS = 2 };              // that may run at once

// Unclaimed items of one range: [next, last) packed into one word, so that a claim is one exchange.
// A claim always belongs to the current job: the next job in the same place begins only after all
// items of this one are done.
typedef struct {
    _Alignas(64) _Atomic uint64_t items;
} Range;

typedef struct {
    PufJob run;
    void* context;
    Range* ranges;                 // one for each worker
    atomic_int chunk;              // items of one claim
    _Alignas(64) atomic_int left;  // items not yet done
} Job;

typedef struct {
    PufPool* pool;
    int32_t worker;
    pthread_t thread;
} Worker;

struct PufPool {
    int32_t num_workers;
    pid_t owner;                       // forks of this process have no helpers
    bool background;                   // the caller is not a worker
    unsigned num_begun, num_finished;  // by the caller alone; job k is jobs[k % NUM_JOBS]
    Job jobs[NUM_JOBS];
    _Alignas(64) atomic_uint announced;  // jobs begun so far
    _Alignas(64) atomic_bool closing;
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    int32_t num_started;
    Worker* helpers;  // num_workers of them; one fewer if the caller is worker 0
    Range* ranges;    // of all jobs
};

static bool is_forked(const PufPool* pool) { return getpid() != pool->owner; }

static uint64_t packed(int32_t next, int32_t last) {
    return (uint64_t)(uint32_t)next << 32 | (uint32_t)last;
}

// Claims up to `chunk` items of a range; returns their number and stores the first in `*first`.
static int32_t claim(Range* range, atomic_int* chunk, int32_t* first) {
    uint64_t word = atomic_load_explicit(&range->items, memory_order_acquire);
    for (;;) {
        int32_t next = (int32_t)(word >> 32), last = (int32_t)(uint32_t)word;
        if (next >= last) return 0;
        int32_t most = atomic_load_explicit(chunk, memory_order_relaxed);
        int32_t count = last - next < most ? last - next : most;
        if (atomic_compare_exchange_weak_explicit(&range->items, &word, packed(next + count, last),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *first = next;
            return count;
        }
    }
}

// Runs items until all are claimed: first the worker's own range, then those of the others.
static void share(PufPool* pool, Job* job, int32_t worker) {
    int32_t done = 0;
    for (int32_t i = 0; i < pool->num_workers; i++) {
        Range* range = &job->ranges[(worker + i) % pool->num_workers];
        int32_t first, count;
        while ((count = claim(range, &job->chunk, &first)) > 0) {
            for (int32_t item = first; item < first + count; item++) job->run(job->context, item);
            done += count;
        }
    }
    if (done && atomic_fetch_sub_explicit(&job->left, done, memory_order_acq_rel) == done) {
        pthread_mutex_lock(&pool->mutex);  // pairs with the check in puf_pool_finish
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static unsigned wait_for_job(PufPool* pool, unsigned seen) {
    for (int32_t i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&pool->announced, memory_order_acquire);
        if (now != seen) return now;
        puf_pause();
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
        unsigned now = wait_for_job(pool, seen);
        if (atomic_load_explicit(&pool->closing, memory_order_acquire)) return NULL;
        if (now - seen > NUM_JOBS) seen = now - NUM_JOBS;  // earlier jobs are done
        while (seen != now) share(pool, &pool->jobs[++seen % NUM_JOBS], self->worker);
    }
}

static void announce(PufPool* pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->announced, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

PufPool* puf_pool_create(int32_t num_workers, bool background) {
    const size_t ranges = NUM_JOBS * (size_t)num_workers;
    const size_t bytes =
        sizeof(PufPool) + ranges * sizeof(Range) + (size_t)num_workers * sizeof(Worker);
    PufPool* pool = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!pool) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate a pool of %d threads", num_workers);
        return NULL;
    }
    *pool = (PufPool){.num_workers = num_workers, .owner = getpid(), .background = background};
    pool->ranges = (Range*)(pool + 1);
    pool->helpers = (Worker*)(pool->ranges + ranges);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    for (size_t i = 0; i < ranges; i++) atomic_init(&pool->ranges[i].items, 0);
    for (int32_t i = 0; i < NUM_JOBS; i++) pool->jobs[i].ranges = pool->ranges + i * num_workers;
    for (int32_t i = background ? 0 : 1; i < num_workers; i++) {
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

void puf_pool_begin(PufPool* pool, int32_t first, int32_t num_items, PufJob run, void* context) {
    Job* job = &pool->jobs[++pool->num_begun % NUM_JOBS];
    int32_t share_size = num_items / pool->num_workers;
    job->run = run;
    job->context = context;
    atomic_store_explicit(&job->chunk, share_size > CHUNKS ? share_size / CHUNKS : 1,
                          memory_order_relaxed);
    atomic_store_explicit(&job->left, num_items, memory_order_relaxed);
    for (int32_t i = 0; i < pool->num_workers; i++) {
        int32_t from = first + (int32_t)((int64_t)num_items * i / pool->num_workers);
        int32_t to = first + (int32_t)((int64_t)num_items * (i + 1) / pool->num_workers);
        atomic_store_explicit(&job->ranges[i].items, packed(from, to), memory_order_release);
    }
    announce(pool);
}

void puf_pool_finish(PufPool* pool) {
    Job* job = &pool->jobs[++pool->num_finished % NUM_JOBS];
    if (is_forked(pool)) return;
    for (int32_t i = 0; i < SPINS; i++) {
        if (!atomic_load_explicit(&job->left, memory_order_acquire)) return;
        puf_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&job->left, memory_order_acquire))
        pthread_cond_wait(&pool->finished, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void puf_pool_run(PufPool* pool, int32_t num_items, PufJob run, void* context) {
    if (num_items < 1) return;
    if ((pool->num_workers == 1 && !pool->background) || is_forked(pool)) {
        for (int32_t item = 0; item < num_items; item++) run(context, item);
        return;
    }
    puf_pool_begin(pool, 0, num_items, run, context);
    if (!pool->background) share(pool, &pool->jobs[pool->num_begun % NUM_JOBS], 0);
    puf_pool_finish(pool);
}

void puf_pool_destroy(PufPool* pool) {
    if (!pool) return;
    if (!is_forked(pool)) {  // a fork has no threads to join, and its mutex may be locked for ever
        atomic_store_explicit(&pool->closing, true, memory_order_release);
        announce(pool);
        for (int32_t i = 0; i < pool->num_started; i++) pthread_join(pool->helpers[i].thread, NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    free(pool);
}
