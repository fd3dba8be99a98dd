// puffer.h - the C core's own API: environments by name, vectors of them, the thread pool.
//
// Functions that can fail return NULL or a non-zero code and leave one line in puf_last_error().
// Nothing here exits, prints or calls back into the host language.
#ifndef PUFFER_H
#define PUFFER_H

#include "puf_env.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { PUF_OK, PUF_BAD_ARGUMENT, PUF_NO_MEMORY, PUF_NO_THREAD } PufCode;

const char* puf_last_error(void);  // of the calling thread; valid until its next failure
PufCode puf_fail(PufCode code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// ---- Environments by name ---------------------------------------------------------------------

int32_t puf_num_infos(void);
const PufEnvInfo* puf_info(int32_t index);          // NULL past the end
const PufEnvInfo* puf_find_info(const char* name);  // NULL when unknown
// Checks `params`, one value per row of the info's table, and writes the layout they give.
PufCode puf_layout(const PufEnvInfo* info, const double* params, PufLayout* layout);

// ---- Threads over contiguous ranges -----------------------------------------------------------

typedef struct PufPool PufPool;
typedef void (*PufJob)(void* context, int32_t item);

// The caller is worker 0. In a `background` pool all workers are threads, and jobs can run while
// the caller does something else.
PufPool* puf_pool_create(int32_t num_workers, bool background);
// Runs the job once for each item in 0..num_items-1, on any thread; returns when all are done.
void puf_pool_run(PufPool* pool, int32_t num_items, PufJob job, void* context);
// The same as two calls, in a background pool, for `num_items` items from `first` on. At most two
// jobs may run at once; `finish` waits for the oldest one. `run` must wait until both are finished.
void puf_pool_begin(PufPool* pool, int32_t first, int32_t num_items, PufJob job, void* context);
void puf_pool_finish(PufPool* pool);
void puf_pool_destroy(PufPool* pool);  // does not wait for jobs that are still running
// A fork of the process has no copy of the pool's threads: there the caller does all of `run`, and
// a job that was running stays unfinished.

// ---- A vector of envs -------------------------------------------------------------------------

typedef struct PufVec PufVec;

// Statistics of finished episodes. Means are sums / episodes and metrics / samples.
typedef struct {
    int64_t episodes, samples;
    double return_sum, length_sum, return_min, return_max;
    double metrics[PUF_MAX_METRICS];
} PufStats;

// Arrays of num_slots rows each, in the caller's memory. They must stay valid until the next bind
// or the end of the vec.
typedef struct {
    void *observations, *actions, *final_observations;
    float* rewards;
    uint8_t *terminals, *truncations, *masks;
    uint8_t* action_masks;  // NULL unless the layout asks for them
    // Bytes from one row to the next; 0: contiguous. Rows may be spread only in a vec of one env,
    // to detect writes between them; such a vec has no snapshots.
    size_t obs_stride, mask_stride;
} PufBuffers;

// `params` as in puf_layout. Starts the threads. A double-buffered vec needs an even number of
// envs, and the calling thread does not step any of them.
PufVec* puf_vec_create(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                       bool double_buffer, const double* params);
void puf_vec_destroy(PufVec* vec);

// The calls below are for one thread at a time. A caller that cannot know that it is the only one
// takes the vec first, and does not call where that fails.
bool puf_vec_take(PufVec* vec);
void puf_vec_give_back(PufVec* vec);

const PufBatch* puf_vec_batch(const PufVec* vec);
PufCode puf_vec_bind(PufVec* vec, const PufBuffers* buffers);
void puf_vec_place(PufVec* vec, uint64_t first_env);  // env 0 gets the seed of env first_env
PufCode puf_vec_reset(PufVec* vec, uint64_t seed);
PufCode puf_vec_reset_each(PufVec* vec, const uint64_t* seeds);  // [envs] as env 0 gets its seed
PufCode puf_vec_step(PufVec* vec, const void* actions);          // NULL: the bound action rows
// The same, but envs with a set byte in `held` [envs] do not move: their rows stay, with reward and
// flags of zero, and their actions are not read.
PufCode puf_vec_step_except(PufVec* vec, const void* actions, const uint8_t* held);
void puf_vec_drain(PufVec* vec, PufStats* stats);  // since the last drain, in block order
PufCode puf_vec_render(PufVec* vec, int32_t env, PufCanvas* canvas);

// A double-buffered vec steps half 0 or 1 of its envs in the background, with the bound action
// rows. From `begin` to `finish` the threads own the rows of that half; the other half may begin
// meanwhile. `finish` returns at once if the half is not running. All other calls wait for both
// halves.
PufCode puf_vec_begin(PufVec* vec, int32_t half);
void puf_vec_finish(PufVec* vec, int32_t half);

// For callers that step blocks of envs on threads of their own, each block by one thread at a time,
// with the bound action rows. No other call may run meanwhile.
int32_t puf_vec_num_blocks(const PufVec* vec);
void puf_vec_block_slots(const PufVec* vec, int32_t block, int32_t* first, int32_t* last);
void puf_vec_step_blocks(PufVec* vec, int32_t first_block, int32_t last_block);
int32_t* puf_vec_action_rows(PufVec* vec);  // [slots, action words], as bound; NULL before bind

// Return, length and metrics [slots, metrics] of the episode that ended in a slot: valid where its
// terminal or truncation is set, until the next step.
const float* puf_vec_final_returns(const PufVec* vec);
const int32_t* puf_vec_final_lengths(const PufVec* vec);
const float* puf_vec_final_metrics(const PufVec* vec);

// A snapshot is a copy of one env: struct, arena, rng, running sums, observation and mask rows.
size_t puf_vec_snapshot_bytes(const PufVec* vec);
PufCode puf_vec_snapshot(PufVec* vec, int32_t env, uint8_t* out);
// Fails and changes nothing if a snapshot is invalid: see `valid` in puf_env.h. The range is
// [first, last), with contiguous snapshots.
PufCode puf_vec_restore(PufVec* vec, int32_t env, const uint8_t* from);
PufCode puf_vec_restore_range(PufVec* vec, int32_t first, int32_t last, const uint8_t* from);

// The seed of env `index` in a run with `seed`; env 0 gets `seed` itself. 63 bits.
uint64_t puf_env_seed(uint64_t seed, uint64_t index);

// Whether all words are below `limit`, as actions of one component must be; negative ones are not.
bool puf_words_below(const uint32_t* words, size_t count, uint32_t limit);

#ifdef __cplusplus
}
#endif
#endif
