// Products of every set of kernels that this CPU runs, and of a wide one, beside plain loops: inner
// sizes around the limit of narrow ones, and widths that fill no vector.
#include <math.h>
#include <string.h>

#include "nn/kernels.h"
#include "puf_env.h"
#include "tests/check.h"
#include "tests/nn/kernels_wide.h"

enum { MAX_IN = 18, MAX_OUT = 80, STRIDE = 80, X_STRIDE = 32 };

static float x[PUF_TILE * X_STRIDE], weights[MAX_IN][MAX_OUT], panels[MAX_IN * STRIDE];
static float bias[STRIDE], of[PUF_TILE * STRIDE], before[PUF_TILE * STRIDE], y[PUF_TILE * STRIDE];

static double finished(PufFinish finish, double sum, double below) {
    switch (finish) {
        case PUF_PLAIN:
            return sum;
        case PUF_RELU:
            return sum > 0 ? sum : 0;
        case PUF_TANH:
            return tanh(sum);
        case PUF_RELU_SLOPE:
            return below > 0 ? sum : 0;
        case PUF_TANH_SLOPE:
            return sum * (1 - below * below);
    }
    return NAN;
}

static void fill(float* to, size_t count, PufRng* rng) {
    for (size_t i = 0; i < count; i++) to[i] = puf_rand_normal(rng);
}

static void products_are_those_of_a_plain_loop(const PufKernels* kernels, int32_t rows, int32_t in,
                                               int32_t out, PufRng* rng) {
    fill(x, sizeof x / sizeof *x, rng);
    fill(&weights[0][0], sizeof weights / sizeof(float), rng);
    fill(of, sizeof of / sizeof *of, rng);
    fill(before, sizeof before / sizeof *before, rng);
    memset(panels, 0, sizeof panels);
    memset(bias, 0, sizeof bias);
    fill(bias, (size_t)out, rng);
    for (int32_t i = 0; i < in; i++)
        for (int32_t o = 0; o < out; o++)
            panels[puf_panel_at(kernels->lanes, in, out, i, o)] = weights[i][o];
    for (PufFinish finish = PUF_PLAIN; finish <= PUF_TANH_SLOPE; finish++) {
        const bool has_bias = finish <= PUF_TANH, adds = finish % 2;
        memcpy(y, before, sizeof y);
        kernels->product(&(PufProduct){.rows = rows,
                                       .in = in,
                                       .out = out,
                                       .x = x,
                                       .x_stride = X_STRIDE,
                                       .panels = panels,
                                       .bias = has_bias ? bias : NULL,
                                       .add = adds,
                                       .finish = finish,
                                       .of = finish > PUF_TANH ? of : NULL,
                                       .y = y,
                                       .y_stride = STRIDE});
        for (int32_t row = 0; row < rows; row++)
            for (int32_t o = 0; o < out; o++) {
                const int32_t at = row * STRIDE + o;
                double sum = (has_bias ? (double)bias[o] : 0) + (adds ? (double)before[at] : 0);
                for (int32_t i = 0; i < in; i++)
                    sum += (double)x[row * X_STRIDE + i] * (double)weights[i][o];
                CHECK(fabs((double)y[at] - finished(finish, sum, (double)of[at])) < 1e-4);
            }
        for (int32_t at = rows * STRIDE; at < PUF_TILE * STRIDE; at++) CHECK(y[at] == before[at]);
    }
}

static void few_outputs_are_those_of_a_plain_loop(const PufKernels* kernels, int32_t rows,
                                                  int32_t in, int32_t out, PufRng* rng) {
    enum { MAX_OUT = 8 };
    static float w[MAX_OUT * STRIDE], outputs[MAX_OUT * PUF_TILE];
    memset(w, 0, sizeof w);
    memset(of, 0, sizeof of);
    fill(bias, (size_t)out, rng);
    for (int32_t o = 0; o < out; o++) fill(w + o * puf_padded(in), (size_t)in, rng);
    for (int32_t row = 0; row < rows; row++) fill(of + row * STRIDE, (size_t)in, rng);
    kernels->dots(rows, in, out, of, STRIDE, w, bias, outputs);
    for (int32_t o = 0; o < out; o++)
        for (int32_t row = 0; row < rows; row++) {
            double sum = (double)bias[o];
            for (int32_t k = 0; k < in; k++)
                sum += (double)of[row * STRIDE + k] * (double)w[o * puf_padded(in) + k];
            CHECK(fabs((double)outputs[o * PUF_TILE + row] - sum) < 1e-4);
        }
}

// Slopes and gradients of a product with few outputs, on top of a gradient or without one.
static void the_way_back_is_that_of_a_plain_loop(const PufKernels* kernels, int32_t rows,
                                                 int32_t in, int32_t out, PufRng* rng) {
    enum { MAX_OUT = 8 };
    static float slopes[MAX_OUT * PUF_TILE], w[MAX_OUT * STRIDE], grad[MAX_OUT * STRIDE];
    static float x_slopes[PUF_TILE * STRIDE], was[MAX_OUT * STRIDE];
    float sums[MAX_OUT];
    fill(slopes, sizeof slopes / sizeof *slopes, rng);
    memset(w, 0, sizeof w);
    memset(of, 0, sizeof of);
    for (int32_t o = 0; o < out; o++) fill(w + o * STRIDE, (size_t)in, rng);
    for (int32_t row = 0; row < rows; row++) fill(of + row * STRIDE, (size_t)in, rng);
    fill(was, sizeof was / sizeof *was, rng);
    const PufFinish finishes[] = {PUF_PLAIN, PUF_RELU_SLOPE, PUF_TANH_SLOPE};
    for (int i = 0; i < 6; i++) {
        const bool first = i % 2;
        const PufFinish finish = finishes[i / 2];
        memcpy(grad, was, sizeof grad);
        memcpy(sums, was, sizeof sums);
        memcpy(x_slopes, before, sizeof x_slopes);
        kernels->dots_back(&(PufDotsBack){.rows = rows,
                                          .in = in,
                                          .out = out,
                                          .slopes = slopes,
                                          .weights = w,
                                          .x = of,
                                          .stride = STRIDE,
                                          .finish = finish,
                                          .x_slopes = x_slopes,
                                          .grad = grad,
                                          .bias = sums,
                                          .first = first});
        for (int32_t o = 0; o < out; o++) {
            double total = first ? 0 : (double)was[o];
            for (int32_t row = 0; row < rows; row++) total += (double)slopes[o * PUF_TILE + row];
            CHECK(fabs((double)sums[o] - total) < 1e-4);
            for (int32_t k = 0; k < in; k++) {
                double sum = first ? 0 : (double)was[o * STRIDE + k];
                for (int32_t row = 0; row < rows; row++)
                    sum += (double)slopes[o * PUF_TILE + row] * (double)of[row * STRIDE + k];
                CHECK(fabs((double)grad[o * STRIDE + k] - sum) < 1e-3);
            }
        }
        for (int32_t row = 0; row < rows; row++)
            for (int32_t k = 0; k < in; k++) {
                const int32_t at = row * STRIDE + k;
                double sum = 0;
                for (int32_t o = 0; o < out; o++)
                    sum += (double)slopes[o * PUF_TILE + row] * (double)w[o * STRIDE + k];
                CHECK(fabs((double)x_slopes[at] - finished(finish, sum, (double)of[at])) < 1e-4);
            }
        for (int32_t at = rows * STRIDE; at < PUF_TILE * STRIDE; at++)
            CHECK(x_slopes[at] == before[at]);
        for (int32_t o = out; o < MAX_OUT; o++) CHECK(sums[o] == was[o]);
        for (int32_t at = out * STRIDE; at < MAX_OUT * STRIDE; at++) CHECK(grad[at] == was[at]);
    }
}

// Products of columns, with the sums of those of b or without, on top of what is there or not.
static void outer_products_are_those_of_a_plain_loop(const PufKernels* kernels, int32_t rows,
                                                     int32_t n, int32_t k, PufRng* rng) {
    static float a[PUF_TILE * X_STRIDE], b[PUF_TILE * STRIDE];
    static float was[X_STRIDE * STRIDE], grad[X_STRIDE * STRIDE], sums[STRIDE];
    fill(a, sizeof a / sizeof *a, rng);
    memset(b, 0, sizeof b);
    for (int32_t row = 0; row < rows; row++) fill(b + row * STRIDE, (size_t)k, rng);
    fill(was, sizeof was / sizeof *was, rng);
    for (int i = 0; i < 4; i++) {
        const bool first = i % 2, has_sums = i / 2;
        memcpy(grad, was, sizeof grad);
        memcpy(sums, was, sizeof sums);
        kernels->outer(&(PufOuter){.rows = rows,
                                   .n = n,
                                   .k = k,
                                   .a = a,
                                   .a_stride = X_STRIDE,
                                   .b = b,
                                   .b_stride = STRIDE,
                                   .grad = grad,
                                   .grad_stride = STRIDE,
                                   .sums = has_sums ? sums : NULL,
                                   .first = first});
        for (int32_t j = 0; j < k; j++) {
            double total = first ? 0 : (double)was[j];
            for (int32_t row = 0; row < rows; row++) total += (double)b[row * STRIDE + j];
            CHECK(has_sums ? fabs((double)sums[j] - total) < 1e-4 : sums[j] == was[j]);
            for (int32_t i = 0; i < n; i++) {
                double sum = first ? 0 : (double)was[i * STRIDE + j];
                for (int32_t row = 0; row < rows; row++)
                    sum += (double)a[row * X_STRIDE + i] * (double)b[row * STRIDE + j];
                CHECK(fabs((double)grad[i * STRIDE + j] - sum) < 1e-3);
            }
        }
        for (int32_t j = puf_padded(k); j < STRIDE; j++) CHECK(sums[j] == was[j]);
        for (int32_t at = n * STRIDE; at < X_STRIDE * STRIDE; at++) CHECK(grad[at] == was[at]);
    }
}

int main(void) {
    const char* names[] = {"avx512", "avx2", "neon", "portable"};
    const int32_t widths[] = {1, 5, 16, 17, 33, 48, 50, 64, 70};
    PufRng rng = {1};
    for (int i = 0; i < 5; i++) {
        const PufKernels* kernels = i < 4 ? puf_kernels_named(names[i]) : kernels_wide();
        if (!kernels) continue;  // does not run here
        for (int32_t in = 1; in <= MAX_IN; in++)
            for (size_t width = 0; width < sizeof widths / sizeof *widths; width++)
                products_are_those_of_a_plain_loop(kernels, 1 + (in * 7) % PUF_TILE, in,
                                                   widths[width], &rng);
        for (int32_t n = 1; n <= 30; n++)  // of several blocks, and of one alone
            for (size_t width = 0; width < sizeof widths / sizeof *widths; width++)
                outer_products_are_those_of_a_plain_loop(kernels, 1 + (n * 11) % PUF_TILE, n,
                                                         widths[width], &rng);
        for (int32_t out = 1; out <= 8; out++)
            for (size_t width = 0; width < sizeof widths / sizeof *widths; width++) {
                const int32_t rows = 1 + (out * 9 + 54) % PUF_TILE;
                few_outputs_are_those_of_a_plain_loop(kernels, rows, widths[width], out, &rng);
                the_way_back_is_that_of_a_plain_loop(kernels, rows, widths[width], out, &rng);
            }
    }
    return CHECK_DONE();
}
