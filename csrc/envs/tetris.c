// tetris - steer falling pieces so that they fill rows; full rows vanish.
//
// Ten columns, twenty visible rows and two hidden ones above, where pieces appear. The seven pieces
// come from bags: each bag holds every piece once, in random order. Rotation is plain: the
// orientations of the Super Rotation System without its wall kicks; a turn into an occupied cell
// does not happen. One step: the action moves the piece, then, every `gravity` steps, it falls by a
// row. A piece that should fall and cannot is locked; a soft drop falls by one row at once, a hard
// drop falls all the way and locks. The episode ends when a new piece has no room, or when
// par_lines rows are cleared (a sprint); it is truncated at max_steps.
//
// Observed are, as numbers between -1 and 1: height and holes of each column; flags for the falling
// piece, the next one and the orientation; column and row of the piece; how far it would drop, and
// the rows, holes and unevenness that the drop would add. A hole is an empty cell below a filled
// one; unevenness is the sum of the differences of neighbouring heights.
//
// A cleared row earns 1. A hole costs reward_shape and a cell of unevenness a fifth of that; both
// are given back when they vanish. The end for lack of room costs 1.
#include "puf_env.h"

enum {
    COLS = 10,
    VISIBLE = 20,
    HIDDEN = 2,
    ROWS = VISIBLE + HIDDEN,
    FLOOR = 3,  // full rows below, for the lower part of a piece's box
    LEFT_WALL = 3,
    NUM_PIECES = 7,
    NUM_TURNS = 4,
    BOX = 4,
    OBS = 2 * COLS + 2 * NUM_PIECES + NUM_TURNS + 6
};
enum { STAY, LEFT, RIGHT, TURN, TURN_BACK, SOFT_DROP, HARD_DROP, NUM_ACTIONS };

// Column c is bit LEFT_WALL + c; the bits around the columns are walls.
typedef uint16_t Row;
static const Row WALLS = (Row) ~(0x3FF << LEFT_WALL), FULL = 0xFFFF;

typedef struct {
    Row rows[ROWS + FLOOR];
    int8_t colors[ROWS][COLS];  // 0 is empty, else 1 + piece; for the picture
    int32_t piece, turn, x, y;  // the falling piece and the top left corner of its box
    int32_t next, bag;          // bag: bits of the pieces that are left in it
} Board;

typedef struct {
    PufSlots slots;
    Board board;
    int32_t fall;  // steps since the piece fell
    int32_t lines;
    float score, perf, pieces;
    int32_t dropped;  // pieces locked
    int32_t gravity, par_lines, max_steps;
    float reward_shape;
} Tetris;

static const PufField params[] = {
    PUF_PARAM_I32(Tetris, gravity, 4, 1, 100, "steps in which a piece falls by one row"),
    PUF_PARAM_I32(Tetris, par_lines, 40, 1, 100000, "rows to clear: the episode's goal"),
    PUF_PARAM_I32(Tetris, max_steps, 10000, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Tetris, reward_shape, 0.2, 0, 1, "cost of a hole"),
};

static const PufField metrics[] = {
    PUF_METRIC(Tetris, score, "rows cleared"),
    PUF_METRIC(Tetris, perf, "rows cleared / par_lines, at most 1"),
    PUF_METRIC(Tetris, pieces, "pieces placed"),
};

// ---- Pieces -------------------------------------------------------------------------------------

// I O T S Z J L in four orientations, each turned clockwise from the one before. Cell (row, column)
// of the 4 x 4 box is bit 4 * row + column.
static const uint16_t shapes[NUM_PIECES][NUM_TURNS] = {
    {0x00F0, 0x4444, 0x0F00, 0x2222}, {0x0066, 0x0066, 0x0066, 0x0066},
    {0x0072, 0x0262, 0x0270, 0x0232}, {0x0036, 0x0462, 0x0360, 0x0231},
    {0x0063, 0x0264, 0x0630, 0x0132}, {0x0071, 0x0226, 0x0470, 0x0322},
    {0x0074, 0x0622, 0x0170, 0x0223}};

static inline Row shape_row(uint16_t shape, int32_t row, int32_t x) {
    return (Row)((shape >> (BOX * row) & 15) << (x + LEFT_WALL));
}

// Whether a piece at (x, y) touches nothing. Inside the walls x is in -2..8, so no row is cut off.
static inline bool fits(const Board* board, uint16_t shape, int32_t x, int32_t y) {
    if (x < -LEFT_WALL || x > COLS - 1 || y > ROWS - 1) return false;
    Row touched = 0;
    for (int32_t row = 0; row < BOX; row++)
        touched |= shape_row(shape, row, x) & board->rows[y + row];
    return !touched;
}

static inline uint16_t shape_of(const Board* board) { return shapes[board->piece][board->turn]; }

// ---- Rules --------------------------------------------------------------------------------------

static int32_t draw_piece(Board* board, PufRng* rng) {
    if (!board->bag) board->bag = (1 << NUM_PIECES) - 1;
    int32_t left = puf_rand_int(rng, __builtin_popcount((uint32_t)board->bag)), piece = 0;
    while (!(board->bag >> piece & 1) || left-- > 0) piece++;
    board->bag &= ~(1 << piece);
    return piece;
}

// The next piece appears in the middle of the hidden rows; whether it has room.
static bool spawn(Tetris* env) {
    Board* board = &env->board;
    board->piece = board->next;
    board->next = draw_piece(board, &env->slots.rng);
    board->turn = 0;
    board->x = COLS / 2 - 2;
    board->y = 0;
    env->fall = 0;
    return fits(board, shape_of(board), board->x, board->y);
}

// The row at which the piece comes to rest.
static inline int32_t landing(const Board* board) {
    int32_t y = board->y;
    while (fits(board, shape_of(board), board->x, y + 1)) y++;
    return y;
}

// Puts the piece into the rows at `y` and removes full rows; returns how many there were.
static inline int32_t merge(const Board* board, int32_t y, Row rows[ROWS + FLOOR]) {
    int32_t lines = 0;
    memcpy(rows, board->rows, sizeof board->rows);
    for (int32_t row = 0; row < BOX; row++)
        rows[y + row] |= shape_row(shape_of(board), row, board->x);
    for (int32_t row = y; row < y + BOX && row < ROWS; row++) {
        if (rows[row] != FULL) continue;
        memmove(rows + 1, rows, (size_t)row * sizeof(Row));
        rows[0] = WALLS;
        lines++;
    }
    return lines;
}

typedef struct {
    int32_t heights[COLS], holes[COLS], sum_holes, unevenness;
} Surface;

// Heights by a scan from the top: a column's height is set where its first cell appears, and empty
// cells below are holes.
static inline Surface survey(const Row rows[ROWS + FLOOR]) {
    Surface surface = {0};
    Row above = 0;
    for (int32_t row = 0; row < ROWS; row++) {
        const Row cells = (Row)(rows[row] & ~WALLS), fresh = cells & (Row)~above;
        for (Row left = fresh; left; left &= (Row)(left - 1))
            surface.heights[__builtin_ctz(left) - LEFT_WALL] = ROWS - row;
        for (Row left = above & (Row)~cells; left; left &= (Row)(left - 1)) {
            surface.holes[__builtin_ctz(left) - LEFT_WALL]++;
            surface.sum_holes++;
        }
        above |= cells;
    }
    for (int32_t col = 1; col < COLS; col++) {
        const int32_t step = surface.heights[col] - surface.heights[col - 1];
        surface.unevenness += step < 0 ? -step : step;
    }
    return surface;
}

// Colours follow the rows; they matter to pictures only.
static void paint(Board* board) {
    for (int32_t i = 0; i < BOX * BOX; i++)
        if (shape_of(board) >> i & 1)
            board->colors[board->y + i / BOX][board->x + i % BOX] = (int8_t)(1 + board->piece);
    for (int32_t row = board->y; row < board->y + BOX && row < ROWS; row++) {
        bool full = true;
        for (int32_t col = 0; col < COLS; col++) full = full && board->colors[row][col];
        if (!full) continue;
        memmove(board->colors[1], board->colors[0], (size_t)row * COLS);
        memset(board->colors[0], 0, COLS);
    }
}

// Locks the piece where it is; whether the next one has room.
static bool lock(Tetris* env) {
    Board* board = &env->board;
    Row rows[ROWS + FLOOR];
    const Surface before = survey(board->rows);
    const int32_t lines = merge(board, board->y, rows);
    const Surface after = survey(rows);
    paint(board);
    memcpy(board->rows, rows, sizeof rows);
    env->lines += lines;
    env->dropped++;
    const float holes = (float)(after.sum_holes - before.sum_holes);
    const float unevenness = (float)(after.unevenness - before.unevenness);
    puf_reward(&env->slots, 0, (float)lines - env->reward_shape * (holes + 0.2f * unevenness));
    return spawn(env);
}

static void reset(Tetris* env) {
    Board* board = &env->board;
    memset(board->colors, 0, sizeof board->colors);
    for (int32_t row = 0; row < ROWS + FLOOR; row++) board->rows[row] = row < ROWS ? WALLS : FULL;
    env->lines = env->dropped = 0;
    board->bag = 0;
    board->next = draw_piece(board, &env->slots.rng);
    spawn(env);
}

// Moves by the action; whether the piece is to fall by a row now.
static bool steer(Tetris* env, int32_t action) {
    Board* board = &env->board;
    const int32_t x = board->x + (action == RIGHT) - (action == LEFT);
    const int32_t turn = (board->turn + (action == TURN) + 3 * (action == TURN_BACK)) % NUM_TURNS;
    if (fits(board, shapes[board->piece][turn], x, board->y)) {
        board->x = x;
        board->turn = turn;
    }
    if (action == HARD_DROP) board->y = landing(board);
    env->fall++;
    return action == SOFT_DROP || action == HARD_DROP || env->fall >= env->gravity;
}

static PufStatus step(Tetris* env) {
    Board* board = &env->board;
    bool alive = true;
    if (steer(env, puf_action(&env->slots, 0))) {
        if (fits(board, shape_of(board), board->x, board->y + 1)) {
            board->y++;
            env->fall = 0;
        } else {
            alive = lock(env);
        }
    }
    const bool done = env->lines >= env->par_lines;
    if (!alive && !done) puf_reward(&env->slots, 0, -1);
    if (alive && !done && env->slots.tick < env->max_steps) return PUF_RUNNING;
    env->score = (float)env->lines;
    env->perf = done ? 1 : (float)env->lines / (float)env->par_lines;
    env->pieces = (float)env->dropped;
    return alive && !done ? PUF_TRUNCATED : PUF_TERMINATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Tetris* env) {
    const Board* board = &env->board;
    float* obs = puf_obs_f32(&env->slots, 0);
    Row rows[ROWS + FLOOR];
    const Surface now = survey(board->rows);
    const int32_t y = fits(board, shape_of(board), board->x, board->y) ? landing(board) : board->y;
    const int32_t lines = merge(board, y, rows);
    const Surface then = survey(rows);
    memset(obs, 0, OBS * sizeof(float));
    for (int32_t col = 0; col < COLS; col++) {
        obs[col] = (float)now.heights[col] * (1.0f / ROWS);
        obs[COLS + col] = (float)now.holes[col] * (1.0f / ROWS);
    }
    obs += 2 * COLS;
    obs[board->piece] = 1;
    obs[NUM_PIECES + board->next] = 1;
    obs[2 * NUM_PIECES + board->turn] = 1;
    obs += 2 * NUM_PIECES + NUM_TURNS;
    obs[0] = (float)board->x * (1.0f / COLS);
    obs[1] = (float)board->y * (1.0f / ROWS);
    obs[2] = (float)(y - board->y) * (1.0f / ROWS);
    obs[3] = (float)lines * 0.25f;
    obs[4] = (float)(then.sum_holes - now.sum_holes) * (1.0f / (COLS * ROWS)) * 10;
    obs[5] = (float)(then.unevenness - now.unevenness) * (1.0f / (COLS * ROWS)) * 10;
    for (int32_t i = 4; i < 6; i++) obs[i] = obs[i] < -1 ? -1 : obs[i] > 1 ? 1 : obs[i];
}

// ---- Picture ------------------------------------------------------------------------------------

enum { PIXELS = 24, MARGIN = 16, PANEL = 150 };

static const uint32_t piece_colors[NUM_PIECES] = {PUF_CYAN, PUF_YELLOW, PUF_PURPLE, PUF_GREEN,
                                                  PUF_RED,  PUF_BLUE,   PUF_ORANGE};

static void draw_cell(PufCanvas* canvas, float x, float y, uint32_t color) {
    puf_rect(canvas, x, y, PIXELS, PIXELS, puf_blend(color, PUF_BLACK, 0.35f));
    puf_rect(canvas, x + 1, y + 1, PIXELS - 4, PIXELS - 4, color);
    puf_rect(canvas, x + 1, y + 1, PIXELS - 4, 4, puf_blend(color, PUF_WHITE, 0.4f));
}

static void draw_piece_at(PufCanvas* canvas, uint16_t shape, float x, float y, float top,
                          uint32_t color, bool ghost) {
    for (int32_t i = 0; i < BOX * BOX; i++) {
        const float left = x + (float)(i % BOX * PIXELS), up = y + (float)(i / BOX * PIXELS);
        if (!(shape >> i & 1) || up < top) continue;
        if (ghost)
            puf_rect_outline(canvas, left + 1, up + 1, PIXELS - 2, PIXELS - 2, 2, color);
        else
            draw_cell(canvas, left, up, color);
    }
}

static void render(const Tetris* env, PufCanvas* canvas) {
    const Board* board = &env->board;
    const float left = MARGIN, top = MARGIN, panel = 2 * MARGIN + COLS * PIXELS;
    const float x = left + (float)(board->x * PIXELS), up = top - HIDDEN * PIXELS;
    puf_clear(canvas, PUF_SLATE);
    puf_rect(canvas, left - 4, top - 4, COLS * PIXELS + 8, VISIBLE * PIXELS + 8, PUF_GREY);
    puf_rect(canvas, left, top, COLS * PIXELS, VISIBLE * PIXELS, PUF_INK);
    for (int32_t row = HIDDEN; row < ROWS; row++)
        for (int32_t col = 0; col < COLS; col++) {
            const float cx = left + (float)(col * PIXELS), cy = up + (float)(row * PIXELS);
            puf_rect_outline(canvas, cx, cy, PIXELS, PIXELS, 1, 0x0D2440);
            if (board->colors[row][col])
                draw_cell(canvas, cx, cy, piece_colors[board->colors[row][col] - 1]);
        }
    const uint32_t color = piece_colors[board->piece];
    draw_piece_at(canvas, shape_of(board), x, up + (float)(landing(board) * PIXELS), top, color,
                  true);
    draw_piece_at(canvas, shape_of(board), x, up + (float)(board->y * PIXELS), top, color, false);
    puf_text(canvas, panel, 24, 2, PUF_PAPER, "NEXT");
    puf_rect(canvas, panel - 4, 46, PANEL - MARGIN, 4 * PIXELS, PUF_INK);
    draw_piece_at(canvas, shapes[board->next][0], panel + 14, 46 + PIXELS, 0,
                  piece_colors[board->next], false);
    puf_textf(canvas, panel, 170, 2, PUF_PAPER, "LINES\n%d/%d", (int)env->lines,
              (int)env->par_lines);
    puf_textf(canvas, panel, 230, 2, PUF_PAPER, "PIECES\n%d", (int)env->dropped);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Tetris* env) {
    const Board* board = &env->board;
    if (board->piece < 0 || board->piece >= NUM_PIECES || board->next < 0 ||
        board->next >= NUM_PIECES || board->turn < 0 || board->turn >= NUM_TURNS ||
        board->bag < 0 || board->bag >= 1 << NUM_PIECES || board->x < -LEFT_WALL ||
        board->x >= COLS || board->y < 0 || board->y >= ROWS)
        return false;
    for (int32_t row = 0; row < ROWS + FLOOR; row++) {
        const Row cells = board->rows[row];
        if (row >= ROWS ? cells != FULL : (cells & WALLS) != WALLS || cells == FULL) return false;
        for (int32_t col = 0; col < COLS && row < ROWS; col++) {
            const int32_t color = board->colors[row][col];
            if (color < 0 || color > NUM_PIECES || (color != 0) != (cells >> (LEFT_WALL + col) & 1))
                return false;
        }
    }
    return fits(board, shape_of(board), board->x, board->y) && env->fall >= 0 &&
           env->fall < env->gravity && env->lines >= 0 && env->lines < env->par_lines &&
           env->dropped >= 0 && env->dropped <= env->slots.tick && env->slots.tick < env->max_steps;
}

PUF_ENV(tetris, Tetris, .doc = "steer falling pieces to fill rows", .group = "arcade",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {OBS}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(NUM_ACTIONS),
                   .width = COLS * PIXELS + 2 * MARGIN + PANEL,
                   .height = VISIBLE * PIXELS + 2 * MARGIN});
