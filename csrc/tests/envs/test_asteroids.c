// The rules of asteroids, with numbers derived by hand.
#include "envs/asteroids.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

// One env with a ship at rest in the middle that points to +x, and one rock far away at rest.
static Asteroids* one_rock(float x, float y, int32_t size) {
    rig = RIG_START(&puf_env_asteroids, 1, 0, {"waves", 2}, {"first_rocks", 1}, {"lives", 2});
    Asteroids* env = rig_env(&rig, 0);
    env->heading = env->safe = 0;
    env->num_rocks = 1;
    env->rocks[0] = (Body){x, y, 0, 0};
    env->sizes[0] = (uint8_t)size;
    return env;
}

static void test_headings_are_a_circle(void) {
    for (int32_t i = 0; i < HEADINGS; i++) {
        const double angle = 2 * 3.14159265358979 * i / HEADINGS;
        CHECK(near(cosines[i], (float)cos(angle)) && near(sine(i), (float)sin(angle)));
    }
}

static void test_ship_turns_in_a_circle_of_32(void) {
    Asteroids* env = one_rock(0, 0, SMALL);
    rig_play(&rig, LEFT);
    CHECK(env->heading == 31);
    for (int32_t i = 0; i < 33; i++) rig_play(&rig, RIGHT);
    CHECK(env->heading == 0 && env->ship.x == 64 && env->ship.y == 64);
    rig_destroy(&rig);
}

static void test_thrust_accelerates_drag_slows_and_top_speed_holds(void) {
    Asteroids* env = one_rock(0, 0, SMALL);
    env->heading = 8;  // down
    rig_play(&rig, THRUST);
    CHECK(near(env->ship.vy, 0.0792f) && near(env->ship.vx, 0) && near(env->ship.y, 64.0792f));
    rig_play(&rig, NOTHING);  // 0.08 x 0.99^2
    CHECK(near(env->ship.vy, 0.078408f));
    env->ship.vy = 1.6f;
    rig_play(&rig, THRUST);
    CHECK(near(env->ship.vy, 1.6f));
    rig_destroy(&rig);
}

static void test_all_edges_are_joined(void) {
    Asteroids* env = one_rock(127.9f, 0.05f, LARGE);
    env->rocks[0].vx = 0.3f;
    env->rocks[0].vy = -0.1f;
    env->ship = (Body){0.5f, 127.5f, -1, 1};
    env->safe = 9;
    env->num_shots = 1;
    env->shots[0] = (Body){40, 1, 0, -3};
    env->ages[0] = 0;
    rig_play(&rig, NOTHING);
    CHECK(near(env->rocks[0].x, 0.2f) && near(env->rocks[0].y, 127.95f));
    CHECK(near(env->ship.x, 127.51f) && near(env->ship.y, 0.49f));
    CHECK(near(env->shots[0].x, 40) && near(env->shots[0].y, 126));
    CHECK(across(1, 127) == -2 && across(127, 1) == 2 && across(10, 50) == 40);
    env->safe = 0;  // rock and ship touch across the corner
    rig_play(&rig, NOTHING);
    CHECK(env->lives_left == 1);
    rig_destroy(&rig);
}

static void test_shots_leave_the_nose_wait_four_ticks_and_last_thirty(void) {
    Asteroids* env = one_rock(64, 0, SMALL);
    for (int32_t tick = 1; tick <= 36; tick++) {
        rig_play(&rig, FIRE);
        // Fired in ticks 1, 5, 9 and 13, gone in 30, 34, ...; each gap lets one more go. A shot
        // that ends in tick t makes room for one in t + 1.
        const int32_t fired = tick >= 31 ? 5 + (tick >= 35) : tick > 13 ? 4 : (tick + 3) / 4;
        const int32_t gone = (tick >= 30) + (tick >= 34);
        CHECK(env->num_shots == fired - gone);
        if (tick == 1) CHECK(near(env->shots[0].x, 69) && env->shots[0].y == 64);
        if (tick == 2) CHECK(near(env->shots[0].x, 72) && rig.obs[2] == 0);
    }
    rig_destroy(&rig);
}

static void test_rocks_split_until_they_are_gone(void) {
    static const float points[] = {0, 100, 50, 20}, radius[] = {0, 3, 6, 10};
    for (int32_t size = SMALL; size <= LARGE; size++) {
        Asteroids* env = one_rock(30, 30, size);
        env->num_rocks = 2;
        env->rocks[1] = (Body){100, 100, 0, 0};
        env->sizes[1] = LARGE;
        env->num_shots = 1;
        env->shots[0] = (Body){30 - radius[size] - 3.1f, 30, 3, 0};  // short by 0.1
        env->ages[0] = 0;
        rig_play(&rig, NOTHING);
        CHECK(env->num_rocks == 2 && env->num_shots == 1 && env->score == 0);
        rig_play(&rig, NOTHING);
        CHECK(env->num_shots == 0 && env->score == points[size] && env->destroyed == 1);
        CHECK(near(rig.rewards[0], points[size] / 100) && near(env->perf, 1 / 21.0f));
        CHECK(env->num_rocks == (size == SMALL ? 1 : 3));
        if (size == SMALL) {
            CHECK(env->sizes[0] == LARGE && env->rocks[0].x == 100);
        } else {
            const float speed = size == LARGE ? 0.55f : 0.8f;
            for (int32_t i = 0; i < 3; i += 2) {
                const Body* rock = &env->rocks[i];
                const float own = sqrtf(rock->vx * rock->vx + rock->vy * rock->vy);
                CHECK(env->sizes[i] == size - 1 && rock->x == 30 && rock->y == 30);
                CHECK(own > 0.74f * speed && own < 1.26f * speed);
            }
        }
        rig_destroy(&rig);
    }
}

static void test_a_shot_destroys_one_rock_only(void) {
    Asteroids* env = one_rock(30, 30, SMALL);
    env->num_rocks = 3;
    env->rocks[1] = env->rocks[2] = env->rocks[0];
    env->sizes[1] = env->sizes[2] = SMALL;
    env->num_shots = 1;
    env->shots[0] = (Body){28, 30, 3, 0};
    env->ages[0] = 0;
    rig_play(&rig, NOTHING);
    CHECK(env->num_rocks == 2 && env->destroyed == 1);
    rig_destroy(&rig);
}

static void test_a_touch_costs_a_ship_and_the_last_one_ends_the_game(void) {
    for (int32_t size = SMALL; size <= LARGE; size++) {
        const float reach = radius_of[size] + 2;
        Asteroids* env = one_rock(64 + reach + 0.01f, 64, size);
        rig_play(&rig, NOTHING);
        CHECK(env->lives_left == 2 && rig.rewards[0] == 0);
        env->rocks[0].x = 64 + reach - 0.01f;
        env->ship.vx = 0.001f;
        rig_play(&rig, NOTHING);
        CHECK(env->lives_left == 1 && rig.rewards[0] == -2 && env->safe == 60);
        CHECK(env->ship.x == 64 && env->ship.vx == 0 && !rig.terminals[0]);
        for (int32_t i = 0; i < 59; i++) {
            rig_play(&rig, NOTHING);
            CHECK(!rig.terminals[0]);  // it is safe
        }
        rig_play(&rig, NOTHING);
        CHECK(rig.terminals[0] && rig.rewards[0] == -2 && env->lives_left == 2);
        rig_destroy(&rig);
    }
}

static void test_waves_grow_away_from_the_ship_and_the_last_one_ends_the_game(void) {
    Asteroids* env = one_rock(30, 30, SMALL);
    for (int32_t wave = 0; wave < 2; wave++) {
        env->num_rocks = 1;
        env->rocks[0] = (Body){30, 30, 0, 0};
        env->sizes[0] = SMALL;
        env->num_shots = 1;
        env->shots[0] = (Body){28, 30, 3, 0};
        env->ages[0] = 0;
        rig_play(&rig, NOTHING);
        CHECK(rig.terminals[0] == (wave == 1));
        if (wave == 1) break;
        CHECK(env->wave == 1 && env->waves_cleared == 1 && env->num_rocks == 2);
        for (int32_t i = 0; i < 2; i++)
            CHECK(env->sizes[i] == LARGE && distance2(&env->ship, &env->rocks[i]) >= 45 * 45);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[2] == 2 && env->wave == 0);
    rig_destroy(&rig);
    rig = RIG_START(&puf_env_asteroids, 1, 0, {"waves", 100}, {"first_rocks", 5});
    env = rig_env(&rig, 0);
    CHECK(env->num_rocks == 5 && rocks_in_wave(env, 3) == 8 && rocks_in_wave(env, 50) == 8);
    CHECK(all_rocks(env) == 7 * (5 + 6 + 7 + 97 * 8));
    rig_destroy(&rig);
}

static void test_observations_are_in_the_frame_of_the_ship(void) {
    Asteroids* env = one_rock(64, 84, MEDIUM);  // 20 below
    env->rocks[0].vx = 0.5f;
    env->num_rocks = 2;
    env->rocks[1] = (Body){74, 64, 0, 0};  // 10 to the left: nearer
    env->sizes[1] = LARGE;
    env->safe = 30;
    env->heading = 8;  // down: what is below is ahead, +x is to the left
    env->ship.vx = -0.8f / 0.99f;
    env->ship.x = 64.8f;  // 64 after the tick
    env->rocks[0].x = 63.5f;
    rig_play(&rig, NOTHING);
    const float* obs = rig.obs;
    CHECK(near(obs[0], 0) && near(obs[1], 0.5f) && obs[2] == 1 && near(obs[3], 29 / 60.0f));
    CHECK(obs[4] == 1 && near(obs[5], 6 / 32.0f));
    CHECK(near(obs[6], 0) && near(obs[7], -1) && near(obs[8], 10 / 128.0f) && obs[11] == 1);
    CHECK(near(obs[12], 1) && near(obs[13], 0) && near(obs[14], 20 / 128.0f));
    // Relative velocity: (0.5 + 0.8, 0) is 1.3 to the left, halved.
    CHECK(near(obs[15], 0) && near(obs[16], -0.65f) && near(obs[17], 2 / 3.0f));
    for (int32_t k = 2; k < NUM_NEAR; k++) CHECK(obs[6 + 6 * k + 2] == 1 && !obs[6 + 6 * k + 5]);
    rig_destroy(&rig);
}

static void test_the_six_nearest_rocks_are_sorted(void) {
    rig = RIG_START(&puf_env_asteroids, 8, 1, {"first_rocks", 8});
    for (int32_t i = 0; i < 8; i++) {
        const Asteroids* env = rig_env(&rig, i);
        const float* obs = rig.obs + i * NUM_FEATURES + 6;
        float all[8];
        for (int32_t k = 0; k < 8; k++) {
            all[k] = sqrtf(distance2(&env->ship, &env->rocks[k]));
            for (int32_t j = k; j > 0 && all[j] < all[j - 1]; j--) {
                const float swap = all[j];
                all[j] = all[j - 1];
                all[j - 1] = swap;
            }
        }
        for (int32_t k = 0; k < NUM_NEAR; k++) CHECK(near(obs[6 * k + 2], all[k] / 128));
    }
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_asteroids, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

int main(void) {
    test_headings_are_a_circle();
    test_ship_turns_in_a_circle_of_32();
    test_thrust_accelerates_drag_slows_and_top_speed_holds();
    test_all_edges_are_joined();
    test_shots_leave_the_nose_wait_four_ticks_and_last_thirty();
    test_rocks_split_until_they_are_gone();
    test_a_shot_destroys_one_rock_only();
    test_a_touch_costs_a_ship_and_the_last_one_ends_the_game();
    test_waves_grow_away_from_the_ship_and_the_last_one_ends_the_game();
    test_observations_are_in_the_frame_of_the_ship();
    test_the_six_nearest_rocks_are_sorted();
    test_max_steps_truncates();
    return CHECK_DONE();
}
