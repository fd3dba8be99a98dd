// trash - cleaners collect the litter of a yard, one piece at a time, and bring it to the bins.
//
// One tick: the agents act one after the other; the one that begins changes every tick. An agent
// chooses a direction (0 up, 1 right, 2 down, 3 left) and acts on the cell there:
// - empty: it moves.
// - litter: with free hands it picks the piece up and moves; with a piece in its hands it stays.
// - bin: it stays; a piece in its hands goes into the bin.
// - wall, or another agent: it stays.
// The episode ends when all litter is in the bins, which rewards every agent, or after max_steps.
//
// An agent observes four 0/1 planes of the 9 x 9 cells around it (litter, bins, agents, walls),
// then whether its hands are full, then four flags that point to the nearest bin: up, right, down,
// left.
#include "puf_grid.h"

enum { EMPTY, LITTER, BIN, AGENT, WALL, NUM_PLANES = 4 };
enum {
    VISION = 4,
    WINDOW = (2 * VISION + 1) * (2 * VISION + 1),
    FEATURES = NUM_PLANES * WINDOW + 5,
    MAX_SIDE = 32,
    MAX_AGENTS = 32,
    MAX_BINS = 16,
    STRIDE = MAX_SIDE + 2 * VISION,
    CELLS = STRIDE * STRIDE
};

typedef struct {
    PufSlots slots;
    int32_t pieces, left;  // in the yard at the start; not yet in a bin
    float score, perf, steps;
    int32_t width, height, num_agents, num_litter, num_bins, max_steps;
    float reward_take, reward_drop, reward_clean;
    int16_t bins[MAX_BINS];     // cells
    int16_t cells[MAX_AGENTS];  // of the agents
    uint8_t full[MAX_AGENTS];   // 1 with a piece in its hands
    uint8_t board[CELLS];
} Yard;

static const PufField params[] = {
    PUF_PARAM_I32(Yard, width, 16, 8, MAX_SIDE, "width of the yard in cells"),
    PUF_PARAM_I32(Yard, height, 16, 8, MAX_SIDE, "height of the yard in cells"),
    PUF_PARAM_I32(Yard, num_agents, 4, 1, MAX_AGENTS, "cleaners in one yard"),
    PUF_PARAM_I32(Yard, num_litter, 24, 1, 400, "pieces of litter, as far as there is room"),
    PUF_PARAM_I32(Yard, num_bins, 2, 1, MAX_BINS, "bins"),
    PUF_PARAM_I32(Yard, max_steps, 256, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Yard, reward_take, 0.25, -10, 10, "reward for picking a piece up"),
    PUF_PARAM_F32(Yard, reward_drop, 1, -10, 10, "reward for a piece brought to a bin"),
    PUF_PARAM_F32(Yard, reward_clean, 1, -10, 10, "reward of every agent for the last piece"),
};

static const PufField metrics[] = {
    PUF_METRIC(Yard, score, "pieces brought to the bins"),
    PUF_METRIC(Yard, perf, "share of the pieces brought to the bins"),
    PUF_METRIC(Yard, steps, "steps taken"),
};

// ---- Rules --------------------------------------------------------------------------------------

// Puts `code` on a random empty cell; 0 if there is none.
static int32_t place(Yard* env, uint8_t code) {
    const int32_t cell =
        puf_grid_find(&env->slots.rng, env->board, STRIDE, VISION, env->width, env->height, EMPTY);
    if (cell) env->board[cell] = code;
    return cell;
}

static void reset(Yard* env) {
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, env->width, env->height, WALL, EMPTY);
    // The smallest yard has room for all agents and bins and 16 pieces.
    for (int32_t agent = 0; agent < env->num_agents; agent++)
        env->cells[agent] = (int16_t)place(env, AGENT);
    for (int32_t bin = 0; bin < env->num_bins; bin++) env->bins[bin] = (int16_t)place(env, BIN);
    env->pieces = 0;
    while (env->pieces < env->num_litter && place(env, LITTER)) env->pieces++;
    env->left = env->pieces;
    memset(env->full, 0, sizeof env->full);
}

static void act(Yard* env, int32_t agent) {
    const int32_t from = env->cells[agent];
    const int32_t to = puf_grid_beside(STRIDE, from, puf_action(&env->slots, agent));
    const uint8_t code = env->board[to];
    if (code == BIN && env->full[agent]) {
        env->full[agent] = 0;
        env->left--;
        puf_reward(&env->slots, agent, env->reward_drop);
    }
    if (code != EMPTY && (code != LITTER || env->full[agent])) return;
    if (code == LITTER) {
        env->full[agent] = 1;
        puf_reward(&env->slots, agent, env->reward_take);
    }
    env->board[from] = EMPTY;
    env->board[to] = AGENT;
    env->cells[agent] = (int16_t)to;
}

static PufStatus step(Yard* env) {
    const int32_t first = env->slots.tick % env->num_agents;
    for (int32_t agent = first; agent < env->num_agents; agent++) act(env, agent);
    for (int32_t agent = 0; agent < first; agent++) act(env, agent);
    if (env->left && env->slots.tick < env->max_steps) return PUF_RUNNING;
    for (int32_t agent = 0; !env->left && agent < env->num_agents; agent++)
        puf_reward(&env->slots, agent, env->reward_clean);
    env->score = (float)(env->pieces - env->left);
    env->perf = env->score / (float)env->pieces;
    env->steps = (float)env->slots.tick;
    return env->left ? PUF_TRUNCATED : PUF_TERMINATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Yard* env) {
    static const uint8_t codes[NUM_PLANES] = {LITTER, BIN, AGENT, WALL};
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        uint8_t window[WINDOW], *out = puf_obs_u8(&env->slots, agent);
        const int32_t cell = env->cells[agent];
        puf_grid_window(env->board, STRIDE, VISION, cell, window);
        puf_grid_planes(window, WINDOW, codes, NUM_PLANES, 1, out);
        out += NUM_PLANES * WINDOW;
        *out++ = env->full[agent];
        puf_grid_compass(STRIDE, cell, puf_grid_nearest(STRIDE, cell, env->bins, env->num_bins),
                         out);
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, MAX_PICTURE = 576, MAX_PIXELS = 40 };

static int32_t pixels_per_cell(const Yard* env) {
    const int32_t side = env->width > env->height ? env->width : env->height;
    return MAX_PICTURE / side > MAX_PIXELS ? MAX_PIXELS : MAX_PICTURE / side;
}

static void draw_piece(PufCanvas* canvas, float x, float y, float size, int32_t kind) {
    if (kind == 0) {  // a can
        puf_rect(canvas, x - 0.14f * size, y - 0.22f * size, 0.28f * size, 0.44f * size, PUF_RED);
        puf_rect(canvas, x - 0.14f * size, y - 0.06f * size, 0.28f * size, 0.14f * size, PUF_PAPER);
    } else if (kind == 1) {  // a banana peel
        puf_line(canvas, x, y - 0.2f * size, x - 0.2f * size, y + 0.18f * size, 0.14f * size,
                 PUF_YELLOW);
        puf_line(canvas, x, y - 0.2f * size, x + 0.2f * size, y + 0.18f * size, 0.14f * size,
                 PUF_YELLOW);
        puf_line(canvas, x, y - 0.2f * size, x, y + 0.24f * size, 0.14f * size, 0xE0B040);
    } else {  // a sheet of paper
        const float sheet[8] = {x - 0.24f * size, y - 0.12f * size, x + 0.14f * size,
                                y - 0.22f * size, x + 0.24f * size, y + 0.14f * size,
                                x - 0.14f * size, y + 0.22f * size};
        puf_polygon(canvas, sheet, 4, PUF_WHITE);
        puf_line(canvas, x - 0.1f * size, y, x + 0.1f * size, y - 0.05f * size, 0.04f * size,
                 PUF_GREY);
    }
}

static void draw_bin(PufCanvas* canvas, float x, float y, float size) {
    const float body[8] = {x + 0.2f * size, y + 0.3f * size,  x + 0.8f * size, y + 0.3f * size,
                           x + 0.7f * size, y + 0.94f * size, x + 0.3f * size, y + 0.94f * size};
    puf_polygon(canvas, body, 4, 0x5B6B7B);
    for (int32_t i = 0; i < 3; i++) {
        const float at = x + (0.36f + 0.14f * (float)i) * size;
        puf_line(canvas, at, y + 0.42f * size, at, y + 0.82f * size, 0.05f * size, PUF_INK);
    }
    puf_rect(canvas, x + 0.12f * size, y + 0.18f * size, 0.76f * size, 0.12f * size, 0x9AA9B8);
    puf_rect(canvas, x + 0.42f * size, y + 0.08f * size, 0.16f * size, 0.1f * size, 0x9AA9B8);
}

static void draw_cleaner(PufCanvas* canvas, float x, float y, float size, int32_t full) {
    puf_circle(canvas, x + 0.5f * size, y + 0.62f * size, 0.3f * size, PUF_ORANGE);
    puf_rect(canvas, x + 0.22f * size, y + 0.6f * size, 0.56f * size, 0.09f * size, PUF_YELLOW);
    puf_circle(canvas, x + 0.5f * size, y + 0.3f * size, 0.2f * size, 0xF2C9A0);
    puf_rect(canvas, x + 0.3f * size, y + 0.1f * size, 0.4f * size, 0.13f * size, PUF_BLUE);
    if (full) draw_piece(canvas, x + 0.74f * size, y + 0.6f * size, 0.8f * size, 0);
}

static void render(const Yard* env, PufCanvas* canvas) {
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
            const float x = (float)col * pixels, y = HEADER + (float)row * pixels;
            puf_rect(canvas, x, y, pixels, pixels, (row + col) % 2 ? 0x6FA85C : 0x67A055);
            if (env->board[cell] == BIN) draw_bin(canvas, x, y, pixels);
            if (env->board[cell] == LITTER)
                draw_piece(canvas, x + 0.5f * pixels, y + 0.5f * pixels, pixels, cell % 3);
        }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const int32_t cell = env->cells[agent];
        draw_cleaner(canvas, (float)(cell % STRIDE - VISION) * pixels,
                     HEADER + (float)(cell / STRIDE - VISION) * pixels, pixels, env->full[agent]);
    }
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "LEFT %d OF %d  STEP %d", (int)env->left,
              (int)env->pieces, (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

// Each agent has a cell of its own, and the pieces in the yard and in hands are those that are
// left.
static bool valid(const Yard* env) {
    const int32_t width = env->width, height = env->height;
    if (!puf_grid_is_walled(env->board, STRIDE, STRIDE, VISION, width, height, WALL, AGENT) ||
        !puf_grid_has_agents(env->board, STRIDE, STRIDE, VISION, width, height, env->cells,
                             env->num_agents, AGENT))
        return false;
    int32_t litter = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) litter += env->board[cell] == LITTER;
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        if (env->full[agent] > 1) return false;
        litter += env->full[agent];
    }
    return env->left == litter && litter > 0 && env->pieces >= litter &&
           env->pieces <= env->num_litter && env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    const Yard* env = self;
    layout->agents = env->num_agents;
    layout->width = env->width * pixels_per_cell(env);
    layout->height = env->height * pixels_per_cell(env) + HEADER;
}

PUF_ENV(trash, Yard, .doc = "collect litter together and bring it to the bins",
        .group = "many agents", .action_names = "up right down left", .shape = shape,
        .layout = {.agents = 4,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {FEATURES}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(4)});
