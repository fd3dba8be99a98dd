// futex_baseline.c - see futex_baseline.h.
#include "sync/futex_baseline.h"

#include <stdbool.h>
#include <stdlib.h>

#include "sync/waiting.h"
#if defined(__linux__)
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "sync/flags.h"

enum { LOST_SECONDS = 10, WARM_UP_TURNS = 10 };

typedef struct {
    _Alignas(64) atomic_uint turn;     // its number, from 1
    _Alignas(64) atomic_uint working;  // workers still in this turn
} Turns;

static int64_t deadline(void) { return puf_now_ns() + LOST_SECONDS * (int64_t)1000000000; }

static void work(Turns* shared, int64_t work_ns) {
    for (uint32_t turn = 1;; turn++) {
        while (atomic_load(&shared->turn) != turn)
            puf_sleep_on(&shared->turn, turn - 1, PUF_ANYONE, deadline());
        int64_t end = puf_now_ns() + work_ns;
        while (puf_now_ns() < end) continue;
        if (atomic_fetch_sub(&shared->working, 1) == 1) puf_wake(&shared->working, PUF_ANYONE);
    }
}

static bool give_turn(Turns* shared, int32_t num_workers) {
    int64_t limit = deadline();
    atomic_store(&shared->working, (uint32_t)num_workers);
    atomic_fetch_add(&shared->turn, 1);
    puf_wake(&shared->turn, PUF_ANYONE);
    for (uint32_t left; (left = atomic_load(&shared->working));) {
        if (puf_now_ns() > limit) return false;
        puf_sleep_on(&shared->working, left, PUF_ANYONE, limit);
    }
    return true;
}

static int compare(const void* one, const void* other) {
    int64_t difference = *(const int64_t*)one - *(const int64_t*)other;
    return (difference > 0) - (difference < 0);
}

static int64_t median_turn(Turns* shared, int32_t num_workers, int32_t turns) {
    int64_t* taken = malloc((size_t)turns * sizeof *taken);
    int64_t median = -1;
    int32_t done = 0;
    for (int32_t i = 0; taken && i < WARM_UP_TURNS + turns; i++) {
        int64_t start = puf_now_ns();
        if (!give_turn(shared, num_workers)) break;
        if (i >= WARM_UP_TURNS) taken[done++] = puf_now_ns() - start;
    }
    if (taken && done == turns) {
        qsort(taken, (size_t)turns, sizeof *taken, compare);
        median = taken[turns / 2];
    }
    free(taken);
    return median;
}

int64_t puf_futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns) {
    pid_t* workers = calloc((size_t)num_workers, sizeof *workers);
    Turns* shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool is_ready = workers && shared != MAP_FAILED;
    int32_t num_forked = 0;
    for (; is_ready && num_forked < num_workers; num_forked++) {
        pid_t pid = fork();
        if (pid ==
            0) {  // only system calls from here: a lock of another thread may be held for ever
            puf_die_with_parent();
            work(shared, work_ns);
        }
        if (pid < 0) break;
        workers[num_forked] = pid;
    }
    is_ready = is_ready && num_forked == num_workers;
    int64_t taken = is_ready ? median_turn(shared, num_workers, turns) : -1;
    for (int32_t i = 0; i < num_forked; i++) {
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
    if (shared != MAP_FAILED) munmap(shared, sizeof *shared);
    free(workers);
    return taken;
}
#else
int64_t puf_futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns) {
    (void)num_workers, (void)work_ns, (void)turns;
    return -1;
}
#endif
