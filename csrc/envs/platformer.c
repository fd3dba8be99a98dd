// platformer - run and jump through a generated level to the coin at its end.
//
// A level is a row of columns: ground of some height, or a gap, with floating platforms over wide
// gaps, saws that stand still and saws that patrol. It follows from its number alone. A step is
// `frameskip` ticks of the same action; lengths are tiles, speeds are tiles per tick.
//
// 15 actions: 5 x direction (0 stand, 1 left, 2 right) + kind (0 walk, 1 walk and jump, 2 sprint,
// 3 sprint and jump, 4 walk and fall fast). A jump starts on the ground only. Touching the coin
// ends the episode with a reward; touching a saw or falling into a gap ends it without.
//
// With num_levels = 0 every episode plays a new level, so perf is measured on levels that were
// never trained on. With num_levels = n episodes choose among the n levels from start_level on;
// evaluate such a policy with another start_level.
//
// obs = tiles: the window of 13 x 9 tiles around the player (1 solid, -1 saw, 0.5 coin), then its
// place within its tile, velocity, footing, the way to the coin, and the two nearest saws.
// obs = pixels: 64 x 64 RGB of the same canvas that renders.
#include "puf_env.h"

enum {
    MAX_LENGTH = 96,
    START_HEIGHT = 3,
    LOWEST = 1,
    HIGHEST = 7,  // of the ground
    CEILING = 14,
    MAX_SAWS = 12,
    BEHIND = 3,  // columns in the window
    AHEAD = 9,
    WINDOW_COLS = BEHIND + 1 + AHEAD,
    WINDOW_ROWS = 9,
    NUM_NEAR = 2,
    NUM_FEATURES = WINDOW_COLS * WINDOW_ROWS + 7 + 3 * NUM_NEAR,
    PIXELS = 64,
};
enum { TILES_OBS, PIXELS_OBS };
enum { STAND, GO_LEFT, GO_RIGHT };
enum { WALK, WALK_JUMP, SPRINT, SPRINT_JUMP, DROP, NUM_KINDS };

static const float HALF_WIDTH = 0.35f, TALL = 0.9f;  // of the player
static const float GRAVITY = 0.03f, JUMP = 0.42f, WALKING = 0.15f, SPRINTING = 0.25f;
static const float TOP_FALL = 0.6f, SAW_RADIUS = 0.45f, SAW_SPEED = 0.05f;

typedef struct {
    float x, y, range;  // its middle; it patrols from x - range to x + range
} Saw;

typedef struct {
    PufSlots slots;
    uint8_t ground[MAX_LENGTH];    // height of the ground; 0: a gap
    uint8_t platform[MAX_LENGTH];  // row of a floating tile; 0: none
    Saw saws[MAX_SAWS];
    int32_t num_saws, level;
    int32_t coin;                  // its column; it lies on the ground
    float x, y, vx, vy, farthest;  // x: middle of the player, y: its feet
    int32_t on_ground, faces;      // faces: 1 right, -1 left
    int32_t clock;                 // ticks since the start, for the saws
    float score, perf;
    int32_t obs, length, num_levels, start_level, frameskip, max_steps;
    float difficulty, reward_coin, reward_tile, reward_death;
} Platformer;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Platformer, obs, TILES_OBS, 2, "tiles|pixels",
                     "what the agent sees: a window of tiles, or 64 x 64 RGB"),
    PUF_PARAM_I32(Platformer, length, 64, 24, MAX_LENGTH, "length of a level in tiles"),
    PUF_PARAM_I32(Platformer, num_levels, 0, 0, 1000000, "levels to play; 0: a new one each time"),
    PUF_PARAM_I32(Platformer, start_level, 0, 0, 1000000, "number of the first of these levels"),
    PUF_PARAM_F32(Platformer, difficulty, 1, 0, 1, "share of obstacles among the sections"),
    PUF_PARAM_I32(Platformer, frameskip, 3, 1, 8, "physics ticks per step"),
    PUF_PARAM_I32(Platformer, max_steps, 400, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Platformer, reward_coin, 1, -10, 10, "reward for the coin"),
    PUF_PARAM_F32(Platformer, reward_tile, 0.05, -1, 1, "reward for each new tile to the right"),
    PUF_PARAM_F32(Platformer, reward_death, 0, -10, 10, "reward for a saw or a fall"),
};

static const PufField metrics[] = {
    PUF_METRIC(Platformer, score, "tiles covered"),
    PUF_METRIC(Platformer, perf, "1 if the coin was taken, else 0"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }
static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t max_int(int32_t a, int32_t b) { return a > b ? a : b; }

// ---- Levels -------------------------------------------------------------------------------------

enum { FLAT, STEP, GAP, WIDE_GAP, STILL_SAW, MOVING_SAW, NUM_SECTIONS };

static void lay_ground(Platformer* env, int32_t* at, int32_t count, int32_t height) {
    for (; count > 0 && *at < env->length; count--) env->ground[(*at)++] = (uint8_t)height;
}

static void add_saw(Platformer* env, float x, float y, float range) {
    if (env->num_saws < MAX_SAWS) env->saws[env->num_saws++] = (Saw){x, y, range};
}

// Every obstacle stands between flat parts that are long enough to take off and to land.
static void lay_section(Platformer* env, PufRng* rng, int32_t* at, int32_t* height) {
    const bool hard = puf_rand(rng) < env->difficulty;
    const int32_t kind = hard ? puf_rand_int(rng, NUM_SECTIONS) : FLAT;
    const float first = (float)*at, top = (float)*height;
    if (kind == STEP) {
        const int32_t change = (puf_rand_int(rng, 2) ? 1 : -1) * (1 + puf_rand_int(rng, 2));
        *height = min_int(max_int(*height + change, LOWEST), HIGHEST);
    } else if (kind == GAP) {
        lay_ground(env, at, 2 + puf_rand_int(rng, 2), 0);
    } else if (kind == WIDE_GAP) {
        for (int32_t i = 2; i < 4 && *at + i < env->length; i++)
            env->platform[*at + i] = (uint8_t)*height;
        lay_ground(env, at, 6, 0);
    } else if (kind == STILL_SAW) {
        add_saw(env, first + 3.5f, top + SAW_RADIUS, 0);
        lay_ground(env, at, 4, *height);
    } else if (kind == MOVING_SAW) {
        add_saw(env, first + 4, top + SAW_RADIUS, 1.5f);
        lay_ground(env, at, 5, *height);
    }
    lay_ground(env, at, 3 + puf_rand_int(rng, 2), *height);
}

static void build(Platformer* env) {
    PufRng rng = {puf_mix64((uint64_t)env->level + 1)};
    int32_t at = 0, height = START_HEIGHT;
    memset(env->ground, 0, sizeof env->ground);
    memset(env->platform, 0, sizeof env->platform);
    env->num_saws = 0;
    lay_ground(env, &at, 6, height);
    while (at < env->length - 15) lay_section(env, &rng, &at, &height);
    lay_ground(env, &at, MAX_LENGTH, height);
    env->coin = env->length - 3;
}

// Outside the level is a wall to the left and to the right, and nothing above and below.
static inline bool is_solid(const Platformer* env, int32_t x, int32_t y) {
    if (x < 0 || x >= env->length) return true;
    return y >= 0 && (y < env->ground[x] || (env->platform[x] && y == env->platform[x] - 1));
}

// A floor that is right for negative numbers too.
static inline int32_t tile_of(float v) { return (int32_t)(v + 64) - 64; }

static inline float saw_x(const Saw* saw, int32_t clock) {
    if (saw->range <= 0) return saw->x;
    const float way = 4 * saw->range;  // there and back
    float along = SAW_SPEED * (float)clock;
    along -= way * (float)(int32_t)(along / way);
    return saw->x - saw->range + (along < 0.5f * way ? along : way - along);
}

// ---- Rules --------------------------------------------------------------------------------------

static void reset(Platformer* env) {
    PufRng* rng = &env->slots.rng;
    env->level = env->num_levels ? env->start_level + puf_rand_int(rng, env->num_levels)
                                 : (int32_t)(puf_rand_u32(rng) >> 1);
    build(env);
    env->x = env->farthest = 2;
    env->y = START_HEIGHT;
    env->vx = env->vy = 0;
    env->on_ground = env->faces = 1;
    env->clock = 0;
    env->score = env->perf = 0;
}

// Whether the player's box would overlap a solid tile.
static bool is_blocked(const Platformer* env, float x, float y) {
    const int32_t left = tile_of(x - HALF_WIDTH), right = tile_of(x + HALF_WIDTH);
    const int32_t low = tile_of(y + 0.001f), high = tile_of(y + TALL);
    return is_solid(env, left, low) || is_solid(env, right, low) || is_solid(env, left, high) ||
           is_solid(env, right, high);
}

static void move(Platformer* env, int32_t direction, int32_t kind) {
    const bool sprints = kind == SPRINT || kind == SPRINT_JUMP;
    const float speed = sprints ? SPRINTING : WALKING;
    env->vx = direction == GO_LEFT ? -speed : direction == GO_RIGHT ? speed : 0;
    if (direction != STAND) env->faces = direction == GO_RIGHT ? 1 : -1;
    if (env->on_ground && (kind == WALK_JUMP || kind == SPRINT_JUMP)) env->vy = JUMP;
    env->vy = fmaxf(env->vy - (kind == DROP ? 2 * GRAVITY : GRAVITY), -TOP_FALL);
    if (is_blocked(env, env->x + env->vx, env->y))
        env->vx = 0;
    else
        env->x += env->vx;
    const float y = env->y + env->vy;
    env->on_ground = 0;
    if (!is_blocked(env, env->x, y)) {
        env->y = y;
    } else {
        if (env->vy < 0) {  // down to the top of the tile that it met
            env->y = (float)tile_of(y + 0.001f) + 1;
            env->on_ground = 1;
        }
        env->vy = 0;
    }
    if (env->y > CEILING) {
        env->y = CEILING;
        env->vy = 0;
    }
}

static bool touches(const Platformer* env, float x, float y, float radius) {
    const float dx = clamp(x - env->x, -HALF_WIDTH, HALF_WIDTH) + env->x - x;
    const float dy = clamp(y - env->y, 0, TALL) + env->y - y;
    return dx * dx + dy * dy < radius * radius;
}

static bool is_sawn(const Platformer* env) {
    for (int32_t i = 0; i < env->num_saws; i++)
        if (touches(env, saw_x(&env->saws[i], env->clock), env->saws[i].y, SAW_RADIUS)) return true;
    return false;
}

static PufStatus step(Platformer* env) {
    const int32_t action = puf_action(&env->slots, 0);
    for (int32_t tick = 0; tick < env->frameskip; tick++) {
        env->clock++;
        move(env, action / NUM_KINDS, action % NUM_KINDS);
        if (env->x > env->farthest) {
            puf_reward(&env->slots, 0, env->reward_tile * (env->x - env->farthest));
            env->farthest = env->x;
            env->score = env->farthest - 2;
        }
        if (touches(env, (float)env->coin + 0.5f, (float)env->ground[env->coin] + 0.5f, 0.4f)) {
            env->perf = 1;
            puf_reward(&env->slots, 0, env->reward_coin);
            return PUF_TERMINATED;
        }
        if (is_sawn(env) || env->y < -1) {
            puf_reward(&env->slots, 0, env->reward_death);
            return PUF_TERMINATED;
        }
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Picture ------------------------------------------------------------------------------------

enum { VIEW_COLS = 14, VIEW_ROWS = 12, SCALE = 40, HEADER = 36 };

// The part of the level around the player, with `scale` pixels per tile, from (0, top) down.
static void draw_view(const Platformer* env, PufCanvas* canvas, float top, float scale) {
    const float rows = ((float)canvas->height - top) / scale, cols = (float)canvas->width / scale;
    const float left = clamp(env->x - 0.35f * cols, 0, fmaxf((float)env->length - cols, 0));
    const float floor_y = top + rows * scale;  // y of height 0
    puf_rect(canvas, 0, top, (float)canvas->width, rows * scale, 0x8FD0F0);
    for (int32_t i = 0; i < 8; i++) {  // hills, at half the speed
        const float x = (13.0f * (float)i - 0.5f * left) * scale;
        puf_circle(canvas, x, floor_y, 4.5f * scale, 0x79BDB0);
        puf_circle(canvas, x + 5 * scale, floor_y, 3.2f * scale, 0x8ACDB8);
    }
    const int32_t first = max_int((int32_t)left, 0);
    for (int32_t col = first; col < min_int(first + (int32_t)cols + 2, env->length); col++) {
        const float x = ((float)col - left) * scale, height = (float)env->ground[col];
        if (env->ground[col]) {
            puf_rect(canvas, x, floor_y - height * scale, scale, height * scale, 0x9A6B42);
            puf_rect(canvas, x, floor_y - height * scale, scale, 0.3f * scale, 0x4FA64F);
        } else {
            puf_rect(canvas, x, floor_y - 0.4f * scale, scale, 0.4f * scale, 0x2B2440);
        }
        if (env->platform[col])
            puf_rect(canvas, x, floor_y - (float)env->platform[col] * scale, scale, 0.5f * scale,
                     0xC98F4E);
    }
    const float coin_x = ((float)env->coin + 0.5f - left) * scale;
    const float coin_y = floor_y - ((float)env->ground[env->coin] + 0.5f) * scale;
    puf_circle(canvas, coin_x, coin_y, 0.42f * scale, 0xE0A91B);
    puf_circle(canvas, coin_x, coin_y, 0.3f * scale, 0xFFE066);
    for (int32_t i = 0; i < env->num_saws; i++) {
        const float x = (saw_x(&env->saws[i], env->clock) - left) * scale;
        const float y = floor_y - env->saws[i].y * scale, radius = SAW_RADIUS * scale;
        float xy[32];
        for (int32_t k = 0; k < 16; k++) {  // teeth; the angle runs with the clock
            const float angle = 0.3927f * (float)k + 0.3f * (float)(env->clock % 21);
            const float r = k % 2 ? radius : 0.72f * radius;
            xy[2 * k] = x + r * cosf(angle);
            xy[2 * k + 1] = y + r * sinf(angle);
        }
        puf_polygon(canvas, xy, 16, 0x5A6470);
        puf_circle(canvas, x, y, 0.3f * radius, PUF_PAPER);
    }
    const float x = (env->x - left) * scale, y = floor_y - env->y * scale;
    const float wide = HALF_WIDTH * scale, tall = TALL * scale;
    puf_rect(canvas, x - wide, y - tall, 2 * wide, 0.75f * tall, PUF_RED);
    puf_rect(canvas, x - wide, y - 0.35f * tall, 2 * wide, 0.2f * tall, PUF_BLUE);
    const float stride = env->on_ground && env->vx != 0 && env->clock % 6 < 3 ? 0.3f : 0.0f;
    puf_rect(canvas, x - wide, y - 0.2f * tall, (0.8f - stride) * wide, 0.2f * tall, PUF_INK);
    puf_rect(canvas, x + (0.2f + stride) * wide, y - 0.2f * tall, (0.8f - stride) * wide,
             0.2f * tall, PUF_INK);
    puf_rect(canvas, x - 0.8f * wide + 0.3f * wide * (float)env->faces, y - 0.85f * tall,
             1.6f * wide, 0.3f * tall, 0xFFD9B3);
    puf_rect(canvas, x + wide * (env->faces > 0 ? 0.35f : -0.75f), y - 0.8f * tall, 0.4f * wide,
             0.15f * tall, PUF_INK);
}

static void render(const Platformer* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_INK);
    draw_view(env, canvas, HEADER, SCALE);
    puf_rect(canvas, 0, 0, (float)canvas->width, HEADER, PUF_INK);
    puf_textf(canvas, 10, 10, 2, PUF_PAPER, "LEVEL %d", (int)env->level);
    puf_textf(canvas, 340, 10, 2, PUF_YELLOW, "%d OF %d TILES", (int)env->score,
              (int)(env->coin - 2));
}

// ---- Observations -------------------------------------------------------------------------------

static void observe_window(const Platformer* env, float* obs) {
    const int32_t left = tile_of(env->x) - BEHIND, low = tile_of(env->y) - WINDOW_ROWS / 2;
    for (int32_t col = 0; col < WINDOW_COLS; col++, obs += WINDOW_ROWS) {
        const int32_t x = left + col;
        if (x < 0 || x >= env->length) {
            for (int32_t row = 0; row < WINDOW_ROWS; row++) obs[row] = 1;
            continue;
        }
        const int32_t ground = env->ground[x], platform = env->platform[x] - 1;
        for (int32_t row = 0; row < WINDOW_ROWS; row++) {
            const int32_t y = low + row;
            obs[row] = (y >= 0 && y < ground) || (platform >= 0 && y == platform);
        }
        const int32_t coin_row = ground - low;
        if (x == env->coin && coin_row >= 0 && coin_row < WINDOW_ROWS) obs[coin_row] = 0.5f;
    }
    obs -= WINDOW_COLS * WINDOW_ROWS;
    for (int32_t i = 0; i < env->num_saws; i++) {
        const int32_t col = tile_of(saw_x(&env->saws[i], env->clock)) - left;
        const int32_t row = tile_of(env->saws[i].y) - low;
        if (col >= 0 && col < WINDOW_COLS && row >= 0 && row < WINDOW_ROWS)
            obs[col * WINDOW_ROWS + row] = -1;
    }
}

static void observe_tiles(const Platformer* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    observe_window(env, obs);
    obs += WINDOW_COLS * WINDOW_ROWS;
    obs[0] = clamp(env->x - (float)tile_of(env->x), 0, 1);
    obs[1] = clamp(env->y - (float)tile_of(env->y), 0, 1);
    obs[2] = env->vx * (1 / SPRINTING);
    obs[3] = clamp(env->vy * (1 / TOP_FALL), -1, 1);
    obs[4] = (float)env->on_ground;
    obs[5] = clamp(((float)env->coin - env->x) * (1.0f / MAX_LENGTH), -1, 1);
    obs[6] = clamp(env->y * (1.0f / CEILING), -1, 1);
    obs += 7;
    float offsets[NUM_NEAR];  // of the first saws that are not far behind; they are laid in order
    int32_t count = 0;
    for (int32_t i = 0; i < env->num_saws && count < NUM_NEAR; i++) {
        const float offset = saw_x(&env->saws[i], env->clock) - env->x;
        if (offset < -BEHIND) continue;
        const float next = saw_x(&env->saws[i], env->clock + 1) - env->x;
        offsets[count] = clamp(offset * 0.1f, -1, 1);
        obs[3 * count] = offsets[count];
        obs[3 * count + 1] = clamp((env->saws[i].y - env->y) * 0.1f, -1, 1);
        obs[3 * count + 2] = clamp((next - offset) * (1 / SAW_SPEED), -1, 1);
        count++;
    }
    for (; count < NUM_NEAR; count++) {
        obs[3 * count] = 1;
        obs[3 * count + 1] = obs[3 * count + 2] = 0;
    }
}

static void observe(const Platformer* env) {
    if (env->obs == PIXELS_OBS) {
        PufCanvas canvas = {puf_obs_u8(&env->slots, 0), PIXELS, PIXELS};
        draw_view(env, &canvas, 0, (float)PIXELS / VIEW_ROWS);
    } else {
        observe_tiles(env);
    }
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Platformer* env) {
    for (int32_t i = 0; i < MAX_LENGTH; i++)
        if (env->ground[i] > HIGHEST || env->platform[i] > HIGHEST) return false;
    if (env->num_saws < 0 || env->num_saws > MAX_SAWS) return false;
    for (int32_t i = 0; i < env->num_saws; i++)
        if (!puf_within(env->saws[i].x, 0, MAX_LENGTH) || !puf_within(env->saws[i].y, 0, CEILING) ||
            (env->saws[i].range != 0 && env->saws[i].range != 1.5f))
            return false;
    return env->level >= 0 && env->coin == env->length - 3 && puf_within(env->x, 0, MAX_LENGTH) &&
           puf_within(env->y, -1, CEILING) && puf_within(env->vx, -SPRINTING, SPRINTING) &&
           puf_within(env->vy, -TOP_FALL, JUMP) && puf_within(env->farthest, 0, MAX_LENGTH) &&
           (env->on_ground == 0 || env->on_ground == 1) && (env->faces == 1 || env->faces == -1) &&
           env->slots.tick < env->max_steps && env->clock == env->slots.tick * env->frameskip &&
           puf_within(env->score, -2, MAX_LENGTH);
}

static void shape(const void* self, PufLayout* layout) {
    if (((const Platformer*)self)->obs == PIXELS_OBS)
        layout->obs = (PufObs)PUF_BOX_U8(PIXELS, PIXELS, 3);
}

PUF_ENV(platformer, Platformer, .doc = "run and jump through generated levels to the coin",
        .group = "worlds", .shape = shape,
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(15),
            .width = VIEW_COLS * SCALE,
            .height = HEADER + VIEW_ROWS * SCALE});
