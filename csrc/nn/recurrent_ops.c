// recurrent_ops.c - gates of LSTM and GRU cells and the scan of a MinGRU, forward and backward.
//
//   LSTM     c' = f * c + i * g,  h = o * tanh(c')     i, f, o = sigmoid, g = tanh of sums
//   GRU      h' = (1 - z) * n + z * h                  r, z = sigmoid, n = tanh(x_n + r * h_n)
//   MinGRU   h' = (1 - z) * h + z * n                  z = sigmoid(gate), n = the candidate itself
//
// One pass over memory instead of ten in torch; torch computes the matrix products in between.
#include "nn/recurrent_ops.h"

#include <stddef.h>
#include <string.h>

#include "puf_hot.h"

// Marks a loop whose arrays do not overlap: the compiler cannot see that for parts of one array.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

// exp(x) to 2 units in the last place, without branches, so that loops over it vectorize:
// x = n * log(2) + r; exp(r) is the polynomial of Cephes, and n goes into the exponent's bits.
// The argument is clamped to +-87; nan stays nan.
static inline float exp_f32(float x) {
    float y = x > -87.0f ? x : -87.0f;
    y = y < 87.0f ? y : 87.0f;
    const float n = (y * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounds to an integer
    const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const int32_t bits = ((int32_t)n + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return x == x ? p * power : x;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }
static inline float tanh_f32(float x) { return 2.0f / (1.0f + exp_f32(-2.0f * x)) - 1.0f; }

PUF_HOT void puf_lstm_forward(int32_t rows, int32_t width, float* gates, const float* cell,
                              const float* kept, float* hidden, float* next_hidden,
                              float* next_cell, float* tanh_cell) {
    const size_t w = (size_t)width;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)row * w;
        float* i = gates + 4 * at;
        float *f = i + w, *g = f + w, *o = g + w;
        const float* before = cell + at;
        float *out = hidden + at, *after = next_cell + at;
        INDEPENDENT
        for (size_t k = 0; k < w; k++) {
            i[k] = sigmoid(i[k]);
            f[k] = sigmoid(f[k]);
            g[k] = tanh_f32(g[k]);
            o[k] = sigmoid(o[k]);
            after[k] = f[k] * before[k] + i[k] * g[k];
        }
        if (tanh_cell) {
            float* s = tanh_cell + at;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) {
                s[k] = tanh_f32(after[k]);
                out[k] = o[k] * s[k];
            }
        } else {
            INDEPENDENT
            for (size_t k = 0; k < w; k++) out[k] = o[k] * tanh_f32(after[k]);
        }
        const float keep = kept ? kept[row] : 1.0f;
        if (next_hidden) {
            float* next = next_hidden + at;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) next[k] = keep * out[k];
        }
        if (kept) {
            INDEPENDENT
            for (size_t k = 0; k < w; k++) after[k] *= keep;
        }
    }
}

PUF_HOT void puf_lstm_backward(int32_t rows, int32_t width, const float* gates, const float* cell,
                               const float* tanh_cell, const float* kept, const float* grad_output,
                               const float* grad_hidden, float* grad_cell, float* grad_gates) {
    const size_t w = (size_t)width;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)row * w;
        const float keep = kept ? kept[row] : 1.0f;
        const float* i = gates + 4 * at;
        const float *f = i + w, *g = f + w, *o = g + w;
        float* di = grad_gates + 4 * at;
        float *df = di + w, *dg = df + w, *dh_o = dg + w;
        const float *c = cell + at, *s = tanh_cell + at;
        const float *out = grad_output + at, *later = grad_hidden + at;
        float* dc = grad_cell + at;
        INDEPENDENT
        for (size_t k = 0; k < w; k++) {
            const float dh = out[k] + keep * later[k];
            const float d = keep * dc[k] + dh * o[k] * (1.0f - s[k] * s[k]);
            di[k] = d * g[k] * i[k] * (1.0f - i[k]);
            df[k] = d * c[k] * f[k] * (1.0f - f[k]);
            dg[k] = d * i[k] * (1.0f - g[k] * g[k]);
            dh_o[k] = dh * s[k] * o[k] * (1.0f - o[k]);
            dc[k] = d * f[k];
        }
    }
}

PUF_HOT void puf_gru_forward(int32_t rows, int32_t width, const float* projected,
                             const float* recurrent, const float* hidden, const float* kept,
                             float* gates, float* output, float* next_hidden) {
    const size_t w = (size_t)width;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)row * w;
        const float keep = kept ? kept[row] : 1.0f;
        const float *x = projected + 3 * at, *m = recurrent + 3 * at;
        const float* h = hidden + at;
        float* out = output + at;
        if (gates) {
            float* r = gates + 3 * at;
            float *z = r + w, *n = z + w;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) {
                r[k] = sigmoid(x[k] + m[k]);
                z[k] = sigmoid(x[w + k] + m[w + k]);
                n[k] = tanh_f32(x[2 * w + k] + r[k] * m[2 * w + k]);
                out[k] = n[k] + z[k] * (h[k] - n[k]);
            }
        } else {
            INDEPENDENT
            for (size_t k = 0; k < w; k++) {
                const float r = sigmoid(x[k] + m[k]), z = sigmoid(x[w + k] + m[w + k]);
                const float n = tanh_f32(x[2 * w + k] + r * m[2 * w + k]);
                out[k] = n + z * (h[k] - n);
            }
        }
        if (next_hidden) {
            float* next = next_hidden + at;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) next[k] = keep * out[k];
        }
    }
}

PUF_HOT void puf_gru_backward(int32_t rows, int32_t width, const float* gates,
                              const float* candidate, const float* hidden, const float* kept,
                              const float* grad_output, float* grad_hidden, float* grad_projected,
                              float* grad_recurrent) {
    const size_t w = (size_t)width;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)row * w;
        const float keep = kept ? kept[row] : 1.0f;
        const float* r = gates + 3 * at;
        const float *z = r + w, *n = z + w;
        const float *m = candidate + at, *h = hidden + at;
        const float* out = grad_output + at;
        float *later = grad_hidden + at, *dx = grad_projected + 3 * at;
        float* dm = grad_recurrent + 3 * at;
        INDEPENDENT
        for (size_t k = 0; k < w; k++) {
            const float d = out[k] + keep * later[k];
            const float dn = d * (1.0f - z[k]) * (1.0f - n[k] * n[k]);
            const float dr = dn * m[k] * r[k] * (1.0f - r[k]);
            const float dz = d * (h[k] - n[k]) * z[k] * (1.0f - z[k]);
            dx[k] = dm[k] = dr;
            dx[w + k] = dm[w + k] = dz;
            dx[2 * w + k] = dn;
            dm[2 * w + k] = dn * r[k];
            later[k] = d * z[k];
        }
    }
}

PUF_HOT void puf_mingru_forward(int32_t segments, int32_t horizon, int32_t width,
                                const float* projected, const float* start, const uint8_t* resets,
                                float* hidden) {
    const size_t w = (size_t)width;
    for (int32_t s = 0; s < segments; s++) {
        const float* before = start + (size_t)s * w;
        for (int32_t t = 0; t < horizon; t++) {
            const size_t cell = (size_t)s * (size_t)horizon + (size_t)t;
            const float keep = resets && resets[cell] ? 0.0f : 1.0f;
            const float* gate = projected + 2 * cell * w;
            const float *n = gate + w, *h = before;
            float* out = hidden + cell * w;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) {
                const float held = keep * h[k];
                out[k] = held + sigmoid(gate[k]) * (n[k] - held);
            }
            before = out;
        }
    }
}

PUF_HOT void puf_mingru_backward(int32_t segments, int32_t horizon, int32_t width,
                                 const float* projected, const float* start, const uint8_t* resets,
                                 const float* hidden, const float* grad_hidden,
                                 float* grad_projected, float* grad_start) {
    const size_t w = (size_t)width;
    for (int32_t s = 0; s < segments; s++) {
        float* later = grad_start + (size_t)s * w;
        memset(later, 0, w * sizeof *later);
        for (int32_t t = horizon - 1; t >= 0; t--) {
            const size_t cell = (size_t)s * (size_t)horizon + (size_t)t;
            const float keep = resets && resets[cell] ? 0.0f : 1.0f;
            const float* gate = projected + 2 * cell * w;
            const float* n = gate + w;
            const float* h = t ? hidden + (cell - 1) * w : start + (size_t)s * w;
            const float* out = grad_hidden + cell * w;
            float* dgate = grad_projected + 2 * cell * w;
            float* dn = dgate + w;
            INDEPENDENT
            for (size_t k = 0; k < w; k++) {
                const float z = sigmoid(gate[k]), d = out[k] + later[k];
                dn[k] = d * z;
                dgate[k] = d * (n[k] - keep * h[k]) * z * (1.0f - z);
                later[k] = keep * d * (1.0f - z);
            }
        }
    }
}
