// hybrid: a choice and a number in one row, each judged by itself.
#include "envs/hybrid.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig hybrid_rig(int32_t num_envs, double hit_radius, double steps) {
    return RIG_START(&puf_env_hybrid, num_envs, 12, {"radius", hit_radius}, {"max_steps", steps});
}

static Hybrid* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

static void set_action(Rig* rig, int32_t slot, int32_t lane, float aim) {
    rig->actions[2 * slot] = lane;
    memcpy(rig->actions + 2 * slot + 1, &aim, sizeof aim);
}

static bool near(float value, double expected) { return fabs((double)value - expected) < 1e-6; }

// The target is in lane 2 at height -0.5, each step is worth 1/10: right lane 0.05, and for the aim
// 0.05 less 0.025 for each unit it is off.
static void test_lane_and_aim_earn_a_half_each(void) {
    const struct {
        int32_t lane;
        float aim;
        double earned;
        int32_t lanes, aims, hits;
    } cases[] = {
        {2, -0.5f, 0.1, 1, 1, 1},         {2, -0.3f, 0.05 + 0.045, 1, 1, 1},
        {2, 0.5f, 0.05 + 0.025, 1, 0, 0}, {0, -0.5f, 0.05, 0, 1, 0},
        {1, 1, 0.0125, 0, 0, 0},          {2, 7, 0.05 + 0.0125, 1, 0, 0},
        {2, NAN, 0.05 + 0.0375, 1, 0, 0}, {9, -0.5f, 0.05, 0, 1, 0},
        {-1, -2, 0.05 - 0.0125, 0, 0, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        Rig rig = hybrid_rig(1, 0.25, 10);
        Hybrid* env = env_of(&rig, 0);
        env->target_lane = 2;
        env->target = -0.5f;
        observe(env);
        CHECK(!memcmp(rig.obs, (float[]){0, 0, 1, -0.5f}, 16));
        set_action(&rig, 0, cases[k].lane, cases[k].aim);
        puf_vec_step(rig.vec, NULL);
        CHECK(near(rig.rewards[0], cases[k].earned));
        CHECK(env->lanes_right == cases[k].lanes && env->aims_right == cases[k].aims);
        CHECK(env->hits == cases[k].hits);
        rig_destroy(&rig);
    }
}

// Four steps: both right, lane alone, aim alone, neither.
static void test_metrics_measure_lane_and_aim_separately(void) {
    Rig rig = hybrid_rig(1, 0.2, 4);
    for (int32_t i = 0; i < 4; i++) {
        const Hybrid* env = env_of(&rig, 0);
        const int32_t lane = i < 2 ? env->target_lane : (env->target_lane + 1) % 3;
        const float away = env->target > 0 ? env->target - 0.5f : env->target + 0.5f;
        set_action(&rig, 0, lane, i % 2 ? away : env->target);
        puf_vec_step(rig.vec, NULL);
    }
    CHECK(rig.truncations[0] && !rig.terminals[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[0] == 1 && stats.metrics[1] == 0.25);
    CHECK(stats.metrics[2] == 0.5 && stats.metrics[3] == 0.5);
    // 0.5 + 0.5 and 0.5 + 0.375, then the aims alone: 0.5 and 0.375
    CHECK(near((float)stats.return_sum, (1 + 0.875 + 0.5 + 0.375) / 4));
    rig_destroy(&rig);
}

// 9000 targets: each lane a third of the time (deviation 0.005), heights even over [-1, 1] (mean 0,
// deviation 0.577 / 95 = 0.006).
static void test_targets_are_everywhere(void) {
    Rig rig = hybrid_rig(9000, 0.2, 16);
    int32_t lanes[LANES] = {0};
    double sum = 0;
    float low = 0, high = 0;
    for (int32_t i = 0; i < 9000; i++) {
        for (int32_t k = 0; k < LANES; k++) lanes[k] += rig.obs[4 * i + k] == 1;
        sum += (double)rig.obs[4 * i + 3];
        low = fminf(low, rig.obs[4 * i + 3]);
        high = fmaxf(high, rig.obs[4 * i + 3]);
    }
    CHECK(lanes[0] + lanes[1] + lanes[2] == 9000);
    for (int32_t k = 0; k < LANES; k++) CHECK(fabs(lanes[k] / 9000.0 - 1.0 / 3) < 5 * 0.005);
    CHECK(fabs(sum / 9000) < 5 * 0.006 && low >= -1 && low < -0.99f && high < 1 && high > 0.99f);
    rig_destroy(&rig);
}

static void test_the_right_action_follows_from_the_observation_alone(void) {
    Rig rig = hybrid_rig(100, 0.001, 16);
    for (int32_t tick = 0; tick < 32; tick++) {
        for (int32_t i = 0; i < 100; i++) {
            const float* obs = rig.obs + 4 * i;
            set_action(&rig, i, obs[1] == 1 ? 1 : obs[2] == 1 ? 2 : 0, obs[3]);
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 200 && stats.metrics[0] == 16 * 200 && stats.metrics[1] == 200);
    CHECK(fabs(stats.return_sum - 200) < 1e-3);
    rig_destroy(&rig);
}

int main(void) {
    test_lane_and_aim_earn_a_half_each();
    test_metrics_measure_lane_and_aim_separately();
    test_targets_are_everywhere();
    test_the_right_action_follows_from_the_observation_alone();
    return CHECK_DONE();
}
