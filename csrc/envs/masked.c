// masked - take the best of the few legal actions. The observation shows the worth of each action,
// but only the action mask shows which ones are legal, and usually an illegal action is worth more.
// A trainer that ignores the mask, in sampling or in the loss, cannot learn it.
//
// Each step the actions are worth 1 .. num_actions in random order, observed as shares of the
// highest, and a random subset is legal. The best legal action earns 1 / max_steps, another legal
// one 0, an illegal one -1 / max_steps. Episodes are truncated at max_steps, which is not observed.
#include "puf_env.h"

enum { MAX_ACTIONS = 64 };

typedef struct {
    PufSlots slots;
    uint64_t legal;              // bit i: action i is legal
    uint8_t worth[MAX_ACTIONS];  // 1 .. num_actions, each once
    int32_t last, last_best;     // action of the last step; the best action of that step
    int32_t hits, faults;        // best actions and illegal actions in this episode
    float score, perf, illegal;
    int32_t num_actions, num_legal, max_steps;
} Masked;

static const PufField params[] = {
    PUF_PARAM_I32(Masked, num_actions, 8, 2, MAX_ACTIONS, "number of actions"),
    PUF_PARAM_I32(Masked, num_legal, 3, 1, MAX_ACTIONS,
                  "legal actions in each step, at most num_actions"),
    PUF_PARAM_I32(Masked, max_steps, 16, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Masked, score, "steps with the best legal action"),
    PUF_METRIC(Masked, perf, "share of steps with the best legal action"),
    PUF_METRIC(Masked, illegal, "share of steps with an illegal action"),
};

static bool is_legal(const Masked* env, int32_t action) { return env->legal >> action & 1; }

static int32_t best_legal(const Masked* env) {
    int32_t best = -1;
    for (int32_t i = 0; i < env->num_actions; i++)
        if (is_legal(env, i) && (best < 0 || env->worth[i] > env->worth[best])) best = i;
    return best;
}

// Worths by a Fisher-Yates shuffle, the legal set by Floyd's sampling.
static void deal(Masked* env) {
    const int32_t n = env->num_actions, wanted = env->num_legal < n ? env->num_legal : n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t j = puf_rand_int(&env->slots.rng, i + 1);
        env->worth[i] = env->worth[j];
        env->worth[j] = (uint8_t)(i + 1);
    }
    env->legal = 0;
    for (int32_t i = n - wanted; i < n; i++) {
        const int32_t pick = puf_rand_int(&env->slots.rng, i + 1);
        env->legal |= (uint64_t)1 << (is_legal(env, pick) ? i : pick);
    }
}

static void reset(Masked* env) {
    env->last = env->last_best = -1;
    env->hits = env->faults = 0;
    deal(env);
}

static PufStatus step(Masked* env) {
    const float steps = (float)env->max_steps;
    env->last = puf_action(&env->slots, 0);
    env->last_best = best_legal(env);
    const bool hit = env->last == env->last_best, fault = !is_legal(env, env->last);
    env->hits += hit;
    env->faults += fault;
    puf_reward(&env->slots, 0, (hit ? 1.0f : fault ? -1.0f : 0.0f) / steps);
    deal(env);
    env->score = (float)env->hits;
    env->perf = (float)env->hits / steps;
    env->illegal = (float)env->faults / steps;
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Masked* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    uint8_t* mask = puf_action_mask(&env->slots, 0);
    for (int32_t i = 0; i < env->num_actions; i++) {
        obs[i] = (float)env->worth[i] / (float)env->num_actions;
        mask[i] = is_legal(env, i);
    }
}

// Doors with their worth as columns of gold. Illegal ones are barred; a star marks the best legal
// one. The strip below marks the last action: green if it was the best.
static void render(const Masked* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float pitch = width / (float)env->num_actions, top = 0.16f * height, h = 0.64f * height;
    const int32_t best = best_legal(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t i = 0; i < env->num_actions; i++) {
        const float x = ((float)i + 0.1f) * pitch, w = 0.8f * pitch;
        const bool legal = is_legal(env, i);
        const float worth = (float)env->worth[i] / (float)env->num_actions, tall = 0.9f * h * worth;
        puf_rect(canvas, x, top, w, h, PUF_SLATE);
        puf_rect(canvas, x + 0.15f * w, top + h - tall, 0.7f * w, tall,
                 legal ? PUF_YELLOW : 0x6E6236u);
        puf_rect_outline(canvas, x, top, w, h, 0.05f * w, legal ? PUF_PAPER : PUF_RED);
        if (!legal) {
            puf_line(canvas, x, top, x + w, top + h, 0.08f * w, PUF_RED);
            puf_line(canvas, x + w, top, x, top + h, 0.08f * w, PUF_RED);
        }
        if (i == best) {
            float star[20];
            for (int32_t k = 0; k < 10; k++) {
                const float angle = 0.6283185f * (float)k, r = (k % 2 ? 0.16f : 0.38f) * w;
                star[2 * k] = x + 0.5f * w + r * sinf(angle);
                star[2 * k + 1] = 0.5f * top - r * cosf(angle);
            }
            puf_polygon(canvas, star, 10, PUF_GREEN);
        }
        if (i == env->last)
            puf_rect(canvas, x, top + h + 0.04f * height, w, 0.05f * height,
                     i == env->last_best ? PUF_GREEN : PUF_RED);
    }
    puf_textf(canvas, 8, height - 22, 2, PUF_PAPER, "BEST %d/%d  ILLEGAL %d", (int)env->hits,
              (int)env->slots.tick, (int)env->faults);
}

static bool valid(const Masked* env) {
    const int32_t n = env->num_actions, tick = env->slots.tick;
    for (int32_t i = 0; i < n; i++)
        if (env->worth[i] < 1 || env->worth[i] > n) return false;
    return best_legal(env) >= 0 && env->last >= -1 && env->last < n && env->last_best >= -1 &&
           env->last_best < n && env->hits >= 0 && env->hits <= tick && env->faults >= 0 &&
           env->faults <= tick;
}

static void shape(const void* self, PufLayout* layout) {
    layout->obs.shape[0] = layout->actions.nvec[0] = ((const Masked*)self)->num_actions;
}

PUF_ENV(masked, Masked, .doc = "take the best of the few legal actions", .group = "probes",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .low = 0, .high = 1},
                   .actions = {.num_discrete = 1},
                   .action_masks = true,
                   .width = 480,
                   .height = 320});
