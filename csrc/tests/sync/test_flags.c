// Flags: every turn arrives, even at sleepers, and a worker may die at any instruction.
//
// Threads stand for processes, and real ones are killed at the end. The file under test is
// included, so that a worker can also die between two of its stores.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define puf_wake wake_uncounted
#include "sync/waiting.h"
#undef puf_wake
static atomic_int num_wakes;
static atomic_uint first_woken, last_woken;
static void puf_wake(atomic_uint* word, uint32_t bits) {
    if (!atomic_fetch_add(&num_wakes, 1)) atomic_store(&first_woken, bits);
    atomic_store(&last_woken, bits);
    wake_uncounted(word, bits);
}
#include "sync/flags.c"
#include "tests/check.h"

enum { MAX_WORKERS = 8, PATIENCE_MS = 120000 };  // nothing here takes a thousandth of that

// What a vector has: flags, a descriptor that shows a death, and rows that flags must keep in
// order.
typedef struct {
    PufFlags* flags;
    int life[2];  // a pipe without writes
    int32_t num_workers;
    int32_t rows[MAX_WORKERS];  // plain on purpose: without an order TSan objects
} Rig;

typedef struct {
    Rig* rig;
    int32_t worker, rounds, spin_us;
    unsigned seed;  // 0: no delays
    int32_t failures;
} Part;

static void make_rig(Rig* rig, int32_t num_workers) {
    memset(rig, 0, sizeof *rig);
    rig->num_workers = num_workers;
    rig->flags = aligned_alloc(64, puf_flags_bytes(num_workers));
    memset(rig->flags, 0, puf_flags_bytes(num_workers));
    CHECK(pipe(rig->life) == 0);
}

static void free_rig(Rig* rig) {
    free(rig->flags);
    close(rig->life[0]);
    close(rig->life[1]);
}

static PufWaited wait_for(Rig* rig, const int32_t* pending, int32_t num, int32_t count,
                          int32_t spin_us, int32_t timeout_ms) {
    PufSpin spin = {.limit_ns = spin_us * 1000};
    return puf_flags_wait(rig->flags, pending, num, count, rig->life[0], &spin, timeout_ms);
}

static PufWaited wait_turn(Rig* rig, int32_t worker, int32_t spin_us, int32_t timeout_ms) {
    PufSpin spin = {.limit_ns = spin_us * 1000};
    return puf_flags_wait_turn(rig->flags, worker, rig->life[0], &spin, timeout_ms);
}

static void start(Rig* rig, int32_t worker) { puf_flags_start(rig->flags, &worker, 1); }

static void finish(Rig* rig, int32_t worker, uint32_t status) {
    puf_flags_finish(rig->flags, worker, status);
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
    PufSpin spin = {.limit_ns = part->spin_us * 1000};
    for (int32_t round = 0; round < part->rounds; round++) {
        PufWaited waited =
            puf_flags_wait_turn(rig->flags, worker, rig->life[0], &spin, PATIENCE_MS);
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

static void test_every_turn_is_started_and_finished(int32_t num_workers, int32_t spin_us,
                                                    bool delays) {
    enum { ROUNDS = 400 };
    Rig rig;
    make_rig(&rig, num_workers);
    pthread_t threads[MAX_WORKERS];
    Part parts[MAX_WORKERS];
    int32_t rounds = delays ? ROUNDS / 4 : ROUNDS;
    for (int32_t i = 0; i < num_workers; i++) {
        parts[i] = (Part){&rig, i, rounds, spin_us, delays ? 1u + (unsigned)i : 0, 0};
        pthread_create(&threads[i], NULL, work, &parts[i]);
    }
    bool good = true;
    for (int32_t round = 0; round < rounds && good; round++) {
        if (round % 3 == 0)
            for (int32_t i = 0; i < num_workers; i++) start(&rig, i);
        else
            puf_flags_start(rig.flags, ALL, num_workers);
        good = wait_for(&rig, ALL, num_workers, num_workers, spin_us, PATIENCE_MS) == PUF_TURN;
        for (int32_t i = 0; i < num_workers && good; i++) {
            good =
                rig.rows[i] == 2 * round + 1 && puf_flags_status(rig.flags, i) == (uint32_t)round;
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
static void test_a_wait_returns_when_count_workers_are_done(int32_t spin_us) {
    enum { WORKERS = 6, WANTED = 2, ROUNDS = 100 };
    Rig rig;
    make_rig(&rig, WORKERS);
    pthread_t threads[WORKERS];
    Part parts[WORKERS];
    for (int32_t i = 0; i < WORKERS; i++) {
        parts[i] = (Part){&rig, i, ROUNDS, spin_us, 7u + (unsigned)i, 0};
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
        good = wait_for(&rig, pending, num_pending, wanted, spin_us, PATIENCE_MS) == PUF_TURN;
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

static void test_ready_lists_workers_in_the_order_they_finished(void) {
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

static void test_one_wake_up_serves_all_workers_of_other_cores_and_one_the_parent(void) {
    Rig rig;
    make_rig(&rig, 3);
    for (int32_t asleep = 0; asleep <= 3; asleep++) {
        for (int32_t i = 0; i < 3; i++) {
            atomic_store(&rig.flags->workers[i].asleep, i < asleep);
            atomic_store(&rig.flags->workers[i].core, UINT32_MAX);
        }
        atomic_store(&num_wakes, 0);
        puf_flags_start(rig.flags, ALL, 3);
        CHECK(atomic_load(&num_wakes) == (asleep > 0));
        CHECK(wait_for(&rig, ALL, 3, 3, 0, 0) == PUF_TIMEOUT);
        atomic_store(&rig.flags->asleep, 1);
        atomic_store(&num_wakes, 0);
        for (int32_t i = 0; i < 3; i++) {
            CHECK(atomic_load(&num_wakes) == 0);
            finish(&rig, i, 0);
        }
        CHECK(atomic_load(&num_wakes) == 1);
        atomic_store(&rig.flags->asleep, 0);
    }
    free_rig(&rig);
}

static void test_workers_of_this_core_are_woken_last(void) {
    Rig rig;
    make_rig(&rig, 3);
    bool good = false;
    for (int32_t round = 0; round < 1000 && !good; round++) {  // the system may move this thread
        for (int32_t i = 0; i < 3; i++) {
            atomic_store(&rig.flags->workers[i].asleep, 1);
            atomic_store(&rig.flags->workers[i].core, i == 1 ? this_core() : UINT32_MAX);
        }
        atomic_store(&num_wakes, 0);
        puf_flags_start(rig.flags, ALL, 3);
        good = num_wakes == 2 && first_woken == (bit_of(0) | bit_of(2)) && last_woken == bit_of(1);
        for (int32_t i = 0; i < 3; i++) finish(&rig, i, 0);
    }
    CHECK(good);
    CHECK(atomic_load(&rig.flags->workers[0].core) != UINT32_MAX);  // `finish` notes the core
    free_rig(&rig);
}

// ---- Spinning -----------------------------------------------------------------------------------

static bool count_look(const void* wanted) {
    (*(int32_t*)wanted)++;
    return false;
}

static int32_t looks_of(PufSpin* spin) {
    int32_t looks = 0;
    spin_until(spin, count_look, &looks, puf_now_ns());
    return looks;
}

static void test_spinning_follows_the_waits(void) {
    enum { MS = 1000000 };
    PufSpin never = {.limit_ns = 0};
    note_wait(&never, puf_now_ns() - 10 * MS);
    CHECK(looks_of(&never) == 0);

    PufSpin spin = {.limit_ns = 5 * MS};
    CHECK(looks_of(&spin) > 0);  // it has no experience yet
    spin.rests = 0;
    note_wait(&spin, puf_now_ns() - 60000 * (int64_t)MS);
    CHECK(spin.mean_ns == 2 * 5 * MS / 8);  // one long wait, a training phase say, is forgiven
    CHECK(looks_of(&spin) > 0);
    for (int32_t i = 0; i < 20; i++) note_wait(&spin, puf_now_ns() - 60 * MS);
    spin.rests = 0;
    CHECK(looks_of(&spin) == 0);  // waits are as long as this now
    for (int32_t i = 0; i < 40; i++) note_wait(&spin, puf_now_ns());
    CHECK(looks_of(&spin) > 0);

    spin.rests = 2;  // as after a look during which another process had the core
    CHECK(looks_of(&spin) == 0);
    CHECK(looks_of(&spin) == 0);
    CHECK(looks_of(&spin) > 0);
}

// ---- Whatever else ends a wait ------------------------------------------------------------------

static void test_a_wait_times_out(void) {
    Rig rig;
    make_rig(&rig, 2);
    start(&rig, 0);
    start(&rig, 1);
    finish(&rig, 0, 0);
    double begun = now_ms();
    CHECK(wait_for(&rig, ALL, 2, 2, 100, 30) == PUF_TIMEOUT);
    CHECK(now_ms() - begun >= 29);
    begun = now_ms();
    CHECK(wait_turn(&rig, 0, 100, 30) == PUF_TIMEOUT);
    CHECK(now_ms() - begun >= 29);
    free_rig(&rig);
}

static void test_a_readable_descriptor_ends_a_wait_but_a_turn_takes_precedence(void) {
    Rig rig;
    make_rig(&rig, 1);
    start(&rig, 0);
    CHECK(write(rig.life[1], "x", 1) == 1);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_READABLE);
    CHECK(wait_turn(&rig, 0, 0, -1) == PUF_TURN);
    finish(&rig, 0, 0);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_TURN);
    CHECK(wait_turn(&rig, 0, 0, -1) == PUF_READABLE);
    free_rig(&rig);

    make_rig(&rig, 1);
    start(&rig, 0);
    close(rig.life[1]);  // as if the peer had died
    rig.life[1] = -1;
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_READABLE);
    free_rig(&rig);
}

typedef struct {
    Rig* rig;
    PufWaited waited;
} Reader;

static void* wait_for_call(void* context) {
    Reader* reader = context;
    reader->waited = wait_turn(reader->rig, 0, 0, PATIENCE_MS);
    return NULL;
}

static void test_a_call_lets_a_worker_read_at_once(void) {
    Rig rig;
    make_rig(&rig, 1);
    double shortest = PATIENCE_MS;
    for (int32_t round = 0; round < 20; round++) {
        Reader reader = {&rig, PUF_TIMEOUT};
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_call, &reader);
        while (round % 2 && !atomic_load(&rig.flags->workers[0].asleep)) usleep(100);
        double begun = now_ms();
        CHECK(write(rig.life[1], "x", 1) == 1);
        puf_flags_call(rig.flags, 0);
        pthread_join(thread, NULL);
        if (now_ms() - begun < shortest) shortest = now_ms() - begun;
        CHECK(reader.waited == PUF_READABLE);
        char taken;
        CHECK(read(rig.life[0], &taken, 1) == 1);
    }
    CHECK(shortest < WORKER_SLICE_MS / 2);
    puf_flags_call(rig.flags, 0);  // of a message that has been read already
    CHECK(wait_turn(&rig, 0, 0, 5) == PUF_TIMEOUT);
    free_rig(&rig);
}

static void test_a_stale_wake_up_is_not_a_turn(void) {
    Rig rig;
    make_rig(&rig, 1);
    atomic_fetch_add(&rig.flags->starts, 3);
    CHECK(wait_turn(&rig, 0, 0, 5) == PUF_TIMEOUT);
    start(&rig, 0);
    atomic_fetch_add(&rig.flags->finished, 1);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, 5) == PUF_TIMEOUT);
    free_rig(&rig);
}

static void hear(int number) { (void)number; }

typedef struct {
    pthread_t target;
    atomic_bool done;
} Disturbance;

static void* disturb(void* context) {
    Disturbance* it = context;
    while (!atomic_load(&it->done)) {
        pthread_kill(it->target, SIGUSR1);
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
    Disturbance it = {.target = pthread_self()};
    pthread_t thread;
    pthread_create(&thread, NULL, disturb, &it);
    CHECK(wait_for(&rig, ALL, 1, 1, 0, PATIENCE_MS) == PUF_INTERRUPTED);
    puf_flags_revoke(rig.flags, 0);
    CHECK(wait_turn(&rig, 0, 0, PATIENCE_MS) == PUF_INTERRUPTED);
    CHECK(write(rig.life[1], "x", 1) == 1);  // a death is noticed however many signals there are
    PufWaited waited = PUF_INTERRUPTED;
    for (int32_t i = 0; i < 100 && waited == PUF_INTERRUPTED; i++)
        waited = wait_turn(&rig, 0, 0, PATIENCE_MS);
    CHECK(waited == PUF_READABLE);
    atomic_store(&it.done, true);
    pthread_join(thread, NULL);
    free_rig(&rig);
}

// ---- Death --------------------------------------------------------------------------------------

static void test_a_turn_can_be_revoked_from_a_dead_worker(void) {
    Rig rig;
    make_rig(&rig, 3);
    for (int32_t i = 0; i < 3; i++) start(&rig, i);
    finish(&rig, 2, 1);
    puf_flags_revoke(rig.flags, 0);
    CHECK(puf_flags_status(rig.flags, 0) == 0);
    CHECK(wait_for(&rig, ALL, 3, 2, 0, 0) == PUF_TURN);
    CHECK(wait_for(&rig, ALL, 3, 3, 0, 0) == PUF_TIMEOUT);
    int32_t out[3];
    CHECK(puf_flags_ready(rig.flags, ALL, 3, out) == 2);
    CHECK(out[0] == 2 && out[1] == 0);
    puf_flags_revoke(rig.flags, 2);  // it had finished: only its status is cleared
    CHECK(puf_flags_status(rig.flags, 2) == 0);
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
        if (stores > 0) atomic_store(&dying->status, 1);
        if (stores > 1) atomic_store(&dying->order, atomic_fetch_add(&rig.flags->tickets, 1));
        if (stores > 2) atomic_store(&dying->turn, 0);
        if (stores > 3) atomic_fetch_add(&rig.flags->finished, 1);  // without a wake-up
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

static void test_a_worker_that_replaces_a_dead_sleeper_is_woken(void) {
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
    PufSpin spin = {.limit_ns = seed % 3 * 5000};
    int life[2];
    CHECK(flags != MAP_FAILED && pipe(life) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(life[0]);
        if (!puf_die_with_parent()) _exit(1);
        for (;;) {
            if (puf_flags_wait_turn(flags, 1, -1, &spin, -1) == PUF_TURN)
                puf_flags_finish(flags, 1, 0);
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
        puf_flags_start(flags, pending, 1);
        waited = puf_flags_wait(flags, pending, 1, 1, life[0], &spin, PATIENCE_MS);
        turns += waited == PUF_TURN;
    }
    CHECK(waited == PUF_READABLE);
    puf_flags_revoke(flags, 1);
    CHECK(puf_flags_wait(flags, pending, 1, 1, life[0], &spin, 0) == PUF_TURN);
    CHECK(waitpid(child, NULL, 0) == child);
    close(life[0]);
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
    static const int32_t spin_us[] = {0, 50, 5000};
    for (size_t s = 0; s < 3; s++) {
        for (int32_t workers = 1; workers <= MAX_WORKERS; workers *= 2) {
            test_every_turn_is_started_and_finished(workers, spin_us[s], false);
            test_every_turn_is_started_and_finished(workers, spin_us[s], true);
        }
        test_a_wait_returns_when_count_workers_are_done(spin_us[s]);
    }
    test_ready_lists_workers_in_the_order_they_finished();
    test_the_count_of_finishes_may_wrap_around();
    test_one_wake_up_serves_all_workers_of_other_cores_and_one_the_parent();
    test_workers_of_this_core_are_woken_last();
    test_spinning_follows_the_waits();
    test_a_wait_times_out();
    test_a_call_lets_a_worker_read_at_once();
    test_a_readable_descriptor_ends_a_wait_but_a_turn_takes_precedence();
    test_a_stale_wake_up_is_not_a_turn();
    test_a_signal_interrupts_a_wait();
    test_a_turn_can_be_revoked_from_a_dead_worker();
    for (int32_t stores = 0; stores <= 4; stores++)
        test_a_worker_may_die_between_two_stores(stores);
    test_a_worker_that_replaces_a_dead_sleeper_is_woken();
    for (unsigned seed = 0; seed < 40; seed++) test_a_killed_process_ends_every_wait(seed);
    test_progress_is_seen_by_the_parent();
    return CHECK_DONE();
}
