// params.c - parameters of a network on their way between torch's layout and that of the kernels:
// weights are packed for products, partial gradients joined into one; see network.h.
#include <math.h>
#include <string.h>

#include "network.h"
#include "turn.h"

// Where a row of a weight or bias lies in its layer.
static int32_t layer_row(const PufLayer* layer, const PufParam* param, int32_t row) {
    const int32_t at = param->first_row + row;
    return at / layer->gate * layer->gate_stride + at % layer->gate;
}

// How many of the rows from `row` to `last` lie side by side there.
static int32_t run_of(const PufLayer* layer, const PufParam* param, int32_t row, int32_t last) {
    const int32_t left = layer->gate - (param->first_row + row) % layer->gate;
    return last - row < left ? last - row : left;
}

// Writes columns [first, last) of the panels of w^T, side by side in its layer: rows of w.
static void pack_columns(const PufNetwork* net, const PufLayer* layer, const float* w,
                         int32_t first, int32_t last) {
    const int32_t lanes = net->kernels->lanes, in = layer->in;
    for (int32_t out = first, count; out < last; out += count) {
        const int32_t end = out / (2 * lanes) * 2 * lanes + 2 * lanes;  // of the panel
        count = (last < end ? last : end) - out;
        const size_t width = puf_panel_width(lanes, layer->out, out);
        puf_turn_words(count, in, w + (size_t)(out - first) * (size_t)in, (size_t)in,
                       layer->panels + puf_panel_at(lanes, in, layer->out, 0, out), width);
    }
}

static void pack_weight(const PufNetwork* net, const PufParam* param, int32_t first, int32_t last) {
    const PufLayer* layer = &net->layers[param->layer];
    const int32_t lanes = net->kernels->lanes, in = layer->in;
    for (int32_t row = first, count; row < last; row += count) {
        count = run_of(layer, param, row, last);
        const float* w = param->value + (size_t)row * (size_t)in;
        const int32_t out = layer_row(layer, param, row);
        if (!layer->is_small) pack_columns(net, layer, w, out, out + count);
        for (int32_t i = 0; i < count; i++, w += in) {
            if (layer->is_small)
                memcpy(layer->rows + (size_t)(out + i) * (size_t)layer->in_stride, w,
                       (size_t)in * sizeof(float));
            for (int32_t k = 0; k < in && layer->back; k += 2 * lanes) {
                const int32_t width = in - k < 2 * lanes ? in - k : 2 * lanes;
                memcpy(layer->back + puf_panel_at(lanes, layer->out, in, out + i, k), w + k,
                       (size_t)width * sizeof(float));
            }
        }
    }
}

void puf_network_pack_rows(PufNetwork* net, int32_t index, int32_t first, int32_t last) {
    const PufParam* param = &net->params[index];
    PufLayer* layer = param->layer < 0 ? NULL : &net->layers[param->layer];
    switch (param->kind) {
        case PUF_WEIGHT:
            pack_weight(net, param, first, last);
            break;
        case PUF_BIAS:
            for (int32_t row = first; row < last; row++)
                layer->bias[layer_row(layer, param, row)] = param->value[row];
            break;
        case PUF_TABLE:
            layer->table = param->value;
            break;
        case PUF_LOG_STD:
            for (int32_t i = first; i < last; i++) {
                net->log_std[i] = param->value[i];
                net->log_std[net->spec.num_continuous + i] = expf(param->value[i]);
            }
            break;
    }
}

void puf_network_pack(PufNetwork* net) {
    for (int32_t i = 0; i < net->num_params; i++)
        puf_network_pack_rows(net, i, 0, net->params[i].rows);
}

static void join_turned(const PufNetwork* net, const PufParam* param, int32_t first, int32_t last,
                        int32_t num_partials, const float* partials, float* joined) {
    enum { ROWS = 64, COLS = 16 };
    const PufLayer* layer = &net->layers[param->layer];
    const int32_t cols = param->cols;
    float sums[COLS * ROWS];
    for (int32_t row = first, count; row < last; row += count) {
        count = run_of(layer, param, row, last - row < ROWS ? last : row + ROWS);
        const float* from = partials + layer->grad_at + (size_t)layer_row(layer, param, row);
        for (int32_t col = 0; col < cols; col += COLS) {
            const int32_t width = cols - col < COLS ? cols - col : COLS;
            for (int32_t i = 0; i < width; i++)
                net->kernels->sum_parts(count, num_partials,
                                        from + (size_t)(col + i) * (size_t)layer->out_stride,
                                        net->partial_floats, sums + i * ROWS);
            puf_turn_words(width, count, sums, ROWS,
                           joined + (size_t)row * (size_t)cols + (size_t)col, (size_t)cols);
        }
    }
}

double puf_network_join(const PufNetwork* net, int32_t index, int32_t first, int32_t last,
                        int32_t num_partials, const float* partials, float* joined) {
    const PufParam* param = &net->params[index];
    const PufLayer* layer = param->layer < 0 ? NULL : &net->layers[param->layer];
    const size_t cols = (size_t)param->cols, stride = net->partial_floats;
    float* out = joined + param->grad_at;
    void (*const sum)(int32_t, int32_t, const float*, size_t, float*) = net->kernels->sum_parts;
    switch (param->kind) {
        case PUF_WEIGHT:
            if (layer->by_input) {
                join_turned(net, param, first, last, num_partials, partials, out);
                break;
            }
            for (int32_t row = first; row < last; row++)
                sum(param->cols, num_partials,
                    partials + layer->grad_at +
                        (size_t)layer_row(layer, param, row) * (size_t)layer->in_stride,
                    stride, out + (size_t)row * cols);
            break;
        case PUF_TABLE:
            for (int32_t row = first; row < last; row++)
                sum(param->cols, num_partials,
                    partials + layer->grad_at + (size_t)row * (size_t)layer->out_stride, stride,
                    out + (size_t)row * cols);
            break;
        case PUF_BIAS:
            for (int32_t row = first, count; row < last; row += count) {
                count = run_of(layer, param, row, last);
                sum(count, num_partials, partials + layer->bias_at + layer_row(layer, param, row),
                    stride, out + row);
            }
            break;
        case PUF_LOG_STD:
            sum(last - first, num_partials, partials + net->log_std_at + (size_t)first, stride,
                out + first);
            break;
    }
    return net->kernels->sum_squares((int32_t)((size_t)(last - first) * cols),
                                     out + (size_t)first * cols);
}
