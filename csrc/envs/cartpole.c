// cartpole - balance a pole on a cart. Dynamics of Barto, Sutton and Anderson 1983 with the
// constants and the explicit Euler step of Gymnasium's CartPole-v1.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    float x, x_dot, theta, theta_dot;
    float score, perf;
    float gravity, cart_mass, pole_mass, half_length, force, tau, theta_limit, x_limit;
    int32_t max_steps;
} CartPole;

static const PufField params[] = {
    PUF_PARAM_F32(CartPole, gravity, 9.8, 0, 100, "gravity in m/s^2"),
    PUF_PARAM_F32(CartPole, cart_mass, 1, 0.01, 100, "mass of the cart in kg"),
    PUF_PARAM_F32(CartPole, pole_mass, 0.1, 0.001, 100, "mass of the pole in kg"),
    PUF_PARAM_F32(CartPole, half_length, 0.5, 0.05, 10, "half the length of the pole in m"),
    PUF_PARAM_F32(CartPole, force, 10, 0, 1000, "force of one action in N"),
    PUF_PARAM_F32(CartPole, tau, 0.02, 0.001, 0.1, "seconds per step"),
    PUF_PARAM_F32(CartPole, theta_limit, 0.20943951, 0.01, 1.5,
                  "angle in rad at which the pole has fallen"),
    PUF_PARAM_F32(CartPole, x_limit, 2.4, 0.1, 100,
                  "distance in m from the centre to the ends of the track"),
    PUF_PARAM_I32(CartPole, max_steps, 500, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(CartPole, score, "steps balanced"),
    PUF_METRIC(CartPole, perf, "share of max_steps balanced"),
};

static const float START = 0.05f;  // largest absolute value of each number of a new state

static void reset(CartPole* env) {
    PufRng* rng = &env->slots.rng;
    env->x = puf_rand_range(rng, -START, START);
    env->x_dot = puf_rand_range(rng, -START, START);
    env->theta = puf_rand_range(rng, -START, START);
    env->theta_dot = puf_rand_range(rng, -START, START);
}

static void observe(const CartPole* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = env->x;
    obs[1] = env->x_dot;
    obs[2] = env->theta;
    obs[3] = env->theta_dot;
}

// A tile of envs as a structure of arrays: gathered, stepped with vectors, scattered back.
enum { TILE = 64, STEP = 16 };  // STEP: of the widest vectors

typedef struct {
    float x[TILE], x_dot[TILE], theta[TILE], theta_dot[TILE], push[TILE];
    int32_t fallen[TILE];
} Tile;

// Taylor terms of sin and cos. A pole that has not fallen leans by theta_limit <= 1.5 at most,
// where the error is 2e-6; within half a radian it is below float precision. Branch-free: loops
// vectorise.
static inline float small_sin(float a) {
    float b = a * a;
    return a * (1 + b * (-1.0f / 6 + b * (1.0f / 120 + b * (-1.0f / 5040 + b * (1.0f / 362880)))));
}

static inline float small_cos(float a) {
    float b = a * a;
    return 1 + b * (-0.5f + b * (1.0f / 24 +
                                 b * (-1.0f / 720 + b * (1.0f / 40320 + b * (-1.0f / 3628800)))));
}

PUF_HOT static void move(Tile* restrict tile, int32_t count, const CartPole* constants) {
    const float gravity = constants->gravity, tau = constants->tau;
    const float total_mass = constants->cart_mass + constants->pole_mass;
    const float length = constants->half_length;
    const float pole_moment = constants->pole_mass * length;
    const float inverse_mass = 1 / total_mass, pole_share = constants->pole_mass / total_mass;
    const float theta_limit = constants->theta_limit, x_limit = constants->x_limit;
    for (int32_t i = 0; i < count; i++) {
        float x = tile->x[i], x_dot = tile->x_dot[i];
        float theta = tile->theta[i], theta_dot = tile->theta_dot[i];
        float sine = small_sin(theta), cosine = small_cos(theta);
        float push = (tile->push[i] + pole_moment * theta_dot * theta_dot * sine) * inverse_mass;
        float theta_acc = (gravity * sine - cosine * push) /
                          (length * (4.0f / 3.0f - pole_share * cosine * cosine));
        float x_acc = push - pole_moment * theta_acc * cosine * inverse_mass;
        x += tau * x_dot;
        x_dot += tau * x_acc;
        theta += tau * theta_dot;
        theta_dot += tau * theta_acc;
        tile->x[i] = x;
        tile->x_dot[i] = x_dot;
        tile->theta[i] = theta;
        tile->theta_dot[i] = theta_dot;
        tile->fallen[i] = !(fabsf(x) <= x_limit) | !(fabsf(theta) <= theta_limit);
    }
}

// The four numbers of an env's state as one vector, and the transpose of four such vectors.
typedef float Four __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t FourInts __attribute__((vector_size(16)));
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (FourInts){i, j, k, l})
#endif

static inline void turn(Four rows[4]) {
    Four low = MIX(rows[0], rows[1], 0, 4, 1, 5), high = MIX(rows[0], rows[1], 2, 6, 3, 7);
    Four low2 = MIX(rows[2], rows[3], 0, 4, 1, 5), high2 = MIX(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = MIX(low, low2, 0, 1, 4, 5);
    rows[1] = MIX(low, low2, 2, 3, 6, 7);
    rows[2] = MIX(high, high2, 0, 1, 4, 5);
    rows[3] = MIX(high, high2, 2, 3, 6, 7);
}

static CartPole* env_at(const PufBatch* batch, int32_t i) {
    return (CartPole*)(void*)(batch->envs + (size_t)i * batch->env_bytes);
}

static void end(CartPole* env, PufStatus status) {
    env->score = (float)env->slots.tick;
    env->perf = env->score / (float)env->max_steps;
    puf_finish(&env->slots, status);
    reset(env);
    observe(env);
}

static void gather(const PufBatch* batch, int32_t start, int32_t count, Tile* tile) {
    const float force = env_at(batch, start)->force;
    for (int32_t i = 0; i < count; i++)
        tile->push[i] = batch->actions[start + i] == 1 ? force : -force;
    for (int32_t i = 0; i < count; i += 4) {
        Four rows[4];
        for (int32_t k = 0; k < 4; k++) {  // past the end: repeat the last env
            int32_t env = i + k < count ? i + k : count - 1;
            memcpy(&rows[k], &env_at(batch, start + env)->x, sizeof rows[k]);
        }
        turn(rows);
        memcpy(tile->x + i, &rows[0], sizeof rows[0]);
        memcpy(tile->x_dot + i, &rows[1], sizeof rows[1]);
        memcpy(tile->theta + i, &rows[2], sizeof rows[2]);
        memcpy(tile->theta_dot + i, &rows[3], sizeof rows[3]);
    }
}

static void scatter(const PufBatch* batch, int32_t start, int32_t count, const Tile* tile) {
    float* obs = (float*)(void*)batch->observations + 4 * (size_t)start;
    const int32_t max_steps = env_at(batch, start)->max_steps;
    for (int32_t i = 0; i < count; i++) batch->rewards[start + i] = 1;
    for (int32_t i = 0; i < count; i += 4) {
        Four rows[4];
        memcpy(&rows[0], tile->x + i, sizeof rows[0]);
        memcpy(&rows[1], tile->x_dot + i, sizeof rows[1]);
        memcpy(&rows[2], tile->theta + i, sizeof rows[2]);
        memcpy(&rows[3], tile->theta_dot + i, sizeof rows[3]);
        turn(rows);
        for (int32_t k = 0; k < 4 && i + k < count; k++) {
            CartPole* env = env_at(batch, start + i + k);
            memcpy(&env->x, &rows[k], sizeof rows[k]);
            memcpy(obs + 4 * (i + k), &rows[k], sizeof rows[k]);
            int32_t tick = ++env->slots.tick;
            if (tile->fallen[i + k])
                end(env, PUF_TERMINATED);
            else if (tick >= max_steps)
                end(env, PUF_TRUNCATED);
        }
    }
}

static void step_range(PufBatch* batch, int32_t first, int32_t last) {
    Tile tile;
    memset(&tile, 0, sizeof tile);
    for (int32_t start = first; start < last; start += TILE) {
        int32_t count = last - start < TILE ? last - start : TILE;
        gather(batch, start, count, &tile);
        move(&tile, (count + STEP - 1) / STEP * STEP, env_at(batch, start));
        scatter(batch, start, count, &tile);
    }
}

// Whether `tick` steps can lead to this position and velocity, if no step leaves the limit or
// changes the velocity by more than `gain`. The position before the last step was x - tau * v',
// where v' is within `gain` of v. The slack, and 1e-7 of the velocity per step, allow for rounding.
static bool is_reachable(double x, double v, double limit, double tau, double gain, int32_t tick) {
    const double slack = 1.001;
    if (tick == 0) return fabs(x) <= START && fabs(v) <= START;
    return fabs(x) <= limit && fabs(x - tau * v) <= slack * (fmax(limit, START) + tau * gain) &&
           fabs(v) <= slack * (START + tick * (gain + 1e-7 * fabs(v)));
}

static void render(const CartPole* env, PufCanvas* canvas) {
    const float scale = (float)canvas->width / (2.4f * env->x_limit);
    const float ground = 0.75f * (float)canvas->height;
    const float cart = (float)canvas->width / 2 + env->x * scale;
    const float pole = fminf(2 * env->half_length * scale, 0.6f * (float)canvas->height);
    const float tip_x = cart + pole * sinf(env->theta),
                tip_y = ground - 18 - pole * cosf(env->theta);
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, 0, ground, (float)canvas->width, 3, PUF_GREY);
    puf_rect(canvas, cart - 28, ground - 30, 56, 24, PUF_CYAN);
    puf_circle(canvas, cart - 16, ground - 4, 7, PUF_PAPER);
    puf_circle(canvas, cart + 16, ground - 4, 7, PUF_PAPER);
    puf_line(canvas, cart, ground - 18, tip_x, tip_y, 8, PUF_ORANGE);
    puf_circle(canvas, cart, ground - 18, 5, PUF_PAPER);
    puf_textf(canvas, 10, 10, 2, PUF_PAPER, "STEP %d", (int)env->slots.tick);
}

// A step that does not end the episode has |theta| <= lean before and after it, hence
// |theta_dot| <= spin, which bounds both accelerations of `move`. Play that starts within these
// bounds stays within them.
static bool valid(const CartPole* env) {
    const int32_t tick = env->slots.tick;
    if (!puf_finite(&env->x, 4) || tick >= env->max_steps) return false;
    const double tau = env->tau, length = env->half_length;
    const double lean = fmax(env->theta_limit, START), sine = sin(lean), spin = 2 * lean / tau;
    const double total_mass = (double)env->cart_mass + env->pole_mass;
    const double pole_share = env->pole_mass / total_mass;
    const double push = env->force / total_mass + pole_share * length * spin * spin * sine;
    const double theta_acc = (env->gravity * sine + push) / (length * (4.0 / 3 - pole_share));
    const double x_acc = push + pole_share * length * theta_acc;
    return is_reachable(env->x, env->x_dot, env->x_limit, tau, tau * x_acc, tick) &&
           is_reachable(env->theta, env->theta_dot, env->theta_limit, tau, tau * theta_acc, tick);
}

PUF_ENV_RANGE(cartpole, CartPole, step_range, .doc = "balance a pole on a cart", .group = "classic",
              .action_names = "left right",
              .layout = {.agents = 1,
                         .obs = PUF_BOX_F32(4),
                         .actions = PUF_DISCRETE(2),
                         .width = 480,
                         .height = 320});
