// The rules of dungeon on a level laid out by hand, and what its generated levels promise.
#include "envs/dungeon.c"
#include "tests/check.h"
#include "tests/rig.h"

enum { UP, RIGHT, DOWN_, LEFT };

#define LEVEL(...) RIG_START(&puf_env_dungeon, 1, 1, __VA_ARGS__)

static int32_t at(int32_t row, int32_t col) { return puf_grid_cell(STRIDE, VISION, row, col); }

static bool near(float a, float b) { return fabsf(a - b) < 1e-5f; }

static void dig(Dungeon* env, int32_t room) {
    const PufRoom* at_room = &env->rooms[room];
    for (int32_t row = 0; row < at_room->height; row++)
        for (int32_t col = 0; col < at_room->width; col++)
            env->board[at(at_room->row + row, at_room->col + col)] = FLOOR;
}

// Two rooms: rows 1 to 6, columns 1 to 8 and 11 to 18, with a tunnel in row 3 between; the stairs
// at (5, 17). The hero at (3, 3), alone.
static Dungeon* lay(Rig* rig) {
    Dungeon* env = rig_env(rig, 0);
    memset(env->board, 0, sizeof env->board);
    for (int32_t i = 0; i < NUM_ROOMS; i++)
        env->rooms[i] = (PufRoom){.row = (uint8_t)(i / ACROSS * SECTOR_HEIGHT + 1),
                                  .col = (uint8_t)(i % ACROSS * SECTOR_WIDTH + 1),
                                  .height = 6,
                                  .width = 8};
    dig(env, 0);
    dig(env, 1);
    env->board[at(3, 9)] = env->board[at(3, 10)] = FLOOR;
    env->stairs = at(5, 17);
    env->board[env->stairs] |= STAIRS;
    env->cell = at(3, 3);
    env->board[env->cell] |= TRODDEN;
    env->num_monsters = env->num_items = env->seen_rooms = 0;
    env->hero_health = env->max_health;
    look_around(env);
    return env;
}

static Monster* put_monster(Dungeon* env, int32_t row, int32_t col, int32_t kind) {
    Monster* monster = &env->monster[env->num_monsters++];
    *monster = (Monster){
        .cell = (int16_t)at(row, col), .kind = (uint8_t)kind, .health = monster_health[kind]};
    env->board[at(row, col)] |= MONSTER;
    return monster;
}

static void put_item(Dungeon* env, int32_t row, int32_t col, int32_t kind) {
    env->item[env->num_items++] = (Item){.cell = (int16_t)at(row, col), .kind = (uint8_t)kind};
    env->board[at(row, col)] |= ITEM;
}

static void test_moves_and_walls(void) {
    Rig rig = LEVEL({"max_health", 20});
    static const int32_t rows[4] = {2, 3, 4, 3}, cols[4] = {3, 4, 3, 2};
    for (int32_t action = 0; action < 4; action++) {
        Dungeon* env = lay(&rig);
        rig_play(&rig, action);
        CHECK(env->cell == at(rows[action], cols[action]) && (env->board[env->cell] & TRODDEN));
    }
    Dungeon* env = lay(&rig);
    env->cell = at(1, 1);
    rig_play(&rig, UP);
    CHECK(env->cell == at(1, 1));
    static const uint8_t mask[NUM_ACTIONS] = {0, 1, 1, 0, 1, 0, 0, 0, 0};
    CHECK(!memcmp(rig.action_masks, mask, NUM_ACTIONS));
    rig_destroy(&rig);
}

static void test_fog(void) {
    Rig rig = LEVEL({"max_health", 20});
    Dungeon* env = lay(&rig);
    CHECK(env->board[at(6, 8)] & KNOWN);      // the whole room
    CHECK(env->board[at(0, 0)] & KNOWN);      // with its walls
    CHECK(!(env->board[at(3, 10)] & KNOWN));  // not the tunnel; its first cell is in the wall
    CHECK(env->board[at(3, 9)] & KNOWN);
    CHECK(!(env->board[at(3, 12)] & KNOWN));
    env->cell = at(3, 8);
    rig_play(&rig, RIGHT);  // (3, 9) sees (3, 10): one new cell of floor
    CHECK(near(rig.rewards[0], 0.005f) && (env->board[at(3, 10)] & KNOWN));
    rig_play(&rig, RIGHT);  // (3, 10) is in a tunnel and sees the cells beside: (2..4, 11)
    CHECK(near(rig.rewards[0], 3 * 0.005f));
    rig_play(&rig, RIGHT);  // the room has 48 cells of floor, three are known
    CHECK(near(rig.rewards[0], 45 * 0.005f) && (env->board[env->stairs] & KNOWN));
    rig_play(&rig, LEFT);
    CHECK(rig.rewards[0] == 0);
    rig_destroy(&rig);
}

static void test_stairs(void) {
    Rig rig = LEVEL({"levels", 2}, {"reward_explore", 0});
    Dungeon* env = lay(&rig);
    rig_play(&rig, DESCEND);  // not on the stairs
    CHECK(env->depth == 0 && rig.rewards[0] == 0);
    env->cell = env->stairs;
    rig_play(&rig, DESCEND);
    CHECK(env->depth == 1 && rig.rewards[0] == 1 && !rig.terminals[0] && valid(env));
    env->cell = env->stairs;
    env->board[env->cell] &= (uint8_t)~MONSTER;
    rig_play(&rig, DESCEND);
    CHECK(rig.terminals[0] && rig.rewards[0] == 1);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 2 && stats.metrics[1] == 1 && stats.metrics[3] == 3);
    rig_destroy(&rig);
}

static void test_items(void) {
    Rig rig = LEVEL({"max_health", 20});
    for (int32_t kind = 0; kind < NUM_ITEM_KINDS; kind++) {
        Dungeon* env = lay(&rig);
        memset(env->stock, 0, sizeof env->stock);
        memset(env->gear, 0, sizeof env->gear);
        put_item(env, 3, 4, kind);
        rig_play(&rig, RIGHT);
        CHECK(near(rig.rewards[0], 0.1f) && !(env->board[at(3, 4)] & ITEM));
        CHECK(env->stock[0] == (kind == POTION) && env->stock[1] == (kind == SCROLL));
        CHECK(env->stock[2] == (kind == ARROWS ? 3 : 0));
        CHECK(env->gear[0] == (kind == SWORD) && env->gear[1] == (kind == ARMOUR) && valid(env));
    }
    Dungeon* env = lay(&rig);  // no more than fits
    env->stock[ARROWS] = 8;
    env->gear[0] = MAX_GEAR;
    put_item(env, 3, 4, ARROWS);
    put_item(env, 3, 5, SWORD);
    rig_play(&rig, RIGHT);
    rig_play(&rig, RIGHT);
    CHECK(env->stock[ARROWS] == MAX_STOCK && env->gear[0] == MAX_GEAR);
    rig_destroy(&rig);
}

static void test_potions_scrolls_and_rest(void) {
    Rig rig = LEVEL({"max_health", 20});
    Dungeon* env = lay(&rig);
    env->hero_health = 5;
    rig_play(&rig, DRINK);  // none
    CHECK(env->hero_health == 5);
    rig_play(&rig, REST);
    CHECK(env->hero_health == 6);
    env->stock[POTION] = 3;
    rig_play(&rig, DRINK);
    CHECK(env->hero_health == 14 && env->stock[POTION] == 2);
    rig_play(&rig, DRINK);
    CHECK(env->hero_health == 20);  // at most max_health
    CHECK(rig.action_masks[DRINK] == 1 && rig.action_masks[READ] == 0);
    put_monster(env, 6, 8, RAT);  // in sight: no rest
    env->hero_health = 5;
    rig_play(&rig, REST);
    CHECK(env->hero_health == 5);
    rig_play(&rig, READ);
    CHECK(!(env->board[env->stairs] & KNOWN));
    env->stock[SCROLL] = 1;
    rig_play(&rig, READ);
    CHECK((env->board[env->stairs] & KNOWN) && env->stock[SCROLL] == 0);
    rig_destroy(&rig);
}

static void test_fights(void) {
    Rig rig = LEVEL({"max_health", 20}, {"reward_hurt", 0});
    Dungeon* env = lay(&rig);
    Monster* goblin = put_monster(env, 3, 4, GOBLIN);  // 4 health, the hero does 2
    rig_play(&rig, RIGHT);
    CHECK(goblin->health == 2 && env->cell == at(3, 3) && rig.rewards[0] == 0);
    rig_play(&rig, RIGHT);
    CHECK(goblin->health == 0 && near(rig.rewards[0], 0.1f) && env->kills == 1);
    CHECK(!(env->board[at(3, 4)] & MONSTER) && valid(env));
    env->gear[0] = 2;  // now 4
    goblin = put_monster(env, 3, 4, GOBLIN);
    rig_play(&rig, RIGHT);
    CHECK(goblin->health == 0);
    env->gear[0] = 0;

    env = lay(&rig);  // arrows: the nearest in line, not behind another, not out of sight
    env->stock[ARROWS] = 2;
    Monster* near_ogre = put_monster(env, 3, 6, OGRE);
    Monster* far_ogre = put_monster(env, 3, 8, OGRE);
    put_monster(env, 5, 5, OGRE);
    rig_play(&rig, SHOOT);
    CHECK(near_ogre->health == 6 && far_ogre->health == 8 && env->stock[ARROWS] == 1);
    env = lay(&rig);
    Monster* above = put_monster(env, 1, 3, OGRE);
    Monster* right = put_monster(env, 3, 6, OGRE);  // further away, later in the list
    rig_play(&rig, SHOOT);
    CHECK(above->health == 6 && right->health == 8);
    env->stock[ARROWS] = 1;
    env = lay(&rig);
    put_monster(env, 4, 5, OGRE);  // not in line
    CHECK(arrow_target(env) < 0);
    put_monster(env, 3, 11, OGRE);  // in line, but in another room
    CHECK(arrow_target(env) < 0);
    env->monster[0].health = 0;
    env->board[at(4, 5)] &= (uint8_t)~MONSTER;
    rig_play(&rig, SHOOT);
    CHECK(env->stock[ARROWS] == 1);  // nothing to shoot at
    rig_destroy(&rig);
}

static void test_monsters_wake_and_chase(void) {
    Rig rig = LEVEL({"max_health", 20});
    Dungeon* env = lay(&rig);
    Monster* near_rat = put_monster(env, 6, 4, RAT);
    Monster* far_rat = put_monster(env, 3, 14, RAT);
    rig_play(&rig, REST);
    CHECK(near_rat->cell == at(5, 4) && near_rat->awake);  // along the longer way
    CHECK(far_rat->cell == at(3, 14) && !far_rat->awake);  // has not seen the hero
    rig_play(&rig, REST);
    CHECK(near_rat->cell == at(4, 4) && valid(env));
    Monster* across = put_monster(env, 2, 8, RAT);
    rig_play(&rig, REST);
    CHECK(across->cell == at(2, 7));                  // five columns, one row
    Monster* blocked = put_monster(env, 4, 6, OGRE);  // its way along row 4 leads to the rat
    blocked->awake = 1;
    rig_play(&rig, REST);
    rig_play(&rig, REST);
    CHECK(puf_grid_distance(STRIDE, near_rat->cell, env->cell) == 1);
    CHECK(monster_at(env, near_rat->cell) == 0 && valid(env));
    rig_destroy(&rig);
}

static void test_attacks_hurt_and_armour_helps(void) {
    for (int32_t armour = 0; armour <= MAX_GEAR; armour += MAX_GEAR) {
        Rig rig = LEVEL({"max_health", 20});
        int32_t hits = 0, trials = 2000;
        for (int32_t i = 0; i < trials; i++) {
            Dungeon* env = lay(&rig);
            env->slots.tick = 0;
            env->gear[1] = armour;
            put_monster(env, 3, 4, OGRE);
            rig_play(&rig, REST);
            CHECK(env->hero_health == 20 || env->hero_health == 16);
            CHECK(near(rig.rewards[0], env->hero_health == 16 ? -0.08f : 0));
            hits += env->hero_health == 16;
        }
        const double chance = 0.8 - 0.1 * armour;
        CHECK(fabs((double)hits / trials - chance) < 4 * sqrt(chance * (1 - chance) / trials));
        rig_destroy(&rig);
    }
}

static void test_death_and_truncation(void) {
    Rig rig = LEVEL({"levels", 4}, {"reward_hurt", 0});
    Dungeon* env = lay(&rig);
    put_monster(env, 3, 4, OGRE);
    put_monster(env, 3, 2, OGRE);
    env->hero_health = 1;
    env->depth = 1;
    int32_t steps = 0;
    do {
        rig_play(&rig, REST);
        CHECK(near(rig.rewards[0], rig.terminals[0] ? -1 : 0));
    } while (!rig.terminals[0] && ++steps < 20);
    CHECK(rig.terminals[0]);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 1 && near((float)stats.metrics[1], 0.25f));
    CHECK(env->hero_health == 20 && env->depth == 0);  // a new hero
    rig_destroy(&rig);
    rig = LEVEL({"max_steps", 3}, {"monsters", 0});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

static void test_observations(void) {
    Rig rig = LEVEL({"max_health", 20});
    Dungeon* env = lay(&rig);
    env->cell = at(3, 7);
    put_item(env, 1, 8, POTION);
    put_monster(env, 4, 8, GOBLIN)->awake = 0;
    env->hero_health = 9;
    env->stock[ARROWS] = 5;
    env->gear[0] = 2;
    rig_play(&rig, RIGHT);  // to (3, 8); the goblin is below and attacks
    const int32_t health = env->hero_health;
    const int32_t centre = VISION * (SIDE + 1);
    const uint8_t* obs = rig.obs_u8;
    CHECK(obs[centre] && obs[centre - 4] && !obs[centre + 3]);  // floor; the rest is not known
    CHECK(obs[centre + 1] && !obs[WINDOW + centre + 1] && obs[WINDOW + centre + 2]);
    CHECK(obs[2 * WINDOW + centre] && !obs[2 * WINDOW + centre - 2]);
    CHECK(obs[3 * WINDOW + centre - 2 * SIDE] && obs[5 * WINDOW + centre + SIDE]);
    obs += NUM_PLANES * WINDOW;
    for (int32_t i = 0; i < 10; i++) CHECK(obs[i] == (2 * i < health));
    static const uint8_t rest[27] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0,
                                     0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0};
    CHECK(!memcmp(obs + 10, rest, 27));
    static const uint8_t kinds[3] = {0, 1, 0};
    CHECK(!memcmp(obs + 37, kinds, 3) && 40 == NUM_FLAGS);
    CHECK(rig.action_masks[SHOOT] == 1 && rig.action_masks[DESCEND] == 0);
    env = lay(&rig);
    env->cell = at(5, 16);
    env->seen_rooms = 0;
    rig_play(&rig, RIGHT);  // on the stairs
    CHECK(rig.obs_u8[4 * WINDOW + centre] && rig.action_masks[DESCEND] == 1);
    static const uint8_t on_stairs[6] = {0, 0, 0, 0, 1, 1};
    CHECK(!memcmp(obs + 31, on_stairs, 6));
    rig_play(&rig, UP);
    static const uint8_t below[6] = {0, 0, 1, 0, 1, 0};
    CHECK(!memcmp(obs + 31, below, 6));
    rig_destroy(&rig);
}

static bool is_end_of_way(const Dungeon* env, int32_t cell) {
    if (env->board[env->stairs] & KNOWN) return cell == env->stairs;
    for (int32_t k = 0; k < 4; k++) {
        const int32_t next = puf_grid_beside(STRIDE, cell, k);
        const bool on_map =
            row_of(next) >= 0 && row_of(next) < HEIGHT && col_of(next) >= 0 && col_of(next) < WIDTH;
        if (on_map && !(env->board[next] & KNOWN)) return true;
    }
    return false;
}

// Steps from a cell over known floor to the nearest end of the way, by a plain search; -1 if none.
static int32_t length_of_way(const Dungeon* env, int32_t from) {
    int32_t queue[CELLS], steps[CELLS], count = 0;
    memset(steps, -1, sizeof steps);
    if ((env->board[from] & (FLOOR | KNOWN)) != (FLOOR | KNOWN)) return -1;
    steps[from] = 0;
    queue[count++] = from;
    for (int32_t i = 0; i < count; i++) {
        if (is_end_of_way(env, queue[i])) return steps[queue[i]];
        for (int32_t k = 0; k < 4; k++) {
            const int32_t next = puf_grid_beside(STRIDE, queue[i], k);
            if ((env->board[next] & (FLOOR | KNOWN)) != (FLOOR | KNOWN) || steps[next] >= 0)
                continue;
            steps[next] = steps[queue[i]] + 1;
            queue[count++] = next;
        }
    }
    return -1;
}

// Follows one of the moves that are flagged: each must be on a shortest way, and they lead down.
static void test_the_way_leads_to_the_stairs(void) {
    Rig rig = LEVEL({"levels", 20}, {"monsters", 0}, {"max_steps", 100000});
    Dungeon* env = rig_env(&rig, 0);
    int32_t down = 0;
    for (int32_t i = 0; i < 3000; i++) {
        const uint8_t* way = rig.obs_u8 + NUM_PLANES * WINDOW + 31;
        const int32_t length = length_of_way(env, env->cell);
        int32_t action = env->cell == env->stairs ? DESCEND : -1;
        for (int32_t k = 0; k < 4; k++) {
            const int32_t after = length_of_way(env, puf_grid_beside(STRIDE, env->cell, k));
            CHECK(way[k] == (length > 0 && after >= 0 && after == length - 1));
            if (way[k]) action = k;
        }
        CHECK(action >= 0);
        const int32_t depth = env->depth;
        rig_play(&rig, action);
        down += env->depth != depth;
    }
    CHECK(down > 20);
    rig_destroy(&rig);
}

// Every level is connected, the stairs are in another room, and deeper levels have more monsters.
static void test_levels(void) {
    Rig rig = LEVEL({"levels", 20}, {"monsters", 3});
    Dungeon* env = rig_env(&rig, 0);
    int32_t shallow = 0, deep = 0;
    for (int32_t i = 0; i < 300; i++) {
        uint16_t distances[CELLS];
        uint8_t walls[CELLS];
        env->depth = i % 20;
        enter_level(env);
        for (int32_t cell = 0; cell < CELLS; cell++) walls[cell] = !(env->board[cell] & FLOOR);
        memset(distances, 255, sizeof distances);
        puf_maze_distances(walls, STRIDE, 1, env->cell, distances, 65535);
        bool connected = true;
        for (int32_t cell = 0; cell < CELLS; cell++)
            connected = connected && (walls[cell] || distances[cell] != 65535);
        CHECK(connected && valid(env));
        CHECK(room_at(env, env->stairs) != room_at(env, env->cell) && env->num_items == 4);
        for (int32_t k = 0; k < env->num_monsters; k++)
            CHECK(room_at(env, env->monster[k].cell) != room_at(env, env->cell));
        for (int32_t k = 0; env->depth < 2 && k < env->num_monsters; k++)
            CHECK(env->monster[k].kind == RAT);
        *(env->depth < 10 ? &shallow : &deep) += env->num_monsters;
    }
    CHECK(deep > shallow * 3 / 2);
    rig_destroy(&rig);
}

static void test_unsafe_states_are_invalid(void) {
    Rig rig = LEVEL({"max_health", 20});
    Dungeon* env = lay(&rig);
    put_monster(env, 3, 5, RAT);
    put_item(env, 2, 2, POTION);
    const Dungeon kept = *env;
    CHECK(valid(env));
    int32_t* const fields[] = {
        &env->cell,    &env->stairs,       &env->depth,     &env->hero_health, &env->stock[1],
        &env->gear[1], &env->num_monsters, &env->num_items, &env->kills,       &env->seen_rooms};
    static const int32_t bad[] = {0, 0, 6, 21, 10, 5, 25, 9, 1, 512};
    for (int32_t i = 0; i < 10; i++) {
        *fields[i] = bad[i];
        CHECK(!valid(env));
        *fields[i] = -1;
        CHECK(!valid(env));
        *env = kept;
    }
    env->cell = at(3, 5);  // on the monster
    CHECK(!valid(env));
    *env = kept;
    env->monster[0].cell = (int16_t)at(3, 6);
    CHECK(!valid(env));
    *env = kept;
    put_monster(env, 3, 5, RAT);  // two in one cell
    env->board[at(3, 6)] |= MONSTER;
    CHECK(!valid(env));
    *env = kept;
    env->board[at(3, 7)] |= MONSTER;  // in no list
    CHECK(!valid(env));
    *env = kept;
    env->board[at(0, 3)] |= FLOOR;  // at the edge: a step further would leave the board
    CHECK(!valid(env));
    *env = kept;
    env->rooms[2].width = 30;
    CHECK(!valid(env));
    *env = kept;
    env->item[0].kind = NUM_ITEM_KINDS;
    CHECK(!valid(env));
    *env = kept;
    env->monster[0].health = 3;
    CHECK(!valid(env));
    *env = kept;
    rig_destroy(&rig);
}

int main(void) {
    test_moves_and_walls();
    test_fog();
    test_stairs();
    test_items();
    test_potions_scrolls_and_rest();
    test_fights();
    test_monsters_wake_and_chase();
    test_attacks_hurt_and_armour_helps();
    test_death_and_truncation();
    test_observations();
    test_the_way_leads_to_the_stairs();
    test_levels();
    test_unsafe_states_are_invalid();
    return CHECK_DONE();
}
