// The rules of checkers: the known numbers of games, and positions laid out by hand.
#include "envs/checkers.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig game_against(int32_t opponent, double opponent_random, int32_t num_envs) {
    return RIG_START(&puf_env_checkers, num_envs, 3, {"opponent", opponent},
                     {"opponent_random", opponent_random});
}

static Checkers* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Bits at(int32_t row, int32_t col) { return (Bits)1 << (SIDE * row + col); }

// A position from 64 characters as side 0 sees it: 'x' and 'X' are a man and a king of side 0, 'o'
// and 'O' of side 1.
static void lay(Checkers* env, int32_t mover, const char* squares) {
    env->board = (View){0};
    for (int32_t i = 0; i < SIDE * SIDE; i++) {
        const Bits square = (Bits)1 << i;
        if (squares[i] == 'x' || squares[i] == 'X') env->board.own |= square;
        if (squares[i] == 'o' || squares[i] == 'O') env->board.other |= square;
        if (squares[i] == 'X' || squares[i] == 'O') env->board.kings |= square;
    }
    env->jumper = 0;
    env->quiet = 0;
    env->duel.mover = mover;
    find_moves(env);
}

// The action that moves the piece on (row, col), as the mover sees the board.
static int32_t action(int32_t row, int32_t col, int32_t direction) {
    int32_t square = 0;
    while (square < SQUARES - 1 && square_bit(square) != at(row, col)) square++;
    CHECK(square_bit(square) == at(row, col));
    return SQUARES * direction + square;
}

static void play(Rig* rig, int32_t row, int32_t col, int32_t direction) {
    for (int32_t i = 0; i < rig->num_slots; i++) rig->actions[i] = action(row, col, direction);
    puf_vec_step(rig->vec, NULL);
}

// ---- Numbers of games ---------------------------------------------------------------------------

static int64_t count_games(const Checkers* env, int32_t turns) {
    int64_t games = 0;
    if (turns == 0) return 1;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        for (Bits left = env->legal[d]; left; left &= left - 1) {
            Checkers next = *env;
            place(&next, left & -left, d);
            const bool goes_on = next.duel.mover == env->duel.mover;
            if (find_moves(&next) || turns == 1)
                games += goes_on ? count_games(&next, turns) : count_games(&next, turns - 1);
        }
    return games;
}

static void test_the_number_of_openings_is_the_known_one(void) {
    static const int64_t known[] = {1, 7, 49, 302, 1469, 7361, 36768, 179740};
    Rig rig = game_against(PUF_SELF, 0, 1);
    for (int32_t turns = 0; turns < 8; turns++)
        CHECK(count_games(env_of(&rig), turns) == known[turns]);
    rig_destroy(&rig);
}

static void test_squares_are_the_dark_ones_row_by_row(void) {
    for (int32_t square = 0; square < SQUARES; square++) {
        CHECK(square_bit(square) & DARK && packed(square_bit(square)) == 1u << square);
        CHECK(turned(square_bit(square)) == square_bit(SQUARES - 1 - square));
    }
    CHECK(square_bit(0) == at(0, 1) && square_bit(4) == at(1, 0) && square_bit(31) == at(7, 6));
}

// ---- Moves --------------------------------------------------------------------------------------

static void test_men_step_forwards_only_and_kings_both_ways(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".o......"
        "........"
        "........"
        "....x..."
        "........"
        "..X....."
        ".......x"
        "........");
    CHECK(env->legal[UP_LEFT] == (at(3, 4) | at(5, 2) | at(6, 7)));
    CHECK(env->legal[UP_RIGHT] == (at(3, 4) | at(5, 2)));  // the edge
    CHECK(env->legal[DOWN_LEFT] == at(5, 2) && env->legal[DOWN_RIGHT] == at(5, 2));
    play(&rig, 5, 2, DOWN_RIGHT);
    CHECK(env->board.own & at(6, 3) && env->board.kings == at(6, 3) && env->duel.mover == 1);
    rig_destroy(&rig);
}

static void test_jumps_are_forced_and_capture(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".......o"
        "o......."
        "........"
        "..o....."
        "...x...."
        "........"
        ".....x.."
        "........");
    CHECK(env->captures && env->legal[UP_LEFT] == at(4, 3));
    CHECK(!env->legal[UP_RIGHT] && !env->legal[DOWN_LEFT] && !env->legal[DOWN_RIGHT]);
    play(&rig, 6, 5, UP_LEFT);  // not that one: the jump is played
    CHECK(env->board.own == (at(2, 1) | at(6, 5)) && !(env->board.other & at(3, 2)));
    CHECK(env->duel.mover == 1 && rig.rewards[0] == 0.05f && rig.rewards[1] == -0.05f);
    rig_destroy(&rig);
}

static void test_men_do_not_jump_backwards_nor_over_own_or_guarded_pieces(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".o......"
        "..o....."
        "...x...."
        "....o..."
        "........"
        "..x....."
        ".x......"
        "........");
    CHECK(!env->captures);  // (1, 2) is guarded by (0, 1), (3, 4) lies behind, (5, 2) is own
    env->board.kings |= at(2, 3);
    find_moves(env);
    CHECK(env->captures && env->legal[DOWN_RIGHT] == at(2, 3));
    rig_destroy(&rig);
}

static void test_a_jump_goes_on_with_the_same_piece_in_the_same_turn(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        "........"
        "........"
        "...o.o.."
        "........"
        ".o.o...."
        "..x....."
        ".....o.."
        "......x.");
    CHECK(env->legal[UP_LEFT] == (at(5, 2) | at(7, 6)) && env->legal[UP_RIGHT] == at(5, 2));
    play(&rig, 5, 2, UP_RIGHT);  // to (3, 4); from there over (2, 3) or (2, 5), and (7, 6) waits
    CHECK(env->duel.mover == 0 && env->jumper == at(3, 4));
    CHECK(env->legal[UP_LEFT] == at(3, 4) && env->legal[UP_RIGHT] == at(3, 4));
    for (int32_t i = 0; i < NUM_ACTIONS; i++) {
        const bool legal = i == action(3, 4, UP_LEFT) || i == action(3, 4, UP_RIGHT);
        CHECK(rig.action_masks[i] == legal && rig.action_masks[NUM_ACTIONS + i] == (i == 0));
    }
    play(&rig, 3, 4, UP_RIGHT);
    CHECK(env->duel.mover == 1 && !env->jumper && env->board.own == (at(1, 6) | at(7, 6)));
    CHECK(env->board.other == (at(2, 3) | at(4, 1) | at(6, 5)));
    rig_destroy(&rig);
}

static void test_a_man_on_the_last_row_becomes_a_king_and_stops(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        "........"
        "..o.o..."
        ".x......"
        "........"
        "........"
        "o......."
        "........"
        "........");
    play(&rig, 2, 1, UP_RIGHT);  // to (0, 3): a king could jump on over (1, 4)
    CHECK(env->board.own == at(0, 3) && env->board.kings == at(0, 3) && env->duel.mover == 1);
    lay(env, 0,
        "........"
        "..o.o..."
        ".X......"
        "........"
        "........"
        "o......."
        "........"
        "........");
    play(&rig, 2, 1, UP_RIGHT);  // a king it was before: it goes on
    CHECK(env->duel.mover == 0 && env->jumper == at(0, 3) && env->legal[DOWN_RIGHT] == at(0, 3));
    rig_destroy(&rig);
}

static void test_captured_kings_leave_no_crown(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        "........"
        "........"
        "........"
        "..O....."
        "...x...."
        "........"
        ".o......"
        "........");
    play(&rig, 4, 3, UP_LEFT);
    CHECK(env->board.kings == 0 && env->board.other == at(6, 1));
    rig_destroy(&rig);
}

static void test_each_side_plays_upwards_in_its_own_view(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 1,
        "........"
        "........"
        "...o...."
        "........"
        "........"
        "x......."
        "........"
        "........");
    // (2, 3) is (5, 4) to side 1; up left from there is (4, 3), which is (3, 4) to side 0.
    CHECK(env->legal[UP_LEFT] == at(5, 4));
    play(&rig, 5, 4, UP_LEFT);
    CHECK(env->board.other == at(3, 4) && env->board.own == at(5, 0));
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_a_side_without_pieces_or_moves_loses(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        "........"
        "........"
        "........"
        "..o....."
        "...x...."
        "........"
        "........"
        "........");
    play(&rig, 4, 3, UP_LEFT);
    CHECK(rig.terminals[0] && rig.terminals[1]);
    CHECK(fabsf(rig.rewards[0] - 1.05f) < 1e-6f && fabsf(rig.rewards[1] + 1.05f) < 1e-6f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 0);
    lay(env, 0,
        "........"
        "........"
        "........"
        "o......."
        ".x......"
        "..x....."
        "........"
        "....x...");
    play(&rig, 7, 4, UP_RIGHT);  // o is blocked: it can neither step nor jump
    CHECK(rig.terminals[0] && rig.rewards[0] == 1 && rig.rewards[1] == -1);
    rig_destroy(&rig);
}

static void test_quiet_turns_end_in_a_draw(void) {
    Rig rig = RIG_START(&puf_env_checkers, 1, 3, {"opponent", PUF_SELF}, {"draw_after", 6});
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".......O"
        "........"
        "........"
        "........"
        "........"
        "........"
        ".x......"
        "....X...");
    for (int32_t i = 0; i < 2; i++) {  // both kings go out
        play(&rig, 7, i == 0 ? 4 : 0, UP_RIGHT);
        CHECK(env->quiet == i + 1 && !rig.terminals[0]);
    }
    play(&rig, 6, 1, UP_RIGHT);  // a man's move begins the count again
    CHECK(env->quiet == 0);
    play(&rig, 6, 1, DOWN_LEFT);
    for (int32_t i = 2; i <= 6; i++) {
        static const int32_t rows[] = {6, 7, 7, 6, 6}, cols[] = {5, 0, 4, 1, 5};
        static const int32_t ways[] = {DOWN_LEFT, UP_RIGHT, UP_RIGHT, DOWN_LEFT, DOWN_LEFT};
        play(&rig, rows[i - 2], cols[i - 2], ways[i - 2]);
        CHECK(rig.terminals[0] == (i == 6) && rig.rewards[0] == 0);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[1] == 0.5 && stats.metrics[2] == 1);
    rig_destroy(&rig);
}

static void test_too_many_steps_are_a_draw(void) {
    Rig rig = RIG_START(&puf_env_checkers, 1, 3, {"opponent", PUF_SELF}, {"max_moves", 5});
    for (int32_t i = 1; i <= 5; i++) {
        rig_play(&rig, 0);
        CHECK(rig.terminals[0] == (i == 5) && rig.terminals[1] == (i == 5));
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[1] == 0.5 && stats.metrics[2] == 1 && stats.metrics[3] == 5);
    rig_destroy(&rig);
}

static void test_a_coin_decides_who_begins(void) {
    for (int32_t opponent = PUF_SCRIPTED; opponent <= PUF_RANDOM; opponent++) {
        Rig rig = game_against(opponent, 0.1, 1000);
        int32_t second = 0;
        for (int32_t i = 0; i < 1000; i++) {
            const Checkers* env = rig_env(&rig, i);
            const bool moved = env->board.other != turned(DARK & 0xFFFFFF0000000000u);
            second += opponent == PUF_SELF ? env->duel.mover : moved;
        }
        CHECK(second > 400 && second < 600);  // 500, standard deviation 16
        rig_destroy(&rig);
    }
}

// ---- Opponents ----------------------------------------------------------------------------------

static void test_the_script_keeps_its_pieces_safe(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Checkers* env = env_of(&rig);
    for (int32_t seed = 0; seed < 20; seed++) {
        env->slots.rng.state = (uint64_t)seed;
        lay(env, 1,
            "........"
            "........"
            ".o......"
            "........"
            "...x...."
            "........"
            "........"
            "........");
        const Move move = answer(env);  // down to (3, 2) it would be taken
        CHECK(shifted(move.from, move.direction) == turned(at(3, 0)));
    }
    rig_destroy(&rig);
}

static void test_the_script_finishes_its_jumps_before_the_agent_moves(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".......o"
        "o......."
        "........"
        "x......."
        "...x...."
        "........"
        "........"
        "......x.");
    play(&rig, 3, 0, UP_RIGHT);  // to (2, 1): o jumps over it to (3, 2), then over (4, 3) to (5, 4)
    CHECK(env->board.other == (at(5, 4) | at(0, 7)) && env->board.own == at(7, 6));
    CHECK(env->duel.mover == 0 && !rig.terminals[0] && fabsf(rig.rewards[0] + 0.1f) < 1e-6f);
    rig_destroy(&rig);
}

static void test_random_opponents_play_every_move_equally_often(void) {
    for (int32_t scripted = 0; scripted < 2; scripted++) {
        Rig rig = game_against(scripted ? PUF_SCRIPTED : PUF_RANDOM, 1, 1);
        Checkers* env = env_of(&rig);
        int32_t counts[SIDE * SIDE][NUM_DIRECTIONS] = {0}, kinds = 0;
        reset(env);
        env->duel.mover = 1;
        env->board = (View){DARK & 0xFFFFFF0000000000u, turned(DARK & 0xFFFFFF0000000000u), 0};
        find_moves(env);
        for (int32_t i = 0; i < 7000; i++) {
            const Move move = answer(env);
            counts[__builtin_ctzll(move.from)][move.direction]++;
        }
        for (int32_t i = 0; i < SIDE * SIDE; i++)
            for (int32_t d = 0; d < NUM_DIRECTIONS; d++) {
                const bool legal = env->legal[d] >> i & 1;
                kinds += legal;
                CHECK(legal ? abs(counts[i][d] - 1000) < 150 : !counts[i][d]);  // 5 sigma
            }
        CHECK(kinds == 7);
        rig_destroy(&rig);
    }
}

static void test_the_script_beats_random_play(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 64);
    PufRng rng = {1};
    for (int32_t i = 0; i < 300; i++) {
        for (int32_t k = 0; k < 64; k++) rig.actions[k] = puf_rand_int(&rng, NUM_ACTIONS);
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples > 300);
    CHECK(stats.metrics[1] / (double)stats.samples < 0.1);
    rig_destroy(&rig);
}

// ---- Rows ---------------------------------------------------------------------------------------

static void test_rows_show_pieces_kings_and_the_way_to_a_draw(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Checkers* env = env_of(&rig);
    lay(env, 0,
        ".o......"
        "........"
        ".......O"
        "........"
        "........"
        "........"
        "........"
        "X.......");
    play(&rig, 7, 0, UP_RIGHT);  // to (6, 1): square 24 of side 0, 7 of side 1
    const float *waits = rig.obs, *moves = rig.obs + OBS;
    for (int32_t i = 0; i < SQUARES; i++) {
        CHECK(waits[i] == (i == 24 ? 0.5f : i == 0 || i == 11 ? -0.5f : 0));
        CHECK(waits[SQUARES + i] == (i == 24 ? 0.5f : i == 11 ? -0.5f : 0));
        CHECK(moves[i] == -2 * waits[SQUARES - 1 - i]);
        CHECK(moves[SQUARES + i] == -2 * waits[2 * SQUARES - 1 - i]);
    }
    CHECK(waits[2 * SQUARES] == 1.0f / 80 && moves[2 * SQUARES] == 1.0f / 80);
    rig_destroy(&rig);
}

int main(void) {
    test_the_number_of_openings_is_the_known_one();
    test_squares_are_the_dark_ones_row_by_row();
    test_men_step_forwards_only_and_kings_both_ways();
    test_jumps_are_forced_and_capture();
    test_men_do_not_jump_backwards_nor_over_own_or_guarded_pieces();
    test_a_jump_goes_on_with_the_same_piece_in_the_same_turn();
    test_a_man_on_the_last_row_becomes_a_king_and_stops();
    test_captured_kings_leave_no_crown();
    test_each_side_plays_upwards_in_its_own_view();
    test_a_side_without_pieces_or_moves_loses();
    test_quiet_turns_end_in_a_draw();
    test_too_many_steps_are_a_draw();
    test_a_coin_decides_who_begins();
    test_the_script_keeps_its_pieces_safe();
    test_the_script_finishes_its_jumps_before_the_agent_moves();
    test_random_opponents_play_every_move_equally_often();
    test_the_script_beats_random_play();
    test_rows_show_pieces_kings_and_the_way_to_a_draw();
    return CHECK_DONE();
}
