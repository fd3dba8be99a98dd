// g2048 - slide the tiles of a 4 x 4 board; equal tiles that meet merge into their sum.
//
// A move slides all tiles as far as they go. Tiles merge in the order in which they arrive at the
// edge, each at most once per move. After a move that changed the board, a 2 (or, one time in ten,
// a 4) appears in a random empty cell. The game ends when no move changes the board. A move that
// changes nothing is masked; taken anyway, it does nothing. The game goes on after 2048.
//
// The observation has a row for each cell, from the top left: which power of two its tile is, as
// one of KINDS flags, where the first one means empty; then whether the tile is equal to its right
// neighbour, and to the one below, and whether it is half or twice as much as these. The reward is
// the worth of the merged tiles as a share of 2048.
#include "puf_env.h"

enum { SIDE = 4, CELLS = SIDE * SIDE, MAX_TILE = 17, KINDS = MAX_TILE + 1 };
enum { EQUAL_RIGHT = KINDS, EQUAL_BELOW, NEAR_RIGHT, NEAR_BELOW, FLAGS };  // of a cell's row
enum { LEFT, RIGHT, UP, DOWN, NUM_MOVES };
enum { GOAL = 11 };  // 2^11 is 2048

// Exponents: 0 is empty, 1 is the tile 2. 2^17 is the largest tile that play can reach, and only
// one of them fits the board.
typedef uint8_t Board __attribute__((vector_size(CELLS)));

typedef struct {
    PufSlots slots;
    uint8_t tiles[CELLS];
    int32_t points;  // sum of the merged tiles
    int32_t legal;   // bit m: move m changes the board
    float score, perf, reached, highest;
    int32_t max_steps;
    float four_odds;
} Game;

static const PufField params[] = {
    PUF_PARAM_F32(Game, four_odds, 0.1, 0, 1, "share of new tiles that are a 4"),
    PUF_PARAM_I32(Game, max_steps, 10000, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Game, score, "sum of all merged tiles"),
    PUF_METRIC(Game, perf, "exponent of the highest tile / 11, at most 1: 512 is 0.82, 2048 is 1"),
    PUF_METRIC(Game, reached, "1 if there is a tile of 2048 or more, else 0"),
    PUF_METRIC(Game, highest, "the highest tile"),
};

// ---- Rules --------------------------------------------------------------------------------------

// Slides one line of tiles, whose first cell is at the edge; returns the worth of its merges.
static inline int32_t slide(uint8_t* tiles, int32_t edge, int32_t stride) {
    uint8_t line[SIDE + 1] = {0};
    int32_t length = 0, points = 0;
    bool open = false;  // whether the last tile may still merge
    for (int32_t i = 0; i < SIDE; i++) {
        const uint8_t tile = tiles[edge + i * stride];
        if (!tile) continue;
        if (open && line[length - 1] == tile && tile < MAX_TILE) {
            line[length - 1]++;
            points += 2 << tile;
            open = false;
        } else {
            line[length++] = tile;
            open = true;
        }
    }
    for (int32_t i = 0; i < SIDE; i++) tiles[edge + i * stride] = line[i];
    return points;
}

static int32_t slide_all(uint8_t* tiles, int32_t move) {
    static const int32_t first[NUM_MOVES] = {0, SIDE - 1, 0, CELLS - SIDE};
    static const int32_t lines[NUM_MOVES] = {SIDE, SIDE, 1, 1};
    static const int32_t strides[NUM_MOVES] = {1, -1, SIDE, -SIDE};
    int32_t points = 0;
    for (int32_t i = 0; i < SIDE; i++)
        points += slide(tiles, first[move] + i * lines[move], strides[move]);
    return points;
}

// The moves that change the board, as bits: a tile has an empty cell or an equal tile ahead.
static inline int32_t find_moves(const uint8_t* tiles) {
    // Row 0 and the cells before and after each row hold a wall that no tile equals or can enter.
    enum { WALL = 255 };
    static const int32_t ahead[NUM_MOVES] = {-1, 1, -SIDE, SIDE};
    static const Board rims[NUM_MOVES] = {
        {WALL, 0, 0, 0, WALL, 0, 0, 0, WALL, 0, 0, 0, WALL, 0, 0, 0},
        {0, 0, 0, WALL, 0, 0, 0, WALL, 0, 0, 0, WALL, 0, 0, 0, WALL},
        {WALL, WALL, WALL, WALL},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, WALL, WALL, WALL, WALL}};
    uint8_t around[CELLS + 2 * SIDE] = {0};
    memcpy(around + SIDE, tiles, CELLS);
    Board board;
    memcpy(&board, tiles, CELLS);
    const Board closed = (Board)(board >= MAX_TILE);  // the highest tile merges with none
    int32_t legal = 0;
    for (int32_t move = 0; move < NUM_MOVES; move++) {
        Board next;
        memcpy(&next, around + SIDE + ahead[move], CELLS);
        next |= rims[move];
        const Board moves =
            (Board)(board != 0) & ((Board)(next == 0) | ((Board)(next == board) & ~closed));
        uint64_t halves[2];
        memcpy(halves, &moves, sizeof halves);
        legal |= ((halves[0] | halves[1]) != 0) << move;
    }
    return legal;
}

// A new tile in a random empty cell; there is one.
static void spawn(Game* env) {
    PufRng* rng = &env->slots.rng;
    uint8_t empty[CELLS];
    int32_t count = 0;
    for (int32_t i = 0; i < CELLS; i++) {
        empty[count] = (uint8_t)i;
        count += !env->tiles[i];
    }
    const uint8_t cell = empty[puf_rand_int(rng, count)];
    env->tiles[cell] = puf_rand(rng) < env->four_odds ? 2 : 1;
}

static void measure(Game* env) {
    uint8_t highest = 0;
    for (int32_t i = 0; i < CELLS; i++) highest = env->tiles[i] > highest ? env->tiles[i] : highest;
    env->score = (float)env->points;
    env->perf = highest >= GOAL ? 1 : (float)highest / GOAL;
    env->reached = highest >= GOAL;
    env->highest = (float)(1 << highest);
}

static void reset(Game* env) {
    memset(env->tiles, 0, sizeof env->tiles);
    env->points = 0;
    spawn(env);
    spawn(env);
    env->legal = find_moves(env->tiles);
}

static PufStatus step(Game* env) {
    const int32_t move = puf_action(&env->slots, 0);
    if (env->legal >> move & 1) {
        const int32_t points = slide_all(env->tiles, move);
        env->points += points;
        puf_reward(&env->slots, 0, (float)points * (1.0f / (1 << GOAL)));
        spawn(env);
        env->legal = find_moves(env->tiles);
    }
    const bool stuck = !env->legal;
    if (!stuck && env->slots.tick < env->max_steps) return PUF_RUNNING;
    measure(env);
    return stuck ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Game* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    uint8_t* mask = puf_action_mask(&env->slots, 0);
    memset(obs, 0, CELLS * FLAGS);
    for (int32_t i = 0; i < CELLS; i++, obs += FLAGS) {
        const int32_t tile = env->tiles[i];
        const int32_t right = i % SIDE < SIDE - 1 ? env->tiles[i + 1] : 0;
        const int32_t below = i < CELLS - SIDE ? env->tiles[i + SIDE] : 0;
        obs[tile] = 1;
        if (!tile) continue;
        obs[EQUAL_RIGHT] = right == tile;
        obs[EQUAL_BELOW] = below == tile;
        obs[NEAR_RIGHT] = right && (right == tile + 1 || right == tile - 1);
        obs[NEAR_BELOW] = below && (below == tile + 1 || below == tile - 1);
    }
    for (int32_t move = 0; move < NUM_MOVES; move++)  // all of them in the last observation
        mask[move] = !env->legal || (env->legal >> move & 1);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 104, GAP = 12, HEADER = 40 };

static void draw_tile(PufCanvas* canvas, float x, float y, uint8_t tile) {
    static const uint32_t colors[KINDS] = {
        0xCDC1B4, 0xEEE4DA, 0xEDE0C8, 0xF2B179, 0xF59563, 0xF67C5F, 0xF65E3B, 0xEDCF72, 0xEDCC61,
        0xEDC850, 0xEDC53F, 0xEDC22E, 0x5EBA7D, 0x3E9E8F, 0x3C7FB8, 0x5A5FC0, 0x7A49B0, 0x3C3A32};
    const float radius = 8, size = PIXELS;
    for (int32_t corner = 0; corner < 4; corner++)
        puf_circle(canvas, x + (corner % 2 ? size - radius : radius),
                   y + (corner / 2 ? size - radius : radius), radius, colors[tile]);
    puf_rect(canvas, x + radius, y, size - 2 * radius, size, colors[tile]);
    puf_rect(canvas, x, y + radius, size, size - 2 * radius, colors[tile]);
    if (!tile) return;
    const int32_t number = 1 << tile;
    const float scale = tile < 7 ? 6 : tile < 10 ? 5 : tile < 14 ? 4 : 3;
    const int32_t digits = number < 10       ? 1
                           : number < 100    ? 2
                           : number < 1000   ? 3
                           : number < 10000  ? 4
                           : number < 100000 ? 5
                                             : 6;
    puf_textf(canvas, x + 0.5f * (size - scale * (float)(6 * digits - 1)),
              y + 0.5f * (size - 7 * scale), scale, tile < 3 ? 0x776E65 : 0xF9F6F2, "%d",
              (int)number);
}

static void render(const Game* env, PufCanvas* canvas) {
    puf_clear(canvas, 0xBBADA0);
    puf_rect(canvas, 0, 0, (float)canvas->width, HEADER, 0xFAF8EF);
    puf_textf(canvas, GAP, 13, 2, 0x776E65, "2048   SCORE %d   MOVES %d", (int)env->points,
              (int)env->slots.tick);
    for (int32_t i = 0; i < CELLS; i++)
        draw_tile(canvas, GAP + (float)(i % SIDE) * (PIXELS + GAP),
                  HEADER + GAP + (float)(i / SIDE) * (PIXELS + GAP), env->tiles[i]);
}

// ---- Validation and layout ----------------------------------------------------------------------

// Every move adds at most 4 to the sum of tiles and no merge changes it, so points are bounded by
// the tiles on the board: a tile of 2^k has earned at most (k - 1) * 2^k.
static bool valid(const Game* env) {
    int32_t most = 0;
    for (int32_t i = 0; i < CELLS; i++) {
        if (env->tiles[i] > MAX_TILE) return false;
        if (env->tiles[i]) most += (env->tiles[i] - 1) << env->tiles[i];
    }
    return env->points >= 0 && env->points <= most && env->slots.tick < env->max_steps &&
           env->legal && env->legal == find_moves(env->tiles);
}

PUF_ENV(g2048, Game, .doc = "slide and merge tiles up to 2048", .group = "boards",
        .action_names = "left right up down",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_U8, .ndim = 2, .shape = {CELLS, FLAGS}, .low = 0, .high = 1},
            .actions = PUF_DISCRETE(NUM_MOVES),
            .action_masks = true,
            .width = SIDE * PIXELS + (SIDE + 1) * GAP,
            .height = SIDE * PIXELS + (SIDE + 1) * GAP + HEADER});
