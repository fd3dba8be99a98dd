// muon.c - see muon.h.
//
// A matrix is worked on as y [long, short]: as it is, or turned if it has more columns than rows.
// One step of the iteration is y <- y (a I + b s + c s s) with s = y^T y. Items of work are rows of
// all matrices, so all threads help with each of them, and every sum is taken in a fixed order.
#include "muon.h"

#include <math.h>
#include <stdlib.h>

#include "puf_hot.h"
#include "puffer.h"
#include "turn.h"

enum {
    CHUNK = 32,  // rows of an item
    STEPS = 5,   // of the iteration; odd, so the last one leaves its result in y[1]
};
_Static_assert(PUF_MUON_PHASES == 3 + 3 * STEPS, "momentum, scale, the iteration, update");

static const float A = 3.4445f, B = -4.7750f, C = 2.0315f;

typedef struct {
    int32_t param;
    int32_t rows, cols;  // as in torch
    int32_t length, width;
    int32_t stride;  // odd in vectors, so that rows do not compete for the same lines of the cache
    bool is_turned;
    float* y[2];                // [length, stride], now and after a step
    float *square, *of_square;  // [width, stride]: s and s s
    float* panels;              // a I + b s + c s s, see puf_panel_at
    int32_t first_sum;          // of its items
} Matrix;

typedef struct {
    int32_t matrix, first, last;  // rows
} Item;

// The rows of all matrices: as in torch, of y, and of s.
typedef enum { OF_TORCH, OF_Y, OF_SQUARE, NUM_KINDS } Kind;

struct PufMuon {
    int32_t num_matrices;
    Matrix* matrices;
    int32_t num_items[NUM_KINDS];
    Item* items[NUM_KINDS];
    double* sums;  // [num_items[OF_TORCH]]: of squares
    float* memory;
};

// ---- Building -----------------------------------------------------------------------------------

static int32_t rows_of(const Matrix* matrix, Kind kind) {
    return kind == OF_TORCH ? matrix->rows : kind == OF_Y ? matrix->length : matrix->width;
}

static int32_t num_chunks(int32_t rows) { return (rows + CHUNK - 1) / CHUNK; }

// Gives a matrix its part of the memory; returns how many floats that is.
static size_t place(Matrix* matrix, float* memory) {
    const size_t large = (size_t)matrix->length * (size_t)matrix->stride;
    const size_t small = (size_t)matrix->stride * (size_t)matrix->stride;
    if (memory) {
        matrix->y[0] = memory, matrix->y[1] = memory + large;
        matrix->square = memory + 2 * large, matrix->of_square = matrix->square + small;
        matrix->panels = matrix->of_square + small;
    }
    return 2 * large + 3 * small;
}

static void add_matrix(PufMuon* muon, const PufNetwork* net, int32_t index) {
    const int32_t rows = net->params[index].rows, cols = net->params[index].cols;
    const bool is_turned = rows < cols;
    Matrix* matrix = &muon->matrices[muon->num_matrices++];
    *matrix = (Matrix){.param = index,
                       .rows = rows,
                       .cols = cols,
                       .length = is_turned ? cols : rows,
                       .width = is_turned ? rows : cols,
                       .stride = puf_padded(is_turned ? rows : cols) | PUF_ALIGN,
                       .is_turned = is_turned,
                       .first_sum = muon->num_items[OF_TORCH]};
    for (Kind kind = 0; kind < NUM_KINDS; kind++)
        muon->num_items[kind] += num_chunks(rows_of(matrix, kind));
}

static void list_items(const PufMuon* muon, Kind kind) {
    Item* item = muon->items[kind];
    for (int32_t i = 0; i < muon->num_matrices; i++) {
        const int32_t rows = rows_of(&muon->matrices[i], kind);
        for (int32_t first = 0; first < rows; first += CHUNK)
            *item++ = (Item){i, first, first + CHUNK < rows ? first + CHUNK : rows};
    }
}

PufMuon* puf_muon_create(const PufNetwork* network) {
    PufMuon* muon = calloc(1, sizeof(PufMuon));
    if (!muon) goto no_memory;
    muon->matrices = calloc((size_t)network->num_params, sizeof(Matrix));
    if (!muon->matrices) goto no_memory;
    for (int32_t i = 0; i < network->num_params; i++)
        if (puf_muon_steps(&network->params[i])) add_matrix(muon, network, i);
    for (Kind kind = 0; kind < NUM_KINDS; kind++) {
        muon->items[kind] = calloc((size_t)muon->num_items[kind] + 1, sizeof(Item));
        if (!muon->items[kind]) goto no_memory;
        list_items(muon, kind);
    }
    muon->sums = calloc((size_t)muon->num_items[OF_TORCH] + 1, sizeof(double));
    size_t floats = 0;
    for (int32_t i = 0; i < muon->num_matrices; i++) floats += place(&muon->matrices[i], NULL);
    muon->memory = aligned_alloc(64, (floats + PUF_ALIGN) * sizeof(float) / 64 * 64);
    if (!muon->sums || !muon->memory) goto no_memory;
    memset(muon->memory, 0, floats * sizeof(float));  // what pads rows and panels stays 0
    float* at = muon->memory;
    for (int32_t i = 0; i < muon->num_matrices; i++) at += place(&muon->matrices[i], at);
    return muon;
no_memory:
    puf_fail(PUF_NO_MEMORY, "cannot allocate the matrices of Muon");
    puf_muon_destroy(muon);
    return NULL;
}

void puf_muon_destroy(PufMuon* muon) {
    if (!muon) return;
    for (Kind kind = 0; kind < NUM_KINDS; kind++) free(muon->items[kind]);
    free(muon->matrices);
    free(muon->sums);
    free(muon->memory);
    free(muon);
}

bool puf_muon_fits(const PufMuon* muon, const PufNetwork* network) {
    int32_t at = 0;
    for (int32_t i = 0; i < network->num_params; i++) {
        if (!puf_muon_steps(&network->params[i])) continue;
        if (at == muon->num_matrices || muon->matrices[at].param != i) return false;
        at++;
    }
    return at == muon->num_matrices;
}

// ---- A step -------------------------------------------------------------------------------------

// Element (row, col) of torch's matrix, in y.
static size_t place_in_y(const Matrix* matrix, int32_t row, int32_t col) {
    return matrix->is_turned ? (size_t)col * (size_t)matrix->stride + (size_t)row
                             : (size_t)row * (size_t)matrix->stride + (size_t)col;
}

// Adds the gradient to the momentum; y becomes Nesterov's. Returns its sum of squares.
static double add_gradient(const Matrix* matrix, const PufMuonOptions* options, const float* grad,
                           float* momentum, const Item* item) {
    const float left = 1.0f - options->momentum;
    double sum = 0;
    for (int32_t row = item->first; row < item->last; row++)
        for (int32_t col = 0; col < matrix->cols; col++) {
            const size_t at = (size_t)row * (size_t)matrix->cols + (size_t)col;
            const float slope = grad[at] * options->grad_scale;
            momentum[at] += (slope - momentum[at]) * left;
            const float ahead = momentum[at] - (momentum[at] - slope) * left;
            matrix->y[0][place_in_y(matrix, row, col)] = ahead;
            sum += (double)ahead * (double)ahead;
        }
    return sum;
}

static void scale_rows(const PufMuon* muon, const Matrix* matrix, const Item* item) {
    double sum = 0;
    for (int32_t i = 0; i < num_chunks(matrix->rows); i++) sum += muon->sums[matrix->first_sum + i];
    const float norm = (float)sqrt(sum) + 1e-7f;
    const size_t stride = (size_t)matrix->stride;
    float* y = matrix->y[0];
    for (size_t i = (size_t)item->first * stride; i < (size_t)item->last * stride; i++)
        y[i] /= norm;
}

// Rows of x^T x [width, stride], for x [length, stride]: it is symmetric, so columns up to the last
// of these rows are enough.
static void square_rows(const PufKernels* kernels, const Matrix* matrix, int32_t length,
                        const float* x, float* to, const Item* item) {
    const size_t stride = (size_t)matrix->stride;
    for (int32_t first = 0; first < length; first += PUF_TILE) {
        const int32_t rows = length - first < PUF_TILE ? length - first : PUF_TILE;
        const float* part = x + (size_t)first * stride;
        kernels->outer(&(PufOuter){.rows = rows,
                                   .n = item->last - item->first,
                                   .k = item->last,
                                   .a = part + item->first,
                                   .a_stride = matrix->stride,
                                   .b = part,
                                   .b_stride = matrix->stride,
                                   .grad = to + (size_t)item->first * stride,
                                   .grad_stride = matrix->stride,
                                   .first = first == 0});
    }
}

// The rest of s: what is in these rows as columns.
static void mirror_rows(const Matrix* matrix, const Item* item) {
    const size_t stride = (size_t)matrix->stride;
    const size_t first = (size_t)item->first;
    puf_turn_words(item->last - item->first, item->first, matrix->square + first * stride, stride,
                   matrix->square + first, stride);
}

static float* packed_at(const PufKernels* kernels, const Matrix* matrix, int32_t i, int32_t o) {
    return matrix->panels + puf_panel_at(kernels->lanes, matrix->width, matrix->width, i, o);
}

PUF_HOT static void add_scaled(int32_t count, const float* restrict x, const float* restrict y,
                               float* restrict to) {
    for (int32_t i = 0; i < count; i++) to[i] = B * x[i] + C * y[i];
}

// Rows of a I + b s + c s s, packed, and the same as columns. A row lies in pieces of two vectors.
static void pack_polynomial(const PufKernels* kernels, const Matrix* matrix, const Item* item) {
    const int32_t width = matrix->width, piece = 2 * kernels->lanes;
    square_rows(kernels, matrix, width, matrix->square, matrix->of_square, item);
    for (int32_t row = item->first; row < item->last; row++) {
        for (int32_t col = 0; col < item->last; col += piece) {
            const size_t at = (size_t)row * (size_t)matrix->stride + (size_t)col;
            const int32_t count = item->last - col < piece ? item->last - col : piece;
            float* to = packed_at(kernels, matrix, row, col);
            add_scaled(count, matrix->square + at, matrix->of_square + at, to);
            for (int32_t i = 0; i < count && col + i < item->first; i++)
                *packed_at(kernels, matrix, col + i, row) = to[i];
        }
        *packed_at(kernels, matrix, row, row) += A;
    }
}

static void multiply_rows(const PufKernels* kernels, const Matrix* matrix, const float* from,
                          float* to, const Item* item) {
    const size_t at = (size_t)item->first * (size_t)matrix->stride;
    kernels->product(&(PufProduct){.rows = item->last - item->first,
                                   .in = matrix->width,
                                   .out = matrix->width,
                                   .x = from + at,
                                   .x_stride = matrix->stride,
                                   .panels = matrix->panels,
                                   .y = to + at,
                                   .y_stride = matrix->stride});
}

// Moves the rows of a parameter. The step is as long as one of Adam's (Liu et al. 2025).
static void move_rows(PufNetwork* net, const Matrix* matrix, float learning_rate,
                      const Item* item) {
    const float rate = learning_rate * 0.2f * sqrtf((float)matrix->length);
    float* value = net->params[matrix->param].value;
    for (int32_t row = item->first; row < item->last; row++)
        for (int32_t col = 0; col < matrix->cols; col++)
            value[(size_t)row * (size_t)matrix->cols + (size_t)col] -=
                rate * matrix->y[STEPS % 2][place_in_y(matrix, row, col)];
    puf_network_pack_rows(net, matrix->param, item->first, item->last);
}

// What is the same in all phases of a step.
typedef struct {
    const PufMuon* muon;
    const PufThreads* threads;
    int32_t worker;
    size_t phase;
} Turn;

// The next item of the phase, NULL when none is left; and its matrix.
static const Item* next_item(const Turn* turn, Kind kind, const Matrix** matrix) {
    const PufMuon* muon = turn->muon;
    const int32_t index =
        puf_threads_claim(turn->threads, turn->worker, turn->phase, muon->num_items[kind]);
    if (index < 0) return NULL;
    *matrix = &muon->matrices[muon->items[kind][index].matrix];
    return &muon->items[kind][index];
}

static void end_phase(Turn* turn, PufThreads* threads) {
    puf_threads_meet(threads);
    turn->phase++;
}

void puf_muon_step(PufMuon* muon, PufNetwork* network, PufThreads* threads, int32_t worker,
                   size_t phase, const PufMuonOptions* options, const float* joined) {
    const PufKernels* kernels = network->kernels;
    Turn turn = {muon, threads, worker, phase};
    const Item* item;
    const Matrix* matrix;
    while ((item = next_item(&turn, OF_TORCH, &matrix))) {
        const PufParam* param = &network->params[matrix->param];
        muon->sums[matrix->first_sum + item->first / CHUNK] =
            add_gradient(matrix, options, joined + param->grad_at, param->mean, item);
    }
    end_phase(&turn, threads);
    while ((item = next_item(&turn, OF_Y, &matrix))) scale_rows(muon, matrix, item);
    end_phase(&turn, threads);
    for (int32_t i = 0; i < STEPS; i++) {
        const int32_t from = i % 2, to = 1 - from;
        while ((item = next_item(&turn, OF_SQUARE, &matrix))) {
            square_rows(kernels, matrix, matrix->length, matrix->y[from], matrix->square, item);
            mirror_rows(matrix, item);
        }
        end_phase(&turn, threads);
        while ((item = next_item(&turn, OF_SQUARE, &matrix)))
            pack_polynomial(kernels, matrix, item);
        end_phase(&turn, threads);
        while ((item = next_item(&turn, OF_Y, &matrix)))
            multiply_rows(kernels, matrix, matrix->y[from], matrix->y[to], item);
        end_phase(&turn, threads);
    }
    while ((item = next_item(&turn, OF_TORCH, &matrix)))
        move_rows(network, matrix, options->learning_rate, item);
}
