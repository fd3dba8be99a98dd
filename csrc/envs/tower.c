// tower - defend a winding path: build and upgrade towers against the waves that are announced.
//
// Enemies walk along a path of 40 cells; the agent builds on 12 sites beside it. A step is one
// action and `frameskip` ticks:
// 1. Action 0 waits. Action 1 + 4 * site + k builds a tower of kind k (0 arrow, 1 cannon, 2 frost)
//    on a free site, or, for k = 3, raises the level of the tower there, up to 3. What is not
//    possible or not affordable is masked and does nothing.
// 2. A wave sends one enemy every 3 ticks; the next wave begins 30 ticks after the last of them.
//    Wave w has 6 + 2 w enemies, whose strength grows by `growth` from wave to wave, give or take a
//    fifth. Each wave has a theme, which is announced one wave ahead: two of three enemies are of
//    that kind, the others walkers. Runners are fast and weak; tanks are slow and strong, and their
//    armour takes 14 off every arrow and frost bolt, but leaves 1; flyers cross the map in a
//    straight line. The first two waves are walkers, the themes of the others are random. Every
//    fifth wave ends with a boss.
// 3. Enemies move; a chilled one half as fast. One that arrives costs a life, a tank three, a boss
//    five. Without lives the game is lost.
// 4. Every tower that is ready shoots the foremost enemy in its range: arrows hit one, cannon balls
//    all on the ground within 1.4 cells of it, frost chills for 5 ticks. Cannons cannot aim at
//    flyers. A kill earns gold.
// The game is won when no enemy of the last wave is left.
//
// Observed: gold, lives, wave, ticks until the next enemy, enemies sent; the themes of this wave
// and the next; kind and level of the tower on each site; number and strength of the enemies on
// each of 13 parts of the path, and strength of the flyers on each of 13 parts of their way.
#include "puf_env.h"

enum { COLS = 14, ROWS = 9, NUM_SITES = 12, PATH = 40, MAX_ENEMIES = 48 };
enum { NO_TOWER, ARROW, CANNON, FROST, NUM_KINDS };
enum { WALKER, RUNNER, TANK, FLYER, NUM_THEMES, BOSS = NUM_THEMES, NUM_FOES };
enum {
    UPGRADE = 3,  // of the 4 actions of a site
    NUM_ACTIONS = 1 + 4 * NUM_SITES,
    MAX_LEVEL = 3,
    SPAWN_GAP = 3,
    PAUSE = 30,
    CHILL = 5,
    MAX_GOLD = 9999,
    MAX_WAVES = 20,
    NUM_PARTS = 13,
    PART = 3,  // cells of the path
    BOSS_WAVES = 5,
    NUM_FEATURES = 5 + 2 * NUM_THEMES + 4 * NUM_SITES + 3 * NUM_PARTS,
};

static const uint8_t site_x[NUM_SITES] = {2, 5, 8, 10, 4, 7, 4, 7, 10, 5, 8, 11};
static const uint8_t site_y[NUM_SITES] = {2, 2, 2, 2, 3, 3, 5, 5, 5, 6, 6, 6};
static const int32_t costs[NUM_KINDS] = {0, 50, 90, 60};
static const int32_t cooldowns[NUM_KINDS] = {0, 2, 5, 3};
static const float damages[NUM_KINDS] = {0, 10, 20, 4};
static const float ranges[NUM_KINDS] = {0, 2.6f, 2.3f, 2.3f};
static const float level_damage[MAX_LEVEL + 1] = {0, 1, 1.8f, 3};
static const float LEVEL_RANGE = 0.3f, BLAST = 1.4f, ARMOUR = 14;
static const float SPREAD = 0.2f;  // of the strength of enemies of the same kind
// Cells of the path in a tick. Flyers are as far on their way, a third as long, as on the path.
static const float speeds[NUM_FOES] = {0.28f, 0.4f, 0.18f, 0.4f, 0.15f};
static const float toughness[NUM_FOES] = {1, 0.6f, 3, 0.7f, 10};
static const int32_t damage_to_lives[NUM_FOES] = {1, 1, 3, 1, 5}, bounties[] = {5, 5, 15, 5, 50};

typedef struct {
    int32_t kind, level, cooldown;
    float aim_x, aim_y;  // of its last shot, for the picture
} Tower;

typedef struct {
    PufSlots slots;
    Tower towers[NUM_SITES];
    // Enemies, in no order.
    float place[MAX_ENEMIES];  // cells walked
    float health[MAX_ENEMIES];
    uint8_t kind[MAX_ENEMIES], chilled[MAX_ENEMIES];
    uint8_t themes[MAX_WAVES];
    int32_t num_enemies, wave, spawned, timer;  // timer: ticks until the next enemy
    int32_t gold, lives_left, killed;
    float score, perf, waves_cleared;
    int32_t waves, lives, start_gold, frameskip, max_steps;
    float strength, growth;
} Defence;

static const PufField params[] = {
    PUF_PARAM_I32(Defence, waves, 10, 1, MAX_WAVES, "waves to stop"),
    PUF_PARAM_I32(Defence, lives, 10, 1, 1000, "lives"),
    PUF_PARAM_I32(Defence, start_gold, 120, 0, MAX_GOLD, "gold at the start"),
    PUF_PARAM_F32(Defence, strength, 25, 1, 1000, "strength of a walker of the first wave"),
    PUF_PARAM_F32(Defence, growth, 1.3, 1, 2, "factor of the strength from wave to wave"),
    PUF_PARAM_I32(Defence, frameskip, 3, 1, 30, "ticks per step"),
    PUF_PARAM_I32(Defence, max_steps, 800, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Defence, score, "enemies killed"),
    PUF_METRIC(Defence, perf, "share of the enemies of all waves that were killed"),
    PUF_METRIC(Defence, waves_cleared, "waves of which all enemies have come and gone"),
};

static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }

// ---- The path -----------------------------------------------------------------------------------

// Cells from left to right, down, back, down and to the right again.
// One more than cells, so that the last one has a next.
static const uint8_t path_x[PATH + 1] = {0,  1,  2,  3,  4, 5, 6, 7, 8,  9,  10, 11, 12, 12,
                                         12, 12, 11, 10, 9, 8, 7, 6, 5,  4,  3,  2,  2,  2,
                                         2,  3,  4,  5,  6, 7, 8, 9, 10, 11, 12, 13, 13};
static const uint8_t path_y[PATH + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2,
                                         3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6,
                                         7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};

static inline float x_at(float place) {
    const int32_t cell = (int32_t)place;
    return (float)path_x[cell] + (place - (float)cell) * (float)(path_x[cell + 1] - path_x[cell]);
}
static inline float y_at(float place) {
    const int32_t cell = (int32_t)place;
    return (float)path_y[cell] + (place - (float)cell) * (float)(path_y[cell + 1] - path_y[cell]);
}
static const float END = PATH - 1;  // the last cell

typedef struct {
    float x[MAX_ENEMIES], y[MAX_ENEMIES];
} Places;

static inline void find_place(const Defence* env, int32_t i, float* x, float* y) {
    const float place = env->place[i], part = place * (1 / END);
    const bool flies = env->kind[i] == FLYER;
    *x = flies ? part * (COLS - 1) : x_at(place);
    *y = flies ? (float)path_y[0] + part * (float)(path_y[PATH - 1] - path_y[0]) : y_at(place);
}

// ---- Rules --------------------------------------------------------------------------------------

static int32_t wave_size(int32_t wave) { return 6 + 2 * wave; }

static int32_t all_enemies(const Defence* env) {
    return 6 * env->waves + env->waves * (env->waves - 1);
}

static float strength_of(const Defence* env, int32_t wave, int32_t kind) {
    float strength = env->strength * toughness[kind];
    for (int32_t i = 0; i < wave; i++) strength *= env->growth;
    return strength;
}

static int32_t draw_foe(Defence* env) {
    PufRng* rng = &env->slots.rng;
    const bool is_last = env->spawned == wave_size(env->wave) - 1;
    if (is_last && (env->wave + 1) % BOSS_WAVES == 0) return BOSS;
    return puf_rand_int(rng, 3) == 0 ? WALKER : env->themes[env->wave];
}

static void reset(Defence* env) {
    memset(env->towers, 0, sizeof env->towers);
    env->num_enemies = env->wave = env->spawned = env->killed = 0;
    for (int32_t wave = 0; wave < MAX_WAVES; wave++)
        env->themes[wave] =
            (uint8_t)(wave < 2 ? WALKER : puf_rand_int(&env->slots.rng, NUM_THEMES));
    env->timer = PAUSE;
    env->gold = env->start_gold;
    env->lives_left = env->lives;
    env->score = env->perf = env->waves_cleared = 0;
}

// Gold that action k of a site costs now; -1 if it is not possible.
static int32_t price(const Defence* env, int32_t site, int32_t k) {
    const Tower* tower = &env->towers[site];
    if (k != UPGRADE) return tower->kind == NO_TOWER ? costs[k + 1] : -1;
    if (tower->kind == NO_TOWER || tower->level >= MAX_LEVEL) return -1;
    return costs[tower->kind] * (1 + tower->level) / 2;
}

static void build(Defence* env, int32_t action) {
    if (action == 0) return;
    const int32_t site = (action - 1) / 4, k = (action - 1) % 4, cost = price(env, site, k);
    if (cost < 0 || cost > env->gold) return;
    env->gold -= cost;
    if (k == UPGRADE)
        env->towers[site].level++;
    else
        env->towers[site] = (Tower){.kind = k + 1, .level = 1};
}

static void spawn(Defence* env) {
    if (env->wave >= env->waves || --env->timer > 0) return;
    env->timer = SPAWN_GAP;
    if (env->num_enemies < MAX_ENEMIES) {
        const int32_t i = env->num_enemies++, kind = draw_foe(env);
        env->kind[i] = (uint8_t)kind;
        env->place[i] = 0;
        env->health[i] = strength_of(env, env->wave, kind) *
                         puf_rand_range(&env->slots.rng, 1 - SPREAD, 1 + SPREAD);
        env->chilled[i] = 0;
    }
    if (++env->spawned < wave_size(env->wave)) return;
    env->spawned = 0;
    env->wave++;
    env->timer = PAUSE;
}

static void remove_enemy(Defence* env, int32_t i) {
    const int32_t last = --env->num_enemies;
    env->place[i] = env->place[last];
    env->health[i] = env->health[last];
    env->kind[i] = env->kind[last];
    env->chilled[i] = env->chilled[last];
}

static void walk(Defence* env) {
    for (int32_t i = env->num_enemies - 1; i >= 0; i--) {
        const float speed = speeds[env->kind[i]];
        env->place[i] += env->chilled[i] ? 0.5f * speed : speed;
        env->chilled[i] -= env->chilled[i] > 0;
        if (env->place[i] < END) continue;
        const int32_t lost = min_int(damage_to_lives[env->kind[i]], env->lives_left);
        env->lives_left -= lost;
        puf_reward(&env->slots, 0, -0.5f * (float)lost);
        remove_enemy(env, i);
    }
}

static void hurt(Defence* env, int32_t i, int32_t tower, float damage) {
    const bool armoured = env->kind[i] == TANK && tower != CANNON;
    env->health[i] -= armoured ? fmaxf(damage - ARMOUR, 1) : damage;
    if (tower == FROST) env->chilled[i] = CHILL;
}

static inline bool can_hit(const Defence* env, int32_t tower, int32_t i) {
    return (env->health[i] > 0) & ((tower != CANNON) | (env->kind[i] != FLYER));
}

static inline bool is_near(const Places* places, int32_t i, float x, float y, float reach) {
    const float dx = places->x[i] - x, dy = places->y[i] - y;
    return dx * dx + dy * dy <= reach * reach;
}

// Returns the enemy that is furthest along the path of those that a tower can hit, -1 if there is
// none. Places are compared as integers, which takes fewer instructions in vectors. The order of
// their bits is that of the numbers, because none is negative.
PUF_HOT static int32_t find_target(const Defence* env, int32_t kind, const Places* places, float x,
                                   float y, float reach) {
    int32_t bits[MAX_ENEMIES], best = -1;
    for (int32_t i = 0; i < env->num_enemies; i++) {
        const bool hit = can_hit(env, kind, i) & is_near(places, i, x, y, reach);
        int32_t place;
        memcpy(&place, &env->place[i], sizeof place);
        bits[i] = hit ? place : -1;
        best = bits[i] > best ? bits[i] : best;
    }
    for (int32_t i = 0; i < env->num_enemies && best >= 0; i++)
        if (bits[i] == best) return i;
    return -1;
}

static void shoot(Defence* env, int32_t site, const Places* places) {
    Tower* tower = &env->towers[site];
    const float range = ranges[tower->kind] + LEVEL_RANGE * (float)(tower->level - 1);
    const int32_t target = find_target(env, tower->kind, places, site_x[site], site_y[site], range);
    if (target < 0) return;
    const float damage = damages[tower->kind] * level_damage[tower->level];
    tower->cooldown = cooldowns[tower->kind];
    tower->aim_x = places->x[target];
    tower->aim_y = places->y[target];
    if (tower->kind != CANNON) {
        hurt(env, target, tower->kind, damage);
        return;
    }
    for (int32_t i = 0; i < env->num_enemies; i++)
        if (can_hit(env, CANNON, i) && is_near(places, i, tower->aim_x, tower->aim_y, BLAST))
            hurt(env, i, CANNON, damage);
}

static void collect(Defence* env) {
    for (int32_t i = env->num_enemies - 1; i >= 0; i--) {
        if (env->health[i] > 0) continue;
        const int32_t bounty = bounties[env->kind[i]] + env->wave / 2;
        env->gold = min_int(env->gold + bounty, MAX_GOLD);
        env->killed++;
        puf_reward(&env->slots, 0, 0.1f);
        remove_enemy(env, i);
    }
}

// One tick; whether the game goes on.
static bool tick(Defence* env) {
    spawn(env);
    walk(env);
    Places places;
    for (int32_t i = 0; i < env->num_enemies; i++) find_place(env, i, &places.x[i], &places.y[i]);
    for (int32_t site = 0; site < NUM_SITES; site++) {
        Tower* tower = &env->towers[site];
        if (tower->cooldown) tower->cooldown--;
        if (tower->kind != NO_TOWER && !tower->cooldown) shoot(env, site, &places);
    }
    collect(env);
    return env->lives_left > 0 && (env->wave < env->waves || env->num_enemies > 0);
}

static PufStatus step(Defence* env) {
    bool goes_on = true;
    build(env, puf_action(&env->slots, 0));
    for (int32_t i = 0; i < env->frameskip && goes_on; i++) goes_on = tick(env);
    env->score = (float)env->killed;
    env->perf = fminf(env->score / (float)all_enemies(env), 1);
    env->waves_cleared = (float)(env->wave - (env->num_enemies > 0 && env->wave > 0));
    if (!goes_on) {
        if (env->lives_left > 0) puf_reward(&env->slots, 0, 2);
        return PUF_TERMINATED;
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

static inline float at_most_1(float x) { return x < 1 ? x : 1; }  // fminf is a call

static void observe(const Defence* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    uint8_t* mask = puf_action_mask(&env->slots, 0);
    const float usual = 1 / (4 * strength_of(env, min_int(env->wave, env->waves - 1), WALKER));
    obs[0] = at_most_1((float)env->gold * (1.0f / 500));
    obs[1] = (float)env->lives_left / (float)env->lives;
    obs[2] = (float)env->wave / (float)env->waves;
    obs[3] = (float)env->timer * (1.0f / PAUSE);
    obs[4] = (float)env->spawned * (1.0f / 64);
    obs += 5;
    memset(obs, 0, 2 * NUM_THEMES * sizeof(float));
    for (int32_t k = 0; k < 2 && env->wave + k < env->waves; k++)
        obs[k * NUM_THEMES + env->themes[env->wave + k]] = 1;
    obs += 2 * NUM_THEMES;
    mask[0] = 1;
    for (int32_t site = 0; site < NUM_SITES; site++, obs += 4) {
        const Tower* tower = &env->towers[site];
        for (int32_t kind = ARROW; kind < NUM_KINDS; kind++) obs[kind - 1] = tower->kind == kind;
        obs[3] = (float)tower->level * (1.0f / MAX_LEVEL);
        for (int32_t k = 0; k < 4; k++) {
            const int32_t cost = price(env, site, k);
            mask[1 + 4 * site + k] = cost >= 0 && cost <= env->gold;
        }
    }
    memset(obs, 0, 3 * NUM_PARTS * sizeof(float));
    for (int32_t i = 0; i < env->num_enemies; i++) {
        float* part = obs + 3 * ((int32_t)env->place[i] / PART);
        if (env->kind[i] == FLYER) {
            part[2] = at_most_1(part[2] + env->health[i] * usual);
            continue;
        }
        part[0] = at_most_1(part[0] + 0.125f);
        part[1] = at_most_1(part[1] + env->health[i] * usual);
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { CELL = 40, HEADER = 40 };

static void draw_tower(const Defence* env, PufCanvas* canvas, int32_t site) {
    static const uint32_t colors[NUM_KINDS] = {0, PUF_BROWN, 0x4A5360, PUF_CYAN};
    const Tower* tower = &env->towers[site];
    const float x = ((float)site_x[site] + 0.5f) * CELL;
    const float y = HEADER + ((float)site_y[site] + 0.5f) * CELL;
    puf_rect(canvas, x - 17, y - 17, 34, 34, 0x8E9AA0);
    puf_rect_outline(canvas, x - 17, y - 17, 34, 34, 2, 0x6B767C);
    if (tower->kind == NO_TOWER) {
        puf_line(canvas, x - 6, y, x + 6, y, 3, 0x6B767C);
        puf_line(canvas, x, y - 6, x, y + 6, 3, 0x6B767C);
        return;
    }
    puf_circle(canvas, x, y, 15, puf_blend(colors[tower->kind], PUF_BLACK, 0.25f));
    puf_circle(canvas, x, y, 12, colors[tower->kind]);
    const float aim_x = (tower->aim_x + 0.5f) * CELL;
    const float aim_y = HEADER + (tower->aim_y + 0.5f) * CELL;
    const float dx = aim_x - x, dy = aim_y - y, far = sqrtf(dx * dx + dy * dy) + 1;
    puf_line(canvas, x, y, x + 17 * dx / far, y + 17 * dy / far, tower->kind == CANNON ? 9 : 5,
             PUF_INK);
    for (int32_t i = 0; i < tower->level; i++)
        puf_circle(canvas, x - 10 + 10 * (float)i, y + 13, 4, PUF_YELLOW);
    if (tower->cooldown != cooldowns[tower->kind]) return;
    if (tower->kind == CANNON)  // the shot of this tick
        puf_ring(canvas, aim_x, aim_y, BLAST * CELL, 4, PUF_ORANGE);
    else
        puf_line(canvas, x, y, aim_x, aim_y, 2, tower->kind == FROST ? PUF_WHITE : PUF_YELLOW);
}

static void draw_foe_at(const Defence* env, PufCanvas* canvas, int32_t i) {
    static const uint32_t colors[NUM_FOES] = {PUF_RED, PUF_PINK, PUF_PURPLE, PUF_YELLOW, 0x8C1C2B};
    static const float radii[NUM_FOES] = {9, 7, 13, 8, 18};
    const int32_t kind = env->kind[i];
    const float radius = radii[kind];
    const float full = strength_of(env, min_int(env->wave, env->waves - 1), kind);
    float x, y;
    find_place(env, i, &x, &y);
    x = (x + 0.5f) * CELL;
    y = HEADER + (y + 0.5f) * CELL;
    if (kind == FLYER) {  // its shadow, then the wings
        puf_circle(canvas, x + 6, y + 14, 6, 0x4C8A45);
        puf_polygon(canvas, (float[]){x, y - 5, x - 20, y - 10, x - 4, y + 6}, 3, PUF_PAPER);
        puf_polygon(canvas, (float[]){x, y - 5, x + 20, y - 10, x + 4, y + 6}, 3, PUF_PAPER);
    }
    puf_circle(canvas, x, y, radius + 2, PUF_INK);
    puf_circle(canvas, x, y, radius, env->chilled[i] ? PUF_BLUE : colors[kind]);
    if (kind == TANK) puf_ring(canvas, x, y, radius - 3, 3, PUF_GREY);
    for (int32_t k = -1; kind == BOSS && k <= 1; k++) {  // its crown
        const float left = x + 9 * (float)k;
        puf_polygon(canvas, (float[]){left - 5, y - 10, left + 5, y - 10, left, y - 22}, 3,
                    PUF_YELLOW);
    }
    puf_rect(canvas, x - 10, y - radius - 8, 20, 4, PUF_INK);
    puf_rect(canvas, x - 10, y - radius - 8, 20 * fminf(env->health[i] / full, 1), 4, PUF_GREEN);
}

static void render(const Defence* env, PufCanvas* canvas) {
    static const char* const names[NUM_THEMES] = {"WALKERS", "RUNNERS", "TANKS", "FLYERS"};
    puf_clear(canvas, 0x5C9E54);
    for (int32_t row = 0; row < ROWS; row++)
        for (int32_t col = row % 2; col < COLS; col += 2)
            puf_rect(canvas, (float)(col * CELL), (float)(HEADER + row * CELL), CELL, CELL,
                     0x63A65B);
    for (int32_t i = 0; i < PATH; i++)
        puf_rect(canvas, (float)(path_x[i] * CELL), (float)(HEADER + path_y[i] * CELL), CELL, CELL,
                 0xD9BE8C);
    const float end_x = (float)(path_x[PATH - 1] * CELL), end_y = HEADER + 7.0f * CELL;
    puf_rect(canvas, end_x + 4, end_y + 4, CELL - 8, CELL - 8, PUF_SLATE);  // the castle
    for (int32_t i = 0; i < 3; i++)
        puf_rect(canvas, end_x + 4 + 12 * (float)i, end_y - 2, 8, 10, PUF_SLATE);
    for (int32_t site = 0; site < NUM_SITES; site++) draw_tower(env, canvas, site);
    for (int32_t i = 0; i < env->num_enemies; i++) draw_foe_at(env, canvas, i);
    puf_rect(canvas, 0, 0, COLS * CELL, HEADER, PUF_INK);
    puf_textf(canvas, 10, 12, 2, PUF_YELLOW, "GOLD %d", (int)env->gold);
    puf_textf(canvas, 130, 12, 2, PUF_RED, "LIVES %d", (int)env->lives_left);
    puf_textf(canvas, 255, 12, 2, PUF_PAPER, "WAVE %d/%d %s",
              (int)min_int(env->wave + 1, env->waves), (int)env->waves,
              env->wave < env->waves ? names[env->themes[env->wave]] : "");
}

// ---- Validation ---------------------------------------------------------------------------------

static bool valid(const Defence* env) {
    const float strongest = (1 + SPREAD) * strength_of(env, env->waves, BOSS);
    for (int32_t site = 0; site < NUM_SITES; site++) {
        const Tower* tower = &env->towers[site];
        if (tower->kind < NO_TOWER || tower->kind >= NUM_KINDS || tower->level < 0 ||
            tower->level > MAX_LEVEL || (tower->kind == NO_TOWER) != (tower->level == 0) ||
            tower->cooldown < 0 || tower->cooldown > 5 || !puf_within(tower->aim_x, 0, COLS) ||
            !puf_within(tower->aim_y, 0, ROWS))
            return false;
    }
    if (env->num_enemies < 0 || env->num_enemies > MAX_ENEMIES) return false;
    for (int32_t wave = 0; wave < MAX_WAVES; wave++)
        if (env->themes[wave] >= NUM_THEMES) return false;
    for (int32_t i = 0; i < env->num_enemies; i++)
        if (!puf_within(env->place[i], 0, END) || env->place[i] >= END ||
            !puf_within(env->health[i], 0, strongest) || env->health[i] <= 0 ||
            env->kind[i] >= NUM_FOES || env->chilled[i] > CHILL)
            return false;
    return env->slots.tick < env->max_steps && env->wave >= 0 && env->wave <= env->waves &&
           (env->wave < env->waves || env->num_enemies > 0) && env->spawned >= 0 &&
           env->spawned < wave_size(env->wave) && env->timer >= 0 && env->timer <= PAUSE &&
           env->gold >= 0 && env->gold <= MAX_GOLD && env->lives_left >= 1 &&
           env->lives_left <= env->lives && env->killed >= 0 &&
           env->killed <= MAX_ENEMIES * env->frameskip * env->slots.tick;
}

PUF_ENV(tower, Defence, .doc = "build and upgrade towers to stop waves of enemies",
        .group = "arcade",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = 0, .high = 1},
            .actions = PUF_DISCRETE(NUM_ACTIONS),
            .action_masks = true,
            .width = COLS * CELL,
            .height = HEADER + ROWS * CELL});
