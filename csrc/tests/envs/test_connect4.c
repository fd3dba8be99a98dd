// The rules of connect4 on positions laid out by hand, and its bit tricks against plain loops.
#include "envs/connect4.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig game_against(int32_t opponent, double opponent_random, int32_t num_envs) {
    return RIG_START(&puf_env_connect4, num_envs, 3, {"opponent", opponent},
                     {"opponent_random", opponent_random});
}

static Connect4* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Bits bit(int32_t row, int32_t col) { return (Bits)1 << (PITCH * col + row); }

// A position from rows, the top one first: 'x' is agent 0, 'o' the other side. Rows left out at the
// top are empty.
static void lay(Connect4* env, int32_t mover, const char* const* rows, int32_t num_rows) {
    env->stones[0] = env->stones[1] = 0;
    env->duel.mover = mover;
    for (int32_t i = 0; i < num_rows; i++)
        for (int32_t col = 0; col < COLS; col++) {
            if (rows[i][col] == 'x') env->stones[0] |= bit(num_rows - 1 - i, col);
            if (rows[i][col] == 'o') env->stones[1] |= bit(num_rows - 1 - i, col);
        }
}
#define LAY(env, mover, ...)                            \
    lay(env, mover, (const char* const[]){__VA_ARGS__}, \
        (int32_t)(sizeof((const char* const[]){__VA_ARGS__}) / sizeof(char*)))

// ---- Bits against loops -------------------------------------------------------------------------

static bool slow_has_four(Bits stones) {
    static const int32_t rows[4] = {0, 1, 1, 1}, cols[4] = {1, 0, 1, -1};
    for (int32_t row = 0; row < ROWS; row++)
        for (int32_t col = 0; col < COLS; col++)
            for (int32_t d = 0; d < 4; d++) {
                int32_t count = 0;
                for (int32_t i = 0; i < 4; i++) {
                    int32_t r = row + i * rows[d], c = col + i * cols[d];
                    count += r < ROWS && c >= 0 && c < COLS && (stones & bit(r, c));
                }
                if (count == 4) return true;
            }
    return false;
}

static void test_lines_are_found_where_a_plain_search_finds_them(void) {
    PufRng rng = {1};
    bool same = true, completes = true;
    int32_t lines = 0;
    for (int32_t i = 0; i < 4000; i++) {
        Bits stones = puf_rand_u64(&rng) & puf_rand_u64(&rng) & BOARD;  // a quarter of the cells
        if (i % 2) stones |= puf_rand_u64(&rng) & BOARD;
        same = same && has_four(stones) == slow_has_four(stones);
        lines += has_four(stones);
        if (slow_has_four(stones)) continue;
        for (int32_t cell = 0; cell < CELLS; cell++) {
            Bits stone = bit(cell / COLS, cell % COLS);
            if (stones & stone) continue;
            bool is = completions(stones) & stone;
            completes = completes && is == slow_has_four(stones | stone);
        }
    }
    CHECK(same);
    CHECK(completes);
    CHECK(lines > 100 && lines < 3900);
}

static void test_the_board_is_42_bits_with_a_gap_above_each_column(void) {
    CHECK(__builtin_popcountll(BOARD) == CELLS);
    for (int32_t col = 0; col < COLS; col++) {
        CHECK(BOARD & bit(0, col) && BOARD & bit(ROWS - 1, col) && !(BOARD & bit(ROWS, col)));
        CHECK(BOTTOM & bit(0, col));
    }
}

// ---- Moves --------------------------------------------------------------------------------------

static void test_stones_stack_and_full_columns_are_masked(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Connect4* env = env_of(&rig);
    LAY(env, 0, ".......");
    for (int32_t row = 0; row < ROWS; row++) {
        int32_t mover = env->duel.mover;
        rig.actions[mover] = 2;
        rig.actions[mover ^ 1] = 5;  // off turn: does nothing
        puf_vec_step(rig.vec, NULL);
        CHECK(env->stones[mover] & bit(row, 2));
        CHECK(__builtin_popcountll(env->stones[0] | env->stones[1]) == row + 1);
    }
    const uint8_t* mask = rig.action_masks + COLS * env->duel.mover;
    for (int32_t col = 0; col < COLS; col++) CHECK(mask[col] == (col != 2));
    rig_destroy(&rig);
}

static void test_a_stone_at_a_full_column_goes_to_the_next_open_one_around_the_edge(void) {
    static const char* const full[] = {".....xo", ".....ox", ".....xo",
                                       ".....xo", ".....ox", ".....ox"};
    Rig rig = game_against(PUF_SELF, 0, 1);
    Connect4* env = env_of(&rig);
    lay(env, 0, full, ROWS);
    rig.actions[0] = 5;  // 5 and 6 are full: the stone lands in column 0
    puf_vec_step(rig.vec, NULL);
    CHECK(env->stones[0] & bit(0, 0) && !rig.terminals[0] && env->duel.mover == 1);
    rig_destroy(&rig);
}

static void test_actions_outside_the_space_count_as_column_0(void) {
    static const int32_t wild[] = {-1, 7, INT32_MIN, INT32_MAX};
    for (int32_t i = 0; i < 4; i++) {
        Rig rig = game_against(PUF_SELF, 0, 1);
        Connect4* env = env_of(&rig);
        LAY(env, 1, ".......");
        rig.actions[1] = wild[i];
        puf_vec_step(rig.vec, NULL);
        CHECK(env->stones[1] == bit(0, 0));
        rig_destroy(&rig);
    }
}

// ---- The scripted opponent ----------------------------------------------------------------------

static void test_the_script_wins_before_it_blocks(void) {
    for (int32_t seed = 0; seed < 20; seed++) {
        Rig rig = game_against(PUF_SCRIPTED, 0, 1);
        Connect4* env = env_of(&rig);
        env->slots.rng.state = (uint64_t)seed;
        LAY(env, 0, "o.....x", "o.....x", "o.....x");
        env->stones[0] ^= bit(2, 6);  // two of x; its third comes now and threatens a fourth
        rig.actions[0] = 6;
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.terminals[0] && rig.rewards[0] == -1);
        rig_destroy(&rig);
    }
}

static void test_the_script_blocks_the_only_threat(void) {
    for (int32_t seed = 0; seed < 20; seed++) {
        Rig rig = game_against(PUF_SCRIPTED, 0, 1);
        Connect4* env = env_of(&rig);
        env->slots.rng.state = (uint64_t)seed;
        LAY(env, 0, "o......", "oxx....");
        rig.actions[0] = 3;  // x x x at 1..3: only column 4 completes four, as 0 is taken
        puf_vec_step(rig.vec, NULL);
        CHECK(!rig.terminals[0] && env->stones[1] & bit(0, 4));
        rig_destroy(&rig);
    }
}

static void test_the_script_does_not_open_a_win_above_its_stone(void) {
    for (int32_t seed = 0; seed < 50; seed++) {
        Rig rig = game_against(PUF_SCRIPTED, 0, 1);
        Connect4* env = env_of(&rig);
        env->slots.rng.state = (uint64_t)seed;
        // x holds row 1 at columns 0..2 and wins at (1, 3), which a stone at (0, 3) would open.
        LAY(env, 1, "xxx....", "oxo....");
        Bits cell = answer(env);
        CHECK(cell != bit(0, 3) && cell & landings(env));
        rig_destroy(&rig);
    }
}

static void test_the_script_prefers_the_centre(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Connect4* env = env_of(&rig);
    int32_t counts[COLS] = {0};
    LAY(env, 1, ".......");
    for (int32_t i = 0; i < 16000; i++) counts[__builtin_ctzll(answer(env)) / PITCH]++;
    // Odds 1 2 3 4 3 2 1 of 16: 1000 a unit, standard deviation at most 62.
    static const int32_t odds[COLS] = {1, 2, 3, 4, 3, 2, 1};
    for (int32_t col = 0; col < COLS; col++) CHECK(abs(counts[col] - 1000 * odds[col]) < 310);
    rig_destroy(&rig);
}

static void test_random_opponents_play_every_open_column_equally_often(void) {
    for (int32_t scripted = 0; scripted < 2; scripted++) {
        Rig rig = game_against(scripted ? PUF_SCRIPTED : PUF_RANDOM, 1, 1);
        Connect4* env = env_of(&rig);
        int32_t counts[COLS] = {0};
        LAY(env, 1, "o......", "x......", "o......", "x......", "o......", "xooo...");
        for (int32_t i = 0; i < 6000; i++) counts[__builtin_ctzll(answer(env)) / PITCH]++;
        CHECK(counts[0] == 0);                                                          // full
        for (int32_t col = 1; col < COLS; col++) CHECK(abs(counts[col] - 1000) < 150);  // 5 sigma
        rig_destroy(&rig);
    }
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_a_win_ends_the_game_before_the_answer(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Connect4* env = env_of(&rig);
    LAY(env, 0, "o......", "o......", "oxxx...");
    rig.actions[0] = 4;
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] && !rig.truncations[0] && rig.rewards[0] == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.return_sum == 1);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1);  // score, perf
    CHECK(stats.metrics[2] == 0 && stats.metrics[3] == 7);  // draw, stones
    rig_destroy(&rig);
}

static void test_a_full_board_without_four_is_a_draw(void) {
    // Pairs of rows alternate, so no line is longer than three; the last cell is x's.
    static const char* const rows[] = {"xxooxx.", "ooxxoox", "xxooxxo",
                                       "ooxxoox", "xxooxxo", "ooxxooo"};
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Connect4* env = env_of(&rig);
    lay(env, 0, rows, ROWS);
    CHECK(!has_four(env->stones[0]) && !has_four(env->stones[1]));
    rig.actions[0] = 0;  // every column but 6 is full
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] && rig.rewards[0] == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 0 && stats.metrics[1] == 0.5);
    CHECK(stats.metrics[2] == 1 && stats.metrics[3] == CELLS);
    rig_destroy(&rig);
}

static void test_a_coin_decides_who_begins(void) {
    for (int32_t opponent = PUF_SCRIPTED; opponent <= PUF_RANDOM; opponent++) {
        Rig rig = game_against(opponent, 0.1, 1000);
        int32_t second = 0;
        for (int32_t i = 0; i < 1000; i++) {
            const Connect4* env = rig_env(&rig, i);
            second += opponent == PUF_SELF ? env->duel.mover : __builtin_popcountll(env->stones[1]);
            CHECK(opponent == PUF_SELF || env->duel.mover == 0);
        }
        CHECK(second > 400 && second < 600);  // 500, standard deviation 16
        rig_destroy(&rig);
    }
}

// ---- Two agents ---------------------------------------------------------------------------------

static void test_in_self_play_the_loser_gets_its_loss_in_the_step_of_the_winning_move(void) {
    for (int32_t winner = 0; winner < 2; winner++) {
        Rig rig = game_against(PUF_SELF, 0, 1);
        Connect4* env = env_of(&rig);
        LAY(env, winner, ".......");
        env->stones[winner] = bit(0, 0) | bit(1, 0) | bit(2, 0);
        env->stones[winner ^ 1] = bit(0, 6) | bit(1, 6) | bit(2, 6);
        rig.actions[winner] = 0;
        rig.actions[winner ^ 1] = 6;  // would win too, but it is not its turn
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.terminals[0] && rig.terminals[1] && rig.masks[0] && rig.masks[1]);
        CHECK(rig.rewards[winner] == 1 && rig.rewards[winner ^ 1] == -1);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.episodes == 2 && stats.return_sum == 0 && stats.samples == 1);
        CHECK(stats.metrics[0] == (winner ? -1 : 1) && stats.metrics[1] == (winner ? 0 : 1));
        rig_destroy(&rig);
    }
}

static void test_the_waiting_agent_sees_the_board_at_half_strength_and_has_one_action(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Connect4* env = env_of(&rig);
    LAY(env, 0, "......o", "x.....o");
    rig.actions[0] = 3;
    puf_vec_step(rig.vec, NULL);  // now agent 1 is on turn
    const float *waits = rig.obs, *moves = rig.obs + CELLS;
    const int32_t bottom = (ROWS - 1) * COLS;
    CHECK(waits[bottom] == 0.5f && waits[bottom + 3] == 0.5f && waits[bottom + 6] == -0.5f);
    CHECK(moves[bottom] == -1 && moves[bottom + 3] == -1 && moves[bottom + 6] == 1);
    CHECK(moves[bottom - COLS + 6] == 1 && moves[bottom - COLS] == 0);
    for (int32_t i = 0; i < CELLS; i++) CHECK(waits[i] == -0.5f * moves[i]);
    for (int32_t col = 0; col < COLS; col++)
        CHECK(rig.action_masks[col] == (col == 0) && rig.action_masks[COLS + col] == 1);
    rig_destroy(&rig);
}

int main(void) {
    test_lines_are_found_where_a_plain_search_finds_them();
    test_the_board_is_42_bits_with_a_gap_above_each_column();
    test_stones_stack_and_full_columns_are_masked();
    test_a_stone_at_a_full_column_goes_to_the_next_open_one_around_the_edge();
    test_actions_outside_the_space_count_as_column_0();
    test_the_script_wins_before_it_blocks();
    test_the_script_blocks_the_only_threat();
    test_the_script_does_not_open_a_win_above_its_stone();
    test_the_script_prefers_the_centre();
    test_random_opponents_play_every_open_column_equally_often();
    test_a_win_ends_the_game_before_the_answer();
    test_a_full_board_without_four_is_a_draw();
    test_a_coin_decides_who_begins();
    test_in_self_play_the_loser_gets_its_loss_in_the_step_of_the_winning_move();
    test_the_waiting_agent_sees_the_board_at_half_strength_and_has_one_action();
    return CHECK_DONE();
}
