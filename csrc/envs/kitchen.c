// kitchen - two cooks make onion soup together: three onions, a pot, a plate, the counter.
//
// One tick:
// 1. Both cooks act. A move (1 up, 2 right, 3 down, 4 left) turns the cook; then it walks, if the
//    cell is floor. Two cooks that want the same cell, or each other's, both stay; a cook may enter
//    the cell that the other leaves. 0 does nothing.
// 2. A cook that works (5) uses the cell that it faces; which cook goes first changes every tick.
//    With free hands it takes an onion or a plate from its store, or what lies on a counter. An
//    onion goes into a pot with fewer than three. A plate takes the soup from a pot that is done. A
//    soup goes over the serving hatch. Anything may be put down on an empty counter.
// 3. Pots with three onions cook for cook_time ticks, then they are done.
// A served dish rewards both cooks. An onion put into a pot, a plate taken for a full pot and a
// soup taken from one reward the cook that did it. The episode ends after max_steps.
//
// A cook observes itself (facing, hands, place, which cells around are blocked), what it faces, the
// way to the nearest of nine things (see NUM_THINGS), both pots, and the other cook.
#include "puf_env.h"

enum { ROWS = 5, COLS = 7, CELLS = ROWS * COLS, NUM_POTS = 2, NUM_COOKS = 2 };
enum { GALLEY, RING, DIVIDED, NUM_LAYOUTS };
enum { NOTHING, ONION, PLATE, SOUP };
enum { STAY, UP, RIGHT, DOWN, LEFT, WORK, NUM_ACTIONS };

// Onion store, plate store, hatch, pot that takes onions, pot that cooks or is done, then what lies
// on counters (onion, plate, soup), and an empty counter.
enum { STORE_ONIONS, STORE_PLATES, HATCH, OPEN_POT, FULL_POT, LAID, EMPTY_COUNTER = LAID + 3 };
enum { NUM_THINGS = EMPTY_COUNTER + 1 };
enum { NUM_SELF = 13, NUM_FACED = 9, NUM_OTHER = 9 };
enum { FEATURES = NUM_SELF + NUM_FACED + 3 * NUM_THINGS + 3 * NUM_POTS + NUM_OTHER };

// X counter, O onions, D plates, P pot, S hatch, blank floor. Cook 1 begins in the columns left of
// the middle, cook 2 right of it.
static const char layouts[NUM_LAYOUTS][CELLS + 1] = {
    [GALLEY] =
        "XXPXPXX"
        "O     O"
        "X     X"
        "X     X"
        "XXDXSXX",
    [RING] =
        "XXPXPXX"
        "X     X"
        "O XXX D"
        "X     X"
        "XXOXSXX",
    [DIVIDED] =
        "XXXXPXX"
        "O  X  P"
        "O  X  X"
        "D  X  S"
        "XXXXXXX",
};

typedef struct {
    int32_t cell;
    int32_t onions, timer;  // ticks until it is done
} Pot;

typedef struct {
    int32_t cell, facing;  // 0 up, 1 right, 2 down, 3 left
    int32_t hands;
} Cook;

typedef struct {
    PufSlots slots;
    Cook cooks[NUM_COOKS];
    Pot pots[NUM_POTS];
    int32_t dishes;
    float score, perf;
    int32_t layout, cook_time, par, max_steps;
    float reward_dish, reward_onion, reward_plate, reward_soup;
    uint8_t laid[CELLS];  // what lies on the counters
} Kitchen;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Kitchen, layout, GALLEY, NUM_LAYOUTS, "galley|ring|divided",
                     "one open room; a way around an island; two rooms with a counter between"),
    PUF_PARAM_I32(Kitchen, cook_time, 20, 1, 1000, "ticks until a soup is done"),
    PUF_PARAM_I32(Kitchen, par, 16, 1, 100000, "dishes at which perf is 1"),
    PUF_PARAM_I32(Kitchen, max_steps, 400, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Kitchen, reward_dish, 1, -10, 10, "reward of both cooks for a dish"),
    PUF_PARAM_F32(Kitchen, reward_onion, 0.15, -10, 10, "reward for an onion put into a pot"),
    PUF_PARAM_F32(Kitchen, reward_plate, 0.15, -10, 10, "reward for a plate that a pot waits for"),
    PUF_PARAM_F32(Kitchen, reward_soup, 0.4, -10, 10, "reward for a soup taken from a pot"),
};

static const PufField metrics[] = {
    PUF_METRIC(Kitchen, score, "dishes served"),
    PUF_METRIC(Kitchen, perf, "score / par, at most 1"),
};

// ---- The room -----------------------------------------------------------------------------------

static const int32_t deltas[4] = {-COLS, 1, COLS, -1};

static char kind_of(const Kitchen* env, int32_t cell) { return layouts[env->layout][cell]; }

// Every layout is closed: what a cook faces is inside.
static int32_t faced_by(const Cook* cook) { return cook->cell + deltas[cook->facing]; }

static Pot* pot_at(Kitchen* env, int32_t cell) {
    return &env->pots[env->pots[0].cell == cell ? 0 : 1];
}

static bool is_done(const Pot* pot) { return pot->onions == 3 && !pot->timer; }

// ---- Rules --------------------------------------------------------------------------------------

static void reset(Kitchen* env) {
    PufRng* rng = &env->slots.rng;
    const int32_t swapped = puf_rand_int(rng, 2);
    for (int32_t i = 0; i < NUM_COOKS; i++) {
        Cook* cook = &env->cooks[i ^ swapped];
        do {
            const int32_t row = 1 + puf_rand_int(rng, ROWS - 2), col = 1 + puf_rand_int(rng, 2);
            cook->cell = row * COLS + (i ? COLS - 1 - col : col);
        } while (kind_of(env, cook->cell) != ' ');
        cook->facing = puf_rand_int(rng, 4);
        cook->hands = NOTHING;
    }
    Pot* pot = env->pots;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        if (kind_of(env, cell) != 'P') continue;
        *pot = (Pot){.cell = cell, .onions = puf_rand_int(rng, 4)};
        if (pot->onions == 3) pot->timer = puf_rand_int(rng, env->cook_time + 1);
        pot++;
    }
    memset(env->laid, NOTHING, sizeof env->laid);
    env->dishes = 0;
}

static void walk(Kitchen* env) {
    int32_t to[NUM_COOKS];
    for (int32_t i = 0; i < NUM_COOKS; i++) {
        Cook* cook = &env->cooks[i];
        const int32_t action = puf_action(&env->slots, i);
        to[i] = cook->cell;
        if (action < UP || action > LEFT) continue;
        cook->facing = action - UP;
        if (kind_of(env, faced_by(cook)) == ' ') to[i] = faced_by(cook);
    }
    const int32_t a = env->cooks[0].cell, b = env->cooks[1].cell;
    if (to[0] == to[1] || (to[0] == b && to[1] == a)) return;
    env->cooks[0].cell = to[0];
    env->cooks[1].cell = to[1];
}

static void use_pot(Kitchen* env, int32_t i, Pot* pot) {
    Cook* cook = &env->cooks[i];
    if (cook->hands == ONION && pot->onions < 3) {
        cook->hands = NOTHING;
        if (++pot->onions == 3) pot->timer = env->cook_time;
        puf_reward(&env->slots, i, env->reward_onion);
    } else if (cook->hands == PLATE && is_done(pot)) {
        cook->hands = SOUP;
        pot->onions = 0;
        puf_reward(&env->slots, i, env->reward_soup);
    }
}

// A plate is rewarded while there are more full pots than plates about.
static void take_plate(Kitchen* env, int32_t i) {
    int32_t wanted = 0;
    for (int32_t k = 0; k < NUM_POTS; k++) wanted += env->pots[k].onions == 3;
    for (int32_t k = 0; k < NUM_COOKS; k++) wanted -= env->cooks[k].hands == PLATE;
    for (int32_t cell = 0; cell < CELLS; cell++) wanted -= env->laid[cell] == PLATE;
    if (wanted > 0) puf_reward(&env->slots, i, env->reward_plate);
    env->cooks[i].hands = PLATE;
}

static void work(Kitchen* env, int32_t i) {
    Cook* cook = &env->cooks[i];
    const int32_t cell = faced_by(cook), hands = cook->hands;
    switch (kind_of(env, cell)) {
        case 'O':
            if (!hands) cook->hands = ONION;
            break;
        case 'D':
            if (!hands) take_plate(env, i);
            break;
        case 'P':
            use_pot(env, i, pot_at(env, cell));
            break;
        case 'S':
            if (hands != SOUP) break;
            cook->hands = NOTHING;
            env->dishes++;
            for (int32_t k = 0; k < NUM_COOKS; k++) puf_reward(&env->slots, k, env->reward_dish);
            break;
        case 'X':
            if (hands && env->laid[cell]) break;
            cook->hands = env->laid[cell];
            env->laid[cell] = (uint8_t)hands;
            break;
        default:  // floor
            break;
    }
}

static PufStatus step(Kitchen* env) {
    const int32_t first = env->slots.tick & 1;
    walk(env);
    for (int32_t i = 0; i < NUM_POTS; i++) env->pots[i].timer -= env->pots[i].timer > 0;
    if (puf_action(&env->slots, first) == WORK) work(env, first);
    if (puf_action(&env->slots, 1 - first) == WORK) work(env, 1 - first);
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)env->dishes;
    env->perf = fminf(1, env->score / (float)env->par);
    return PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

// Which of the nine things a cell is, or -1.
static inline int32_t thing_at(const Kitchen* env, int32_t cell) {
    switch (kind_of(env, cell)) {
        case 'O':
            return STORE_ONIONS;
        case 'D':
            return STORE_PLATES;
        case 'S':
            return HATCH;
        case 'P':
            return env->pots[env->pots[0].cell == cell ? 0 : 1].onions < 3 ? OPEN_POT : FULL_POT;
        case 'X':
            return env->laid[cell] ? LAID + env->laid[cell] - ONION : EMPTY_COUNTER;
        default:
            return -1;
    }
}

// `things` has what thing_at says of every cell.
static void look(const Kitchen* env, int32_t i, const int8_t things[CELLS]) {
    const Cook *cook = &env->cooks[i], *other = &env->cooks[1 - i];
    const int32_t row = cook->cell / COLS, col = cook->cell % COLS;
    float* obs = puf_obs_f32(&env->slots, i);
    memset(obs, 0, FEATURES * sizeof(float));
    obs[cook->facing] = 1;
    if (cook->hands) obs[4 + cook->hands - ONION] = 1;
    obs[7] = (float)row / ROWS;
    obs[8] = (float)col / COLS;
    for (int32_t k = 0; k < 4; k++) {
        const int32_t beside = cook->cell + deltas[k];
        obs[9 + k] = kind_of(env, beside) != ' ' || beside == other->cell;
    }
    obs += NUM_SELF;
    const int32_t faced = things[faced_by(cook)];
    if (faced >= 0) obs[faced] = 1;
    obs += NUM_FACED;
    int32_t nearest[NUM_THINGS];
    for (int32_t k = 0; k < NUM_THINGS; k++) nearest[k] = CELLS;
    for (int32_t cell = 1; cell < CELLS - 1; cell++) {
        const int32_t thing = things[cell];
        if (thing < 0) continue;
        const int32_t down = cell / COLS - row, right = cell % COLS - col;
        const int32_t distance = (down < 0 ? -down : down) + (right < 0 ? -right : right);
        if (distance >= nearest[thing]) continue;
        nearest[thing] = distance;
        obs[3 * thing] = 1;
        obs[3 * thing + 1] = (float)right / COLS;
        obs[3 * thing + 2] = (float)down / ROWS;
    }
    obs += 3 * NUM_THINGS;
    for (int32_t k = 0; k < NUM_POTS; k++, obs += 3) {
        obs[0] = (float)env->pots[k].onions / 3;
        obs[1] = (float)env->pots[k].timer / (float)env->cook_time;
        obs[2] = is_done(&env->pots[k]);
    }
    obs[0] = (float)(other->cell % COLS - col) / COLS;
    obs[1] = (float)(other->cell / COLS - row) / ROWS;
    obs[2 + other->facing] = 1;
    if (other->hands) obs[6 + other->hands - ONION] = 1;
}

static void observe(const Kitchen* env) {
    int8_t things[CELLS];
    for (int32_t cell = 0; cell < CELLS; cell++) things[cell] = (int8_t)thing_at(env, cell);
    for (int32_t i = 0; i < NUM_COOKS; i++) look(env, i, things);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 72, HEADER = 36 };

static void draw_item(PufCanvas* canvas, float x, float y, int32_t item) {
    if (item == PLATE || item == SOUP) {
        puf_circle(canvas, x, y, 16, PUF_WHITE);
        puf_ring(canvas, x, y, 16, 2, PUF_GREY);
    }
    if (item == SOUP) puf_circle(canvas, x, y, 11, PUF_ORANGE);
    if (item == ONION) {
        puf_circle(canvas, x, y + 2, 11, PUF_YELLOW);
        puf_line(canvas, x, y - 8, x, y - 14, 4, PUF_GREEN);
        puf_ring(canvas, x, y + 2, 7, 2, 0xC99A2E);
    }
}

static void draw_pot(PufCanvas* canvas, float x, float y, const Pot* pot) {
    puf_rect(canvas, x + 6, y + 6, PIXELS - 12, PIXELS - 12, PUF_INK);  // the stove
    puf_line(canvas, x + 10, y + 36, x + 62, y + 36, 8, 0x4A5561);      // handles
    puf_circle(canvas, x + 36, y + 36, 23, 0x5E6B78);
    puf_circle(canvas, x + 36, y + 36, 18, pot->onions ? 0xE8A54B : 0x2A323A);
    for (int32_t i = 0; i < pot->onions && !is_done(pot); i++)
        puf_circle(canvas, x + 28 + 8 * (float)i, y + 34 + 5 * (float)(i % 2), 6, PUF_YELLOW);
    if (is_done(pot)) puf_circle(canvas, x + 36, y + 36, 18, PUF_ORANGE);
    if (is_done(pot)) puf_ring(canvas, x + 36, y + 36, 24, 3, PUF_GREEN);
    if (pot->timer) puf_textf(canvas, x + 26, y + 30, 2, PUF_WHITE, "%d", (int)pot->timer);
}

static void draw_cell(const Kitchen* env, PufCanvas* canvas, int32_t cell) {
    const float x = (float)(cell % COLS * PIXELS), y = (float)(HEADER + cell / COLS * PIXELS);
    const float mid_x = x + 36, mid_y = y + 36;
    const char kind = kind_of(env, cell);
    if (kind == ' ') {
        const bool dark = (cell / COLS + cell % COLS) % 2;
        puf_rect(canvas, x, y, PIXELS, PIXELS, dark ? 0xE4DCCB : 0xEFE8DA);
        return;
    }
    puf_rect(canvas, x, y, PIXELS, PIXELS, 0xA9794F);
    puf_rect(canvas, x + 3, y + 3, PIXELS - 6, PIXELS - 6, 0xBD8C5E);
    if (kind == 'P') draw_pot(canvas, x, y, &env->pots[env->pots[0].cell == cell ? 0 : 1]);
    if (kind == 'O' || kind == 'D') {
        puf_rect(canvas, x + 10, y + 10, PIXELS - 20, PIXELS - 20,
                 kind == 'O' ? 0x6B4A2E : 0x7C8A97);
        for (int32_t i = 0; i < 3; i++)
            draw_item(canvas, mid_x - 12 + 12 * (float)i, mid_y - 6 + 12 * (float)(i % 2),
                      kind == 'O' ? ONION : PLATE);
    }
    if (kind == 'S') {
        puf_rect(canvas, x + 6, y + 6, PIXELS - 12, PIXELS - 12, PUF_GREEN);
        puf_text(canvas, x + 13, mid_y - 7, 2, PUF_INK, "SERV");
    }
    draw_item(canvas, mid_x, mid_y, env->laid[cell]);
}

static void draw_cook(PufCanvas* canvas, const Cook* cook, uint32_t color) {
    static const float dx[4] = {0, 1, 0, -1}, dy[4] = {-1, 0, 1, 0};
    const float x = (float)(cook->cell % COLS * PIXELS + 36);
    const float y = (float)(HEADER + cook->cell / COLS * PIXELS + 36);
    const float ahead_x = dx[cook->facing], ahead_y = dy[cook->facing];
    puf_circle(canvas, x, y + 6, 24, color);
    puf_circle(canvas, x, y - 4, 16, 0xF2C9A0);
    puf_rect(canvas, x - 13, y - 20, 26, 10, PUF_WHITE);  // the hat
    for (int32_t i = -1; i <= 1; i++) puf_circle(canvas, x + 10 * (float)i, y - 24, 9, PUF_WHITE);
    if (cook->facing != 0)
        for (int32_t i = -1; i <= 1; i += 2)
            puf_circle(canvas, x + 6 * (float)i + 4 * ahead_x, y - 3, 3, PUF_INK);
    if (cook->hands) draw_item(canvas, x + 26 * ahead_x, y + 10 + 22 * ahead_y, cook->hands);
    puf_circle(canvas, x + 30 * ahead_x, y + 30 * ahead_y, 4, color);
}

static void render(const Kitchen* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_INK);
    for (int32_t cell = 0; cell < CELLS; cell++) draw_cell(env, canvas, cell);
    draw_cook(canvas, &env->cooks[0], PUF_BLUE);
    draw_cook(canvas, &env->cooks[1], PUF_RED);
    puf_textf(canvas, 10, 11, 2, PUF_PAPER, "DISHES %d  STEP %d", (int)env->dishes,
              (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Kitchen* env) {
    if (env->slots.tick >= env->max_steps) return false;
    for (int32_t i = 0; i < NUM_COOKS; i++) {
        const Cook* cook = &env->cooks[i];
        if (cook->cell < 0 || cook->cell >= CELLS || kind_of(env, cook->cell) != ' ' ||
            cook->facing < 0 || cook->facing > 3 || cook->hands < NOTHING || cook->hands > SOUP)
            return false;
    }
    int32_t pots = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        if (env->laid[cell] > (kind_of(env, cell) == 'X' ? SOUP : NOTHING)) return false;
        if (kind_of(env, cell) == 'P' && env->pots[pots++].cell != cell) return false;
    }
    for (int32_t i = 0; i < NUM_POTS; i++) {
        const Pot* pot = &env->pots[i];
        if (pot->onions < 0 || pot->onions > 3 || pot->timer < 0 ||
            pot->timer > (pot->onions == 3 ? env->cook_time : 0))
            return false;
    }
    return env->cooks[0].cell != env->cooks[1].cell && env->dishes >= 0 &&
           env->dishes <= NUM_COOKS * env->slots.tick;
}

PUF_ENV(kitchen, Kitchen, .doc = "two cooks make and serve onion soup together",
        .group = "many agents", .action_names = "stay up right down left work",
        .layout = {.agents = NUM_COOKS,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {FEATURES}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .width = COLS * PIXELS,
                   .height = ROWS * PIXELS + HEADER});
