// drone - fly a quadrotor: hold a point in the air, then race through gates.
//
// Metres, seconds, kilograms; z is upwards; in the drone's frame x is forwards and y to the left.
// The action is one number per motor, -1 to 1: no thrust to full thrust, 0 is what hovers. It holds
// for 0.02 s. Motors follow it with a lag. Each of the two ticks of a step integrates a rigid body:
// - thrust of each motor along the drone's z axis; the arms make torques of its differences, and
//   the propellers, of which two turn left and two right, a torque about z;
// - gravity, drag of the air, damping of the spin, and Euler's gyroscopic term.
// An episode begins near a hover point. After `hover_steps` steps within 0.5 m of it the gates
// open: rings that stand upright along a winding course. A gate is passed when the drone's centre
// crosses its disc in the direction of the course; to hit the frame is a crash, and so is the
// ground or to be more than 12 m away from the target. After `goal` gates the episode is truncated.
// The reward is 0.25 per metre gained towards the target, 1 for a gate, 0.02 for each step of
// hover, -1 for a crash, and a little less than 0 for spin.
//
// Observed, all in the drone's frame: the way to the target and to the gate after it, the direction
// of the gate (zeros while hovering), velocity, spin, the direction upwards, motors.
#include "puf_env.h"
#include "puf_trig.h"

enum { NUM_MOTORS = 4, NUM_FEATURES = 3 + 3 + 3 + 3 + 3 + 3 + NUM_MOTORS, TICKS = 2 };

static const float DT = 0.01f, GRAVITY = 9.81f, MASS = 1, ARM = 0.12f, LAG = 0.2f;
static const float INERTIA_XY = 0.012f, INERTIA_Z = 0.02f, YAW_TORQUE = 0.03f;
static const float DRAG = 0.15f, DAMPING = 2;
static const float MAX_THRUST = 2 * 9.81f / NUM_MOTORS;  // of one motor: twice its share of weight
static const float MAX_SPEED = 30, MAX_SPIN = 30, ROOM = 12, HOVER_RADIUS = 0.5f, FRAME = 0.25f;
static const float MOTOR_X[] = {1, -1, -1, 1}, MOTOR_Y[] = {1, 1, -1, -1};
static const float MOTOR_SPIN[] = {-1, 1, -1, 1};  // torque about z per thrust

typedef struct {
    float x, y, z;
} Vec3;

typedef struct {
    Vec3 at;
    float nx, ny;  // direction of the course, of length 1
} Gate;

typedef struct {
    PufSlots slots;
    Vec3 at, velocity, spin;   // spin: in the drone's frame
    float q[4];                // turns the drone's frame into the world's: w, x, y, z
    float motors[NUM_MOTORS];  // share of full thrust
    Gate gates[2];             // the next one, and the one after it
    Vec3 hover;
    int32_t held;    // steps at the hover point
    int32_t passed;  // gates
    float score, perf;
    float gate_radius, gate_distance, bend;
    int32_t hover_steps, goal, max_steps;
} Drone;

static const PufField params[] = {
    PUF_PARAM_F32(Drone, gate_radius, 1, 0.3, 3, "radius of the open part of a gate in m"),
    PUF_PARAM_F32(Drone, gate_distance, 5, 3, 8, "mean distance from gate to gate in m"),
    PUF_PARAM_F32(Drone, bend, 0.7, 0, 1.5, "largest turn of the course at a gate in rad"),
    PUF_PARAM_I32(Drone, hover_steps, 25, 0, 1000, "steps of hover that open the gates"),
    PUF_PARAM_I32(Drone, goal, 10, 1, 1000, "gates after which the episode is truncated"),
    PUF_PARAM_I32(Drone, max_steps, 1000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Drone, score, "gates passed"),
    PUF_METRIC(Drone, perf, "score / goal"),
};

static float clamp(float v, float limit) { return v < -limit ? -limit : v > limit ? limit : v; }

static Vec3 minus(Vec3 a, Vec3 b) { return (Vec3){a.x - b.x, a.y - b.y, a.z - b.z}; }

static float norm(Vec3 a) { return sqrtf(a.x * a.x + a.y * a.y + a.z * a.z); }

// The gate after `from`: the course turns by half of a random angle before it and half behind it.
static Gate next_gate(Drone* env, const Gate* from) {
    PufRng* rng = &env->slots.rng;
    const double half = (double)(0.5f * env->bend * puf_rand_range(rng, -1, 1));
    const float distance = env->gate_distance * puf_rand_range(rng, 0.8f, 1.2f);
    const float rise = puf_rand_range(rng, -1, 1), c = (float)puf_cos(half),
                s = (float)puf_sin(half);
    const float mx = from->nx * c - from->ny * s, my = from->nx * s + from->ny * c;
    Gate gate = {{from->at.x + distance * mx, from->at.y + distance * my,
                  fminf(fmaxf(from->at.z + rise, 2.5f), 5.5f)},
                 mx * c - my * s,
                 mx * s + my * c};
    const float scale = 1 / sqrtf(gate.nx * gate.nx + gate.ny * gate.ny);  // against rounding
    gate.nx *= scale;
    gate.ny *= scale;
    return gate;
}

static void reset(Drone* env) {
    PufRng* rng = &env->slots.rng;
    const double yaw = (double)puf_rand_range(rng, -3.14159265f, 3.14159265f);
    env->hover = (Vec3){0, 0, 4};
    env->at = (Vec3){puf_rand_range(rng, -1, 1), puf_rand_range(rng, -1, 1),
                     4 + puf_rand_range(rng, -1, 1)};
    env->velocity = env->spin = (Vec3){0, 0, 0};
    // The course begins anywhere within 0.8 rad of where the drone looks.
    const double course = yaw + (double)puf_rand_range(rng, -0.8f, 0.8f);
    const Gate start = {env->hover, (float)puf_cos(course), (float)puf_sin(course)};
    env->gates[0] = next_gate(env, &start);
    env->gates[1] = next_gate(env, &env->gates[0]);
    env->q[0] = (float)puf_cos(0.5 * yaw);
    env->q[1] = env->q[2] = 0;
    env->q[3] = (float)puf_sin(0.5 * yaw);
    for (int32_t i = 0; i < NUM_MOTORS; i++) env->motors[i] = 0.5f;
    env->held = env->passed = 0;
}

static bool hovers(const Drone* env) { return env->held < env->hover_steps; }

static Vec3 target(const Drone* env) { return hovers(env) ? env->hover : env->gates[0].at; }

// ---- Flight -------------------------------------------------------------------------------------

typedef struct {
    float m[9];  // rows
} Matrix;

static Matrix attitude(const float q[4]) {
    const float w = q[0], x = q[1], y = q[2], z = q[3];
    return (Matrix){{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                     2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                     2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
}

// A direction of the world in the drone's frame.
static Vec3 inside(const Matrix* r, Vec3 v) {
    const float* m = r->m;
    return (Vec3){m[0] * v.x + m[3] * v.y + m[6] * v.z, m[1] * v.x + m[4] * v.y + m[7] * v.z,
                  m[2] * v.x + m[5] * v.y + m[8] * v.z};
}

static void turn(float q[4], Vec3 spin) {
    const float w = q[0], x = q[1], y = q[2], z = q[3], h = 0.5f * DT;
    q[0] = w - h * (x * spin.x + y * spin.y + z * spin.z);
    q[1] = x + h * (w * spin.x + y * spin.z - z * spin.y);
    q[2] = y + h * (w * spin.y + z * spin.x - x * spin.z);
    q[3] = z + h * (w * spin.z + x * spin.y - y * spin.x);
    const float scale = 1 / sqrtf(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    for (int32_t i = 0; i < 4; i++) q[i] *= scale;
}

static void fly(Drone* env, const float commands[NUM_MOTORS]) {
    float lift = 0, torque_x = 0, torque_y = 0, torque_z = 0;
    for (int32_t i = 0; i < NUM_MOTORS; i++) {
        env->motors[i] += LAG * (commands[i] - env->motors[i]);
        const float thrust = MAX_THRUST * env->motors[i];
        lift += thrust;
        torque_x += ARM * MOTOR_Y[i] * thrust;
        torque_y -= ARM * MOTOR_X[i] * thrust;
        torque_z += YAW_TORQUE * MOTOR_SPIN[i] * thrust;
    }
    const Vec3 w = env->spin;
    const float gyro = INERTIA_Z - INERTIA_XY;  // Euler: I w' = torque - w x (I w)
    env->spin = (Vec3){
        clamp(w.x + DT * ((torque_x - gyro * w.y * w.z) / INERTIA_XY - DAMPING * w.x), MAX_SPIN),
        clamp(w.y + DT * ((torque_y + gyro * w.x * w.z) / INERTIA_XY - DAMPING * w.y), MAX_SPIN),
        clamp(w.z + DT * (torque_z / INERTIA_Z - DAMPING * w.z), MAX_SPIN)};
    turn(env->q, env->spin);
    const Matrix r = attitude(env->q);
    const float pull = lift / MASS;
    Vec3* v = &env->velocity;
    v->x = clamp(v->x + DT * (r.m[2] * pull - DRAG * v->x), MAX_SPEED);
    v->y = clamp(v->y + DT * (r.m[5] * pull - DRAG * v->y), MAX_SPEED);
    v->z = clamp(v->z + DT * (r.m[8] * pull - GRAVITY - DRAG * v->z), MAX_SPEED);
    env->at.x += DT * v->x;
    env->at.y += DT * v->y;
    env->at.z += DT * v->z;
}

// ---- Rules --------------------------------------------------------------------------------------

enum { CLEAR, PASSED, CRASHED };

// What the way from `from` to where the drone is now does to the gate.
static int32_t cross(const Drone* env, Vec3 from) {
    const Gate* gate = &env->gates[0];
    const Vec3 a = minus(from, gate->at), b = minus(env->at, gate->at);
    const float before = a.x * gate->nx + a.y * gate->ny, after = b.x * gate->nx + b.y * gate->ny;
    if ((before < 0) == (after < 0)) return CLEAR;
    const float part = before / (before - after);
    const float x = a.x + part * (b.x - a.x), y = a.y + part * (b.y - a.y);
    const float side = y * gate->nx - x * gate->ny, up = a.z + part * (b.z - a.z);
    const float away = sqrtf(side * side + up * up);
    if (away > env->gate_radius + FRAME) return CLEAR;
    if (away > env->gate_radius) return CRASHED;
    return before < 0 ? PASSED : CLEAR;
}

static PufStatus end(Drone* env, PufStatus status) {
    env->score = (float)env->passed;
    env->perf = env->score / (float)env->goal;
    return status;
}

static PufStatus step(Drone* env) {
    const bool hovering = hovers(env);
    const Vec3 from = env->at, aim = target(env);
    float commands[NUM_MOTORS];
    for (int32_t i = 0; i < NUM_MOTORS; i++)
        commands[i] = 0.5f + 0.5f * puf_action_f32(&env->slots, 0, i);
    for (int32_t i = 0; i < TICKS; i++) fly(env, commands);

    const float distance = norm(minus(env->at, aim));
    float reward = 0.25f * (norm(minus(from, aim)) - distance) - 0.001f * norm(env->spin);
    if (hovering && distance <= HOVER_RADIUS) {
        env->held++;
        reward += 0.02f;
    }
    const int32_t crossing = hovering ? CLEAR : cross(env, from);
    const bool crashed = crossing == CRASHED || env->at.z <= 0 || distance > ROOM;
    if (crossing == PASSED) {
        env->passed++;
        reward += 1;
        env->gates[0] = env->gates[1];
        env->gates[1] = next_gate(env, &env->gates[0]);
    }
    puf_reward(&env->slots, 0, crashed ? reward - 1 : reward);
    if (crashed) return end(env, PUF_TERMINATED);
    if (env->passed >= env->goal || env->slots.tick >= env->max_steps)
        return end(env, PUF_TRUNCATED);
    return PUF_RUNNING;
}

static void put(float** out, Vec3 v, float scale) {
    *(*out)++ = scale * v.x;
    *(*out)++ = scale * v.y;
    *(*out)++ = scale * v.z;
}

static void observe(const Drone* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    const Matrix r = attitude(env->q);
    const bool hovering = hovers(env);
    const Gate *gate = &env->gates[0], *after = hovering ? gate : &env->gates[1];
    const Vec3 course = {hovering ? 0 : gate->nx, hovering ? 0 : gate->ny, 0};
    put(&obs, inside(&r, minus(target(env), env->at)), 0.25f);
    put(&obs, inside(&r, minus(after->at, env->at)), 0.1f);
    put(&obs, inside(&r, course), 1);
    put(&obs, inside(&r, env->velocity), 0.25f);
    put(&obs, env->spin, 0.2f);
    put(&obs, (Vec3){r.m[6], r.m[7], r.m[8]}, 1);
    for (int32_t i = 0; i < NUM_MOTORS; i++) *obs++ = 2 * env->motors[i] - 1;
}

// ---- Pictures -----------------------------------------------------------------------------------

// A camera behind the drone that looks along the course.
typedef struct {
    Vec3 at;
    float cx, cy;  // where it looks, from above
    float x, y, scale;
} Camera;

static const float NEAR = 0.3f;

// Metres in front of the camera.
static float depth(const Camera* c, Vec3 p) {
    return (p.x - c->at.x) * c->cx + (p.y - c->at.y) * c->cy;
}

static void project(const Camera* c, Vec3 p, float* x, float* y) {
    const float scale = c->scale / fmaxf(depth(c, p), NEAR);
    *x = c->x + ((p.x - c->at.x) * c->cy - (p.y - c->at.y) * c->cx) * scale;
    *y = c->y - (p.z - c->at.z) * scale;
}

// A stroke between two points, as far as it is in front of the camera; `thickness` in metres.
static void stroke(PufCanvas* canvas, const Camera* c, Vec3 a, Vec3 b, float thickness,
                   uint32_t color) {
    const float da = depth(c, a), db = depth(c, b);
    if (da < NEAR && db < NEAR) return;
    if ((da < NEAR) != (db < NEAR)) {
        const float part = (NEAR - da) / (db - da);
        const Vec3 m = {a.x + part * (b.x - a.x), a.y + part * (b.y - a.y),
                        a.z + part * (b.z - a.z)};
        if (da < NEAR)
            a = m;
        else
            b = m;
    }
    float x0, y0, x1, y1;
    project(c, a, &x0, &y0);
    project(c, b, &x1, &y1);
    const float wide = thickness * c->scale / fmaxf(0.5f * (depth(c, a) + depth(c, b)), NEAR);
    puf_line(canvas, x0, y0, x1, y1, fmaxf(wide, 1), color);
}

static void draw_gate(const Drone* env, PufCanvas* canvas, const Camera* c, const Gate* gate,
                      uint32_t color) {
    const float r = env->gate_radius + 0.5f * FRAME;
    Vec3 before = {0, 0, 0};
    for (int32_t i = 0; i <= 24; i++) {
        const double angle = i * (6.283185307179586 / 24);
        const float side = r * (float)puf_cos(angle), up = r * (float)puf_sin(angle);
        const Vec3 p = {gate->at.x - side * gate->ny, gate->at.y + side * gate->nx,
                        gate->at.z + up};
        if (i) stroke(canvas, c, before, p, FRAME, color);
        before = p;
    }
    const Vec3 foot = {gate->at.x, gate->at.y, 0}, rim = {gate->at.x, gate->at.y, gate->at.z - r};
    stroke(canvas, c, foot, rim, 0.12f, PUF_GREY);
}

static void draw_drone(const Drone* env, PufCanvas* canvas, const Camera* c) {
    const Matrix r = attitude(env->q);
    for (int32_t i = 0; i < NUM_MOTORS; i++) {
        const float px = 0.32f * MOTOR_X[i], py = 0.32f * MOTOR_Y[i];
        const Vec3 tip = {env->at.x + r.m[0] * px + r.m[1] * py,
                          env->at.y + r.m[3] * px + r.m[4] * py,
                          env->at.z + r.m[6] * px + r.m[7] * py};
        stroke(canvas, c, env->at, tip, 0.07f, PUF_PAPER);
        Vec3 before = tip;
        for (int32_t k = 0; k <= 12; k++) {  // the propeller's circle; front ones are red
            const double angle = k * (6.283185307179586 / 12);
            const float ax = px + 0.22f * (float)puf_cos(angle),
                        ay = py + 0.22f * (float)puf_sin(angle);
            const Vec3 p = {env->at.x + r.m[0] * ax + r.m[1] * ay + 0.05f * r.m[2],
                            env->at.y + r.m[3] * ax + r.m[4] * ay + 0.05f * r.m[5],
                            env->at.z + r.m[6] * ax + r.m[7] * ay + 0.05f * r.m[8]};
            if (k) stroke(canvas, c, before, p, 0.04f, MOTOR_X[i] > 0 ? PUF_RED : PUF_CYAN);
            before = p;
        }
    }
    float x, y;
    project(c, env->at, &x, &y);
    puf_circle(canvas, x, y, 0.11f * c->scale / fmaxf(depth(c, env->at), NEAR), PUF_PAPER);
}

static void render(const Drone* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const Gate* gate = &env->gates[0];
    const float dx = gate->at.x - env->at.x, dy = gate->at.y - env->at.y;
    const float far = sqrtf(dx * dx + dy * dy);
    // Looks to the gate, or along the course where the gate is too near for that.
    const float cx = far > 1 ? dx / far : gate->nx, cy = far > 1 ? dy / far : gate->ny;
    const Camera c = {{env->at.x - 3.2f * cx, env->at.y - 3.2f * cy, env->at.z + 0.9f},
                      cx,
                      cy,
                      0.5f * width,
                      0.42f * height,
                      0.9f * height};
    puf_clear(canvas, 0x9CCBEB);
    puf_rect(canvas, 0, c.y, width, height - c.y, 0x4E7F55);
    const float x0 = floorf(env->at.x / 2) * 2, y0 = floorf(env->at.y / 2) * 2;
    for (int32_t i = -12; i <= 12; i++) {  // a grid on the ground
        const float line = 2 * (float)i;
        stroke(canvas, &c, (Vec3){x0 + line, y0 - 24, 0}, (Vec3){x0 + line, y0 + 24, 0}, 0.04f,
               0x6FA073);
        stroke(canvas, &c, (Vec3){x0 - 24, y0 + line, 0}, (Vec3){x0 + 24, y0 + line, 0}, 0.04f,
               0x6FA073);
    }
    draw_gate(env, canvas, &c, &env->gates[1], PUF_PURPLE);
    const bool behind = depth(&c, gate->at) < depth(&c, env->at);
    if (!behind) draw_gate(env, canvas, &c, gate, hovers(env) ? PUF_GREY : PUF_ORANGE);
    if (hovers(env)) {
        float x, y;
        project(&c, env->hover, &x, &y);
        puf_ring(canvas, x, y, HOVER_RADIUS * c.scale / fmaxf(depth(&c, env->hover), NEAR), 3,
                 PUF_YELLOW);
    }
    draw_drone(env, canvas, &c);
    if (behind) draw_gate(env, canvas, &c, gate, PUF_ORANGE);
    if (hovers(env))
        puf_textf(canvas, 10, 10, 2, PUF_INK, "HOVER %d", (int)(env->hover_steps - env->held));
    else
        puf_textf(canvas, 10, 10, 2, PUF_INK, "GATES %d", (int)env->passed);
}

static bool within(Vec3 v, float limit) {
    return puf_within(v.x, -limit, limit) && puf_within(v.y, -limit, limit) &&
           puf_within(v.z, -limit, limit);
}

static bool valid(const Drone* env) {
    const float far = 1e5f;  // 1000 gates at 10 m
    const float* q = env->q;
    const float size = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    for (int32_t i = 0; i < 2; i++) {
        const Gate* gate = &env->gates[i];
        if (!within(gate->at, far) || !puf_within(gate->nx, -1.001f, 1.001f) ||
            !puf_within(gate->ny, -1.001f, 1.001f) ||
            !puf_within(gate->nx * gate->nx + gate->ny * gate->ny, 0.999f, 1.001f))
            return false;
    }
    for (int32_t i = 0; i < NUM_MOTORS; i++)
        if (!puf_within(env->motors[i], 0, 1) || !puf_within(q[i], -1.001f, 1.001f)) return false;
    return within(env->at, far + 20) && within(env->velocity, MAX_SPEED) &&
           within(env->spin, MAX_SPIN) && puf_within(size, 0.999f, 1.001f) && env->hover.x == 0 &&
           env->hover.y == 0 && env->hover.z == 4 && env->held >= 0 &&
           env->held <= env->hover_steps && env->passed >= 0 && env->passed < env->goal &&
           within(minus(env->gates[0].at, env->hover), 10 * (float)(env->passed + 1)) &&
           within(minus(env->gates[1].at, env->gates[0].at), 10) &&
           env->slots.tick < env->max_steps;
}

PUF_ENV(drone, Drone, .doc = "hover with a quadrotor, then race through gates", .group = "motion",
        .action_names = "motor_1, motor_2, motor_3, motor_4",
        .layout = {.agents = 1,
                   .obs = PUF_BOX_F32(NUM_FEATURES),
                   .actions = PUF_CONTINUOUS(NUM_MOTORS, -1, 1),
                   .width = 480,
                   .height = 360});
