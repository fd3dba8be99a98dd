// flappy - fly a bird through the gaps between pipes: a flap lifts it, gravity pulls it down.
//
// Lengths are pixels of a screen 288 wide and 512 high, of which the lowest 108 are ground; an
// action (0: glide, 1: flap) lasts for `frameskip` ticks, the flap happens in the first of them.
// One tick:
// 1. A flap sets the upward speed of the bird to `flap_speed`, else it falls faster by `gravity`,
//    up to `max_fall`. Then the bird moves; the top of the screen stops it.
// 2. The pipes move left by `speed`. A pipe that has left the screen is dropped, and a new one with
//    a gap at a random height stands `spacing` behind the last one.
// 3. The bird crashes if its box touches the ground or a pipe: reward -1, end of the episode.
// 4. A pipe whose right edge is behind the bird is passed: reward 1. After `goal` pipes the episode
//    is truncated.
//
// Observed: height and speed of the bird; for the next two pipes the distance to the right edge,
// and how far the top and the bottom of the gap are above the bird.
#include "puf_env.h"

enum {
    WIDTH = 288,
    HEIGHT = 512,
    GROUND = 404,  // height of the sky
    BIRD_X = 57,   // left edge of the bird
    BIRD_WIDTH = 34,
    BIRD_HEIGHT = 24,
    PIPE_WIDTH = 52,
    MIN_SPACING = 100,
    NUM_PIPES = 5,  // enough to fill the screen at MIN_SPACING
    NUM_FEATURES = 8,
};

enum { GLIDE, FLAP };

typedef struct {
    PufSlots slots;
    float y, fall;           // top edge of the bird; speed downwards
    float pipe;              // left edge of pipe 0; the others follow at `spacing`
    float gaps[NUM_PIPES];   // top edge of each pipe's gap
    int32_t passed, behind;  // pipes passed; 1 if pipe 0 is one of them
    float score, perf;
    float gravity, flap_speed, max_fall, gap, spacing, speed;
    int32_t goal, frameskip, max_steps;
} Flappy;

static const PufField params[] = {
    PUF_PARAM_F32(Flappy, gravity, 1, 0.1, 4, "speed gained per tick of fall"),
    PUF_PARAM_F32(Flappy, flap_speed, 9, 1, 20, "upward speed after a flap in pixels per tick"),
    PUF_PARAM_F32(Flappy, max_fall, 10, 1, 20, "largest speed of fall in pixels per tick"),
    PUF_PARAM_F32(Flappy, gap, 100, 40, 200, "height of a gap in pixels"),
    PUF_PARAM_F32(Flappy, spacing, 180, MIN_SPACING, 400, "pixels from one pipe to the next"),
    PUF_PARAM_F32(Flappy, speed, 4, 1, 20, "pixels that pipes move per tick"),
    PUF_PARAM_I32(Flappy, goal, 100, 1, 100000, "gaps after which the episode is truncated"),
    PUF_PARAM_I32(Flappy, frameskip, 2, 1, 8, "physics ticks per step"),
    PUF_PARAM_I32(Flappy, max_steps, 4000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Flappy, score, "gaps passed"),
    PUF_METRIC(Flappy, perf, "score / goal"),
};

// Gaps keep a fifth of the sky from its ends.
static const float LOWEST = 0.2f * GROUND, HIGHEST = 0.8f * GROUND;

static float new_gap(Flappy* env) {
    return puf_rand_range(&env->slots.rng, LOWEST, HIGHEST - env->gap);
}

static void reset(Flappy* env) {
    env->y = 0.5f * (GROUND - BIRD_HEIGHT);
    env->fall = -env->flap_speed;
    env->pipe = WIDTH;
    for (int32_t i = 0; i < NUM_PIPES; i++) env->gaps[i] = new_gap(env);
    env->passed = env->behind = 0;
}

static void move_bird(Flappy* env, bool flap) {
    env->fall = flap ? -env->flap_speed : fminf(env->fall + env->gravity, env->max_fall);
    env->y = fmaxf(env->y + env->fall, 0);
}

static void move_pipes(Flappy* env) {
    env->pipe -= env->speed;
    if (env->pipe > -PIPE_WIDTH) return;
    env->pipe += env->spacing;
    memmove(env->gaps, env->gaps + 1, (NUM_PIPES - 1) * sizeof env->gaps[0]);
    env->gaps[NUM_PIPES - 1] = new_gap(env);
    env->behind = 0;
}

// Only pipes 0 and 1 can be as far left as the bird.
static bool crashes(const Flappy* env) {
    if (env->y + BIRD_HEIGHT >= GROUND) return true;
    for (int32_t i = 0; i < 2; i++) {
        float left = env->pipe + (float)i * env->spacing;
        if (left >= BIRD_X + BIRD_WIDTH || left + PIPE_WIDTH <= BIRD_X) continue;
        if (env->y < env->gaps[i] || env->y + BIRD_HEIGHT > env->gaps[i] + env->gap) return true;
    }
    return false;
}

static PufStatus end(Flappy* env, PufStatus status) {
    env->y = fminf(env->y, GROUND - BIRD_HEIGHT);
    env->score = (float)env->passed;
    env->perf = env->score / (float)env->goal;
    return status;
}

static PufStatus step(Flappy* env) {
    const bool flap = puf_action(&env->slots, 0) == FLAP;
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        move_bird(env, flap && tick == 0);
        move_pipes(env);
        if (crashes(env)) {
            puf_reward(&env->slots, 0, -1);
            return end(env, PUF_TERMINATED);
        }
        if (!env->behind && env->pipe + PIPE_WIDTH <= BIRD_X) {
            env->behind = 1;
            env->passed++;
            puf_reward(&env->slots, 0, 1);
            if (env->passed >= env->goal) return end(env, PUF_TRUNCATED);
        }
    }
    return env->slots.tick >= env->max_steps ? end(env, PUF_TRUNCATED) : PUF_RUNNING;
}

static void observe(const Flappy* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = env->y * (2.0f / GROUND) - 1;
    obs[1] = env->fall * 0.05f;
    for (int32_t i = 0; i < 2; i++) {
        int32_t pipe = env->behind + i;
        float right = env->pipe + (float)pipe * env->spacing + PIPE_WIDTH - BIRD_X;
        obs[2 + 3 * i] = right * (1.0f / 800);
        obs[3 + 3 * i] = (env->y - env->gaps[pipe]) * (1.0f / GROUND);
        obs[4 + 3 * i] = (env->gaps[pipe] + env->gap - env->y - BIRD_HEIGHT) * (1.0f / GROUND);
    }
}

// ---- Pictures -----------------------------------------------------------------------------------

static void draw_pipe(PufCanvas* canvas, float x, float top, float bottom, float scale, bool cap) {
    const uint32_t body = 0x5CB338, light = 0x9BE05C, dark = 0x3D7A26;
    puf_rect(canvas, x, top, PIPE_WIDTH * scale, bottom - top, body);
    puf_rect(canvas, x + 5 * scale, top, 7 * scale, bottom - top, light);
    puf_rect(canvas, x + 42 * scale, top, 6 * scale, bottom - top, dark);
    const float y = cap ? top : bottom - 22 * scale;  // the rim, at the gap
    puf_rect(canvas, x - 4 * scale, y, (PIPE_WIDTH + 8) * scale, 22 * scale, dark);
    puf_rect(canvas, x - 2 * scale, y + 2 * scale, (PIPE_WIDTH + 4) * scale, 18 * scale, body);
    puf_rect(canvas, x + 3 * scale, y + 2 * scale, 7 * scale, 18 * scale, light);
}

// Turned by its speed: (c, s) points forwards.
static void draw_bird(const Flappy* env, PufCanvas* canvas, float scale) {
    const float tilt = fminf(fmaxf(0.06f * env->fall, -0.45f), 0.9f);
    const float s = tilt * (1 - tilt * tilt / 6), c = 1 - 0.5f * tilt * tilt;
    const float x = (BIRD_X + 0.5f * BIRD_WIDTH) * scale;
    const float y = (env->y + 0.5f * BIRD_HEIGHT) * scale;
#define AT(forwards, down) \
    x + ((forwards) * c - (down) * s) * scale, y + ((forwards) * s + (down) * c) * scale
    puf_line(canvas, AT(-5, 0), AT(5, 0), 24 * scale, PUF_YELLOW);
    puf_polygon(canvas, (const float[]){AT(9, 1), AT(20, 4), AT(9, 8)}, 3, PUF_ORANGE);
    const float wing = env->fall < 0 ? 8.0f : -6.0f;  // beats down while it rises
    puf_polygon(canvas, (const float[]){AT(-14, wing), AT(-10, 0), AT(0, 1)}, 3, PUF_PAPER);
    puf_circle(canvas, AT(9, -4), 5.5f * scale, PUF_WHITE);
    puf_circle(canvas, AT(11, -4), 2.2f * scale, PUF_BLACK);
#undef AT
}

static void render(const Flappy* env, PufCanvas* canvas) {
    const float scale = (float)canvas->height / HEIGHT, width = (float)canvas->width;
    const float ground = GROUND * scale;
    puf_clear(canvas, 0x70C5CE);
    for (int32_t i = 0; i < 5; i++) {  // clouds and bushes
        float x = (float)(20 + 68 * i) * scale;
        puf_circle(canvas, x, ground - 26 * scale, (float)(30 + i % 3 * 6) * scale, 0xE4F7E8);
        puf_circle(canvas, x + 34 * scale, ground, 30 * scale, 0x82DA8C);
    }
    for (int32_t i = 0; i < NUM_PIPES; i++) {
        float x = (env->pipe + (float)i * env->spacing) * scale;
        if (x > width) break;
        draw_pipe(canvas, x, 0, env->gaps[i] * scale, scale, false);
        draw_pipe(canvas, x, (env->gaps[i] + env->gap) * scale, ground, scale, true);
    }
    puf_rect(canvas, 0, ground, width, (HEIGHT - GROUND) * scale, 0xDED895);
    puf_rect(canvas, 0, ground, width, 12 * scale, 0x73BF2E);
    draw_bird(env, canvas, scale);
    puf_textf(canvas, 0.5f * width - 14 * scale, 30 * scale, 5 * scale, PUF_WHITE, "%d",
              (int)env->passed);
}

static bool valid(const Flappy* env) {
    for (int32_t i = 0; i < NUM_PIPES; i++)
        if (!puf_within(env->gaps[i], LOWEST - 1, HIGHEST)) return false;
    const bool behind = env->pipe + PIPE_WIDTH <= BIRD_X;
    return puf_within(env->y, 0, GROUND - BIRD_HEIGHT) &&
           puf_within(env->fall, -env->flap_speed, env->max_fall) &&
           puf_within(env->pipe, -PIPE_WIDTH, fmaxf(WIDTH, env->spacing)) &&
           env->behind == behind && env->passed >= env->behind && env->passed < env->goal &&
           env->slots.tick < env->max_steps;
}

PUF_ENV(flappy, Flappy, .doc = "flap through the gaps between pipes", .group = "arcade",
        .action_names = "glide flap",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(2),
            .width = 288,
            .height = 512});
