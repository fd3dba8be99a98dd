// The rules of crafter_lite on a meadow laid out by hand, and what its generated worlds hold.
#include "envs/crafter_lite.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN, LEFT };
enum { PLACE_A_STONE = PLACE, PLACE_A_TABLE, PLACE_A_FURNACE, PLACE_A_SAPLING };

#define WORLD(...) RIG_START(&puf_env_crafter_lite, 1, 1, __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, ACROSS, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

// Nothing but grass and no creatures; the player in (16, 16) faces (16, 17).
static World* sweep(Rig* rig) {
    World* env = rig_env(rig, 0);
    puf_grid_clear(env->board, STRIDE, STRIDE, ACROSS, SIZE, SIZE, EDGE, GRASS);
    memset(env->who, 0, sizeof env->who);
    memset(env->creatures, 0, sizeof env->creatures);
    memset(env->plants, 0, sizeof env->plants);
    memset(env->goods, 0, sizeof env->goods);
    env->cell = at(16, 16);
    env->facing = RIGHT;
    env->asleep = env->pickaxe = env->sword = env->unlocked = 0;
    for (int32_t i = 0; i < NUM_NEEDS; i++) {
        env->needs[i] = MOST;
        env->clocks[i] = 40;
    }
    env->slots.tick = 0;
    return env;
}

static Creature* put(World* env, int32_t row, int32_t col, int32_t kind) {
    Creature* creature = env->creatures;
    while (creature->health) creature++;
    *creature = (Creature){
        .cell = (int16_t)at(row, col), .kind = (uint8_t)kind, .health = creature_health[kind]};
    env->who[at(row, col)] = (uint8_t)(kind + 1);
    return creature;
}

static bool has(const World* env, int32_t achievement) { return env->unlocked >> achievement & 1; }

static Rig quiet_world(void) { return WORLD({"cows", 0}, {"zombies", 0}, {"skeletons", 0}); }

static void test_walking(void) {
    Rig rig = quiet_world();
    static const int32_t rows[4] = {15, 16, 17, 16}, cols[4] = {16, 17, 16, 15};
    for (int32_t direction = 0; direction < 4; direction++) {
        World* env = sweep(&rig);
        rig_play(&rig, WALK + direction);
        CHECK(env->cell == at(rows[direction], cols[direction]) && env->facing == direction);
    }
    for (uint8_t terrain = GRASS; terrain <= PLANT; terrain++) {
        World* env = sweep(&rig);
        env->board[at(15, 16)] = terrain;
        walk(env, UP);
        CHECK(env->cell == at(terrain <= PATH ? 15 : 16, 16) && env->facing == UP);
    }
    World* env = sweep(&rig);
    env->cell = at(0, 0);
    walk(env, UP);
    CHECK(env->cell == at(0, 0));
    rig_destroy(&rig);
}

static void test_gathering(void) {
    static const struct {
        uint8_t terrain;
        int32_t pickaxe, good, achievement;
    } rules[] = {{TREE, 0, HAS_WOOD, COLLECT_WOOD},
                 {STONE, 1, HAS_STONE, COLLECT_STONE},
                 {COAL, 1, HAS_COAL, COLLECT_COAL},
                 {IRON, 2, HAS_IRON, COLLECT_IRON},
                 {DIAMOND, 4, HAS_DIAMOND, COLLECT_DIAMOND}};
    Rig rig = quiet_world();
    for (int32_t i = 0; i < 5; i++)
        for (int32_t pickaxe = 0; pickaxe < 8; pickaxe++) {
            World* env = sweep(&rig);
            env->board[at(16, 17)] = rules[i].terrain;
            env->pickaxe = pickaxe;
            const bool can = pickaxe >= rules[i].pickaxe;
            rig_play(&rig, USE);
            CHECK(env->goods[rules[i].good] == can && has(env, rules[i].achievement) == can);
            CHECK(near(rig.rewards[0], can));
            CHECK(env->board[at(16, 17)] ==
                  (can && rules[i].terrain != TREE ? PATH : rules[i].terrain));
        }
    World* env = sweep(&rig);  // at most nine, and one reward
    env->board[at(16, 17)] = TREE;
    for (int32_t i = 0; i < 12; i++) {
        rig_play(&rig, USE);
        CHECK(near(rig.rewards[0], i == 0) && env->goods[HAS_WOOD] == (i < 9 ? i + 1 : 9));
    }
    env = sweep(&rig);
    env->board[at(16, 17)] = WATER;
    env->needs[DRINK] = 4;
    rig_play(&rig, USE);
    CHECK(env->needs[DRINK] == 5 && has(env, COLLECT_DRINK));
    int32_t saplings = 0;  // one in ten
    for (int32_t i = 0; i < 2000; i++) {
        env = sweep(&rig);
        use(env);
        saplings += env->goods[HAS_SAPLING];
        CHECK(has(env, COLLECT_SAPLING) == env->goods[HAS_SAPLING]);
    }
    CHECK(saplings > 150 && saplings < 255);
    rig_destroy(&rig);
}

static void test_placing(void) {
    static const uint8_t terrains[4] = {STONE, TABLE, FURNACE, SAPLING};
    static const int32_t goods[4] = {HAS_STONE, HAS_WOOD, HAS_STONE, HAS_SAPLING};
    static const int32_t last[4] = {WATER, PATH, PATH, GRASS};
    static const int32_t achievements[4] = {PLACE_STONE, PLACE_TABLE, PLACE_FURNACE, PLACE_PLANT};
    Rig rig = quiet_world();
    for (int32_t what = 0; what < 4; what++)
        for (uint8_t ground = GRASS; ground <= PLANT; ground++) {
            World* env = sweep(&rig);
            env->board[at(18, 16)] = TABLE;  // two cells away: near
            env->board[at(16, 17)] = ground;
            place(env, what);
            CHECK(env->board[at(16, 17)] == ground && !env->unlocked);  // nothing to place
            env->goods[goods[what]] = 1;
            place(env, what);
            const bool can = ground <= last[what];
            CHECK(env->board[at(16, 17)] == (can ? terrains[what] : ground));
            CHECK(env->goods[goods[what]] == !can && has(env, achievements[what]) == can);
        }
    World* env = sweep(&rig);
    env->goods[HAS_STONE] = 1;
    env->board[at(19, 16)] = TABLE;  // too far away
    place(env, PLACE_A_FURNACE - PLACE);
    CHECK(env->board[at(16, 17)] == GRASS);
    put(env, 16, 17, COW);
    place(env, PLACE_A_STONE - PLACE);
    CHECK(env->board[at(16, 17)] == GRASS && env->goods[HAS_STONE] == 1);
    rig_destroy(&rig);
}

static void test_making(void) {
    static const int32_t needed[3][4] = {{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 1}};
    static const int32_t achievements[6] = {MAKE_WOOD_PICKAXE, MAKE_STONE_PICKAXE,
                                            MAKE_IRON_PICKAXE, MAKE_WOOD_SWORD,
                                            MAKE_STONE_SWORD,  MAKE_IRON_SWORD};
    Rig rig = quiet_world();
    for (int32_t tool = 0; tool < 6; tool++)
        for (int32_t missing = -1; missing < 6; missing++) {  // a good, 4 the table, 5 the furnace
            World* env = sweep(&rig);
            for (int32_t good = 0; good < 4; good++) env->goods[good] = good != missing;
            if (missing != 4) env->board[at(14, 18)] = TABLE;
            if (missing != 5) env->board[at(18, 14)] = FURNACE;
            make(env, tool);
            const int32_t* need = needed[tool % 3];
            const bool can =
                missing < 0 || (missing < 4 && !need[missing]) || (missing == 5 && tool % 3 < 2);
            CHECK(has(env, achievements[tool]) == can);
            CHECK((tool < 3 ? env->pickaxe : env->sword) == (can ? 1 << tool % 3 : 0));
            for (int32_t good = 0; good < 4; good++)
                CHECK(env->goods[good] == (good != missing) - (can ? need[good] : 0));
        }
    rig_destroy(&rig);
}

static void test_plants_ripen_and_are_eaten(void) {
    Rig rig = WORLD({"cows", 0}, {"zombies", 0}, {"skeletons", 0}, {"ripe_after", 3});
    World* env = sweep(&rig);
    env->goods[HAS_SAPLING] = 1;
    env->needs[FOOD] = 2;
    rig_play(&rig, PLACE_A_SAPLING);  // age 1 at the end of this tick
    CHECK(env->board[at(16, 17)] == SAPLING && valid(env));
    rig_play(&rig, USE);
    CHECK(env->board[at(16, 17)] == SAPLING && !has(env, EAT_PLANT));
    rig_play(&rig, NOTHING);
    CHECK(env->board[at(16, 17)] == PLANT && valid(env));
    rig_play(&rig, USE);
    CHECK(env->board[at(16, 17)] == SAPLING && env->needs[FOOD] == 6 && has(env, EAT_PLANT));
    CHECK(env->plants[0].age == 1 && valid(env));
    rig_destroy(&rig);
}

static void test_fights(void) {
    static const int32_t swords[5] = {0, 1, 2, 4, 7}, damages[5] = {1, 2, 3, 5, 5};
    static const int32_t achievements[NUM_KINDS] = {EAT_COW, DEFEAT_ZOMBIE, DEFEAT_SKELETON};
    Rig rig = quiet_world();
    for (int32_t kind = 0; kind < NUM_KINDS; kind++)
        for (int32_t i = 0; i < 5; i++) {
            World* env = sweep(&rig);
            Creature* creature = put(env, 16, 17, kind);
            env->sword = swords[i];
            env->needs[FOOD] = 1;
            int32_t blows = 0;
            for (; creature->health && blows < 9; blows++) use(env);
            CHECK(blows == (creature_health[kind] + damages[i] - 1) / damages[i]);
            CHECK(has(env, achievements[kind]) && !env->who[at(16, 17)]);
            CHECK(env->needs[FOOD] == (kind == COW ? 7 : 1));
        }
    rig_destroy(&rig);
}

static void test_zombies_and_skeletons_strike(void) {
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    Creature* zombie = put(env, 16, 17, ZOMBIE);
    rig_play(&rig, NOTHING);
    CHECK(env->needs[HEALTH] == 7 && near(rig.rewards[0], -0.2f) && zombie->pause == 5);
    for (int32_t i = 0; i < 4; i++) rig_play(&rig, NOTHING);
    CHECK(env->needs[HEALTH] == 7);
    rig_play(&rig, NOTHING);
    CHECK(env->needs[HEALTH] == 5);
    env = sweep(&rig);  // a sleeper is hit harder and wakes
    put(env, 16, 17, ZOMBIE);
    env->needs[ENERGY] = 3;
    rig_play(&rig, SLEEP);
    CHECK(env->needs[HEALTH] == 5 && !env->asleep && has(env, WAKE_UP));
    for (int32_t blocked = 0; blocked < 2; blocked++) {
        env = sweep(&rig);
        for (int32_t col = 17; col < 25; col++) env->board[at(16, col)] = PATH;
        if (blocked) env->board[at(16, 18)] = STONE;
        put(env, 16, 19, SKELETON);
        rig_play(&rig, NOTHING);
        CHECK(env->needs[HEALTH] == (blocked ? 9 : 7));
        if (!blocked) CHECK(env->creatures[0].cell == at(16, 19));
    }
    env = sweep(&rig);
    for (int32_t col = 17; col < 25; col++) env->board[at(16, col)] = PATH;
    put(env, 16, 20, SKELETON);  // four cells away: it can only come nearer
    rig_play(&rig, NOTHING);
    CHECK(env->needs[HEALTH] == 9);
    rig_destroy(&rig);
}

static void test_creatures_keep_to_their_ground(void) {
    Rig rig = WORLD({"cows", 8}, {"zombies", 4}, {"skeletons", 4});
    const World* env = rig_env(&rig, 0);
    PufRng rng = {5};
    bool good = true;
    int32_t seen[NUM_KINDS] = {0};
    for (int32_t i = 0; i < 4000; i++) {
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
        for (int32_t k = 0; k < MAX_CREATURES; k++) {
            const Creature* creature = &env->creatures[k];
            if (!creature->health) continue;
            seen[creature->kind]++;
            good =
                good && env->board[creature->cell] == (creature->kind == SKELETON ? PATH : GRASS);
        }
        good = good && valid(env) && count_kind(env, COW) <= 8 && count_kind(env, ZOMBIE) <= 4;
    }
    CHECK(good && seen[COW] && seen[ZOMBIE] && seen[SKELETON]);
    rig_destroy(&rig);
}

static void test_zombies_hunt(void) {
    Rig rig = quiet_world();
    int32_t nearer = 0;
    for (int32_t i = 0; i < 200; i++) {
        World* env = sweep(&rig);
        put(env, 16, 21, ZOMBIE);  // five cells away
        rig_play(&rig, NOTHING);
        nearer += env->creatures[0].cell == at(16, 20);
    }
    // three quarters, and a quarter of the rest
    CHECK(nearer > 140 && nearer < 185);
    rig_destroy(&rig);
}

static void test_needs(void) {
    static const int32_t expected[NUM_NEEDS] = {10, 30, 20, 40};
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    memcpy(env->clocks, expected, sizeof expected);
    for (int32_t tick = 1; tick <= 120; tick++) {
        rig_play(&rig, NOTHING);
        for (int32_t need = FOOD; need < NUM_NEEDS; need++)
            CHECK(env->needs[need] == MOST - tick / expected[need]);
        CHECK(env->needs[HEALTH] == MOST);
    }
    env->needs[HEALTH] = 5;
    for (int32_t i = 0; i < 10; i++) rig_play(&rig, NOTHING);
    CHECK(env->needs[HEALTH] == 6);
    for (int32_t need = FOOD; need < NUM_NEEDS; need++) {
        env = sweep(&rig);
        env->clocks[HEALTH] = 1;
        env->needs[need] = 0;
        rig_play(&rig, NOTHING);
        CHECK(env->needs[HEALTH] == 8 && near(rig.rewards[0], -0.1f));
    }
    env = sweep(&rig);  // death
    env->clocks[HEALTH] = 1;
    env->needs[FOOD] = 0;
    env->needs[HEALTH] = 1;
    env->unlocked = 7;
    rig_play(&rig, NOTHING);
    CHECK(rig.terminals[0] && !rig.truncations[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 3 && near((float)stats.metrics[1], 3 / 22.0f));
    rig_destroy(&rig);
}

static void test_sleep(void) {
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    rig_play(&rig, SLEEP);
    CHECK(!env->asleep);  // not tired
    env->needs[ENERGY] = 7;
    rig_play(&rig, SLEEP);
    CHECK(env->asleep && !has(env, WAKE_UP));
    int32_t ticks = 0;
    while (env->asleep && ticks < 50) {
        rig_play(&rig, WALK + UP);
        CHECK(env->cell == at(16, 16));
        ticks++;
    }
    CHECK(ticks == 8 && env->needs[ENERGY] == MOST && has(env, WAKE_UP));  // 4 ticks each
    for (int32_t i = 0; i < 39; i++) rig_play(&rig, NOTHING);
    CHECK(env->needs[ENERGY] == MOST);  // rested for the whole period
    rig_play(&rig, NOTHING);
    CHECK(env->needs[ENERGY] == MOST - 1);
    rig_destroy(&rig);
}

static void test_the_last_third_of_a_day_is_night(void) {
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    static const int32_t ticks[] = {0, 199, 200, 299, 300, 500}, night[] = {0, 0, 1, 1, 0, 1};
    for (int32_t i = 0; i < 6; i++) {
        env->slots.tick = ticks[i];
        CHECK(is_night(env) == night[i]);
    }
    rig_destroy(&rig);
}

static void test_ends(void) {
    Rig rig = WORLD({"max_steps", 5}, {"zombies", 0}, {"skeletons", 0});
    CHECK(rig_truncates_at(&rig, 5));
    World* env = sweep(&rig);
    env->unlocked = (1 << NUM_ACHIEVEMENTS) - 1 - (1 << COLLECT_WOOD);
    env->board[at(16, 17)] = TREE;
    rig_play(&rig, USE);
    CHECK(rig.terminals[0] && rig.rewards[0] == 1);  // the last one
    rig_destroy(&rig);
}

static void test_observations(void) {
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    env->board[at(13, 12)] = WATER;  // the corner of the window
    env->board[at(16, 18)] = TABLE;
    put(env, 19, 20, SKELETON)->pause = 5;
    env->board[at(19, 20)] = PATH;
    env->goods[HAS_COAL] = 4;
    env->pickaxe = 3;
    env->unlocked = 1 << WAKE_UP;
    env->slots.tick = 199;
    rig_play(&rig, WALK + UP);    // (15, 16)
    rig_play(&rig, WALK + DOWN);  // and back; night begins with tick 200
    const uint8_t* obs = rig.obs_u8;
    CHECK(obs[1 * WINDOW] == MOST && obs[0] == 0);
    CHECK(obs[(TABLE - PATH) * WINDOW + WINDOW / 2 + 2] == MOST);
    const int32_t skeletons = (NUM_TERRAINS - PATH + SKELETON) * WINDOW;
    int32_t seen = 0;
    for (int32_t i = 0; i < WINDOW; i++) seen += obs[skeletons + i] == MOST;
    CHECK(seen == 1);
    obs += NUM_PLANES * WINDOW;
    CHECK(obs[GRASS] == MOST);  // it faces (17, 16)
    obs += NUM_FACED;
    static const uint8_t rest[] = {0, 0, 4, 0, 0, 0, 9, 9, 0, 0, 0, 0,
                                   9, 9, 9, 9, 0, 0, 9, 0, 9, 0, 0, 9};
    CHECK(!memcmp(obs, rest, sizeof rest));
    obs += sizeof rest;
    for (int32_t i = 0; i < NUM_ACHIEVEMENTS; i++) CHECK(obs[i] == (i == WAKE_UP ? MOST : 0));
    CHECK(obs + NUM_ACHIEVEMENTS == rig.obs_u8 + FEATURES);
    rig_destroy(&rig);
}

// Nearly every world has all that the achievements need.
static void test_worlds(void) {
    Rig rig = RIG_START(&puf_env_crafter_lite, 100, 3, {"max_steps", 1000});
    int32_t complete = 0;
    for (int32_t i = 0; i < 100; i++) {
        const World* env = rig_env(&rig, i);
        int32_t counts[NUM_TERRAINS] = {0};
        for (int32_t row = 0; row < SIZE; row++)
            for (int32_t col = 0; col < SIZE; col++) counts[env->board[at(row, col)]]++;
        CHECK(valid(env) && env->board[env->cell] == GRASS);
        complete += counts[WATER] && counts[TREE] >= 5 && counts[STONE] >= 5 && counts[COAL] >= 2 &&
                    counts[IRON] >= 2 && counts[DIAMOND] && counts[PATH] && count_kind(env, COW);
    }
    CHECK(complete >= 95);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = quiet_world();
    World* env = sweep(&rig);
    put(env, 10, 10, ZOMBIE);
    const World kept = *env;
    CHECK(valid(env));
    int32_t* const fields[] = {&env->cell,     &env->facing,    &env->asleep,
                               &env->needs[0], &env->clocks[2], &env->goods[5],
                               &env->pickaxe,  &env->sword,     &env->unlocked};
    static const int32_t bad[] = {0, 4, 2, 10, 41, 10, 8, 8, (1 << 22) - 1};
    for (int32_t i = 0; i < 9; i++) {
        *fields[i] = bad[i];
        CHECK(!valid(env));
        *fields[i] = -1;
        CHECK(!valid(env));
        *env = kept;
    }
    env->needs[HEALTH] = 0;
    CHECK(!valid(env));
    *env = kept;
    env->who[at(3, 3)] = 1;  // a creature without a body
    CHECK(!valid(env));
    *env = kept;
    put(env, 10, 10, ZOMBIE);  // two in one cell, and one without a body
    env->who[at(9, 9)] = ZOMBIE + 1;
    CHECK(!valid(env));
    *env = kept;
    env->creatures[0].cell = -1;
    CHECK(!valid(env));
    *env = kept;
    env->board[at(3, 3)] = SAPLING;  // in no list
    CHECK(!valid(env));
    *env = kept;
    env->plants[0] = (Plant){.cell = (int16_t)at(3, 3), .age = 5};  // no plant there
    CHECK(!valid(env));
    *env = kept;
    env->cell = at(10, 10);  // on the zombie
    CHECK(!valid(env));
    *env = kept;
    env->board[at(-1, 3)] = GRASS;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_walking();
    test_gathering();
    test_placing();
    test_making();
    test_plants_ripen_and_are_eaten();
    test_fights();
    test_zombies_and_skeletons_strike();
    test_creatures_keep_to_their_ground();
    test_zombies_hunt();
    test_needs();
    test_sleep();
    test_the_last_third_of_a_day_is_night();
    test_ends();
    test_observations();
    test_worlds();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
