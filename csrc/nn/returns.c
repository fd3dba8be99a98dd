// returns.c - see returns.h.
#include "returns.h"

#include <math.h>
#include <stddef.h>

enum { LANES = 8 };  // independent sums, so that additions overlap

double puf_sum_powers(int64_t count, const float* x, const uint8_t* masks, double offset,
                      int power) {
    double sums[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int32_t j = 0; j < LANES; j++) {
            double part = (double)x[i + j] - offset;
            if (masks && !masks[i + j]) part = 0;
            sums[j] += power == 2 ? part * part : part;
        }
    for (; i < count; i++) {
        double part = masks && !masks[i] ? 0 : (double)x[i] - offset;
        sums[0] += power == 2 ? part * part : part;
    }
    for (int32_t j = 0; j < LANES; j++) total += sums[j];
    return total;
}

PufMoments puf_moments(int64_t count, const float* x, const uint8_t* masks) {
    int64_t total = masks ? 0 : count;
    for (int64_t i = 0; masks && i < count; i++) total += masks[i] != 0;
    if (!total) return (PufMoments){0};
    const double mean = puf_sum_powers(count, x, masks, 0, 1) / (double)total;
    const double squares = puf_sum_powers(count, x, masks, mean, 2);
    return (PufMoments){(double)total, mean, squares / (double)total};
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
