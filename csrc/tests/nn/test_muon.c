// Muon's step beside the same in doubles and plain loops, for matrices of many shapes, and equal
// results for any number of threads.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/muon.h"
#include "puf_env.h"
#include "tests/check.h"

enum { LAYERS = 6, MOST = 100 };
static const int32_t widths[LAYERS] = {17, 33, 64, 64, 100, 16};  // tall, wide, square, odd
static const PufMuonOptions options = {.learning_rate = 0.1f, .momentum = 0.9f, .grad_scale = 0.5f};

static PufNetwork* network_of(const PufKernels* kernels) {
    static const int32_t nvec[] = {3};
    const PufNetworkSpec spec = {.obs_type = PUF_OBS_F32,
                                 .obs_size = 5,
                                 .num_layers = LAYERS,
                                 .widths = widths,
                                 .activation = PUF_TANH,
                                 .num_discrete = 1,
                                 .nvec = nvec};
    return puf_network_create(&spec, kernels);
}

// Parameters, momenta, mean squares and gradients, one after another. Muon steps the matrices
// between hidden layers.
static float* give_memory(PufNetwork* net, float size) {
    const size_t floats = net->grad_floats;
    float* memory = calloc(4 * floats, sizeof(float));
    PufRng rng = {7};
    for (size_t i = 0; i < 4 * floats; i++)
        memory[i] = (i < floats ? 1 : size) * puf_rand_normal(&rng);
    for (int32_t i = 0; i < net->num_params; i++) {
        PufParam* param = &net->params[i];
        const bool is_hidden = param->rows >= 16 && param->cols >= 16;
        param->value = memory + param->grad_at;
        param->mean = param->value + floats;
        param->square = is_hidden ? NULL : param->mean + floats;
    }
    puf_network_pack(net);
    return memory;
}

typedef struct {
    PufMuon* muon;
    PufNetwork* net;
    PufThreads* threads;
    const float* grads;
} Job;

static void body(void* context, int32_t worker) {
    const Job* job = context;
    puf_muon_step(job->muon, job->net, job->threads, worker, 0, &options, job->grads);
}

static void step(PufNetwork* net, const float* memory, int32_t num_threads) {
    PufThreads* threads = puf_threads_create(num_threads);
    Job job = {puf_muon_create(net), net, threads, memory + 3 * net->grad_floats};
    CHECK(job.muon && puf_muon_fits(job.muon, net));
    CHECK(puf_threads_run(threads, PUF_MUON_PHASES, body, &job) == PUF_OK);
    puf_muon_destroy(job.muon);
    puf_threads_destroy(threads);
}

// y <- 3.4445 y - 4.7750 (y y^T) y + 2.0315 (y y^T)^2 y, for y [rows, cols] with rows <= cols.
static void slow_iteration(int32_t rows, int32_t cols, double* y) {
    static double square[MOST][MOST], twice[MOST][MOST], next[MOST * MOST];
    for (int32_t i = 0; i < rows; i++)
        for (int32_t j = 0; j < rows; j++) {
            square[i][j] = 0;
            for (int32_t k = 0; k < cols; k++) square[i][j] += y[i * cols + k] * y[j * cols + k];
        }
    for (int32_t i = 0; i < rows; i++)
        for (int32_t j = 0; j < rows; j++) {
            twice[i][j] = 0;
            for (int32_t k = 0; k < rows; k++) twice[i][j] += square[i][k] * square[k][j];
        }
    for (int32_t i = 0; i < rows; i++)
        for (int32_t k = 0; k < cols; k++) {
            next[i * cols + k] = 3.4445 * y[i * cols + k];
            for (int32_t j = 0; j < rows; j++)
                next[i * cols + k] +=
                    (-4.7750 * square[i][j] + 2.0315 * twice[i][j]) * y[j * cols + k];
        }
    memcpy(y, next, (size_t)(rows * cols) * sizeof *y);
}

// The step of one matrix [rows, cols], in place.
static void slow_step(int32_t rows, int32_t cols, double* value, double* momentum,
                      const float* grad) {
    static double y[MOST * MOST];
    const bool is_tall = rows > cols;
    double squares = 0;
    for (int32_t i = 0; i < rows * cols; i++) {
        const double slope = 0.5 * (double)grad[i];
        momentum[i] = 0.9 * momentum[i] + 0.1 * slope;
        const double ahead = 0.1 * slope + 0.9 * momentum[i];
        y[is_tall ? i % cols * rows + i / cols : i] = ahead;
        squares += ahead * ahead;
    }
    for (int32_t i = 0; i < rows * cols; i++) y[i] /= sqrt(squares) + 1e-7;
    for (int32_t i = 0; i < 5; i++) slow_iteration(is_tall ? cols : rows, is_tall ? rows : cols, y);
    const double rate = 0.1 * 0.2 * sqrt(is_tall ? rows : cols);
    for (int32_t i = 0; i < rows * cols; i++)
        value[i] -= rate * y[is_tall ? i % cols * rows + i / cols : i];
}

static void a_step_is_that_of_plain_loops(const PufKernels* kernels, float size) {
    PufNetwork* net = network_of(kernels);
    float* memory = give_memory(net, size);
    const size_t floats = net->grad_floats;
    float* before = malloc(4 * floats * sizeof(float));
    memcpy(before, memory, 4 * floats * sizeof(float));
    step(net, memory, 2);
    int num_matrices = 0;
    for (int32_t p = 0; p < net->num_params; p++) {
        const PufParam* param = &net->params[p];
        const size_t at = param->grad_at, count = (size_t)param->rows * (size_t)param->cols;
        if (param->square) {  // left to Adam
            CHECK(!memcmp(memory + at, before + at, count * sizeof(float)));
            continue;
        }
        static double value[MOST * MOST], momentum[MOST * MOST];
        for (size_t i = 0; i < count; i++) {
            value[i] = (double)before[at + i];
            momentum[i] = (double)before[floats + at + i];
        }
        slow_step(param->rows, param->cols, value, momentum, before + 3 * floats + at);
        double most = 0, of_momentum = 0;
        for (size_t i = 0; i < count; i++) {
            most = fmax(most, fabs(value[i] - (double)memory[at + i]));
            of_momentum = fmax(of_momentum, fabs(momentum[i] - (double)memory[floats + at + i]));
        }
        CHECK(most < 1e-5 && of_momentum < 1e-6 * (double)size);
        num_matrices++;
    }
    CHECK(num_matrices == LAYERS - 1);
    // products use the new weights: those of the second layer are packed
    const PufLayer* layer = &net->layers[1];
    CHECK(layer->panels[puf_panel_at(kernels->lanes, layer->in, layer->out, 3, 5)] ==
          net->params[2].value[5 * layer->in + 3]);
    free(before);
    free(memory);
    puf_network_destroy(net);
}

static void steps_do_not_depend_on_threads(const PufKernels* kernels) {
    float* first = NULL;
    for (int32_t threads = 1; threads <= 3; threads++) {
        PufNetwork* net = network_of(kernels);
        float* memory = give_memory(net, 1.0f);
        const size_t bytes = 4 * net->grad_floats * sizeof(float);
        for (int i = 0; i < 3; i++) step(net, memory, threads);
        if (!first) memcpy(first = malloc(bytes), memory, bytes);
        CHECK(!memcmp(first, memory, bytes));
        free(memory);
        puf_network_destroy(net);
    }
    free(first);
}

static void other_matrices_do_not_fit(const PufKernels* kernels) {
    PufNetwork* net = network_of(kernels);
    float* memory = give_memory(net, 1.0f);
    PufMuon* muon = puf_muon_create(net);
    net->params[2].square = memory;
    CHECK(!puf_muon_fits(muon, net));
    puf_muon_destroy(muon);
    free(memory);
    puf_network_destroy(net);
}

int main(void) {
    const char* names[] = {"avx512", "avx2", "neon", "portable"};
    for (int i = 0; i < 4; i++) {
        const PufKernels* kernels = puf_kernels_named(names[i]);
        if (!kernels) continue;  // does not run here
        a_step_is_that_of_plain_loops(kernels, 1.0f);
        a_step_is_that_of_plain_loops(kernels, 1e-3f);
        steps_do_not_depend_on_threads(kernels);
        other_matrices_do_not_fit(kernels);
    }
    return CHECK_DONE();
}
