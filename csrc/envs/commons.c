// commons - an orchard that regrows only if some of it is spared.
//
// One tick: the agents act one after the other; the one that begins changes every tick. An agent
// stays (0) or moves (1 up, 2 right, 3 down, 4 left) unless a wall or another agent is there. An
// apple in the cell that it enters is harvested. Then `sprouts` cells of the orchard are drawn at
// random: a drawn cell that is empty grows an apple with a chance of an eighth for each apple in
// the eight cells around it. So apples grow next to apples, and where none is left none comes back.
//
// Of each apple a part `share` is divided equally among all agents; the rest belongs to the one
// that harvested it. A part `reward_growth` of its worth is paid when it grows and not when it is
// harvested. The episode ends with the last apple, or after max_steps.
//
// If apples and gaps were mixed at random, an orchard with a share p of apples would grow
// sprouts x p x (1 - p) apples a tick, at most sprouts / 4. perf compares the harvest of the second
// half of an episode with that: an orchard that was emptied in the first half yields 0.
//
// An agent observes three 0/1 planes of the 9 x 9 cells around it: apples, agents, walls.
#include "puf_grid.h"

enum { EMPTY, APPLE, AGENT, WALL, NUM_PLANES = 3 };
enum {
    VISION = 4,
    WINDOW = (2 * VISION + 1) * (2 * VISION + 1),
    MAX_SIDE = 32,
    MAX_AGENTS = 32,
    STRIDE = MAX_SIDE + 2 * VISION,
    CELLS = STRIDE * STRIDE
};

typedef struct {
    PufSlots slots;
    int32_t apples;           // in the orchard
    int32_t harvest, spared;  // apples harvested; of these, in the second half
    float score, perf, stock;
    int32_t width, height, num_agents, sprouts, max_steps;
    float initial, share, reward_growth;
    int16_t cells[MAX_AGENTS];  // of the agents
    uint8_t board[CELLS];
} Orchard;

static const PufField params[] = {
    PUF_PARAM_I32(Orchard, width, 16, 8, MAX_SIDE, "width of the orchard in cells"),
    PUF_PARAM_I32(Orchard, height, 16, 8, MAX_SIDE, "height of the orchard in cells"),
    PUF_PARAM_I32(Orchard, num_agents, 8, 1, MAX_AGENTS, "agents in one orchard"),
    PUF_PARAM_I32(Orchard, sprouts, 6, 1, 100, "cells drawn for growth in each step"),
    PUF_PARAM_F32(Orchard, initial, 0.5, 0.05, 1, "share of cells with an apple at the start"),
    PUF_PARAM_F32(Orchard, share, 1, 0, 1, "part of each apple that all agents divide"),
    PUF_PARAM_F32(Orchard, reward_growth, 0.8, 0, 1,
                  "part of an apple's worth that is paid to all when it grows"),
    PUF_PARAM_I32(Orchard, max_steps, 512, 2, 100000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Orchard, score, "apples harvested by all agents"),
    PUF_METRIC(Orchard, perf, "harvest of the second half / (sprouts / 4 a step), at most 1"),
    PUF_METRIC(Orchard, stock, "share of cells with an apple at the end"),
};

// ---- Rules --------------------------------------------------------------------------------------

static int32_t find_empty(Orchard* env) {
    return puf_grid_find(&env->slots.rng, env->board, STRIDE, VISION, env->width, env->height,
                         EMPTY);
}

static void reset(Orchard* env) {
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, env->width, env->height, WALL, EMPTY);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        env->cells[agent] = (int16_t)find_empty(env);
        env->board[env->cells[agent]] = AGENT;
    }
    env->apples = env->harvest = env->spared = 0;
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            uint8_t* cell = &env->board[puf_grid_cell(STRIDE, VISION, row, col)];
            if (*cell != EMPTY || puf_rand(&env->slots.rng) >= env->initial) continue;
            *cell = APPLE;
            env->apples++;
        }
    if (env->apples) return;
    env->board[find_empty(env)] = APPLE;  // an orchard begins with at least one
    env->apples = 1;
}

// Whether the agent harvested an apple.
static bool act(Orchard* env, int32_t agent) {
    const int32_t from = env->cells[agent], action = puf_action(&env->slots, agent);
    if (!action) return false;
    const int32_t to = puf_grid_beside(STRIDE, from, action - 1);
    const uint8_t code = env->board[to];
    if (code >= AGENT) return false;
    env->board[from] = EMPTY;
    env->board[to] = AGENT;
    env->cells[agent] = (int16_t)to;
    if (code != APPLE) return false;
    puf_reward(&env->slots, agent, (1 - env->reward_growth) * (1 - env->share));
    return true;
}

// Apples in the eight cells around.
static int32_t count_around(const uint8_t* cell) {
    int32_t count = 0;
    for (int32_t row = -STRIDE; row <= STRIDE; row += STRIDE)
        for (int32_t col = -1; col <= 1; col++) count += cell[row + col] == APPLE;
    return count - (*cell == APPLE);
}

// How many apples grew.
static int32_t grow(Orchard* env) {
    const int32_t before = env->apples;
    for (int32_t i = 0; i < env->sprouts; i++) {
        const uint64_t dice = puf_rand_u64(&env->slots.rng);
        const int32_t row = (int32_t)(((dice & 0xFFFFFF) * (uint32_t)env->height) >> 24);
        const int32_t col = (int32_t)(((dice >> 24 & 0xFFFFFF) * (uint32_t)env->width) >> 24);
        uint8_t* cell = &env->board[puf_grid_cell(STRIDE, VISION, row, col)];
        if (*cell != EMPTY || count_around(cell) <= (int32_t)(dice >> 61)) continue;
        *cell = APPLE;
        env->apples++;
    }
    return env->apples - before;
}

static PufStatus step(Orchard* env) {
    const int32_t first = env->slots.tick % env->num_agents;
    int32_t harvest = 0;
    for (int32_t agent = first; agent < env->num_agents; agent++) harvest += act(env, agent);
    for (int32_t agent = 0; agent < first; agent++) harvest += act(env, agent);
    env->apples -= harvest;
    env->harvest += harvest;
    if (env->slots.tick > env->max_steps / 2) env->spared += harvest;
    const bool empty = !env->apples;
    const float grown = env->reward_growth * (float)grow(env);
    const float part = (1 - env->reward_growth) * env->share * (float)harvest;
    for (int32_t agent = 0; agent < env->num_agents; agent++)
        puf_reward(&env->slots, agent, (grown + part) / (float)env->num_agents);
    if (!empty && env->slots.tick < env->max_steps) return PUF_RUNNING;
    const float par = 0.25f * (float)(env->sprouts * (env->max_steps - env->max_steps / 2));
    env->score = (float)env->harvest;
    env->perf = fminf(1, (float)env->spared / par);
    env->stock = (float)env->apples / (float)(env->width * env->height);
    return empty ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Orchard* env) {
    static const uint8_t codes[NUM_PLANES] = {APPLE, AGENT, WALL};
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        uint8_t window[WINDOW];
        puf_grid_window(env->board, STRIDE, VISION, env->cells[agent], window);
        puf_grid_planes(window, WINDOW, codes, NUM_PLANES, 1, puf_obs_u8(&env->slots, agent));
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, MAX_PICTURE = 576, MAX_PIXELS = 36 };

static int32_t pixels_per_cell(const Orchard* env) {
    const int32_t side = env->width > env->height ? env->width : env->height;
    return MAX_PICTURE / side > MAX_PIXELS ? MAX_PIXELS : MAX_PICTURE / side;
}

static void draw_apple(PufCanvas* canvas, float x, float y, float size) {
    puf_circle(canvas, x + 0.5f * size, y + 0.5f * size, 0.46f * size, 0x3F8F4A);  // foliage
    puf_circle(canvas, x + 0.44f * size, y + 0.56f * size, 0.2f * size, PUF_RED);
    puf_circle(canvas, x + 0.56f * size, y + 0.56f * size, 0.2f * size, PUF_RED);
    puf_line(canvas, x + 0.5f * size, y + 0.4f * size, x + 0.56f * size, y + 0.24f * size,
             0.07f * size, PUF_BROWN);
    puf_circle(canvas, x + 0.4f * size, y + 0.5f * size, 0.05f * size, PUF_WHITE);
}

static void draw_picker(PufCanvas* canvas, float x, float y, float size, int32_t agent) {
    static const uint32_t shirts[] = {PUF_BLUE, PUF_PURPLE, PUF_CYAN, PUF_PINK};
    puf_circle(canvas, x + 0.5f * size, y + 0.66f * size, 0.28f * size, shirts[agent % 4]);
    puf_circle(canvas, x + 0.5f * size, y + 0.36f * size, 0.19f * size, 0xF2C9A0);
    puf_rect(canvas, x + 0.2f * size, y + 0.2f * size, 0.6f * size, 0.08f * size, PUF_YELLOW);
    puf_rect(canvas, x + 0.34f * size, y + 0.06f * size, 0.32f * size, 0.16f * size, PUF_YELLOW);
}

static void render(const Orchard* env, PufCanvas* canvas) {
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
            const float x = (float)col * pixels, y = HEADER + (float)row * pixels;
            puf_rect(canvas, x, y, pixels, pixels, (row + col) % 2 ? 0x8A6B4A : 0x836545);
            if (env->board[cell] == APPLE) draw_apple(canvas, x, y, pixels);
        }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const int32_t cell = env->cells[agent];
        draw_picker(canvas, (float)(cell % STRIDE - VISION) * pixels,
                    HEADER + (float)(cell / STRIDE - VISION) * pixels, pixels, agent);
    }
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "HARVEST %d  APPLES %d  STEP %d", (int)env->harvest,
              (int)env->apples, (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

// Each agent has a cell of its own, and the apples are those on the board.
static bool valid(const Orchard* env) {
    const int32_t width = env->width, height = env->height;
    if (env->slots.tick >= env->max_steps ||
        !puf_grid_is_walled(env->board, STRIDE, STRIDE, VISION, width, height, WALL, AGENT) ||
        !puf_grid_has_agents(env->board, STRIDE, STRIDE, VISION, width, height, env->cells,
                             env->num_agents, AGENT))
        return false;
    int32_t apples = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) apples += env->board[cell] == APPLE;
    const int32_t most = env->num_agents * env->slots.tick;
    return apples > 0 && env->apples == apples && env->harvest >= 0 && env->harvest <= most &&
           env->spared >= 0 && env->spared <= env->harvest;
}

static void shape(const void* self, PufLayout* layout) {
    const Orchard* env = self;
    layout->agents = env->num_agents;
    layout->width = env->width * pixels_per_cell(env);
    layout->height = env->height * pixels_per_cell(env) + HEADER;
}

PUF_ENV(commons, Orchard, .doc = "harvest an orchard that regrows only if it is spared",
        .group = "many agents", .action_names = "stay up right down left", .shape = shape,
        .layout = {
            .agents = 8,
            .obs = {.dtype = PUF_U8, .ndim = 2, .shape = {NUM_PLANES, WINDOW}, .low = 0, .high = 1},
            .actions = PUF_DISCRETE(5)});
