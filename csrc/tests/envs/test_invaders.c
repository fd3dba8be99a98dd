// The rules of invaders, with numbers derived by hand.
#include "envs/invaders.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

// One env without bombs and without a saucer soon.
static Invaders* quiet(void) {
    rig = RIG_START(&puf_env_invaders, 1, 0, {"bomb_rate", 0}, {"lives", 2});
    return rig_env(&rig, 0);
}

// Only the enemy at (row, col) is left.
static void leave_one(Invaders* env, int32_t row, int32_t col) {
    memset(env->rows, 0, sizeof env->rows);
    env->rows[row] = (uint16_t)(1u << col);
    env->alive = 1;
}

static void test_cannon_moves_and_stops_at_the_edges(void) {
    Invaders* env = quiet();
    CHECK(env->cannon == 112);
    rig_play(&rig, LEFT);
    CHECK(env->cannon == 108);
    for (int32_t i = 0; i < 30; i++) rig_play(&rig, LEFT);
    CHECK(env->cannon == 7);
    for (int32_t i = 0; i < 60; i++) rig_play(&rig, RIGHT);
    CHECK(env->cannon == 216);
    rig_play(&rig, STAY);
    CHECK(env->cannon == 216);
    rig_destroy(&rig);
}

static void test_one_shot_at_a_time_flies_16_units_a_tick(void) {
    Invaders* env = quiet();
    env->cannon = 10;  // left of all bunkers and enemies
    rig_play(&rig, FIRE);
    CHECK(env->shot.x == 10 && env->shot.y == 192);
    rig_play(&rig, RIGHT);
    rig_play(&rig, FIRE);  // still under way
    CHECK(env->shot.x == 10 && env->shot.y == 160);
    for (int32_t i = 0; i < 9; i++) rig_play(&rig, STAY);
    CHECK(env->shot.y == 16);
    rig_play(&rig, STAY);
    CHECK(env->shot.y == 0);  // left the field
    rig_play(&rig, FIRE);
    CHECK(env->shot.x == 14 && env->shot.y == 192);
    rig_destroy(&rig);
}

static void test_enemies_march_faster_the_fewer_they_are(void) {
    Invaders* env = quiet();
    // 4 frames a tick: with 55 enemies the first moves come in ticks 14 (56 frames) and 28 (112).
    for (int32_t tick = 1; tick <= 28; tick++) {
        rig_play(&rig, STAY);
        CHECK(env->x == 24 + 2 * (tick >= 14) + 2 * (tick >= 28));
    }
    leave_one(env, 0, 0);
    env->frames = 0;
    env->x = 24;
    rig_play(&rig, STAY);  // 4 moves a tick
    CHECK(env->x == 32 && env->y == 40);
    rig_destroy(&rig);
}

static void test_enemies_come_down_and_turn_at_the_edges(void) {
    Invaders* env = quiet();
    leave_one(env, 0, 10);
    env->march_speed = 1;
    env->x = 46;  // right end 46 + 160 + 12 = 218, the limit is 220
    rig_play(&rig, STAY);
    CHECK(env->x == 48 && env->y == 40 && env->direction == 1);
    rig_play(&rig, STAY);
    CHECK(env->x == 48 && env->y == 48 && env->direction == -1);
    leave_one(env, 0, 1);
    env->x = -10;  // left end 6, the limit is 4
    rig_play(&rig, STAY);
    CHECK(env->x == -12 && env->y == 48);
    rig_play(&rig, STAY);
    CHECK(env->x == -12 && env->y == 56 && env->direction == 1);
    rig_destroy(&rig);
}

static void test_shots_kill_for_points_by_row(void) {
    static const float points[] = {30, 20, 20, 10, 10};
    for (int32_t row = 0; row < ROWS; row++) {
        Invaders* env = quiet();
        memset(env->rows, 0, sizeof env->rows);
        env->rows[row] = 3 << 4;  // columns 4 and 5
        env->alive = 2;
        env->march_speed = 1;
        env->shot = (Missile){24 + 64 + 11, 40 + 16 * row + 20};  // the last unit of column 4
        rig_play(&rig, STAY);
        CHECK(env->rows[row] == 2 << 4 && env->alive == 1 && env->killed == 1 && !env->shot.y);
        CHECK(env->score == points[row] && env->perf == 1 / 110.0f);
        CHECK(fabsf(rig.rewards[0] - 0.5f - points[row] / 100) < 1e-5f);
        env->shot = (Missile){env->x + 64 + 14, 40 + 16 * row + 20};  // between the columns
        env->march_speed = 0;
        rig_play(&rig, STAY);
        CHECK(env->alive == 1 && env->shot.y == 40 + 16 * row + 4);
        rig_destroy(&rig);
    }
}

static void test_saucer_crosses_and_is_worth_a_bonus(void) {
    Invaders* env = quiet();
    env->saucer = 100;
    env->saucer_direction = -1;
    env->shot = (Missile){98, 40};
    memset(env->rows, 0, sizeof env->rows);
    leave_one(env, 4, 10);
    rig_play(&rig, STAY);  // the saucer is now 98..114, the shot goes 36, 32, 28, 24
    CHECK(!env->shot.y && !env->saucer_direction);
    const int32_t score = (int32_t)env->score;
    CHECK(score == 50 || score == 100 || score == 150 || score == 300);
    env->saucer = 223;
    env->saucer_direction = 1;
    rig_play(&rig, STAY);
    CHECK(env->saucer_direction == 0);  // gone at 225
    int32_t seen = 0;
    for (int32_t i = 0; i < 3000; i++) {
        env->x = 24;
        env->y = 40;
        const int32_t before = env->saucer_direction;
        rig_play(&rig, STAY);
        seen += !before && env->saucer_direction;
    }
    CHECK(seen >= 2 && seen <= 16);  // one in 400 free ticks, each stays for about 120
    rig_destroy(&rig);
}

static void test_bunkers_stop_shots_and_bombs_and_lose_a_cell(void) {
    Invaders* env = quiet();
    env->shot = (Missile){40, 196};  // bunker 0, column 2; its lowest row is open there
    rig_play(&rig, STAY);
    CHECK(!env->shot.y && env->bunkers[0][2] == (0x3F ^ 4) && env->bunkers[0][3] == 0x33);
    env->bombs[0] = (Missile){BUNKER_X + 2 * BUNKER_PITCH + 20, 172};  // bunker 2, column 5
    rig_play(&rig, STAY);  // its upper corner is cut off
    CHECK(env->bombs[0].y == 176);
    rig_play(&rig, STAY);
    CHECK(!env->bombs[0].y && env->bunkers[2][1] == (0x3F ^ 32));
    env->bombs[0] = (Missile){BUNKER_X + 30, 172};  // between two bunkers
    for (int32_t i = 0; i < 6; i++) rig_play(&rig, STAY);
    CHECK(env->bombs[0].y == 196);
    rig_destroy(&rig);
}

static void test_a_bomb_costs_a_life_and_the_last_one_ends_the_game(void) {
    Invaders* env = quiet();
    env->cannon = 60;
    env->bombs[0] = (Missile){68, 204};  // 8 away: a miss
    rig_play(&rig, STAY);
    CHECK(env->lives_left == 2 && env->bombs[0].y == 208);
    rig_play(&rig, STAY);
    rig_play(&rig, STAY);
    CHECK(!env->bombs[0].y && env->lives_left == 2);
    for (int32_t life = 1; life >= 0; life--) {
        env->cannon = 60;
        env->bombs[0] = (Missile){67, 204};
        env->bombs[1] = (Missile){150, 100};
        env->shot = (Missile){10, 100};
        rig_play(&rig, STAY);
        CHECK(rig.rewards[0] == -1 && rig.terminals[0] == (life == 0));
        CHECK(!env->bombs[1].y && !env->shot.y && env->cannon == 112);
        if (life) CHECK(env->lives_left == 1);
    }
    CHECK(env->lives_left == 2);
    rig_destroy(&rig);
}

static void test_bombs_fall_from_the_lowest_of_a_column(void) {
    rig = RIG_START(&puf_env_invaders, 1, 0, {"bomb_rate", 1});
    Invaders* env = rig_env(&rig, 0);
    int32_t near_cannon = 0, columns[COLS] = {0};
    for (int32_t i = 0; i < 2000; i++) {
        memset(env->bombs, 0, sizeof env->bombs);
        env->rows[4] = 1u << 3;  // all other columns end in row 3, column 7 is empty
        for (int32_t row = 0; row < 4; row++) env->rows[row] = 0x7FF ^ 1u << 7;
        env->alive = 41;
        env->frames = 0;
        env->cannon =
            env->x + 7 * PITCH + 3;  // column 7 is the nearest, then 8, which is to the right
        rig_play(&rig, STAY);
        const Missile* bomb = &env->bombs[2];
        CHECK(bomb->y && !env->bombs[0].y && !env->bombs[1].y);
        const int32_t col = (bomb->x - env->x - 6) / PITCH;
        CHECK((bomb->x - env->x - 6) % PITCH == 0 && col >= 0 && col < COLS && col != 7);
        CHECK(bomb->y == env->y + (col == 3 ? 64 : 48) + 8);
        columns[col]++;
        near_cannon += col == 8;
    }
    CHECK(near_cannon > 1000 && near_cannon < 1200);  // 2000 x (1/2 + 1/20), and 4.5 deviations
    for (int32_t col = 0; col < COLS; col++) CHECK(col == 7 || columns[col] > 50);
    for (int32_t i = 0; i < 20; i++) rig_play(&rig, STAY);
    CHECK(env->bombs[0].y && env->bombs[1].y && env->bombs[2].y);
    rig_destroy(&rig);
}

static void test_enemies_flatten_bunkers_and_end_the_game_when_they_land(void) {
    Invaders* env = quiet();
    leave_one(env, 0, 10);
    env->march_speed = 1;
    env->x = 48;
    env->y = 160;  // comes down to 168, so its feet are at 176: above the bunkers
    rig_play(&rig, STAY);
    CHECK(env->y == 168 && env->bunkers[0][0] == 0x1E);
    env->direction = 1;
    rig_play(&rig, STAY);  // 184: two rows
    CHECK(!env->bunkers[0][0] && !env->bunkers[3][1] && env->bunkers[0][2] == 0x3F);
    env->direction = 1;
    env->y = 184;  // feet at 200 next
    rig_play(&rig, STAY);
    CHECK(!env->bunkers[0][3] && !rig.terminals[0]);
    env->direction = 1;
    rig_play(&rig, STAY);  // 208: landed
    CHECK(rig.terminals[0] && rig.rewards[0] == -2 && env->alive == 55);
    rig_destroy(&rig);
}

static void test_waves_begin_lower_and_the_last_one_ends_the_game(void) {
    Invaders* env = quiet();
    for (int32_t wave = 0; wave < 2; wave++) {
        leave_one(env, 4, 0);
        env->x = 100;
        env->march_speed = 0;
        env->bunkers[0][0] = 0;
        env->killed = 54 + 55 * wave;
        env->shot = (Missile){106, 40 + 64 + 20 + 8 * wave};
        rig_play(&rig, STAY);
        CHECK(rig.terminals[0] == (wave == 1));
        if (wave == 0)
            CHECK(env->wave == 1 && env->alive == 55 && env->y == 48 && env->x == 24 &&
                  env->bunkers[0][0] == 0x1E && env->perf == 0.5f && env->killed == 55);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 2);
    rig_destroy(&rig);
}

static void test_observations(void) {
    Invaders* env = quiet();
    env->cannon = 56;
    env->shot = (Missile){100, 216};  // 200 after the tick
    env->bombs[1] = (Missile){28, 116};
    env->bunkers[0][1] = 0;
    env->frames = 18;
    rig_play(&rig, STAY);
    const float* obs = rig.obs;
    CHECK(obs[0] == -0.5f && obs[1] == 1 && fabsf(obs[2] - 44 / 224.0f) < 1e-6f);
    CHECK(fabsf(obs[3] - 200 / 240.0f) < 1e-6f && fabsf(obs[4] + 32 / 224.0f) < 1e-6f);
    CHECK(fabsf(obs[5] - 140 / 224.0f) < 1e-6f && obs[6] == 1 && fabsf(obs[7] - 1) < 1e-6f);
    CHECK(fabsf(obs[8] - 0.4f) < 1e-6f && obs[9] == 1 && obs[10] == 0 && obs[11] == 0);
    CHECK(obs[12] == 0.5f && fabsf(obs[13] - 112 / 240.0f) < 1e-6f);
    // Columns have their middles at 30, 46, 62, ...: the nearest to 56 is 6 to the right.
    CHECK(fabsf(obs[14] - 6 / 224.0f) < 1e-6f && fabsf(obs[15] - 6 / 16.0f) < 1e-6f);
    CHECK(!obs[17] && obs[20] == 1 && obs[21] == -0.125f && obs[22] == 0.5f);
    const float *enemies = obs + 26, *bombs = enemies + 17, *cover = bombs + 17;
    for (int32_t bin = 0; bin < NUM_BINS; bin++) {
        // A bin k covers 56 + 8 k - 68 up to 8 more: -12, -4, 4, 12, 20, 28, 36, 44, 52, ...
        const int32_t left = 8 * bin - 12;
        bool enemy = false;
        for (int32_t x = 30; x < 200; x += 16) enemy = enemy || (x >= left && x < left + 8);
        CHECK(enemies[bin] == (enemy ? 112 * (1.0f / 240) : 0));
        CHECK(bombs[bin] == (bin == 5 ? 0.5f : 0));
    }
    // The first bunker has its cells at 32, 36, ...: 34 and 38, 42 are middles. 28..36 holds one of
    // them, whose column has 2 of 4 cells (a corner and one shot away), 36..44 two with 3 and 2.
    CHECK(cover[4] == 0 && cover[5] == 0.25f && cover[6] == 0.625f);
    leave_one(env, 2, 3);
    env->saucer_direction = -1;
    env->saucer = 162;
    rig_play(&rig, STAY);
    CHECK(obs[10] == -1 && obs[11] == 0.25f && obs[16] == 1);  // 160 + 8 - 56 = 112
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_invaders, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

int main(void) {
    test_cannon_moves_and_stops_at_the_edges();
    test_one_shot_at_a_time_flies_16_units_a_tick();
    test_enemies_march_faster_the_fewer_they_are();
    test_enemies_come_down_and_turn_at_the_edges();
    test_shots_kill_for_points_by_row();
    test_saucer_crosses_and_is_worth_a_bonus();
    test_bunkers_stop_shots_and_bombs_and_lose_a_cell();
    test_a_bomb_costs_a_life_and_the_last_one_ends_the_game();
    test_bombs_fall_from_the_lowest_of_a_column();
    test_enemies_flatten_bunkers_and_end_the_game_when_they_land();
    test_waves_begin_lower_and_the_last_one_ends_the_game();
    test_observations();
    test_max_steps_truncates();
    return CHECK_DONE();
}
