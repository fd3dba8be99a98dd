// The native engine: gradients beside finite differences, equal results for any number of threads,
// rollouts of an env in the core, and every set of kernels that this CPU runs.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "nn/engine.h"

enum { SLOTS = 10, HORIZON = 13, STEPS = SLOTS * HORIZON, OBS = 5, WORDS = 4, MASK = 5 };

// A rollout of random numbers with two discrete and two continuous components.
typedef struct {
    float observations[STEPS * OBS], logprobs[STEPS], values[STEPS], rewards[STEPS];
    float final_values[STEPS], advantages[STEPS], returns[STEPS], bootstrap[SLOTS];
    int32_t actions[STEPS * WORDS];
    uint8_t action_masks[STEPS * MASK], terminals[STEPS], truncations[STEPS], resets[STEPS];
    uint8_t masks[STEPS];
    int64_t order[STEPS];
} Data;

static void fill(Data* data, PufRng* rng) {
    memset(data, 0, sizeof *data);
    for (int i = 0; i < STEPS * OBS; i++) data->observations[i] = puf_rand_normal(rng);
    for (int i = 0; i < STEPS; i++) {
        data->logprobs[i] = -3.0f + 0.1f * puf_rand_normal(rng);
        data->values[i] = puf_rand_normal(rng);
        data->advantages[i] = puf_rand_normal(rng);
        data->returns[i] = puf_rand_normal(rng);
        data->masks[i] = puf_rand(rng) < 0.9f;
        data->order[i] = STEPS - 1 - i;
        for (int j = 0; j < MASK; j++) data->action_masks[i * MASK + j] = puf_rand(rng) < 0.8f;
        data->actions[i * WORDS] = puf_rand_int(rng, 2);
        data->actions[i * WORDS + 1] = puf_rand_int(rng, 3);
        data->action_masks[i * MASK + data->actions[i * WORDS]] = 1;
        data->action_masks[i * MASK + 2 + data->actions[i * WORDS + 1]] = 1;
        for (int j = 2; j < WORDS; j++) {
            float real = puf_rand_normal(rng);
            memcpy(&data->actions[i * WORDS + j], &real, sizeof real);
        }
    }
}

static PufRollout rollout_of(Data* data) {
    return (PufRollout){.segments = SLOTS,
                        .horizon = HORIZON,
                        .num_slots = SLOTS,
                        .observations = (uint8_t*)data->observations,
                        .actions = data->actions,
                        .action_masks = data->action_masks,
                        .logprobs = data->logprobs,
                        .values = data->values,
                        .rewards = data->rewards,
                        .final_values = data->final_values,
                        .terminals = data->terminals,
                        .truncations = data->truncations,
                        .resets = data->resets,
                        .masks = data->masks,
                        .bootstrap = data->bootstrap};
}

static PufEngine* engine_of(const PufKernels* kernels, int32_t threads, bool separate,
                            PufFinish activation) {
    static const int32_t widths[] = {19, 33}, nvec[] = {2, 3};
    static const float center[] = {0.5f, 0.0f}, scale[] = {2.0f, 1.0f};
    static const float low[] = {-1.5f, -INFINITY}, high[] = {2.5f, INFINITY};
    static const uint8_t bounded[] = {1, 0};
    const PufNetworkSpec spec = {.obs_type = PUF_OBS_F32,
                                 .obs_size = OBS,
                                 .num_layers = 2,
                                 .widths = widths,
                                 .activation = activation,
                                 .separate = separate,
                                 .num_discrete = 2,
                                 .num_continuous = 2,
                                 .nvec = nvec,
                                 .squash = true,
                                 .center = center,
                                 .scale = scale,
                                 .low_action = low,
                                 .high_action = high,
                                 .bounded = bounded};
    return puf_engine_create(&spec, kernels, threads);
}

static float* give_params(PufNetwork* net, uint64_t seed) {
    PufRng rng = {seed};
    float* memory = calloc(3 * net->grad_floats, sizeof(float));
    for (size_t i = 0; i < net->grad_floats; i++) memory[i] = 0.3f * puf_rand_normal(&rng);
    for (int32_t i = 0; i < net->num_params; i++) {
        PufParam* param = &net->params[i];
        param->value = memory + param->grad_at;
        param->mean = param->value + net->grad_floats;
        param->square = param->mean + net->grad_floats;
    }
    puf_network_pack(net);
    return memory;
}

static PufPass pass_of(Data* data, const PufRollout* rollout, const int64_t* splits, int32_t count,
                       float* numbers) {
    return (PufPass){
        .rollout = rollout,
        .advantages = data->advantages,
        .returns = data->returns,
        .order = data->order,
        .splits = splits,
        .num_minibatches = count,
        .by_step = true,
        .loss = {.clip_coef = 0.2f, .vf_coef = 0.5f, .ent_coef = 0.3f, .vf_clip_coef = 0.5f},
        .norm_adv = true,
        .adv_floor = 1e-8f,
        .max_grad_norm = 0.5f,
        .adam = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-5f},
        .numbers = numbers};
}

static void gradients_are_those_of_finite_differences(const PufKernels* kernels, bool separate) {
    PufRng rng = {7};
    static Data data;
    fill(&data, &rng);
    PufEngine* engine = engine_of(kernels, 1, separate, PUF_TANH);
    float* params = give_params(engine->network, 11);
    PufRollout rollout = rollout_of(&data);
    const int64_t splits[] = {0, STEPS};
    float numbers[PUF_NUM_LOSSES + 1];
    PufPass pass = pass_of(&data, &rollout, splits, 1, numbers);
    CHECK(puf_engine_pass(engine, &pass) == PUF_OK);
    float* gradient = malloc(engine->network->grad_floats * sizeof(float));
    memcpy(gradient, engine->joined, engine->network->grad_floats * sizeof(float));
    for (size_t i = 0; i < engine->network->grad_floats; i += 7) {
        const float before = params[i], step = 2e-2f;
        double losses[2];
        for (int side = 0; side < 2; side++) {
            params[i] = before + (side ? step : -step);
            puf_network_pack(engine->network);
            puf_engine_pass(engine, &pass);
            losses[side] = (double)numbers[0] + 0.5 * (double)numbers[1] - 0.3 * (double)numbers[2];
        }
        params[i] = before;
        const double slope = (losses[1] - losses[0]) / (2.0 * (double)step);
        CHECK(fabs(slope - (double)gradient[i]) < 4e-3 + 0.05 * fabs(slope));
    }
    free(gradient);
    free(params);
    puf_engine_destroy(engine);
}

// Weights after two passes of three updates.
static float* trained(const PufKernels* kernels, int32_t threads, size_t* count) {
    PufRng rng = {3};
    static Data data;
    fill(&data, &rng);
    PufEngine* engine = engine_of(kernels, threads, true, PUF_RELU);
    float* params = give_params(engine->network, 5);
    PufRollout rollout = rollout_of(&data);
    const int64_t splits[] = {0, 40, 80, STEPS};
    float numbers[3 * (PUF_NUM_LOSSES + 1)], num_steps = 0;
    PufPass pass = pass_of(&data, &rollout, splits, 3, numbers);
    pass.step = true;
    pass.num_steps = &num_steps;
    for (int i = 0; i < 2; i++) CHECK(puf_engine_pass(engine, &pass) == PUF_OK);
    CHECK(num_steps == 6.0f);
    float logprobs[STEPS];
    puf_engine_logprobs(engine, &rollout, logprobs);
    for (int i = 0; i < STEPS; i++) CHECK(isfinite(logprobs[i]));
    *count = 3 * engine->network->grad_floats;
    puf_engine_destroy(engine);
    return params;
}

static void results_do_not_depend_on_threads(const PufKernels* kernels) {
    size_t count;
    float* one = trained(kernels, 1, &count);
    for (int32_t threads = 1; threads <= 3; threads++) {
        float* many = trained(kernels, threads, &count);
        CHECK(!memcmp(one, many, count * sizeof(float)));
        free(many);
    }
    free(one);
}

static void rollouts_do_not_depend_on_threads(const PufKernels* kernels) {
    enum { ENVS = 37, T = 9, OBSERVED = 4 };
    static float first_observations[ENVS * T * OBSERVED];
    static int32_t first_actions[ENVS * T];
    for (int32_t threads = 1; threads <= 3; threads++) {
        static float observations[ENVS * T * OBSERVED], numbers[4][ENVS * T], bootstrap[ENVS];
        static int32_t actions[ENVS * T];
        static uint8_t flags[4][ENVS * T], resets[ENVS];
        const PufEnvInfo* info = puf_find_info("cartpole");
        double params[PUF_MAX_PARAMS];
        for (int32_t i = 0; i < info->num_params; i++) params[i] = info->params[i].value;
        PufVec* vec = puf_vec_create(info, ENVS, 1, false, params);
        static float rows[ENVS * OBSERVED], finals[ENVS * OBSERVED], rewards[ENVS];
        static int32_t env_actions[ENVS];
        static uint8_t row_flags[3][ENVS];
        PufBuffers buffers = {.observations = rows,
                              .actions = env_actions,
                              .final_observations = finals,
                              .rewards = rewards,
                              .terminals = row_flags[0],
                              .truncations = row_flags[1],
                              .masks = row_flags[2]};
        CHECK(puf_vec_bind(vec, &buffers) == PUF_OK && puf_vec_reset(vec, 4) == PUF_OK);
        const int32_t widths[] = {16}, nvec[] = {2};
        const PufNetworkSpec spec = {.obs_type = PUF_OBS_F32,
                                     .obs_size = OBSERVED,
                                     .num_layers = 1,
                                     .widths = widths,
                                     .activation = PUF_RELU,
                                     .num_discrete = 1,
                                     .nvec = nvec};
        PufEngine* engine = puf_engine_create(&spec, kernels, threads);
        float* memory = give_params(engine->network, 2);
        PufRollout rollout = {.segments = ENVS,
                              .horizon = T,
                              .num_slots = ENVS,
                              .observations = (uint8_t*)observations,
                              .actions = actions,
                              .logprobs = numbers[0],
                              .values = numbers[1],
                              .rewards = numbers[2],
                              .final_values = numbers[3],
                              .terminals = flags[0],
                              .truncations = flags[1],
                              .resets = flags[2],
                              .masks = flags[3],
                              .bootstrap = bootstrap};
        for (int i = 0; i < 5; i++)
            CHECK(puf_engine_collect(engine, vec, &rollout, resets, 99, 0) == PUF_OK);
        CHECK(rollout.all_present);
        if (threads == 1) {
            memcpy(first_observations, observations, sizeof observations);
            memcpy(first_actions, actions, sizeof actions);
        }
        CHECK(!memcmp(first_observations, observations, sizeof observations));
        CHECK(!memcmp(first_actions, actions, sizeof actions));
        rollout.num_slots = 36;
        CHECK(puf_engine_collect(engine, vec, &rollout, resets, 99, 0) == PUF_BAD_ARGUMENT);
        free(memory);
        puf_engine_destroy(engine);
        puf_vec_destroy(vec);
    }
}

static void elementary_functions_are_exact_to_a_few_units(const PufKernels* kernels) {
    for (float x = -100.0f; x < 100.0f; x += 0.0137f) {
        float y;
        kernels->exp(1, &x, &y);
        CHECK(fabs((double)y - exp((double)x)) <= 4e-7 * exp((double)x) + 1e-37 || isinf(y));
        kernels->tanh(1, &x, &y);
        CHECK(fabs((double)y - tanh((double)x)) < 6e-7);
        if (x > 0) {
            kernels->log(1, &x, &y);
            CHECK(fabs((double)y - log((double)x)) < 4e-7 * (1 + fabs(log((double)x))));
        }
    }
    float x = NAN, y = 0;
    kernels->exp(1, &x, &y);
    CHECK(isnan(y));
    kernels->tanh(1, &x, &y);
    CHECK(isnan(y));
}

int main(void) {
    const char* names[] = {"avx512", "avx2", "neon", "portable"};
    for (int i = 0; i < 4; i++) {
        const PufKernels* kernels = puf_kernels_named(names[i]);
        if (!kernels) continue;  // does not run here
        elementary_functions_are_exact_to_a_few_units(kernels);
        gradients_are_those_of_finite_differences(kernels, false);
        gradients_are_those_of_finite_differences(kernels, true);
        results_do_not_depend_on_threads(kernels);
        rollouts_do_not_depend_on_threads(kernels);
    }
    CHECK(!puf_kernels_named("none"));
    return CHECK_DONE();
}
