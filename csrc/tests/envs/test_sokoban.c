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
        CHECK(env->player == cells[i] && fabsf(rig.rewards[0] + 0.01f) < 1e-6f);
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
        " @$#    "
        " $    ..");
    rig_play(&rig, RIGHT);  // a wall behind it
    CHECK(env->player == 1);
    rig_play(&rig, DOWN);
    CHECK(env->player == cell_at(1, 1) && env->boxes & bit(cell_at(2, 1)));
    lay(env,
        "     .@$"
        "     .$ ");
    rig_play(&rig, RIGHT);  // the rim behind it
    CHECK(env->player == 6 && env->boxes & bit(7));
    rig_play(&rig, LEFT);  // walking away pulls nothing
    CHECK(env->player == 5 && env->boxes & bit(7));
    rig_destroy(&rig);
}

// ---- Rewards and ends ---------------------------------------------------------------------------

static void test_pushes_onto_targets_are_rewarded_and_all_of_them_solve_it(void) {
    Rig rig = game(2);
    Sokoban* env = env_of(&rig);
    lay(env,
        "@ $ .   "
        "@$.     ");
    rig_play(&rig, RIGHT);  // onto the target: 0.1 for one step nearer, 0.5 for the target
    CHECK(fabsf(rig.rewards[0] - (0.5f + 0.1f - 0.01f)) < 1e-6f && !rig.terminals[0]);
    rig_play(&rig, RIGHT);  // off it again
    CHECK(fabsf(rig.rewards[0] + (0.5f + 0.1f + 0.01f)) < 1e-6f);
    lay(env,
        " @$.    "
        "     *  ");
    rig_play(&rig, RIGHT);
    CHECK(rig.terminals[0] && fabsf(rig.rewards[0] - (1 + 0.5f + 0.1f - 0.01f)) < 1e-6f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 1);
    CHECK(env->boxes != env->targets && env->pushes == 0);  // a new level
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
        const int32_t steps = distance(env, __builtin_ctzll(env->boxes));
        CHECK(steps >= 1 && steps <= 3 && env->walls == 0);
        apart[steps]++;
    }
    CHECK(apart[1] > 50 && apart[2] > 50 && apart[3] > 20);
    rig_destroy(&rig);
}

static void test_planes_are_walls_boxes_targets_and_player(void) {
    Rig rig = game(2);
    Sokoban* env = env_of(&rig);
    lay(env,
        "#@  $   "
        "      . "
        "*       ");
    rig_play(&rig, STAY);
    for (int32_t i = 0; i < CELLS; i++) {
        CHECK(rig.obs_u8[i] == (i == 0));
        CHECK(rig.obs_u8[CELLS + i] == (i == 4 || i == 16));
        CHECK(rig.obs_u8[2 * CELLS + i] == (i == 14 || i == 16));
        CHECK(rig.obs_u8[3 * CELLS + i] == (i == 1));
    }
    rig_destroy(&rig);
}

int main(void) {
    test_the_player_walks_and_stops_at_walls_and_the_rim();
    test_a_box_is_pushed_but_not_into_anything_and_never_two();
    test_pushes_onto_targets_are_rewarded_and_all_of_them_solve_it();
    test_episodes_are_truncated_at_max_steps();
    test_every_level_can_be_solved();
    test_some_boards_cannot_be_solved();
    test_levels_differ_and_pulls_bound_their_length();
    test_planes_are_walls_boxes_targets_and_player();
    return CHECK_DONE();
}
