// The rules of kitchen with cooks placed by hand.
#include "envs/kitchen.c"
#include "tests/check.h"
#include "tests/rig.h"

#define KITCHEN(...) RIG_START(&puf_env_kitchen, 1, 1, __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return row * COLS + col; }

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

static void put(Kitchen* env, int32_t cook, int32_t row, int32_t col, int32_t towards,
                int32_t hands) {
    env->cooks[cook] = (Cook){.cell = at(row, col), .facing = towards - UP, .hands = hands};
}

static Kitchen* with_empty_pots(const Rig* rig) {
    Kitchen* env = rig_env(rig, 0);
    for (int32_t i = 0; i < NUM_POTS; i++) env->pots[i].onions = env->pots[i].timer = 0;
    return env;
}

static void step_with(Rig* rig, int32_t a, int32_t b) {
    rig->actions[0] = a;
    rig->actions[1] = b;
    puf_vec_step(rig->vec, NULL);
}

static bool stand_at(const Kitchen* env, int32_t a, int32_t b) {
    return env->cooks[0].cell == a && env->cooks[1].cell == b;
}

static void test_walking(void) {
    Rig rig = KITCHEN({"layout", GALLEY});
    Kitchen* env = with_empty_pots(&rig);
    static const int32_t rows[5] = {2, 1, 2, 3, 2}, cols[5] = {2, 2, 3, 2, 1};
    for (int32_t action = UP; action <= LEFT; action++) {
        put(env, 0, 2, 2, UP, NOTHING);
        put(env, 1, 3, 5, UP, NOTHING);
        step_with(&rig, action, STAY);
        CHECK(stand_at(env, at(rows[action], cols[action]), at(3, 5)));
        CHECK(env->cooks[0].facing == action - UP && env->cooks[1].facing == 0);
    }
    put(env, 0, 1, 1, UP, NOTHING);
    step_with(&rig, LEFT, STAY);  // the onion store: it turns and stays
    CHECK(stand_at(env, at(1, 1), at(3, 5)) && env->cooks[0].facing == 3);
    rig_destroy(&rig);
}

static void test_cooks_do_not_share_or_swap_cells(void) {
    Rig rig = KITCHEN({"layout", GALLEY});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 0, 2, 2, UP, NOTHING);
    put(env, 1, 2, 4, UP, NOTHING);
    step_with(&rig, RIGHT, LEFT);  // both want (2, 3)
    CHECK(stand_at(env, at(2, 2), at(2, 4)));
    CHECK(env->cooks[0].facing == RIGHT - UP && env->cooks[1].facing == LEFT - UP);
    put(env, 1, 2, 3, UP, NOTHING);
    step_with(&rig, RIGHT, LEFT);  // each other's cell
    CHECK(stand_at(env, at(2, 2), at(2, 3)));
    step_with(&rig, RIGHT, STAY);  // occupied
    CHECK(stand_at(env, at(2, 2), at(2, 3)));
    step_with(&rig, RIGHT, RIGHT);  // the other leaves
    CHECK(stand_at(env, at(2, 3), at(2, 4)));
    rig_destroy(&rig);
}

static void test_from_onions_to_a_dish(void) {
    Rig rig = KITCHEN({"layout", GALLEY}, {"cook_time", 3});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 1, 3, 5, DOWN, NOTHING);
    for (int32_t i = 1; i <= 3; i++) {
        put(env, 0, 1, 1, LEFT, NOTHING);
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == ONION && rig.rewards[0] == 0);
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == ONION);  // the store takes nothing back
        put(env, 0, 1, 2, UP, ONION);
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == NOTHING && env->pots[0].onions == i);
        CHECK(near(rig.rewards[0], 0.15f) && rig.rewards[1] == 0);
    }
    CHECK(env->pots[0].timer == 3 && env->pots[1].onions == 0);
    put(env, 0, 1, 2, UP, ONION);
    step_with(&rig, WORK, STAY);  // a fourth onion does not fit
    CHECK(env->cooks[0].hands == ONION && env->pots[0].timer == 2);
    put(env, 0, 3, 2, DOWN, NOTHING);
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == PLATE && env->pots[0].timer == 1);
    CHECK(near(rig.rewards[0], 0.15f));  // one full pot, no other plate
    for (int32_t on_counter = 0; on_counter < 2; on_counter++) {
        put(env, 0, 3, 2, DOWN, NOTHING);
        env->cooks[1].hands = on_counter ? NOTHING : PLATE;
        env->laid[at(4, 0)] = on_counter ? PLATE : NOTHING;
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == PLATE && rig.rewards[0] == 0);  // there is a plate for it
    }
    env->laid[at(4, 0)] = NOTHING;
    put(env, 0, 1, 2, UP, PLATE);
    env->pots[0].timer = 2;
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == PLATE && env->pots[0].timer == 1);  // not done
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == SOUP && env->pots[0].onions == 0 && near(rig.rewards[0], 0.4f));
    put(env, 0, 3, 4, DOWN, SOUP);
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == NOTHING && env->dishes == 1);
    CHECK(near(rig.rewards[0], 1) && near(rig.rewards[1], 1));
    CHECK(valid(env));
    rig_destroy(&rig);
}

static void test_only_soup_is_served_and_only_onions_are_cooked(void) {
    Rig rig = KITCHEN({"layout", GALLEY});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 1, 2, 5, UP, NOTHING);
    for (int32_t hands = NOTHING; hands <= PLATE; hands++) {
        put(env, 0, 3, 4, DOWN, hands);
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == hands && env->dishes == 0 && rig.rewards[0] == 0);
    }
    for (int32_t hands = PLATE; hands <= SOUP; hands++) {
        put(env, 0, 1, 2, UP, hands);
        step_with(&rig, WORK, STAY);
        CHECK(env->cooks[0].hands == hands && env->pots[0].onions == 0);
    }
    put(env, 0, 1, 1, LEFT, PLATE);  // full hands take nothing from a store
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == PLATE);
    put(env, 0, 3, 2, DOWN, ONION);
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == ONION);
    put(env, 0, 2, 3, UP, ONION);  // faces floor
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == ONION);
    rig_destroy(&rig);
}

static void test_counters_hold_one_thing_and_cooks_take_turns(void) {
    Rig rig = KITCHEN({"layout", DIVIDED});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 0, 1, 2, RIGHT, ONION);
    put(env, 1, 1, 4, LEFT, NOTHING);
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == NOTHING && env->laid[at(1, 3)] == ONION);
    env->cooks[0].hands = PLATE;
    step_with(&rig, WORK, STAY);
    CHECK(env->cooks[0].hands == PLATE && env->laid[at(1, 3)] == ONION);  // occupied
    step_with(&rig, STAY, WORK);
    CHECK(env->cooks[1].hands == ONION && env->laid[at(1, 3)] == NOTHING);
    // Both put down at once: cook tick % 2 is first, so the counter holds what it had.
    for (int32_t tick = 1; tick <= 2; tick++) {
        env->laid[at(1, 3)] = NOTHING;
        env->cooks[0].hands = ONION;
        env->cooks[1].hands = PLATE;
        env->slots.tick = tick - 1;
        step_with(&rig, WORK, WORK);
        CHECK(env->laid[at(1, 3)] == (tick % 2 ? PLATE : ONION));
        CHECK(env->cooks[tick % 2].hands == NOTHING && env->cooks[1 - tick % 2].hands != NOTHING);
    }
    rig_destroy(&rig);
}

static void test_truncation_and_perf(void) {
    Rig rig = KITCHEN({"layout", RING}, {"max_steps", 2}, {"par", 4});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 0, 3, 4, DOWN, SOUP);
    put(env, 1, 1, 1, UP, NOTHING);
    step_with(&rig, WORK, STAY);
    CHECK(!rig.truncations[0]);
    step_with(&rig, STAY, STAY);
    CHECK(rig.truncations[0] && rig.truncations[1] && !rig.terminals[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(near((float)(stats.metrics[0] / (double)stats.samples), 1));
    CHECK(near((float)(stats.metrics[1] / (double)stats.samples), 0.25f));
    rig_destroy(&rig);
}

static void test_observations(void) {
    Rig rig = KITCHEN({"layout", GALLEY});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 0, 1, 2, LEFT, ONION);
    put(env, 1, 2, 2, UP, PLATE);
    env->pots[1] = (Pot){.cell = at(0, 4), .onions = 3, .timer = 6};
    step_with(&rig, UP, STAY);  // cook 0 faces the pot at (0, 2)
    const float* obs = rig.obs;
    static const float self[NUM_SELF] = {1, 0, 0, 0, 1, 0, 0, 0.2f, 2 / 7.0f, 1, 0, 1, 0};
    for (int32_t i = 0; i < NUM_SELF; i++) CHECK(near(obs[i], self[i]));
    obs += NUM_SELF;
    for (int32_t i = 0; i < NUM_FACED; i++) CHECK(obs[i] == (i == OPEN_POT));
    obs += NUM_FACED;
    // Seen, right, down of: onions (1, 0), plates (4, 2), hatch (4, 4), open pot (0, 2), full pot
    // (0, 4), nothing laid, empty counter (0, 1): the nearest, and the first of two at distance 2.
    static const float things[NUM_THINGS][3] = {
        {1, -2, 0}, {1, 0, 3}, {1, 2, 3}, {1, 0, -1}, {1, 2, -1}, {0}, {0}, {0}, {1, -1, -1}};
    for (int32_t i = 0; i < NUM_THINGS; i++) {
        CHECK(near(obs[3 * i], things[i][0]));
        CHECK(near(obs[3 * i + 1], things[i][1] / 7) && near(obs[3 * i + 2], things[i][2] / 5));
    }
    obs += 3 * NUM_THINGS;
    static const float pots[6] = {0, 0, 0, 1, 0.25f, 0};
    for (int32_t i = 0; i < 6; i++) CHECK(near(obs[i], pots[i]));
    static const float other[NUM_OTHER] = {0, 0.2f, 1, 0, 0, 0, 0, 1, 0};
    for (int32_t i = 0; i < NUM_OTHER; i++) CHECK(near(obs[6 + i], other[i]));
    rig_destroy(&rig);
}

// Every layout is closed, has two pots, and each thing is beside some floor.
static void test_layouts(void) {
    for (int32_t layout = 0; layout < NUM_LAYOUTS; layout++) {
        const char* room = layouts[layout];
        int32_t pots = 0, usable = 0;
        CHECK(strlen(room) == CELLS);
        for (int32_t cell = 0; cell < CELLS; cell++) {
            const int32_t row = cell / COLS, col = cell % COLS;
            if (row == 0 || row == ROWS - 1 || col == 0 || col == COLS - 1)
                CHECK(room[cell] != ' ');
            pots += room[cell] == 'P';
            for (int32_t k = 0; k < 4; k++) {
                const int32_t beside = cell + deltas[k];
                if (beside < 0 || beside >= CELLS || room[beside] != ' ') continue;
                usable |= 1 << (strchr("XODPS ", room[cell]) - "XODPS ");
            }
        }
        CHECK(pots == NUM_POTS && (usable & 31) == 31);
    }
}

static void test_a_new_kitchen(void) {
    Rig rig = RIG_START(&puf_env_kitchen, 400, 1, {"cook_time", 3});
    int32_t onions[4] = {0}, timers[4] = {0}, lefts = 0;
    for (int32_t i = 0; i < 400; i++) {
        const Kitchen* env = rig_env(&rig, i);
        CHECK(valid(env) && env->cooks[0].hands == NOTHING && env->cooks[1].hands == NOTHING);
        const int32_t col = env->cooks[0].cell % COLS;
        CHECK((col < 3) == (env->cooks[1].cell % COLS > 3));  // one on each side
        lefts += col < 3;
        for (int32_t k = 0; k < NUM_POTS; k++) {
            onions[env->pots[k].onions]++;
            if (env->pots[k].onions == 3) timers[env->pots[k].timer]++;
        }
    }
    // 800 pots: 200 of each kind, 50 of each timer; four deviations are 49 and 27
    for (int32_t i = 0; i < 4; i++) {
        CHECK(onions[i] > 150 && onions[i] < 250);
        CHECK(timers[i] > 22 && timers[i] < 80);
    }
    CHECK(lefts > 160 && lefts < 240);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = KITCHEN({"layout", GALLEY});
    Kitchen* env = with_empty_pots(&rig);
    put(env, 0, 1, 1, UP, NOTHING);
    put(env, 1, 1, 2, UP, NOTHING);
    const Kitchen kept = *env;
    CHECK(valid(env));
    int32_t* const fields[] = {&env->cooks[0].cell,  &env->cooks[1].facing, &env->cooks[0].hands,
                               &env->pots[0].onions, &env->pots[1].timer,   &env->pots[1].cell,
                               &env->dishes};
    static const int32_t bad[] = {0, 4, 4, 4, 1, 3, 1};
    for (int32_t i = 0; i < 7; i++) {
        *fields[i] = bad[i];
        CHECK(!valid(env));
        *fields[i] = -1;
        CHECK(!valid(env));
        *env = kept;
    }
    env->cooks[0].cell = env->cooks[1].cell;
    CHECK(!valid(env));
    *env = kept;
    env->laid[at(2, 2)] = ONION;  // on the floor
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_walking();
    test_cooks_do_not_share_or_swap_cells();
    test_from_onions_to_a_dish();
    test_only_soup_is_served_and_only_onions_are_cooked();
    test_counters_hold_one_thing_and_cooks_take_turns();
    test_truncation_and_perf();
    test_observations();
    test_layouts();
    test_a_new_kitchen();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
