// network.c - see network.h.
#include "network.h"

#include <stdlib.h>
#include <string.h>

#include "puffer.h"
#include "threads.h"

// ---- Building -----------------------------------------------------------------------------------

// Pieces of one allocation, 64-byte aligned: the first pass counts bytes, the second assigns them.
typedef struct {
    uint8_t* memory;
    size_t used;
} Arena;

static void* carve(Arena* arena, size_t bytes) {
    void* at = arena->memory ? arena->memory + arena->used : NULL;
    arena->used += (bytes + 63) / 64 * 64;
    return at;
}

static float* carve_floats(Arena* arena, size_t count) {
    return carve(arena, count * sizeof(float));
}

static void* copied(Arena* arena, const void* from, size_t bytes) {
    if (!from) return NULL;
    void* to = carve(arena, bytes);
    if (to) memcpy(to, from, bytes);
    return to;
}

static PufLayer* add_layer(PufNetwork* net, int32_t in, int32_t out, PufFinish finish,
                           bool needs_input_grad) {
    PufLayer* layer = &net->layers[net->num_layers++];
    *layer = (PufLayer){.in = in,
                        .out = out,
                        .in_stride = puf_padded(in),
                        .out_stride = puf_padded(out),
                        .gate = out,
                        .gate_stride = out,
                        .finish = finish,
                        .needs_input_grad = needs_input_grad};
    // The layout with less padding; by input where both are equal, because the gradient of the bias
    // comes with that one. It is transposed when gradients are joined.
    const int64_t lanes = net->kernels->lanes;
    const int64_t straight = (in + lanes - 1) / lanes * lanes * out;
    const int64_t turned = (out + lanes - 1) / lanes * lanes * in;
    layer->by_input = straight >= turned;
    return layer;
}

static void add_param(PufNetwork* net, PufParamKind kind, int32_t layer, int32_t first_row,
                      int32_t rows, int32_t cols) {
    net->params[net->num_params++] = (PufParam){.kind = kind,
                                                .layer = layer,
                                                .first_row = first_row,
                                                .rows = rows,
                                                .cols = cols,
                                                .grad_at = net->grad_floats};
    net->grad_floats += (size_t)rows * (size_t)cols;
}

static void add_dense_params(PufNetwork* net, int32_t layer, int32_t first_row, int32_t rows) {
    add_param(net, PUF_WEIGHT, layer, first_row, rows, net->layers[layer].in);
    add_param(net, PUF_BIAS, layer, first_row, rows, 1);
}

static int32_t num_gates(PufCoreKind core) {
    return core == PUF_LSTM ? 4 : core == PUF_GRU ? 3 : 2;
}

static void add_gates(PufNetwork* net, int32_t in) {
    const int32_t index = net->num_layers, gates = num_gates(net->spec.core);
    PufLayer* layer = add_layer(net, in, gates * net->core_stride, PUF_PLAIN, true);
    layer->gate = net->spec.core_width;
    layer->gate_stride = net->core_stride;
    add_dense_params(net, index, 0, gates * layer->gate);
}

static void add_core(PufNetwork* net, int32_t features) {
    const int32_t width = net->spec.core_width;
    net->core_at = net->num_layers;
    net->core_stride = puf_padded(width);
    add_gates(net, features);
    if (net->spec.core != PUF_MINGRU) {
        add_gates(net, width);
    } else {
        add_layer(net, width, width, PUF_RELU, true);
        add_dense_params(net, net->core_at + 1, 0, width);
    }
}

// Layers and params, without memory.
static void lay_out(PufNetwork* net) {
    const PufNetworkSpec* spec = &net->spec;
    for (int32_t branch = 0; branch < net->num_branches; branch++) {
        int32_t in = spec->obs_size;
        for (int32_t i = 0; i < spec->num_layers; i++) {
            const int32_t index = net->num_layers, out = spec->widths[i];
            const bool is_table = i == 0 && spec->offset;
            PufLayer* layer =
                add_layer(net, is_table ? spec->table_rows : in, out, spec->activation, i > 0);
            layer->is_table = is_table;
            if (is_table) {
                layer->by_input = true;
                add_param(net, PUF_TABLE, index, 0, spec->table_rows, out);
            } else {
                add_dense_params(net, index, 0, out);
            }
            in = out;
        }
    }
    int32_t features = spec->widths[spec->num_layers - 1];
    if (spec->core) {
        add_core(net, features);
        features = spec->core_width;
    }
    const int32_t actions = net->num_outputs - 1;
    const int32_t first = net->first_head = net->num_layers;
    add_layer(net, features, spec->separate ? actions : net->num_outputs, PUF_PLAIN, true);
    if (spec->separate) add_layer(net, features, 1, PUF_PLAIN, true);
    net->num_heads = net->num_layers - first;
    for (int32_t i = first; i < net->num_layers; i++) {
        PufLayer* layer = &net->layers[i];
        layer->is_small = 2 * layer->out <= net->kernels->lanes;
        if (layer->is_small) layer->by_input = false;
    }
    add_dense_params(net, first, 0, actions);
    if (spec->separate)
        add_dense_params(net, first + 1, 0, 1);
    else
        add_dense_params(net, first, actions, 1);
    if (spec->num_continuous) add_param(net, PUF_LOG_STD, -1, 0, spec->num_continuous, 1);

    size_t at = 0;
    for (int32_t i = 0; i < net->num_layers; i++) {
        PufLayer* layer = &net->layers[i];
        layer->grad_at = at;
        at += layer->by_input ? (size_t)layer->in * (size_t)layer->out_stride
                              : (size_t)layer->out * (size_t)layer->in_stride;
        layer->bias_at = at;
        at += (size_t)layer->out_stride;
        if (layer->out_stride > net->widest) net->widest = layer->out_stride;
        if (!layer->is_table && layer->in_stride > net->widest) net->widest = layer->in_stride;
    }
    net->log_std_at = at;
    net->partial_floats = at + (size_t)puf_padded(spec->num_continuous);
}

// Assigns all memory that the network owns; an arena without memory only counts.
static void place(PufNetwork* net, Arena* arena) {
    PufNetworkSpec* spec = &net->spec;
    const size_t scales = spec->uniform ? 1 : (size_t)spec->obs_size;
    const size_t reals = (size_t)spec->num_continuous;
    spec->low = copied(arena, spec->low, scales * sizeof(float));
    spec->factor = copied(arena, spec->factor, scales * sizeof(float));
    const size_t choices = (size_t)spec->obs_size * sizeof(int64_t);
    spec->lowest = copied(arena, spec->lowest, choices);
    spec->highest = copied(arena, spec->highest, choices);
    spec->offset = copied(arena, spec->offset, choices);
    spec->widths = copied(arena, spec->widths, (size_t)spec->num_layers * sizeof(int32_t));
    spec->nvec = copied(arena, spec->nvec, (size_t)spec->num_discrete * sizeof(int32_t));
    spec->center = copied(arena, spec->center, reals * sizeof(float));
    spec->scale = copied(arena, spec->scale, reals * sizeof(float));
    spec->low_action = copied(arena, spec->low_action, reals * sizeof(float));
    spec->high_action = copied(arena, spec->high_action, reals * sizeof(float));
    spec->bounded = copied(arena, spec->bounded, reals);
    net->log_std = carve_floats(arena, 2 * reals);
    for (int32_t i = 0; i < net->num_layers; i++) {
        PufLayer* layer = &net->layers[i];
        if (layer->is_table) continue;
        if (layer->is_small)
            layer->rows = carve_floats(arena, (size_t)layer->out * (size_t)layer->in_stride);
        else
            layer->panels = carve_floats(arena, (size_t)layer->in * (size_t)layer->out_stride);
        layer->bias = carve_floats(arena, (size_t)layer->out_stride);
        if (layer->needs_input_grad && !layer->is_small)
            layer->back = carve_floats(arena, (size_t)layer->out * (size_t)layer->in_stride);
    }
}

static PufCode check_spec(const PufNetworkSpec* spec) {
    bool good = spec->obs_size >= 1 && spec->num_layers >= 1 &&
                2 * spec->num_layers + 4 <= PUF_MAX_LAYERS &&
                spec->num_discrete + spec->num_continuous >= 1 &&
                spec->num_discrete <= PUF_MAX_ACTION_PARTS &&
                spec->num_continuous <= PUF_MAX_ACTION_PARTS &&
                (spec->activation == PUF_RELU || spec->activation == PUF_TANH) &&
                (!spec->offset || spec->table_rows >= 1);
    for (int32_t i = 0; good && i < spec->num_layers; i++)
        good = spec->widths[i] >= 1 && spec->widths[i] <= 1 << 16;
    if (good && spec->core)
        good = !spec->separate && spec->core_width >= 1 && spec->core_width <= 1 << 16 &&
               (spec->core != PUF_MINGRU || spec->core_width == spec->widths[spec->num_layers - 1]);
    int64_t logits = 0;
    for (int32_t i = 0; good && i < spec->num_discrete; i++) {
        good = spec->nvec[i] >= 1;
        logits += spec->nvec[i];
    }
    return good && logits <= 1 << 16
               ? PUF_OK
               : puf_fail(PUF_BAD_ARGUMENT, "invalid network: a size is out of range");
}

static const size_t obs_sizes[] = {[PUF_OBS_U8] = 1,  [PUF_OBS_I8] = 1,  [PUF_OBS_I16] = 2,
                                   [PUF_OBS_I32] = 4, [PUF_OBS_I64] = 8, [PUF_OBS_F32] = 4,
                                   [PUF_OBS_F64] = 8};

PufNetwork* puf_network_create(const PufNetworkSpec* spec, const PufKernels* kernels) {
    if (check_spec(spec)) return NULL;
    PufNetwork plan = {.kernels = kernels, .spec = *spec, .num_branches = spec->separate ? 2 : 1};
    int32_t num_logits = 0;
    for (int32_t i = 0; i < spec->num_discrete; i++) num_logits += spec->nvec[i];
    plan.num_outputs = num_logits + spec->num_continuous + 1;
    plan.obs_bytes = (size_t)spec->obs_size * obs_sizes[spec->obs_type];
    plan.reads_as_is = spec->obs_type == PUF_OBS_F32 && !spec->factor && !spec->offset;
    plan.x_stride = puf_padded(spec->obs_size);
    lay_out(&plan);
    PufNetwork counted = plan;
    Arena arena = {0};
    carve(&arena, sizeof(PufNetwork));
    place(&counted, &arena);
    arena.memory = aligned_alloc(64, arena.used);
    if (!arena.memory) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate %zu bytes for a network", arena.used);
        return NULL;
    }
    memset(arena.memory, 0, arena.used);
    arena.used = 0;
    PufNetwork* net = carve(&arena, sizeof(PufNetwork));
    *net = plan;
    place(net, &arena);
    net->head = (PufActionHead){.num_discrete = spec->num_discrete,
                                .num_continuous = spec->num_continuous,
                                .num_logits = num_logits,
                                .nvec = net->spec.nvec,
                                .squash = spec->squash,
                                .log_std = net->log_std,
                                .std = net->log_std + spec->num_continuous,
                                .center = net->spec.center,
                                .scale = net->spec.scale,
                                .low = net->spec.low_action,
                                .high = net->spec.high_action,
                                .bounded = net->spec.bounded};
    return net;
}

void puf_network_destroy(PufNetwork* network) { free(network); }

static void place_core(const PufNetwork* net, PufWorkspace* work, Arena* arena) {
    const PufCoreKind kind = net->spec.core;
    const size_t tile = PUF_TILE, capacity = (size_t)work->capacity;
    const size_t stride = (size_t)net->core_stride;
    PufCoreWork* core = &work->core;
    core->hidden = carve_floats(arena, (capacity + tile) * stride);
    core->kept = carve(arena, (capacity + tile) * sizeof(int32_t));
    core->slopes = carve_floats(arena, capacity * stride);
    core->output = carve_floats(arena, tile * stride);
    core->later_hidden = carve_floats(arena, tile * stride);
    if (kind == PUF_LSTM) {
        core->cells = carve_floats(arena, (capacity + tile) * stride);
        core->later_cell = carve_floats(arena, tile * stride);
    }
    if (kind == PUF_MINGRU)
        core->read_slopes = carve_floats(arena, capacity * stride);
    else
        core->extra = carve_floats(arena, capacity * stride);
}

static void place_workspace(const PufNetwork* net, PufWorkspace* work, Arena* arena) {
    const size_t tile = PUF_TILE, outputs = (size_t)net->num_outputs;
    const size_t choices = (size_t)net->head.num_discrete, reals = (size_t)net->head.num_continuous;
    work->x = carve_floats(arena, tile * (size_t)net->x_stride);
    work->seen = carve(arena, net->obs_bytes);
    if (net->spec.offset)
        work->rows_of_table = carve(arena, tile * (size_t)net->spec.obs_size * sizeof(int32_t));
    for (int32_t i = 0; i < net->num_layers; i++) {
        const size_t rows = i <= net->core_at ? (size_t)work->capacity : tile;
        work->hidden[i] = carve_floats(arena, rows * (size_t)net->layers[i].out_stride);
    }
    if (net->spec.core) place_core(net, work, arena);
    for (int32_t i = 0; i < 2; i++)
        work->slopes[i] = carve_floats(arena, tile * (size_t)net->widest);
    work->head_slopes = carve_floats(arena, tile * (size_t)puf_padded(net->num_outputs));
    work->legal = carve(arena, tile * (size_t)puf_network_mask_width(net) * sizeof(int32_t));
    PufColumns* steps = &work->steps;
    steps->outputs = carve_floats(arena, outputs * tile);
    steps->gradients = carve_floats(arena, outputs * tile);
    steps->entropies = carve_floats(arena, choices * tile);
    steps->entropy = carve_floats(arena, tile);
    steps->choices = carve(arena, choices * tile * sizeof(int32_t));
    steps->reals = carve_floats(arena, reals * tile);
    steps->env_reals = carve_floats(arena, reals * tile);
    steps->uniforms = carve_floats(arena, (choices + 2 * reals) * tile);
    steps->old_logprobs = carve_floats(arena, tile);
    steps->old_values = carve_floats(arena, tile);
    steps->advantages = carve_floats(arena, tile);
    steps->returns = carve_floats(arena, tile);
    steps->weights = carve_floats(arena, tile);
    steps->present = carve(arena, tile * sizeof(int32_t));
    steps->logprobs = carve_floats(arena, tile);
}

PufWorkspace* puf_workspace_create(const PufNetwork* network, int32_t capacity) {
    PufWorkspace counted = {.capacity = capacity};
    Arena arena = {0};
    carve(&arena, sizeof(PufWorkspace));
    place_workspace(network, &counted, &arena);
    arena.memory = aligned_alloc(PUF_APART, puf_apart(arena.used));
    if (!arena.memory) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate %zu bytes for a workspace", arena.used);
        return NULL;
    }
    memset(arena.memory, 0, arena.used);
    arena.used = 0;
    PufWorkspace* work = carve(&arena, sizeof(PufWorkspace));
    work->capacity = capacity;
    place_workspace(network, work, &arena);
    return work;
}

void puf_workspace_destroy(PufWorkspace* work) { free(work); }

// ---- Forwards -----------------------------------------------------------------------------------

static double number_at(PufObsType type, const uint8_t* from, int32_t index) {
    const uint8_t* at = from + (size_t)index * obs_sizes[type];
    switch (type) {
#define READ(code, Number)                \
    case code: {                          \
        Number value;                     \
        memcpy(&value, at, sizeof value); \
        return (double)value;             \
    }
        READ(PUF_OBS_U8, uint8_t)
        READ(PUF_OBS_I8, int8_t)
        READ(PUF_OBS_I16, int16_t)
        READ(PUF_OBS_I32, int32_t)
        READ(PUF_OBS_I64, int64_t)
        READ(PUF_OBS_F32, float)
        READ(PUF_OBS_F64, double)
#undef READ
    }
    return 0;
}

void puf_network_convert(const PufNetwork* net, PufWorkspace* work, int32_t row,
                         const uint8_t* observation) {
    const PufNetworkSpec* spec = &net->spec;
    const int32_t size = spec->obs_size;
    if (spec->offset) {
        int32_t* chosen = work->rows_of_table + (size_t)row * (size_t)size;
        for (int32_t i = 0; i < size; i++) {
            int64_t value = (int64_t)number_at(spec->obs_type, observation, i);
            if (value < spec->lowest[i]) value = spec->lowest[i];
            if (value > spec->highest[i]) value = spec->highest[i];
            chosen[i] = (int32_t)(value + spec->offset[i]);
        }
        return;
    }
    float* x = work->x + (size_t)row * (size_t)net->x_stride;
    if (spec->obs_type == PUF_OBS_U8) {
        static const float zero = 0.0f, one = 1.0f;
        net->kernels->scale_bytes(size, observation, spec->low ? spec->low : &zero,
                                  spec->factor ? spec->factor : &one,
                                  !spec->factor || spec->uniform, x);
    } else {
        for (int32_t i = 0; i < size; i++) {
            x[i] = (float)number_at(spec->obs_type, observation, i);
            const int32_t at = spec->uniform ? 0 : i;
            if (spec->factor) x[i] = (x[i] - spec->low[at]) * spec->factor[at];
        }
    }
}

void puf_network_read_mask(const PufNetwork* net, PufWorkspace* work, int32_t row,
                           const uint8_t* legal) {
    const int32_t width = puf_network_mask_width(net);
    for (int32_t i = 0; i < width; i++) work->legal[i * PUF_TILE + row] = -(int32_t)(legal[i] != 0);
}

static void look_up(const PufNetwork* net, const PufLayer* layer, PufWorkspace* work, int32_t rows,
                    float* y) {
    const int32_t size = net->spec.obs_size;
    const size_t out = (size_t)layer->out;
    for (int32_t row = 0; row < rows; row++) {
        const int32_t* chosen = work->rows_of_table + (size_t)row * (size_t)size;
        float* to = y + (size_t)row * (size_t)layer->out_stride;
        memcpy(to, layer->table + (size_t)chosen[0] * out, out * sizeof(float));
        for (int32_t i = 1; i < size; i++) {
            const float* from = layer->table + (size_t)chosen[i] * out;
            for (size_t k = 0; k < out; k++) to[k] += from[k];
        }
    }
}

void puf_layer_forward(const PufNetwork* net, int32_t index, int32_t rows, const float* x,
                       int32_t x_stride, bool add, float* y) {
    const PufLayer* layer = &net->layers[index];
    net->kernels->product(&(PufProduct){.rows = rows,
                                        .in = layer->is_table ? 0 : layer->in,
                                        .out = layer->out,
                                        .x = x,
                                        .x_stride = x_stride,
                                        .panels = layer->panels,
                                        .bias = layer->bias,
                                        .add = add,
                                        .finish = layer->finish,
                                        .y = y,
                                        .y_stride = layer->out_stride});
}

// Row `from` of what a layer gave.
static float* hidden_at(const PufNetwork* net, const PufWorkspace* work, int32_t index,
                        int32_t from) {
    return work->hidden[index] + (size_t)from * (size_t)net->layers[index].out_stride;
}

void puf_encode(const PufNetwork* net, PufWorkspace* work, int32_t from, int32_t rows) {
    const int32_t depth = net->spec.num_layers;
    for (int32_t branch = 0; branch < net->num_branches; branch++)
        for (int32_t i = 0; i < depth; i++) {
            const int32_t index = branch * depth + i;
            const PufLayer* layer = &net->layers[index];
            float* y = hidden_at(net, work, index, from);
            if (layer->is_table) look_up(net, layer, work, rows, y);
            puf_layer_forward(net, index, rows, i ? hidden_at(net, work, index - 1, from) : work->x,
                              i ? layer->in_stride : net->x_stride, layer->is_table, y);
        }
}

void puf_decode(const PufNetwork* net, PufWorkspace* work, int32_t head, int32_t rows,
                const float* features) {
    const int32_t index = net->first_head + head;
    const PufLayer* layer = &net->layers[index];
    const float* y = work->hidden[index];
    // the outputs of the second head, a value, are the last ones
    const int32_t first = head ? net->num_outputs - 1 : 0;
    float* column = work->steps.outputs + (size_t)first * PUF_TILE;
    work->steps.rows = rows;
    if (layer->is_small) {
        net->kernels->dots(rows, layer->in, layer->out, features, layer->in_stride, layer->rows,
                           layer->bias, column);
        return;
    }
    puf_layer_forward(net, index, rows, features, layer->in_stride, false, work->hidden[index]);
    for (int32_t i = 0; i < layer->out; i++, column += PUF_TILE)
        for (int32_t row = 0; row < rows; row++)
            column[row] = y[(size_t)row * (size_t)layer->out_stride + (size_t)i];
}

// The layer that a head reads where there is no core.
static int32_t features_of(const PufNetwork* net, int32_t head) {
    return (head + 1) * net->spec.num_layers - 1;
}

void puf_network_forward(const PufNetwork* net, PufWorkspace* work, int32_t rows) {
    puf_encode(net, work, 0, rows);
    for (int32_t head = 0; head < net->num_heads; head++)
        puf_decode(net, work, head, rows, work->hidden[features_of(net, head)]);
}

// ---- Backwards ----------------------------------------------------------------------------------

static void add_to_table(const PufNetwork* net, const PufLayer* layer, const PufWorkspace* work,
                         int32_t rows, const float* slopes, float* grad) {
    const int32_t size = net->spec.obs_size;
    const size_t stride = (size_t)layer->out_stride;
    for (int32_t row = 0; row < rows; row++)
        for (int32_t i = 0; i < size; i++) {
            const int32_t chosen = work->rows_of_table[(size_t)row * (size_t)size + (size_t)i];
            float* to = grad + (size_t)chosen * stride;
            const float* from = slopes + (size_t)row * stride;
            for (int32_t k = 0; k < layer->out; k++) to[k] += from[k];
        }
}

void puf_layer_backward(const PufNetwork* net, int32_t index, int32_t rows, const float* x,
                        int32_t x_stride, const float* slopes, float* partial, bool first) {
    const PufLayer* layer = &net->layers[index];
    const PufKernels* kernels = net->kernels;
    PufOuter outer = {.rows = rows, .grad = partial + layer->grad_at, .first = first};
    float* bias = partial + layer->bias_at;
    if (layer->by_input) {
        outer.n = layer->in, outer.a = x, outer.a_stride = x_stride;
        outer.k = layer->out, outer.b = slopes, outer.b_stride = layer->out_stride;
        outer.sums = bias;
    } else {
        outer.n = layer->out, outer.a = slopes, outer.a_stride = layer->out_stride;
        outer.k = layer->in, outer.b = x, outer.b_stride = x_stride;
        kernels->column_sums(rows, layer->out, slopes, layer->out_stride, bias, first);
    }
    outer.grad_stride = puf_padded(outer.k);
    kernels->outer(&outer);
}

static PufFinish slope_of(PufFinish finish) {
    return finish == PUF_RELU ? PUF_RELU_SLOPE : finish == PUF_TANH ? PUF_TANH_SLOPE : PUF_PLAIN;
}

void puf_layer_slopes(const PufNetwork* net, int32_t index, int32_t rows, const float* slopes,
                      PufFinish finish, const float* x, bool add, float* x_slopes) {
    const PufLayer* layer = &net->layers[index];
    net->kernels->product(&(PufProduct){.rows = rows,
                                        .in = layer->out,
                                        .out = layer->in,
                                        .x = slopes,
                                        .x_stride = layer->out_stride,
                                        .panels = layer->back,
                                        .add = add,
                                        .finish = slope_of(finish),
                                        .of = x,
                                        .y = x_slopes,
                                        .y_stride = layer->in_stride});
}

void puf_decode_backward(const PufNetwork* net, PufWorkspace* work, int32_t head, int32_t rows,
                         const float* features, PufFinish finish, float* slopes, float* partial,
                         bool first) {
    const int32_t index = net->first_head + head;
    const PufLayer* layer = &net->layers[index];
    const int32_t first_output = head ? net->num_outputs - 1 : 0;
    const float* column = work->steps.gradients + (size_t)first_output * PUF_TILE;
    if (layer->is_small) {
        net->kernels->dots_back(&(PufDotsBack){.rows = rows,
                                               .in = layer->in,
                                               .out = layer->out,
                                               .slopes = column,
                                               .weights = layer->rows,
                                               .x = features,
                                               .stride = layer->in_stride,
                                               .finish = slope_of(finish),
                                               .x_slopes = slopes,
                                               .grad = partial + layer->grad_at,
                                               .bias = partial + layer->bias_at,
                                               .first = first});
        return;
    }
    for (int32_t i = 0; i < layer->out; i++, column += PUF_TILE)
        for (int32_t row = 0; row < rows; row++)
            work->head_slopes[(size_t)row * (size_t)layer->out_stride + (size_t)i] = column[row];
    puf_layer_backward(net, index, rows, features, layer->in_stride, work->head_slopes, partial,
                       first);
    puf_layer_slopes(net, index, rows, work->head_slopes, finish, features, false, slopes);
}

void puf_encode_backward(const PufNetwork* net, PufWorkspace* work, int32_t branch, int32_t from,
                         int32_t rows, const float* slopes, float* partial, bool first) {
    const int32_t bottom = branch * net->spec.num_layers;
    int32_t index = bottom + net->spec.num_layers - 1;
    for (; index > bottom; index--) {
        const float* x = hidden_at(net, work, index - 1, from);
        float* next = slopes == work->slopes[0] ? work->slopes[1] : work->slopes[0];
        puf_layer_backward(net, index, rows, x, net->layers[index].in_stride, slopes, partial,
                           first);
        puf_layer_slopes(net, index, rows, slopes, net->spec.activation, x, false, next);
        slopes = next;
    }
    const PufLayer* layer = &net->layers[index];
    if (!layer->is_table) {
        puf_layer_backward(net, index, rows, work->x, net->x_stride, slopes, partial, first);
        return;
    }
    float* grad = partial + layer->grad_at;
    if (first) memset(grad, 0, (size_t)layer->in * (size_t)layer->out_stride * sizeof(float));
    add_to_table(net, layer, work, rows, slopes, grad);
}

void puf_network_backward(const PufNetwork* net, PufWorkspace* work, int32_t rows, float* partial,
                          bool first) {
    for (int32_t head = 0; head < net->num_heads; head++) {
        puf_decode_backward(net, work, head, rows, work->hidden[features_of(net, head)],
                            net->spec.activation, work->slopes[0], partial, first);
        puf_encode_backward(net, work, head, 0, rows, work->slopes[0], partial, first);
    }
}
