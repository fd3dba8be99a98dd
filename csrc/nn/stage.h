// stage.h - the last steps of some slots, on their way into a rollout.
//
// The cells of a slot lie side by side in a rollout, so one step of all slots would write a few
// bytes of very many cache lines. A stage keeps some steps, row by row; turned (turn.h), they fill
// whole lines.
#ifndef PUF_NN_STAGE_H
#define PUF_NN_STAGE_H

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

#endif
