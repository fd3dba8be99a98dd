// The rules of commons on orchards laid out by hand, and the odds of growth.
#include "envs/commons.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { STAY, UP, RIGHT, DOWN, LEFT };

#define ORCHARD(...)                                                                     \
    RIG_START(&puf_env_commons, 1, 1, {"width", 8}, {"height", 8}, {"reward_growth", 0}, \
              __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, VISION, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

static Orchard* sweep(Rig* rig) {
    Orchard* env = rig_env(rig, 0);
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, 8, 8, WALL, EMPTY);
    env->apples = env->harvest = env->spared = 0;
    return env;
}

static void put_agent(Orchard* env, int32_t agent, int32_t row, int32_t col) {
    env->cells[agent] = (int16_t)at(row, col);
    env->board[at(row, col)] = AGENT;
}

static void put_apple(Orchard* env, int32_t row, int32_t col) {
    env->board[at(row, col)] = APPLE;
    env->apples++;
}

static void step_with(Rig* rig, int32_t a, int32_t b) {
    rig->actions[0] = a;
    if (rig->num_slots > 1) rig->actions[1] = b;
    puf_vec_step(rig->vec, NULL);
}

static void test_moves_and_harvest(void) {
    static const int32_t rows[5] = {4, 3, 4, 5, 4}, cols[5] = {4, 4, 5, 4, 3};
    Rig rig = ORCHARD({"num_agents", 1});
    for (int32_t action = 0; action < 5; action++) {
        Orchard* env = sweep(&rig);
        put_agent(env, 0, 4, 4);
        put_apple(env, 0, 0);
        step_with(&rig, action, 0);
        CHECK(env->cells[0] == at(rows[action], cols[action]) && rig.rewards[0] == 0);
        CHECK(env->board[env->cells[0]] == AGENT && (!action || env->board[at(4, 4)] != AGENT));
    }
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 0, 0);
    put_apple(env, 0, 1);
    put_apple(env, 7, 7);
    step_with(&rig, UP, 0);
    CHECK(env->cells[0] == at(0, 0));
    step_with(&rig, RIGHT, 0);
    CHECK(env->cells[0] == at(0, 1) && rig.rewards[0] == 1 && env->harvest == 1);
    rig_destroy(&rig);
}

static void test_agents_block_each_other_and_take_turns_to_begin(void) {
    for (int32_t tick = 0; tick < 2; tick++) {
        Rig rig = ORCHARD({"num_agents", 2}, {"share", 0});
        Orchard* env = sweep(&rig);
        put_agent(env, 0, 4, 3);
        put_agent(env, 1, 4, 5);
        put_apple(env, 4, 4);
        put_apple(env, 0, 0);
        env->slots.tick = tick;
        step_with(&rig, RIGHT, LEFT);
        const int32_t winner = (tick + 1) % 2;
        CHECK(rig.rewards[winner] == 1 && rig.rewards[1 - winner] == 0);
        CHECK(env->cells[winner] == at(4, 4) && env->cells[1 - winner] == at(4, winner ? 3 : 5));
        rig_destroy(&rig);
    }
}

static void test_a_part_of_each_apple_is_divided(void) {
    // share 0.5: half an apple belongs to its picker, a quarter goes to each of two agents.
    Rig rig = ORCHARD({"num_agents", 2}, {"share", 0.5});
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 4, 3);
    put_agent(env, 1, 7, 7);
    put_apple(env, 4, 4);
    put_apple(env, 0, 0);
    step_with(&rig, RIGHT, STAY);
    CHECK(near(rig.rewards[0], 0.75f) && near(rig.rewards[1], 0.25f));
    rig_destroy(&rig);
}

static void test_a_part_of_an_apple_is_paid_when_it_grows(void) {
    // A quarter of each apple is paid to both agents as it grows, the other three to its picker.
    Rig rig = RIG_START(&puf_env_commons, 1, 1, {"width", 8}, {"height", 8}, {"num_agents", 2},
                        {"share", 0}, {"sprouts", 40}, {"reward_growth", 0.25});
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 4, 3);
    put_agent(env, 1, 7, 7);
    for (int32_t col = 0; col < 8; col++) put_apple(env, 1, col);
    put_apple(env, 4, 4);
    step_with(&rig, RIGHT, STAY);
    const int32_t grown = env->apples - 8;
    CHECK(grown > 0 && env->harvest == 1);
    CHECK(near(rig.rewards[0], 0.75f + 0.125f * (float)grown));
    CHECK(near(rig.rewards[1], 0.125f * (float)grown));
    rig_destroy(&rig);
}

static void test_the_last_apple_ends_the_episode(void) {
    Rig rig = ORCHARD({"num_agents", 1});
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 4, 3);
    put_apple(env, 4, 4);
    step_with(&rig, RIGHT, 0);
    CHECK(rig.terminals[0] && !rig.truncations[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 0 && stats.metrics[2] == 0);
    rig_destroy(&rig);
}

static void test_perf_counts_the_second_half(void) {
    // 8 steps, 1 sprout: par is 0.25 x 4 = 1 apple in steps 5 to 8. One apple is taken in step 1
    // and one in step `late`. Apples in opposite corners of two full columns do not matter.
    for (int32_t late = 4; late <= 5; late++) {
        Rig rig = ORCHARD({"num_agents", 1}, {"sprouts", 1}, {"max_steps", 8});
        Orchard* env = sweep(&rig);
        put_agent(env, 0, 4, 0);
        put_apple(env, 0, 7);
        for (int32_t i = 1; i <= 8; i++) {
            const bool take = i == 1 || i == late;
            if (take && env->board[at(4, i)] != APPLE) put_apple(env, 4, i);
            if (!take && env->board[at(4, i % 8)] == APPLE) {  // nothing grows in its way
                env->board[at(4, i % 8)] = EMPTY;
                env->apples--;
            }
            step_with(&rig, i < 8 ? RIGHT : STAY, 0);
        }
        CHECK(rig.truncations[0]);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.metrics[0] == 2 && stats.metrics[1] == (late == 5 ? 1 : 0));
        rig_destroy(&rig);
    }
}

// A gap with k apples around grows with probability sprouts / 64 x k / 8 in a step. With 64 sprouts
// that is close to 1 - (1 - k / 512)^64.
static void test_the_odds_of_growth(void) {
    for (int32_t k = 0; k <= 8; k++) {
        Rig rig = ORCHARD({"num_agents", 1}, {"sprouts", 64});
        int32_t grown = 0, trials = 4000;
        for (int32_t i = 0; i < trials; i++) {
            Orchard* env = sweep(&rig);
            env->slots.tick = 0;
            for (int32_t row = 0; row < 8; row++)  // all cells but the gap are occupied
                for (int32_t col = 0; col < 8; col++) env->board[at(row, col)] = AGENT;
            put_agent(env, 0, 7, 7);
            static const int32_t ring[8][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 1},
                                               {2, 3}, {3, 1}, {3, 2}, {3, 3}};
            for (int32_t j = 0; j < k; j++) put_apple(env, ring[j][0], ring[j][1]);
            put_apple(env, 6, 0);  // far away
            env->board[at(2, 2)] = EMPTY;
            step_with(&rig, STAY, 0);
            grown += env->board[at(2, 2)] == APPLE;
        }
        const double chance = 1 - pow(1 - k / 512.0, 64);
        const double sigma = sqrt(chance * (1 - chance) / trials);
        CHECK(fabs((double)grown / trials - chance) <= 4 * sigma);
        rig_destroy(&rig);
    }
}

static void test_observations(void) {
    Rig rig = ORCHARD({"num_agents", 2});
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 0, 0);
    put_agent(env, 1, 0, 2);
    put_apple(env, 4, 0);
    step_with(&rig, DOWN, STAY);  // agent 0 at (1, 0)
    const int32_t side = 2 * VISION + 1, centre = VISION * (side + 1);
    const uint8_t* obs = rig.obs_u8;
    CHECK(obs[centre + 3 * side] == 1 && obs[WINDOW + centre] == 1);
    CHECK(obs[WINDOW + centre - side + 2] == 1);
    CHECK(obs[2 * WINDOW + centre - 1] == 1 && obs[2 * WINDOW + centre - side] == 0);
    CHECK(obs[2 * WINDOW + centre - 2 * side] == 1);
    rig_destroy(&rig);
}

static void test_a_new_orchard(void) {
    Rig rig = ORCHARD({"num_agents", 32}, {"initial", 1});
    const Orchard* env = rig_env(&rig, 0);
    CHECK(env->apples == 32 && valid(env));  // every cell that is free
    rig_destroy(&rig);
    rig = RIG_START(&puf_env_commons, 200, 1, {"width", 8}, {"height", 8}, {"initial", 0.05});
    int32_t apples = 0;
    for (int32_t i = 0; i < 200; i++) {
        env = rig_env(&rig, i);
        CHECK(env->apples >= 1 && valid(env));
        apples += env->apples;
    }
    // 200 x 56 free cells x 0.05 = 560, and about 200 x 0.95^56 = 11 orchards that get their one
    CHECK(apples > 500 && apples < 650);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = ORCHARD({"num_agents", 2});
    Orchard* env = sweep(&rig);
    put_agent(env, 0, 4, 3);
    put_agent(env, 1, 4, 5);
    put_apple(env, 0, 0);
    const Orchard kept = *env;
    CHECK(valid(env));
    env->cells[0] = env->cells[1];
    CHECK(!valid(env));
    *env = kept;
    env->cells[1] = CELLS;
    CHECK(!valid(env));
    *env = kept;
    env->apples = 2;
    CHECK(!valid(env));
    *env = kept;
    env->harvest = 1;  // before the first step
    CHECK(!valid(env));
    *env = kept;
    env->board[at(-1, 2)] = EMPTY;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_moves_and_harvest();
    test_agents_block_each_other_and_take_turns_to_begin();
    test_a_part_of_each_apple_is_divided();
    test_a_part_of_an_apple_is_paid_when_it_grows();
    test_the_last_apple_ends_the_episode();
    test_perf_counts_the_second_half();
    test_the_odds_of_growth();
    test_observations();
    test_a_new_orchard();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
