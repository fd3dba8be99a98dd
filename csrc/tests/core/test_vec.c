// The bookkeeping of a vec, with a probe env whose every number can be derived by hand.
#include <stdlib.h>

#include "puffer.h"
#include "tests/check.h"
#include "tests/rig.h"

// ---- The probe ----------------------------------------------------------------------------------

// Agents 0 .. agents-1. The observation is (tick, env's episode counter, random number of the
// episode). Agent k earns k + 1 each step while present. Action 1 ends an agent's own episode, 2
// ends it and makes it leave, 3 terminates the env; after max_steps the env is truncated.
typedef struct {
    PufSlots slots;
    int32_t episode;
    float luck;
    float score, perf;
    int32_t agents, max_steps, flavour;
    float gain;
} Probe;

static const PufField params[] = {
    PUF_PARAM_I32(Probe, agents, 2, 1, 64, "agents"),
    PUF_PARAM_I32(Probe, max_steps, 5, 1, 1000, "steps before truncation"),
    PUF_PARAM_F32(Probe, gain, 1, -10, 10, "factor of the rewards"),
    PUF_PARAM_CHOICE(Probe, flavour, 0, 3, "plain|sweet|sour", "nothing but a name"),
};

static const PufField metrics[] = {
    PUF_METRIC(Probe, score, "tick at the end"),
    PUF_METRIC(Probe, perf, "100 + the agent that ended, or 0 for the env"),
};

static void reset(Probe* env) {
    env->episode++;
    env->luck = puf_rand(&env->slots.rng);
}

static PufStatus step(Probe* env) {
    PufStatus status = PUF_RUNNING;
    for (int32_t agent = 0; agent < env->agents; agent++) {
        if (!puf_is_present(&env->slots, agent)) continue;
        puf_reward(&env->slots, agent, env->gain * (float)(agent + 1));
        int32_t action = puf_action(&env->slots, agent);
        env->score = (float)env->slots.tick;
        env->perf = (float)(100 + agent);
        if (action == 1 || action == 2) puf_end_agent(&env->slots, agent);
        if (action == 2) puf_set_present(&env->slots, agent, false);
        if (action == 3) status = PUF_TERMINATED;
    }
    env->score = (float)env->slots.tick;
    env->perf = 0;
    if (status == PUF_RUNNING && env->slots.tick >= env->max_steps) status = PUF_TRUNCATED;
    return status;
}

static void observe(const Probe* env) {
    for (int32_t agent = 0; agent < env->agents; agent++) {
        float* obs = puf_obs_f32(&env->slots, agent);
        obs[0] = (float)env->slots.tick;
        obs[1] = (float)env->episode;
        obs[2] = env->luck;
        uint8_t* legal = puf_action_mask(&env->slots, agent);
        legal[0] = legal[1] = legal[2] = 1;
        legal[3] = agent == 0;
    }
}

static bool valid(const Probe* env) { return env->episode >= 0 && env->episode < 1 << 30; }

static void render(const Probe* env, PufCanvas* canvas) {
    puf_clear(canvas, (uint32_t)env->slots.tick);
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = ((const Probe*)self)->agents;
}

PUF_ENV(probe, Probe, .shape = shape,
        .layout = {.obs = PUF_BOX_F32(3),
                   .actions = PUF_DISCRETE(4),
                   .action_masks = true,
                   .width = 8,
                   .height = 8});

static Rig probe_rig(int32_t num_envs, int32_t num_threads, double agents, double max_steps) {
    return rig_create(&puf_env_probe, num_envs, num_threads, (double[]){agents, max_steps, 1, 0});
}

static void test_reset_initialises_all_rows(void) {
    Rig rig = probe_rig(3, 1, 2, 5);
    CHECK(puf_vec_reset(rig.vec, 1) == PUF_OK);
    for (int32_t slot = 0; slot < 6; slot++) {
        CHECK(rig.obs[3 * slot] == 0 && rig.obs[3 * slot + 1] == 1);
        CHECK(rig.obs[3 * slot + 2] == rig.obs[3 * (slot & ~1) + 2]);
        CHECK(rig.rewards[slot] == 0 && !rig.terminals[slot] && !rig.truncations[slot]);
        CHECK(rig.masks[slot] == 1 && rig.action_masks[4 * slot] == 1);
        CHECK(rig.action_masks[4 * slot + 3] == (slot % 2 == 0));
    }
    CHECK(rig.obs[2] != rig.obs[8] && rig.obs[8] != rig.obs[14]);
    rig_destroy(&rig);
}

static void test_a_truncation_keeps_the_final_observation_and_resets_in_the_same_step(void) {
    Rig rig = probe_rig(1, 1, 2, 5);
    puf_vec_reset(rig.vec, 1);
    float luck = rig.obs[2];
    for (int32_t tick = 1; tick <= 4; tick++) {
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.obs[0] == (float)tick && rig.rewards[0] == 1 && rig.rewards[1] == 2);
        CHECK(!rig.truncations[0] && !rig.truncations[1]);
    }
    puf_vec_step(rig.vec, NULL);
    const float* final = (const float*)(const void*)rig.final_obs;
    CHECK(rig.truncations[0] && rig.truncations[1] && !rig.terminals[0] && !rig.terminals[1]);
    CHECK(final[0] == 5 && final[1] == 1 && final[2] == luck);
    CHECK(final[3] == 5 && final[4] == 1 && final[5] == luck);
    CHECK(rig.obs[0] == 0 && rig.obs[1] == 2 && rig.obs[2] != luck);
    CHECK(rig.rewards[0] == 1 && rig.rewards[1] == 2);
    CHECK(puf_vec_final_returns(rig.vec)[0] == 5 && puf_vec_final_returns(rig.vec)[1] == 10);
    CHECK(puf_vec_final_lengths(rig.vec)[0] == 5 && puf_vec_final_lengths(rig.vec)[1] == 5);
    puf_vec_step(rig.vec, NULL);
    CHECK(!rig.truncations[0] && !rig.terminals[0] && rig.obs[0] == 1 && rig.obs[1] == 2);
    rig_destroy(&rig);
}

static void test_a_terminal_at_the_last_step_is_not_a_truncation(void) {
    Rig rig = probe_rig(1, 1, 1, 1);
    puf_vec_reset(rig.vec, 1);
    rig.actions[0] = 3;
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] == 1 && rig.truncations[0] == 0);
    rig.actions[0] = 0;
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] == 0 && rig.truncations[0] == 1);
    rig_destroy(&rig);
}

static void test_an_agent_ends_alone_and_restarts(void) {
    Rig rig = probe_rig(1, 1, 2, 5);
    puf_vec_reset(rig.vec, 1);
    puf_vec_step(rig.vec, NULL);
    rig.actions[1] = 1;
    puf_vec_step(rig.vec, NULL);  // agent 1 ends at tick 2 with 2 x 2; the env goes on
    rig.actions[1] = 0;
    CHECK(!rig.terminals[0] && rig.terminals[1] && rig.masks[1] && rig.obs[0] == 2);
    CHECK(puf_vec_final_returns(rig.vec)[1] == 4 && puf_vec_final_lengths(rig.vec)[1] == 2);
    const float* kept = puf_vec_final_metrics(rig.vec);  // [slots, 2]
    CHECK(kept[0] == 0 && kept[1] == 0 && kept[2] == 2 && kept[3] == 101);
    for (int32_t tick = 3; tick <= 5; tick++) puf_vec_step(rig.vec, NULL);
    CHECK(rig.truncations[0] && rig.truncations[1]);
    CHECK(puf_vec_final_returns(rig.vec)[0] == 5 && puf_vec_final_lengths(rig.vec)[0] == 5);
    CHECK(puf_vec_final_returns(rig.vec)[1] == 6 && puf_vec_final_lengths(rig.vec)[1] == 3);
    CHECK(kept[0] == 5 && kept[1] == 0 && kept[2] == 5 && kept[3] == 0);  // of the env, for both

    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    // Episodes: 4 in 2 steps, 5 in 5, 6 in 3. Samples: agent 1 at tick 2, the env at tick 5.
    CHECK(stats.episodes == 3 && stats.return_sum == 15 && stats.length_sum == 10);
    CHECK(stats.return_min == 4 && stats.return_max == 6);
    CHECK(stats.samples == 2 && stats.metrics[0] == 2 + 5 && stats.metrics[1] == 101);
    rig_destroy(&rig);
}

static void test_an_agent_that_leaves_is_masked_until_the_reset(void) {
    Rig rig = probe_rig(1, 1, 2, 4);
    puf_vec_reset(rig.vec, 1);
    rig.actions[0] = 2;
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] && !rig.masks[0] && rig.rewards[0] == 1 && rig.masks[1]);
    for (int32_t tick = 2; tick <= 3; tick++) {
        puf_vec_step(rig.vec, NULL);
        CHECK(!rig.terminals[0] && !rig.masks[0] && rig.rewards[0] == 0 && rig.rewards[1] == 2);
    }
    rig.actions[0] = 0;
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.truncations[1] && !rig.truncations[0] && !rig.terminals[0]);
    CHECK(rig.masks[0] && rig.masks[1]);
    for (int32_t tick = 1; tick <= 4; tick++) puf_vec_step(rig.vec, NULL);
    CHECK(rig.truncations[0]);  // its absence left nothing behind in the next episode's sums
    CHECK(puf_vec_final_returns(rig.vec)[0] == 4 && puf_vec_final_lengths(rig.vec)[0] == 4);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 4 && stats.length_sum == 1 + 4 + 4 + 4);
    rig_destroy(&rig);
}

static void test_drain_adds_all_blocks_and_empties_them(void) {
    Rig rig = probe_rig(200, 2, 1, 5);  // 200 envs in blocks of 4
    PufStats stats;
    puf_vec_reset(rig.vec, 9);
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 0 && stats.samples == 0 && stats.return_sum == 0);
    for (int32_t tick = 1; tick <= 5; tick++) {
        for (int32_t i = 0; i < 200; i++) rig.actions[i] = i < 50 && tick == 1 + i % 4 ? 3 : 0;
        puf_vec_step(rig.vec, NULL);
    }
    puf_vec_drain(rig.vec, &stats);
    // Of the first 50, env i ends at tick 1 + i % 4: 13, 13, 12, 12 envs end at 1, 2, 3, 4. The
    // others end at 5; no env ends twice within 5 steps.
    CHECK(stats.episodes == 200 && stats.samples == 200);
    CHECK(stats.return_sum == 13 + 13 * 2 + 12 * 3 + 12 * 4 + 150 * 5);
    CHECK(stats.length_sum == stats.return_sum && stats.metrics[0] == stats.return_sum);
    CHECK(stats.return_min == 1 && stats.return_max == 5);
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 0 && stats.return_min == 0 && stats.return_max == 0);
    for (int32_t tick = 1; tick <= 5; tick++) puf_vec_step(rig.vec, NULL);
    puf_vec_reset(rig.vec, 9);
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 0);  // a reset clears the statistics
    rig_destroy(&rig);
}

static void test_extremes_of_negative_returns_are_negative(void) {
    Rig rig = rig_create(&puf_env_probe, 2, 1, (double[]){1, 3, -1, 0});
    PufStats stats;
    puf_vec_reset(rig.vec, 1);
    for (int32_t tick = 1; tick <= 3; tick++) {
        rig.actions[1] = tick == 2 ? 3 : 0;
        puf_vec_step(rig.vec, NULL);
    }
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 2 && stats.return_min == -3 && stats.return_max == -2);
    rig_destroy(&rig);
}

static void test_step_reads_given_actions_in_place(void) {
    Rig rig = probe_rig(2, 1, 1, 9);
    const int32_t rows[2] = {0, 3};
    puf_vec_reset(rig.vec, 1);
    puf_vec_step(rig.vec, rows);
    CHECK(!rig.terminals[0] && rig.terminals[1]);
    puf_vec_step(rig.vec, NULL);  // back to the bound rows
    CHECK(!rig.terminals[0] && !rig.terminals[1]);
    rig_destroy(&rig);
}

static void test_actions_outside_their_range_count_as_0(void) {
    Rig rig = probe_rig(1, 1, 1, 100);
    const int32_t wild[] = {-1, 4, INT32_MIN, INT32_MAX};
    puf_vec_reset(rig.vec, 1);
    for (int32_t i = 0; i < 4; i++) {
        rig.actions[0] = wild[i];
        puf_vec_step(rig.vec, NULL);
        CHECK(!rig.terminals[0] && rig.masks[0] && rig.obs[0] == (float)(i + 1));
    }
    rig_destroy(&rig);
}

static void test_a_single_env_restores_while_the_others_go_on(void) {
    Rig rig = probe_rig(3, 2, 2, 7);
    puf_vec_reset(rig.vec, 4);
    rig.actions[2] = 2;  // agent 0 of env 1 leaves
    for (int32_t tick = 1; tick <= 3; tick++) puf_vec_step(rig.vec, NULL);
    size_t bytes = puf_vec_snapshot_bytes(rig.vec);
    RigRows kept = rig_rows(bytes);
    CHECK(puf_vec_snapshot(rig.vec, 1, rig_at(kept)) == PUF_OK);
    CHECK(rig_rows_guarded(kept));
    float luck = rig.obs[3 * 2 + 2];
    rig.actions[2] = 0;
    for (int32_t tick = 4; tick <= 8; tick++) puf_vec_step(rig.vec, NULL);  // beyond an end
    CHECK(rig.obs[3 * 2] == 1 && rig.masks[2]);
    CHECK(puf_vec_restore(rig.vec, 1, rig_at(kept)) == PUF_OK);
    CHECK(rig.obs[3 * 2] == 3 && rig.obs[3 * 2 + 1] == 1 && rig.obs[3 * 2 + 2] == luck);
    CHECK(!rig.masks[2] && rig.masks[3]);
    CHECK(rig.obs[0] == 1 && rig.obs[3 * 4] == 1);
    for (int32_t tick = 4; tick <= 7; tick++) puf_vec_step(rig.vec, NULL);
    CHECK(rig.truncations[3] && !rig.truncations[2] && !rig.truncations[0] && !rig.truncations[4]);
    CHECK(puf_vec_final_returns(rig.vec)[3] == 14 && puf_vec_final_lengths(rig.vec)[3] == 7);
    rig_rows_free(kept);
    rig_destroy(&rig);
}

static void test_env_0_gets_the_seed_and_the_others_differ(void) {
    enum { COUNT = 2000 };
    uint64_t* seeds = malloc(2 * COUNT * sizeof *seeds);
    for (uint64_t run = 0; run < 2; run++) {
        CHECK(puf_env_seed(7 + run, 0) == 7 + run);
        for (uint64_t i = 0; i < COUNT; i++) seeds[run * COUNT + i] = puf_env_seed(7 + run, i);
    }
    bool distinct = true, in_range = true;
    for (int32_t i = 0; i < 2 * COUNT; i++) {
        in_range = in_range && seeds[i] >> 63 == 0;
        for (int32_t j = 0; j < i; j++) distinct = distinct && seeds[i] != seeds[j];
    }
    CHECK(distinct);
    CHECK(in_range);
    free(seeds);

    // Env 0 of a large vec plays like the only env of a small one with the same seed.
    Rig one = probe_rig(1, 1, 1, 3), many = probe_rig(70, 2, 1, 3);
    puf_vec_reset(one.vec, 5);
    puf_vec_reset(many.vec, 5);
    CHECK(one.obs[2] == many.obs[2]);
    bool differ = true, seeded = true;
    for (uint64_t i = 0; i < 70; i++) {  // the stream of env i starts from its own seed
        PufRng rng = {puf_mix64(puf_env_seed(5, i) + 1)};
        seeded = seeded && many.obs[3 * i + 2] == puf_rand(&rng);
    }
    CHECK(seeded);
    for (int32_t i = 1; i < 70; i++) differ = differ && many.obs[3 * i + 2] != many.obs[2];
    CHECK(differ);
    rig_destroy(&one);
    rig_destroy(&many);
}

static void test_invalid_arguments_are_refused_with_one_line(void) {
    const PufEnvInfo* info = &puf_env_probe;
    const double good[] = {2, 5, 1, 0};
    CHECK(rig_refused(info, 0, 1, good, "`num_envs`", "0"));
    CHECK(rig_refused(info, -3, 1, good, "`num_envs`", "-3"));
    CHECK(rig_refused(info, 1, 0, good, "threads", "0"));
    CHECK(rig_refused(info, 1, 5000, good, "threads", "5000"));
    CHECK(rig_refused(info, INT32_MAX, 1, good, "`num_envs`", "2147483647"));
    CHECK(rig_refused(info, 1, 1, (double[]){2.5, 5, 1, 0}, "`agents` must be a whole number",
                      "2.5"));
    CHECK(rig_refused(info, 1, 1, (double[]){0, 5, 1, 0}, "`agents` must be in [1, 64]", "0"));
    CHECK(
        rig_refused(info, 1, 1, (double[]){2, 5, 10.5, 0}, "`gain` must be in [-10, 10]", "10.5"));
    CHECK(rig_refused(info, 1, 1, (double[]){2, 5, (double)NAN, 0}, "`gain`", "nan"));
    CHECK(rig_refused(info, 1, 1, (double[]){2, 5, (double)INFINITY, 0}, "`gain`", "inf"));
    CHECK(rig_refused(info, 1, 1, (double[]){2, 5, 1, 3}, "`flavour`", "3"));
    PufVec* odd = puf_vec_create(info, 5, 1, true, good);
    CHECK(!odd && strstr(puf_last_error(), "`num_envs` must be even"));
    PufEnvInfo bad = *info;
    bad.shape = NULL;  // leaves the layout with no agents
    CHECK(rig_refused(&bad, 1, 1, good, "`probe`", "layout"));

    PufVec* vec = puf_vec_create(info, 2, 1, false, good);
    CHECK(puf_vec_reset(vec, 1) == PUF_BAD_ARGUMENT && strstr(puf_last_error(), "must be bound"));
    CHECK(puf_vec_step(vec, NULL) == PUF_BAD_ARGUMENT && strstr(puf_last_error(), "must be bound"));
    CHECK(puf_vec_bind(vec, &(PufBuffers){0}) == PUF_BAD_ARGUMENT);
    uint8_t byte = 0;
    CHECK(puf_vec_snapshot(vec, 0, &byte) == PUF_BAD_ARGUMENT);
    puf_vec_destroy(vec);
    puf_vec_destroy(NULL);

    Rig rig = probe_rig(2, 1, 1, 5);
    PufCanvas canvas = {&byte, 0, 0};
    puf_vec_reset(rig.vec, 1);
    CHECK(puf_vec_render(rig.vec, 2, &canvas) == PUF_BAD_ARGUMENT);
    CHECK(puf_vec_render(rig.vec, -1, &canvas) == PUF_BAD_ARGUMENT);
    CHECK(puf_vec_snapshot(rig.vec, 2, &byte) == PUF_BAD_ARGUMENT);
    CHECK(puf_vec_restore(rig.vec, -1, &byte) == PUF_BAD_ARGUMENT);
    rig_destroy(&rig);
}

// Three agents whose rows lie 20 and 7 bytes apart, of which they may write 12 and 4.
static void test_rows_with_gaps_play_the_same_game_and_leave_the_gaps_alone(void) {
    Rig packed = probe_rig(1, 1, 3, 5), apart = probe_rig(1, 1, 3, 5), many = probe_rig(2, 1, 3, 5);
    _Alignas(4) uint8_t obs[60], masks[21], byte = 0;
    memset(obs, RIG_GUARD_BYTE, sizeof obs);
    memset(masks, RIG_GUARD_BYTE, sizeof masks);
    PufBuffers buffers = rig_buffers(&apart);
    buffers.observations = obs;
    buffers.action_masks = masks;
    buffers.obs_stride = 20;
    buffers.mask_stride = 7;
    CHECK(puf_vec_bind(many.vec, &buffers) == PUF_BAD_ARGUMENT);
    CHECK(puf_vec_bind(apart.vec, &buffers) == PUF_OK);
    CHECK(puf_vec_snapshot(apart.vec, 0, &byte) == PUF_BAD_ARGUMENT);
    puf_vec_reset(packed.vec, 1);
    puf_vec_reset(apart.vec, 1);
    for (int32_t tick = 0; tick < 12; tick++) {  // two episodes end
        for (size_t agent = 0; agent < 3; agent++) {
            CHECK(!memcmp(obs + 20 * agent, packed.obs_u8 + 12 * agent, 12));
            CHECK(!memcmp(masks + 7 * agent, packed.action_masks + 4 * agent, 4));
            if (packed.truncations[agent])
                CHECK(!memcmp(apart.final_obs + 12 * agent, packed.final_obs + 12 * agent, 12));
            for (size_t i = 12; i < 20; i++) CHECK(obs[20 * agent + i] == RIG_GUARD_BYTE);
            for (size_t i = 4; i < 7; i++) CHECK(masks[7 * agent + i] == RIG_GUARD_BYTE);
        }
        puf_vec_step(packed.vec, NULL);
        puf_vec_step(apart.vec, NULL);
    }
    rig_destroy(&packed);
    rig_destroy(&apart);
    rig_destroy(&many);
}

static void test_every_other_call_waits_for_running_halves(void) {
    Rig rig = rig_create_as(&puf_env_probe, 200, 2, true, (double[]){2, 5, 1, 0});
    RigRows kept = rig_rows(puf_vec_snapshot_bytes(rig.vec));
    PufCanvas canvas = {rig_at(kept), 0, 0};
    PufStats stats;
    puf_vec_reset(rig.vec, 1);
    for (int32_t round = 0; round < 60; round++) {
        CHECK(puf_vec_begin(rig.vec, 0) == PUF_OK);
        CHECK(puf_vec_begin(rig.vec, 0) == PUF_BAD_ARGUMENT);
        CHECK(puf_vec_begin(rig.vec, 1) == PUF_OK);
        if (round % 6 == 0) puf_vec_snapshot(rig.vec, 199, rig_at(kept));
        if (round % 6 == 1) puf_vec_restore(rig.vec, 199, rig_at(kept));
        if (round % 6 == 2) puf_vec_drain(rig.vec, &stats);
        if (round % 6 == 3) puf_vec_render(rig.vec, 0, &canvas);
        if (round % 6 == 4) puf_vec_step(rig.vec, NULL);
        if (round % 6 == 5) puf_vec_reset(rig.vec, 1);
        CHECK(rig.obs[0] == (float)(round % 6 == 5 ? 0 : round % 6 == 4 ? 1 : (round % 6 + 1) % 5));
        puf_vec_finish(rig.vec, 0);
        puf_vec_finish(rig.vec, 1);
    }
    CHECK(puf_vec_begin(rig.vec, 2) == PUF_BAD_ARGUMENT);
    CHECK(puf_vec_begin(rig.vec, -1) == PUF_BAD_ARGUMENT);
    puf_vec_begin(rig.vec, 1);
    rig_rows_free(kept);
    rig_destroy(&rig);  // with a half under way

    Rig plain = probe_rig(2, 1, 1, 5);
    puf_vec_reset(plain.vec, 1);
    CHECK(puf_vec_begin(plain.vec, 0) == PUF_BAD_ARGUMENT);
    rig_destroy(&plain);
}

int main(void) {
    test_reset_initialises_all_rows();
    test_a_truncation_keeps_the_final_observation_and_resets_in_the_same_step();
    test_a_terminal_at_the_last_step_is_not_a_truncation();
    test_an_agent_ends_alone_and_restarts();
    test_an_agent_that_leaves_is_masked_until_the_reset();
    test_drain_adds_all_blocks_and_empties_them();
    test_extremes_of_negative_returns_are_negative();
    test_step_reads_given_actions_in_place();
    test_actions_outside_their_range_count_as_0();
    test_a_single_env_restores_while_the_others_go_on();
    test_env_0_gets_the_seed_and_the_others_differ();
    test_invalid_arguments_are_refused_with_one_line();
    test_rows_with_gaps_play_the_same_game_and_leave_the_gaps_alone();
    test_every_other_call_waits_for_running_halves();
    return CHECK_DONE();
}
