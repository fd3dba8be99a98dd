// chain - walk along a row of cells. The left end, one step from the start, pays a little; the
// right end pays much but is far away. A trainer that settles for the first reward it finds never
// reaches the other. After Osband et al. 2016, "Deep Exploration via Bootstrapped DQN".
//
// Action 1 moves right, 0 moves left; at an end the agent stays. A step that ends at the right end
// earns 1, one that ends at the left end earns `near_reward`. The observation is the position, from
// 0 at the left end to 1 at the right end. Episodes are truncated at max_steps, which is not
// observed.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    int32_t place, far_steps;  // position; steps at the right end
    float score, perf;
    int32_t length, max_steps;
    float near_reward;
} Chain;

static const PufField params[] = {
    PUF_PARAM_I32(Chain, length, 12, 2, 10000, "cells in the row"),
    PUF_PARAM_F32(Chain, near_reward, 0.05, 0, 1, "reward for each step at the left end"),
    PUF_PARAM_I32(Chain, max_steps, 0, 0, 1000000,
                  "steps before the episode is truncated; 0: length + 9"),
};

static const PufField metrics[] = {
    PUF_METRIC(Chain, score, "steps at the right end"),
    PUF_METRIC(Chain, perf, "score / score of a straight walk to the right end"),
};

static int32_t allowed(const Chain* env) {
    return env->max_steps ? env->max_steps : env->length + 9;
}

// Steps at the right end after a straight walk from place 1; at least 1, as a divisor.
static float best(const Chain* env) {
    const int32_t walk = env->length > 2 ? env->length - 2 : 1;
    const int32_t steps = allowed(env) - walk + 1;
    return (float)(steps > 1 ? steps : 1);
}

static void reset(Chain* env) {
    env->place = 1;
    env->far_steps = 0;
}

static PufStatus step(Chain* env) {
    const int32_t last = env->length - 1;
    const int32_t place = env->place + (puf_action(&env->slots, 0) ? 1 : -1);
    env->place = place < 0 ? 0 : place > last ? last : place;
    if (env->place == last) {
        env->far_steps++;
        puf_reward(&env->slots, 0, 1);
    } else if (env->place == 0) {
        puf_reward(&env->slots, 0, env->near_reward);
    }
    env->score = (float)env->far_steps;
    env->perf = env->score / best(env);
    return env->slots.tick >= allowed(env) ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Chain* env) {
    puf_obs_f32(&env->slots, 0)[0] = (float)env->place / (float)(env->length - 1);
}

// Stepping stones over water, a coin on the first and a chest on the last.
static void render(const Chain* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float pitch = width / (float)env->length, r = fminf(0.42f * pitch, 0.16f * height);
    const float y = 0.66f * height;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, 0, y, width, height - y, PUF_SLATE);
    for (int32_t i = 0; i < 3; i++)
        puf_rect(canvas, 0, y + (0.35f + 0.25f * (float)i) * (height - y), width, 1, PUF_BLUE);
    for (int32_t i = 0; i < env->length; i++) {
        const float x = ((float)i + 0.5f) * pitch;
        puf_rect(canvas, x - r, y - 0.4f * r, 2 * r, 0.8f * r, i == 1 ? PUF_PAPER : PUF_GREY);
    }
    const float coin = 0.5f * pitch, chest = width - 0.5f * pitch, ground = y - 0.4f * r;
    puf_circle(canvas, coin, ground - 0.4f * r, 0.36f * r, PUF_YELLOW);
    puf_rect(canvas, chest - r, ground - 1.3f * r, 2 * r, 1.3f * r, PUF_BROWN);
    puf_rect(canvas, chest - r, ground - 1.3f * r, 2 * r, 0.45f * r, PUF_ORANGE);
    puf_rect(canvas, chest - 0.2f * r, ground - r, 0.4f * r, 0.4f * r, PUF_YELLOW);
    const float x = ((float)env->place + 0.5f) * pitch;
    puf_line(canvas, x, ground - 0.1f * r, x, ground - 1.2f * r, 0.7f * r, PUF_CYAN);
    puf_circle(canvas, x, ground - 1.8f * r, 0.5f * r, PUF_CYAN);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "CHEST %d  STEP %d/%d", (int)env->far_steps,
              (int)env->slots.tick, (int)allowed(env));
}

static bool valid(const Chain* env) {
    return env->place >= 0 && env->place < env->length && env->far_steps >= 0 &&
           env->far_steps <= env->slots.tick;
}

PUF_ENV(chain, Chain, .doc = "walk past a small reward to a large one far away", .group = "probes",
        .action_names = "left right",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {1}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(2),
                   .width = 480,
                   .height = 160});
