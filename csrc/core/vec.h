// vec.h - the inside of a PufVec: only vec.c and snapshot.c include it.
#ifndef PUF_VEC_H
#define PUF_VEC_H

#include <stdatomic.h>

#include "puffer.h"

typedef struct {
    _Alignas(64) PufStats stats;
} Block;

struct PufVec {
    PufBatch batch;  // first: an env's batch pointer is also its vec
    const PufEnvInfo* info;
    PufPool* pool;
    int32_t half_envs, half_blocks;  // with an odd number of envs there is one half: all of them
    int32_t block_envs, num_blocks;
    Block* blocks;
    int32_t running[2], num_running;  // halves stepping in the background, oldest first
    bool double_buffer;
    atomic_bool is_taken;
    float *returns, *final_returns;    // [slots] of the running episode; of the last finished one
    int32_t *lengths, *final_lengths;  // [slots] likewise
    float* final_metrics;              // [slots, metrics] of the last finished episode
    int32_t* bound_actions;
    const uint8_t* held;       // [envs] those that the next step leaves alone; NULL: none
    uint8_t* candidate;        // one env: a snapshot is copied here and checked before a restore
    uint64_t seed, first_env;  // first_env: index of env 0 in a larger vector, for its seeds
    const uint64_t* seeds;     // [envs] during `reset_each`, else NULL
};

// Waits for both halves; every call that touches envs does so first.
void puf_vec_wait(PufVec* vec);

static inline uint8_t* puf_vec_env(const PufVec* vec, int32_t env) {
    return vec->batch.envs + (size_t)env * vec->batch.env_bytes;
}

#endif
