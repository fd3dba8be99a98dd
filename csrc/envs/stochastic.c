// stochastic - choose one of two actions repeatedly, so that a given share of the choices is
// action 1. The observation never changes, so a policy without recurrent state cannot alternate: it
// must be random, with the given odds. A trainer whose policy collapses to its likelier action
// fails.
//
// With odds p, episodes of n steps and a share s of ones, the only reward, at the end, is
//     1 - ((s - p) / max(p, 1 - p))^2.
// A policy that takes action 1 with probability q gets s with mean q and variance q (1 - q) / n, so
// the mean reward is largest at q = (p - 1 / 2n) / (1 - 1 / n), close to p. perf is the same curve,
// steeper: 0 for the best deterministic policy and for any worse one.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    int32_t ones;  // number of choices of action 1
    float score, perf;
    float odds;
    int32_t length;
} Stochastic;

static const PufField params[] = {
    PUF_PARAM_F32(Stochastic, odds, 0.75, 0.01, 0.99, "wanted share of action 1"),
    PUF_PARAM_I32(Stochastic, length, 100, 1, 100000, "choices in an episode"),
};

static const PufField metrics[] = {
    PUF_METRIC(Stochastic, score, "share of action 1"),
    PUF_METRIC(
        Stochastic, perf,
        "1 - squared distance of the share from the odds, in units of the distance of the best "
        "deterministic policy; at least 0"),
};

static float matched(float error, float unit) { return 1 - error * error / (unit * unit); }

static void reset(Stochastic* env) { env->ones = 0; }

static PufStatus step(Stochastic* env) {
    env->ones += puf_action(&env->slots, 0);
    if (env->slots.tick < env->length) return PUF_RUNNING;
    const float p = env->odds, error = (float)env->ones / (float)env->length - p;
    env->score = (float)env->ones / (float)env->length;
    env->perf = fmaxf(matched(error, fminf(p, 1 - p)), 0);
    puf_reward(&env->slots, 0, matched(error, fmaxf(p, 1 - p)));
    return PUF_TERMINATED;
}

static void observe(const Stochastic* env) { puf_obs_f32(&env->slots, 0)[0] = 1; }

// A pair of scales with a bowl for each action. The beam is level when the choices match the odds.
static void render(const Stochastic* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const int32_t tick = env->slots.tick, zeros = tick - env->ones;
    const float share = tick ? (float)env->ones / (float)tick : env->odds;
    const float tilt = fminf(fmaxf(2 * (share - env->odds), -0.5f), 0.5f);
    const float cx = 0.5f * width, cy = 0.24f * height, arm = 0.3f * width;
    const float base[] = {
        cx, cy, cx + 0.03f * width, 0.84f * height, cx - 0.03f * width, 0.84f * height};
    puf_clear(canvas, PUF_INK);
    puf_polygon(canvas, base, 3, PUF_GREY);
    puf_rect(canvas, cx - 0.14f * width, 0.83f * height, 0.28f * width, 0.03f * height, PUF_GREY);
    puf_line(canvas, cx - arm, cy - 0.35f * arm * tilt, cx + arm, cy + 0.35f * arm * tilt,
             0.02f * height, PUF_PAPER);
    for (int32_t action = 0; action < 2; action++) {
        const float side = action ? 1 : -1, x = cx + side * arm;
        const float y = cy + side * 0.35f * arm * tilt, bowl = y + 0.28f * height;
        const int32_t count = action ? env->ones : zeros;
        const uint32_t color = action ? PUF_YELLOW : PUF_CYAN;
        puf_line(canvas, x, y, x - 0.12f * width, bowl, 1.5f, PUF_GREY);
        puf_line(canvas, x, y, x + 0.12f * width, bowl, 1.5f, PUF_GREY);
        const int32_t shown = count < 40 ? count : 40;
        for (int32_t i = 0; i < shown; i++) {
            const float px = x + 0.024f * width * ((float)(i % 8) - 3.5f);
            const float py = bowl - 0.018f * height - 0.035f * height * (float)(i / 8);
            puf_circle(canvas, px, py, 0.012f * width, color);
        }
        puf_line(canvas, x - 0.12f * width, bowl, x + 0.12f * width, bowl, 0.025f * height,
                 PUF_PAPER);
        puf_textf(canvas, x - 0.1f * width, bowl + 0.05f * height, 2, color, "%d: %d", (int)action,
                  (int)count);
    }
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "%.2f OF %.2f", (double)share, (double)env->odds);
    puf_textf(canvas, 8, height - 24, 2, PUF_GREY, "%d/%d", (int)tick, (int)env->length);
}

static bool valid(const Stochastic* env) {
    return env->slots.tick < env->length && env->ones >= 0 && env->ones <= env->slots.tick;
}

PUF_ENV(stochastic, Stochastic, .doc = "choose at random with given odds", .group = "probes",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {1}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(2),
                   .width = 480,
                   .height = 320});
