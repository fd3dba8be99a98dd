// mountaincar_continuous - mountaincar with a throttle. Dynamics, rewards and limits of Gymnasium's
// MountainCarContinuous-v0.
//
// The action, -1 to 1, is the throttle; it costs a tenth of its square. The step that brings the
// car to `goal` earns 100. `shaping` adds the energy that the car gains times that number; it is 0
// by default, which is Gymnasium's task. The state is in single precision, as there. Observed:
// position and velocity.
#include "puf_env.h"
#include "puf_hill.h"

typedef struct {
    PufSlots slots;
    PufHillCar car;
    float throttle;  // of the last action
    float fuel;      // cost of the throttle in this episode
    float score, perf;
    float goal, power, shaping;
    int32_t max_steps;
} MountainCar;

static const PufField params[] = {
    PUF_PARAM_F32(MountainCar, goal, 0.45, -0.3, 0.6, "position of the flag"),
    PUF_PARAM_F32(MountainCar, power, 0.0015, 0, 0.01, "speed gained per step at full throttle"),
    PUF_PARAM_F32(MountainCar, shaping, 0, 0, 1000,
                  "reward per unit of energy gained; 1 unit lifts the car from the bottom to the "
                  "top"),
    PUF_PARAM_I32(MountainCar, max_steps, 999, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(MountainCar, score, "100 for the flag minus the cost of the throttle"),
    PUF_METRIC(MountainCar, perf, "score / 90 (Gymnasium's threshold), from 0 to 1"),
};

static void reset(MountainCar* env) {
    env->car = puf_hill_start(&env->slots.rng);
    env->throttle = env->fuel = 0;
}

static PufStatus step(MountainCar* env) {
    const double before = puf_hill_energy(&env->car);
    env->throttle = puf_action_f32(&env->slots, 0, 0);
    const float pull = (float)puf_hill_pull(env->car.x);
    puf_hill_drive(&env->car, (double)(env->throttle * env->power + pull));
    env->car = (PufHillCar){(double)(float)env->car.x, (double)(float)env->car.speed};
    const double gain = puf_hill_energy(&env->car) - before;
    const bool there = env->car.x >= (double)env->goal && env->car.speed >= 0;
    const float cost = 0.1f * env->throttle * env->throttle;
    env->fuel += cost;
    puf_reward(&env->slots, 0, (there ? 100.0f : 0) - cost + env->shaping * (float)gain);
    if (!there && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (there ? 100.0f : 0) - env->fuel;
    env->perf = fminf(fmaxf(env->score / 90, 0), 1);
    return there ? PUF_TERMINATED : PUF_TRUNCATED;
}

static void observe(const MountainCar* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = (float)env->car.x;
    obs[1] = (float)env->car.speed;
}

static void render(const MountainCar* env, PufCanvas* canvas) {
    puf_hill_draw(&env->car, env->goal, env->throttle, env->slots.tick, canvas);
}

static bool valid(const MountainCar* env) {
    return puf_hill_valid(&env->car) && puf_within(env->throttle, -1, 1) &&
           puf_within(env->fuel, 0, 0.11f * (float)env->slots.tick) &&
           env->slots.tick < env->max_steps;
}

PUF_ENV(mountaincar_continuous, MountainCar,
        .doc = "drive an underpowered car out of a valley with little fuel", .group = "classic",
        .action_names = "throttle",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(2),
                   .actions = PUF_CONTINUOUS(1, -1, 1),
                   .width = 480,
                   .height = 320});
