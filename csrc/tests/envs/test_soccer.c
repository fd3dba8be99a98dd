// The rules of soccer, with numbers derived by hand, and what the script is worth.
#include "envs/soccer.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

// Four agents, one tick a step, all players far from the ball, which rests in the middle.
static Soccer* pitch(void) {
    rig = RIG_START(&puf_env_soccer, 1, 0, {"opponent", SELF}, {"frameskip", 1}, {"max_score", 2},
                    {"reward_chase", 0}, {"reward_ball", 0});
    Soccer* env = rig_env(&rig, 0);
    env->ball = (Body){0, 0, 0, 0};
    for (int32_t i = 0; i < 4; i++)
        env->players[i] = (Body){i < 2 ? -10 : 10, i % 2 ? 10 : -10, 0, 0};
    return env;
}

static void play(int32_t agent, int32_t direction, int32_t kicks) {
    memset(rig.actions, 0, 8 * sizeof(int32_t));
    rig.actions[2 * agent] = direction;
    rig.actions[2 * agent + 1] = kicks;
    puf_vec_step(rig.vec, NULL);
}

static void test_players_run_in_eight_directions_of_their_team(void) {
    static const float dx[] = {0, 1, 0.7071f, 0, -0.7071f, -1, -0.7071f, 0, 0.7071f};
    static const float dy[] = {0, 0, 0.7071f, 1, 0.7071f, 0, -0.7071f, -1, -0.7071f};
    for (int32_t agent = 0; agent < 4; agent++)
        for (int32_t d = 0; d < 9; d++) {
            Soccer* env = pitch();
            const Body before = env->players[agent];
            const float sign = agent < 2 ? 0.06f : -0.06f;
            play(agent, d, 0);
            CHECK(near(env->players[agent].x, before.x + sign * dx[d]));
            CHECK(near(env->players[agent].y, before.y + sign * dy[d]));
            rig_destroy(&rig);
        }
}

static void test_drag_top_speed_and_walls_hold_players(void) {
    Soccer* env = pitch();
    env->players[0].vx = 0.2f;
    play(0, 0, 0);
    CHECK(near(env->players[0].vx, 0.17f) && near(env->players[0].x, -9.83f));
    // 0.85 v + 0.06 = v gives 0.4, which is the top speed too.
    for (int32_t i = 0; i < 40; i++) play(0, 3, 0);
    CHECK(env->players[0].vy > 0.39f && env->players[0].vy <= 0.4001f);
    for (int32_t i = 0; i < 60; i++) play(0, 4, 0);
    CHECK(near(env->players[0].x, -19) && near(env->players[0].y, 12));
    rig_destroy(&rig);
}

static void test_players_push_each_other_apart(void) {
    Soccer* env = pitch();
    env->players[0] = (Body){5, 5, 0, 0};
    env->players[2] = (Body){6, 5, 0, 0};  // 1 too near
    play(1, 0, 0);
    CHECK(near(env->players[0].x, 4.5f) && near(env->players[2].x, 6.5f));
    rig_destroy(&rig);
}

static void test_kicks_go_away_from_the_player_and_need_a_rest(void) {
    Soccer* env = pitch();
    env->players[0] = (Body){-1.2f, -1.6f, 0, 0};  // 2 away: in reach, not in touch
    play(0, 0, 0);
    CHECK(env->ball.vx == 0);
    play(0, 0, 1);  // direction (0.6, 0.8); rolls one tick, then loses 2 %
    CHECK(near(env->ball.x, 0.6f) && near(env->ball.y, 0.8f) && near(env->ball.vx, 0.588f));
    CHECK(env->cooldown[0] == 12 && rig.obs[20] == 0 && rig.obs[21 + 20] == 1);
    for (int32_t i = 11; i >= 0; i--) {
        env->ball = (Body){0, 0, 0, 0};
        play(0, 0, 1);
        CHECK(env->cooldown[0] == (i ? i : 12) && (env->ball.vx != 0) == (i == 0));
    }
    env->cooldown[0] = 0;
    env->ball = (Body){2, 0, 0, 0};  // 3.6 away
    play(0, 0, 1);
    CHECK(env->ball.vx == 0);
    rig_destroy(&rig);
}

static void test_ball_rolls_slows_down_and_bounces_off_walls(void) {
    Soccer* env = pitch();
    env->ball = (Body){1, 2, 0.5f, 0.1f};
    play(0, 0, 0);
    CHECK(near(env->ball.x, 1.5f) && near(env->ball.y, 2.1f) && near(env->ball.vx, 0.49f));
    env->ball = (Body){0, 12.2f, 0, 0.5f};  // the wall for its middle is 12.4
    play(0, 0, 0);
    CHECK(near(env->ball.y, 12.4f) && near(env->ball.vy, -0.49f));
    env->ball = (Body){-19.2f, 6, -0.5f, 0};  // beside the goal
    play(0, 0, 0);
    CHECK(near(env->ball.x, -19.4f) && near(env->ball.vx, 0.49f) && rig.rewards[0] == 0);
    env->ball = (Body){-19.2f, 3.9f, -0.5f, 0};  // between the posts, not yet over the line
    play(0, 0, 0);
    CHECK(near(env->ball.x, -19.7f) && near(env->ball.vx, -0.49f) && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_ball_bounces_off_players(void) {
    Soccer* env = pitch();
    env->players[1] = (Body){3, 0, 0, 0};
    env->ball = (Body){1.2f, 0, 0.5f, 0};  // to 1.7: within 1.6 of the player
    play(0, 0, 0);
    // -0.49 x 1.5 + 0.49 = -0.245
    CHECK(near(env->ball.x, 1.4f) && near(env->ball.vx, -0.245f));
    env->players[1] = (Body){3, 0, -0.2f / 0.85f, 0};  // runs into a resting ball
    env->ball = (Body){1.5f, 0, 0, 0};
    play(0, 0, 0);
    CHECK(near(env->ball.vx, -0.3f) && near(env->ball.x, 2.8f - 1.6f));
    rig_destroy(&rig);
}

static void test_goals_count_for_the_team_and_the_last_one_ends(void) {
    for (int32_t team = 0; team < 2; team++) {
        Soccer* env = pitch();
        const float sign = team ? -1.0f : 1.0f;
        for (int32_t goal = 1; goal <= 2; goal++) {
            env->ball = (Body){sign * 19.8f, 3, sign * 0.5f, 0};
            play(0, 0, 0);
            for (int32_t i = 0; i < 4; i++)
                CHECK(rig.rewards[i] == (i / 2 == team ? 1 : -1) &&
                      rig.terminals[i] == (goal == 2));
            CHECK(fabsf(env->ball.x) <= 1 && env->players[0].x < -4 && env->players[3].x > 11);
            if (goal == 1) CHECK(env->goals[team] == 1 && env->goals[team ^ 1] == 0);
        }
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        const double mean = stats.metrics[0] / (double)stats.samples;
        CHECK(mean == (team ? -2 : 2) && stats.metrics[1] == (team ? 0 : (double)stats.samples));
        rig_destroy(&rig);
    }
}

static void test_shaping_rewards_the_way_of_the_ball_and_the_chase(void) {
    rig = RIG_START(&puf_env_soccer, 1, 0, {"opponent", SELF}, {"frameskip", 1});
    Soccer* env = rig_env(&rig, 0);
    env->ball = (Body){0, 0, 0.4f, 0};
    env->players[0] = (Body){-5, 0, 0, 0};
    env->players[1] = (Body){-15, 5, 0, 0};
    env->players[2] = (Body){10, 0, 0, 0};
    env->players[3] = (Body){15, 5, 0, 0};
    play(0, 0, 0);
    // The ball rolls 0.4: 0.5 x 0.4 / 20 = 0.01 forward. The first team is 0.4 farther, the second
    // 0.4 nearer: 0.1 x 0.4 / 20 = 0.002.
    for (int32_t i = 0; i < 4; i++) CHECK(near(rig.rewards[i], i < 2 ? 0.008f : -0.008f));
    rig_destroy(&rig);
}

static void test_both_teams_see_the_same_game(void) {
    Soccer* env = pitch();
    env->ball = (Body){2, -3, 0.6f / 0.98f, 0};
    env->players[0] = (Body){-10, 4, 0.12f / 0.85f, 0};
    play(1, 0, 0);
    const float ball_x = 2 + 0.6f / 0.98f, own_x = -10 + 0.12f;
    const float *first = rig.obs, *third = rig.obs + 2 * NUM_FEATURES;
    CHECK(near(first[0], own_x / 20) && near(first[1], 0.2f) && near(first[2], 0.1f));
    CHECK(near(first[4], (ball_x - own_x) / 40) && near(first[5], -7 / 40.0f));
    CHECK(near(first[6], 0.5f) && near(first[7], 0));
    CHECK(near(first[8], (-10 - own_x) / 40) && near(first[9], 6 / 40.0f));     // its mate
    CHECK(near(first[12], (10 - own_x) / 40) && near(first[13], -14 / 40.0f));  // player 2
    CHECK(near(first[17], 6 / 40.0f) && first[20] == 1);
    CHECK(near(third[0], -0.5f) && near(third[1], 0.5f));  // (10, -10), turned
    CHECK(near(third[4], -(ball_x - 10) / 40) && near(third[5], -(-3 + 10) / 40.0f));
    CHECK(near(third[6], -0.5f) && near(third[12], -(own_x - 10) / 40));
    rig_destroy(&rig);
}

// ---- The script ---------------------------------------------------------------------------------

static void test_script_shoots_from_behind_and_defends(void) {
    Soccer* env = pitch();  // player 2 plays to the left
    env->players[2] = (Body){2, 0, 0, 0};
    CHECK(script(env, 2).kicks && script(env, 2).x < -0.9f);
    env->players[2] = (Body){-2, 0, 0, 0};  // on the wrong side: it runs around the ball
    CHECK(!script(env, 2).kicks && script(env, 2).x > 0.3f && fabsf(script(env, 2).y) > 0.3f);
    env->players[3] = (Body){10, 9, 0, 0};  // the other one goes between (0, 0) and (20, 0)
    CHECK(near(script(env, 3).x, 0) && near(script(env, 3).y, -1));
    rig_destroy(&rig);
}

static double match(bool scripted, int32_t opponent, double speed) {
    rig = RIG_START(&puf_env_soccer, 32, 3, {"opponent", SELF}, {"frameskip", 1},
                    {"max_steps", 2000}, {"opponent_speed", speed});
    PufRng rng = {5};
    // Both teams by hand: the script's wishes cannot be put into actions, so ticks are played here.
    double score = 0;
    for (int32_t e = 0; e < 32; e++) {
        Soccer* env = rig_env(&rig, e);
        env->opponent = opponent;  // for the speed of the second team
        for (int32_t t = 0; t < 2000; t++) {
            Wish wishes[4];
            for (int32_t i = 0; i < 4; i++)
                wishes[i] = (i < 2 ? scripted : opponent == SCRIPTED)
                                ? script(env, i)
                                : by_action(puf_rand_int(&rng, 9), puf_rand_int(&rng, 2), 1);
            const int32_t scorer = tick(env, wishes);
            if (scorer < 0) continue;
            score += scorer == 0 ? 1 : -1;
            kick_off(env);
        }
    }
    rig_destroy(&rig);
    return score / 32;
}

static void test_script_beats_random_actions_and_slower_ones(void) {
    CHECK(match(false, SCRIPTED, 0.6) < -2);
    CHECK(match(true, RANDOM, 1) > 3);
    CHECK(match(true, SCRIPTED, 0.6) > 1);
    CHECK(fabs(match(true, SCRIPTED, 1)) < 2);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_soccer, 1, 0, {"max_steps", 3});
    CHECK(rig.num_slots == 2);
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
    test_players_run_in_eight_directions_of_their_team();
    test_drag_top_speed_and_walls_hold_players();
    test_players_push_each_other_apart();
    test_kicks_go_away_from_the_player_and_need_a_rest();
    test_ball_rolls_slows_down_and_bounces_off_walls();
    test_ball_bounces_off_players();
    test_goals_count_for_the_team_and_the_last_one_ends();
    test_shaping_rewards_the_way_of_the_ball_and_the_chase();
    test_both_teams_see_the_same_game();
    test_script_shoots_from_behind_and_defends();
    test_script_beats_random_actions_and_slower_ones();
    test_max_steps_truncates();
    return CHECK_DONE();
}
