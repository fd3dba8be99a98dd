// Threads: each item of each phase goes to one worker, however many phases and items there are, and
// a fork works alone.
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nn/threads.h"
#include "tests/check.h"

enum { MOST_ITEMS = 40 };

typedef struct {
    PufThreads* threads;
    size_t phases;
    atomic_int* claims;  // [phases, MOST_ITEMS]
} Job;

static int32_t items_of(size_t phase) { return (int32_t)(phase * 7 % (MOST_ITEMS + 1)); }

static void body(void* context, int32_t worker) {
    const Job* job = context;
    for (size_t phase = 0; phase < job->phases; phase++) {
        const int32_t count = items_of(phase);
        int32_t item;
        while ((item = puf_threads_claim(job->threads, worker, phase, count)) >= 0)
            atomic_fetch_add(&job->claims[phase * MOST_ITEMS + (size_t)item], 1);
        if (phase % 3 == 0) puf_threads_meet(job->threads);
    }
}

static void run(PufThreads* threads, size_t phases) {
    Job job = {threads, phases, calloc(phases * MOST_ITEMS, sizeof(atomic_int))};
    CHECK(puf_threads_run(threads, phases, body, &job) == PUF_OK);
    for (size_t phase = 0; phase < phases; phase++)
        for (int32_t item = 0; item < MOST_ITEMS; item++)
            CHECK(job.claims[phase * MOST_ITEMS + (size_t)item] == (item < items_of(phase)));
    free(job.claims);
}

static void each_item_is_claimed_once(void) {
    for (int32_t count = 1; count <= 5; count++) {
        PufThreads* threads = puf_threads_create(count);
        CHECK(threads && puf_threads_count(threads) == count);
        for (size_t times = 0; times < 20; times++) run(threads, 1 + times % 4);
        run(threads, 2 * PUF_FEW_PHASES + 1);
        run(threads, 5);
        puf_threads_destroy(threads);
    }
}

static void a_fork_works_alone(void) {
    PufThreads* threads = puf_threads_create(3);
    run(threads, 4);
    const pid_t child = fork();
    if (!child) {
        run(threads, 4);
        puf_threads_destroy(threads);
        _exit(CHECK_DONE());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    run(threads, 4);
    puf_threads_destroy(threads);
}

static void memory_of_threads_lies_apart(void) {
    for (size_t bytes = 0; bytes < 5 * PUF_APART; bytes += 4099) {
        CHECK(puf_apart(bytes) % PUF_APART == 0);
        CHECK(puf_apart(bytes) >= bytes + PUF_APART);
    }
}

int main(void) {
    each_item_is_claimed_once();
    a_fork_works_alone();
    memory_of_threads_lies_apart();
    return CHECK_DONE();
}
