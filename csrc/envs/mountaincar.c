// mountaincar - an underpowered car must swing back and forth to leave a valley. Dynamics, rewards
// and limits of Gymnasium's MountainCar-v0 (Moore 1990).
//
// Actions: push left, no push, push right. Each step costs 1 until the car is at `goal`.
// `shaping` adds the energy that the car gains times that number; it is 0 by default, which is
// Gymnasium's task. Observed: position and velocity.
#include "puf_env.h"
#include "puf_hill.h"

typedef struct {
    PufSlots slots;
    PufHillCar car;
    int32_t push;  // of the last action: -1, 0, 1
    float score, perf;
    float goal, force, shaping;
    int32_t max_steps;
} MountainCar;

static const PufField params[] = {
    PUF_PARAM_F32(MountainCar, goal, 0.5, -0.3, 0.6, "position of the flag"),
    PUF_PARAM_F32(MountainCar, force, 0.001, 0, 0.01, "speed gained per step of push"),
    PUF_PARAM_F32(MountainCar, shaping, 0, 0, 1000,
                  "reward per unit of energy gained; 1 unit lifts the car from the bottom to the "
                  "top"),
    PUF_PARAM_I32(MountainCar, max_steps, 200, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(MountainCar, score, "minus the steps to the flag"),
    PUF_METRIC(MountainCar, perf,
               "0 if the flag is not reached within max_steps, 1 if within 55% of them (score "
               "-110, Gymnasium's threshold), linear between"),
};

static void reset(MountainCar* env) {
    env->car = puf_hill_start(&env->slots.rng);
    env->push = 0;
}

static PufStatus step(MountainCar* env) {
    const double before = puf_hill_energy(&env->car);
    env->push = puf_action(&env->slots, 0) - 1;
    puf_hill_drive(&env->car, (double)env->force * env->push + puf_hill_pull(env->car.x));
    const double gain = puf_hill_energy(&env->car) - before;
    puf_reward(&env->slots, 0, -1 + env->shaping * (float)gain);
    const bool there = env->car.x >= (double)env->goal && env->car.speed >= 0;
    if (!there && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)-env->slots.tick;
    env->perf = there ? fminf((1 + env->score / (float)env->max_steps) / 0.45f, 1) : 0;
    return there ? PUF_TERMINATED : PUF_TRUNCATED;
}

static void observe(const MountainCar* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = (float)env->car.x;
    obs[1] = (float)env->car.speed;
}

static void render(const MountainCar* env, PufCanvas* canvas) {
    puf_hill_draw(&env->car, env->goal, (float)env->push, env->slots.tick, canvas);
}

static bool valid(const MountainCar* env) {
    return puf_hill_valid(&env->car) && env->push >= -1 && env->push <= 1 &&
           env->slots.tick < env->max_steps;
}

PUF_ENV(mountaincar, MountainCar, .doc = "drive an underpowered car out of a valley",
        .group = "classic", .action_names = "left none right",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(2),
                   .actions = PUF_DISCRETE(3),
                   .width = 480,
                   .height = 320});
