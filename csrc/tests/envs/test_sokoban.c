// The rules of sokoban on levels laid out by hand, and generated levels against a full search.
#include "envs/sokoban.c"
#include "tests/check.h"
#include "tests/rig.h"

static Sokoban* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Rig game(int32_t num_boxes) {
    return RIG_START(&puf_env_sokoban, 1, 3, {"num_boxes", num_boxes}, {"max_steps", 50});
}

// A level from its inner rows: '#' wall, '$' box, '.' target, '*' box on a target, '@' player, '+'
// player on a target. Rows left out at the bottom are floor.
static void lay(Sokoban* env, const char* cells) {
    env->walls = env->boxes = env->targets = 0;
    for (int32_t i = 0; cells[i]; i++) {
        if (cells[i] == '#') env->walls |= bit(i);
        if (cells[i] == '$' || cells[i] == '*') env->boxes |= bit(i);
        if (cells[i] == '.' || cells[i] == '*' || cells[i] == '+') env->targets |= bit(i);
        if (cells[i] == '@' || cells[i] == '+') env->player = i;
    }
    env->live = find_live(env);
    env->potential = find_potential(env);
}

static int32_t cell_at(int32_t row, int32_t col) { return SIDE * row + col; }

// ---- Moves --------------------------------------------------------------------------------------

static void test_the_player_walks_and_stops_at_walls_and_the_rim(void) {
    Rig rig = game(1);
    Sokoban* env = env_of(&rig);
    lay(env,
        "@       "
        "#      ."
        "       $");
    static const int32_t moves[] = {UP, LEFT, DOWN, RIGHT, DOWN, LEFT, STAY};
    static const int32_t cells[] = {0, 0, 0, 1, 9, 9, 9};
    for (int32_t i = 0; i < 7; i++) {
        rig_play(&rig, moves[i]);
        CHECK(env->player == cells[i]);
    }
    lay(env,
        "       @"
        ".$      ");
    rig_play(&rig, RIGHT);  // no way around to the next row
    CHECK(env->player == 7);
    CHECK(env->pushes == 0);
    rig_destroy(&rig);
}

static void test_a_box_is_pushed_but_not_into_anything_and_never_two(void) {
    Rig rig = game(2);
    Sokoban* env = env_of(&rig);
    lay(env,
        "@$ $ .  "
        "       ."
        "        ");
    rig_play(&rig, RIGHT);
    CHECK(env->player == 1 && env->boxes == (bit(2) | bit(3)) && env->pushes == 1);
    rig_play(&rig, RIGHT);  // two boxes in a row
    CHECK(env->player == 1 && env->boxes == (bit(2) | bit(3)));
    lay(env,
        "        "
        " @$#    "
        " $    ..");
    rig_play(&rig, RIGHT);  // a wall behind it
    CHECK(env->player == cell_at(1, 1));
    rig_play(&rig, DOWN);
    CHECK(env->player == cell_at(2, 1) && env->boxes & bit(cell_at(3, 1)));
    lay(env,
        "  . $ . "
        "    @   "
        "        "
        "  $     ");
    rig_play(&rig, UP);  // the rim behind it
    CHECK(env->player == cell_at(1, 4) && env->boxes & bit(4));
    rig_play(&rig, DOWN);  // walking away pulls nothing
    CHECK(env->player == cell_at(2, 4) && env->boxes & bit(4));
    rig_destroy(&rig);
}

// ---- Rewards and ends ---------------------------------------------------------------------------

static void test_pushes_onto_targets_are_rewarded_and_all_of_them_solve_it(void) {
    Rig rig = game(2);
    Sokoban* env = env_of(&rig);
    lay(env,
        "@ $ .   "
        "@$.     ");
    // One box needs 1 push, the other 2; the player stands behind the first one: -0.3. Then 0.25
    // for the box on its target, -0.2 for the other, -0.03 for a step to its left side.
    CHECK(fabsf(env->potential + 0.3f) < 1e-6f);
    rig_play(&rig, RIGHT);
    CHECK(fabsf(rig.rewards[0] - (0.02f + 0.3f - 0.01f)) < 1e-6f && !rig.terminals[0]);
    // Off the target again: 1 push and 2, and 2 steps.
    rig_play(&rig, RIGHT);
    CHECK(fabsf(rig.rewards[0] - (-0.36f - 0.02f - 0.01f)) < 1e-6f);
    rig_play(&rig, STAY);
    CHECK(fabsf(rig.rewards[0] + 0.01f) < 1e-6f);
    lay(env,
        " @$.    "
        "     *  ");
    rig_play(&rig, RIGHT);  // from 0.25 - 0.1 to 0.5
    CHECK(rig.terminals[0] && fabsf(rig.rewards[0] - (1 + 0.35f - 0.01f)) < 1e-6f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 1);
    CHECK(env->boxes != env->targets && env->pushes == 0);  // a new level
    rig_destroy(&rig);
}

static void test_the_potential_counts_pushes_around_walls_and_steps_around_boxes(void) {
    Rig rig = game(1);
    Sokoban* env = env_of(&rig);
    lay(env,
        "        "
        " @$#.   "
        "        "
        "        ");
    // Down, right, right, up: the player starts 2 steps from the cell above the box. Up is as good,
    // but not along the rim, from where no push leads down again.
    CHECK(fabsf(env->potential - (-0.4f - 0.06f)) < 1e-6f);
    lay(env,
        "$       "
        "  @   . ");
    CHECK(env->potential < -0.1f * STUCK);
    lay(env,
        "@#      "
        "##  $ . ");
    CHECK(fabsf(env->potential - (-0.2f - 0.03f * STUCK)) < 1e-6f);  // no way to the box
    rig_destroy(&rig);
}

static void test_a_box_that_can_reach_no_target_ends_the_episode(void) {
    Rig rig = game(1);
    Sokoban* env = env_of(&rig);
    lay(env,
        "        "
        "@$   .  ");
    rig_play(&rig, DOWN);
    rig_play(&rig, RIGHT);
    CHECK(!rig.terminals[0]);
    rig_play(&rig, UP);  // onto the rim, from where it does not come back
    CHECK(rig.terminals[0] && rig.rewards[0] < -0.1f * (STUCK - 1));
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.metrics[1] == 0 && !(env->boxes & ~env->live));
    lay(env,
        "     .  "
        "@$      ");
    rig_play(&rig, DOWN);
    rig_play(&rig, RIGHT);
    rig_play(&rig, UP);  // on the rim too, but with the target
    CHECK(!rig.terminals[0] && env->boxes == bit(1));
    rig_destroy(&rig);
}

static void test_episodes_are_truncated_at_max_steps(void) {
    Rig rig = game(2);
    CHECK(rig_truncates_at(&rig, 50));
    rig_destroy(&rig);
}

// ---- Levels -------------------------------------------------------------------------------------

enum { MAX_STATES = 1 << 18 };
typedef struct {
    Bits boxes;
    int32_t player;
} State;

static bool visit(uint64_t* table, State state) {
    const uint64_t key = puf_mix64(state.boxes ^ puf_mix64((uint64_t)state.player + 1)) | 1;
    for (size_t i = key % (2 * MAX_STATES);; i = (i + 1) % (2 * MAX_STATES)) {
        if (table[i] == key) return false;
        if (table[i]) continue;
        table[i] = key;
        return true;
    }
}

// Whether any sequence of moves solves the level: breadth first, with the rules of this test.
static bool is_solvable(const Sokoban* level, uint64_t* table, State* queue) {
    static const int32_t rows[4] = {-1, 0, 1, 0}, cols[4] = {0, 1, 0, -1};
    memset(table, 0, 2 * MAX_STATES * sizeof *table);
    int32_t head = 0, tail = 0;
    queue[tail++] = (State){level->boxes, level->player};
    visit(table, queue[0]);
    while (head < tail) {
        const State state = queue[head++];
        if (state.boxes == level->targets) return true;
        for (int32_t d = 0; d < 4; d++) {
            const int32_t row = state.player / SIDE + rows[d], col = state.player % SIDE + cols[d];
            State next = {state.boxes, cell_at(row, col)};
            if (row < 0 || row >= SIDE || col < 0 || col >= SIDE) continue;
            if (level->walls & bit(next.player)) continue;
            if (state.boxes & bit(next.player)) {
                const int32_t r = row + rows[d], c = col + cols[d];
                if (r < 0 || r >= SIDE || c < 0 || c >= SIDE) continue;
                if ((level->walls | state.boxes) & bit(cell_at(r, c))) continue;
                next.boxes ^= bit(next.player) | bit(cell_at(r, c));
            }
            if (tail < MAX_STATES && visit(table, next)) queue[tail++] = next;
        }
    }
    return false;
}

static void test_every_level_can_be_solved(void) {
    uint64_t* table = malloc(2 * MAX_STATES * sizeof *table);
    State* queue = malloc(MAX_STATES * sizeof *queue);
    if (!table || !queue) abort();
    for (int32_t num_boxes = 1; num_boxes <= 2; num_boxes++) {
        Rig rig = RIG_START(&puf_env_sokoban, 60, 5, {"num_boxes", num_boxes}, {"pulls", 40},
                            {"wall_density", 0.3});
        for (int32_t i = 0; i < 60; i++) {
            const Sokoban* env = rig_env(&rig, i);
            CHECK(__builtin_popcountll(env->boxes) == num_boxes);
            CHECK(__builtin_popcountll(env->targets) == num_boxes && env->boxes != env->targets);
            CHECK(!(env->walls & (env->boxes | env->targets)));
            CHECK(!((env->walls | env->boxes) & bit(env->player)));
            CHECK(is_solvable(env, table, queue));
            CHECK(env->live == find_live(env));
            CHECK(reachable(bit(env->player), ~env->walls) == ~env->walls);  // one room
        }
        rig_destroy(&rig);
    }
    free(table);
    free(queue);
}

static void test_some_boards_cannot_be_solved(void) {  // else the search would prove nothing
    uint64_t* table = malloc(2 * MAX_STATES * sizeof *table);
    State* queue = malloc(MAX_STATES * sizeof *queue);
    if (!table || !queue) abort();
    Sokoban level = {0};
    lay(&level,
        "$       "
        "  @   . ");
    CHECK(!is_solvable(&level, table, queue));
    lay(&level,
        "        "
        "  $ @ . ");
    CHECK(is_solvable(&level, table, queue));
    free(table);
    free(queue);
}

static void test_levels_differ_and_pulls_bound_their_length(void) {
    Rig rig =
        RIG_START(&puf_env_sokoban, 500, 5, {"num_boxes", 1}, {"pulls", 3}, {"wall_density", 0});
    int32_t apart[5] = {0};
    for (int32_t i = 0; i < 500; i++) {
        const Sokoban* env = rig_env(&rig, i);
        Bits stands;
        const int32_t steps = count_pushes(env, &stands);
        CHECK(steps >= 1 && steps <= 3 && env->walls == 0);
        apart[steps]++;
    }
    CHECK(apart[1] > 50 && apart[2] > 50 && apart[3] > 20);
    rig_destroy(&rig);
}

static void test_planes_are_rolled_around_the_player(void) {
    Rig rig = game(2);
    Sokoban* env = env_of(&rig);
    for (int32_t player = 0; player < CELLS; player++) {
        lay(env,
            "#   $   "
            "      . "
            "*       "
            "       #");
        if ((env->walls | env->boxes) & bit(player)) continue;
        env->player = player;
        observe(env);
        for (int32_t i = 0; i < VIEW_CELLS; i++) {
            const int32_t row = (player / SIDE + i / VIEW - 4 + VIEW) % VIEW;
            const int32_t col = (player % SIDE + i % VIEW - 4 + VIEW) % VIEW;
            const bool rim = row == SIDE || col == SIDE;
            const int32_t cell = rim ? -1 : cell_at(row, col);
            CHECK(rig.obs_u8[i] == (rim || cell == 0 || cell == 31));
            CHECK(rig.obs_u8[VIEW_CELLS + i] == (cell == 4));
            CHECK(rig.obs_u8[2 * VIEW_CELLS + i] == (cell == 16));
            CHECK(rig.obs_u8[3 * VIEW_CELLS + i] == (cell == 14));
        }
    }
    rig_destroy(&rig);
}

int main(void) {
    test_the_player_walks_and_stops_at_walls_and_the_rim();
    test_a_box_is_pushed_but_not_into_anything_and_never_two();
    test_pushes_onto_targets_are_rewarded_and_all_of_them_solve_it();
    test_the_potential_counts_pushes_around_walls_and_steps_around_boxes();
    test_a_box_that_can_reach_no_target_ends_the_episode();
    test_episodes_are_truncated_at_max_steps();
    test_every_level_can_be_solved();
    test_some_boards_cannot_be_solved();
    test_levels_differ_and_pulls_bound_their_length();
    test_planes_are_rolled_around_the_player();
    return CHECK_DONE();
}
