// network.h - a policy of pufferlib.models as layers, over the memory of its torch parameters.
//
// A network reads its parameters where torch keeps them, and packs them once after each update.
// Work happens in tiles of PUF_TILE steps, each thread in a workspace of its own.
//
//   observations -> layers of branch 0 -> heads (logits, means, value)
//               \-> layers of branch 1 -> value, where the critic is separate
#ifndef PUF_NN_NETWORK_H
#define PUF_NN_NETWORK_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { PUF_OBS_U8, PUF_OBS_F32, PUF_OBS_F64, PUF_OBS_I32, PUF_OBS_I64 } PufObsType;

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
    float *value, *mean, *square;  // memory of torch: itself and Adam's moments
    size_t grad_at;                // in the joined gradient, which lies as torch's would
} PufParam;

// y = finish(x w^T + b), w [out, in] as in torch.
typedef struct {
    int32_t in, out, in_stride, out_stride;
    PufFinish finish;
    bool needs_input_grad;
    bool is_table;
    bool by_input;            // a partial gradient lies as [in, out_stride], not [out, in_stride]
    size_t grad_at, bias_at;  // in a partial gradient
    float *panels, *back, *bias;  // w^T and w in panels
    const float* table;           // [in, out]: that of torch
} PufLayer;

typedef struct PufNetwork {
    const PufKernels* kernels;
    PufNetworkSpec spec;  // its arrays are the network's own
    PufActionHead head;
    int32_t num_branches, num_layers, num_params;
    int32_t num_outputs;              // logits, means, value
    PufLayer layers[PUF_MAX_LAYERS];  // of branch 0, branch 1, then the heads
    int32_t num_heads, first_head;    // one for all outputs, or actor and critic
    PufParam params[2 * PUF_MAX_LAYERS + 2];
    size_t grad_floats;     // of the joined gradient
    size_t partial_floats;  // of one partial gradient, padded
    size_t log_std_at;      // in a partial gradient
    size_t obs_bytes;
    int32_t x_stride, widest;
    float* log_std;  // [num_continuous], and std behind it
} PufNetwork;

// The memory that one thread needs to take a tile forwards and backwards.
typedef struct {
    float* x;                       // [PUF_TILE, x_stride]
    int32_t* rows_of_table;         // [PUF_TILE, obs_size], for categories
    float* hidden[PUF_MAX_LAYERS];  // what each layer gave, [PUF_TILE, out_stride]
    float* slopes[2];               // gradients on their way back, [PUF_TILE, widest]
    float* head_slopes;             // [PUF_TILE, padded num_outputs]
    int32_t* legal;                 // [mask width, PUF_TILE]
    PufColumns steps;
} PufWorkspace;

PufNetwork* puf_network_create(const PufNetworkSpec* spec, const PufKernels* kernels);
void puf_network_destroy(PufNetwork* network);

// Parameters in order: for each branch and layer weight and bias (a table alone for categories),
// then weight and bias of actor and of critic, then log_std if there are continuous actions.
void puf_network_pack(PufNetwork* network);  // after `value` of all params is set, and changed
// Packs rows [first, last) of one parameter: they may change alone.
void puf_network_pack_rows(PufNetwork* network, int32_t param, int32_t first, int32_t last);

PufWorkspace* puf_workspace_create(const PufNetwork* network);
void puf_workspace_destroy(PufWorkspace* work);

// Puts observations in rows of the tile; `rows` points to each of them.
void puf_network_read(const PufNetwork* network, PufWorkspace* work, int32_t row,
                      const uint8_t* observation);
void puf_network_read_mask(const PufNetwork* network, PufWorkspace* work, int32_t row,
                           const uint8_t* legal);
// From what was read to work->steps.outputs.
void puf_network_forward(const PufNetwork* network, PufWorkspace* work, int32_t rows);
// From work->steps.gradients to a partial gradient: written if `first`, else added.
void puf_network_backward(const PufNetwork* network, PufWorkspace* work, int32_t rows,
                          float* partial, bool first);
// Sums partial gradients into rows [first, last) of a param of the joined gradient; returns the sum
// of their squares.
double puf_network_join(const PufNetwork* network, int32_t param, int32_t first, int32_t last,
                        int32_t num_partials, const float* partials, float* joined);

static inline int32_t puf_network_mask_width(const PufNetwork* network) {
    return network->head.num_logits ? network->head.num_logits : 1;
}

#ifdef __cplusplus
}
#endif
#endif
