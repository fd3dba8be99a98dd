// core.h - the recurrent core of a network: LSTM, GRU or MinGRU between encoder and heads.
//
// Rows of a workspace are steps of some segments, in order of time: step t of segment s is row
// t * segments + s. A tile is a few whole steps, at most PUF_TILE rows. Forwards, tiles come in
// order of time, and each goes through to the loss; backwards, they come in reverse. Observations
// must be read (puf_network_read) before each call that takes a tile through the encoder.
#ifndef PUF_NN_CORE_H
#define PUF_NN_CORE_H

#include "network.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PUF_STATES = 2 };  // parts of a recurrent state: hidden, and the cell of an LSTM

// A recurrent state in memory of torch, [rows, core_width] each; NULL: the core has no such part,
// or it is 0.
typedef struct {
    float* parts[PUF_STATES];
} PufState;

int32_t puf_core_num_states(const PufNetwork* network);

void puf_core_clear(const PufNetwork* network, const PufState* state, size_t at);
// Copies between the state before the step of a row and row `at` of a state; what is loaded is 0
// where the step begins an episode.
void puf_core_load(const PufNetwork* network, PufWorkspace* work, int32_t row,
                   const PufState* state, size_t at);
void puf_core_store(const PufNetwork* network, const PufWorkspace* work, int32_t row,
                    const PufState* state, size_t at);

// Takes a tile from observations to work->steps.outputs. The state before its first step must be
// loaded, and work->core.kept set for all of its rows and for the step after it. The state before
// that step is left at the rows behind the tile.
void puf_core_forward(const PufNetwork* network, PufWorkspace* work, int32_t from, int32_t segments,
                      int32_t steps);
// From work->steps.gradients of the same tile to the hidden states of its rows. Partial gradients
// are written if `first`, else added.
void puf_core_backward_outputs(const PufNetwork* network, PufWorkspace* work, int32_t from,
                               int32_t rows, float* partial, bool first);
// From there back through time and encoder. `kept` after the last step of all must be 0.
void puf_core_backward(const PufNetwork* network, PufWorkspace* work, int32_t from,
                       int32_t segments, int32_t steps, float* partial, bool first);

#ifdef __cplusplus
}
#endif
#endif
