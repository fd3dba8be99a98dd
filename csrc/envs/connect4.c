// connect4 - drop stones into a 7 x 6 grid; four in a line win.
//
// An agent observes the 42 cells row by row from the top, own stones +1, the other side's -1, empty
// 0, and chooses a column. Full columns are masked; a stone for a full column goes into the next
// open column to the right, cyclically. Either side begins at random. Win +1, loss -1, draw 0;
// score is that sum, perf is 1, 0 or 0.5. Opponents and self-play are those of puf_board.h.
#include "puf_board.h"

enum { ROWS = 6, COLS = 7, CELLS = ROWS * COLS, PITCH = ROWS + 1 };

// Column c, row r from the bottom is bit PITCH * c + r. The bit above each column stays 0, so that
// no line of four wraps from the top of a column to the bottom of the next.
typedef uint64_t Bits;
static const Bits BOTTOM = 0x0040810204081u;  // bits 0, 7, 14, ...
static const Bits BOARD = 0x0040810204081u * ((1u << ROWS) - 1);

typedef struct {
    PufSlots slots;
    Bits stones[2];  // of agent 0, and of agent 1 or the opponent
    int32_t last;    // bit of the last stone; -1 on an empty board
    PufDuel duel;
} Connect4;

static const PufField params[] = {PUF_DUEL_PARAMS(Connect4, 0.25)};

static const PufField metrics[] = {PUF_DUEL_METRICS(Connect4, "stones on the board at the end")};

// ---- Bits ---------------------------------------------------------------------------------------

static inline Bits column(int32_t col) { return (Bits)((1u << ROWS) - 1) << (PITCH * col); }

// The cell in each open column where the next stone lands.
static inline Bits landings(const Connect4* env) {
    return ((env->stones[0] | env->stones[1]) + BOTTOM) & BOARD;
}

static const int32_t directions[4] = {1, PITCH - 1, PITCH, PITCH + 1};

static inline bool has_four(Bits stones) {
    Bits fours = 0;
    for (int32_t i = 0; i < 4; i++) {
        Bits pairs = stones & (stones >> directions[i]);
        fours |= pairs & (pairs >> 2 * directions[i]);
    }
    return fours != 0;
}

// Cells that complete four in a line, whether or not a stone can land there yet.
static inline Bits completions(Bits stones) {
    Bits cells = 0;
    for (int32_t i = 0; i < 4; i++) {
        const int32_t d = directions[i];
        Bits below = stones << d, above = stones >> d;
        Bits two_below = below & (stones << 2 * d), two_above = above & (stones >> 2 * d);
        cells |= (two_below & (stones << 3 * d)) | (two_below & above) | (below & two_above) |
                 (two_above & (stones >> 3 * d));
    }
    return cells & BOARD;
}

// ---- Rules --------------------------------------------------------------------------------------

static void place(Connect4* env, Bits cell) {
    env->stones[env->duel.mover] |= cell;
    env->last = __builtin_ctzll(cell);
    env->duel.mover ^= 1;
}

// Where a stone for `col` lands: there, or in the next open column to the right.
static Bits landing(const Connect4* env, int32_t col) {
    const Bits open = landings(env);
    while (!(open & column(col))) col = col == COLS - 1 ? 0 : col + 1;
    return open & column(col);
}

// One of the cells at random, weighted by column.
static Bits pick(Connect4* env, Bits cells, const int32_t weights[COLS]) {
    int32_t total = 0;
    for (int32_t col = 0; col < COLS; col++) total += cells & column(col) ? weights[col] : 0;
    int32_t left = puf_rand_int(&env->slots.rng, total);
    for (int32_t col = 0; col < COLS; col++) {
        left -= cells & column(col) ? weights[col] : 0;
        if (left < 0) return cells & column(col);
    }
    return 0;
}

// The opponent's move: win, else block, else prefer the centre and do not enable a win above it.
static Bits answer(Connect4* env) {
    static const int32_t even[COLS] = {1, 1, 1, 1, 1, 1, 1}, centre[COLS] = {1, 2, 3, 4, 3, 2, 1};
    const Bits open = landings(env);
    if (puf_duel_rolls(&env->duel, &env->slots.rng)) return pick(env, open, even);
    Bits wins = open & completions(env->stones[env->duel.mover]);
    if (wins) return pick(env, wins, even);
    const Bits threats = completions(env->stones[env->duel.mover ^ 1]);
    if (open & threats) return pick(env, open & threats, even);
    const Bits safe = open & ~(threats >> 1);
    return pick(env, safe ? safe : open, centre);
}

// Ends the game if the last stone of `side` decided it; the score is that of agent 0.
static PufStatus settle(Connect4* env, int32_t side) {
    const bool won = has_four(env->stones[side]);
    const Bits occupied = env->stones[0] | env->stones[1];
    if (!won && occupied != BOARD) return PUF_RUNNING;
    const float result = !won ? 0 : side == 0 ? 1 : -1;
    return puf_duel_end(&env->slots, &env->duel, result, __builtin_popcountll(occupied));
}

static void reset(Connect4* env) {
    env->stones[0] = env->stones[1] = 0;
    env->last = -1;
    env->duel.mover = puf_rand_int(&env->slots.rng, 2);
    if (env->duel.mover == 1 && !puf_duel_is_self(&env->duel)) place(env, answer(env));
}

static PufStatus step(Connect4* env) {
    int32_t mover = env->duel.mover;
    place(env, landing(env, puf_action(&env->slots, mover)));
    PufStatus status = settle(env, mover);
    if (status != PUF_RUNNING || puf_duel_is_self(&env->duel)) return status;
    place(env, answer(env));
    return settle(env, 1);
}

// ---- Observations -------------------------------------------------------------------------------

typedef int32_t Lanes __attribute__((vector_size(16)));
typedef float FloatLanes __attribute__((vector_size(16)));

// Four columns of one row, whose first cell is bit 0 of both: own +1, other -1.
static inline FloatLanes seen(Bits own, Bits other) {
    const Lanes cells = {1, 1 << PITCH, 1 << 2 * PITCH, 1 << 3 * PITCH};
    Lanes mine = ((int32_t)own & cells) == cells, theirs = ((int32_t)other & cells) == cells;
    return __builtin_convertvector(theirs - mine, FloatLanes);  // a true lane is -1
}

static inline void look(const Connect4* env, int32_t agent) {
    const bool waits = env->duel.mover != agent;
    const float strength = waits ? 0.5f : 1;
    const Bits own = env->stones[agent], other = env->stones[agent ^ 1];
    float* obs = puf_obs_f32(&env->slots, agent);
    for (int32_t row = ROWS - 1; row >= 0; row--, obs += COLS) {
        const int32_t third = 3 * PITCH + row;  // columns 0..3 and 3..6 overlap in column 3
        FloatLanes left = strength * seen(own >> row, other >> row);
        FloatLanes right = strength * seen(own >> third, other >> third);
        memcpy(obs, &left, sizeof left);
        memcpy(obs + 3, &right, sizeof right);
    }
    if (waits) {
        puf_duel_wait(&env->slots, agent, COLS);
        return;
    }
    uint8_t* mask = puf_action_mask(&env->slots, agent);
    const Bits open = landings(env);
    for (int32_t col = 0; col < COLS; col++) mask[col] = !!(open & column(col));
}

static void observe(const Connect4* env) {
    look(env, 0);
    if (puf_duel_is_self(&env->duel)) look(env, 1);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 64, MARGIN = 16, HEADER = 44, FOOTER = 26 };

static void render(const Connect4* env, PufCanvas* canvas) {
    static const uint32_t colors[2] = {PUF_RED, PUF_YELLOW};
    const float radius = 0.4f * PIXELS;
    puf_clear(canvas, PUF_INK);
    puf_rect(canvas, MARGIN / 2, HEADER, COLS * PIXELS + MARGIN, ROWS * PIXELS + MARGIN, 0x2A5BC4);
    puf_rect_outline(canvas, MARGIN / 2, HEADER, COLS * PIXELS + MARGIN, ROWS * PIXELS + MARGIN, 4,
                     0x1D439A);
    for (int32_t col = 0; col < COLS; col++) {
        float x = MARGIN + ((float)col + 0.5f) * PIXELS;
        for (int32_t row = 0; row < ROWS; row++) {
            float y = HEADER + MARGIN / 2 + ((float)(ROWS - 1 - row) + 0.5f) * PIXELS;
            int32_t bit = PITCH * col + row;
            puf_circle(canvas, x, y, radius + 3, 0x1D439A);
            if ((env->stones[0] | env->stones[1]) >> bit & 1)
                puf_draw_stone(canvas, x, y, radius, colors[env->stones[1] >> bit & 1]);
            else
                puf_circle(canvas, x, y, radius, PUF_INK);
            if (bit == env->last) puf_ring(canvas, x, y, radius + 3, 4, PUF_WHITE);
        }
        puf_textf(canvas, x - 5, HEADER + MARGIN + ROWS * PIXELS + 8, 2, PUF_GREY, "%d", (int)col);
    }
    puf_draw_sides(canvas, MARGIN, HEADER / 2, &env->duel, colors);
    puf_textf(canvas, MARGIN + 342, HEADER / 2 - 7, 2, PUF_GREY, "STONES %d",
              __builtin_popcountll(env->stones[0] | env->stones[1]));
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Connect4* env) {
    const Bits own = env->stones[0], other = env->stones[1], occupied = own | other;
    const Bits hanging = ((occupied & ~BOTTOM) >> 1) & ~occupied;  // empty cells below a stone
    return env->slots.tick <= __builtin_popcountll(occupied) && !(own & other) &&
           !(occupied & ~BOARD) && occupied != BOARD && !hanging && !has_four(own) &&
           !has_four(other) && env->last >= -1 && env->last < PITCH * COLS &&
           puf_duel_valid(&env->duel);
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = puf_duel_agents(&((const Connect4*)self)->duel);
}

PUF_ENV(connect4, Connect4, .doc = "drop stones; four in a line win", .group = "boards",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {CELLS}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(COLS),
                   .action_masks = true,
                   .width = COLS * PIXELS + 2 * MARGIN,
                   .height = ROWS * PIXELS + MARGIN + HEADER + FOOTER});
