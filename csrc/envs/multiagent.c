// multiagent - two agents, each with its own light and rule: agent 0 must answer what its light
// shows, agent 1 the opposite. Agent 0 is rewarded for correct answers, agent 1 fined for wrong
// ones, and neither for the other's answers. A trainer that mixes up slots, or gives all agents one
// reward, cannot learn it.
//
// Each step every agent gets a new light, on or off. Agent 0 observes +0.5 or -0.5, agent 1 +1 or
// -1, so that a shared policy can distinguish them. Action 1 answers on, 0 off. Episodes are
// truncated at max_steps, which is not observed.
#include "puf_env.h"

enum { AGENTS = 2 };

typedef struct {
    PufSlots slots;
    int32_t lights[AGENTS];                  // 1 on, 0 off
    int32_t shown[AGENTS], answers[AGENTS];  // in the last step, for rendering
    int32_t right[AGENTS],
        right_together;  // correct answers of each agent; steps in which both were correct
    float score, perf;
    int32_t max_steps;
} MultiAgent;

static const PufField params[] = {
    PUF_PARAM_I32(MultiAgent, max_steps, 16, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(MultiAgent, score, "correct answers of both agents"),
    PUF_METRIC(MultiAgent, perf, "share of steps in which both answers are correct"),
};

static int32_t right_answer(int32_t agent, int32_t light) { return agent ? !light : light; }

static void draw_lights(MultiAgent* env) {
    for (int32_t i = 0; i < AGENTS; i++) env->lights[i] = puf_rand_int(&env->slots.rng, 2);
}

static void reset(MultiAgent* env) {
    for (int32_t i = 0; i < AGENTS; i++) env->shown[i] = env->answers[i] = env->right[i] = 0;
    env->right_together = 0;
    draw_lights(env);
}

static PufStatus step(MultiAgent* env) {
    const float unit = 1 / (float)env->max_steps;
    int32_t right = 0;
    for (int32_t i = 0; i < AGENTS; i++) {
        env->shown[i] = env->lights[i];
        env->answers[i] = puf_action(&env->slots, i);
        bool is_right = env->answers[i] == right_answer(i, env->lights[i]);
        env->right[i] += is_right;
        right += is_right;
        puf_reward(&env->slots, i, i == 0 ? (is_right ? unit : 0) : (is_right ? 0 : -unit));
    }
    env->right_together += right == AGENTS;
    draw_lights(env);
    env->score = (float)(env->right[0] + env->right[1]);
    env->perf = (float)env->right_together / (float)env->max_steps;
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const MultiAgent* env) {
    for (int32_t i = 0; i < AGENTS; i++)
        puf_obs_f32(&env->slots, i)[0] = (env->lights[i] ? 0.5f : -0.5f) * (float)(i + 1);
}

// Two robots under their lights of the last step, each with its answer; = and ! mark their rules.
static void render(const MultiAgent* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const int32_t tick = env->slots.tick;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, 0, 0.88f * height, width, 0.12f * height, PUF_SLATE);
    for (int32_t i = 0; i < AGENTS; i++) {
        const float cx = (0.18f + 0.48f * (float)i) * width,
                    u = fminf(0.01f * height, 0.008f * width);
        const uint32_t body = i ? PUF_PINK : PUF_CYAN;
        const bool on = tick && env->shown[i];
        const bool right = env->answers[i] == right_answer(i, env->shown[i]);
        puf_line(canvas, cx, 0, cx, 12 * u, 2 * u, PUF_GREY);
        puf_circle(canvas, cx, 18 * u, 9 * u, on ? PUF_YELLOW : PUF_BLACK);
        puf_ring(canvas, cx, 18 * u, 9 * u, 2 * u, PUF_GREY);
        puf_rect(canvas, cx - 12 * u, 36 * u, 24 * u, 18 * u, body);
        puf_circle(canvas, cx - 5 * u, 44 * u, 3 * u, PUF_INK);
        puf_circle(canvas, cx + 5 * u, 44 * u, 3 * u, PUF_INK);
        puf_rect(canvas, cx - 16 * u, 56 * u, 32 * u, 22 * u, body);
        puf_rect(canvas, cx - 10 * u, 78 * u, 6 * u, 10 * u, PUF_GREY);
        puf_rect(canvas, cx + 4 * u, 78 * u, 6 * u, 10 * u, PUF_GREY);
        puf_text(canvas, cx - 6 * u, 60 * u, 2 * u, PUF_INK, i ? "!" : "=");
        if (tick) {
            const uint32_t color = right ? PUF_GREEN : PUF_RED;
            puf_rect(canvas, cx + 20 * u, 34 * u, 26 * u, 18 * u, color);
            const float tail[] = {cx + 16 * u, 50 * u, cx + 21 * u, 42 * u, cx + 26 * u, 50 * u};
            puf_polygon(canvas, tail, 3, color);
            puf_text(canvas, cx + 23 * u, 38 * u, 1.2f * u, PUF_INK,
                     env->answers[i] ? "ON" : "OFF");
        }
        puf_textf(canvas, cx - 12 * u, 90 * u, 2, PUF_PAPER, "%d/%d", (int)env->right[i],
                  (int)tick);
    }
}

static bool valid(const MultiAgent* env) {
    for (int32_t i = 0; i < AGENTS; i++)
        if (env->right[i] < env->right_together || env->right[i] > env->slots.tick) return false;
    return env->right_together >= 0;
}

PUF_ENV(multiagent, MultiAgent, .doc = "answer two lights by two rules, with separate rewards",
        .group = "probes",
        .layout = {.agents = AGENTS,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {1}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(2),
                   .width = 480,
                   .height = 320});
