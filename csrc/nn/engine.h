// engine.h - rollouts and updates of the native engine.
//
// A rollout is [segments, horizon] as pufferlib.training.rollout keeps it; every pointer here is
// memory of a torch tensor or of an env's rows. Results depend on numbers and seeds alone, never on
// the number of threads: what a step gives does not depend on the steps around it, and sums are
// taken over a fixed number of parts in a fixed order.
#ifndef PUF_NN_ENGINE_H
#define PUF_NN_ENGINE_H

#include "core.h"
#include "muon.h"
#include "obs_norm.h"
#include "puffer.h"
#include "threads.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of step (segment, t) at segment * horizon + t.
typedef struct {
    int32_t segments, horizon, num_slots;  // segment j * num_slots + n: stretch j of slot n
    uint8_t* observations;                 // [segments, horizon, obs_bytes]
    int32_t* actions;                      // [segments, horizon, action words]: choices, then reals
    uint8_t* action_masks;                 // [segments, horizon, mask width], or NULL
    float *logprobs, *values, *rewards, *final_values;
    uint8_t *terminals, *truncations, *resets, *masks;
    float* bootstrap;  // [segments]
    PufState states;   // before each segment, [segments]; set by collect
    // Set by collect: masks are true everywhere; observations, rewards, values and
    // log-probabilities are finite everywhere.
    bool all_present, all_finite;
    double env_share;  // set by collect: of its time, what the envs took
} PufRollout;

// Rows [first, last) of a parameter.
typedef struct {
    int32_t param, first, last;
} PufPiece;

typedef struct {
    PufNetwork* network;
    PufThreads* threads;
    PufWorkspace** works;  // one for each thread
    float* partials;       // [max_parts, partial_floats]
    float* joined;         // the gradient, [grad_floats]: as the parameters lie in torch
    int32_t max_parts;
    int32_t num_pieces;  // of all parameters: what is joined and updated in one go
    PufPiece* pieces;
    double* squares;  // [num_pieces]
    PufMuon* muon;    // of parameters that Muon steps; NULL until there are any
} PufEngine;

PufEngine* puf_engine_create(const PufNetworkSpec* spec, const PufKernels* kernels,
                             int32_t num_threads);
void puf_engine_destroy(PufEngine* engine);

// One step of any slots: reads observations [rows, obs_bytes] and masks, draws actions for slots
// first_slot, ... at step `counter`. Outputs are [rows, ...]; each may be NULL.
typedef struct {
    int32_t rows;
    const uint8_t* observations;
    const uint8_t* action_masks;  // [rows, mask width], or NULL
    PufState state, next_state;   // [rows], before and after
    uint64_t key, first_slot, counter;
    int32_t* actions;      // [rows, action words], as they are trained on
    int32_t* env_actions;  // [rows, action words], as the env takes them
    float *logprobs, *values;
} PufAct;
void puf_engine_act(PufEngine* engine, const PufAct* act);

// Fills a rollout from envs of the C core; `resets` [num_slots] says where an episode begins, and
// `state` [num_slots] is the recurrent state, both before and after. The random numbers of a slot
// follow from (key, first_slot + slot, step). With a `norm` the policy sees, and the rollout
// stores, normalised observations; `norm` is NULL without one.
PufCode puf_engine_collect(PufEngine* engine, PufVec* vec, PufRollout* rollout, uint8_t* resets,
                           const PufState* state, const PufObsNorm* norm, uint64_t key,
                           uint64_t first_slot);

// Rewards divided by the deviation of discounted returns, in place; see RewardNorm of
// pufferlib.policies.normalisation.
typedef struct {
    const PufRollout* rollout;
    float gamma;
    float* running;                   // [num_slots]: see puf_return_moments
    double *count, *mean, *variance;  // of all returns so far; those of this rollout are added
    double floor;                     // of the deviation
    float limit;                      // of a reward afterwards
} PufRewardNorm;
PufCode puf_engine_normalise_rewards(PufEngine* engine, const PufRewardNorm* norm);

// What to train on: advantages and returns, and 1 - variance of advantages / variance of returns,
// which is what the values explain; nan where returns do not vary.
typedef struct {
    const PufRollout* rollout;
    float gamma, gae_lambda;
    float *advantages, *returns;  // [segments, horizon], written
    double explained_variance;    // set
} PufTargets;
PufCode puf_engine_targets(PufEngine* engine, PufTargets* targets);

// Passes over a rollout: `num_minibatches` updates. Units are segments, or steps if `by_step`,
// which a recurrent policy refuses. A pass takes `units` of them in random order, `per_pass`
// minibatches of nearly the same size; the last pass may end before its last minibatch.
typedef struct {
    const PufRollout* rollout;
    const float *advantages, *returns;  // [segments, horizon]
    int64_t units;
    int32_t per_pass, num_minibatches;
    const uint64_t* keys;  // of each pass: all units of the rollout, in the order of puf_order
    const int64_t* order;  // without keys: the units of all passes; NULL: one after another
    const float* weights;  // of each entry of `order`; NULL: 1
    bool by_step;
    PufLossOptions loss;  // without `share`
    // [num_minibatches, 3] in all processes: steps that count, mean and deviation of their
    // advantages; NULL: those of this rollout.
    const double* moments;
    bool norm_adv;
    float adv_floor;
    float max_grad_norm;  // below 0: none
    // Let the optimizer use the gradients; else they are left in engine->joined. Muon steps
    // parameters that have no mean of squares, Adam all others.
    bool step;
    PufAdam adam;  // learning_rate, betas, eps
    float muon_momentum;
    float* num_steps;  // of Adam so far, counted on
    float* numbers;    // [num_minibatches, PUF_NUM_LOSSES + 1]: losses and the gradient's norm
} PufPass;
PufCode puf_engine_pass(PufEngine* engine, const PufPass* pass);

// Log-probabilities [segments, horizon] of a rollout's actions under the present weights.
PufCode puf_engine_logprobs(PufEngine* engine, const PufRollout* rollout, float* logprobs);

#ifdef __cplusplus
}
#endif
#endif
