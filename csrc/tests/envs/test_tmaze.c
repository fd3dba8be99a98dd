// tmaze: the walk to the junction, what is seen on the way, and why memory is needed.
#include "envs/tmaze.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig tmaze_rig(int32_t num_envs, double cells, double steps) {
    return RIG_START(&puf_env_tmaze, num_envs, 6, {"length", cells}, {"max_steps", steps});
}

static TMaze* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

static bool sees(const uint8_t* row, uint8_t left, uint8_t right, uint8_t corridor, uint8_t turn) {
    return row[0] == left && row[1] == right && row[2] == corridor && row[3] == turn;
}

// A corridor of 2: sign, corridor, corridor, junction, turn. Env 0 has the sign left, env 1 right;
// both turn left.
static void test_the_turn_that_the_sign_says_earns_1(void) {
    Rig rig = tmaze_rig(2, 2, 0);
    env_of(&rig, 0)->sign = LEFT;
    env_of(&rig, 1)->sign = RIGHT;
    observe(env_of(&rig, 0));
    observe(env_of(&rig, 1));
    CHECK(sees(rig.obs_u8, 1, 0, 0, 0) && sees(rig.obs_u8 + 4, 0, 1, 0, 0));
    for (int32_t i = 0; i < 2; i++) {
        rig_play(&rig, FORWARD);
        CHECK(sees(rig.obs_u8, 0, 0, 1, 0) && sees(rig.obs_u8 + 4, 0, 0, 1, 0));
    }
    rig_play(&rig, FORWARD);
    CHECK(sees(rig.obs_u8, 0, 0, 0, 1) && sees(rig.obs_u8 + 4, 0, 0, 0, 1));
    CHECK(rig.rewards[0] == 0 && rig.rewards[1] == 0 && !rig.terminals[0]);
    rig_play(&rig, LEFT);
    CHECK(rig.terminals[0] && rig.terminals[1] && !rig.truncations[0]);
    CHECK(rig.rewards[0] == 1 && rig.rewards[1] == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 2 && stats.metrics[0] == 1 && stats.metrics[1] == 1);
    CHECK(stats.metrics[2] == 2 && stats.length_sum == 2 * 4);
    rig_destroy(&rig);
}

static void test_walls_stop_turns_before_the_junction_and_the_walk_at_it(void) {
    Rig rig = tmaze_rig(1, 1, 100);
    TMaze* env = env_of(&rig, 0);
    rig_play(&rig, LEFT);
    CHECK(env->place == 0 && (rig.obs_u8[0] || rig.obs_u8[1]));
    rig_play(&rig, FORWARD);
    rig_play(&rig, RIGHT);
    CHECK(env->place == 1 && sees(rig.obs_u8, 0, 0, 1, 0));
    for (int32_t i = 0; i < 3; i++) {
        rig_play(&rig, FORWARD);
        CHECK(env->place == 2 && sees(rig.obs_u8, 0, 0, 0, 1) && rig.rewards[0] == 0);
    }
    CHECK(!rig.terminals[0] && !rig.truncations[0]);
    rig_destroy(&rig);
}

static void test_an_agent_that_never_turns_is_truncated_with_perf_0(void) {
    Rig rig = tmaze_rig(1, 3, 0);
    for (int32_t tick = 1; tick <= 4 * 3 + 8; tick++) {
        rig_play(&rig, FORWARD);
        CHECK(rig.truncations[0] == (tick == 20) && !rig.terminals[0] && rig.rewards[0] == 0);
    }
    CHECK(sees(rig.final_obs, 0, 0, 0, 1));
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[1] == 0 && stats.metrics[2] == 0);
    rig_destroy(&rig);
}

// Two envs that differ in the sign give the same rows from the first step forward on, whatever is
// done: at the junction nothing distinguishes left from right.
static void test_observations_after_the_start_do_not_depend_on_the_sign(void) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        Rig rig = tmaze_rig(2, 4, 60);
        env_of(&rig, 0)->sign = LEFT;
        env_of(&rig, 1)->sign = RIGHT;
        PufRng rng = {seed};
        for (;;) {
            rig_play(&rig, puf_rand_int(&rng, 3));
            CHECK(rig.terminals[0] == rig.terminals[1] && rig.truncations[0] == rig.truncations[1]);
            if (rig.terminals[0] || rig.truncations[0]) break;
            if (env_of(&rig, 0)->place > 0) CHECK(!memcmp(rig.obs_u8, rig.obs_u8 + 4, 4));
        }
        rig_destroy(&rig);
    }
}

// 4000 mazes: a player that remembers the sign is always right, one that always turns left half of
// the time (deviation 0.008).
static void test_remembering_the_sign_makes_all_turns_correct_instead_of_half(void) {
    for (int32_t remembers = 0; remembers < 2; remembers++) {
        Rig rig = tmaze_rig(4000, 5, 0);
        int32_t* signs = malloc(sizeof(int32_t) * 4000);
        for (int32_t i = 0; i < 4000; i++) signs[i] = rig.obs_u8[4 * i] ? LEFT : RIGHT;
        for (int32_t tick = 0; tick < 6; tick++) rig_play(&rig, FORWARD);
        for (int32_t i = 0; i < 4000; i++) rig.actions[i] = remembers ? signs[i] : LEFT;
        puf_vec_step(rig.vec, NULL);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.episodes == 4000 && stats.metrics[2] == 4000);
        if (remembers) CHECK(stats.metrics[1] == 4000 && stats.return_sum == 4000);
        if (!remembers) CHECK(fabs(stats.metrics[1] / 4000 - 0.5) < 5 * 0.008);
        free(signs);
        rig_destroy(&rig);
    }
}

int main(void) {
    test_the_turn_that_the_sign_says_earns_1();
    test_walls_stop_turns_before_the_junction_and_the_walk_at_it();
    test_an_agent_that_never_turns_is_truncated_with_perf_0();
    test_observations_after_the_start_do_not_depend_on_the_sign();
    test_remembering_the_sign_makes_all_turns_correct_instead_of_half();
    return CHECK_DONE();
}
