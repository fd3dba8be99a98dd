// flags.c - see flags.h.
//
// A side that is awake is never woken: a sleeper says so in `asleep` before its last look, and a
// waker looks at `asleep` after its change. Both sides are sequentially consistent, so one of them
// always sees the other. The parent sleeps for many workers at once; only the worker that completes
// the awaited number wakes it. Workers sleep on one word, each with a bit of its own, so one system
// call wakes any of them (and a few more where there are over 32).
//
// Those that slept on this core are woken last: it stays theirs, as the parent is about to sleep.
// Woken first, such a worker would be sent to another core, where the next one just was.
//
// A worker may be killed between any two of its instructions. So `turn` alone says whether it is
// done; `finished`, which a dead worker may have left one short, says only when a look is due.
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

// A worker's cache line. `turn` and `said` change hands; `progress` is the worker's alone.
typedef struct {
    _Alignas(64) atomic_uint turn;  // 1: the worker's, 0: the parent's
    atomic_uint asleep;
    atomic_uint order;  // of its last finish among those of all workers
    atomic_uint said;
    atomic_uint called;  // there is something to read
    atomic_uint core;    // of its last finish
    atomic_uint progress;
} Worker;

struct PufFlags {
    _Alignas(64) atomic_uint starts;   // changes with every start and call: workers sleep on it
    _Alignas(64) atomic_uint tickets;  // finishes begun
    atomic_uint finished;              // finishes done: the parent sleeps on it
    atomic_uint wake_at;               // `finished` at which the parent wants to look
    atomic_uint asleep;
    Worker workers[];
};

// A sleeper looks for the other side's death as often as this. There is one parent, and it names
// the dead; workers are many, and the launcher ends them anyway.
enum { PARENT_SLICE_MS = 20, WORKER_SLICE_MS = 250 };

// Looks between two offers of the core to others; how long an offer takes when one accepts it; how
// many waits sleep at once after that. And a wait that is shorter than this needs no experience.
enum { LOOKS = 32, TAKEN_NS = 200000, RESTS = 64, FIRST_NS = 20000 };

size_t puf_flags_bytes(int32_t num_workers) {
    return sizeof(PufFlags) + (size_t)num_workers * sizeof(Worker);
}

// ---- Spinning -----------------------------------------------------------------------------------

typedef bool (*Look)(const void* wanted);

// Looks until it sees what is wanted, for as long as that pays.
static void spin_until(PufSpin* spin, Look is_over, const void* wanted, int64_t start) {
    if (spin->mean_ns > spin->limit_ns || !spin->limit_ns) return;
    if (spin->rests) {
        spin->rests--;
        return;
    }
    int64_t longest = 2 * spin->mean_ns + FIRST_NS;
    if (longest > spin->limit_ns) longest = spin->limit_ns;
    for (int64_t now = start; now - start < longest;) {
        for (int32_t i = 0; i < LOOKS; i++) {
            if (is_over(wanted)) return;
            puf_pause();
        }
        int64_t before = now;
        sched_yield();  // where cores are short after all, the other side may need this one
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

// Sleeps on a word, for one slice at most. PUF_TURN: the caller looks again.
static PufWaited sleep_on(atomic_uint* word, uint32_t seen, uint32_t bits, int life_fd,
                          int32_t slice_ms, int64_t deadline) {
    int64_t slice_end = puf_now_ns() + (int64_t)slice_ms * 1000000;
    bool is_last = deadline <= slice_end;
    int result = puf_sleep_on(word, seen, bits, is_last ? deadline : slice_end);
    if (result && is_readable(life_fd)) return PUF_SPOKEN;  // signals may come faster than slices
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

static bool is_look_due(PufFlags* flags) {
    return (int32_t)(atomic_load(&flags->finished) - atomic_load(&flags->wake_at)) >= 0;
}

// Whether `count` workers are done; if not, sets when to look again. `finished` is read before the
// turns, so a worker that is seen done counts at most once: `wake_at` may come early, never late.
static bool are_done(const Awaited* wanted) {
    PufFlags* flags = wanted->flags;
    do {
        uint32_t finished = atomic_load(&flags->finished);
        int32_t done = 0;
        for (int32_t i = 0; i < wanted->num_pending; i++)
            done += !atomic_load(&flags->workers[wanted->pending[i]].turn);
        if (done >= wanted->count) return true;
        atomic_store(&flags->wake_at, finished + (uint32_t)(wanted->count - done));
    } while (is_look_due(flags));  // a worker that finished meanwhile saw the old `wake_at`
    return false;
}

static bool are_seen_done(const void* wanted) {
    const Awaited* awaited = wanted;
    return is_look_due(awaited->flags) && are_done(awaited);
}

PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int life_fd, PufSpin* spin, int32_t timeout_ms) {
    Awaited wanted = {flags, pending, num_pending, count};
    if (are_done(&wanted)) return PUF_TURN;
    int64_t start = puf_now_ns(), deadline = deadline_of(start, timeout_ms);
    spin_until(spin, are_seen_done, &wanted, start);
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
        for (; at > 0; at--) {  // insertion: few, and nearly in order
            uint32_t before = atomic_load(&flags->workers[out[at - 1]].order);
            if ((int32_t)(order - before) >= 0) break;
            out[at] = out[at - 1];
        }
        out[at] = pending[i];
    }
    return count;
}

uint32_t puf_flags_said(const PufFlags* flags, int32_t worker) {
    return atomic_load(&((PufFlags*)flags)->workers[worker].said);
}

uint32_t puf_flags_progress(const PufFlags* flags, int32_t worker) {
    return atomic_load(&((PufFlags*)flags)->workers[worker].progress);
}

void puf_flags_revoke(PufFlags* flags, int32_t worker) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->asleep, 0);
    atomic_store(&w->said, 0);
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
        // the call may be of a message that has been read already
        if (atomic_exchange(&w->called, 0) && is_readable(life_fd))
            waited = PUF_SPOKEN;
        else
            waited =
                sleep_on(&flags->starts, seen, bit_of(worker), life_fd, WORKER_SLICE_MS, deadline);
    }
    atomic_store(&w->asleep, 0);
    note_wait(spin, start);
    return atomic_load(&w->turn) ? PUF_TURN : waited;
}

void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t said) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->said, said);
    atomic_store(&w->core, this_core());
    atomic_store(&w->order, atomic_fetch_add(&flags->tickets, 1));
    atomic_store(&w->turn, 0);
    atomic_fetch_add(&flags->finished, 1);
    if (atomic_load(&flags->asleep) && is_look_due(flags)) puf_wake(&flags->finished, PUF_ANYONE);
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
