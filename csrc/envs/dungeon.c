// dungeon - explore generated levels, fight or avoid monsters, and go as deep as possible.
//
// A level has 3 x 3 rooms joined by tunnels, a stairway down, items and monsters; deeper levels
// have more and stronger ones. The hero sees the room it is in, in tunnels only the cells beside
// it, and remembers what it has seen. One tick:
// 1. The hero acts. Moves (0 up, 1 right, 2 down, 3 left) into a monster hit it. 4 rests: 1 health
//    if no monster is in sight. 5 drinks a potion: 8 health. 6 goes down the stairs. 7 shoots an
//    arrow at the nearest monster in sight in the same row or column. 8 reads
//    a scroll, which shows the whole level. Entering a cell picks up its item: a potion, a scroll,
//    three arrows, a better sword (1 more damage) or better armour (10 % fewer hits taken).
// 2. Monsters that have seen the hero walk towards it, others stay. One beside the hero attacks; it
//    hits with 80 %, less the armour.
// The episode ends with the hero's death, behind the last level, or after max_steps.
//
// Legal actions are masked: moves not into walls, drinking and reading with something to drink or
// read, stairs on stairs, arrows with a target; resting always.
//
// The hero observes six 0/1 planes of the 9 x 9 cells around it (known floor, unknown, trodden,
// items, stairs, monsters in sight) and flags: health in tenths; up to three potions, scrolls and
// arrows; sword and armour; monsters above, right, below, left; the moves on a shortest known way
// to the stairs or, until these are known, to floor that borders on the unknown; whether the stairs
// are known, and whether it stands on them; and the kind of the nearest monster in sight.
#include "puf_maze.h"

// Flags of a cell.
enum { FLOOR = 1, KNOWN = 2, TRODDEN = 4, ITEM = 8, STAIRS = 16, MONSTER = 32, ALL_FLAGS = 63 };
enum { POTION, SCROLL, ARROWS, SWORD, ARMOUR, NUM_ITEM_KINDS };
enum { RAT, GOBLIN, OGRE, NUM_MONSTER_KINDS };
enum { REST = 4, DRINK, DESCEND, SHOOT, READ, NUM_ACTIONS };
enum {
    VISION = 4,
    SIDE = 2 * VISION + 1,
    WINDOW = SIDE * SIDE,
    NUM_PLANES = 6,
    NUM_FLAGS = 10 + 3 * 3 + 2 * 4 + 4 + 5 + 1 + NUM_MONSTER_KINDS,
    FEATURES = NUM_PLANES * WINDOW + NUM_FLAGS,
    ACROSS = 3,
    DOWN = 3,
    NUM_ROOMS = ACROSS * DOWN,
    SECTOR_WIDTH = 10,
    SECTOR_HEIGHT = 8,
    WIDTH = ACROSS * SECTOR_WIDTH,
    HEIGHT = DOWN * SECTOR_HEIGHT,
    STRIDE = WIDTH + 2 * VISION,
    ROWS = HEIGHT + 2 * VISION,
    CELLS = STRIDE * ROWS,
    ORIGIN = VISION * (STRIDE + 1),
    MAX_MONSTERS = 24,
    MAX_ITEMS = 8,
    MAX_STOCK = 9,  // of potions, scrolls and arrows
    MAX_GEAR = 4,   // of sword and armour
    MAX_LEVELS = 20
};

static const uint8_t monster_health[NUM_MONSTER_KINDS] = {2, 4, 8};
static const uint8_t monster_damage[NUM_MONSTER_KINDS] = {1, 2, 4};

typedef struct {
    int16_t cell;
    uint8_t kind, health, awake;  // one without health has left
    uint8_t reserved;
} Monster;

typedef struct {
    int16_t cell;
    uint8_t kind, taken;
} Item;

typedef struct {
    PufSlots slots;
    int32_t cell, stairs, depth, hero_health;
    int32_t stock[3];                                    // potions, scrolls, arrows
    int32_t gear[2];                                     // sword, armour
    int32_t num_monsters, num_items, kills, seen_rooms;  // seen_rooms has a bit for each room
    float score, perf, slain, steps;
    int32_t levels, monsters, items, max_health, max_steps;
    float reward_level, reward_explore, reward_item, reward_kill, reward_hurt, reward_death;
    PufRoom rooms[NUM_ROOMS];
    Monster monster[MAX_MONSTERS];
    Item item[MAX_ITEMS];
    uint8_t board[CELLS];
} Dungeon;

static const PufField params[] = {
    PUF_PARAM_I32(Dungeon, levels, 5, 1, MAX_LEVELS, "levels of the dungeon"),
    PUF_PARAM_I32(Dungeon, monsters, 2, 0, 12,
                  "monsters on the first level; deeper ones have more"),
    PUF_PARAM_I32(Dungeon, items, 4, 0, MAX_ITEMS, "items on a level"),
    PUF_PARAM_I32(Dungeon, max_health, 20, 1, 100, "health at the start, and at most"),
    PUF_PARAM_I32(Dungeon, max_steps, 800, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Dungeon, reward_level, 1, -10, 10, "reward for a level down"),
    PUF_PARAM_F32(Dungeon, reward_explore, 0.005, -1, 1, "reward for a floor cell seen first"),
    PUF_PARAM_F32(Dungeon, reward_item, 0.1, -10, 10, "reward for picking up an item"),
    PUF_PARAM_F32(Dungeon, reward_kill, 0.1, -10, 10, "reward for a monster slain"),
    PUF_PARAM_F32(Dungeon, reward_hurt, -0.02, -10, 10, "reward for each health lost"),
    PUF_PARAM_F32(Dungeon, reward_death, -1, -10, 10, "reward for dying"),
};

static const PufField metrics[] = {
    PUF_METRIC(Dungeon, score, "levels completed"),
    PUF_METRIC(Dungeon, perf, "share of the levels completed"),
    PUF_METRIC(Dungeon, slain, "monsters slain"),
    PUF_METRIC(Dungeon, steps, "steps taken"),
};

// ---- Sight --------------------------------------------------------------------------------------

static int32_t row_of(int32_t cell) { return cell / STRIDE - VISION; }

static int32_t col_of(int32_t cell) { return cell % STRIDE - VISION; }

// The room that holds a cell, or -1 in tunnels.
static int32_t room_at(const Dungeon* env, int32_t cell) {
    const int32_t row = row_of(cell), col = col_of(cell);
    const int32_t room = row / SECTOR_HEIGHT * ACROSS + col / SECTOR_WIDTH;
    return puf_room_holds(&env->rooms[room], row, col) ? room : -1;
}

// Whether the hero in `room` sees a cell: in the same room, or beside it.
static bool sees(const Dungeon* env, int32_t room, int32_t cell) {
    const int32_t down = row_of(cell) - row_of(env->cell), right = col_of(cell) - col_of(env->cell);
    if (down * down <= 1 && right * right <= 1) return true;
    return room >= 0 && puf_room_holds(&env->rooms[room], row_of(cell), col_of(cell));
}

// Makes cells known; returns how many of them are floor that was unknown.
static int32_t reveal(Dungeon* env, int32_t row, int32_t col, int32_t height, int32_t width) {
    int32_t found = 0;
    for (int32_t r = row; r < row + height; r++)
        for (int32_t c = col; c < col + width; c++) {
            uint8_t* cell = &env->board[puf_grid_cell(STRIDE, VISION, r, c)];
            found += (*cell & (FLOOR | KNOWN)) == FLOOR;
            *cell |= KNOWN;
        }
    return found;
}

// What the hero sees from its cell becomes known.
static int32_t look_around(Dungeon* env) {
    const int32_t room = room_at(env, env->cell);
    int32_t found = reveal(env, row_of(env->cell) - 1, col_of(env->cell) - 1, 3, 3);
    if (room >= 0 && !(env->seen_rooms >> room & 1)) {
        const PufRoom* lit = &env->rooms[room];
        found += reveal(env, lit->row - 1, lit->col - 1, lit->height + 2, lit->width + 2);
        env->seen_rooms |= 1 << room;
    }
    return found;
}

static int32_t monster_at(const Dungeon* env, int32_t cell) {
    for (int32_t i = 0; i < env->num_monsters; i++)
        if (env->monster[i].health && env->monster[i].cell == cell) return i;
    return -1;
}

// The nearest monster in sight in the same row or column, or -1.
static int32_t arrow_target(const Dungeon* env) {
    const int32_t room = room_at(env, env->cell);
    int32_t target = -1, least = CELLS;
    for (int32_t i = 0; i < env->num_monsters; i++) {
        const Monster* monster = &env->monster[i];
        const int32_t down = row_of(monster->cell) - row_of(env->cell);
        const int32_t right = col_of(monster->cell) - col_of(env->cell);
        const int32_t distance = puf_grid_distance(STRIDE, monster->cell, env->cell);
        if (!monster->health || (down && right) || distance >= least ||
            !sees(env, room, monster->cell))
            continue;
        target = i;
        least = distance;
    }
    return target;
}

// ---- Levels -------------------------------------------------------------------------------------

// A random floor cell of a random room without stairs, item, monster or hero; 0 if none is found.
static int32_t find_floor(Dungeon* env) {
    for (int32_t i = 0; i < 64; i++) {
        const PufRoom* room = &env->rooms[puf_rand_int(&env->slots.rng, NUM_ROOMS)];
        const int32_t cell = puf_room_cell(&env->slots.rng, STRIDE, ORIGIN, room);
        if (!(env->board[cell] & (ITEM | STAIRS | MONSTER)) && cell != env->cell) return cell;
    }
    return 0;
}

static void enter_level(Dungeon* env) {
    PufRng* rng = &env->slots.rng;
    memset(env->board, 0, sizeof env->board);
    puf_maze_rooms(rng, env->board, STRIDE, ORIGIN, ACROSS, DOWN, SECTOR_WIDTH, SECTOR_HEIGHT,
                   FLOOR, env->rooms);
    const int32_t start = puf_rand_int(rng, NUM_ROOMS);
    const int32_t end = (start + 1 + puf_rand_int(rng, NUM_ROOMS - 1)) % NUM_ROOMS;
    env->cell = puf_room_cell(rng, STRIDE, ORIGIN, &env->rooms[start]);
    env->stairs = puf_room_cell(rng, STRIDE, ORIGIN, &env->rooms[end]);
    env->board[env->stairs] |= STAIRS;
    env->num_items = env->num_monsters = env->seen_rooms = 0;
    for (int32_t i = 0; i < env->items; i++) {
        const int32_t cell = find_floor(env);
        if (!cell) break;
        env->board[cell] |= ITEM;
        env->item[env->num_items++] =
            (Item){.cell = (int16_t)cell, .kind = (uint8_t)puf_rand_int(rng, NUM_ITEM_KINDS)};
    }
    const int32_t wanted = env->monsters + (env->monsters ? env->depth / 2 : 0);
    const int32_t kinds = 1 + env->depth / 2;
    for (int32_t i = 0; i < wanted && i < MAX_MONSTERS; i++) {
        const int32_t cell = find_floor(env);
        if (!cell || room_at(env, cell) == start) continue;  // the first room is safe
        int32_t kind = puf_rand_int(rng, kinds < NUM_MONSTER_KINDS ? kinds : NUM_MONSTER_KINDS);
        env->board[cell] |= MONSTER;
        env->monster[env->num_monsters++] =
            (Monster){.cell = (int16_t)cell, .kind = (uint8_t)kind, .health = monster_health[kind]};
    }
    env->board[env->cell] |= TRODDEN;
    look_around(env);
}

static void reset(Dungeon* env) {
    env->depth = 0;
    env->hero_health = env->max_health;
    env->kills = 0;
    memset(env->stock, 0, sizeof env->stock);
    memset(env->gear, 0, sizeof env->gear);
    memset(env->monster, 0, sizeof env->monster);
    memset(env->item, 0, sizeof env->item);
    enter_level(env);
}

// ---- Rules --------------------------------------------------------------------------------------

static void strike(Dungeon* env, int32_t target) {
    Monster* monster = &env->monster[target];
    const int32_t damage = 2 + env->gear[0];
    monster->awake = 1;
    if (monster->health > damage) {
        monster->health = (uint8_t)(monster->health - damage);
        return;
    }
    monster->health = 0;
    env->board[monster->cell] &= (uint8_t)~MONSTER;
    env->kills++;
    puf_reward(&env->slots, 0, env->reward_kill);
}

static void pick_up(Dungeon* env) {
    for (int32_t i = 0; i < env->num_items; i++) {
        Item* item = &env->item[i];
        if (item->taken || item->cell != env->cell) continue;
        item->taken = 1;
        env->board[env->cell] &= (uint8_t)~ITEM;
        puf_reward(&env->slots, 0, env->reward_item);
        int32_t* owned =
            item->kind < SWORD ? &env->stock[item->kind] : &env->gear[item->kind - SWORD];
        const int32_t most = item->kind < SWORD ? MAX_STOCK : MAX_GEAR;
        *owned += item->kind == ARROWS ? 3 : 1;
        if (*owned > most) *owned = most;
    }
}

static void walk(Dungeon* env, int32_t direction) {
    const int32_t to = puf_grid_beside(STRIDE, env->cell, direction);
    if (!(env->board[to] & FLOOR)) return;
    if (env->board[to] & MONSTER) {
        strike(env, monster_at(env, to));
        return;
    }
    env->cell = to;
    env->board[to] |= TRODDEN;
    if (env->board[to] & ITEM) pick_up(env);
    puf_reward(&env->slots, 0, env->reward_explore * (float)look_around(env));
}

static bool is_threatened(const Dungeon* env) {
    const int32_t room = room_at(env, env->cell);
    for (int32_t i = 0; i < env->num_monsters; i++)
        if (env->monster[i].health && sees(env, room, env->monster[i].cell)) return true;
    return false;
}

static void heal(Dungeon* env, int32_t health) {
    env->hero_health += health;
    if (env->hero_health > env->max_health) env->hero_health = env->max_health;
}

static void act(Dungeon* env, int32_t action) {
    const int32_t target = action == SHOOT ? arrow_target(env) : -1;
    if (action < REST) {
        walk(env, action);
    } else if (action == REST && !is_threatened(env)) {
        heal(env, 1);
    } else if (action == DRINK && env->stock[POTION]) {
        env->stock[POTION]--;
        heal(env, 8);
    } else if (action == READ && env->stock[SCROLL]) {
        env->stock[SCROLL]--;
        reveal(env, 0, 0, HEIGHT, WIDTH);
        env->seen_rooms = (1 << NUM_ROOMS) - 1;
    } else if (action == SHOOT && env->stock[ARROWS] && target >= 0) {
        env->stock[ARROWS]--;
        strike(env, target);
    }
}

// One step towards the hero: along the longer way if that is free, else along the other.
static void chase(Dungeon* env, Monster* monster) {
    const int32_t down = row_of(env->cell) - row_of(monster->cell);
    const int32_t right = col_of(env->cell) - col_of(monster->cell);
    const int32_t vertical = down < 0 ? -STRIDE : down ? STRIDE : 0;
    const int32_t horizontal = right < 0 ? -1 : right ? 1 : 0;
    const bool first_down = down * down >= right * right;
    const int32_t steps[2] = {first_down ? vertical : horizontal,
                              first_down ? horizontal : vertical};
    for (int32_t i = 0; i < 2; i++) {
        const int32_t to = monster->cell + steps[i];
        if (!steps[i] || to == env->cell || (env->board[to] & (FLOOR | MONSTER)) != FLOOR) continue;
        env->board[monster->cell] &= (uint8_t)~MONSTER;
        env->board[to] |= MONSTER;
        monster->cell = (int16_t)to;
        return;
    }
}

static void attack(Dungeon* env, const Monster* monster) {
    if (puf_rand(&env->slots.rng) >= 0.8f - 0.1f * (float)env->gear[1]) return;
    int32_t damage = monster_damage[monster->kind];
    if (damage > env->hero_health) damage = env->hero_health;
    env->hero_health -= damage;
    puf_reward(&env->slots, 0, env->reward_hurt * (float)damage);
}

static void move_monsters(Dungeon* env) {
    const int32_t room = room_at(env, env->cell);
    for (int32_t i = 0; i < env->num_monsters; i++) {
        Monster* monster = &env->monster[i];
        if (!monster->health) continue;
        if (!monster->awake) monster->awake = sees(env, room, monster->cell);
        if (!monster->awake) continue;
        if (puf_grid_distance(STRIDE, monster->cell, env->cell) == 1)
            attack(env, monster);
        else
            chase(env, monster);
    }
}

static PufStatus finish(Dungeon* env, PufStatus status) {
    env->score = (float)env->depth;
    env->perf = env->score / (float)env->levels;
    env->slain = (float)env->kills;
    env->steps = (float)env->slots.tick;
    return status;
}

static PufStatus step(Dungeon* env) {
    const int32_t action = puf_action(&env->slots, 0);
    if (action == DESCEND && env->cell == env->stairs) {
        puf_reward(&env->slots, 0, env->reward_level);
        if (++env->depth == env->levels) return finish(env, PUF_TERMINATED);
        enter_level(env);
    } else {
        act(env, action);
        move_monsters(env);
    }
    if (!env->hero_health) {
        puf_reward(&env->slots, 0, env->reward_death);
        return finish(env, PUF_TERMINATED);
    }
    return env->slots.tick < env->max_steps ? PUF_RUNNING : finish(env, PUF_TRUNCATED);
}

// ---- The way ------------------------------------------------------------------------------------

// The map as one word per row, bit k is column k; a row of walls above and below.
typedef struct {
    uint32_t rows[HEIGHT + 2];
} Map;

// Bit k is the lowest bit of byte k.
static inline uint32_t gather(uint64_t bytes) {
    return (uint32_t)((bytes & 0x0101010101010101u) * 0x0102040810204080u >> 56);
}

// The floor that the hero knows, and all that it does not know.
static void draw_map(const Dungeon* env, Map* floor, Map* unknown) {
    memset(floor, 0, sizeof *floor);
    memset(unknown, 0, sizeof *unknown);
    for (int32_t row = 0; row < HEIGHT; row++) {
        const uint8_t* cells = env->board + puf_grid_cell(STRIDE, VISION, row, 0);
        uint32_t known = 0;
        for (int32_t col = 0; col < WIDTH; col += 8) {  // the last two columns are beyond the map
            uint64_t eight;
            memcpy(&eight, cells + col, sizeof eight);
            known |= gather(eight >> 1) << col;
            floor->rows[row + 1] |= gather(eight & eight >> 1) << col;
        }
        unknown->rows[row + 1] = ~known & ((1u << WIDTH) - 1);
    }
}

static inline uint32_t beside(const Map* map, int32_t row) {
    const uint32_t here = map->rows[row];
    return here << 1 | here >> 1 | map->rows[row - 1] | map->rows[row + 1];
}

// Flags the moves (up, right, down, left) on a shortest known way to the stairs or, until these are
// known, to floor beside the unknown. The way is found backwards: from its ends to the hero.
static void find_way(const Dungeon* env, uint8_t out[4]) {
    Map floor, unknown, reached = {{0}};
    const int32_t row = row_of(env->cell) + 1, col = col_of(env->cell);
    memset(out, 0, 4);
    if (env->cell == env->stairs) return;
    draw_map(env, &floor, &unknown);
    if (env->board[env->stairs] & KNOWN)
        reached.rows[row_of(env->stairs) + 1] = 1u << col_of(env->stairs);
    else
        for (int32_t r = 1; r <= HEIGHT; r++) reached.rows[r] = floor.rows[r] & beside(&unknown, r);
    for (;;) {
        const uint32_t side = reached.rows[row];
        out[0] = reached.rows[row - 1] >> col & 1;
        out[1] = side >> (col + 1) & 1;
        out[2] = reached.rows[row + 1] >> col & 1;
        out[3] = side << 1 >> col & 1;
        if (out[0] | out[1] | out[2] | out[3]) return;
        Map before = reached;
        uint32_t changed = 0;
        for (int32_t r = 1; r <= HEIGHT; r++) {
            reached.rows[r] |= floor.rows[r] & beside(&before, r);
            changed |= reached.rows[r] ^ before.rows[r];
        }
        if (!changed) return;
    }
}

// ---- Observations -------------------------------------------------------------------------------

// `width` flags, the first `count` of them set.
static uint8_t* put_count(uint8_t* out, int32_t count, int32_t width) {
    for (int32_t i = 0; i < width; i++) out[i] = i < count;
    return out + width;
}

static void observe(const Dungeon* env) {
    uint8_t window[WINDOW], *out = puf_obs_u8(&env->slots, 0);
    const int32_t room = room_at(env, env->cell);
    puf_grid_window(env->board, STRIDE, VISION, env->cell, window);
    for (int32_t i = 0; i < WINDOW; i++) {
        const uint8_t flags = window[i];
        out[i] = (flags & (FLOOR | KNOWN)) == (FLOOR | KNOWN);
        out[WINDOW + i] = !(flags & KNOWN);
        out[2 * WINDOW + i] = (flags & TRODDEN) != 0;
        out[3 * WINDOW + i] = (flags & (ITEM | KNOWN)) == (ITEM | KNOWN);
        out[4 * WINDOW + i] = (flags & (STAIRS | KNOWN)) == (STAIRS | KNOWN);
        out[5 * WINDOW + i] = 0;
    }
    int32_t nearest = -1, least = CELLS;
    for (int32_t i = 0; i < env->num_monsters; i++) {
        const Monster* monster = &env->monster[i];
        if (!monster->health || !sees(env, room, monster->cell)) continue;
        const int32_t down = row_of(monster->cell) - row_of(env->cell) + VISION;
        const int32_t right = col_of(monster->cell) - col_of(env->cell) + VISION;
        if ((uint32_t)down < SIDE && (uint32_t)right < SIDE)
            out[5 * WINDOW + down * SIDE + right] = 1;
        const int32_t distance = puf_grid_distance(STRIDE, monster->cell, env->cell);
        if (distance >= least) continue;
        least = distance;
        nearest = monster->kind;
    }
    out += NUM_PLANES * WINDOW;
    out = put_count(out, (10 * env->hero_health + env->max_health - 1) / env->max_health, 10);
    for (int32_t i = 0; i < 3; i++) out = put_count(out, env->stock[i], 3);
    for (int32_t i = 0; i < 2; i++) out = put_count(out, env->gear[i], MAX_GEAR);
    uint8_t* mask = puf_action_mask(&env->slots, 0);
    for (int32_t direction = 0; direction < 4; direction++) {
        const uint8_t flags = env->board[puf_grid_beside(STRIDE, env->cell, direction)];
        *out++ = (flags & MONSTER) != 0;
        mask[direction] = flags & FLOOR;
    }
    const bool known = env->board[env->stairs] & KNOWN;
    find_way(env, out);
    out[4] = known;
    out[5] = env->cell == env->stairs;
    out += 6;
    for (int32_t kind = 0; kind < NUM_MONSTER_KINDS; kind++) out[kind] = nearest == kind;
    mask[REST] = 1;
    mask[DRINK] = env->stock[POTION] > 0;
    mask[DESCEND] = env->cell == env->stairs;
    mask[SHOOT] = env->stock[ARROWS] > 0 && nearest >= 0 && arrow_target(env) >= 0;
    mask[READ] = env->stock[SCROLL] > 0;
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 20, HEADER = 32 };

static void draw_item(PufCanvas* canvas, float x, float y, int32_t kind) {
    switch (kind) {
        case POTION:
            puf_circle(canvas, x + 10, y + 12, 6, PUF_PINK);
            puf_rect(canvas, x + 8, y + 2, 4, 6, PUF_PAPER);
            break;
        case SCROLL:
            puf_rect(canvas, x + 4, y + 5, 12, 10, PUF_PAPER);
            puf_line(canvas, x + 6, y + 8, x + 13, y + 8, 1.5f, PUF_BROWN);
            puf_line(canvas, x + 6, y + 12, x + 13, y + 12, 1.5f, PUF_BROWN);
            break;
        case ARROWS:
            puf_line(canvas, x + 4, y + 16, x + 16, y + 4, 2, PUF_BROWN);
            puf_circle(canvas, x + 16, y + 4, 2.5f, PUF_GREY);
            break;
        case SWORD:
            puf_line(canvas, x + 5, y + 15, x + 16, y + 4, 3, PUF_WHITE);
            puf_line(canvas, x + 4, y + 10, x + 10, y + 16, 2.5f, PUF_YELLOW);
            break;
        default:
            puf_rect(canvas, x + 4, y + 4, 12, 7, PUF_CYAN);
            puf_circle(canvas, x + 10, y + 11, 6, PUF_CYAN);
    }
}

static void draw_monster(PufCanvas* canvas, float x, float y, const Monster* monster) {
    static const uint32_t colors[NUM_MONSTER_KINDS] = {0x9C8B7A, 0x5FA84A, 0xB5533C};
    static const float sizes[NUM_MONSTER_KINDS] = {5, 7, 9};
    const float size = sizes[monster->kind], low = y + 19 - size;
    puf_circle(canvas, x + 10, low, size, colors[monster->kind]);
    if (monster->kind == RAT) puf_line(canvas, x + 14, low + 2, x + 19, low - 2, 1.5f, PUF_PINK);
    for (int32_t side = -1; side <= 1; side += 2) {
        if (monster->kind == GOBLIN)
            puf_line(canvas, x + 10 + 5 * (float)side, low - 3, x + 10 + 9 * (float)side, low - 8,
                     3, colors[GOBLIN]);
        puf_circle(canvas, x + 10 + 0.4f * size * (float)side, low - 2, 1.8f,
                   monster->awake ? PUF_YELLOW : PUF_INK);
    }
}

static void draw_hero(PufCanvas* canvas, float x, float y) {
    puf_circle(canvas, x + 10, y + 13, 6, PUF_BLUE);
    puf_circle(canvas, x + 10, y + 6, 4.5f, 0xF2C9A0);
    puf_rect(canvas, x + 5, y + 1, 10, 4, PUF_GREY);  // a helmet
    puf_line(canvas, x + 17, y + 15, x + 17, y + 4, 2, PUF_WHITE);
}

static void draw_cell(const Dungeon* env, PufCanvas* canvas, int32_t cell, bool lit) {
    const float x = (float)(col_of(cell) * PIXELS), y = (float)(HEADER + row_of(cell) * PIXELS);
    const uint8_t flags = env->board[cell];
    if (!(flags & KNOWN)) return;
    if (!(flags & FLOOR)) {
        puf_rect(canvas, x, y, PIXELS, PIXELS, 0x5B5570);
        puf_rect(canvas, x, y + 14, PIXELS, 6, 0x443F55);
        return;
    }
    puf_rect(canvas, x, y, PIXELS, PIXELS, lit ? 0xC7B48C : 0x6E664F);
    puf_rect_outline(canvas, x, y, PIXELS, PIXELS, 1, lit ? 0xB9A67F : 0x655E49);
    if (flags & STAIRS)
        for (int32_t i = 0; i < 4; i++)
            puf_rect(canvas, x + 2 + 4 * (float)i, y + 2 + 4 * (float)i, 16 - 4 * (float)i, 4,
                     puf_blend(PUF_PAPER, PUF_INK, 0.25f * (float)i));
}

static void render(const Dungeon* env, PufCanvas* canvas) {
    const int32_t room = room_at(env, env->cell);
    puf_clear(canvas, PUF_BLACK);
    for (int32_t row = 0; row < HEIGHT; row++)
        for (int32_t col = 0; col < WIDTH; col++) {
            const int32_t cell = puf_grid_cell(STRIDE, VISION, row, col);
            draw_cell(env, canvas, cell, sees(env, room, cell));
        }
    for (int32_t i = 0; i < env->num_items; i++) {
        const Item* item = &env->item[i];
        if (!item->taken && (env->board[item->cell] & KNOWN))
            draw_item(canvas, (float)(col_of(item->cell) * PIXELS),
                      (float)(HEADER + row_of(item->cell) * PIXELS), item->kind);
    }
    for (int32_t i = 0; i < env->num_monsters; i++) {
        const Monster* monster = &env->monster[i];
        if (monster->health && sees(env, room, monster->cell))
            draw_monster(canvas, (float)(col_of(monster->cell) * PIXELS),
                         (float)(HEADER + row_of(monster->cell) * PIXELS), monster);
    }
    draw_hero(canvas, (float)(col_of(env->cell) * PIXELS),
              (float)(HEADER + row_of(env->cell) * PIXELS));
    puf_rect(canvas, 110, 9, 100, 14, PUF_SLATE);
    puf_rect(canvas, 110, 9, 100 * (float)env->hero_health / (float)env->max_health, 14, PUF_RED);
    puf_textf(canvas, 8, 9, 2, PUF_PAPER, "DEPTH %d", (int)env->depth + 1);
    puf_textf(canvas, 224, 9, 2, PUF_PAPER, "POT %d SCR %d ARR %d SWORD %d ARM %d",
              (int)env->stock[0], (int)env->stock[1], (int)env->stock[2], (int)env->gear[0],
              (int)env->gear[1]);
}

// ---- Validation and layout ----------------------------------------------------------------------

// Floor keeps a cell away from the edge of the board, and everything stands on floor.
static bool valid(const Dungeon* env) {
    for (int32_t i = 0; i < NUM_ROOMS; i++) {
        const PufRoom* room = &env->rooms[i];
        const int32_t row = i / ACROSS * SECTOR_HEIGHT, col = i % ACROSS * SECTOR_WIDTH;
        if (room->row <= row || room->row + room->height >= row + SECTOR_HEIGHT ||
            room->col <= col || room->col + room->width >= col + SECTOR_WIDTH || !room->height ||
            !room->width)
            return false;
    }
    if (env->num_monsters < 0 || env->num_monsters > MAX_MONSTERS || env->num_items < 0 ||
        env->num_items > MAX_ITEMS)
        return false;
    int32_t monsters = 0, items = 0;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        const uint8_t flags = env->board[cell];
        const int32_t row = row_of(cell), col = col_of(cell);
        if (flags > ALL_FLAGS ||
            ((flags & (ITEM | STAIRS | MONSTER | TRODDEN)) && !(flags & FLOOR)))
            return false;
        if ((flags & FLOOR) && (row < 1 || row > HEIGHT - 2 || col < 1 || col > WIDTH - 2))
            return false;
        if ((flags & STAIRS) && cell != env->stairs) return false;
        monsters += (flags & MONSTER) != 0;
        items += (flags & ITEM) != 0;
    }
    for (int32_t i = 0; i < env->num_monsters; i++) {
        const Monster* monster = &env->monster[i];
        if (monster->kind >= NUM_MONSTER_KINDS || monster->awake > 1 || monster->cell < 0 ||
            monster->cell >= CELLS || monster->health > monster_health[monster->kind])
            return false;
        if (!monster->health) continue;
        if (!(env->board[monster->cell] & MONSTER) || monster_at(env, monster->cell) != i)
            return false;
        monsters--;
    }
    for (int32_t i = 0; i < env->num_items; i++) {
        const Item* item = &env->item[i];
        if (item->kind >= NUM_ITEM_KINDS || item->taken > 1 || item->cell < 0 ||
            item->cell >= CELLS || (!item->taken && !(env->board[item->cell] & ITEM)))
            return false;
        items -= !item->taken;
    }
    for (int32_t i = 0; i < 3; i++)
        if (env->stock[i] < 0 || env->stock[i] > MAX_STOCK) return false;
    for (int32_t i = 0; i < 2; i++)
        if (env->gear[i] < 0 || env->gear[i] > MAX_GEAR) return false;
    return !monsters && !items && env->cell >= 0 && env->cell < CELLS && env->stairs >= 0 &&
           env->stairs < CELLS && (env->board[env->cell] & (FLOOR | MONSTER)) == FLOOR &&
           (env->board[env->stairs] & STAIRS) && env->depth >= 0 && env->depth < env->levels &&
           env->hero_health > 0 && env->hero_health <= env->max_health && env->kills >= 0 &&
           env->kills <= env->slots.tick && env->seen_rooms >= 0 &&
           env->seen_rooms < 1 << NUM_ROOMS && env->slots.tick < env->max_steps;
}

PUF_ENV(dungeon, Dungeon, .doc = "explore a dungeon, fight its monsters, find the stairs down",
        .group = "worlds", .action_names = "up right down left rest drink descend shoot read",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {FEATURES}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .action_masks = true,
                   .width = WIDTH * PIXELS,
                   .height = HEIGHT * PIXELS + HEADER});
