// The rules of freeway, with numbers derived by hand.
#include "envs/freeway.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

// One env whose cars are all out of the way: half of the spacing of 80 from the chicken.
static Freeway* empty_road(void) {
    rig = RIG_START(&puf_env_freeway, 1, 0, {"reward_lane", 0.5}, {"reward_hit", -2});
    Freeway* env = rig_env(&rig, 0);
    for (int32_t lane = 0; lane < LANES; lane++) {
        env->cars[lane] = 40;
        env->speed[lane] = lane < LANES / 2 ? 1e-6f : -1e-6f;
    }
    return env;
}

static void test_traffic_is_drawn_within_its_limits(void) {
    rig = RIG_START(&puf_env_freeway, 64, 3, {"car_speed", 0.5});
    float sum = 0;
    for (int32_t i = 0; i < 64; i++) {
        const Freeway* env = rig_env(&rig, i);
        CHECK(env->y == 0.5f && !env->stunned && !env->crossings);
        for (int32_t lane = 0; lane < LANES; lane++) {
            const float speed = lane < 5 ? env->speed[lane] : -env->speed[lane];
            CHECK(speed >= 0.4f && speed <= 1.6f && env->cars[lane] >= 0 && env->cars[lane] < 160);
            sum += speed;
        }
    }
    CHECK(fabsf(sum / 640 - 1) < 0.07f);  // 5 standard deviations of 0.346 / sqrt(640)
    rig_destroy(&rig);
}

static void test_chicken_walks_and_stops_at_the_lower_kerb(void) {
    Freeway* env = empty_road();
    rig_play(&rig, UP);
    CHECK(env->y == 0.75f && near(rig.rewards[0], 0.125f));  // a quarter lane x 0.5
    rig_play(&rig, STAY);
    CHECK(env->y == 0.75f && rig.rewards[0] == 0);
    rig_play(&rig, DOWN);
    CHECK(env->y == 0.5f && near(rig.rewards[0], -0.125f));
    rig_play(&rig, DOWN);
    CHECK(env->y == 0.5f && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_a_crossing_takes_44_ticks_scores_and_starts_again(void) {
    Freeway* env = empty_road();
    for (int32_t i = 1; i <= 44; i++) {  // 11 lanes at a quarter lane a tick
        CHECK(env->crossings == 0);
        rig_play(&rig, UP);
    }
    CHECK(env->crossings == 1 && env->y == 0.5f && near(rig.rewards[0], 1.125f));
    CHECK(env->score == 1 && near(env->perf, 1 / 15.0f));
    rig_destroy(&rig);
}

static void test_cars_move_and_return_on_the_other_side(void) {
    Freeway* env = empty_road();
    env->cars[0] = 159;
    env->speed[0] = 2;
    env->cars[9] = 1;
    env->speed[9] = -2;
    rig_play(&rig, STAY);
    CHECK(near(env->cars[0], 1) && near(env->cars[9], 159));
    rig_play(&rig, STAY);
    CHECK(near(env->cars[0], 3) && near(env->cars[9], 157));
    rig_destroy(&rig);
}

static void test_a_car_hits_within_ten_units_and_in_its_own_lane_only(void) {
    // Cars stand at x and x + 80; the chicken is at 80. Lane 2 is 3..4, its middle 3.5.
    static const struct {
        float x, y;
        bool hit;
    } cases[] = {
        {0, 3.5f, true},    {71, 3.5f, true}, {89, 3.5f, true},  {69, 3.5f, false},
        {91, 3.5f, false},  {9, 3.5f, true},  {11, 3.5f, false}, {151, 3.5f, true},
        {149, 3.5f, false}, {0, 3.1f, true},  {0, 3.9f, true},   {0, 3.04f, false},
        {0, 3.96f, false},  {0, 4.5f, false}, {0, 2.5f, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Freeway* env = empty_road();
        env->cars[2] = cases[i].x;
        env->y = cases[i].y;
        rig_play(&rig, STAY);
        CHECK((env->stunned > 0) == cases[i].hit);
        rig_destroy(&rig);
    }
}

static void test_a_hit_throws_back_stuns_and_spares_the_stunned(void) {
    Freeway* env = empty_road();
    env->cars[2] = env->cars[1] = 80;  // in the way in lane 2, and in the lane below
    env->y = 3.5f;
    rig_play(&rig, STAY);
    CHECK(env->y == 2.5f && env->stunned == 8 && near(rig.rewards[0], -2.5f));
    CHECK(rig.obs[1] == 1);
    for (int32_t i = 7; i >= 1; i--) {
        rig_play(&rig, UP);
        CHECK(env->y == 2.5f && env->stunned == i && rig.rewards[0] == 0);
    }
    rig_play(&rig, UP);  // the last tick of rest: the car of lane 1 hits at its end
    CHECK(env->y == 1.5f && env->stunned == 8);
    env->cars[0] = 80;
    env->stunned = 1;
    rig_play(&rig, UP);
    CHECK(env->y == 0.5f);  // not below the kerb
    rig_destroy(&rig);
}

static void test_knockback_and_stun_are_params(void) {
    rig = RIG_START(&puf_env_freeway, 1, 0, {"knockback", 12}, {"stun", 0});
    Freeway* env = rig_env(&rig, 0);
    env->y = 9.5f;
    env->cars[8] = 80;
    env->speed[8] = -1;
    rig_play(&rig, STAY);
    CHECK(env->y == 0.5f && env->stunned == 0);
    rig_play(&rig, UP);
    CHECK(env->y == 0.75f);
    rig_destroy(&rig);
}

static void test_observed_times_are_those_of_the_next_car(void) {
    Freeway* env = empty_road();
    env->y = 1.5f;      // in lane 0: the view is lanes -1 .. 4
    env->cars[0] = 39;  // after the tick 40; the other one is at 120
    env->speed[0] = 1;
    env->cars[1] = 83;  // 85: 5 behind the chicken, gone in 5 units
    env->speed[1] = 2;
    env->cars[2] = 74;  // 75: 5 in front of it
    env->speed[2] = 1;
    rig_play(&rig, STAY);
    const float* obs = rig.obs;
    CHECK(near(obs[0], 1.5f * 2 / 11.5f - 1) && obs[1] == 0 && near(obs[2], 0));
    CHECK(obs[3] == 1 && obs[4] == 1 && obs[5] == 0);  // the kerb
    CHECK(near(obs[6], 30 / 40.0f) && obs[7] == 1 && near(obs[8], 1 / 3.2f));
    CHECK(obs[9] == 0 && near(obs[10], 2.5f / 40) && near(obs[11], 2 / 3.2f));
    CHECK(obs[12] == 0 && near(obs[13], 15 / 40.0f));
    env->y = 10.5f;  // lane 9 drives to the left; above it are only kerbs
    env->cars[9] = 101;
    env->speed[9] = -1;
    rig_play(&rig, STAY);
    CHECK(near(obs[6], 10 / 40.0f) && near(obs[7], 30 / 40.0f) && near(obs[8], -1 / 3.2f));
    CHECK(obs[9] == 1 && obs[10] == 1 && obs[11] == 0);
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_freeway, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// A planner that knows the traffic finds the earliest arrival without a hit; it makes par.
static float plan(const Freeway* env) {
    enum { PLACES = 45 };  // heights 0.5, 0.75, ... 11.5
    bool here[PLACES] = {true}, next[PLACES];
    Freeway world = *env;
    float crossings = 0;
    for (int32_t tick = 0; tick < env->max_steps; tick++) {
        drive(&world);
        for (int32_t i = 0; i < PLACES; i++) {
            world.y = START + 0.25f * (float)i;
            bool reached = here[i] || (i && here[i - 1]) || (i < PLACES - 1 && here[i + 1]);
            next[i] = reached && !is_hit(&world);
        }
        memcpy(here, next, sizeof here);
        if (!here[PLACES - 1]) continue;
        crossings++;
        memset(here, 0, sizeof here);
        here[0] = true;
    }
    return crossings;
}

static void test_par_is_what_a_planner_reaches(void) {
    rig = rig_create(&puf_env_freeway, 64, 1, NULL);
    puf_vec_reset(rig.vec, 5);
    float sum = 0;
    for (int32_t i = 0; i < 64; i++) sum += plan(rig_env(&rig, i));
    CHECK(sum / 64 > 14.5f && sum / 64 < 16);
    rig_destroy(&rig);
}

int main(void) {
    test_traffic_is_drawn_within_its_limits();
    test_chicken_walks_and_stops_at_the_lower_kerb();
    test_a_crossing_takes_44_ticks_scores_and_starts_again();
    test_cars_move_and_return_on_the_other_side();
    test_a_car_hits_within_ten_units_and_in_its_own_lane_only();
    test_a_hit_throws_back_stuns_and_spares_the_stunned();
    test_knockback_and_stun_are_params();
    test_observed_times_are_those_of_the_next_car();
    test_max_steps_truncates();
    test_par_is_what_a_planner_reaches();
    return CHECK_DONE();
}
