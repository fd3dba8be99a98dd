// battle - two teams of shooters on a field with walls; the last team standing wins.
//
// One tick:
// 1. Moves (1 up, 2 right, 3 down, 4 left; 0 stays). Units move one after the other, the teams by
//    turns; the unit that begins changes every tick. Walls and units block.
// 2. Shots (5 up, 6 right, 7 down, 8 left), all at once. A shot flies up to `range` cells and stops
//    at the first wall or unit; an enemy there loses one health. Then the gun reloads for
//    reload_time ticks.
// 3. Units without health leave the field. They see the rest of the battle and share its end, but
//    their mask allows only 0.
// The battle ends when a team has no unit left, or after max_steps: then the team with more units
// wins, and if these are equal the team with more health. All units of the winner get 1, those of
// the loser -1. A hit gives reward_hit to the shooter and takes as much from its target.
//
// opponent = scripted, random: one team of agents. self: two teams; the first is team 0, whose perf
// counts. A coin decides which side of the field a team begins on, so both play alike.
//
// A unit observes four 0/1 planes of the 9 x 9 cells around it (walls, its team, enemies, enemies
// with one health left) and flags: health (one per point), ready to fire; an enemy in the line of
// fire above, right, below, left; the way to the nearest enemy; and by how many units its team is
// ahead (-2 or less, -1, 0, 1, 2 or more). After it has left, only the last five are set.
#include "puf_grid.h"

enum { EMPTY, WALL, UNIT };  // unit k of both teams is UNIT + k
enum { SCRIPTED, SELF, RANDOM };
enum { STAY, MOVE, SHOOT = MOVE + 4, NUM_ACTIONS = SHOOT + 4 };
enum {
    VISION = 4,
    SIDE = 2 * VISION + 1,
    WINDOW = SIDE * SIDE,
    NUM_PLANES = 4,
    MAX_HEALTH = 5,
    FEATURES = NUM_PLANES * WINDOW + MAX_HEALTH + 1 + 4 + 4 + 5,
    MAX_SIDE = 32,
    MAX_TEAM = 16,
    MAX_UNITS = 2 * MAX_TEAM,
    CAMP = 3,  // columns where a team begins
    STRIDE = MAX_SIDE + 2 * VISION,
    CELLS = STRIDE * STRIDE
};

typedef struct {
    int16_t cell;
    uint8_t health, reload;
} Unit;

// Team 0 is units 0 to team_size - 1, team 1 the next ones.
typedef struct {
    PufSlots slots;
    float score, perf, draw, steps;
    int32_t width, height, team_size, health, range, reload_time, max_steps, opponent;
    float walls, reward_hit, opponent_random;
    Unit units[MAX_UNITS];
    int8_t shots[MAX_UNITS];  // direction of the last tick's shot, for the picture; or -1
    uint8_t board[CELLS];
} Field;

static const PufField params[] = {
    PUF_PARAM_I32(Field, width, 16, 10, MAX_SIDE, "width of the field in cells"),
    PUF_PARAM_I32(Field, height, 12, 8, MAX_SIDE, "height of the field in cells"),
    PUF_PARAM_I32(Field, team_size, 5, 1, MAX_TEAM, "units in a team"),
    PUF_PARAM_I32(Field, health, 3, 1, MAX_HEALTH, "hits that a unit takes"),
    PUF_PARAM_I32(Field, range, 4, 1, 16, "how far a shot flies, in cells"),
    PUF_PARAM_I32(Field, reload_time, 2, 0, 100, "ticks after a shot without another"),
    PUF_PARAM_F32(Field, walls, 0.08, 0, 0.3, "share of walls between the two camps"),
    PUF_PARAM_I32(Field, max_steps, 200, 1, 100000, "steps before the battle is judged"),
    PUF_PARAM_F32(Field, reward_hit, 0.1, 0, 10, "reward for a hit, and its price for the target"),
    PUF_PARAM_CHOICE(Field, opponent, SCRIPTED, 3, "scripted|self|random",
                     "a script, a second team of agents, or random actions"),
    PUF_PARAM_F32(Field, opponent_random, 0.1, 0, 1,
                  "share of the scripted opponent's actions that are random"),
};

static const PufField metrics[] = {
    PUF_METRIC(Field, score, "enemies eliminated minus own units lost"),
    PUF_METRIC(Field, perf, "1 for a win, 0.5 for a draw, 0 for a loss"),
    PUF_METRIC(Field, draw, "1 for a draw, else 0"),
    PUF_METRIC(Field, steps, "steps of the battle"),
};

// ---- The field ----------------------------------------------------------------------------------

static int32_t team_of(const Field* env, int32_t unit) { return unit >= env->team_size; }

static int32_t count_alive(const Field* env, int32_t team) {
    int32_t alive = 0;
    for (int32_t i = 0; i < env->team_size; i++)
        alive += env->units[team * env->team_size + i].health > 0;
    return alive;
}

// The first thing that a shot meets: a unit, or -1 for a wall or nothing in range.
static int32_t target_of(const Field* env, int32_t unit, int32_t direction) {
    int32_t cell = env->units[unit].cell;
    for (int32_t i = 0; i < env->range; i++) {
        cell = puf_grid_beside(STRIDE, cell, direction);
        if (env->board[cell] != EMPTY) return env->board[cell] - UNIT;  // WALL - UNIT is -1
    }
    return -1;
}

// The enemy that a shot hits, or -1.
static int32_t enemy_hit(const Field* env, int32_t unit, int32_t direction) {
    const int32_t target = target_of(env, unit, direction);
    return target >= 0 && team_of(env, target) != team_of(env, unit) ? target : -1;
}

// The nearest living enemy, or -1.
static int32_t nearest_enemy(const Field* env, int32_t unit) {
    const int32_t first = team_of(env, unit) ? 0 : env->team_size;
    int32_t nearest = -1, least = CELLS;
    for (int32_t i = first; i < first + env->team_size; i++) {
        if (!env->units[i].health) continue;
        const int32_t distance =
            puf_grid_distance(STRIDE, env->units[unit].cell, env->units[i].cell);
        if (distance >= least) continue;
        least = distance;
        nearest = i;
    }
    return nearest;
}

// ---- The scripted opponent ----------------------------------------------------------------------

static bool is_free(const Field* env, int32_t unit, int32_t direction) {
    return env->board[puf_grid_beside(STRIDE, env->units[unit].cell, direction)] == EMPTY;
}

// Shoots at the weakest enemy in line. While the gun reloads it steps out of the line of fire.
// Otherwise it walks towards the nearest enemy, first along the shorter way to a common line.
static int32_t scripted_action(Field* env, int32_t unit) {
    PufRng* rng = &env->slots.rng;
    if (puf_rand(rng) < env->opponent_random) return puf_rand_int(rng, NUM_ACTIONS);
    int32_t best = -1, line = -1;
    for (int32_t direction = 0; direction < 4; direction++) {
        const int32_t target = enemy_hit(env, unit, direction);
        if (target < 0 || (best >= 0 && env->units[target].health >= env->units[best].health))
            continue;
        best = target;
        line = direction;
    }
    if (best >= 0 && !env->units[unit].reload) return SHOOT + line;
    if (best >= 0) {
        const int32_t side = (line + 1 + 2 * puf_rand_int(rng, 2)) & 3;
        if (is_free(env, unit, side)) return MOVE + side;
        return is_free(env, unit, side ^ 2) ? MOVE + (side ^ 2) : STAY;
    }
    const int32_t enemy = nearest_enemy(env, unit);
    if (enemy < 0) return STAY;
    const int32_t from = env->units[unit].cell, to = env->units[enemy].cell;
    const int32_t down = to / STRIDE - from / STRIDE, right = to % STRIDE - from % STRIDE;
    const int32_t vertical = down < 0 ? 0 : 2, horizontal = right < 0 ? 3 : 1;
    const bool near_row = down * down < right * right;  // the nearer line is the enemy's row
    const int32_t order[2] = {(near_row && down) || !right ? vertical : horizontal,
                              (near_row && down) || !right ? horizontal : vertical};
    if (is_free(env, unit, order[0])) return MOVE + order[0];
    return is_free(env, unit, order[1]) ? MOVE + order[1] : MOVE + puf_rand_int(rng, 4);
}

// ---- Rules --------------------------------------------------------------------------------------

static void reset(Field* env) {
    PufRng* rng = &env->slots.rng;
    puf_grid_clear(env->board, STRIDE, STRIDE, VISION, env->width, env->height, WALL, EMPTY);
    for (int32_t row = 0; env->walls > 0 && row < env->height; row++)
        for (int32_t col = CAMP; col < env->width - CAMP; col++)
            if (puf_rand(rng) < env->walls)
                env->board[puf_grid_cell(STRIDE, VISION, row, col)] = WALL;
    const int32_t swapped = puf_rand_int(rng, 2);
    for (int32_t i = 0; i < 2 * env->team_size; i++) {
        const int32_t left = team_of(env, i) != swapped ? env->width - CAMP : 0;
        const int32_t cell =
            puf_grid_find(rng, env->board + left, STRIDE, VISION, CAMP, env->height, EMPTY) + left;
        env->units[i] = (Unit){.cell = (int16_t)cell, .health = (uint8_t)env->health};
        env->board[cell] = (uint8_t)(UNIT + i);
    }
    memset(env->shots, -1, sizeof env->shots);
}

static void move(Field* env, int32_t unit, int32_t direction) {
    const int32_t from = env->units[unit].cell, to = puf_grid_beside(STRIDE, from, direction);
    if (env->board[to] != EMPTY) return;
    env->board[to] = env->board[from];
    env->board[from] = EMPTY;
    env->units[unit].cell = (int16_t)to;
}

static bool is_agent(const Field* env, int32_t unit) {
    return env->opponent == SELF || unit < env->team_size;
}

static void shoot(Field* env, int32_t unit, int32_t direction, uint8_t* hits) {
    const int32_t target = enemy_hit(env, unit, direction);
    env->units[unit].reload = (uint8_t)env->reload_time;
    env->shots[unit] = (int8_t)direction;
    if (target < 0) return;
    hits[target]++;
    if (is_agent(env, unit)) puf_reward(&env->slots, unit, env->reward_hit);
    if (is_agent(env, target)) puf_reward(&env->slots, target, -env->reward_hit);
}

static PufStatus judge(Field* env) {
    const int32_t alive[2] = {count_alive(env, 0), count_alive(env, 1)};
    if (alive[0] && alive[1] && env->slots.tick < env->max_steps) return PUF_RUNNING;
    int32_t health = 0;
    for (int32_t i = 0; i < 2 * env->team_size; i++)
        health += team_of(env, i) ? -env->units[i].health : env->units[i].health;
    const int32_t lead = alive[0] != alive[1] ? alive[0] - alive[1] : health;
    const float won = lead > 0 ? 1 : lead < 0 ? -1 : 0;
    for (int32_t i = 0; i < env->slots.num_agents; i++)
        puf_reward(&env->slots, i, team_of(env, i) ? -won : won);
    env->score = (float)(alive[0] - alive[1]);
    env->perf = 0.5f + 0.5f * won;
    env->draw = won == 0;
    env->steps = (float)env->slots.tick;
    return alive[0] && alive[1] ? PUF_TRUNCATED : PUF_TERMINATED;
}

static PufStatus step(Field* env) {
    const int32_t count = 2 * env->team_size;
    int32_t actions[MAX_UNITS];
    uint8_t hits[MAX_UNITS] = {0};
    for (int32_t i = 0; i < count; i++) {
        actions[i] = STAY;
        env->shots[i] = -1;
        if (!env->units[i].health) continue;
        actions[i] = is_agent(env, i)          ? puf_action(&env->slots, i)
                     : env->opponent == RANDOM ? puf_rand_int(&env->slots.rng, NUM_ACTIONS)
                                               : scripted_action(env, i);
    }
    for (int32_t k = 0; k < count; k++) {  // the teams by turns
        const int32_t at = (k + env->slots.tick) % count;
        const int32_t unit = at / 2 + (at & 1) * env->team_size;
        if (actions[unit] >= MOVE && actions[unit] < SHOOT) move(env, unit, actions[unit] - MOVE);
    }
    for (int32_t i = 0; i < count; i++) {
        if (actions[i] >= SHOOT && !env->units[i].reload)
            shoot(env, i, actions[i] - SHOOT, hits);
        else if (env->units[i].reload)
            env->units[i].reload--;
    }
    for (int32_t i = 0; i < count; i++) {
        Unit* unit = &env->units[i];
        if (!hits[i]) continue;
        unit->health = (uint8_t)(unit->health > hits[i] ? unit->health - hits[i] : 0);
        if (!unit->health) env->board[unit->cell] = EMPTY;
    }
    return judge(env);
}

// ---- Observations -------------------------------------------------------------------------------

static void look_around(const Field* env, int32_t unit, uint8_t* out) {
    uint8_t window[WINDOW];
    const int32_t cell = env->units[unit].cell, size = env->team_size;
    const int32_t own = team_of(env, unit) ? size : 0, enemy = size - own;
    puf_grid_window(env->board, STRIDE, VISION, cell, window);
    puf_grid_range(window, WINDOW, WALL, 1, out);
    puf_grid_range(window, WINDOW, (uint8_t)(UNIT + own), (uint8_t)size, out + WINDOW);
    puf_grid_range(window, WINDOW, (uint8_t)(UNIT + enemy), (uint8_t)size, out + 2 * WINDOW);
    for (int32_t i = enemy; i < enemy + size; i++) {
        const int32_t down = env->units[i].cell / STRIDE - cell / STRIDE + VISION;
        const int32_t right = env->units[i].cell % STRIDE - cell % STRIDE + VISION;
        if (env->units[i].health == 1 && (uint32_t)down < SIDE && (uint32_t)right < SIDE)
            out[3 * WINDOW + down * SIDE + right] = 1;
    }
}

static void look(const Field* env, int32_t agent, int32_t lead) {
    const Unit* unit = &env->units[agent];
    uint8_t *out = puf_obs_u8(&env->slots, agent), *mask = puf_action_mask(&env->slots, agent);
    memset(out, 0, FEATURES);
    memset(mask, unit->health > 0, NUM_ACTIONS);
    mask[STAY] = 1;
    out[FEATURES - 3 + (lead < -2 ? -2 : lead > 2 ? 2 : lead)] = 1;
    if (!unit->health) return;
    look_around(env, agent, out);
    out += NUM_PLANES * WINDOW;
    memset(out, 1, unit->health);
    out += MAX_HEALTH;
    *out++ = !unit->reload;
    for (int32_t direction = 0; direction < 4; direction++)
        *out++ = enemy_hit(env, agent, direction) >= 0;
    const int32_t enemy = nearest_enemy(env, agent);
    if (enemy >= 0) puf_grid_compass(STRIDE, unit->cell, env->units[enemy].cell, out);
    if (unit->reload) memset(mask + SHOOT, 0, 4);
}

static void observe(const Field* env) {
    const int32_t lead = count_alive(env, 0) - count_alive(env, 1);
    for (int32_t i = 0; i < env->slots.num_agents; i++)
        look(env, i, team_of(env, i) ? -lead : lead);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, MAX_PICTURE = 576, MAX_PIXELS = 36 };

static int32_t pixels_per_cell(const Field* env) {
    const int32_t side = env->width > env->height ? env->width : env->height;
    return MAX_PICTURE / side > MAX_PIXELS ? MAX_PIXELS : MAX_PICTURE / side;
}

static const uint32_t team_colors[2] = {PUF_BLUE, PUF_RED};

static void draw_unit(const Field* env, PufCanvas* canvas, int32_t i, float size) {
    const Unit* unit = &env->units[i];
    const uint32_t color = team_colors[team_of(env, i)];
    const float x = ((float)(unit->cell % STRIDE - VISION) + 0.5f) * size;
    const float y = HEADER + ((float)(unit->cell / STRIDE - VISION) + 0.5f) * size;
    const int32_t enemy = nearest_enemy(env, i);
    float ahead_x = team_of(env, i) ? -1 : 1, ahead_y = 0;
    if (enemy >= 0) {  // guns point at the nearest enemy
        ahead_x = (float)(env->units[enemy].cell % STRIDE - unit->cell % STRIDE);
        ahead_y = (float)(env->units[enemy].cell / STRIDE - unit->cell / STRIDE);
        const float length = sqrtf(ahead_x * ahead_x + ahead_y * ahead_y);
        ahead_x /= fmaxf(1, length);
        ahead_y /= fmaxf(1, length);
    }
    puf_circle(canvas, x, y, 0.36f * size, puf_blend(color, PUF_BLACK, 0.35f));
    puf_line(canvas, x, y, x + 0.46f * size * ahead_x, y + 0.46f * size * ahead_y, 0.14f * size,
             PUF_INK);
    puf_circle(canvas, x, y, 0.24f * size, color);
    for (int32_t k = 0; k < env->health; k++)
        puf_rect(canvas, x + ((float)k / (float)env->health - 0.5f) * 0.8f * size, y - 0.5f * size,
                 0.8f * size / (float)env->health - 1, 0.1f * size,
                 k < unit->health ? PUF_GREEN : PUF_INK);
}

static void draw_shot(const Field* env, PufCanvas* canvas, int32_t i, float size) {
    int32_t cell = env->units[i].cell, length = 0;
    const float x = ((float)(cell % STRIDE - VISION) + 0.5f) * size;
    const float y = HEADER + ((float)(cell / STRIDE - VISION) + 0.5f) * size;
    do {
        cell = puf_grid_beside(STRIDE, cell, env->shots[i]);
        length++;
    } while (length < env->range && env->board[cell] == EMPTY);
    const float to_x = ((float)(cell % STRIDE - VISION) + 0.5f) * size;
    const float to_y = HEADER + ((float)(cell / STRIDE - VISION) + 0.5f) * size;
    puf_line(canvas, x, y, to_x, to_y, 0.09f * size, PUF_YELLOW);
    puf_circle(canvas, to_x, to_y, 0.16f * size, PUF_ORANGE);
}

static void render(const Field* env, PufCanvas* canvas) {
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < env->height; row++)
        for (int32_t col = 0; col < env->width; col++) {
            const float x = (float)col * pixels, y = HEADER + (float)row * pixels;
            puf_rect(canvas, x, y, pixels, pixels, (row + col) % 2 ? 0xC9B27C : 0xC4AD77);
            if (env->board[puf_grid_cell(STRIDE, VISION, row, col)] != WALL) continue;
            puf_rect(canvas, x, y, pixels, pixels, 0x7B7F85);
            puf_rect(canvas, x, y + 0.7f * pixels, pixels, 0.3f * pixels, 0x565A60);
        }
    for (int32_t i = 0; i < 2 * env->team_size; i++)
        if (env->units[i].health && env->shots[i] >= 0) draw_shot(env, canvas, i, pixels);
    for (int32_t i = 0; i < 2 * env->team_size; i++)
        if (env->units[i].health) draw_unit(env, canvas, i, pixels);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "BLUE %d  RED %d  STEP %d", (int)count_alive(env, 0),
              (int)count_alive(env, 1), (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

// Living units are on the board, each in a cell of its own, and nobody else is.
static bool valid(const Field* env) {
    const int32_t count = 2 * env->team_size;
    if (!puf_grid_is_walled(env->board, STRIDE, STRIDE, VISION, env->width, env->height, WALL,
                            (uint8_t)(UNIT + count - 1)))
        return false;
    int32_t on_board = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) on_board += env->board[cell] >= UNIT;
    for (int32_t i = 0; i < count; i++) {
        const Unit* unit = &env->units[i];
        if (!puf_grid_is_inside(STRIDE, VISION, env->width, env->height, unit->cell) ||
            unit->health > env->health || unit->reload > env->reload_time || env->shots[i] < -1 ||
            env->shots[i] > 3 || (unit->health && env->board[unit->cell] != UNIT + i))
            return false;
        on_board -= unit->health > 0;
    }
    return !on_board && count_alive(env, 0) && count_alive(env, 1) &&
           env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    const Field* env = self;
    layout->agents = env->opponent == SELF ? 2 * env->team_size : env->team_size;
    layout->width = env->width * pixels_per_cell(env);
    layout->height = env->height * pixels_per_cell(env) + HEADER;
}

PUF_ENV(battle, Field, .doc = "eliminate the other team in a battle of shooters",
        .group = "many agents",
        .action_names = "stay up right down left shoot_up shoot_right shoot_down shoot_left",
        .shape = shape,
        .layout = {.agents = 5,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {FEATURES}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .action_masks = true});
