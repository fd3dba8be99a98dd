// barrier.c - see barrier.h.
//
// Each process has a word with the number of the last round it has reached. A waiting process reads
// the words of the others: it spins for a while, then sleeps in the kernel on the word itself. A
// sleeper registers before its last look, and an arriving process looks for sleepers after it has
// changed its word. Both are sequentially consistent, so one of them sees the other.
#include "sync/barrier.h"

#include <stdbool.h>

#include "sync/waiting.h"

typedef struct {
    _Alignas(64) atomic_uint round;
    atomic_uint sleepers;  // may be too high, never too low: a process killed in its sleep stays
} Rank;

size_t puf_barrier_bytes(int32_t size) { return (size_t)size * sizeof(Rank); }

// Sleeps while the word equals `seen`; false after a timeout or an interrupt.
static bool sleep_on(atomic_uint* word, uint32_t seen, int32_t timeout_ms) {
    puf_sleep_on(word, seen, PUF_ANYONE, puf_now_ns() + (int64_t)timeout_ms * 1000000);
    return atomic_load(word) != seen;
}

static bool has_arrived(Rank* rank, uint32_t round, uint32_t* seen) {
    *seen = atomic_load(&rank->round);
    return (int32_t)(*seen - round) >= 0;
}

int puf_barrier_wait(PufBarrier* barrier, int32_t rank, int32_t size, uint32_t round, int32_t spins,
                     int32_t timeout_ms) {
    Rank* ranks = (Rank*)barrier;
    Rank* own = &ranks[rank];
    uint32_t seen;
    if (!has_arrived(own, round, &seen)) {
        atomic_store(&own->round, round);
        if (atomic_load(&own->sleepers)) puf_wake(&own->round, PUF_ANYONE);
    }
    for (Rank* other = ranks; other < ranks + size; other++) {
        while (!has_arrived(other, round, &seen)) {
            if (spins > 0) {
                spins--;
                puf_pause();
                continue;
            }
            atomic_fetch_add(&other->sleepers, 1);
            const bool moved =
                has_arrived(other, round, &seen) || sleep_on(&other->round, seen, timeout_ms);
            atomic_fetch_sub(&other->sleepers, 1);
            if (!moved) return 0;
        }
    }
    return 1;
}
