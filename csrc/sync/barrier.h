// meeting.h - where processes of one machine wait for each other, in memory that all have mapped.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PufBarrier PufBarrier;

// Bytes of a meeting place for `size` processes, aligned to 64. Zeros are one where nobody has
// been.
size_t puf_barrier_bytes(int32_t size);

// Says that `rank` has come to meeting number `turn` (1, 2, ...; it may wrap), and waits until all
// have: what each of them wrote before is there then. Returns 1, or 0 where it slept for
// `timeout_ms` or was interrupted; call it again then.
int puf_barrier_wait(PufBarrier* meeting, int32_t rank, int32_t size, uint32_t turn, int32_t spins,
                     int32_t timeout_ms);

#ifdef __cplusplus
}
#endif
