// checkers - English draughts on the 32 dark squares of an 8 x 8 board: capture or block all pieces
// of the other side.
//
// Men step diagonally forwards, kings backwards too. A piece jumps over a piece of the other side
// onto the empty square behind it and captures it. Jumps are forced: a side that can jump must, and
// the piece that has jumped goes on while it can. A man that reaches the last row becomes a king,
// and its turn ends. A side that cannot move loses. After draw_after turns in a row without a
// capture or a man's move the game is a draw, and so it is after max_moves steps. Win +1, loss -1,
// draw 0; a captured piece earns reward_capture and costs the other side as much.
//
// An action moves one piece by one step or jump: 32 * direction + square, where the directions are
// forwards left, forwards right, back left, back right. While a jump goes on, the same side moves
// again. Squares are numbered row by row from the top left, as seen by the side whose men move
// upwards: every agent plays up the board. It observes 32 numbers for pieces, own +1, the other
// side's -1; as many for kings only; and the share of the way to a draw. All but legal actions are
// masked; an illegal one becomes the next legal one, cyclically. Opponents and self-play are those
// of puf_board.h.
#include "puf_board.h"

enum {
    SIDE = 8,
    SQUARES = 32,
    NUM_DIRECTIONS = 4,
    NUM_ACTIONS = SQUARES * NUM_DIRECTIONS,
    OBS = 2 * SQUARES + 1
};

typedef uint64_t Bits;  // row r from the top, column c is bit 8 * r + c; dark where r + c is odd
static const Bits DARK = 0x55AA55AA55AA55AAu;
static const Bits LAST_ROW = 0xFFu;  // for a side that plays upwards

// The board as one side sees it, playing upwards.
typedef struct {
    Bits own, other, kings;  // kings of both
} View;

typedef struct {
    PufSlots slots;
    View board;        // as side 0 sees it
    Bits legal[4];     // squares from which the side to move may go, for each direction; its view
    Bits jumper;       // the piece that must go on jumping, in the mover's view, or 0
    int32_t captures;  // whether those moves are jumps
    int32_t quiet;     // turns since the last capture or man's move
    PufDuel duel;
    int32_t draw_after, max_moves;
    float reward_capture;
} Checkers;

static const PufField params[] = {
    PUF_DUEL_PARAMS(Checkers, 0.1),
    PUF_PARAM_I32(Checkers, draw_after, 80, 1, 1000,
                  "turns of both sides without capture or man's move until a draw"),
    PUF_PARAM_I32(Checkers, max_moves, 1000, 1, 1000000, "steps before the game is a draw"),
    PUF_PARAM_F32(Checkers, reward_capture, 0.05, 0, 1, "reward for a captured piece"),
};

static const PufField metrics[] = {PUF_DUEL_METRICS(Checkers, "moves and jumps of the agents")};

// ---- Bits ---------------------------------------------------------------------------------------

enum { UP_LEFT, UP_RIGHT, DOWN_LEFT, DOWN_RIGHT };

// Squares one step from `squares`; 3 - direction is the way back. A step over the left or right
// edge would lead to a light square, where no piece can be, so nothing wraps.
static inline Bits shifted(Bits squares, int32_t direction) {
    static const int32_t shifts[] = {SIDE + 1, SIDE - 1, SIDE - 1, SIDE + 1};
    return direction < DOWN_LEFT ? squares >> shifts[direction] : squares << shifts[direction];
}

// The board turned by half: bit 63 - i is bit i.
static inline Bits turned(Bits bits) {
    bits = (bits >> 1 & 0x5555555555555555u) | (bits & 0x5555555555555555u) << 1;
    bits = (bits >> 2 & 0x3333333333333333u) | (bits & 0x3333333333333333u) << 2;
    bits = (bits >> 4 & 0x0F0F0F0F0F0F0F0Fu) | (bits & 0x0F0F0F0F0F0F0F0Fu) << 4;
    return __builtin_bswap64(bits);
}

static inline View other_view(View view) {
    return (View){turned(view.other), turned(view.own), turned(view.kings)};
}

static inline View view_of(const Checkers* env, int32_t side) {
    return side == 0 ? env->board : other_view(env->board);
}

// The dark squares as 32 bits in a row.
static inline uint32_t packed(Bits bits) {
    bits = (bits >> 1 & 0x0055005500550055u) | (bits & 0x5500550055005500u);
    bits = (bits | bits >> 1) & 0x3333333333333333u;
    bits = (bits | bits >> 2) & 0x0F0F0F0F0F0F0F0Fu;
    bits = (bits | bits >> 4) & 0x00FF00FF00FF00FFu;
    bits = (bits | bits >> 8) & 0x0000FFFF0000FFFFu;
    return (uint32_t)(bits | bits >> 16);
}

static inline Bits square_bit(int32_t square) {
    const int32_t row = square / 4;
    return (Bits)1 << (SIDE * row + 2 * (square % 4) + (row % 2 == 0));
}

// ---- Rules --------------------------------------------------------------------------------------

// Pieces that can jump in a direction.
static inline Bits find_jumps(View view, int32_t direction) {
    const Bits movers = direction < DOWN_LEFT ? view.own : view.own & view.kings;
    const Bits empty = DARK & ~(view.own | view.other);
    return movers & shifted(view.other & shifted(empty, 3 - direction), 3 - direction);
}

static inline Bits find_steps(View view, int32_t direction) {
    const Bits movers = direction < DOWN_LEFT ? view.own : view.own & view.kings;
    return movers & shifted(DARK & ~(view.own | view.other), 3 - direction);
}

// Fills in the legal moves of the side to move; whether there are any.
static bool find_moves(Checkers* env) {
    const View view = view_of(env, env->duel.mover);
    const Bits pieces = env->jumper ? env->jumper : ~(Bits)0;
    Bits any = 0;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        any |= env->legal[d] = find_jumps(view, d) & pieces;
    env->captures = any != 0;
    if (any) return true;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        any |= env->legal[d] = find_steps(view, d) & pieces;
    return any != 0;
}

// The view after a step or jump of the piece on `from`.
static inline View hop(View view, Bits from, int32_t direction, bool jumps) {
    const Bits over = shifted(from, direction), to = jumps ? shifted(over, direction) : over;
    const bool king = view.kings & from || to & LAST_ROW;
    view.own ^= from | to;
    view.kings &= ~from;
    view.kings |= king ? to : 0;
    if (jumps) {
        view.other &= ~over;
        view.kings &= ~over;
    }
    return view;
}

// Moves a piece of the side to move. Its turn ends unless it can jump on.
static void place(Checkers* env, Bits from, int32_t direction) {
    const int32_t mover = env->duel.mover;
    const bool jumps = env->captures;
    const View before = view_of(env, mover), view = hop(before, from, direction, jumps);
    const Bits over = shifted(from, direction), to = jumps ? shifted(over, direction) : over;
    const bool was_man = !(before.kings & from), crowned = was_man && to & LAST_ROW;
    env->board = mover == 0 ? view : other_view(view);
    env->quiet = jumps || was_man ? 0 : env->quiet + 1;
    env->jumper = 0;
    if (jumps) {
        puf_reward(&env->slots, 0, mover == 0 ? env->reward_capture : -env->reward_capture);
        if (puf_duel_is_self(&env->duel))
            puf_reward(&env->slots, 1, mover == 1 ? env->reward_capture : -env->reward_capture);
        for (int32_t d = 0; d < NUM_DIRECTIONS && !crowned; d++)
            env->jumper |= find_jumps(view, d) & to;
    }
    if (env->jumper) return;
    env->duel.mover ^= 1;
}

// Ends the game if the side to move cannot, or if nothing has happened for long. Finds its moves.
static PufStatus settle(Checkers* env) {
    if (!find_moves(env))
        return puf_duel_end(&env->slots, &env->duel, env->duel.mover == 0 ? -1 : 1,
                            env->slots.tick);
    if (env->quiet >= env->draw_after || env->slots.tick >= env->max_moves)
        return puf_duel_end(&env->slots, &env->duel, 0, env->slots.tick);
    return PUF_RUNNING;
}

// ---- The opponent -------------------------------------------------------------------------------

// Pieces of `own` that the other side could capture next.
static inline Bits in_danger(View view) {
    const Bits empty = DARK & ~(view.own | view.other);
    Bits pieces = 0;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++) {
        const Bits movers = d >= DOWN_LEFT ? view.other : view.other & view.kings;
        pieces |= shifted(movers, d) & view.own & shifted(empty, 3 - d);
    }
    return pieces;
}

// What a move is worth to the script: captures, a new king, safety of its pieces; kings approach,
// men leave their first row last.
static int32_t worth(View before, View after, Bits from) {
    static const Bits FIRST_ROW = 0xFF00000000000000u, MIDDLE = 0x00003C3C3C3C0000u;
    const int32_t captured = __builtin_popcountll(before.other) - __builtin_popcountll(after.other);
    const bool crowned = __builtin_popcountll(after.own & after.kings) >
                         __builtin_popcountll(before.own & before.kings);
    const Bits danger = in_danger(after), to = after.own & ~before.own;
    return 20 * captured + 12 * crowned - 15 * (danger != 0) - 8 * ((danger & after.kings) != 0) -
           4 * ((from & FIRST_ROW) != 0) + 2 * ((to & MIDDLE) != 0);
}

typedef struct {
    Bits from;
    int32_t direction;
} Move;

// One of the legal moves, each equally likely.
static Move pick_move(Checkers* env) {
    int32_t counts[NUM_DIRECTIONS], total = 0, direction = 0;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        total += counts[d] = __builtin_popcountll(env->legal[d]);
    int32_t left = puf_rand_int(&env->slots.rng, total);
    while (left >= counts[direction]) left -= counts[direction++];
    return (Move){puf_nth_bit(env->legal[direction], left), direction};
}

static Move answer(Checkers* env) {
    if (puf_duel_rolls(&env->duel, &env->slots.rng)) return pick_move(env);
    const View view = view_of(env, env->duel.mover);
    Move best = {0};
    int32_t most = INT32_MIN, equals = 0;
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        for (Bits left = env->legal[d]; left; left &= left - 1) {
            const Bits from = left & -left;
            const int32_t value = worth(view, hop(view, from, d, env->captures), from);
            if (value < most) continue;
            equals = value > most ? 1 : equals + 1;  // each of the best is equally likely
            most = value;
            if (puf_rand_int(&env->slots.rng, equals) == 0) best = (Move){from, d};
        }
    return best;
}

// ---- Steps --------------------------------------------------------------------------------------

// The other side moves until it is agent 0's turn. A turn captures at most all pieces.
static PufStatus reply(Checkers* env) {
    PufStatus status = PUF_RUNNING;
    while (status == PUF_RUNNING && env->duel.mover == 1) {
        const Move move = answer(env);
        place(env, move.from, move.direction);
        status = settle(env);
    }
    return status;
}

static void reset(Checkers* env) {
    const Bits own = DARK & 0xFFFFFF0000000000u;
    env->board = (View){own, turned(own), 0};
    env->jumper = 0;
    env->quiet = 0;
    env->duel.mover = puf_rand_int(&env->slots.rng, 2);
    find_moves(env);
    if (!puf_duel_is_self(&env->duel)) reply(env);
}

// The move for an action: that one, else the next legal one, cyclically.
static Move chosen(const Checkers* env, int32_t action) {
    while (!(env->legal[action / SQUARES] & square_bit(action % SQUARES)))
        action = action == NUM_ACTIONS - 1 ? 0 : action + 1;
    return (Move){square_bit(action % SQUARES), action / SQUARES};
}

static PufStatus step(Checkers* env) {
    const Move move = chosen(env, puf_action(&env->slots, env->duel.mover));
    place(env, move.from, move.direction);
    const PufStatus status = settle(env);
    return status != PUF_RUNNING || puf_duel_is_self(&env->duel) ? status : reply(env);
}

// ---- Observations -------------------------------------------------------------------------------

static void look(const Checkers* env, int32_t agent) {
    const bool waits = env->duel.mover != agent;
    const float strength = waits ? 0.5f : 1;
    const View view = view_of(env, agent);
    float* obs = puf_obs_f32(&env->slots, agent);
    puf_duel_look(obs, packed(view.own), packed(view.other), SQUARES, strength);
    puf_duel_look(obs + SQUARES, packed(view.own & view.kings), packed(view.other & view.kings),
                  SQUARES, strength);
    obs[2 * SQUARES] = (float)env->quiet / (float)env->draw_after;
    if (waits) {
        puf_duel_wait(&env->slots, agent, NUM_ACTIONS);
        return;
    }
    uint8_t* mask = puf_action_mask(&env->slots, agent);
    for (int32_t d = 0; d < NUM_DIRECTIONS; d++)
        puf_bits_to_bytes(mask + SQUARES * d, packed(env->legal[d]), SQUARES);
}

static void observe(const Checkers* env) {
    look(env, 0);
    if (puf_duel_is_self(&env->duel)) look(env, 1);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 56, MARGIN = 20, HEADER = 44 };

static void draw_crown(PufCanvas* canvas, float x, float y) {
    const float crown[] = {-12, 8, -14, -7, -6, 0, 0, -11, 6, 0, 14, -7, 12, 8};
    float corners[14];
    for (int32_t i = 0; i < 14; i++) corners[i] = crown[i] + (i % 2 ? y : x);
    puf_polygon(canvas, corners, 7, PUF_YELLOW);
}

static void render(const Checkers* env, PufCanvas* canvas) {
    static const uint32_t colors[2] = {0xC8352F, 0xF1E9D8};
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, MARGIN - 6, HEADER - 6, SIDE * PIXELS + 12, SIDE * PIXELS + 12, 0x4A2F1B);
    for (int32_t i = 0; i < SIDE * SIDE; i++) {
        const float left = MARGIN + (float)(i % SIDE * PIXELS);
        const float top = HEADER + (float)(i / SIDE * PIXELS);
        const float x = left + 0.5f * PIXELS, y = top + 0.5f * PIXELS;
        const Bits square = (Bits)1 << i;
        puf_rect(canvas, left, top, PIXELS, PIXELS, DARK & square ? 0x3F6B4F : 0xE8DCC0);
        if (!((env->board.own | env->board.other) & square)) continue;
        const uint32_t color = colors[env->board.other & square ? 1 : 0];
        puf_circle(canvas, x + 1, y + 4, 0.41f * PIXELS, 0x26402F);
        puf_draw_stone(canvas, x, y, 0.41f * PIXELS, color);
        if (env->board.kings & square) draw_crown(canvas, x, y);
    }
    puf_draw_sides(canvas, MARGIN, HEADER / 2 - 4, &env->duel, colors);
    puf_textf(canvas, MARGIN + 336, HEADER / 2 - 11, 2, PUF_PAPER, "%d : %d",
              __builtin_popcountll(env->board.own), __builtin_popcountll(env->board.other));
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Checkers* env) {
    const View board = env->board;
    const Bits pieces = board.own | board.other;
    if (!puf_duel_valid(&env->duel) || pieces & ~DARK || board.own & board.other ||
        board.kings & ~pieces || board.own & LAST_ROW & ~board.kings ||
        turned(board.other) & LAST_ROW & ~turned(board.kings))
        return false;
    Checkers fresh = *env;
    if (!find_moves(&fresh) || memcmp(fresh.legal, env->legal, sizeof env->legal)) return false;
    return env->captures == fresh.captures && (!env->jumper || env->captures) && env->quiet >= 0 &&
           env->quiet < env->draw_after && env->slots.tick < env->max_moves;
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = puf_duel_agents(&((const Checkers*)self)->duel);
}

PUF_ENV(checkers, Checkers, .doc = "English draughts: capture or block all pieces",
        .group = "boards", .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {OBS}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .action_masks = true,
                   .width = SIDE * PIXELS + 2 * MARGIN,
                   .height = SIDE * PIXELS + HEADER + MARGIN});
