// The rules of lightsout: presses, quiet patterns and par against plain searches.
#include "envs/lightsout.c"
#include "tests/check.h"
#include "tests/rig.h"

static Board* env_of(const Rig* rig) { return rig_env(rig, 0); }

// The lights after one press, cell by cell.
static Bits slow_press(int32_t side, Bits lights, int32_t cell) {
    static const int32_t rows[5] = {0, -1, 1, 0, 0}, cols[5] = {0, 0, 0, -1, 1};
    for (int32_t i = 0; i < 5; i++) {
        const int32_t row = cell / side + rows[i], col = cell % side + cols[i];
        if (row >= 0 && row < side && col >= 0 && col < side)
            lights ^= (Bits)1 << (side * row + col);
    }
    return lights;
}

static void test_a_press_toggles_a_light_and_its_neighbours_on_any_board(void) {
    for (int32_t side = 2; side <= MAX_SIDE; side++) {
        Board board = {.side = side};
        for (int32_t cell = 0; cell < side * side; cell++)
            CHECK(toggled(&board, (Bits)1 << cell) == slow_press(side, 0, cell));
    }
}

// Breadth first over all 2^16 boards of 4 x 4 cells, and over a sample of 5 x 5: the least number
// of presses that leads from the dark board to each one.
static void test_par_is_the_length_of_the_shortest_solution(void) {
    enum { SIDE = 5, NEAR = 6 };
    for (int32_t side = 4; side <= SIDE; side++) {
        const int32_t cells = side * side;
        uint8_t* depth = malloc((size_t)1 << cells);
        uint32_t* queue = malloc(sizeof(uint32_t) << (cells - (side == 5 ? 2 : 4)));
        if (!depth || !queue) abort();
        memset(depth, 255, (size_t)1 << cells);
        int32_t head = 0, tail = 0;
        depth[0] = 0;
        queue[tail++] = 0;
        while (head < tail) {
            const uint32_t lights = queue[head++];
            if (depth[lights] == NEAR && side == 5) break;  // the rest takes too long
            for (int32_t cell = 0; cell < cells; cell++) {
                const Bits next = slow_press(side, lights, cell);
                if (depth[next] != 255) continue;
                depth[next] = depth[lights] + 1;
                queue[tail++] = (uint32_t)next;
            }
        }
        if (side == 4) CHECK(tail == 1 << 12);  // 2^16 boards / 2^4 quiet patterns
        PufRng rng = {1};
        bool equal = true, farther = true;
        int32_t shortened = 0;
        for (int32_t i = 0; i < 20000; i++) {
            Board board = {.side = side, .solution = puf_rand_u64(&rng) & (((Bits)1 << cells) - 1)};
            const int32_t least = distance(&board);
            const uint8_t found = depth[toggled(&board, board.solution)];
            if (found != 255)
                equal = equal && least == found;
            else
                farther = farther && least > NEAR;
            shortened += least < __builtin_popcountll(board.solution);
        }
        CHECK(equal);
        CHECK(farther);
        CHECK(shortened > 5000);  // quiet patterns matter
        free(depth);
        free(queue);
    }
}

// Without quiet patterns every board has one solution only, so its presses are par: the toggles of
// single cells must be independent (Gaussian elimination).
static void test_other_boards_have_no_quiet_patterns(void) {
    static const int32_t nullity[MAX_SIDE + 1] = {[4] = 4, [5] = 2};
    for (int32_t side = 2; side <= MAX_SIDE; side++) {
        Board board = {.side = side};
        Bits rows[MAX_CELLS];
        int32_t rank = 0;
        for (int32_t cell = 0; cell < side * side; cell++) {
            Bits lights = toggled(&board, (Bits)1 << cell);
            for (int32_t i = 0; i < rank; i++)
                if (lights & (rows[i] & -rows[i])) lights ^= rows[i];
            if (lights) rows[rank++] = lights;
        }
        CHECK(side * side - rank == nullity[side]);
    }
}

static void test_boards_have_a_known_solution_and_a_light(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 2000, 3, {"presses", 6}, {"max_steps", 30});
    int32_t counts[7] = {0};
    for (int32_t i = 0; i < 2000; i++) {
        const Board* env = rig_env(&rig, i);
        const int32_t presses = __builtin_popcountll(env->solution);
        Bits lights = env->lights;
        CHECK(lights && presses >= 1 && presses <= 6 && env->par >= 1 && env->par <= presses);
        counts[presses]++;
        for (int32_t cell = 0; cell < 25; cell++)
            if (env->solution >> cell & 1) lights = slow_press(5, lights, cell);
        CHECK(!lights);
    }
    for (int32_t i = 1; i <= 6; i++) CHECK(abs(counts[i] - 333) < 84);  // 5 sigma
    rig_destroy(&rig);
}

static void test_many_presses_leave_a_light_too_and_par_counts_the_fewest(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 40000, 3, {"side", 4}, {"presses", 16});
    bool light = true, par = true;
    int32_t shortened = 0;
    for (int32_t i = 0; i < 40000; i++) {  // about one set of presses in 4096 is a quiet pattern
        const Board* env = rig_env(&rig, i);
        light = light && env->lights;
        par = par && env->par == distance(env) && env->remaining == env->par;
        shortened += env->par < __builtin_popcountll(env->solution);
    }
    CHECK(light);
    CHECK(par);
    CHECK(shortened > 10000);
    rig_destroy(&rig);
}

static void test_the_solution_in_par_presses_ends_with_perf_1(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 1, 9, {"presses", 8}, {"max_steps", 50});
    Board* env = env_of(&rig);
    env->solution = 1 << 0 | 1 << 7 | 1 << 24;
    env->lights = toggled(env, env->solution);
    env->par = env->remaining = distance(env);
    CHECK(env->par == 3);
    rig_play(&rig, 7);
    CHECK(rig.rewards[0] == 0.1f && !rig.terminals[0]);
    rig_play(&rig, 0);
    rig_play(&rig, 24);
    CHECK(rig.terminals[0] && rig.rewards[0] == 0.2f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 0);
    CHECK(fabs(stats.return_sum - 0.4) < 1e-6);
    rig_destroy(&rig);
}

static void test_a_wrong_press_costs_and_lowers_perf(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 1, 9, {"presses", 8}, {"max_steps", 50});
    Board* env = env_of(&rig);
    env->solution = 1 << 12;  // a plus in the middle
    env->lights = toggled(env, env->solution);
    env->par = env->remaining = distance(env);
    rig_play(&rig, 0);
    CHECK(rig.rewards[0] == -0.1f && env->remaining == 2);
    rig_play(&rig, 0);
    CHECK(rig.rewards[0] == 0.1f && env->remaining == 1);
    rig_play(&rig, 12);
    CHECK(rig.terminals[0] && rig.rewards[0] == 0.2f);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(fabs(stats.metrics[1] - 1.0 / 3) < 1e-6 && stats.metrics[2] == 2);
    rig_destroy(&rig);
}

static void test_episodes_are_truncated_at_max_steps(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 1, 1, {"side", 8}, {"presses", 64}, {"max_steps", 4});
    for (int32_t i = 1; i <= 4; i++) {
        env_of(&rig)->solution = (Bits)1 << 20 | (Bits)1 << 50;  // never the last press
        rig_play(&rig, 0);
        CHECK(rig.truncations[0] == (i == 4) && !rig.terminals[0]);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 1 && stats.metrics[0] == 0 && stats.metrics[1] == 0);
    rig_destroy(&rig);
}

static void test_lights_are_observed_row_by_row(void) {
    Rig rig = RIG_START(&puf_env_lightsout, 1, 9, {"side", 3}, {"max_steps", 50});
    Board* env = env_of(&rig);
    env->solution = 0;
    rig_play(&rig, 1);  // the middle of the first row
    static const uint8_t seen[9] = {1, 1, 1, 0, 1, 0, 0, 0, 0};
    CHECK(!memcmp(rig.obs_u8, seen, 9));
    rig_destroy(&rig);
}

int main(void) {
    test_a_press_toggles_a_light_and_its_neighbours_on_any_board();
    test_par_is_the_length_of_the_shortest_solution();
    test_other_boards_have_no_quiet_patterns();
    test_boards_have_a_known_solution_and_a_light();
    test_many_presses_leave_a_light_too_and_par_counts_the_fewest();
    test_the_solution_in_par_presses_ends_with_perf_1();
    test_a_wrong_press_costs_and_lowers_perf();
    test_episodes_are_truncated_at_max_steps();
    test_lights_are_observed_row_by_row();
    return CHECK_DONE();
}
