// The rules of breakout, with numbers derived by hand, and what must hold for any params.
#include "envs/breakout.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static Breakout* env_at(int32_t i) { return rig_env(&rig, i); }

// One env with single ticks and a ball of constant speed 1.5 at the given place.
static Breakout* one_ball(float x, float y, float vx, float vy) {
    rig = RIG_START(&puf_env_breakout, 1, 0, {"frameskip", 1}, {"speedup", 0});
    Breakout* env = env_at(0);
    env->x = x;
    env->y = y;
    env->vx = vx;
    env->vy = vy;
    return env;
}

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

static void clear_bricks_but(Breakout* env, int32_t row, int32_t col) {
    memset(env->bricks, 0, sizeof env->bricks);
    env->broken = num_bricks(env) - 1;
    int32_t brick = row * env->brick_cols + col;
    env->bricks[brick >> 6] = (uint64_t)1 << (brick & 63);
}

static void test_serve_falls_from_below_the_bricks(void) {
    rig = rig_create(&puf_env_breakout, 512, 2, NULL);
    puf_vec_reset(rig.vec, 1);
    CHECK(rig.batch->layout.obs.shape[0] == 6 + 6 * 18);
    float lowest = COURT, highest = 0;
    for (int32_t i = 0; i < 512; i++) {
        const Breakout* env = env_at(i);
        CHECK(env->x >= 21 && env->x <= 63 && env->y == 12 + 6 * 3 + 4 && env->paddle == 42);
        CHECK(env->vy >= 1.5f * sqrtf(0.75f) - 1e-5f);
        CHECK(near(sqrtf(env->vx * env->vx + env->vy * env->vy), 1.5f));
        lowest = fminf(lowest, env->x);
        highest = fmaxf(highest, env->x);
    }
    CHECK(lowest < 22 && highest > 62);
    rig_destroy(&rig);
}

static void test_paddle_moves_frameskip_times_its_speed_and_stops_at_walls(void) {
    rig = rig_create(&puf_env_breakout, 1, 1, NULL);
    puf_vec_reset(rig.vec, 0);
    rig_play(&rig, RIGHT);  // 4 ticks x 1.25
    CHECK(env_at(0)->paddle == 47);
    rig_play(&rig, STAY);
    CHECK(env_at(0)->paddle == 47);
    for (int32_t i = 0; i < 10; i++) {
        env_at(0)->y = 40;  // keeps the ball in the air
        rig_play(&rig, LEFT);
    }
    CHECK(env_at(0)->paddle == 6);  // half its width
    for (int32_t i = 0; i < 20; i++) {
        env_at(0)->y = 40;
        rig_play(&rig, RIGHT);
    }
    CHECK(env_at(0)->paddle == 78);
    rig_destroy(&rig);
}

static void test_place_on_the_paddle_decides_the_angle(void) {
    // Reach is 12 / 2 + 1 = 7. The ball falls straight, so x stays; it leaves with vx = 1.5 x 0.85
    // x offset / 7 and vy = -sqrt(1.5^2 - vx^2): 0 -> (0, -1.5), 3.5 -> (0.6375, -1.357782), -7 ->
    // (-1.275, -0.790174).
    static const float offsets[] = {0, 3.5f, -7}, vx[] = {0, 0.6375f, -1.275f};
    static const float vy[] = {-1.5f, -1.357782f, -0.790174f};
    for (int32_t i = 0; i < 3; i++) {
        Breakout* env = one_ball(42 + offsets[i], 75, 0, 1.5f);
        rig_play(&rig, STAY);
        CHECK(near(env->vx, vx[i]) && near(env->vy, vy[i]) && env->y == 76);
        CHECK(env->lives_left == 5 && rig.rewards[0] == 0);
        rig_destroy(&rig);
    }
}

static void test_each_hit_speeds_the_ball_up_to_its_limit(void) {
    rig = rig_create(&puf_env_breakout, 1, 1, NULL);
    puf_vec_reset(rig.vec, 0);
    Breakout* env = env_at(0);
    for (int32_t hit = 1; hit <= 25; hit++) {
        env->x = env->paddle;
        env->y = 75.5f;
        env->vy = fabsf(env->vy);
        env->vx = 0;
        if (hit == 1) env->vy = 1.5f;
        rig_play(&rig, STAY);  // 1.5 x 0.5 / 20 = 0.0375 a hit
        CHECK(near(env->vy, -fminf(1.5f + 0.0375f * (float)hit, 2.25f)));
    }
    rig_destroy(&rig);
}

static void test_missed_ball_costs_a_life_and_the_last_ends_the_episode(void) {
    Breakout* env = one_ball(42 + 7.01f, 75, 0, 1.5f);
    for (int32_t lives = 4; lives >= 0; lives--) {
        env->x = 42 + 7.01f;
        env->y = 75;
        env->vx = 0;
        env->vy = 1.5f;
        // 75 + 1 + 1.5 k reaches 84 for k = 6.
        for (int32_t k = 0; k < 5; k++) {
            rig_play(&rig, STAY);
            CHECK(env->lives_left == lives + 1 && !rig.terminals[0]);
        }
        rig_play(&rig, STAY);
        CHECK(rig.terminals[0] == (lives == 0) && env->y == 34);
        CHECK(env->lives_left == (lives ? lives : 5));
    }
    CHECK(near(((float*)(void*)rig.final_obs)[5], 0));
    CHECK(near(((float*)(void*)rig.final_obs)[2], 83 * 2.0f / 84 - 1));  // at rest on the floor
    rig_destroy(&rig);
}

static void test_ball_breaks_the_brick_above_and_turns_back(void) {
    // 84 / 18 = 4.6667: x = 7 is the middle of column 1. The lowest row ends at 12 + 6 x 3 = 30.
    Breakout* env = one_ball(7, 32, 0, -1.5f);
    rig_play(&rig, STAY);
    CHECK(!standing(env, 5 * 18 + 1) && env->broken == 1);
    CHECK(near(env->y, 31 + GAP) && env->vy == 1.5f && env->vx == 0);
    CHECK(rig.rewards[0] == 1 && env->score == 1);
    CHECK(rig.obs[6 + 5 * 18 + 1] == 0 && rig.obs[6 + 5 * 18] == 1);
    rig_destroy(&rig);
}

static void test_side_of_a_brick_reflects_only_horizontally(void) {
    // The brick of row 2, column 9 spans x 42..46.667, y 18..21.
    Breakout* env = one_ball(40, 19.5f, 1.2f, 0.9f);
    clear_bricks_but(env, 2, 9);
    env->broken -= 1;  // so that another one seems to stand and the episode goes on
    rig_play(&rig, STAY);
    CHECK(near(env->x, 41 - GAP) && near(env->y, 20.4f));
    CHECK(env->vx == -1.2f && env->vy == 0.9f);
    CHECK(env->broken == num_bricks(env) - 1 && env->score == 4);
    rig_destroy(&rig);
}

static void test_ball_between_two_bricks_breaks_the_one_at_its_centre(void) {
    // x = 9 lies in column 1 (4.67..9.33) and the ball reaches into column 2.
    Breakout* env = one_ball(9, 32, 0, -1.5f);
    rig_play(&rig, STAY);
    CHECK(!standing(env, 5 * 18 + 1) && standing(env, 5 * 18 + 2));
    env->y = 32;  // again, with column 1 gone: now the other one is hit
    env->vy = -1.5f;
    rig_play(&rig, STAY);
    CHECK(!standing(env, 5 * 18 + 2) && standing(env, 4 * 18 + 1) && env->broken == 2);
    rig_destroy(&rig);
}

static void test_walls_reflect_the_ball(void) {
    Breakout* env = one_ball(1.5f, 50, -1, 0.5f);
    rig_play(&rig, STAY);
    CHECK(env->x == 1 && env->vx == 1 && env->vy == 0.5f);
    env->x = 82.5f;
    rig_play(&rig, STAY);
    CHECK(env->x == 83 && env->vx == -1);
    env->y = 2;
    env->vy = -1.4f;
    rig_play(&rig, STAY);
    CHECK(env->y == 1 && env->vy == 1.4f);
    rig_destroy(&rig);
}

static void test_rows_are_worth_1_4_and_7_points(void) {
    static const int32_t six[] = {7, 7, 4, 4, 1, 1};
    Breakout* env = one_ball(42, 50, 0, 1);
    int32_t sum = 0;
    for (int32_t row = 0; row < 6; row++) {
        CHECK(points(env, row) == six[row]);
        sum += 18 * points(env, row);
    }
    CHECK(sum == 432);
    env->brick_rows = 1;
    CHECK(points(env, 0) == 1);
    rig_destroy(&rig);
}

static void test_last_brick_ends_the_episode_with_perf_1(void) {
    Breakout* env = one_ball(7, 32, 0, -1.5f);
    clear_bricks_but(env, 5, 1);
    rig_play(&rig, STAY);
    CHECK(rig.terminals[0] == 1 && rig.truncations[0] == 0 && rig.rewards[0] == 1);
    CHECK(env->perf == 1 && env->broken == 0 && standing(env, 5 * 18 + 1));  // a new wall
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.metrics[0] == 1 && stats.metrics[1] == 1);
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_breakout, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// The obvious twin of the cell arithmetic: the ball's square against every standing brick.
static bool overlaps_a_brick(const Breakout* env) {
    for (int32_t row = 0; row < env->brick_rows; row++)
        for (int32_t col = 0; col < env->brick_cols; col++) {
            if (!standing(env, row * env->brick_cols + col)) continue;
            float left = (float)col * env->brick_width, top = (float)(TOP + BRICK_HEIGHT * row);
            if (env->x + RADIUS > left && env->x - RADIUS < left + env->brick_width &&
                env->y + RADIUS > top && env->y - RADIUS < top + BRICK_HEIGHT)
                return true;
        }
    return false;
}

static void check_sound(const Breakout* env) {
    float speed = sqrtf(env->vx * env->vx + env->vy * env->vy);
    float upright = sqrtf(1 - fmaxf(env->bounce * env->bounce, 0.25f));  // of a hit, of a serve
    int32_t count = 0;
    for (int32_t i = 0; i < num_bricks(env); i++) count += standing(env, i);
    CHECK(env->x >= RADIUS && env->x <= COURT - RADIUS);
    CHECK(env->y >= RADIUS && env->y <= COURT - RADIUS);
    CHECK(speed >= env->ball_speed * 0.9999f && speed <= env->max_speed * 1.0001f);
    CHECK(fabsf(env->vy) >= upright * speed * 0.999f);
    CHECK(count == num_bricks(env) - env->broken);
    CHECK(!overlaps_a_brick(env));
}

// Neither the fastest ball nor the narrowest brick lets the ball pass through anything.
static void test_ball_never_enters_a_brick_nor_leaves_the_court(void) {
    static const double walls[][2] = {{6, 18}, {10, 32}, {1, 1}, {10, 1}, {3, 29}};
    static const double speeds[][3] = {{1.5, 0.5, 0.85}, {4, 2, 0.95}, {0.25, 0, 0.1}, {4, 0, 0.5}};
    PufRng rng = {7};
    int64_t broken = 0;
    for (int32_t w = 0; w < 5; w++)
        for (int32_t s = 0; s < 4; s++) {
            rig = RIG_START(&puf_env_breakout, 4, (uint64_t)(10 * w + s),
                            {"brick_rows", walls[w][0]}, {"brick_cols", walls[w][1]},
                            {"ball_speed", speeds[s][0]}, {"speedup", speeds[s][1]},
                            {"bounce", speeds[s][2]}, {"paddle_width", 60});
            for (int32_t t = 0; t < 500; t++) {
                rig_act(&rig, &rng);
                puf_vec_step(rig.vec, NULL);
                for (int32_t i = 0; i < 4; i++) {
                    check_sound(env_at(i));
                    broken += rig.rewards[i] > 0;
                }
            }
            CHECK(rig_guards_hold(&rig));
            rig_destroy(&rig);
        }
    CHECK(broken > 2000);
}

static void test_features_name_every_brick(void) {
    for (int32_t rows = 1; rows <= MAX_ROWS; rows++)
        for (int32_t cols = 1; cols <= MAX_COLS; cols += rows % 3 + 1) {
            rig = RIG_START(&puf_env_breakout, 1, 0, {"brick_rows", rows}, {"brick_cols", cols});
            Breakout* env = env_at(0);
            PufRng rng = {(uint64_t)(100 * rows + cols)};
            for (int32_t i = 0; i < rows * cols; i++)
                if (puf_rand_int(&rng, 2)) break_brick(env, i / cols, i % cols);
            observe(env);
            bool same = true;
            for (int32_t i = 0; i < rows * cols; i++)
                same = same && rig.obs[6 + i] == (float)standing(env, i);
            CHECK(same && rig.batch->layout.obs.shape[0] == 6 + rows * cols);
            CHECK(rig_guards_hold(&rig));
            rig_destroy(&rig);
        }
}

static void test_features_are_scaled_to_1(void) {
    Breakout* env = one_ball(21, 63, -0.75f, 1.2f);
    env->paddle = 63;
    env->lives_left = 2;
    observe(env);
    static const float expected[] = {0.5f, -0.5f, 0.5f, -0.5f, 0.8f, 0.4f};  // speeds over 1.5
    for (int32_t i = 0; i < 6; i++) CHECK(near(rig.obs[i], expected[i]));
    rig_destroy(&rig);
}

static void test_pixels_show_the_court_in_grey(void) {
    rig = RIG_START(&puf_env_breakout, 1, 0, {"obs", PIXELS});
    CHECK(rig.batch->layout.obs.dtype == PUF_U8 && rig.batch->obs_bytes == 84 * 84);
    Breakout* env = env_at(0);
    env->x = 30;
    env->y = 50;
    observe(env);
    // Luma of the paper colour f3eddf: (77 x 243 + 150 x 237 + 29 x 223) / 256 = 237; of the ink
    // 06182e: (77 x 6 + 150 x 24 + 29 x 46) / 256 = 21; of red e5484d: 119.
    CHECK(rig.obs_u8[77 * 84 + 36] == 237 && rig.obs_u8[78 * 84 + 47] == 237);
    CHECK(rig.obs_u8[77 * 84 + 35] == 21 && rig.obs_u8[79 * 84 + 42] == 21);
    CHECK(rig.obs_u8[13 * 84] == 119 && rig.obs_u8[11 * 84] == 21);
    int32_t ball = rig.obs_u8[50 * 84 + 30], ahead = rig.obs_u8[54 * 84 + 30];
    CHECK(ball > 150 && ahead == 21);
    CHECK(rig.obs_u8[47 * 84 + 30] > 21);  // the tail, for it falls
    break_brick(env, 0, 0);
    observe(env);
    CHECK(rig.obs_u8[13 * 84] == 21 && rig_guards_hold(&rig));
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: following the ball and varying where it is met.
static void test_a_steady_player_clears_most_of_the_wall(void) {
    rig = rig_create(&puf_env_breakout, 32, 1, NULL);
    puf_vec_reset(rig.vec, 3);
    PufRng rng = {1};
    float aim[32] = {0};
    for (int32_t t = 0; t < 4000; t++) {
        for (int32_t i = 0; i < 32; i++) {
            const Breakout* env = env_at(i);
            if (env->y < 40) aim[i] = puf_rand_range(&rng, -4, 4);
            float away = env->x + aim[i] - env->paddle;
            rig.actions[i] = away < -2.5f ? LEFT : away > 2.5f ? RIGHT : STAY;
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples >= 64 && stats.metrics[1] / (double)stats.samples > 0.6);
    rig_destroy(&rig);
}

int main(void) {
    test_serve_falls_from_below_the_bricks();
    test_paddle_moves_frameskip_times_its_speed_and_stops_at_walls();
    test_place_on_the_paddle_decides_the_angle();
    test_each_hit_speeds_the_ball_up_to_its_limit();
    test_missed_ball_costs_a_life_and_the_last_ends_the_episode();
    test_ball_breaks_the_brick_above_and_turns_back();
    test_side_of_a_brick_reflects_only_horizontally();
    test_ball_between_two_bricks_breaks_the_one_at_its_centre();
    test_walls_reflect_the_ball();
    test_rows_are_worth_1_4_and_7_points();
    test_last_brick_ends_the_episode_with_perf_1();
    test_max_steps_truncates();
    test_ball_never_enters_a_brick_nor_leaves_the_court();
    test_features_name_every_brick();
    test_features_are_scaled_to_1();
    test_pixels_show_the_court_in_grey();
    test_a_steady_player_clears_most_of_the_wall();
    return CHECK_DONE();
}
