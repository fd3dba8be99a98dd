// flags.c - see flags.h.
//
// Nobody is woken who is awake: a sleeper says so in `asleep` before its last look, and a waker
// looks at `asleep` after its change. Both sides are sequentially consistent, so one of them always
// sees the other. The parent sleeps for many workers at once; only the one that completes the
// awaited number wakes it.
//
// A worker may be killed between any two of its instructions. So `turn` alone says whether it is
// done; `finished`, which a dead worker may have left one short, says only when a look is due.
#include "flags.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/epoll.h>
#include <sys/prctl.h>
#endif

// A worker's cache line. `turn` and `said` change hands; `progress` is the worker's alone.
typedef struct {
    _Alignas(64) atomic_uint turn;  // 1: the worker's, 0: the parent's
    atomic_uint asleep;
    atomic_uint order;  // of its last finish among those of all workers
    atomic_uint said;
    atomic_uint progress;
} Worker;

struct PufFlags {
    _Alignas(64) atomic_uint tickets;  // finishes begun
    atomic_uint finished;              // finishes done
    atomic_uint wake_at;               // `finished` at which the parent wants to look
    atomic_uint asleep;
    Worker workers[];
};

size_t puf_flags_bytes(int32_t num_workers) {
    return sizeof(PufFlags) + (size_t)num_workers * sizeof(Worker);
}

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake(int fd) {
    uint64_t one = 1;
    ssize_t written;
    do written = write(fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);  // full is fine: then it is readable already
}

// Sleeps until `own_fd` (a wake-up, which is taken) or `life_fd` is readable. A wake-up may be of
// an earlier sleep: the caller looks again at what it waits for.
static PufWaited sleep_on(int own_fd, int life_fd, int32_t timeout_ms) {
    struct pollfd fds[2] = {{own_fd, POLLIN, 0}, {life_fd, POLLIN, 0}};
    int count = poll(fds, 2, timeout_ms);
    if (count < 0) return PUF_INTERRUPTED;
    if (count == 0) return PUF_TIMEOUT;
    if (fds[0].revents) {
        uint64_t taken;
        if (read(own_fd, &taken, sizeof taken) < 0 && errno != EAGAIN && errno != EINTR)
            return PUF_SPOKEN;
        return PUF_TURN;
    }
    return PUF_SPOKEN;
}

void puf_flags_start(PufFlags* flags, int32_t worker, int wake_fd) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->turn, 1);
    if (atomic_load(&w->asleep)) wake(wake_fd);
}

void puf_flags_start_all(PufFlags* flags, const int32_t* workers, int32_t num_workers,
                         const int32_t* wake_fds, int shout_fd) {
    for (int32_t i = 0; i < num_workers; i++) atomic_store(&flags->workers[workers[i]].turn, 1);
    int32_t asleep = 0;
    for (int32_t i = 0; i < num_workers; i++)
        asleep += (int32_t)atomic_load(&flags->workers[workers[i]].asleep);
    if (asleep > 1 && shout_fd >= 0) {
        wake(shout_fd);
        return;
    }
    for (int32_t i = 0; i < num_workers; i++)
        if (atomic_load(&flags->workers[workers[i]].asleep)) wake(wake_fds[workers[i]]);
}

static bool is_look_due(PufFlags* flags) {
    return (int32_t)(atomic_load(&flags->finished) - atomic_load(&flags->wake_at)) >= 0;
}

// Whether `count` workers are done; if not, sets when to look again. `finished` is read before the
// turns, so whoever is seen done counts at most once: `wake_at` may come early, never late.
static bool are_done(PufFlags* flags, const int32_t* pending, int32_t num_pending, int32_t count) {
    do {
        uint32_t finished = atomic_load(&flags->finished);
        int32_t done = 0;
        for (int32_t i = 0; i < num_pending; i++)
            done += !atomic_load(&flags->workers[pending[i]].turn);
        if (done >= count) return true;
        atomic_store(&flags->wake_at, finished + (uint32_t)(count - done));
    } while (is_look_due(flags));  // who finished meanwhile has compared with the old `wake_at`
    return false;
}

PufWaited puf_flags_wait(PufFlags* flags, const int32_t* pending, int32_t num_pending,
                         int32_t count, int own_fd, int life_fd, int32_t spins,
                         int32_t timeout_ms) {
    if (are_done(flags, pending, num_pending, count)) return PUF_TURN;
    for (int32_t i = 0; i < spins; i++) {
        if (is_look_due(flags) && are_done(flags, pending, num_pending, count)) return PUF_TURN;
        pause_briefly();
    }
    PufWaited waited = PUF_TURN;
    atomic_store(&flags->asleep, 1);
    while (!are_done(flags, pending, num_pending, count)) {
        waited = sleep_on(own_fd, life_fd, timeout_ms);
        if (waited != PUF_TURN) break;
    }
    atomic_store(&flags->asleep, 0);
    if (waited != PUF_TURN && are_done(flags, pending, num_pending, count)) return PUF_TURN;
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
    if (!atomic_load(&w->turn)) return;
    atomic_store(&w->order, atomic_fetch_add(&flags->tickets, 1));
    atomic_store(&w->turn, 0);
}

#if defined(__linux__)
enum { WAKE, LIFE };

int puf_flags_sleeper(int own_fd, int shout_fd, int life_fd) {
    // edges for the first two: a write wakes once, whether or not anybody reads it
    struct epoll_event wake = {.events = EPOLLIN | EPOLLET, .data.u32 = WAKE};
    struct epoll_event life = {.events = EPOLLIN, .data.u32 = LIFE};
    int sleeper = epoll_create1(EPOLL_CLOEXEC);
    if (sleeper < 0) return -1;
    if ((own_fd >= 0 && epoll_ctl(sleeper, EPOLL_CTL_ADD, own_fd, &wake)) ||
        (shout_fd >= 0 && epoll_ctl(sleeper, EPOLL_CTL_ADD, shout_fd, &wake)) ||
        (life_fd >= 0 && epoll_ctl(sleeper, EPOLL_CTL_ADD, life_fd, &life))) {
        close(sleeper);
        return -1;
    }
    return sleeper;
}

static PufWaited sleep_in(int sleeper, int32_t timeout_ms) {
    struct epoll_event events[3];
    int count = epoll_wait(sleeper, events, 3, timeout_ms);
    if (count < 0) return PUF_INTERRUPTED;
    if (count == 0) return PUF_TIMEOUT;
    for (int i = 0; i < count; i++)
        if (events[i].data.u32 == WAKE) return PUF_TURN;
    return PUF_SPOKEN;
}
#else
int puf_flags_sleeper(int own_fd, int shout_fd, int life_fd) {
    (void)own_fd, (void)shout_fd, (void)life_fd;
    return -1;
}
static PufWaited sleep_in(int sleeper, int32_t timeout_ms) {
    (void)sleeper, (void)timeout_ms;
    return PUF_INTERRUPTED;
}
#endif

PufWaited puf_flags_wait_turn(PufFlags* flags, int32_t worker, int sleeper, int32_t spins,
                              int32_t timeout_ms) {
    Worker* w = &flags->workers[worker];
    for (int32_t i = 0; i < spins; i++) {
        if (atomic_load(&w->turn)) return PUF_TURN;
        pause_briefly();
    }
    atomic_store(&w->asleep, 1);
    PufWaited waited = PUF_TURN;
    while (!atomic_load(&w->turn)) {
        waited = sleep_in(sleeper, timeout_ms);
        if (waited != PUF_TURN) break;
    }
    atomic_store(&w->asleep, 0);
    return atomic_load(&w->turn) ? PUF_TURN : waited;
}

void puf_flags_finish(PufFlags* flags, int32_t worker, uint32_t said, int parent_fd) {
    Worker* w = &flags->workers[worker];
    atomic_store(&w->said, said);
    atomic_store(&w->order, atomic_fetch_add(&flags->tickets, 1));
    atomic_store(&w->turn, 0);
    atomic_fetch_add(&flags->finished, 1);
    if (atomic_load(&flags->asleep) && is_look_due(flags)) wake(parent_fd);
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
