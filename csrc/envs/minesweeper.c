// minesweeper - open all cells without a mine. An open cell shows how many of its eight neighbours
// have mines; a cell that shows 0 opens its neighbours too.
//
// Mines are laid at the first click, anywhere but under it, so the first click is safe. A click on
// a mine ends the episode, and so does the last safe cell. Open cells are masked; a click on one
// does nothing. Episodes are truncated at max_steps.
//
// The observation has a row for each cell, row by row: one of KINDS flags. The first one means
// closed. The second one means closed and certainly a mine, since a number beside it has just as
// many closed neighbours: a flag as a player would set it. The others are the number that the cell
// shows, less the flags around it. The cells of a board earn 1 in all, and the last one earns 1
// more; a mine costs 1.
#include "puf_env.h"

enum { MAX_SIDE = 16, MAX_CELLS = MAX_SIDE * MAX_SIDE, MINE = 9 };
enum { CLOSED, FLAGGED, NUMBER, KINDS = NUMBER + 9 };

typedef struct {
    PufSlots slots;
    uint8_t numbers[MAX_CELLS];  // mines around a cell, or MINE; zeros before the first click
    uint8_t open[MAX_CELLS];     // 0 or 1
    int32_t opened;              // number of open cells
    int32_t last;                // cell of the last click, or -1
    float score, perf, revealed;
    int32_t width, height, mines, max_steps;
} Field;

static const PufField params[] = {
    PUF_PARAM_I32(Field, width, 6, 2, MAX_SIDE, "cells in a row"),
    PUF_PARAM_I32(Field, height, 6, 2, MAX_SIDE, "cells in a column"),
    PUF_PARAM_I32(Field, mines, 4, 1, MAX_CELLS - 1,
                  "number of mines; at least one cell stays without"),
    PUF_PARAM_I32(Field, max_steps, 500, 1, 1000000, "clicks before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Field, score, "1 if solved, else 0"),
    PUF_METRIC(Field, perf, "1 if solved, else 0"),
    PUF_METRIC(Field, revealed, "share of safe cells opened"),
};

// ---- Rules --------------------------------------------------------------------------------------

static inline int32_t num_cells(const Field* env) { return env->width * env->height; }

static inline int32_t num_mines(const Field* env) {
    return env->mines < num_cells(env) ? env->mines : num_cells(env) - 1;
}

// The neighbours of a cell; returns how many there are.
static inline int32_t neighbours(const Field* env, int32_t cell, int32_t out[8]) {
    const int32_t row = cell / env->width, col = cell - row * env->width;
    const int32_t top = row > 0 ? row - 1 : 0, left = col > 0 ? col - 1 : 0;
    const int32_t bottom = row < env->height - 1 ? row + 1 : row;
    const int32_t right = col < env->width - 1 ? col + 1 : col;
    int32_t count = 0;
    for (int32_t r = top; r <= bottom; r++)
        for (int32_t c = left; c <= right; c++)
            if (r != row || c != col) out[count++] = r * env->width + c;
    return count;
}

// Mines by Floyd's sampling over all cells but `spared`: the last cell stands in for it.
static void lay_mines(Field* env, int32_t spared) {
    const int32_t last = num_cells(env) - 1;
    int32_t around[8];
    for (int32_t i = last - num_mines(env); i < last; i++) {
        int32_t cell = puf_rand_int(&env->slots.rng, i + 1);
        if (env->numbers[cell == spared ? last : cell] == MINE) cell = i;
        cell = cell == spared ? last : cell;
        env->numbers[cell] = MINE;
        const int32_t count = neighbours(env, cell, around);
        for (int32_t k = 0; k < count; k++)
            if (env->numbers[around[k]] != MINE) env->numbers[around[k]]++;
    }
}

// Opens a safe cell, and all that its zeros reach.
static void open_cell(Field* env, int32_t first) {
    int32_t around[8];
    uint8_t queue[MAX_CELLS];
    int32_t size = 0;
    env->open[first] = 1;
    queue[size++] = (uint8_t)first;
    for (int32_t i = 0; i < size; i++) {
        if (env->numbers[queue[i]]) continue;
        const int32_t count = neighbours(env, queue[i], around);
        for (int32_t k = 0; k < count; k++)
            if (!env->open[around[k]]) {
                env->open[around[k]] = 1;
                queue[size++] = (uint8_t)around[k];
            }
    }
    env->opened += size;
}

static void reset(Field* env) {
    memset(env->numbers, 0, sizeof env->numbers);
    memset(env->open, 0, sizeof env->open);
    env->opened = 0;
    env->last = -1;
}

static PufStatus end(Field* env, PufStatus status, bool solved) {
    env->score = env->perf = solved;
    env->revealed = (float)env->opened / (float)(num_cells(env) - num_mines(env));
    return status;
}

static PufStatus step(Field* env) {
    const int32_t cell = puf_action(&env->slots, 0), safe = num_cells(env) - num_mines(env);
    env->last = cell;
    if (!env->open[cell]) {
        if (!env->opened) lay_mines(env, cell);
        if (env->numbers[cell] == MINE) {
            puf_reward(&env->slots, 0, -1);
            return end(env, PUF_TERMINATED, false);
        }
        const int32_t before = env->opened;
        open_cell(env, cell);
        puf_reward(&env->slots, 0, (float)(env->opened - before) / (float)safe);
    }
    if (env->opened == safe) {
        puf_reward(&env->slots, 0, 1);
        return end(env, PUF_TERMINATED, true);
    }
    return env->slots.tick >= env->max_steps ? end(env, PUF_TRUNCATED, false) : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

// Marks of cells on a board with an empty border, so that every cell has eight neighbours.
enum { STRIDE = MAX_SIDE + 2 };

static inline int32_t count_around(const uint8_t* at) {
    return at[-STRIDE - 1] + at[-STRIDE] + at[-STRIDE + 1] + at[-1] + at[1] + at[STRIDE - 1] +
           at[STRIDE] + at[STRIDE + 1];
}

// Flags what is closed around a cell.
static inline void flag_around(uint8_t* flags, const uint8_t* closed) {
    for (int32_t row = -STRIDE; row <= STRIDE; row += STRIDE)
        for (int32_t col = -1; col <= 1; col++) flags[row + col] = closed[row + col];
}

static void observe(const Field* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    uint8_t* mask = puf_action_mask(&env->slots, 0);
    uint8_t closed[STRIDE * STRIDE] = {0}, flags[STRIDE * STRIDE] = {0};
    const int32_t width = env->width, height = env->height;
    for (int32_t row = 0, i = 0; row < height; row++)
        for (int32_t col = 0; col < width; col++, i++)
            closed[(row + 1) * STRIDE + col + 1] = mask[i] = !env->open[i];
    for (int32_t row = 0, i = 0; row < height; row++)
        for (int32_t col = 0; col < width; col++, i++) {
            const int32_t at = (row + 1) * STRIDE + col + 1;
            if (env->open[i] && env->numbers[i] && count_around(closed + at) == env->numbers[i])
                flag_around(flags + at, closed + at);
        }
    memset(obs, 0, (size_t)(width * height * KINDS));
    for (int32_t row = 0, i = 0; row < height; row++)
        for (int32_t col = 0; col < width; col++, i++, obs += KINDS) {
            const int32_t at = (row + 1) * STRIDE + col + 1;
            if (closed[at])
                obs[CLOSED + flags[at]] = 1;
            else
                obs[NUMBER + env->numbers[i] - (env->numbers[i] ? count_around(flags + at) : 0)] =
                    1;
        }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { MAX_PICTURE = 480, MARGIN = 12, HEADER = 40 };

static int32_t pixels_per_cell(const Field* env) {
    const int32_t pixels = MAX_PICTURE / (env->width > env->height ? env->width : env->height);
    return pixels > 64 ? 64 : pixels;
}

static void draw_mine(PufCanvas* canvas, float x, float y, float pixels) {
    for (int32_t i = 0; i < 4; i++) {
        static const float dx[4] = {1, 0.7f, 0, -0.7f}, dy[4] = {0, 0.7f, 1, 0.7f};
        const float reach = 0.36f * pixels;
        puf_line(canvas, x - dx[i] * reach, y - dy[i] * reach, x + dx[i] * reach, y + dy[i] * reach,
                 0.07f * pixels, PUF_BLACK);
    }
    puf_circle(canvas, x, y, 0.26f * pixels, PUF_BLACK);
    puf_circle(canvas, x - 0.09f * pixels, y - 0.09f * pixels, 0.07f * pixels, PUF_WHITE);
}

static void draw_cell(const Field* env, PufCanvas* canvas, int32_t cell) {
    static const uint32_t colors[9] = {0,        0x2040E0, 0x107830, 0xD02020, 0x102080,
                                       0x802020, 0x108080, 0x101010, 0x606060};
    const float pixels = (float)pixels_per_cell(env);
    const float x = MARGIN + (float)(cell % env->width) * pixels;
    const float y = HEADER + MARGIN + (float)(cell / env->width) * pixels;
    const int32_t number = env->numbers[cell];
    const bool boom = cell == env->last && number == MINE;
    if (!env->open[cell] && !boom) {  // a raised key
        const float rim = 0.1f * pixels;
        puf_rect(canvas, x, y, pixels, pixels, 0x7B7B7B);
        puf_rect(canvas, x, y, pixels - rim, pixels - rim, PUF_WHITE);
        puf_rect(canvas, x + rim, y + rim, pixels - 2 * rim, pixels - 2 * rim, 0xBDBDBD);
        return;
    }
    puf_rect(canvas, x, y, pixels, pixels, 0x9A9A9A);
    puf_rect(canvas, x + 1, y + 1, pixels - 1, pixels - 1, boom ? PUF_RED : 0xD2D2D2);
    if (boom) draw_mine(canvas, x + 0.5f * pixels, y + 0.5f * pixels, pixels);
    if (boom || !number) return;
    const float scale = pixels < 20 ? 1 : pixels < 40 ? 3 : 5;
    puf_textf(canvas, x + 0.5f * (pixels - 5 * scale), y + 0.5f * (pixels - 7 * scale), scale,
              colors[number], "%d", (int)number);
}

static void render(const Field* env, PufCanvas* canvas) {
    puf_clear(canvas, 0xBDBDBD);
    puf_textf(canvas, MARGIN, 14, 2, PUF_INK, "MINES %d  OPEN %d/%d", (int)num_mines(env),
              (int)env->opened, (int)(num_cells(env) - num_mines(env)));
    for (int32_t cell = 0; cell < num_cells(env); cell++) draw_cell(env, canvas, cell);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Field* env) {
    const int32_t cells = num_cells(env);
    int32_t mines = 0, opened = 0, around[8];
    for (int32_t i = 0; i < MAX_CELLS; i++) {
        if (i >= cells && (env->numbers[i] || env->open[i])) return false;
        if (env->open[i] > 1 || (env->open[i] && env->numbers[i] == MINE)) return false;
        opened += env->open[i];
        mines += env->numbers[i] == MINE;
    }
    for (int32_t i = 0; i < cells; i++) {
        if (env->numbers[i] == MINE) continue;
        const int32_t count = neighbours(env, i, around);
        int32_t number = 0;
        for (int32_t k = 0; k < count; k++) number += env->numbers[around[k]] == MINE;
        if (env->numbers[i] != number) return false;
    }
    return mines == (opened ? num_mines(env) : 0) && env->opened == opened &&
           opened < cells - mines && env->last >= -1 && env->last < cells &&
           env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    const Field* env = self;
    layout->obs.shape[0] = layout->actions.nvec[0] = num_cells(env);
    layout->width = env->width * pixels_per_cell(env) + 2 * MARGIN;
    layout->height = env->height * pixels_per_cell(env) + 2 * MARGIN + HEADER;
}

PUF_ENV(minesweeper, Field, .doc = "open all cells but the mines", .group = "boards",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 2, .shape = {0, KINDS}, .low = 0, .high = 1},
                   .actions = {.num_discrete = 1},
                   .action_masks = true});
