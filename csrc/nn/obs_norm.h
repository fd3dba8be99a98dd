// obs_norm.h - normalised observations: what a policy sees and a rollout stores.
#ifndef PUF_NN_OBS_NORM_H
#define PUF_NN_OBS_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Number i of an observation becomes (x - offset[i]) * factor[i], clipped to +-limit; see
// ObservationNorm of pufferlib.policies.normalisation. Arrays are [size].
typedef struct {
    int32_t size;
    bool is_double;  // type of observations, offset and factor: double, else float
    const void *offset, *factor;
    double limit;
    // Set by collect: the number of observations, mean and variance before they are normalised.
    double *count, *mean, *variance;
} PufObsNorm;

// Rows of `from` lie `from_stride` bytes apart, those of `to` `to_stride`.
void puf_obs_norm_apply(const PufObsNorm* norm, int32_t rows, const uint8_t* from,
                        size_t from_stride, uint8_t* to, size_t to_stride);

// Sums of x - origin and of its square, for every number of some observations. The origin is the
// offset, so that a variance does not vanish beside a large mean.
typedef struct {
    double count;
    double *sums, *squares;  // [size]
} PufObsSums;

// Adds the rows whose mask is not 0.
void puf_obs_norm_add(const PufObsNorm* norm, int32_t rows, const uint8_t* from, size_t stride,
                      const uint8_t* masks, PufObsSums* to);
// Sets count, mean and variance of `norm` from sums, which are added up in order.
void puf_obs_norm_join(const PufObsNorm* norm, int32_t count, const PufObsSums* parts);

#ifdef __cplusplus
}
#endif
#endif
