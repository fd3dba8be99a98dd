// The pool: every worker runs every job exactly once, whoever was asleep when it came.
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "puffer.h"

enum { MAX_WORKERS = 8, NUM_ITEMS = 1001, LONG_WAIT_US = 3000 };  // the pool spins for less

// Plain, not atomic: the pool itself must order a job's writes before run returns, or TSan objects.
typedef struct {
    int32_t visits[NUM_ITEMS];
    int32_t calls[MAX_WORKERS];
    int32_t num_workers;
    int32_t slow_worker;  // takes LONG_WAIT_US; -1: nobody
} Work;

static void visit_range(void* context, int32_t worker, int32_t num_workers) {
    Work* work = context;
    work->calls[worker]++;
    if (worker == 0) work->num_workers = num_workers;
    if (worker == work->slow_worker) usleep(LONG_WAIT_US);
    int32_t last = NUM_ITEMS * (worker + 1) / num_workers;
    for (int32_t i = NUM_ITEMS * worker / num_workers; i < last; i++) work->visits[i]++;
}

static bool all_equal(const int32_t* values, int32_t count, int32_t expected) {
    for (int32_t i = 0; i < count; i++)
        if (values[i] != expected) return false;
    return true;
}

static bool ran(const Work* work, int32_t num_workers, int32_t jobs) {
    return work->num_workers == num_workers && all_equal(work->calls, num_workers, jobs) &&
           all_equal(work->calls + num_workers, MAX_WORKERS - num_workers, 0) &&
           all_equal(work->visits, NUM_ITEMS, jobs);
}

static void test_every_index_is_visited_once_per_job(void) {
    for (int32_t workers = 1; workers <= MAX_WORKERS; workers++) {
        PufPool* pool = puf_pool_create(workers);
        Work work = {.slow_worker = -1};
        bool good = pool != NULL;
        for (int32_t job = 1; good && job <= 50; job++) {
            puf_pool_run(pool, visit_range, &work);
            good = ran(&work, workers, job);
        }
        CHECK(good);
        puf_pool_destroy(pool);
    }
}

static void test_workers_that_fell_asleep_wake_for_the_next_job(void) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 2) {
        PufPool* pool = puf_pool_create(workers);
        Work work = {.slow_worker = -1};
        for (int32_t job = 0; job < 10; job++) {
            usleep(LONG_WAIT_US);
            puf_pool_run(pool, visit_range, &work);
        }
        CHECK(ran(&work, workers, 10));
        puf_pool_destroy(pool);
    }
}

static void test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done(void) {
    for (int32_t workers = 2; workers <= MAX_WORKERS; workers += 3)
        for (int32_t slow = 0; slow < workers; slow++) {
            PufPool* pool = puf_pool_create(workers);
            Work work = {.slow_worker = slow};
            for (int32_t job = 0; job < 4; job++) puf_pool_run(pool, visit_range, &work);
            CHECK(ran(&work, workers, 4));
            puf_pool_destroy(pool);
        }
}

static void count_up(void* context, int32_t worker, int32_t num_workers) {
    (void)worker, (void)num_workers;
    atomic_fetch_add_explicit((atomic_int*)context, 1, memory_order_relaxed);
}

static void test_many_short_jobs_lose_none(void) {
    for (int32_t workers = 1; workers <= 4; workers++) {
        PufPool* pool = puf_pool_create(workers);
        atomic_int count = 0;
        for (int32_t job = 0; job < 1000; job++) puf_pool_run(pool, count_up, &count);
        CHECK(atomic_load(&count) == 1000 * workers);
        puf_pool_destroy(pool);
    }
}

static void test_jobs_may_change_from_run_to_run(void) {
    PufPool* pool = puf_pool_create(3);
    Work work = {.slow_worker = -1};
    atomic_int count = 0;
    for (int32_t i = 0; i < 50; i++) {
        puf_pool_run(pool, visit_range, &work);
        puf_pool_run(pool, count_up, &count);
    }
    CHECK(ran(&work, 3, 50));
    CHECK(atomic_load(&count) == 150);
    puf_pool_destroy(pool);
}

static void test_pools_close_at_once_busy_asleep_or_never_used(void) {
    for (int32_t i = 0; i < 64; i++) {
        PufPool* pool = puf_pool_create(1 + i % MAX_WORKERS);
        atomic_int count = 0;
        if (i % 3 == 1) usleep(LONG_WAIT_US);
        if (i % 3 == 2) puf_pool_run(pool, count_up, &count);
        puf_pool_destroy(pool);
        CHECK(atomic_load(&count) == (i % 3 == 2 ? 1 + i % MAX_WORKERS : 0));
    }
    puf_pool_destroy(NULL);
}

static void test_two_pools_do_not_disturb_each_other(void) {
    PufPool *first = puf_pool_create(3), *second = puf_pool_create(2);
    Work ones = {.slow_worker = -1}, twos = {.slow_worker = 1};
    for (int32_t i = 0; i < 20; i++) {
        puf_pool_run(first, visit_range, &ones);
        puf_pool_run(second, visit_range, &twos);
    }
    CHECK(ran(&ones, 3, 20));
    CHECK(ran(&twos, 2, 20));
    puf_pool_destroy(first);
    puf_pool_destroy(second);
}

int main(void) {
    test_every_index_is_visited_once_per_job();
    test_workers_that_fell_asleep_wake_for_the_next_job();
    test_a_caller_that_fell_asleep_wakes_when_the_slowest_is_done();
    test_many_short_jobs_lose_none();
    test_jobs_may_change_from_run_to_run();
    test_pools_close_at_once_busy_asleep_or_never_used();
    test_two_pools_do_not_disturb_each_other();
    return CHECK_DONE();
}
