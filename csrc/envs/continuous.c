// continuous - steer a point with momentum to a target in the square [-1, 1] x [-1, 1] and stay
// there. The minimum that a trainer with Box actions must learn.
//
// The action, two numbers in [-1, 1], pushes the point; drag and a speed limit slow it down, walls
// stop it. The reward is the distance gained towards the target, plus a bonus for each step within
// `radius` of it. Episodes are truncated at max_steps, which is not observed.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    float x[2], v[2], target[2], push[2];
    int32_t held, held_late;  // steps at the target: all, and in the last quarter
    float score, perf;
    float radius, force, drag, max_speed, progress_reward, hold_reward;
    int32_t max_steps;
} Continuous;

static const PufField params[] = {
    PUF_PARAM_F32(Continuous, radius, 0.1, 0.01, 1,
                  "distance from the target that counts as reached"),
    PUF_PARAM_F32(Continuous, force, 0.02, 0.001, 1, "speed gained per step at full push"),
    PUF_PARAM_F32(Continuous, drag, 0.05, 0, 1, "share of the speed lost per step"),
    PUF_PARAM_F32(Continuous, max_speed, 0.1, 0.01, 1, "limit of each component of the velocity"),
    PUF_PARAM_F32(Continuous, progress_reward, 1, 0, 100, "reward per unit of distance gained"),
    PUF_PARAM_F32(Continuous, hold_reward, 0.05, 0, 100, "reward per step at the target"),
    PUF_PARAM_I32(Continuous, max_steps, 100, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Continuous, score, "steps at the target"),
    PUF_METRIC(Continuous, perf, "share of the last quarter of the episode spent at the target"),
};

static float clip(float value, float limit) { return fminf(fmaxf(value, -limit), limit); }

static float distance(const Continuous* env) {
    float dx = env->target[0] - env->x[0], dy = env->target[1] - env->x[1];
    return sqrtf(dx * dx + dy * dy);
}

static void reset(Continuous* env) {
    for (int32_t i = 0; i < 2; i++) {
        env->x[i] = puf_rand_range(&env->slots.rng, -1, 1);
        env->target[i] = puf_rand_range(&env->slots.rng, -0.9f, 0.9f);
        env->v[i] = env->push[i] = 0;
    }
    env->held = env->held_late = 0;
}

// The last quarter of an episode, in steps.
static int32_t late_steps(const Continuous* env) { return (env->max_steps + 3) / 4; }

static PufStatus step(Continuous* env) {
    const float before = distance(env);
    for (int32_t i = 0; i < 2; i++) {
        env->push[i] = puf_action_f32(&env->slots, 0, i);
        env->v[i] = clip((1 - env->drag) * env->v[i] + env->force * env->push[i], env->max_speed);
        env->x[i] += env->v[i];
        if (fabsf(env->x[i]) > 1) {
            env->x[i] = clip(env->x[i], 1);
            env->v[i] = 0;
        }
    }
    const float after = distance(env);
    const int32_t late = late_steps(env), left = env->max_steps - env->slots.tick;
    const bool held = after <= env->radius;
    env->held += held;
    env->held_late += held && left < late;
    puf_reward(&env->slots, 0,
               env->progress_reward * (before - after) + (held ? env->hold_reward : 0));
    if (left > 0) return PUF_RUNNING;
    env->score = (float)env->held;
    env->perf = (float)env->held_late / (float)late;
    return PUF_TRUNCATED;
}

static void observe(const Continuous* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = env->x[0];
    obs[1] = env->x[1];
    obs[2] = env->v[0] / env->max_speed;
    obs[3] = env->v[1] / env->max_speed;
    obs[4] = env->target[0];
    obs[5] = env->target[1];
}

// The square from above, y upwards: the target as rings, the point as a ship with a flame.
static void render(const Continuous* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float scale = 0.46f * fminf(width, height);
    const float cx = 0.5f * width, cy = 0.5f * height;
    const float x = cx + scale * env->x[0], y = cy - scale * env->x[1];
    const float tx = cx + scale * env->target[0], ty = cy - scale * env->target[1];
    const float r = scale * env->radius, body = 0.05f * scale;
    puf_clear(canvas, PUF_INK);
    for (int32_t i = -4; i <= 4; i++) {
        float line = 0.25f * scale * (float)i;
        puf_rect(canvas, cx + line, cy - scale, 1, 2 * scale, 0x12304F);
        puf_rect(canvas, cx - scale, cy + line, 2 * scale, 1, 0x12304F);
    }
    puf_rect_outline(canvas, cx - scale, cy - scale, 2 * scale, 2 * scale, 2, PUF_SLATE);
    for (int32_t i = 4; i > 0; i--)
        puf_circle(canvas, tx, ty, 0.25f * (float)i * r, i % 2 ? PUF_PAPER : PUF_RED);
    puf_line(canvas, x, y, x - 4 * body * env->push[0], y + 4 * body * env->push[1], 0.8f * body,
             PUF_ORANGE);
    puf_line(canvas, x, y, x + 6 * body * env->v[0] / env->max_speed,
             y - 6 * body * env->v[1] / env->max_speed, 0.3f * body, PUF_GREEN);
    puf_circle(canvas, x, y, body, distance(env) <= env->radius ? PUF_GREEN : PUF_CYAN);
    puf_textf(canvas, 14, 14, 2, PUF_PAPER, "HELD %d/%d", (int)env->held, (int)env->slots.tick);
}

static bool valid(const Continuous* env) {
    const int32_t tick = env->slots.tick, late = tick - (env->max_steps - late_steps(env));
    for (int32_t i = 0; i < 2; i++)
        if (!puf_within(env->x[i], -1, 1) || !puf_within(env->target[i], -1, 1) ||
            !puf_within(env->push[i], -1, 1) ||
            !puf_within(env->v[i], -env->max_speed, env->max_speed))
            return false;
    return tick < env->max_steps && env->held_late >= 0 &&
           env->held_late <= (late > 0 ? late : 0) && env->held >= env->held_late &&
           env->held <= tick;
}

PUF_ENV(continuous, Continuous, .doc = "steer a point to a target and stay there",
        .group = "probes", .action_names = "push_x, push_y",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {6}, .low = -1, .high = 1},
                   .actions = PUF_CONTINUOUS(2, -1, 1),
                   .width = 360,
                   .height = 360});
