// kernels_source.h - the kernels themselves, for the instruction set of the file that includes it.
//
// That file defines LANES (floats of a vector), BLOCK (rows of a block of sums in registers), FMA,
// SQRT, KERNELS_NAME and KERNELS, the function that returns the table.
#include <string.h>

#include "kernels_math.h"
//
#include "kernels_actions.h"
#include "kernels_dense.h"
#include "kernels_recurrent.h"

static void scale_bytes(int32_t count, const uint8_t* in, const float* low, const float* factor,
                        bool uniform, float* out) {
    if (uniform) {
        const float first = low[0], by = factor[0];
        for (int32_t i = 0; i < count; i++) out[i] = ((float)in[i] - first) * by;
    } else {
        for (int32_t i = 0; i < count; i++) out[i] = ((float)in[i] - low[i]) * factor[i];
    }
}

static bool all_finite(int32_t count, const float* x) {
    const int32_t exponent = 0x7F800000;  // all bits set: nan or inf
    ivec bad = {0};
    int32_t i = 0, others = 0;
    for (; i + LANES <= count; i += LANES) bad |= ((ivec)load(x + i) & exponent) == exponent;
    for (; i < count; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        others |= (bits & exponent) == exponent;
    }
    for (int32_t j = 0; j < LANES; j++) others |= bad[j];
    return !others;
}

static void sum_parts(int32_t count, int32_t num_parts, const float* parts, size_t stride,
                      float* out) {
    int32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec sum = load(parts + i);
        for (int32_t j = 1; j < num_parts; j++) sum += load(parts + (size_t)j * stride + i);
        store(out + i, sum);
    }
    for (; i < count; i++) {
        float sum = parts[i];
        for (int32_t j = 1; j < num_parts; j++) sum += parts[(size_t)j * stride + (size_t)i];
        out[i] = sum;
    }
}

// In double: a sum of float squares could overflow, and nan or inf must show.
static double sum_squares(int32_t count, const float* x) {
    double sums[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int32_t j = 0; j < 8; j++) sums[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < count; i++) sums[0] += (double)x[i] * (double)x[i];
    double total = 0;
    for (int32_t j = 0; j < 8; j++) total += sums[j];
    return total;
}

INLINE vec adam_step(const PufAdam* o, vec grad, vec value, vec* mean, vec* square) {
    grad = grad * o->grad_scale;
    *mean = FMA(grad - *mean, SET(1.0f - o->beta1), *mean);
    *square = FMA(grad * (1.0f - o->beta2), grad, *square * o->beta2);
    const vec spread = SQRT(*square) * (1.0f / __builtin_sqrtf(o->correction2)) + o->eps;
    return value - o->learning_rate / o->correction1 * (*mean / spread);
}

static void adam(int32_t count, const PufAdam* given, const float* grad, float* value, float* mean,
                 float* square) {
    const PufAdam own = *given, *options = &own;  // no store changes it: what is constant stays so
    int32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec m = load(mean + i), s = load(square + i);
        store(value + i, adam_step(options, load(grad + i), load(value + i), &m, &s));
        store(mean + i, m);
        store(square + i, s);
    }
    if (i == count) return;
    float edge[4][LANES] = {{0}};  // what is left, in one vector of its own
    const size_t bytes = (size_t)(count - i) * sizeof(float);
    memcpy(edge[0], grad + i, bytes), memcpy(edge[1], value + i, bytes);
    memcpy(edge[2], mean + i, bytes), memcpy(edge[3], square + i, bytes);
    vec m = load(edge[2]), s = load(edge[3]);
    store(edge[1], adam_step(options, load(edge[0]), load(edge[1]), &m, &s));
    store(edge[2], m);
    store(edge[3], s);
    memcpy(value + i, edge[1], bytes), memcpy(mean + i, edge[2], bytes);
    memcpy(square + i, edge[3], bytes);
}

// Elementwise over any number of floats, the last ones in a vector of their own.
#define ELEMENTWISE(name, function)                                     \
    static void name(int32_t count, const float* x, float* y) {         \
        for (int32_t i = 0; i < count; i += LANES) {                    \
            const int32_t left = count - i < LANES ? count - i : LANES; \
            float edge[LANES] = {0};                                    \
            memcpy(edge, x + i, (size_t)left * sizeof(float));          \
            store(edge, function(load(edge)));                          \
            memcpy(y + i, edge, (size_t)left * sizeof(float));          \
        }                                                               \
    }
ELEMENTWISE(exp_all, exp_of)
ELEMENTWISE(log_all, log_of)
ELEMENTWISE(tanh_all, tanh_of)

const PufKernels* KERNELS(void) {
    static const PufKernels table = {
        .name = KERNELS_NAME,
        .lanes = LANES,
        .product = product,
        .dots = dots,
        .dots_back = dots_back,
        .outer = outer,
        .column_sums = column_sums,
        .scale_bytes = scale_bytes,
        .all_finite = all_finite,
        .sample = sample,
        .ppo = ppo,
        .cell_forward = {NULL, lstm_forward, gru_forward, mingru_forward},
        .cell_backward = {NULL, lstm_backward, gru_backward, mingru_backward},
        .sum_parts = sum_parts,
        .sum_squares = sum_squares,
        .adam = adam,
        .exp = exp_all,
        .log = log_all,
        .tanh = tanh_all,
    };
    return &table;
}
