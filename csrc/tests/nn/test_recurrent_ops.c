// Recurrent operations stay inside their arrays, and gradients match finite differences.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nn/recurrent_ops.h"
#include "tests/check.h"

static uint32_t seed = 1;

static float random_f32(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

// Arrays of exact size, so that the sanitizer catches any access beyond them.
static float* floats(int32_t count) {
    float* out = malloc((size_t)count * sizeof *out);
    for (int32_t i = 0; i < count; i++) out[i] = random_f32();
    return out;
}

static float* copy(const float* from, int32_t count) {
    float* out = malloc((size_t)count * sizeof *out);
    memcpy(out, from, (size_t)count * sizeof *out);
    return out;
}

static double dot(const float* a, const float* b, int32_t count) {
    double sum = 0;
    for (int32_t i = 0; i < count; i++) sum += (double)a[i] * b[i];
    return sum;
}

// The loss of one LSTM step: a weighted sum of its outputs.
static double lstm_loss(int32_t rows, int32_t width, const float* sums, const float* cell,
                        const float* kept, const float* weights) {
    const int32_t n = rows * width;
    float *gates = copy(sums, 4 * n), *hidden = floats(n), *next = floats(n), *after = floats(n);
    puf_lstm_forward(rows, width, gates, cell, kept, hidden, next, after, NULL);
    double loss =
        dot(hidden, weights, n) + dot(next, weights + n, n) + dot(after, weights + 2 * n, n);
    free(gates), free(hidden), free(next), free(after);
    return loss;
}

static void test_lstm_gradients_match_finite_differences(int32_t rows, int32_t width, bool resets) {
    const int32_t n = rows * width;
    float *sums = floats(4 * n), *cell = floats(n), *weights = floats(3 * n);
    float* kept = resets ? floats(rows) : NULL;
    for (int32_t i = 0; resets && i < rows; i++) kept[i] = (float)(i % 2);
    float *gates = copy(sums, 4 * n), *hidden = floats(n), *next = floats(n), *after = floats(n);
    float *tanh_cell = floats(n), *grad_gates = floats(4 * n),
          *grad_cell = copy(weights + 2 * n, n);
    puf_lstm_forward(rows, width, gates, cell, kept, hidden, next, after, tanh_cell);
    puf_lstm_backward(rows, width, gates, cell, tanh_cell, kept, weights, weights + n, grad_cell,
                      grad_gates);
    for (int32_t i = 0; i < 5 * n; i++) {
        float* x = i < 4 * n ? sums + i : cell + (i - 4 * n);
        const float was = *x;
        *x = was + 1e-2f;
        double up = lstm_loss(rows, width, sums, cell, kept, weights);
        *x = was - 1e-2f;
        double down = lstm_loss(rows, width, sums, cell, kept, weights);
        *x = was;
        const double found = i < 4 * n ? grad_gates[i] : grad_cell[i - 4 * n];
        CHECK(fabs((up - down) / 2e-2 - found) < 1e-3);
    }
    free(sums), free(cell), free(weights), free(kept), free(gates), free(hidden), free(next);
    free(after), free(tanh_cell), free(grad_gates), free(grad_cell);
}

static void test_gru_and_mingru_stay_inside_their_arrays(int32_t rows, int32_t width) {
    const int32_t n = rows * width, horizon = 3;
    float *x = floats(3 * n), *m = floats(3 * n), *h = floats(n), *kept = floats(rows);
    float *gates = floats(3 * n), *out = floats(n), *next = floats(n), *candidate = floats(n);
    float *of_x = floats(3 * n), *of_m = floats(3 * n), *of_h = floats(n);
    puf_gru_forward(rows, width, x, m, h, kept, gates, out, next);
    puf_gru_forward(rows, width, x, m, h, NULL, NULL, out, NULL);
    puf_gru_backward(rows, width, gates, candidate, h, kept, out, of_h, of_x, of_m);
    for (int32_t i = 0; i < n; i++) CHECK(fabsf(out[i]) <= 1);

    float *projected = floats(2 * n * horizon), *hidden = floats(n * horizon);
    float *grad_projected = floats(2 * n * horizon), *grad_start = floats(n);
    uint8_t* resets = malloc((size_t)(rows * horizon));
    for (int32_t i = 0; i < rows * horizon; i++) resets[i] = i % 2;
    puf_mingru_forward(rows, horizon, width, projected, h, resets, hidden);
    puf_mingru_backward(rows, horizon, width, projected, h, resets, hidden, hidden, grad_projected,
                        grad_start);
    for (int32_t i = 0; i < n * horizon; i++) CHECK(isfinite(hidden[i]));
    free(x), free(m), free(h), free(kept), free(gates), free(out), free(next), free(candidate);
    free(of_x), free(of_m), free(of_h), free(projected), free(hidden), free(grad_projected);
    free(grad_start), free(resets);
}

static void test_infinite_sums_saturate_and_nan_stays_nan(void) {
    float gates[4] = {NAN, INFINITY, -INFINITY, 1e38f}, cell = 1, hidden, next, after, tanh_cell;
    puf_lstm_forward(1, 1, gates, &cell, NULL, &hidden, &next, &after, &tanh_cell);
    CHECK(isnan(gates[0]) && gates[1] == 1 && gates[2] == -1 && gates[3] == 1);
    CHECK(isnan(hidden));
}

int main(void) {
    const int32_t widths[] = {1, 3, 16, 33};
    for (int32_t i = 0; i < 4; i++) {
        test_lstm_gradients_match_finite_differences(2, widths[i], false);
        test_lstm_gradients_match_finite_differences(3, widths[i], true);
        test_gru_and_mingru_stay_inside_their_arrays(2, widths[i]);
    }
    test_infinite_sums_saturate_and_nan_stays_nan();
    return CHECK_DONE();
}
