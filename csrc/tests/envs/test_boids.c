// The rules of boids with birds placed by hand, and its measure against a slow twin.
#include "envs/boids.c"
#include "tests/check.h"
#include "tests/rig.h"

#define SKY(...) RIG_START(&puf_env_boids, 1, 1, __VA_ARGS__)

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

static void put(Sky* env, int32_t bird, float x, float y, float angle, float speed) {
    env->x[bird] = x;
    env->y[bird] = y;
    env->ahead_x[bird] = cosf(angle);
    env->ahead_y[bird] = sinf(angle);
    env->speed[bird] = speed;
}

static void step_with(Rig* rig, float turn, float push) {
    float* actions = (float*)(void*)rig->actions;
    for (int32_t bird = 0; bird < rig->num_slots; bird++) {
        actions[2 * bird] = turn;
        actions[2 * bird + 1] = push;
    }
    puf_vec_step(rig->vec, NULL);
}

static void test_flight(void) {
    Rig rig = SKY({"num_agents", 1}, {"size", 10});
    Sky* env = rig_env(&rig, 0);
    put(env, 0, 5, 5, 0, 0.3f);
    step_with(&rig, 0, 0);
    CHECK(near(env->x[0], 5.3f) && near(env->y[0], 5) && near(env->speed[0], 0.3f));
    // 1 left by max_turn = 0.3 rad: the picture's y grows downwards, so left is towards -y.
    step_with(&rig, 1, 0);
    CHECK(near(env->ahead_x[0], cosf(0.3f)) && near(env->ahead_y[0], -sinf(0.3f)));
    CHECK(near(env->x[0], 5.3f + 0.3f * cosf(0.3f)) && near(env->y[0], 5 - 0.3f * sinf(0.3f)));
    step_with(&rig, -0.5f, 0);
    CHECK(near(env->ahead_y[0], -sinf(0.15f)));
    // A tenth of the range of 0.3 a tick, within the range.
    step_with(&rig, 0, 1);
    CHECK(near(env->speed[0], 0.33f));
    for (int32_t i = 0; i < 10; i++) step_with(&rig, 0, 1);
    CHECK(near(env->speed[0], 0.45f));
    for (int32_t i = 0; i < 12; i++) step_with(&rig, 0, -1);
    CHECK(near(env->speed[0], 0.15f));
    for (int32_t i = 0; i < 200; i++) step_with(&rig, 1, 0);
    CHECK(near(env->ahead_x[0] * env->ahead_x[0] + env->ahead_y[0] * env->ahead_y[0], 1));
    rig_destroy(&rig);
}

static void test_opposite_edges_are_joined(void) {
    static const float starts[4][2] = {{9.9f, 5}, {5, 9.9f}, {0.1f, 5}, {5, 0.1f}};
    for (int32_t i = 0; i < 4; i++) {
        Rig rig = SKY({"num_agents", 1}, {"size", 10});
        Sky* env = rig_env(&rig, 0);
        put(env, 0, starts[i][0], starts[i][1], 1.5707963f * (float)i, 0.3f);
        step_with(&rig, 0, 0);
        CHECK(near(env->x[0], i % 2 ? 5 : i ? 9.8f : 0.2f));
        CHECK(near(env->y[0], i % 2 == 0 ? 5 : i == 1 ? 0.2f : 9.8f));
        rig_destroy(&rig);
    }
}

static void test_flocking_is_company_times_alignment_times_room(void) {
    // Two birds side by side, 0.5 apart, headings 0.6 rad apart, company 2 wanted:
    // 1/2 x cos(0.6) x 0.5/1.
    Rig rig = SKY({"num_agents", 3}, {"size", 30}, {"company", 2});
    Sky* env = rig_env(&rig, 0);
    int32_t company;
    put(env, 0, 10, 10, 0, 0.3f);
    put(env, 1, 10, 10.5f, 0.6f, 0.3f);
    put(env, 2, 10, 20, 0, 0.3f);  // out of sight
    CHECK(near(look(env, 0, &company), 0.5f * cosf(0.6f) * 0.5f) && company == 1);
    CHECK(look(env, 2, &company) == 0 && company == 0);
    put(env, 2, 10, 14.9f, 0, 0.3f);  // in sight: company 2/2, mean cosine of cos(0.6) and 1
    CHECK(near(look(env, 0, &company), 0.5f * (cosf(0.6f) + 1) * 0.5f) && company == 2);
    put(env, 1, 10, 12, 0, 0.3f);  // room enough
    CHECK(near(look(env, 0, &company), 1));
    put(env, 1, 10, 12, 3, 0.3f);  // against it: -0.99 and 1
    put(env, 2, 10, 14.9f, 3, 0.3f);
    CHECK(look(env, 0, &company) == 0);
    rig_destroy(&rig);
}

static void test_what_a_bird_sees(void) {
    // Bird 0 at the right edge flies down (0, 1); its left is +x. Bird 1 is ahead, bird 2 is left
    // across the edge and flies to +x, so to the left. Vision 5, in a sky of 20.
    Rig rig = SKY({"num_agents", 3}, {"size", 20}, {"company", 4});
    Sky* env = rig_env(&rig, 0);
    int32_t company;
    put(env, 0, 19, 10, 1.5707963f, 0.45f);
    put(env, 1, 19, 13, 1.5707963f, 0.15f);
    put(env, 2, 1, 10, 0, 0.15f);
    look(env, 0, &company);
    const float expected[14] = {1, 0.5f, 0.3f, 0.2f, 0.5f, 0.5f, 0, 0.4f, 0, 1, 0.6f, 0, 1, 0};
    for (int32_t i = 0; i < 14; i++) CHECK(near(env->seen[0][i], expected[i]));
    for (int32_t i = 14; i < FEATURES; i++) CHECK(env->seen[0][i] == 0);
    rig_destroy(&rig);
}

static void test_the_nearest_come_first(void) {
    Rig rig = SKY({"num_agents", 7}, {"size", 40});
    Sky* env = rig_env(&rig, 0);
    static const float distances[7] = {0, 3, 1, 4, 2, 4.5f, 3.5f};
    for (int32_t i = 0; i < 7; i++) put(env, i, 10 + distances[i], 10, 0, 0.3f);
    int32_t company;
    look(env, 0, &company);
    static const float ahead[NUM_NEAREST] = {0.2f, 0.4f, 0.6f, 0.7f};
    for (int32_t i = 0; i < NUM_NEAREST; i++) CHECK(near(env->seen[0][6 + 4 * i], ahead[i]));
    CHECK(company == 6);
    rig_destroy(&rig);
}

static void test_metrics_and_truncation(void) {
    // Two birds abreast, always 2 apart and parallel: flocking 1 with company 1.
    Rig rig = SKY({"num_agents", 2}, {"company", 1}, {"max_steps", 4});
    Sky* env = rig_env(&rig, 0);
    for (int32_t i = 1; i <= 4; i++) {
        put(env, 0, 10, 10, 0, 0.3f);
        put(env, 1, 10, i == 1 ? 20 : 12, 0, 0.3f);  // alone in the first tick
        step_with(&rig, 0, 0);
        CHECK(near(rig.rewards[0], i > 1) && near(rig.rewards[1], i > 1));
        CHECK(rig.truncations[0] == (i == 4) && !rig.terminals[0]);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(near((float)(stats.metrics[0] / (double)stats.samples), 0.75f));
    CHECK(near((float)(stats.metrics[1] / (double)stats.samples), 1));
    CHECK(near((float)(stats.metrics[2] / (double)stats.samples), 0.75f));
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = SKY({"num_agents", 2});
    Sky* env = rig_env(&rig, 0);
    const Sky kept = *env;
    CHECK(valid(env));
    float* const fields[] = {&env->x[1],     &env->y[0],        &env->ahead_x[1],
                             &env->speed[0], &env->seen[1][21], &env->total_company};
    for (int32_t i = 0; i < 6; i++) {
        *fields[i] = NAN;
        CHECK(!valid(env));
        *env = kept;
    }
    env->x[0] = env->size;
    CHECK(!valid(env));
    *env = kept;
    env->speed[0] = 1;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_flight();
    test_opposite_edges_are_joined();
    test_flocking_is_company_times_alignment_times_room();
    test_what_a_bird_sees();
    test_the_nearest_come_first();
    test_metrics_and_truncation();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
