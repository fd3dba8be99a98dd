// meeting.c - see meeting.h.
//
// Each process has a word with the number of the last meeting it came to. Who waits looks at the
// words of the others: for a while without sleeping, then in the kernel, on the word itself. A
// sleeper says so before its last look, and who comes looks for sleepers after its own word has
// changed: both are sequentially consistent, so one of them sees the other.
#include "sync/barrier.h"

#include <stdbool.h>

#include "sync/waiting.h"

typedef struct {
    _Alignas(64) atomic_uint turn;
    atomic_uint sleepers;  // at most too many: one that was killed in its sleep stays
} Place;

size_t puf_barrier_bytes(int32_t size) { return (size_t)size * sizeof(Place); }

// Sleeps while the word is `seen`; false after the time or an interrupt.
static bool sleep_on(atomic_uint* word, uint32_t seen, int32_t timeout_ms) {
    puf_sleep_on(word, seen, PUF_ANYONE, puf_now_ns() + (int64_t)timeout_ms * 1000000);
    return atomic_load(word) != seen;
}

static bool has_come(Place* place, uint32_t turn, uint32_t* seen) {
    *seen = atomic_load(&place->turn);
    return (int32_t)(*seen - turn) >= 0;
}

int puf_barrier_wait(PufBarrier* meeting, int32_t rank, int32_t size, uint32_t turn, int32_t spins,
                     int32_t timeout_ms) {
    Place* places = (Place*)meeting;  // one for each process
    Place* own = &places[rank];
    uint32_t seen;
    if (!has_come(own, turn, &seen)) {
        atomic_store(&own->turn, turn);
        if (atomic_load(&own->sleepers)) puf_wake(&own->turn, PUF_ANYONE);
    }
    for (int32_t other = 0; other < size; other++) {
        Place* place = &places[other];
        while (!has_come(place, turn, &seen)) {
            if (spins > 0) {
                spins--;
                puf_pause();
                continue;
            }
            atomic_fetch_add(&place->sleepers, 1);
            const bool moved =
                has_come(place, turn, &seen) || sleep_on(&place->turn, seen, timeout_ms);
            atomic_fetch_sub(&place->sleepers, 1);
            if (!moved) return 0;
        }
    }
    return 1;
}
