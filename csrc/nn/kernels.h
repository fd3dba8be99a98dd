// kernels.h - the arithmetic of the native engine, compiled once for each instruction set.
//
// Rows of floats lie at a stride that is a multiple of PUF_ALIGN floats. Weights come as panels:
// columns of the result in groups of two vectors (one in the last group where that is enough), and
// in each group all rows of the matrix, one after another, so that a product reads them in order.
//
// Per-step numbers of a tile lie in columns: number i of step r at [i * PUF_TILE + r], so that one
// vector holds one number of several steps.
#ifndef PUF_NN_KERNELS_H
#define PUF_NN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PUF_TILE = 64,   // steps that go through a network together; a multiple of PUF_ALIGN
    PUF_ALIGN = 16,  // floats; the widest vector of all instruction sets
};

// How many columns the panel of column o has, for vectors of `lanes` floats.
static inline size_t puf_panel_width(int32_t lanes, int32_t out, int32_t o) {
    const int32_t first = o / (2 * lanes) * 2 * lanes;
    return (size_t)(out - first > lanes ? 2 * lanes : lanes);
}

// Where element (i, o) of w[in, out] lies in panels.
static inline size_t puf_panel_at(int32_t lanes, int32_t in, int32_t out, int32_t i, int32_t o) {
    const int32_t first = o / (2 * lanes) * 2 * lanes;  // column of the panel
    return (size_t)first * (size_t)in + (size_t)i * puf_panel_width(lanes, out, o) +
           (size_t)(o - first);
}

static inline int32_t puf_padded(int32_t width) { return (width + PUF_ALIGN - 1) & -PUF_ALIGN; }

// What happens to a product before it is stored.
typedef enum {
    PUF_PLAIN,
    PUF_RELU,        // max(y, 0)
    PUF_TANH,        // tanh(y)
    PUF_RELU_SLOPE,  // y where `of` > 0, else 0: a gradient on its way back through a ReLU
    PUF_TANH_SLOPE,  // y * (1 - of^2)
} PufFinish;

// The way back through `dots`: from slopes by its outputs to those by x, which came out of a layer,
// and to its own gradient.
typedef struct {
    int32_t rows, in, out;
    const float* slopes;   // [out, PUF_TILE]
    const float* weights;  // [out, stride]
    const float* x;        // [rows, stride]
    int32_t stride;        // of rows of x, weights, x_slopes and grad: a multiple of PUF_ALIGN
    PufFinish finish;      // PUF_PLAIN or a slope of x
    float* x_slopes;       // [rows, stride]
    float *grad, *bias;    // [out, stride] and [out]: added to, or written if `first`
    bool first;
} PufDotsBack;

// y[rows, out] = x[rows, in] w + bias, then `finish`.
typedef struct {
    int32_t rows, in, out;
    const float* x;  // [rows, x_stride]
    int32_t x_stride;
    const float* panels;  // w[in, out], see puf_panel_at
    const float* bias;    // [out, padded with 0]; NULL: 0
    bool add;             // start from what y holds, with the bias on top
    PufFinish finish;
    const float* of;  // [rows, y_stride]: what the layer below gave, for the slopes
    float* y;         // [rows, y_stride]
    int32_t y_stride;
} PufProduct;

// grad[n, k] = a[rows, n]^T b[rows, k], or added to it unless `first`. Columns up to the padded k
// are written.
typedef struct {
    int32_t rows, n, k;
    const float* a;  // [rows, a_stride]
    int32_t a_stride;
    const float* b;  // [rows, b_stride]
    int32_t b_stride;
    float* grad;  // [n, grad_stride]
    int32_t grad_stride;
    float* sums;  // [padded k]: the sums of b's columns, in the same way; NULL: none
    bool first;
} PufOuter;

enum { PUF_NUM_LOSSES = 6 };  // policy, value, entropy, approx_kl, old_approx_kl, clipfrac

// What a policy chooses. Outputs of a network are logits, then means, then the value.
typedef struct {
    int32_t num_discrete, num_continuous, num_logits;
    const int32_t* nvec;   // [num_discrete]
    bool squash;           // reals go through tanh into their bounds
    const float* log_std;  // [num_continuous], as are all below
    const float *std, *center, *scale, *low, *high;
    const uint8_t* bounded;  // whether squash applies to a component
} PufActionHead;

typedef struct {
    float clip_coef, vf_coef, ent_coef;
    float vf_clip_coef;  // below 0: values are not clipped
    float share;         // of one step in the mean: 1 / steps of the minibatch
} PufLossOptions;

// Steps of a tile in columns, PUF_TILE apart.
typedef struct {
    int32_t rows;
    float* outputs;        // [num_logits + num_continuous + 1]
    float* gradients;      // the same: of the loss with respect to outputs
    float* entropies;      // [num_discrete], scratch
    float* entropy;        // of all components, scratch
    int32_t* choices;      // [num_discrete]
    float* reals;          // [num_continuous], as drawn
    float* env_reals;      // [num_continuous], as the env takes them
    float* uniforms;       // [num_discrete + 2 * num_continuous], in [0, 1)
    const int32_t* legal;  // [num_logits], or [1] without logits: -1 or 0; NULL: all are
    float *old_logprobs, *old_values, *advantages, *returns, *weights;
    int32_t* present;  // -1 where a step counts, else 0
    float* logprobs;   // of the choices under `outputs`
} PufColumns;

// Recurrent cores; see kernels_recurrent.h.
typedef enum { PUF_NO_CORE, PUF_LSTM, PUF_GRU, PUF_MINGRU, PUF_NUM_CORES } PufCoreKind;

// One step of some segments. Rows are `width` floats for each unit, or gate after gate.
typedef struct {
    int32_t rows, width;  // width: a multiple of PUF_ALIGN
    float* gates;         // sums from the input; then activations; then slopes of the sums
    float* sums;          // sums from `hidden`, of LSTM and GRU; backwards the slopes of a GRU's
    const float *hidden, *cell;      // state before the step; `cell` is an LSTM's
    float *next_hidden, *next_cell;  // state before the next step
    const int32_t* kept;             // [rows]: 0 where the next step begins an episode, else -1
    float* extra;         // tanh of an LSTM's cell; the candidate's part of a GRU's `sums`
    float* output;        // the hidden state after the step
    const float* slopes;  // of the loss by `output`
    // Slopes by the state before the next step, replaced by those before this step: without the
    // part that goes through `sums`, which is all of an LSTM's `later_hidden`.
    float *later_hidden, *later_cell;
} PufCell;

typedef struct {
    float learning_rate, beta1, beta2, eps;
    float correction1, correction2;  // 1 - beta^step
    float grad_scale;                // gradients are multiplied by this
} PufAdam;

typedef struct PufKernels {
    const char* name;
    int32_t lanes;

    void (*product)(const PufProduct* product);
    // A product with few outputs, in columns: y[o, r] = x[r] . weights[o] + bias[o]. Rows of x and
    // weights are padded with 0; x has rows up to a multiple of PUF_ALIGN, and so has y columns.
    void (*dots)(int32_t rows, int32_t in, int32_t out, const float* x, int32_t x_stride,
                 const float* weights, const float* bias, float* y);
    void (*dots_back)(const PufDotsBack* back);
    void (*outer)(const PufOuter* outer);
    void (*column_sums)(int32_t rows, int32_t n, const float* a, int32_t a_stride, float* sums,
                        bool first);

    // out[i] = (in[i] - low[i]) * factor[i]; low and factor are one number each if `uniform`.
    void (*scale_bytes)(int32_t count, const uint8_t* in, const float* low, const float* factor,
                        bool uniform, float* out);

    bool (*all_finite)(int32_t count, const float* x);

    // Draws choices and reals by `uniforms`, and gives their log-probabilities.
    void (*sample)(const PufActionHead* head, PufColumns* steps);
    // Adds the sums of the losses of all steps, and gives the gradients; those of log_std
    // [num_continuous] are added.
    void (*ppo)(const PufActionHead* head, const PufLossOptions* options, PufColumns* steps,
                double losses[PUF_NUM_LOSSES], float* of_log_std);

    void (*cell_forward[PUF_NUM_CORES])(const PufCell* cell);
    void (*cell_backward[PUF_NUM_CORES])(const PufCell* cell);

    // out[i] = the sum of parts[j * stride + i] over j, in order of j.
    void (*sum_parts)(int32_t count, int32_t num_parts, const float* parts, size_t stride,
                      float* out);
    double (*sum_squares)(int32_t count, const float* x);
    void (*adam)(int32_t count, const PufAdam* options, const float* grad, float* value,
                 float* mean, float* square);

    // Elementwise, for tests.
    void (*exp)(int32_t count, const float* x, float* y);
    void (*log)(int32_t count, const float* x, float* y);
    void (*tanh)(int32_t count, const float* x, float* y);
} PufKernels;

// The fastest set that this CPU runs, or the one that PUFFER_KERNELS names: avx512, avx2, neon,
// portable. NULL, with an error set, where it names one that is unknown or does not run here.
const PufKernels* puf_kernels(void);
const PufKernels* puf_kernels_named(const char* name);

// NULL where the compiler could not build them for this processor.
const PufKernels* puf_kernels_avx512(void);
const PufKernels* puf_kernels_avx2(void);
const PufKernels* puf_kernels_portable(void);

#ifdef __cplusplus
}
#endif
#endif
