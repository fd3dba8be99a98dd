// warehouse - robots bring requested shelves to the stations and put them back.
//
// The hall has blocks of 2 x 3 shelves with aisles around, and stations along its lower wall. There
// are always num_requests open requests, as far as there are shelves.
//
// One tick: the robots act one after the other; the one that begins changes every tick.
// - Moves (0 up, 1 right, 2 down, 3 left) are blocked by walls and robots. A robot without a load
//   drives under shelves; one that carries a shelf cannot pass another shelf.
// - Lift or put down (4): a robot without a load lifts the shelf above it; a robot with a load puts
//   it down on a place for shelves that is free.
// A requested shelf that enters a station is delivered: its request is closed, and a shelf that is
// in its place is requested instead. The delivered shelf must be put back, on any free place.
// Rewards: for lifting a requested shelf (taken back if it is put down undelivered), for each
// delivery, and for putting a delivered shelf back.
//
// A robot observes six 0/1 planes of the 7 x 7 cells around it (walls, robots, shelves, requested
// shelves, places, stations); whether it carries a shelf, a requested one, a delivered one; and
// where to go: four flags (up, right, down, left) and a fifth for "here". They point to the nearest
// requested shelf; with a requested load to the nearest station; with another to the nearest free
// place. No flag is set if there is no such cell.
#include "puf_grid.h"

enum { WALL = 1, ROBOT = 2, SHELF = 4, REQUESTED = 8, PLACE = 16, STATION = 32, NUM_PLANES = 6 };
enum { NO_LOAD, ORDINARY, WANTED, DELIVERED };
enum {
    VISION = 3,
    WINDOW = (2 * VISION + 1) * (2 * VISION + 1),
    FEATURES = NUM_PLANES * WINDOW + 8,
    MAX_BLOCKS_X = 6,
    MAX_BLOCKS_Y = 5,
    MAX_ROBOTS = 16,
    MAX_REQUESTS = 16,
    MAX_STATIONS = 4,
    STRIDE = 4 * MAX_BLOCKS_Y + 2 + 2 * VISION,
    CELLS = STRIDE * STRIDE
};

typedef struct {
    PufSlots slots;
    int32_t delivered;
    int32_t num_wanted, num_free;  // in the lists below
    float score, perf;
    int32_t blocks_x, blocks_y, num_agents, num_requests, num_stations, par, max_steps;
    float reward_lift, reward_deliver, reward_store;
    int16_t stations[MAX_STATIONS];
    int16_t wanted[MAX_REQUESTS];  // requested shelves in their places
    int16_t free[MAX_ROBOTS];      // places without a shelf: as many as there are loads
    int16_t cells[MAX_ROBOTS];
    uint8_t loads[MAX_ROBOTS];
    uint8_t board[CELLS];  // flags
} Hall;

static const PufField params[] = {
    PUF_PARAM_I32(Hall, blocks_x, 4, 1, MAX_BLOCKS_X, "blocks of shelves beside each other"),
    PUF_PARAM_I32(Hall, blocks_y, 2, 1, MAX_BLOCKS_Y, "blocks of shelves above each other"),
    PUF_PARAM_I32(Hall, num_agents, 6, 1, MAX_ROBOTS, "robots in one hall"),
    PUF_PARAM_I32(Hall, num_requests, 6, 1, MAX_REQUESTS, "open requests"),
    PUF_PARAM_I32(Hall, num_stations, 3, 1, MAX_STATIONS, "stations at the lower wall"),
    PUF_PARAM_I32(Hall, par, 96, 1, 100000, "deliveries at which perf is 1"),
    PUF_PARAM_I32(Hall, max_steps, 512, 1, 100000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Hall, reward_lift, 0.3, -10, 10, "reward for lifting a requested shelf"),
    PUF_PARAM_F32(Hall, reward_deliver, 1, -10, 10, "reward for a delivery"),
    PUF_PARAM_F32(Hall, reward_store, 0.5, -10, 10, "reward for putting a delivered shelf back"),
};

static const PufField metrics[] = {
    PUF_METRIC(Hall, score, "deliveries of all robots"),
    PUF_METRIC(Hall, perf, "score / par, at most 1"),
};

// ---- The hall -----------------------------------------------------------------------------------

static int32_t width_of(const Hall* env) { return 3 * env->blocks_x + 1; }

static int32_t height_of(const Hall* env) { return 4 * env->blocks_y + 2; }

static int32_t station_cell(const Hall* env, int32_t station) {
    const int32_t col = (2 * station + 1) * width_of(env) / (2 * env->num_stations);
    return puf_grid_cell(STRIDE, VISION, height_of(env) - 1, col);
}

// What never changes about an inner cell: whether it is a place for a shelf, or a station.
static uint8_t ground_at(const Hall* env, int32_t row, int32_t col) {
    if (row < height_of(env) - 1) return row % 4 && col % 3 ? PLACE : 0;
    for (int32_t i = 0; i < env->num_stations; i++)
        if (station_cell(env, i) == puf_grid_cell(STRIDE, VISION, row, col)) return STATION;
    return 0;
}

// A random cell that holds exactly these flags, or 0.
static int32_t find(Hall* env, uint8_t flags) {
    return puf_grid_find(&env->slots.rng, env->board, STRIDE, VISION, width_of(env), height_of(env),
                         flags);
}

static void list(int16_t* cells, int32_t* count, int32_t cell) {
    cells[(*count)++] = (int16_t)cell;
}

static void unlist(int16_t* cells, int32_t* count, int32_t cell) {
    for (int32_t i = 0; i < *count; i++)
        if (cells[i] == cell) {
            cells[i] = cells[--*count];
            return;
        }
}

// ---- Rules --------------------------------------------------------------------------------------

// Requests shelves in their places that no robot stands under, until enough are requested.
static void request(Hall* env) {
    int32_t open = env->num_wanted;
    for (int32_t i = 0; i < env->num_agents; i++) open += env->loads[i] == WANTED;
    for (; open < env->num_requests; open++) {
        const int32_t cell = find(env, PLACE | SHELF);
        if (!cell) return;
        env->board[cell] |= REQUESTED;
        list(env->wanted, &env->num_wanted, cell);
    }
}

static void reset(Hall* env) {
    memset(env->board, WALL, sizeof env->board);
    for (int32_t row = 0; row < height_of(env); row++)
        for (int32_t col = 0; col < width_of(env); col++) {
            const uint8_t ground = ground_at(env, row, col);
            env->board[puf_grid_cell(STRIDE, VISION, row, col)] =
                ground == PLACE ? PLACE | SHELF : ground;
        }
    for (int32_t i = 0; i < env->num_stations; i++)
        env->stations[i] = (int16_t)station_cell(env, i);
    env->delivered = env->num_wanted = env->num_free = 0;
    memset(env->loads, NO_LOAD, sizeof env->loads);
    for (int32_t i = 0; i < env->num_agents; i++) {
        int32_t cell = find(env, 0);
        if (!cell) cell = find(env, PLACE | SHELF);  // more robots than aisle: below a shelf
        env->cells[i] = (int16_t)cell;
        env->board[cell] |= ROBOT;
    }
    request(env);
}

static void lift(Hall* env, int32_t robot, int32_t cell) {
    const bool wanted = env->board[cell] & REQUESTED;
    env->loads[robot] = wanted ? WANTED : ORDINARY;
    env->board[cell] &= (uint8_t)~(SHELF | REQUESTED);
    list(env->free, &env->num_free, cell);
    if (!wanted) return;
    unlist(env->wanted, &env->num_wanted, cell);
    puf_reward(&env->slots, robot, env->reward_lift);
}

static void put_down(Hall* env, int32_t robot, int32_t cell) {
    env->board[cell] |= SHELF;
    unlist(env->free, &env->num_free, cell);
    if (env->loads[robot] == WANTED) {
        env->board[cell] |= REQUESTED;
        list(env->wanted, &env->num_wanted, cell);
        puf_reward(&env->slots, robot, -env->reward_lift);
    } else if (env->loads[robot] == DELIVERED) {
        puf_reward(&env->slots, robot, env->reward_store);
    }
    env->loads[robot] = NO_LOAD;
}

static void act(Hall* env, int32_t robot) {
    const int32_t action = puf_action(&env->slots, robot), from = env->cells[robot];
    const uint8_t here = env->board[from], load = env->loads[robot];
    if (action == 4) {
        if (!load && (here & SHELF))
            lift(env, robot, from);
        else if (load && (here & PLACE) && !(here & SHELF))
            put_down(env, robot, from);
        return;
    }
    const int32_t to = puf_grid_beside(STRIDE, from, action);
    if (env->board[to] & (load ? WALL | ROBOT | SHELF : WALL | ROBOT)) return;
    env->board[from] &= (uint8_t)~ROBOT;
    env->board[to] |= ROBOT;
    env->cells[robot] = (int16_t)to;
    if (load != WANTED || !(env->board[to] & STATION)) return;
    env->loads[robot] = DELIVERED;
    env->delivered++;
    puf_reward(&env->slots, robot, env->reward_deliver);
}

static PufStatus step(Hall* env) {
    const int32_t first = env->slots.tick % env->num_agents;
    for (int32_t robot = first; robot < env->num_agents; robot++) act(env, robot);
    for (int32_t robot = 0; robot < first; robot++) act(env, robot);
    if (env->num_wanted < env->num_requests) request(env);
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)env->delivered;
    env->perf = fminf(1, env->score / (float)env->par);
    return PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

// Where a robot should go, or 0.
static int32_t destination(const Hall* env, int32_t robot) {
    const int32_t cell = env->cells[robot];
    if (env->loads[robot] == WANTED)
        return puf_grid_nearest(STRIDE, cell, env->stations, env->num_stations);
    if (env->loads[robot]) return puf_grid_nearest(STRIDE, cell, env->free, env->num_free);
    return env->num_wanted ? puf_grid_nearest(STRIDE, cell, env->wanted, env->num_wanted) : 0;
}

static void observe(const Hall* env) {
    for (int32_t robot = 0; robot < env->num_agents; robot++) {
        uint8_t window[WINDOW], *out = puf_obs_u8(&env->slots, robot);
        const int32_t cell = env->cells[robot], to = destination(env, robot);
        puf_grid_window(env->board, STRIDE, VISION, cell, window);
        puf_grid_bits(window, WINDOW, NUM_PLANES, out);
        out += NUM_PLANES * WINDOW;
        *out++ = env->loads[robot] != NO_LOAD;
        *out++ = env->loads[robot] == WANTED;
        *out++ = env->loads[robot] == DELIVERED;
        puf_grid_compass(STRIDE, cell, to ? to : cell, out);
        out[4] = to == cell;
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, MAX_PICTURE = 576, MAX_PIXELS = 40 };

static int32_t pixels_per_cell(const Hall* env) {
    const int32_t width = width_of(env), height = height_of(env);
    const int32_t pixels = MAX_PICTURE / (width > height ? width : height);
    return pixels > MAX_PIXELS ? MAX_PIXELS : pixels;
}

static void draw_shelf(PufCanvas* canvas, float x, float y, float size, bool wanted) {
    const uint32_t wood = wanted ? PUF_YELLOW : PUF_BROWN;
    puf_rect(canvas, x + 0.08f * size, y + 0.08f * size, 0.84f * size, 0.84f * size,
             puf_blend(wood, PUF_BLACK, 0.35f));
    for (int32_t i = 0; i < 4; i++) {  // four boxes
        const float left = x + (i % 2 ? 0.53f : 0.14f) * size;
        const float top = y + (i < 2 ? 0.14f : 0.53f) * size;
        puf_rect(canvas, left, top, 0.33f * size, 0.33f * size, wood);
        puf_rect(canvas, left, top + 0.13f * size, 0.33f * size, 0.05f * size,
                 puf_blend(wood, PUF_WHITE, 0.5f));
    }
}

static void draw_robot(PufCanvas* canvas, float x, float y, float size, int32_t load) {
    puf_circle(canvas, x + 0.5f * size, y + 0.5f * size, 0.46f * size, PUF_INK);
    puf_circle(canvas, x + 0.5f * size, y + 0.5f * size, 0.41f * size, PUF_ORANGE);
    puf_circle(canvas, x + 0.5f * size, y + 0.5f * size, 0.12f * size, PUF_PAPER);
    if (load) draw_shelf(canvas, x + 0.17f * size, y + 0.17f * size, 0.66f * size, load == WANTED);
}

static void render(const Hall* env, PufCanvas* canvas) {
    const float pixels = (float)pixels_per_cell(env);
    puf_clear(canvas, PUF_INK);
    for (int32_t row = 0; row < height_of(env); row++)
        for (int32_t col = 0; col < width_of(env); col++) {
            const uint8_t flags = env->board[puf_grid_cell(STRIDE, VISION, row, col)];
            const float x = (float)col * pixels, y = HEADER + (float)row * pixels;
            puf_rect(canvas, x, y, pixels, pixels, (row + col) % 2 ? 0xB8BFC6 : 0xB1B8C0);
            if (flags & PLACE)
                puf_rect_outline(canvas, x + 2, y + 2, pixels - 4, pixels - 4, 2, 0x95A0AA);
            if (flags & STATION) {
                puf_rect(canvas, x, y, pixels, pixels, PUF_GREEN);
                puf_text(canvas, x + 0.5f * pixels - 5, y + 0.5f * pixels - 7, 2, PUF_INK, "S");
            }
            if (flags & SHELF) draw_shelf(canvas, x, y, pixels, flags & REQUESTED);
        }
    for (int32_t robot = 0; robot < env->num_agents; robot++) {
        const int32_t cell = env->cells[robot];
        draw_robot(canvas, (float)(cell % STRIDE - VISION) * pixels,
                   HEADER + (float)(cell / STRIDE - VISION) * pixels, pixels, env->loads[robot]);
    }
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "DELIVERED %d  REQUESTED %d  STEP %d",
              (int)env->delivered, (int)env->num_wanted, (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool is_listed(const int16_t* cells, int32_t count, int32_t cell) {
    for (int32_t i = 0; i < count; i++)
        if (cells[i] == cell) return true;
    return false;
}

// The flags of the board are those of the hall, the robots and the two lists, and every load has
// left a free place.
static bool valid(const Hall* env) {
    const int32_t width = width_of(env), height = height_of(env);
    if (env->slots.tick >= env->max_steps || env->num_wanted < 0 ||
        env->num_wanted > env->num_requests || env->num_free < 0 || env->num_free > env->num_agents)
        return false;
    int32_t loads = 0, robots = 0, wanted = 0, free = 0, open = env->num_wanted;
    for (int32_t robot = 0; robot < env->num_agents; robot++) {
        const int32_t cell = env->cells[robot];
        if (!puf_grid_is_inside(STRIDE, VISION, width, height, cell) ||
            !(env->board[cell] & ROBOT) || is_listed(env->cells, robot, cell) ||
            env->loads[robot] > DELIVERED || (env->loads[robot] && (env->board[cell] & SHELF)))
            return false;
        loads += env->loads[robot] != NO_LOAD;
        open += env->loads[robot] == WANTED;
    }
    for (int32_t i = 0; i < env->num_stations; i++)
        if (env->stations[i] != station_cell(env, i)) return false;
    for (int32_t cell = 0; cell < CELLS; cell++) {
        const uint8_t flags = env->board[cell];
        if (!puf_grid_is_inside(STRIDE, VISION, width, height, cell)) {
            if (flags != WALL) return false;
            continue;
        }
        const uint8_t ground = ground_at(env, cell / STRIDE - VISION, cell % STRIDE - VISION);
        if ((flags & (PLACE | STATION)) != ground || (flags & WALL) || flags > 63 ||
            ((flags & SHELF) && ground != PLACE) || ((flags & REQUESTED) && !(flags & SHELF)))
            return false;
        if ((flags & REQUESTED) && !is_listed(env->wanted, env->num_wanted, cell)) return false;
        if (ground == PLACE && !(flags & SHELF) && !is_listed(env->free, env->num_free, cell))
            return false;
        robots += (flags & ROBOT) != 0;
        wanted += (flags & REQUESTED) != 0;
        free += ground == PLACE && !(flags & SHELF);
    }
    return robots == env->num_agents && wanted == env->num_wanted && free == env->num_free &&
           loads == env->num_free && open <= env->num_requests && env->delivered >= 0 &&
           env->delivered <= env->num_agents * env->slots.tick;
}

static void shape(const void* self, PufLayout* layout) {
    const Hall* env = self;
    layout->agents = env->num_agents;
    layout->width = width_of(env) * pixels_per_cell(env);
    layout->height = height_of(env) * pixels_per_cell(env) + HEADER;
}

PUF_ENV(warehouse, Hall, .doc = "bring requested shelves to the stations and put them back",
        .group = "many agents", .action_names = "up right down left load", .shape = shape,
        .layout = {.agents = 6,
                   .obs = {.dtype = PUF_U8, .ndim = 1, .shape = {FEATURES}, .low = 0, .high = 1},
                   .actions = PUF_DISCRETE(5)});
