// advantage.c - GAE (Schulman et al. 2016) with the clipped ratios of V-trace (Espeholt et al.
// 2018).
//
//   delta_t = rho_t * (r_t + gamma * next_t - v_t)
//   A_t     = delta_t + gamma * lambda * c_t * A_{t+1}
//   rho_t   = min(ratio_t, rho_clip),  c_t = min(ratio_t, c_clip),  both 1 without ratios
//
// next_t is 0 after a terminal, final_values_t after a truncation, else v_{t+1} (bootstrap after
// the last step). Both ends cut the sum: A_{t+1} counts as 0. A masked step has A_t = 0, and the
// step before it is the agent's last one: it counts as a terminal unless it is truncated.
#include "nn/advantage.h"

#include <stdbool.h>
#include <stddef.h>

#include "puf_hot.h"

#define INLINE static inline __attribute__((always_inline))  // else not in each copy of PUF_HOT

enum { LANES = 8, SPAN = 64 };  // segments whose sums overlap; steps of a span

static inline float min_f32(float a, float b) { return a < b ? a : b; }

// The inputs of some segments, and their length.
typedef struct {
    int32_t horizon;
    const float *rewards, *values, *bootstrap, *final_values, *ratios;
    const uint8_t *terminals, *truncations, *masks;
    float gamma, decay, rho_clip, c_clip;
} Inputs;

// What steps [first, first + count) of one segment add, without the step after each: A_t is delta_t
// + factor_t * A_{t+1} where goes_on_t, else delta_t. No step depends on another here, so that the
// compiler makes vectors of them.
INLINE void prepare(const Inputs* in, size_t segment, int32_t first, int32_t count,
                    float* restrict deltas, float* restrict factors, int32_t* restrict goes_on) {
    const size_t at = segment * (size_t)in->horizon + (size_t)first;
    const float *restrict rewards = in->rewards + at, *restrict values = in->values + at;
    const float *restrict final_values = in->final_values + at;
    const uint8_t *restrict terminals = in->terminals + at, *restrict cuts = in->truncations + at;
    const uint8_t* restrict masks = in->masks ? in->masks + at : NULL;
    const float gamma = in->gamma, decay = in->decay;
    const bool is_last = first + count == in->horizon;
    float next[SPAN];
    for (int32_t t = 0; t + 1 < count; t++) next[t] = values[t + 1];
    next[count - 1] = is_last ? in->bootstrap[segment] : values[count];
    for (int32_t t = 0; masks && t + 1 < count; t++) next[t] = masks[t + 1] ? next[t] : 0.0f;
    if (masks && !is_last && !masks[count]) next[count - 1] = 0.0f;
    for (int32_t t = 0; t < count; t++) {
        next[t] = cuts[t] ? final_values[t] : next[t];
        next[t] = terminals[t] ? 0.0f : next[t];
        goes_on[t] = terminals[t] | cuts[t] ? 0 : -1;
        deltas[t] = rewards[t] + gamma * next[t] - values[t];
        factors[t] = decay;
    }
    for (int32_t t = 0; in->ratios && t < count; t++) {
        const float ratio = in->ratios[at + (size_t)t];
        deltas[t] *= min_f32(ratio, in->rho_clip);
        factors[t] *= min_f32(ratio, in->c_clip);
    }
    for (int32_t t = 0; masks && t < count; t++) {
        deltas[t] = masks[t] ? deltas[t] : 0.0f;
        goes_on[t] = masks[t] ? goes_on[t] : 0;
    }
}

// `count` segments from the last step to the first, all at once.
INLINE void scan(const int32_t count, const Inputs* in, size_t segment, float* advantages) {
    float deltas[LANES][SPAN], factors[LANES][SPAN], last[LANES] = {0};
    int32_t goes_on[LANES][SPAN];
    const int32_t horizon = in->horizon;
    for (int32_t end = horizon, first; end > 0; end = first) {
        first = end > SPAN ? end - SPAN : 0;
        for (int32_t j = 0; j < count; j++)
            prepare(in, segment + (size_t)j, first, end - first, deltas[j], factors[j], goes_on[j]);
        for (int32_t t = end - first - 1; t >= 0; t--)
            for (int32_t j = 0; j < count; j++) {
                const float more = factors[j][t] * last[j];
                last[j] = deltas[j][t] = deltas[j][t] + (goes_on[j][t] ? more : 0.0f);
            }
        for (int32_t j = 0; j < count; j++) {
            float* to = advantages + (segment + (size_t)j) * (size_t)horizon + first;
            for (int32_t t = 0; t < end - first; t++) to[t] = deltas[j][t];
        }
    }
}

PUF_HOT void puf_advantage(int32_t segments, int32_t horizon, const float* rewards,
                           const float* values, const float* bootstrap, const uint8_t* terminals,
                           const uint8_t* truncations, const float* final_values,
                           const uint8_t* masks, const float* ratios, float gamma, float gae_lambda,
                           float rho_clip, float c_clip, float* advantages) {
    const Inputs in = {horizon,     rewards,   values,      bootstrap, final_values,
                       ratios,      terminals, truncations, masks,     gamma,
                       gamma * gae_lambda, rho_clip,  c_clip};
    int32_t segment = 0;
    for (; segment + LANES <= segments; segment += LANES)
        scan(LANES, &in, (size_t)segment, advantages);
    for (; segment < segments; segment++) scan(1, &in, (size_t)segment, advantages);
}
