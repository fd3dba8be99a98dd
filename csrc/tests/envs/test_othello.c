// The rules of othello: bit tricks against a walk along every line, the known numbers of games, and
// positions laid out by hand.
#include "envs/othello.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig game_against(int32_t opponent, double opponent_random, int32_t num_envs) {
    return RIG_START(&puf_env_othello, num_envs, 3, {"opponent", opponent},
                     {"opponent_random", opponent_random});
}

static Othello* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Bits square(int32_t row, int32_t col) { return (Bits)1 << (SIDE * row + col); }

// A position from 64 characters: 'x' is side 0, 'o' side 1.
static void lay(Othello* env, int32_t mover, const char* cells) {
    env->discs[0] = env->discs[1] = 0;
    for (int32_t i = 0; i < CELLS; i++) {
        if (cells[i] == 'x') env->discs[0] |= (Bits)1 << i;
        if (cells[i] == 'o') env->discs[1] |= (Bits)1 << i;
    }
    env->duel.mover = mover;
    env->legal = find_moves(env->discs[mover], env->discs[mover ^ 1]);
}

// ---- Bits against loops -------------------------------------------------------------------------

static Bits slow_flips(Bits own, Bits other, int32_t row, int32_t col) {
    Bits flips = 0;
    for (int32_t dr = -1; dr <= 1; dr++)
        for (int32_t dc = -1; dc <= 1; dc++) {
            Bits line = 0;
            int32_t r = row + dr, c = col + dc;
            if (!dr && !dc) continue;
            while (r >= 0 && r < SIDE && c >= 0 && c < SIDE && other & square(r, c)) {
                line |= square(r, c);
                r += dr;
                c += dc;
            }
            if (r >= 0 && r < SIDE && c >= 0 && c < SIDE && own & square(r, c)) flips |= line;
        }
    return flips;
}

static const char opening[] =
    "........"
    "........"
    "........"
    "...ox..."
    "...xo..."
    "........"
    "........"
    "........";

static void test_moves_and_flips_are_those_of_a_walk_along_each_line(void) {
    PufRng rng = {1};
    bool flips_equal = true, moves_equal = true;
    int32_t long_lines = 0;
    for (int32_t i = 0; i < 3000; i++) {
        const Bits own = puf_rand_u64(&rng) & puf_rand_u64(&rng);
        Bits other = ~own;
        if (i % 3) other &= puf_rand_u64(&rng) | puf_rand_u64(&rng);
        const Bits moves = find_moves(own, other);
        for (int32_t cell = 0; cell < CELLS; cell++) {
            const Bits here = (Bits)1 << cell;
            if ((own | other) & here) {
                moves_equal = moves_equal && !(moves & here);
                continue;
            }
            const Bits flips = slow_flips(own, other, cell / SIDE, cell % SIDE);
            flips_equal = flips_equal && find_flips(own, other, here) == flips;
            moves_equal = moves_equal && !!(moves & here) == !!flips;
        }
    }
    for (int32_t cell = 0; cell < CELLS; cell++)  // whole board of the other side but two discs
        for (int32_t end = 0; end < CELLS; end++) {
            if (end == cell) continue;
            const Bits here = (Bits)1 << cell, own = (Bits)1 << end, other = ~(here | own);
            const Bits flips = slow_flips(own, other, cell / SIDE, cell % SIDE);
            flips_equal = flips_equal && find_flips(own, other, here) == flips;
            moves_equal = moves_equal && find_moves(own, other) == (flips ? here : 0);
            long_lines += __builtin_popcountll(flips) == 6;
        }
    CHECK(flips_equal);
    CHECK(moves_equal);
    CHECK(long_lines == 36);  // 2 x (8 rows + 8 columns + 2 diagonals)
}

static int64_t count_games(const Othello* env, int32_t depth) {
    int64_t games = 0;
    if (depth == 0) return 1;
    for (Bits left = env->legal; left; left &= left - 1) {
        Othello next = *env;
        place(&next, left & -left);
        games += count_games(&next, depth - 1);
    }
    return games;
}

static void test_the_number_of_openings_is_the_known_one(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    static const int64_t known[] = {1, 4, 12, 56, 244, 1396, 8200, 55092};
    for (int32_t depth = 0; depth < 8; depth++)
        CHECK(count_games(env_of(&rig), depth) == known[depth]);
    rig_destroy(&rig);
}

// ---- Moves --------------------------------------------------------------------------------------

static void test_a_move_turns_over_closed_lines_and_no_others(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Othello* env = env_of(&rig);
    lay(env, 0,
        "........"
        "xoo.oooo"  // to the left closed by x, to the right open at the edge
        "..oo...."
        ".x.x...."  // down and down-left closed
        "........"
        "........"
        "........"
        "o.......");
    rig.actions[0] = 11;
    rig.actions[1] = 0;
    puf_vec_step(rig.vec, NULL);
    CHECK(env->discs[0] == (square(1, 0) | square(1, 1) | square(1, 2) | square(1, 3) |
                            square(2, 2) | square(2, 3) | square(3, 1) | square(3, 3)));
    CHECK(env->discs[1] ==
          (square(1, 4) | square(1, 5) | square(1, 6) | square(1, 7) | square(7, 0)));
    CHECK(env->duel.mover == 1 && env->last == 11);
    rig_destroy(&rig);
}

static void test_the_mask_has_the_legal_squares_or_the_pass(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Othello* env = env_of(&rig);
    lay(env, 0,
        "xo......"
        "........"
        "........"
        "........"
        "........"
        "........"
        "ox......"
        "........");
    rig.actions[0] = 2;
    puf_vec_step(rig.vec, NULL);  // x has the whole first row now; o can take (6, 2) only
    for (int32_t i = 0; i < NUM_ACTIONS; i++) {
        CHECK(rig.action_masks[i] == (i == 0));  // agent 0 waits
        CHECK(rig.action_masks[NUM_ACTIONS + i] == (i == 50));
    }
    lay(env, 0,
        "xo......"
        "........"
        "........"
        "........"
        "........"
        "........"
        "xo......"
        "........");
    rig.actions[0] = 2;
    puf_vec_step(rig.vec, NULL);  // o cannot move, x still can
    CHECK(!rig.terminals[0] && env->duel.mover == 1);
    for (int32_t i = 0; i < NUM_ACTIONS; i++)
        CHECK(rig.action_masks[NUM_ACTIONS + i] == (i == PASS));
    const Bits before[2] = {env->discs[0], env->discs[1]};
    rig.actions[1] = 20;  // whatever it says, it passes
    puf_vec_step(rig.vec, NULL);
    CHECK(env->duel.mover == 0 && env->discs[0] == before[0] && env->discs[1] == before[1]);
    rig_destroy(&rig);
}

static void test_illegal_actions_become_the_next_legal_square(void) {
    static const int32_t given[] = {0, 19, 20, 27, 45, 63, PASS, -5, 99};
    static const int32_t played[] = {19, 19, 26, 37, 19, 19, 19, 19, 19};
    for (int32_t i = 0; i < 9; i++) {
        Rig rig = game_against(PUF_SELF, 0, 1);
        Othello* env = env_of(&rig);
        lay(env, 0, opening);
        CHECK(env->legal == (square(2, 3) | square(3, 2) | square(4, 5) | square(5, 4)));
        rig.actions[0] = given[i];
        puf_vec_step(rig.vec, NULL);
        CHECK(env->last == played[i]);
        rig_destroy(&rig);
    }
}

static void test_the_opponent_passes_when_it_must_and_the_agent_moves_again(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Othello* env = env_of(&rig);
    lay(env, 0,
        "xo......"
        "........"
        "........"
        "........"
        "........"
        "........"
        "xo......"
        "........");
    rig.actions[0] = 2;
    puf_vec_step(rig.vec, NULL);
    CHECK(!rig.terminals[0] && env->duel.mover == 0 && env->legal == square(6, 2));
    rig.actions[0] = 50;
    puf_vec_step(rig.vec, NULL);  // no disc of o is left
    CHECK(rig.terminals[0] && rig.rewards[0] == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 0);
    CHECK(stats.metrics[3] == 6 && stats.metrics[4] == 6);  // discs, margin
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_most_discs_win_and_equal_numbers_draw(void) {
    for (int32_t i = -1; i <= 1; i++) {
        // x fills the last square of the bottom row and turns over the six discs before it: 1 + 6
        // discs more than the 24, 25 or 26 it has.
        char cells[CELLS];
        memset(cells, 'o', CELLS);
        memcpy(cells + 56, "xoooooo.", 8);
        for (int32_t k = 1, own = 1; own < 25 + i; k++)
            if (k % 8 != 7 && k % 9) {  // neither in the column nor on the diagonal of the square
                cells[k] = 'x';
                own++;
            }
        Rig rig = game_against(PUF_SELF, 0, 1);
        Othello* env = env_of(&rig);
        lay(env, 0, cells);
        rig.actions[0] = 63;
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.terminals[0] && rig.terminals[1]);
        CHECK(rig.rewards[0] == (float)i && rig.rewards[1] == (float)-i);
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.metrics[0] == i && stats.metrics[1] == 0.5 + 0.5 * i);
        CHECK(stats.metrics[2] == (i == 0) && stats.metrics[4] == 2 * i);
        rig_destroy(&rig);
    }
}

static void test_a_coin_decides_who_is_black_and_begins(void) {
    for (int32_t opponent = PUF_SCRIPTED; opponent <= PUF_RANDOM; opponent++) {
        Rig rig = game_against(opponent, 0.1, 1000);
        int32_t second = 0;
        for (int32_t i = 0; i < 1000; i++) {
            const Othello* env = rig_env(&rig, i);
            const int32_t discs = __builtin_popcountll(env->discs[0] | env->discs[1]);
            const bool first = puf_duel_is_self(&env->duel) ? env->duel.mover == 0 : discs == 4;
            second += !first;
            // Black, who begins, has e4 and d5.
            if (discs == 4) CHECK(env->discs[env->duel.mover] == (square(3, 4) | square(4, 3)));
        }
        CHECK(second > 400 && second < 600);  // 500, standard deviation 16
        rig_destroy(&rig);
    }
}

// ---- Opponents ----------------------------------------------------------------------------------

static void test_the_script_takes_a_corner_and_avoids_the_square_next_to_one(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Othello* env = env_of(&rig);
    for (int32_t seed = 0; seed < 20; seed++) {
        env->slots.rng.state = (uint64_t)seed;
        lay(env, 1,
            "........"
            ".x......"
            "..o....."
            "...xo..."
            "...ox..."
            "........"
            "........"
            "........");
        CHECK(env->legal & square(0, 0));
        CHECK(answer(env) == square(0, 0));
        lay(env, 1,
            "........"
            "........"
            "..x....."
            "...o...."
            "...xo..."
            "........"
            "........"
            "........");
        CHECK(env->legal & square(1, 1));
        CHECK(answer(env) != square(1, 1) && answer(env) & env->legal);
    }
    rig_destroy(&rig);
}

static void test_random_opponents_play_every_legal_square_equally_often(void) {
    for (int32_t scripted = 0; scripted < 2; scripted++) {
        Rig rig = game_against(scripted ? PUF_SCRIPTED : PUF_RANDOM, 1, 1);
        Othello* env = env_of(&rig);
        int32_t counts[CELLS] = {0};
        lay(env, 1, opening);
        for (int32_t i = 0; i < 4000; i++) counts[__builtin_ctzll(answer(env))]++;
        for (int32_t i = 0; i < CELLS; i++)
            CHECK(env->legal >> i & 1 ? abs(counts[i] - 1000) < 140 : !counts[i]);  // 5 sigma
        rig_destroy(&rig);
    }
}

static void test_the_script_beats_random_play(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 64);
    PufRng rng = {1};
    for (int32_t i = 0; i < 300; i++) {
        for (int32_t k = 0; k < 64; k++) rig.actions[k] = puf_rand_int(&rng, CELLS);
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples > 300);
    CHECK(stats.metrics[1] / (double)stats.samples < 0.2);
    rig_destroy(&rig);
}

// ---- Rows ---------------------------------------------------------------------------------------

static void test_own_discs_are_positive_and_the_waiting_agent_sees_half(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Othello* env = env_of(&rig);
    lay(env, 0, opening);
    rig.actions[0] = 19;
    puf_vec_step(rig.vec, NULL);
    for (int32_t i = 0; i < CELLS; i++) {
        const float own = (float)(int32_t)(env->discs[0] >> i & 1);
        const float other = (float)(int32_t)(env->discs[1] >> i & 1);
        CHECK(rig.obs[i] == 0.5f * (own - other) && rig.obs[CELLS + i] == other - own);
    }
    rig_destroy(&rig);
}

int main(void) {
    test_moves_and_flips_are_those_of_a_walk_along_each_line();
    test_the_number_of_openings_is_the_known_one();
    test_a_move_turns_over_closed_lines_and_no_others();
    test_the_mask_has_the_legal_squares_or_the_pass();
    test_illegal_actions_become_the_next_legal_square();
    test_the_opponent_passes_when_it_must_and_the_agent_moves_again();
    test_most_discs_win_and_equal_numbers_draw();
    test_a_coin_decides_who_is_black_and_begins();
    test_the_script_takes_a_corner_and_avoids_the_square_next_to_one();
    test_random_opponents_play_every_legal_square_equally_often();
    test_the_script_beats_random_play();
    test_own_discs_are_positive_and_the_waiting_agent_sees_half();
    return CHECK_DONE();
}
