// bandit - pull one of several arms repeatedly. The best arm is always the same, but the reward of
// a single pull is mostly noise. The minimum that any trainer must learn: prefer a better action.
//
// Arm `best` pays 1 on average; the i-th arm after it, counted in a circle, pays i x gap less.
// Normal noise is added to each payment. The reward of a pull is payment / pulls, so that always
// pulling the best arm returns 1 on average. The only observation is the share of the pulls already
// made.
#include "puf_env.h"

enum { MAX_ARMS = 32 };

typedef struct {
    PufSlots slots;
    int32_t counts[MAX_ARMS];  // pulls of each arm in this episode
    int32_t last;              // arm pulled last, -1 before the first pull
    float pay;                 // of the last pull
    float score, perf;
    int32_t arms, best, pulls;
    float gap, noise;
} Bandit;

static const PufField params[] = {
    PUF_PARAM_I32(Bandit, arms, 4, 2, MAX_ARMS, "arms to choose from"),
    PUF_PARAM_I32(Bandit, best, 2, 0, MAX_ARMS - 1, "index of the best arm, at most arms - 1"),
    PUF_PARAM_F32(Bandit, gap, 0.25, 0.001, 10, "difference in mean pay from one arm to the next"),
    PUF_PARAM_F32(Bandit, noise, 1, 0, 100, "standard deviation of the pay"),
    PUF_PARAM_I32(Bandit, pulls, 16, 1, 100000, "pulls in an episode"),
};

static const PufField metrics[] = {
    PUF_METRIC(Bandit, score, "pulls of the best arm"),
    PUF_METRIC(Bandit, perf, "share of pulls of the best arm"),
};

static int32_t best(const Bandit* env) { return env->best < env->arms ? env->best : env->arms - 1; }

static float mean_pay(const Bandit* env, int32_t arm) {
    return 1 - env->gap * (float)((arm - best(env) + env->arms) % env->arms);
}

static void reset(Bandit* env) {
    memset(env->counts, 0, sizeof env->counts);
    env->last = -1;
    env->pay = 0;
}

static PufStatus step(Bandit* env) {
    env->last = puf_action(&env->slots, 0);
    env->counts[env->last]++;
    env->pay = mean_pay(env, env->last) + env->noise * puf_rand_normal(&env->slots.rng);
    puf_reward(&env->slots, 0, env->pay / (float)env->pulls);
    env->score = (float)env->counts[best(env)];
    env->perf = env->score / (float)env->pulls;
    return env->slots.tick >= env->pulls ? PUF_TERMINATED : PUF_RUNNING;
}

static void observe(const Bandit* env) {
    puf_obs_f32(&env->slots, 0)[0] = (float)env->slots.tick / (float)env->pulls;
}

// A row of slot machines. The last one pulled has its lever down and shows the pay; below each one
// is a coin per pull; a crown marks the best.
static void render(const Bandit* env, PufCanvas* canvas) {
    static const uint32_t colors[] = {PUF_BLUE, PUF_PURPLE, PUF_ORANGE, PUF_RED, PUF_BROWN};
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float pitch = width / (float)env->arms;
    const float w = fminf(0.56f * pitch, 0.26f * height), h = 0.4f * height, top = 0.2f * height;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, 0, top + h, width, 0.03f * height, PUF_SLATE);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "PULL %d/%d", (int)env->slots.tick, (int)env->pulls);
    for (int32_t arm = 0; arm < env->arms; arm++) {
        const float x = ((float)arm + 0.5f) * pitch - 0.58f * w, u = 0.01f * w;
        const bool down = arm == env->last;
        const float knob = down ? top + 0.62f * h : top + 0.12f * h;
        const float lever = x + 1.12f * w;
        puf_rect(canvas, x + w, top + 0.42f * h, 0.12f * w, 6 * u, PUF_GREY);
        puf_line(canvas, lever, top + 0.45f * h, lever, knob, 6 * u, PUF_GREY);
        puf_circle(canvas, lever, knob, 9 * u, down ? PUF_GREEN : PUF_RED);
        puf_rect(canvas, x, top, w, h, colors[arm % 5]);
        puf_rect(canvas, x, top + 0.9f * h, w, 0.1f * h, PUF_SLATE);
        puf_rect(canvas, x + 10 * u, top + 0.16f * h, 80 * u, 0.3f * h, PUF_PAPER);
        for (int32_t i = 0; i < 3; i++)
            puf_circle(canvas, x + (25 + 25 * (float)i) * u, top + 0.31f * h, 10 * u,
                       down && env->pay > 0 ? PUF_YELLOW : PUF_GREY);
        puf_rect(canvas, x + 30 * u, top + 0.66f * h, 40 * u, 0.06f * h, PUF_BLACK);
        if (down) {
            const uint32_t color = env->pay > 0 ? PUF_YELLOW : PUF_RED;
            puf_textf(canvas, x, top + h + 0.05f * height, 2, color, "%+.1f", (double)env->pay);
        }
        if (arm == best(env)) {
            const float y = top - 4 * u,
                        crown[] = {x + 20 * u, y,          x + 20 * u, y - 40 * u, x + 35 * u,
                                   y - 18 * u, x + 50 * u, y - 46 * u, x + 65 * u, y - 18 * u,
                                   x + 80 * u, y - 40 * u, x + 80 * u, y};
            puf_polygon(canvas, crown, 7, PUF_YELLOW);
        }
        const float coin = 0.22f * height / (float)(env->pulls < 16 ? 16 : env->pulls);
        for (int32_t i = 0; i < env->counts[arm]; i++) {
            const float y = height - 0.02f * height - (float)(i + 1) * coin;
            puf_rect(canvas, x + 15 * u, y, 70 * u, fmaxf(0.7f * coin, 1), PUF_YELLOW);
        }
    }
}

static bool valid(const Bandit* env) {
    int32_t pulled = 0;
    for (int32_t arm = 0; arm < MAX_ARMS; arm++) {
        if (env->counts[arm] < 0 || env->counts[arm] > env->slots.tick - pulled) return false;
        pulled += env->counts[arm];
    }
    return pulled == env->slots.tick && pulled < env->pulls && env->last >= -1 &&
           env->last < env->arms && puf_finite(&env->pay, 1);
}

static void shape(const void* self, PufLayout* layout) {
    layout->actions.nvec[0] = ((const Bandit*)self)->arms;
}

PUF_ENV(bandit, Bandit, .doc = "find the best of several noisy arms", .group = "probes",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {1}, .low = 0, .high = 1},
                   .actions = {.num_discrete = 1},
                   .width = 480,
                   .height = 320});
