// maze - find the goal in a generated maze, seeing only the cells around.
//
// Every episode has a new maze of rooms x rooms rooms, carved by depth-first search; then each wall
// between two rooms is opened with probability `loops`. Start and goal are random rooms.
//
// One tick: the agent moves one cell (0 up, 1 right, 2 down, 3 left); a wall stops it. Every cell
// that it enters is marked: once, or more than once. The episode ends at the goal, with reward 1,
// or after max_steps. Until then each step towards the goal, along the shortest path, gives
// reward_progress, each step away from it takes as much, and every step costs reward_step.
//
// The agent observes the 11 x 11 cells around it, through walls, as codes ordered by promise:
//     0 wall, 1 entered more than once, 2 entered once, 3 new, 4 goal.
// With these marks a search needs no memory (Tremaux's rule: prefer new cells, then those entered
// once).
#include "puf_maze.h"

enum { WALL, WORN, TRODDEN, NEW, GOAL };
enum {
    VISION = 5,
    WINDOW = 2 * VISION + 1,
    MAX_ROOMS = 15,
    STRIDE = 2 * MAX_ROOMS - 1 + 2 * VISION,
    CELLS = STRIDE * STRIDE,
    ORIGIN = VISION * (STRIDE + 1),
    UNKNOWN = 65535
};

typedef struct {
    PufSlots slots;
    float score, perf, steps;
    int32_t rooms, max_steps;
    float loops, reward_progress, reward_step;
    int32_t cell, goal, distance;  // of the agent; of the goal; between them at the start
    uint8_t board[CELLS];
    uint16_t distances[CELLS];  // to the goal
} Maze;

static const PufField params[] = {
    PUF_PARAM_I32(Maze, rooms, 7, 2, MAX_ROOMS, "rooms per row and column; 2 x rooms - 1 cells"),
    PUF_PARAM_F32(Maze, loops, 0.05, 0, 1, "share of the walls between rooms that are opened"),
    PUF_PARAM_I32(Maze, max_steps, 256, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Maze, reward_progress, 0.02, 0, 1, "reward for a step towards the goal"),
    PUF_PARAM_F32(Maze, reward_step, -0.005, -1, 1, "reward for every step"),
};

static const PufField metrics[] = {
    PUF_METRIC(Maze, score, "length of the shortest path / steps taken; 0 if the goal is missed"),
    PUF_METRIC(Maze, perf, "1 if the goal is reached, else 0"),
    PUF_METRIC(Maze, steps, "steps taken"),
};

// ---- Rules --------------------------------------------------------------------------------------

static int32_t side_of(const Maze* env) { return 2 * env->rooms - 1; }

static void reset(Maze* env) {
    PufRng* rng = &env->slots.rng;
    const int32_t rooms = env->rooms, count = rooms * rooms;
    memset(env->board, WALL, sizeof env->board);
    puf_maze_carve(rng, env->board, STRIDE, ORIGIN, rooms, rooms, NEW);
    puf_maze_open(rng, env->board, STRIDE, ORIGIN, rooms, rooms, NEW, env->loops);
    const int32_t start = puf_rand_int(rng, count);
    const int32_t goal = (start + 1 + puf_rand_int(rng, count - 1)) % count;
    env->cell = puf_maze_room(STRIDE, ORIGIN, rooms, start);
    env->goal = puf_maze_room(STRIDE, ORIGIN, rooms, goal);
    memset(env->distances, 255, sizeof env->distances);
    puf_maze_distances(env->board, STRIDE, WALL, env->goal, env->distances, UNKNOWN);
    env->distance = env->distances[env->cell];
    env->board[env->cell] = TRODDEN;
    env->board[env->goal] = GOAL;
}

static PufStatus step(Maze* env) {
    const int32_t from = env->cell;
    const int32_t to = puf_grid_beside(STRIDE, from, puf_action(&env->slots, 0));
    const bool ends = env->slots.tick >= env->max_steps, found = env->board[to] == GOAL;
    float reward = env->reward_step;
    if (env->board[to] != WALL) {
        reward += env->reward_progress * (float)(env->distances[from] - env->distances[to]);
        env->cell = to;
        if (!found) env->board[to] = env->board[to] == NEW ? TRODDEN : WORN;
    }
    puf_reward(&env->slots, 0, found ? 1 : reward);
    if (!found && !ends) return PUF_RUNNING;
    env->perf = found;
    env->steps = (float)env->slots.tick;
    env->score = found ? (float)env->distance / env->steps : 0;
    return found ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Maze* env) {
    puf_grid_window(env->board, STRIDE, VISION, env->cell, puf_obs_u8(&env->slots, 0));
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, MAX_PICTURE = 608, MAX_PIXELS = 36 };

// The outer walls are drawn too: two cells more than the maze has.
static int32_t pixels_per_cell(const Maze* env) {
    int32_t pixels = MAX_PICTURE / (side_of(env) + 2);
    return pixels > MAX_PIXELS ? MAX_PIXELS : pixels;
}

static void draw_wall(PufCanvas* canvas, float x, float y, float pixels) {
    puf_rect(canvas, x, y, pixels, pixels, 0x3B7A57);
    puf_rect(canvas, x, y + 0.75f * pixels, pixels, 0.25f * pixels, 0x28573D);
}

static void draw_flag(PufCanvas* canvas, float x, float y, float pixels) {
    const float flag[6] = {x + 0.36f * pixels, y + 0.12f * pixels, x + 0.86f * pixels,
                           y + 0.32f * pixels, x + 0.36f * pixels, y + 0.52f * pixels};
    puf_line(canvas, x + 0.34f * pixels, y + 0.14f * pixels, x + 0.34f * pixels, y + 0.86f * pixels,
             0.08f * pixels, PUF_BROWN);
    puf_polygon(canvas, flag, 3, PUF_RED);
}

static void render(const Maze* env, PufCanvas* canvas) {
    static const uint32_t colors[] = {0, 0xB99C6B, 0xD8C08A, PUF_PAPER, PUF_PAPER};
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t row = -1; row <= side_of(env); row++)
        for (int32_t col = -1; col <= side_of(env); col++) {
            const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
            const float x = (float)(col + 1) * pixels, y = HEADER + (float)(row + 1) * pixels;
            if (env->board[cell] == WALL)
                draw_wall(canvas, x, y, pixels);
            else
                puf_rect(canvas, x, y, pixels, pixels, colors[env->board[cell]]);
            if (cell == env->goal) draw_flag(canvas, x, y, pixels);
            const int32_t down = cell / STRIDE - env->cell / STRIDE;
            const int32_t right = cell % STRIDE - env->cell % STRIDE;
            if (down < -VISION || down > VISION || right < -VISION || right > VISION)
                puf_rect_alpha(canvas, x, y, pixels, pixels, PUF_INK, 0.6f);  // out of sight
        }
    const float x = ((float)(env->cell % STRIDE - VISION + 1) + 0.5f) * pixels;
    const float y = HEADER + ((float)(env->cell / STRIDE - VISION + 1) + 0.5f) * pixels;
    puf_circle(canvas, x, y, 0.38f * pixels, PUF_BLUE);
    puf_circle(canvas, x - 0.13f * pixels, y - 0.08f * pixels, 0.1f * pixels, PUF_WHITE);
    puf_circle(canvas, x + 0.13f * pixels, y - 0.08f * pixels, 0.1f * pixels, PUF_WHITE);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "STEP %d  TO GO %d", (int)env->slots.tick,
              (int)env->distances[env->cell]);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Maze* env) {
    const int32_t side = side_of(env);
    return env->slots.tick < env->max_steps &&
           puf_grid_is_walled(env->board, STRIDE, STRIDE, VISION, side, side, WALL, GOAL) &&
           puf_grid_is_inside(STRIDE, VISION, side, side, env->cell) &&
           env->board[env->cell] != WALL && env->distance >= 0 && env->distance < CELLS;
}

static void shape(const void* self, PufLayout* layout) {
    const Maze* env = self;
    layout->width = (side_of(env) + 2) * pixels_per_cell(env);
    layout->height = layout->width + HEADER;
}

PUF_ENV(maze, Maze, .doc = "find the goal of a generated maze with a partial view",
        .group = "motion", .action_names = "up right down left", .shape = shape,
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_U8, .ndim = 2, .shape = {WINDOW, WINDOW}, .low = 0, .high = GOAL},
            .actions = PUF_DISCRETE(4)});
