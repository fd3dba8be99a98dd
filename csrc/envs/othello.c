// othello - place discs on an 8 x 8 board; lines of the other side's discs between the new disc and
// an own one are turned over. Most discs win.
//
// A move must turn over at least one disc; a side that has no move passes, and when neither side
// has one the game ends. An agent observes the 64 squares row by row from the top left, own discs
// +1, the other side's -1, and chooses a square; action 64 is the pass. All but legal moves are
// masked; an illegal action becomes the next legal one, cyclically. Win +1, loss -1, draw 0.
// Opponents and self-play are those of puf_board.h.
#include "puf_board.h"

enum { SIDE = 8, CELLS = SIDE * SIDE, PASS = CELLS, NUM_ACTIONS = CELLS + 1 };

typedef uint64_t Bits;  // row r from the top, column c is bit 8 * r + c

typedef struct {
    PufSlots slots;
    Bits discs[2];  // of agent 0, and of agent 1 or the opponent
    Bits legal;     // moves of the side to move
    int32_t last;   // square of the last disc, or -1
    PufDuel duel;
    float margin;
} Othello;

static const PufField params[] = {PUF_DUEL_PARAMS(Othello, 0.1)};

static const PufField metrics[] = {
    PUF_DUEL_METRICS(Othello, "discs on the board at the end"),
    PUF_METRIC(Othello, margin, "discs more than the other side at the end"),
};

// ---- Bits ---------------------------------------------------------------------------------------

// Four directions in one vector: along a row, along both diagonals, along a column; `up` goes to
// higher bits, `down` to lower ones. A line that would wrap around the edge of the board passes
// through an outer column, so lines may pass through inner ones only; columns do not wrap.
typedef Bits Lanes __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

// Other discs in an unbroken line from the discs of `from`, each way, as long as lines get: six.
#define TRACE(from)                                                                         \
    const Lanes d = {1, 7, 8, 9}, all = {other, other, other, other};                       \
    const Bits inner_cols = 0x7E7E7E7E7E7E7E7Eu;                                            \
    const Lanes through = all & (Lanes){inner_cols, inner_cols, ~(Bits)0, inner_cols};      \
    const Lanes start = {from, from, from, from};                                           \
    const Lanes pairs_up = through & (through << d), pairs_down = through & (through >> d); \
    Lanes up = (start << d) & through, down = (start >> d) & through;                       \
    up |= (up << d) & through;                                                              \
    down |= (down >> d) & through;                                                          \
    up |= (up << 2 * d) & pairs_up;                                                         \
    down |= (down >> 2 * d) & pairs_down;                                                   \
    up |= (up << 2 * d) & pairs_up;                                                         \
    down |= (down >> 2 * d) & pairs_down

INLINE Bits join(Bits a, Bits b, Bits c, Bits e) { return a | b | c | e; }

// Squares where `own` may move: at the other end of a line of `other` discs.
INLINE Bits find_moves(Bits own, Bits other) {
    TRACE(own);
    const Lanes ends = (up << d) | (down >> d);
    return join(ends[0], ends[1], ends[2], ends[3]) & ~(own | other);
}

// Discs of `other` that a disc on `square` turns over: lines with an own disc at the end.
INLINE Bits find_flips(Bits own, Bits other, Bits square) {
    TRACE(square);
    const Lanes mine = {own, own, own, own};
    const Lanes closed_up = (Lanes)(((up << d) & mine) != 0);
    const Lanes closed_down = (Lanes)(((down >> d) & mine) != 0);
    const Lanes flips = (up & closed_up) | (down & closed_down);
    return join(flips[0], flips[1], flips[2], flips[3]);
}

// ---- Rules --------------------------------------------------------------------------------------

// Moves, or passes where `square` is 0, and finds the moves of the other side.
PUF_HOT static void place(Othello* env, Bits square) {
    const int32_t mover = env->duel.mover;
    Bits own = env->discs[mover], other = env->discs[mover ^ 1];
    if (square) {
        const Bits flips = find_flips(own, other, square);
        env->discs[mover] = own |= square | flips;
        env->discs[mover ^ 1] = other &= ~flips;
        env->last = __builtin_ctzll(square);
    }
    env->legal = find_moves(other, own);
    env->duel.mover ^= 1;
}

// The move for an action: that square, else the next legal one, cyclically; 0 is a pass.
static Bits chosen(const Othello* env, int32_t action) {
    const Bits later = action == PASS ? 0 : env->legal & ~(Bits)0 << action;
    return later ? later & -later : env->legal & -env->legal;
}

// The opponent's move: the square of the most worth, less two for each reply that it allows.
// Corners cannot be turned over; squares next to an empty one give it away.
PUF_HOT static Bits answer(Othello* env) {
    static const int8_t worth[CELLS] = {
        99, -8,  8,  6,  6,  8,  -8,  99, -8, -24, -4, -3, -3, -4, -24, -8,  //
        8,  -4,  7,  4,  4,  7,  -4,  8,  6,  -3,  4,  0,  0,  4,  -3,  6,   //
        6,  -3,  4,  0,  0,  4,  -3,  6,  8,  -4,  7,  4,  4,  7,  -4,  8,   //
        -8, -24, -4, -3, -3, -4, -24, -8, 99, -8,  8,  6,  6,  8,  -8,  99};
    const Bits own = env->discs[env->duel.mover], other = env->discs[env->duel.mover ^ 1];
    const Bits legal = env->legal;
    if (!legal) return 0;
    if (puf_duel_rolls(&env->duel, &env->slots.rng)) return puf_pick_bit(&env->slots.rng, legal);
    Bits best = 0;
    int32_t most = INT32_MIN;
    for (Bits left = legal; left; left &= left - 1) {
        const Bits square = left & -left, flips = find_flips(own, other, square);
        const Bits replies = find_moves(other & ~flips, own | square | flips);
        const int32_t value = worth[__builtin_ctzll(square)] - 2 * __builtin_popcountll(replies);
        if (value > most) best = 0;
        if (value >= most) {
            best |= square;
            most = value;
        }
    }
    return puf_pick_bit(&env->slots.rng, best);
}

// Whether neither side can move.
PUF_HOT static bool is_over(const Othello* env) {
    const int32_t mover = env->duel.mover;
    return !env->legal && !find_moves(env->discs[mover ^ 1], env->discs[mover]);
}

static PufStatus settle(Othello* env) {
    if (env->legal || !is_over(env)) return PUF_RUNNING;
    const int32_t own = __builtin_popcountll(env->discs[0]);
    const int32_t other = __builtin_popcountll(env->discs[1]);
    env->margin = (float)(own - other);
    return puf_duel_end(&env->slots, &env->duel, (float)((own > other) - (own < other)),
                        own + other);
}

// d3, c4, f5 and e6: each turns over one disc.
static const Bits OPENING = (Bits)1 << 19 | (Bits)1 << 26 | (Bits)1 << 37 | (Bits)1 << 44;

static void reset(Othello* env) {
    const Bits d4 = (Bits)1 << 27, e4 = d4 << 1, d5 = d4 << SIDE, e5 = d5 << 1;
    env->last = -1;
    env->duel.mover = puf_rand_int(&env->slots.rng, 2);  // black
    env->discs[env->duel.mover] = e4 | d5;
    env->discs[env->duel.mover ^ 1] = d4 | e5;
    env->legal = OPENING;
    if (env->duel.mover == 1 && !puf_duel_is_self(&env->duel)) place(env, answer(env));
}

static PufStatus step(Othello* env) {
    place(env, chosen(env, puf_action(&env->slots, env->duel.mover)));
    if (!puf_duel_is_self(&env->duel)) place(env, answer(env));
    return settle(env);
}

// ---- Observations -------------------------------------------------------------------------------

static void look(const Othello* env, int32_t agent) {
    const bool waits = env->duel.mover != agent;
    puf_duel_look(puf_obs_f32(&env->slots, agent), env->discs[agent], env->discs[agent ^ 1], CELLS,
                  waits ? 0.5f : 1);
    if (waits) {
        puf_duel_wait(&env->slots, agent, NUM_ACTIONS);
        return;
    }
    uint8_t* mask = puf_action_mask(&env->slots, agent);
    puf_bits_to_bytes(mask, env->legal, CELLS);
    mask[PASS] = !env->legal;
}

static void observe(const Othello* env) {
    look(env, 0);
    if (puf_duel_is_self(&env->duel)) look(env, 1);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 56, MARGIN = 20, HEADER = 44 };

static void render(const Othello* env, PufCanvas* canvas) {
    static const uint32_t colors[2] = {0x141414, 0xF4F1E8};
    const float top = HEADER;
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, MARGIN - 6, top - 6, SIDE * PIXELS + 12, SIDE * PIXELS + 12, 0x4A2F1B);
    puf_rect(canvas, MARGIN, top, SIDE * PIXELS, SIDE * PIXELS, 0x1F7A45);
    for (int32_t i = 0; i <= SIDE; i++) {
        const float at = (float)(i * PIXELS);
        puf_line(canvas, MARGIN + at, top, MARGIN + at, top + SIDE * PIXELS, 2, 0x124D2B);
        puf_line(canvas, MARGIN, top + at, MARGIN + SIDE * PIXELS, top + at, 2, 0x124D2B);
    }
    for (int32_t i = 0; i < CELLS; i++) {
        const float x = MARGIN + ((float)(i % SIDE) + 0.5f) * PIXELS;
        const float y = top + ((float)(i / SIDE) + 0.5f) * PIXELS;
        const Bits square = (Bits)1 << i;
        for (int32_t side = 0; side < 2; side++) {
            if (!(env->discs[side] & square)) continue;
            puf_circle(canvas, x + 1.5f, y + 2, 0.41f * PIXELS, 0x124D2B);
            puf_circle(canvas, x, y, 0.41f * PIXELS, colors[side]);
            puf_ring(canvas, x, y, 0.41f * PIXELS, 2, puf_blend(colors[side], PUF_GREY, 0.4f));
        }
        if (env->legal & square) puf_circle(canvas, x, y, 0.09f * PIXELS, 0x124D2B);
        if (i == env->last) puf_circle(canvas, x, y, 0.08f * PIXELS, PUF_RED);
    }
    puf_draw_sides(canvas, MARGIN, HEADER / 2 - 4, &env->duel, colors);
    puf_textf(canvas, MARGIN + 336, HEADER / 2 - 11, 2, PUF_PAPER, "%d : %d",
              __builtin_popcountll(env->discs[0]), __builtin_popcountll(env->discs[1]));
}

// ---- Validation and layout ----------------------------------------------------------------------

// Every step that is not a pass places a disc, and no side passes twice in a row.
static bool valid(const Othello* env) {
    const int32_t mover = env->duel.mover;
    if (!puf_duel_valid(&env->duel) || env->discs[0] & env->discs[1]) return false;
    const int32_t discs = __builtin_popcountll(env->discs[0] | env->discs[1]);
    return env->legal == find_moves(env->discs[mover], env->discs[mover ^ 1]) && !is_over(env) &&
           env->last >= -1 && env->last < CELLS && env->slots.tick <= 2 * discs &&
           puf_within(env->margin, -CELLS, CELLS);
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = puf_duel_agents(&((const Othello*)self)->duel);
}

PUF_ENV(othello, Othello, .doc = "turn over lines of discs; most discs win", .group = "boards",
        .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {CELLS}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .action_masks = true,
                   .width = SIDE * PIXELS + 2 * MARGIN,
                   .height = SIDE * PIXELS + HEADER + MARGIN});
