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
// end. Arrays are [slots, horizon]; an episode ends where `ends` or `cuts` is set; `cuts` and
// `masks` may be NULL; a masked reward counts as 0. `running` [slots] is R after the step before,
// kept for the next call, 0 where it is not finite.
PufMoments puf_return_moments(int32_t slots, int32_t horizon, const float* rewards,
                              const uint8_t* ends, const uint8_t* cuts, const uint8_t* masks,
                              float gamma, float* running);

// Number of the numbers whose mask is set, and sums of their distance from `origin` and its square.
typedef struct {
    double count, sum, squares;
} PufSums;
PufSums puf_sums(int64_t count, const float* x, const uint8_t* masks, float origin);

PufMoments puf_moments(int64_t count, const float* x, const uint8_t* masks);
// The moments of both parts together.
PufMoments puf_merged(PufMoments a, PufMoments b);

// x = x * factor, at most `limit` from 0.
void puf_scale(int64_t count, float* x, float factor, float limit);

#ifdef __cplusplus
}
#endif
#endif
