// The rules of tetris on boards laid out by hand, and the shapes against turned cells.
#include "envs/tetris.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { I, O, T, S, Z, J, L };

static Rig game(int32_t gravity) {
    return RIG_START(&puf_env_tetris, 1, 3, {"gravity", gravity}, {"par_lines", 5},
                     {"max_steps", 100}, {"reward_shape", 0});
}

static Tetris* env_of(const Rig* rig) { return rig_env(rig, 0); }

// Fills the lowest rows from characters, the last one lowest: '#' is a cell.
static void lay(Tetris* env, const char* cells, int32_t num_rows) {
    reset(env);
    for (int32_t i = 0; i < num_rows * COLS; i++) {
        const int32_t row = ROWS - num_rows + i / COLS, col = i % COLS;
        if (cells[i] != '#') continue;
        env->board.rows[row] |= (Row)(1 << (LEFT_WALL + col));
        env->board.colors[row][col] = 1;
    }
}

static void hold(Tetris* env, int32_t piece) {
    env->board.piece = piece;
    env->board.turn = 0;
    env->board.x = 3;
    env->board.y = 0;
    env->fall = 0;
}

static bool filled(const Tetris* env, int32_t row_from_below, int32_t col) {
    return env->board.rows[ROWS - 1 - row_from_below] >> (LEFT_WALL + col) & 1;
}

static int32_t num_filled(const Tetris* env) {
    int32_t cells = 0;
    for (int32_t row = 0; row < ROWS; row++)
        cells += __builtin_popcount(env->board.rows[row] & (uint32_t)~WALLS & 0xFFFF);
    return cells;
}

// ---- Pieces -------------------------------------------------------------------------------------

static void test_shapes_turn_clockwise_in_their_boxes(void) {
    for (int32_t piece = 0; piece < NUM_PIECES; piece++)
        for (int32_t turn = 0; turn < NUM_TURNS; turn++) {
            const uint16_t shape = shapes[piece][turn];
            const int32_t side = piece == I ? 4 : 3;
            uint16_t turned = 0;
            CHECK(__builtin_popcount(shape) == 4);
            for (int32_t i = 0; i < 16; i++)  // (row, col) goes to (col, side - 1 - row)
                if (shape >> i & 1) turned |= (uint16_t)(1 << (4 * (i % 4) + side - 1 - i / 4));
            CHECK(piece == O || shapes[piece][(turn + 1) % NUM_TURNS] == turned);
        }
    static const uint16_t upright[NUM_PIECES] = {0x00F0, 0x0066, 0x0072, 0x0036,
                                                 0x0063, 0x0071, 0x0074};
    for (int32_t piece = 0; piece < NUM_PIECES; piece++) CHECK(shapes[piece][0] == upright[piece]);
}

static void test_every_bag_holds_each_piece_once_in_any_order(void) {
    Board board = {0};
    PufRng rng = {5};
    int32_t first[NUM_PIECES] = {0};
    for (int32_t bag = 0; bag < 7000; bag++) {
        int32_t seen = 0;
        for (int32_t i = 0; i < NUM_PIECES; i++) {
            const int32_t piece = draw_piece(&board, &rng);
            first[piece] += i == 0;
            seen |= 1 << piece;
        }
        CHECK(seen == 127 && board.bag == 0);
    }
    for (int32_t i = 0; i < NUM_PIECES; i++) CHECK(abs(first[i] - 1000) < 150);  // 5 sigma
}

// ---- Moves --------------------------------------------------------------------------------------

static void test_a_piece_moves_and_stops_at_walls_and_cells(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env, "", 0);
    hold(env, O);  // cells in columns x + 1 and x + 2
    for (int32_t i = 0; i < 6; i++) rig_play(&rig, LEFT);
    CHECK(env->board.x == -1 && env->board.y == 0);
    for (int32_t i = 0; i < 12; i++) rig_play(&rig, RIGHT);
    CHECK(env->board.x == 7);
    env->board.rows[1] |= 1 << (LEFT_WALL + 6);
    env->board.colors[1][6] = 1;
    rig_play(&rig, LEFT);  // column 7 is free
    rig_play(&rig, LEFT);  // column 6 is not
    CHECK(env->board.x == 6);
    rig_destroy(&rig);
}

static void test_turns_go_both_ways_and_not_into_walls(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env, "", 0);
    hold(env, T);
    rig_play(&rig, TURN);
    CHECK(env->board.turn == 1);
    rig_play(&rig, TURN_BACK);
    rig_play(&rig, TURN_BACK);
    CHECK(env->board.turn == 3);
    hold(env, I);
    rig_play(&rig, TURN);  // upright in column x + 2
    for (int32_t i = 0; i < 9; i++) rig_play(&rig, LEFT);
    CHECK(env->board.x == -2 && env->board.turn == 1);
    rig_play(&rig, TURN);  // flat it would stand in the wall: no kick, no turn
    CHECK(env->board.x == -2 && env->board.turn == 1);
    rig_destroy(&rig);
}

static void test_gravity_pulls_every_few_steps_and_locks_on_the_floor(void) {
    Rig rig = game(3);
    Tetris* env = env_of(&rig);
    lay(env, "", 0);
    hold(env, O);
    for (int32_t i = 1; i <= 60; i++) {
        rig_play(&rig, STAY);
        CHECK(env->board.y == i / 3 && env->dropped == 0);
    }
    CHECK(env->board.y == 20);  // its lower row is the lowest one
    for (int32_t i = 0; i < 3; i++) rig_play(&rig, STAY);
    CHECK(env->dropped == 1 && env->board.y == 0 && env->fall == 0);
    for (int32_t i = 0; i < 2; i++) CHECK(filled(env, i, 4) && filled(env, i, 5));
    CHECK(num_filled(env) == 4);
    rig_destroy(&rig);
}

static void test_soft_drops_fall_by_one_and_hard_drops_lock(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env, "....#.....", 1);
    hold(env, O);
    rig_play(&rig, SOFT_DROP);
    CHECK(env->board.y == 1);
    const int32_t next = env->board.next;
    rig_play(&rig, HARD_DROP);
    CHECK(env->dropped == 1 && env->board.piece == next && env->board.x == 3);
    for (int32_t i = 1; i < 3; i++) CHECK(filled(env, i, 4) && filled(env, i, 5));
    CHECK(num_filled(env) == 5 && !filled(env, 0, 5));
    rig_destroy(&rig);
}

// ---- Lines --------------------------------------------------------------------------------------

static void test_full_rows_vanish_and_the_rows_above_move_down(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env,
        "#........."
        "####.#####"
        "###..#####"
        "####.#####",
        4);
    hold(env, I);
    env->board.turn = 1;
    env->board.x = 2;  // upright in column 4
    rig_play(&rig, HARD_DROP);
    CHECK(env->lines == 2 && rig.rewards[0] == 2);  // the two rows with one gap
    CHECK(filled(env, 1, 0) && filled(env, 1, 4) && !filled(env, 1, 1));
    CHECK(!filled(env, 0, 3) && filled(env, 0, 4) && filled(env, 0, 9));
    CHECK(num_filled(env) == 1 + 9 + 9 + 8 + 4 - 20);
    CHECK(env->board.colors[ROWS - 2][0] == 1 && env->board.colors[ROWS - 2][4] == 1 + I);
    CHECK(!env->board.colors[ROWS - 1][3] && env->board.colors[ROWS - 1][4] == 1 + I);
    rig_destroy(&rig);
}

static void test_holes_and_unevenness_are_counted_and_cost(void) {
    Rig rig = RIG_START(&puf_env_tetris, 1, 3, {"gravity", 100}, {"reward_shape", 0.5});
    Tetris* env = env_of(&rig);
    lay(env,
        "#........."
        "..#......."
        "#.........",
        3);
    const Surface surface = survey(env->board.rows);
    CHECK(surface.heights[0] == 3 && surface.heights[1] == 0 && surface.heights[2] == 2);
    CHECK(surface.holes[0] == 1 && surface.holes[1] == 0 && surface.holes[2] == 1);
    CHECK(surface.sum_holes == 2 && surface.unevenness == 3 + 2 + 2);
    lay(env, "....#.....", 1);
    hold(env, O);  // on columns 4 and 5: one hole below; heights 1 become 3 3
    rig_play(&rig, HARD_DROP);
    CHECK(fabsf(rig.rewards[0] + 0.5f * (1 + 0.2f * (6 - 2))) < 1e-6f);
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_no_room_for_a_new_piece_ends_the_game(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env, "", 0);
    for (int32_t row = 2; row < ROWS; row++) {
        env->board.rows[row] |= 1 << (LEFT_WALL + 4);
        env->board.colors[row][4] = 1;
    }
    hold(env, O);
    rig_play(&rig, HARD_DROP);  // it stays where pieces appear
    CHECK(rig.terminals[0] && rig.rewards[0] == -1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 0 && stats.metrics[1] == 0 && stats.metrics[2] == 1);
    CHECK(num_filled(env) == 0 && env->dropped == 0);
    rig_destroy(&rig);
}

static void test_par_lines_end_the_game_with_perf_1(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env, "####.#####", 1);
    env->lines = 4;
    hold(env, I);
    env->board.turn = 1;
    env->board.x = 2;
    rig_play(&rig, HARD_DROP);
    CHECK(rig.terminals[0] && rig.rewards[0] == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 5 && stats.metrics[1] == 1);
    rig_destroy(&rig);
}

static void test_episodes_are_truncated_at_max_steps(void) {
    Rig rig = game(100);
    CHECK(rig_truncates_at(&rig, 100));
    rig_destroy(&rig);
}

// ---- Rows ---------------------------------------------------------------------------------------

static void test_features_show_surface_piece_and_drop(void) {
    Rig rig = game(100);
    Tetris* env = env_of(&rig);
    lay(env,
        "#........."
        "..........",
        2);
    hold(env, T);
    env->board.next = J;
    rig_play(&rig, SOFT_DROP);
    rig_play(&rig, TURN);  // cells at (1, 4), (2, 4), (2, 5), (3, 4)
    const float *obs = rig.obs, *piece = rig.obs + 2 * COLS, *pose = piece + 2 * NUM_PIECES + 4;
    CHECK(obs[0] == 2.0f / ROWS && obs[1] == 0 && obs[COLS] == 1.0f / ROWS && obs[COLS + 1] == 0);
    for (int32_t i = 0; i < NUM_PIECES; i++) {
        CHECK(piece[i] == (i == T));
        CHECK(piece[NUM_PIECES + i] == (i == J));
    }
    for (int32_t i = 0; i < 4; i++) CHECK(piece[2 * NUM_PIECES + i] == (i == 1));
    CHECK(fabsf(pose[0] - 0.3f) < 1e-6f && pose[1] == 1.0f / ROWS);
    CHECK(fabsf(pose[2] - 18.0f / ROWS) < 1e-6f);  // its lowest cell goes from row 3 to row 21
    CHECK(pose[3] == 0);
    // One hole below its right cell. Unevenness: heights 3 and 2 add 3 + 1 + 2.
    CHECK(fabsf(pose[4] - 10.0f / 220) < 1e-6f && fabsf(pose[5] - 60.0f / 220) < 1e-6f);
    rig_destroy(&rig);
}

int main(void) {
    test_shapes_turn_clockwise_in_their_boxes();
    test_every_bag_holds_each_piece_once_in_any_order();
    test_a_piece_moves_and_stops_at_walls_and_cells();
    test_turns_go_both_ways_and_not_into_walls();
    test_gravity_pulls_every_few_steps_and_locks_on_the_floor();
    test_soft_drops_fall_by_one_and_hard_drops_lock();
    test_full_rows_vanish_and_the_rows_above_move_down();
    test_holes_and_unevenness_are_counted_and_cost();
    test_no_room_for_a_new_piece_ends_the_game();
    test_par_lines_end_the_game_with_perf_1();
    test_episodes_are_truncated_at_max_steps();
    test_features_show_surface_piece_and_drop();
    return CHECK_DONE();
}
