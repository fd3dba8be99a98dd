// drive - several cars in a town of two-lane streets: each follows its own route to a goal.
//
// Metres and seconds; 10 steps per second. Three streets run east and three north, 60 m apart; a
// lane is 4 m wide, traffic keeps to the right, and the corners of crossings are rounded. A trip
// begins in a lane before a crossing and ends in a lane behind it: straight on, left or right. One
// step, for all cars at once:
// 1. Each car chooses one of 7 accelerations (-6 to 3 m/s^2) and one of 13 steering angles (-0.6 to
//    0.6 rad, left is positive). It turns by speed x tan(angle) / 2.7 m per second, then moves.
// 2. A car crashes if an end of it leaves the street, or if it touches another car. Both ends of a
//    car are discs of radius 1.1 m.
// 3. A trip ends at the goal (reward 1), in a crash or after `patience` steps (both: reward -0.5).
//    The car leaves, and starts another trip at once; one that finds no free lane waits, masked
//    out.
// The reward is also 0.05 per metre of route gained, -0.01 for each step, and -0.02 for each step
// more than 2 m beside the route.
//
// A car observes its speed, the length of route that is left, its place and direction relative to
// the route, three points of the route ahead, and of the four nearest cars within 40 m: place,
// direction and speed. All are seen from the car.
#include "puf_env.h"
#include "puf_trig.h"

enum {
    MAX_AGENTS = 32,
    NUM_STREETS = 3,  // in each direction
    NUM_POINTS = 20,  // of a route
    IN_POINTS = 6,    // of them before the crossing, and as many behind it
    NUM_NEIGHBOURS = 4,
    NUM_FEATURES = 4 + 6 + 6 * NUM_NEIGHBOURS,
    NUM_ACCELERATIONS = 7,
    NUM_ANGLES = 13,
    NUM_TRIES = 16,
};

enum { UNDER_WAY, ARRIVED, CRASHED, LATE };

static const float SPACING = 60, SIZE = 180, HALF_STREET = 4, HALF_LANE = 2, HALF_CROSSING = 9;
static const float CORNER = 5;  // radius; HALF_CROSSING - HALF_STREET
static const float DT = 0.1f, WHEELBASE = 2.7f, MAX_SPEED = 15, AXLE = 1.3f, DISC = 1.1f;
static const float SIGHT = 40, FREE = 9, NEAR_POINT = 2.5f, ARRIVAL = 3;
static const float ACCELERATIONS[NUM_ACCELERATIONS] = {-6, -4, -2, 0, 1, 2, 3};
// Tangents of the steering angles, 0.1 rad apart.
static const float TANGENTS[NUM_ANGLES] = {-0.68414f, -0.54630f, -0.42279f, -0.30934f, -0.20271f,
                                           -0.10033f, 0,         0.10033f,  0.20271f,  0.30934f,
                                           0.42279f,  0.54630f,  0.68414f};

typedef struct {
    float x, y, heading, speed;
    float cosine, sine;                          // of the heading
    float way_x[NUM_POINTS], way_y[NUM_POINTS];  // the route
    float rest[NUM_POINTS];                      // length of the route from each point on
    float left;                                  // length of the route that is left
    int32_t next;                                // point of the route ahead
    int32_t age;                                 // steps of this trip
    int32_t present;
    int32_t fate;
} Car;

// The arena holds the cars [num_agents].
typedef struct {
    PufSlots slots;
    float score, perf;
    int32_t num_agents, patience, max_steps;
} Town;

static const PufField params[] = {
    PUF_PARAM_I32(Town, num_agents, 12, 1, MAX_AGENTS, "cars in the town"),
    PUF_PARAM_I32(Town, patience, 150, 1, 100000, "steps after which a trip counts as failed"),
    PUF_PARAM_I32(Town, max_steps, 1000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Town, score, "1 for a trip that arrives, -1 for a crash, 0 for one that is late"),
    PUF_METRIC(Town, perf, "1 for a trip that arrives, else 0"),
};

static inline Car* cars_of(const Town* env) { return PUF_ARENA((Town*)env); }

static float clamp(float v, float limit) { return v < -limit ? -limit : v > limit ? limit : v; }

// ---- Streets and routes -------------------------------------------------------------------------

// Distance to the nearest street that runs across this coordinate.
static float from_street(float v) {
    const float at = fminf(fmaxf(v, 0), SIZE - 1);
    return fabsf(v - SPACING * ((float)(int32_t)(at / SPACING) + 0.5f));
}

// Whether a disc of radius `margin` lies on the streets.
static bool on_street(float x, float y, float margin) {
    if (x < 0 || x > SIZE || y < 0 || y > SIZE) return false;
    const float u = from_street(x), w = from_street(y);
    if (u <= HALF_STREET - margin || w <= HALF_STREET - margin) return true;
    const float cu = HALF_CROSSING - u, cw = HALF_CROSSING - w, r = CORNER + margin;
    return cu > 0 && cw > 0 && cu * cu + cw * cw >= r * r;
}

static float gap(float ax, float ay, float bx, float by) {
    return sqrtf((ax - bx) * (ax - bx) + (ay - by) * (ay - by));
}

// A route over the crossing at (cx, cy): towards (dx, dy) before it, to the right (turn -1),
// straight on (0) or to the left (1) behind it. `before` and `behind` are metres of lane.
static void plan(Car* car, float cx, float cy, float dx, float dy, int32_t turn, float before,
                 float behind) {
    const float ex = turn ? -(float)turn * dy : dx, ey = turn ? (float)turn * dx : dy;  // leaves so
    const float in_x = cx - HALF_CROSSING * dx + HALF_LANE * dy;  // (dy, -dx) is to the right
    const float in_y = cy - HALF_CROSSING * dy - HALF_LANE * dx;
    const float out_x = cx + HALF_CROSSING * ex + HALF_LANE * ey;
    const float out_y = cy + HALF_CROSSING * ey - HALF_LANE * ex;
    // Where the two lanes meet: the curve bends towards it.
    const float mid_x = turn ? cx + HALF_LANE * (dy + ey) : 0.5f * (in_x + out_x);
    const float mid_y = turn ? cy - HALF_LANE * (dx + ex) : 0.5f * (in_y + out_y);
    enum { CURVE = NUM_POINTS - 2 * IN_POINTS };
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        float* x = &car->way_x[i];
        float* y = &car->way_y[i];
        if (i < IN_POINTS) {
            const float t = before * (float)(IN_POINTS - i) / IN_POINTS;
            *x = in_x - t * dx;
            *y = in_y - t * dy;
        } else if (i < IN_POINTS + CURVE) {
            const float t = (float)(i - IN_POINTS) / (CURVE - 1), s = 1 - t;
            *x = s * s * in_x + 2 * s * t * mid_x + t * t * out_x;
            *y = s * s * in_y + 2 * s * t * mid_y + t * t * out_y;
        } else {
            const float t = behind * (float)(i - IN_POINTS - CURVE + 1) / IN_POINTS;
            *x = out_x + t * ex;
            *y = out_y + t * ey;
        }
    }
    car->rest[NUM_POINTS - 1] = 0;
    for (int32_t i = NUM_POINTS - 2; i >= 0; i--)
        car->rest[i] = car->rest[i + 1] +
                       gap(car->way_x[i], car->way_y[i], car->way_x[i + 1], car->way_y[i + 1]);
    car->x = car->way_x[0];
    car->y = car->way_y[0];
    car->cosine = dx;
    car->sine = dy;
    car->heading = dx > 0 ? 0 : dx < 0 ? 3.1415927f : dy > 0 ? 1.5707963f : -1.5707963f;
    car->next = 1;
    car->left = car->rest[0];
}

static bool is_free(const Town* env, int32_t agent) {
    const Car* cars = cars_of(env);
    for (int32_t i = 0; i < env->num_agents; i++)
        if (i != agent && cars[i].present &&
            gap(cars[i].x, cars[i].y, cars[agent].x, cars[agent].y) < FREE)
            return false;
    return true;
}

static void spawn(Town* env, int32_t agent) {
    static const float ways[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    PufRng* rng = &env->slots.rng;
    Car* car = &cars_of(env)[agent];
    *car = (Car){.next = 1, .cosine = 1};
    for (int32_t i = 0; i < NUM_TRIES && !car->present; i++) {
        const float cx = SPACING * ((float)puf_rand_int(rng, NUM_STREETS) + 0.5f);
        const float cy = SPACING * ((float)puf_rand_int(rng, NUM_STREETS) + 0.5f);
        const float* way = ways[puf_rand_int(rng, 4)];
        plan(car, cx, cy, way[0], way[1], puf_rand_int(rng, 3) - 1, puf_rand_range(rng, 6, 18),
             puf_rand_range(rng, 6, 18));
        car->present = is_free(env, agent);
    }
    car->speed = car->present ? puf_rand_range(rng, 0, 6) : 0;
    puf_set_present(&env->slots, agent, car->present);
}

static void reset(Town* env) {
    memset(cars_of(env), 0, (size_t)env->num_agents * sizeof(Car));
    for (int32_t agent = 0; agent < env->num_agents; agent++) spawn(env, agent);
}

// ---- Rules --------------------------------------------------------------------------------------

static void move(Town* env, int32_t agent) {
    Car* car = &cars_of(env)[agent];
    double sine, cosine;
    car->speed += DT * ACCELERATIONS[puf_action_at(&env->slots, agent, 0)];
    car->speed = fminf(fmaxf(car->speed, 0), MAX_SPEED);
    const float tangent = TANGENTS[puf_action_at(&env->slots, agent, 1)];
    const float turn = car->speed * tangent * (DT / WHEELBASE);
    car->heading = (float)puf_wrap_angle((double)(car->heading + turn));
    puf_sincos((double)car->heading, &sine, &cosine);
    car->cosine = (float)cosine;
    car->sine = (float)sine;
    car->x += DT * car->speed * car->cosine;
    car->y += DT * car->speed * car->sine;
    car->age++;
}

// Place of the car relative to the stretch of route before `next`: metres to its left, and cosine
// and sine of the angle from the route's direction to the car's.
static void compare(const Car* car, float* aside, float* along, float* across) {
    const int32_t i = car->next;
    const float tx = car->way_x[i] - car->way_x[i - 1], ty = car->way_y[i] - car->way_y[i - 1];
    const float scale = 1 / fmaxf(sqrtf(tx * tx + ty * ty), 0.01f);
    const float dx = car->x - car->way_x[i - 1], dy = car->y - car->way_y[i - 1];
    *aside = (tx * dy - ty * dx) * scale;
    *along = (tx * car->cosine + ty * car->sine) * scale;
    *across = (tx * car->sine - ty * car->cosine) * scale;
}

// Goes on to the next point where the car is near this one or beyond it; returns metres gained.
static float follow(Car* car) {
    float away = gap(car->x, car->y, car->way_x[car->next], car->way_y[car->next]);
    while (car->next < NUM_POINTS - 1) {
        const int32_t i = car->next;
        const float beyond = (car->x - car->way_x[i]) * (car->way_x[i + 1] - car->way_x[i]) +
                             (car->y - car->way_y[i]) * (car->way_y[i + 1] - car->way_y[i]);
        if (away > NEAR_POINT && !(beyond > 0 && away < 2 * NEAR_POINT)) break;
        car->next++;
        away = gap(car->x, car->y, car->way_x[car->next], car->way_y[car->next]);
    }
    const float left = fminf(away + car->rest[car->next], 1000), gained = car->left - left;
    car->left = left;
    return gained;
}

static bool leaves_street(const Car* car) {
    const float dx = AXLE * car->cosine, dy = AXLE * car->sine;
    return !on_street(car->x + dx, car->y + dy, 1) || !on_street(car->x - dx, car->y - dy, 1);
}

static bool touch(const Car* a, const Car* b) {
    const float far = 2 * (AXLE + DISC), limit = 4 * DISC * DISC;
    const float dx = b->x - a->x, dy = b->y - a->y;
    if (dx * dx + dy * dy > far * far) return false;
    for (int32_t i = 0; i < 4; i++) {
        const float p = i & 1 ? AXLE : -AXLE, q = i & 2 ? AXLE : -AXLE;
        const float ex = dx + q * b->cosine - p * a->cosine, ey = dy + q * b->sine - p * a->sine;
        if (ex * ex + ey * ey <= limit) return true;
    }
    return false;
}

static void judge(Town* env) {
    Car* cars = cars_of(env);
    for (int32_t i = 0; i < env->num_agents; i++) {
        Car* car = &cars[i];
        if (!car->present) continue;
        float aside, along, across;
        const float gained = follow(car);
        compare(car, &aside, &along, &across);
        puf_reward(&env->slots, i, 0.05f * gained - 0.01f - (fabsf(aside) > HALF_LANE ? 0.02f : 0));
        if (leaves_street(car))
            car->fate = CRASHED;
        else if (car->next == NUM_POINTS - 1 && car->left < ARRIVAL)
            car->fate = ARRIVED;
        else if (car->age >= env->patience)
            car->fate = LATE;
    }
    for (int32_t i = 0; i < env->num_agents; i++)
        for (int32_t k = 0; cars[i].present && k < i; k++)
            if (cars[k].present && touch(&cars[i], &cars[k])) cars[i].fate = cars[k].fate = CRASHED;
}

static PufStatus step(Town* env) {
    Car* cars = cars_of(env);
    for (int32_t agent = 0; agent < env->num_agents; agent++)
        if (cars[agent].present) move(env, agent);
    judge(env);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        Car* car = &cars[agent];
        if (!car->present || car->fate == UNDER_WAY) continue;
        env->perf = car->fate == ARRIVED;
        env->score = car->fate == ARRIVED ? 1 : car->fate == CRASHED ? -1 : 0;
        puf_reward(&env->slots, agent, car->fate == ARRIVED ? 1 : -0.5f);
        puf_end_agent(&env->slots, agent);
        car->present = 0;
    }
    for (int32_t agent = 0; agent < env->num_agents; agent++)
        if (!cars[agent].present) spawn(env, agent);
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

// Writes a place as seen from the car: metres forwards and to the left, times `scale`.
static void see(const Car* car, float x, float y, float scale, float* obs) {
    const float dx = (x - car->x) * scale, dy = (y - car->y) * scale;
    obs[0] = dx * car->cosine + dy * car->sine;
    obs[1] = dy * car->cosine - dx * car->sine;
}

static void see_neighbours(const Town* env, int32_t agent, float* obs) {
    const Car *cars = cars_of(env), *car = &cars[agent];
    int32_t nearest[NUM_NEIGHBOURS], count = 0;
    float distance[NUM_NEIGHBOURS];
    for (int32_t i = 0; i < env->num_agents; i++) {
        const float dx = cars[i].x - car->x, dy = cars[i].y - car->y, far = dx * dx + dy * dy;
        if (i == agent || !cars[i].present || far > SIGHT * SIGHT) continue;
        int32_t at = count < NUM_NEIGHBOURS ? count++ : NUM_NEIGHBOURS;
        for (; at > 0 && far < distance[at - 1]; at--) {
            if (at == NUM_NEIGHBOURS) continue;
            distance[at] = distance[at - 1];
            nearest[at] = nearest[at - 1];
        }
        if (at == NUM_NEIGHBOURS) continue;
        distance[at] = far;
        nearest[at] = i;
    }
    memset(obs, 0, 6 * NUM_NEIGHBOURS * sizeof(float));
    for (int32_t k = 0; k < count; k++, obs += 6) {
        const Car* other = &cars[nearest[k]];
        obs[0] = 1;
        see(car, other->x, other->y, 1 / 20.0f, obs + 1);
        obs[3] = other->cosine * car->cosine + other->sine * car->sine;
        obs[4] = other->sine * car->cosine - other->cosine * car->sine;
        obs[5] = other->speed * (1 / 10.0f);
    }
}

static void observe(const Town* env) {
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const Car* car = &cars_of(env)[agent];
        float* obs = puf_obs_f32(&env->slots, agent);
        if (!car->present) {
            memset(obs, 0, NUM_FEATURES * sizeof(float));
            continue;
        }
        float aside, along;
        obs[0] = car->speed * (1 / 10.0f);
        obs[1] = car->left * (1 / 50.0f);
        compare(car, &aside, &along, &obs[3]);
        obs[2] = clamp(aside * (1 / HALF_STREET), 5);
        for (int32_t k = 0; k < 3; k++) {
            const int32_t ahead = car->next + 2 * k, last = NUM_POINTS - 1;
            const int32_t i = ahead < last ? ahead : last;
            see(car, car->way_x[i], car->way_y[i], 1 / 10.0f, obs + 4 + 2 * k);
        }
        see_neighbours(env, agent, obs + 10);
    }
}

// ---- Pictures -----------------------------------------------------------------------------------

static const uint32_t paints[] = {PUF_RED,    PUF_YELLOW, PUF_CYAN,  PUF_PURPLE,
                                  PUF_ORANGE, PUF_BLUE,   PUF_PAPER, PUF_PINK};

static void draw_streets(PufCanvas* canvas, float scale) {
    const uint32_t asphalt = 0x50545C, grass = 0x5E8F58;
    puf_clear(canvas, grass);
    for (int32_t i = 0; i < NUM_STREETS; i++)  // houses
        for (int32_t k = 0; k < NUM_STREETS; k++)
            for (int32_t n = 0; n < 4; n++) {
                const float x = SPACING * (float)i + (n & 1 ? 44.0f : 6.0f);
                const float y = SPACING * (float)k + (n & 2 ? 44.0f : 6.0f);
                const uint32_t roof = (i + k + n) % 3 ? 0xA5654A : 0x8A8F99;
                puf_rect(canvas, x * scale, y * scale, 11 * scale, 10 * scale, roof);
                puf_rect(canvas, x * scale, (y + 4.6f) * scale, 11 * scale, 0.8f * scale, 0x6E4433);
            }
    for (int32_t i = 0; i < NUM_STREETS; i++) {
        const float at = SPACING * ((float)i + 0.5f);
        for (int32_t k = 0; k < NUM_STREETS; k++) {  // crossings, then their rounded corners
            const float other = SPACING * ((float)k + 0.5f);
            puf_rect(canvas, (at - HALF_CROSSING) * scale, (other - HALF_CROSSING) * scale,
                     2 * HALF_CROSSING * scale, 2 * HALF_CROSSING * scale, asphalt);
            for (int32_t n = 0; n < 4; n++)
                puf_circle(canvas, (at + (n & 1 ? HALF_CROSSING : -HALF_CROSSING)) * scale,
                           (other + (n & 2 ? HALF_CROSSING : -HALF_CROSSING)) * scale,
                           CORNER * scale, grass);
        }
    }
    for (int32_t i = 0; i < NUM_STREETS; i++) {
        const float at = SPACING * ((float)i + 0.5f);
        puf_rect(canvas, 0, (at - HALF_STREET) * scale, SIZE * scale, 2 * HALF_STREET * scale,
                 asphalt);
        puf_rect(canvas, (at - HALF_STREET) * scale, 0, 2 * HALF_STREET * scale, SIZE * scale,
                 asphalt);
    }
    for (int32_t i = 0; i < NUM_STREETS; i++)
        for (float dash = 1; dash < SIZE; dash += 4) {
            const float at = SPACING * ((float)i + 0.5f);
            if (from_street(dash + 1) < HALF_CROSSING) continue;
            puf_rect(canvas, dash * scale, (at - 0.2f) * scale, 2 * scale, 0.4f * scale, PUF_PAPER);
            puf_rect(canvas, (at - 0.2f) * scale, dash * scale, 0.4f * scale, 2 * scale, PUF_PAPER);
        }
}

// North is up. A car's goal is a ring of its colour, with the rest of the route as dots.
static void render(const Town* env, PufCanvas* canvas) {
    const float size = fminf((float)canvas->width, (float)canvas->height), scale = size / SIZE;
    draw_streets(canvas, scale);
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const Car* car = &cars_of(env)[agent];
        const uint32_t paint = paints[agent % 8];
        if (!car->present) continue;
        for (int32_t i = car->next; i < NUM_POINTS; i++)
            puf_circle(canvas, car->way_x[i] * scale, size - car->way_y[i] * scale, 0.35f * scale,
                       paint);
        puf_ring(canvas, car->way_x[NUM_POINTS - 1] * scale,
                 size - car->way_y[NUM_POINTS - 1] * scale, 2 * scale, 0.7f * scale, paint);
    }
    for (int32_t agent = 0; agent < env->num_agents; agent++) {
        const Car* car = &cars_of(env)[agent];
        if (!car->present) continue;
        const float x = car->x * scale, y = size - car->y * scale;
        const float c = 1.15f * car->cosine * scale, s = 1.15f * car->sine * scale;
#define AT(forwards, aside) x + (forwards) * c - (aside) * s, y - (forwards) * s - (aside) * c
        puf_polygon(
            canvas,
            (const float[]){AT(-2.4f, -1), AT(2.2f, -1), AT(2.4f, 0), AT(2.2f, 1), AT(-2.4f, 1)}, 5,
            paints[agent % 8]);
        puf_polygon(canvas,
                    (const float[]){AT(0.2f, -0.8f), AT(1, -0.7f), AT(1, 0.7f), AT(0.2f, 0.8f)}, 4,
                    PUF_INK);
        puf_polygon(
            canvas,
            (const float[]){AT(-1.8f, -0.7f), AT(-1.3f, -0.8f), AT(-1.3f, 0.8f), AT(-1.8f, 0.7f)},
            4, PUF_INK);
#undef AT
    }
}

static bool is_good(const Town* env, int32_t agent) {
    const Car* car = &cars_of(env)[agent];
    const float near = 10, far = SIZE + 10;
    for (int32_t i = 0; i < NUM_POINTS; i++)
        if (!puf_within(car->way_x[i], -near, far) || !puf_within(car->way_y[i], -near, far) ||
            !puf_within(car->rest[i], 0, 1000))
            return false;
    return puf_within(car->x, -near, far) && puf_within(car->y, -near, far) &&
           puf_within(car->heading, -3.1416f, 3.1416f) && puf_within(car->speed, 0, MAX_SPEED) &&
           puf_within(car->cosine, -1.001f, 1.001f) && puf_within(car->sine, -1.001f, 1.001f) &&
           puf_within(car->left, 0, 1000) && car->next >= 1 && car->next < NUM_POINTS &&
           car->age >= 0 && car->age < env->patience && car->fate == UNDER_WAY &&
           car->present == puf_is_present(&env->slots, agent);
}

static bool valid(const Town* env) {
    for (int32_t agent = 0; agent < env->num_agents; agent++)
        if (!is_good(env, agent)) return false;
    return env->slots.tick < env->max_steps;
}

static void shape(const void* env, PufLayout* layout) {
    layout->agents = ((const Town*)env)->num_agents;
    layout->arena = (size_t)layout->agents * sizeof(Car);
}

PUF_ENV(drive, Town, .doc = "drive to goals in a town without a crash", .group = "motion",
        .shape = shape, .own_samples = true,
        .layout = {.agents = 12,
                   .obs = PUF_BOX_F32(NUM_FEATURES),
                   .actions = PUF_MULTI_DISCRETE(NUM_ACCELERATIONS, NUM_ANGLES),
                   .width = 540,
                   .height = 540,
                   .arena = 12 * sizeof(Car)});
