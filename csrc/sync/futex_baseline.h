// futex_baseline.h - turns of processes with bare futexes: the baseline of `puffer bench vec`,
// which compares turns of flags.c with it.
#ifndef PUF_FUTEX_BASELINE_H
#define PUF_FUTEX_BASELINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Forks `num_workers` processes and gives all of them a turn, `turns` times: one futex wakes them,
// each keeps its core busy for `work_ns`, and the last one wakes this process. Returns the
// nanoseconds of the median turn, or -1 if a process cannot be started or dies.
int64_t puf_futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns);

#ifdef __cplusplus
}
#endif
#endif
