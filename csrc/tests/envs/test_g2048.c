// The rules of g2048 on boards laid out by hand, and its table of legal moves against plain slides.
#include "envs/g2048.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig game(void) { return RIG_START(&puf_env_g2048, 1, 3, {"max_steps", 1000}); }

static Game* env_of(const Rig* rig) { return rig_env(rig, 0); }

static void lay(uint8_t* tiles, const uint8_t rows[CELLS]) { memcpy(tiles, rows, CELLS); }

static void lay_game(Game* env, const uint8_t rows[CELLS]) {
    lay(env->tiles, rows);
    env->legal = find_moves(env->tiles);
}

static bool same(const uint8_t* tiles, const uint8_t rows[CELLS]) {
    return !memcmp(tiles, rows, CELLS);
}

// ---- Sliding ------------------------------------------------------------------------------------

static void test_tiles_merge_once_and_from_the_edge(void) {
    // Exponents: 2 2 2 2 gives 4 4; 2 2 2 . gives 4 2; 4 2 2 . gives 4 4 and no 8; . 2 . 4 packs.
    static const uint8_t rows[CELLS] = {1, 1, 1, 1, 1, 1, 1, 0, 2, 1, 1, 0, 0, 1, 0, 2};
    static const uint8_t left[CELLS] = {2, 2, 0, 0, 2, 1, 0, 0, 2, 2, 0, 0, 1, 2, 0, 0};
    static const uint8_t right[CELLS] = {0, 0, 2, 2, 0, 0, 1, 2, 0, 0, 2, 2, 0, 0, 1, 2};
    uint8_t tiles[CELLS];
    lay(tiles, rows);
    CHECK(slide_all(tiles, LEFT) == 8 + 4 + 4 && same(tiles, left));
    lay(tiles, rows);
    CHECK(slide_all(tiles, RIGHT) == 8 + 4 + 4 && same(tiles, right));
}

static void test_up_and_down_are_left_and_right_of_the_turned_board(void) {
    static const int32_t twins[NUM_MOVES] = {UP, DOWN, LEFT, RIGHT};
    PufRng rng = {1};
    for (int32_t i = 0; i < 500; i++) {
        uint8_t tiles[CELLS], turned[CELLS];
        for (int32_t k = 0; k < CELLS; k++) {
            tiles[k] = (uint8_t)puf_rand_int(&rng, 4);
            turned[k % SIDE * SIDE + k / SIDE] = tiles[k];
        }
        const int32_t move = puf_rand_int(&rng, NUM_MOVES);
        CHECK(slide_all(tiles, move) == slide_all(turned, twins[move]));
        bool equal = true;
        for (int32_t k = 0; k < CELLS; k++)
            equal = equal && turned[k % SIDE * SIDE + k / SIDE] == tiles[k];
        CHECK(equal);
    }
}

static void test_a_move_is_legal_where_a_slide_changes_the_board(void) {
    PufRng rng = {2};
    int32_t stuck = 0;
    for (int32_t i = 0; i < 4000; i++) {
        uint8_t tiles[CELLS], slid[CELLS];
        const int32_t empty = puf_rand_int(&rng, 3), kinds = 2 + puf_rand_int(&rng, 16);
        for (int32_t k = 0; k < CELLS; k++)
            tiles[k] = puf_rand_int(&rng, 4) < empty ? 0 : (uint8_t)(1 + puf_rand_int(&rng, kinds));
        const int32_t legal = find_moves(tiles);
        bool equal = true, any = false;
        for (int32_t move = 0; move < NUM_MOVES; move++) {
            memcpy(slid, tiles, CELLS);
            slide_all(slid, move);
            const bool is = legal >> move & 1;
            equal = equal && is == !same(slid, tiles);
            any = any || is;
        }
        CHECK(equal);
        stuck += !any;
    }
    CHECK(stuck > 100 && stuck < 3900);
}

static void test_the_largest_tiles_do_not_merge(void) {
    uint8_t tiles[CELLS] = {MAX_TILE, MAX_TILE};
    CHECK(slide_all(tiles, LEFT) == 0 && tiles[0] == MAX_TILE && tiles[1] == MAX_TILE);
}

// ---- New tiles ----------------------------------------------------------------------------------

static void test_a_game_begins_with_two_tiles_and_one_in_ten_is_a_four(void) {
    Rig rig = RIG_START(&puf_env_g2048, 4000, 5, {"max_steps", 100});
    int32_t fours = 0, where[CELLS] = {0};
    for (int32_t i = 0; i < 4000; i++) {
        const Game* env = rig_env(&rig, i);
        int32_t tiles = 0;
        for (int32_t k = 0; k < CELLS; k++) {
            tiles += env->tiles[k] != 0;
            where[k] += env->tiles[k] != 0;
            fours += env->tiles[k] == 2;
            CHECK(env->tiles[k] <= 2);
        }
        CHECK(tiles == 2);
    }
    CHECK(abs(fours - 800) < 5 * 27);                                      // 5 sigma
    for (int32_t k = 0; k < CELLS; k++) CHECK(abs(where[k] - 500) < 110);  // 8000 / 16, 5 sigma
    rig_destroy(&rig);
}

static void test_a_tile_appears_after_a_move_that_changed_the_board_only(void) {
    static const uint8_t rows[CELLS] = {1, 2, 3, 4, 1};
    Rig rig = game();
    Game* env = env_of(&rig);
    lay_game(env, rows);
    rig_play(&rig, LEFT);  // all tiles are at the left edge and none are equal
    CHECK(same(env->tiles, rows) && rig.rewards[0] == 0 && !rig.terminals[0]);
    rig_play(&rig, UP);  // 1 and 1 merge in column 0: a 4 worth 4 points
    CHECK(env->tiles[0] == 2 && env->points == 4 && rig.rewards[0] == 4.0f / 2048);
    int32_t tiles = 0;
    for (int32_t k = 0; k < CELLS; k++) tiles += env->tiles[k] != 0;
    CHECK(tiles == 5);  // five before, two merged, one new
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_the_game_ends_when_no_move_is_left(void) {
    // Only the last cell is empty. Moving right fills column 0 of the last row with a new 2 or 4;
    // neither equals its neighbours 3 and 7, so the board is stuck whatever appears.
    static const uint8_t rows[CELLS] = {3, 4, 5, 6, 7, 8, 9, 11, 3, 4, 5, 6, 7, 8, 9, 0};
    Rig rig = game();
    Game* env = env_of(&rig);
    lay_game(env, rows);
    rig_play(&rig, RIGHT);
    CHECK(rig.terminals[0] && !rig.truncations[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.metrics[0] == 0 && stats.metrics[1] == 1);
    CHECK(stats.metrics[2] == 1 && stats.metrics[3] == 2048);
    CHECK(env->points == 0 && env->slots.tick == 0);  // a new game
    rig_destroy(&rig);
}

static void test_perf_is_the_exponent_of_the_highest_tile_over_11(void) {
    static const uint8_t rows[CELLS] = {3, 4, 5, 6, 7, 8, 9, 5, 3, 4, 5, 6, 7, 8, 9, 0};
    Rig rig = game();
    lay_game(env_of(&rig), rows);
    rig_play(&rig, RIGHT);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(fabs(stats.metrics[1] - 9.0 / 11) < 1e-6 && stats.metrics[2] == 0);
    CHECK(stats.metrics[3] == 512);
    rig_destroy(&rig);
}

static void test_episodes_are_truncated_at_max_steps(void) {
    Rig rig = RIG_START(&puf_env_g2048, 1, 3, {"max_steps", 7});
    CHECK(rig_truncates_at(&rig, 7));
    rig_destroy(&rig);
}

// ---- Rows ---------------------------------------------------------------------------------------

static void test_the_observation_flags_the_exponent_of_each_cell(void) {
    Rig rig = game();
    for (int32_t i = 0; i < 60; i++) {
        rig_play(&rig, i % 4);
        for (int32_t cell = 0; cell < CELLS; cell++)
            for (int32_t kind = 0; kind < KINDS; kind++)
                CHECK(rig.obs_u8[cell * FLAGS + kind] == (env_of(&rig)->tiles[cell] == kind));
    }
    rig_destroy(&rig);
}

static void test_neighbours_that_are_equal_or_one_merge_apart_are_flagged(void) {
    static const uint8_t rows[CELLS] = {1, 1, 2, 0,  //
                                        0, 3, 2, 7,  //
                                        7, 4, 0, 0,  //
                                        0, 0, 6, 5};
    // Cells and flags. The 7 at the end of a row and the one at the begin of the next are no
    // neighbours.
    enum { NUM_SET = 6 };
    static const int32_t flags[NUM_SET][2] = {{0, EQUAL_RIGHT}, {1, NEAR_RIGHT}, {2, EQUAL_BELOW},
                                              {5, NEAR_RIGHT},  {5, NEAR_BELOW}, {14, NEAR_RIGHT}};
    Rig rig = game();
    lay_game(env_of(&rig), rows);
    observe(env_of(&rig));
    for (int32_t cell = 0; cell < CELLS; cell++)
        for (int32_t flag = EQUAL_RIGHT; flag < FLAGS; flag++) {
            bool expected = false;
            for (int32_t i = 0; i < NUM_SET; i++)
                expected = expected || (flags[i][0] == cell && flags[i][1] == flag);
            CHECK(rig.obs_u8[cell * FLAGS + flag] == expected);
        }
    rig_destroy(&rig);
}

static void test_the_mask_allows_the_moves_that_change_the_board(void) {
    static const uint8_t rows[CELLS] = {1, 2, 3, 4, 1};
    Rig rig = game();
    lay_game(env_of(&rig), rows);
    rig_play(&rig, LEFT);  // changes nothing
    CHECK(!rig.action_masks[LEFT] && rig.action_masks[RIGHT]);
    CHECK(rig.action_masks[UP] && rig.action_masks[DOWN]);
    rig_destroy(&rig);
}

int main(void) {
    test_tiles_merge_once_and_from_the_edge();
    test_up_and_down_are_left_and_right_of_the_turned_board();
    test_a_move_is_legal_where_a_slide_changes_the_board();
    test_the_largest_tiles_do_not_merge();
    test_a_game_begins_with_two_tiles_and_one_in_ten_is_a_four();
    test_a_tile_appears_after_a_move_that_changed_the_board_only();
    test_the_game_ends_when_no_move_is_left();
    test_perf_is_the_exponent_of_the_highest_tile_over_11();
    test_episodes_are_truncated_at_max_steps();
    test_the_observation_flags_the_exponent_of_each_cell();
    test_neighbours_that_are_equal_or_one_merge_apart_are_flagged();
    test_the_mask_allows_the_moves_that_change_the_board();
    return CHECK_DONE();
}
