// The rules of lander, with numbers derived by hand, and what must hold for any params.
#include "envs/lander.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

// One env over flat ground at height 0, the pad at x = 0, the rocket at rest and upright.
static Lander* at_rest(float x, float y) {
    rig = RIG_START(&puf_env_lander, 1, 0, {"roughness", 0});
    Lander* env = rig_env(&rig, 0);
    env->pad = 8;
    env->x = x;
    env->y = y;
    env->vx = env->vy = env->angle = env->spin = 0;
    env->fuel = 1;
    return env;
}

static void test_gravity_pulls_and_velocity_moves(void) {
    Lander* env = at_rest(1, 10);
    env->vx = 2;
    rig_play(&rig, COAST);
    CHECK(near(env->vy, -0.15f) && near(env->y, 10 - 0.0075f));  // 3 x 0.05, then x 0.05
    CHECK(env->vx == 2 && near(env->x, 1.1f) && env->angle == 0 && env->fuel == 1);
    rig_destroy(&rig);
}

static void test_main_pushes_along_the_axis_and_burns_fuel(void) {
    Lander* env = at_rest(0, 10);
    rig_play(&rig, MAIN);  // 9 N / 1.5 kg = 6 m/s^2, less 3 of gravity
    CHECK(near(env->vy, 0.15f) && env->vx == 0 && near(env->fuel, 0.995f));
    CHECK(env->spin == 0 && env->angle == 0);
    env->vy = 0;
    env->fuel = 0.5f;          // 1.25 kg: 7.2 m/s^2
    env->angle = 0.52359878f;  // 30 degrees to the left: half of it pushes left
    rig_play(&rig, MAIN);
    CHECK(near(env->vx, -0.18f) && near(env->vy, (7.2f * 0.8660254f - 3) * 0.05f));
    rig_destroy(&rig);
}

static void test_side_engines_turn_and_push(void) {
    Lander* env = at_rest(0, 10);
    rig_play(&rig, TURN_LEFT);  // 2.5 x 0.05 rad/s; 0.6 N / 1.5 kg x 0.05 s
    CHECK(near(env->spin, 0.125f) && near(env->angle, 0.00625f) && near(env->vx, -0.02f));
    CHECK(near(env->fuel, 0.999f));
    env->spin = env->angle = env->vx = 0;
    env->fuel = 1;
    rig_play(&rig, TURN_RIGHT);
    CHECK(near(env->spin, -0.125f) && near(env->angle, -0.00625f) && near(env->vx, 0.02f));
    rig_destroy(&rig);
}

static void test_engines_are_dead_without_fuel(void) {
    Lander* env = at_rest(0, 10);
    env->fuel = 0;
    for (int32_t action = TURN_LEFT; action <= TURN_RIGHT; action++) rig_play(&rig, action);
    CHECK(near(env->vy, -0.45f) && env->vx == 0 && env->spin == 0 && env->firing == COAST);
    env->fuel = 0.001f;  // one burst is left
    rig_play(&rig, MAIN);
    CHECK(env->fuel == 0 && env->firing == MAIN);
    rig_destroy(&rig);
}

// Feet are 0.7 below the centre: over flat ground at height 0 they touch where y <= 0.7.
static void test_only_a_soft_touch_of_the_pad_is_a_landing(void) {
    static const struct {
        float x, vx, vy, angle;
        bool lands;
    } cases[] = {
        {0, 0, -1, 0, true},        // as it should be
        {0, 0, -1.3f, 0, true},     // gravity adds 0.15: 1.45 m/s
        {0, 0, -1.4f, 0, false},    // 1.55 m/s is too fast
        {0, 0.95f, -1, 0, true},    //
        {0, 1.05f, -1, 0, false},   // drifts
        {0, 0, -1, 0.24f, true},    //
        {0, 0, -1, -0.26f, false},  // leans
        {0.5f, 0, -1, 0, true},     // right foot at 1.2, the pad ends at 1.25
        {0.6f, 0, -1, 0, false},    // at 1.3
        {-0.6f, 0, -1, 0, false},   //
        {5, 0, -1, 0, false},       // flat, but not the pad
    };
    for (int32_t i = 0; i < 11; i++) {
        Lander* env = at_rest(cases[i].x, 0.72f);
        env->vx = cases[i].vx;
        env->vy = cases[i].vy;
        env->angle = cases[i].angle;
        env->fuel = 0.25f;
        rig_play(&rig, COAST);
        CHECK(rig.terminals[0] == 1 && env->perf == (cases[i].lands ? 1 : 0));
        CHECK(env->score == (cases[i].lands ? 125 : 0));
        CHECK(cases[i].lands ? rig.rewards[0] > 1.8f : rig.rewards[0] < -0.4f);
        rig_destroy(&rig);
    }
}

static void test_above_the_ground_it_flies_on(void) {
    Lander* env = at_rest(0, 0.8f);
    env->vy = -0.5f;  // 0.8 - 0.65 x 0.05 = 0.7675 > 0.7
    rig_play(&rig, COAST);
    CHECK(!rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_hills_are_deadly_for_the_hull(void) {
    // A spike of 4 m at x = 2.5 (point 10); 1.25 m beside it the ground is at 0.
    Lander* env = at_rest(2.5f, 4.3f);
    env->ground[10] = 4;
    rig_play(&rig, COAST);  // both feet are clear of the slopes (3.6 > 1.76), the hull is not
    CHECK(ground_at(env, 2.5f) == 0);  // a new episode, flat again
    CHECK(rig.terminals[0] && env->perf == 0);
    rig_destroy(&rig);
}

static void test_ground_is_straight_between_points(void) {
    Lander* env = at_rest(0, 10);
    env->ground[0] = 1;
    env->ground[1] = 3;
    env->ground[16] = 2;
    CHECK(ground_at(env, -10) == 1 && near(ground_at(env, -9.375f), 2));
    CHECK(near(ground_at(env, -8.75f), 3) && fabsf(ground_at(env, 10) - 2) < 0.01f);
    CHECK(ground_at(env, -11) == 1 && fabsf(ground_at(env, 11) - 2) < 0.01f);
    rig_destroy(&rig);
}

static void test_leaving_the_sky_is_a_crash(void) {
    Lander* env = at_rest(9.95f, 10);
    env->vx = 2;
    rig_play(&rig, COAST);
    CHECK(rig.terminals[0] && rig.rewards[0] < -0.4f);
    env->y = 19.95f;
    env->vy = 2;
    rig_play(&rig, COAST);
    CHECK(rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_rewards_sum_to_what_was_gained(void) {
    Lander* env = at_rest(3, 8);
    const float start = closeness(env);
    float sum = 0;
    for (int32_t i = 0; i < 20; i++) {
        rig_play(&rig, COAST);
        sum += rig.rewards[0];
    }
    CHECK(near(sum, closeness(env) - start - 20 * 0.003f));
    const float before = closeness(env);
    rig_play(&rig, MAIN);
    CHECK(near(rig.rewards[0], closeness(env) - before - 0.006f));
    rig_destroy(&rig);
}

static void test_pads_are_flat_and_everywhere_but_at_the_sides(void) {
    rig = rig_create(&puf_env_lander, 512, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    int32_t seen[NUM_POINTS] = {0};
    for (int32_t i = 0; i < 512; i++) {
        const Lander* env = rig_env(&rig, i);
        CHECK(env->pad >= 3 && env->pad <= 13);
        CHECK(env->ground[env->pad - 1] == env->ground[env->pad] &&
              env->ground[env->pad + 1] == env->ground[env->pad]);
        seen[env->pad]++;
    }
    for (int32_t i = 3; i <= 13; i++) CHECK(seen[i] > 15);  // 46 expected, deviation 6.5
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_lander, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: a pilot with a few rules lands most of the time.
static int32_t pilot(const float* obs) {
    const float dx = obs[0] * 5, high = obs[1] * 10, vx = obs[2] / 0.3f, vy = obs[3] / 0.3f;
    const float lean = fminf(fmaxf(0.12f * dx + 0.25f * vx, -0.35f), 0.35f);  // left is positive
    const float turn = lean - obs[4] - 0.8f * obs[5];
    const float sink = -0.4f - 0.35f * fmaxf(high, 0) - (fabsf(dx) > 1.5f && high < 5 ? -2.0f : 0);
    if (vy < sink) return MAIN;
    return turn > 0.08f ? TURN_LEFT : turn < -0.08f ? TURN_RIGHT : COAST;
}

static void test_a_simple_pilot_lands(void) {
    rig = rig_create(&puf_env_lander, 32, 1, NULL);
    puf_vec_reset(rig.vec, 3);
    for (int32_t t = 0; t < 3000; t++) {
        for (int32_t i = 0; i < 32; i++) rig.actions[i] = pilot(rig.obs + NUM_FEATURES * i);
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    printf("pilot: %d episodes, perf %.2f\n", (int)stats.samples,
           stats.metrics[1] / (double)stats.samples);
    CHECK(stats.samples >= 32 && stats.metrics[1] / (double)stats.samples > 0.5);
    rig_destroy(&rig);
}

int main(void) {
    test_gravity_pulls_and_velocity_moves();
    test_main_pushes_along_the_axis_and_burns_fuel();
    test_side_engines_turn_and_push();
    test_engines_are_dead_without_fuel();
    test_only_a_soft_touch_of_the_pad_is_a_landing();
    test_above_the_ground_it_flies_on();
    test_hills_are_deadly_for_the_hull();
    test_ground_is_straight_between_points();
    test_leaving_the_sky_is_a_crash();
    test_rewards_sum_to_what_was_gained();
    test_pads_are_flat_and_everywhere_but_at_the_sides();
    test_max_steps_truncates();
    test_a_simple_pilot_lands();
    return CHECK_DONE();
}
