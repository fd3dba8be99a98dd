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

typedef struct {
    double theta1, theta2, speed1, speed2;
} State;

// Time derivative of the state.
static inline State slope(State s, double torque) {
    double sin1, cos1, sin2, cos2;
    puf_sincos(s.theta1, &sin1, &cos1);
    puf_sincos(s.theta2, &sin2, &cos2);
    const double d1 = 3.5 + cos2, d2 = 1.25 + 0.5 * cos2, ratio = d2 / d1;
    const double phi2 = 0.5 * GRAVITY * (sin1 * cos2 + cos1 * sin2);
    const double phi1 = -0.5 * s.speed2 * s.speed2 * sin2 - s.speed2 * s.speed1 * sin2 +
                        1.5 * GRAVITY * sin1 + phi2;
    const double acc2 =
        (torque + ratio * phi1 - 0.5 * s.speed1 * s.speed1 * sin2 - phi2) / (1.25 - d2 * ratio);
    return (State){s.speed1, s.speed2, -(d2 * acc2 + phi1) / d1, acc2};
}

// s + h k
static inline State ahead(State s, double h, State k) {
    return (State){s.theta1 + h * k.theta1, s.theta2 + h * k.theta2, s.speed1 + h * k.speed1,
                   s.speed2 + h * k.speed2};
}

static PufStatus step(Acrobot* env) {
    env->push = puf_action(&env->slots, 0) - 1;
    const double torque = env->torque * (float)env->push;
    const State s = {env->theta1, env->theta2, env->speed1, env->speed2};
    const State k1 = slope(s, torque);
    const State k2 = slope(ahead(s, DT / 2, k1), torque);
    const State k3 = slope(ahead(s, DT / 2, k2), torque);
    const State k4 = slope(ahead(s, DT, k3), torque);
    const State sum = ahead(ahead(ahead(k1, 2, k2), 2, k3), 1, k4), end = ahead(s, DT / 6, sum);
    env->theta1 = puf_wrap_angle(end.theta1);
    env->theta2 = puf_wrap_angle(end.theta2);
    env->speed1 = clamp(end.speed1, MAX_SPEED1);
    env->speed2 = clamp(end.speed2, MAX_SPEED2);

    const bool above = -puf_cos(env->theta1) - puf_cos(env->theta1 + env->theta2) > 1;
    const int32_t tick = env->slots.tick;
    if (!above) puf_reward(&env->slots, 0, -1);
    if (!above && tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)(above ? 1 - tick : -tick);
    env->perf = fminf((1 + env->score / (float)env->max_steps) / 0.8f, 1);
    return above ? PUF_TERMINATED : PUF_TRUNCATED;
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

PUF_ENV(acrobot, Acrobot, .doc = "swing the end of a double pendulum above a line",
        .group = "classic", .action_names = "left none right",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(6),
                   .actions = PUF_DISCRETE(3),
                   .width = 400,
                   .height = 400});
