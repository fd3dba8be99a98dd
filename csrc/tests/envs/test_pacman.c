// The rules of pacman, on places of the maze chosen by hand.
#include "envs/pacman.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static int32_t at(int32_t row, int32_t col) { return cell_at[row][col]; }

// One env whose ghosts all wait at home.
static Pacman* alone(void) {
    rig = RIG_START(&puf_env_pacman, 1, 0, {"ghost_speed", 1});
    Pacman* env = rig_env(&rig, 0);
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        env->ghosts[i].state = HOME;
        env->ghosts[i].wait = 100;
    }
    return env;
}

static Ghost* put(Pacman* env, int32_t i, int32_t row, int32_t col, int32_t direction) {
    env->ghosts[i] = (Ghost){at(row, col), direction, HUNTING, 0, 0};
    return &env->ghosts[i];
}

static void test_maze_is_connected_without_dead_ends(void) {
    CHECK(num_cells == 192 && num_pellets == 157);
    for (int32_t a = 0; a < num_cells; a++) {
        int32_t ways = 0;
        for (int32_t d = 0; d < 4; d++) {
            const int32_t b = neighbours[a][d];
            ways += b != NONE;
            if (b != NONE) CHECK(neighbours[b][d ^ 2] == a);
        }
        CHECK(ways >= 2);
    }
    CHECK(neighbours[at(10, 0)][LEFT] == at(10, 18) && neighbours[at(10, 18)][RIGHT] == at(10, 0));
}

static void test_distances_are_shortest_ways(void) {
    for (int32_t a = 0; a < num_cells; a++)
        for (int32_t b = 0; b < num_cells; b++) {
            int32_t best = NONE;
            for (int32_t d = 0; d < 4; d++)
                if (neighbours[a][d] != NONE && distances[neighbours[a][d]][b] < best)
                    best = distances[neighbours[a][d]][b];
            CHECK(distances[a][b] == (a == b ? 0 : best + 1));
        }
    CHECK(distances[at(1, 1)][at(1, 4)] == 3 && distances[at(10, 1)][at(10, 17)] == 3);
}

static void test_pacman_turns_goes_on_and_stops_at_walls(void) {
    Pacman* env = alone();
    env->pacman = at(4, 5);
    env->direction = RIGHT;
    rig_play(&rig, UP);  // a wall: it goes on to the right
    CHECK(env->pacman == at(4, 6) && env->direction == RIGHT);
    rig_play(&rig, DOWN);
    CHECK(env->pacman == at(5, 6) && env->direction == DOWN);
    rig_play(&rig, DOWN);
    rig_play(&rig, DOWN);  // (7, 6) is a wall
    CHECK(env->pacman == at(6, 6) && env->direction == DOWN);
    env->pacman = at(10, 0);
    rig_play(&rig, LEFT);
    CHECK(env->pacman == at(10, 18));
    rig_destroy(&rig);
}

static void test_pellets_are_points_and_the_last_one_ends_the_game(void) {
    Pacman* env = alone();
    env->pacman = at(1, 2);
    rig_play(&rig, RIGHT);
    CHECK(env->score == 10 && env->pellets_left == 156 && fabsf(rig.rewards[0] - 0.1f) < 1e-6f);
    CHECK(fabsf(env->perf - 1 / 157.0f) < 1e-6f);
    rig_play(&rig, LEFT);
    rig_play(&rig, RIGHT);  // eaten before
    CHECK(env->score == 20 && rig.rewards[0] == 0);
    memset(env->eaten, NONE, sizeof env->eaten);
    env->eaten[at(1, 5)] = 0;
    env->pellets_left = 1;
    env->pacman = at(1, 4);
    rig_play(&rig, RIGHT);
    CHECK(rig.terminals[0] && fabsf(rig.rewards[0] - 2.1f) < 1e-6f && env->pellets_left == 157);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 30 && stats.metrics[1] == 1);
    rig_destroy(&rig);
}

static void test_power_turns_and_frightens_hunters_for_a_while(void) {
    Pacman* env = alone();
    put(env, CHASER, 20, 9, LEFT);
    put(env, SHY, 20, 5, LEFT)->state = EYES;
    env->pacman = at(1, 1);
    rig_play(&rig, DOWN);                              // (2, 1) is a power pellet
    CHECK(env->score == 50 && env->frightened == 39);  // one tick has passed
    CHECK(env->ghosts[CHASER].state == FRIGHTENED && env->ghosts[CHASER].direction == RIGHT);
    CHECK(env->ghosts[SHY].state == EYES && env->ghosts[AMBUSHER].state == HOME);
    // Half as fast: 100 / 2 a tick, so it moves in every second one.
    int32_t moves = 0;
    for (int32_t i = 0; i < 20; i++) {
        const int32_t before = env->ghosts[CHASER].cell;
        env->pacman = at(1, 1);
        rig_play(&rig, UP);
        moves += env->ghosts[CHASER].cell != before;
    }
    CHECK(moves == 10 && env->frightened == 19);
    for (int32_t i = 0; i < 19; i++) {
        CHECK(env->ghosts[CHASER].state == FRIGHTENED);
        env->pacman = at(1, 1);
        rig_play(&rig, UP);
    }
    CHECK(env->frightened == 0 && env->ghosts[CHASER].state == HUNTING);
    rig_destroy(&rig);
}

static void test_frightened_ghosts_are_eaten_for_doubling_points_and_return_home(void) {
    Pacman* env = alone();
    memset(env->eaten, NONE, sizeof env->eaten);
    env->eaten[at(1, 1)] = 0;
    env->pellets_left = 1;
    env->frightened = 30;
    env->pacman = at(8, 7);
    for (int32_t i = 0; i < 4; i++) put(env, i, 8, 8, LEFT)->state = FRIGHTENED;
    rig_play(&rig, RIGHT);
    CHECK(env->score == 200 + 400 + 800 + 1600 && fabsf(rig.rewards[0] - 2) < 1e-6f);
    for (int32_t i = 0; i < 4; i++) CHECK(env->ghosts[i].state != FRIGHTENED);
    // Eyes run two cells a tick towards the door at (8, 9), on from (8, 8) to the left: they may
    // not turn back.
    CHECK(env->ghosts[0].state == EYES && env->lives_left == 3);
    int32_t ticks = 1;
    while (env->ghosts[0].state == EYES && ticks < 50) {
        env->pacman = at(8, 9);
        rig_play(&rig, LEFT);
        ticks++;
    }
    CHECK(ticks < 50 && env->ghosts[0].state == HOME && env->ghosts[0].cell == at(8, 9));
    env->pacman = at(20, 9);
    for (ticks = 0; env->ghosts[0].state == HOME && ticks < 50; ticks++) rig_play(&rig, LEFT);
    CHECK(ticks == 10 && env->ghosts[0].state == HUNTING);
    rig_destroy(&rig);
}

static void test_hunting_ghosts_cost_a_life_also_when_they_swap_places(void) {
    Pacman* env = alone();
    env->pacman = at(1, 3);
    put(env, CHASER, 1, 4, LEFT);  // pacman goes right, the ghost left
    rig_play(&rig, RIGHT);
    CHECK(env->lives_left == 2 && fabsf(rig.rewards[0] + 0.9f) < 1e-6f);  // with a pellet
    CHECK(env->pacman == at(16, 9) && env->ghosts[CHASER].cell == at(8, 9));
    CHECK(env->ghosts[SHY].state == HOME && env->ghosts[SHY].wait >= 50 &&
          env->ghosts[SHY].wait < 58 && !rig.terminals[0]);
    env->pacman = at(1, 3);
    put(env, CHASER, 1, 5, LEFT);  // the ghost comes to pacman's new cell
    rig_play(&rig, RIGHT);
    CHECK(env->lives_left == 1);
    env->pacman = at(1, 3);
    put(env, CHASER, 1, 4, LEFT);
    rig_play(&rig, RIGHT);
    CHECK(rig.terminals[0] && env->lives_left == 3);
    rig_destroy(&rig);
}

static void test_ghosts_leave_one_after_the_other(void) {
    rig = RIG_START(&puf_env_pacman, 1, 0, {"ghost_speed", 0});
    Pacman* env = rig_env(&rig, 0);
    static const int32_t earliest[] = {0, 5, 25, 50};
    int32_t leaves[NUM_GHOSTS];
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        leaves[i] = env->ghosts[i].wait;
        CHECK(leaves[i] >= earliest[i] && leaves[i] < earliest[i] + (i ? 8 : 1));
    }
    for (int32_t tick = 1; tick <= 60; tick++) {
        env->pacman = at(20, 9);  // far away
        env->lives_left = 3;
        rig_play(&rig, LEFT);
        for (int32_t i = 0; i < NUM_GHOSTS; i++)
            CHECK((env->ghosts[i].state == HOME) == (tick < leaves[i]));
    }
    rig_destroy(&rig);
}

static void test_each_ghost_has_its_own_target(void) {
    Pacman* env = alone();
    env->clock = 30;  // chase
    env->pacman = at(14, 3);
    env->direction = RIGHT;
    put(env, CHASER, 14, 1, RIGHT);
    for (int32_t i = AMBUSHER; i <= SHY; i++) put(env, i, 1, 9, LEFT);
    int32_t x, y;
    target_of(env, CHASER, &x, &y);
    CHECK(x == 3 && y == 14);
    target_of(env, AMBUSHER, &x, &y);
    CHECK(x == 7 && y == 14);
    target_of(env, FLANKER, &x, &y);  // from (1, 14) through (5, 14) as far again
    CHECK(x == 9 && y == 14);
    target_of(env, SHY, &x, &y);  // 13 rows away
    CHECK(x == 3 && y == 14);
    put(env, SHY, 14, 8, LEFT);  // 5 cells away
    target_of(env, SHY, &x, &y);
    CHECK(x == 1 && y == 21);
    env->direction = UP;
    target_of(env, AMBUSHER, &x, &y);
    CHECK(x == 3 && y == 10);
    env->clock = 5;  // patrol: to their corners
    static const int32_t corners[4][2] = {{17, 0}, {1, 0}, {17, 21}, {1, 21}};
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        target_of(env, i, &x, &y);
        CHECK(x == corners[i][0] && y == corners[i][1]);
    }
    env->ghosts[CHASER].state = EYES;
    target_of(env, CHASER, &x, &y);
    CHECK(x == 9 && y == 8);
    rig_destroy(&rig);
}

static void test_ghosts_take_the_way_nearest_to_the_target_and_never_turn_back(void) {
    Pacman* env = alone();
    env->clock = 30;
    env->pacman = at(4, 1);
    Ghost* ghost = put(env, CHASER, 4, 7, RIGHT);  // comes from the left: it may not go back there
    choose(env, CHASER);
    CHECK(ghost->direction == UP);  // (3, 7) is nearer to (4, 1) than (4, 8)
    ghost->direction = DOWN;        // came from above
    choose(env, CHASER);
    CHECK(ghost->direction == LEFT);
    env->pacman = at(4, 17);
    ghost->direction = DOWN;
    choose(env, CHASER);
    CHECK(ghost->direction == RIGHT);
    // A frightened one takes both open ways about equally often.
    int32_t up = 0;
    for (int32_t i = 0; i < 1000; i++) {
        ghost->state = FRIGHTENED;
        ghost->direction = RIGHT;
        choose(env, CHASER);
        CHECK(ghost->direction == UP || ghost->direction == RIGHT);
        up += ghost->direction == UP;
    }
    CHECK(up > 420 && up < 580);  // 5 standard deviations of 15.8
    rig_destroy(&rig);
}

static void test_patrol_and_chase_alternate_and_turn_the_ghosts_round(void) {
    Pacman* env = alone();
    for (int32_t tick = 1; tick <= 400; tick++) {
        env->pacman = at(20, 9);
        put(env, CHASER, 1, 9, LEFT)->energy = -100;  // stays where it is
        for (int32_t i = AMBUSHER; i <= SHY; i++) env->ghosts[i].wait = 100;
        rig_play(&rig, LEFT);
        const int32_t clock = tick < 320 ? tick : 320;
        const bool patrol = clock < 320 && clock % 80 < 20;
        const bool changed = tick <= 320 && (clock % 80 == 20 || (clock % 80 == 0 && tick < 320));
        CHECK(env->clock == clock && patrols(env) == patrol);
        CHECK(env->ghosts[CHASER].direction == (changed ? RIGHT : LEFT));
    }
    rig_destroy(&rig);
}

static void test_ghost_speed_is_cells_per_tick(void) {
    rig = RIG_START(&puf_env_pacman, 1, 0, {"ghost_speed", 0.75});
    Pacman* env = rig_env(&rig, 0);
    int32_t moves = 0;
    for (int32_t i = 0; i < 40; i++) {
        const int32_t before = env->ghosts[CHASER].cell;
        env->pacman = at(20, 9);
        rig_play(&rig, LEFT);
        moves += env->ghosts[CHASER].cell != before;
    }
    CHECK(moves == 30);
    rig_destroy(&rig);
}

static void test_observed_directions_know_what_is_near(void) {
    Pacman* env = alone();
    memset(env->eaten, NONE, sizeof env->eaten);
    env->eaten[at(1, 8)] = env->eaten[at(16, 1)] = 0;
    env->pellets_left = 2;
    env->pacman = at(1, 3);
    put(env, CHASER, 1, 1, DOWN)->energy = -100;
    rig_play(&rig, RIGHT);  // now at (1, 4)
    const float* obs = rig.obs;
    const float *right = obs + 5 * RIGHT, *down = obs + 5 * DOWN, *left = obs + 5 * LEFT;
    CHECK(obs[0] == 0 && right[0] == 1 && down[0] == 1 && left[0] == 1);
    CHECK(fabsf(right[1] - (1 - 3 / 40.0f)) < 1e-6f && fabsf(left[1] - (1 - 5 / 40.0f)) < 1e-6f);
    CHECK(fabsf(left[3] - (1 - 2 / 40.0f)) < 1e-6f && fabsf(right[3] - (1 - 4 / 40.0f)) < 1e-6f);
    CHECK(fabsf(down[2] - nearness(distances[at(2, 4)][at(16, 1)])) < 1e-6f && down[2] > 0.3f);
    CHECK(right[4] == 0 && fabsf(obs[20] + 3 / 19.0f) < 1e-6f && obs[21] == 0 && obs[23] == 1);
    CHECK(fabsf(obs[22] - (1 - 3 / 40.0f)) < 1e-6f && obs[24] == 0 && obs[25] == 0);
    const float* last = obs + 52;
    CHECK(fabsf(last[0] - (8 / 19.0f - 1)) < 1e-6f && last[2 + RIGHT] == 1 && last[2 + UP] == 0);
    CHECK(last[6] == 0 && last[7] == 1 && fabsf(last[8] - 2 / 157.0f) < 1e-6f && last[9] == 1);
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_pacman, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

int main(void) {
    test_maze_is_connected_without_dead_ends();
    test_distances_are_shortest_ways();
    test_pacman_turns_goes_on_and_stops_at_walls();
    test_pellets_are_points_and_the_last_one_ends_the_game();
    test_power_turns_and_frightens_hunters_for_a_while();
    test_frightened_ghosts_are_eaten_for_doubling_points_and_return_home();
    test_hunting_ghosts_cost_a_life_also_when_they_swap_places();
    test_ghosts_leave_one_after_the_other();
    test_each_ghost_has_its_own_target();
    test_ghosts_take_the_way_nearest_to_the_target_and_never_turn_back();
    test_patrol_and_chase_alternate_and_turn_the_ghosts_round();
    test_ghost_speed_is_cells_per_tick();
    test_observed_directions_know_what_is_near();
    test_max_steps_truncates();
    return CHECK_DONE();
}
