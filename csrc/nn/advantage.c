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

#include <stddef.h>

static float min_f32(float a, float b) { return a < b ? a : b; }

void puf_advantage(int32_t segments, int32_t horizon, const float* rewards, const float* values,
                   const float* bootstrap, const uint8_t* terminals, const uint8_t* truncations,
                   const float* final_values, const uint8_t* masks, const float* ratios,
                   float gamma, float gae_lambda, float rho_clip, float c_clip, float* advantages) {
    const float decay = gamma * gae_lambda;
    for (int32_t s = 0; s < segments; s++) {
        const size_t row = (size_t)s * (size_t)horizon;
        float next_value = bootstrap[s];
        float next_advantage = 0.0f;
        for (int32_t t = horizon - 1; t >= 0; t--) {
            const size_t i = row + (size_t)t;
            if (masks && !masks[i]) {
                advantages[i] = next_value = next_advantage = 0.0f;
                continue;
            }
            if (terminals[i] || truncations[i]) {
                next_value = terminals[i] ? 0.0f : final_values[i];
                next_advantage = 0.0f;
            }
            const float ratio = ratios ? ratios[i] : 1.0f;
            const float rho = ratios ? min_f32(ratio, rho_clip) : 1.0f;
            const float c = ratios ? min_f32(ratio, c_clip) : 1.0f;
            const float delta = rho * (rewards[i] + gamma * next_value - values[i]);
            next_advantage = delta + decay * c * next_advantage;
            advantages[i] = next_advantage;
            next_value = values[i];
        }
    }
}
