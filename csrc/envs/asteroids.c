// asteroids - turn, thrust and shoot; rocks split until they are gone; clear all waves.
//
// The world is a square of 128 units whose opposite edges are joined. One tick:
// 1. The ship turns by 1/32 of a circle, or accelerates along its heading, or fires from its nose.
//    It loses 1 % of its speed. At most 4 shots fly at once, and 4 ticks lie between two of them.
// 2. Everything moves. A shot is gone after 30 ticks.
// 3. A shot that touches a rock destroys it: a large rock becomes two medium ones, a medium one two
//    small ones, each in a random direction and faster. Points: 20, 50 and 100.
// 4. A rock that touches the ship costs a life; the ship returns to the middle and is safe for 60
//    ticks. Without lives the episode ends.
// 5. When no rock is left, the next wave begins, with one large rock more, at most 8, away from the
//    ship. After the last wave the episode ends.
//
// Observed, in the frame of the ship (ahead, right): its velocity, whether it can fire, how long it
// is safe, lives, rocks left; then the six nearest rocks, nearest first: direction, distance,
// relative velocity, size. Missing rocks are zeros at the largest distance.
#include "puf_env.h"

enum {
    SIZE = 128,
    HEADINGS = 32,
    MAX_LARGE = 8,
    MAX_ROCKS = 4 * MAX_LARGE,  // a large rock is at most four small ones
    MAX_SHOTS = 4,
    COOLDOWN = 4,
    SHOT_TICKS = 30,
    SAFE_TICKS = 60,
    DISTANCE = 45,  // of a new rock from the ship
    NUM_TRIES = 16,
    NUM_NEAR = 6,
    NEAR_FEATURES = 6,
    NUM_FEATURES = 6 + NUM_NEAR * NEAR_FEATURES,
};

enum { NOTHING, LEFT, RIGHT, THRUST, FIRE };
enum { GONE, SMALL, MEDIUM, LARGE };

static const float SHIP_RADIUS = 2, SHOT_SPEED = 3, TOP_SPEED = 1.6f, DRAG = 0.99f;
static const float radius_of[] = {0, 3, 6, 10}, rock_speeds[] = {0, 0.8f, 0.55f, 0.35f};
static const float points_of[] = {0, 100, 50, 20};
static const int32_t weight_of[] = {0, 1, 2, 4};  // small rocks that it can become
static const float FASTEST_ROCK = 0.8f * 1.25f;

// Cosine of i / 32 of a circle.
static const float cosines[HEADINGS] = {
    1,
    0.98078528f,
    0.923879533f,
    0.831469612f,
    0.707106781f,
    0.555570233f,
    0.382683432f,
    0.195090322f,
    0,
    -0.195090322f,
    -0.382683432f,
    -0.555570233f,
    -0.707106781f,
    -0.831469612f,
    -0.923879533f,
    -0.98078528f,
    -1,
    -0.98078528f,
    -0.923879533f,
    -0.831469612f,
    -0.707106781f,
    -0.555570233f,
    -0.382683432f,
    -0.195090322f,
    0,
    0.195090322f,
    0.382683432f,
    0.555570233f,
    0.707106781f,
    0.831469612f,
    0.923879533f,
    0.98078528f,
};

static inline float sine(int32_t heading) { return cosines[(heading + 24) % HEADINGS]; }

typedef struct {
    float x, y, vx, vy;
} Body;

typedef struct {
    PufSlots slots;
    Body ship;
    int32_t heading;  // 0 points to +x, then clockwise on the screen
    int32_t cooldown, safe, lives_left, wave, destroyed, num_rocks, num_shots;
    bool thrusts;  // in the last tick, for the picture
    Body shots[MAX_SHOTS];
    int32_t ages[MAX_SHOTS];
    Body rocks[MAX_ROCKS];
    uint8_t sizes[MAX_ROCKS];
    float score, perf, waves_cleared;
    int32_t waves, first_rocks, lives, max_steps;
    float rock_speed, thrust, reward_death;
} Asteroids;

static const PufField params[] = {
    PUF_PARAM_I32(Asteroids, waves, 3, 1, 100, "waves to clear"),
    PUF_PARAM_I32(Asteroids, first_rocks, 3, 1, MAX_LARGE, "large rocks in the first wave"),
    PUF_PARAM_I32(Asteroids, lives, 3, 1, 100, "ships"),
    PUF_PARAM_F32(Asteroids, rock_speed, 1, 0, 2, "factor on the speed of rocks"),
    PUF_PARAM_F32(Asteroids, thrust, 0.08, 0, 1, "acceleration of the ship in units per tick^2"),
    PUF_PARAM_I32(Asteroids, max_steps, 3000, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Asteroids, reward_death, -2, -10, 10, "reward for losing a ship"),
};

static const PufField metrics[] = {
    PUF_METRIC(Asteroids, score, "points: 20, 50 and 100 for large, medium and small rocks"),
    PUF_METRIC(Asteroids, perf, "share of the rocks of all waves that were destroyed"),
    PUF_METRIC(Asteroids, waves_cleared, "waves cleared"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }
static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }

// ---- The joined edges ---------------------------------------------------------------------------

// One step across an edge at most, back into 0 <= v < SIZE; a sum that rounds up to SIZE becomes 0.
static inline float wrapped(float v) {
    v = v < 0 ? v + SIZE : v;
    return v >= SIZE ? v - SIZE : v;
}

// The short way from `from` to `to`.
static inline float across(float from, float to) {
    float d = to - from;
    d = d > SIZE / 2 ? d - SIZE : d;
    return d < -SIZE / 2 ? d + SIZE : d;
}

static inline float distance2(const Body* a, const Body* b) {
    float dx = across(a->x, b->x), dy = across(a->y, b->y);
    return dx * dx + dy * dy;
}

static inline void move(Body* body) {
    body->x = wrapped(body->x + body->vx);
    body->y = wrapped(body->y + body->vy);
}

// ---- Rules --------------------------------------------------------------------------------------

static int32_t rocks_in_wave(const Asteroids* env, int32_t wave) {
    return min_int(env->first_rocks + wave, MAX_LARGE);
}

// Rocks of all waves with all their pieces.
static int32_t all_rocks(const Asteroids* env) {
    int32_t sum = 0;
    for (int32_t wave = 0; wave < env->waves; wave++) sum += 7 * rocks_in_wave(env, wave);
    return sum;
}

// A random direction, and the speed of its size within 25 %.
static void launch(Asteroids* env, Body* rock, int32_t size) {
    PufRng* rng = &env->slots.rng;
    const int32_t heading = puf_rand_int(rng, HEADINGS);
    const float speed = env->rock_speed * rock_speeds[size] * puf_rand_range(rng, 0.75f, 1.25f);
    rock->vx = speed * cosines[heading];
    rock->vy = speed * sine(heading);
}

static void begin_wave(Asteroids* env) {
    PufRng* rng = &env->slots.rng;
    env->num_rocks = rocks_in_wave(env, env->wave);
    for (int32_t i = 0; i < env->num_rocks; i++) {
        Body* rock = &env->rocks[i];
        for (int32_t tries = 0; tries < NUM_TRIES; tries++) {
            rock->x = puf_rand_range(rng, 0, SIZE - 1);
            rock->y = puf_rand_range(rng, 0, SIZE - 1);
            if (distance2(&env->ship, rock) >= DISTANCE * DISTANCE) break;
            rock->x = wrapped(env->ship.x + SIZE / 2);  // the farthest place, if no try is the last
            rock->y = wrapped(env->ship.y + SIZE / 2);
        }
        env->sizes[i] = LARGE;
        launch(env, rock, LARGE);
    }
}

static void new_ship(Asteroids* env) {
    env->ship = (Body){SIZE / 2, SIZE / 2, 0, 0};
    env->heading = puf_rand_int(&env->slots.rng, HEADINGS);
    env->safe = SAFE_TICKS;
}

static void reset(Asteroids* env) {
    new_ship(env);
    env->lives_left = env->lives;
    env->wave = env->destroyed = env->cooldown = env->num_shots = 0;
    env->thrusts = false;
    env->score = env->perf = env->waves_cleared = 0;
    begin_wave(env);
}

static void fire(Asteroids* env) {
    if (env->cooldown || env->num_shots == MAX_SHOTS) return;
    const float ahead_x = cosines[env->heading], ahead_y = sine(env->heading);
    env->ages[env->num_shots] = 0;
    env->shots[env->num_shots++] = (Body){wrapped(env->ship.x + SHIP_RADIUS * ahead_x),
                                          wrapped(env->ship.y + SHIP_RADIUS * ahead_y),
                                          SHOT_SPEED * ahead_x, SHOT_SPEED * ahead_y};
    env->cooldown = COOLDOWN;
}

static void act(Asteroids* env) {
    Body* ship = &env->ship;
    const int32_t action = puf_action(&env->slots, 0);
    if (env->cooldown) env->cooldown--;
    if (env->safe) env->safe--;
    env->thrusts = action == THRUST;
    if (action == LEFT || action == RIGHT)
        env->heading = (env->heading + (action == RIGHT ? 1 : HEADINGS - 1)) % HEADINGS;
    if (action == THRUST) {
        ship->vx += env->thrust * cosines[env->heading];
        ship->vy += env->thrust * sine(env->heading);
    }
    if (action == FIRE) fire(env);
    const float speed2 = ship->vx * ship->vx + ship->vy * ship->vy;
    const float factor = speed2 > TOP_SPEED * TOP_SPEED ? TOP_SPEED / sqrtf(speed2) : DRAG;
    ship->vx *= factor;
    ship->vy *= factor;
}

static void drop_shot(Asteroids* env, int32_t i) {
    env->num_shots--;
    env->shots[i] = env->shots[env->num_shots];
    env->ages[i] = env->ages[env->num_shots];
}

static void move_all(Asteroids* env) {
    move(&env->ship);
    for (int32_t i = 0; i < env->num_rocks; i++) move(&env->rocks[i]);
    for (int32_t i = env->num_shots - 1; i >= 0; i--) {
        move(&env->shots[i]);
        if (++env->ages[i] >= SHOT_TICKS) drop_shot(env, i);
    }
}

static void destroy_rock(Asteroids* env, int32_t i) {
    const int32_t size = env->sizes[i];
    env->score += points_of[size];
    env->destroyed++;
    puf_reward(&env->slots, 0, 0.01f * points_of[size]);
    if (size == SMALL) {
        env->num_rocks--;
        env->rocks[i] = env->rocks[env->num_rocks];
        env->sizes[i] = env->sizes[env->num_rocks];
        return;
    }
    const int32_t other = env->num_rocks++;
    env->rocks[other] = env->rocks[i];
    env->sizes[other] = env->sizes[i] = (uint8_t)(size - 1);
    launch(env, &env->rocks[i], size - 1);
    launch(env, &env->rocks[other], size - 1);
}

static void hit_rocks(Asteroids* env) {
    for (int32_t i = env->num_shots - 1; i >= 0; i--)
        for (int32_t rock = 0; rock < env->num_rocks; rock++) {
            const float radius = radius_of[env->sizes[rock]];
            if (distance2(&env->shots[i], &env->rocks[rock]) >= radius * radius) continue;
            drop_shot(env, i);
            destroy_rock(env, rock);
            break;
        }
}

static bool is_hit(const Asteroids* env) {
    if (env->safe) return false;
    for (int32_t rock = 0; rock < env->num_rocks; rock++) {
        const float reach = radius_of[env->sizes[rock]] + SHIP_RADIUS;
        if (distance2(&env->ship, &env->rocks[rock]) < reach * reach) return true;
    }
    return false;
}

static PufStatus step(Asteroids* env) {
    act(env);
    move_all(env);
    hit_rocks(env);
    env->perf = fminf((float)env->destroyed / (float)all_rocks(env), 1);
    if (is_hit(env)) {
        puf_reward(&env->slots, 0, env->reward_death);
        if (--env->lives_left == 0) return PUF_TERMINATED;
        new_ship(env);
    }
    if (env->num_rocks == 0) {
        env->waves_cleared = (float)++env->wave;
        if (env->wave == env->waves) return PUF_TERMINATED;
        begin_wave(env);
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Asteroids* env) {
    const float ahead_x = cosines[env->heading], ahead_y = sine(env->heading);
    const Body* ship = &env->ship;
    float* obs = puf_obs_f32(&env->slots, 0);
    int32_t weight = 0, count = 0, nearest[NUM_NEAR];
    float distances[NUM_NEAR];
    for (int32_t i = 0; i < env->num_rocks; i++) {
        const float d = distance2(ship, &env->rocks[i]);
        weight += weight_of[env->sizes[i]];
        if (count == NUM_NEAR && d >= distances[NUM_NEAR - 1]) continue;
        int32_t at = count < NUM_NEAR ? count++ : NUM_NEAR - 1;
        for (; at > 0 && distances[at - 1] > d; at--) {
            distances[at] = distances[at - 1];
            nearest[at] = nearest[at - 1];
        }
        distances[at] = d;
        nearest[at] = i;
    }
    obs[0] = clamp((ship->vx * ahead_x + ship->vy * ahead_y) * (1 / TOP_SPEED), -1, 1);
    obs[1] = clamp((ship->vy * ahead_x - ship->vx * ahead_y) * (1 / TOP_SPEED), -1, 1);
    obs[2] = env->cooldown == 0 && env->num_shots < MAX_SHOTS;
    obs[3] = (float)env->safe * (1.0f / SAFE_TICKS);
    obs[4] = (float)env->lives_left / (float)env->lives;
    obs[5] = (float)weight * (1.0f / MAX_ROCKS);
    obs += 6;
    for (int32_t k = 0; k < NUM_NEAR; k++, obs += NEAR_FEATURES) {
        if (k >= count) {
            memset(obs, 0, NEAR_FEATURES * sizeof(float));
            obs[2] = 1;
            continue;
        }
        const Body* rock = &env->rocks[nearest[k]];
        const float dx = across(ship->x, rock->x), dy = across(ship->y, rock->y);
        const float distance = sqrtf(distances[k]), inverse = 1 / (distance + 1e-6f);
        const float vx = rock->vx - ship->vx, vy = rock->vy - ship->vy;
        obs[0] = clamp((dx * ahead_x + dy * ahead_y) * inverse, -1, 1);
        obs[1] = clamp((dy * ahead_x - dx * ahead_y) * inverse, -1, 1);
        obs[2] = fminf(distance * (1.0f / SIZE), 1);
        obs[3] = clamp((vx * ahead_x + vy * ahead_y) * 0.5f, -1, 1);
        obs[4] = clamp((vy * ahead_x - vx * ahead_y) * 0.5f, -1, 1);
        obs[5] = (float)env->sizes[nearest[k]] * (1.0f / LARGE);
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { SCALE = 4, HEADER = 36 };

// The outline of a rock: a polygon whose corners lie at different shares of its radius.
static void draw_rock(PufCanvas* canvas, float x, float y, float radius, int32_t form) {
    static const float corners[3][8] = {{1, 0.8f, 1.05f, 0.75f, 1, 0.95f, 0.7f, 1},
                                        {0.8f, 1, 0.95f, 1.05f, 0.7f, 1, 0.9f, 0.95f},
                                        {1, 0.95f, 0.7f, 1, 0.85f, 1.05f, 1, 0.75f}};
    float xy[16], inner[16];
    for (int32_t i = 0; i < 8; i++) {
        const float r = radius * corners[form][i];
        xy[2 * i] = x + r * cosines[4 * i];
        xy[2 * i + 1] = y + r * sine(4 * i);
        inner[2 * i] = x + (r - 2.5f) * cosines[4 * i];
        inner[2 * i + 1] = y + (r - 2.5f) * sine(4 * i);
    }
    puf_polygon(canvas, xy, 8, PUF_PAPER);
    puf_polygon(canvas, inner, 8, 0x2B3442);
}

static void draw_ship(PufCanvas* canvas, float x, float y, int32_t heading, bool thrusts,
                      uint32_t color) {
    static const float ahead[4] = {3.2f, -2.4f, -1.2f, -2.4f}, side[4] = {0, 2, 0, -2};
    const float c = cosines[heading], s = sine(heading);
    float xy[8];
    for (int32_t i = 0; i < 4; i++) {
        xy[2 * i] = x + SCALE * (ahead[i] * c - side[i] * s);
        xy[2 * i + 1] = y + SCALE * (ahead[i] * s + side[i] * c);
    }
    if (thrusts)
        puf_line(canvas, x - SCALE * 2 * c, y - SCALE * 2 * s, x - SCALE * 4 * c, y - SCALE * 4 * s,
                 6, PUF_ORANGE);
    puf_polygon(canvas, xy, 4, color);
}

static void render(const Asteroids* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_BLACK);
    for (int32_t i = 0; i < 60; i++) {  // stars
        const uint64_t place = puf_mix64((uint64_t)i + 1);
        puf_rect(canvas, (float)(place % (SIZE * SCALE)),
                 HEADER + (float)((place >> 32) % (SIZE * SCALE)), 2, 2, PUF_SLATE);
    }
    for (int32_t i = 0; i < env->num_rocks; i++) {
        const Body* rock = &env->rocks[i];
        const int32_t form = (int32_t)((uint32_t)(rock->vx * 1e4f + 4e4f) % 3);
        for (float right = -1; right <= 1; right++)  // what crosses an edge shows on both sides
            for (float down = -1; down <= 1; down++)
                draw_rock(canvas, (rock->x + right * SIZE) * SCALE,
                          HEADER + (rock->y + down * SIZE) * SCALE,
                          radius_of[env->sizes[i]] * SCALE, form);
    }
    for (int32_t i = 0; i < env->num_shots; i++) {
        const Body* shot = &env->shots[i];
        puf_line(canvas, shot->x * SCALE, HEADER + shot->y * SCALE,
                 (shot->x - 0.6f * shot->vx) * SCALE, HEADER + (shot->y - 0.6f * shot->vy) * SCALE,
                 4, PUF_YELLOW);
    }
    const float x = env->ship.x * SCALE, y = HEADER + env->ship.y * SCALE;
    draw_ship(canvas, x, y, env->heading, env->thrusts, PUF_CYAN);
    if (env->safe) puf_ring(canvas, x, y, 5 * SCALE, 2, PUF_BLUE);
    puf_rect(canvas, 0, 0, SIZE * SCALE, HEADER, PUF_INK);
    puf_textf(canvas, 10, 8, 3, PUF_PAPER, "%d", (int)env->score);
    puf_textf(canvas, 200, 8, 3, PUF_YELLOW, "WAVE %d/%d", (int)(env->wave + 1), (int)env->waves);
    for (int32_t i = 0; i < min_int(env->lives_left, 6); i++)
        draw_ship(canvas, SIZE * SCALE - 20 - 24 * (float)i, HEADER / 2 + 2, 24, false, PUF_CYAN);
}

// ---- Validation ---------------------------------------------------------------------------------

static bool body_valid(const Body* body, float fastest) {
    return body->x >= 0 && body->x < SIZE && body->y >= 0 && body->y < SIZE &&
           puf_within(body->vx, -fastest, fastest) && puf_within(body->vy, -fastest, fastest);
}

static bool valid(const Asteroids* env) {
    const uint8_t thrusts = *(const uint8_t*)&env->thrusts;
    int32_t weight = 0;
    if (env->num_rocks < 1 || env->num_rocks > MAX_ROCKS || env->num_shots < 0 ||
        env->num_shots > MAX_SHOTS || thrusts > 1)
        return false;
    for (int32_t i = 0; i < env->num_rocks; i++) {
        if (env->sizes[i] < SMALL || env->sizes[i] > LARGE ||
            !body_valid(&env->rocks[i], 1.001f * env->rock_speed * FASTEST_ROCK))
            return false;
        weight += weight_of[env->sizes[i]];
    }
    for (int32_t i = 0; i < env->num_shots; i++)
        if (env->ages[i] < 0 || env->ages[i] >= SHOT_TICKS ||
            !body_valid(&env->shots[i], 1.001f * SHOT_SPEED))
            return false;
    return weight <= MAX_ROCKS && body_valid(&env->ship, 1.001f * TOP_SPEED) && env->heading >= 0 &&
           env->heading < HEADINGS && env->cooldown >= 0 && env->cooldown <= COOLDOWN &&
           env->safe >= 0 && env->safe <= SAFE_TICKS && env->lives_left >= 1 &&
           env->lives_left <= env->lives && env->wave >= 0 && env->wave < env->waves &&
           env->slots.tick < env->max_steps && env->destroyed >= 0 &&
           env->destroyed <= MAX_SHOTS * env->slots.tick &&
           puf_within(env->score, 0, 100 * (float)env->destroyed);
}

PUF_ENV(asteroids, Asteroids, .doc = "steer a ship and shoot rocks until all waves are cleared",
        .group = "arcade", .action_names = "stay left right thrust fire",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(5),
            .width = SIZE * SCALE,
            .height = HEADER + SIZE * SCALE});
