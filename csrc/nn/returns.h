// returns.h - statistics of a rollout, computed once an iteration.
#ifndef PUF_RETURNS_H
#define PUF_RETURNS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double count, mean, variance;  // of the steps whose mask is set; 0, 0, 0 without any
} PufMoments;

// Moments of the running discounted return of each slot: R = gamma * R + reward, from 0 after each
// end. Arrays are [slots, horizon]; `masks` may be NULL; a masked reward counts as 0. `running`
// [slots] is R after the step before, kept for the next call, 0 where it is not finite. `scratch`
// [slots, horizon] may hold anything.
PufMoments puf_return_moments(int32_t slots, int32_t horizon, const float* rewards,
                              const uint8_t* ends, const uint8_t* masks, float gamma,
                              float* running, float* scratch);

// The sum of (x - offset)^power over the numbers whose mask is set; power is 1 or 2.
double puf_sum_powers(int64_t count, const float* x, const uint8_t* masks, double offset,
                      int power);

PufMoments puf_moments(int64_t count, const float* x, const uint8_t* masks);

#ifdef __cplusplus
}
#endif
#endif
