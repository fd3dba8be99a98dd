// obs_norm.c - see obs_norm.h.
#include "obs_norm.h"

#include "puf_hot.h"

#define DEFINE_APPLY(name, Number)                                                       \
    PUF_HOT static void name(int32_t size, const Number* restrict offset,                \
                             const Number* restrict factor, Number limit, int32_t rows,  \
                             const uint8_t* restrict from, size_t from_stride,           \
                             uint8_t* restrict to, size_t to_stride) {                   \
        for (int32_t row = 0; row < rows; row++, from += from_stride, to += to_stride) { \
            const Number* restrict x = (const Number*)(const void*)from;                 \
            Number* restrict y = (Number*)(void*)to;                                     \
            for (int32_t i = 0; i < size; i++) {                                         \
                const Number z = (x[i] - offset[i]) * factor[i];                         \
                y[i] = z < -limit ? -limit : z > limit ? limit : z; /* nan stays nan */  \
            }                                                                            \
        }                                                                                \
    }

#define DEFINE_ADD(name, Number)                                                                \
    PUF_HOT static void name(int32_t size, const Number* restrict origin, int32_t rows,         \
                             const uint8_t* restrict from, size_t stride, const uint8_t* masks, \
                             double* restrict sums, double* restrict squares) {                 \
        for (int32_t row = 0; row < rows; row++, from += stride) {                              \
            const Number* restrict x = (const Number*)(const void*)from;                        \
            if (!masks[row]) continue;                                                          \
            for (int32_t i = 0; i < size; i++) {                                                \
                const double part = (double)x[i] - (double)origin[i];                           \
                sums[i] += part;                                                                \
                squares[i] += part * part;                                                      \
            }                                                                                   \
        }                                                                                       \
    }

DEFINE_APPLY(apply_floats, float)
DEFINE_APPLY(apply_doubles, double)
DEFINE_ADD(add_floats, float)
DEFINE_ADD(add_doubles, double)

void puf_obs_norm_apply(const PufObsNorm* norm, int32_t rows, const uint8_t* from,
                        size_t from_stride, uint8_t* to, size_t to_stride) {
    if (norm->is_double)
        apply_doubles(norm->size, norm->offset, norm->factor, norm->limit, rows, from, from_stride,
                      to, to_stride);
    else
        apply_floats(norm->size, norm->offset, norm->factor, (float)norm->limit, rows, from,
                     from_stride, to, to_stride);
}

void puf_obs_norm_add(const PufObsNorm* norm, int32_t rows, const uint8_t* from, size_t stride,
                      const uint8_t* masks, PufObsSums* to) {
    for (int32_t row = 0; row < rows; row++) to->count += masks[row] != 0;
    if (norm->is_double)
        add_doubles(norm->size, norm->offset, rows, from, stride, masks, to->sums, to->squares);
    else
        add_floats(norm->size, norm->offset, rows, from, stride, masks, to->sums, to->squares);
}

static double origin_of(const PufObsNorm* norm, int32_t i) {
    return norm->is_double ? ((const double*)norm->offset)[i]
                           : (double)((const float*)norm->offset)[i];
}

void puf_obs_norm_join(const PufObsNorm* norm, int32_t count, const PufObsSums* parts) {
    double total = 0;
    for (int32_t part = 0; part < count; part++) total += parts[part].count;
    const double divisor = total > 0 ? total : 1;
    *norm->count = total;
    for (int32_t i = 0; i < norm->size; i++) {
        double sum = 0, squares = 0;
        for (int32_t part = 0; part < count; part++)
            sum += parts[part].sums[i], squares += parts[part].squares[i];
        const double mean = sum / divisor, variance = squares / divisor - mean * mean;
        norm->mean[i] = origin_of(norm, i) + mean;
        norm->variance[i] = variance < 0 ? 0 : variance;
    }
}
