// The rules of snake on boards laid out by hand, and its invariants under random play.
#include "envs/snake.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT };

#define BOARD(...) RIG_START(&puf_env_snake, 1, 1, __VA_ARGS__)

static Arena* env_of(const Rig* rig) { return rig_env(rig, 0); }

static int32_t cell_at(const Arena* env, int32_t row, int32_t col) {
    return (row + env->vision) * stride_of(env) + col + env->vision;
}

static uint8_t board_at(const Arena* env, int32_t row, int32_t col) {
    return board_of(env)[cell_at(env, row, col)];
}

// An empty board without food, and none to come; every snake must be laid before the next step.
static Arena* sweep(Rig* rig) {
    Arena* env = env_of(rig);
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++)
            board_of(env)[cell_at(env, row, col)] = EMPTY;
    env->food = env->num_food = 0;
    return env;
}

static void put_food(Arena* env, int32_t row, int32_t col) {
    board_of(env)[cell_at(env, row, col)] = FOOD;
    env->food++;
    env->num_food++;
}

// Lays a snake: its head at (row, col), the rest along `path`, which leads from head to tail.
static void lay(Arena* env, int32_t agent, int32_t row, int32_t col, const char* path) {
    int32_t size = 1 + (int32_t)strlen(path);
    Snake* snake = &snakes_of(env)[agent];
    *snake = (Snake){.head = 7, .size = (uint16_t)size, .length = (uint16_t)size};
    for (int32_t i = 0; i < size; i++) {
        if (i > 0) {
            row += (path[i - 1] == 'D') - (path[i - 1] == 'U');
            col += (path[i - 1] == 'R') - (path[i - 1] == 'L');
        }
        int32_t cell = cell_at(env, row, col);
        *cell_of(env, agent, i) = (uint16_t)cell;
        board_of(env)[cell] = (uint8_t)(i ? BODY + agent : HEAD);
    }
    // It came from its neck: moves against the first letter of the path.
    snake->direction = path[0] == 'D' ? UP : path[0] == 'L' ? RIGHT : path[0] == 'U' ? DOWN : LEFT;
}

static void step_with(Rig* rig, const int32_t* actions) {
    memcpy(rig->actions, actions, (size_t)rig->num_slots * sizeof(int32_t));
    puf_vec_step(rig->vec, NULL);
}
#define STEP(rig, ...) step_with(rig, (const int32_t[]){__VA_ARGS__})

static bool head_is_at(const Arena* env, int32_t agent, int32_t row, int32_t col) {
    return *cell_of(env, agent, 0) == cell_at(env, row, col) && board_at(env, row, col) == HEAD;
}

// ---- Moves --------------------------------------------------------------------------------------

static void test_actions_are_absolute_directions(void) {
    static const int32_t rows[4] = {9, 10, 11, 10}, cols[4] = {10, 11, 10, 9};
    static const char* const paths[4] = {"DD", "LL", "UU", "RR"};
    for (int32_t action = 0; action < 4; action++) {
        Rig rig = BOARD({"num_agents", 1});
        Arena* env = sweep(&rig);
        lay(env, 0, 10, 10, paths[action]);
        STEP(&rig, action);
        CHECK(head_is_at(env, 0, rows[action], cols[action]));
        CHECK(snakes_of(env)[0].size == 3 && rig.rewards[0] == 0 && !rig.terminals[0]);
        rig_destroy(&rig);
    }
}

static void test_a_turn_against_the_neck_is_ignored(void) {
    Rig rig = BOARD({"num_agents", 1});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    STEP(&rig, LEFT);
    CHECK(head_is_at(env, 0, 10, 11));
    CHECK(board_at(env, 10, 8) == EMPTY && board_at(env, 10, 9) == BODY);
    rig_destroy(&rig);
}

static void test_a_new_snake_unfolds_and_may_start_in_any_direction(void) {
    for (int32_t action = 0; action < 4; action++) {
        Rig rig = BOARD({"num_agents", 1}, {"initial_length", 3});
        Arena* env = sweep(&rig);
        lay(env, 0, 10, 10, "");
        snakes_of(env)[0].length = 3;
        snakes_of(env)[0].direction = UP;
        STEP(&rig, action);
        CHECK(snakes_of(env)[0].size == 2 && board_at(env, 10, 10) == BODY);
        STEP(&rig, action);
        CHECK(snakes_of(env)[0].size == 3 && board_at(env, 10, 10) == BODY);
        STEP(&rig, action);
        CHECK(snakes_of(env)[0].size == 3 && board_at(env, 10, 10) == EMPTY);
        rig_destroy(&rig);
    }
}

static void test_a_head_may_enter_the_cell_that_a_tail_leaves(void) {
    // Four cells in a square; the head goes down onto its own tail, which moves on.
    Rig rig = BOARD({"num_agents", 1});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "RDL");
    STEP(&rig, DOWN);
    CHECK(!rig.terminals[0] && head_is_at(env, 0, 11, 10));
    rig_destroy(&rig);
}

static void test_the_tail_of_a_growing_snake_stays_and_is_deadly(void) {
    Rig rig = BOARD({"num_agents", 1});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "RDL");
    snakes_of(env)[0].length = 5;
    STEP(&rig, DOWN);
    CHECK(rig.terminals[0] && rig.rewards[0] == -1);
    rig_destroy(&rig);
}

// ---- Deaths -------------------------------------------------------------------------------------

static void test_walls_kill(void) {
    Rig rig = BOARD({"num_agents", 1}, {"width", 12}, {"height", 9});
    static const struct {
        int32_t row, col, action;
        const char* path;
    } edges[] = {{0, 5, UP, "D"}, {8, 5, DOWN, "U"}, {4, 0, LEFT, "R"}, {4, 11, RIGHT, "L"}};
    for (int32_t i = 0; i < 4; i++) {
        Arena* env = sweep(&rig);
        lay(env, 0, edges[i].row, edges[i].col, edges[i].path);
        STEP(&rig, edges[i].action);
        CHECK(rig.terminals[0] && rig.rewards[0] == -1 && !rig.truncations[0]);
        CHECK(snakes_of(env)[0].size == 1 && rig.masks[0] == 1);  // restarted at once
    }
    rig_destroy(&rig);
}

static void test_a_head_in_another_body_dies_alone(void) {
    Rig rig = BOARD({"num_agents", 2});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "DDD");
    lay(env, 1, 12, 9, "LL");  // faces (12, 10), in the middle of snake 0
    STEP(&rig, UP, RIGHT);
    CHECK(!rig.terminals[0] && rig.rewards[0] == 0 && snakes_of(env)[0].size == 4);
    CHECK(rig.terminals[1] && rig.rewards[1] == -1);
    CHECK(board_at(env, 12, 8) != BODY + 1 && board_at(env, 12, 7) != BODY + 1);
    CHECK(board_at(env, 12, 10) == BODY);
    rig_destroy(&rig);
}

static void test_heads_that_enter_one_cell_all_die_and_the_food_stays(void) {
    for (int32_t with_food = 0; with_food < 2; with_food++) {
        Rig rig = BOARD({"num_agents", 3});
        Arena* env = sweep(&rig);
        lay(env, 0, 10, 9, "LL");
        lay(env, 1, 10, 11, "RR");
        lay(env, 2, 9, 10, "UU");
        if (with_food) put_food(env, 10, 10);
        STEP(&rig, RIGHT, LEFT, DOWN);
        for (int32_t agent = 0; agent < 3; agent++)
            CHECK(rig.terminals[agent] && rig.rewards[agent] == -1);
        CHECK(!with_food || board_at(env, 10, 10) == FOOD);
        CHECK(env->food == with_food);
        rig_destroy(&rig);
    }
}

static void test_heads_that_would_swap_cells_both_die(void) {
    Rig rig = BOARD({"num_agents", 2});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    lay(env, 1, 10, 11, "RR");
    STEP(&rig, RIGHT, LEFT);
    CHECK(rig.terminals[0] && rig.terminals[1]);
    rig_destroy(&rig);
}

static void test_dead_snakes_leave_the_board_or_become_food(void) {
    for (int32_t leave_corpse = 0; leave_corpse < 2; leave_corpse++) {
        Rig rig = BOARD({"num_agents", 1}, {"leave_corpse", leave_corpse});
        Arena* env = sweep(&rig);
        lay(env, 0, 0, 5, "DDD");
        STEP(&rig, UP);
        // Its tail at row 3 left before the head hit the wall: cells at rows 0, 1, 2 are the
        // corpse.
        int32_t num_food = 0;
        for (int32_t row = 0; row < 4; row++) num_food += board_at(env, row, 5) == FOOD;
        CHECK(num_food == (leave_corpse ? 3 : 0));
        CHECK(env->food == num_food);
        rig_destroy(&rig);
    }
}

// ---- Food ---------------------------------------------------------------------------------------

static void test_food_grows_a_snake_from_the_next_tick_on(void) {
    Rig rig = BOARD({"num_agents", 1});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    put_food(env, 10, 11);
    STEP(&rig, RIGHT);
    CHECK(rig.rewards[0] == 0.2f && !rig.terminals[0]);
    CHECK(snakes_of(env)[0].length == 4 && snakes_of(env)[0].size == 3);
    CHECK(env->food == 1);  // another one was put down
    STEP(&rig, UP);
    CHECK(snakes_of(env)[0].size == 4);
    rig_destroy(&rig);
}

static void test_a_snake_of_max_length_eats_but_does_not_grow(void) {
    Rig rig = BOARD({"num_agents", 1}, {"max_length", 3});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    put_food(env, 10, 11);
    STEP(&rig, RIGHT);
    CHECK(rig.rewards[0] == 0.2f && snakes_of(env)[0].length == 3);
    rig_destroy(&rig);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void test_a_death_reports_the_length_and_its_share_of_the_target(void) {
    Rig rig = BOARD({"num_agents", 2}, {"target_length", 8});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    lay(env, 1, 0, 5, "DDDDD");
    uint8_t last_seen[121];
    memcpy(last_seen, rig.obs_u8 + 121, sizeof last_seen);
    STEP(&rig, RIGHT, UP);
    CHECK(!memcmp(rig.final_obs + 121, last_seen, sizeof last_seen));  // of its own episode
    CHECK(memcmp(rig.obs_u8 + 121, last_seen, sizeof last_seen));      // it lives elsewhere now
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.episodes == 1);
    CHECK(stats.metrics[0] == 6 && stats.metrics[1] == 0.75);  // 6 of 8
    rig_destroy(&rig);
}

static void test_max_steps_truncates_all_living_snakes_and_reports_each(void) {
    Rig rig = BOARD({"num_agents", 3}, {"target_length", 4}, {"max_steps", 1});
    Arena* env = sweep(&rig);
    lay(env, 0, 10, 10, "LL");
    lay(env, 1, 20, 10, "LLLLL");
    lay(env, 2, 0, 5, "D");
    STEP(&rig, RIGHT, RIGHT, UP);
    CHECK(rig.truncations[0] && rig.truncations[1] && !rig.truncations[2]);
    CHECK(!rig.terminals[0] && !rig.terminals[1] && rig.terminals[2]);
    CHECK(rig.final_obs[60] == SELF && rig.final_obs[59] == OWN);  // neck left of the head
    CHECK(env->slots.tick == 0 && snakes_of(env)[0].size == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    // One sample of the dead (2, 2/4) and one of each of the living: (3, 3/4) and (6, 1).
    CHECK(stats.episodes == 3 && stats.samples == 3);
    CHECK(stats.metrics[0] == 2 + 3 + 6 && stats.metrics[1] == 0.5 + 0.75 + 1);
    rig_destroy(&rig);
}

// ---- Observations -------------------------------------------------------------------------------

static void test_a_window_has_a_code_for_everything_on_the_board(void) {
    Rig rig = BOARD({"num_agents", 2}, {"vision", 2});
    Arena* env = sweep(&rig);
    lay(env, 0, 1, 2, "LL");
    lay(env, 1, 3, 1, "LD");
    put_food(env, 0, 3);
    STEP(&rig, RIGHT, RIGHT);
    // Head 0 is at (1, 3) with cells (1, 2), (1, 1); head 1 at (3, 2) with (3, 1), (3, 0). The
    // window of 0 spans rows -1..3 and columns 1..5, that of 1 rows 1..5 and columns 0..4.
    static const uint8_t first[25] = {
        WALL,  WALL,  WALL,  WALL,  WALL,   //
        EMPTY, EMPTY, FOOD,  EMPTY, EMPTY,  //
        OWN,   OWN,   SELF,  EMPTY, EMPTY,  //
        EMPTY, EMPTY, EMPTY, EMPTY, EMPTY,  //
        BODY,  HEAD,  EMPTY, EMPTY, EMPTY,
    };
    static const uint8_t second[25] = {
        EMPTY, BODY,  BODY,  HEAD,  EMPTY,  //
        EMPTY, EMPTY, EMPTY, EMPTY, EMPTY,  //
        OWN,   OWN,   SELF,  EMPTY, EMPTY,  //
        EMPTY, EMPTY, EMPTY, EMPTY, EMPTY,  //
        EMPTY, EMPTY, EMPTY, EMPTY, EMPTY,
    };
    CHECK(!memcmp(rig.obs_u8, first, 25));
    CHECK(!memcmp(rig.obs_u8 + 25, second, 25));
    rig_destroy(&rig);
}

// The window by its definition, a cell at a time.
static uint8_t slow_code(const Arena* env, int32_t agent, int32_t row, int32_t col) {
    if (row < 0 || row >= env->height || col < 0 || col >= env->width) return WALL;
    int32_t cell = cell_at(env, row, col);
    for (int32_t other = 0; other < env->num_agents; other++)
        for (int32_t i = 0; i < snakes_of(env)[other].size; i++)
            if (*cell_of(env, other, i) == cell)
                return other == agent ? (i ? OWN : SELF) : (i ? BODY : HEAD);
    return board_of(env)[cell] == FOOD ? FOOD : EMPTY;
}

static bool windows_hold(const Rig* rig, const Arena* env) {
    const int32_t side = 2 * env->vision + 1;
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const uint8_t* obs = rig->obs_u8 + (size_t)agent * rig->batch->obs_bytes;
        const Snake* snake = &snakes_of(env)[agent];
        int32_t head = snake->size ? *cell_of(env, agent, 0) : 0;
        int32_t top = head / stride_of(env) - 2 * env->vision;
        int32_t left = head % stride_of(env) - 2 * env->vision;
        for (int32_t i = 0; i < side * side; i++)
            if (obs[i] !=
                (snake->size ? slow_code(env, agent, top + i / side, left + i % side) : WALL))
                return false;
    }
    return true;
}

// `food` is right, every cell has one owner, and snakes off the board are masked out.
static bool board_holds(const Rig* rig, const Arena* env) {
    int32_t food = 0, bodies = 0, heads = 0, size = 0, present = 0;
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            uint8_t cell = board_at(env, row, col);
            food += cell == FOOD;
            heads += cell == HEAD;
            bodies += cell >= BODY;
            if (cell == WALL) return false;
        }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const Snake* snake = &snakes_of(env)[agent];
        if (rig->masks[agent] != (snake->size > 0) || snake->length > env->max_length) return false;
        size += snake->size;
        present += snake->size > 0;
        for (int32_t i = 0; i < snake->size; i++)
            if (board_of(env)[*cell_of(env, agent, i)] != (i ? BODY + agent : HEAD)) return false;
    }
    return food == env->food && heads == present && bodies == size - present;
}

static void test_board_and_windows_hold_in_random_play_for_every_vision(void) {
    PufRng rng = {5};
    for (int32_t vision = 1; vision <= MAX_VISION; vision++) {
        Rig rig = BOARD({"vision", vision}, {"width", 13}, {"height", 9}, {"num_agents", 5},
                        {"num_food", 20}, {"leave_corpse", vision % 2}, {"max_steps", 90});
        bool board = board_holds(&rig, env_of(&rig)), windows = windows_hold(&rig, env_of(&rig));
        for (int32_t tick = 0; tick < 200; tick++) {
            rig_act(&rig, &rng);
            puf_vec_step(rig.vec, NULL);
            board = board && board_holds(&rig, env_of(&rig));
            windows = windows && windows_hold(&rig, env_of(&rig));
        }
        CHECK(board);
        CHECK(windows);
        CHECK(rig_guards_hold(&rig));
        rig_destroy(&rig);
    }
}

static void test_snakes_without_room_wait_masked_and_see_walls(void) {
    // 64 cells for 252 snakes: most must wait. One that comes as the episode ends has none to end.
    Rig rig = BOARD({"width", 8}, {"height", 8}, {"num_agents", MAX_AGENTS}, {"num_food", 20000},
                    {"max_steps", 5});
    PufRng rng = {6};
    bool holds = true;
    int32_t waited = 0, came = 0;
    for (int32_t tick = 0; tick < 100; tick++) {
        uint8_t before[MAX_AGENTS];
        memcpy(before, rig.masks, sizeof before);
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
        holds = holds && board_holds(&rig, env_of(&rig)) && windows_hold(&rig, env_of(&rig));
        for (int32_t agent = 0; agent < MAX_AGENTS; agent++) {
            waited += !rig.masks[agent];
            came += !before[agent] && rig.masks[agent];
            const bool ends = rig.terminals[agent] || rig.truncations[agent];
            holds = holds && (before[agent] || (!ends && rig.rewards[agent] == 0));
        }
    }
    CHECK(holds);
    CHECK(waited > 0 && came > 0);
    rig_destroy(&rig);
}

static void test_planes_show_the_window_code_by_code(void) {
    static const uint8_t codes[NUM_PLANES] = {FOOD, WALL, HEAD, BODY, OWN};
    Rig window = BOARD({"width", 14}, {"height", 14}, {"num_agents", 8});
    Rig planes = BOARD({"width", 14}, {"height", 14}, {"num_agents", 8}, {"obs", OBS_PLANES});
    PufRng rng = {7};
    bool same = planes.batch->obs_bytes == NUM_PLANES * 121;
    for (int32_t tick = 0; tick < 50; tick++) {
        rig_act(&window, &rng);
        memcpy(planes.actions, window.actions, 8 * sizeof(int32_t));
        puf_vec_step(window.vec, NULL);
        puf_vec_step(planes.vec, NULL);
        for (int32_t i = 0; i < 8 * NUM_PLANES * 121; i++) {
            int32_t agent = i / (NUM_PLANES * 121), plane = i / 121 % NUM_PLANES;
            same =
                same && planes.obs_u8[i] == (window.obs_u8[agent * 121 + i % 121] == codes[plane]);
        }
    }
    CHECK(same);
    rig_destroy(&window);
    rig_destroy(&planes);
}

int main(void) {
    test_actions_are_absolute_directions();
    test_a_turn_against_the_neck_is_ignored();
    test_a_new_snake_unfolds_and_may_start_in_any_direction();
    test_a_head_may_enter_the_cell_that_a_tail_leaves();
    test_the_tail_of_a_growing_snake_stays_and_is_deadly();
    test_walls_kill();
    test_a_head_in_another_body_dies_alone();
    test_heads_that_enter_one_cell_all_die_and_the_food_stays();
    test_heads_that_would_swap_cells_both_die();
    test_dead_snakes_leave_the_board_or_become_food();
    test_food_grows_a_snake_from_the_next_tick_on();
    test_a_snake_of_max_length_eats_but_does_not_grow();
    test_a_death_reports_the_length_and_its_share_of_the_target();
    test_max_steps_truncates_all_living_snakes_and_reports_each();
    test_a_window_has_a_code_for_everything_on_the_board();
    test_board_and_windows_hold_in_random_play_for_every_vision();
    test_snakes_without_room_wait_masked_and_see_walls();
    test_planes_show_the_window_code_by_code();
    return CHECK_DONE();
}
