// lightsout - switch off all lights of a square board. A press toggles a light and its neighbours
// above, below, left and right.
//
// An episode begins with the lights that a few presses of different cells leave, so that there is
// a solution; at least one light is on. Par is the least number of presses that solves the board:
// the known solution, or that solution combined with a pattern of presses that changes nothing. The
// observation has a number for each cell, row by row: 1 for a light that is on, else 0. A press
// that comes nearer to the solution earns 0.1, one that leads away costs as much; the last one
// earns 0.1 more. Episodes are truncated at max_steps.
#include "puf_env.h"

enum { MAX_SIDE = 8, MAX_CELLS = MAX_SIDE * MAX_SIDE };

typedef uint64_t Bits;  // row r, column c is bit side * r + c

typedef struct {
    PufSlots slots;
    Bits lights;
    Bits solution;      // presses that switch off all lights; perhaps not the fewest
    int32_t par;        // least presses from the start
    int32_t remaining;  // least presses from here
    int32_t last;       // cell of the last press, or -1
    float score, perf, over_par;
    int32_t side, presses, max_steps;
} Board;

static const PufField params[] = {
    PUF_PARAM_I32(Board, side, 5, 2, MAX_SIDE, "cells in a row and in a column"),
    PUF_PARAM_I32(Board, presses, 8, 1, MAX_CELLS,
                  "a board is made by 1 to this many presses, at most all cells"),
    PUF_PARAM_I32(Board, max_steps, 24, 1, 1000000, "presses before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Board, score, "1 if solved, else 0"),
    PUF_METRIC(Board, perf, "par / presses if solved, else 0"),
    PUF_METRIC(Board, over_par, "presses beyond par"),
};

// ---- Rules --------------------------------------------------------------------------------------

static inline Bits all_cells(const Board* env) {
    return ~(Bits)0 >> (MAX_CELLS - env->side * env->side);
}

// The lights that are on after these presses of a dark board.
static inline Bits toggled(const Board* env, Bits presses) {
    static const Bits first_cols[MAX_SIDE + 1] = {
        0, 0, 0x5, 0x49, 0x1111, 0x108421, 0x41041041, 0x40810204081, 0x101010101010101};
    const int32_t side = env->side;
    const Bits first_col = first_cols[side], last_col = first_col << (side - 1);
    return all_cells(env) & (presses ^ (presses << side) ^ (presses >> side) ^
                             ((presses & ~last_col) << 1) ^ ((presses & ~first_col) >> 1));
}

// The least number of presses that solves the board. Two solutions differ by a quiet pattern,
// presses that change nothing. Of the boards up to 8 x 8 only 4 x 4 and 5 x 5 have such patterns:
// the sums of these.
static int32_t distance(const Board* env) {
    static const Bits quiet[MAX_SIDE + 1][4] = {[4] = {0xE531, 0xB872, 0xD1E4, 0x7AC8},
                                                [5] = {0x15A82B5, 0x1B06C1B}};
    static const uint8_t counts[MAX_SIDE + 1] = {[4] = 4, [5] = 2};
    const int32_t count = counts[env->side];
    Bits presses = env->solution;
    int32_t least = __builtin_popcountll(presses);
    for (int32_t i = 1; i < 1 << count; i++) {  // a Gray code: one pattern changes at a time
        presses ^= quiet[env->side][__builtin_ctz((uint32_t)i)];
        const int32_t number = __builtin_popcountll(presses);
        least = number < least ? number : least;
    }
    return least;
}

static void reset(Board* env) {
    PufRng* rng = &env->slots.rng;
    const int32_t cells = env->side * env->side;
    const int32_t most = env->presses < cells ? env->presses : cells;
    do {  // a quiet pattern leaves no light on; a single press never does, so this ends
        const int32_t number = 1 + puf_rand_int(rng, most);
        env->solution = 0;
        for (int32_t i = cells - number; i < cells; i++) {  // Floyd's sampling
            const Bits press = (Bits)1 << puf_rand_int(rng, i + 1);
            env->solution |= env->solution & press ? (Bits)1 << i : press;
        }
        env->lights = toggled(env, env->solution);
    } while (!env->lights);
    env->par = env->remaining = distance(env);
    env->last = -1;
}

static PufStatus step(Board* env) {
    const int32_t before = env->remaining;
    env->last = puf_action(&env->slots, 0);
    env->solution ^= (Bits)1 << env->last;
    env->lights = toggled(env, env->solution);
    env->remaining = distance(env);
    const bool solved = !env->lights;
    // The same for long and short solutions: else what is learned is mostly the short ones.
    puf_reward(&env->slots, 0, 0.1f * (float)(before - env->remaining + solved));
    if (!solved && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = solved;
    env->perf = solved ? (float)env->par / (float)env->slots.tick : 0;
    env->over_par = (float)(env->slots.tick - env->par);
    return solved ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Board* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    const int32_t cells = env->side * env->side;
    for (int32_t i = 0; i < cells; i++) obs[i] = env->lights >> i & 1;
}

// ---- Picture ------------------------------------------------------------------------------------

enum { BOARD_PIXELS = 480, MARGIN = 20, HEADER = 40 };

static void render(const Board* env, PufCanvas* canvas) {
    const float pixels = (float)BOARD_PIXELS / (float)env->side, size = 0.86f * pixels;
    puf_clear(canvas, PUF_INK);
    puf_textf(canvas, MARGIN, 14, 2, PUF_PAPER, "LIGHTS %d  PRESSES %d  PAR %d",
              __builtin_popcountll(env->lights), (int)env->slots.tick, (int)env->par);
    puf_rect(canvas, MARGIN / 2, HEADER, BOARD_PIXELS + MARGIN, BOARD_PIXELS + MARGIN, PUF_BLACK);
    for (int32_t i = 0; i < env->side * env->side; i++) {
        const bool on = env->lights >> i & 1;
        const float x = MARGIN + ((float)(i % env->side) + 0.07f) * pixels;
        const float y = HEADER + MARGIN / 2 + ((float)(i / env->side) + 0.07f) * pixels;
        puf_rect(canvas, x, y, size, size, on ? PUF_YELLOW : PUF_SLATE);
        puf_rect_outline(canvas, x, y, size, size, 0.06f * size, on ? 0xFFF3B8 : 0x2C4C6B);
        if (on) puf_circle(canvas, x + 0.5f * size, y + 0.5f * size, 0.28f * size, 0xFFF3B8);
        if (i == env->last) puf_rect_outline(canvas, x, y, size, size, 0.05f * size, PUF_WHITE);
    }
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Board* env) {
    const int32_t cells = env->side * env->side;
    return !(env->solution & ~all_cells(env)) && env->lights &&
           env->lights == toggled(env, env->solution) && env->remaining == distance(env) &&
           env->par >= 1 && env->par <= cells && env->last >= -1 && env->last < cells &&
           env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    const int32_t side = ((const Board*)self)->side;
    layout->obs.shape[0] = layout->actions.nvec[0] = side * side;
}

PUF_ENV(lightsout, Board, .doc = "switch off all lights with the fewest presses", .group = "boards",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .low = 0, .high = 1},
                   .actions = {.num_discrete = 1},
                   .width = BOARD_PIXELS + 2 * MARGIN,
                   .height = BOARD_PIXELS + MARGIN + HEADER + MARGIN / 2});
