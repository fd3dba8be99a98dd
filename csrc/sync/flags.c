// flags.c - see flags.h.
//
// Only sleepers are woken: a sleeper sets `asleep` before its last check, and a waker reads
// `asleep` after its change. Both are sequentially consistent, so one of them sees the other. The
// parent may sleep for many workers at once; only the worker that completes the awaited number
// wakes it. Workers sleep on one word with one bit each, so that one system call wakes any set of
// them (and a few more if there are over 32).
//
// Workers that last ran on the parent's core are woken last: the parent is about to sleep, and they
// can stay there. Woken first, such a worker would move to another core, where the next one just
// was.
//
// A worker may be killed between any two of its instructions. So only `turn` decides whether it has
// finished; `finished`, which a dead worker may leave one too low, only schedules the next check.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // sched_getcpu
#endif
#include "sync/flags.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "sync/waiting.h"

// One worker's cache line. Only the worker writes `progress`.
typedef struct {
    _Alignas(64) atomic_uint turn;  // 1: the worker may run; 0: it has finished
    atomic_uint asleep;
    atomic_uint order;  // of its last finish among all workers
    atomic_uint status;
    atomic_uint called;  // `life_fd` has a message
    atomic_uint core;    // CPU on which it finished last
    atomic_uint progress;
} Worker;

struct PufFlags {
    _Alignas(64) atomic_uint starts;   // counts starts and calls; workers sleep on it
    _Alignas(64) atomic_uint tickets;  // finishes begun
    atomic_uint finished;              // finishes done; the parent sleeps on it
    atomic_uint wake_at;               // value of `finished` at which the parent checks again
    atomic_uint asleep;
    Worker workers[];
};

// How often a sleeper checks whether the other side is dead. The parent checks often, because it
// reports deaths; for the many workers it is a fallback, because the launcher ends them anyway.
enum { PARENT_SLICE_MS = 20, WORKER_SLICE_MS = 250 };

enum {
    CHECKS = 32,        // spins between two calls of sched_yield
    TAKEN_NS = 200000,  // a yield that takes longer than this gave the core to another process
    RESTS = 64,         // waits that sleep at once after that
    FIRST_NS = 20000,   // spin for at least this long, whatever the mean wait is
};

size_t puf_flags_bytes(int32_t num_workers) {
    return sizeof(PufFlags) + (size_t)num_workers * sizeof(Worker);
}

// ---- Spinning -----------------------------------------------------------------------------------

typedef bool (*Condition)(const void* wanted);

// Spins until the condition holds, or until sleeping is cheaper.
static void spin_until(PufSpin* spin, Condition is_over, const void* wanted, int64_t start) {
    if (spin->mean_ns > spin->limit_ns || !spin->limit_ns) return;
    if (spin->rests) {
        spin->rests--;
        return;
    }
    int64_t longest = 2 * spin->mean_ns + FIRST_NS;
    if (longest > spin->limit_ns) longest = spin->limit_ns;
    for (int64_t now = start; now - start < longest;) {
        for (int32_t i = 0; i < CHECKS; i++) {
            if (is_over(wanted)) return;
            puf_pause();
        }
        int64_t before = now;
        sched_yield();  // the other side may need this core
        now = puf_now_ns();
        if (now - before > TAKEN_NS) {
            spin->rests = RESTS;
            return;
        }
    }
}

static void note_wait(PufSpin* spin, int64_t start) {
    if (!spin->limit_ns) return;
    int64_t waited = puf_now_ns() - start;
    if (waited > 2 * spin->limit_ns) waited = 2 * spin->limit_ns;
    spin->mean_ns += (waited - spin->mean_ns) / 8;
}

// ---- Sleeping -----------------------------------------------------------------------------------

static int64_t deadline_of(int64_t start, int32_t timeout_ms) {
    return timeout_ms < 0 ? INT64_MAX : start + (int64_t)timeout_ms * 1000000;
}

static bool is_readable(int fd) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, 0) > 0;
}

// Sleeps on a word, for one slice at most. After PUF_TURN the caller checks its condition again.
static PufWaited sleep_on(atomic_uint* word, uint32_t seen, uint32_t bits, int life_fd,
                          int32_t slice_ms, int64_t deadline) {
    int64_t slice_end = puf_now_ns() + (int64_t)slice_ms * 1000000;
    bool is_last = deadline <= slice_end;
    int result = puf_sleep_on(word, seen, bits, is_last ? deadline : slice_end);
    if (result && is_readable(life_fd))
        return PUF_READABLE;  // signals may arrive faster than slices end
    if (result == EINTR) return PUF_INTERRUPTED;
    return result && is_last ? PUF_TIMEOUT : PUF_TURN;
}

static uint32_t this_core(void) {
#if defined(__linux__)
    return (uint32_t)sched_getcpu();
#else
    return 0;
#endif
}

static uint32_t bit_of(int32_t worker) { return 1u << (worker % 32); }

// ---- The parent's side --------------------------------------------------------------------------

void puf_flags_start(PufFlags* flags, const int32_t* workers, int32_t num_workers) {
    for (int32_t i = 0; i < num_workers; i++) atomic_store(&flags->workers[workers[i]].turn, 1);
    atomic_fetch_add(&flags->starts, 1);
    uint32_t elsewhere = 0, here = 0, core = this_core();
    for (int32_t i = 0; i < num_workers; i++) {
        Worker* w = &flags->workers[workers[i]];
        if (!atomic_load(&w->asleep)) continue;
        *(atomic_load(&w->core) == core ? &here : &elsewhere) |= bit_of(workers[i]);
    }
    if (elsewhere) puf_wake(&flags->starts, elsewhere);
    if (here) puf_wake(&flags->starts, here);
}

void puf_flags_call(PufFlags* flags, int32_t worker) {
    atomic_store(&flags->workers[worker].called, 1);
    atomic_fetch_add(&flags->starts, 1);
    if (atomic_load(&flags->workers[worker].asleep)) puf_wake(&flags->starts, bit_of(worker));
}

typedef struct {
    PufFlags* flags;
    const int32_t* pending;
    int32_t num_pending, count;
} Awaited;

static bool is_check_due(PufFlags* flags) {
    return (int32_t)(atomic_load(&flags->finished) - atomic_load(&flags->wake_at)) >= 0;
}

// Whether `count` workers have finished; if not, sets `wake_at`. `finished` is read before the
// turns, so that a finished worker counts at most once: `wake_at` may be early, never late.
static bool are_done(const Awaited* wanted) {
    PufFlags* flags = wanted->flags;
    do {
        uint32_t finished = atomic_load(&flags->finished);
        int32_t done = 0;
        for (int32_t i = 0; i < wanted->num_pending; i++)
            done += !atomic_load(&flags->workers[wanted->pending[i]].turn);
        if (done >= wanted->count) return true;
        atomic_store(&flags->wake_at, finished + (uint32_t)(wanted->count - done));
    } while (is_check_due(flags));  // a worker that finished meanwhile read the old `wake_at`
    return false;
}

static bool are_done_now(const void* wanted) {
    const Awaited* awaited = wanted;
    return is_check_due(awaited->flags) && are_done(awaited);
}

PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int life_fd, PufSpin* spin, int32_t timeout_ms) {
    Awaited wanted = {flags, pending, num_pending, count};
    if (are_done(&wanted)) return PUF_TURN;
    int64_t start = puf_now_ns(), deadline = deadline_of(start, timeout_ms);
    spin_until(spin, are_done_now, &wanted, start);
    PufWaited waited = PUF_TURN;
    atomic_store(&flags->asleep, 1);
    while (waited == PUF_TURN) {
        uint32_t seen = atomic_load(&flags->finished);
        if (are_done(&wanted)) break;
        waited = sleep_on(&flags->finished, seen, PUF_ANYONE, life_fd, PARENT_SLICE_MS, deadline);
    }
    atomic_store(&flags->asleep, 0);
    note_wait(spin, start);
    if (waited != PUF_TURN && are_done(&wanted)) return PUF_TURN;
    return waited;
}

int32_t puf_flags_ready(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                        int32_t* out) {
    int32_t count = 0;
    for (int32_t i = 0; i < num_pending; i++) {
        Worker* w = &flags->workers[pending[i]];
        if (atomic_load(&w->turn)) continue;
        uint32_t order = atomic_load(&w->order);
        int32_t at = count++;
        for (; at > 0; at--) {  // insertion sort: few workers, nearly in order
            uint32_t before = atomic_load(&flags->workers[out[at - 1]].order);
            if ((int32_t)(order - before) >= 0) break;
            out[at] = out[at - 1];
        }
        out[at] = pending[i];
    }
    return count;
}

uint32_t puf_flags_status(const PufFlags* flags, int32_t worker) {
    return atomic_load(&((PufFlags*)flags)->workers[worker].status);
}

uint32_t puf_flags_progress(const PufFlags* flags, int32_t worker) {
    return atomic_load(&((PufFlags*)flags)->workers[worker].progress);
}

void puf_flags_revoke(PufFlags* flags, int32_t worker) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->asleep, 0);
    atomic_store(&w->status, 0);
    atomic_store(&w->called, 0);
    if (!atomic_load(&w->turn)) return;
    atomic_store(&w->order, atomic_fetch_add(&flags->tickets, 1));
    atomic_store(&w->turn, 0);
}

// ---- A worker's side ----------------------------------------------------------------------------

static bool is_wanted(const void* wanted) {
    Worker* w = (Worker*)wanted;
    return atomic_load(&w->turn) || atomic_load(&w->called);
}

PufWaited puf_flags_wait_turn(PufFlags* flags, int32_t worker, int life_fd, PufSpin* spin,
                              int32_t timeout_ms) {
    Worker* w = &flags->workers[worker];
    int64_t start = puf_now_ns(), deadline = deadline_of(start, timeout_ms);
    spin_until(spin, is_wanted, w, start);
    PufWaited waited = PUF_TURN;
    atomic_store(&w->asleep, 1);
    while (waited == PUF_TURN) {
        uint32_t seen = atomic_load(&flags->starts);
        if (atomic_load(&w->turn)) break;
        // the message of this call may have been read already
        if (atomic_exchange(&w->called, 0) && is_readable(life_fd))
            waited = PUF_READABLE;
        else
            waited =
                sleep_on(&flags->starts, seen, bit_of(worker), life_fd, WORKER_SLICE_MS, deadline);
    }
    atomic_store(&w->asleep, 0);
    note_wait(spin, start);
    return atomic_load(&w->turn) ? PUF_TURN : waited;
}

void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t status) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->status, status);
    atomic_store(&w->core, this_core());
    atomic_store(&w->order, atomic_fetch_add(&flags->tickets, 1));
    atomic_store(&w->turn, 0);
    atomic_fetch_add(&flags->finished, 1);
    if (atomic_load(&flags->asleep) && is_check_due(flags)) puf_wake(&flags->finished, PUF_ANYONE);
}

uint32_t* puf_flags_progress_word(PufFlags* flags, int32_t worker) {
    return (uint32_t*)&flags->workers[worker].progress;
}

int puf_die_with_parent(void) {
#if defined(__linux__)
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
#else
    return 0;
#endif
}

int puf_adopt_orphans(void) {
#if defined(__linux__)
    return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
#else
    return 0;
#endif
}
