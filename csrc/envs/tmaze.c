// tmaze - a sign at the start points left or right; the junction is at the end of a corridor, where
// the sign is out of sight. After Bakker 2001, "Reinforcement Learning with Long Short-Term
// Memory".
//
// Actions: 0 forward, 1 left, 2 right. At the start and in the corridor only forward moves the
// agent; at the junction only a turn does, and it ends the episode: the correct turn earns 1, the
// wrong one 0. The observation has four bytes: sign left, sign right, corridor, junction. The
// corridor and the junction look the same for both signs, so without recurrent state half of the
// turns are wrong.
#include "puf_env.h"

enum { FORWARD, LEFT, RIGHT };

typedef struct {
    PufSlots slots;
    int32_t sign;   // LEFT or RIGHT
    int32_t place;  // 0 at the start, 1 .. length in the corridor, length + 1 at the junction
    float score, perf, turned;
    int32_t length, max_steps;
} TMaze;

static const PufField params[] = {
    PUF_PARAM_I32(TMaze, length, 6, 0, 10000, "cells of the corridor between sign and junction"),
    PUF_PARAM_I32(TMaze, max_steps, 0, 0, 1000000,
                  "steps before the episode is truncated; 0: 4 x length + 8"),
};

static const PufField metrics[] = {
    PUF_METRIC(TMaze, score, "1 for the correct turn, else 0"),
    PUF_METRIC(TMaze, perf, "1 for the correct turn, else 0"),
    PUF_METRIC(TMaze, turned, "1 for either turn, else 0"),
};

static void reset(TMaze* env) {
    env->sign = puf_rand_int(&env->slots.rng, 2) ? RIGHT : LEFT;
    env->place = 0;
}

static PufStatus step(TMaze* env) {
    const int32_t action = puf_action(&env->slots, 0);
    const bool at_junction = env->place > env->length;
    env->turned = at_junction && action != FORWARD;
    env->score = env->perf = at_junction && action == env->sign;
    puf_reward(&env->slots, 0, env->score);
    if (env->turned != 0) return PUF_TERMINATED;
    if (action == FORWARD && !at_junction) env->place++;
    const int32_t allowed = env->max_steps ? env->max_steps : 4 * env->length + 8;
    return env->slots.tick >= allowed ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const TMaze* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    obs[0] = env->place == 0 && env->sign == LEFT;
    obs[1] = env->place == 0 && env->sign == RIGHT;
    obs[2] = env->place > 0 && env->place <= env->length;
    obs[3] = env->place > env->length;
}

// The maze from above, from left to right, so that a turn to the left goes up. The cheese is on the
// side of the sign, the trap on the other.
static void render(const TMaze* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float cells = (float)env->length + 2, side = fminf(0.94f * width / cells, 0.28f * height);
    const float x0 = 0.5f * (width - side * cells), mid = 0.54f * height;
    const float end = x0 + side * (cells - 1), up = mid - 1.5f * side;
    const float seen = env->sign == LEFT ? -1 : 1, r = 0.5f * side;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, x0, mid - r, side * cells, side, PUF_PAPER);
    puf_rect(canvas, end, up, side, 3 * side, PUF_PAPER);
    for (int32_t i = 1; i < (int32_t)cells; i++)
        puf_rect(canvas, x0 + side * (float)i, mid - r, 1, side, PUF_GREY);
    puf_rect(canvas, end, mid - r, side, 1, PUF_GREY);
    puf_rect(canvas, end, mid + r, side, 1, PUF_GREY);
    const float gx = end + r, gy = mid + seen * side, ty = mid - seen * side;
    const float cheese[] = {gx - 0.7f * r, gy + 0.5f * r, gx + 0.7f * r, gy + 0.5f * r,
                            gx + 0.7f * r, gy - 0.1f * r, gx - 0.4f * r, gy - 0.6f * r};
    puf_polygon(canvas, cheese, 4, PUF_YELLOW);
    puf_circle(canvas, gx + 0.2f * r, gy + 0.15f * r, 0.13f * r, PUF_ORANGE);
    puf_circle(canvas, gx - 0.3f * r, gy + 0.2f * r, 0.1f * r, PUF_ORANGE);
    puf_line(canvas, gx - 0.5f * r, ty - 0.5f * r, gx + 0.5f * r, ty + 0.5f * r, 0.2f * r, PUF_RED);
    puf_line(canvas, gx - 0.5f * r, ty + 0.5f * r, gx + 0.5f * r, ty - 0.5f * r, 0.2f * r, PUF_RED);
    // The sign beside the start: an arrow, bright while it is observed.
    const float sx = x0 + r, sy = mid + seen * 1.1f * side;
    const float arrow[] = {sx, sy + seen * 0.6f * r, sx - 0.6f * r, sy, sx + 0.6f * r, sy};
    const uint32_t color = env->place == 0 ? PUF_GREEN : PUF_SLATE;
    puf_polygon(canvas, arrow, 3, color);
    puf_rect(canvas, sx - 0.2f * r, sy - (seen > 0 ? 0.6f : 0) * r, 0.4f * r, 0.6f * r, color);
    // A mouse.
    const float x = x0 + side * ((float)env->place + 0.5f);
    puf_line(canvas, x - 0.4f * r, mid, x - 0.85f * r, mid + 0.25f * r, 0.08f * r, PUF_PINK);
    puf_circle(canvas, x - 0.1f * r, mid, 0.45f * r, 0x5A6B7Cu);
    puf_circle(canvas, x + 0.3f * r, mid, 0.3f * r, 0x5A6B7Cu);
    puf_circle(canvas, x + 0.15f * r, mid - 0.32f * r, 0.17f * r, PUF_PINK);
    puf_circle(canvas, x + 0.15f * r, mid + 0.32f * r, 0.17f * r, PUF_PINK);
    puf_circle(canvas, x + 0.58f * r, mid, 0.08f * r, PUF_INK);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "STEP %d", (int)env->slots.tick);
}

static bool valid(const TMaze* env) {
    return (env->sign == LEFT || env->sign == RIGHT) && env->place >= 0 &&
           env->place <= env->length + 1;
}

PUF_ENV(tmaze, TMaze, .doc = "remember a sign and turn as it says at the end of a corridor",
        .group = "probes", .action_names = "forward left right",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {4}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(3),
                   .width = 480,
                   .height = 220});
