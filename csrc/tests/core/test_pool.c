// The pool: every item of every job runs exactly once, even if workers were asleep.
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "puffer.h"
#include "tests/check.h"

enum { MAX_WORKERS = 8, NUM_ITEMS = 1001, LONG_WAIT_US = 3000 };  // the pool spins for less

// Plain, not atomic: the pool itself must order a job's writes before run returns, or TSan objects.
typedef struct {
    int32_t visits[NUM_ITEMS];
    int32_t slow_item;  // takes LONG_WAIT_US; -1: none
} Work;

static void visit(void* context, int32_t item) {
    Work* work = context;
    if (item == work->slow_item) usleep(LONG_WAIT_US);
    work->visits[item]++;
}

static bool ran(const Work* work, int32_t num_items, int32_t jobs) {
    for (int32_t i = 0; i < NUM_ITEMS; i++)
        if (work->visits[i] != (i < num_items ? jobs : 0)) return false;
    return true;
}

static void test_every_item_runs_once_per_job(bool apart) {
    static const int32_t sizes[] = {0, 1, 2, 7, 64, NUM_ITEMS};
    for (int32_t workers = 1; workers <= MAX_WORKERS; workers++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            PufPool* pool = puf_pool_create(workers, apart);
            Work work = {.slow_item = -1};
            bool good = pool != NULL;
            for (int32_t job = 1; good && job <= 50; job++) {
                puf_pool_run(pool, sizes[s], visit, &work);
                good = ran(&work, sizes[s], job);
            }
            CHECK(good);
            puf_pool_destroy(pool);
        }
}

static void test_workers_that_fell_asleep_wake_for_the_next_job(bool apart) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 2) {
        PufPool* pool = puf_pool_create(workers, apart);
        Work work = {.slow_item = -1};
        for (int32_t job = 0; job < 10; job++) {
            usleep(LONG_WAIT_US);
            puf_pool_run(pool, NUM_ITEMS, visit, &work);
        }
        CHECK(ran(&work, NUM_ITEMS, 10));
        puf_pool_destroy(pool);
    }
}

static void test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done(bool apart) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 3)
        for (int32_t slow = 0; slow < NUM_ITEMS; slow += 125) {
            PufPool* pool = puf_pool_create(workers, apart);
            Work work = {.slow_item = slow};
            for (int32_t job = 0; job < 4; job++) puf_pool_run(pool, NUM_ITEMS, visit, &work);
            CHECK(ran(&work, NUM_ITEMS, 4));
            puf_pool_destroy(pool);
        }
}

static void count_up(void* context, int32_t item) {
    (void)item;
    atomic_fetch_add_explicit((atomic_int*)context, 1, memory_order_relaxed);
}

// Jobs this short end before most helpers have woken: they must find nothing of an old job.
static void test_many_short_jobs_of_changing_size_lose_none(bool apart) {
    for (int32_t workers = 1; workers <= 4; workers++) {
        PufPool* pool = puf_pool_create(workers, apart);
        atomic_int count = 0;
        int32_t expected = 0;
        for (int32_t job = 0; job < 5000; job++) {
            int32_t items = 1 + job % 9;
            puf_pool_run(pool, items, count_up, &count);
            expected += items;
        }
        CHECK(atomic_load(&count) == expected);
        puf_pool_destroy(pool);
    }
}

static void test_jobs_may_change_from_run_to_run(bool apart) {
    PufPool* pool = puf_pool_create(3, apart);
    Work work = {.slow_item = -1};
    atomic_int count = 0;
    for (int32_t i = 0; i < 50; i++) {
        puf_pool_run(pool, NUM_ITEMS, visit, &work);
        puf_pool_run(pool, 3, count_up, &count);
    }
    CHECK(ran(&work, NUM_ITEMS, 50));
    CHECK(atomic_load(&count) == 150);
    puf_pool_destroy(pool);
}

static void test_pools_close_at_once_busy_asleep_or_never_used(bool apart) {
    for (int32_t i = 0; i < 64; i++) {
        PufPool* pool = puf_pool_create(1 + i % MAX_WORKERS, apart);
        atomic_int count = 0;
        if (i % 3 == 1) usleep(LONG_WAIT_US);
        if (i % 3 == 2) puf_pool_run(pool, 10, count_up, &count);
        puf_pool_destroy(pool);
        CHECK(atomic_load(&count) == (i % 3 == 2 ? 10 : 0));
    }
    puf_pool_destroy(NULL);
}

// ---- In the background --------------------------------------------------------------------------

typedef struct {
    atomic_bool open;
    atomic_int waiting, done;
} Gate;

static void pass(void* context, int32_t item) {
    Gate* gate = context;
    (void)item;
    atomic_fetch_add(&gate->waiting, 1);
    while (!atomic_load(&gate->open)) usleep(100);
    atomic_fetch_add(&gate->done, 1);
}

static void test_the_caller_of_begin_goes_on_while_the_job_runs(void) {
    PufPool* pool = puf_pool_create(2, true);
    Gate gate = {0};
    puf_pool_begin(pool, 0, 5, pass, &gate);
    while (atomic_load(&gate.waiting) < 2) usleep(100);  // both workers, and no other thread
    CHECK(atomic_load(&gate.done) == 0);
    atomic_store(&gate.open, true);
    puf_pool_finish(pool);
    CHECK(atomic_load(&gate.done) == 5);
    puf_pool_destroy(pool);
}

// Two jobs over the halves of one array, in turns, so that one of them is always under way.
static void test_two_running_jobs_run_each_item_of_their_half_once(void) {
    enum { HALF = 37, ROUNDS = 2000 };
    for (int32_t workers = 1; workers <= 4; workers++) {
        PufPool* pool = puf_pool_create(workers, true);
        Work work = {.slow_item = -1};
        bool good = true;
        puf_pool_begin(pool, 0, HALF, visit, &work);
        for (int32_t round = 1; round <= ROUNDS; round++) {
            puf_pool_begin(pool, HALF, HALF, visit, &work);
            if (round % 500 == 0) usleep(LONG_WAIT_US);  // all asleep, both jobs done
            puf_pool_finish(pool);
            for (int32_t i = 0; i < HALF; i++) good = good && work.visits[i] == round;
            puf_pool_begin(pool, 0, HALF, visit, &work);
            puf_pool_finish(pool);
            for (int32_t i = HALF; i < 2 * HALF; i++) good = good && work.visits[i] == round;
        }
        puf_pool_finish(pool);
        for (int32_t i = 0; i < 2 * HALF; i++) good = good && work.visits[i] == ROUNDS + (i < HALF);
        CHECK(good);
        puf_pool_destroy(pool);
    }
}

static void test_the_second_job_does_not_wait_for_the_caller(void) {
    PufPool* pool = puf_pool_create(2, true);
    Gate first = {.open = true}, second = {.open = true};
    puf_pool_begin(pool, 0, 3, pass, &first);
    puf_pool_begin(pool, 0, 4, pass, &second);
    while (atomic_load(&second.done) < 4) usleep(100);  // although the first is not finished
    puf_pool_finish(pool);
    puf_pool_finish(pool);
    CHECK(atomic_load(&first.done) == 3);
    puf_pool_destroy(pool);
}

static void test_a_pool_closes_while_jobs_are_running(void) {
    for (int32_t i = 0; i < 64; i++) {
        PufPool* pool = puf_pool_create(1 + i % 4, true);
        Work work = {.slow_item = i % 8};
        puf_pool_begin(pool, 0, 8, visit, &work);
        if (i % 2) puf_pool_begin(pool, 8, 8, visit, &work);
        if (i % 3 == 0) usleep(LONG_WAIT_US / 2);
        puf_pool_destroy(pool);  // joins: none of them may touch `work` from here on
        for (int32_t k = 0; k < 16; k++) CHECK(work.visits[k] <= 1);
    }
}

static void test_two_pools_do_not_disturb_each_other(void) {
    PufPool *first = puf_pool_create(3, false), *second = puf_pool_create(2, false);
    Work ones = {.slow_item = -1}, twos = {.slow_item = 1};
    for (int32_t i = 0; i < 20; i++) {
        puf_pool_run(first, NUM_ITEMS, visit, &ones);
        puf_pool_run(second, NUM_ITEMS, visit, &twos);
    }
    CHECK(ran(&ones, NUM_ITEMS, 20));
    CHECK(ran(&twos, NUM_ITEMS, 20));
    puf_pool_destroy(first);
    puf_pool_destroy(second);
}

int main(void) {
    for (int32_t apart = 0; apart < 2; apart++) {
        test_every_item_runs_once_per_job(apart);
        test_workers_that_fell_asleep_wake_for_the_next_job(apart);
        test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done(apart);
        test_many_short_jobs_of_changing_size_lose_none(apart);
        test_jobs_may_change_from_run_to_run(apart);
        test_pools_close_at_once_busy_asleep_or_never_used(apart);
    }
    test_the_caller_of_begin_goes_on_while_the_job_runs();
    test_two_running_jobs_run_each_item_of_their_half_once();
    test_the_second_job_does_not_wait_for_the_caller();
    test_a_pool_closes_while_jobs_are_running();
    test_two_pools_do_not_disturb_each_other();
    return CHECK_DONE();
}
