// The rules of warehouse in a hall of one block, and its invariants under random play.
#include "envs/warehouse.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT, LIFT };

// One block, 4 x 6 cells: shelves at rows 1 to 3, columns 1 and 2; the station at row 5, column 2.
//     ....
//     .##.
//     .##.
//     .##.
//     ....
//     ..S.
#define HALL(...)                                                                              \
    RIG_START(&puf_env_warehouse, 1, 1, {"blocks_x", 1}, {"blocks_y", 1}, {"num_stations", 1}, \
              __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, VISION, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

static void put_robot(Hall* env, int32_t robot, int32_t row, int32_t col) {
    env->board[env->cells[robot]] &= (uint8_t)~ROBOT;
    env->cells[robot] = (int16_t)at(row, col);
    env->board[at(row, col)] |= ROBOT;
}

// Makes the shelf at (row, col) the only requested one.
static Hall* want(const Rig* rig, int32_t row, int32_t col) {
    Hall* env = rig_env(rig, 0);
    for (int32_t cell = 0; cell < CELLS; cell++) env->board[cell] &= (uint8_t)~REQUESTED;
    env->board[at(row, col)] |= REQUESTED;
    env->wanted[0] = (int16_t)at(row, col);
    env->num_wanted = 1;
    return env;
}

static void step_with(Rig* rig, int32_t a, int32_t b) {
    rig->actions[0] = a;
    if (rig->num_slots > 1) rig->actions[1] = b;
    puf_vec_step(rig->vec, NULL);
}

static void test_the_hall(void) {
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 2});
    const Hall* env = rig_env(&rig, 0);
    int32_t shelves = 0, wanted = 0;
    for (int32_t row = 0; row < 6; row++)
        for (int32_t col = 0; col < 4; col++) {
            const uint8_t flags = env->board[at(row, col)];
            const bool place = row >= 1 && row <= 3 && col >= 1 && col <= 2;
            CHECK(!!(flags & PLACE) == place && !!(flags & SHELF) == place);
            CHECK(!!(flags & STATION) == (row == 5 && col == 2));
            shelves += !!(flags & SHELF);
            wanted += !!(flags & REQUESTED);
        }
    CHECK(shelves == 6 && wanted == 2 && env->num_wanted == 2 && valid(env));
    rig_destroy(&rig);
}

static void test_a_trip(void) {
    // Below (3, 2): lift, then down to the station at (5, 2), then back and put down.
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 1});
    Hall* env = want(&rig, 3, 2);
    put_robot(env, 0, 4, 2);
    step_with(&rig, UP, 0);
    CHECK(env->cells[0] == at(3, 2) && rig.rewards[0] == 0);  // drives under a shelf
    step_with(&rig, LIFT, 0);
    CHECK(env->loads[0] == WANTED && near(rig.rewards[0], 0.3f));
    CHECK(!(env->board[at(3, 2)] & (SHELF | REQUESTED)) && env->num_wanted == 0);
    CHECK(env->num_free == 1 && env->free[0] == at(3, 2));
    step_with(&rig, UP, 0);
    CHECK(env->cells[0] == at(3, 2));  // another shelf is in the way
    step_with(&rig, DOWN, 0);
    CHECK(rig.rewards[0] == 0 && env->delivered == 0);
    step_with(&rig, LIFT, 0);
    CHECK(env->loads[0] == WANTED);  // not in an aisle
    step_with(&rig, DOWN, 0);
    CHECK(env->loads[0] == DELIVERED && env->delivered == 1 && near(rig.rewards[0], 1));
    CHECK(env->num_wanted == 1);  // the next request
    CHECK(env->board[env->wanted[0]] == (PLACE | SHELF | REQUESTED));
    step_with(&rig, LEFT, 0);
    step_with(&rig, RIGHT, 0);
    CHECK(env->delivered == 1 && rig.rewards[0] == 0);  // once only
    step_with(&rig, UP, 0);
    step_with(&rig, UP, 0);
    CHECK(env->cells[0] == at(3, 2));
    step_with(&rig, LIFT, 0);
    CHECK(env->loads[0] == NO_LOAD && near(rig.rewards[0], 0.5f) && env->num_free == 0);
    CHECK(env->board[at(3, 2)] == (PLACE | SHELF | ROBOT) && valid(env));
    rig_destroy(&rig);
}

static void test_lifting_and_putting_down_pays_nothing(void) {
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 1});
    Hall* env = want(&rig, 3, 2);
    put_robot(env, 0, 3, 2);
    step_with(&rig, LIFT, 0);
    step_with(&rig, LIFT, 0);
    CHECK(near(rig.rewards[0], -0.3f) && env->loads[0] == NO_LOAD);
    CHECK(env->num_wanted == 1 && env->wanted[0] == at(3, 2));
    CHECK(env->board[at(3, 2)] == (PLACE | SHELF | REQUESTED | ROBOT));
    put_robot(env, 0, 3, 1);  // an ordinary shelf
    step_with(&rig, LIFT, 0);
    CHECK(env->loads[0] == ORDINARY && rig.rewards[0] == 0);
    step_with(&rig, LIFT, 0);
    CHECK(env->loads[0] == NO_LOAD && rig.rewards[0] == 0);
    CHECK(env->board[at(3, 1)] == (PLACE | SHELF | ROBOT));
    rig_destroy(&rig);
}

static void test_an_ordinary_shelf_is_not_delivered(void) {
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 1});
    Hall* env = want(&rig, 1, 1);
    put_robot(env, 0, 3, 2);
    step_with(&rig, LIFT, 0);
    step_with(&rig, DOWN, 0);
    step_with(&rig, DOWN, 0);
    CHECK(env->cells[0] == at(5, 2) && env->delivered == 0 && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_walls_and_robots_block_and_robots_take_turns_to_begin(void) {
    for (int32_t tick = 0; tick < 2; tick++) {
        Rig rig = HALL({"num_agents", 2}, {"num_requests", 1});
        Hall* env = want(&rig, 1, 1);
        put_robot(env, 0, 0, 0);
        put_robot(env, 1, 0, 2);
        step_with(&rig, UP, UP);
        CHECK(env->cells[0] == at(0, 0) && env->cells[1] == at(0, 2));
        env->slots.tick = tick;
        step_with(&rig, RIGHT, LEFT);  // robot tick % 2 acts first: robot 1 at tick 1
        const int32_t winner = (tick + 1) % 2;
        CHECK(env->cells[winner] == at(0, 1) && env->cells[1 - winner] == at(0, winner ? 0 : 2));
        CHECK(valid(env));
        rig_destroy(&rig);
    }
}

static void test_perf_is_deliveries_per_par(void) {
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 1}, {"par", 4}, {"max_steps", 3});
    Hall* env = want(&rig, 3, 2);
    put_robot(env, 0, 3, 2);
    step_with(&rig, LIFT, 0);
    step_with(&rig, DOWN, 0);
    step_with(&rig, DOWN, 0);
    CHECK(rig.truncations[0] && !rig.terminals[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 0.25);
    rig_destroy(&rig);
}

static void test_observations(void) {
    Rig rig = HALL({"num_agents", 1}, {"num_requests", 1});
    Hall* env = want(&rig, 3, 2);
    put_robot(env, 0, 4, 1);
    step_with(&rig, RIGHT, 0);  // at (4, 2)
    const int32_t side = 2 * VISION + 1, centre = VISION * (side + 1);
    const uint8_t* obs = rig.obs_u8;
    CHECK(obs[centre + 2] == 1 && obs[centre + 1] == 0);  // the right wall: column 4
    CHECK(obs[WINDOW + centre] == 1);
    CHECK(obs[2 * WINDOW + centre - side] == 1 && obs[2 * WINDOW + centre - side - 1] == 1);
    CHECK(obs[3 * WINDOW + centre - side] == 1 && obs[3 * WINDOW + centre - side - 1] == 0);
    CHECK(obs[4 * WINDOW + centre - side] == 1 && obs[4 * WINDOW + centre] == 0);
    CHECK(obs[5 * WINDOW + centre + side] == 1);
    static const uint8_t to_shelf[8] = {0, 0, 0, 1, 0, 0, 0, 0};  // the shelf is above
    CHECK(!memcmp(obs + 6 * WINDOW, to_shelf, 8));
    step_with(&rig, UP, 0);
    static const uint8_t here[8] = {0, 0, 0, 0, 0, 0, 0, 1};
    CHECK(!memcmp(obs + 6 * WINDOW, here, 8));
    step_with(&rig, LIFT, 0);
    static const uint8_t to_station[8] = {1, 1, 0, 0, 0, 1, 0, 0};
    CHECK(!memcmp(obs + 6 * WINDOW, to_station, 8));
    step_with(&rig, DOWN, 0);
    step_with(&rig, DOWN, 0);
    static const uint8_t to_place[8] = {1, 0, 1, 1, 0, 0, 0, 0};
    CHECK(!memcmp(obs + 6 * WINDOW, to_place, 8));
    rig_destroy(&rig);
}

// Shelves are neither lost nor made, and every state of random play is valid.
static void test_random_play_keeps_the_shelves(void) {
    Rig rig = HALL({"num_agents", 16}, {"num_requests", 16});
    const Hall* env = rig_env(&rig, 0);
    PufRng rng = {3};
    bool good = valid(env);
    int32_t lifted = 0;
    for (int32_t i = 0; i < 2000; i++) {
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
        int32_t shelves = 0;
        for (int32_t cell = 0; cell < CELLS; cell++) shelves += !!(env->board[cell] & SHELF);
        for (int32_t robot = 0; robot < 16; robot++) {
            shelves += env->loads[robot] != NO_LOAD;
            lifted += env->loads[robot] != NO_LOAD;
        }
        good = good && shelves == 6 && valid(env);
    }
    CHECK(good && lifted > 0);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = HALL({"num_agents", 2}, {"num_requests", 1});
    Hall* env = want(&rig, 3, 2);
    put_robot(env, 0, 3, 2);
    put_robot(env, 1, 0, 0);
    step_with(&rig, LIFT, LEFT);
    const Hall kept = *env;
    CHECK(valid(env));
    env->num_free = 0;  // a load without a free place to point to
    CHECK(!valid(env));
    *env = kept;
    env->cells[1] = env->cells[0];
    CHECK(!valid(env));
    *env = kept;
    env->cells[1] = 3;
    CHECK(!valid(env));
    *env = kept;
    env->free[0] = (int16_t)at(0, 0);
    CHECK(!valid(env));
    *env = kept;
    env->loads[1] = WANTED;
    CHECK(!valid(env));
    env->loads[1] = ORDINARY;  // a load that has left no free place
    CHECK(!valid(env));
    *env = kept;
    env->board[at(2, 2)] |= REQUESTED;  // in no list
    CHECK(!valid(env));
    *env = kept;
    env->board[at(2, 4)] = 0;
    CHECK(!valid(env));
    *env = kept;
    env->num_wanted = 2;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_the_hall();
    test_a_trip();
    test_lifting_and_putting_down_pays_nothing();
    test_an_ordinary_shelf_is_not_delivered();
    test_walls_and_robots_block_and_robots_take_turns_to_begin();
    test_perf_is_deliveries_per_par();
    test_observations();
    test_random_play_keeps_the_shelves();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
