// slimeball - volleyball between two half-round slimes, to five points.
//
// Lengths are units of a court 40 wide, with a net of height 4 in its middle; speeds are units per
// tick of the physics, and an action lasts for `frameskip` ticks. Agent 0 is on the right.
//
// One tick:
// 1. Each slime stays, runs towards the net or away from it, and jumps if it is on the ground and
//    asks for it. In the air it can dive: it falls three times as fast.
// 2. The ball flies under gravity. A slime that it touches sends it back along the line between the
//    two, as an elastic wall with the slime's own velocity would. Net, walls and ceiling reflect
//    it.
// 3. Where the ball comes to the ground, the other side scores, and the ball is thrown in again
//    from above the net, equally likely to either side.
//
// An agent observes itself, the ball and the other slime: position and velocity each, in a frame
// where its own side is positive and the net at 0. So both sides see and do the same.
//
// opponent = scripted, random: one agent. The script computes where the ball comes down, runs there
// with an error that it draws again whenever the ball crosses the net, and jumps at balls above it.
// opponent = self: two agents. Score and perf are those of agent 0.
#include "puf_env.h"

enum {
    HALF = 20,  // of the court's width
    CEILING = 24,
    NUM_FEATURES = 12,
};
enum { STAY, FORWARD, BACK };
enum { SCRIPTED, SELF, RANDOM };

static const float SLIME = 2, BALL = 0.6f, NET_HEIGHT = 4, HALF_NET = 0.3f;  // radii and sizes
static const float GRAVITY = 0.02f, SLIME_GRAVITY = 0.03f, RUN = 0.35f, JUMP = 0.42f;
static const float HIGHEST = 4;       // of a slime's feet
static const float TOP_SPEED = 0.8f;  // of the ball: less than its radius and half the net
static const float SERVE_HEIGHT = 10;

typedef struct {
    float x, y, vx, vy;
} Body;

typedef struct {
    int32_t move, jump, dive;
} Wish;

typedef struct {
    PufSlots slots;
    Body slimes[2], ball;  // x of the court: the right side is positive
    float error;           // of the script's aim
    int32_t points[2];
    float score, perf;
    int32_t opponent, max_score, frameskip, max_steps;
    float opponent_error, reward_over;
} Slimeball;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Slimeball, opponent, SCRIPTED, 3, "scripted|self|random",
                     "a script, a second agent, or random actions"),
    PUF_PARAM_F32(Slimeball, opponent_error, 1.6, 0, 10,
                  "largest error of the script's aim, in units"),
    PUF_PARAM_I32(Slimeball, max_score, 5, 1, 1000, "points that win the game"),
    PUF_PARAM_I32(Slimeball, frameskip, 3, 1, 16, "physics ticks per step"),
    PUF_PARAM_I32(Slimeball, max_steps, 2000, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Slimeball, reward_over, 0.1, 0, 1,
                  "reward for a ball over the net, lost by the other side"),
};

static const PufField metrics[] = {
    PUF_METRIC(Slimeball, score, "points won minus points lost"),
    PUF_METRIC(Slimeball, perf, "1 for a won game, 0.5 for equal points, 0 for a lost one"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

// +1 for the right side, -1 for the left: factor between the court's x and a side's own.
static inline float sign_of(int32_t side) { return side == 0 ? 1.0f : -1.0f; }

// ---- Rules --------------------------------------------------------------------------------------

static void draw_error(Slimeball* env) {
    env->error = env->opponent_error * puf_rand_range(&env->slots.rng, -1, 1);
}

static void serve(Slimeball* env) {
    PufRng* rng = &env->slots.rng;
    const float side = puf_rand_int(rng, 2) ? 1.0f : -1.0f;
    env->ball = (Body){0, SERVE_HEIGHT, side * puf_rand_range(rng, 0.1f, 0.35f),
                       puf_rand_range(rng, 0, 0.3f)};
    for (int32_t i = 0; i < 2; i++) env->slimes[i] = (Body){sign_of(i) * (HALF / 2), 0, 0, 0};
    draw_error(env);
}

static void reset(Slimeball* env) {
    env->points[0] = env->points[1] = 0;
    env->score = env->perf = 0;
    serve(env);
}

static void move_slime(Slimeball* env, int32_t side, Wish wish) {
    static const float direction[] = {[STAY] = 0, [FORWARD] = -1, [BACK] = 1};
    Body* slime = &env->slimes[side];
    const float sign = sign_of(side);
    slime->vx = sign * direction[wish.move] * RUN;
    if (slime->y <= 0)
        slime->vy = wish.jump ? JUMP : 0;
    else
        slime->vy -= wish.dive ? 3 * SLIME_GRAVITY : SLIME_GRAVITY;
    const float x = clamp(sign * (slime->x + slime->vx), SLIME + HALF_NET, HALF - SLIME);
    slime->vx = sign * x - slime->x;  // what is left of it at net and wall
    slime->x = sign * x;
    slime->y = clamp(slime->y + slime->vy, 0, HIGHEST);
    slime->vy = slime->y <= 0 ? 0 : clamp(slime->vy, -1, JUMP);
}

// Reflects the ball at a circle that moves with (vx, vy).
static void bounce(Body* ball, float x, float y, float vx, float vy, float reach) {
    const float dx = ball->x - x, dy = ball->y - y, d2 = dx * dx + dy * dy;
    if (d2 >= reach * reach || d2 < 1e-6f) return;
    const float inverse = 1 / sqrtf(d2), nx = dx * inverse, ny = dy * inverse;
    const float along = (ball->vx - vx) * nx + (ball->vy - vy) * ny;
    ball->x = x + reach * nx;
    ball->y = y + reach * ny;
    if (along >= 0) return;  // they part already
    ball->vx -= 2 * along * nx;
    ball->vy -= 2 * along * ny;
    const float speed2 = ball->vx * ball->vx + ball->vy * ball->vy;
    if (speed2 <= TOP_SPEED * TOP_SPEED) return;
    const float factor = TOP_SPEED / sqrtf(speed2);
    ball->vx *= factor;
    ball->vy *= factor;
}

static void move_ball(Slimeball* env) {
    Body* ball = &env->ball;
    ball->vy = fmaxf(ball->vy - GRAVITY, -TOP_SPEED);
    ball->x += ball->vx;
    ball->y += ball->vy;
    for (int32_t i = 0; i < 2; i++) {
        const Body* slime = &env->slimes[i];
        bounce(ball, slime->x, slime->y, slime->vx, slime->vy, SLIME + BALL);
    }
    if (ball->y < NET_HEIGHT) {
        const float gap = HALF_NET + BALL;
        if (fabsf(ball->x) < gap) {
            const float side = ball->x >= 0 ? 1.0f : -1.0f;
            ball->x = side * gap;
            ball->vx = side * fabsf(ball->vx);
        }
    } else {
        bounce(ball, 0, NET_HEIGHT, 0, 0, HALF_NET + BALL);
    }
    if (fabsf(ball->x) > HALF - BALL) {
        const float side = ball->x >= 0 ? 1.0f : -1.0f;
        ball->x = side * (HALF - BALL);
        ball->vx = -side * fabsf(ball->vx);
    }
    if (ball->y > CEILING - BALL) {
        ball->y = CEILING - BALL;
        ball->vy = -fabsf(ball->vy);
    }
}

// ---- The opponent -------------------------------------------------------------------------------

// Where the ball, in the opponent's own frame, comes down to `height`; walls reflect it.
static float landing(const Body* ball, float sign, float height) {
    const float drop = fmaxf(ball->vy * ball->vy + 2 * GRAVITY * (ball->y - height), 0);
    const float ticks = (ball->vy + sqrtf(drop)) * (1 / GRAVITY);
    const float x = sign * (ball->x + ball->vx * ticks), wall = HALF - BALL;
    return x > wall ? 2 * wall - x : x;
}

static Wish script(const Slimeball* env, int32_t side) {
    const float sign = sign_of(side);
    const Body *slime = &env->slimes[side], *ball = &env->ball;
    const float own_x = sign * slime->x, ball_x = sign * ball->x;
    const float lands = landing(ball, sign, SLIME);
    // Behind the ball, so that it goes forward; in the middle while the ball is over there.
    const float target = lands > 0 ? lands + 0.8f + env->error : HALF / 2;
    const float away = target - own_x;
    const bool near = fabsf(ball_x - own_x) < 2.5f && ball->y > slime->y + 2 && ball->y < 6.5f;
    return (Wish){.move = away > 0.4f    ? BACK
                          : away < -0.4f ? FORWARD
                                         : STAY,
                  .jump = near && ball->vy < 0 && ball_x < own_x,
                  .dive = ball->y < slime->y};
}

static Wish wish_of(Slimeball* env, int32_t side) {
    PufRng* rng = &env->slots.rng;
    if (side == 1 && env->opponent == SCRIPTED) return script(env, side);
    if (side == 1 && env->opponent == RANDOM)
        return (Wish){puf_rand_int(rng, 3), puf_rand_int(rng, 2), puf_rand_int(rng, 2)};
    return (Wish){puf_action_at(&env->slots, side, 0), puf_action_at(&env->slots, side, 1),
                  puf_action_at(&env->slots, side, 2)};
}

// ---- One step -----------------------------------------------------------------------------------

static void give(Slimeball* env, int32_t side, float reward) {
    puf_reward(&env->slots, 0, side == 0 ? reward : -reward);
    if (env->opponent == SELF) puf_reward(&env->slots, 1, side == 1 ? reward : -reward);
}

static PufStatus step(Slimeball* env) {
    const Wish right = wish_of(env, 0);
    Wish left = wish_of(env, 1);
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        const float before = env->ball.x;
        if (tick && env->opponent == SCRIPTED) left = script(env, 1);
        move_slime(env, 0, right);
        move_slime(env, 1, left);
        move_ball(env);
        if (before * env->ball.x < 0) {
            give(env, before > 0 ? 0 : 1, env->reward_over);
            draw_error(env);
        }
        if (env->ball.y > BALL) continue;
        const int32_t winner = env->ball.x > 0 ? 1 : 0;
        env->points[winner]++;
        give(env, winner, 1);
        env->score = (float)(env->points[0] - env->points[1]);
        env->perf = env->score > 0 ? 1 : env->score < 0 ? 0 : 0.5f;
        if (env->points[winner] >= env->max_score) return PUF_TERMINATED;
        serve(env);
        break;
    }
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->perf = env->score > 0 ? 1 : env->score < 0 ? 0 : 0.5f;
    return PUF_TRUNCATED;
}

static inline void look(const Slimeball* env, int32_t agent) {
    const Body* bodies[3] = {&env->slimes[agent], &env->ball, &env->slimes[agent ^ 1]};
    const float sign = sign_of(agent);
    float* obs = puf_obs_f32(&env->slots, agent);
    for (int32_t i = 0; i < 3; i++, obs += 4) {
        const Body* body = bodies[i];
        obs[0] = sign * body->x * (1.0f / HALF);
        obs[1] = body->y * (1.0f / CEILING);
        obs[2] = clamp(sign * body->vx * (1 / TOP_SPEED), -1, 1);
        obs[3] = clamp(body->vy * (1 / TOP_SPEED), -1, 1);
    }
}

static void observe(const Slimeball* env) {
    look(env, 0);
    if (env->opponent == SELF) look(env, 1);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { SCALE = 15, GROUND = 60, PICTURE = 400 };

static void draw_slime(PufCanvas* canvas, const Slimeball* env, int32_t side, uint32_t color) {
    const Body* slime = &env->slimes[side];
    const float x = (slime->x + HALF) * SCALE, y = PICTURE - GROUND - slime->y * SCALE;
    float xy[2 * 33];
    for (int32_t i = 0; i <= 32; i++) {  // the upper half of a circle
        const float t = (float)(i - 16) / 16, u = 1 - t * t;
        xy[2 * i] = x + SLIME * SCALE * (2 * t / (1 + t * t));
        xy[2 * i + 1] = y - SLIME * SCALE * (u / (1 + t * t));
    }
    puf_polygon(canvas, xy, 33, color);
    const float eye_x = x - 0.45f * SLIME * SCALE * sign_of(side),
                eye_y = y - 0.55f * SLIME * SCALE;
    const float dx = (env->ball.x + HALF) * SCALE - eye_x;
    const float dy = PICTURE - GROUND - env->ball.y * SCALE - eye_y;
    const float far = sqrtf(dx * dx + dy * dy) + 1;
    puf_circle(canvas, eye_x, eye_y, 7, PUF_WHITE);
    puf_circle(canvas, eye_x + 3 * dx / far, eye_y + 3 * dy / far, 4, PUF_BLACK);
}

static void render(const Slimeball* env, PufCanvas* canvas) {
    const float floor_y = PICTURE - GROUND, width = 2 * HALF * SCALE;
    const float x = (env->ball.x + HALF) * SCALE, y = floor_y - env->ball.y * SCALE;
    puf_clear(canvas, 0x7EC8E8);
    puf_circle(canvas, 90, 80, 28, PUF_YELLOW);
    for (int32_t i = 0; i < 3; i++)
        puf_circle(canvas, 420 + 26 * (float)i, 90 - 8 * (float)(i == 1), 24, PUF_WHITE);
    puf_rect(canvas, 0, floor_y, width, GROUND, 0xE3C27A);
    puf_rect(canvas, 0, floor_y, width, 4, 0xC49A4B);
    puf_rect(canvas, (HALF - HALF_NET) * SCALE, floor_y - NET_HEIGHT * SCALE, 2 * HALF_NET * SCALE,
             NET_HEIGHT * SCALE, PUF_PAPER);
    puf_circle(canvas, HALF * SCALE, floor_y - NET_HEIGHT * SCALE, HALF_NET * SCALE, PUF_PAPER);
    draw_slime(canvas, env, 0, PUF_GREEN);
    draw_slime(canvas, env, 1, PUF_RED);
    puf_circle(canvas, x, floor_y + 6, BALL * SCALE * 0.7f, 0xB58C42);  // its shadow
    puf_circle(canvas, x, y, BALL * SCALE, PUF_ORANGE);
    puf_ring(canvas, x, y, BALL * SCALE, 2, PUF_INK);
    puf_textf(canvas, 30, PICTURE - 36, 3, PUF_RED, "%d", (int)env->points[1]);
    puf_textf(canvas, width - 70, PICTURE - 36, 3, 0x2E7D4F, "%d", (int)env->points[0]);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Slimeball* env) {
    const float fastest = 1.001f * TOP_SPEED;
    for (int32_t i = 0; i < 2; i++) {
        const Body* slime = &env->slimes[i];
        const float x = sign_of(i) * slime->x;
        if (!puf_within(x, SLIME + HALF_NET, HALF - SLIME) || !puf_within(slime->y, 0, HIGHEST) ||
            !puf_within(slime->vx, -1, 1) || !puf_within(slime->vy, -1, 1) || env->points[i] < 0 ||
            env->points[i] >= env->max_score)
            return false;
    }
    return puf_within(env->ball.x, -HALF, HALF) && puf_within(env->ball.y, 0, CEILING) &&
           puf_within(env->ball.vx, -fastest, fastest) &&
           puf_within(env->ball.vy, -fastest, fastest) && puf_within(env->error, -10, 10) &&
           env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = ((const Slimeball*)self)->opponent == SELF ? 2 : 1;
}

PUF_ENV(slimeball, Slimeball, .doc = "volleyball between two slimes", .group = "many agents",
        .action_names = "stay forward back, ground jump, float dive", .shape = shape,
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_MULTI_DISCRETE(3, 2, 2),
            .width = 2 * HALF * SCALE,
            .height = PICTURE});
