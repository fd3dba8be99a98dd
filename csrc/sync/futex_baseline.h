// handover.h - turns between processes that do nothing else: a yardstick for flags.c.
#ifndef PUF_FUTEX_BASELINE_H
#define PUF_FUTEX_BASELINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Forks `num_workers` processes and gives each a turn, `turns` times: one futex wakes all of them,
// each keeps its core busy for `work_ns`, the last one wakes this process. Returns the
// nanoseconds of a median turn, or -1 where processes cannot be had or one is lost.
int64_t puf_futex_baseline(int32_t num_workers, int64_t work_ns, int32_t turns);

#ifdef __cplusplus
}
#endif
#endif
