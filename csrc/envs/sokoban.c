// sokoban - push every box onto a target. The player pushes one box at a time and cannot pull.
//
// Levels are 10 x 10 cells with a rim of walls. Each is made backwards: from the solved board,
// random boxes are pulled away from their targets by a player who can walk to them. Every pull is a
// push in reverse, so each level is solvable with the pulls that made it. An episode ends when all
// boxes are on targets, or when a box is where no pushes lead to any target, as in most corners; it
// is truncated at max_steps.
//
// The observation has four planes of 9 x 9 cells: walls, boxes beside targets, boxes on targets,
// free targets. They show the 8 x 8 cells inside the rim and one line of the rim below and to the
// right of them, rolled around so that the player is always in the middle. The actions are stay,
// up, right, down, left.
//
// The solution earns 1 and every step costs 0.01. Progress is rewarded as the change of a
// potential, which hardly changes which play is best: 0.5 / boxes for each box on a target,
// less 0.1 for each push that the other boxes need to the nearest free target as if they were alone
// (STUCK of them if there is no way), less 0.03 for each step that the player needs to the next
// such push.
#include "puf_bits.h"

enum { SIDE = 8, CELLS = SIDE * SIDE, RIM = SIDE + 2, MAX_BOXES = 6 };
enum { VIEW = SIDE + 1, VIEW_CELLS = VIEW * VIEW, NUM_PLANES = 4 };
enum { STUCK = 10 };  // pushes, and steps, where there is no way
enum { STAY, UP, RIGHT, DOWN, LEFT, NUM_ACTIONS };

typedef uint64_t Bits;  // row r, column c inside the rim is bit 8 * r + c
static const Bits FIRST_COL = 0x0101010101010101u;

typedef struct {
    PufSlots slots;
    Bits walls, boxes, targets;
    Bits live;       // cells from which an only box can be pushed onto a target
    int32_t player;  // cell
    int32_t facing;  // action that turned it
    int32_t pushes;
    float potential;
    float score, perf, on_target;
    int32_t num_boxes, pulls, max_steps;
    float wall_density;
} Sokoban;

static const PufField params[] = {
    PUF_PARAM_I32(Sokoban, num_boxes, 2, 1, MAX_BOXES, "boxes, and targets"),
    PUF_PARAM_I32(Sokoban, pulls, 12, 1, 100, "reverse pushes that make a level, at most"),
    PUF_PARAM_F32(Sokoban, wall_density, 0.15, 0, 0.4, "share of inner cells that are walls"),
    PUF_PARAM_I32(Sokoban, max_steps, 100, 1, 1000000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Sokoban, score, "1 if solved, else 0"),
    PUF_METRIC(Sokoban, perf, "1 if solved, else 0"),
    PUF_METRIC(Sokoban, on_target, "share of boxes on targets"),
};

// ---- Bits ---------------------------------------------------------------------------------------

static inline Bits bit(int32_t cell) { return (Bits)1 << cell; }

// The cells next to `cells` in a direction; those beyond the rim vanish.
static inline Bits shifted(Bits cells, int32_t direction) {
    switch (direction) {
        case UP:
            return cells >> SIDE;
        case DOWN:
            return cells << SIDE;
        case LEFT:
            return (cells & ~FIRST_COL) >> 1;
        case RIGHT:
            return (cells & ~(FIRST_COL << (SIDE - 1))) << 1;
        default:
            return cells;
    }
}

static inline int32_t opposite(int32_t direction) {
    return direction <= RIGHT ? direction + 2 : direction - 2;
}

// All cells that can be reached from `from` over `open` cells.
static inline Bits reachable(Bits from, Bits open) {
    for (Bits last = 0; from != last;) {
        last = from;
        from |= open & (shifted(from, UP) | shifted(from, DOWN) | shifted(from, LEFT) |
                        shifted(from, RIGHT));
    }
    return from;
}

// ---- Levels -------------------------------------------------------------------------------------

// Scattered walls around one connected room with space for boxes and player.
static void lay_walls(Sokoban* env) {
    PufRng* rng = &env->slots.rng;
    Bits floor;
    do {
        env->walls = 0;
        for (int32_t cell = 0; cell < CELLS; cell++)
            if (puf_rand(rng) < env->wall_density) env->walls |= bit(cell);
        floor = reachable(puf_pick_bit(rng, ~env->walls), ~env->walls);
    } while (__builtin_popcountll(floor) < CELLS / 2);
    env->walls = ~floor;
}

// Pulls one box by one cell, if there is a box that the player can pull. The player, in `area`,
// walks to the far side of the box and steps back.
static bool pull(Sokoban* env, Bits* area) {
    const Bits floor = ~(env->walls | env->boxes);
    Bits choices[NUM_ACTIONS] = {0}, any = 0;
    for (int32_t direction = UP; direction <= LEFT; direction++) {
        // Boxes whose next cell in this direction is in reach, with a free cell behind it.
        const int32_t back = opposite(direction);
        const Bits stands = *area & shifted(floor, back);
        choices[direction] = env->boxes & shifted(stands, back);
        any |= choices[direction];
    }
    const Bits box = puf_pick_bit(&env->slots.rng, any);
    if (!box) return false;
    int32_t direction = 1 + puf_rand_int(&env->slots.rng, 4);
    while (!(choices[direction] & box)) direction = direction % 4 + 1;
    const Bits to = shifted(box, direction);
    env->boxes = (env->boxes & ~box) | to;
    *area = reachable(shifted(to, direction), ~(env->walls | env->boxes));
    return true;
}

static void make_level(Sokoban* env) {
    PufRng* rng = &env->slots.rng;
    lay_walls(env);
    env->targets = 0;
    for (int32_t i = 0; i < env->num_boxes; i++)
        env->targets |= puf_pick_bit(rng, ~(env->walls | env->targets));
    env->boxes = env->targets;
    const Bits start = puf_pick_bit(rng, ~(env->walls | env->boxes));
    Bits area = reachable(start, ~(env->walls | env->boxes));
    const int32_t wanted = 1 + puf_rand_int(rng, env->pulls);
    for (int32_t i = 0; i < wanted && pull(env, &area); i++) continue;
    env->player = __builtin_ctzll(puf_pick_bit(rng, area));
}

// ---- Rules --------------------------------------------------------------------------------------

// Cells from which one push in a direction leads into `cells`, on a board without other boxes.
static inline Bits pushed_from(const Sokoban* env, Bits cells, int32_t direction) {
    const Bits floor = ~env->walls;
    return shifted(cells, opposite(direction)) & floor & shifted(floor, direction);
}

static Bits find_live(const Sokoban* env) {
    Bits live = env->targets;
    for (Bits last = 0; live != last;) {
        last = live;
        for (int32_t direction = UP; direction <= LEFT; direction++)
            live |= pushed_from(env, live, direction);
    }
    return live;
}

// Adds up the pushes that bring each box onto the nearest free target, as if it were alone and the
// player everywhere. `stands` are the cells from which the player makes the first of these pushes.
static int32_t count_pushes(const Sokoban* env, Bits* stands) {
    const Bits open = ~(env->walls | env->boxes);
    Bits near = env->targets & ~env->boxes, left = env->boxes & ~env->targets;
    int32_t pushes = 0;
    *stands = 0;
    while (left) {
        Bits next = near;
        for (int32_t direction = UP; direction <= LEFT; direction++) {
            const int32_t back = opposite(direction);
            const Bits pushed = pushed_from(env, near, direction);
            const Bits first = pushed & left & shifted(open, direction) & shifted(open, back);
            *stands |= shifted(first, back);
            next |= pushed;
        }
        if (next == near) return pushes + STUCK * __builtin_popcountll(left);
        pushes += __builtin_popcountll(left);  // one more push for each that has not arrived
        left &= ~next;
        near = next;
    }
    return pushes;
}

// Steps of the player to the nearest of `goals`.
static int32_t count_steps(const Sokoban* env, Bits goals) {
    const Bits open = ~(env->walls | env->boxes);
    Bits reached = bit(env->player);
    for (int32_t steps = 0; steps < STUCK; steps++) {
        if (reached & goals) return steps;
        const Bits next = open & (shifted(reached, UP) | shifted(reached, DOWN) |
                                  shifted(reached, LEFT) | shifted(reached, RIGHT));
        if (!(next & ~reached)) break;
        reached |= next;
    }
    return STUCK;
}

static float find_potential(const Sokoban* env) {
    Bits stands;
    const float home = 0.5f * (float)__builtin_popcountll(env->boxes & env->targets);
    if (env->boxes == env->targets) return home / (float)env->num_boxes;
    const int32_t pushes = count_pushes(env, &stands), steps = count_steps(env, stands);
    return home / (float)env->num_boxes - 0.1f * (float)pushes - 0.03f * (float)steps;
}

static void reset(Sokoban* env) {
    do make_level(env);
    while (env->boxes == env->targets);
    env->facing = DOWN;
    env->pushes = 0;
    env->live = find_live(env);
    env->potential = find_potential(env);
}

// Moves the player and the box in its way; whether a box has moved.
static bool walk(Sokoban* env, int32_t direction) {
    const Bits to = shifted(bit(env->player), direction), beyond = shifted(to, direction);
    const Bits blocked = env->walls | env->boxes;
    env->facing = direction;
    if (!to || to & env->walls) return false;
    if (to & env->boxes) {
        if (!beyond || beyond & blocked) return false;
        env->boxes ^= to | beyond;
    }
    env->player = __builtin_ctzll(to);
    return blocked & to;
}

static PufStatus step(Sokoban* env) {
    const int32_t direction = puf_action(&env->slots, 0);
    const float before = env->potential;
    if (direction != STAY) env->pushes += walk(env, direction);
    env->potential = find_potential(env);
    const float reward = env->potential - before - 0.01f;
    const bool solved = env->boxes == env->targets, lost = env->boxes & ~env->live;
    puf_reward(&env->slots, 0, reward + (solved ? 1 : 0));
    if (!solved && !lost && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = env->perf = solved;
    env->on_target = (float)__builtin_popcountll(env->boxes & env->targets) / (float)env->num_boxes;
    return solved || lost ? PUF_TERMINATED : PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

// One plane: row by row from `first_row` and `first_col` on, wrapped around.
static uint8_t* roll(uint8_t* out, Bits cells, bool rim, int32_t first_row, int32_t first_col) {
    const uint32_t edge = rim ? 1u << SIDE : 0, full = rim ? (1u << VIEW) - 1 : 0;
    for (int32_t i = 0; i < VIEW; i++, out += VIEW) {
        const int32_t row = first_row + i < VIEW ? first_row + i : first_row + i - VIEW;
        const uint32_t line = row == SIDE ? full : ((uint32_t)(cells >> SIDE * row) & 255) | edge;
        const uint32_t rolled = line >> first_col | line << (VIEW - first_col);
        puf_bits_to_bytes(out, rolled & 255, 8);
        out[8] = rolled >> 8 & 1;
    }
    return out;
}

static void observe(const Sokoban* env) {
    uint8_t* obs = puf_obs_u8(&env->slots, 0);
    // The player's row and column become number 4 of 0..8.
    const int32_t row = (env->player / SIDE + VIEW - 4) % VIEW;
    const int32_t col = (env->player % SIDE + VIEW - 4) % VIEW;
    obs = roll(obs, env->walls, true, row, col);
    obs = roll(obs, env->boxes & ~env->targets, false, row, col);
    obs = roll(obs, env->boxes & env->targets, false, row, col);
    roll(obs, env->targets & ~env->boxes, false, row, col);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 48, HEADER = 36 };

static void draw_wall(PufCanvas* canvas, float x, float y) {
    puf_rect(canvas, x, y, PIXELS, PIXELS, 0x5B4A3F);
    for (int32_t row = 0; row < 3; row++)
        for (int32_t i = -1; i < 2; i++) {
            const float left = (float)(i * PIXELS / 2 + (row % 2) * PIXELS / 4 + PIXELS / 4);
            const float from = left < 0 ? 0 : left, to = left + PIXELS / 2 - 2;
            const float end = to > PIXELS ? PIXELS : to;
            puf_rect(canvas, x + from, y + (float)(row * PIXELS / 3), end - from, PIXELS / 3 - 2,
                     0x9C6B4E);
        }
}

static void draw_box(PufCanvas* canvas, float x, float y, bool home) {
    const uint32_t wood = home ? 0x6CBF6A : 0xC98A42, frame = home ? 0x2F7D3A : 0x7A4A1C;
    const float low = 7, high = PIXELS - 7;
    puf_rect(canvas, x + 4, y + 4, PIXELS - 8, PIXELS - 8, wood);
    puf_line(canvas, x + low, y + low, x + high, y + high, 4, frame);
    puf_line(canvas, x + high, y + low, x + low, y + high, 4, frame);
    puf_rect_outline(canvas, x + 4, y + 4, PIXELS - 8, PIXELS - 8, 4, frame);
}

static void draw_player(PufCanvas* canvas, float x, float y, int32_t facing) {
    static const float dx[NUM_ACTIONS] = {0, 0, 1, 0, -1}, dy[NUM_ACTIONS] = {0, -1, 0, 1, 0};
    const float cx = x + 0.5f * PIXELS, cy = y + 0.5f * PIXELS;
    puf_circle(canvas, cx, cy + 9, 13, PUF_BLUE);
    puf_circle(canvas, cx, cy - 8, 10, 0xF2C9A0);
    puf_rect(canvas, cx - 10, cy - 18, 20, 6, PUF_RED);
    for (float side = -1; side <= 1; side += 2)
        puf_circle(canvas, cx + 4 * side + 3 * dx[facing], cy - 8 + 3 * dy[facing], 2, PUF_BLACK);
}

static void render(const Sokoban* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_INK);
    puf_textf(canvas, 10, 11, 2, PUF_PAPER, "BOXES HOME %d/%d  PUSHES %d  STEP %d",
              __builtin_popcountll(env->boxes & env->targets), (int)env->num_boxes,
              (int)env->pushes, (int)env->slots.tick);
    for (int32_t row = 0; row < RIM; row++)
        for (int32_t col = 0; col < RIM; col++) {
            const float x = (float)(col * PIXELS), y = (float)(HEADER + row * PIXELS);
            const bool inside = row > 0 && row <= SIDE && col > 0 && col <= SIDE;
            const int32_t cell = inside ? (row - 1) * SIDE + col - 1 : 0;
            if (!inside || env->walls & bit(cell)) {
                draw_wall(canvas, x, y);
                continue;
            }
            puf_rect(canvas, x, y, PIXELS, PIXELS, (row + col) % 2 ? 0xD9CDB4 : 0xD2C5AA);
            if (env->targets & bit(cell)) {
                puf_ring(canvas, x + 0.5f * PIXELS, y + 0.5f * PIXELS, 14, 4, PUF_RED);
                puf_circle(canvas, x + 0.5f * PIXELS, y + 0.5f * PIXELS, 5, PUF_RED);
            }
            if (env->boxes & bit(cell)) draw_box(canvas, x, y, env->targets & bit(cell));
            if (cell == env->player) draw_player(canvas, x, y, env->facing);
        }
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Sokoban* env) {
    return !(env->walls & (env->boxes | env->targets)) &&
           __builtin_popcountll(env->boxes) == env->num_boxes &&
           __builtin_popcountll(env->targets) == env->num_boxes && env->boxes != env->targets &&
           env->live == find_live(env) && !(env->boxes & ~env->live) && env->player >= 0 &&
           env->player < CELLS && !((env->walls | env->boxes) & bit(env->player)) &&
           env->facing >= UP && env->facing <= LEFT && env->potential == find_potential(env) &&
           env->pushes >= 0 && env->pushes <= env->slots.tick && env->slots.tick < env->max_steps;
}

PUF_ENV(
    sokoban, Sokoban, .doc = "push all boxes onto targets", .group = "boards",
    .action_names = "stay up right down left",
    .layout = {
        .agents = 1,
        .obs = {.dtype = PUF_U8, .ndim = 2, .shape = {NUM_PLANES, VIEW_CELLS}, .low = 0, .high = 1},
        .actions = PUF_DISCRETE(NUM_ACTIONS),
        .width = RIM * PIXELS,
        .height = RIM * PIXELS + HEADER});
