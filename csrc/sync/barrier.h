// barrier.h - a barrier for the processes of one machine, in memory that all of them map.
#ifndef PUF_BARRIER_H
#define PUF_BARRIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PufBarrier PufBarrier;

// Bytes of a barrier for `size` processes, aligned to 64. Zeroed memory is a valid new barrier.
size_t puf_barrier_bytes(int32_t size);

// Marks that `rank` has reached round `round` (1, 2, ...; it may wrap), and waits until all ranks
// have: then everything they wrote before is visible. Returns 1, or 0 after a sleep of `timeout_ms`
// or an interrupt; the caller then calls again. Spins `spins` times before it sleeps.
int puf_barrier_wait(PufBarrier* barrier, int32_t rank, int32_t size, uint32_t round, int32_t spins,
                     int32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
