// The rules of minesweeper on fields laid out by hand, and statistics of how mines are laid.
#include "envs/minesweeper.c"
#include "tests/check.h"
#include "tests/rig.h"

static Field* env_of(const Rig* rig) { return rig_env(rig, 0); }

static Rig field(int32_t width, int32_t height, int32_t mines) {
    return RIG_START(&puf_env_minesweeper, 1, 3, {"width", width}, {"height", height},
                     {"mines", mines}, {"max_steps", 200});
}

// A field from its rows, '*' is a mine, with `first` open: the number of '*' is the param `mines`.
static void lay(Field* env, const char* rows, int32_t first) {
    reset(env);
    for (int32_t i = 0; i < num_cells(env); i++)
        if (rows[i] == '*') env->numbers[i] = MINE;
    for (int32_t i = 0; i < num_cells(env); i++) {
        if (env->numbers[i] == MINE) continue;
        for (int32_t k = 0; k < num_cells(env); k++)
            env->numbers[i] += env->numbers[k] == MINE &&
                               abs(i / env->width - k / env->width) <= 1 &&
                               abs(i % env->width - k % env->width) <= 1;
    }
    env->open[first] = 1;
    env->opened = 1;
}

static void test_the_first_click_is_safe_and_mines_lie_evenly_elsewhere(void) {
    enum { GAMES = 6000, MINES = 7, CELLS = 20, CLICK = 6 };
    Rig rig = RIG_START(&puf_env_minesweeper, GAMES, 1, {"width", 5}, {"height", 4},
                        {"mines", MINES}, {"max_steps", 200});
    int32_t where[CELLS] = {0};
    rig_play(&rig, CLICK);
    for (int32_t i = 0; i < GAMES; i++) {
        const Field* env = rig_env(&rig, i);
        CHECK(rig.rewards[i] > 0);
        if (rig.terminals[i]) continue;  // solved by the first click
        int32_t mines = 0;
        for (int32_t k = 0; k < CELLS; k++) {
            mines += env->numbers[k] == MINE;
            where[k] += env->numbers[k] == MINE;
        }
        CHECK(mines == MINES && env->open[CLICK]);
    }
    CHECK(where[CLICK] == 0);
    // 7 of 19 cells have a mine: 2210 of 6000, standard deviation 38; few games are solved at once
    for (int32_t k = 0; k < CELLS; k++) CHECK(k == CLICK || abs(where[k] - 2210) < 190);
    rig_destroy(&rig);
}

static void test_even_a_full_field_spares_the_first_click(void) {
    Rig rig = field(3, 3, 255);
    rig_play(&rig, 4);  // eight mines around: one safe cell, solved
    CHECK(rig.terminals[0] && rig.rewards[0] == 2);
    rig_destroy(&rig);
}

static void test_numbers_count_the_mines_around(void) {
    Rig rig = field(4, 3, 5);
    for (int32_t i = 0; i < 50; i++) {
        puf_vec_reset(rig.vec, (uint64_t)i);
        Field* env = env_of(&rig);
        rig_play(&rig, i % 12);
        if (rig.terminals[0]) continue;
        for (int32_t cell = 0; cell < 12; cell++) {
            if (env->numbers[cell] == MINE) continue;
            int32_t count = 0;
            for (int32_t k = 0; k < 12; k++)
                count += env->numbers[k] == MINE && abs(cell / 4 - k / 4) <= 1 &&
                         abs(cell % 4 - k % 4) <= 1;
            CHECK(env->numbers[cell] == count);
        }
    }
    rig_destroy(&rig);
}

static void test_a_zero_opens_its_neighbours_and_those_of_zeros_it_reaches(void) {
    // Numbers:  0 1 * 1 0     A click at the top left opens column 0 and the column of numbers
    //           0 1 1 1 0     beside it, and the row below: zeros wind around the mine to the
    //           0 0 0 0 0     right edge. Only the mine stays closed.
    //           1 1 0 1 1     The two mines in the last row stay closed too, behind their numbers.
    //           * 1 0 1 *
    Rig rig = field(5, 5, 3);
    Field* env = env_of(&rig);
    lay(env,
        "..*.."
        "....."
        "....."
        "....."
        "*...*",
        3);
    rig_play(&rig, 0);
    CHECK(rig.terminals[0] && rig.rewards[0] > 1.9f);  // 21 of 22 safe cells, and solved
    lay(env,
        "..*.."
        "..*.."
        "..*.."
        "....."
        ".....",
        2 + 15);
    rig_play(&rig, 0);  // zeros of column 0 go down and around
    CHECK(rig.terminals[0]);
    // A wall of mines stops it: columns 0 and 1 of 5 rows open.
    lay(env,
        "..*.."
        "..*.."
        "..*.."
        "..*.."
        "..*..",
        4);
    env->mines = 5;
    rig_play(&rig, 0);
    CHECK(!rig.terminals[0] && env->opened == 11);
    for (int32_t i = 0; i < 25; i++) CHECK(env->open[i] == (i % 5 < 2 || i == 4));
    rig_destroy(&rig);
}

static void test_a_number_opens_alone(void) {
    Rig rig = field(3, 3, 1);
    Field* env = env_of(&rig);
    lay(env,
        "*.."
        "..."
        "...",
        4);
    rig_play(&rig, 1);
    CHECK(env->opened == 2 && env->open[1] && fabsf(rig.rewards[0] - 1.0f / 8) < 1e-6f);
    rig_destroy(&rig);
}

static void test_a_mine_ends_the_game(void) {
    Rig rig = field(3, 3, 1);
    lay(env_of(&rig),
        "*.."
        "..."
        "...",
        4);
    rig_play(&rig, 0);
    CHECK(rig.terminals[0] && rig.rewards[0] == -1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 0 && stats.metrics[1] == 0 && stats.metrics[2] == 0.125);
    CHECK(env_of(&rig)->opened == 0);
    rig_destroy(&rig);
}

static void test_the_last_safe_cell_solves_it(void) {
    Rig rig = field(2, 2, 2);
    lay(env_of(&rig),
        "*."
        "*.",
        1);
    rig_play(&rig, 3);
    CHECK(rig.terminals[0] && rig.rewards[0] == 1.5f);  // half of the safe cells, and solved
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && stats.metrics[1] == 1 && stats.metrics[2] == 1);
    rig_destroy(&rig);
}

static void test_open_cells_are_masked_and_clicks_on_them_do_nothing(void) {
    Rig rig = RIG_START(&puf_env_minesweeper, 1, 3, {"width", 3}, {"height", 3}, {"mines", 1},
                        {"max_steps", 6});
    Field* env = env_of(&rig);
    lay(env,
        "*.."
        "..."
        "...",
        4);
    for (int32_t i = 1; i <= 6; i++) {
        rig_play(&rig, 4);
        CHECK(rig.rewards[0] == 0 && rig.truncations[0] == (i == 6));
        if (i == 6) break;
        CHECK(env->opened == 1);
        for (int32_t cell = 0; cell < 9; cell++) {
            CHECK(rig.action_masks[cell] == (cell != 4));
            for (int32_t kind = 0; kind < KINDS; kind++)  // cell 4 shows 1, the others are closed
                CHECK(rig.obs_u8[cell * KINDS + kind] ==
                      (kind == (cell == 4 ? NUMBER + 1 : CLOSED)));
        }
    }
    rig_destroy(&rig);
}

static void test_certain_mines_are_flagged_and_taken_off_the_numbers_around(void) {
    Rig rig = field(4, 3, 2);
    Field* env = env_of(&rig);
    lay(env,
        "*..."
        "...."
        "...*",
        1);
    for (int32_t cell = 2; cell < 10; cell++) env->open[cell] = cell != 7;
    observe(env);
    // Open are 1 to 6, 8 and 9; closed 0, 7, 10 and 11. The 1 of cell 4 has one closed neighbour,
    // 0, which is a mine; so nothing is left of the 1 of cells 1, 4 and 5. Cells 2 and 3 show 0,
    // with 7 closed by hand only. Cell 6 shows 1, with 7, 10 and 11 closed: no flag.
    static const uint8_t kinds[12] = {FLAGGED,    NUMBER, NUMBER, NUMBER, NUMBER, NUMBER,
                                      NUMBER + 1, CLOSED, NUMBER, NUMBER, CLOSED, CLOSED};
    for (int32_t cell = 0; cell < 12; cell++)
        for (int32_t kind = 0; kind < KINDS; kind++)
            CHECK(rig.obs_u8[cell * KINDS + kind] == (kind == kinds[cell]));
    rig_destroy(&rig);
}

int main(void) {
    test_the_first_click_is_safe_and_mines_lie_evenly_elsewhere();
    test_even_a_full_field_spares_the_first_click();
    test_numbers_count_the_mines_around();
    test_a_zero_opens_its_neighbours_and_those_of_zeros_it_reaches();
    test_a_number_opens_alone();
    test_a_mine_ends_the_game();
    test_the_last_safe_cell_solves_it();
    test_open_cells_are_masked_and_clicks_on_them_do_nothing();
    test_certain_mines_are_flagged_and_taken_off_the_numbers_around();
    return CHECK_DONE();
}
