// freeway - lead a chicken across ten lanes of traffic, as often as the time allows.
//
// One tick:
// 1. The chicken stays, or walks `chicken_speed` lanes up or down; it cannot leave the lower kerb.
//    A stunned chicken does not move, and no car hits it.
// 2. Cars move. They leave the road on one side and return on the other.
// 3. A car that touches the chicken throws it back by `knockback` lanes and stuns it.
// 4. A chicken in the middle of the upper kerb has crossed: it scores and starts again below.
//
// Heights are lanes from the lower edge: the lower kerb is 0..1, lane i is i+1..i+2, the upper kerb
// 11..12. Widths are units of a road of 160. The cars of a lane have the same speed and are evenly
// spaced; speed and phase are drawn for each episode. The lower five lanes drive to the right, the
// upper five to the left.
//
// Observed are the chicken's height, how long it is stunned, its height within its lane, and for
// each lane from one below the chicken to four above it: the ticks until a car will be in the way
// (0 if one is), the ticks until that car is gone, both over 40 and at most 1, and the lane's
// signed speed.
#include "puf_env.h"

enum {
    LANES = 10,
    ROAD = 160,
    CHICKEN_X = ROAD / 2,
    HALF_CAR = 7,      // half of a car's length
    HALF_CHICKEN = 3,  // half of the chicken's width
    TOUCH = HALF_CAR + HALF_CHICKEN,
    HORIZON = 40,     // ticks that the chicken looks ahead
    LANES_BELOW = 1,  // lanes in view
    LANES_IN_VIEW = 6,
    NUM_FEATURES = 3 + 3 * LANES_IN_VIEW,
};

enum { STAY, UP, DOWN };

static const float REACH = 0.45f;  // a car touches a chicken this far from the middle of its lane
static const float START = 0.5f, GOAL = LANES + 1.5f;
static const float SLOWEST = 0.8f, FASTEST = 3.2f;  // cars, in units per tick

typedef struct {
    PufSlots slots;
    float y;          // middle of the chicken
    int32_t stunned;  // ticks until it can move
    int32_t crossings;
    float cars[LANES];   // position of the first car of each lane, 0..ROAD
    float speed[LANES];  // units per tick, positive to the right
    float score, perf;
    int32_t cars_per_lane, par, stun, max_steps;
    float car_speed, chicken_speed, knockback;
    float reward_crossing, reward_lane, reward_hit;
} Freeway;

static const PufField params[] = {
    PUF_PARAM_I32(Freeway, cars_per_lane, 2, 1, 4, "cars in each lane"),
    PUF_PARAM_F32(Freeway, car_speed, 1, 0.1, 2, "factor on the speeds of all cars"),
    PUF_PARAM_F32(Freeway, chicken_speed, 0.25, 0.05, 0.5, "lanes per tick"),
    PUF_PARAM_F32(Freeway, knockback, 1, 0, 12, "lanes that a hit throws the chicken back"),
    PUF_PARAM_I32(Freeway, stun, 8, 0, 100, "ticks that the chicken rests after a hit"),
    PUF_PARAM_I32(Freeway, par, 15, 1, 10000, "crossings at which perf is 1"),
    PUF_PARAM_I32(Freeway, max_steps, 1024, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Freeway, reward_crossing, 1, -10, 10, "reward for a crossing"),
    PUF_PARAM_F32(Freeway, reward_lane, 0.05, -1, 1, "reward per lane gained, lost if thrown back"),
    PUF_PARAM_F32(Freeway, reward_hit, 0, -10, 10, "reward for a hit"),
};

static const PufField metrics[] = {
    PUF_METRIC(Freeway, score, "crossings"),
    PUF_METRIC(Freeway, perf, "score / par, at most 1"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

// ---- Rules --------------------------------------------------------------------------------------

static void reset(Freeway* env) {
    PufRng* rng = &env->slots.rng;
    for (int32_t lane = 0; lane < LANES; lane++) {
        float speed = env->car_speed * puf_rand_range(rng, SLOWEST, FASTEST);
        env->speed[lane] = lane < LANES / 2 ? speed : -speed;
        env->cars[lane] = puf_rand_range(rng, 0, ROAD - 1);
    }
    env->y = START;
    env->stunned = env->crossings = 0;
}

static void drive(Freeway* env) {
    for (int32_t lane = 0; lane < LANES; lane++) {
        float x = env->cars[lane] + env->speed[lane];
        x = x < 0 ? x + ROAD : x;
        env->cars[lane] = x >= ROAD ? x - ROAD : x;  // a sum that rounds up to ROAD becomes 0
    }
}

// Distance to the next car whose middle is ahead of the chicken, in the direction of +x.
static inline float gap_right(const Freeway* env, int32_t lane) {
    const float spacing = ROAD / (float)env->cars_per_lane;
    float gap = env->cars[lane] - CHICKEN_X;
    while (gap < 0) gap += spacing;
    while (gap >= spacing) gap -= spacing;
    return gap;
}

static bool is_hit(const Freeway* env) {
    const int32_t lane = (int32_t)env->y - 1;  // -1 and LANES are the kerbs
    if (lane < 0 || lane >= LANES || env->stunned) return false;
    if (fabsf(env->y - ((float)lane + 1.5f)) >= REACH) return false;
    const float gap = gap_right(env, lane), spacing = ROAD / (float)env->cars_per_lane;
    return fminf(gap, spacing - gap) < TOUCH;
}

static PufStatus step(Freeway* env) {
    static const float direction[] = {[STAY] = 0, [UP] = 1, [DOWN] = -1};
    const float before = env->y;
    if (env->stunned)
        env->stunned--;
    else
        env->y += direction[puf_action(&env->slots, 0)] * env->chicken_speed;
    env->y = fmaxf(env->y, START);
    drive(env);
    float reward = 0;
    if (is_hit(env)) {
        env->y = fmaxf(env->y - env->knockback, START);
        env->stunned = env->stun;
        reward += env->reward_hit;
    }
    reward += env->reward_lane * (env->y - before);
    if (env->y >= GOAL) {
        env->y = START;
        env->crossings++;
        reward += env->reward_crossing;
    }
    puf_reward(&env->slots, 0, reward);
    env->score = (float)env->crossings;
    env->perf = fminf(env->score / (float)env->par, 1);
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Freeway* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    const float spacing = ROAD / (float)env->cars_per_lane;
    const float fastest = env->car_speed * FASTEST;
    const int32_t row = (int32_t)env->y;
    obs[0] = env->y * (2 / GOAL) - 1;
    obs[1] = env->stun ? (float)env->stunned / (float)env->stun : 0;
    obs[2] = 2 * (env->y - (float)row) - 1;
    obs += 3;
    for (int32_t i = 0; i < LANES_IN_VIEW; i++, obs += 3) {
        const int32_t lane = row - 1 - LANES_BELOW + i;
        if (lane < 0 || lane >= LANES) {
            obs[0] = obs[1] = 1;
            obs[2] = 0;
            continue;
        }
        const float right = gap_right(env, lane), speed = fabsf(env->speed[lane]);
        const float next = env->speed[lane] > 0 ? spacing - right : right;
        const float leaving = TOUCH - (spacing - next);  // of the car before, if it is still there
        const float ticks = 1 / (speed * HORIZON);
        obs[0] = leaving > 0 ? 0 : clamp((next - TOUCH) * ticks, 0, 1);
        obs[1] = fminf((leaving > 0 ? leaving : next + TOUCH) * ticks, 1);
        obs[2] = clamp(env->speed[lane] / fastest, -1, 1);
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 36, CELL = 40, SCALE = 4 };

static void draw_car(PufCanvas* canvas, float x, float y, bool to_right, uint32_t color) {
    const float front = to_right ? 1 : -1, length = 2 * HALF_CAR * SCALE;
    const uint32_t dark = puf_blend(color, PUF_BLACK, 0.35f);
    for (float wheel = -1; wheel <= 1; wheel += 2)
        for (float side = -1; side <= 1; side += 2)
            puf_rect(canvas, x + wheel * 16 - 6, y + side * 11 - 3, 12, 6, PUF_BLACK);
    puf_rect(canvas, x - length / 2, y - 10, length, 20, color);
    puf_rect(canvas, x - 15 - 4 * front, y - 8, 30, 16, dark);
    puf_rect(canvas, x - 4 * front - 9, y - 7, 18, 14, color);
    puf_rect(canvas, x + front * (length / 2 - 2) - 2, y - 9, 4, 5, PUF_YELLOW);
    puf_rect(canvas, x + front * (length / 2 - 2) - 2, y + 4, 4, 5, PUF_YELLOW);
}

static void draw_chicken(PufCanvas* canvas, float x, float y, bool stunned) {
    static const char* const chicken[] = {
        "...rr......", "..rwwr.....", "..wkww.....", "yywwww...w.", "..rwww..ww.",
        "...wwwwwww.", "...wwwgwww.", "....wwggw..", ".....www...", ".....y.y...",
    };
    static const uint32_t colors[] = {PUF_WHITE, PUF_RED, PUF_BLACK, PUF_ORANGE, PUF_GREY};
    puf_sprite(canvas, x - 16, y - 15, 3, chicken, 10, "wrkyg", colors);
    for (int32_t i = 0; stunned && i < 3; i++)
        puf_circle(canvas, x - 14 + 13 * (float)i, y - 20 + 4 * (float)(i == 1), 3, PUF_YELLOW);
}

static void render(const Freeway* env, PufCanvas* canvas) {
    static const uint32_t colors[LANES] = {PUF_RED,  PUF_YELLOW, PUF_CYAN,   PUF_PINK,  PUF_ORANGE,
                                           PUF_BLUE, PUF_GREEN,  PUF_PURPLE, PUF_PAPER, PUF_BROWN};
    const float width = ROAD * SCALE, bottom = HEADER + (LANES + 2) * CELL;
    const float spacing = ROAD / (float)env->cars_per_lane;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, 0, HEADER, width, (LANES + 2) * CELL, 0x4E9A51);
    puf_rect(canvas, 0, HEADER + CELL - 5, width, LANES * CELL + 10, PUF_GREY);
    puf_rect(canvas, 0, HEADER + CELL, width, LANES * CELL, 0x3A3F47);
    for (int32_t lane = 1; lane < LANES; lane++) {
        float y = HEADER + CELL * (float)(lane + 1);
        if (lane == LANES / 2) {
            puf_rect(canvas, 0, y - 4, width, 3, PUF_YELLOW);
            puf_rect(canvas, 0, y + 1, width, 3, PUF_YELLOW);
            continue;
        }
        for (float x = 8; x < width; x += 32) puf_rect(canvas, x, y - 1, 16, 2, PUF_GREY);
    }
    for (int32_t lane = 0; lane < LANES; lane++) {
        float y = bottom - ((float)lane + 1.5f) * CELL;
        for (int32_t i = 0; i < env->cars_per_lane; i++) {
            float x = env->cars[lane] + (float)i * spacing;
            x = x >= ROAD ? x - ROAD : x;
            for (float copy = -1; copy <= 1; copy++)  // a car at an edge shows on both sides
                draw_car(canvas, (x + copy * ROAD) * SCALE, y, env->speed[lane] > 0, colors[lane]);
        }
    }
    draw_chicken(canvas, CHICKEN_X * SCALE, bottom - env->y * CELL, env->stunned > 0);
    puf_textf(canvas, 12, 8, 3, PUF_PAPER, "CROSSINGS %d", (int)env->crossings);
    puf_textf(canvas, width - 220, 8, 3, PUF_YELLOW, "TIME %d",
              (int)(env->max_steps - env->slots.tick));
}

// ---- Validation ---------------------------------------------------------------------------------

static bool valid(const Freeway* env) {
    const float slowest = 0.999f * env->car_speed * SLOWEST;
    const float fastest = 1.001f * env->car_speed * FASTEST;
    for (int32_t lane = 0; lane < LANES; lane++)
        if (!puf_within(fabsf(env->speed[lane]), slowest, fastest) ||
            (env->speed[lane] > 0) != (lane < LANES / 2) || !puf_within(env->cars[lane], 0, ROAD) ||
            env->cars[lane] >= ROAD)
            return false;
    return env->slots.tick < env->max_steps && env->crossings >= 0 &&
           env->crossings <= env->slots.tick && env->stunned >= 0 && env->stunned <= env->stun &&
           puf_within(env->y, START, GOAL) && env->y < GOAL;
}

PUF_ENV(freeway, Freeway, .doc = "lead a chicken across ten lanes of traffic", .group = "arcade",
        .action_names = "stay up down",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(3),
            .width = ROAD * SCALE,
            .height = HEADER + (LANES + 2) * CELL});
