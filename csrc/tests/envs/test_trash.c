// The rules of trash on yards laid out by hand.
#include "envs/trash.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT };

#define YARD(...) RIG_START(&puf_env_trash, 1, 1, {"width", 8}, {"height", 8}, __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, VISION, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

// An empty yard with a bin at (0, 0); agents and litter must be put before the next step.
static Yard* sweep(Rig* rig) {
    Yard* env = rig_env(rig, 0);
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, 8, 8, WALL, EMPTY);
    env->board[at(0, 0)] = BIN;
    env->bins[0] = (int16_t)at(0, 0);
    env->pieces = env->left = 0;
    return env;
}

static void put_agent(Yard* env, int32_t agent, int32_t row, int32_t col, uint8_t full) {
    env->cells[agent] = (int16_t)at(row, col);
    env->full[agent] = full;
    env->board[at(row, col)] = AGENT;
    env->pieces += full;
    env->left += full;
}

static void put_litter(Yard* env, int32_t row, int32_t col) {
    env->board[at(row, col)] = LITTER;
    env->pieces++;
    env->left++;
}

static void step_with(Rig* rig, int32_t a, int32_t b) {
    rig->actions[0] = a;
    if (rig->num_slots > 1) rig->actions[1] = b;
    puf_vec_step(rig->vec, NULL);
}

static void test_moves_walls_and_litter(void) {
    Rig rig = YARD({"num_agents", 1}, {"num_bins", 1});
    static const int32_t rows[4] = {3, 4, 5, 4}, cols[4] = {4, 5, 4, 3};
    for (int32_t action = 0; action < 4; action++) {
        Yard* env = sweep(&rig);
        put_litter(env, 7, 7);
        put_agent(env, 0, 4, 4, 0);
        step_with(&rig, action, 0);
        CHECK(env->cells[0] == at(rows[action], cols[action]) && rig.rewards[0] == 0);
        CHECK(env->board[at(4, 4)] == EMPTY && env->board[env->cells[0]] == AGENT);
    }
    Yard* env = sweep(&rig);
    put_litter(env, 7, 6);
    put_litter(env, 6, 6);
    put_agent(env, 0, 7, 7, 0);
    step_with(&rig, DOWN, 0);
    CHECK(env->cells[0] == at(7, 7));  // the wall
    step_with(&rig, LEFT, 0);
    CHECK(env->cells[0] == at(7, 6) && env->full[0] && near(rig.rewards[0], 0.25f));
    step_with(&rig, UP, 0);  // its hands are full
    CHECK(env->cells[0] == at(7, 6) && env->board[at(6, 6)] == LITTER && rig.rewards[0] == 0);
    CHECK(env->left == 2);
    rig_destroy(&rig);
}

static void test_a_bin_takes_what_is_carried_and_the_last_piece_ends_the_episode(void) {
    Rig rig = YARD({"num_agents", 2}, {"num_bins", 1});
    Yard* env = sweep(&rig);
    put_agent(env, 0, 0, 1, 1);
    put_agent(env, 1, 1, 0, 0);
    put_litter(env, 1, 1);
    step_with(&rig, LEFT, UP);  // agent 1 comes with free hands
    CHECK(near(rig.rewards[0], 1) && rig.rewards[1] == 0 && !env->full[0] && env->left == 1);
    CHECK(env->cells[0] == at(0, 1) && env->cells[1] == at(1, 0) && env->board[at(0, 0)] == BIN);
    step_with(&rig, UP, RIGHT);
    CHECK(env->full[1]);
    step_with(&rig, UP, LEFT);
    CHECK(!rig.terminals[0]);
    step_with(&rig, UP, UP);
    CHECK(rig.terminals[0] && rig.terminals[1] && !rig.truncations[0]);
    CHECK(near(rig.rewards[0], 1) && near(rig.rewards[1], 2));  // 1 for all, and 1 for the drop
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(near((float)(stats.metrics[0] / (double)stats.samples), 2));
    CHECK(near((float)(stats.metrics[1] / (double)stats.samples), 1));
    CHECK(near((float)(stats.metrics[2] / (double)stats.samples), 4));
    rig_destroy(&rig);
}

static void test_agents_block_each_other_and_take_turns_to_begin(void) {
    // Both want the cell between them. Agent tick % 2 acts first: agent 1 at tick 1.
    for (int32_t tick = 0; tick < 2; tick++) {
        Rig rig = YARD({"num_agents", 2}, {"num_bins", 1});
        Yard* env = sweep(&rig);
        put_agent(env, 0, 4, 3, 0);
        put_agent(env, 1, 4, 5, 0);
        put_litter(env, 7, 7);
        env->slots.tick = tick;
        step_with(&rig, RIGHT, LEFT);
        const int32_t winner = (tick + 1) % 2;
        CHECK(env->cells[winner] == at(4, 4) && env->cells[1 - winner] == at(4, winner ? 3 : 5));
        CHECK(valid(env));
        rig_destroy(&rig);
    }
}

static void test_truncation_reports_the_share_collected(void) {
    Rig rig = YARD({"num_agents", 1}, {"num_bins", 1}, {"max_steps", 3});
    Yard* env = sweep(&rig);
    put_agent(env, 0, 0, 1, 1);
    for (int32_t i = 0; i < 3; i++) put_litter(env, 7, i);
    step_with(&rig, LEFT, 0);
    step_with(&rig, LEFT, 0);
    CHECK(!rig.truncations[0]);
    step_with(&rig, LEFT, 0);
    CHECK(rig.truncations[0] && !rig.terminals[0] && rig.rewards[0] == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(near((float)stats.metrics[0], 1) && near((float)stats.metrics[1], 0.25f));
    rig_destroy(&rig);
}

static void test_observations(void) {
    Rig rig = YARD({"num_agents", 2}, {"num_bins", 1});
    Yard* env = sweep(&rig);
    put_agent(env, 0, 3, 2, 1);
    put_agent(env, 1, 3, 5, 0);
    put_litter(env, 5, 2);
    step_with(&rig, UP, RIGHT);  // to (2, 2) and (3, 6)
    const uint8_t* obs = rig.obs_u8;
    const int32_t side = 2 * VISION + 1, centre = VISION * (side + 1);
    CHECK(obs[centre + 3 * side] == 1);               // litter three below
    CHECK(obs[WINDOW + centre - 2 * side - 2] == 1);  // the bin
    CHECK(obs[2 * WINDOW + centre] == 1);             // itself
    CHECK(obs[2 * WINDOW + centre + side + 4] == 1);  // the other agent
    CHECK(obs[3 * WINDOW + centre - 3] == 1 && obs[3 * WINDOW + centre - 2] == 0);  // the wall
    int32_t sum = 0;
    for (int32_t i = 0; i < 3 * WINDOW; i++) sum += obs[i];
    CHECK(sum == 4);
    static const uint8_t first[5] = {1, 1, 0, 0, 1}, second[5] = {0, 1, 0, 0, 1};
    CHECK(!memcmp(obs + 4 * WINDOW, first, 5));  // full; the bin is above and left
    CHECK(!memcmp(obs + FEATURES + 4 * WINDOW, second, 5));
    rig_destroy(&rig);
}

static void test_a_new_yard_holds_what_was_asked_for(void) {
    Rig rig = YARD({"num_agents", 32}, {"num_bins", 16}, {"num_litter", 400});
    const Yard* env = rig_env(&rig, 0);
    int32_t counts[WALL + 1] = {0};
    for (int32_t row = 0; row < 8; row++)
        for (int32_t col = 0; col < 8; col++) counts[env->board[at(row, col)]]++;
    CHECK(counts[AGENT] == 32 && counts[BIN] == 16 && counts[LITTER] == 16 && !counts[EMPTY]);
    CHECK(env->pieces == 16 && env->left == 16 && valid(env));
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = YARD({"num_agents", 2}, {"num_bins", 1});
    Yard* env = sweep(&rig);
    put_agent(env, 0, 4, 3, 0);
    put_agent(env, 1, 4, 5, 1);
    const Yard kept = *env;
    CHECK(valid(env));
    env->cells[0] = env->cells[1];
    CHECK(!valid(env));
    *env = kept;
    env->cells[0] = -7;
    CHECK(!valid(env));
    *env = kept;
    env->left = 2;  // one more than there is
    CHECK(!valid(env));
    *env = kept;
    env->board[at(2, 2)] = AGENT;  // of nobody
    CHECK(!valid(env));
    *env = kept;
    env->board[at(-1, 2)] = EMPTY;  // a hole in the wall
    CHECK(!valid(env));
    *env = kept;
    env->full[1] = 2;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_moves_walls_and_litter();
    test_a_bin_takes_what_is_carried_and_the_last_piece_ends_the_episode();
    test_agents_block_each_other_and_take_turns_to_begin();
    test_truncation_reports_the_share_collected();
    test_observations();
    test_a_new_yard_holds_what_was_asked_for();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
