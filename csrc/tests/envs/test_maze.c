// The rules of maze on a board drawn by hand, and what its generated mazes promise.
#include "envs/maze.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT };

static Maze* env_of(const Rig* rig) { return rig_env(rig, 0); }

// Replaces the maze of 3 x 3 rooms by a drawing: '#' wall, '.' new, '@' agent, 'G' goal.
static Maze* draw(Rig* rig, const char* const rows[5]) {
    Maze* env = env_of(rig);
    memset(env->board, WALL, sizeof env->board);
    for (int32_t row = 0; row < 5; row++)
        for (int32_t col = 0; col < 5; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
            const char c = rows[row][col];
            env->board[cell] = c == '#' ? WALL : c == 'G' ? GOAL : c == '@' ? TRODDEN : NEW;
            if (c == '@') env->cell = cell;
            if (c == 'G') env->goal = cell;
        }
    memset(env->distances, 255, sizeof env->distances);
    puf_maze_distances(env->board, STRIDE, WALL, env->goal, env->distances, UNKNOWN);
    env->distance = env->distances[env->cell];
    return env;
}

static const char* const corridor[5] = {"@...#", "###.#", "#...#", "#.###", "#...G"};

static bool is_at(const Maze* env, int32_t row, int32_t col) {
    return env->cell == puf_grid_cell(STRIDE, VISION, row, col);
}

static bool near(float a, float b) { return fabsf(a - b) < 1e-6f; }

static void test_moves_marks_and_walls(void) {
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3});
    Maze* env = draw(&rig, corridor);
    static const int32_t walls[] = {UP, LEFT, DOWN};
    for (int32_t i = 0; i < 3; i++) {
        rig_play(&rig, walls[i]);
        CHECK(is_at(env, 0, 0) && env->board[env->cell] == TRODDEN);
        CHECK(near(rig.rewards[0], -0.005f));  // no progress, the cost of a step
    }
    rig_play(&rig, RIGHT);
    CHECK(is_at(env, 0, 1) && env->board[env->cell] == TRODDEN);
    rig_play(&rig, LEFT);  // entered a second time
    CHECK(is_at(env, 0, 0) && env->board[env->cell] == WORN);
    rig_play(&rig, RIGHT);
    rig_play(&rig, LEFT);
    CHECK(env->board[env->cell] == WORN);
    static const int32_t on[] = {RIGHT, RIGHT, RIGHT, DOWN, DOWN};
    for (int32_t i = 0; i < 5; i++) rig_play(&rig, on[i]);
    CHECK(is_at(env, 2, 3));
    rig_play(&rig, UP);
    CHECK(is_at(env, 1, 3));
    rig_destroy(&rig);
}

static void test_progress_is_paid_along_the_shortest_path(void) {
    // From (0,0) to (4,4): 3 right, 2 down, 2 left, 2 down, 3 right = 12 steps. The first one leads
    // away from nothing: it is one step nearer.
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3}, {"reward_progress", 0.5});
    Maze* env = draw(&rig, corridor);
    CHECK(env->distance == 12);
    rig_play(&rig, RIGHT);
    CHECK(near(rig.rewards[0], 0.5f - 0.005f));
    rig_play(&rig, LEFT);
    CHECK(near(rig.rewards[0], -0.5f - 0.005f));
    rig_destroy(&rig);
}

static void test_the_goal_ends_the_episode(void) {
    static const int32_t path[] = {UP,   RIGHT, RIGHT, RIGHT, DOWN,  DOWN, LEFT,
                                   LEFT, DOWN,  DOWN,  RIGHT, RIGHT, RIGHT};
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3});
    draw(&rig, corridor);
    for (int32_t i = 0; i < 13; i++) {
        CHECK(!rig.terminals[0]);
        rig_play(&rig, path[i]);
    }
    CHECK(rig.terminals[0] && !rig.truncations[0] && rig.rewards[0] == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && near((float)stats.metrics[0], 12.0f / 13));  // one step at a wall
    CHECK(stats.metrics[1] == 1 && stats.metrics[2] == 13);
    rig_destroy(&rig);
}

static void test_a_missed_goal_is_truncated_without_score(void) {
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3}, {"max_steps", 4});
    draw(&rig, corridor);
    for (int32_t i = 0; i < 4; i++) rig_play(&rig, UP);
    CHECK(rig.truncations[0] && !rig.terminals[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 0 && stats.metrics[1] == 0 && stats.metrics[2] == 4);
    rig_destroy(&rig);
}

static void test_the_window_shows_what_lies_around(void) {
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3});
    draw(&rig, corridor);
    rig_play(&rig, RIGHT);  // the agent at (0, 1): window row 5 + r, column 5 + c - 1
    const uint8_t* obs = rig.obs_u8;
    CHECK(obs[5 * WINDOW + 5] == TRODDEN && obs[5 * WINDOW + 4] == TRODDEN);
    CHECK(obs[5 * WINDOW + 6] == NEW && obs[6 * WINDOW + 5] == WALL && obs[0] == WALL);
    CHECK(obs[9 * WINDOW + 8] == GOAL && obs[9 * WINDOW + 7] == NEW);
    rig_destroy(&rig);
}

// Without loops: one path between any two rooms, so the rooms are connected by one passage fewer
// than there are rooms. With loops = 1 all walls between rooms are open.
static void test_mazes_are_connected_trees_unless_loops_are_asked_for(void) {
    for (int32_t rooms = 2; rooms <= MAX_ROOMS; rooms++)
        for (int32_t all = 0; all < 2; all++) {
            Rig rig =
                RIG_START(&puf_env_maze, 8, (uint64_t)rooms, {"rooms", rooms}, {"loops", all});
            for (int32_t i = 0; i < 8; i++) {
                const Maze* env = rig_env(&rig, i);
                const int32_t side = 2 * rooms - 1;
                int32_t floor = 0, reached = 0;
                for (int32_t row = 0; row < side; row++)
                    for (int32_t col = 0; col < side; col++) {
                        const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
                        floor += env->board[cell] != WALL;
                        reached += env->distances[cell] != UNKNOWN;
                    }
                const int32_t passages = all ? 2 * rooms * (rooms - 1) : rooms * rooms - 1;
                CHECK(floor == rooms * rooms + passages && reached == floor);
                CHECK(env->cell != env->goal && env->board[env->goal] == GOAL);
                CHECK(valid(env));
            }
            rig_destroy(&rig);
        }
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = RIG_START(&puf_env_maze, 1, 1, {"rooms", 3});
    Maze* env = draw(&rig, corridor);
    const Maze kept = *env;
    CHECK(valid(env));
    env->cell = puf_grid_cell(STRIDE, VISION, 1, 0);  // in a wall
    CHECK(!valid(env));
    *env = kept;
    env->cell = -1;
    CHECK(!valid(env));
    env->cell = CELLS;
    CHECK(!valid(env));
    *env = kept;
    env->board[puf_grid_cell(STRIDE, VISION, 0, -1)] = NEW;  // a hole in the outer wall
    CHECK(!valid(env));
    *env = kept;
    env->board[puf_grid_cell(STRIDE, VISION, 2, 2)] = GOAL + 1;
    CHECK(!valid(env));
    *env = kept;
    env->slots.tick = env->max_steps;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_moves_marks_and_walls();
    test_progress_is_paid_along_the_shortest_path();
    test_the_goal_ends_the_episode();
    test_a_missed_goal_is_truncated_without_score();
    test_the_window_shows_what_lies_around();
    test_mazes_are_connected_trees_unless_loops_are_asked_for();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
