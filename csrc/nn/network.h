// network.h - a policy of pufferlib.models as layers, over the memory of its torch parameters.
//
// A network reads its parameters where torch keeps them, and packs them once after each update.
// Work happens in tiles of PUF_TILE steps, each thread in a workspace of its own.
//
//   observations -> layers of branch 0 -> recurrent core, if any -> heads (logits, means, value)
//               \-> layers of branch 1 -> value, where the critic is separate
#ifndef PUF_NN_NETWORK_H
#define PUF_NN_NETWORK_H

#include <string.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// memcpy for rows that are often a few floats: a call takes longer than such a copy.
static inline void puf_copy(void* to, const void* from, size_t bytes) {
    if (bytes == 16)
        memcpy(to, from, 16);
    else if (bytes > 64 || bytes % 4)
        memcpy(to, from, bytes);
    else
        for (size_t i = 0; i < bytes; i += 4) memcpy((uint8_t*)to + i, (const uint8_t*)from + i, 4);
}

typedef enum {
    PUF_OBS_U8,
    PUF_OBS_I8,
    PUF_OBS_I16,
    PUF_OBS_I32,
    PUF_OBS_I64,
    PUF_OBS_F32,
    PUF_OBS_F64,
} PufObsType;

enum { PUF_MAX_LAYERS = 64, PUF_MAX_ACTION_PARTS = 64 };

// What a network is made of. Arrays are copied.
typedef struct {
    PufObsType obs_type;
    int32_t obs_size;  // numbers of one observation
    // Numbers: they become (x - low) * factor, each one for all or [obs_size]; NULL: as they are.
    const float *low, *factor;
    bool uniform;
    // Categories: number i is clipped to lowest[i]..highest[i] and names row x + offset[i] of a
    // table [table_rows, widths[0]]; the rows are summed. NULL: the observation is numbers.
    const int64_t *lowest, *highest, *offset;
    int32_t table_rows;
    int32_t num_layers;
    const int32_t* widths;  // [num_layers]
    PufFinish activation;   // PUF_RELU or PUF_TANH, after every layer
    bool separate;
    PufCoreKind core;  // a policy with a core is not separate; a MinGRU is as wide as its input
    int32_t core_width;
    int32_t num_discrete, num_continuous;
    const int32_t* nvec;
    bool squash;
    const float *center, *scale, *low_action, *high_action;  // [num_continuous]
    const uint8_t* bounded;
} PufNetworkSpec;

typedef enum { PUF_WEIGHT, PUF_BIAS, PUF_TABLE, PUF_LOG_STD } PufParamKind;

// One parameter tensor [rows, cols] of torch, and its place in a layer.
typedef struct {
    PufParamKind kind;
    int32_t layer, first_row, rows, cols;
    float *value, *mean, *square;  // memory of torch: the parameter and Adam's moments, or Muon's
    size_t grad_at;                // in the joined gradient, which has torch's layout
} PufParam;

// y = finish(x w^T + b), w [out, in] as in torch. Gates of a core begin at multiples of PUF_ALIGN:
// row r of the parameters is row r / gate * gate_stride + r % gate of w, where `gate` is not `out`.
typedef struct {
    int32_t in, out, in_stride, out_stride;
    int32_t gate, gate_stride;
    PufFinish finish;
    bool needs_input_grad;
    bool is_table;
    bool is_small;            // a head of few outputs: see `dots`
    bool by_input;            // a partial gradient lies as [in, out_stride], not [out, in_stride]
    size_t grad_at, bias_at;  // in a partial gradient
    float *panels, *back, *bias;  // w^T and w in panels
    float* rows;                  // w, [out, in_stride], instead of both for a small head
    const float* table;           // [in, out]: that of torch
} PufLayer;

typedef struct PufNetwork {
    const PufKernels* kernels;
    PufNetworkSpec spec;  // its arrays are the network's own
    PufActionHead head;
    int32_t num_branches, num_layers, num_params;
    int32_t num_outputs;              // logits, means, value
    PufLayer layers[PUF_MAX_LAYERS];  // of branch 0, branch 1, core, then the heads
    int32_t core_at, core_stride;     // the core's first layer of two; floats of its units
    int32_t num_heads, first_head;    // one for all outputs, or actor and critic
    PufParam params[2 * PUF_MAX_LAYERS + 2];
    size_t grad_floats;     // of the joined gradient
    size_t partial_floats;  // of one partial gradient, padded
    size_t log_std_at;      // in a partial gradient
    size_t obs_bytes;
    bool reads_as_is;  // observations are floats that enter the first layer as they are
    int32_t x_stride, widest;
    float* log_std;  // [num_continuous], and std behind it
} PufNetwork;

// The part of a workspace that a core needs; see core.h. Rows are [core_stride] floats.
typedef struct {
    float *hidden, *cells;  // [capacity + PUF_TILE]: state before each row's step, 0 after a reset
    int32_t* kept;       // [capacity + PUF_TILE]: 0 where a row's step begins an episode, else -1
    float* extra;        // [capacity], see PufCell
    float* slopes;       // [capacity]: of the loss by the hidden state after a step
    float* read_slopes;  // [capacity]: by the sums of the layer that reads a MinGRU's
    float* output;       // [PUF_TILE]: the hidden state after each step of a tile
    float *later_hidden, *later_cell;  // [PUF_TILE]: slopes by the state before the next step
} PufCoreWork;

// The memory that one thread needs to take a tile forwards and backwards. A core remembers more: of
// its layers and those below, `hidden` has all rows of some segments.
typedef struct {
    int32_t capacity;               // rows; PUF_TILE without a core
    float* x;                       // [PUF_TILE, x_stride]
    uint8_t* seen;                  // [obs_bytes]: one observation, normalised
    int32_t* rows_of_table;         // [PUF_TILE, obs_size], for categories
    float* hidden[PUF_MAX_LAYERS];  // what each layer gave, [PUF_TILE or capacity, out_stride]
    float* slopes[2];               // gradients on their way back, [PUF_TILE, widest]
    float* head_slopes;             // [PUF_TILE, padded num_outputs]
    int32_t* legal;                 // [mask width, PUF_TILE]
    PufColumns steps;
    PufCoreWork core;
} PufWorkspace;

PufNetwork* puf_network_create(const PufNetworkSpec* spec, const PufKernels* kernels);
void puf_network_destroy(PufNetwork* network);

// Parameters in order: for each branch and layer weight and bias (a table alone for categories),
// then those of the core (weight and bias from the input, then from the hidden state: for a MinGRU
// those that read it), of actor and of critic, then log_std if there are continuous actions.
void puf_network_pack(PufNetwork* network);  // after `value` of all params is set, and changed
// Packs rows [first, last) of one parameter: they may change alone.
void puf_network_pack_rows(PufNetwork* network, int32_t param, int32_t first, int32_t last);

PufWorkspace* puf_workspace_create(const PufNetwork* network, int32_t capacity);
void puf_workspace_destroy(PufWorkspace* work);

// Writes an observation, or a row of action masks, into row `row` of the tile.
static inline void puf_network_read(const PufNetwork* network, PufWorkspace* work, int32_t row,
                                    const uint8_t* observation);
void puf_network_convert(const PufNetwork* network, PufWorkspace* work, int32_t row,
                         const uint8_t* observation);
void puf_network_read_mask(const PufNetwork* network, PufWorkspace* work, int32_t row,
                           const uint8_t* legal);

// Computes work->steps.outputs of the rows that were read; without a core.
void puf_network_forward(const PufNetwork* network, PufWorkspace* work, int32_t rows);
// From work->steps.gradients to a partial gradient: written if `first`, else added.
void puf_network_backward(const PufNetwork* network, PufWorkspace* work, int32_t rows,
                          float* partial, bool first);

// The same in parts, for core.c. A tile is rows [from, from + rows) of what `hidden` keeps.
void puf_encode(const PufNetwork* network, PufWorkspace* work, int32_t from, int32_t rows);
void puf_decode(const PufNetwork* network, PufWorkspace* work, int32_t head, int32_t rows,
                const float* features);
// Gives the slopes of a head's features before their activation, which was `finish`.
void puf_decode_backward(const PufNetwork* network, PufWorkspace* work, int32_t head, int32_t rows,
                         const float* features, PufFinish finish, float* slopes, float* partial,
                         bool first);
// `slopes` are those of the last layer of a branch, before its activation.
void puf_encode_backward(const PufNetwork* network, PufWorkspace* work, int32_t branch,
                         int32_t from, int32_t rows, const float* slopes, float* partial,
                         bool first);

// One layer: y[rows, out_stride] of x, on top of what y holds if `add`.
void puf_layer_forward(const PufNetwork* network, int32_t layer, int32_t rows, const float* x,
                       int32_t x_stride, bool add, float* y);
// Slopes of x by those of y before its activation; through the activation of x, `finish`.
void puf_layer_slopes(const PufNetwork* network, int32_t layer, int32_t rows, const float* slopes,
                      PufFinish finish, const float* x, bool add, float* x_slopes);
// Adds what the slopes of y give the parameters.
void puf_layer_backward(const PufNetwork* network, int32_t layer, int32_t rows, const float* x,
                        int32_t x_stride, const float* slopes, float* partial, bool first);

// Sums partial gradients into rows [first, last) of a param of the joined gradient; returns the sum
// of their squares.
double puf_network_join(const PufNetwork* network, int32_t param, int32_t first, int32_t last,
                        int32_t num_partials, const float* partials, float* joined);

static inline void puf_network_read(const PufNetwork* network, PufWorkspace* work, int32_t row,
                                    const uint8_t* observation) {
    if (network->reads_as_is)
        puf_copy(work->x + (size_t)row * (size_t)network->x_stride, observation,
                 network->obs_bytes);
    else
        puf_network_convert(network, work, row, observation);
}

static inline int32_t puf_network_action_words(const PufNetwork* network) {
    return network->head.num_discrete + network->head.num_continuous;
}

static inline int32_t puf_network_mask_width(const PufNetwork* network) {
    return network->head.num_logits ? network->head.num_logits : 1;
}

#ifdef __cplusplus
}
#endif
#endif
