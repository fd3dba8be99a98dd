// The pool: every item of every job runs exactly once, whoever was asleep when it came.
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "puffer.h"

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

static void test_every_item_runs_once_per_job(void) {
    static const int32_t sizes[] = {0, 1, 2, 7, 64, NUM_ITEMS};
    for (int32_t workers = 1; workers <= MAX_WORKERS; workers++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            PufPool* pool = puf_pool_create(workers);
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

static void test_workers_that_fell_asleep_wake_for_the_next_job(void) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 2) {
        PufPool* pool = puf_pool_create(workers);
        Work work = {.slow_item = -1};
        for (int32_t job = 0; job < 10; job++) {
            usleep(LONG_WAIT_US);
            puf_pool_run(pool, NUM_ITEMS, visit, &work);
        }
        CHECK(ran(&work, NUM_ITEMS, 10));
        puf_pool_destroy(pool);
    }
}

static void test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done(void) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 3)
        for (int32_t slow = 0; slow < NUM_ITEMS; slow += 125) {
            PufPool* pool = puf_pool_create(workers);
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
static void test_many_short_jobs_of_changing_size_lose_none(void) {
    for (int32_t workers = 1; workers <= 4; workers++) {
        PufPool* pool = puf_pool_create(workers);
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

static void test_jobs_may_change_from_run_to_run(void) {
    PufPool* pool = puf_pool_create(3);
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

static void test_pools_close_at_once_busy_asleep_or_never_used(void) {
    for (int32_t i = 0; i < 64; i++) {
        PufPool* pool = puf_pool_create(1 + i % MAX_WORKERS);
        atomic_int count = 0;
        if (i % 3 == 1) usleep(LONG_WAIT_US);
        if (i % 3 == 2) puf_pool_run(pool, 10, count_up, &count);
        puf_pool_destroy(pool);
        CHECK(atomic_load(&count) == (i % 3 == 2 ? 10 : 0));
    }
    puf_pool_destroy(NULL);
}

static void test_two_pools_do_not_disturb_each_other(void) {
    PufPool *first = puf_pool_create(3), *second = puf_pool_create(2);
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
    test_every_item_runs_once_per_job();
    test_workers_that_fell_asleep_wake_for_the_next_job();
    test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done();
    test_many_short_jobs_of_changing_size_lose_none();
    test_jobs_may_change_from_run_to_run();
    test_pools_close_at_once_busy_asleep_or_never_used();
    test_two_pools_do_not_disturb_each_other();
    return CHECK_DONE();
}
