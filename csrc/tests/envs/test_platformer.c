// The rules of platformer, with numbers derived by hand, and a search that solves its levels.
#include "envs/platformer.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

enum { JUMP_RIGHT = NUM_KINDS * GO_RIGHT + WALK_JUMP, RUN_RIGHT = NUM_KINDS * GO_RIGHT + SPRINT };

// One tick a step, flat ground of height 3, no saws, the player at rest at x = 10.5.
static Platformer* flat(void) {
    rig = RIG_START(&puf_env_platformer, 1, 0, {"frameskip", 1}, {"length", 48},
                    {"reward_tile", 0.02}, {"reward_death", -0.5});
    Platformer* env = rig_env(&rig, 0);
    memset(env->ground, 3, sizeof env->ground);
    memset(env->platform, 0, sizeof env->platform);
    env->num_saws = 0;
    env->x = env->farthest = 10.5f;
    return env;
}

static void test_walk_sprint_and_stand(void) {
    Platformer* env = flat();
    rig_play(&rig, NUM_KINDS * GO_RIGHT + WALK);
    CHECK(near(env->x, 10.65f) && env->y == 3 && env->on_ground && env->faces == 1);
    CHECK(near(rig.rewards[0], 0.02f * 0.15f) && near(env->score, 8.65f));
    rig_play(&rig, NUM_KINDS * GO_LEFT + SPRINT);
    CHECK(near(env->x, 10.4f) && env->faces == -1 && rig.rewards[0] == 0);
    rig_play(&rig, NUM_KINDS * STAND + SPRINT);
    CHECK(near(env->x, 10.4f) && env->vx == 0);
    rig_play(&rig, RUN_RIGHT);  // only what is new counts: 10.65
    CHECK(near(env->x, 10.65f) && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_a_jump_is_a_parabola_and_starts_on_the_ground_only(void) {
    for (int32_t drop = 0; drop < 2; drop++) {
        Platformer* env = flat();
        rig_play(&rig, JUMP_RIGHT);
        CHECK(near(env->vy, 0.39f) && near(env->y, 3.39f) && !env->on_ground);
        rig_play(&rig, drop ? DROP : WALK_JUMP);  // no second jump
        CHECK(near(env->vy, drop ? 0.33f : 0.36f));
        int32_t ticks = 2;
        float top = env->y;
        for (; !env->on_ground && ticks < 99; ticks++) {
            rig_play(&rig, drop ? DROP : WALK);
            top = fmaxf(top, env->y);
        }
        // 0.39 + 0.36 + ... + 0.03 = 2.73, and down again: the 28th tick meets the ground.
        CHECK(env->y == 3 && ticks == (drop ? 15 : 28));
        CHECK(drop ? top < 4.8f : near(top, 5.73f));
        rig_destroy(&rig);
    }
}

static void test_walls_stop_and_ceilings_of_tiles_too(void) {
    Platformer* env = flat();
    env->ground[12] = 4;
    for (int32_t i = 0; i < 20; i++) rig_play(&rig, RUN_RIGHT);
    CHECK(env->x > 11.3f && env->x + HALF_WIDTH < 12 && env->vx == 0);
    rig_play(&rig, NUM_KINDS * GO_RIGHT + SPRINT_JUMP);
    for (int32_t i = 0; i < 30; i++) rig_play(&rig, NUM_KINDS * GO_RIGHT + (i < 9 ? WALK : DROP));
    CHECK(env->ground[tile_of(env->x)] == 3 || env->y >= 4);
    CHECK(env->x > 12);  // a step of one tile can be jumped
    rig_destroy(&rig);
    env = flat();
    env->platform[10] = 6;  // a tile from 5 to 6 above the player, whose head is at 3.9
    env->platform[11] = 6;
    float top = 0;
    for (int32_t i = 0; i < 10; i++) {
        rig_play(&rig, WALK_JUMP);
        top = fmaxf(top, env->y);
    }
    CHECK(top + TALL < 5 && top > 3.7f);
    rig_destroy(&rig);
    env = flat();
    env->x = 0.5f;
    for (int32_t i = 0; i < 10; i++) rig_play(&rig, NUM_KINDS * GO_LEFT + SPRINT);
    CHECK(env->x >= HALF_WIDTH);  // the left end of the level
    rig_destroy(&rig);
}

static void test_platforms_carry(void) {
    Platformer* env = flat();
    env->ground[10] = env->ground[11] = 0;
    env->platform[10] = env->platform[11] = 5;
    env->y = 7;
    for (int32_t i = 0; i < 40; i++) rig_play(&rig, WALK);
    CHECK(env->y == 5 && env->on_ground && !rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_gaps_are_deadly(void) {
    Platformer* env = flat();
    for (int32_t x = 10; x < 13; x++) env->ground[x] = 0;
    env->x = 11.5f;
    int32_t ticks = 0;
    do rig_play(&rig, WALK);
    while (++ticks < 50 && !rig.terminals[0]);
    // 3 + 1 to fall: 0.03 + 0.06 + ... + 0.48 = 4.08 after 16 ticks.
    CHECK(ticks == 16 && rig.rewards[0] == -0.5f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[1] == 0);
    rig_destroy(&rig);
}

static void test_saws_are_deadly_within_their_radius(void) {
    static const struct {
        float x, y;
        bool deadly;
    } cases[] = {{11.2f, 3.45f, true}, {11.35f, 3.45f, false}, {9.8f, 3.45f, true},
                 {10.5f, 4.3f, true},  {10.5f, 4.4f, false},   {11.1f, 4.1f, true},
                 {11.2f, 4.3f, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Platformer* env = flat();
        env->num_saws = 1;
        env->saws[0] = (Saw){cases[i].x, cases[i].y, 0};
        rig_play(&rig, WALK);
        CHECK(rig.terminals[0] == cases[i].deadly);
        CHECK(rig.rewards[0] == (cases[i].deadly ? -0.5f : 0));
        rig_destroy(&rig);
    }
}

static void test_saws_patrol(void) {
    const Saw saw = {20, 3, 1.5f}, still = {20, 3, 0};
    // From 18.5 to 21.5 in 60 ticks and back.
    CHECK(near(saw_x(&saw, 0), 18.5f) && near(saw_x(&saw, 30), 20) && near(saw_x(&saw, 60), 21.5f));
    CHECK(near(saw_x(&saw, 90), 20) && near(saw_x(&saw, 120), 18.5f));
    CHECK(fabsf(saw_x(&saw, 1210) - 19) < 0.01f && saw_x(&still, 77) == 20);
}

static void test_the_coin_ends_the_episode(void) {
    Platformer* env = flat();
    CHECK(env->coin == 45);
    env->x = env->farthest = 44.7f;  // its edge is at 45.05, the coin's at 45.1
    rig_play(&rig, WALK);
    CHECK(!rig.terminals[0]);
    rig_play(&rig, NUM_KINDS * GO_RIGHT + WALK);
    CHECK(rig.terminals[0] && near(rig.rewards[0], 1 + 0.02f * 0.15f));
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[1] == 1 && fabs(stats.metrics[0] - 42.85) < 1e-3);
    rig_destroy(&rig);
}

static void test_frameskip_repeats_the_action(void) {
    rig = RIG_START(&puf_env_platformer, 1, 0, {"frameskip", 4}, {"difficulty", 0});
    const Platformer* env = rig_env(&rig, 0);
    rig_play(&rig, RUN_RIGHT);
    CHECK(near(env->x, 3) && env->clock == 4);
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_platformer, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// ---- Levels -------------------------------------------------------------------------------------

static void test_levels_follow_from_their_number(void) {
    rig = RIG_START(&puf_env_platformer, 64, 0, {"num_levels", 4}, {"start_level", 10});
    Rig other = RIG_START(&puf_env_platformer, 64, 9, {"num_levels", 4}, {"start_level", 10});
    int32_t seen[4] = {0};
    for (int32_t i = 0; i < 64; i++) {
        const Platformer* a = rig_env(&rig, i);
        CHECK(a->level >= 10 && a->level < 14);
        seen[a->level - 10]++;
        for (int32_t k = 0; k < 64; k++) {
            const Platformer* b = rig_env(&other, k);
            const bool same = !memcmp(a->ground, b->ground, MAX_LENGTH) &&
                              !memcmp(a->platform, b->platform, MAX_LENGTH) &&
                              a->num_saws == b->num_saws;
            CHECK(same == (a->level == b->level));
        }
    }
    for (int32_t i = 0; i < 4; i++) CHECK(seen[i] > 4);
    rig_destroy(&rig);
    rig_destroy(&other);
    rig = RIG_START(&puf_env_platformer, 64, 0, {"length", 64});
    for (int32_t i = 0; i < 64; i++)
        for (int32_t k = 0; k < i; k++)
            CHECK(((Platformer*)rig_env(&rig, i))->level != ((Platformer*)rig_env(&rig, k))->level);
    rig_destroy(&rig);
}

static void test_levels_have_all_kinds_of_obstacles(void) {
    rig = RIG_START(&puf_env_platformer, 64, 0, {"length", 64});
    int32_t gaps = 0, platforms = 0, steps = 0, saws = 0, moving = 0;
    for (int32_t i = 0; i < 64; i++) {
        const Platformer* env = rig_env(&rig, i);
        for (int32_t x = 1; x < env->length; x++) {
            gaps += !env->ground[x];
            platforms += env->platform[x] > 0;
            steps += env->ground[x] && env->ground[x - 1] && env->ground[x] != env->ground[x - 1];
            CHECK(!env->platform[x] || !env->ground[x]);
        }
        for (int32_t s = 0; s < env->num_saws; s++) {
            saws += env->saws[s].range == 0;
            moving += env->saws[s].range > 0;
        }
        for (int32_t x = 0; x < 6; x++) CHECK(env->ground[x] == START_HEIGHT);
        for (int32_t x = env->length - 6; x < env->length; x++)
            CHECK(env->ground[x] && env->ground[x] == env->ground[env->coin]);
    }
    CHECK(gaps > 200 && platforms > 60 && steps > 60 && saws > 30 && moving > 30);
    rig_destroy(&rig);
}

enum { RUNS, DIES, COIN };

static int32_t simulate(Platformer* env, int32_t action) {
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        env->clock++;
        move(env, action / NUM_KINDS, action % NUM_KINDS);
        if (touches(env, (float)env->coin + 0.5f, (float)env->ground[env->coin] + 0.5f, 0.4f))
            return COIN;
        if (is_sawn(env) || env->y < -1) return DIES;
    }
    return RUNS;
}

static uint8_t visited[1 << 22];

// Depth first, best actions first; a state that was seen, up to small differences, is not tried
// again.
static bool solve(const Platformer* env, int32_t steps, int32_t* budget) {
    static const int32_t actions[] = {RUN_RIGHT, NUM_KINDS * GO_RIGHT + SPRINT_JUMP, JUMP_RIGHT,
                                      NUM_KINDS * GO_RIGHT + WALK, NUM_KINDS * STAND + WALK};
    if (steps == 0 || --*budget < 0) return false;
    for (int32_t i = 0; i < 5; i++) {
        Platformer next = *env;
        const int32_t result = simulate(&next, actions[i]);
        if (result == COIN) return true;
        if (result == DIES) continue;
        const uint64_t key =
            puf_mix64((uint64_t)(next.x * 8) << 40 ^ (uint64_t)(next.y * 8 + 64) << 24 ^
                      (uint64_t)(next.vy * 20 + 64) << 12 ^ (uint64_t)(next.clock % 120 / 6)) >>
            42;
        if (visited[key]) continue;
        visited[key] = 1;
        if (solve(&next, steps - 1, budget)) return true;
    }
    return false;
}

static void test_every_level_can_be_solved(void) {
    rig = RIG_START(&puf_env_platformer, 200, 7, {"length", 96});
    int32_t solved = 0;
    for (int32_t i = 0; i < 200; i++) {
        int32_t budget = 200000;
        memset(visited, 0, sizeof visited);
        solved += solve(rig_env(&rig, i), 400, &budget);
    }
    CHECK(solved == 200);
    rig_destroy(&rig);
}

// ---- Observations -------------------------------------------------------------------------------

static void test_window_shows_tiles_saws_and_the_coin(void) {
    Platformer* env = flat();
    env->x = 38.5f;
    env->ground[40] = 0;
    env->platform[40] = 5;
    env->num_saws = 2;
    env->saws[0] = (Saw){30.5f, 3.45f, 0};  // behind
    env->saws[1] = (Saw){42.5f, 3.45f, 0};
    rig_play(&rig, WALK);
    // Columns 35..47, rows 3 - 4 = -1 up to 7.
    for (int32_t col = 0; col < WINDOW_COLS; col++)
        for (int32_t row = 0; row < WINDOW_ROWS; row++) {
            const int32_t x = 35 + col, y = row - 1;
            float expected = (y >= 0 && y < 3 && x != 40) || (x == 40 && y == 4);
            if (x == 42 && y == 3) expected = -1;
            if (x == 45 && y == 3) expected = 0.5f;
            CHECK(rig.obs[col * WINDOW_ROWS + row] == expected);
        }
    const float* rest = rig.obs + WINDOW_COLS * WINDOW_ROWS;
    CHECK(near(rest[0], 0.5f) && near(rest[1], 0) && rest[2] == 0 && rest[4] == 1);
    CHECK(near(rest[5], 6.5f / 96) && near(rest[6], 3 / 14.0f));
    CHECK(near(rest[7], 0.4f) && near(rest[8], 0.045f) && rest[9] == 0 && rest[10] == 1);
    env->x = 45.5f;  // beyond the end everything is wall
    env->coin = 20;
    env->saws[1].range = 1.5f;
    rig_play(&rig, RUN_RIGHT);
    CHECK(rig.obs[(WINDOW_COLS - 1) * WINDOW_ROWS] == 1 && near(rest[2], 1));
    CHECK(fabsf(fabsf(rest[9]) - 1) < 0.01f || rest[7] == 1);
    rig_destroy(&rig);
}

static void test_pixels_are_what_the_canvas_draws(void) {
    rig = RIG_START(&puf_env_platformer, 2, 3, {"obs", PIXELS_OBS});
    CHECK(rig.batch->obs_bytes == 64 * 64 * 3);
    static uint8_t rgb[64 * 64 * 3];
    PufCanvas canvas = {rgb, 64, 64};
    for (int32_t t = 0; t < 20; t++) {
        rig_play(&rig, t % 2 ? JUMP_RIGHT : RUN_RIGHT);
        draw_view(rig_env(&rig, 1), &canvas, 0, 64.0f / VIEW_ROWS);
        CHECK(!memcmp(rgb, rig.obs_u8 + sizeof rgb, sizeof rgb));
    }
    rig_destroy(&rig);
}

int main(void) {
    test_walk_sprint_and_stand();
    test_a_jump_is_a_parabola_and_starts_on_the_ground_only();
    test_walls_stop_and_ceilings_of_tiles_too();
    test_platforms_carry();
    test_gaps_are_deadly();
    test_saws_are_deadly_within_their_radius();
    test_saws_patrol();
    test_the_coin_ends_the_episode();
    test_frameskip_repeats_the_action();
    test_max_steps_truncates();
    test_levels_follow_from_their_number();
    test_levels_have_all_kinds_of_obstacles();
    test_every_level_can_be_solved();
    test_window_shows_tiles_saws_and_the_coin();
    test_pixels_are_what_the_canvas_draws();
    return CHECK_DONE();
}
