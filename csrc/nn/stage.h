// stage.h - the last steps of some slots, on their way into a rollout.
//
// The cells of a slot lie side by side in a rollout, so one step of all slots would write a few
// bytes of very many cache lines. A stage keeps some steps, row by row, and writes whole lines.
#ifndef PUF_NN_STAGE_H
#define PUF_NN_STAGE_H

#include <stddef.h>
#include <stdint.h>

// Arrays are [steps, slots].
typedef struct {
    int32_t slots, steps;
    float *logprobs, *values, *rewards;
    int32_t* choices;  // of policies with one discrete action
    uint8_t *masks, *resets, *terminals, *truncations;
} PufStage;

// `count` stages for up to `slots` slots, one for each thread: one allocation, to be freed. NULL
// without memory.
PufStage* puf_stages_create(int32_t count, int32_t slots);

// The first slots and steps of a stage, and how far apart two slots are in the rollout.
typedef struct {
    int32_t slots, steps;
    size_t horizon;
} PufCells;

// Step t of slot n goes to n * horizon + t.
void puf_spread_floats(const PufStage* stage, const PufCells* cells, const float* from, float* to);
void puf_spread_words(const PufStage* stage, const PufCells* cells, const int32_t* from,
                      int32_t* to);
void puf_spread_bytes(const PufStage* stage, const PufCells* cells, const uint8_t* from,
                      uint8_t* to);

#endif
