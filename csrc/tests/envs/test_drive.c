// The rules of drive, with numbers derived by hand, and what must hold for any params.
#include "envs/drive.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-3f; }

enum { COAST = 3, STRAIGHT = 6 };  // the middle of the choices

// `count` cars; the first drives east over the crossing at (90, 90), 12 m of lane before it and
// behind it, from (69, 88) to (111, 88). The others are far away on other streets.
static Car* eastwards(int32_t count, int32_t turn) {
    rig = RIG_START(&puf_env_drive, 1, 0, {"num_agents", count}, {"patience", 50});
    Car* cars = cars_of(rig_env(&rig, 0));
    plan(&cars[0], 90, 90, 1, 0, turn, 12, 12);
    cars[0].speed = 5;
    for (int32_t i = 1; i < count; i++) {
        plan(&cars[i], i % 2 ? 30.0f : 150.0f, 150, 0, 1, 0, 18 - 8 * (float)(i / 2), 12);
        cars[i].speed = 0;
    }
    return cars;
}

static void act(int32_t acceleration, int32_t angle) {
    for (int32_t i = 0; i < rig.num_slots; i++) {
        rig.actions[2 * i] = i ? COAST : acceleration;
        rig.actions[2 * i + 1] = i ? STRAIGHT : angle;
    }
    puf_vec_step(rig.vec, NULL);
}

static void test_routes_keep_to_the_right_and_end_where_they_should(void) {
    static const float ends[3][2] = {{88, 69}, {111, 88}, {92, 111}};  // right, straight, left
    for (int32_t turn = -1; turn <= 1; turn++) {
        Car* car = eastwards(1, turn);
        const float* end = ends[turn + 1];
        CHECK(car->way_x[0] == 69 && car->way_y[0] == 88 && car->heading == 0);
        CHECK(near(car->way_x[NUM_POINTS - 1], end[0]) && near(car->way_y[NUM_POINTS - 1], end[1]));
        float length = 0;
        for (int32_t i = 0; i < NUM_POINTS; i++) {
            CHECK(on_street(car->way_x[i], car->way_y[i], 1.5f));
            CHECK(near(car->rest[i] + length, car->rest[0]));
            if (i < NUM_POINTS - 1)
                length += gap(car->way_x[i], car->way_y[i], car->way_x[i + 1], car->way_y[i + 1]);
        }
        // Straight on: 12 + 18 + 12 m. The curves are between the way around the corner and the
        // diagonal: 7 + 7 m and 9.9 m to the right, 11 + 11 m and 15.6 m to the left.
        if (turn == 0) CHECK(near(length, 42));
        if (turn < 0) CHECK(length > 24 + 9.9f && length < 24 + 14);
        if (turn > 0) CHECK(length > 24 + 15.6f && length < 24 + 22);
        plan(car, 90, 90, 0, 1, turn, 12, 12);  // northwards: a quarter turn of the same
        CHECK(near(car->way_x[0], 92) && near(car->way_y[0], 69));
        CHECK(near(car->way_x[NUM_POINTS - 1], 180 - end[1]));
        CHECK(near(car->way_y[NUM_POINTS - 1], end[0]));
        rig_destroy(&rig);
    }
}

static void test_streets_crossings_and_corners(void) {
    CHECK(on_street(60, 90, 4) && on_street(60, 93.9f, 0) && !on_street(60, 94.1f, 0));
    CHECK(on_street(90, 60, 4) && !on_street(85.9f, 60, 0) && !on_street(60, 60, 0));
    CHECK(!on_street(60, 93.5f, 1));
    // The corner beyond (94, 94) is a quarter of a disc around (99, 99) with radius 5.
    CHECK(on_street(95.4f, 95.4f, 0) && !on_street(95.5f, 95.5f, 0));  // 99 - 5 / sqrt 2 = 95.46
    CHECK(!on_street(95, 95, 1) && on_street(94.7f, 94.7f, 1));        // 99 - 6 / sqrt 2 = 94.76
    CHECK(!on_street(-0.1f, 90, 0) && on_street(0.1f, 90, 0) && !on_street(180.1f, 90, 0));
}

static void test_cars_accelerate_and_turn(void) {
    Car* car = eastwards(1, 0);
    act(6, STRAIGHT);  // 3 m/s^2
    CHECK(near(car->speed, 5.3f) && near(car->x, 69.53f) && near(car->y, 88) && car->heading == 0);
    act(0, STRAIGHT);  // -6 m/s^2
    CHECK(near(car->speed, 4.7f));
    act(COAST, 7);  // 0.1 rad: 4.7 x 0.10033 / 2.7 x 0.1 = 0.017465
    CHECK(near(car->speed, 4.7f) && fabsf(car->heading - 0.017465f) < 1e-5f && car->y > 88);
    CHECK(near(car->cosine, cosf(car->heading)) && near(car->sine, sinf(car->heading)));
    act(COAST, 0);  // -0.6 rad: 0.119 to the right
    CHECK(fabsf(car->heading - 0.017465f + 4.7f * 0.68414f / 27) < 1e-5f);
    car->speed = 0.2f;
    act(0, STRAIGHT);
    CHECK(car->speed == 0);
    car->speed = 14.9f;
    act(6, STRAIGHT);
    CHECK(car->speed == 15);
    rig_destroy(&rig);
}

static void test_progress_along_the_route_is_rewarded(void) {
    Car* car = eastwards(1, 0);
    CHECK(near(car->left, 42));
    float sum = 0;
    for (int32_t i = 0; i < 40; i++) {
        act(COAST, STRAIGHT);
        sum += rig.rewards[0];
    }
    CHECK(near(car->left, 22) && near(sum, 0.05f * 20 - 40 * 0.01f) &&
          near(rig.obs[1], 22 / 50.0f));
    car->y += 2.5f;  // into the other lane: 2.5 m beside the route
    const float left = car->left;
    act(COAST, STRAIGHT);
    CHECK(near(rig.rewards[0], 0.05f * (left - car->left) - 0.03f) && near(rig.obs[2], 2.5f / 4));
    rig_destroy(&rig);
}

static void test_the_goal_ends_the_trip(void) {
    Car* car = eastwards(1, 0);
    car->x = 107.7f;
    car->next = NUM_POINTS - 1;
    car->left = 3.3f;
    act(COAST, STRAIGHT);  // 108.2: 2.8 m before the goal
    CHECK(rig.terminals[0] && near(rig.rewards[0], 1 + 0.05f * 0.5f - 0.01f));
    const Town* env = rig_env(&rig, 0);
    CHECK(env->perf == 1 && env->score == 1 && car->present && car->age == 0 && car->next == 1);
    rig_destroy(&rig);
}

static void test_the_edge_of_the_street_is_a_crash(void) {
    static const struct {
        float y, heading;
        bool crashes;
    } cases[] = {
        {87.1f, 0, false},  // the street ends at 86; discs of 1 m
        {86.9f, 0, true},   //
        {92.9f, 0, false},  // wrong lane, but street
        {93.1f, 0, true},   //
        {92, 1.2f, true},   // its nose is 1.3 sin 1.2 = 1.2 m further
    };
    for (int32_t i = 0; i < 5; i++) {
        Car* car = eastwards(1, 0);
        car->x = 60;
        car->y = cases[i].y;
        car->heading = cases[i].heading;
        car->speed = 0;
        act(COAST, STRAIGHT);
        const Town* env = rig_env(&rig, 0);
        CHECK(rig.terminals[0] == cases[i].crashes);
        if (cases[i].crashes) CHECK(env->perf == 0 && env->score == -1 && rig.rewards[0] < -0.4f);
        rig_destroy(&rig);
    }
}

static void test_cars_that_touch_both_crash(void) {
    // Discs of radius 1.1 at 1.3 m before and behind the centre: in a row cars touch at
    // 2.6 + 2.2 = 4.8 m, side by side at 2.2 m.
    static const struct {
        float dx, dy;
        bool crash;
    } cases[] = {{4.9f, 0, false}, {4.7f, 0, true}, {0, 2.3f, false}, {0, 2.1f, true}};
    for (int32_t i = 0; i < 4; i++) {
        Car* cars = eastwards(3, 0);
        cars[0].speed = 0;
        cars[1] = cars[0];
        cars[1].x += cases[i].dx;
        cars[1].left -= cases[i].dx;
        cars[1].y += cases[i].dy;
        act(COAST, STRAIGHT);
        CHECK(rig.terminals[0] == cases[i].crash && rig.terminals[1] == cases[i].crash);
        CHECK(!rig.terminals[2]);
        if (cases[i].crash) {
            CHECK(rig.rewards[0] < -0.4f && rig.rewards[1] < -0.4f);
            PufStats stats;
            puf_vec_drain(rig.vec, &stats);
            CHECK(stats.samples == 2 && stats.metrics[0] == -2 && stats.metrics[1] == 0);
        }
        rig_destroy(&rig);
    }
}

static void test_patience_ends_a_trip_as_failed(void) {
    Car* car = eastwards(1, 0);
    car->speed = 0;
    for (int32_t i = 1; i <= 50; i++) {
        act(COAST, STRAIGHT);
        CHECK(rig.terminals[0] == (i == 50));
    }
    const Town* env = rig_env(&rig, 0);
    CHECK(env->perf == 0 && env->score == 0 && near(rig.rewards[0], -0.51f));
    rig_destroy(&rig);
}

static void test_neighbours_are_seen_from_the_car_nearest_first(void) {
    Car* cars = eastwards(4, 0);
    cars[0].speed = 0;
    cars[1] = cars[2] = cars[3] = cars[0];
    cars[0].heading = 1.5707963f;  // looks north
    cars[0].x = 90;
    cars[0].y = 60;
    cars[1].x = 90;
    cars[1].y = 72;  // ahead, looks east
    cars[2].x = 85;
    cars[2].y = 88;  // 28.4 m
    cars[2].speed = 10;
    cars[3].x = 90;
    cars[3].y = 19;  // 41 m behind: out of sight
    act(COAST, STRAIGHT);
    const float* seen = rig.obs + 10;
    CHECK(seen[0] == 1 && near(seen[1], 12 / 20.0f) && near(seen[2], 0));
    CHECK(near(seen[3], 0) && near(seen[4], -1) && seen[5] == 0);
    // cars[2] has moved to x = 86: 28 m ahead, 4 m to the left.
    CHECK(seen[6] == 1 && near(seen[7], 28 / 20.0f) && near(seen[8], 4 / 20.0f) &&
          near(seen[11], 1));
    for (int32_t i = 12; i < 24; i++) CHECK(seen[i] == 0);
    rig_destroy(&rig);
}

static void test_a_full_town_makes_cars_wait(void) {
    rig = RIG_START(&puf_env_drive, 8, 3, {"num_agents", MAX_AGENTS});
    int32_t waits = 0;
    PufRng rng = {5};
    for (int32_t t = 0; t < 200; t++) {
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
        for (int32_t i = 0; i < rig.num_slots; i++) {
            const Car* car = &cars_of(rig_env(&rig, i / MAX_AGENTS))[i % MAX_AGENTS];
            CHECK(rig.masks[i] == car->present);
            waits += !car->present;
        }
    }
    CHECK(waits < rig.num_slots * 200 / 4);  // crowded, but not jammed
    rig_destroy(&rig);
}

static void test_max_steps_truncates_all_cars(void) {
    rig = RIG_START(&puf_env_drive, 1, 0, {"max_steps", 3});
    for (int32_t i = 1; i <= 6; i++) {
        for (int32_t k = 0; k < rig.num_slots; k++) {
            rig.actions[2 * k] = 0;
            rig.actions[2 * k + 1] = STRAIGHT;
        }
        puf_vec_step(rig.vec, NULL);
        for (int32_t k = 0; k < rig.num_slots; k++) CHECK(rig.truncations[k] == (i % 3 == 0));
    }
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: a lone driver that aims at its route arrives.
static void test_aiming_at_the_route_arrives_on_an_empty_street(void) {
    rig = RIG_START(&puf_env_drive, 32, 3, {"num_agents", 1});
    for (int32_t t = 0; t < 500; t++) {
        for (int32_t i = 0; i < 32; i++) {
            const float* obs = rig.obs + NUM_FEATURES * i;
            const float aim = atan2f(obs[5] + obs[7], obs[4] + obs[6]);
            const int32_t angle = 6 + (int32_t)lrintf(12 * clamp(aim, 0.5f));
            rig.actions[2 * i] = obs[0] < 0.4f ? 5 : obs[0] > 0.5f ? 2 : COAST;
            rig.actions[2 * i + 1] = angle < 0 ? 0 : angle > 12 ? 12 : angle;
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    printf("driver: %d trips, perf %.2f\n", (int)stats.samples,
           stats.metrics[1] / (double)stats.samples);
    CHECK(stats.samples > 50 && stats.metrics[1] / (double)stats.samples > 0.9);
    rig_destroy(&rig);
}

int main(void) {
    test_routes_keep_to_the_right_and_end_where_they_should();
    test_streets_crossings_and_corners();
    test_cars_accelerate_and_turn();
    test_progress_along_the_route_is_rewarded();
    test_the_goal_ends_the_trip();
    test_the_edge_of_the_street_is_a_crash();
    test_cars_that_touch_both_crash();
    test_patience_ends_a_trip_as_failed();
    test_neighbours_are_seen_from_the_car_nearest_first();
    test_a_full_town_makes_cars_wait();
    test_max_steps_truncates_all_cars();
    test_aiming_at_the_route_arrives_on_an_empty_street();
    return CHECK_DONE();
}
