// lander - land a rocket softly on the flat pad between hills.
//
// Metres, seconds and radians; 20 steps per second; x to the right, y upwards, angle and spin
// counter-clockwise. The sky is 20 m wide and 20 m high. One step:
// 1. The action fires one engine, if there is fuel: 0 none, 1 the one that turns to the left, 2
//    main, 3 the one that turns to the right. Main pushes along the rocket's axis; the other two
//    sit beside its tip: they turn it and push it a little sideways. Burnt fuel makes the rocket
//    lighter, and thrust stronger.
// 2. Gravity and thrust change the velocity, then the velocity changes the place.
// 3. Where a foot or the hull touches the ground the episode ends. It is a soft landing
//    if only feet touch, both are over the pad, the rocket stands upright within 0.25 rad, sinks no
//    faster than 1.5 m/s and drifts no faster than 1 m/s. Leaving the sky ends the episode too.
// The reward is what the rocket gains in nearness to the pad, slowness near it and uprightness; 2
// for a soft landing, -0.5 for any other end; time and fuel cost a little.
//
// Observed: place relative to the pad, velocity, angle, spin, height above the ground, fuel.
#include "puf_env.h"
#include "puf_trig.h"

enum { NUM_POINTS = 17, NUM_FEATURES = 8 };
enum { COAST, TURN_LEFT, MAIN, TURN_RIGHT };
enum { FLYING, LANDED, CRASHED };

static const float HALF_WIDTH = 10, TOP = 20, STRETCH = 20.0f / (NUM_POINTS - 1);
static const float MAX_HILL = 4, PAD_HALF = 1.25f;  // a pad is two stretches of ground wide
static const float DT = 0.05f, DRY_MASS = 1, FUEL_MASS = 0.5f;
static const float SIDE_FORCE = 0.6f, TURN = 2.5f;  // sideways force; change of spin per second
static const float MAX_SPEED = 30, MAX_SPIN = 10;   // the air allows no more
static const float FOOT_X = 0.7f, FOOT_Y = -0.7f, HULL_X = 0.45f, HULL_TOP = 0.8f,
                   HULL_BOTTOM = -0.35f;

typedef struct {
    PufSlots slots;
    float x, y, vx, vy, angle, spin;
    float fuel;                // share that is left
    float ground[NUM_POINTS];  // heights, STRETCH apart
    int32_t pad;               // the point in the middle of the pad
    int32_t firing;            // the engine of the last step
    float score, perf;
    float gravity, thrust, roughness, burn;
    int32_t max_steps;
} Lander;

static const PufField params[] = {
    PUF_PARAM_F32(Lander, gravity, 3, 0.1, 10, "gravity in m/s^2"),
    PUF_PARAM_F32(Lander, thrust, 9, 0, 50,
                  "force of the main engine in N; the rocket weighs 1 kg "
                  "empty and 1.5 kg full"),
    PUF_PARAM_F32(Lander, roughness, 1, 0, 1, "height of the hills: 1 is up to 4 m"),
    PUF_PARAM_F32(Lander, burn, 0.1, 0, 1,
                  "share of the fuel that main burns per second; the "
                  "others burn a fifth"),
    PUF_PARAM_I32(Lander, max_steps, 500, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Lander, score,
               "100 for a soft landing plus the fuel left in percent; 0 for any other end"),
    PUF_METRIC(Lander, perf, "1 for a soft landing, else 0"),
};

static float clamp(float v, float limit) { return v < -limit ? -limit : v > limit ? limit : v; }

// Hills of random height, and a pad that is level with its middle.
static void reset(Lander* env) {
    PufRng* rng = &env->slots.rng;
    for (int32_t i = 0; i < NUM_POINTS; i++)
        env->ground[i] = env->roughness * puf_rand_range(rng, 0, MAX_HILL);
    env->pad = 3 + puf_rand_int(rng, NUM_POINTS - 6);
    env->ground[env->pad] *= 0.5f;
    env->ground[env->pad - 1] = env->ground[env->pad + 1] = env->ground[env->pad];
    env->x = puf_rand_range(rng, -6, 6);
    env->y = puf_rand_range(rng, 12, 14);
    env->vx = puf_rand_range(rng, -2, 2);
    env->vy = puf_rand_range(rng, -2, 0);
    env->angle = puf_rand_range(rng, -0.3f, 0.3f);
    env->spin = puf_rand_range(rng, -0.3f, 0.3f);
    env->fuel = 1;
    env->firing = COAST;
}

static float pad_x(const Lander* env) { return (float)env->pad * STRETCH - HALF_WIDTH; }

static float ground_at(const Lander* env, float x) {
    const float at = fminf(fmaxf((x + HALF_WIDTH) / STRETCH, 0), NUM_POINTS - 1.001f);
    const int32_t i = (int32_t)at;
    return env->ground[i] + (at - (float)i) * (env->ground[i + 1] - env->ground[i]);
}

// 0 at rest and upright on the pad, more the better. Speed matters the more the nearer the pad is.
static float closeness(const Lander* env) {
    const float dx = env->x - pad_x(env), dy = env->y + FOOT_Y - env->ground[env->pad];
    const float away = sqrtf(dx * dx + dy * dy);
    const float speed = sqrtf(env->vx * env->vx + env->vy * env->vy);
    return -0.15f * away - 0.4f * speed / (1 + 0.5f * away) - 0.5f * fabsf(env->angle);
}

static void fly(Lander* env, float sine, float cosine) {
    env->firing = env->fuel > 0 ? puf_action(&env->slots, 0) : COAST;
    const float mass = DRY_MASS + FUEL_MASS * env->fuel;
    float along = 0, across = 0;  // acceleration in the rocket's frame: to its tip, to its right
    if (env->firing == MAIN) along = env->thrust / mass;
    if (env->firing == TURN_LEFT) across = -SIDE_FORCE / mass;
    if (env->firing == TURN_RIGHT) across = SIDE_FORCE / mass;
    if (env->firing == TURN_LEFT) env->spin += TURN * DT;
    if (env->firing == TURN_RIGHT) env->spin -= TURN * DT;
    if (env->firing != COAST)
        env->fuel = fmaxf(env->fuel - (env->firing == MAIN ? 1 : 0.2f) * env->burn * DT, 0);
    env->vx = clamp(env->vx + (-along * sine + across * cosine) * DT, MAX_SPEED);
    env->vy = clamp(env->vy + (along * cosine + across * sine - env->gravity) * DT, MAX_SPEED);
    env->spin = clamp(env->spin, MAX_SPIN);
    env->x += env->vx * DT;
    env->y += env->vy * DT;
    env->angle = (float)puf_wrap_angle((double)(env->angle + env->spin * DT));
}

// Whether the point of the rocket's frame is in the ground; its place goes to `x`.
static bool touches(const Lander* env, float px, float py, float sine, float cosine, float* x) {
    *x = env->x + px * cosine - py * sine;
    return env->y + px * sine + py * cosine <= ground_at(env, *x);
}

static int32_t outcome(const Lander* env, float sine, float cosine) {
    if (fabsf(env->x) > HALF_WIDTH || env->y > TOP) return CRASHED;
    if (env->y > MAX_HILL + 2) return FLYING;
    float left, right, unused;
    bool feet = touches(env, -FOOT_X, FOOT_Y, sine, cosine, &left);
    feet = touches(env, FOOT_X, FOOT_Y, sine, cosine, &right) || feet;
    for (int32_t i = -1; i <= 1; i++)  // corners of the hull, and the points between them
        if (touches(env, (float)i * HULL_X, HULL_BOTTOM, sine, cosine, &unused) ||
            touches(env, (float)i * HULL_X, HULL_TOP, sine, cosine, &unused))
            return CRASHED;
    if (!feet) return FLYING;
    const bool on_pad =
        fabsf(left - pad_x(env)) <= PAD_HALF && fabsf(right - pad_x(env)) <= PAD_HALF;
    const bool soft = fabsf(env->angle) <= 0.25f && env->vy >= -1.5f && fabsf(env->vx) <= 1;
    return on_pad && soft ? LANDED : CRASHED;
}

static PufStatus step(Lander* env) {
    double sine, cosine;
    const float before = closeness(env);
    puf_sincos((double)env->angle, &sine, &cosine);
    fly(env, (float)sine, (float)cosine);
    puf_sincos((double)env->angle, &sine, &cosine);
    const int32_t now = outcome(env, (float)sine, (float)cosine);
    const float cost = 0.003f + (env->firing == COAST ? 0 : env->firing == MAIN ? 0.003f : 0.001f);
    puf_reward(&env->slots, 0,
               closeness(env) - before - cost +
                   (now == LANDED    ? 2.0f
                    : now == CRASHED ? -1.0f
                                     : 0));
    env->score = now == LANDED ? 100 + 100 * env->fuel : 0;
    env->perf = now == LANDED;
    if (now != FLYING) {  // the final observation lies in the sky
        env->x = clamp(env->x, HALF_WIDTH);
        env->y = fminf(env->y, TOP);
        return PUF_TERMINATED;
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Lander* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = 0.2f * (env->x - pad_x(env));
    obs[1] = 0.1f * (env->y + FOOT_Y - env->ground[env->pad]);
    obs[2] = 0.3f * env->vx;
    obs[3] = 0.3f * env->vy;
    obs[4] = env->angle;
    obs[5] = env->spin;
    obs[6] = 0.1f * (env->y + FOOT_Y - ground_at(env, env->x));
    obs[7] = env->fuel;
}

// ---- Pictures -----------------------------------------------------------------------------------

static void draw_rocket(const Lander* env, PufCanvas* canvas, float x, float y, float scale) {
    const float s = (float)puf_sin((double)env->angle) * scale;
    const float c = (float)puf_cos((double)env->angle) * scale;
#define AT(px, py) x + (px) * c - (py) * s, y - (px) * s - (py) * c
    if (env->firing == MAIN) {
        puf_polygon(canvas, (const float[]){AT(-0.3f, -0.35f), AT(0.3f, -0.35f), AT(0, -1.7f)}, 3,
                    PUF_ORANGE);
        puf_polygon(canvas, (const float[]){AT(-0.15f, -0.35f), AT(0.15f, -0.35f), AT(0, -1.1f)}, 3,
                    PUF_YELLOW);
    }
    if (env->firing == TURN_LEFT)
        puf_polygon(canvas, (const float[]){AT(0.4f, 0.5f), AT(0.4f, 0.3f), AT(1, 0.4f)}, 3,
                    PUF_ORANGE);
    if (env->firing == TURN_RIGHT)
        puf_polygon(canvas, (const float[]){AT(-0.4f, 0.5f), AT(-0.4f, 0.3f), AT(-1, 0.4f)}, 3,
                    PUF_ORANGE);
    puf_line(canvas, AT(-0.35f, -0.2f), AT(-FOOT_X, FOOT_Y), 0.1f * scale, PUF_GREY);
    puf_line(canvas, AT(0.35f, -0.2f), AT(FOOT_X, FOOT_Y), 0.1f * scale, PUF_GREY);
    puf_line(canvas, AT(-FOOT_X - 0.15f, FOOT_Y), AT(-FOOT_X + 0.15f, FOOT_Y), 0.1f * scale,
             PUF_GREY);
    puf_line(canvas, AT(FOOT_X - 0.15f, FOOT_Y), AT(FOOT_X + 0.15f, FOOT_Y), 0.1f * scale,
             PUF_GREY);
    puf_polygon(
        canvas,
        (const float[]){AT(-HULL_X, HULL_BOTTOM), AT(HULL_X, HULL_BOTTOM), AT(HULL_X, 0.35f),
                        AT(0.2f, HULL_TOP), AT(-0.2f, HULL_TOP), AT(-HULL_X, 0.35f)},
        6, PUF_PAPER);
    puf_polygon(canvas,
                (const float[]){AT(-HULL_X, HULL_BOTTOM), AT(HULL_X, HULL_BOTTOM),
                                AT(HULL_X, -0.15f), AT(-HULL_X, -0.15f)},
                4, PUF_RED);
    puf_circle(canvas, AT(0, 0.25f), 0.17f * scale, PUF_BLUE);
#undef AT
}

static void render(const Lander* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float scale = width / (2 * HALF_WIDTH), base = height - 1.2f * scale;
    float ridge[2 * (NUM_POINTS + 2)];
    puf_clear(canvas, PUF_INK);
    for (uint32_t i = 1; i <= 40; i++)  // stars
        puf_rect(canvas, (float)(i * 7919u % 997u) / 997 * width,
                 (float)(i * 104729u % 991u) / 991 * 0.7f * height, 2, 2, PUF_GREY);
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        ridge[2 * i] = (float)i * STRETCH * scale;
        ridge[2 * i + 1] = base - env->ground[i] * scale;
    }
    ridge[2 * NUM_POINTS] = width;
    ridge[2 * NUM_POINTS + 1] = ridge[2 * NUM_POINTS + 3] = height;
    ridge[2 * NUM_POINTS + 2] = 0;
    puf_polygon(canvas, ridge, NUM_POINTS + 2, 0x6B6F7A);
    const float pad = (pad_x(env) + HALF_WIDTH) * scale,
                level = base - env->ground[env->pad] * scale;
    puf_rect(canvas, pad - PAD_HALF * scale, level - 1, 2 * PAD_HALF * scale, 5, PUF_GREEN);
    for (int32_t side = -1; side <= 1; side += 2) {
        float x = pad + (float)side * PAD_HALF * scale;
        puf_line(canvas, x, level, x, level - 26, 2, PUF_PAPER);
        puf_polygon(canvas, (const float[]){x, level - 26, x + 14, level - 20, x, level - 14}, 3,
                    PUF_YELLOW);
    }
    draw_rocket(env, canvas, (env->x + HALF_WIDTH) * scale, base - env->y * scale, scale);
    puf_rect(canvas, 12, 12, 84, 10, PUF_SLATE);
    puf_rect(canvas, 14, 14, 80 * env->fuel, 6, PUF_ORANGE);
    puf_textf(canvas, 104, 10, 2, PUF_PAPER, "FUEL");
}

static bool valid(const Lander* env) {
    for (int32_t i = 0; i < NUM_POINTS; i++)
        if (!puf_within(env->ground[i], 0, MAX_HILL)) return false;
    return puf_within(env->x, -HALF_WIDTH, HALF_WIDTH) && puf_within(env->y, -1, TOP) &&
           puf_within(env->vx, -MAX_SPEED, MAX_SPEED) &&
           puf_within(env->vy, -MAX_SPEED, MAX_SPEED) &&
           puf_within(env->angle, -3.1416f, 3.1416f) &&
           puf_within(env->spin, -MAX_SPIN, MAX_SPIN) && puf_within(env->fuel, 0, 1) &&
           env->pad >= 3 && env->pad < NUM_POINTS - 3 && env->firing >= COAST &&
           env->firing <= TURN_RIGHT && env->slots.tick < env->max_steps;
}

PUF_ENV(lander, Lander, .doc = "land a rocket softly on a pad between hills", .group = "motion",
        .action_names = "coast left main right",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(NUM_FEATURES),
                   .actions = PUF_DISCRETE(4),
                   .width = 480,
                   .height = 400});
