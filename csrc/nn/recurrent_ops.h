// cells.h - what recurrent cells do between their matrix products: gates, and the scan of a MinGRU.
#ifndef PUF_CELLS_H
#define PUF_CELLS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// All arrays are float32, rows contiguous, and none overlaps another unless said. `kept` is one
// float a row, 0 where an episode begins with the next step and 1 elsewhere; NULL means all 1.
// Formulas stand in cells.c; gates of an LSTM are input, forget, candidate, output, as in torch.

// One step of an LSTM. gates [rows, 4 width] come as sums and leave as activations; cell [rows,
// width] is that before the step. Gives hidden, the cell after the step, and tanh of the latter
// before it was reset (squashed, may be NULL). next_hidden (may be NULL) and next_cell are what the
// next step begins with: reset where kept is 0.
void puf_lstm_forward(int32_t rows, int32_t width, float* gates, const float* cell,
                      const float* kept, float* hidden, float* next_hidden, float* next_cell,
                      float* squashed);

// Its gradient. of_output is that of hidden alone, of_hidden and of_cell those of what the next
// step begins with; of_cell is replaced by that of `cell`. Gives of_gates, of the sums.
void puf_lstm_backward(int32_t rows, int32_t width, const float* gates, const float* cell,
                       const float* squashed, const float* kept, const float* of_output,
                       const float* of_hidden, float* of_cell, float* of_gates);

// One step of a GRU with gates reset, update, candidate, as in torch. projected [rows, 3 width] are
// the sums from the input, remembered [rows, 3 width] those from `hidden`, biases included. gates
// [rows, 3 width] (may be NULL) gets the activations; output and next_hidden are as above.
void puf_gru_forward(int32_t rows, int32_t width, const float* projected, const float* remembered,
                     const float* hidden, const float* kept, float* gates, float* output,
                     float* next_hidden);

// Its gradient. inner [rows, width] is the candidate's part of `remembered`. of_hidden is that of
// what the next step begins with and is replaced by that of `hidden`, as far as it does not go
// through `remembered`. Gives of_projected and of_remembered [rows, 3 width].
void puf_gru_backward(int32_t rows, int32_t width, const float* gates, const float* inner,
                      const float* hidden, const float* kept, const float* of_output,
                      float* of_hidden, float* of_projected, float* of_remembered);

// All steps of a MinGRU: projected [segments, horizon, 2 width] holds gate and candidate, start
// [segments, width] what it begins with, resets [segments, horizon] (may be NULL) is 1 where a step
// begins an episode. Gives hidden [segments, horizon, width].
void puf_mingru_forward(int32_t segments, int32_t horizon, int32_t width, const float* projected,
                        const float* start, const uint8_t* resets, float* hidden);

// Its gradient: of_hidden in, of_projected and of_start out.
void puf_mingru_backward(int32_t segments, int32_t horizon, int32_t width, const float* projected,
                         const float* start, const uint8_t* resets, const float* hidden,
                         const float* of_hidden, float* of_projected, float* of_start);

#ifdef __cplusplus
}
#endif

#endif
