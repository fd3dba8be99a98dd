// returns.c - see returns.h.
#include "returns.h"

#include <math.h>
#include <stddef.h>

enum { LANES = 8 };  // sums side by side, so that one need not wait for the other

PufMoments puf_moments(int64_t count, const float* x, const uint8_t* masks) {
    double sums[LANES] = {0}, squares[LANES] = {0}, total = 0, sum = 0, square = 0;
    for (int64_t i = 0; i < count; i++) {
        const int is_counted = !masks || masks[i];
        sums[i % LANES] += is_counted ? (double)x[i] : 0.0;
        total += is_counted;
    }
    for (int32_t i = 0; i < LANES; i++) sum += sums[i];
    const double mean = total > 0 ? sum / total : 0;
    for (int64_t i = 0; i < count; i++) {
        const double offset = !masks || masks[i] ? (double)x[i] - mean : 0.0;
        squares[i % LANES] += offset * offset;
    }
    for (int32_t i = 0; i < LANES; i++) square += squares[i];
    return (PufMoments){total, mean, total > 0 ? square / total : 0};
}

PufMoments puf_return_moments(int32_t slots, int32_t horizon, const float* rewards,
                              const uint8_t* ends, const uint8_t* masks, float gamma,
                              float* running, float* scratch) {
    for (int32_t slot = 0; slot < slots; slot++) {
        float sum = running[slot];
        for (int32_t t = 0; t < horizon; t++) {
            const size_t i = (size_t)slot * (size_t)horizon + (size_t)t;
            sum += masks && !masks[i] ? 0.0f : rewards[i];
            scratch[i] = sum;
            sum = ends[i] ? 0.0f * sum : gamma * sum;  // what is not finite stays so
        }
        running[slot] = isfinite(sum) ? sum : 0.0f;
    }
    return puf_moments((int64_t)slots * horizon, scratch, masks);
}
