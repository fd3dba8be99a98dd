// acrobot - swing the free end of a double pendulum above a line. Dynamics of Sutton 1996 with the
// constants, the Runge-Kutta step and the rewards of Gymnasium's Acrobot-v1.
//
// Only the joint between the two links has a motor: the action is a torque of -1, 0 or +1 times
// `torque`. Both links have length and mass 1, their centre of mass in the middle and moment of
// inertia 1. Each step costs 1; the step that lifts the free end above the line (one link length
// over the pivot) costs nothing and ends the episode. The state is in double precision, as there.
//
// Observed: cosine and sine of the angle of the first link (0: hanging) and of the second one
// (relative to the first), and both angular velocities.
#include "puf_env.h"
#include "puf_trig.h"

typedef struct {
    PufSlots slots;
    double theta1, theta2, speed1, speed2;
    int32_t push;  // torque of the last action: -1, 0, 1
    float score, perf;
    float torque;
    int32_t max_steps;
} Acrobot;

static const PufField params[] = {
    PUF_PARAM_F32(Acrobot, torque, 1, 0, 10, "torque of the motor in N m"),
    PUF_PARAM_I32(Acrobot, max_steps, 500, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Acrobot, score, "minus the steps before the free end was above the line"),
    PUF_METRIC(Acrobot, perf,
               "0 if the line is not reached within max_steps, 1 if within a fifth of them "
               "(score -100, Gymnasium's threshold), linear between"),
};

static const double GRAVITY = 9.8, DT = 0.2, PI = 3.141592653589793;
static const double MAX_SPEED1 = 4 * 3.141592653589793, MAX_SPEED2 = 9 * 3.141592653589793;

static double clamp(double v, double limit) { return v < -limit ? -limit : v > limit ? limit : v; }

static void reset(Acrobot* env) {
    PufRng* rng = &env->slots.rng;
    env->theta1 = (double)puf_rand_range(rng, -0.1f, 0.1f);
    env->theta2 = (double)puf_rand_range(rng, -0.1f, 0.1f);
    env->speed1 = (double)puf_rand_range(rng, -0.1f, 0.1f);
    env->speed2 = (double)puf_rand_range(rng, -0.1f, 0.1f);
    env->push = 0;
}

// A tile of envs as a structure of arrays: gathered, stepped with vectors, scattered back.
enum { TILE = 16 };

typedef struct {
    double theta1[TILE], theta2[TILE], speed1[TILE], speed2[TILE];
} State;

typedef struct {
    double sin1[TILE], cos1[TILE], sin2[TILE], cos2[TILE];
} Angles;

static inline void measure(const State* s, Angles* angles) {
    for (int32_t i = 0; i < TILE; i++) puf_sincos(s->theta1[i], &angles->sin1[i], &angles->cos1[i]);
    for (int32_t i = 0; i < TILE; i++) puf_sincos(s->theta2[i], &angles->sin2[i], &angles->cos2[i]);
}

// Accelerations in the state `s`.
static inline void accelerate(const State* s, const double* torque, double* acc1, double* acc2) {
    Angles a;
    measure(s, &a);
    for (int32_t i = 0; i < TILE; i++) {
        const double w1 = s->speed1[i], w2 = s->speed2[i], sin2 = a.sin2[i], cos2 = a.cos2[i];
        const double d1 = 3.5 + cos2, d2 = 1.25 + 0.5 * cos2, ratio = d2 / d1;
        const double phi2 = 0.5 * GRAVITY * (a.sin1[i] * cos2 + a.cos1[i] * sin2);
        const double phi1 =
            -0.5 * w2 * w2 * sin2 - w2 * w1 * sin2 + 1.5 * GRAVITY * a.sin1[i] + phi2;
        acc2[i] = (torque[i] + ratio * phi1 - 0.5 * w1 * w1 * sin2 - phi2) / (1.25 - d2 * ratio);
        acc1[i] = -(d2 * acc2[i] + phi1) / d1;
    }
}

// One step of the classical Runge-Kutta method. Stage k looks at the slope ahead of `s`: at the
// same place, twice half a step ahead, and a step ahead; the slopes count 1, 2, 2 and 1 sixths.
PUF_HOT static void move(State* restrict s, const double* restrict torque,
                         Angles* restrict angles) {
    const double ahead[] = {DT / 2, DT / 2, DT, 0}, weights[] = {1, 2, 2, 1};
    State probe = *s, sum;
    double acc1[TILE], acc2[TILE];
    memset(&sum, 0, sizeof sum);
    for (int32_t k = 0; k < 4; k++) {
        const double weight = weights[k], h = ahead[k];
        accelerate(&probe, torque, acc1, acc2);
        for (int32_t i = 0; i < TILE; i++) {
            const double w1 = probe.speed1[i], w2 = probe.speed2[i];
            sum.theta1[i] += weight * w1;
            sum.theta2[i] += weight * w2;
            sum.speed1[i] += weight * acc1[i];
            sum.speed2[i] += weight * acc2[i];
            probe.theta1[i] = s->theta1[i] + h * w1;
            probe.theta2[i] = s->theta2[i] + h * w2;
            probe.speed1[i] = s->speed1[i] + h * acc1[i];
            probe.speed2[i] = s->speed2[i] + h * acc2[i];
        }
    }
    for (int32_t i = 0; i < TILE; i++) {
        s->theta1[i] = puf_wrap_angle(s->theta1[i] + DT / 6 * sum.theta1[i]);
        s->theta2[i] = puf_wrap_angle(s->theta2[i] + DT / 6 * sum.theta2[i]);
        s->speed1[i] = clamp(s->speed1[i] + DT / 6 * sum.speed1[i], MAX_SPEED1);
        s->speed2[i] = clamp(s->speed2[i] + DT / 6 * sum.speed2[i], MAX_SPEED2);
    }
    measure(s, angles);
}

static void observe(const Acrobot* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    double sine, cosine;
    puf_sincos(env->theta1, &sine, &cosine);
    obs[0] = (float)cosine;
    obs[1] = (float)sine;
    puf_sincos(env->theta2, &sine, &cosine);
    obs[2] = (float)cosine;
    obs[3] = (float)sine;
    obs[4] = (float)env->speed1;
    obs[5] = (float)env->speed2;
}

static Acrobot* env_at(const PufBatch* batch, int32_t i) {
    return (Acrobot*)(void*)(batch->envs + (size_t)i * batch->env_bytes);
}

static void end(Acrobot* env, bool above) {
    const int32_t tick = env->slots.tick;
    env->score = (float)(above ? 1 - tick : -tick);
    env->perf = fminf((1 + env->score / (float)env->max_steps) / 0.8f, 1);
    puf_finish(&env->slots, above ? PUF_TERMINATED : PUF_TRUNCATED);
    reset(env);
    observe(env);
}

// Writes a moved env back, with its rows.
static void settle(Acrobot* env, const State* s, const Angles* a, int32_t i) {
    float* obs = puf_obs_f32(&env->slots, 0);
    env->theta1 = s->theta1[i];
    env->theta2 = s->theta2[i];
    env->speed1 = s->speed1[i];
    env->speed2 = s->speed2[i];
    obs[0] = (float)a->cos1[i];
    obs[1] = (float)a->sin1[i];
    obs[2] = (float)a->cos2[i];
    obs[3] = (float)a->sin2[i];
    obs[4] = (float)env->speed1;
    obs[5] = (float)env->speed2;
    const double cos_sum = a->cos1[i] * a->cos2[i] - a->sin1[i] * a->sin2[i];
    const bool above = -a->cos1[i] - cos_sum > 1;
    if (!above) puf_reward(&env->slots, 0, -1);
    if (++env->slots.tick >= env->max_steps || above) end(env, above);
}

static void step_range(PufBatch* batch, int32_t first, int32_t last) {
    State state;
    Angles angles;
    double torque[TILE];
    for (int32_t start = first; start < last; start += TILE) {
        const int32_t count = last - start < TILE ? last - start : TILE;
        for (int32_t i = 0; i < TILE; i++) {  // past the end: repeat the last env
            Acrobot* env = env_at(batch, start + (i < count ? i : count - 1));
            env->push = puf_action(&env->slots, 0) - 1;
            torque[i] = (double)(env->torque * (float)env->push);
            state.theta1[i] = env->theta1;
            state.theta2[i] = env->theta2;
            state.speed1[i] = env->speed1;
            state.speed2[i] = env->speed2;
        }
        move(&state, torque, &angles);
        for (int32_t i = 0; i < count; i++) settle(env_at(batch, start + i), &state, &angles, i);
    }
}

static void render(const Acrobot* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float link = 0.225f * fminf(width, height), x = 0.5f * width, y = 0.52f * height;
    const float sum = (float)(env->theta1 + env->theta2);
    const float x1 = x + link * (float)puf_sin(env->theta1);
    const float y1 = y + link * (float)puf_cos(env->theta1);
    const float x2 = x1 + link * (float)puf_sin(sum), y2 = y1 + link * (float)puf_cos(sum);
    puf_clear(canvas, PUF_INK);
    puf_ring(canvas, x, y, 2 * link, 2, 0x12304F);
    for (float dash = 0; dash < width; dash += 16)
        puf_rect(canvas, dash, y - link - 1, 9, 2, PUF_GREEN);
    puf_line(canvas, x, y, x1, y1, 0.16f * link, PUF_CYAN);
    puf_line(canvas, x1, y1, x2, y2, 0.16f * link, PUF_ORANGE);
    puf_circle(canvas, x, y, 0.12f * link, PUF_PAPER);
    puf_circle(canvas, x1, y1, 0.12f * link, env->push ? PUF_YELLOW : PUF_PAPER);
    puf_circle(canvas, x2, y2, 0.1f * link, PUF_RED);
    puf_textf(canvas, 10, 10, 2, PUF_PAPER, "STEP %d", (int)env->slots.tick);
}

static bool valid(const Acrobot* env) {
    const double turn = PI + 1e-6;
    return fabs(env->theta1) <= turn && fabs(env->theta2) <= turn &&
           fabs(env->speed1) <= MAX_SPEED1 && fabs(env->speed2) <= MAX_SPEED2 && env->push >= -1 &&
           env->push <= 1 && env->slots.tick < env->max_steps;
}

PUF_ENV_RANGE(acrobot, Acrobot, step_range,
              .doc = "swing the end of a double pendulum above a line", .group = "classic",
              .action_names = "left none right",
              .layout = {.agents = 1,
                         .obs = PUF_BOX_F32(6),
                         .actions = PUF_DISCRETE(3),
                         .width = 400,
                         .height = 400});
