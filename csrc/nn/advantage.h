// advantage.h - advantages of a rollout: GAE, with V-trace clipping if ratios are given.
#ifndef PUF_ADVANTAGE_H
#define PUF_ADVANTAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Arrays are contiguous [segments, horizon]; `bootstrap` [segments] is the value of the observation
// after the last step. `masks` (0: no data) and `ratios` (importance weights) may be NULL.
// `final_values` is read only where truncations is set and terminals is not, `values` and `rewards`
// only where the mask is set. `advantages` must not overlap the inputs. See advantage.c for the
// formula.
void puf_advantage(int32_t segments, int32_t horizon, const float* rewards, const float* values,
                   const float* bootstrap, const uint8_t* terminals, const uint8_t* truncations,
                   const float* final_values, const uint8_t* masks, const float* ratios,
                   float gamma, float gae_lambda, float rho_clip, float c_clip, float* advantages);

#ifdef __cplusplus
}
#endif

#endif
