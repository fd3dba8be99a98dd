// pendulum - swing a rod upright with a weak motor and hold it there. Dynamics, rewards and limits
// of Gymnasium's Pendulum-v1.
//
// The action is a torque from -2 to 2. A step costs angle^2 + 0.1 speed^2 + 0.001 torque^2, with
// the state before the step; angle 0 is upright. Observed: cosine and sine of the angle, angular
// velocity. The state is in double precision, as there; the angle is kept within half a turn.
#include "puf_env.h"
#include "puf_trig.h"

typedef struct {
    PufSlots slots;
    double theta, speed;
    float torque;  // of the last action
    float cost;    // of this episode
    float score, perf;
    float gravity;
    int32_t max_steps;
} Pendulum;

static const PufField params[] = {
    PUF_PARAM_F32(Pendulum, gravity, 10, 0, 100, "gravity in m/s^2"),
    PUF_PARAM_I32(Pendulum, max_steps, 200, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Pendulum, score, "minus the sum of the costs"),
    PUF_METRIC(Pendulum, perf,
               "mean cost of a step: 0 for 6 (score -1200, about random play), 1 for 1 (score "
               "-200), linear between"),
};

static const double MAX_SPEED = 8, DT = 0.05, PI = 3.141592653589793;

static void reset(Pendulum* env) {
    env->theta = PI * (double)puf_rand_range(&env->slots.rng, -1, 1);
    env->speed = (double)puf_rand_range(&env->slots.rng, -1, 1);
    env->torque = env->cost = 0;
}

static PufStatus step(Pendulum* env) {
    env->torque = puf_action_f32(&env->slots, 0, 0);
    const double cost = env->theta * env->theta + 0.1 * env->speed * env->speed +
                        0.001 * (double)(env->torque * env->torque);
    double speed =
        env->speed +
        (1.5 * (double)env->gravity * puf_sin(env->theta) + (double)(3 * env->torque)) * DT;
    speed = speed < -MAX_SPEED ? -MAX_SPEED : speed > MAX_SPEED ? MAX_SPEED : speed;
    env->speed = speed;
    env->theta = puf_wrap_angle(env->theta + speed * DT);
    env->cost += (float)cost;
    puf_reward(&env->slots, 0, (float)-cost);
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = -env->cost;
    env->perf = fminf(fmaxf(1.2f - 0.2f * env->cost / (float)env->max_steps, 0), 1);
    return PUF_TRUNCATED;
}

static void observe(const Pendulum* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    double sine, cosine;
    puf_sincos(env->theta, &sine, &cosine);
    obs[0] = (float)cosine;
    obs[1] = (float)sine;
    obs[2] = (float)env->speed;
}

// The torque shows as an arc of dots around the pivot, on the side that it pushes to.
static void render(const Pendulum* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float x = 0.5f * width, y = 0.5f * height, rod = 0.38f * fminf(width, height);
    const float tip_x = x - rod * (float)puf_sin(env->theta);
    const float tip_y = y - rod * (float)puf_cos(env->theta);
    puf_clear(canvas, PUF_INK);
    puf_ring(canvas, x, y, 1.1f * rod, 2, 0x12304F);
    puf_rect(canvas, x - 1, y - 1.18f * rod, 2, 0.16f * rod, PUF_GREEN);
    puf_line(canvas, x, y, tip_x, tip_y, 0.18f * rod, PUF_ORANGE);
    puf_circle(canvas, tip_x, tip_y, 0.12f * rod, PUF_RED);
    puf_circle(canvas, x, y, 0.06f * rod, PUF_PAPER);
    for (int32_t i = 1; i <= 8; i++) {
        double along = 0.15 * i * (double)env->torque;
        puf_circle(canvas, x - 0.3f * rod * (float)puf_sin(along),
                   y - 0.3f * rod * (float)puf_cos(along), 0.01f * rod * (float)i, PUF_CYAN);
    }
    puf_textf(canvas, 10, 10, 2, PUF_PAPER, "STEP %d", (int)env->slots.tick);
}

static bool valid(const Pendulum* env) {
    // A step costs at most pi^2 + 6.4 + 0.004 < 17.
    return fabs(env->theta) <= PI + 1e-6 && fabs(env->speed) <= MAX_SPEED &&
           puf_within(env->torque, -2, 2) &&
           puf_within(env->cost, 0, 17 * (float)env->slots.tick) &&
           env->slots.tick < env->max_steps;
}

PUF_ENV(pendulum, Pendulum, .doc = "swing a rod upright and hold it there", .group = "classic",
        .action_names = "torque",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(3),
                   .actions = PUF_CONTINUOUS(1, -2, 2),
                   .width = 400,
                   .height = 400});
