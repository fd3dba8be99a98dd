// returns.c - see returns.h.
//
// Variances come from one pass: sums are doubles of floats, taken from a number that lies among
// them, so that little cancels.
#include "returns.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "puf_hot.h"

#define INLINE static inline __attribute__((always_inline))  // else not in each copy of PUF_HOT

enum { LANES = 8, HALF = 4, SPAN = 64 };  // sums at once, so that they overlap; steps of a span

// Explicit vectors: compilers leave sums of doubles from floats to single steps. Of 32 bytes, not
// more: what no register holds would go through memory.
typedef float Floats __attribute__((vector_size(HALF * sizeof(float))));
typedef double Doubles __attribute__((vector_size(HALF * sizeof(double))));
typedef int64_t Longs __attribute__((vector_size(HALF * sizeof(int64_t))));
typedef int8_t Flags __attribute__((vector_size(HALF)));

// Adds the next HALF numbers to sums and to sums of squares.
INLINE void add_half(const float* x, const uint8_t* masks, double origin, Doubles* first,
                     Doubles* second) {
    Floats numbers;
    memcpy(&numbers, x, sizeof numbers);
    Doubles parts = __builtin_convertvector(numbers, Doubles) - origin;
    if (masks) {
        Flags flags;
        memcpy(&flags, masks, sizeof flags);
        parts = (Doubles)((Longs)parts & __builtin_convertvector(flags != 0, Longs));
    }
    *first += parts;
    *second += parts * parts;
}

INLINE PufSums sums(int64_t count, const float* x, const uint8_t* masks, float origin) {
    Doubles firsts[2] = {{0}}, seconds[2] = {{0}};
    PufSums total = {0};
    int64_t i = 0, present = 0;
    for (; i + LANES <= count; i += LANES)
        for (int32_t half = 0; half < 2; half++)
            add_half(x + i + half * HALF, masks ? masks + i + half * HALF : NULL, (double)origin,
                     &firsts[half], &seconds[half]);
    for (; i < count; i++) {
        const double part = masks && !masks[i] ? 0 : (double)x[i] - (double)origin;
        total.sum += part, total.squares += part * part;
    }
    for (i = 0; masks && i < count; i++) present += masks[i] != 0;
    total.count = (double)(masks ? present : count);
    for (int32_t j = 0; j < LANES; j++)
        total.sum += firsts[j / HALF][j % HALF], total.squares += seconds[j / HALF][j % HALF];
    return total;
}

PUF_HOT PufSums puf_sums(int64_t count, const float* x, const uint8_t* masks, float origin) {
    return masks ? sums(count, x, masks, origin) : sums(count, x, NULL, origin);
}

static PufMoments moments_of(PufSums sums, float origin) {
    if (!(sums.count > 0)) return (PufMoments){0};
    const double mean = sums.sum / sums.count, square = sums.squares / sums.count;
    const double variance = square - mean * mean;
    return (PufMoments){sums.count, (double)origin + mean, variance < 0 ? 0 : variance};
}

PufMoments puf_moments(int64_t count, const float* x, const uint8_t* masks) {
    int64_t first = 0;
    while (masks && first < count && !masks[first]) first++;
    const float origin = first < count ? x[first] : 0.0f;
    return moments_of(puf_sums(count, x, masks, origin), origin);
}

PufMoments puf_merged(PufMoments a, PufMoments b) {
    const double count = a.count + b.count;
    if (!(count > 0)) return a;
    const double share = b.count / count, offset = b.mean - a.mean;
    return (PufMoments){
        count, a.mean + offset * share,
        a.variance * (1 - share) + b.variance * share + offset * offset * share * (1 - share)};
}

// `count` slots step by step, so that the sums of several slots overlap. What does not depend on
// the step before comes first, in loops that the compiler turns into vectors.
INLINE PufSums run(const int32_t count, int32_t horizon, const float* restrict rewards,
                   const uint8_t* restrict ends, const uint8_t* restrict cuts,
                   const uint8_t* restrict masks, float gamma, float* restrict running,
                   float origin) {
    float last[LANES], totals[LANES][SPAN], factors[LANES][SPAN];
    PufSums found = {0};
    for (int32_t j = 0; j < count; j++) last[j] = running[j];
    for (int32_t first = 0; first < horizon; first += SPAN) {
        const int32_t steps = horizon - first < SPAN ? horizon - first : SPAN;
        for (int32_t j = 0; j < count; j++) {
            const size_t at = (size_t)j * (size_t)horizon + (size_t)first;
            for (int32_t t = 0; t < steps; t++) totals[j][t] = rewards[at + (size_t)t];
            for (int32_t t = 0; t < steps; t++) factors[j][t] = ends[at + (size_t)t] ? 0.0f : gamma;
            for (int32_t t = 0; cuts && t < steps; t++)
                factors[j][t] = cuts[at + (size_t)t] ? 0.0f : factors[j][t];
            for (int32_t t = 0; masks && t < steps; t++)
                totals[j][t] = masks[at + (size_t)t] ? totals[j][t] : 0.0f;
        }
        for (int32_t t = 0; t < steps; t++)
            for (int32_t j = 0; j < count; j++) {
                totals[j][t] += last[j];
                last[j] = totals[j][t] * factors[j][t];  // what is not finite stays so
            }
        for (int32_t j = 0; j < count; j++) {
            const uint8_t* own = masks ? masks + (size_t)j * (size_t)horizon + (size_t)first : NULL;
            const PufSums more = sums(steps, totals[j], own, origin);
            found.count += more.count, found.sum += more.sum, found.squares += more.squares;
        }
    }
    for (int32_t j = 0; j < count; j++) running[j] = isfinite(last[j]) ? last[j] : 0.0f;
    return found;
}

PUF_HOT PufMoments puf_return_moments(int32_t slots, int32_t horizon, const float* rewards,
                                      const uint8_t* ends, const uint8_t* cuts,
                                      const uint8_t* masks, float gamma, float* running) {
    const float origin = slots && (!masks || masks[0]) ? rewards[0] + running[0] : 0.0f;
    PufSums found = {0};
    for (int32_t slot = 0, count; slot < slots; slot += count) {
        count = slots - slot < LANES ? 1 : LANES;
        const size_t at = (size_t)slot * (size_t)horizon;
        const uint8_t *own_cuts = cuts ? cuts + at : NULL, *own_masks = masks ? masks + at : NULL;
        const PufSums more = count == LANES ? run(LANES, horizon, rewards + at, ends + at, own_cuts,
                                                  own_masks, gamma, running + slot, origin)
                                            : run(1, horizon, rewards + at, ends + at, own_cuts,
                                                  own_masks, gamma, running + slot, origin);
        found.count += more.count, found.sum += more.sum, found.squares += more.squares;
    }
    return moments_of(found, origin);
}

PUF_HOT void puf_scale(int64_t count, float* x, float factor, float limit) {
    for (int64_t i = 0; i < count; i++) {
        const float scaled = x[i] * factor;
        x[i] = scaled < -limit ? -limit : scaled > limit ? limit : scaled;  // nan stays nan
    }
}
