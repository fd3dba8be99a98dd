// tmaze: the walk to the junction, what is seen on the way, and why memory is needed.
#include "envs/tmaze.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig tmaze_rig(int32_t num_envs, double cells, double steps) {
    Rig rig = rig_create(&puf_env_tmaze, num_envs, 1, (double[]){cells, steps});
    puf_vec_reset(rig.vec, 6);
    return rig;
}

static TMaze* env_of(const Rig* rig, int32_t i) {
    return (TMaze*)(void*)(rig->batch->envs + (size_t)i * rig->batch->env_bytes);
}

static void go(Rig* rig, int32_t action) {
    for (int32_t i = 0; i < rig->num_slots; i++) rig->actions[i] = action;
    puf_vec_step(rig->vec, NULL);
}

static bool sees(const uint8_t* row, uint8_t left, uint8_t right, uint8_t corridor, uint8_t turn) {
    return row[0] == left && row[1] == right && row[2] == corridor && row[3] == turn;
}

// A corridor of 2: sign, corridor, corridor, junction, turn. Env 0 is told left, env 1 right; both
// turn left.
static void test_the_turn_that_the_sign_says_earns_1(void) {
    Rig rig = tmaze_rig(2, 2, 0);
    env_of(&rig, 0)->sign = LEFT;
    env_of(&rig, 1)->sign = RIGHT;
    observe(env_of(&rig, 0));
    observe(env_of(&rig, 1));
    CHECK(sees(rig.obs_u8, 1, 0, 0, 0) && sees(rig.obs_u8 + 4, 0, 1, 0, 0));
    for (int32_t i = 0; i < 2; i++) {
        go(&rig, FORWARD);
        CHECK(sees(rig.obs_u8, 0, 0, 1, 0) && sees(rig.obs_u8 + 4, 0, 0, 1, 0));
    }
    go(&rig, FORWARD);
    CHECK(sees(rig.obs_u8, 0, 0, 0, 1) && sees(rig.obs_u8 + 4, 0, 0, 0, 1));
    CHECK(rig.rewards[0] == 0 && rig.rewards[1] == 0 && !rig.terminals[0]);
    go(&rig, LEFT);
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
    go(&rig, LEFT);
    CHECK(env->place == 0 && (rig.obs_u8[0] || rig.obs_u8[1]));
    go(&rig, FORWARD);
    go(&rig, RIGHT);
    CHECK(env->place == 1 && sees(rig.obs_u8, 0, 0, 1, 0));
    for (int32_t i = 0; i < 3; i++) {
        go(&rig, FORWARD);
        CHECK(env->place == 2 && sees(rig.obs_u8, 0, 0, 0, 1) && rig.rewards[0] == 0);
    }
    CHECK(!rig.terminals[0] && !rig.truncations[0]);
    rig_destroy(&rig);
}

static void test_who_never_turns_is_cut_with_perf_0(void) {
    Rig rig = tmaze_rig(1, 3, 0);
    for (int32_t tick = 1; tick <= 4 * 3 + 8; tick++) {
        go(&rig, FORWARD);
        CHECK(rig.truncations[0] == (tick == 20) && !rig.terminals[0] && rig.rewards[0] == 0);
    }
    CHECK(sees(rig.final_obs, 0, 0, 0, 1));
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[1] == 0 && stats.metrics[2] == 0);
    rig_destroy(&rig);
}

// Two envs that differ in the sign give the same rows from the first step forward on, whatever is
// done: at the junction nothing is left that could tell left from right.
static void test_nothing_seen_after_the_start_depends_on_the_sign(void) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        Rig rig = tmaze_rig(2, 4, 60);
        env_of(&rig, 0)->sign = LEFT;
        env_of(&rig, 1)->sign = RIGHT;
        PufRng rng = {seed};
        for (;;) {
            go(&rig, puf_rand_int(&rng, 3));
            CHECK(rig.terminals[0] == rig.terminals[1] && rig.truncations[0] == rig.truncations[1]);
            if (rig.terminals[0] || rig.truncations[0]) break;
            if (env_of(&rig, 0)->place > 0) CHECK(!memcmp(rig.obs_u8, rig.obs_u8 + 4, 4));
        }
        rig_destroy(&rig);
    }
}

// 4000 mazes: who remembers the sign is always right, who always turns left half the time
// (deviation 0.008).
static void test_memory_is_worth_half_of_all_turns(void) {
    for (int32_t remembers = 0; remembers < 2; remembers++) {
        Rig rig = tmaze_rig(4000, 5, 0);
        int32_t* told = malloc(sizeof(int32_t) * 4000);
        for (int32_t i = 0; i < 4000; i++) told[i] = rig.obs_u8[4 * i] ? LEFT : RIGHT;
        for (int32_t tick = 0; tick < 6; tick++) go(&rig, FORWARD);
        for (int32_t i = 0; i < 4000; i++) rig.actions[i] = remembers ? told[i] : LEFT;
        puf_vec_step(rig.vec, NULL);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.episodes == 4000 && stats.metrics[2] == 4000);
        if (remembers) CHECK(stats.metrics[1] == 4000 && stats.return_sum == 4000);
        if (!remembers) CHECK(fabs(stats.metrics[1] / 4000 - 0.5) < 5 * 0.008);
        free(told);
        rig_destroy(&rig);
    }
}

int main(void) {
    test_the_turn_that_the_sign_says_earns_1();
    test_walls_stop_turns_before_the_junction_and_the_walk_at_it();
    test_who_never_turns_is_cut_with_perf_0();
    test_nothing_seen_after_the_start_depends_on_the_sign();
    test_memory_is_worth_half_of_all_turns();
    return CHECK_DONE();
}
