// hybrid - a target appears in one of three lanes, at some height: choose the lane and aim at the
// height in one action. The minimum that a trainer with partly discrete, partly continuous actions
// must learn.
//
// An action is a lane and a number in [-1, 1]. The observation has four numbers: 1 for the target's
// lane and 0 for the other two, then its height. Each step earns, in units of 1 / max_steps, 0.5
// for the lane and up to 0.5 for the aim, less with the distance. The metrics `lane` and `aim`
// measure the two parts separately. Episodes are truncated at max_steps, which is not observed.
#include "puf_env.h"

enum { LANES = 3 };

typedef struct {
    PufSlots slots;
    int32_t target_lane, last_target_lane, last_lane;  // last_*: for rendering
    float target, last_target, last_aim;
    int32_t hits, lanes_right, aims_right;
    float score, perf, lane, aim;
    float radius;
    int32_t max_steps;
} Hybrid;

static const PufField params[] = {
    PUF_PARAM_F32(Hybrid, radius, 0.2, 0.001, 2, "largest distance of an aim that hits"),
    PUF_PARAM_I32(Hybrid, max_steps, 16, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Hybrid, score, "targets hit: lane and aim both correct"),
    PUF_METRIC(Hybrid, perf, "share of targets hit"),
    PUF_METRIC(Hybrid, lane, "share of steps with the correct lane"),
    PUF_METRIC(Hybrid, aim, "share of steps with an aim within the radius"),
};

static void place_target(Hybrid* env) {
    env->target_lane = puf_rand_int(&env->slots.rng, LANES);
    env->target = puf_rand_range(&env->slots.rng, -1, 1);
}

static void reset(Hybrid* env) {
    env->hits = env->lanes_right = env->aims_right = 0;
    place_target(env);
}

static PufStatus step(Hybrid* env) {
    const float steps = (float)env->max_steps;
    env->last_lane = puf_action_at(&env->slots, 0, 0);
    env->last_aim = puf_action_f32(&env->slots, 0, 0);
    env->last_target_lane = env->target_lane;
    env->last_target = env->target;
    const float off = fabsf(env->last_aim - env->target);  // 0 to 2
    const bool lane = env->last_lane == env->target_lane, aim = off <= env->radius;
    env->lanes_right += lane;
    env->aims_right += aim;
    env->hits += lane && aim;
    puf_reward(&env->slots, 0, ((lane ? 0.5f : 0) + 0.5f * (1 - 0.5f * off)) / steps);
    place_target(env);
    env->score = (float)env->hits;
    env->perf = (float)env->hits / steps;
    env->lane = (float)env->lanes_right / steps;
    env->aim = (float)env->aims_right / steps;
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Hybrid* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    for (int32_t i = 0; i < LANES; i++) obs[i] = i == env->target_lane;
    obs[LANES] = env->target;
}

// Three lanes with the target of the last step and the shot at it: an arrow in the chosen lane, at
// the chosen height. The next target is faint.
static void render(const Hybrid* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float w = width / LANES, mid = 0.54f * height, scale = 0.38f * height;
    const float r = fminf(fmaxf(env->radius * scale, 4), 0.4f * w);
    puf_clear(canvas, PUF_INK);
    for (int32_t i = 0; i < LANES; i++)
        puf_rect(canvas, ((float)i + 0.04f) * w, mid - 1.1f * scale, 0.92f * w, 2.2f * scale,
                 PUF_SLATE);
    const float next_x = ((float)env->target_lane + 0.6f) * w, next_y = mid - scale * env->target;
    puf_ring(canvas, next_x, next_y, r, 2, PUF_GREY);
    puf_circle(canvas, next_x, next_y, 0.25f * r, PUF_GREY);
    if (env->slots.tick) {
        const float x = ((float)env->last_target_lane + 0.6f) * w;
        const float y = mid - scale * env->last_target;
        for (int32_t i = 4; i > 0; i--)
            puf_circle(canvas, x, y, 0.25f * (float)i * r, i % 2 ? PUF_PAPER : PUF_RED);
        const bool hit = env->last_lane == env->last_target_lane &&
                         fabsf(env->last_aim - env->last_target) <= env->radius;
        const float ax = ((float)env->last_lane + 0.08f) * w, ay = mid - scale * env->last_aim;
        const float tip = ((float)env->last_lane + 0.6f) * w, head = 0.05f * w;
        const float arrow[] = {tip, ay, tip - head, ay - 0.6f * head, tip - head, ay + 0.6f * head};
        puf_line(canvas, ax, ay, tip - head, ay, 0.02f * w, hit ? PUF_GREEN : PUF_ORANGE);
        puf_polygon(canvas, arrow, 3, hit ? PUF_GREEN : PUF_ORANGE);
    }
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "HIT %d/%d", (int)env->hits, (int)env->slots.tick);
}

static bool is_lane(int32_t lane) { return lane >= 0 && lane < LANES; }

static bool valid(const Hybrid* env) {
    const int32_t tick = env->slots.tick;
    return is_lane(env->target_lane) && is_lane(env->last_target_lane) && is_lane(env->last_lane) &&
           puf_within(env->target, -1, 1) && puf_within(env->last_target, -1, 1) &&
           puf_within(env->last_aim, -1, 1) && env->hits >= 0 && env->hits <= env->lanes_right &&
           env->hits <= env->aims_right && env->lanes_right <= tick && env->aims_right <= tick;
}

PUF_ENV(
    hybrid, Hybrid, .doc = "choose a lane and aim at a height in one action", .group = "probes",
    .layout = {
        .agents = 1,
        .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {4}, .low = -1, .high = 1},
        .actions = {.num_discrete = 1, .nvec = {LANES}, .num_continuous = 1, .low = -1, .high = 1},
        .width = 480,
        .height = 320});
