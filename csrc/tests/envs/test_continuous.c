// continuous: the motion, the walls, the rewards, and a player that solves it.
#include "envs/continuous.c"
#include "tests/check.h"
#include "tests/rig.h"

// In the order of the table.
typedef struct {
    double radius, force, drag, max_speed, progress_reward, hold_reward, max_steps;
} Setting;

static const Setting usual = {0.1, 0.02, 0.05, 0.1, 1, 0.05, 100};

static Rig point_rig(int32_t num_envs, const Setting* setting) {
    Rig rig = rig_create(&puf_env_continuous, num_envs, 1, (const double*)setting);
    puf_vec_reset(rig.vec, 5);
    return rig;
}

static Continuous* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

static void place(Continuous* env, float x, float y, float target_x, float target_y) {
    env->x[0] = x;
    env->x[1] = y;
    env->v[0] = env->v[1] = 0;
    env->target[0] = target_x;
    env->target[1] = target_y;
}

static void push(Rig* rig, float x, float y) {
    float pair[2] = {x, y};
    for (int32_t i = 0; i < rig->num_slots; i++) memcpy(rig->actions + 2 * i, pair, sizeof pair);
    puf_vec_step(rig->vec, NULL);
}

static bool near(float value, double expected) { return fabs((double)value - expected) < 1e-6; }

static void test_defaults_are_those_of_the_table(void) {
    double values[PUF_MAX_PARAMS];
    rig_defaults(&puf_env_continuous, values);
    CHECK(!memcmp(values, &usual, sizeof usual));
}

// v1 = 0.02, x1 = 0.02; v2 = 0.95 * 0.02 + 0.02 = 0.039, x2 = 0.059; then half a push back:
// v3 = 0.95 * 0.039 - 0.01 = 0.02705, x3 = 0.08605. Observed speeds are shares of max_speed = 0.1.
static void test_pushes_gain_speed_and_drag_takes_a_share(void) {
    Rig rig = point_rig(1, &usual);
    place(env_of(&rig, 0), 0, 0, 0, 0.5f);
    push(&rig, 1, 0);
    CHECK(near(rig.obs[0], 0.02) && near(rig.obs[2], 0.2));
    push(&rig, 1, 0);
    CHECK(near(rig.obs[0], 0.059) && near(rig.obs[2], 0.39));
    push(&rig, -0.5f, 0);
    CHECK(near(rig.obs[0], 0.08605) && near(rig.obs[2], 0.2705));
    CHECK(rig.obs[1] == 0 && rig.obs[3] == 0 && rig.obs[4] == 0 && rig.obs[5] == 0.5f);
    rig_destroy(&rig);
}

static void test_pushes_are_clipped_to_the_box_and_nan_counts_as_0(void) {
    Rig rig = point_rig(1, &usual);
    place(env_of(&rig, 0), 0, 0, 0.5f, 0.5f);
    push(&rig, 50, -INFINITY);
    CHECK(near(rig.obs[2], 0.2) && near(rig.obs[3], -0.2));
    place(env_of(&rig, 0), 0, 0, 0.5f, 0.5f);
    push(&rig, NAN, 0);
    CHECK(rig.obs[2] == 0 && rig.obs[3] == 0);
    rig_destroy(&rig);
}

// Without drag 5 full pushes reach the limit of 0.1, and no more come through.
static void test_speed_has_a_limit(void) {
    Setting setting = usual;
    setting.drag = 0;
    Rig rig = point_rig(1, &setting);
    place(env_of(&rig, 0), -1, -1, 0.9f, 0.9f);
    for (int32_t i = 1; i <= 8; i++) {
        push(&rig, 1, 0.5f);
        CHECK(near(rig.obs[2], fmin(0.2 * i, 1)) && near(rig.obs[3], 0.1 * i));
        CHECK(rig.obs[2] <= 1);
    }
    rig_destroy(&rig);
}

static void test_walls_stop_the_point(void) {
    Rig rig = point_rig(1, &usual);
    place(env_of(&rig, 0), 0.99f, -0.5f, 0, 0);
    push(&rig, 1, 0);
    CHECK(rig.obs[0] == 1 && rig.obs[2] == 0);
    place(env_of(&rig, 0), 0, -0.99f, 0, 0);
    push(&rig, 1, -1);
    CHECK(rig.obs[1] == -1 && rig.obs[3] == 0 && near(rig.obs[0], 0.02));
    rig_destroy(&rig);
}

// From (0, 0) towards (0.3, 0.4) at 0.5: a push of 0.6, 0.8 moves 0.02 straight on, to 0.48. Across
// (-0.8, 0.6) it moves to a distance of sqrt(0.25 + 0.0004) = 0.5003998.
static void test_the_reward_is_the_distance_gained(void) {
    Rig rig = point_rig(1, &usual);
    place(env_of(&rig, 0), 0, 0, 0.3f, 0.4f);
    push(&rig, 0.6f, 0.8f);
    CHECK(near(rig.rewards[0], 0.02));
    place(env_of(&rig, 0), 0, 0, 0.3f, 0.4f);
    push(&rig, -0.8f, 0.6f);
    CHECK(near(rig.rewards[0], -0.0003998));
    rig_destroy(&rig);
}

static void test_each_step_within_the_radius_earns_the_bonus(void) {
    Rig rig = point_rig(1, &usual);
    place(env_of(&rig, 0), 0.11f, 0, 0, 0);
    push(&rig, 0, 0);
    CHECK(rig.rewards[0] == 0 && env_of(&rig, 0)->held == 0);
    push(&rig, -1, 0);  // to 0.09: 0.02 of way and 0.05 for being there
    CHECK(near(rig.rewards[0], 0.07) && env_of(&rig, 0)->held == 1);
    rig_destroy(&rig);
}

// 10 steps: the last quarter, rounded up, is steps 8, 9, 10. The point rests at the target in steps
// 1, 2 and 9, 10: score 4, perf 2/3.
static void test_episodes_are_truncated_and_perf_measures_the_last_quarter(void) {
    Setting setting = usual;
    setting.max_steps = 10;
    Rig rig = point_rig(1, &setting);
    for (int32_t tick = 1; tick <= 10; tick++) {
        bool there = tick <= 2 || tick >= 9;
        place(env_of(&rig, 0), there ? 0.05f : 0.5f, 0, 0, 0);
        push(&rig, 0, 0);
        CHECK(rig.truncations[0] == (tick == 10) && !rig.terminals[0]);
    }
    const float* final = (const float*)(const void*)rig.final_obs;
    CHECK(final[0] == 0.05f && final[4] == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[0] == 4 && near((float)stats.metrics[1], 2.0 / 3));
    CHECK(env_of(&rig, 0)->held == 0 && env_of(&rig, 0)->held_late == 0);
    rig_destroy(&rig);
}

static void test_starts_and_targets_fill_the_square(void) {
    Rig rig = point_rig(4000, &usual);
    double sums[6] = {0};
    float lows[6] = {0}, highs[6] = {0};
    for (int32_t i = 0; i < 4000; i++)
        for (int32_t k = 0; k < 6; k++) {
            float value = rig.obs[6 * i + k];
            sums[k] += (double)value;
            lows[k] = fminf(lows[k], value);
            highs[k] = fmaxf(highs[k], value);
        }
    const float limits[6] = {1, 1, 0, 0, 0.9f, 0.9f};
    for (int32_t k = 0; k < 6; k++) {
        // Means of 4000 uniform numbers in [-1, 1] have a deviation of 0.577 / 63 = 0.009.
        CHECK(fabs(sums[k] / 4000) < 5 * 0.009);
        CHECK(lows[k] >= -limits[k] && lows[k] <= -0.99f * limits[k]);
        CHECK(highs[k] <= limits[k] && highs[k] >= 0.99f * limits[k]);
    }
    rig_destroy(&rig);
}

// Pulls like a damped spring: solves it from the observation alone, so perf 1 is within reach.
static void test_a_damped_spring_holds_every_target(void) {
    Rig rig = point_rig(300, &usual);
    for (int32_t tick = 1; tick <= 100; tick++) {
        for (int32_t i = 0; i < 300; i++)
            for (int32_t k = 0; k < 2; k++) {
                const float* obs = rig.obs + 6 * i;
                float pull = 5 * (obs[4 + k] - obs[k]) - 2 * obs[2 + k];
                memcpy(rig.actions + 2 * i + k, &pull, sizeof pull);
            }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 300 && stats.metrics[1] == 300);
    CHECK(stats.metrics[0] > 300 * 70);
    rig_destroy(&rig);
}

int main(void) {
    test_defaults_are_those_of_the_table();
    test_pushes_gain_speed_and_drag_takes_a_share();
    test_pushes_are_clipped_to_the_box_and_nan_counts_as_0();
    test_speed_has_a_limit();
    test_walls_stop_the_point();
    test_the_reward_is_the_distance_gained();
    test_each_step_within_the_radius_earns_the_bonus();
    test_episodes_are_truncated_and_perf_measures_the_last_quarter();
    test_starts_and_targets_fill_the_square();
    test_a_damped_spring_holds_every_target();
    return CHECK_DONE();
}
