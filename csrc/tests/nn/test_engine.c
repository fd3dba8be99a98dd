// The native engine: gradients beside finite differences, equal results for any number of threads,
// rollouts of an env in the core, all of it with every recurrent core, or none, and with every set
// of kernels that this CPU runs.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/advantage.h"
#include "nn/engine.h"
#include "nn/order.h"
#include "tests/check.h"

enum {
    SLOTS = 10,
    HORIZON = 13,
    STEPS = SLOTS * HORIZON,
    OBS = 5,
    WORDS = 4,
    MASK = 5,
    WIDTH = 33
};

// A rollout of random numbers with two discrete and two continuous components.
typedef struct {
    float observations[STEPS * OBS], logprobs[STEPS], values[STEPS], rewards[STEPS];
    float final_values[STEPS], advantages[STEPS], returns[STEPS], bootstrap[SLOTS];
    int32_t actions[STEPS * WORDS];
    uint8_t action_masks[STEPS * MASK], terminals[STEPS], truncations[STEPS], resets[STEPS];
    uint8_t masks[STEPS];
    int64_t order[STEPS], segments[SLOTS];
    float hidden[SLOTS * WIDTH], cells[SLOTS * WIDTH];
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
        data->resets[i] = puf_rand(rng) < 0.1f;
    }
    for (int i = 0; i < SLOTS; i++) data->segments[i] = SLOTS - 1 - i;
    for (int i = 0; i < SLOTS * WIDTH; i++) {
        data->hidden[i] = 0.5f * puf_rand_normal(rng);
        data->cells[i] = 0.5f * puf_rand_normal(rng);
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
                        .bootstrap = data->bootstrap,
                        .states = {{data->hidden, data->cells}}};
}

static PufEngine* engine_of(const PufKernels* kernels, int32_t threads, bool separate,
                            PufFinish activation, PufCoreKind core) {
    static const int32_t widths[] = {19, WIDTH}, nvec[] = {2, 3};
    static const float center[] = {0.5f, 0.0f}, scale[] = {2.0f, 1.0f};
    static const float low[] = {-1.5f, -INFINITY}, high[] = {2.5f, INFINITY};
    static const uint8_t bounded[] = {1, 0};
    const PufNetworkSpec spec = {.obs_type = PUF_OBS_F32,
                                 .obs_size = OBS,
                                 .num_layers = 2,
                                 .widths = widths,
                                 .activation = activation,
                                 .separate = separate,
                                 .core = core,
                                 .core_width = WIDTH,
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

static PufPass pass_of(Data* data, const PufRollout* rollout, PufCoreKind core, int32_t count,
                       float* numbers) {
    return (PufPass){
        .rollout = rollout,
        .advantages = data->advantages,
        .returns = data->returns,
        .order = core ? data->segments : data->order,
        .units = core ? SLOTS : STEPS,
        .per_pass = count,
        .num_minibatches = count,
        .by_step = !core,
        .loss = {.clip_coef = 0.2f, .vf_coef = 0.5f, .ent_coef = 0.3f, .vf_clip_coef = 0.5f},
        .norm_adv = true,
        .adv_floor = 1e-8f,
        .max_grad_norm = 0.5f,
        .adam = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-5f},
        .numbers = numbers};
}

static void gradients_are_those_of_finite_differences(const PufKernels* kernels, bool separate,
                                                      PufCoreKind core) {
    PufRng rng = {7};
    static Data data;
    fill(&data, &rng);
    PufEngine* engine = engine_of(kernels, 1, separate, PUF_TANH, core);
    float* params = give_params(engine->network, 11);
    PufRollout rollout = rollout_of(&data);
    float numbers[PUF_NUM_LOSSES + 1];
    PufPass pass = pass_of(&data, &rollout, core, 1, numbers);
    CHECK(puf_engine_pass(engine, &pass) == PUF_OK);
    float* gradient = malloc(engine->network->grad_floats * sizeof(float));
    memcpy(gradient, engine->joined, engine->network->grad_floats * sizeof(float));
    const size_t apart = engine->network->grad_floats / 40 | 1;  // about 40 of them
    for (size_t i = 0; i < engine->network->grad_floats; i += apart) {
        const float before = params[i], step = 5e-3f;
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

// Weights after five updates of two passes, in the order that two keys name: drawn by the engine,
// or given to it.
static float* trained(const PufKernels* kernels, int32_t threads, PufCoreKind core, bool is_given,
                      size_t* count) {
    enum { UPDATES = 5 };
    PufRng rng = {3};
    static Data data;
    fill(&data, &rng);
    PufEngine* engine = engine_of(kernels, threads, !core, PUF_RELU, core);
    float* params = give_params(engine->network, 5);
    PufRollout rollout = rollout_of(&data);
    float numbers[UPDATES * (PUF_NUM_LOSSES + 1)], num_steps = 0;
    const uint64_t keys[] = {17, 18};
    int64_t order[2 * STEPS];
    PufPass pass = pass_of(&data, &rollout, core, 3, numbers);
    for (int i = 0; i < 2; i++) {
        const PufOrder drawn = puf_order(keys[i], (uint32_t)pass.units);
        puf_order_fill(&drawn, 0, (uint32_t)pass.units, order + i * pass.units);
    }
    pass.order = is_given ? order : NULL;
    pass.keys = is_given ? NULL : keys;
    pass.num_minibatches = UPDATES;
    pass.step = true;
    pass.num_steps = &num_steps;
    CHECK(puf_engine_pass(engine, &pass) == PUF_OK);
    CHECK(num_steps == (float)UPDATES);
    float logprobs[STEPS];
    CHECK(puf_engine_logprobs(engine, &rollout, logprobs) == PUF_OK);
    for (int i = 0; i < STEPS; i++) CHECK(isfinite(logprobs[i]));
    *count = 3 * engine->network->grad_floats;
    puf_engine_destroy(engine);
    return params;
}

// Weights after two updates from minibatches so large that the last tile of a part is an item of
// its own: steps drawn with replacement.
static float* trained_by_large_minibatches(const PufKernels* kernels, int32_t threads,
                                           size_t* count) {
    enum { UNITS = 70 * PUF_TILE + 9 };
    PufRng rng = {8};
    static Data data;
    static int64_t order[2 * UNITS];
    fill(&data, &rng);
    for (int i = 0; i < 2 * UNITS; i++) order[i] = puf_rand_int(&rng, STEPS);
    PufEngine* engine = engine_of(kernels, threads, false, PUF_RELU, PUF_NO_CORE);
    float* params = give_params(engine->network, 5);
    PufRollout rollout = rollout_of(&data);
    float numbers[2 * (PUF_NUM_LOSSES + 1)], num_steps = 0;
    PufPass pass = pass_of(&data, &rollout, PUF_NO_CORE, 1, numbers);
    pass.order = order;
    pass.units = UNITS;
    pass.num_minibatches = 2;
    pass.step = true;
    pass.num_steps = &num_steps;
    CHECK(puf_engine_pass(engine, &pass) == PUF_OK);
    *count = 3 * engine->network->grad_floats;
    puf_engine_destroy(engine);
    return params;
}

static void large_minibatches_do_not_depend_on_threads(const PufKernels* kernels) {
    size_t count;
    float* one = trained_by_large_minibatches(kernels, 1, &count);
    for (int32_t threads = 2; threads <= 5; threads++) {
        float* many = trained_by_large_minibatches(kernels, threads, &count);
        CHECK(!memcmp(one, many, count * sizeof(float)));
        free(many);
    }
    free(one);
}

static void results_do_not_depend_on_threads(const PufKernels* kernels, PufCoreKind core) {
    size_t count;
    float* one = trained(kernels, 1, core, true, &count);
    for (int32_t threads = 1; threads <= 3; threads++) {
        float* many = trained(kernels, threads, core, false, &count);
        CHECK(!memcmp(one, many, count * sizeof(float)));
        free(many);
    }
    free(one);
}

static void a_recurrent_policy_refuses_single_steps(const PufKernels* kernels) {
    static Data data;
    PufEngine* engine = engine_of(kernels, 1, false, PUF_RELU, PUF_LSTM);
    float* params = give_params(engine->network, 5);
    PufRollout rollout = rollout_of(&data);
    float numbers[PUF_NUM_LOSSES + 1];
    PufPass pass = pass_of(&data, &rollout, PUF_NO_CORE, 1, numbers);
    CHECK(puf_engine_pass(engine, &pass) == PUF_BAD_ARGUMENT);
    free(params);
    puf_engine_destroy(engine);
}

static void targets_are_advantages_from_the_last_stretch_to_the_first(const PufKernels* kernels) {
    static Data data;
    static float found[2][STEPS], whole[STEPS], joined[5][STEPS];
    static uint8_t flags[3][STEPS];
    enum { STRETCHES = 2, OWN = SLOTS / STRETCHES };
    PufRng rng = {3};
    fill(&data, &rng);
    for (int i = 0; i < STEPS; i++) {
        data.terminals[i] = puf_rand(&rng) < 0.1f, data.truncations[i] = puf_rand(&rng) < 0.1f;
        data.rewards[i] = puf_rand_normal(&rng), data.final_values[i] = puf_rand_normal(&rng);
    }
    for (int i = 0; i < SLOTS; i++) data.bootstrap[i] = puf_rand_normal(&rng);
    PufRollout rollout = rollout_of(&data);
    rollout.num_slots = OWN;
    for (int i = 0; i < OWN; i++) {  // the first stretch goes on with the second one's first value
        const int ahead = (OWN + i) * HORIZON;
        data.bootstrap[i] = data.masks[ahead] ? data.values[ahead] : 0.0f;
    }
    const float* numbers[] = {data.rewards, data.values, data.final_values};
    const uint8_t* bytes[] = {data.terminals, data.truncations, data.masks};
    for (int slot = 0; slot < OWN; slot++)  // each slot's stretches in one row
        for (int i = 0; i < STRETCHES * HORIZON; i++) {
            const int from = (i / HORIZON * OWN + slot) * HORIZON + i % HORIZON;
            const int to = slot * STRETCHES * HORIZON + i;
            for (int k = 0; k < 3; k++) joined[k][to] = numbers[k][from];
            for (int k = 0; k < 3; k++) flags[k][to] = bytes[k][from];
        }
    puf_advantage(OWN, STRETCHES * HORIZON, joined[0], joined[1], data.bootstrap + OWN, flags[0],
                  flags[1], joined[2], flags[2], NULL, 0.9f, 0.8f, 1, 1, whole);
    for (int32_t threads = 1; threads <= 3; threads++) {
        PufEngine* engine = engine_of(kernels, threads, false, PUF_RELU, PUF_NO_CORE);
        PufTargets targets = {&rollout, 0.9f, 0.8f, found[0], found[1], 0};
        CHECK(puf_engine_targets(engine, &targets) == PUF_OK);
        CHECK(isfinite(targets.explained_variance));
        for (int slot = 0; slot < OWN; slot++)
            for (int i = 0; i < STRETCHES * HORIZON; i++) {
                const int at = (i / HORIZON * OWN + slot) * HORIZON + i % HORIZON;
                const float wanted = whole[slot * STRETCHES * HORIZON + i];
                CHECK(fabsf(found[0][at] - wanted) < 1e-5f);
                CHECK(fabsf(found[1][at] - found[0][at] - data.values[at]) < 1e-5f);
            }
        puf_engine_destroy(engine);
    }
}

static void rewards_are_divided_by_the_deviation_of_returns(const PufKernels* kernels) {
    enum { OWN = 5, STRETCHES = SLOTS / OWN };
    static Data data;
    double sum = 0, squares = 0, count = 0;
    for (int32_t threads = 1; threads <= 3; threads++) {
        PufRng rng = {11};
        fill(&data, &rng);
        for (int i = 0; i < STEPS; i++) {
            data.rewards[i] = 100 + puf_rand_normal(&rng);
            data.terminals[i] = puf_rand(&rng) < 0.1f, data.truncations[i] = i % 17 == 3;
        }
        PufRollout rollout = rollout_of(&data);
        rollout.num_slots = OWN;
        sum = squares = count = 0;
        float running[OWN] = {1, 2, 3}, wanted[OWN] = {1, 2, 3};
        for (int slot = 0; slot < OWN; slot++)
            for (int i = 0; i < STRETCHES * HORIZON; i++) {
                const int at = (i / HORIZON * OWN + slot) * HORIZON + i % HORIZON;
                wanted[slot] += data.masks[at] ? data.rewards[at] : 0;
                if (data.masks[at]) {
                    sum += (double)wanted[slot], count += 1;
                    squares += (double)wanted[slot] * (double)wanted[slot];
                }
                wanted[slot] *= data.terminals[at] || data.truncations[at] ? 0 : 0.9f;
            }
        const double variance = squares / count - sum / count * sum / count;
        const float first = data.rewards[0];
        PufEngine* engine = engine_of(kernels, threads, false, PUF_RELU, PUF_NO_CORE);
        double found[] = {0, 0, 1};
        const PufRewardNorm norm = {&rollout, 0.9f, running, found, found + 1, found + 2, 0.01, 3};
        CHECK(puf_engine_normalise_rewards(engine, &norm) == PUF_OK);
        CHECK(found[0] == count && fabs(found[1] - sum / count) < 1e-3);
        CHECK(fabs(found[2] - variance) < 1e-5 * variance);
        for (int slot = 0; slot < OWN; slot++) CHECK(fabsf(running[slot] - wanted[slot]) < 1e-3f);
        const float scaled = first / (float)sqrt(variance);
        CHECK(fabsf(data.rewards[0] - (scaled > 3 ? 3 : scaled)) < 1e-5f);
        puf_engine_destroy(engine);
    }
}

static void rollouts_do_not_depend_on_threads(const PufKernels* kernels, PufCoreKind core,
                                              bool normalised) {
    enum { ENVS = 37, T = 9, OBSERVED = 4, UNITS = 16 };
    static float first_hidden[ENVS * UNITS];
    static float first_observations[ENVS * T * OBSERVED];
    static int32_t first_actions[ENVS * T];
    static double first_moments[1 + 2 * OBSERVED];
    for (int32_t threads = 1; threads <= 3; threads++) {
        static float observations[ENVS * T * OBSERVED], numbers[4][ENVS * T], bootstrap[ENVS];
        static int32_t actions[ENVS * T];
        static uint8_t flags[4][ENVS * T], resets[ENVS];
        static float states[4][ENVS * UNITS];  // hidden and cell: now, and before the segments
        const PufState state = {{states[0], states[1]}};
        memset(states, 0, sizeof states);
        memset(resets, 1, sizeof resets);
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
        const int32_t widths[] = {UNITS}, nvec[] = {2};
        const PufNetworkSpec spec = {.obs_type = PUF_OBS_F32,
                                     .obs_size = OBSERVED,
                                     .num_layers = 1,
                                     .widths = widths,
                                     .activation = PUF_RELU,
                                     .core = core,
                                     .core_width = UNITS,
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
                              .bootstrap = bootstrap,
                              .states = {{states[2], states[3]}}};
        static const float offset[OBSERVED] = {0.01f, 0, -0.02f, 0}, factor[] = {9, 2, 30, 4};
        double moments[1 + 2 * OBSERVED] = {0};
        PufObsNorm norm = {.size = OBSERVED,
                           .offset = offset,
                           .factor = factor,
                           .limit = 1.5,
                           .count = moments,
                           .mean = moments + 1,
                           .variance = moments + 1 + OBSERVED};
        const PufObsNorm* given = normalised ? &norm : NULL;
        for (int i = 0; i < 5; i++)
            CHECK(puf_engine_collect(engine, vec, &rollout, resets, &state, given, 99, 0) ==
                  PUF_OK);
        CHECK(rollout.all_present);
        CHECK(rollout.env_share > 0 && rollout.env_share < 1);
        CHECK(moments[0] == (normalised ? ENVS * T : 0));
        if (threads == 1) {
            memcpy(first_observations, observations, sizeof observations);
            memcpy(first_actions, actions, sizeof actions);
            memcpy(first_hidden, states[0], sizeof first_hidden);
            memcpy(first_moments, moments, sizeof moments);
        }
        CHECK(!memcmp(first_moments, moments, sizeof moments));
        CHECK(!memcmp(first_observations, observations, sizeof observations));
        CHECK(!memcmp(first_actions, actions, sizeof actions));
        CHECK(!memcmp(first_hidden, states[0], sizeof first_hidden));
        for (int i = 0; i < ENVS; i++) {  // an episode begins with zeros, and only then
            bool any = false;
            for (int j = 0; j < UNITS; j++) any |= states[0][i * UNITS + j] != 0.0f;
            CHECK(any == (core && !resets[i]));
        }
        norm.size--;  // not that of the observations
        CHECK(puf_engine_collect(engine, vec, &rollout, resets, &state, &norm, 99, 0) ==
              PUF_BAD_ARGUMENT);
        rollout.num_slots = 36;
        CHECK(puf_engine_collect(engine, vec, &rollout, resets, &state, NULL, 99, 0) ==
              PUF_BAD_ARGUMENT);
        free(memory);
        puf_engine_destroy(engine);
        puf_vec_destroy(vec);
    }
}

// More rows than one thread takes alone.
static void actions_do_not_depend_on_threads(const PufKernels* kernels, PufCoreKind core) {
    enum { ROWS = 300 };
    static float observations[ROWS * OBS], states[4][ROWS * WIDTH];
    static float logprobs[ROWS], values[ROWS], first_logprobs[ROWS], first_values[ROWS];
    static float first_hidden[ROWS * WIDTH];
    static int32_t actions[ROWS * WORDS], env_actions[ROWS * WORDS], first_actions[ROWS * WORDS];
    static uint8_t masks[ROWS * MASK];
    PufRng rng = {17};
    for (int i = 0; i < ROWS * OBS; i++) observations[i] = puf_rand_normal(&rng);
    for (int i = 0; i < ROWS * MASK; i++) masks[i] = i % 3 != 0;
    for (int i = 0; i < ROWS * WIDTH; i++) states[0][i] = states[1][i] = puf_rand_normal(&rng);
    for (int32_t threads = 1; threads <= 3; threads++) {
        PufEngine* engine = engine_of(kernels, threads, !core, PUF_TANH, core);
        float* memory = give_params(engine->network, 5);
        const PufAct act = {.rows = ROWS,
                            .observations = (const uint8_t*)observations,
                            .action_masks = masks,
                            .state = {{states[0], states[1]}},
                            .next_state = {{core ? states[2] : NULL, core ? states[3] : NULL}},
                            .key = 7,
                            .actions = actions,
                            .env_actions = env_actions,
                            .logprobs = logprobs,
                            .values = values};
        puf_engine_act(engine, &act);
        if (threads == 1) {
            memcpy(first_actions, actions, sizeof actions);
            memcpy(first_logprobs, logprobs, sizeof logprobs);
            memcpy(first_values, values, sizeof values);
            memcpy(first_hidden, states[2], sizeof first_hidden);
            for (int i = 0; i < ROWS; i++) {  // every choice is legal
                CHECK(masks[i * MASK + actions[i * WORDS]]);
                CHECK(masks[i * MASK + 2 + actions[i * WORDS + 1]]);
            }
        }
        CHECK(!memcmp(first_actions, actions, sizeof actions));
        CHECK(!memcmp(first_logprobs, logprobs, sizeof logprobs));
        CHECK(!memcmp(first_values, values, sizeof values));
        CHECK(!memcmp(first_hidden, states[2], sizeof first_hidden));
        free(memory);
        puf_engine_destroy(engine);
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
        gradients_are_those_of_finite_differences(kernels, true, PUF_NO_CORE);
        targets_are_advantages_from_the_last_stretch_to_the_first(kernels);
        rewards_are_divided_by_the_deviation_of_returns(kernels);
        a_recurrent_policy_refuses_single_steps(kernels);
        large_minibatches_do_not_depend_on_threads(kernels);
        for (PufCoreKind core = PUF_NO_CORE; core < PUF_NUM_CORES; core++) {
            gradients_are_those_of_finite_differences(kernels, false, core);
            results_do_not_depend_on_threads(kernels, core);
            rollouts_do_not_depend_on_threads(kernels, core, false);
            rollouts_do_not_depend_on_threads(kernels, core, true);
            actions_do_not_depend_on_threads(kernels, core);
        }
    }
    CHECK(!puf_kernels_named("none"));
    return CHECK_DONE();
}
