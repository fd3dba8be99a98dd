// pong - table tennis against a scripted paddle, to 21 points.
//
// Lengths are units of a 96 x 72 court, speeds are units per tick of the physics; an action lasts
// for `frameskip` ticks. The agent is on the right. Where the ball hits a paddle decides its angle,
// and each hit makes it a little faster. The opponent follows the ball at a limited speed, and only
// when the ball is near enough, so a fast, slanted ball beats it; it never aims.
#include "puf_env.h"

enum {
    WIDTH = 96,
    HEIGHT = 72,
    RADIUS = 1,  // of the ball, which collides as a square
    MARGIN = 5,  // from a side of the court to the front of its paddle
    THICKNESS = 2,
    SPEEDUP_HITS = 10,  // paddle hits until the ball has its full speed
};

enum { STAY, UP, DOWN };

typedef struct {
    PufSlots slots;
    float paddle, opponent, x, y, vx, vy;  // centres; velocity of the ball
    float max_speed;
    int32_t won, lost;
    float score, perf;
    float paddle_size, opponent_size, paddle_speed, opponent_speed, opponent_sight;
    float ball_speed, speedup, bounce;
    int32_t max_score, frameskip, max_steps;
} Pong;

static const PufField params[] = {
    PUF_PARAM_F32(Pong, paddle_size, 12, 2, HEIGHT, "length of the agent's paddle"),
    PUF_PARAM_F32(Pong, opponent_size, 12, 2, HEIGHT, "length of the opponent's paddle"),
    PUF_PARAM_F32(Pong, paddle_speed, 1.25, 0.1, 8, "speed of the agent in units per tick"),
    PUF_PARAM_F32(Pong, opponent_speed, 0.6, 0, 8,
                  "largest speed of the opponent in units per tick"),
    PUF_PARAM_F32(Pong, opponent_sight, 0.6, 0, 1,
                  "share of the court's width in which the opponent reacts to the ball"),
    PUF_PARAM_F32(Pong, ball_speed, 1.5, 0.25, 4, "speed of a served ball in units per tick"),
    PUF_PARAM_F32(Pong, speedup, 0.5, 0, 2, "relative gain of speed after 10 hits"),
    PUF_PARAM_F32(Pong, bounce, 0.8, 0.1, 0.95,
                  "vertical share of the ball's speed after a hit at the paddle's end"),
    PUF_PARAM_I32(Pong, max_score, 21, 1, 1000, "points that win the game"),
    PUF_PARAM_I32(Pong, frameskip, 4, 1, 16, "physics ticks per step"),
    PUF_PARAM_I32(Pong, max_steps, 5000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Pong, score, "points won minus points lost"),
    PUF_METRIC(Pong, perf, "score / max_score, at least 0"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

// Both paddles in the middle, the ball on the centre line, equally likely to either side.
static void serve(Pong* env) {
    PufRng* rng = &env->slots.rng;
    float slant = puf_rand_range(rng, -0.6f, 0.6f);
    float side = puf_rand_int(rng, 2) ? 1.0f : -1.0f;
    env->paddle = env->opponent = 0.5f * HEIGHT;
    env->x = 0.5f * WIDTH;
    env->y = puf_rand_range(rng, 0.25f * HEIGHT, 0.75f * HEIGHT);
    env->vx = side * sqrtf(1 - slant * slant) * env->ball_speed;
    env->vy = slant * env->ball_speed;
}

static float full_speed(const Pong* env) { return env->ball_speed * (1 + env->speedup); }

static void reset(Pong* env) {
    env->max_speed = full_speed(env);
    env->won = env->lost = 0;
    serve(env);
}

// Follows the ball when it is near, else returns to the middle.
static void move_opponent(Pong* env) {
    bool seen = env->vx < 0 && env->x <= env->opponent_sight * WIDTH;
    float target = seen ? env->y : 0.5f * HEIGHT, half = 0.5f * env->opponent_size;
    float move = clamp(target - env->opponent, -env->opponent_speed, env->opponent_speed);
    env->opponent = clamp(env->opponent + move, half, HEIGHT - half);
}

// Height of the ball after it moves by `distance` between the walls, which reflect it.
static float bounced(float y, float distance) {
    y += distance;
    if (y < RADIUS) y = 2 * RADIUS - y;
    if (y > HEIGHT - RADIUS) y = 2 * (HEIGHT - RADIUS) - y;
    return y;
}

// Returns the ball from a paddle whose middle is at `middle`; false if the paddle misses it.
static bool hit(Pong* env, float y, float middle, float size) {
    float reach = 0.5f * size + RADIUS, offset = y - middle;
    if (fabsf(offset) > reach) return false;
    float speed = sqrtf(env->vx * env->vx + env->vy * env->vy);
    float gain = env->ball_speed * env->speedup * (1.0f / SPEEDUP_HITS);
    speed = fminf(speed + gain, env->max_speed);
    float along = speed * env->bounce * (offset / reach);
    float away = sqrtf(speed * speed - along * along);
    env->vx = env->vx > 0 ? -away : away;
    env->vy = along;
    env->y = y;
    return true;
}

// One tick of the ball. It can hit a paddle where its path crosses the line in front of it.
static void move_ball(Pong* env) {
    const float line = env->vx > 0 ? WIDTH - MARGIN - RADIUS : MARGIN + RADIUS;
    float x = env->x + env->vx;
    bool crosses = env->vx > 0 ? env->x < line && x >= line : env->x > line && x <= line;
    if (crosses) {
        float y = bounced(env->y, env->vy * (line - env->x) / env->vx);
        bool back = env->vx > 0 ? hit(env, y, env->paddle, env->paddle_size)
                                : hit(env, y, env->opponent, env->opponent_size);
        if (back) {
            env->x = line;
            return;
        }
    }
    float y = env->y + env->vy;
    env->x = x;
    env->y = bounced(env->y, env->vy);
    if (y < RADIUS || y > HEIGHT - RADIUS) env->vy = -env->vy;
}

static PufStatus step(Pong* env) {
    static const float direction[] = {[STAY] = 0, [UP] = -1, [DOWN] = 1};
    const float shift = direction[puf_action(&env->slots, 0)] * env->paddle_speed;
    const float half = 0.5f * env->paddle_size;
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        env->paddle = clamp(env->paddle + shift, half, HEIGHT - half);
        move_opponent(env);
        move_ball(env);
        bool won = env->x <= RADIUS, lost = env->x >= WIDTH - RADIUS;
        if (!won && !lost) continue;
        env->won += won;
        env->lost += lost;
        puf_reward(&env->slots, 0, won ? 1 : -1);
        env->x = won ? RADIUS : WIDTH - RADIUS;
        break;
    }
    env->score = (float)(env->won - env->lost);
    env->perf = fmaxf(env->score / (float)env->max_score, 0);
    if (env->won >= env->max_score || env->lost >= env->max_score) return PUF_TERMINATED;
    if (env->x <= RADIUS || env->x >= WIDTH - RADIUS) serve(env);
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

static void observe(const Pong* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = env->paddle * (2.0f / HEIGHT) - 1;
    obs[1] = env->opponent * (2.0f / HEIGHT) - 1;
    obs[2] = env->x * (2.0f / WIDTH) - 1;
    obs[3] = env->y * (2.0f / HEIGHT) - 1;
    obs[4] = env->vx / env->max_speed;
    obs[5] = env->vy / env->max_speed;
    obs[6] = (float)env->won / (float)env->max_score;
    obs[7] = (float)env->lost / (float)env->max_score;
}

static void render(const Pong* env, PufCanvas* canvas) {
    const float scale = (float)canvas->width / WIDTH, centre = 0.5f * (float)canvas->width;
    const float wall = 0.5f * ((float)canvas->height - HEIGHT * scale);
    const char* digits = env->lost < 10 ? "0" : env->lost < 100 ? "00" : "000";
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, 0, wall, (float)canvas->width, HEIGHT * scale, PUF_INK);
    for (int32_t y = 1; y < HEIGHT; y += 4)
        puf_rect(canvas, centre - 0.4f * scale, wall + (float)y * scale, 0.8f * scale, 2 * scale,
                 PUF_SLATE);
    puf_textf(canvas, centre - 5 * scale - puf_text_width(7, digits), wall + 3 * scale, 7,
              PUF_ORANGE, "%d", (int)env->lost);
    puf_textf(canvas, centre + 5 * scale, wall + 3 * scale, 7, PUF_GREEN, "%d", (int)env->won);
    puf_rect(canvas, (MARGIN - THICKNESS) * scale,
             wall + (env->opponent - 0.5f * env->opponent_size) * scale, THICKNESS * scale,
             env->opponent_size * scale, PUF_ORANGE);
    puf_rect(canvas, (WIDTH - MARGIN) * scale,
             wall + (env->paddle - 0.5f * env->paddle_size) * scale, THICKNESS * scale,
             env->paddle_size * scale, PUF_GREEN);
    for (int32_t i = 4; i >= 0; i--) {  // the ball, with a tail that shows its velocity
        float back = 0.8f * (float)i;
        float y = clamp(env->y - back * env->vy, RADIUS, HEIGHT - RADIUS);
        puf_circle(canvas, (env->x - back * env->vx) * scale, wall + y * scale,
                   RADIUS * scale * (1 - 0.15f * (float)i),
                   i ? puf_blend(PUF_INK, PUF_PAPER, 0.5f - 0.1f * (float)i) : PUF_WHITE);
    }
}

static bool valid(const Pong* env) {
    const float fastest = 1.001f * full_speed(env);
    return env->max_speed == full_speed(env) && env->won >= 0 && env->won < env->max_score &&
           env->lost >= 0 && env->lost < env->max_score && puf_within(env->paddle, 0, HEIGHT) &&
           puf_within(env->opponent, 0, HEIGHT) && puf_within(env->x, 0, WIDTH) &&
           puf_within(env->y, 0, HEIGHT) && puf_within(env->vx, -fastest, fastest) &&
           puf_within(env->vy, -fastest, fastest);
}

PUF_ENV(pong, Pong, .doc = "win at table tennis against a scripted paddle", .group = "arcade",
        .action_names = "stay up down",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {8}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(3),
                   .width = 576,
                   .height = 456});
