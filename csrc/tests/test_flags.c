// Flags: every turn arrives, whoever was asleep when it came, and a worker may die anywhere.
//
// Threads stand for processes, and real ones are killed at the end. The file under test is
// included, so that a worker can also die between two of its stores.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../flags.c"
#include "check.h"

enum { MAX_WORKERS = 8, PATIENCE_MS = 20000 };  // nothing here takes a thousandth of that

// What a vector has: flags, a descriptor for each side, and rows that flags must keep in order.
typedef struct {
    PufFlags* flags;
    int parent_fd;
    int wake_fds[MAX_WORKERS];
    int shout_fd;
    int sleepers[MAX_WORKERS];
    int life[2];  // a pipe that nobody writes to
    int32_t num_workers;
    int32_t rows[MAX_WORKERS];  // plain on purpose: without an order TSan objects
} Rig;

typedef struct {
    Rig* rig;
    int32_t worker, rounds, spins;
    unsigned seed;  // 0: no delays
    int32_t failures;
} Part;

static void make_rig(Rig* rig, int32_t num_workers) {
    memset(rig, 0, sizeof *rig);
    rig->num_workers = num_workers;
    rig->flags = aligned_alloc(64, puf_flags_bytes(num_workers));
    memset(rig->flags, 0, puf_flags_bytes(num_workers));
    rig->parent_fd = eventfd(0, EFD_NONBLOCK);
    rig->shout_fd = eventfd(0, EFD_NONBLOCK);
    CHECK(pipe(rig->life) == 0);
    for (int32_t i = 0; i < num_workers; i++) {
        rig->wake_fds[i] = eventfd(0, EFD_NONBLOCK);
        rig->sleepers[i] = puf_flags_sleeper(rig->wake_fds[i], rig->shout_fd, rig->life[0]);
        CHECK(rig->sleepers[i] >= 0);
    }
}

static void free_rig(Rig* rig) {
    free(rig->flags);
    close(rig->parent_fd);
    close(rig->shout_fd);
    for (int32_t i = 0; i < rig->num_workers; i++) close(rig->wake_fds[i]), close(rig->sleepers[i]);
    close(rig->life[0]);
    close(rig->life[1]);
}

static PufWaited wait_for(Rig* rig, const int32_t* pending, int32_t num, int32_t count,
                          int32_t spins, int32_t timeout_ms) {
    return puf_flags_wait(rig->flags, pending, num, count, rig->parent_fd, rig->life[0], spins,
                          timeout_ms);
}

static void start(Rig* rig, int32_t worker) {
    puf_flags_start(rig->flags, worker, rig->wake_fds[worker]);
}

static void finish(Rig* rig, int32_t worker, uint32_t said) {
    puf_flags_finish(rig->flags, worker, said, rig->parent_fd);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static const int32_t ALL[MAX_WORKERS] = {0, 1, 2, 3, 4, 5, 6, 7};

// ---- Turns --------------------------------------------------------------------------------------

// Takes `rounds` turns; in each it finds the row that the parent left and counts it up.
static void* work(void* context) {
    Part* part = context;
    Rig* rig = part->rig;
    int32_t worker = part->worker;
    for (int32_t round = 0; round < part->rounds; round++) {
        PufWaited waited = puf_flags_wait_turn(rig->flags, worker, rig->sleepers[worker],
                                               part->spins, PATIENCE_MS);
        if (waited != PUF_TURN || rig->rows[worker] != 2 * round) {
            part->failures++;
            return NULL;
        }
        if (part->seed && rand_r(&part->seed) % 4 == 0) usleep(rand_r(&part->seed) % 200);
        rig->rows[worker]++;
        finish(rig, worker, (uint32_t)round);
    }
    return NULL;
}

static void test_every_turn_goes_there_and_back(int32_t num_workers, int32_t spins, bool delays) {
    enum { ROUNDS = 400 };
    Rig rig;
    make_rig(&rig, num_workers);
    pthread_t threads[MAX_WORKERS];
    Part parts[MAX_WORKERS];
    int32_t rounds = delays ? ROUNDS / 4 : ROUNDS;
    for (int32_t i = 0; i < num_workers; i++) {
        parts[i] = (Part){&rig, i, rounds, spins, delays ? 1u + (unsigned)i : 0, 0};
        pthread_create(&threads[i], NULL, work, &parts[i]);
    }
    bool good = true;
    for (int32_t round = 0; round < rounds && good; round++) {
        if (round % 3 == 0)
            for (int32_t i = 0; i < num_workers; i++) start(&rig, i);
        else
            puf_flags_start_all(rig.flags, ALL, num_workers, rig.wake_fds, rig.shout_fd);
        good = wait_for(&rig, ALL, num_workers, num_workers, spins, PATIENCE_MS) == PUF_TURN;
        for (int32_t i = 0; i < num_workers && good; i++) {
            good = rig.rows[i] == 2 * round + 1 && puf_flags_said(rig.flags, i) == (uint32_t)round;
            rig.rows[i]++;
        }
    }
    CHECK(good);
    for (int32_t i = 0; i < num_workers; i++) {
        pthread_join(threads[i], NULL);
        CHECK(parts[i].failures == 0);
    }
    free_rig(&rig);
}

// Some workers are always under way, as with surplus envs: the parent goes on with those done.
static void test_the_first_that_are_done_are_enough(int32_t spins) {
    enum { WORKERS = 6, WANTED = 2, ROUNDS = 100 };
    Rig rig;
    make_rig(&rig, WORKERS);
    pthread_t threads[WORKERS];
    Part parts[WORKERS];
    for (int32_t i = 0; i < WORKERS; i++) {
        parts[i] = (Part){&rig, i, ROUNDS, spins, 7u + (unsigned)i, 0};
        pthread_create(&threads[i], NULL, work, &parts[i]);
    }
    int32_t turns[WORKERS] = {0}, pending[WORKERS], num_pending = 0, left = WORKERS * ROUNDS;
    bool good = true;
    for (int32_t i = 0; i < WORKERS; i++) {
        start(&rig, i);
        pending[num_pending++] = i;
    }
    while (left > 0 && good) {
        int32_t wanted = num_pending < WANTED ? num_pending : WANTED;
        good = wait_for(&rig, pending, num_pending, wanted, spins, PATIENCE_MS) == PUF_TURN;
        int32_t done[WORKERS];
        int32_t num_done = puf_flags_ready(rig.flags, pending, num_pending, done);
        good = good && num_done >= wanted;
        for (int32_t k = 0; k < num_done; k++) {
            int32_t i = done[k];
            good = good && rig.rows[i] == 2 * turns[i] + 1;
            rig.rows[i]++;
            turns[i]++;
            left--;
            for (int32_t p = 0; p < num_pending; p++)
                if (pending[p] == i) pending[p] = pending[--num_pending];
            if (turns[i] < ROUNDS) {
                start(&rig, i);
                pending[num_pending++] = i;
            }
        }
    }
    CHECK(good);
    for (int32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(parts[i].failures == 0);
    }
    free_rig(&rig);
}

static void test_ready_tells_the_order_in_which_they_finished(void) {
    Rig rig;
    make_rig(&rig, 5);
    // any order of finishing, also when the counter of finishes wraps around
    static const int32_t orders[][5] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 4, 0, 3, 1}};
    for (uint32_t first = 0; first < 2; first++)
        for (size_t k = 0; k < 3; k++) {
            atomic_store(&rig.flags->tickets, first ? UINT32_MAX - 2 : 0);
            for (int32_t i = 0; i < 5; i++) start(&rig, i);
            for (int32_t i = 0; i < 4; i++) finish(&rig, orders[k][i], 0);
            int32_t out[5];
            CHECK(puf_flags_ready(rig.flags, ALL, 5, out) == 4);
            CHECK(memcmp(out, orders[k], 4 * sizeof *out) == 0);
            finish(&rig, orders[k][4], 0);
            CHECK(puf_flags_ready(rig.flags, ALL, 5, out) == 5);
            CHECK(memcmp(out, orders[k], sizeof out) == 0);
        }
    free_rig(&rig);
}

static void test_the_count_of_finishes_may_wrap_around(void) {
    Rig rig;
    make_rig(&rig, 2);
    atomic_store(&rig.flags->finished, UINT32_MAX - 3);
    for (int32_t round = 0; round < 6; round++) {
        for (int32_t i = 0; i < 2; i++) start(&rig, i);
        CHECK(wait_for(&rig, ALL, 2, 1, 10, 0) == PUF_TIMEOUT);
        finish(&rig, 1, 0);
        CHECK(wait_for(&rig, ALL, 2, 1, 10, 0) == PUF_TURN);
        CHECK(wait_for(&rig, ALL, 2, 2, 10, 0) == PUF_TIMEOUT);
        finish(&rig, 0, 0);
        CHECK(wait_for(&rig, ALL, 2, 2, 10, 0) == PUF_TURN);
    }
    free_rig(&rig);
}

static void test_a_shout_is_one_write(void) {
    Rig rig;
    make_rig(&rig, 3);
    uint64_t count;
    for (int32_t i = 0; i < 3; i++) atomic_store(&rig.flags->workers[i].asleep, 1);
    puf_flags_start_all(rig.flags, ALL, 3, rig.wake_fds, rig.shout_fd);
    CHECK(read(rig.shout_fd, &count, sizeof count) == sizeof count && count == 1);
    for (int32_t i = 0; i < 3; i++) CHECK(read(rig.wake_fds[i], &count, sizeof count) < 0);
    for (int32_t i = 0; i < 3; i++) finish(&rig, i, 0);
    // nor is anyone shouted at who need not be woken
    atomic_store(&rig.flags->workers[0].asleep, 0);
    atomic_store(&rig.flags->workers[1].asleep, 0);
    puf_flags_start_all(rig.flags, ALL, 3, rig.wake_fds, rig.shout_fd);
    CHECK(read(rig.shout_fd, &count, sizeof count) < 0);
    CHECK(read(rig.wake_fds[2], &count, sizeof count) == sizeof count);
    free_rig(&rig);
}

// ---- Whatever else ends a wait ------------------------------------------------------------------

static void test_a_wait_ends_at_its_time(void) {
    Rig rig;
    make_rig(&rig, 2);
    start(&rig, 0);
    start(&rig, 1);
    finish(&rig, 0, 0);
    double begun = now_ms();
    CHECK(wait_for(&rig, ALL, 2, 2, 100, 30) == PUF_TIMEOUT);
    CHECK(now_ms() - begun >= 29);
    begun = now_ms();
    CHECK(puf_flags_wait_turn(rig.flags, 0, rig.sleepers[0], 100, 30) == PUF_TIMEOUT);
    CHECK(now_ms() - begun >= 29);
    free_rig(&rig);
}

static void test_the_other_descriptor_ends_a_wait_but_a_turn_comes_first(void) {
    Rig rig;
    make_rig(&rig, 1);
    start(&rig, 0);
    CHECK(write(rig.life[1], "x", 1) == 1);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_SPOKEN);
    CHECK(puf_flags_wait_turn(rig.flags, 0, rig.sleepers[0], 0, -1) == PUF_TURN);
    finish(&rig, 0, 0);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_TURN);
    CHECK(puf_flags_wait_turn(rig.flags, 0, rig.sleepers[0], 0, -1) == PUF_SPOKEN);
    free_rig(&rig);

    make_rig(&rig, 1);
    start(&rig, 0);
    close(rig.life[1]);  // as if the peer had died
    rig.life[1] = -1;
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_SPOKEN);
    free_rig(&rig);
}

static void test_a_wake_up_from_before_is_no_turn(void) {
    Rig rig;
    make_rig(&rig, 1);
    for (int32_t i = 0; i < 3; i++) wake(rig.wake_fds[0]);
    CHECK(puf_flags_wait_turn(rig.flags, 0, rig.sleepers[0], 0, 5) == PUF_TIMEOUT);
    start(&rig, 0);
    wake(rig.parent_fd);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, 5) == PUF_TIMEOUT);
    free_rig(&rig);
}

static void hear(int number) { (void)number; }

typedef struct {
    pthread_t who;
    atomic_bool done;
} Disturbance;

static void* disturb(void* context) {
    Disturbance* it = context;
    while (!atomic_load(&it->done)) {
        pthread_kill(it->who, SIGUSR1);
        usleep(500);
    }
    return NULL;
}

static void test_a_signal_interrupts_a_wait(void) {
    struct sigaction action = {.sa_handler = hear};
    sigaction(SIGUSR1, &action, NULL);
    Rig rig;
    make_rig(&rig, 1);
    start(&rig, 0);
    Disturbance it = {.who = pthread_self()};
    pthread_t thread;
    pthread_create(&thread, NULL, disturb, &it);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_INTERRUPTED);
    puf_flags_revoke(rig.flags, 0);
    CHECK(puf_flags_wait_turn(rig.flags, 0, rig.sleepers[0], 0, PATIENCE_MS) == PUF_INTERRUPTED);
    atomic_store(&it.done, true);
    pthread_join(thread, NULL);
    free_rig(&rig);
}

// ---- Death --------------------------------------------------------------------------------------

static void test_a_turn_can_be_taken_from_the_dead(void) {
    Rig rig;
    make_rig(&rig, 3);
    for (int32_t i = 0; i < 3; i++) start(&rig, i);
    finish(&rig, 2, 1);
    puf_flags_revoke(rig.flags, 0);
    CHECK(puf_flags_said(rig.flags, 0) == 0);
    CHECK(wait_for(&rig, ALL, 3, 2, 0, 0) == PUF_TURN);
    CHECK(wait_for(&rig, ALL, 3, 3, 0, 0) == PUF_TIMEOUT);
    int32_t out[3];
    CHECK(puf_flags_ready(rig.flags, ALL, 3, out) == 2);
    CHECK(out[0] == 2 && out[1] == 0);
    puf_flags_revoke(rig.flags, 2);  // it had given it back: only what it said is forgotten
    CHECK(puf_flags_said(rig.flags, 2) == 0);
    CHECK(puf_flags_ready(rig.flags, ALL, 3, out) == 2);
    CHECK(out[0] == 2 && out[1] == 0);
    free_rig(&rig);
}

// Killed in `finish` after `stores` of its stores; and one that lives must still wake the parent.
static void test_a_worker_may_die_between_two_stores(int32_t stores) {
    Rig rig;
    make_rig(&rig, 2);
    for (int32_t round = 0; round < 20; round++) {
        start(&rig, 0);
        Worker* dying = &rig.flags->workers[0];
        if (stores > 0) atomic_store(&dying->said, 1);
        if (stores > 1) atomic_store(&dying->order, atomic_fetch_add(&rig.flags->tickets, 1));
        if (stores > 2) atomic_store(&dying->turn, 0);
        if (stores > 3) atomic_fetch_add(&rig.flags->finished, 1);  // and wakes nobody
        Part part = {&rig, 1, 1, 0, 99u + (unsigned)round, 0};
        rig.rows[1] = 0;
        pthread_t thread;
        pthread_create(&thread, NULL, work, &part);
        if (stores < 3) CHECK(wait_for(&rig, ALL, 1, 1, 10, 1) == PUF_TIMEOUT);
        puf_flags_revoke(rig.flags, 0);
        CHECK(wait_for(&rig, ALL, 1, 1, 0, 0) == PUF_TURN);
        start(&rig, 1);
        CHECK(wait_for(&rig, ALL, 2, 2, 0, PATIENCE_MS) == PUF_TURN);
        pthread_join(thread, NULL);
        CHECK(part.failures == 0);
    }
    free_rig(&rig);
}

static void test_who_takes_the_place_of_a_sleeper_is_woken(void) {
    Rig rig;
    make_rig(&rig, 1);
    atomic_store(&rig.flags->workers[0].asleep, 1);  // killed in its sleep
    puf_flags_revoke(rig.flags, 0);
    for (int32_t round = 0; round < 20; round++) {
        Part part = {&rig, 0, 1, 0, 0, 0};
        rig.rows[0] = 0;
        pthread_t thread;
        pthread_create(&thread, NULL, work, &part);
        usleep(round % 2 ? 2000 : 0);
        start(&rig, 0);
        CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_TURN);
        pthread_join(thread, NULL);
        CHECK(part.failures == 0);
    }
    free_rig(&rig);
}

// A real process takes turns without end and is killed; the parent waits on the flag and its life.
static void test_a_killed_process_ends_every_wait(unsigned seed) {
    size_t bytes = puf_flags_bytes(2);
    PufFlags* flags = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int parent_fd = eventfd(0, EFD_NONBLOCK), wake_fd = eventfd(0, EFD_NONBLOCK), life[2];
    int sleeper = puf_flags_sleeper(wake_fd, -1, -1);
    CHECK(flags != MAP_FAILED && pipe(life) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(life[0]);
        if (!puf_die_with_parent()) _exit(1);
        for (;;) {
            if (puf_flags_wait_turn(flags, 1, sleeper, seed % 3 * 100, -1) == PUF_TURN)
                puf_flags_finish(flags, 1, 0, parent_fd);
        }
    }
    close(life[1]);
    static const int32_t pending[1] = {1};
    double end = now_ms() + seed % 5;
    PufWaited waited = PUF_TURN;
    int32_t turns = 0;
    bool killed = false;
    while (waited == PUF_TURN && turns < 1000000) {
        if (!killed && now_ms() > end) {
            kill(child, SIGKILL);
            killed = true;
        }
        puf_flags_start(flags, 1, wake_fd);
        waited = puf_flags_wait(flags, pending, 1, 1, parent_fd, life[0], 20, PATIENCE_MS);
        turns += waited == PUF_TURN;
    }
    CHECK(waited == PUF_SPOKEN);
    puf_flags_revoke(flags, 1);
    CHECK(puf_flags_wait(flags, pending, 1, 1, parent_fd, life[0], 0, 0) == PUF_TURN);
    CHECK(waitpid(child, NULL, 0) == child);
    close(life[0]);
    close(parent_fd);
    close(wake_fd);
    close(sleeper);
    munmap(flags, bytes);
}

static void test_progress_is_seen_by_the_parent(void) {
    Rig rig;
    make_rig(&rig, 3);
    CHECK(puf_flags_progress(rig.flags, 1) == 0);
    *puf_flags_progress_word(rig.flags, 1) = 17;
    CHECK(puf_flags_progress(rig.flags, 1) == 17);
    CHECK(puf_flags_progress(rig.flags, 0) == 0 && puf_flags_progress(rig.flags, 2) == 0);
    free_rig(&rig);
}

static void test_sizes_fit_cache_lines(void) {
    for (int32_t i = 1; i < 300; i++) {
        CHECK(puf_flags_bytes(i) % 64 == 0);
        CHECK(puf_flags_bytes(i) >= (size_t)(i + 1) * 64);  // a line each, and the parent's
    }
}

int main(void) {
    test_sizes_fit_cache_lines();
    static const int32_t spins[] = {0, 30, 3000};
    for (size_t s = 0; s < 3; s++) {
        for (int32_t workers = 1; workers <= MAX_WORKERS; workers *= 2) {
            test_every_turn_goes_there_and_back(workers, spins[s], false);
            test_every_turn_goes_there_and_back(workers, spins[s], true);
        }
        test_the_first_that_are_done_are_enough(spins[s]);
    }
    test_ready_tells_the_order_in_which_they_finished();
    test_the_count_of_finishes_may_wrap_around();
    test_a_shout_is_one_write();
    test_a_wait_ends_at_its_time();
    test_the_other_descriptor_ends_a_wait_but_a_turn_comes_first();
    test_a_wake_up_from_before_is_no_turn();
    test_a_signal_interrupts_a_wait();
    test_a_turn_can_be_taken_from_the_dead();
    for (int32_t stores = 0; stores <= 4; stores++)
        test_a_worker_may_die_between_two_stores(stores);
    test_who_takes_the_place_of_a_sleeper_is_woken();
    for (unsigned seed = 0; seed < 40; seed++) test_a_killed_process_ends_every_wait(seed);
    test_progress_is_seen_by_the_parent();
    return CHECK_DONE();
}
