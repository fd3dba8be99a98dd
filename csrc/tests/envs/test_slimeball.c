// The rules of slimeball, with numbers derived by hand, and what the script is worth.
#include "envs/slimeball.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

// Two agents, one tick a step, with the ball at rest high above the right corner.
static Slimeball* duel(void) {
    rig =
        RIG_START(&puf_env_slimeball, 1, 0, {"opponent", SELF}, {"frameskip", 1}, {"max_score", 2});
    Slimeball* env = rig_env(&rig, 0);
    env->ball = (Body){19, 20, 0, 0};
    return env;
}

static void play(int32_t agent, int32_t move, int32_t jump, int32_t dive) {
    memset(rig.actions, 0, 6 * sizeof(int32_t));
    rig.actions[3 * agent] = move;
    rig.actions[3 * agent + 1] = jump;
    rig.actions[3 * agent + 2] = dive;
    puf_vec_step(rig.vec, NULL);
}

static void test_serves_go_to_both_sides_equally_often(void) {
    rig = rig_create(&puf_env_slimeball, 1024, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    int32_t right = 0;
    for (int32_t i = 0; i < 1024; i++) {
        const Slimeball* env = rig_env(&rig, i);
        CHECK(env->ball.x == 0 && env->ball.y == 10 && env->ball.vy >= 0 && env->ball.vy < 0.3f);
        CHECK(fabsf(env->ball.vx) >= 0.1f && fabsf(env->ball.vx) < 0.35f);
        CHECK(env->slimes[0].x == 10 && env->slimes[1].x == -10);
        right += env->ball.vx > 0;
    }
    CHECK(abs(right - 512) < 80);  // 5 standard deviations of 16
    rig_destroy(&rig);
}

static void test_slimes_run_in_their_own_half_and_mirror_each_other(void) {
    for (int32_t agent = 0; agent < 2; agent++) {
        Slimeball* env = duel();
        const float sign = agent ? -1.0f : 1.0f;
        play(agent, FORWARD, 0, 0);
        CHECK(near(env->slimes[agent].x, sign * 9.65f) &&
              near(env->slimes[agent].vx, -0.35f * sign));
        CHECK(env->slimes[agent ^ 1].x == -10 * sign);
        for (int32_t i = 0; i < 30; i++) {
            env->ball = (Body){19, 20, 0, 0};
            play(agent, FORWARD, 0, 0);
        }
        CHECK(near(env->slimes[agent].x, sign * 2.3f) && env->slimes[agent].vx == 0);  // at the net
        for (int32_t i = 0; i < 60; i++) {
            env->ball = (Body){0, 20, 0, 0};
            play(agent, BACK, 0, 0);
        }
        CHECK(near(env->slimes[agent].x, sign * 18));
        rig_destroy(&rig);
    }
}

static void test_jump_and_dive(void) {
    for (int32_t dive = 0; dive < 2; dive++) {
        Slimeball* env = duel();
        Body* slime = &env->slimes[0];
        play(0, STAY, 1, 0);
        CHECK(near(slime->y, 0.42f) && near(slime->vy, 0.42f));
        play(0, STAY, 1, dive);  // a second jump in the air does nothing
        CHECK(near(slime->vy, dive ? 0.33f : 0.39f) && near(slime->y, 0.42f + slime->vy));
        int32_t ticks = 2;
        float top = 0;
        while (slime->y > 0 && ticks < 100) {
            env->ball = (Body){0, 20, 0, 0};
            play(0, STAY, 0, dive);
            top = fmaxf(top, slime->y);
            ticks++;
        }
        // 0.42 + 0.39 + ... + 0.03 = 3.15 is the top of the 14th tick; back to 0 in the 29th.
        // Diving: 0.42 + 0.33 + 0.24 + 0.15 + 0.06 = 1.2 in the 5th, and in the 11th tick below 0.
        CHECK(ticks == (dive ? 11 : 29) && near(top, dive ? 1.2f : 3.15f));
        rig_destroy(&rig);
    }
}

static void test_ball_flies_under_gravity_between_walls_and_ceiling(void) {
    Slimeball* env = duel();
    env->ball = (Body){10, 15, 0.5f, 0.1f};
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.x, 10.5f) && near(env->ball.vy, 0.08f) && near(env->ball.y, 15.08f));
    env->ball = (Body){19.2f, 15, 0.5f, 0};  // the wall is at 20 - 0.6
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.x, 19.4f) && near(env->ball.vx, -0.5f));
    env->ball = (Body){-19.2f, 15, -0.5f, 0};
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.x, -19.4f) && near(env->ball.vx, 0.5f));
    env->ball = (Body){5, 23.2f, 0, 0.52f};
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.y, 23.4f) && near(env->ball.vy, -0.5f));
    env->ball = (Body){5, 20, 0, -0.79f};
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.vy, -0.8f));  // its top speed
    rig_destroy(&rig);
}

static void test_net_reflects_the_ball_at_its_sides_and_on_top(void) {
    Slimeball* env = duel();
    env->slimes[0].x = 15;
    env->slimes[1].x = -15;
    env->ball = (Body){1.2f, 3, -0.5f, 0};  // to 0.7: within 0.3 + 0.6
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.x, 0.9f) && near(env->ball.vx, 0.5f) && rig.rewards[0] == 0);
    env->ball = (Body){-1.2f, 3, 0.5f, 0};
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.x, -0.9f) && near(env->ball.vx, -0.5f));
    env->ball = (Body){0, 5, 0, -0.2f};  // straight down on its top at 4 + 0.9
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.y, 4.9f) && near(env->ball.vy, 0.22f));
    rig_destroy(&rig);
}

static void test_slimes_reflect_the_ball_with_their_own_velocity(void) {
    Slimeball* env = duel();
    env->ball = (Body){10, 2.8f, 0, -0.28f};  // -0.3 now; reach is 2.6
    play(0, STAY, 0, 0);
    CHECK(near(env->ball.y, 2.6f) && near(env->ball.vy, 0.3f));
    // A jumping slime: relative speed -0.1 - 0.42 = -0.52, so it leaves with -0.1 + 1.04 = 0.94,
    // cut to 0.8.
    env->ball = (Body){10, 2.9f, 0, -0.08f};
    play(0, STAY, 1, 0);
    CHECK(near(env->ball.vy, 0.8f) && near(env->ball.y, 0.42f + 2.6f));
    rig_destroy(&rig);
    // From the side at 45 degrees: a ball that falls with 0.3 leaves horizontally.
    env = duel();
    const float diagonal = 2.6f * 0.70710678f;
    env->ball = (Body){10 - diagonal + 0.01f, diagonal + 0.3f - 0.02f, 0, -0.28f};
    play(0, STAY, 0, 0);
    CHECK(fabsf(env->ball.vx + 0.3f) < 0.01f && fabsf(env->ball.vy) < 0.01f);
    rig_destroy(&rig);
}

static void test_ground_gives_a_point_to_the_other_side_and_the_last_one_ends(void) {
    for (int32_t loser = 0; loser < 2; loser++) {
        Slimeball* env = duel();
        const float x = loser == 0 ? 18 : -18, won = loser == 0 ? -1 : 1;
        env->ball = (Body){x, 0.7f, 0, -0.1f};
        play(0, STAY, 0, 0);
        CHECK(rig.rewards[0] == won && rig.rewards[1] == -won && !rig.terminals[0]);
        CHECK(env->points[loser ^ 1] == 1 && env->points[loser] == 0 && env->ball.y == 10);
        env->ball = (Body){x, 0.7f, 0, -0.1f};
        play(0, STAY, 0, 0);
        CHECK(rig.terminals[0] && rig.terminals[1] && env->points[0] == 0 && env->points[1] == 0);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.metrics[0] == 2 * won * (double)stats.samples);
        CHECK(stats.metrics[1] == (loser == 1) * (double)stats.samples);
        rig_destroy(&rig);
    }
}

static void test_a_ball_over_the_net_is_rewarded_to_the_side_it_came_from(void) {
    Slimeball* env = duel();
    env->ball = (Body){0.2f, 8, -0.5f, 0};
    play(0, STAY, 0, 0);
    CHECK(near(rig.rewards[0], 0.1f) && near(rig.rewards[1], -0.1f));
    env->ball = (Body){-0.2f, 8, 0.5f, 0};
    play(0, STAY, 0, 0);
    CHECK(near(rig.rewards[0], -0.1f) && near(rig.rewards[1], 0.1f));
    rig_destroy(&rig);
}

static void test_both_agents_see_the_same_game_from_their_side(void) {
    Slimeball* env = duel();
    env->slimes[0] = (Body){5, 0, 0, 0};
    env->slimes[1] = (Body){-7, 0, 0, 0};
    env->ball = (Body){-4, 12.02f, 0.4f, 0};
    memset(rig.actions, 0, 6 * sizeof(int32_t));
    rig.actions[0] = FORWARD;
    rig.actions[3] = BACK;
    puf_vec_step(rig.vec, NULL);
    static const float right[] = {4.65f / 20, 0,       -0.4375f,    0, -3.6f / 20, 0.5f,
                                  0.5f,       -0.025f, -7.35f / 20, 0, -0.4375f,   0};
    static const float left[] = {7.35f / 20, 0,       0.4375f,     0, 3.6f / 20, 0.5f,
                                 -0.5f,      -0.025f, -4.65f / 20, 0, 0.4375f,   0};
    for (int32_t i = 0; i < 12; i++) {
        CHECK(near(rig.obs[i], right[i]));
        CHECK(near(rig.obs[12 + i], left[i]));
    }
    rig_destroy(&rig);
}

// What a ball that starts at (x, y) really does without slimes, tick by tick.
static void test_script_knows_where_the_ball_lands(void) {
    static const Body balls[] = {{-5, 10, -0.2f, 0.1f}, {3, 12, -0.4f, 0.2f}, {-15, 9, -0.3f, 0}};
    for (int32_t i = 0; i < 3; i++) {
        Slimeball* env = duel();
        env->slimes[0].y = env->slimes[1].y = 0;
        env->ball = balls[i];
        const float expected = landing(&balls[i], -1, SLIME);
        for (int32_t tick = 0; tick < 200 && env->ball.y > SLIME; tick++) {
            env->slimes[0].x = 18;
            env->slimes[1].x = env->ball.x < -10 ? -2.3f : -18;  // out of the way
            move_ball(env);
        }
        CHECK(fabsf(expected + env->ball.x) < 0.5f);
        rig_destroy(&rig);
    }
}

static void test_script_stands_behind_the_ball_and_jumps_at_it(void) {
    Slimeball* env = duel();
    env->error = 0;
    env->ball = (Body){-10, 15, 0, 0};  // falls straight down: the place to be is 0.8 behind it
    CHECK(script(env, 1).move == BACK && !script(env, 1).jump);
    env->slimes[1].x = -10.8f;
    CHECK(script(env, 1).move == STAY);
    env->slimes[1].x = -11.5f;
    CHECK(script(env, 1).move == FORWARD);
    env->error = 1.6f;
    CHECK(script(env, 1).move == BACK);
    env->ball = (Body){-10, 5, 0, -0.2f};
    CHECK(script(env, 1).jump);
    env->ball = (Body){15, 5, 0.1f, 0};  // over there: to the middle of its half
    CHECK(script(env, 1).move == FORWARD && !script(env, 1).jump);
    rig_destroy(&rig);
}

// Plays `right` (-1: random actions, else the script) against an opponent; mean score of games.
static double match(int32_t right, int32_t opponent, double error, double* length) {
    rig = RIG_START(&puf_env_slimeball, 32, 3, {"opponent", opponent}, {"opponent_error", error},
                    {"frameskip", 1});
    PufRng rng = {5};
    for (int32_t t = 0; t < 6000; t++) {
        rig_act(&rig, &rng);
        for (int32_t i = 0; right >= 0 && i < 32; i++) {
            Slimeball copy = *(Slimeball*)rig_env(&rig, i);
            copy.error = 0;
            const Wish wish = script(&copy, 0);
            memcpy(&rig.actions[3 * i], &wish, sizeof wish);
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    *length = stats.length_sum / (double)stats.episodes;
    const double score = stats.metrics[0] / (double)stats.samples;
    rig_destroy(&rig);
    return score;
}

static void test_script_beats_random_actions_and_can_be_beaten(void) {
    double length;
    CHECK(match(-1, SCRIPTED, 1.6, &length) < -3);
    CHECK(match(0, RANDOM, 1.6, &length) > 3);
    CHECK(match(0, SCRIPTED, 6, &length) > 1);  // without errors against one with large ones
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_slimeball, 1, 0, {"max_steps", 3});
    for (int32_t i = 1; i <= 6; i++) {
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.truncations[0] == (i % 3 == 0) && !rig.terminals[0]);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[1] == 0.5 * (double)stats.samples);
    rig_destroy(&rig);
}

int main(void) {
    test_serves_go_to_both_sides_equally_often();
    test_slimes_run_in_their_own_half_and_mirror_each_other();
    test_jump_and_dive();
    test_ball_flies_under_gravity_between_walls_and_ceiling();
    test_net_reflects_the_ball_at_its_sides_and_on_top();
    test_slimes_reflect_the_ball_with_their_own_velocity();
    test_ground_gives_a_point_to_the_other_side_and_the_last_one_ends();
    test_a_ball_over_the_net_is_rewarded_to_the_side_it_came_from();
    test_both_agents_see_the_same_game_from_their_side();
    test_script_knows_where_the_ball_lands();
    test_script_stands_behind_the_ball_and_jumps_at_it();
    test_script_beats_random_actions_and_can_be_beaten();
    test_max_steps_truncates();
    return CHECK_DONE();
}
