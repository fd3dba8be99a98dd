// The rules of go: bit boards against walks over an array of points, and positions laid out by
// hand.
#include "envs/go.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig game_against(int32_t opponent, double opponent_random, int32_t num_envs) {
    return RIG_START(&puf_env_go, num_envs, 3, {"opponent", opponent},
                     {"opponent_random", opponent_random});
}

static Go* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Bits at(int32_t row, int32_t col) { return bit_of(SIDE * row + col); }

// A position from 49 characters: 'x' is side 0, 'o' side 1.
static void lay(Go* env, int32_t mover, const char* points) {
    reset(env);
    env->stones[0] = env->stones[1] = 0;
    for (int32_t i = 0; i < CELLS; i++) {
        if (points[i] == 'x') env->stones[0] |= bit_of(i);
        if (points[i] == 'o') env->stones[1] |= bit_of(i);
    }
    env->ko = 0;
    env->passes = env->moves = 0;
    env->black = 0;
    env->duel.mover = mover;
    env->legal = find_moves(env);
}

static void play(Rig* rig, int32_t row, int32_t col) {
    rig->actions[0] = rig->actions[1] = SIDE * row + col;
    puf_vec_step(rig->vec, NULL);
}

// ---- An oracle on an array of points ------------------------------------------------------------

typedef struct {
    int8_t points[CELLS];  // -1 empty, else the side
} Slow;

static Slow slow_of(const Go* env) {
    Slow slow;
    for (int32_t i = 0; i < CELLS; i++)
        slow.points[i] = env->stones[0] & bit_of(i) ? 0 : env->stones[1] & bit_of(i) ? 1 : -1;
    return slow;
}

// Walks the group of `point`, marks it in `group`, and returns its number of liberties.
static int32_t slow_liberties(const Slow* slow, int32_t point, bool* group) {
    bool seen[CELLS] = {0};
    int32_t stack[CELLS], size = 0, liberties = 0;
    memset(group, 0, CELLS);
    stack[size++] = point;
    group[point] = true;
    while (size) {
        const int32_t from = stack[--size];
        for (int32_t d = 0; d < 4; d++) {
            static const int32_t rows[4] = {-1, 1, 0, 0}, cols[4] = {0, 0, -1, 1};
            const int32_t row = from / SIDE + rows[d], col = from % SIDE + cols[d];
            const int32_t to = SIDE * row + col;
            if (row < 0 || row >= SIDE || col < 0 || col >= SIDE) continue;
            if (slow->points[to] < 0 && !seen[to]) {
                seen[to] = true;
                liberties++;
            }
            if (slow->points[to] == slow->points[point] && !group[to]) {
                group[to] = true;
                stack[size++] = to;
            }
        }
    }
    return liberties;
}

// Plays without regard to ko; whether the move is no suicide. Returns the captured stones.
static bool slow_play(Slow* slow, int32_t side, int32_t point, int32_t* captured) {
    bool group[CELLS];
    *captured = 0;
    slow->points[point] = (int8_t)side;
    for (int32_t i = 0; i < CELLS; i++) {
        if (slow->points[i] != (side ^ 1) || slow_liberties(slow, i, group)) continue;
        for (int32_t k = 0; k < CELLS; k++)
            if (group[k]) {
                slow->points[k] = -1;
                ++*captured;
            }
    }
    return slow_liberties(slow, point, group) > 0;
}

static int32_t slow_margin(const Slow* slow) {
    int32_t margin = 0;
    bool region[CELLS], rim;
    for (int32_t i = 0; i < CELLS; i++) {
        if (slow->points[i] >= 0) {
            margin += slow->points[i] ? -1 : 1;
            continue;
        }
        bool touches[2] = {false, false};
        slow_liberties(slow, i, region);
        for (int32_t k = 0; k < CELLS; k++)
            for (int32_t j = 0; j < CELLS; j++) {
                const int32_t apart = abs(k / SIDE - j / SIDE) + abs(k % SIDE - j % SIDE);
                rim = region[k] && apart == 1 && slow->points[j] >= 0;
                if (rim) touches[slow->points[j]] = true;
            }
        if (touches[0] != touches[1]) margin += touches[0] ? 1 : -1;
    }
    return margin;
}

static void test_random_games_follow_the_oracle(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    PufRng rng = {1};
    bool boards = true, legals = true, liberties = true, margins = true, kos = true;
    int32_t captures = 0, suicides = 0;
    for (int32_t i = 0; i < 3000; i++) {
        const int32_t mover = env->duel.mover;
        const Slow before = slow_of(env);
        const Bits empty = BOARD & ~(env->stones[0] | env->stones[1]);
        const Groups groups = find_groups(env->stones[mover], empty);
        for (int32_t k = 0; k < CELLS; k++) {
            bool group[CELLS];
            if (before.points[k] == mover) {
                const int32_t number = slow_liberties(&before, k, group);
                liberties = liberties && (number == 1) == !!(groups.one & bit_of(k)) &&
                            (number == 2) == !!(groups.two & bit_of(k));
            }
            int32_t captured;
            Slow after = before;
            const bool fits = before.points[k] < 0 && slow_play(&after, mover, k, &captured);
            suicides += before.points[k] < 0 && !fits;
            legals = legals && (fits && env->ko != bit_of(k)) == !!(env->legal & bit_of(k)) &&
                     rig.action_masks[mover * NUM_ACTIONS + k] == !!(env->legal & bit_of(k));
        }
        margins = margins && area_margin(env) == slow_margin(&before);
        const Bits point = puf_pick_bit(&rng, env->legal);
        if (!point) {
            puf_vec_reset(rig.vec, (uint64_t)i);
            continue;
        }
        int32_t action = 0, captured = 0;
        while (bit_of(action) != point) action++;
        rig.actions[mover] = action;
        puf_vec_step(rig.vec, NULL);
        if (rig.terminals[0]) continue;
        Slow expected = before, now = slow_of(env);
        slow_play(&expected, mover, action, &captured);
        boards = boards && !memcmp(&expected, &now, sizeof now);
        captures += captured;
        bool group[CELLS];
        int32_t size = 0;
        const int32_t number = slow_liberties(&expected, action, group);
        for (int32_t k = 0; k < CELLS; k++) size += group[k];
        kos = kos && (env->ko != 0) == (captured == 1 && size == 1 && number == 1);
    }
    CHECK(boards);
    CHECK(legals);
    CHECK(liberties);
    CHECK(margins);
    CHECK(kos);
    CHECK(captures > 300 && suicides > 300);
    rig_destroy(&rig);
}

// ---- Captures, suicide, ko ----------------------------------------------------------------------

static void test_a_group_without_liberties_is_captured(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 0,
        ".x....."
        "xoo...."
        ".xx...."
        "......."
        "......."
        "......."
        "......o");
    play(&rig, 0, 2);  // one liberty, (1, 3), is left
    CHECK(env->stones[1] & at(1, 1));
    env->duel.mover = 0;
    env->legal = find_moves(env);
    play(&rig, 1, 3);
    CHECK(env->stones[1] == at(6, 6) && env->legal & at(1, 1));
    rig_destroy(&rig);
}

static void test_suicide_is_illegal_unless_it_captures(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 0,
        ".o....."
        "o......"
        "......."
        "......."
        "......."
        "......."
        ".......");
    CHECK(!(env->legal & at(0, 0)));  // one stone
    lay(env, 0,
        "x.o...."
        "oo....."
        "......."
        "......."
        "......."
        "......."
        ".......");
    CHECK(!(env->legal & at(0, 1)));  // it would fill its own group's last liberty
    lay(env, 0,
        ".ox...."
        "ox....."
        "x......"
        "......."
        "......."
        "......."
        ".......");
    CHECK(env->legal & at(0, 0));  // two captures
    play(&rig, 0, 0);
    CHECK(env->stones[1] == 0 && env->stones[0] & at(0, 0) && !env->ko);
    rig_destroy(&rig);
}

static void test_ko_forbids_to_recapture_at_once_only(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 0,
        "......."
        "..xo..."
        ".xo.o.."
        "..xo..."
        "......."
        "......."
        ".......");
    play(&rig, 2, 3);  // takes the stone at (2, 2)
    CHECK(!(env->stones[1] & at(2, 2)) && env->ko == at(2, 2));
    CHECK(!rig.action_masks[NUM_ACTIONS + SIDE * 2 + 2]);
    CHECK(rig.obs[OBS + 3 * CELLS + SIDE * 2 + 2] == -1);
    play(&rig, 6, 6);  // a threat elsewhere
    play(&rig, 6, 0);  // and an answer
    CHECK(env->ko == 0 && env->legal & at(2, 2));
    play(&rig, 2, 2);  // now it may
    CHECK(!(env->stones[0] & at(2, 3)) && env->ko == at(2, 3));
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_two_passes_end_the_game_and_area_with_komi_decides(void) {
    static const char* const board =
        "..x.o.."
        "..x.o.."
        "..x.o.."
        "..x.o.."
        "..xxo.."
        "...xo.."
        "...xo..";
    // x: 8 stones and 16 points to the left; o: 7 stones and 14 points; 4 points touch both.
    for (int32_t komi = 2; komi <= 4; komi++)
        for (int32_t black = 0; black < 2; black++) {
            Rig rig = RIG_START(&puf_env_go, 1, 1, {"opponent", PUF_SELF}, {"komi", komi});
            Go* env = env_of(&rig);
            lay(env, 0, board);
            env->black = black;
            CHECK(area_margin(env) == 3);
            rig.actions[0] = rig.actions[1] = PASS;
            puf_vec_step(rig.vec, NULL);
            CHECK(!rig.terminals[0] && env->passes == 1 && env->duel.mover == 1);
            CHECK(rig.obs[OBS + NUM_PLANES * CELLS + 1] == 1);  // agent 1 sees the pass
            puf_vec_step(rig.vec, NULL);
            CHECK(rig.terminals[0] && rig.terminals[1]);
            const int32_t margin = black == 0 ? 3 - komi : 3 + komi;
            const float result = (float)((margin > 0) - (margin < 0));
            // Of the margin one stone has been paid for before: x has 8, o has 7.
            const float reward = result + 0.01f * (float)(margin - 1);
            CHECK(fabsf(rig.rewards[0] - reward) < 1e-6f && rig.rewards[1] == -rig.rewards[0]);
            PufStats stats;
            puf_vec_drain(rig.vec, &stats);
            CHECK(stats.metrics[1] == 0.5 + 0.5 * (double)result);
            CHECK(stats.metrics[3] == 2 && stats.metrics[4] == margin);
            rig_destroy(&rig);
        }
}

static void test_stones_are_paid_at_once_and_the_rest_of_the_margin_at_the_end(void) {
    for (int32_t opponent = PUF_SCRIPTED; opponent <= PUF_RANDOM; opponent++) {
        Rig rig = RIG_START(&puf_env_go, 1, 5, {"opponent", opponent}, {"reward_point", 0.5});
        const Go* env = env_of(&rig);
        // An opponent that begins has a stone on the board that nothing was paid for.
        const float first = (float)stone_lead(env);
        float sum = 0;
        bool captured = false;
        PufRng rng = {3};
        for (int32_t i = 0; i < 400; i++) {
            const int32_t lead = stone_lead(env);
            rig_act(&rig, &rng);
            puf_vec_step(rig.vec, NULL);
            sum += rig.rewards[0];
            if (opponent == PUF_SELF) CHECK(rig.rewards[1] == -rig.rewards[0]);
            if (rig.terminals[0]) break;
            CHECK(rig.rewards[0] == 0.5f * (float)(stone_lead(env) - lead));
            captured = captured || abs(stone_lead(env) - lead) > 1;
        }
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(captured && stats.samples == 1);
        CHECK(fabs((double)sum - stats.metrics[0] - 0.5 * (stats.metrics[4] - (double)first)) <
              1e-4);
        rig_destroy(&rig);
    }
}

static void test_a_stone_between_passes_keeps_the_game_going(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    rig.actions[0] = rig.actions[1] = PASS;
    puf_vec_step(rig.vec, NULL);
    play(&rig, 3, 3);
    CHECK(env->passes == 0);
    rig.actions[0] = rig.actions[1] = PASS;
    puf_vec_step(rig.vec, NULL);
    CHECK(!rig.terminals[0] && env->moves == 3);
    rig_destroy(&rig);
}

static void test_the_game_is_scored_after_max_moves(void) {
    Rig rig = RIG_START(&puf_env_go, 1, 1, {"opponent", PUF_SELF}, {"max_moves", 5});
    for (int32_t i = 1; i <= 5; i++) {
        play(&rig, i, i);
        CHECK(rig.terminals[0] == (i == 5));
    }
    rig_destroy(&rig);
}

// ---- Opponents ----------------------------------------------------------------------------------

static void test_the_script_captures_then_saves(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Go* env = env_of(&rig);
    for (int32_t seed = 0; seed < 20; seed++) {
        env->slots.rng.state = (uint64_t)seed;
        lay(env, 1,
            "......."
            ".x....."
            "xo....."
            ".x..o.."
            "...oxo."
            "......."
            ".......");
        CHECK(answer(env) == at(5, 4));  // takes x, although its own stone at (2, 1) is in danger
        env->stones[0] &= ~at(4, 4);
        env->legal = find_moves(env);
        CHECK(answer(env) == at(2, 2));  // the only way out
    }
    rig_destroy(&rig);
}

static void test_the_script_keeps_its_eyes_and_passes_at_the_end(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 1,
        ".o.oooo"
        "ooooooo"
        "ooooooo"
        "ooooooo"
        "ooooooo"
        "ooooooo"
        "ooooooo");
    CHECK(env->legal == (at(0, 0) | at(0, 2)) && answer(env) == 0);
    env->duel.opponent_random = 1;
    for (int32_t i = 0; i < 20; i++) CHECK(answer(env) == 0);
    // It does not play into a capture: both points of the gap would have one liberty.
    lay(env, 1,
        "..xxxxx"
        "xxxxxxx"
        "xxxxxxx"
        "xxxxxxx"
        "xxxxxxx"
        "xxxxxxx"
        "xxxxxx.");
    env->duel.opponent_random = 0;
    CHECK(env->legal == (at(0, 0) | at(0, 1)) && answer(env) == 0);
    // Ahead after a pass, it passes too; behind, it goes on.
    lay(env, 1,
        "......."
        "......."
        "..o...."
        "......."
        "......."
        "......."
        ".......");
    env->passes = 1;
    CHECK(answer(env) == 0);  // 49 points
    env->stones[0] = env->stones[1];
    env->stones[1] = 0;
    env->legal = find_moves(env);
    CHECK(answer(env) != 0);
    rig_destroy(&rig);
}

static void test_the_script_beats_random_play_and_games_end(void) {
    Rig rig = game_against(PUF_SCRIPTED, 0, 32);
    PufRng rng = {1};
    for (int32_t i = 0; i < 300; i++) {
        for (int32_t k = 0; k < 32; k++) rig.actions[k] = puf_rand_int(&rng, NUM_ACTIONS);
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples > 100 && stats.metrics[1] / (double)stats.samples < 0.1);
    rig_destroy(&rig);
}

static void test_a_coin_decides_who_is_black(void) {
    for (int32_t opponent = PUF_SCRIPTED; opponent <= PUF_RANDOM; opponent++) {
        Rig rig = game_against(opponent, 0.1, 1000);
        int32_t second = 0;
        for (int32_t i = 0; i < 1000; i++) {
            const Go* env = rig_env(&rig, i);
            second += env->black;
            CHECK(env->moves == (opponent == PUF_SELF ? 0 : env->black));
            CHECK(env->duel.mover == (opponent == PUF_SELF ? env->black : 0));
        }
        CHECK(second > 400 && second < 600);  // 500, standard deviation 16
        rig_destroy(&rig);
    }
}

// ---- Rows ---------------------------------------------------------------------------------------

static void test_planes_show_stones_and_liberties_from_the_agents_side(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 0,
        "o......"
        "......."
        "......."
        "......."
        "......."
        "......."
        "......o");
    play(&rig, 0, 1);  // o in the corner has one liberty, x has two, o at the other end too
    const float *waits = rig.obs, *moves = rig.obs + OBS;
    CHECK(moves[0] == 1 && moves[1] == -1 && moves[48] == 1 && moves[2] == 0);
    CHECK(moves[CELLS] == 1 && moves[CELLS + 1] == 0 && moves[CELLS + 48] == 0);
    CHECK(moves[2 * CELLS] == 0 && moves[2 * CELLS + 1] == -1 && moves[2 * CELLS + 48] == 1);
    for (int32_t i = 0; i < 3 * CELLS; i++) CHECK(waits[i] == -0.5f * moves[i]);
    CHECK(waits[NUM_PLANES * CELLS] == 0.5f && moves[NUM_PLANES * CELLS] == -1);  // black, white
    for (int32_t i = 0; i < NUM_ACTIONS; i++) CHECK(rig.action_masks[i] == (i == 0));
    CHECK(rig.action_masks[NUM_ACTIONS + PASS] && !rig.action_masks[NUM_ACTIONS]);
    rig_destroy(&rig);
}

static void test_illegal_actions_become_the_next_legal_point(void) {
    Rig rig = game_against(PUF_SELF, 0, 1);
    Go* env = env_of(&rig);
    lay(env, 0,
        "......."
        "......."
        "......."
        "......."
        "......."
        ".....oo"
        ".....o.");
    play(&rig, 5, 5);  // taken, and so is the next point: the next one is (6, 0)
    CHECK(env->stones[0] == at(6, 0));
    env->duel.mover = 0;
    env->legal = find_moves(env);
    play(&rig, 6, 6);  // suicide: around to the top left
    CHECK(env->stones[0] & at(0, 0));
    rig_destroy(&rig);
}

int main(void) {
    test_random_games_follow_the_oracle();
    test_a_group_without_liberties_is_captured();
    test_suicide_is_illegal_unless_it_captures();
    test_ko_forbids_to_recapture_at_once_only();
    test_two_passes_end_the_game_and_area_with_komi_decides();
    test_stones_are_paid_at_once_and_the_rest_of_the_margin_at_the_end();
    test_a_stone_between_passes_keeps_the_game_going();
    test_the_game_is_scored_after_max_moves();
    test_the_script_captures_then_saves();
    test_the_script_keeps_its_eyes_and_passes_at_the_end();
    test_the_script_beats_random_play_and_games_end();
    test_a_coin_decides_who_is_black();
    test_planes_show_stones_and_liberties_from_the_agents_side();
    test_illegal_actions_become_the_next_legal_point();
    return CHECK_DONE();
}
