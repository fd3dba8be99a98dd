// chain: the walk, its two ends, and how far a straight walk gets.
#include "envs/chain.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig chain_rig(int32_t num_envs, double cells, double near_pays, double steps) {
    return RIG_START(&puf_env_chain, num_envs, 4, {"length", cells}, {"near_reward", near_pays},
                     {"max_steps", steps});
}

// 5 cells: 1 right to 2, 3, 4 and on against the end, which pays each time; then 1 back.
static void test_each_step_at_the_right_end_earns_1(void) {
    Rig rig = chain_rig(1, 5, 0.05, 20);
    CHECK(rig.obs[0] == 0.25f);
    const float seen[] = {0.5f, 0.75f, 1, 1, 1};
    for (int32_t i = 0; i < 5; i++) {
        rig_play(&rig, 1);
        CHECK(rig.obs[0] == seen[i] && rig.rewards[0] == (i >= 2));
    }
    rig_play(&rig, 0);
    CHECK(rig.obs[0] == 0.75f && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_each_step_at_the_left_end_earns_a_little(void) {
    Rig rig = chain_rig(1, 5, 0.05, 20);
    for (int32_t i = 0; i < 3; i++) {
        rig_play(&rig, 0);
        CHECK(rig.obs[0] == 0 && rig.rewards[0] == 0.05f);
    }
    rig_play(&rig, 1);
    CHECK(rig.obs[0] == 0.25f && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

// 12 cells, 21 steps: 10 to the right end, the 10th pays the first time: 12 times in all.
static void test_a_straight_walk_is_perf_1(void) {
    Rig rig = rig_create(&puf_env_chain, 3, 1, NULL);
    puf_vec_reset(rig.vec, 4);
    for (int32_t tick = 1; tick <= 21; tick++) {
        rig_play(&rig, 1);
        CHECK(rig.truncations[0] == (tick == 21) && !rig.terminals[0]);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 3 && stats.return_sum == 3 * 12);
    CHECK(stats.metrics[0] == 3 * 12 && stats.metrics[1] == 3);
    CHECK(((float*)(void*)rig.final_obs)[0] == 1 && rig.obs[0] == 1.0f / 11);
    rig_destroy(&rig);
}

static void test_the_left_end_alone_is_perf_0(void) {
    Rig rig = chain_rig(1, 12, 0.05, 0);
    for (int32_t tick = 1; tick <= 21; tick++) rig_play(&rig, 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(fabs(stats.return_sum - 21 * 0.05) < 1e-5 && stats.metrics[1] == 0);
    rig_destroy(&rig);
}

// The smallest row: the start is the right end. A step against it pays each time.
static void test_two_cells_are_enough(void) {
    Rig rig = chain_rig(1, 2, 0, 3);
    CHECK(rig.obs[0] == 1);
    for (int32_t tick = 1; tick <= 3; tick++) {
        rig_play(&rig, 1);
        CHECK(rig.rewards[0] == 1);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 3 && stats.metrics[1] == 1);
    rig_destroy(&rig);
}

// Random walks of 19 steps from place 1 of 10, counted state by state.
static void test_random_walks_seldom_see_the_right_end(void) {
    double at[10] = {0}, expected = 0;
    at[1] = 1;
    for (int32_t tick = 0; tick < 19; tick++) {
        double next[10] = {0};
        for (int32_t i = 0; i < 10; i++) {
            next[i > 0 ? i - 1 : 0] += 0.5 * at[i];
            next[i < 9 ? i + 1 : 9] += 0.5 * at[i];
        }
        memcpy(at, next, sizeof at);
        expected += at[9];
    }
    Rig rig = chain_rig(20000, 10, 0, 19);
    PufRng rng = {3};
    for (int32_t tick = 0; tick < 19; tick++) {
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    // expected is 0.218; the deviation of one walk is below 1.1, of the mean of 20,000 below 0.008
    CHECK(fabs(stats.return_sum / 20000 - expected) < 5 * 0.008 && expected < 0.3);
    rig_destroy(&rig);
}

int main(void) {
    test_each_step_at_the_right_end_earns_1();
    test_each_step_at_the_left_end_earns_a_little();
    test_a_straight_walk_is_perf_1();
    test_the_left_end_alone_is_perf_0();
    test_two_cells_are_enough();
    test_random_walks_seldom_see_the_right_end();
    return CHECK_DONE();
}
