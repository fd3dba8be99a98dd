// muon.h - Muon's step (Jordan et al. 2024): a matrix moves along the momentum of its gradient,
// made nearly orthogonal by a Newton-Schulz iteration; see Muon of pufferlib.training.optimizers.
#ifndef PUF_NN_MUON_H
#define PUF_NN_MUON_H

#include "network.h"
#include "threads.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PUF_MUON_PHASES = 18 };

typedef struct {
    float learning_rate, momentum;
    float grad_scale;  // gradients are multiplied by this
} PufMuonOptions;

// The memory that the matrices of a network need on their way.
typedef struct PufMuon PufMuon;

// Whether Muon steps a parameter: it has a momentum, which is `mean`, but no mean of squares.
static inline bool puf_muon_steps(const PufParam* param) { return param->mean && !param->square; }

PufMuon* puf_muon_create(const PufNetwork* network);  // NULL, with an error set, without memory
void puf_muon_destroy(PufMuon* muon);
bool puf_muon_fits(const PufMuon* muon, const PufNetwork* network);  // it has the same matrices

// Inside of a body, on all threads: steps all matrices by their joined gradients and packs them.
// It claims the items of PUF_MUON_PHASES phases from `phase` on.
void puf_muon_step(PufMuon* muon, PufNetwork* network, PufThreads* threads, int32_t worker,
                   size_t phase, const PufMuonOptions* options, const float* joined);

#ifdef __cplusplus
}
#endif
#endif
