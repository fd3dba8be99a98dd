// threads.c - see threads.h.
//
// A barrier is a count of arrivals and a phase. A waiting thread spins on the phase briefly, since
// phases are short, and then sleeps, so that the others get its core if there are too few. After a
// wait that took so long that another thread must have lost its core, the next ones sleep sooner.
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sync/waiting.h"

enum {
    SPIN_NS = 700000,  // before sleeping: longer than Python takes between two calls
    SHORT_NS = 50000,  // the same while cores are scarce
    SCARCE = 16,       // waits that sleep sooner after a long one
    CHECKS = 64,       // spins between two looks at the clock
};

typedef struct {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint phase;
    _Alignas(64) atomic_int num_sleeping;
    atomic_int scarce;  // waits that are still to sleep sooner
} Barrier;

typedef struct {
    PufThreads* threads;
    int32_t worker;
    pthread_t thread;
} Helper;

struct PufThreads {
    Barrier start, inner, end;
    PufBody body;
    void* context;
    int32_t count, num_started;
    int32_t active;  // threads in the body that runs: 1 in a fork
    pid_t owner;
    atomic_bool closing;
    int32_t* taken;    // [count, room]: items of each phase that were claimed from a worker's range
    size_t room;       // phases, and so the counts of a worker lie apart from those of the others
    Helper helpers[];  // all workers but worker 0
};

static void sleep_while(Barrier* barrier, unsigned phase) {
    atomic_fetch_add(&barrier->num_sleeping, 1);
    while (atomic_load(&barrier->phase) == phase)
        puf_sleep_on(&barrier->phase, phase, PUF_ANYONE, puf_now_ns() + 1000000000);
    atomic_fetch_sub(&barrier->num_sleeping, 1);
}

static void meet(Barrier* barrier, int32_t count, bool is_idle) {
    const unsigned phase = atomic_load_explicit(&barrier->phase, memory_order_acquire);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) == count - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store(&barrier->phase, phase + 1);  // before reading num_sleeping
        if (atomic_load(&barrier->num_sleeping)) puf_wake(&barrier->phase, PUF_ANYONE);
        return;
    }
    const int64_t start = puf_now_ns();
    const int scarce = atomic_load_explicit(&barrier->scarce, memory_order_relaxed);
    if (scarce) atomic_store_explicit(&barrier->scarce, scarce - 1, memory_order_relaxed);
    const int64_t end = start + (scarce ? SHORT_NS : SPIN_NS);
    do {
        for (int32_t i = 0; i < CHECKS; i++) {
            if (atomic_load_explicit(&barrier->phase, memory_order_acquire) != phase) return;
            puf_pause();
        }
        if (is_idle) sched_yield();  // an env in another process may need this core
    } while (puf_now_ns() < end);
    sleep_while(barrier, phase);
    if (!is_idle && puf_now_ns() - start > SPIN_NS)
        atomic_store_explicit(&barrier->scarce, SCARCE, memory_order_relaxed);
}

// Makes room for the counts of so many phases, and more.
static PufCode make_room(PufThreads* threads, size_t phases) {
    const size_t room = (phases + PUF_FEW_PHASES - 1) / PUF_FEW_PHASES * PUF_FEW_PHASES;
    if (room <= threads->room) return PUF_OK;
    int32_t* taken = aligned_alloc(4096, (size_t)threads->count * room * sizeof(int32_t));
    if (!taken) return puf_fail(PUF_NO_MEMORY, "cannot allocate %zu phases of threads", phases);
    free(threads->taken);
    threads->taken = taken;
    threads->room = room;
    return PUF_OK;
}

static void* work(void* argument) {
    Helper* self = argument;
    PufThreads* threads = self->threads;
    for (;;) {
        meet(&threads->start, threads->count, true);
        if (atomic_load_explicit(&threads->closing, memory_order_acquire)) return NULL;
        threads->body(threads->context, self->worker);
        meet(&threads->end, threads->count, false);
    }
}

PufThreads* puf_threads_create(int32_t count) {
    if (count < 1 || count > 1024) {
        puf_fail(PUF_BAD_ARGUMENT, "threads must be in 1..1024, but got %d.", count);
        return NULL;
    }
    size_t bytes = sizeof(PufThreads) + (size_t)count * sizeof(Helper);
    PufThreads* threads = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!threads) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate %d threads", count);
        return NULL;
    }
    memset(threads, 0, bytes);
    threads->count = count;
    threads->owner = getpid();
    if (make_room(threads, PUF_FEW_PHASES)) {
        free(threads);
        return NULL;
    }
    for (int32_t i = 1; i < count; i++) {
        Helper* helper = &threads->helpers[threads->num_started];
        *helper = (Helper){.threads = threads, .worker = i};
        if (pthread_create(&helper->thread, NULL, work, helper)) {
            // the started threads wait for `count` arrivals: release them
            puf_fail(PUF_NO_THREAD, "cannot start thread %d of %d", i + 1, count);
            atomic_store(&threads->closing, true);
            for (int32_t j = threads->num_started; j < count; j++)
                if (atomic_fetch_add(&threads->start.arrived, 1) == count - 1) {
                    atomic_fetch_add(&threads->start.phase, 1);
                    puf_wake(&threads->start.phase, PUF_ANYONE);
                }
            for (int32_t j = 0; j < threads->num_started; j++)
                pthread_join(threads->helpers[j].thread, NULL);
            free(threads->taken);
            free(threads);
            return NULL;
        }
        threads->num_started++;
    }
    return threads;
}

int32_t puf_threads_count(const PufThreads* threads) {
    return getpid() == threads->owner ? threads->count : 1;
}

PufCode puf_threads_run(PufThreads* threads, size_t phases, PufBody body, void* context) {
    if (make_room(threads, phases)) return PUF_NO_MEMORY;
    threads->active = puf_threads_count(threads);
    for (int32_t i = 0; i < threads->active; i++)
        memset(threads->taken + (size_t)i * threads->room, 0, phases * sizeof(int32_t));
    if (threads->active == 1) {
        body(context, 0);
        return PUF_OK;
    }
    threads->body = body;
    threads->context = context;
    meet(&threads->start, threads->count, false);
    body(context, 0);
    meet(&threads->end, threads->count, false);
    return PUF_OK;
}

void puf_threads_meet(PufThreads* threads) {
    if (threads->active > 1) meet(&threads->inner, threads->active, false);
}

int32_t puf_threads_claim(const PufThreads* threads, int32_t worker, size_t phase, int32_t count) {
    const int64_t active = threads->active;
    for (int64_t i = 0; i < active; i++) {
        const int64_t owner = (worker + i) % active;
        const int32_t first = (int32_t)(count * owner / active);
        const int32_t last = (int32_t)(count * (owner + 1) / active);
        int32_t* taken = threads->taken + (size_t)owner * threads->room + phase;
        if (__atomic_load_n(taken, __ATOMIC_RELAXED) >= last - first) continue;
        const int32_t item = first + __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED);
        if (item < last) return item;
    }
    return -1;
}

void puf_threads_destroy(PufThreads* threads) {
    if (!threads) return;
    if (puf_threads_count(threads) > 1) {
        atomic_store_explicit(&threads->closing, true, memory_order_release);
        meet(&threads->start, threads->count, false);
        for (int32_t i = 0; i < threads->num_started; i++)
            pthread_join(threads->helpers[i].thread, NULL);
    }
    free(threads->taken);
    free(threads);
}
