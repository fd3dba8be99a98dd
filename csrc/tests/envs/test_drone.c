// The physics and rules of drone, with numbers derived by hand, and what must hold for any params.
#include "envs/drone.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

static void act(float a, float b, float c, float d) {
    float action[] = {a, b, c, d};
    memcpy(rig.actions, action, sizeof action);
    puf_vec_step(rig.vec, NULL);
}

// One drone at rest at the hover point, level, looking along x; a gate 5 m ahead.
static Drone* at_rest(int32_t hover_steps) {
    rig = RIG_START(&puf_env_drone, 1, 0, {"hover_steps", hover_steps}, {"goal", 2});
    Drone* env = rig_env(&rig, 0);
    env->at = env->hover;
    env->q[0] = 1;
    env->q[3] = 0;
    env->gates[0] = (Gate){{5, 0, 4}, 1, 0};
    env->gates[1] = (Gate){{10, 0, 4}, 1, 0};
    return env;
}

static void test_zero_holds_the_drone_in_the_air(void) {
    Drone* env = at_rest(25);
    for (int32_t i = 0; i < 50; i++) act(0, 0, 0, 0);
    CHECK(norm(minus(env->at, env->hover)) < 1e-3f && norm(env->velocity) < 1e-3f);
    CHECK(norm(env->spin) < 1e-4f && near(env->q[0], 1));
    rig_destroy(&rig);
}

static void test_motors_lag_and_full_thrust_climbs(void) {
    Drone* env = at_rest(25);
    act(1, 1, 1, 1);  // 0.5 -> 0.6 -> 0.68; lifts of 1.2 g and 1.36 g
    CHECK(near(env->motors[0], 0.68f));
    const float v1 = 0.01f * 0.2f * 9.81f, v2 = v1 + 0.01f * (0.36f * 9.81f - 0.15f * v1);
    CHECK(near(env->velocity.z, v2) && near(env->at.z, 4 + 0.01f * (v1 + v2)));
    CHECK(near(env->velocity.x, 0) && norm(env->spin) < 1e-5f);
    rig_destroy(&rig);
}

static void test_without_thrust_it_falls(void) {
    Drone* env = at_rest(25);
    for (int32_t i = 0; i < NUM_MOTORS; i++) env->motors[i] = 0;
    act(-1, -1, -1, -1);
    CHECK(near(env->velocity.z, -0.0981f - 0.01f * (9.81f - 0.15f * 0.0981f)));
    rig_destroy(&rig);
}

// Signs: more thrust on the left rolls to the right (spin about x), which pushes to the right
// (-y); more behind pitches the nose down (spin about y), which pushes forwards; propellers turn
// the drone against their own sense.
static void test_differences_of_thrust_turn_the_drone(void) {
    static const struct {
        float motors[4];
        float x, y, z;  // signs of the spin
    } cases[] = {
        {{0.3f, 0.3f, -0.3f, -0.3f}, 1, 0, 0},
        {{-0.3f, 0.3f, 0.3f, -0.3f}, 0, 1, 0},
        {{-0.3f, 0.3f, -0.3f, 0.3f}, 0, 0, 1},
    };
    for (int32_t i = 0; i < 3; i++) {
        const float* m = cases[i].motors;
        Drone* env = at_rest(25);
        act(m[0], m[1], m[2], m[3]);
        // After the ticks motors differ from 0.5 by 0.03 and 0.054: four times that x 4.905 N, with
        // an arm of 0.12 m over 0.012 kg m^2, or 0.03 m over 0.02 kg m^2.
        const float gain = i < 2 ? 0.12f / 0.012f : 0.03f / 0.02f;
        const float w1 = 0.01f * 4 * 0.03f * 4.905f * gain;
        const float w2 = w1 + 0.01f * (4 * 0.054f * 4.905f * gain - 2 * w1);
        CHECK(near(env->spin.x, w2 * cases[i].x) && near(env->spin.y, w2 * cases[i].y));
        CHECK(near(env->spin.z, w2 * cases[i].z));
        for (int32_t k = 0; k < 4; k++) act(m[0], m[1], m[2], m[3]);
        CHECK(i != 0 || (env->velocity.y < -0.01f && near(env->velocity.x, 0)));
        CHECK(i != 1 || (env->velocity.x > 0.01f && near(env->velocity.y, 0)));
        CHECK(i != 2 || (near(env->velocity.x, 0) && env->q[3] > 0.001f));
        rig_destroy(&rig);
    }
}

// Free of torque, drag aside, angular momentum in the world's frame keeps its direction.
static void test_gyroscopic_term_keeps_angular_momentum(void) {
    Drone* env = at_rest(25);
    env->spin = (Vec3){3, 0.5f, 8};
    Matrix r = attitude(env->q);
    float before[3], after[3];
    for (int32_t k = 0; k < 2; k++) {
        float* out = k ? after : before;
        r = attitude(env->q);
        const Vec3 l = {INERTIA_XY * env->spin.x, INERTIA_XY * env->spin.y,
                        INERTIA_Z * env->spin.z};
        for (int32_t i = 0; i < 3; i++)
            out[i] = r.m[3 * i] * l.x + r.m[3 * i + 1] * l.y + r.m[3 * i + 2] * l.z;
        const float size = sqrtf(out[0] * out[0] + out[1] * out[1] + out[2] * out[2]);
        for (int32_t i = 0; i < 3; i++) out[i] /= size;
        if (!k)
            for (int32_t t = 0; t < 10; t++) act(0, 0, 0, 0);  // 0.2 s: 1.6 rad about z
    }
    CHECK(before[0] * after[0] + before[1] * after[1] + before[2] * after[2] > 0.995f);
    rig_destroy(&rig);
}

static void test_hover_opens_the_gates(void) {
    Drone* env = at_rest(3);
    env->at.x = 4.95f;  // through a gate that is not open yet
    env->velocity.x = 5;
    act(0, 0, 0, 0);
    CHECK(env->at.x > 5 && env->passed == 0);
    env->velocity.x = 0;
    env->at.x = 0.6f;  // too far
    act(0, 0, 0, 0);
    CHECK(env->held == 0 && near(rig.rewards[0], 0) && rig.obs[6] == 0);
    env->at.x = 0.4f;
    for (int32_t i = 1; i <= 3; i++) {
        act(0, 0, 0, 0);
        CHECK(env->held == i && near(rig.rewards[0], 0.02f));
    }
    // Now the gate is the target: 4.6 m ahead, the one after it 9.6 m, and its direction is seen.
    CHECK(near(rig.obs[0], 4.6f * 0.25f) && near(rig.obs[3], 9.6f * 0.1f) && rig.obs[6] == 1);
    act(0, 0, 0, 0);
    CHECK(env->held == 3 && near(rig.rewards[0], 0));
    rig_destroy(&rig);
}

static void test_a_gate_is_passed_inside_and_forwards_only(void) {
    static const struct {
        float x, y, z, speed;
        int32_t result;
    } cases[] = {
        {4.95f, 0, 4, 5, PASSED},       // crosses x = 5 in the middle
        {4.95f, 0.9f, 4, 5, PASSED},    // radius 1
        {4.95f, 0, 4.95f, 5, PASSED},   //
        {4.95f, 1.1f, 4, 5, CRASHED},   // the frame reaches to 1.25
        {4.95f, 0, 2.85f, 5, CRASHED},  //
        {4.95f, 1.3f, 4, 5, CLEAR},     // beside it
        {5.05f, 0, 4, -5, CLEAR},       // backwards
        {4.7f, 0, 4, 5, CLEAR},         // not there yet
    };
    for (int32_t i = 0; i < 8; i++) {
        Drone* env = at_rest(0);
        env->at = (Vec3){cases[i].x, cases[i].y, cases[i].z};
        env->velocity.x = cases[i].speed;
        act(0, 0, 0, 0);
        const bool passed = cases[i].result == PASSED, crashed = cases[i].result == CRASHED;
        CHECK(rig.terminals[0] == crashed && env->passed == (passed ? 1 : 0));
        CHECK(passed == (rig.rewards[0] > 0.9f) && crashed == (rig.rewards[0] < -0.9f));
        if (passed) CHECK(env->gates[0].at.x == 10);
        rig_destroy(&rig);
    }
}

static void test_goal_truncates_with_perf_1(void) {
    Drone* env = at_rest(0);
    env->at.x = 4.95f;
    env->velocity.x = 5;
    act(0, 0, 0, 0);
    CHECK(!rig.truncations[0]);
    env->at = (Vec3){9.95f, 0, 4};
    act(0, 0, 0, 0);
    CHECK(rig.truncations[0] && env->score == 2 && env->perf == 1 && env->passed == 0);
    rig_destroy(&rig);
}

static void test_ground_and_distance_are_crashes(void) {
    Drone* env = at_rest(0);
    env->at.z = 0.01f;
    env->velocity.z = -1;
    act(0, 0, 0, 0);
    CHECK(rig.terminals[0] && rig.rewards[0] < -0.9f);
    rig_destroy(&rig);
    env = at_rest(0);
    env->at.x = -6.9f;  // 11.9 m before the gate
    act(0, 0, 0, 0);
    CHECK(!rig.terminals[0]);
    env->at.x = -7.1f;
    act(0, 0, 0, 0);
    CHECK(rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_courses_wind_within_their_limits(void) {
    rig = rig_create(&puf_env_drone, 256, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    for (int32_t i = 0; i < 256; i++) {
        Drone* env = rig_env(&rig, i);
        for (int32_t k = 0; k < 10; k++) {
            const Gate a = env->gates[0], b = next_gate(env, &a);
            const float dx = b.at.x - a.at.x, dy = b.at.y - a.at.y, flat = sqrtf(dx * dx + dy * dy);
            CHECK(flat > 3.99f && flat < 6.01f && b.at.z >= 2.5f && b.at.z <= 5.5f);
            CHECK(fabsf(b.at.z - a.at.z) <= 1.001f);
            CHECK(a.nx * b.nx + a.ny * b.ny >= 0.764f);       // cos 0.7 = 0.765
            CHECK((a.nx * dx + a.ny * dy) / flat >= 0.939f);  // cos 0.35
            CHECK(near(b.nx * b.nx + b.ny * b.ny, 1));
            env->gates[0] = b;
        }
    }
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_drone, 1, 0, {"max_steps", 3});
    for (int32_t i = 1; i <= 6; i++) {
        act(0, 0, 0, 0);
        CHECK(rig.truncations[0] == (i % 3 == 0) && !rig.terminals[0]);
    }
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: a cascade of proportional controllers races through the
// gates with what it observes. The way to a point behind the gate becomes a velocity, that a tilt,
// that a spin, and that a difference of thrusts.
static void pilot(const float* obs, float* action) {
    const bool hovering = obs[6] == 0 && obs[7] == 0 && obs[8] == 0;
    const float up[3] = {obs[15], obs[16], obs[17]};
    float way[3], want[3];
    for (int32_t k = 0; k < 3; k++) {
        way[k] = 4 * obs[k] + (hovering ? 0 : 0.6f * obs[6 + k]);
        want[k] = clamp(1.2f * way[k], 2.5f) - 4 * obs[9 + k];  // wanted change of velocity
    }
    float vertical = 0, yaw = hovering ? 0 : 0.8f * clamp(way[1], 1);
    for (int32_t k = 0; k < 3; k++) vertical += want[k] * up[k];
    // Wanted thrust direction, in the drone's frame: up plus some of the wanted velocity.
    const float lean_x = clamp(0.12f * (want[0] - vertical * up[0]), 0.4f) + up[0];
    const float lean_y = clamp(0.12f * (want[1] - vertical * up[1]), 0.4f) + up[1];
    const float spin_x = -6 * lean_y - 5 * obs[12], spin_y = 6 * lean_x - 5 * obs[13];
    const float spin_z = 2 * yaw - 5 * obs[14], lift = 0.35f * vertical;
    for (int32_t i = 0; i < NUM_MOTORS; i++)
        action[i] = lift + 0.03f * (MOTOR_Y[i] * spin_x - MOTOR_X[i] * spin_y) +
                    0.1f * MOTOR_SPIN[i] * spin_z;
}

static void test_a_simple_pilot_flies_the_course(void) {
    rig = rig_create(&puf_env_drone, 16, 1, NULL);
    puf_vec_reset(rig.vec, 3);
    for (int32_t t = 0; t < 3000; t++) {
        for (int32_t i = 0; i < 16; i++)
            pilot(rig.obs + NUM_FEATURES * i, (float*)(void*)(rig.actions + NUM_MOTORS * i));
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    printf("pilot: %d episodes, perf %.2f\n", (int)stats.samples,
           stats.metrics[1] / (double)stats.samples);
    CHECK(stats.samples >= 16 && stats.metrics[1] / (double)stats.samples > 0.5);
    rig_destroy(&rig);
}

int main(void) {
    test_zero_holds_the_drone_in_the_air();
    test_motors_lag_and_full_thrust_climbs();
    test_without_thrust_it_falls();
    test_differences_of_thrust_turn_the_drone();
    test_gyroscopic_term_keeps_angular_momentum();
    test_hover_opens_the_gates();
    test_a_gate_is_passed_inside_and_forwards_only();
    test_goal_truncates_with_perf_1();
    test_ground_and_distance_are_crashes();
    test_courses_wind_within_their_limits();
    test_max_steps_truncates();
    test_a_simple_pilot_flies_the_course();
    return CHECK_DONE();
}
