// puf_board.h - what two-sided board games share: opponents, turns, ends, pictures of stones.
//
// A game has two sides, 0 and 1, that move in turn; a coin decides which one begins. Agent 0 plays
// side 0.
//
// opponent = scripted, random: one agent; a step is its move and the answer of the other side.
// opponent = self: two agents; a step is one move. The waiting agent stays present: its mask allows
// only action 0, which does nothing, and it observes the board at half strength (+-0.5). So its
// action is certain and has no policy gradient, its value is learnt separately from the mover's,
// and a loss reaches the loser's slot in the step of the winning move. Metrics are those of agent
// 0. Every agent observes its own stones as +, so a policy trained in one mode plays the other
// unchanged.
#ifndef PUF_BOARD_H
#define PUF_BOARD_H

#include "puf_bits.h"

enum { PUF_SCRIPTED, PUF_SELF, PUF_RANDOM };

// A member of the env's struct, named `duel`.
typedef struct {
    int32_t mover;  // side to move: 0 or 1
    float score, perf, draw, moves;
    int32_t opponent;
    float opponent_random;
} PufDuel;

#define PUF_DUEL_PARAMS(Type, random_share)                                                        \
    {"opponent",                                                                                   \
     PUF_PARAM_NAMES,                                                                              \
     offsetof(Type, duel.opponent),                                                                \
     PUF_SCRIPTED,                                                                                 \
     0,                                                                                            \
     2,                                                                                            \
     "a script, a second agent, or random legal moves",                                            \
     "scripted|self|random"},                                                                      \
    {                                                                                              \
        "opponent_random", PUF_PARAM_FLOAT, offsetof(Type, duel.opponent_random), random_share, 0, \
            1, "share of the scripted opponent's moves that are random", NULL                      \
    }

#define PUF_DUEL_METRIC(Type, name, doc) \
    {#name, PUF_PARAM_FLOAT, offsetof(Type, duel.name), 0, 0, 0, doc, NULL}
#define PUF_DUEL_METRICS(Type, moves_doc)                                         \
    PUF_DUEL_METRIC(Type, score, "1 for a win, 0 for a draw, -1 for a loss"),     \
        PUF_DUEL_METRIC(Type, perf, "1 for a win, 0.5 for a draw, 0 for a loss"), \
        PUF_DUEL_METRIC(Type, draw, "1 for a draw, else 0"),                      \
        PUF_DUEL_METRIC(Type, moves, moves_doc)

// ---- Turns --------------------------------------------------------------------------------------

static inline bool puf_duel_is_self(const PufDuel* duel) { return duel->opponent == PUF_SELF; }

static inline int32_t puf_duel_agents(const PufDuel* duel) {
    return puf_duel_is_self(duel) ? 2 : 1;
}

// Whether the opponent's next move is random.
static inline bool puf_duel_rolls(const PufDuel* duel, PufRng* rng) {
    return duel->opponent == PUF_RANDOM || puf_rand(rng) < duel->opponent_random;
}

// Ends the game; `result` is +1 for a win of side 0, 0 for a draw, -1 for a loss. Win +1, loss -1.
static inline PufStatus puf_duel_end(const PufSlots* slots, PufDuel* duel, float result,
                                     int32_t moves) {
    duel->score = result;
    duel->perf = 0.5f + 0.5f * result;
    duel->draw = result == 0;
    duel->moves = (float)moves;
    puf_reward(slots, 0, result);
    if (puf_duel_is_self(duel)) puf_reward(slots, 1, -result);
    return PUF_TERMINATED;
}

// Between two steps it is an agent's turn.
static inline bool puf_duel_valid(const PufDuel* duel) {
    return duel->mover == 0 || (duel->mover == 1 && puf_duel_is_self(duel));
}

// ---- Observations -------------------------------------------------------------------------------

// One number for each of `count` bits, a multiple of 4: `strength` where `own` is set, -strength
// where `other` is.
static inline void puf_duel_look(float* out, uint64_t own, uint64_t other, int32_t count,
                                 float strength) {
    typedef int32_t Lanes __attribute__((vector_size(16)));
    typedef float FloatLanes __attribute__((vector_size(16)));
    const Lanes cells = {1, 2, 4, 8};
    for (int32_t i = 0; i < count; i += 4, own >>= 4, other >>= 4) {
        const Lanes mine = ((int32_t)own & cells) == cells;
        const Lanes theirs = ((int32_t)other & cells) == cells;
        const FloatLanes seen =
            strength * __builtin_convertvector(theirs - mine, FloatLanes);  // a true lane is -1
        memcpy(out + i, &seen, sizeof seen);
    }
}

// The mask of an agent that waits for its turn.
static inline void puf_duel_wait(const PufSlots* slots, int32_t agent, int32_t num_actions) {
    uint8_t* mask = puf_action_mask(slots, agent);
    memset(mask, 0, (size_t)num_actions);
    mask[0] = 1;
}

// ---- Pictures -----------------------------------------------------------------------------------

static inline void puf_draw_stone(PufCanvas* canvas, float x, float y, float radius,
                                  uint32_t color) {
    puf_circle(canvas, x, y, radius, color);
    puf_ring(canvas, x, y, 0.78f * radius, 0.12f * radius, puf_blend(color, PUF_BLACK, 0.22f));
}

// A line above the board: both sides with their colours, from x on and centred on y.
static inline void puf_draw_sides(PufCanvas* canvas, float x, float y, const PufDuel* duel,
                                  const uint32_t colors[2]) {
    static const char* const names[] = {"SCRIPT", "AGENT 1", "RANDOM"};
    puf_draw_stone(canvas, x + 8, y, 10, colors[0]);
    puf_text(canvas, x + 26, y - 7, 2, PUF_PAPER, "AGENT 0");
    puf_draw_stone(canvas, x + 148, y, 10, colors[1]);
    puf_text(canvas, x + 166, y - 7, 2, PUF_PAPER, names[duel->opponent]);
}

#endif
