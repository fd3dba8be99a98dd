// The rules of pong, with numbers derived by hand, and what must hold for any params.
#include "envs/pong.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static Pong* env_at(int32_t i) { return rig_env(&rig, i); }

// One env with single ticks and a ball of constant speed 1.5 at the given place.
static Pong* one_ball(float x, float y, float vx, float vy) {
    rig = RIG_START(&puf_env_pong, 1, 0, {"frameskip", 1}, {"speedup", 0}, {"max_score", 2});
    Pong* env = env_at(0);
    env->x = x;
    env->y = y;
    env->vx = vx;
    env->vy = vy;
    return env;
}

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

static void test_serve_goes_to_both_sides_equally_often(void) {
    rig = rig_create(&puf_env_pong, 1024, 2, NULL);
    puf_vec_reset(rig.vec, 1);
    int32_t right = 0;
    for (int32_t i = 0; i < 1024; i++) {
        const Pong* env = env_at(i);
        CHECK(env->x == 48 && env->y >= 18 && env->y <= 54);
        CHECK(env->paddle == 36 && env->opponent == 36);
        CHECK(near(sqrtf(env->vx * env->vx + env->vy * env->vy), 1.5f) && fabsf(env->vy) <= 0.9f);
        right += env->vx > 0;
    }
    CHECK(abs(right - 512) < 80);  // 5 standard deviations of 16
    rig_destroy(&rig);
}

static void test_paddle_moves_frameskip_times_its_speed_and_stops_at_walls(void) {
    rig = rig_create(&puf_env_pong, 1, 1, NULL);
    puf_vec_reset(rig.vec, 0);
    Pong* env = env_at(0);
    rig_play(&rig, UP);  // 4 ticks x 1.25
    CHECK(env->paddle == 31);
    rig_play(&rig, STAY);
    CHECK(env->paddle == 31);
    for (int32_t i = 0; i < 20; i++) {
        env->x = 48;  // keeps the ball in play
        rig_play(&rig, i < 6 ? UP : DOWN);
        if (i == 5) CHECK(env->paddle == 6);  // half its length
    }
    CHECK(env->paddle == 66);
    rig_destroy(&rig);
}

static void test_place_on_the_paddle_decides_the_angle(void) {
    // The line of the ball's centre before the agent is 96 - 5 - 1 = 90; reach is 12 / 2 + 1 = 7.
    // It leaves with vy = 1.5 x 0.8 x offset / 7 and vx = -sqrt(1.5^2 - vy^2).
    static const float offsets[] = {0, 3.5f, -7}, vy[] = {0, 0.6f, -1.2f};
    static const float vx[] = {-1.5f, -1.374773f, -0.9f};
    for (int32_t i = 0; i < 3; i++) {
        Pong* env = one_ball(89, 36 + offsets[i], 1.5f, 0);
        rig_play(&rig, STAY);
        CHECK(env->x == 90 && near(env->vx, vx[i]) && near(env->vy, vy[i]));
        rig_destroy(&rig);
    }
}

static void test_ball_meets_the_paddle_where_its_path_crosses_the_line(void) {
    // From (89.5, 30) with (1, 1.1) the line 90 is crossed at half a tick: y = 30.55, offset -5.45.
    Pong* env = one_ball(89.5f, 30, 1, 1.1f);
    rig_play(&rig, STAY);
    float speed = sqrtf(1 + 1.21f);
    CHECK(near(env->y, 30.55f) && near(env->vy, speed * 0.8f * -5.45f / 7));
    rig_destroy(&rig);
}

static void test_hits_speed_the_ball_up_to_its_limit(void) {
    rig = rig_create(&puf_env_pong, 1, 1, NULL);
    puf_vec_reset(rig.vec, 0);
    Pong* env = env_at(0);
    env->vx = 1.5f;
    for (int32_t hit = 1; hit <= 15; hit++) {
        env->x = 89.5f;
        env->y = 36;
        env->vx = fabsf(env->vx);
        env->vy = 0;
        rig_play(&rig, STAY);  // 1.5 x 0.5 / 10 = 0.075 a hit
        CHECK(near(env->vx, -fminf(1.5f + 0.075f * (float)hit, 2.25f)));
    }
    rig_destroy(&rig);
}

static void test_walls_reflect_the_ball(void) {
    Pong* env = one_ball(48, 1.5f, 1, -1.1f);  // 1.5 - 1.1 = 0.4, mirrored at 1: 1.6
    rig_play(&rig, STAY);
    CHECK(near(env->y, 1.6f) && env->vy == 1.1f && env->vx == 1 && env->x == 49);
    env->y = 70.5f;  // 71.6, mirrored at 71: 70.4
    rig_play(&rig, STAY);
    CHECK(near(env->y, 70.4f) && env->vy == -1.1f);
    rig_destroy(&rig);
}

static void test_passed_ball_is_a_point_and_the_last_point_ends_the_game(void) {
    Pong* env = one_ball(89, 60, 1.5f, 0);  // the paddle at 36 is out of reach
    int32_t ticks = 0;
    do rig_play(&rig, STAY);
    while (++ticks < 10 && rig.rewards[0] == 0);
    CHECK(ticks == 4);  // 89 + 1.5 k reaches 95 for k = 4
    CHECK(rig.rewards[0] == -1 && env->lost == 1 && env->won == 0 && env->x == 48);
    CHECK(!rig.terminals[0] && near(rig.obs[7], 0.5f));
    env->x = 7;  // at the opponent, which cannot get there
    env->y = 60;
    env->vx = -1.5f;
    env->vy = 0;
    for (ticks = 1; ticks < 10; ticks++) {
        rig_play(&rig, STAY);
        if (rig.rewards[0] != 0) break;
    }
    CHECK(ticks == 4 && rig.rewards[0] == 1 && env->won == 1 && !rig.terminals[0]);
    env->x = 7;
    env->y = 60;
    env->vx = -1.5f;
    env->vy = 0;
    for (ticks = 1; ticks < 4; ticks++) rig_play(&rig, STAY);
    CHECK(!rig.terminals[0]);
    rig_play(&rig, STAY);
    CHECK(rig.terminals[0] && rig.rewards[0] == 1 && env->won == 0);  // 2:1, and a new game
    CHECK(env->score == 1 && env->perf == 0.5f);
    CHECK(((float*)(void*)rig.final_obs)[6] == 1 && ((float*)(void*)rig.final_obs)[7] == 0.5f);
    rig_destroy(&rig);
}

static void test_a_lost_game_has_perf_0(void) {
    Pong* env = one_ball(94, 60, 1.5f, 0);
    rig_play(&rig, STAY);
    env->x = 94;
    env->y = 60;
    env->vx = 1.5f;
    rig_play(&rig, STAY);
    CHECK(rig.terminals[0] && env->score == -2 && env->perf == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.metrics[0] == -2 && stats.metrics[1] == 0);
    rig_destroy(&rig);
}

static void test_opponent_follows_what_it_sees_at_its_own_speed(void) {
    Pong* env = one_ball(50, 60, -1, 0);  // sight is 0.6 x 96 = 57.6
    rig_play(&rig, STAY);
    CHECK(near(env->opponent, 36.6f));
    env->vx = 1;  // flies away: back to the middle
    rig_play(&rig, STAY);
    CHECK(near(env->opponent, 36));
    env->vx = -1;
    env->x = 80;  // too far to be seen
    rig_play(&rig, STAY);
    CHECK(near(env->opponent, 36));
    env->x = 50;
    env->y = 36.5f;  // near: no overshoot
    rig_play(&rig, STAY);
    CHECK(near(env->opponent, 36.5f));
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_pong, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// Full-length paddles return everything, however fast and slanted the ball is.
static void test_ball_never_passes_a_full_paddle(void) {
    static const double speeds[][3] = {{1.5, 0.5, 0.8}, {4, 2, 0.95}, {0.25, 0, 0.1}, {4, 2, 0.1}};
    PufRng rng = {7};
    for (int32_t s = 0; s < 4; s++) {
        rig = RIG_START(&puf_env_pong, 8, (uint64_t)s, {"ball_speed", speeds[s][0]},
                        {"speedup", speeds[s][1]}, {"bounce", speeds[s][2]},
                        {"paddle_size", HEIGHT}, {"opponent_size", HEIGHT});
        for (int32_t t = 0; t < 1000; t++) {
            rig_act(&rig, &rng);
            puf_vec_step(rig.vec, NULL);
            for (int32_t i = 0; i < 8; i++) {
                const Pong* env = env_at(i);
                float speed = sqrtf(env->vx * env->vx + env->vy * env->vy);
                CHECK(env->x >= MARGIN + RADIUS && env->x <= WIDTH - MARGIN - RADIUS);
                CHECK(env->y >= RADIUS && env->y <= HEIGHT - RADIUS);
                CHECK(speed >= env->ball_speed * 0.9999f && speed <= env->max_speed * 1.0001f);
                CHECK(fabsf(env->vx) >= 0.31f * speed);
                CHECK(rig.rewards[i] == 0);
            }
        }
        rig_destroy(&rig);
    }
}

// What the agent is to learn is in reach: a player that follows the ball wins clearly, one that
// stands still loses clearly.
static void test_following_the_ball_beats_the_opponent(void) {
    for (int32_t follow = 0; follow < 2; follow++) {
        rig = rig_create(&puf_env_pong, 16, 1, NULL);
        puf_vec_reset(rig.vec, 3);
        for (int32_t t = 0; t < 5000; t++) {
            for (int32_t i = 0; i < 16; i++) {
                float away = env_at(i)->y - env_at(i)->paddle;
                rig.actions[i] = !follow || fabsf(away) < 2.5f ? STAY : away < 0 ? UP : DOWN;
            }
            puf_vec_step(rig.vec, NULL);
        }
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        double score = stats.metrics[0] / (double)stats.samples;
        CHECK(stats.samples >= 16 && (follow ? score > 10 : score < -10));
        rig_destroy(&rig);
    }
}

int main(void) {
    test_serve_goes_to_both_sides_equally_often();
    test_paddle_moves_frameskip_times_its_speed_and_stops_at_walls();
    test_place_on_the_paddle_decides_the_angle();
    test_ball_meets_the_paddle_where_its_path_crosses_the_line();
    test_hits_speed_the_ball_up_to_its_limit();
    test_walls_reflect_the_ball();
    test_passed_ball_is_a_point_and_the_last_point_ends_the_game();
    test_a_lost_game_has_perf_0();
    test_opponent_follows_what_it_sees_at_its_own_speed();
    test_max_steps_truncates();
    test_ball_never_passes_a_full_paddle();
    test_following_the_ball_beats_the_opponent();
    return CHECK_DONE();
}
