// racer - drive a car around a random closed track, guided by distance sensors.
//
// Metres and seconds; 20 steps per second. The centre line of the track is a circle of radius 50
// that three random waves bend; the road reaches `half_width` to both sides. One step:
// 1. Steering turns the car by speed x tan(angle) / wheelbase per second, but no more than the
//    tyres hold: speed x rate of turn <= `grip`. Who is too fast for a bend leaves the road.
// 2. `controls = steer` (3 actions: straight, left, right): the car keeps the speed `cruise` by
//    itself. `controls = full` (two numbers from -1 to 1): steering, left is positive, and
//    throttle, where below 0 is the brake.
// 3. The car moves. The reward is 0.05 for each metre along the centre line. A car whose centre is
//    within 1 m of the edge of the road, or beyond, crashes: reward -1, end of the episode.
//
// Observed: 11 rays from 90 degrees right to 90 degrees left, each the share of 40 m that is free;
// speed; rate of turn.
#include "puf_env.h"
#include "puf_rays.h"
#include "puf_trig.h"

enum {
    NUM_POINTS = 64,  // of the track; a power of two
    NUM_WAVES = 3,
    NUM_RAYS = 11,
    NUM_FEATURES = NUM_RAYS + 2,
    AHEAD = 12,  // points before the car that rays can hit: further than their range
    BEHIND = 4,  // rays look forwards, but a point behind begins the stretch beside the car
    NUM_NEARBY = BEHIND + AHEAD + 1,
};
enum { STRAIGHT, LEFT, RIGHT };
enum { STEER, FULL };

static const float RADIUS = 50, RANGE = 40, DT = 0.05f, CAR_HALF = 1, WHEELBASE = 2.5f;
static const float STEER_TAN = 0.55f;  // tangent of the largest steering angle
static const float THROTTLE = 8, BRAKE = 12, MAX_SPEED = 30, PAR_SPEED = 12;
static const float WAVES[NUM_WAVES] = {0.16f, 0.09f, 0.05f};  // largest height of waves 2, 3, 4

typedef struct {
    float x[NUM_POINTS], y[NUM_POINTS];            // centre line, in the direction of travel
    float left_x[NUM_POINTS], left_y[NUM_POINTS];  // edges of the road
    float right_x[NUM_POINTS], right_y[NUM_POINTS];
    float length[NUM_POINTS];  // from each point to the next
} Track;

typedef struct {
    PufSlots slots;
    float x, y, heading, speed, turn;  // turn: rate in rad/s
    int32_t point;                     // of the track, nearest to the car
    float along;                       // metres from that point to where the car is
    float distance;                    // driven along the centre line
    float height[NUM_WAVES], phase[NUM_WAVES];
    int32_t mirrored;  // 1: clockwise
    Track track;       // follows from the waves
    float score, perf;
    int32_t controls, max_steps;
    float half_width, curviness, grip, cruise;
} Racer;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Racer, controls, STEER, 2, "steer|full",
                     "steer: 3 actions at constant speed; full: steering and throttle as numbers"),
    PUF_PARAM_F32(Racer, half_width, 5, 2.5, 8, "metres from the centre line to an edge"),
    PUF_PARAM_F32(Racer, curviness, 1, 0, 1, "height of the waves that bend the track"),
    PUF_PARAM_F32(Racer, grip, 12, 1, 50, "largest sideways acceleration in m/s^2"),
    PUF_PARAM_F32(Racer, cruise, 13, 1, 30, "speed in m/s where the agent only steers"),
    PUF_PARAM_I32(Racer, max_steps, 1000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Racer, score, "laps"),
    PUF_METRIC(Racer, perf, "distance / distance at 12 m/s for max_steps, from 0 to 1"),
};

static float clamp(float v, float limit) { return v < -limit ? -limit : v > limit ? limit : v; }

// ---- The track ----------------------------------------------------------------------------------

static int32_t next(int32_t point) { return (point + 1) & (NUM_POINTS - 1); }

static int32_t previous(int32_t point) { return (point - 1) & (NUM_POINTS - 1); }

static void build_track(const Racer* env, Track* track) {
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        const double at = i * (6.283185307179586 / NUM_POINTS);
        double radius = 1, sine, cosine;
        for (int32_t k = 0; k < NUM_WAVES; k++)
            radius += (double)env->height[k] * puf_cos((k + 2) * at + (double)env->phase[k]);
        puf_sincos(at, &sine, &cosine);
        track->x[i] = RADIUS * (float)(radius * cosine);
        track->y[i] = RADIUS * (float)(radius * (env->mirrored ? -sine : sine));
    }
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        const float dx = track->x[next(i)] - track->x[i], dy = track->y[next(i)] - track->y[i];
        const float tx = track->x[next(i)] - track->x[previous(i)];
        const float ty = track->y[next(i)] - track->y[previous(i)];
        const float width = env->half_width / sqrtf(tx * tx + ty * ty);
        track->left_x[i] = track->x[i] - width * ty;
        track->left_y[i] = track->y[i] + width * tx;
        track->right_x[i] = track->x[i] + width * ty;
        track->right_y[i] = track->y[i] - width * tx;
        track->length[i] = sqrtf(dx * dx + dy * dy);
    }
}

static float lap_length(const Track* track) {
    float sum = 0;
    for (int32_t i = 0; i < NUM_POINTS; i++) sum += track->length[i];
    return sum;
}

static void reset(Racer* env) {
    PufRng* rng = &env->slots.rng;
    for (int32_t k = 0; k < NUM_WAVES; k++) {
        env->height[k] = env->curviness * WAVES[k] * puf_rand_range(rng, 0.5f, 1);
        env->phase[k] = puf_rand_range(rng, 0, 6.2831853f);
    }
    env->mirrored = puf_rand_int(rng, 2);
    const Track* track = &env->track;
    build_track(env, &env->track);
    env->point = puf_rand_int(rng, NUM_POINTS);
    const int32_t ahead = next(env->point);
    env->x = track->x[env->point];
    env->y = track->y[env->point];
    env->heading = atan2f(track->y[ahead] - env->y, track->x[ahead] - env->x);
    env->speed = fminf(env->cruise, 5);
    env->turn = env->along = env->distance = 0;
}

// Where the car is between two points: metres along and to the left of the stretch after `point`.
static void locate(const Racer* env, int32_t point, float* along, float* aside) {
    const Track* track = &env->track;
    const int32_t end = next(point);
    const float scale = 1 / track->length[point];
    const float tx = (track->x[end] - track->x[point]) * scale;
    const float ty = (track->y[end] - track->y[point]) * scale;
    const float dx = env->x - track->x[point], dy = env->y - track->y[point];
    *along = dx * tx + dy * ty;
    *aside = tx * dy - ty * dx;
}

// Moves `point` on, or back, to the stretch that the car is beside; returns the metres gained. A
// step is shorter than a stretch, so one look in each direction is enough.
static float follow_track(Racer* env, float* aside) {
    const Track* track = &env->track;
    const float before = env->along;
    float along, gained;
    locate(env, env->point, &along, aside);
    gained = along - before;
    if (along > track->length[env->point]) {
        gained = track->length[env->point] - before;
        env->point = next(env->point);
        locate(env, env->point, &along, aside);
        along = fmaxf(along, 0);  // in the wedge outside of a bend
        gained += along;
    } else if (along < 0) {
        float back, back_aside;
        locate(env, previous(env->point), &back, &back_aside);
        if (back < track->length[previous(env->point)]) {
            env->point = previous(env->point);
            gained = back - track->length[env->point] - before;
            along = back;
            *aside = back_aside;
        } else {
            along = 0;
            gained = -before;
        }
    }
    env->along = clamp(along, 2 * RADIUS);
    return clamp(gained, 10);
}

// ---- Rules --------------------------------------------------------------------------------------

static void drive(Racer* env) {
    static const float wheel[] = {[STRAIGHT] = 0, [LEFT] = 1, [RIGHT] = -1};
    float steer, push;
    if (env->controls == FULL) {
        steer = puf_action_f32(&env->slots, 0, 0);
        push = puf_action_f32(&env->slots, 0, 1);
    } else {
        steer = wheel[puf_action(&env->slots, 0)];
        push = clamp(2 * (env->cruise - env->speed), 1);
    }
    env->speed += (push > 0 ? THROTTLE : BRAKE) * push * DT;
    env->speed = fminf(fmaxf(env->speed, 0), MAX_SPEED);
    env->turn =
        clamp(steer * env->speed * (STEER_TAN / WHEELBASE), env->grip / fmaxf(env->speed, 0.1f));
    double sine, cosine;
    env->heading = (float)puf_wrap_angle((double)(env->heading + env->turn * DT));
    puf_sincos((double)env->heading, &sine, &cosine);
    env->x += env->speed * DT * (float)cosine;
    env->y += env->speed * DT * (float)sine;
}

static PufStatus end(Racer* env, PufStatus status) {
    const float par = PAR_SPEED * DT * (float)env->max_steps;
    env->score = env->distance / lap_length(&env->track);
    env->perf = fminf(fmaxf(env->distance / par, 0), 1);
    return status;
}

static PufStatus step(Racer* env) {
    float aside;
    drive(env);
    const float gained = follow_track(env, &aside);
    env->distance += gained;
    puf_reward(&env->slots, 0, 0.05f * gained);
    if (fabsf(aside) >= env->half_width - CAR_HALF) {
        puf_reward(&env->slots, 0, -1);
        return end(env, PUF_TERMINATED);
    }
    return env->slots.tick >= env->max_steps ? end(env, PUF_TRUNCATED) : PUF_RUNNING;
}

// Directions of the rays in the car's frame: forwards is x, left is y. Multiples of 18 degrees.
static const float RAY_X[PUF_MAX_RAYS] = {0,         0.309017f, 0.587785f, 0.809017f, 0.951057f, 1,
                                          0.951057f, 0.809017f, 0.587785f, 0.309017f, 0};
static const float RAY_Y[PUF_MAX_RAYS] = {-1,         -0.951057f, -0.809017f, -0.587785f,
                                          -0.309017f, 0,          0.309017f,  0.587785f,
                                          0.809017f,  0.951057f,  1};

// Points of an edge near the car, in its frame.
static void nearby(const Racer* env, const float* x, const float* y, float sine, float cosine,
                   float* out_x, float* out_y) {
    for (int32_t i = 0; i < NUM_NEARBY; i++) {
        const int32_t point = (env->point - BEHIND + i) & (NUM_POINTS - 1);
        const float dx = x[point] - env->x, dy = y[point] - env->y;
        out_x[i] = dx * cosine + dy * sine;
        out_y[i] = dy * cosine - dx * sine;
    }
}

static void sense(const Racer* env, float distances[PUF_MAX_RAYS]) {
    float x[NUM_NEARBY], y[NUM_NEARBY];
    double sine, cosine;
    puf_sincos((double)env->heading, &sine, &cosine);
    for (int32_t k = 0; k < PUF_MAX_RAYS; k++) distances[k] = RANGE;
    for (int32_t edge = 0; edge < 2; edge++) {
        const Track* track = &env->track;
        nearby(env, edge ? track->right_x : track->left_x, edge ? track->right_y : track->left_y,
               (float)sine, (float)cosine, x, y);
        puf_cast_rays(x, y, NUM_NEARBY, RAY_X, RAY_Y, distances);
    }
}

static void observe(const Racer* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    float distances[PUF_MAX_RAYS];
    sense(env, distances);
    for (int32_t k = 0; k < NUM_RAYS; k++) obs[k] = distances[k] * (1 / RANGE);
    obs[NUM_RAYS] = env->speed * (1 / MAX_SPEED);
    obs[NUM_RAYS + 1] = clamp(0.5f * env->turn, 1);
}

static void render(const Racer* env, PufCanvas* canvas) {
    const Track* track = &env->track;
    const float size = fminf((float)canvas->width, (float)canvas->height);
    const float scale = size / (2 * (1.32f * RADIUS + env->half_width));
    const float cx = 0.5f * (float)canvas->width, cy = 0.5f * (float)canvas->height;
    float distances[PUF_MAX_RAYS];
    double sine, cosine;
    puf_clear(canvas, 0x3E7B3A);
#define AT(px, py) cx + (px) * scale, cy - (py) * scale
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        const int32_t n = next(i);
        puf_polygon(canvas,
                    (const float[]){AT(track->left_x[i], track->left_y[i]),
                                    AT(track->left_x[n], track->left_y[n]),
                                    AT(track->right_x[n], track->right_y[n]),
                                    AT(track->right_x[i], track->right_y[i])},
                    4, 0x4A4E57);
        puf_line(canvas, AT(track->x[i], track->y[i]), AT(track->x[n], track->y[n]), 0.5f * scale,
                 0x4A4E57);  // closes the seams
    }
    for (int32_t i = 0; i < NUM_POINTS; i++) {
        const int32_t n = next(i);
        const uint32_t kerb = i & 1 ? PUF_RED : PUF_WHITE;
        puf_line(canvas, AT(track->left_x[i], track->left_y[i]),
                 AT(track->left_x[n], track->left_y[n]), 0.8f * scale, kerb);
        puf_line(canvas, AT(track->right_x[i], track->right_y[i]),
                 AT(track->right_x[n], track->right_y[n]), 0.8f * scale, kerb);
        if (i & 1)
            puf_line(canvas, AT(track->x[i], track->y[i]), AT(track->x[n], track->y[n]),
                     0.3f * scale, PUF_GREY);
    }
    puf_line(canvas, AT(track->left_x[0], track->left_y[0]),
             AT(track->right_x[0], track->right_y[0]), 1.2f * scale, PUF_WHITE);
    sense(env, distances);
    puf_sincos((double)env->heading, &sine, &cosine);
    const float s = (float)sine, c = (float)cosine;
    for (int32_t k = 0; k < NUM_RAYS; k++) {
        const float fx = RAY_X[k] * distances[k], fy = RAY_Y[k] * distances[k];
        puf_line(canvas, AT(env->x, env->y), AT(env->x + fx * c - fy * s, env->y + fx * s + fy * c),
                 0.2f * scale, 0x8FB0A0);
    }
#define CAR(fx, fy) AT(env->x + (fx) * c - (fy) * s, env->y + (fx) * s + (fy) * c)
    puf_polygon(canvas,
                (const float[]){CAR(-2.6f, -1.3f), CAR(2.8f, -1), CAR(2.8f, 1), CAR(-2.6f, 1.3f)},
                4, PUF_YELLOW);
    puf_polygon(canvas,
                (const float[]){CAR(-0.6f, -0.9f), CAR(1, -0.8f), CAR(1, 0.8f), CAR(-0.6f, 0.9f)},
                4, PUF_INK);
#undef CAR
#undef AT
    puf_textf(canvas, 10, 10, 2, PUF_WHITE, "%d KM/H", (int)(3.6f * env->speed));
    puf_textf(canvas, 10, 30, 2, PUF_WHITE, "%d M", (int)env->distance);
}

static bool valid(const Racer* env) {
    for (int32_t k = 0; k < NUM_WAVES; k++)
        if (!puf_within(env->height[k], 0, WAVES[k]) || !puf_within(env->phase[k], 0, 6.2832f))
            return false;
    if (env->mirrored < 0 || env->mirrored > 1) return false;
    Track track;
    build_track(env, &track);
    const float limit = 2 * RADIUS;
    const float furthest = 11 * (float)env->slots.tick;  // a step gains at most 10 m
    return !memcmp(&track, &env->track, sizeof track) && puf_within(env->x, -limit, limit) &&
           puf_within(env->y, -limit, limit) && puf_within(env->heading, -3.1416f, 3.1416f) &&
           puf_within(env->speed, 0, MAX_SPEED) && puf_within(env->turn, -20, 20) &&
           puf_within(env->along, -limit, limit) &&
           puf_within(env->distance, -furthest, furthest) && env->point >= 0 &&
           env->point < NUM_POINTS && env->slots.tick < env->max_steps;
}

static void shape(const void* env, PufLayout* layout) {
    if (((const Racer*)env)->controls == FULL)
        layout->actions = (PufActions)PUF_CONTINUOUS(2, -1, 1);
}

PUF_ENV(racer, Racer, .doc = "drive around a random track by distance sensors", .group = "motion",
        .action_names = "straight left right", .shape = shape,
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(3),
            .width = 480,
            .height = 480});
