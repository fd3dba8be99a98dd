// The rules of battle with units placed by hand, and its scripted opponent.
#include "envs/battle.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT };

#define FIELD(...) RIG_START(&puf_env_battle, 1, 1, {"walls", 0}, __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, VISION, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

static Field* sweep(Rig* rig) {
    Field* env = rig_env(rig, 0);
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, env->width, env->height, WALL, EMPTY);
    return env;
}

static void put(Field* env, int32_t unit, int32_t row, int32_t col, int32_t health) {
    env->units[unit] = (Unit){.cell = (int16_t)at(row, col), .health = (uint8_t)health};
    if (health) env->board[at(row, col)] = (uint8_t)(UNIT + unit);
}

static void step_with(Rig* rig, const int32_t* actions) {
    memcpy(rig->actions, actions, (size_t)rig->num_slots * sizeof(int32_t));
    puf_vec_step(rig->vec, NULL);
}
#define STEP(rig, ...) step_with(rig, (const int32_t[]){__VA_ARGS__})

static void test_moves_and_blocks(void) {
    Rig rig = FIELD({"opponent", SELF}, {"team_size", 1});
    static const int32_t rows[5] = {5, 4, 5, 6, 5}, cols[5] = {5, 5, 6, 5, 4};
    for (int32_t action = 0; action < 5; action++) {
        Field* env = sweep(&rig);
        put(env, 0, 5, 5, 3);
        put(env, 1, 11, 15, 3);
        STEP(&rig, action, MOVE + DOWN);
        CHECK(env->units[0].cell == at(rows[action], cols[action]));
        CHECK(env->units[1].cell == at(11, 15));  // the wall around the field
        CHECK(env->board[env->units[0].cell] == UNIT && valid(env));
    }
    Field* env = sweep(&rig);
    put(env, 0, 5, 5, 3);
    put(env, 1, 5, 6, 3);
    STEP(&rig, MOVE + RIGHT, STAY);
    CHECK(env->units[0].cell == at(5, 5));
    rig_destroy(&rig);
}

static void test_the_unit_that_begins_changes(void) {
    // Both want (5, 6). With two units, unit (k + tick) % 2 is k-th: unit 1 begins at tick 1.
    for (int32_t tick = 1; tick <= 2; tick++) {
        Rig rig = FIELD({"opponent", SELF}, {"team_size", 1});
        Field* env = sweep(&rig);
        put(env, 0, 5, 5, 3);
        put(env, 1, 5, 7, 3);
        env->slots.tick = tick - 1;
        STEP(&rig, MOVE + RIGHT, MOVE + LEFT);
        CHECK(env->units[tick % 2].cell == at(5, 6));
        CHECK(env->units[1 - tick % 2].cell == at(5, tick % 2 ? 5 : 7));
        rig_destroy(&rig);
    }
}

static void test_shots(void) {
    Rig rig = FIELD({"opponent", SELF}, {"team_size", 2}, {"range", 4});
    Field* env = sweep(&rig);
    put(env, 0, 5, 1, 3);
    put(env, 1, 0, 0, 3);
    put(env, 2, 5, 5, 3);
    put(env, 3, 11, 15, 3);
    STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);  // four cells: in range
    CHECK(env->units[2].health == 2 && near(rig.rewards[0], 0.1f) && near(rig.rewards[2], -0.1f));
    CHECK(rig.rewards[1] == 0 && rig.rewards[3] == 0);
    for (int32_t i = 0; i < 2; i++) {  // reloads for two ticks
        CHECK(env->units[0].reload == 2 - i);
        STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);
        CHECK(env->units[2].health == 2 && rig.rewards[0] == 0);
    }
    STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);
    CHECK(env->units[2].health == 1);

    env = sweep(&rig);  // five cells: out of range
    put(env, 0, 5, 1, 3);
    put(env, 1, 0, 0, 3);
    put(env, 2, 5, 6, 3);
    put(env, 3, 11, 15, 3);
    STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);
    CHECK(env->units[2].health == 3 && rig.rewards[0] == 0 && env->units[0].reload == 2);

    for (int32_t by_wall = 0; by_wall < 2; by_wall++) {  // a wall, or a friend, in between
        env = sweep(&rig);
        put(env, 0, 5, 1, 3);
        put(env, 1, by_wall ? 0 : 5, 2, 3);
        put(env, 2, 5, 4, 3);
        put(env, 3, 11, 15, 3);
        if (by_wall) env->board[at(5, 2)] = WALL;
        STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);
        CHECK(env->units[2].health == 3 && env->units[1].health == 3 && rig.rewards[0] == 0);
    }
    rig_destroy(&rig);
}

static void test_shots_follow_moves_and_are_simultaneous(void) {
    Rig rig = FIELD({"opponent", SELF}, {"team_size", 2});
    Field* env = sweep(&rig);
    put(env, 0, 5, 1, 3);
    put(env, 1, 0, 0, 3);
    put(env, 2, 5, 3, 3);
    put(env, 3, 11, 15, 3);
    STEP(&rig, SHOOT + RIGHT, STAY, MOVE + DOWN, STAY);
    CHECK(env->units[2].health == 3);  // it had moved out of the line
    env = sweep(&rig);
    put(env, 0, 5, 1, 1);
    put(env, 1, 0, 0, 3);
    put(env, 2, 5, 3, 1);
    put(env, 3, 11, 15, 3);
    STEP(&rig, SHOOT + RIGHT, STAY, SHOOT + LEFT, STAY);
    CHECK(!env->units[0].health && !env->units[2].health);  // both fall
    CHECK(env->board[at(5, 1)] == EMPTY && env->board[at(5, 3)] == EMPTY);
    CHECK(near(rig.rewards[0], 0) && !rig.terminals[0] && valid(env));
    // What has left cannot act, and its mask says so.
    CHECK(rig.masks[0] && rig.action_masks[0] == 1);
    int32_t legal = 0;
    for (int32_t i = 0; i < NUM_ACTIONS; i++) legal += rig.action_masks[i];
    CHECK(legal == 1);
    STEP(&rig, MOVE + UP, STAY, SHOOT + UP, STAY);
    CHECK(env->board[at(4, 1)] == EMPTY && env->units[2].reload < 2);
    rig_destroy(&rig);
}

static void test_the_last_team_wins(void) {
    for (int32_t loser = 0; loser < 2; loser++) {
        Rig rig = FIELD({"opponent", SELF}, {"team_size", 2}, {"reward_hit", 0});
        Field* env = sweep(&rig);
        put(env, 0, 5, 1, loser == 0 ? 1 : 3);
        put(env, 1, 0, 0, loser == 0 ? 0 : 3);
        put(env, 2, 5, 3, loser == 1 ? 1 : 3);
        put(env, 3, 11, 15, loser == 1 ? 0 : 3);
        STEP(&rig, SHOOT + RIGHT, STAY, SHOOT + LEFT, STAY);
        for (int32_t i = 0; i < 4; i++)
            CHECK(rig.terminals[i] && near(rig.rewards[i], i / 2 == loser ? -1 : 1));
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        const double samples = (double)stats.samples;
        CHECK(stats.metrics[0] / samples == (loser ? 2 : -2));
        CHECK(stats.metrics[1] / samples == loser && stats.metrics[2] == 0);
        rig_destroy(&rig);
    }
}

static void test_time_is_judged_by_units_then_health(void) {
    static const struct {
        int32_t health[4];
        float won;
    } cases[] = {{{3, 3, 3, 0}, 1},
                 {{1, 0, 1, 1}, -1},
                 {{3, 2, 3, 3}, -1},
                 {{2, 2, 1, 2}, 1},
                 {{3, 1, 2, 2}, 0}};
    for (int32_t k = 0; k < 5; k++) {
        Rig rig = FIELD({"opponent", SELF}, {"team_size", 2}, {"max_steps", 1});
        Field* env = sweep(&rig);
        put(env, 0, 5, 1, cases[k].health[0]);
        put(env, 1, 0, 0, cases[k].health[1]);
        put(env, 2, 5, 13, cases[k].health[2]);
        put(env, 3, 11, 15, cases[k].health[3]);
        STEP(&rig, STAY, STAY, STAY, STAY);
        CHECK(rig.truncations[0] && !rig.terminals[0]);
        CHECK(near(rig.rewards[0], cases[k].won) && near(rig.rewards[3], -cases[k].won));
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.metrics[1] / (double)stats.samples == 0.5 + 0.5 * (double)cases[k].won);
        CHECK((stats.metrics[2] > 0) == (cases[k].won == 0));
        rig_destroy(&rig);
    }
}

static void test_observations(void) {
    Rig rig = FIELD({"opponent", SELF}, {"team_size", 2});
    Field* env = sweep(&rig);
    put(env, 0, 5, 3, 2);
    put(env, 1, 5, 1, 3);
    put(env, 2, 7, 3, 1);
    put(env, 3, 1, 3, 3);
    env->board[at(5, 4)] = WALL;
    STEP(&rig, SHOOT + RIGHT, STAY, STAY, STAY);
    const uint8_t* obs = rig.obs_u8;
    const int32_t centre = VISION * (SIDE + 1);
    CHECK(obs[centre + 1] == 1 && obs[centre - 4] == 1 && obs[centre - 3] == 0);
    CHECK(obs[WINDOW + centre] == 1 && obs[WINDOW + centre - 2] == 1);
    CHECK(obs[2 * WINDOW + centre + 2 * SIDE] == 1 && obs[2 * WINDOW + centre - 4 * SIDE] == 1);
    CHECK(obs[3 * WINDOW + centre + 2 * SIDE] == 1 && obs[3 * WINDOW + centre - 4 * SIDE] == 0);
    // two health; reloading; enemies in line above and below; the nearest below; the teams equal
    static const uint8_t flags[19] = {1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0};
    CHECK(!memcmp(obs + NUM_PLANES * WINDOW, flags, 19));
    CHECK(rig.action_masks[MOVE] == 1 && rig.action_masks[SHOOT] == 0);
    CHECK(rig.action_masks[NUM_ACTIONS + SHOOT] == 1);
    put(env, 3, 1, 3, 0);  // an enemy has left
    env->board[at(1, 3)] = EMPTY;
    STEP(&rig, STAY, STAY, STAY, STAY);
    CHECK(obs[FEATURES - 2] == 1 && obs[FEATURES - 3] == 0);  // ahead by one
    CHECK(obs[2 * FEATURES + FEATURES - 4] == 1);             // behind by one
    int32_t sum = 0;
    for (int32_t i = 0; i < FEATURES; i++) sum += obs[3 * FEATURES + i];  // it sees only the score
    CHECK(sum == 1 && obs[3 * FEATURES + FEATURES - 4] == 1);
    rig_destroy(&rig);
}

static void test_the_script(void) {
    Rig rig = FIELD({"team_size", 2}, {"opponent_random", 0});
    Field* env = sweep(&rig);
    CHECK(rig.num_slots == 2);
    put(env, 0, 5, 1, 3);
    put(env, 1, 2, 3, 1);
    put(env, 2, 5, 3, 3);
    put(env, 3, 5, 13, 3);
    CHECK(scripted_action(env, 2) == SHOOT + UP);  // the weaker of two in line
    put(env, 1, 0, 9, 3);
    env->board[at(2, 3)] = EMPTY;
    CHECK(scripted_action(env, 2) == SHOOT + LEFT);
    env->units[2].reload = 1;
    for (int32_t i = 0; i < 20; i++) {
        const int32_t action = scripted_action(env, 2);  // out of the line of fire
        CHECK(action == MOVE + UP || action == MOVE + DOWN);
    }
    // (0, 9) is nearest to (5, 13): 5 up, 4 left. The common column is nearer.
    CHECK(scripted_action(env, 3) == MOVE + LEFT);
    env->board[at(5, 12)] = WALL;
    CHECK(scripted_action(env, 3) == MOVE + UP);
    rig_destroy(&rig);
}

static void test_teams_begin_in_their_camps(void) {
    Rig rig = FIELD({"team_size", 16}, {"height", 8}, {"opponent", SELF});
    int32_t lefts = 0;
    for (int32_t k = 0; k < 40; k++) {
        puf_vec_reset(rig.vec, (uint64_t)k);
        const Field* env = rig_env(&rig, 0);
        const bool left = env->units[0].cell % STRIDE - VISION < CAMP;
        for (int32_t i = 0; i < 32; i++) {
            const int32_t col = env->units[i].cell % STRIDE - VISION;
            CHECK(left == (i < 16) ? col < CAMP : col >= env->width - CAMP);
        }
        CHECK(valid(env));
        lefts += left;
    }
    CHECK(lefts > 8 && lefts < 32);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = FIELD({"opponent", SELF}, {"team_size", 2});
    Field* env = sweep(&rig);
    put(env, 0, 5, 1, 3);
    put(env, 1, 0, 0, 0);
    put(env, 2, 5, 13, 3);
    put(env, 3, 11, 15, 3);
    const Field kept = *env;
    CHECK(valid(env));
    env->units[0].cell = 2;
    CHECK(!valid(env));
    *env = kept;
    env->units[1].cell = -2;  // it has left, but the picture still looks at its cell
    CHECK(!valid(env));
    *env = kept;
    env->board[at(3, 3)] = UNIT + 1;
    CHECK(!valid(env));
    *env = kept;
    env->board[at(3, 3)] = UNIT + 4;
    CHECK(!valid(env));
    *env = kept;
    env->board[at(-1, 3)] = EMPTY;
    CHECK(!valid(env));
    *env = kept;
    env->units[0].health = 4;
    CHECK(!valid(env));
    *env = kept;
    env->units[0].health = 0;  // a team without units
    env->board[at(5, 1)] = EMPTY;
    CHECK(!valid(env));
    *env = kept;
    env->shots[2] = 4;
    CHECK(!valid(env));
    *env = kept;
    env->units[2].reload = 3;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_moves_and_blocks();
    test_the_unit_that_begins_changes();
    test_shots();
    test_shots_follow_moves_and_are_simultaneous();
    test_the_last_team_wins();
    test_time_is_judged_by_units_then_health();
    test_observations();
    test_the_script();
    test_teams_begin_in_their_camps();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
