// tron - light cycles that leave walls behind them; the last one that rides wins.
//
// One tick, for all cycles at once: each goes straight on or turns left or right (actions 0, 1, 2),
// then moves by one cell. A cycle crashes into the border, into any trail, its own included, and
// into a cycle that enters the same cell, which crashes too. Trails stay. The round ends when at
// most one cycle rides; if the last ones crash together it is a draw. Win +1, loss -1, draw 0.
//
// A cycle observes, in its own frame (ahead, right): which cells of the 9 x 9 around it are taken,
// how far it is to the next taken cell to the left, half left, ahead, half right and right, how
// much room each of the three moves leaves (0 none, 1 as much as the best of them), and for each
// other cycle: whether it rides, its offset and its heading.
//
// opponent = scripted, random: one agent, against cycles that ride by script or at random among
// free cells. The script rides straight on until something is near, then turns to where it can
// reach most cells. opponent = self: every cycle is an agent; one that crashes leaves until the
// round ends.
#include "puf_env.h"

enum {
    MAX_SIDE = 30,
    ROWS = 32,  // the arena with its border: one bit per cell, one word per row
    MAX_CYCLES = 4,
    VISION = 4,
    WINDOW = 2 * VISION + 1,
    NUM_RAYS = 5,
    OTHER_FEATURES = 5,
    NUM_MOVES = 3,
    NUM_FEATURES = WINDOW * WINDOW + NUM_RAYS + NUM_MOVES + OTHER_FEATURES * (MAX_CYCLES - 1),
};
enum { STRAIGHT, TURN_LEFT, TURN_RIGHT };
enum { UP, RIGHT, DOWN, LEFT };
enum { SCRIPTED, SELF, RANDOM };

static const int32_t step_x[4] = {0, 1, 0, -1}, step_y[4] = {-1, 0, 1, 0};

typedef struct {
    int32_t x, y, direction, rides;  // 1: rides, 0: has crashed
} Cycle;

typedef struct {
    PufSlots slots;
    uint32_t taken[ROWS];               // border and all trails
    uint32_t trails[MAX_CYCLES][ROWS];  // for the picture
    Cycle cycles[MAX_CYCLES];
    float score, perf, length;
    int32_t opponent, num_cycles, side;
    float opponent_random;
} Tron;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Tron, opponent, SCRIPTED, 3, "scripted|self|random",
                     "scripts, agents, or random rides"),
    PUF_PARAM_I32(Tron, num_cycles, 2, 2, MAX_CYCLES, "cycles in the arena"),
    PUF_PARAM_I32(Tron, side, 24, 8, MAX_SIDE, "side of the arena in cells"),
    PUF_PARAM_F32(Tron, opponent_random, 0.05, 0, 1,
                  "chance per tick that a script turns at random"),
};

static const PufField metrics[] = {
    PUF_METRIC(Tron, score, "1 for a win, 0 for a draw, -1 for a loss"),
    PUF_METRIC(Tron, perf, "1 for a win, 0.5 for a draw, 0 for a loss"),
    PUF_METRIC(Tron, length, "ticks that the cycle rode"),
};

// ---- The arena ----------------------------------------------------------------------------------

static inline bool is_taken(const Tron* env, int32_t x, int32_t y) {
    if ((uint32_t)x >= ROWS || (uint32_t)y >= ROWS) return true;
    return env->taken[y] >> x & 1;
}

static inline int32_t turned(int32_t direction, int32_t action) {
    return (direction + (action == TURN_LEFT ? 3 : action == TURN_RIGHT ? 1 : 0)) & 3;
}

// Bits of the cells inside the border.
static inline uint32_t inside(const Tron* env) { return ((1u << env->side) - 1) << 1; }

static void take(Tron* env, int32_t i) {
    const Cycle* cycle = &env->cycles[i];
    env->taken[cycle->y] |= 1u << cycle->x;
    env->trails[i][cycle->y] |= 1u << cycle->x;
}

static inline int32_t agents_of(const Tron* env) {
    return env->opponent == SELF ? env->num_cycles : 1;
}

// ---- Rules --------------------------------------------------------------------------------------

// All cycles start alike, turned around the middle: the first on the left, riding to the right.
static void reset(Tron* env) {
    const int32_t last = env->side + 1, quarter = env->num_cycles == 2 ? 2 : 1;
    for (int32_t y = 0; y < ROWS; y++) env->taken[y] = y >= 1 && y < last ? ~inside(env) : ~0u;
    memset(env->trails, 0, sizeof env->trails);
    memset(env->cycles, 0, sizeof env->cycles);
    int32_t x = 1 + env->side / 4, y = 1 + puf_rand_int(&env->slots.rng, env->side);
    for (int32_t i = 0; i < env->num_cycles; i++) {
        env->cycles[i] = (Cycle){x, y, (RIGHT + i * quarter) & 3, 1};
        take(env, i);
        for (int32_t k = 0; k < quarter; k++) {
            const int32_t old = x;
            x = last - y;
            y = old;
        }
    }
}

// Cells that can be reached from (x, y), itself included, within 48 steps.
static int32_t room(const Tron* env, int32_t x, int32_t y) {
    uint32_t open[ROWS], fill[ROWS] = {0}, next[ROWS] = {0};
    for (int32_t row = 0; row < ROWS; row++) open[row] = ~env->taken[row];
    if (!(open[y] >> x & 1)) return 0;
    fill[y] = 1u << x;
    for (int32_t i = 0; i < 24; i++) {
        uint32_t changed = 0;
        for (int32_t row = 1; row < ROWS - 1; row++) {
            const uint32_t here = fill[row];
            next[row] = (here | here << 1 | here >> 1 | fill[row - 1] | fill[row + 1]) & open[row];
        }
        for (int32_t row = 1; row < ROWS - 1; row++) {
            const uint32_t here = next[row];
            const uint32_t grown =
                (here | here << 1 | here >> 1 | next[row - 1] | next[row + 1]) & open[row];
            changed |= grown ^ here;
            fill[row] = grown;
        }
        if (!changed) break;
    }
    int32_t count = 0;
    for (int32_t row = 0; row < ROWS; row++) count += __builtin_popcount(fill[row]);
    return count;
}

// One of the free directions at random; straight on if there is none.
static int32_t ride_randomly(Tron* env, const Cycle* cycle) {
    int32_t best = STRAIGHT, seen = 0;
    for (int32_t action = 0; action < 3; action++) {
        const int32_t d = turned(cycle->direction, action);
        if (is_taken(env, cycle->x + step_x[d], cycle->y + step_y[d])) continue;
        if (puf_rand_int(&env->slots.rng, ++seen) == 0) best = action;
    }
    return best;
}

static int32_t ride_by_script(Tron* env, const Cycle* cycle) {
    if (puf_rand(&env->slots.rng) < env->opponent_random) return ride_randomly(env, cycle);
    const int32_t dx = step_x[cycle->direction], dy = step_y[cycle->direction];
    bool near = false;
    for (int32_t k = 1; k <= 2; k++)  // the lane ahead and one on either side of it
        for (int32_t side = -1; side <= 1; side++)
            near =
                near || is_taken(env, cycle->x + k * dx - side * dy, cycle->y + k * dy + side * dx);
    if (!near) return STRAIGHT;
    int32_t best = STRAIGHT, most = -1;
    for (int32_t action = 0; action < 3; action++) {
        const int32_t d = turned(cycle->direction, action);
        const int32_t x = cycle->x + step_x[d], y = cycle->y + step_y[d];
        if (is_taken(env, x, y)) continue;
        // In a tie the way that is open for two cells more.
        const int32_t free = 2 * room(env, x, y) + !is_taken(env, x + step_x[d], y + step_y[d]);
        if (free <= most) continue;
        most = free;
        best = action;
    }
    return best;
}

// What is left to do when cycle `i` has ended its round with this result.
static void settle(Tron* env, int32_t i, float result) {
    env->score = result;
    env->perf = 0.5f + 0.5f * result;
    env->length = (float)env->slots.tick;
    puf_reward(&env->slots, i, result);
}

static void ride(Tron* env) {
    int32_t turns[MAX_CYCLES];
    for (int32_t i = 0; i < env->num_cycles; i++) {
        Cycle* cycle = &env->cycles[i];
        if (!cycle->rides) continue;
        turns[i] = i < agents_of(env)          ? puf_action(&env->slots, i)
                   : env->opponent == SCRIPTED ? ride_by_script(env, cycle)
                                               : ride_randomly(env, cycle);
    }
    for (int32_t i = 0; i < env->num_cycles; i++) {
        Cycle* cycle = &env->cycles[i];
        if (!cycle->rides) continue;
        cycle->direction = turned(cycle->direction, turns[i]);
        cycle->x += step_x[cycle->direction];
        cycle->y += step_y[cycle->direction];
    }
}

// Which cycles have crashed in this tick, as bits.
static uint32_t crashes(const Tron* env) {
    uint32_t crashed = 0;
    for (int32_t i = 0; i < env->num_cycles; i++) {
        const Cycle* cycle = &env->cycles[i];
        if (!cycle->rides) continue;
        if (is_taken(env, cycle->x, cycle->y)) crashed |= 1u << i;
        for (int32_t k = 0; k < i; k++) {
            const Cycle* other = &env->cycles[k];
            if (other->rides && other->x == cycle->x && other->y == cycle->y)
                crashed |= 1u << i | 1u << k;
        }
    }
    return crashed;
}

static PufStatus step(Tron* env) {
    ride(env);
    const uint32_t crashed = crashes(env);
    int32_t riding = 0;
    for (int32_t i = 0; i < env->num_cycles; i++) {
        if (!env->cycles[i].rides) continue;
        if (crashed >> i & 1) continue;
        take(env, i);
        riding++;
    }
    const bool over = riding <= 1 || (env->opponent != SELF && crashed & 1);
    for (int32_t i = 0; i < env->num_cycles; i++) {
        Cycle* cycle = &env->cycles[i];
        const bool counts = cycle->rides && i < agents_of(env);
        if (crashed >> i & 1) cycle->rides = 0;
        if (!counts || (cycle->rides && !over)) continue;
        settle(env, i, cycle->rides ? 1 : riding == 0 ? 0 : -1);
        if (over) {
            puf_sample(&env->slots, i);
        } else {
            puf_end_agent(&env->slots, i);
            puf_set_present(&env->slots, i, false);
        }
    }
    return over ? PUF_TERMINATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

// The room that each move leads to, as a share of the largest. Free cells that touch lead to the
// same room, so most of the time nothing is counted.
static void compare_rooms(const Tron* env, const Cycle* self, float shares[NUM_MOVES]) {
    static const int32_t clockwise[NUM_MOVES] = {TURN_LEFT, STRAIGHT, TURN_RIGHT};
    int32_t xs[NUM_MOVES], ys[NUM_MOVES], cells[NUM_MOVES], most = 1;
    bool one_room = true;
    for (int32_t k = 0, last = -1; k < NUM_MOVES; k++) {
        const int32_t d = turned(self->direction, clockwise[k]), back = (d + 3) & 3;
        xs[k] = self->x + step_x[d];
        ys[k] = self->y + step_y[d];
        cells[k] = !is_taken(env, xs[k], ys[k]);
        if (!cells[k]) continue;
        const bool corner = is_taken(env, xs[k] + step_x[back], ys[k] + step_y[back]);
        if (last >= 0 && (last < k - 1 || corner)) one_room = false;
        last = k;
    }
    for (int32_t k = 0; k < NUM_MOVES && !one_room; k++) {
        if (cells[k]) cells[k] = room(env, xs[k], ys[k]);
        most = cells[k] > most ? cells[k] : most;
    }
    for (int32_t k = 0; k < NUM_MOVES; k++) shares[clockwise[k]] = (float)cells[k] / (float)most;
}

static void look(const Tron* env, int32_t agent) {
    const Cycle* self = &env->cycles[agent];
    const int32_t ahead_x = step_x[self->direction], ahead_y = step_y[self->direction];
    const int32_t right_x = -ahead_y, right_y = ahead_x;
    const float scale = 1 / (float)env->side;
    float* obs = puf_obs_f32(&env->slots, agent);
    for (int32_t ahead = VISION; ahead >= -VISION; ahead--)
        for (int32_t right = -VISION; right <= VISION; right++)
            *obs++ = is_taken(env, self->x + ahead * ahead_x + right * right_x,
                              self->y + ahead * ahead_y + right * right_y);
    static const int32_t rays[NUM_RAYS][2] = {{0, -1}, {1, -1}, {1, 0}, {1, 1}, {0, 1}};
    for (int32_t i = 0; i < NUM_RAYS; i++) {
        const int32_t dx = rays[i][0] * ahead_x + rays[i][1] * right_x;
        const int32_t dy = rays[i][0] * ahead_y + rays[i][1] * right_y;
        int32_t free = 0, x = self->x + dx, y = self->y + dy;
        for (; !is_taken(env, x, y); x += dx, y += dy) free++;
        *obs++ = (float)free * scale;
    }
    compare_rooms(env, self, obs);
    obs += NUM_MOVES;
    for (int32_t k = 1; k < MAX_CYCLES; k++, obs += OTHER_FEATURES) {
        const int32_t i = (agent + k) % env->num_cycles;
        const Cycle* other = &env->cycles[i];
        if (k >= env->num_cycles || !other->rides) {
            memset(obs, 0, OTHER_FEATURES * sizeof(float));
            continue;
        }
        const int32_t dx = other->x - self->x, dy = other->y - self->y;
        const int32_t vx = step_x[other->direction], vy = step_y[other->direction];
        obs[0] = 1;
        obs[1] = fmaxf(fminf((float)(dx * ahead_x + dy * ahead_y) * scale, 1), -1);
        obs[2] = fmaxf(fminf((float)(dx * right_x + dy * right_y) * scale, 1), -1);
        obs[3] = (float)(vx * ahead_x + vy * ahead_y);
        obs[4] = (float)(vx * right_x + vy * right_y);
    }
}

static void observe(const Tron* env) {
    for (int32_t i = 0; i < agents_of(env); i++) look(env, i);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PICTURE = 512, HEADER = 36 };

static void render(const Tron* env, PufCanvas* canvas) {
    static const uint32_t colors[] = {PUF_CYAN, PUF_ORANGE, PUF_GREEN, PUF_PINK};
    static const char* const names[] = {"SCRIPT", "AGENT", "RANDOM"};
    const float cell = (float)PICTURE / (float)(env->side + 2);
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, cell, HEADER + cell, PICTURE - 2 * cell, PICTURE - 2 * cell, 0x040B16);
    for (int32_t i = 2; i <= env->side; i++) {
        puf_rect(canvas, (float)i * cell, HEADER + cell, 1, PICTURE - 2 * cell, 0x0E2238);
        puf_rect(canvas, cell, HEADER + (float)i * cell, PICTURE - 2 * cell, 1, 0x0E2238);
    }
    for (int32_t i = 0; i < env->num_cycles; i++) {
        const uint32_t dark = puf_blend(0x040B16, colors[i], 0.45f);
        for (int32_t y = 1; y <= env->side; y++)
            for (int32_t x = 1; x <= env->side; x++) {
                if (!(env->trails[i][y] >> x & 1)) continue;
                const float left = (float)x * cell, top = HEADER + (float)y * cell;
                const float gap = 0.22f * cell, middle = cell - 2 * gap;
                puf_rect(canvas, left + gap, top + gap, middle, middle, dark);
                if (env->trails[i][y] >> (x + 1) & 1)
                    puf_rect(canvas, left + gap, top + gap, cell, middle, dark);
                if (env->trails[i][y + 1] >> x & 1)
                    puf_rect(canvas, left + gap, top + gap, middle, cell, dark);
            }
    }
    for (int32_t i = 0; i < env->num_cycles; i++) {
        const Cycle* cycle = &env->cycles[i];
        const float x = ((float)cycle->x + 0.5f) * cell,
                    y = HEADER + ((float)cycle->y + 0.5f) * cell;
        const float dx = 0.4f * cell * (float)step_x[cycle->direction];
        const float dy = 0.4f * cell * (float)step_y[cycle->direction];
        if (!cycle->rides) {
            puf_line(canvas, x - 0.4f * cell, y - 0.4f * cell, x + 0.4f * cell, y + 0.4f * cell, 4,
                     PUF_RED);
            puf_line(canvas, x - 0.4f * cell, y + 0.4f * cell, x + 0.4f * cell, y - 0.4f * cell, 4,
                     PUF_RED);
            continue;
        }
        puf_line(canvas, x - dx, y - dy, x + dx, y + dy, 0.7f * cell, colors[i]);
        puf_circle(canvas, x + dx, y + dy, 0.25f * cell, PUF_WHITE);
    }
    puf_text(canvas, 12, 10, 2, colors[0], "AGENT");
    for (int32_t i = 1; i < env->num_cycles; i++)
        puf_text(canvas, 12 + 110 * (float)i, 10, 2, colors[i], names[env->opponent]);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Tron* env) {
    uint32_t all[ROWS];
    for (int32_t y = 0; y < ROWS; y++) {
        all[y] = y >= 1 && y <= env->side ? ~inside(env) : ~0u;
        for (int32_t i = 0; i < MAX_CYCLES; i++) {
            if (env->trails[i][y] & all[y]) return false;  // trails are free of border and others
            all[y] |= env->trails[i][y];
        }
        if (env->taken[y] != all[y]) return false;
    }
    int32_t riding = 0;
    for (int32_t i = 0; i < MAX_CYCLES; i++) {
        const Cycle* cycle = &env->cycles[i];
        if (cycle->x < 0 || cycle->x >= ROWS || cycle->y < 0 || cycle->y >= ROWS ||
            cycle->direction < 0 || cycle->direction > 3 || cycle->rides < 0 || cycle->rides > 1)
            return false;
        if (cycle->rides && (i >= env->num_cycles || !(env->trails[i][cycle->y] >> cycle->x & 1)))
            return false;
        if (i < agents_of(env) && puf_is_present(&env->slots, i) != (cycle->rides == 1))
            return false;
        riding += cycle->rides;
    }
    return riding >= 2;
}

static void shape(const void* self, PufLayout* layout) { layout->agents = agents_of(self); }

PUF_ENV(tron, Tron, .doc = "ride a light cycle and let the others crash first",
        .group = "many agents", .action_names = "straight left right", .own_samples = true,
        .shape = shape,
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(3),
            .width = PICTURE,
            .height = HEADER + PICTURE});
