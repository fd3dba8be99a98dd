// snake - many snakes on one board: eat, grow, and avoid collisions.
//
// One tick, for all snakes at once:
// 1. Each snake turns to the direction of its action (0 up, 1 right, 2 down, 3 left); an action
//    towards its own neck is ignored. Its tail leaves its cell, unless the snake is still growing.
// 2. Heads move. A head dies in a wall and in any body (a cell that a tail has just left is free).
//    Heads that enter the same cell all die, and food in that cell stays.
// 3. A head on food makes its snake one cell longer, from the next tick on, up to `max_length`.
// 4. Dead snakes leave the board, or become food with `leave_corpse`. Their episode ends, and they
//    restart at once on a random empty cell. A snake that finds no empty cell waits, masked out.
//    Then food is placed on random empty cells until there is `num_food` again.
// A new snake occupies one cell and unfolds to its length as it moves.
//
// A snake observes the square of 2 x vision + 1 cells around its head, as codes:
//     0 food, 1 empty, 2 wall, 3 another's head, 4 another's body, 5 own body, 6 own head.
// Codes are ordered from good to deadly, so that even a linear layer can use them. With
// `obs = planes` the observation is five 0/1 planes of the same window: food, wall, heads, bodies,
// own body.
#include "puf_env.h"

// Contents of a board cell; OWN and SELF exist in windows only. The body of snake k is BODY + k.
enum { FOOD, EMPTY, WALL, HEAD, BODY, OWN, SELF, NUM_PLANES = 5 };
enum { OBS_WINDOW, OBS_PLANES };
enum { MAX_SIDE = 200, MAX_AGENTS = 252, MAX_VISION = 10, NUM_TRIES = 32, LANES = 16 };

// The result of a tick for a snake. MET, MET_ON_FOOD: another head entered the same cell.
enum { MOVED, ATE, CRASHED, MET, MET_ON_FOOD };

typedef struct {
    uint16_t head;      // index of the head cell in the snake's ring; wraps
    uint16_t size;      // cells on the board; 0 while it waits for an empty cell
    uint16_t length;    // cells after it has unfolded
    uint8_t direction;  // of its last move
    uint8_t fate;
} Snake;

// The arena holds the snakes [num_agents], their rings of cells [num_agents, capacity] and the
// board, which has a wall of `vision` cells around it, so that every window lies inside it.
typedef struct {
    PufSlots slots;
    int32_t food;  // number of food cells on the board
    float score, perf;
    int32_t width, height, num_agents, num_food, vision, initial_length, max_length, target_length;
    int32_t max_steps, leave_corpse, obs;
    float reward_food, reward_death;
} Arena;

static const PufField params[] = {
    PUF_PARAM_I32(Arena, width, 40, 8, MAX_SIDE, "width of the board in cells"),
    PUF_PARAM_I32(Arena, height, 40, 8, MAX_SIDE, "height of the board in cells"),
    PUF_PARAM_I32(Arena, num_agents, 16, 1, MAX_AGENTS, "snakes on one board"),
    PUF_PARAM_I32(Arena, num_food, 48, 1, 20000, "food on the board, as far as there is room"),
    PUF_PARAM_I32(Arena, vision, 5, 1, MAX_VISION, "cells seen to each side of the head"),
    PUF_PARAM_I32(Arena, initial_length, 3, 2, 1000, "length of a new snake, at most max_length"),
    PUF_PARAM_I32(Arena, max_length, 64, 2, 1000, "length at which a snake stops growing"),
    PUF_PARAM_I32(Arena, target_length, 24, 2, 1000, "length at which perf is 1"),
    PUF_PARAM_I32(Arena, max_steps, 1024, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_I32(Arena, leave_corpse, 0, 0, 1, "1: dead snakes become food"),
    PUF_PARAM_CHOICE(Arena, obs, OBS_WINDOW, 2, "window|planes",
                     "window: one code per cell; planes: one 0/1 plane per code"),
    PUF_PARAM_F32(Arena, reward_food, 0.2, -10, 10, "reward for eating"),
    PUF_PARAM_F32(Arena, reward_death, -1, -10, 10, "reward for dying"),
};

static const PufField metrics[] = {
    PUF_METRIC(Arena, score, "length of a snake at the end of its episode"),
    PUF_METRIC(Arena, perf, "score / target_length, at most 1"),
};

// ---- The arena ----------------------------------------------------------------------------------

static inline int32_t stride_of(const Arena* env) { return env->width + 2 * env->vision; }

static inline size_t board_bytes(const Arena* env) {
    return (size_t)stride_of(env) * (size_t)(env->height + 2 * env->vision);
}

// Cells in a ring: the smallest power of two that holds the longest snake.
static inline uint32_t capacity_of(const Arena* env) {
    return 1u << (32 - __builtin_clz((uint32_t)env->max_length - 1));
}

static inline Snake* snakes_of(const Arena* env) { return PUF_ARENA((Arena*)env); }

static inline uint16_t* rings_of(const Arena* env) {
    return (uint16_t*)(void*)(snakes_of(env) + env->num_agents);
}

static inline uint8_t* board_of(const Arena* env) {
    return (uint8_t*)(rings_of(env) + (size_t)env->num_agents * capacity_of(env));
}

// The snake's i-th cell, counted from its head.
static inline uint16_t* cell_of(const Arena* env, int32_t agent, int32_t i) {
    uint32_t capacity = capacity_of(env);
    uint32_t at = ((uint32_t)snakes_of(env)[agent].head - (uint32_t)i) & (capacity - 1);
    return &rings_of(env)[(size_t)agent * capacity + at];
}

static inline int32_t start_length(const Arena* env) {
    return env->initial_length < env->max_length ? env->initial_length : env->max_length;
}

// A random empty cell, or 0 (a wall) if NUM_TRIES guesses find none.
static int32_t guess_empty(Arena* env) {
    const uint8_t* board = board_of(env);
    for (int32_t i = 0; i < NUM_TRIES; i++) {
        int32_t row = env->vision + puf_rand_int(&env->slots.rng, env->height);
        int32_t col = env->vision + puf_rand_int(&env->slots.rng, env->width);
        int32_t cell = row * stride_of(env) + col;
        if (board[cell] == EMPTY) return cell;
    }
    return 0;
}

// ---- Rules --------------------------------------------------------------------------------------

static void spawn(Arena* env, int32_t agent) {
    int32_t cell = guess_empty(env);
    snakes_of(env)[agent] = (Snake){.size = cell != 0, .length = (uint16_t)start_length(env)};
    puf_set_present(&env->slots, agent, cell != 0);
    if (!cell) return;
    *cell_of(env, agent, 0) = (uint16_t)cell;
    board_of(env)[cell] = HEAD;
}

static void refill(Arena* env) {
    while (env->food < env->num_food) {
        int32_t cell = guess_empty(env);
        if (!cell) return;  // a full board: try again in the next tick
        board_of(env)[cell] = FOOD;
        env->food++;
    }
}

static void reset(Arena* env) {
    uint8_t* board = board_of(env);
    memset(board, WALL, board_bytes(env) + LANES);
    for (int32_t row = 0; row < env->height; row++)
        memset(board + (row + env->vision) * stride_of(env) + env->vision, EMPTY,
               (size_t)env->width);
    for (int32_t agent = 0; agent < env->num_agents; agent++) spawn(env, agent);
    env->food = 0;
    refill(env);
}

static void measure(Arena* env, float length) {
    env->score = length;
    env->perf = fminf(1, length / (float)env->target_length);
}

static void die(Arena* env, int32_t agent) {
    Snake* snake = &snakes_of(env)[agent];
    uint8_t* board = board_of(env);
    if (snake->fate >= MET) board[*cell_of(env, agent, 0)] = snake->fate == MET ? EMPTY : FOOD;
    for (int32_t i = 1; i < snake->size; i++)
        board[*cell_of(env, agent, i)] = env->leave_corpse ? FOOD : EMPTY;
    if (env->leave_corpse) env->food += snake->size - 1;
    measure(env, (float)snake->length);
    puf_reward(&env->slots, agent, env->reward_death);
    puf_end_agent(&env->slots, agent);
    snake->size = 0;
}

// Tails leave, old heads become necks, rings receive the cells that heads are about to enter.
static void turn_and_leave(Arena* env) {
    const int32_t stride = stride_of(env);
    const int32_t deltas[4] = {-stride, 1, stride, -1};
    uint8_t* board = board_of(env);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        Snake* snake = &snakes_of(env)[agent];
        if (!snake->size) continue;
        int32_t action = puf_action(&env->slots, agent);
        if (snake->size > 1 && action == (snake->direction ^ 2)) action = snake->direction;
        snake->direction = (uint8_t)action;
        if (snake->size < snake->length)
            snake->size++;
        else
            board[*cell_of(env, agent, snake->size - 1)] = EMPTY;
        int32_t from = *cell_of(env, agent, 0);
        board[from] = (uint8_t)(BODY + agent);
        snake->head++;
        *cell_of(env, agent, 0) = (uint16_t)(from + deltas[action]);
    }
}

// Kills `agent` and the heads that entered its cell before.
static void meet(Arena* env, int32_t agent) {
    uint16_t cell = *cell_of(env, agent, 0);
    for (int32_t other = 0; other < agent; other++) {
        Snake* snake = &snakes_of(env)[other];
        if (snake->size && snake->fate < CRASHED && *cell_of(env, other, 0) == cell)
            snake->fate = snake->fate == ATE ? MET_ON_FOOD : MET;
    }
}

static void enter(Arena* env) {
    uint8_t* board = board_of(env);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        Snake* snake = &snakes_of(env)[agent];
        if (!snake->size) continue;
        uint8_t* cell = &board[*cell_of(env, agent, 0)];
        snake->fate = *cell == EMPTY ? MOVED : *cell == FOOD ? ATE : CRASHED;
        if (*cell == HEAD) meet(env, agent);  // it came in this tick: old heads are necks by now
        if (snake->fate < CRASHED) *cell = HEAD;
    }
}

static PufStatus step(Arena* env) {
    Snake* snakes = snakes_of(env);
    turn_and_leave(env);
    enter(env);
    int32_t num_away = 0;
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        Snake* snake = &snakes[agent];
        if (snake->size && snake->fate == ATE) {
            puf_reward(&env->slots, agent, env->reward_food);
            env->food--;
            if (snake->length < env->max_length) snake->length++;
        } else if (snake->size && snake->fate >= CRASHED) {
            die(env, agent);
        }
        num_away += !snake->size;
    }
    for (int32_t agent = 0; num_away && agent < env->num_agents; agent++)
        if (!snakes[agent].size) spawn(env, agent);
    refill(env);
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;

    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        if (snakes[agent].size < 2)
            continue;  // has not moved: it has just died and was sampled then
        measure(env, (float)snakes[agent].length);
        puf_sample(&env->slots, agent);
    }
    return PUF_TRUNCATED;
}

// Whether play can lead to this snake. A snake that has not moved is as `spawn` created it. One
// that has moved unfolds by one cell per tick, and eats no faster than that.
static bool is_reachable(const Arena* env, int32_t agent) {
    const Snake* snake = &snakes_of(env)[agent];
    const int32_t start = start_length(env), lag = snake->length - snake->size;
    if (puf_is_present(&env->slots, agent) != (snake->size > 0)) return false;
    if (snake->size < 2)
        return !snake->head && !snake->direction && snake->fate == MOVED && snake->length == start;
    return snake->length >= start && snake->length <= env->max_length && lag >= 0 && lag < start &&
           snake->direction <= 3 && snake->fate < CRASHED;
}

// Whether a snake's cells match the board, are connected, and belong to no earlier snake. `taken`
// has one flag per cell of the board.
static bool is_on_board(const Arena* env, int32_t agent, bool* taken) {
    const Snake* snake = &snakes_of(env)[agent];
    const int32_t stride = stride_of(env), deltas[4] = {-stride, 1, stride, -1};
    for (int32_t i = 0; i < snake->size; i++) {
        const int32_t cell = *cell_of(env, agent, i);
        if ((size_t)cell >= board_bytes(env) || taken[cell] ||
            board_of(env)[cell] != (i ? BODY + agent : HEAD))
            return false;
        taken[cell] = true;
        const int32_t delta = i ? *cell_of(env, agent, i - 1) - cell : 0;
        if (i == 1 && delta != deltas[snake->direction]) return false;
        if (i > 1 && delta * delta != 1 && delta * delta != stride * stride) return false;
    }
    return true;
}

// ---- Observations -------------------------------------------------------------------------------

enum { WIDE = 32 };
typedef uint8_t Lanes __attribute__((vector_size(LANES)));
typedef uint8_t Wide __attribute__((vector_size(WIDE)));

// Codes of LANES cells: the snake's own body becomes OWN, other bodies become BODY.
static inline Lanes seen(const uint8_t* cells, uint8_t own) {
    Lanes lanes;
    memcpy(&lanes, cells, LANES);
    Lanes mine = (Lanes)(lanes == own);  // 255 where true
    for (int32_t i = 0; i < LANES; i++) lanes[i] = lanes[i] < BODY ? lanes[i] : BODY;
    return lanes - mine;
}

// One window as codes, row by row in vectors. If a row is shorter than a vector, the next row
// overwrites the surplus; if the next row is too short for that, and in the last row, it is cut
// off.
static inline __attribute__((always_inline)) void look(const uint8_t* board, int32_t stride,
                                                       int32_t side, uint8_t own, uint8_t* out) {
    for (int32_t row = 0; row < side; row++, board += stride, out += side) {
        Lanes lanes = seen(board, own);
        bool cut = side < LANES && (row == side - 1 || 2 * side < LANES);
        memcpy(out, &lanes, cut ? (size_t)side : LANES);
        if (side > LANES) {
            lanes = seen(board + side - LANES, own);
            memcpy(out + side - LANES, &lanes, LANES);
        }
    }
    out[-(side * side + 1) / 2] = SELF;
}

static inline __attribute__((always_inline)) void look_all(const Arena* env, int32_t side) {
    const uint8_t* board = board_of(env);
    const int32_t stride = stride_of(env), corner = env->vision * (stride + 1);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        uint8_t* out = puf_obs_u8(&env->slots, agent);
        if (snakes_of(env)[agent].size)
            look(board + *cell_of(env, agent, 0) - corner, stride, side, (uint8_t)(BODY + agent),
                 out);
        else
            memset(out, WALL, (size_t)(side * side));
    }
}

// Splits a window into planes of 0 and 1, in vectors; the last vector of a plane overlaps the one
// before.
PUF_HOT static void part(const uint8_t* window, int32_t cells, uint8_t* out) {
    static const uint8_t codes[NUM_PLANES] = {FOOD, WALL, HEAD, BODY, OWN};
    for (int32_t plane = 0; plane < NUM_PLANES; plane++, out += cells) {
        if (cells < WIDE) {
            for (int32_t i = 0; i < cells; i++) out[i] = window[i] == codes[plane];
            continue;
        }
        for (int32_t i = 0; i < cells; i += WIDE) {
            int32_t at = i + WIDE <= cells ? i : cells - WIDE;
            Wide lanes;
            memcpy(&lanes, window + at, WIDE);
            lanes = (Wide)(lanes == codes[plane]) & 1;
            memcpy(out + at, &lanes, WIDE);
        }
    }
}

static inline __attribute__((always_inline)) void part_all(const Arena* env, int32_t side) {
    const uint8_t* board = board_of(env);
    const int32_t stride = stride_of(env), corner = env->vision * (stride + 1);
    uint8_t window[(2 * MAX_VISION + 1) * (2 * MAX_VISION + 1)];
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        if (snakes_of(env)[agent].size)
            look(board + *cell_of(env, agent, 0) - corner, stride, side, (uint8_t)(BODY + agent),
                 window);
        else
            memset(window, WALL, (size_t)(side * side));
        part(window, side * side, puf_obs_u8(&env->slots, agent));
    }
}

static void observe(const Arena* env) {
    const int32_t side = 2 * env->vision + 1;
    if (env->obs == OBS_PLANES)
        side == 11 ? part_all(env, 11) : part_all(env, side);
    else
        side == 11 ? look_all(env, 11) : look_all(env, side);  // 11: loops of constant length
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, FRAME = 6, MAX_PICTURE = 640 };

static int32_t pixels_per_cell(const Arena* env) {
    int32_t pixels = MAX_PICTURE / (env->width > env->height ? env->width : env->height);
    return pixels > 40 ? 40 : pixels;
}

// Hues a golden angle apart, so that consecutive snakes differ in colour.
static uint32_t snake_color(int32_t agent) {
    float hue = fmodf(0.33f + 0.618034f * (float)agent, 1) * 6;
    uint32_t color = 0;
    for (int32_t channel = 0; channel < 3; channel++) {
        float distance = fabsf(fmodf(hue + (float)(6 - 2 * channel), 6) - 3);  // 3 at its own hue
        float level = fminf(1, fmaxf(0, distance - 1));
        color = color << 8 | (uint32_t)(90 + 150 * level);
    }
    return color;
}

typedef struct {
    float x, y;
} Point;

static Point centre_of(const Arena* env, int32_t cell) {
    float pixels = (float)pixels_per_cell(env);
    return (Point){FRAME + ((float)(cell % stride_of(env) - env->vision) + 0.5f) * pixels,
                   HEADER + FRAME + ((float)(cell / stride_of(env) - env->vision) + 0.5f) * pixels};
}

static void draw_snake(const Arena* env, PufCanvas* canvas, int32_t agent) {
    const Snake* snake = &snakes_of(env)[agent];
    const float pixels = (float)pixels_per_cell(env);
    const uint32_t color = snake_color(agent), shade = puf_blend(color, PUF_INK, 0.3f);
    if (!snake->size) return;
    for (int32_t i = snake->size - 1; i > 0; i--) {
        Point from = centre_of(env, *cell_of(env, agent, i));
        Point to = centre_of(env, *cell_of(env, agent, i - 1));
        float left = (float)(snake->size - i);  // the tail tapers
        float thickness = pixels * fminf(0.78f, 0.3f + 0.12f * left);
        puf_line(canvas, from.x, from.y, to.x, to.y, thickness, i % 4 < 2 ? color : shade);
    }
    Point head = centre_of(env, *cell_of(env, agent, 0));
    puf_circle(canvas, head.x, head.y, 0.52f * pixels, puf_blend(color, PUF_WHITE, 0.25f));
    if (pixels < 8) return;
    static const float dx[4] = {0, 1, 0, -1}, dy[4] = {-1, 0, 1, 0};
    const float ahead_x = dx[snake->direction], ahead_y = dy[snake->direction];
    for (float side = -1; side <= 1; side += 2) {
        float x = head.x + pixels * (0.14f * ahead_x - 0.22f * side * ahead_y);
        float y = head.y + pixels * (0.14f * ahead_y + 0.22f * side * ahead_x);
        puf_circle(canvas, x, y, 0.17f * pixels, PUF_WHITE);
        puf_circle(canvas, x + 0.06f * pixels * ahead_x, y + 0.06f * pixels * ahead_y,
                   0.09f * pixels, PUF_BLACK);
    }
}

static void render(const Arena* env, PufCanvas* canvas) {
    const uint8_t* board = board_of(env);
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_SLATE);
    int32_t longest = 0, num_present = 0;
    float sum = 0;
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            float x = FRAME + (float)col * pixels, y = HEADER + FRAME + (float)row * pixels;
            puf_rect(canvas, x, y, pixels, pixels, (row + col) % 2 ? PUF_INK : 0x0A2038);
            int32_t cell = (row + env->vision) * stride_of(env) + col + env->vision;
            if (board[cell] != FOOD) continue;
            x += 0.5f * pixels;
            y += 0.5f * pixels;
            puf_circle(canvas, x, y + 0.05f * pixels, 0.32f * pixels, PUF_RED);
            puf_line(canvas, x, y - 0.2f * pixels, x + 0.14f * pixels, y - 0.4f * pixels,
                     0.12f * pixels, PUF_GREEN);
        }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const Snake* snake = &snakes_of(env)[agent];
        draw_snake(env, canvas, agent);
        if (!snake->size) continue;
        num_present++;
        sum += (float)snake->length;
        if (snake->length > longest) longest = snake->length;
    }
    puf_textf(canvas, FRAME + 2, 8, 2, PUF_PAPER, "LONGEST %d  MEAN %.1f  STEP %d", (int)longest,
              num_present ? (double)(sum / (float)num_present) : 0.0, (int)env->slots.tick);
}

// The board is surrounded by walls, every body cell is in the ring of its snake and nowhere else,
// and `food` is the number of food cells.
static bool valid(const Arena* env) {
    const uint8_t* board = board_of(env);
    const int32_t stride = stride_of(env), edge = env->vision;
    bool taken[(MAX_SIDE + 2 * MAX_VISION) * (MAX_SIDE + 2 * MAX_VISION)] = {0};
    int32_t food = 0, bodies = 0, sizes = 0;
    for (int32_t row = 0; row < env->height + 2 * edge; row++)
        for (int32_t col = 0; col < stride; col++) {
            const uint8_t cell = board[row * stride + col];
            const bool inside =
                row >= edge && row < env->height + edge && col >= edge && col < env->width + edge;
            if (inside != (cell != WALL)) return false;
            food += cell == FOOD;
            bodies += cell >= HEAD;
        }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        if (!is_reachable(env, agent) || !is_on_board(env, agent, taken)) return false;
        sizes += snakes_of(env)[agent].size;
    }
    return env->slots.tick < env->max_steps && env->food == food && bodies == sizes &&
           (env->leave_corpse || food <= env->num_food);
}

static void shape(const void* self, PufLayout* layout) {
    const Arena* env = self;
    const int32_t side = 2 * env->vision + 1;
    const bool planes = env->obs == OBS_PLANES;
    layout->agents = env->num_agents;
    layout->obs.shape[0] = planes ? NUM_PLANES : side;
    layout->obs.shape[1] = planes ? side * side : side;
    layout->obs.high = planes ? 1 : SELF;
    layout->arena = (size_t)env->num_agents * (sizeof(Snake) + 2 * (size_t)capacity_of(env)) +
                    board_bytes(env) + LANES;  // a window's last vector may read past the board
    layout->width = env->width * pixels_per_cell(env) + 2 * FRAME;
    layout->height = env->height * pixels_per_cell(env) + 2 * FRAME + HEADER;
}

PUF_ENV(snake, Arena, .doc = "eat, grow and outlive many other snakes on one board",
        .group = "arcade", .action_names = "up right down left", .own_samples = true,
        .shape = shape,
        .layout = {.agents = 16,
                   .obs = {.dtype = PUF_U8, .ndim = 2, .low = 0, .high = SELF},
                   .actions = PUF_DISCRETE(4)});
