// pacman - eat every pellet of a maze and avoid four ghosts, each with its own mind.
//
// The maze has 19 x 22 cells; its two side exits are joined by a tunnel. One tick:
// 1. Pacman turns to the direction of the action (0 up, 1 right, 2 down, 3 left) if there is no
//    wall, else it goes on as before, or stands at a wall. It moves by one cell and eats what is
//    there: a pellet is 10 points, a power pellet 50.
// 2. A power pellet turns all ghosts round and frightens them for `fright` ticks. A frightened
//    ghost that meets pacman is eaten, for 200, 400, 800 and 1600 points in a row; its eyes return
//    home.
// 3. Ghosts move by `ghost_speed` cells per tick, half as fast when frightened, two cells as eyes.
//    They never turn back of their own will. Where paths part they take the one whose next cell is
//    nearest to their target; frightened ones take any.
// 4. A ghost that meets pacman costs a life; all return to their places. The episode ends without
//    lives and with the last pellet.
//
// Ghosts leave their house one after the other, a little sooner or later by chance, and alternate
// between chasing and patrolling their corner (20 ticks in 80, four times); at each change they
// turn round. When they chase, their targets are:
//     chaser   (red)     pacman's cell
//     ambusher (pink)    four cells ahead of pacman
//     flanker  (cyan)    as far beyond two cells ahead of pacman as the chaser is before them
//     shy      (orange)  pacman's cell from afar, its own corner when nearer than eight cells
//
// Observed for each direction: whether it is open, and how near the next pellet, power pellet,
// dangerous ghost and frightened ghost are that way through the maze; for each ghost: offset,
// distance through the maze, state and heading; pacman's place and heading, fright, lives, pellets
// left, patrol.
#include "puf_env.h"

enum { WIDTH = 19, HEIGHT = 22, NUM_GHOSTS = 4, MAX_CELLS = 224, NONE = 255 };
enum { UP, RIGHT, DOWN, LEFT };
enum { CHASER, AMBUSHER, FLANKER, SHY };
enum { HOME, HUNTING, FRIGHTENED, EYES };  // states of a ghost
enum {
    PATROL = 20,
    PERIOD = 80,  // patrol, then chase
    NUM_PERIODS = 4,
    EYES_SPEED = 200,  // percent of a cell per tick
    REST = 10,         // ticks at home after being eaten
    FAR = 40,          // distances are observed up to this
    DIRECTION_FEATURES = 5,
    GHOST_FEATURES = 8,
    NUM_FEATURES = 4 * DIRECTION_FEATURES + NUM_GHOSTS * GHOST_FEATURES + 10,
};

// The left half with the middle column; the right half mirrors it. '.' pellet, 'o' power pellet,
// '-' door of the house, 'h' inside of it, ' ' free cell without a pellet.
static const char* const half_maze[HEIGHT] = {
    "##########", "#.........", "#o##.##.##", "#.##.##.##", "#.........", "#.##.#.###",
    "#....#...#", "####.### #", "####.#    ", "####.# ##-", "    .  #hh", "####.# ###",
    "####.#    ", "####.# ###", "#........#", "#.##.###.#", "#o.#..... ", "##.#.#.###",
    "#....#...#", "#.######.#", "#.........", "##########",
};
enum { DOOR_COL = 9, DOOR_ROW = 8, START_COL = 9, START_ROW = 16 };

static const int32_t step_x[4] = {0, 1, 0, -1}, step_y[4] = {-1, 0, 1, 0};

// Tables of the maze, the same for all envs: free cells have numbers in reading order.
static int32_t num_cells, num_pellets;
static uint8_t cell_at[HEIGHT][WIDTH];                                    // NONE: wall or house
static uint8_t col_of[MAX_CELLS], row_of[MAX_CELLS], food_at[MAX_CELLS];  // 0, '.', 'o'
static uint8_t neighbours[MAX_CELLS][4];
static uint8_t distances[MAX_CELLS][MAX_CELLS];  // steps through the maze

static char tile_at(int32_t row, int32_t col) {
    return half_maze[row][col < 10 ? col : WIDTH - 1 - col];
}

// Fills the tables when the library is loaded, before any thread can read them.
__attribute__((constructor)) static void survey(void) {
    memset(cell_at, NONE, sizeof cell_at);
    memset(distances, NONE, sizeof distances);
    num_cells = num_pellets = 0;
    for (int32_t row = 0; row < HEIGHT; row++)
        for (int32_t col = 0; col < WIDTH; col++) {
            const char tile = tile_at(row, col);
            if (tile != '.' && tile != 'o' && tile != ' ') continue;
            cell_at[row][col] = (uint8_t)num_cells;
            row_of[num_cells] = (uint8_t)row;
            col_of[num_cells] = (uint8_t)col;
            food_at[num_cells++] = tile == ' ' ? 0 : (uint8_t)tile;
            num_pellets += tile != ' ';
        }
    for (int32_t cell = 0; cell < num_cells; cell++)
        for (int32_t d = 0; d < 4; d++) {
            const int32_t row = row_of[cell] + step_y[d];
            const int32_t col = (col_of[cell] + step_x[d] + WIDTH) % WIDTH;  // the tunnel
            neighbours[cell][d] = cell_at[row][col];
        }
    for (int32_t from = 0; from < num_cells; from++) {  // breadth first
        uint8_t queue[MAX_CELLS];
        int32_t first = 0, last = 0;
        queue[last++] = (uint8_t)from;
        distances[from][from] = 0;
        while (first < last) {
            const int32_t cell = queue[first++];
            for (int32_t d = 0; d < 4; d++) {
                const int32_t next = neighbours[cell][d];
                if (next == NONE || distances[from][next] != NONE) continue;
                distances[from][next] = (uint8_t)(distances[from][cell] + 1);
                queue[last++] = (uint8_t)next;
            }
        }
    }
}

typedef struct {
    int32_t cell, direction, state;
    int32_t wait;    // ticks until it leaves the house
    int32_t energy;  // percent of a cell that it has saved up
} Ghost;

typedef struct {
    PufSlots slots;
    uint8_t eaten[MAX_CELLS];  // 0: food is left there, 255: there is none
    int32_t pacman, direction;
    Ghost ghosts[NUM_GHOSTS];
    int32_t frightened;  // ticks left
    int32_t combo;       // ghosts eaten in this fright
    int32_t clock;       // of patrol and chase; stops while ghosts are frightened
    int32_t lives_left, pellets_left;
    float score, perf;
    int32_t lives, fright, max_steps;
    float ghost_speed, reward_death, reward_clear;
} Pacman;

static const PufField params[] = {
    PUF_PARAM_I32(Pacman, lives, 3, 1, 100, "lives"),
    PUF_PARAM_F32(Pacman, ghost_speed, 0.9, 0, 1, "cells per tick of a hunting ghost"),
    PUF_PARAM_I32(Pacman, fright, 40, 0, 1000, "ticks that a power pellet lasts"),
    PUF_PARAM_I32(Pacman, max_steps, 1500, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Pacman, reward_death, -1, -10, 10, "reward for losing a life"),
    PUF_PARAM_F32(Pacman, reward_clear, 2, -10, 10, "reward for the last pellet"),
};

static const PufField metrics[] = {
    PUF_METRIC(Pacman, score, "points for pellets and ghosts"),
    PUF_METRIC(Pacman, perf, "share of the pellets eaten"),
};

static int32_t min_int(int32_t a, int32_t b) { return a < b ? a : b; }

// ---- Ghosts -------------------------------------------------------------------------------------

static bool patrols(const Pacman* env) {
    return env->clock < NUM_PERIODS * PERIOD && env->clock % PERIOD < PATROL;
}

// The cell that a ghost wants to reach, in columns and rows; it may be a wall or outside.
static void target_of(const Pacman* env, int32_t i, int32_t* x, int32_t* y) {
    static const int32_t corner_x[] = {WIDTH - 2, 1, WIDTH - 2, 1};
    static const int32_t corner_y[] = {0, 0, HEIGHT - 1, HEIGHT - 1};
    const Ghost *ghost = &env->ghosts[i], *chaser = &env->ghosts[CHASER];
    const int32_t ahead = i == AMBUSHER ? 4 : i == FLANKER ? 2 : 0;
    *x = col_of[env->pacman] + ahead * step_x[env->direction];
    *y = row_of[env->pacman] + ahead * step_y[env->direction];
    if (ghost->state == EYES) {
        *x = DOOR_COL;
        *y = DOOR_ROW;
        return;
    }
    const int32_t dx = *x - col_of[ghost->cell], dy = *y - row_of[ghost->cell];
    if (patrols(env) || (i == SHY && dx * dx + dy * dy < 64)) {
        *x = corner_x[i];
        *y = corner_y[i];
    } else if (i == FLANKER) {
        *x = 2 * *x - col_of[chaser->cell];
        *y = 2 * *y - row_of[chaser->cell];
    }
}

static void choose(Pacman* env, int32_t i) {
    static const int32_t order[4] = {UP, LEFT, DOWN, RIGHT};
    Ghost* ghost = &env->ghosts[i];
    const uint8_t* next = neighbours[ghost->cell];
    int32_t x, y, best = -1, nearest = INT32_MAX, seen = 0;
    target_of(env, i, &x, &y);
    for (int32_t k = 0; k < 4; k++) {
        const int32_t d = order[k];
        if (next[d] == NONE || d == (ghost->direction ^ 2)) continue;
        const int32_t dx = col_of[next[d]] - x, dy = row_of[next[d]] - y;
        const bool random = ghost->state == FRIGHTENED;
        const bool better =
            random ? puf_rand_int(&env->slots.rng, ++seen) == 0 : dx * dx + dy * dy < nearest;
        if (!better) continue;
        best = d;
        nearest = dx * dx + dy * dy;
    }
    ghost->direction = best;
}

// Hunters turn round; home and eyes go on.
static void turn_round(Pacman* env) {
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        Ghost* ghost = &env->ghosts[i];
        if (ghost->state == HUNTING && neighbours[ghost->cell][ghost->direction ^ 2] != NONE)
            ghost->direction ^= 2;
    }
}

static void place(Pacman* env) {
    static const int32_t waits[NUM_GHOSTS] = {0, 5, 25, 50};
    env->pacman = cell_at[START_ROW][START_COL];
    env->direction = LEFT;
    env->frightened = env->combo = 0;
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        const int32_t wait = waits[i] ? waits[i] + puf_rand_int(&env->slots.rng, 8) : 0;
        env->ghosts[i] = (Ghost){.cell = cell_at[DOOR_ROW][DOOR_COL],
                                 .direction = puf_rand_int(&env->slots.rng, 2) ? LEFT : RIGHT,
                                 .state = wait ? HOME : HUNTING,
                                 .wait = wait};
    }
}

static void reset(Pacman* env) {
    memset(env->eaten, NONE, sizeof env->eaten);
    for (int32_t cell = 0; cell < num_cells; cell++)
        if (food_at[cell]) env->eaten[cell] = 0;
    env->lives_left = env->lives;
    env->pellets_left = num_pellets;
    env->clock = 0;
    env->score = env->perf = 0;
    place(env);
}

// Whether pacman dies; a frightened ghost is eaten.
static bool meet(Pacman* env) {
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        Ghost* ghost = &env->ghosts[i];
        if (ghost->cell != env->pacman) continue;
        if (ghost->state == HUNTING) return true;
        if (ghost->state != FRIGHTENED) continue;
        env->score += (float)(200 << min_int(env->combo, 3));
        env->combo++;
        ghost->state = EYES;
        puf_reward(&env->slots, 0, 0.5f);
    }
    return false;
}

static void move_ghost(Pacman* env, int32_t i) {
    Ghost* ghost = &env->ghosts[i];
    if (ghost->state == HOME) {
        if (--ghost->wait <= 0) *ghost = (Ghost){ghost->cell, LEFT, HUNTING, 0, 0};
        return;
    }
    const int32_t hunting = (int32_t)(100 * env->ghost_speed + 0.5f);
    ghost->energy += ghost->state == EYES         ? EYES_SPEED
                     : ghost->state == FRIGHTENED ? hunting / 2
                                                  : hunting;
    for (; ghost->energy >= 100; ghost->energy -= 100) {
        choose(env, i);
        ghost->cell = neighbours[ghost->cell][ghost->direction];
        if (ghost->state == EYES && ghost->cell == cell_at[DOOR_ROW][DOOR_COL]) {
            *ghost = (Ghost){ghost->cell, LEFT, HOME, REST, 0};
            return;
        }
    }
}

// ---- One step -----------------------------------------------------------------------------------

static void frighten(Pacman* env) {
    turn_round(env);
    env->frightened = env->fright;
    env->combo = 0;
    for (int32_t i = 0; i < NUM_GHOSTS; i++)
        if (env->ghosts[i].state == HUNTING && env->fright) env->ghosts[i].state = FRIGHTENED;
}

static void move_pacman(Pacman* env) {
    const int32_t wanted = puf_action(&env->slots, 0);
    if (neighbours[env->pacman][wanted] != NONE) env->direction = wanted;
    const int32_t next = neighbours[env->pacman][env->direction];
    if (next != NONE) env->pacman = next;
    if (env->eaten[env->pacman]) return;
    const bool power = food_at[env->pacman] == 'o';
    env->eaten[env->pacman] = NONE;
    env->pellets_left--;
    env->score += power ? 50 : 10;
    puf_reward(&env->slots, 0, power ? 0.2f : 0.1f);
    if (power) frighten(env);
}

static void tick_clocks(Pacman* env) {
    if (env->frightened) {
        if (--env->frightened) return;
        for (int32_t i = 0; i < NUM_GHOSTS; i++)
            if (env->ghosts[i].state == FRIGHTENED) env->ghosts[i].state = HUNTING;
        return;
    }
    if (env->clock >= NUM_PERIODS * PERIOD) return;
    const bool before = patrols(env);
    env->clock++;
    if (patrols(env) != before) turn_round(env);
}

static PufStatus step(Pacman* env) {
    move_pacman(env);
    env->perf = 1 - (float)env->pellets_left / (float)num_pellets;
    if (env->pellets_left == 0) {
        puf_reward(&env->slots, 0, env->reward_clear);
        return PUF_TERMINATED;
    }
    bool dead = meet(env);
    if (!dead) {
        for (int32_t i = 0; i < NUM_GHOSTS; i++) move_ghost(env, i);
        dead = meet(env);
    }
    if (dead) {
        puf_reward(&env->slots, 0, env->reward_death);
        if (--env->lives_left == 0) return PUF_TERMINATED;
        place(env);
    } else {
        tick_clocks(env);
    }
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

// 1 for something at distance 0, 0 for FAR or farther.
static inline float nearness(int32_t distance) {
    return distance >= FAR ? 0 : 1 - (float)distance * (1.0f / FAR);
}

static inline int32_t nearest_pellet(const Pacman* env, int32_t from) {
    const uint8_t* away = distances[from];
    uint8_t nearest = NONE;
    for (int32_t i = 0; i < MAX_CELLS; i++) {
        const uint8_t d = away[i] | env->eaten[i];
        nearest = d < nearest ? d : nearest;
    }
    return nearest;
}

static inline int32_t nearest_power(const Pacman* env, int32_t from) {
    static const uint8_t rows[] = {2, 16}, cols[] = {1, WIDTH - 2};
    int32_t nearest = NONE;
    for (int32_t k = 0; k < 4; k++) {
        const int32_t cell = cell_at[rows[k / 2]][cols[k % 2]];
        nearest = min_int(nearest, distances[from][cell] | env->eaten[cell]);
    }
    return nearest;
}

static inline int32_t nearest_ghost(const Pacman* env, int32_t from, int32_t state) {
    int32_t nearest = NONE;
    for (int32_t i = 0; i < NUM_GHOSTS; i++)
        if (env->ghosts[i].state == state)
            nearest = min_int(nearest, distances[from][env->ghosts[i].cell]);
    return nearest;
}

PUF_HOT static void observe_directions(const Pacman* env, float* obs) {
    for (int32_t d = 0; d < 4; d++, obs += DIRECTION_FEATURES) {
        const int32_t next = neighbours[env->pacman][d];
        if (next == NONE) {
            memset(obs, 0, DIRECTION_FEATURES * sizeof(float));
            continue;
        }
        obs[0] = 1;
        obs[1] = nearness(nearest_pellet(env, next));
        obs[2] = nearness(nearest_power(env, next));
        obs[3] = nearness(nearest_ghost(env, next, HUNTING));
        obs[4] = nearness(nearest_ghost(env, next, FRIGHTENED));
    }
}

static void observe(const Pacman* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    observe_directions(env, obs);
    obs += 4 * DIRECTION_FEATURES;
    const int32_t x = col_of[env->pacman], y = row_of[env->pacman];
    for (int32_t i = 0; i < NUM_GHOSTS; i++, obs += GHOST_FEATURES) {
        const Ghost* ghost = &env->ghosts[i];
        obs[0] = (float)(col_of[ghost->cell] - x) * (1.0f / WIDTH);
        obs[1] = (float)(row_of[ghost->cell] - y) * (1.0f / HEIGHT);
        obs[2] = nearness(distances[env->pacman][ghost->cell]);
        obs[3] = ghost->state == HUNTING;
        obs[4] = ghost->state == FRIGHTENED;
        obs[5] = ghost->state == HOME;
        obs[6] = (float)step_x[ghost->direction];
        obs[7] = (float)step_y[ghost->direction];
    }
    obs[0] = (float)x * (2.0f / WIDTH) - 1;
    obs[1] = (float)y * (2.0f / HEIGHT) - 1;
    for (int32_t d = 0; d < 4; d++) obs[2 + d] = env->direction == d;
    obs[6] = env->fright ? (float)env->frightened / (float)env->fright : 0;
    obs[7] = (float)env->lives_left / (float)env->lives;
    obs[8] = (float)env->pellets_left / (float)num_pellets;
    obs[9] = patrols(env);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { CELL = 24, HEADER = 36 };

static void draw_ghost(const Pacman* env, PufCanvas* canvas, int32_t i) {
    static const char* const body[] = {"....####....", "..########..", ".##########.",
                                       ".##ww##ww##.", ".#wwwwwwww#.", "##wwww#wwww#",
                                       "###ww###ww##", "############", "############",
                                       "############", "##.###..###.", "#...##...##."};
    static const char* const eyes[] = {
        "", "", "", "..ww..ww..", ".wwww.wwww..", ".wwkw.wwkw..", "..ww...ww..."};
    static const uint32_t minds[] = {PUF_RED, PUF_PINK, PUF_CYAN, PUF_ORANGE};
    static const float seats[] = {9, 9, 8, 10};
    const Ghost* ghost = &env->ghosts[i];
    const bool blinks = env->frightened < 10 && env->frightened % 2;
    const uint32_t color = ghost->state != FRIGHTENED ? minds[i] : blinks ? PUF_PAPER : 0x2A3BE0;
    float x = (float)col_of[ghost->cell] * CELL, y = HEADER + (float)row_of[ghost->cell] * CELL;
    if (ghost->state == HOME) {
        x = seats[i] * CELL;
        y = HEADER + 10 * CELL;
    }
    if (ghost->state == EYES)
        puf_sprite(canvas, x, y, 2, eyes, 7, "wk", (const uint32_t[]){PUF_WHITE, PUF_BLUE});
    else
        puf_sprite(canvas, x, y, 2, body, 12, "#w", (const uint32_t[]){color, PUF_WHITE});
    if (ghost->state != HUNTING) return;
    const float look_x = 2 * (float)step_x[ghost->direction];
    const float look_y = 2 * (float)step_y[ghost->direction];
    puf_rect(canvas, x + 6 + look_x, y + 9 + look_y, 4, 4, PUF_BLUE);
    puf_rect(canvas, x + 15 + look_x, y + 9 + look_y, 4, 4, PUF_BLUE);
}

static void draw_pacman(const Pacman* env, PufCanvas* canvas, float x, float y, int32_t d) {
    const float open = env->slots.tick % 2 ? 8.0f : 3.0f;
    const float dx = (float)step_x[d], dy = (float)step_y[d];
    puf_circle(canvas, x, y, 11, PUF_YELLOW);
    const float mouth[] = {x - 2 * dx,
                           y - 2 * dy,
                           x + 13 * dx - open * dy,
                           y + 13 * dy + open * dx,
                           x + 13 * dx + open * dy,
                           y + 13 * dy - open * dx};
    puf_polygon(canvas, mouth, 3, PUF_BLACK);
}

static void render(const Pacman* env, PufCanvas* canvas) {
    puf_clear(canvas, PUF_BLACK);
    for (int32_t row = 0; row < HEIGHT; row++)
        for (int32_t col = 0; col < WIDTH; col++) {
            const float x = (float)col * CELL, y = HEADER + (float)row * CELL;
            const char tile = tile_at(row, col);
            const int32_t cell = cell_at[row][col];
            if (tile == '#') {
                puf_rect(canvas, x, y, CELL, CELL, 0x10186E);
                for (int32_t d = 0; d < 4; d++) {  // a bright edge towards free cells
                    const int32_t r = row + step_y[d], c = col + step_x[d];
                    if (r < 0 || r >= HEIGHT || c < 0 || c >= WIDTH || tile_at(r, c) == '#')
                        continue;
                    puf_rect(canvas, x + (d == RIGHT ? CELL - 3 : 0),
                             y + (d == DOWN ? CELL - 3 : 0), step_x[d] ? 3 : CELL,
                             step_y[d] ? 3 : CELL, 0x3D5BFF);
                }
            } else if (tile == '-') {
                puf_rect(canvas, x, y + 8, CELL, 5, PUF_PINK);
            } else if (cell != NONE && !env->eaten[cell]) {
                puf_circle(canvas, x + CELL / 2, y + CELL / 2, tile == 'o' ? 7 : 2.6f, 0xFFC9A8);
            }
        }
    draw_pacman(env, canvas, ((float)col_of[env->pacman] + 0.5f) * CELL,
                HEADER + ((float)row_of[env->pacman] + 0.5f) * CELL, env->direction);
    for (int32_t i = 0; i < NUM_GHOSTS; i++) draw_ghost(env, canvas, i);
    puf_textf(canvas, 10, 8, 3, PUF_PAPER, "SCORE %d", (int)env->score);
    for (int32_t i = 1; i < min_int(env->lives_left, 6); i++)
        draw_pacman(env, canvas, WIDTH * CELL - 28 * (float)i, HEADER / 2, LEFT);
}

// ---- Validation ---------------------------------------------------------------------------------

static bool valid(const Pacman* env) {
    int32_t pellets = 0;
    for (int32_t cell = 0; cell < MAX_CELLS; cell++) {
        const bool food = cell < num_cells && food_at[cell];
        if (env->eaten[cell] != NONE && (env->eaten[cell] || !food)) return false;
        pellets += !env->eaten[cell];
    }
    for (int32_t i = 0; i < NUM_GHOSTS; i++) {
        const Ghost* ghost = &env->ghosts[i];
        if (ghost->cell < 0 || ghost->cell >= num_cells || ghost->direction < 0 ||
            ghost->direction > 3 || ghost->state < HOME || ghost->state > EYES || ghost->wait < 0 ||
            ghost->wait > 100 || ghost->energy < 0 || ghost->energy >= 100)
            return false;
        if (ghost->state == FRIGHTENED && !env->frightened) return false;
    }
    return pellets == env->pellets_left && pellets > 0 && env->pacman >= 0 &&
           env->pacman < num_cells && env->direction >= 0 && env->direction <= 3 &&
           env->frightened >= 0 && env->frightened <= env->fright && env->combo >= 0 &&
           env->combo <= env->slots.tick && env->clock >= 0 && env->clock <= NUM_PERIODS * PERIOD &&
           env->lives_left >= 1 && env->lives_left <= env->lives &&
           env->slots.tick < env->max_steps &&
           puf_within(env->score, 0, 6450 * (float)env->slots.tick);
}

PUF_ENV(pacman, Pacman, .doc = "eat all pellets of a maze and escape four ghosts",
        .group = "arcade", .action_names = "up right down left",
        .layout = {
            .agents = 1,
            .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
            .actions = PUF_DISCRETE(4),
            .width = WIDTH * CELL,
            .height = HEADER + HEIGHT * CELL});
