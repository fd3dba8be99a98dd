// recurrent_ops.h - the element-wise steps of recurrent cells, between their matrix products.
#ifndef PUF_RECURRENT_OPS_H
#define PUF_RECURRENT_OPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// All arrays are contiguous float32 and do not overlap. `kept` [rows] is 0 where the next step
// begins an episode and 1 elsewhere; NULL means all 1. `grad_x` is the gradient of the loss with
// respect to x. Formulas are in recurrent_ops.c; gates have the order that torch uses.

// One step of an LSTM with gates input, forget, candidate, output. `gates` [rows, 4 width] holds
// sums on entry and activations on return; `cell` [rows, width] is the cell before the step. Writes
// `hidden`, and the tanh of the new cell to `tanh_cell` (may be NULL). `next_hidden` (may be NULL)
// and `next_cell` receive the state in which the next step begins: 0 where kept is 0.
void puf_lstm_forward(int32_t rows, int32_t width, float* gates, const float* cell,
                      const float* kept, float* hidden, float* next_hidden, float* next_cell,
                      float* tanh_cell);

// Backward pass of the same step. `grad_output` belongs to `hidden`, `grad_hidden` and `grad_cell`
// to the state in which the next step begins. Replaces `grad_cell` by the gradient of `cell` and
// writes `grad_gates`, the gradient of the sums.
void puf_lstm_backward(int32_t rows, int32_t width, const float* gates, const float* cell,
                       const float* tanh_cell, const float* kept, const float* grad_output,
                       const float* grad_hidden, float* grad_cell, float* grad_gates);

// One step of a GRU with gates reset, update, candidate. `projected` [rows, 3 width] are the sums
// from the input, `recurrent` [rows, 3 width] those from `hidden`, both with their biases. `gates`
// [rows, 3 width] (may be NULL) receives the activations; `output` and `next_hidden` are as above.
void puf_gru_forward(int32_t rows, int32_t width, const float* projected, const float* recurrent,
                     const float* hidden, const float* kept, float* gates, float* output,
                     float* next_hidden);

// Backward pass of the same step. `candidate` [rows, width] is the candidate's part of `recurrent`.
// Replaces `grad_hidden`, which belongs to the state in which the next step begins, by the gradient
// of `hidden` without the path through `recurrent`; writes `grad_projected` and `grad_recurrent`.
void puf_gru_backward(int32_t rows, int32_t width, const float* gates, const float* candidate,
                      const float* hidden, const float* kept, const float* grad_output,
                      float* grad_hidden, float* grad_projected, float* grad_recurrent);

// All steps of a MinGRU. `projected` [segments, horizon, 2 width] holds gate and candidate, `start`
// [segments, width] the first state, and `resets` [segments, horizon] (may be NULL) is 1 where a
// step begins an episode. Writes `hidden` [segments, horizon, width].
void puf_mingru_forward(int32_t segments, int32_t horizon, int32_t width, const float* projected,
                        const float* start, const uint8_t* resets, float* hidden);

// Backward pass: reads `grad_hidden`, writes `grad_projected` and `grad_start`.
void puf_mingru_backward(int32_t segments, int32_t horizon, int32_t width, const float* projected,
                         const float* start, const uint8_t* resets, const float* hidden,
                         const float* grad_hidden, float* grad_projected, float* grad_start);

#ifdef __cplusplus
}
#endif

#endif
