// go - surround points of a 7 x 7 board; the side with more area wins.
//
// Stones without a liberty, an empty neighbour of their group, are captured: first the other
// side's, then own ones, but a move that would leave its own stone without a liberty is illegal
// (no suicide). Simple ko: a stone that has just captured one stone alone may not be recaptured at
// once in the same way. So all that decides which moves are legal is on the board; longer cycles
// end at max_moves. Two passes in a row end the game, and so do max_moves moves. A side's area is
// its stones and the empty regions that only it touches; white adds komi. Win +1, loss -1, draw 0.
// Each point of the final margin earns reward_point more, so that a lost game can be better or
// worse: stones are paid when they are placed or captured, the rest at the end. The stone with
// which an opponent begins costs nothing. By default any win is worth more than any loss.
//
// An agent observes planes of 49 points, row by row from the top left: own stones +1 and others
// -1; the same for stones of groups with one liberty, and with two; the point that ko forbids as
// -1. Then two numbers: +1 for black or -1 for white, and 1 if the other side has just passed.
// Action 49 is the pass. Illegal moves are masked; taken anyway, they become the next legal point,
// cyclically. Opponents and self-play are those of puf_board.h.
#include "puf_board.h"

enum {
    SIDE = 7,
    CELLS = SIDE * SIDE,
    PITCH = SIDE + 1,
    PASS = CELLS,
    NUM_ACTIONS = CELLS + 1,
    NUM_PLANES = 4,
    NUM_NUMBERS = 2,
    OBS = NUM_PLANES * CELLS + NUM_NUMBERS
};

// Row r from the top, column c is bit PITCH * r + c. The bit after each row stays 0, so that
// neighbours do not wrap.
typedef uint64_t Bits;
static const Bits BOARD = 0x007F7F7F7F7F7F7Fu;

typedef struct {
    PufSlots slots;
    Bits stones[2];  // of agent 0, and of agent 1 or the opponent
    Bits legal;      // points where the side to move may play
    Bits ko;         // the one that simple ko forbids, or 0
    int32_t black;   // side that began
    int32_t passes;  // in a row: 0 or 1
    int32_t moves;   // passes too
    int32_t last;    // bit of the last stone; -1 after a pass
    PufDuel duel;
    float margin, komi, reward_point;
    int32_t max_moves;
} Go;

static const PufField params[] = {
    PUF_DUEL_PARAMS(Go, 0.1),
    PUF_PARAM_F32(Go, komi, 8.5, 0, 49, "points that white gets for moving second"),
    PUF_PARAM_I32(Go, max_moves, 120, 2, 10000, "moves of both sides before the game is scored"),
    PUF_PARAM_F32(Go, reward_point, 0.01, 0, 1, "reward for a point of margin at the end"),
};

static const PufField metrics[] = {
    PUF_DUEL_METRICS(Go, "moves of both sides, with passes"),
    PUF_METRIC(Go, margin, "points more than the other side"),
};

// ---- Bits ---------------------------------------------------------------------------------------

static inline Bits beside(Bits points) {
    return ((points << 1) | (points >> 1) | (points << PITCH) | (points >> PITCH)) & BOARD;
}

// The connected part of `area` around `seed`, which lies in it.
static inline Bits spread(Bits seed, Bits area) {
    for (Bits last = 0; seed != last;) {
        last = seed;
        seed |= beside(seed) & area;
        seed |= beside(seed) & area;
    }
    return seed;
}

static inline bool is_single(Bits bits) { return bits && !(bits & (bits - 1)); }

// Stones of `own` whose group has one liberty, or two; the only liberties of groups.
typedef struct {
    Bits one, two, last_liberties;
} Groups;

static inline Groups find_groups(Bits own, Bits empty) {
    Groups groups = {0};
    // A stone beside three empty points makes its whole group uninteresting.
    const Bits left_right = (empty << 1) & (empty >> 1), row = (empty << 1) | (empty >> 1);
    const Bits up_down = (empty << PITCH) & (empty >> PITCH);
    const Bits column = (empty << PITCH) | (empty >> PITCH);
    const Bits safe = spread(own & ((left_right & column) | (up_down & row)), own);
    for (Bits left = own & ~safe; left;) {
        const Bits group = spread(left & -left, left), liberties = beside(group) & empty;
        const Bits second = liberties & (liberties - 1);
        left &= ~group;
        if (!second) {
            groups.one |= group;
            groups.last_liberties |= liberties;
        } else if (!(second & (second - 1))) {
            groups.two |= group;
        }
    }
    return groups;
}

// ---- Rules --------------------------------------------------------------------------------------

// Stones of `other` that a stone of the mover on `point` captures.
static inline Bits find_captures(Bits other, Bits empty, Bits point) {
    Bits captured = 0;
    for (Bits left = beside(point) & other; left;) {
        const Bits group = spread(left & -left, other);
        left &= ~group;
        if (!(beside(group) & empty & ~point)) captured |= group;
    }
    return captured;
}

// Points where the mover may play: with a liberty, or a capture, or beside an own group that has
// another liberty; but not where ko forbids it.
static Bits find_moves(const Go* env) {
    const Bits own = env->stones[env->duel.mover], other = env->stones[env->duel.mover ^ 1];
    const Bits empty = BOARD & ~(own | other);
    Bits legal = empty & beside(empty);
    for (Bits left = empty & ~legal; left; left &= left - 1) {
        const Bits point = left & -left, group = spread(point, own | point);
        if (beside(group) & empty & ~point || find_captures(other, empty, point)) legal |= point;
    }
    return legal & ~env->ko;
}

// Returns how many stones the mover gains on the other side.
static int32_t move(Go* env, Bits point) {
    const int32_t mover = env->duel.mover;
    env->ko = 0;
    env->last = -1;
    env->passes = point ? 0 : env->passes + 1;
    env->moves++;
    env->duel.mover ^= 1;
    if (!point) return 0;
    const Bits empty = BOARD & ~(env->stones[0] | env->stones[1]);
    const Bits captured = find_captures(env->stones[mover ^ 1], empty, point);
    env->stones[mover ^ 1] &= ~captured;
    env->stones[mover] |= point;
    env->last = __builtin_ctzll(point);
    const Bits free = BOARD & ~(env->stones[0] | env->stones[1]);
    if (is_single(captured) && !(beside(point) & env->stones[mover]) &&
        is_single(beside(point) & free))
        env->ko = captured;
    return captured ? 1 + __builtin_popcountll(captured) : 1;
}

// Plays a legal point, or passes where `point` is 0. Returns the stones that side 0 gains.
static int32_t place(Go* env, Bits point) {
    const int32_t sign = env->duel.mover ? -1 : 1, gained = move(env, point);
    env->legal = find_moves(env);
    return sign * gained;
}

// Points of side 0 more than those of side 1, without komi.
static int32_t area_margin(const Go* env) {
    const Bits empty = BOARD & ~(env->stones[0] | env->stones[1]);
    int32_t margin = __builtin_popcountll(env->stones[0]) - __builtin_popcountll(env->stones[1]);
    for (Bits left = empty; left;) {
        const Bits region = spread(left & -left, empty), rim = beside(region);
        left &= ~region;
        const bool touches_0 = rim & env->stones[0], touches_1 = rim & env->stones[1];
        if (touches_0 != touches_1) margin += (touches_0 ? 1 : -1) * __builtin_popcountll(region);
    }
    return margin;
}

static PufStatus settle(Go* env) {
    if (env->passes < 2 && env->moves < env->max_moves) return PUF_RUNNING;
    env->margin = (float)area_margin(env) + (env->black == 0 ? -env->komi : env->komi);
    return puf_duel_end(&env->slots, &env->duel, (float)((env->margin > 0) - (env->margin < 0)),
                        env->moves);
}

// ---- The opponent -------------------------------------------------------------------------------

// Points with own stones on all sides, and on all diagonals but one; on the edge, on all of them.
static Bits find_eyes(Bits other, Bits empty) {
    Bits eyes = 0;
    for (Bits left = empty & ~beside(empty) & ~beside(other); left; left &= left - 1) {
        const Bits point = left & -left, above_below = (point << PITCH) | (point >> PITCH);
        const Bits diagonals = ((above_below << 1) | (above_below >> 1)) & BOARD;
        const bool inside = __builtin_popcountll(diagonals) == 4;
        if (!(diagonals & other) || (inside && is_single(diagonals & other))) eyes |= point;
    }
    return eyes;
}

// Whether a stone on `point` leaves its group with one liberty only.
static bool is_self_atari(Bits own, Bits other, Bits empty, Bits point) {
    const Bits near = beside(point) & empty;
    if (near & (near - 1)) return false;
    const Bits captured = find_captures(other, empty, point);
    return is_single(beside(spread(point, own | point)) & ((empty & ~point) | captured));
}

// Capture, else save a group in danger, else threaten one or play near other stones, in the middle
// rather than at the edge. Never fill an eye, nor play into a capture. Pass when nothing is left,
// or to win after the other side's pass.
static Bits answer(Go* env) {
    static const Bits MIDDLE = 0x00003E3E3E3E3E00u;  // all points but the edge
    PufRng* rng = &env->slots.rng;
    const int32_t mover = env->duel.mover;
    const Bits own = env->stones[mover], other = env->stones[mover ^ 1];
    const Bits empty = BOARD & ~(own | other);
    const Bits open = env->legal & ~find_eyes(other, empty);
    if (puf_duel_rolls(&env->duel, rng)) return puf_pick_bit(rng, open);
    const float komi = env->black == mover ? -env->komi : env->komi;
    if (env->passes && (float)(mover ? -area_margin(env) : area_margin(env)) + komi > 0) return 0;

    const Groups ours = find_groups(own, empty), theirs = find_groups(other, empty);
    if (open & theirs.last_liberties) return puf_pick_bit(rng, open & theirs.last_liberties);
    const Bits near = beside(other) | beside(beside(own));
    const Bits wishes[] = {ours.last_liberties, puf_rand_int(rng, 2) ? beside(theirs.two) : 0,
                           near & MIDDLE, MIDDLE, BOARD};
    for (int32_t i = 0; i < 5; i++)
        for (Bits left = open & wishes[i]; left;) {
            const Bits point = puf_pick_bit(rng, left);
            if (!is_self_atari(own, other, empty, point)) return point;
            left &= ~point;
        }
    return 0;
}

// ---- Steps --------------------------------------------------------------------------------------

static inline Bits bit_of(int32_t point) {
    return (Bits)1 << (point / SIDE * PITCH + point % SIDE);
}

// The point for an action: that one, else the next legal one, cyclically; 0 is a pass.
static Bits chosen(const Go* env, int32_t action) {
    if (action == PASS) return 0;
    const Bits later = env->legal & -bit_of(action);
    return later ? later & -later : env->legal & -env->legal;
}

static void reset(Go* env) {
    env->stones[0] = env->stones[1] = env->ko = 0;
    env->legal = BOARD;
    env->passes = env->moves = 0;
    env->last = -1;
    env->black = env->duel.mover = puf_rand_int(&env->slots.rng, 2);
    if (env->black == 1 && !puf_duel_is_self(&env->duel)) place(env, answer(env));
}

// Stones of side 0 more than those of side 1.
static int32_t stone_lead(const Go* env) {
    return __builtin_popcountll(env->stones[0]) - __builtin_popcountll(env->stones[1]);
}

static PufStatus step(Go* env) {
    const bool alone = !puf_duel_is_self(&env->duel);
    int32_t gained = place(env, chosen(env, puf_action(&env->slots, env->duel.mover)));
    PufStatus status = settle(env);
    if (status == PUF_RUNNING && alone) {
        gained += place(env, answer(env));
        status = settle(env);
    }
    float points = (float)gained;
    if (status != PUF_RUNNING) points += env->margin - (float)stone_lead(env);
    puf_reward(&env->slots, 0, env->reward_point * points);
    if (!alone) puf_reward(&env->slots, 1, -env->reward_point * points);
    return status;
}

// ---- Observations -------------------------------------------------------------------------------

// One plane: a row writes a number too many, which the next row, plane or number overwrites.
static inline float* look_at(float* out, Bits own, Bits other, float strength) {
    for (int32_t row = 0; row < SIDE; row++, out += SIDE)
        puf_duel_look(out, own >> PITCH * row, other >> PITCH * row, PITCH, strength);
    return out;
}

static void look(const Go* env, int32_t agent, const Groups groups[2]) {
    const bool waits = env->duel.mover != agent;
    const float strength = waits ? 0.5f : 1;
    const Groups *ours = &groups[agent], *theirs = &groups[agent ^ 1];
    float* obs = puf_obs_f32(&env->slots, agent);
    obs = look_at(obs, env->stones[agent], env->stones[agent ^ 1], strength);
    obs = look_at(obs, ours->one, theirs->one, strength);
    obs = look_at(obs, ours->two, theirs->two, strength);
    obs = look_at(obs, 0, env->ko, strength);
    obs[0] = env->black == agent ? strength : -strength;
    obs[1] = env->passes ? strength : 0;
    if (waits) {
        puf_duel_wait(&env->slots, agent, NUM_ACTIONS);
        return;
    }
    uint8_t* mask = puf_action_mask(&env->slots, agent);
    for (int32_t row = 0; row < SIDE; row++)
        puf_bits_to_bytes(mask + SIDE * row, env->legal >> PITCH * row & 255, PITCH);
    mask[PASS] = 1;
}

static void observe(const Go* env) {
    const Bits empty = BOARD & ~(env->stones[0] | env->stones[1]);
    const Groups groups[2] = {find_groups(env->stones[0], empty),
                              find_groups(env->stones[1], empty)};
    look(env, 0, groups);
    if (puf_duel_is_self(&env->duel)) look(env, 1, groups);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 62, MARGIN = 20, HEADER = 44 };

static void render(const Go* env, PufCanvas* canvas) {
    const uint32_t shades[2] = {0x16181C, 0xF5F3EC};
    const uint32_t colors[2] = {shades[env->black], shades[env->black ^ 1]};
    const float left = MARGIN + 0.5f * PIXELS, top = HEADER + 0.5f * PIXELS;
    const float reach = (SIDE - 1) * PIXELS;
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, MARGIN, HEADER, SIDE * PIXELS, SIDE * PIXELS, 0xDDB06A);
    for (int32_t i = 0; i < SIDE; i++) {
        const float at = (float)(i * PIXELS);
        puf_line(canvas, left + at, top, left + at, top + reach, 2, 0x5A4526);
        puf_line(canvas, left, top + at, left + reach, top + at, 2, 0x5A4526);
    }
    puf_circle(canvas, left + 0.5f * reach, top + 0.5f * reach, 5, 0x5A4526);
    for (int32_t point = 0; point < CELLS; point++) {
        const float x = left + (float)(point % SIDE * PIXELS);
        const float y = top + (float)(point / SIDE * PIXELS);
        const Bits bit = bit_of(point);
        for (int32_t side = 0; side < 2; side++) {
            if (!(env->stones[side] & bit)) continue;
            puf_circle(canvas, x + 2, y + 3, 0.46f * PIXELS, 0xB58A4A);
            puf_circle(canvas, x, y, 0.46f * PIXELS, colors[side]);
            puf_circle(canvas, x - 0.14f * PIXELS, y - 0.16f * PIXELS, 0.12f * PIXELS,
                       puf_blend(colors[side], PUF_WHITE, 0.35f));
        }
        if (env->ko & bit) puf_rect_outline(canvas, x - 10, y - 10, 20, 20, 3, PUF_RED);
        if (env->last >= 0 && bit >> env->last & 1)
            puf_ring(canvas, x, y, 0.24f * PIXELS, 3, PUF_RED);
    }
    puf_draw_sides(canvas, MARGIN, HEADER / 2, &env->duel, colors);
    puf_textf(canvas, MARGIN + 300, HEADER / 2 - 7, 2, PUF_PAPER, "MOVE %d", (int)env->moves);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Go* env) {
    const Bits own = env->stones[0], other = env->stones[1], empty = BOARD & ~(own | other);
    return !((own | other) & ~BOARD) && !(own & other) && spread(beside(empty) & own, own) == own &&
           spread(beside(empty) & other, other) == other && (!env->ko || is_single(env->ko)) &&
           !(env->ko & ~empty) && (env->black & ~1) == 0 && (env->passes & ~1) == 0 &&
           env->moves >= env->slots.tick && env->moves < env->max_moves && env->last >= -1 &&
           env->last < PITCH * SIDE && puf_duel_valid(&env->duel) && env->legal == find_moves(env);
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = puf_duel_agents(&((const Go*)self)->duel);
}

PUF_ENV(go, Go, .doc = "surround more points of a 7 x 7 board", .group = "boards", .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {OBS}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .action_masks = true,
                   .width = SIDE * PIXELS + 2 * MARGIN,
                   .height = SIDE * PIXELS + HEADER + MARGIN});
