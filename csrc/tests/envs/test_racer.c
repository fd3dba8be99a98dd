// The rules of racer, with numbers derived by hand, and what must hold for any params.
#include "envs/racer.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

// The track becomes a straight road along x: point i at x = 10 (i - 32), edges at y = +-5. The car
// is at (1, y) and looks along the road.
static Racer* on_straight(int32_t controls, float y, float speed) {
    rig = RIG_START(&puf_env_racer, 1, 0, {"controls", controls});
    Racer* env = rig_env(&rig, 0);
    Track* track = &env->track;
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        track->x[i] = track->left_x[i] = track->right_x[i] = 10 * (float)(i - 32);
        track->y[i] = 0;
        track->left_y[i] = 5;
        track->right_y[i] = -5;
        track->length[i] = 10;
    }
    env->x = env->along = 1;
    env->y = y;
    env->heading = 0;
    env->speed = speed;
    env->point = 32;
    return env;
}

static void act(float steer, float throttle) {
    float action[2] = {steer, throttle};
    memcpy(rig.actions, action, sizeof action);
    puf_vec_step(rig.vec, NULL);
}

static void test_rays_measure_the_road(void) {
    Racer* env = on_straight(STEER, 2, 13);
    rig_play(&rig, STRAIGHT);
    // Left edge 3 m away, right edge 7 m; at 18 degrees from straight on the distance is over
    // sin 18 = 0.309 times as long.
    CHECK(near(rig.obs[10], 3 / 40.0f) && near(rig.obs[0], 7 / 40.0f) && rig.obs[5] == 1);
    CHECK(near(rig.obs[9], 3 / 0.951057f / 40) && near(rig.obs[6], 3 / 0.309017f / 40));
    CHECK(near(rig.obs[1], 7 / 0.951057f / 40) && near(rig.obs[4], 7 / 0.309017f / 40));
    CHECK(near(rig.obs[11], 13 / 30.0f) && rig.obs[12] == 0);
    env->heading = 0.31415927f;  // 18 degrees to the left: rays shift by one
    env->speed = 0;
    observe(env);
    CHECK(near(rig.obs[5], 3 / 0.309017f / 40) && near(rig.obs[9], 3 / 40.0f));
    rig_destroy(&rig);
}

static void test_rays_take_the_nearest_of_several_walls(void) {
    // A step in the wall: from (4, -1) to (4, 1) straight ahead, another one behind it at x = 6.
    const float x[] = {4, 4, 6, 6}, y[] = {-1, 1, 1, -1};
    const float dx[PUF_MAX_RAYS] = {1, -1, 0}, dy[PUF_MAX_RAYS] = {0, 0, 1};
    float distances[PUF_MAX_RAYS] = {20, 20, 20, 20};
    puf_cast_rays(x, y, 4, dx, dy, distances);
    CHECK(distances[0] == 4 && distances[1] == 20 && distances[2] == 20 && distances[3] == 20);
    distances[0] = 3;  // a nearer hit stays
    puf_cast_rays(x, y, 4, dx, dy, distances);
    CHECK(distances[0] == 3);
}

static void test_throttle_and_brake_change_the_speed(void) {
    Racer* env = on_straight(FULL, 0, 10);
    act(0, 1);
    CHECK(near(env->speed, 10.4f) && near(env->x, 1 + 0.52f));  // 8 x 0.05; then 10.4 x 0.05
    CHECK(near(rig.rewards[0], 0.05f * 0.52f));
    act(0, -0.5f);
    CHECK(near(env->speed, 10.1f));  // 12 x 0.5 x 0.05
    env->speed = 0.1f;
    act(0, -1);
    CHECK(env->speed == 0);
    env->speed = 29.9f;
    act(0, 1);
    CHECK(env->speed == 30);
    rig_destroy(&rig);
}

static void test_steering_turns_up_to_the_grip(void) {
    Racer* env = on_straight(FULL, 0, 4);
    act(0.5f, 0);  // 4 x 0.5 x 0.55 / 2.5 = 0.44 rad/s
    CHECK(near(env->turn, 0.44f) && near(env->heading, 0.022f) && env->y > 0);
    env->speed = 20;
    env->heading = 0;
    act(-1, 0);  // 4.4 rad/s would be 88 m/s^2: 12 / 20 = 0.6 rad/s is held
    CHECK(near(env->turn, -0.6f) && near(env->heading, -0.03f));
    rig_destroy(&rig);
}

static void test_three_actions_steer_at_cruise_speed(void) {
    Racer* env = on_straight(STEER, 0, 13);
    rig_play(&rig, LEFT);  // 12 / 13 rad/s
    CHECK(env->speed == 13 && near(env->turn, 12 / 13.0f));
    rig_play(&rig, RIGHT);
    CHECK(near(env->turn, -12 / 13.0f));
    rig_play(&rig, STRAIGHT);
    CHECK(env->turn == 0);
    env->speed = 5;
    rig_play(&rig, STRAIGHT);
    CHECK(near(env->speed, 5.4f));
    env->speed = 20;
    rig_play(&rig, STRAIGHT);
    CHECK(near(env->speed, 19.4f));
    rig_destroy(&rig);
}

static void test_the_edge_is_a_crash(void) {
    static const struct {
        float y;
        bool crashes;
    } cases[] = {{3.9f, false}, {4.01f, true}, {-3.9f, false}, {-4.01f, true}};
    for (int32_t i = 0; i < 4; i++) {
        Racer* env = on_straight(STEER, cases[i].y, 13);
        env->distance = 60;
        rig_play(&rig, STRAIGHT);
        CHECK(rig.terminals[0] == cases[i].crashes);
        CHECK(near(rig.rewards[0], 0.05f * 0.65f - (cases[i].crashes ? 1 : 0)));
        // 12 m/s x 0.05 s x 1000 steps = 600 m
        if (cases[i].crashes) CHECK(near(env->perf, 60.65f / 600));
        if (cases[i].crashes) CHECK(near(env->score, 60.65f / 640));
        rig_destroy(&rig);
    }
}

static void test_progress_counts_across_points_and_backwards(void) {
    Racer* env = on_straight(STEER, 0, 13);
    for (int32_t i = 0; i < 40; i++) rig_play(&rig, STRAIGHT);  // 26 m: two points further
    CHECK(env->point == 34 && near(env->along, 7) && near(env->distance, 26));
    env->heading = 3.14159265f;
    for (int32_t i = 0; i < 40; i++) rig_play(&rig, STRAIGHT);
    CHECK(env->point == 32 && fabsf(env->along - 1) < 1e-3f && fabsf(env->distance) < 1e-3f);
    rig_destroy(&rig);
}

static void test_tracks_are_closed_wide_and_different(void) {
    rig = rig_create(&puf_env_racer, 256, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    int32_t mirrored = 0;
    for (int32_t i = 0; i < 256; i++) {
        const Racer* env = rig_env(&rig, i);
        const Track* track = &env->track;
        mirrored += env->mirrored;
        float area = 0;
        for (int32_t k = 0; k < NUM_POINTS; k++) {
            const int32_t n = next(k);
            CHECK(track->length[k] > 2 && track->length[k] < 10);
            area += track->x[k] * track->y[n] - track->y[k] * track->x[n];
            // Edges advance with the centre line: the road never folds.
            const float tx = track->x[n] - track->x[k], ty = track->y[n] - track->y[k];
            CHECK(tx * (track->left_x[n] - track->left_x[k]) +
                      ty * (track->left_y[n] - track->left_y[k]) >
                  0);
            CHECK(tx * (track->right_x[n] - track->right_x[k]) +
                      ty * (track->right_y[n] - track->right_y[k]) >
                  0);
            const float dx = track->left_x[k] - track->right_x[k];
            const float dy = track->left_y[k] - track->right_y[k];
            CHECK(near(sqrtf(dx * dx + dy * dy), 10));
        }
        CHECK(env->mirrored ? area < 0 : area > 0);
        CHECK(rig.obs[i * NUM_FEATURES] > 0.1f && rig.obs[i * NUM_FEATURES + 10] > 0.1f);
    }
    CHECK(mirrored > 90 && mirrored < 166);
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_racer, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: steering to the freer side drives laps.
static void test_steering_to_the_freer_side_drives_laps(void) {
    rig = rig_create(&puf_env_racer, 32, 1, NULL);
    puf_vec_reset(rig.vec, 3);
    for (int32_t t = 0; t < 2000; t++) {
        for (int32_t i = 0; i < 32; i++) {
            const float* ray = rig.obs + NUM_FEATURES * i;
            float left = ray[6] + ray[7] + ray[8], right = ray[4] + ray[3] + ray[2];
            rig.actions[i] = left > right + 0.05f ? LEFT : right > left + 0.05f ? RIGHT : STRAIGHT;
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples >= 32 && stats.metrics[1] / (double)stats.samples > 0.9);
    CHECK(stats.metrics[0] / (double)stats.samples > 1.5);
    rig_destroy(&rig);
}

int main(void) {
    test_rays_measure_the_road();
    test_rays_take_the_nearest_of_several_walls();
    test_throttle_and_brake_change_the_speed();
    test_steering_turns_up_to_the_grip();
    test_three_actions_steer_at_cruise_speed();
    test_the_edge_is_a_crash();
    test_progress_counts_across_points_and_backwards();
    test_tracks_are_closed_wide_and_different();
    test_max_steps_truncates();
    test_steering_to_the_freer_side_drives_laps();
    return CHECK_DONE();
}
