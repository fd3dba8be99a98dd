// squared - visit every target on the border of a grid, starting from its centre. A first test of
// any trainer: it learns in seconds, and only a complete tour scores 1.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    int32_t row, col, hit;
    float score, perf;
    int32_t distance, num_targets, max_steps;
} Squared;

enum { EMPTY = 0, AGENT = 1, TARGET = 2 };

static const PufField params[] = {
    PUF_PARAM_I32(Squared, distance, 3, 1, 15, "cells from the centre to the border"),
    PUF_PARAM_I32(Squared, num_targets, 4, 1, 120,
                  "number of targets, at most one per border cell"),
    PUF_PARAM_I32(Squared, max_steps, 0, 0, 100000,
                  "steps before the episode is truncated; 0: 8 x distance x targets"),
};

static const PufField metrics[] = {
    PUF_METRIC(Squared, score, "targets visited"),
    PUF_METRIC(Squared, perf, "share of targets visited"),
};

static int32_t side(const Squared* env) { return 2 * env->distance + 1; }

static int32_t targets(const Squared* env) {
    int32_t border = 8 * env->distance;
    return env->num_targets < border ? env->num_targets : border;
}

// Border cells are numbered clockwise from the top left corner.
static int32_t border_cell(const Squared* env, int32_t k) {
    int32_t n = side(env), run = n - 1;
    int32_t edge = k / run, along = k % run;
    int32_t row = edge == 0 ? 0 : edge == 1 ? along : edge == 2 ? run : run - along;
    int32_t col = edge == 0 ? along : edge == 1 ? run : edge == 2 ? run - along : 0;
    return row * n + col;
}

static void reset(Squared* env) {
    uint8_t* board = PUF_ARENA(env);
    memset(board, EMPTY, (size_t)(side(env) * side(env)));
    env->row = env->col = env->distance;
    env->hit = 0;
    // Floyd's sampling without replacement: distinct border cells, each set equally likely.
    int32_t border = 8 * env->distance;
    for (int32_t k = border - targets(env); k < border; k++) {
        int32_t cell = border_cell(env, puf_rand_int(&env->slots.rng, k + 1));
        board[board[cell] == TARGET ? border_cell(env, k) : cell] = TARGET;
    }
}

static PufStatus step(Squared* env) {
    static const int8_t rows[9] = {0, -1, 1, 0, 0, -1, -1, 1, 1};
    static const int8_t cols[9] = {0, 0, 0, -1, 1, -1, 1, -1, 1};
    uint8_t* board = PUF_ARENA(env);
    int32_t n = side(env), action = puf_action(&env->slots, 0);
    int32_t row = env->row + rows[action], col = env->col + cols[action];
    if (row >= 0 && row < n && col >= 0 && col < n) {
        env->row = row;
        env->col = col;
    }
    uint8_t* cell = &board[env->row * n + env->col];
    if (*cell == TARGET) {
        *cell = EMPTY;
        env->hit++;
        puf_reward(&env->slots, 0, 1.0f / (float)targets(env));
    }
    env->score = (float)env->hit;
    env->perf = env->score / (float)targets(env);
    if (env->hit == targets(env)) return PUF_TERMINATED;
    int32_t allowed = env->max_steps ? env->max_steps : 8 * env->distance * targets(env);
    return env->slots.tick >= allowed ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Squared* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    int32_t n = side(env);
    memcpy(obs, PUF_ARENA(env), (size_t)(n * n));
    obs[env->row * n + env->col] = AGENT;
}

static void render(const Squared* env, PufCanvas* canvas) {
    const uint8_t* board = PUF_ARENA(env);
    int32_t n = side(env);
    float cell = (float)canvas->width / (float)n;
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < n; row++)
        for (int32_t col = 0; col < n; col++) {
            float x = (float)col * cell, y = (float)row * cell;
            puf_rect_outline(canvas, x, y, cell, cell, 1, 0x12304F);
            if (board[row * n + col] == TARGET)
                puf_rect(canvas, x + 3, y + 3, cell - 6, cell - 6, PUF_RED);
        }
    float x = ((float)env->col + 0.5f) * cell, y = ((float)env->row + 0.5f) * cell;
    puf_circle(canvas, x, y, 0.38f * cell, PUF_CYAN);
    puf_textf(canvas, 6, 6, 2, PUF_PAPER, "%d/%d", (int)env->hit, (int)targets(env));
}

static bool valid(const Squared* env) {
    const uint8_t* board = PUF_ARENA((Squared*)env);
    int32_t n = side(env), left = 0;
    for (int32_t i = 0; i < n * n; i++) {
        if (board[i] != EMPTY && board[i] != TARGET) return false;
        left += board[i] == TARGET;
    }
    return env->row >= 0 && env->row < n && env->col >= 0 && env->col < n && left > 0 &&
           env->hit == targets(env) - left;
}

static void shape(const void* self, PufLayout* layout) {
    const Squared* env = self;
    layout->obs.shape[0] = layout->obs.shape[1] = side(env);
    layout->arena = (size_t)(side(env) * side(env));
}

PUF_ENV(squared, Squared, .doc = "visit every target on the border of a grid", .group = "probes",
        .action_names = "stay up down left right up_left up_right down_left down_right",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 2, .low = 0, .high = 2},
                   .actions = PUF_DISCRETE(9),
                   .width = 280,
                   .height = 280});
