// minibatch.h - which steps of a rollout a minibatch has, and what the loss asks of all of them.
#ifndef PUF_NN_MINIBATCH_H
#define PUF_NN_MINIBATCH_H

#include "engine.h"

typedef struct {
    int64_t first, units;  // in the order of the pass
    int64_t steps;         // rows, masked ones included
    float share;           // 1 / steps that count
    double mean, std;      // of their advantages, as the loss uses them
} PufMinibatch;

// Steps of a unit: they are consecutive cells [segments * horizon].
static inline int64_t puf_unit_steps(const PufPass* pass) {
    return pass->by_step ? 1 : pass->rollout->horizon;
}

// The first cell of entry `unit` of the order.
static inline size_t puf_unit_cell(const PufPass* pass, int64_t unit) {
    return (size_t)((pass->order ? pass->order[unit] : unit) * puf_unit_steps(pass));
}

static inline float puf_unit_weight(const PufPass* pass, int64_t unit) {
    return pass->weights ? pass->weights[unit] : 1.0f;
}

// Entries of the order that all minibatches of a pass need.
int64_t puf_minibatch_entries(const PufPass* pass);

// Minibatch `index`. If the pass has keys, its part of the order is drawn first, into `order`,
// which is pass->order.
PufMinibatch puf_minibatch(const PufPass* pass, int32_t index, int64_t* order);

#endif
