// breakout - keep the ball in play with a paddle and clear the wall of bricks.
//
// Lengths are pixels of an 84 x 84 court, speeds are pixels per tick of the physics; an action
// lasts for `frameskip` ticks. Only the paddle changes the angle of the ball, by where the ball
// hits it; walls and bricks reflect it. So the ball always keeps some vertical speed, and the agent
// can aim. The ball moves one axis at a time, in strides no longer than a brick: it enters at most
// one new row or column per stride and never passes through a brick.
#include "puf_env.h"

enum {
    COURT = 84,  // width and height
    TOP = 12,    // upper edge of the bricks
    BRICK_HEIGHT = 3,
    PADDLE_TOP = 77,
    PADDLE_HEIGHT = 2,
    RADIUS = 1,  // of the ball, which collides as a square
    MAX_ROWS = 10,
    MAX_COLS = 32,
    BRICK_WORDS = MAX_ROWS * MAX_COLS / 64,
    NUM_FEATURES = 6,
    SPEEDUP_HITS = 20,  // paddle hits until the ball has its full speed
};

enum { STAY, LEFT, RIGHT };
enum { FEATURES, PIXELS };

typedef struct {
    PufSlots slots;
    float paddle, x, y, vx, vy;  // centres; velocity of the ball
    float max_speed, brick_width;
    int32_t strides;  // of the ball in one tick
    int32_t lives_left, broken;
    uint64_t bricks[BRICK_WORDS];  // one bit per standing brick, row by row from the top
    float score, perf;
    int32_t obs, brick_rows, brick_cols, lives, frameskip, max_steps;
    float paddle_width, paddle_speed, ball_speed, speedup, bounce;
} Breakout;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Breakout, obs, FEATURES, 2, "features|pixels",
                     "features: paddle, ball, lives and bricks as floats; pixels: 84 x 84 grey"),
    PUF_PARAM_I32(Breakout, brick_rows, 6, 1, MAX_ROWS, "rows of bricks"),
    PUF_PARAM_I32(Breakout, brick_cols, 18, 1, MAX_COLS, "bricks in a row"),
    PUF_PARAM_I32(Breakout, lives, 5, 1, 10, "balls per episode"),
    PUF_PARAM_F32(Breakout, paddle_width, 12, 2, COURT, "width of the paddle in pixels"),
    PUF_PARAM_F32(Breakout, paddle_speed, 1.25, 0.1, 8, "speed of the paddle in pixels per tick"),
    PUF_PARAM_F32(Breakout, ball_speed, 1.5, 0.25, 4, "speed of a new ball in pixels per tick"),
    PUF_PARAM_F32(Breakout, speedup, 0.5, 0, 2, "relative gain of speed after 20 paddle hits"),
    PUF_PARAM_F32(Breakout, bounce, 0.85, 0.1, 0.95,
                  "horizontal share of the ball's speed after a hit at the paddle's end"),
    PUF_PARAM_I32(Breakout, frameskip, 4, 1, 16, "physics ticks per step"),
    PUF_PARAM_I32(Breakout, max_steps, 4000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Breakout, score,
               "points: 1, 4 or 7 per brick, more in upper rows; at most 432 by default"),
    PUF_METRIC(Breakout, perf, "share of bricks broken"),
};

static int32_t num_bricks(const Breakout* env) { return env->brick_rows * env->brick_cols; }

static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

// Paddle in the middle, ball falling from below the bricks: the paddle can reach every landing
// point.
static void serve(Breakout* env) {
    PufRng* rng = &env->slots.rng;
    float slant = puf_rand_range(rng, -0.5f, 0.5f);
    env->paddle = 0.5f * COURT;
    env->x = puf_rand_range(rng, 0.25f * COURT, 0.75f * COURT);
    env->y = (float)(TOP + BRICK_HEIGHT * env->brick_rows + 4);
    env->vx = slant * env->ball_speed;
    env->vy = sqrtf(1 - slant * slant) * env->ball_speed;
}

// Fields that depend only on params.
static void derive(Breakout* env) {
    env->brick_width = (float)COURT / (float)env->brick_cols;
    env->max_speed = env->ball_speed * (1 + env->speedup);
    env->strides = 1 + (int32_t)(env->max_speed / fminf(env->brick_width, BRICK_HEIGHT));
}

static void reset(Breakout* env) {
    derive(env);
    env->lives_left = env->lives;
    env->broken = 0;
    env->score = 0;
    int32_t left = num_bricks(env);
    for (int32_t i = 0; i < BRICK_WORDS; i++, left -= 64)
        env->bricks[i] = left >= 64 ? ~(uint64_t)0 : left > 0 ? ((uint64_t)1 << left) - 1 : 0;
    serve(env);
}

// ---- Collisions ---------------------------------------------------------------------------------

static const float GAP = 1e-3f;  // between touching objects, well above rounding errors

// Rounds down; the argument is above -64.
static int32_t cell(float v) { return (int32_t)(v + 64) - 64; }

static int32_t row_at(float y) { return cell((y - TOP) * (1.0f / BRICK_HEIGHT)); }

static int32_t col_at(const Breakout* env, float x) { return cell(x / env->brick_width); }

static bool standing(const Breakout* env, int32_t brick) {
    return env->bricks[brick >> 6] >> (brick & 63) & 1;
}

// 1 for the lowest third of the rows, then 4, then 7.
static int32_t points(const Breakout* env, int32_t row) {
    return 1 + 3 * (3 * (env->brick_rows - 1 - row) / env->brick_rows);
}

static bool break_brick(Breakout* env, int32_t row, int32_t col) {
    if (row < 0 || row >= env->brick_rows || col < 0 || col >= env->brick_cols) return false;
    int32_t brick = row * env->brick_cols + col;
    if (!standing(env, brick)) return false;
    env->bricks[brick >> 6] &= ~((uint64_t)1 << (brick & 63));
    env->broken++;
    env->score += (float)points(env, row);
    puf_reward(&env->slots, 0, 1);
    return true;
}

static void move_horizontally(Breakout* env, float distance) {
    float x = env->x + distance, side = distance < 0 ? -RADIUS : RADIUS;
    bool hit = x < RADIUS || x > COURT - RADIUS;
    if (hit) {
        x = x < RADIUS ? RADIUS : COURT - RADIUS;
    } else if (env->y - RADIUS < (float)(TOP + BRICK_HEIGHT * env->brick_rows) &&
               env->y + RADIUS > TOP) {
        int32_t col = col_at(env, x + side);
        if (col != col_at(env, env->x + side)) {
            // The ball may touch two bricks at once: it breaks the one that faces its centre.
            int32_t row = row_at(env->y), upper = row_at(env->y - RADIUS);
            int32_t other = upper != row ? upper : row_at(env->y + RADIUS);
            hit = break_brick(env, row, col) || break_brick(env, other, col);
            float edge = (float)(side < 0 ? col + 1 : col) * env->brick_width;
            if (hit) x = edge - side + (side < 0 ? GAP : -GAP);
        }
    }
    env->x = x;
    if (hit) env->vx = -env->vx;
}

static void move_vertically(Breakout* env, float distance) {
    float y = env->y + distance, side = distance < 0 ? -RADIUS : RADIUS;
    bool hit = y < RADIUS;
    if (hit) {
        y = RADIUS;
    } else {
        int32_t row = row_at(y + side);
        if (row >= 0 && row < env->brick_rows && row != row_at(env->y + side)) {
            int32_t col = col_at(env, env->x), left = col_at(env, env->x - RADIUS);
            int32_t other = left != col ? left : col_at(env, env->x + RADIUS);
            hit = break_brick(env, row, col) || break_brick(env, row, other);
            float edge = (float)(TOP + BRICK_HEIGHT * (side < 0 ? row + 1 : row));
            if (hit) y = edge - side + (side < 0 ? GAP : -GAP);
        }
    }
    env->y = y;
    if (hit) env->vy = -env->vy;
}

// Called when the ball crosses the top of the paddle. It leaves straight up from the middle and at
// an angle from the ends, a little faster than before.
static void hit_paddle(Breakout* env) {
    float reach = 0.5f * env->paddle_width + RADIUS, offset = env->x - env->paddle;
    if (fabsf(offset) > reach) return;
    float speed = sqrtf(env->vx * env->vx + env->vy * env->vy);
    float gain = env->ball_speed * env->speedup * (1.0f / SPEEDUP_HITS);
    speed = fminf(speed + gain, env->max_speed);
    env->vx = speed * env->bounce * (offset / reach);
    env->vy = -sqrtf(speed * speed - env->vx * env->vx);
    env->y = PADDLE_TOP - RADIUS;
}

static PufStatus end(Breakout* env, PufStatus status) {
    env->perf = (float)env->broken / (float)num_bricks(env);
    return status;
}

static PufStatus step(Breakout* env) {
    static const float direction[] = {[STAY] = 0, [LEFT] = -1, [RIGHT] = 1};
    const float shift = direction[puf_action(&env->slots, 0)] * env->paddle_speed;
    const float half = 0.5f * env->paddle_width, stride = 1 / (float)env->strides;
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        env->paddle = clamp(env->paddle + shift, half, COURT - half);
        for (int32_t i = 0; i < env->strides; i++) {
            bool above = env->y + RADIUS <= PADDLE_TOP;
            move_horizontally(env, env->vx * stride);
            move_vertically(env, env->vy * stride);
            if (above && env->y + RADIUS > PADDLE_TOP) hit_paddle(env);
        }
        if (env->broken == num_bricks(env)) return end(env, PUF_TERMINATED);
        if (env->y + RADIUS >= COURT) {
            env->y = COURT - RADIUS;
            if (--env->lives_left == 0) return end(env, PUF_TERMINATED);
            serve(env);
            break;
        }
    }
    return env->slots.tick >= env->max_steps ? end(env, PUF_TRUNCATED) : PUF_RUNNING;
}

// ---- Pictures -----------------------------------------------------------------------------------

static const uint32_t row_colors[] = {PUF_RED,   PUF_ORANGE, PUF_YELLOW,
                                      PUF_GREEN, PUF_CYAN,   PUF_BLUE};

// The court, with `scale` canvas pixels per court pixel. The ball's tail shows its velocity, so
// that one picture shows where it is going.
static void draw_court(const Breakout* env, PufCanvas* canvas, float left, float top, float scale) {
    const float width = env->brick_width * scale, height = BRICK_HEIGHT * scale;
    puf_rect(canvas, left, top, COURT * scale, COURT * scale, PUF_INK);
    for (int32_t row = 0; row < env->brick_rows; row++) {
        uint32_t color = row_colors[6 * row / env->brick_rows];
        uint32_t light = puf_blend(color, PUF_WHITE, 0.35f);
        float y = top + TOP * scale + (float)row * height;
        for (int32_t col = 0; col < env->brick_cols; col++) {
            if (!standing(env, row * env->brick_cols + col)) continue;
            float x = left + (float)col * width;
            puf_rect(canvas, x, y, width - 0.3f * scale, height - 0.3f * scale, color);
            puf_rect(canvas, x, y, width - 0.3f * scale, 0.4f * scale, light);
        }
    }
    for (int32_t i = 1; i < env->lives_left; i++)
        puf_circle(canvas, left + (4 * (float)i - 1.5f) * scale, top + 81.5f * scale, scale,
                   PUF_GREY);
    for (int32_t i = 4; i >= 0; i--) {
        float back = 0.8f * (float)i;
        float x = clamp(env->x - back * env->vx, RADIUS, COURT - RADIUS);
        float y = clamp(env->y - back * env->vy, RADIUS, COURT - RADIUS);
        puf_circle(canvas, left + x * scale, top + y * scale,
                   RADIUS * scale * (1 - 0.15f * (float)i),
                   i ? puf_blend(PUF_INK, PUF_PAPER, 0.5f - 0.1f * (float)i) : PUF_WHITE);
    }
    puf_rect(canvas, left + (env->paddle - 0.5f * env->paddle_width) * scale,
             top + PADDLE_TOP * scale, env->paddle_width * scale, PADDLE_HEIGHT * scale, PUF_PAPER);
}

static void render(const Breakout* env, PufCanvas* canvas) {
    const float wall = (float)canvas->width / 44, header = (float)(canvas->height - canvas->width);
    const float scale = ((float)canvas->width - 2 * wall) / COURT;
    const char* text = "BRICKS 000/000";
    puf_clear(canvas, PUF_SLATE);
    draw_court(env, canvas, wall, header + wall, scale);
    puf_rect(canvas, wall, header + wall + COURT * scale, COURT * scale, wall, PUF_INK);
    puf_textf(canvas, wall, 0.36f * header, 3, PUF_PAPER, "SCORE %d", (int)env->score);
    puf_textf(canvas, (float)canvas->width - wall - puf_text_width(3, text), 0.36f * header, 3,
              PUF_YELLOW, "BRICKS %3d/%d", (int)(num_bricks(env) - env->broken),
              (int)num_bricks(env));
}

// ---- Observations -------------------------------------------------------------------------------

#define BITS(b3, b2, b1, b0) {b0, b1, b2, b3}
static const float four_bricks[16][4] = {
    BITS(0, 0, 0, 0), BITS(0, 0, 0, 1), BITS(0, 0, 1, 0), BITS(0, 0, 1, 1),
    BITS(0, 1, 0, 0), BITS(0, 1, 0, 1), BITS(0, 1, 1, 0), BITS(0, 1, 1, 1),
    BITS(1, 0, 0, 0), BITS(1, 0, 0, 1), BITS(1, 0, 1, 0), BITS(1, 0, 1, 1),
    BITS(1, 1, 0, 0), BITS(1, 1, 0, 1), BITS(1, 1, 1, 0), BITS(1, 1, 1, 1),
};

static void observe_features(const Breakout* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    obs[0] = env->paddle * (2.0f / COURT) - 1;
    obs[1] = env->x * (2.0f / COURT) - 1;
    obs[2] = env->y * (2.0f / COURT) - 1;
    obs[3] = env->vx / env->max_speed;
    obs[4] = env->vy / env->max_speed;
    obs[5] = (float)env->lives_left / (float)env->lives;
    obs += NUM_FEATURES;
    int32_t left = num_bricks(env);
    for (const uint64_t* word = env->bricks; left > 0; word++) {
        uint64_t bits = *word;
        int32_t count = min_int(left, 64);
        left -= count;
        for (; count >= 4; count -= 4, bits >>= 4, obs += 4)
            memcpy(obs, four_bricks[bits & 15], sizeof four_bricks[0]);
        memcpy(obs, four_bricks[bits & 15], (size_t)count * sizeof(float));
    }
}

static void observe_pixels(const Breakout* env) {
    uint8_t rgb[COURT * COURT * 3];
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    draw_court(env, &(PufCanvas){rgb, COURT, COURT}, 0, 0, 1);
    for (int32_t i = 0; i < COURT * COURT; i++) {
        const uint8_t* p = rgb + 3 * i;
        obs[i] = (uint8_t)((77 * p[0] + 150 * p[1] + 29 * p[2]) >> 8);  // luma of BT.601
    }
}

static void observe(const Breakout* env) {
    if (env->obs == PIXELS)
        observe_pixels(env);
    else
        observe_features(env);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Breakout* env) {
    Breakout fresh = *env;
    derive(&fresh);
    int32_t left = num_bricks(env), bricks_left = 0;
    for (int32_t i = 0; i < BRICK_WORDS && left > 0; i++, left -= 64) {
        uint64_t counted = left >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << left) - 1;
        bricks_left += __builtin_popcountll(env->bricks[i] & counted);
    }
    const float fastest = 1.001f * fresh.max_speed;
    return env->brick_width == fresh.brick_width && env->max_speed == fresh.max_speed &&
           env->strides == fresh.strides && env->lives_left >= 1 && env->lives_left <= env->lives &&
           bricks_left > 0 && env->broken == num_bricks(env) - bricks_left &&
           puf_within(env->score, 0, (float)(7 * env->broken)) &&
           puf_within(env->paddle, 0, COURT) && puf_within(env->x, 0, COURT) &&
           puf_within(env->y, 0, COURT) && puf_within(env->vx, -fastest, fastest) &&
           puf_within(env->vy, -fastest, fastest);
}

static void shape(const void* self, PufLayout* layout) {
    const Breakout* env = self;
    if (env->obs == PIXELS)
        layout->obs = (PufObs)PUF_BOX_U8(COURT, COURT, 1);
    else
        layout->obs.shape[0] = NUM_FEATURES + num_bricks(env);
}

PUF_ENV(breakout, Breakout, .doc = "clear a wall of bricks with paddle and ball", .group = "arcade",
        .action_names = "stay left right", .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(3),
                   .width = 528,
                   .height = 584});
