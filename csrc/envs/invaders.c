// invaders - shoot five rows of marching enemies before they land; hide under bunkers.
//
// Lengths are whole units of a field of 224 x 240. One tick:
// 1. The cannon stays, moves 4 units to a side, or fires. Only one shot of its own flies at a time,
//    16 units a tick straight up.
// 2. The enemies march: together they make one move of 2 units whenever `march_speed` ticks' worth
//    of frames have passed for each enemy alive, so the fewer are left, the faster they are. At an
//    edge they come down by 8 instead and turn round. They flatten the bunkers that they reach.
// 3. An enemy at the bottom of its column may drop a bomb (up to 3 at once, 4 units a tick): half
//    of them in the column nearest to the cannon, the others in a random one.
// 4. A shot or bomb that meets a bunker takes a cell of 4 x 4 with it. A shot that meets an enemy
//    kills it: 30 points in the top row, 20 in the next two, 10 in the lowest two. Sometimes a
//    saucer crosses above them, worth 50, 100, 150 or 300.
// 5. A bomb that meets the cannon costs a life and clears the air. The game ends without lives,
//    when the enemies land, and when the last wave is cleared. Each wave begins 8 units lower, and
//    the bunkers are rebuilt.
//
// Observed are cannon, shot, the march, the saucer, the nearest column of enemies and the bombs,
// all relative to the cannon, and a radar: for each of 17 columns of 8 units around the cannon the
// height of the lowest enemy and of the lowest bomb in it, and how much of a bunker covers it.
#include <stdlib.h>

#include "puf_env.h"

enum {
    WIDTH = 224,
    HEIGHT = 240,
    ROWS = 5,
    COLS = 11,
    NUM_ENEMIES = ROWS * COLS,
    PITCH = 16,  // of the grid of enemies
    ENEMY_WIDTH = 12,
    ENEMY_HEIGHT = 8,
    MARGIN = 4,  // between enemies and the edge of the field
    START_X = 24,
    START_Y = 40,
    SAUCER_Y = 20,
    SAUCER_WIDTH = 16,
    CANNON_Y = 208,
    HALF_CANNON = 7,
    CANNON_SPEED = 4,
    SHOT_SPEED = 16,
    CELL = 4,  // of a bunker, and the least move of shots and bombs
    NUM_BUNKERS = 4,
    BUNKER_X = 32,
    BUNKER_PITCH = 45,
    BUNKER_Y = 176,
    BUNKER_COLS = 6,
    BUNKER_ROWS = 4,
    MAX_BOMBS = 3,
    BIN = 8,        // width of a column of the radar
    NUM_BINS = 17,  // of which the middle one is above the cannon
    NUM_FEATURES = 17 + 3 * MAX_BOMBS + 3 * NUM_BINS,
};

enum { STAY, LEFT, RIGHT, FIRE };

typedef struct {
    int32_t x, y;  // y 0: none
} Missile;

typedef struct {
    PufSlots slots;
    int32_t cannon;  // middle of the cannon
    Missile shot, bombs[MAX_BOMBS];
    uint16_t rows[ROWS];  // bit c: the enemy in column c lives; row 0 is the top one
    uint8_t bunkers[NUM_BUNKERS][BUNKER_ROWS];  // bit c: the cell in column c stands
    int32_t x, y;                               // top left corner of the grid of enemies
    int32_t direction;                          // 1 or -1
    int32_t frames;                             // towards the next move
    int32_t saucer, saucer_direction;           // its left end; direction 0: none
    int32_t lives_left, wave, killed, alive;
    float score, perf, waves_cleared;
    int32_t waves, lives, march_speed, max_steps;
    float bomb_rate, reward_death;
} Invaders;

static const PufField params[] = {
    PUF_PARAM_I32(Invaders, waves, 2, 1, 100, "waves to clear"),
    PUF_PARAM_I32(Invaders, lives, 3, 1, 100, "cannons"),
    PUF_PARAM_I32(Invaders, march_speed, 4, 1, 16, "frames per tick of the march"),
    PUF_PARAM_F32(Invaders, bomb_rate, 0.06, 0, 1, "chance of a new bomb per tick"),
    PUF_PARAM_I32(Invaders, max_steps, 4000, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Invaders, reward_death, -1, -10, 10, "reward for losing a cannon"),
};

static const PufField metrics[] = {
    PUF_METRIC(Invaders, score, "points for enemies and saucers"),
    PUF_METRIC(Invaders, perf, "share of the enemies of all waves that were killed"),
    PUF_METRIC(Invaders, waves_cleared, "waves cleared"),
};

static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t max_int(int32_t a, int32_t b) { return a > b ? a : b; }

// ---- The grid of enemies ------------------------------------------------------------------------

static inline uint32_t columns_alive(const Invaders* env) {
    uint32_t columns = 0;
    for (int32_t row = 0; row < ROWS; row++) columns |= env->rows[row];
    return columns;
}

// Row of the lowest enemy in the columns of `mask`; -1 if there is none.
static inline int32_t lowest_row(const Invaders* env, uint32_t mask) {
    int32_t row = ROWS - 1;
    while (row >= 0 && !(env->rows[row] & mask)) row--;
    return row;
}

static inline int32_t left_edge(const Invaders* env, uint32_t columns) {
    return env->x + PITCH * __builtin_ctz(columns);
}

static inline int32_t right_edge(const Invaders* env, uint32_t columns) {
    return env->x + PITCH * (31 - __builtin_clz(columns)) + ENEMY_WIDTH;
}

// Bottom of the lowest enemy.
static inline int32_t front(const Invaders* env) {
    return env->y + PITCH * lowest_row(env, ~0u) + ENEMY_HEIGHT;
}

// ---- Rules --------------------------------------------------------------------------------------

static void begin_wave(Invaders* env) {
    static const uint8_t bunker[BUNKER_ROWS] = {0x1E, 0x3F, 0x3F, 0x33};
    for (int32_t row = 0; row < ROWS; row++) env->rows[row] = (1u << COLS) - 1;
    for (int32_t i = 0; i < NUM_BUNKERS; i++) memcpy(env->bunkers[i], bunker, sizeof bunker);
    memset(env->bombs, 0, sizeof env->bombs);
    env->shot = (Missile){0, 0};
    env->x = START_X;
    env->y = START_Y + 8 * min_int(env->wave, 4);
    env->direction = 1;
    env->frames = env->saucer = env->saucer_direction = 0;
    env->alive = NUM_ENEMIES;
}

static void reset(Invaders* env) {
    env->cannon = WIDTH / 2;
    env->lives_left = env->lives;
    env->wave = env->killed = 0;
    env->score = env->perf = env->waves_cleared = 0;
    begin_wave(env);
}

static void act(Invaders* env) {
    const int32_t action = puf_action(&env->slots, 0);
    const int32_t move = action == LEFT ? -CANNON_SPEED : action == RIGHT ? CANNON_SPEED : 0;
    env->cannon = min_int(max_int(env->cannon + move, HALF_CANNON), WIDTH - 1 - HALF_CANNON);
    if (action == FIRE && !env->shot.y) env->shot = (Missile){env->cannon, CANNON_Y};
}

// Takes the rows of all bunkers that enemies have reached.
static void flatten(Invaders* env) {
    const int32_t reached = (front(env) - BUNKER_Y + CELL - 1) / CELL;
    for (int32_t i = 0; i < NUM_BUNKERS; i++)
        for (int32_t row = 0; row < min_int(reached, BUNKER_ROWS); row++) env->bunkers[i][row] = 0;
}

static void march(Invaders* env) {
    const uint32_t columns = columns_alive(env);
    for (env->frames += env->march_speed; env->frames >= env->alive; env->frames -= env->alive) {
        const bool at_edge = env->direction > 0 ? right_edge(env, columns) + 2 > WIDTH - MARGIN
                                                : left_edge(env, columns) - 2 < MARGIN;
        if (!at_edge) {
            env->x += 2 * env->direction;
            continue;
        }
        env->y += 8;
        env->direction = -env->direction;
        if (front(env) > BUNKER_Y) flatten(env);
        if (front(env) >= CANNON_Y) {
            env->frames = 0;
            return;
        }
    }
}

static void move_saucer(Invaders* env) {
    if (env->saucer_direction) {
        env->saucer += 2 * env->saucer_direction;
        if (env->saucer < -SAUCER_WIDTH || env->saucer > WIDTH) env->saucer_direction = 0;
    } else if (puf_rand_int(&env->slots.rng, 400) == 0) {
        const bool from_left = puf_rand_int(&env->slots.rng, 2);
        env->saucer_direction = from_left ? 1 : -1;
        env->saucer = from_left ? -SAUCER_WIDTH : WIDTH;
    }
}

// Whether a bunker stops what is at (x, y); it loses that cell.
static bool hits_bunker(Invaders* env, int32_t x, int32_t y) {
    if (y < BUNKER_Y || y >= BUNKER_Y + BUNKER_ROWS * CELL || x < BUNKER_X) return false;
    const int32_t bunker = (x - BUNKER_X) / BUNKER_PITCH,
                  col = (x - BUNKER_X) % BUNKER_PITCH / CELL;
    if (bunker >= NUM_BUNKERS || col >= BUNKER_COLS) return false;
    uint8_t* cells = &env->bunkers[bunker][(y - BUNKER_Y) / CELL];
    if (!(*cells >> col & 1)) return false;
    *cells ^= (uint8_t)(1u << col);
    return true;
}

static bool hits_enemy(Invaders* env, int32_t x, int32_t y) {
    static const float points[ROWS] = {30, 20, 20, 10, 10};
    const int32_t right = x - env->x, down = y - env->y;
    if (right < 0 || down < 0 || right >= PITCH * COLS || down >= PITCH * ROWS) return false;
    if (right % PITCH >= ENEMY_WIDTH || down % PITCH >= ENEMY_HEIGHT) return false;
    const int32_t row = down / PITCH, col = right / PITCH;
    if (!(env->rows[row] >> col & 1)) return false;
    env->rows[row] ^= (uint16_t)(1u << col);
    env->alive--;
    env->killed++;
    env->score += points[row];
    puf_reward(&env->slots, 0, 0.5f + 0.01f * points[row]);
    return true;
}

static bool hits_saucer(Invaders* env, int32_t x, int32_t y) {
    static const float points[] = {50, 100, 150, 300};
    if (!env->saucer_direction || y < SAUCER_Y || y >= SAUCER_Y + ENEMY_HEIGHT || x < env->saucer ||
        x >= env->saucer + SAUCER_WIDTH)
        return false;
    const float bonus = points[puf_rand_int(&env->slots.rng, 4)];
    env->saucer_direction = 0;
    env->score += bonus;
    puf_reward(&env->slots, 0, 0.01f * bonus);
    return true;
}

static void move_shot(Invaders* env) {
    Missile* shot = &env->shot;
    for (int32_t way = 0; way < SHOT_SPEED && shot->y; way += CELL) {
        shot->y -= CELL;
        if (shot->y <= 8 || hits_bunker(env, shot->x, shot->y) ||
            hits_enemy(env, shot->x, shot->y) || hits_saucer(env, shot->x, shot->y))
            shot->y = 0;
    }
}

static void drop_bomb(Invaders* env, Missile* bomb) {
    PufRng* rng = &env->slots.rng;
    uint32_t columns = columns_alive(env);
    int32_t col;
    if (puf_rand_int(rng, 2)) {  // the column nearest to the cannon that has an enemy
        int32_t wanted = (env->cannon - env->x - ENEMY_WIDTH / 2 + PITCH / 2) / PITCH;
        wanted = min_int(max_int(wanted, 0), COLS - 1);
        for (int32_t away = 0;; away++) {
            if (wanted + away < COLS && columns >> (wanted + away) & 1) {
                col = wanted + away;
                break;
            }
            if (wanted >= away && columns >> (wanted - away) & 1) {
                col = wanted - away;
                break;
            }
        }
    } else {
        for (int32_t skip = puf_rand_int(rng, __builtin_popcount(columns)); skip; skip--)
            columns &= columns - 1;
        col = __builtin_ctz(columns);
    }
    bomb->x = env->x + PITCH * col + ENEMY_WIDTH / 2;
    bomb->y = env->y + PITCH * lowest_row(env, 1u << col) + ENEMY_HEIGHT;
}

// Whether a bomb meets the cannon.
static bool move_bombs(Invaders* env) {
    const bool one_more = puf_rand(&env->slots.rng) < env->bomb_rate;
    Missile* free = NULL;
    for (int32_t i = 0; i < MAX_BOMBS; i++) {
        Missile* bomb = &env->bombs[i];
        if (!bomb->y) {
            free = bomb;
            continue;
        }
        bomb->y += CELL;
        if (bomb->y >= CANNON_Y && bomb->x >= env->cannon - HALF_CANNON &&
            bomb->x <= env->cannon + HALF_CANNON)
            return true;
        if (bomb->y >= CANNON_Y + ENEMY_HEIGHT || hits_bunker(env, bomb->x, bomb->y)) bomb->y = 0;
    }
    if (one_more && free) drop_bomb(env, free);
    return false;
}

static PufStatus step(Invaders* env) {
    act(env);
    march(env);
    move_saucer(env);
    move_shot(env);
    env->perf = fminf((float)env->killed / (float)(NUM_ENEMIES * env->waves), 1);
    if (env->alive == 0) {
        env->waves_cleared = (float)++env->wave;
        if (env->wave == env->waves) return PUF_TERMINATED;
        begin_wave(env);
    }
    if (front(env) >= CANNON_Y) {
        puf_reward(&env->slots, 0, env->reward_death * (float)env->lives_left);
        return PUF_TERMINATED;
    }
    if (move_bombs(env)) {
        puf_reward(&env->slots, 0, env->reward_death);
        if (--env->lives_left == 0) return PUF_TERMINATED;
        memset(env->bombs, 0, sizeof env->bombs);
        env->shot.y = 0;
        env->cannon = WIDTH / 2;
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

// The bin of the radar over x, relative to the cannon; -1 if it is out of sight.
static inline int32_t bin_of(const Invaders* env, int32_t x) {
    const int32_t from_left = x - env->cannon + BIN * NUM_BINS / 2;
    return from_left < 0 || from_left >= BIN * NUM_BINS ? -1 : from_left / BIN;
}

// Offset of the nearest column of enemies.
static inline int32_t aim(const Invaders* env, uint32_t columns) {
    int32_t best = 2 * WIDTH;
    for (; columns; columns &= columns - 1) {
        const int32_t offset =
            env->x + PITCH * __builtin_ctz(columns) + ENEMY_WIDTH / 2 - env->cannon;
        if (abs(offset) < abs(best)) best = offset;
    }
    return best;
}

// Three rows of bins: the lowest enemy, the lowest bomb (their heights), and the bunkers' cover.
static void observe_radar(const Invaders* env, uint32_t columns, float* obs) {
    float *enemies = obs, *bombs = obs + NUM_BINS, *cover = bombs + NUM_BINS;
    memset(obs, 0, 3 * NUM_BINS * sizeof(float));
    for (; columns; columns &= columns - 1) {
        const int32_t col = __builtin_ctz(columns);
        const int32_t bin = bin_of(env, env->x + PITCH * col + ENEMY_WIDTH / 2);
        if (bin < 0) continue;
        const int32_t feet = env->y + PITCH * lowest_row(env, 1u << col) + ENEMY_HEIGHT;
        enemies[bin] = (float)feet * (1.0f / HEIGHT);
    }
    for (int32_t i = 0; i < MAX_BOMBS; i++) {
        const int32_t bin = bin_of(env, env->bombs[i].x);
        if (bin >= 0) bombs[bin] = fmaxf(bombs[bin], (float)env->bombs[i].y * (1.0f / HEIGHT));
    }
    for (int32_t i = 0; i < NUM_BUNKERS; i++)
        for (int32_t col = 0; col < BUNKER_COLS; col++) {
            const int32_t bin = bin_of(env, BUNKER_X + BUNKER_PITCH * i + CELL * col + CELL / 2);
            if (bin < 0) continue;
            for (int32_t row = 0; row < BUNKER_ROWS; row++)
                cover[bin] += 0.125f * (float)(env->bunkers[i][row] >> col & 1);
        }
}

static void observe(const Invaders* env) {
    const float wide = 1.0f / WIDTH, high = 1.0f / HEIGHT;
    const uint32_t columns = columns_alive(env);
    const int32_t nearest = aim(env, columns);
    float* obs = puf_obs_f32(&env->slots, 0);
    if (!columns) {  // the end of the last wave
        memset(obs, 0, NUM_FEATURES * sizeof(float));
        return;
    }
    obs[0] = (float)env->cannon * (2 * wide) - 1;
    obs[1] = env->shot.y != 0;
    obs[2] = env->shot.y ? (float)(env->shot.x - env->cannon) * wide : 0;
    obs[3] = (float)env->shot.y * high;
    obs[4] = (float)(left_edge(env, columns) - env->cannon) * wide;
    obs[5] = (float)(right_edge(env, columns) - env->cannon) * wide;
    obs[6] = (float)env->direction;
    obs[7] = (float)env->alive * (1.0f / NUM_ENEMIES);
    obs[8] = fminf((float)env->frames / (float)env->alive, 1);
    obs[9] = (float)env->lives_left / (float)env->lives;
    obs[10] = (float)env->saucer_direction;
    obs[11] = env->saucer_direction
                  ? (float)(env->saucer + SAUCER_WIDTH / 2 - env->cannon) * (0.5f * wide)
                  : 0;
    obs[12] = (float)(env->wave + 1) / (float)env->waves;
    obs[13] = (float)front(env) * high;
    obs[14] = (float)nearest * wide;
    obs[15] = fmaxf(fminf((float)nearest * (1.0f / PITCH), 1), -1);  // the same, closer up
    obs[16] = fminf(1.0f / (float)env->alive, 1);                    // speed of the march
    obs += 17;
    for (int32_t i = 0; i < MAX_BOMBS; i++, obs += 3) {
        const Missile* bomb = &env->bombs[i];
        obs[0] = bomb->y != 0;
        obs[1] = bomb->y ? (float)(bomb->x - env->cannon) * wide : 0;
        obs[2] = (float)bomb->y * high;
    }
    observe_radar(env, columns, obs);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { SCALE = 2 };

static void render(const Invaders* env, PufCanvas* canvas) {
    static const char* const squid[2][8] = {
        {"....##....", "...####...", "..######..", ".##.##.##.", ".########.", "...#..#...",
         "..#.##.#..", ".#.#..#.#."},
        {"....##....", "...####...", "..######..", ".##.##.##.", ".########.", "..#.##.#..",
         ".#......#.", "..#....#.."}};
    static const char* const crab[2][8] = {
        {"..#.....#..", "...#...#...", "..#######..", ".##.###.##.", "###########", "#.#######.#",
         "#.#.....#.#", "...##.##..."},
        {"..#.....#..", "#..#...#..#", "#.#######.#", "###.###.###", "###########", ".#########.",
         "..#.....#..", ".#.......#."}};
    static const char* const octopus[2][8] = {
        {"....####....", ".##########.", "############", "###..##..###", "############",
         "...##..##...", "..##.##.##..", "##........##"},
        {"....####....", ".##########.", "############", "###..##..###", "############",
         "..###..###..", ".##..##..##.", "..##....##.."}};
    static const char* const cannon[] = {".......#.......", "......###......", "......###......",
                                         ".#############.", "###############", "###############",
                                         "###############", "###############"};
    static const char* const saucer[] = {".....######.....", "...##########...", "..############..",
                                         ".##.##.##.##.##.", "################", "..###..##..###..",
                                         "...#........#..."};
    const int32_t pose = (env->x / 2) & 1;
    puf_clear(canvas, PUF_BLACK);
    for (int32_t row = 0; row < ROWS; row++)
        for (int32_t col = 0; col < COLS; col++) {
            if (!(env->rows[row] >> col & 1)) continue;
            const float x = (float)(SCALE * (env->x + PITCH * col));
            const float y = (float)(SCALE * (env->y + PITCH * row));
            if (row == 0)
                puf_sprite(canvas, x + SCALE, y, SCALE, squid[pose], 8, "#",
                           (const uint32_t[]){PUF_PINK});
            else if (row < 3)
                puf_sprite(canvas, x, y, SCALE, crab[pose], 8, "#", (const uint32_t[]){PUF_CYAN});
            else
                puf_sprite(canvas, x, y, SCALE, octopus[pose], 8, "#",
                           (const uint32_t[]){PUF_YELLOW});
        }
    if (env->saucer_direction)
        puf_sprite(canvas, (float)(SCALE * env->saucer), SCALE * SAUCER_Y, SCALE, saucer, 7, "#",
                   (const uint32_t[]){PUF_RED});
    for (int32_t i = 0; i < NUM_BUNKERS; i++)
        for (int32_t row = 0; row < BUNKER_ROWS; row++)
            for (int32_t col = 0; col < BUNKER_COLS; col++)
                if (env->bunkers[i][row] >> col & 1)
                    puf_rect(canvas, (float)(SCALE * (BUNKER_X + BUNKER_PITCH * i + CELL * col)),
                             (float)(SCALE * (BUNKER_Y + CELL * row)), SCALE * CELL, SCALE * CELL,
                             PUF_GREEN);
    puf_sprite(canvas, (float)(SCALE * (env->cannon - HALF_CANNON)), SCALE * CANNON_Y, SCALE,
               cannon, 8, "#", (const uint32_t[]){PUF_GREEN});
    if (env->shot.y)
        puf_rect(canvas, (float)(SCALE * env->shot.x - 1), (float)(SCALE * env->shot.y), 3, 12,
                 PUF_WHITE);
    for (int32_t i = 0; i < MAX_BOMBS; i++) {
        const Missile* bomb = &env->bombs[i];
        for (int32_t part = 0; bomb->y && part < 4; part++)  // a zigzag
            puf_rect(canvas, (float)(SCALE * bomb->x + (part & 1 ? -3 : 0)),
                     (float)(SCALE * bomb->y - 12 + 3 * part), 4, 3, PUF_ORANGE);
    }
    puf_rect(canvas, 0, SCALE * (HEIGHT - 20), SCALE * WIDTH, 2, PUF_GREEN);
    puf_textf(canvas, 10, 8, 2, PUF_PAPER, "SCORE %d", (int)env->score);
    puf_textf(canvas, 300, 8, 2, PUF_YELLOW, "WAVE %d/%d", (int)(env->wave + 1), (int)env->waves);
    for (int32_t i = 1; i < min_int(env->lives_left, 8); i++)
        puf_sprite(canvas, (float)(36 * i - 26), SCALE * (HEIGHT - 16), SCALE, cannon, 8, "#",
                   (const uint32_t[]){PUF_GREEN});
}

// ---- Validation ---------------------------------------------------------------------------------

static bool missile_valid(const Missile* missile) {
    return missile->x >= 0 && missile->x < WIDTH && missile->y >= 0 && missile->y < HEIGHT &&
           missile->y % CELL == 0;
}

static bool valid(const Invaders* env) {
    int32_t alive = 0;
    for (int32_t row = 0; row < ROWS; row++) {
        if (env->rows[row] >> COLS) return false;
        alive += __builtin_popcount(env->rows[row]);
    }
    if (alive != env->alive || alive == 0) return false;
    const uint32_t columns = columns_alive(env);
    if (env->x < -PITCH * COLS || env->x > WIDTH || env->y < START_Y || env->y > HEIGHT ||
        env->y % 8 || left_edge(env, columns) < 0 || right_edge(env, columns) > WIDTH ||
        front(env) >= CANNON_Y)
        return false;
    for (int32_t i = 0; i < MAX_BOMBS; i++)
        if (!missile_valid(&env->bombs[i])) return false;
    for (int32_t i = 0; i < NUM_BUNKERS; i++)
        for (int32_t row = 0; row < BUNKER_ROWS; row++)
            if (env->bunkers[i][row] >> BUNKER_COLS) return false;
    return missile_valid(&env->shot) && env->shot.y <= CANNON_Y && env->cannon >= HALF_CANNON &&
           env->cannon <= WIDTH - 1 - HALF_CANNON &&
           (env->direction == 1 || env->direction == -1) && env->frames >= 0 &&
           env->frames < NUM_ENEMIES && env->saucer_direction >= -1 && env->saucer_direction <= 1 &&
           env->saucer >= -SAUCER_WIDTH - 2 && env->saucer <= WIDTH + 2 && env->lives_left >= 1 &&
           env->lives_left <= env->lives && env->wave >= 0 && env->wave < env->waves &&
           env->slots.tick < env->max_steps && env->killed >= 0 && env->killed <= env->slots.tick &&
           puf_within(env->score, 0, 300 * (float)env->slots.tick);
}

PUF_ENV(invaders, Invaders, .doc = "shoot rows of marching enemies before they land",
        .group = "arcade", .action_names = "stay left right fire",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(4),
            .width = SCALE * WIDTH,
            .height = SCALE * HEIGHT});
