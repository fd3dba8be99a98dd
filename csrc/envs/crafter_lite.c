// crafter_lite - gather, craft and survive in a small generated world; 22 achievements to unlock
// (after Crafter, Hafner 2021, with a smaller world and simpler creatures).
//
// One tick:
// 1. The player acts: 0 nothing; 1 to 4 turn and walk up, right, down, left; 5 uses the cell it
//    faces; 6 sleeps; 7 to 10 place a stone, a table, a furnace, a sapling there; 11 to 13 make a
//    wooden, stone, iron pickaxe; 14 to 16 a sword. One that sleeps does nothing else until it is
//    rested or hurt.
//    Using: trees give wood, water quenches thirst, one grass cell in ten a sapling; stone and coal
//    need a wooden pickaxe, iron a stone one, diamonds an iron one; ripe plants and cows are food;
//    zombies and skeletons fight back. Swords do more damage.
//    Table: 1 wood. Furnace: 1 stone, near a table. Tools, near a table: wood; wood and stone; near
//    a furnace too: wood, coal and iron.
// 2. Food, water and energy sink over time. Health recovers by 1 in 10 ticks, or sinks if one of
//    them is 0.
// 3. Cows stroll over grass. Zombies, more of them at night, come out of the grass and hunt the
//    player; skeletons live in caves and shoot along them. Saplings ripen.
// The first time that the player does one of the 22 things it gets reward 1; each health is worth
// reward_health. The episode ends with its death, with the last achievement, or after max_steps.
//
// The player observes, in units of a ninth, planes of the 9 x 7 cells around it (see NUM_PLANES),
// what it faces, its inventory, health, food, water, energy, the direction it faces, a table and a
// furnace nearby, sleep, night, and the achievements it has.
#include "puf_grid.h"

// Terrain; a player or creature can stand on the first three.
enum {
    GRASS,
    SAND,
    PATH,
    WATER,
    TREE,
    STONE,
    COAL,
    IRON,
    DIAMOND,
    TABLE,
    FURNACE,
    SAPLING,
    PLANT,
    EDGE,
    NUM_TERRAINS
};
enum { COW, ZOMBIE, SKELETON, NUM_KINDS };
enum { HAS_WOOD, HAS_STONE, HAS_COAL, HAS_IRON, HAS_DIAMOND, HAS_SAPLING, NUM_GOODS };
enum { HEALTH, FOOD, DRINK, ENERGY, NUM_NEEDS };
enum { NOTHING, WALK, USE = WALK + 4, SLEEP, PLACE, MAKE = PLACE + 4, NUM_ACTIONS = MAKE + 6 };

// In alphabetical order, as in Crafter.
enum {
    COLLECT_COAL,
    COLLECT_DIAMOND,
    COLLECT_DRINK,
    COLLECT_IRON,
    COLLECT_SAPLING,
    COLLECT_STONE,
    COLLECT_WOOD,
    DEFEAT_SKELETON,
    DEFEAT_ZOMBIE,
    EAT_COW,
    EAT_PLANT,
    MAKE_IRON_PICKAXE,
    MAKE_IRON_SWORD,
    MAKE_STONE_PICKAXE,
    MAKE_STONE_SWORD,
    MAKE_WOOD_PICKAXE,
    MAKE_WOOD_SWORD,
    PLACE_FURNACE,
    PLACE_PLANT,
    PLACE_STONE,
    PLACE_TABLE,
    WAKE_UP,
    NUM_ACHIEVEMENTS
};
enum {
    ACROSS = 4,  // cells seen to the left and right
    DEEP = 3,    // and up and down
    WINDOW = (2 * ACROSS + 1) * (2 * DEEP + 1),
    NUM_PLANES = NUM_TERRAINS - PATH + NUM_KINDS,  // grass and sand have none
    NUM_FACED = NUM_TERRAINS + NUM_KINDS,
    FEATURES = NUM_PLANES * WINDOW + NUM_FACED + NUM_GOODS + 6 + NUM_NEEDS + 4 + 4 +
        NUM_ACHIEVEMENTS,
    MOST = 9,  // of anything one can have
    SIZE = 32,
    STRIDE = SIZE + 2 * ACROSS,
    CELLS = STRIDE * STRIDE,
    MAX_CREATURES = 16,
    MAX_PLANTS = 8,
    NUM_SITES = 16,
    DAY = 300,  // ticks; the last third is night
    NEAR = 2    // how far a table or furnace may be
};

static const uint8_t creature_health[NUM_KINDS] = {3, 5, 3};
static const int32_t periods[NUM_NEEDS] = {10, 30, 20, 40};  // ticks between two changes

typedef struct {
    int16_t cell;
    uint8_t kind, health, pause;  // without health: a free slot; ticks until it can strike again
    uint8_t reserved;
} Creature;

typedef struct {
    int16_t cell;  // 0: a free slot
    int16_t age;
} Plant;

typedef struct {
    PufSlots slots;
    int32_t cell, facing, asleep;
    int32_t needs[NUM_NEEDS];
    int32_t clocks[NUM_NEEDS];  // ticks until each of them changes
    int32_t goods[NUM_GOODS];
    int32_t pickaxe, sword;  // bits: 1 wooden, 2 stone, 4 iron
    int32_t unlocked;        // a bit for each achievement
    float score, perf, steps;
    int32_t max_steps, cows, zombies, skeletons, ripe_after;
    float reward_health;
    Creature creatures[MAX_CREATURES];
    Plant plants[MAX_PLANTS];
    uint8_t board[CELLS];
    uint8_t who[CELLS];  // creature in a cell: its kind + 1, or 0
} World;

static const PufField params[] = {
    PUF_PARAM_I32(World, max_steps, 1000, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_I32(World, cows, 6, 0, 8, "cows in the world"),
    PUF_PARAM_I32(World, zombies, 3, 0, 4, "zombies at night; a third of them by day"),
    PUF_PARAM_I32(World, skeletons, 3, 0, 4, "skeletons in the caves"),
    PUF_PARAM_I32(World, ripe_after, 100, 1, 10000, "ticks until a sapling is ripe"),
    PUF_PARAM_F32(World, reward_health, 0.1, 0, 10, "reward for a health won, price of one lost"),
};

static const PufField metrics[] = {
    PUF_METRIC(World, score, "achievements unlocked, of 22"),
    PUF_METRIC(World, perf, "share of the achievements unlocked"),
    PUF_METRIC(World, steps, "steps survived"),
};

// ---- The world ----------------------------------------------------------------------------------

enum { MEADOW, FOREST, LAKE, MOUNTAIN };

static int32_t find(World* env, uint8_t terrain) {
    return puf_grid_find(&env->slots.rng, env->board, STRIDE, ACROSS, SIZE, SIZE, terrain);
}

static uint8_t terrain_of(PufRng* rng, int32_t biome) {
    const float dice = puf_rand(rng);
    if (biome == FOREST) return dice < 0.4f ? TREE : GRASS;
    if (biome == LAKE) return WATER;
    if (biome == MEADOW) return dice < 0.04f ? TREE : GRASS;
    return dice < 0.15f ? PATH : dice < 0.23f ? COAL : dice < 0.27f ? IRON : STONE;
}

// Every cell belongs to the nearest of some sites: a meadow in the middle, where the player begins,
// and forests, lakes and mountains around.
static void make_land(World* env) {
    PufRng* rng = &env->slots.rng;
    static const uint8_t biomes[NUM_SITES] = {MEADOW, FOREST,   LAKE,   MOUNTAIN, FOREST, MOUNTAIN,
                                              LAKE,   MOUNTAIN, MEADOW, FOREST,   MEADOW, MOUNTAIN,
                                              MEADOW, FOREST,   MEADOW, MOUNTAIN};
    float rows[NUM_SITES], cols[NUM_SITES];
    for (int32_t i = 0; i < NUM_SITES; i++) {
        rows[i] = i ? puf_rand_range(rng, 0, SIZE) : SIZE / 2;
        cols[i] = i ? puf_rand_range(rng, 0, SIZE) : SIZE / 2;
    }
    for (int32_t row = 0; row < SIZE; row++) {
        float y[SIZE], x[SIZE], least[SIZE];  // sites in the outer loop: the inner one is vectors
        int32_t nearest[SIZE] = {0};
        for (int32_t col = 0; col < SIZE; col++) {
            y[col] = (float)row + puf_rand_range(rng, -1, 1);
            x[col] = (float)col + puf_rand_range(rng, -1, 1);
            least[col] = 1e9f;
        }
        for (int32_t i = 0; i < NUM_SITES; i++)
            for (int32_t col = 0; col < SIZE; col++) {
                const float down = rows[i] - y[col], right = cols[i] - x[col];
                const float squared = down * down + right * right;
                nearest[col] = squared < least[col] ? i : nearest[col];
                least[col] = squared < least[col] ? squared : least[col];
            }
        for (int32_t col = 0; col < SIZE; col++)
            env->board[puf_grid_cell(STRIDE, ACROSS, row, col)] =
                terrain_of(rng, biomes[nearest[col]]);
    }
}

// Shores, a few certain treasures, and the clearing where the player begins.
static void finish_land(World* env) {
    for (int32_t row = 0; row < SIZE; row++)
        for (int32_t col = 0; col < SIZE; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, ACROSS, row, col);
            bool shore = false;
            for (int32_t k = 0; k < 4; k++)
                shore = shore || env->board[puf_grid_beside(STRIDE, cell, k)] == WATER;
            if (shore && env->board[cell] == GRASS) env->board[cell] = SAND;
        }
    static const uint8_t treasures[] = {COAL, COAL, IRON, IRON, IRON, DIAMOND, DIAMOND, DIAMOND};
    for (size_t i = 0; i < sizeof treasures; i++) {
        const int32_t cell = find(env, STONE);
        if (cell) env->board[cell] = treasures[i];
    }
    const int32_t middle = puf_grid_cell(STRIDE, ACROSS, SIZE / 2, SIZE / 2);
    for (int32_t row = -1; row <= 1; row++)
        memset(env->board + middle + row * STRIDE - 1, GRASS, 3);
    env->cell = middle;
}

static int32_t count_kind(const World* env, int32_t kind) {
    int32_t count = 0;
    for (int32_t i = 0; i < MAX_CREATURES; i++)
        count += env->creatures[i].health && env->creatures[i].kind == kind;
    return count;
}

// A creature on a random cell of its terrain, away from the player, if there is one.
static void spawn(World* env, int32_t kind, int32_t away) {
    const int32_t cell = find(env, kind == SKELETON ? PATH : GRASS);
    if (!cell || env->who[cell] || puf_grid_distance(STRIDE, cell, env->cell) < away) return;
    for (int32_t i = 0; i < MAX_CREATURES; i++) {
        if (env->creatures[i].health) continue;
        env->creatures[i] = (Creature){
            .cell = (int16_t)cell, .kind = (uint8_t)kind, .health = creature_health[kind]};
        env->who[cell] = (uint8_t)(kind + 1);
        return;
    }
}

static void reset(World* env) {
    puf_grid_clear(env->board, STRIDE, STRIDE, ACROSS, SIZE, SIZE, EDGE, GRASS);
    make_land(env);
    finish_land(env);
    memset(env->who, 0, sizeof env->who);
    memset(env->creatures, 0, sizeof env->creatures);
    memset(env->plants, 0, sizeof env->plants);
    memset(env->goods, 0, sizeof env->goods);
    for (int32_t i = 0; i < NUM_NEEDS; i++) {
        env->needs[i] = MOST;
        env->clocks[i] = periods[i];
    }
    env->facing = puf_rand_int(&env->slots.rng, 4);
    env->asleep = env->pickaxe = env->sword = env->unlocked = 0;
    for (int32_t i = 0; i < env->cows; i++) spawn(env, COW, 2);
    for (int32_t i = 0; i < env->skeletons; i++) spawn(env, SKELETON, 4);
}

// ---- The player ---------------------------------------------------------------------------------

static bool is_night(const World* env) { return env->slots.tick % DAY >= DAY * 2 / 3; }

static void unlock(World* env, int32_t achievement) {
    if (env->unlocked >> achievement & 1) return;
    env->unlocked |= 1 << achievement;
    puf_reward(&env->slots, 0, 1);
}

// Changes a need within 0 to MOST.
static void change(World* env, int32_t need, int32_t by) {
    const int32_t before = env->needs[need];
    int32_t after = before + by;
    after = after < 0 ? 0 : after > MOST ? MOST : after;
    env->needs[need] = after;
    if (need == HEALTH) puf_reward(&env->slots, 0, env->reward_health * (float)(after - before));
}

static void gain(World* env, int32_t good, int32_t achievement) {
    if (env->goods[good] < MOST) env->goods[good]++;
    unlock(env, achievement);
}

static int32_t faced_by(const World* env) {
    return puf_grid_beside(STRIDE, env->cell, env->facing);
}

static bool is_near(const World* env, uint8_t terrain) {
    for (int32_t row = -NEAR; row <= NEAR; row++)
        for (int32_t col = -NEAR; col <= NEAR; col++)
            if (env->board[env->cell + row * STRIDE + col] == terrain) return true;
    return false;
}

static int32_t creature_at(const World* env, int32_t cell) {
    for (int32_t i = 0; i < MAX_CREATURES; i++)
        if (env->creatures[i].health && env->creatures[i].cell == cell) return i;
    return -1;
}

static void strike(World* env, int32_t cell) {
    static const int32_t achievements[NUM_KINDS] = {EAT_COW, DEFEAT_ZOMBIE, DEFEAT_SKELETON};
    Creature* creature = &env->creatures[creature_at(env, cell)];
    const int32_t damage = env->sword >= 4 ? 5 : env->sword >= 2 ? 3 : env->sword ? 2 : 1;
    if (creature->health > damage) {
        creature->health = (uint8_t)(creature->health - damage);
        return;
    }
    creature->health = 0;
    env->who[cell] = 0;
    if (creature->kind == COW) change(env, FOOD, 6);
    unlock(env, achievements[creature->kind]);
}

static void eat_plant(World* env, int32_t cell) {
    for (int32_t i = 0; i < MAX_PLANTS; i++)
        if (env->plants[i].cell == cell) env->plants[i].age = 0;
    env->board[cell] = SAPLING;
    change(env, FOOD, 4);
    unlock(env, EAT_PLANT);
}

static void mine(World* env, int32_t cell, int32_t needed, int32_t good, int32_t achievement) {
    if (env->pickaxe < needed) return;
    env->board[cell] = PATH;
    gain(env, good, achievement);
}

static void use(World* env) {
    const int32_t cell = faced_by(env);
    if (env->who[cell]) {
        strike(env, cell);
        return;
    }
    switch (env->board[cell]) {
        case TREE:
            gain(env, HAS_WOOD, COLLECT_WOOD);
            break;
        case WATER:
            change(env, DRINK, 1);
            unlock(env, COLLECT_DRINK);
            break;
        case GRASS:
            if (puf_rand(&env->slots.rng) < 0.1f) gain(env, HAS_SAPLING, COLLECT_SAPLING);
            break;
        case STONE:
            mine(env, cell, 1, HAS_STONE, COLLECT_STONE);
            break;
        case COAL:
            mine(env, cell, 1, HAS_COAL, COLLECT_COAL);
            break;
        case IRON:
            mine(env, cell, 2, HAS_IRON, COLLECT_IRON);
            break;
        case DIAMOND:
            mine(env, cell, 4, HAS_DIAMOND, COLLECT_DIAMOND);
            break;
        case PLANT:
            eat_plant(env, cell);
            break;
        default:
            break;
    }
}

static void place(World* env, int32_t what) {
    static const uint8_t terrains[4] = {STONE, TABLE, FURNACE, SAPLING};
    static const int32_t costs[4] = {HAS_STONE, HAS_WOOD, HAS_STONE, HAS_SAPLING};
    static const int32_t achievements[4] = {PLACE_STONE, PLACE_TABLE, PLACE_FURNACE, PLACE_PLANT};
    const int32_t cell = faced_by(env);
    const uint8_t ground = env->board[cell], terrain = terrains[what];
    const uint8_t last = terrain == STONE ? WATER : terrain == SAPLING ? GRASS : PATH;
    if (!env->goods[costs[what]] || env->who[cell] || ground > last ||
        (terrain == FURNACE && !is_near(env, TABLE)))
        return;
    if (terrain == SAPLING) {
        int32_t slot = 0;
        while (slot < MAX_PLANTS && env->plants[slot].cell) slot++;
        if (slot == MAX_PLANTS) return;
        env->plants[slot] = (Plant){.cell = (int16_t)cell};
    }
    env->goods[costs[what]]--;
    env->board[cell] = terrain;
    unlock(env, achievements[what]);
}

// Tool 0 to 2: a wooden, stone, iron pickaxe; 3 to 5: a sword.
static void make(World* env, int32_t tool) {
    static const int32_t achievements[6] = {MAKE_WOOD_PICKAXE, MAKE_STONE_PICKAXE,
                                            MAKE_IRON_PICKAXE, MAKE_WOOD_SWORD,
                                            MAKE_STONE_SWORD,  MAKE_IRON_SWORD};
    const int32_t stuff = tool % 3;
    int32_t* goods = env->goods;
    if (!is_near(env, TABLE) || !goods[HAS_WOOD] || (stuff == 1 && !goods[HAS_STONE]) ||
        (stuff == 2 && (!goods[HAS_COAL] || !goods[HAS_IRON] || !is_near(env, FURNACE))))
        return;
    goods[HAS_WOOD]--;
    goods[HAS_STONE] -= stuff == 1;
    goods[HAS_COAL] -= stuff == 2;
    goods[HAS_IRON] -= stuff == 2;
    *(tool < 3 ? &env->pickaxe : &env->sword) |= 1 << stuff;
    unlock(env, achievements[tool]);
}

static void walk(World* env, int32_t direction) {
    env->facing = direction;
    const int32_t to = faced_by(env);
    if (env->board[to] <= PATH && !env->who[to]) env->cell = to;
}

static void act(World* env, int32_t action) {
    if (env->asleep) return;
    if (action >= MAKE)
        make(env, action - MAKE);
    else if (action >= PLACE)
        place(env, action - PLACE);
    else if (action == SLEEP)
        env->asleep = env->needs[ENERGY] < MOST;
    else if (action == USE)
        use(env);
    else if (action >= WALK)
        walk(env, action - WALK);
}

static void wake(World* env) {
    env->asleep = 0;
    env->clocks[ENERGY] = periods[ENERGY];
    unlock(env, WAKE_UP);
}

static void live(World* env) {
    for (int32_t need = FOOD; need < NUM_NEEDS; need++) {
        if (need == ENERGY && env->asleep) continue;
        if (--env->clocks[need] > 0) continue;
        env->clocks[need] = periods[need];
        change(env, need, -1);
    }
    if (env->asleep && --env->clocks[ENERGY] <= 0) {
        env->clocks[ENERGY] = 4;
        change(env, ENERGY, 1);
    }
    if (env->asleep && env->clocks[ENERGY] > 4) env->clocks[ENERGY] = 4;  // fell asleep just now
    if (--env->clocks[HEALTH] <= 0) {
        const bool starving = !env->needs[FOOD] || !env->needs[DRINK] || !env->needs[ENERGY];
        env->clocks[HEALTH] = periods[HEALTH];
        change(env, HEALTH, starving ? -1 : 1);
    }
    if (env->asleep && env->needs[ENERGY] == MOST) wake(env);
}

// ---- Creatures ----------------------------------------------------------------------------------

static void hurt(World* env, int32_t damage) {
    change(env, HEALTH, -damage);
    if (env->asleep) wake(env);
}

static void stroll(World* env, Creature* creature, int32_t direction) {
    const int32_t to = puf_grid_beside(STRIDE, creature->cell, direction);
    const uint8_t ground = creature->kind == SKELETON ? PATH : GRASS;
    if (env->board[to] != ground || env->who[to] || to == env->cell) return;
    env->who[to] = env->who[creature->cell];
    env->who[creature->cell] = 0;
    creature->cell = (int16_t)to;
}

// The direction from a creature to the player: along the longer way.
static int32_t towards(const World* env, const Creature* creature) {
    const int32_t down = env->cell / STRIDE - creature->cell / STRIDE;
    const int32_t right = env->cell % STRIDE - creature->cell % STRIDE;
    if (down * down > right * right) return down < 0 ? 0 : 2;
    return right < 0 ? 3 : 1;
}

// Whether a skeleton hits the player: within three cells along a cave.
static bool can_shoot(const World* env, const Creature* creature) {
    const int32_t direction = towards(env, creature);
    int32_t cell = creature->cell;
    for (int32_t i = 0; i < 3; i++) {
        cell = puf_grid_beside(STRIDE, cell, direction);
        if (cell == env->cell) return true;
        if (env->board[cell] != PATH || env->who[cell]) return false;
    }
    return false;
}

static void move_creature(World* env, Creature* creature) {
    const uint32_t dice = puf_rand_u32(&env->slots.rng);
    const int32_t distance = puf_grid_distance(STRIDE, creature->cell, env->cell);
    const int32_t any = (int32_t)(dice & 3);
    if (creature->pause) creature->pause--;
    if (creature->kind == COW) {
        if ((dice >> 2 & 3) == 0) stroll(env, creature, any);
        return;
    }
    const bool strikes =
        creature->kind == ZOMBIE ? distance == 1 : distance <= 3 && can_shoot(env, creature);
    if (strikes) {
        if (creature->pause) return;
        creature->pause = 5;
        hurt(env, creature->kind == ZOMBIE && env->asleep ? 4 : 2);
        return;
    }
    const bool hunts = distance < 7 && (dice >> 2 & 3);
    stroll(env, creature, hunts ? towards(env, creature) : any);
}

static void populate(World* env) {
    const uint32_t dice = puf_rand_u32(&env->slots.rng);
    if (dice & 15) return;
    const int32_t zombies = is_night(env) ? env->zombies : (env->zombies + 2) / 3;
    if (count_kind(env, ZOMBIE) < zombies) spawn(env, ZOMBIE, 5);
    if (count_kind(env, COW) < env->cows) spawn(env, COW, 5);
    if (count_kind(env, SKELETON) < env->skeletons) spawn(env, SKELETON, 5);
}

static void ripen(World* env) {
    for (int32_t i = 0; i < MAX_PLANTS; i++) {
        Plant* plant = &env->plants[i];
        if (!plant->cell || plant->age >= env->ripe_after) continue;
        if (++plant->age >= env->ripe_after) env->board[plant->cell] = PLANT;
    }
}

static PufStatus step(World* env) {
    act(env, puf_action(&env->slots, 0));
    live(env);
    for (int32_t i = 0; i < MAX_CREATURES; i++)
        if (env->creatures[i].health) move_creature(env, &env->creatures[i]);
    populate(env);
    ripen(env);
    const int32_t unlocked = __builtin_popcount((uint32_t)env->unlocked);
    const bool ended = !env->needs[HEALTH] || unlocked == NUM_ACHIEVEMENTS;
    if (!ended && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)unlocked;
    env->perf = env->score / NUM_ACHIEVEMENTS;
    env->steps = (float)env->slots.tick;
    return ended ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static uint8_t* put_flags(uint8_t* out, int32_t bits, int32_t count) {
    for (int32_t i = 0; i < count; i++) out[i] = bits >> i & 1 ? MOST : 0;
    return out + count;
}

static void observe(const World* env) {
    static const uint8_t terrains[] = {PATH,    WATER, TREE,    STONE,   COAL,  IRON,
                                       DIAMOND, TABLE, FURNACE, SAPLING, PLANT, EDGE};
    static const uint8_t kinds[NUM_KINDS] = {COW + 1, ZOMBIE + 1, SKELETON + 1};
    uint8_t window[WINDOW], *out = puf_obs_u8(&env->slots, 0);
    puf_grid_view(env->board, STRIDE, ACROSS, DEEP, env->cell, window);
    puf_grid_planes(window, WINDOW, terrains, NUM_TERRAINS - PATH, MOST, out);
    out += (NUM_TERRAINS - PATH) * WINDOW;
    puf_grid_view(env->who, STRIDE, ACROSS, DEEP, env->cell, window);
    puf_grid_planes(window, WINDOW, kinds, NUM_KINDS, MOST, out);
    out += NUM_KINDS * WINDOW;
    const int32_t cell = faced_by(env);
    memset(out, 0, NUM_FACED);
    out[env->who[cell] ? NUM_TERRAINS + env->who[cell] - 1 : env->board[cell]] = MOST;
    out += NUM_FACED;
    for (int32_t i = 0; i < NUM_GOODS; i++) *out++ = (uint8_t)env->goods[i];
    out = put_flags(out, env->pickaxe, 3);
    out = put_flags(out, env->sword, 3);
    for (int32_t i = 0; i < NUM_NEEDS; i++) *out++ = (uint8_t)env->needs[i];
    out = put_flags(out, 1 << env->facing, 4);
    out = put_flags(out, is_near(env, TABLE) | is_near(env, FURNACE) << 1, 2);
    out = put_flags(out, env->asleep | is_night(env) << 1, 2);
    put_flags(out, env->unlocked, NUM_ACHIEVEMENTS);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 18, PANEL = 96 };

static void draw_terrain(PufCanvas* canvas, float x, float y, uint8_t terrain) {
    static const uint32_t grounds[NUM_TERRAINS] = {
        [GRASS] = 0x6DB04F,   [SAND] = 0xE5D29A,  [PATH] = 0xB59B78,    [WATER] = 0x3E8EDE,
        [TREE] = 0x6DB04F,    [STONE] = 0x8B8B92, [COAL] = 0x8B8B92,    [IRON] = 0x8B8B92,
        [DIAMOND] = 0x8B8B92, [TABLE] = 0x6DB04F, [FURNACE] = 0xB59B78, [SAPLING] = 0x6DB04F,
        [PLANT] = 0x6DB04F};
    puf_rect(canvas, x, y, PIXELS, PIXELS, grounds[terrain]);
    switch (terrain) {
        case TREE:
            puf_rect(canvas, x + 7, y + 10, 4, 8, PUF_BROWN);
            puf_circle(canvas, x + 9, y + 7, 7, 0x2E6B34);
            break;
        case WATER:
            puf_line(canvas, x + 3, y + 7, x + 8, y + 6, 1.5f, 0x8EC4F5);
            puf_line(canvas, x + 9, y + 13, x + 15, y + 12, 1.5f, 0x8EC4F5);
            break;
        case COAL:
        case IRON:
        case DIAMOND:
            for (int32_t i = 0; i < 3; i++)
                puf_circle(canvas, x + 5 + 4 * (float)i, y + (i % 2 ? 5 : 12), 2.6f,
                           terrain == COAL   ? PUF_BLACK
                           : terrain == IRON ? PUF_ORANGE
                                             : PUF_WHITE);
            break;
        case TABLE:
            puf_rect(canvas, x + 2, y + 4, 14, 6, 0xA5713F);
            puf_rect(canvas, x + 3, y + 10, 3, 6, 0x7A4F29);
            puf_rect(canvas, x + 12, y + 10, 3, 6, 0x7A4F29);
            break;
        case FURNACE:
            puf_rect(canvas, x + 2, y + 2, 14, 14, 0x5A5A62);
            puf_rect(canvas, x + 5, y + 8, 8, 6, PUF_ORANGE);
            break;
        case SAPLING:
        case PLANT:
            puf_line(canvas, x + 9, y + 16, x + 9, y + 7, 2, 0x2E6B34);
            puf_circle(canvas, x + 6, y + 8, 2.5f, 0x2E6B34);
            puf_circle(canvas, x + 12, y + 7, 2.5f, 0x2E6B34);
            if (terrain == PLANT) puf_circle(canvas, x + 9, y + 5, 4, PUF_RED);
            break;
        default:
            break;
    }
}

static void draw_creature(PufCanvas* canvas, float x, float y, int32_t kind) {
    if (kind == COW) {
        puf_rect(canvas, x + 2, y + 6, 12, 7, PUF_WHITE);
        puf_rect(canvas, x + 4, y + 7, 4, 4, PUF_INK);
        puf_rect(canvas, x + 12, y + 4, 5, 5, PUF_PINK);
        puf_rect(canvas, x + 3, y + 13, 2, 4, PUF_INK);
        puf_rect(canvas, x + 11, y + 13, 2, 4, PUF_INK);
        return;
    }
    const uint32_t skin = kind == ZOMBIE ? 0x3F7D3A : 0xE8E4DA;
    puf_circle(canvas, x + 9, y + 5, 4, skin);
    puf_rect(canvas, x + 6, y + 8, 6, 8, kind == ZOMBIE ? 0x2C4A86 : skin);
    puf_line(canvas, x + 4, y + 10, x + 14, y + 10, 2, skin);
    puf_rect(canvas, x + 7, y + 4, 1.5f, 2, PUF_RED);
    puf_rect(canvas, x + 10, y + 4, 1.5f, 2, PUF_RED);
}

static void draw_player(const World* env, PufCanvas* canvas, float x, float y) {
    static const float dx[4] = {0, 1, 0, -1}, dy[4] = {-1, 0, 1, 0};
    puf_circle(canvas, x + 9, y + 6, 5, 0xF2C9A0);
    puf_rect(canvas, x + 4, y + 9, 10, 8, PUF_PURPLE);
    puf_rect(canvas, x + 4, y + 1, 10, 3, PUF_BROWN);
    puf_circle(canvas, x + 9 + 9 * dx[env->facing], y + 9 + 9 * dy[env->facing], 2.5f, PUF_YELLOW);
    if (env->asleep) puf_text(canvas, x + 10, y - 8, 2, PUF_WHITE, "z");
}

static void draw_panel(const World* env, PufCanvas* canvas) {
    static const char* const names[NUM_NEEDS] = {"HEALTH", "FOOD", "WATER", "ENERGY"};
    static const uint32_t colors[NUM_NEEDS] = {PUF_RED, PUF_ORANGE, PUF_BLUE, PUF_YELLOW};
    const float top = SIZE * PIXELS;
    for (int32_t i = 0; i < NUM_NEEDS; i++) {
        const float x = 10 + 142 * (float)i;
        puf_text(canvas, x, top + 8, 1, PUF_GREY, names[i]);
        puf_rect(canvas, x, top + 18, 126, 10, PUF_SLATE);
        puf_rect(canvas, x, top + 18, 14 * (float)env->needs[i], 10, colors[i]);
    }
    puf_textf(canvas, 10, top + 40, 2, PUF_PAPER, "WOOD %d STONE %d COAL %d IRON %d GEM %d",
              (int)env->goods[0], (int)env->goods[1], (int)env->goods[2], (int)env->goods[3],
              (int)env->goods[4]);
    puf_textf(canvas, 10, top + 66, 2, PUF_PAPER, "ACHIEVEMENTS %d OF 22  STEP %d",
              __builtin_popcount((uint32_t)env->unlocked), (int)env->slots.tick);
}

static void render(const World* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < SIZE; row++)
        for (int32_t col = 0; col < SIZE; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, ACROSS, row, col);
            draw_terrain(canvas, (float)(col * PIXELS), (float)(row * PIXELS), env->board[cell]);
            if (env->who[cell])
                draw_creature(canvas, (float)(col * PIXELS), (float)(row * PIXELS),
                              env->who[cell] - 1);
        }
    const int32_t row = env->cell / STRIDE - ACROSS, col = env->cell % STRIDE - ACROSS;
    draw_player(env, canvas, (float)(col * PIXELS), (float)(row * PIXELS));
    if (is_night(env)) puf_rect_alpha(canvas, 0, 0, SIZE * PIXELS, SIZE * PIXELS, PUF_INK, 0.5f);
    puf_rect_outline(canvas, (float)((col - ACROSS) * PIXELS), (float)((row - DEEP) * PIXELS),
                     (2 * ACROSS + 1) * PIXELS, (2 * DEEP + 1) * PIXELS, 2, PUF_PAPER);
    puf_rect(canvas, 0, SIZE * PIXELS, SIZE * PIXELS, PANEL, PUF_INK);
    draw_panel(env, canvas);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool all_within(const int32_t* values, int32_t count, int32_t low, int32_t high) {
    for (int32_t i = 0; i < count; i++)
        if (values[i] < low || values[i] > high) return false;
    return true;
}

static bool are_creatures_valid(const World* env) {
    int32_t count = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        if (env->who[cell] > NUM_KINDS || (env->who[cell] && env->board[cell] > PATH)) return false;
        count += env->who[cell] != 0;
    }
    for (int32_t i = 0; i < MAX_CREATURES; i++) {
        const Creature* creature = &env->creatures[i];
        if (creature->kind >= NUM_KINDS || creature->cell < 0 || creature->cell >= CELLS ||
            creature->health > creature_health[creature->kind] || creature->pause > 5)
            return false;
        if (!creature->health) continue;
        if (env->who[creature->cell] != creature->kind + 1 || creature_at(env, creature->cell) != i)
            return false;
        count--;
    }
    return !count;
}

// Each plant has a cell of its own, and every plant on the board is in the list.
static bool are_plants_valid(const World* env) {
    int32_t count = 0;
    for (int32_t cell = 0; cell < CELLS; cell++)
        count += env->board[cell] == SAPLING || env->board[cell] == PLANT;
    for (int32_t i = 0; i < MAX_PLANTS; i++) {
        const Plant* plant = &env->plants[i];
        if (!plant->cell) continue;
        if (plant->cell < 0 || plant->cell >= CELLS || plant->age < 0 ||
            plant->age > env->ripe_after ||
            env->board[plant->cell] != (plant->age < env->ripe_after ? SAPLING : PLANT))
            return false;
        for (int32_t k = 0; k < i; k++)
            if (env->plants[k].cell == plant->cell) return false;
        count--;
    }
    return !count;
}

static bool valid(const World* env) {
    if (!puf_grid_is_walled(env->board, STRIDE, STRIDE, ACROSS, SIZE, SIZE, EDGE, PLANT) ||
        !puf_grid_is_inside(STRIDE, ACROSS, SIZE, SIZE, env->cell))
        return false;
    return env->board[env->cell] <= PATH && !env->who[env->cell] && env->facing >= 0 &&
           env->facing <= 3 && (env->asleep == 0 || env->asleep == 1) &&
           all_within(env->needs, NUM_NEEDS, 0, MOST) && env->needs[HEALTH] > 0 &&
           all_within(env->clocks, NUM_NEEDS, 1, 40) &&
           all_within(env->goods, NUM_GOODS, 0, MOST) && all_within(&env->pickaxe, 1, 0, 7) &&
           all_within(&env->sword, 1, 0, 7) &&
           all_within(&env->unlocked, 1, 0, (1 << NUM_ACHIEVEMENTS) - 2) &&
           are_creatures_valid(env) && are_plants_valid(env) && env->slots.tick < env->max_steps;
}

PUF_ENV(crafter_lite, World, .doc = "gather, craft and survive to unlock 22 achievements",
        .group = "worlds",
        .action_names =
            "stay up right down left use sleep place_stone place_table place_furnace place_sapling "
            "wood_pickaxe stone_pickaxe iron_pickaxe wood_sword stone_sword iron_sword",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {FEATURES}, .low = 0, .high = MOST},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .width = SIZE * PIXELS,
                   .height = SIZE * PIXELS + PANEL});
