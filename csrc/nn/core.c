// core.c - see core.h.
#include "core.h"

#include <string.h>

int32_t puf_core_num_states(const PufNetwork* net) {
    return net->spec.core == PUF_LSTM ? 2 : net->spec.core ? 1 : 0;
}

// ---- States -------------------------------------------------------------------------------------

static float* state_at(const PufNetwork* net, const PufWorkspace* work, int32_t part, int32_t row) {
    return (part ? work->core.cells : work->core.hidden) + (size_t)row * (size_t)net->core_stride;
}

void puf_core_clear(const PufNetwork* net, const PufState* state, size_t at) {
    const size_t width = (size_t)net->spec.core_width;
    for (int32_t part = 0; part < puf_core_num_states(net); part++)
        memset(state->parts[part] + at * width, 0, width * sizeof(float));
}

void puf_core_load(const PufNetwork* net, PufWorkspace* work, int32_t row, const PufState* state,
                   size_t at) {
    const size_t width = (size_t)net->spec.core_width;
    for (int32_t part = 0; part < puf_core_num_states(net); part++) {
        float* to = state_at(net, work, part, row);
        if (state->parts[part] && work->core.kept[row])
            memcpy(to, state->parts[part] + at * width, width * sizeof(float));
        else
            memset(to, 0, width * sizeof(float));
    }
}

void puf_core_store(const PufNetwork* net, const PufWorkspace* work, int32_t row,
                    const PufState* state, size_t at) {
    const size_t width = (size_t)net->spec.core_width;
    for (int32_t part = 0; part < puf_core_num_states(net); part++)
        memcpy(state->parts[part] + at * width, state_at(net, work, part, row),
               width * sizeof(float));
}

// ---- Forwards -----------------------------------------------------------------------------------

static float* row_of(const PufNetwork* net, float* memory, int32_t row) {
    return memory ? memory + (size_t)row * (size_t)net->core_stride : NULL;
}

static float* gates_at(const PufNetwork* net, const PufWorkspace* work, int32_t layer,
                       int32_t row) {
    return work->hidden[layer] + (size_t)row * (size_t)net->layers[layer].out_stride;
}

static float* features_at(const PufNetwork* net, const PufWorkspace* work, int32_t row) {
    return gates_at(net, work, net->core_at - 1, row);
}

// What the heads read, of the present tile.
static float* read_by_heads(const PufNetwork* net, const PufWorkspace* work) {
    return net->spec.core == PUF_MINGRU ? work->hidden[net->core_at + 1] : work->core.output;
}

// The cells of one step, which begins at `row`, `in_tile` rows into the tile.
static PufCell cell_at(const PufNetwork* net, const PufWorkspace* work, int32_t row,
                       int32_t in_tile, int32_t segments) {
    const PufCoreWork* core = &work->core;
    const bool has_sums = net->spec.core != PUF_MINGRU;
    return (PufCell){.rows = segments,
                     .width = net->core_stride,
                     .gates = gates_at(net, work, net->core_at, row),
                     .sums = has_sums ? gates_at(net, work, net->core_at + 1, in_tile) : NULL,
                     .hidden = row_of(net, core->hidden, row),
                     .cell = row_of(net, core->cells, row),
                     .next_hidden = row_of(net, core->hidden, row + segments),
                     .next_cell = row_of(net, core->cells, row + segments),
                     .kept = core->kept + row + segments,
                     .extra = row_of(net, core->extra, row),
                     .output = row_of(net, core->output, in_tile),
                     .slopes = row_of(net, core->slopes, row),
                     .later_hidden = core->later_hidden,
                     .later_cell = core->later_cell};
}

void puf_core_forward(const PufNetwork* net, PufWorkspace* work, int32_t from, int32_t segments,
                      int32_t steps) {
    const int32_t rows = segments * steps, input = net->core_at;
    const float* features = features_at(net, work, from);
    puf_encode(net, work, from, rows);
    puf_layer_forward(net, input, rows, features, net->layers[input].in_stride, false,
                      gates_at(net, work, input, from));
    for (int32_t done = 0; done < rows; done += segments) {
        const PufCell cell = cell_at(net, work, from + done, done, segments);
        if (cell.sums)
            puf_layer_forward(net, input + 1, segments, cell.hidden, net->core_stride, false,
                              cell.sums);
        net->kernels->cell_forward[net->spec.core](&cell);
    }
    if (net->spec.core == PUF_MINGRU) {  // relu(read(hidden) + features)
        float* y = read_by_heads(net, work);
        memcpy(y, features, (size_t)rows * (size_t)net->core_stride * sizeof(float));
        puf_layer_forward(net, input + 1, rows, work->core.output, net->core_stride, true, y);
    }
    puf_decode(net, work, 0, rows, read_by_heads(net, work));
}

// ---- Backwards ----------------------------------------------------------------------------------

void puf_core_backward_outputs(const PufNetwork* net, PufWorkspace* work, int32_t from,
                               int32_t rows, float* partial, bool first) {
    const PufCoreWork* core = &work->core;
    const float* features = read_by_heads(net, work);
    float* slopes = row_of(net, core->slopes, from);
    if (net->spec.core != PUF_MINGRU) {
        puf_decode_backward(net, work, 0, rows, features, PUF_PLAIN, slopes, partial, first);
        return;
    }
    const int32_t read = net->core_at + 1;
    float* read_slopes = row_of(net, core->read_slopes, from);
    puf_decode_backward(net, work, 0, rows, features, PUF_RELU, read_slopes, partial, first);
    puf_layer_backward(net, read, rows, core->output, net->core_stride, read_slopes, partial,
                       first);
    puf_layer_slopes(net, read, rows, read_slopes, PUF_PLAIN, NULL, false, slopes);
}

void puf_core_backward(const PufNetwork* net, PufWorkspace* work, int32_t from, int32_t segments,
                       int32_t steps, float* partial, bool first) {
    const PufCoreKind kind = net->spec.core;
    const int32_t rows = segments * steps, input = net->core_at;
    const float* features = features_at(net, work, from);
    const float* slopes = gates_at(net, work, input, from);
    for (int32_t done = rows - segments; done >= 0; done -= segments) {
        const PufCell cell = cell_at(net, work, from + done, done, segments);
        net->kernels->cell_backward[kind](&cell);
        if (cell.sums)
            puf_layer_slopes(net, input + 1, segments, kind == PUF_LSTM ? cell.gates : cell.sums,
                             PUF_PLAIN, NULL, kind == PUF_GRU, cell.later_hidden);
    }
    if (kind != PUF_MINGRU)
        puf_layer_backward(
            net, input + 1, rows, row_of(net, work->core.hidden, from), net->core_stride,
            kind == PUF_LSTM ? slopes : gates_at(net, work, input + 1, 0), partial, first);
    puf_layer_backward(net, input, rows, features, net->layers[input].in_stride, slopes, partial,
                       first);
    float* of_features = work->slopes[0];
    if (kind == PUF_MINGRU)  // what skipped the core
        memcpy(of_features, row_of(net, work->core.read_slopes, from),
               (size_t)rows * (size_t)net->core_stride * sizeof(float));
    puf_layer_slopes(net, input, rows, slopes, net->spec.activation, features, kind == PUF_MINGRU,
                     of_features);
    puf_encode_backward(net, work, 0, from, rows, of_features, partial, first);
}
