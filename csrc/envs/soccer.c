// soccer - two against two on a small pitch with walls; three goals win.
//
// Lengths are units of a pitch 40 x 26 with goals 8 wide, speeds are units per tick of the physics;
// an action lasts for `frameskip` ticks. One tick:
// 1. Each player speeds up in one of 8 directions or lets go (component 0 of the action: 0 let go,
//    then clockwise from forward), and players that overlap push each other apart.
// 2. A player that kicks (component 1) and has the ball in reach sends it away from itself; it can
//    kick again after 12 ticks.
// 3. The ball rolls, slows down and bounces off players and walls. A ball whose middle crosses the
//    line between the posts is a goal; then all return to their places.
//
// Each player observes the game in the frame of its team, which plays to the right: itself, the
// ball, its mate and both opponents, positions and velocities relative to itself, and whether it
// can kick. Rewards are those of the team: goals, the way of the ball towards the other goal, and
// the approach of its nearest player to the ball.
//
// opponent = scripted, random: two agents, the team that plays to the right. The script sends its
// nearer player behind the ball to shoot and keeps the other between ball and goal.
// opponent = self: four agents, the second two are the other team. Score and perf are those of the
// first team.
#include "puf_env.h"

enum { HALF_LENGTH = 20, HALF_HEIGHT = 13, HALF_GOAL = 4, NUM_PLAYERS = 4, COOLDOWN = 12 };
enum { NUM_FEATURES = 4 + 4 * NUM_PLAYERS + 1 };
enum { SCRIPTED, SELF, RANDOM };

static const float PLAYER = 1, BALL = 0.6f, REACH = 2.2f;  // radii; reach from middle to middle
static const float ACCELERATION = 0.06f, DRAG = 0.85f, FRICTION = 0.98f;
static const float RUN = 0.4f, KICK = 1, TOP_SPEED = 1.2f;  // of players, a kick, the ball
static const float DIAGONAL = 0.70710678f;

typedef struct {
    float x, y, vx, vy;
} Body;

typedef struct {
    float x, y;  // direction, of length 1 at most
    bool kicks;
} Wish;

typedef struct {
    PufSlots slots;
    Body players[NUM_PLAYERS], ball;  // players 0 and 1 play to the right
    int32_t cooldown[NUM_PLAYERS];
    int32_t goals[2];
    float score, perf;
    int32_t opponent, max_score, frameskip, max_steps;
    float opponent_speed, reward_ball, reward_chase;
} Soccer;

static const PufField params[] = {
    PUF_PARAM_CHOICE(Soccer, opponent, SCRIPTED, 3, "scripted|self|random",
                     "a script, two more agents, or random actions"),
    PUF_PARAM_F32(Soccer, opponent_speed, 0.6, 0, 1, "speed of the script, 1 is that of an agent"),
    PUF_PARAM_I32(Soccer, max_score, 3, 1, 1000, "goals that win the game"),
    PUF_PARAM_I32(Soccer, frameskip, 4, 1, 16, "physics ticks per step"),
    PUF_PARAM_I32(Soccer, max_steps, 500, 1, 1000000, "steps before the episode is truncated"),
    PUF_PARAM_F32(Soccer, reward_ball, 0.5, 0, 10,
                  "reward for a ball that rolls half a pitch towards the other goal"),
    PUF_PARAM_F32(Soccer, reward_chase, 0.1, 0, 10,
                  "reward for coming half a pitch nearer to the ball"),
};

static const PufField metrics[] = {
    PUF_METRIC(Soccer, score, "goals scored minus goals conceded"),
    PUF_METRIC(Soccer, perf, "1 for a won game, 0.5 for a draw, 0 for a lost one"),
};

static float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

static inline int32_t team_of(int32_t player) { return player / 2; }
// +1 for the team that plays to the right, -1 for the other: its frame is turned by half a circle.
static inline float sign_of(int32_t team) { return team == 0 ? 1.0f : -1.0f; }
static inline int32_t agents_of(const Soccer* env) { return env->opponent == SELF ? 4 : 2; }

// ---- Rules --------------------------------------------------------------------------------------

static void kick_off(Soccer* env) {
    PufRng* rng = &env->slots.rng;
    env->ball = (Body){puf_rand_range(rng, -1, 1), puf_rand_range(rng, -6, 6), 0, 0};
    for (int32_t i = 0; i < NUM_PLAYERS; i++) {
        const float sign = sign_of(team_of(i)), back = i % 2 ? -13.0f : -6.0f;
        env->players[i] =
            (Body){sign * (back + puf_rand_range(rng, -1, 1)), puf_rand_range(rng, -6, 6), 0, 0};
        env->cooldown[i] = 0;
    }
}

static void reset(Soccer* env) {
    env->goals[0] = env->goals[1] = 0;
    env->score = 0;
    env->perf = 0.5f;
    kick_off(env);
}

static void limit(Body* body, float speed) {
    const float speed2 = body->vx * body->vx + body->vy * body->vy;
    if (speed2 <= speed * speed) return;
    const float factor = speed / sqrtf(speed2);
    body->vx *= factor;
    body->vy *= factor;
}

static void keep_inside(Body* player) {
    player->x = clamp(player->x, -HALF_LENGTH + PLAYER, HALF_LENGTH - PLAYER);
    player->y = clamp(player->y, -HALF_HEIGHT + PLAYER, HALF_HEIGHT - PLAYER);
}

static void run(Body* player, Wish wish, float factor) {
    player->vx = player->vx * DRAG + ACCELERATION * wish.x;
    player->vy = player->vy * DRAG + ACCELERATION * wish.y;
    limit(player, RUN * factor);
    player->x += player->vx;
    player->y += player->vy;
    keep_inside(player);
}

static void push_apart(Soccer* env) {
    for (int32_t a = 0; a < NUM_PLAYERS; a++)
        for (int32_t b = a + 1; b < NUM_PLAYERS; b++) {
            Body *first = &env->players[a], *second = &env->players[b];
            const float dx = second->x - first->x, dy = second->y - first->y;
            const float d2 = dx * dx + dy * dy;
            if (d2 >= 4 * PLAYER * PLAYER || d2 < 1e-6f) continue;
            const float distance = sqrtf(d2), push = 0.5f * (2 * PLAYER - distance) / distance;
            first->x -= push * dx;
            first->y -= push * dy;
            second->x += push * dx;
            second->y += push * dy;
            keep_inside(first);
            keep_inside(second);
        }
}

static void kick(Soccer* env, int32_t i, bool wanted) {
    const Body* player = &env->players[i];
    Body* ball = &env->ball;
    if (env->cooldown[i]) env->cooldown[i]--;
    const float dx = ball->x - player->x, dy = ball->y - player->y, d2 = dx * dx + dy * dy;
    if (!wanted || env->cooldown[i] || d2 >= REACH * REACH || d2 < 1e-6f) return;
    const float factor = KICK / sqrtf(d2);
    ball->vx = factor * dx + 0.5f * player->vx;
    ball->vy = factor * dy + 0.5f * player->vy;
    limit(ball, TOP_SPEED);
    env->cooldown[i] = COOLDOWN;
}

// The ball loses half of the speed with which it meets a player.
static void bounce(Body* ball, const Body* player) {
    const float reach = PLAYER + BALL, dx = ball->x - player->x, dy = ball->y - player->y;
    const float d2 = dx * dx + dy * dy;
    if (d2 >= reach * reach || d2 < 1e-6f) return;
    const float inverse = 1 / sqrtf(d2), nx = dx * inverse, ny = dy * inverse;
    const float along = (ball->vx - player->vx) * nx + (ball->vy - player->vy) * ny;
    ball->x = player->x + reach * nx;
    ball->y = player->y + reach * ny;
    if (along >= 0) return;
    ball->vx -= 1.5f * along * nx;
    ball->vy -= 1.5f * along * ny;
    limit(ball, TOP_SPEED);
}

// The team that scores, or -1.
static int32_t roll(Soccer* env) {
    Body* ball = &env->ball;
    ball->x += ball->vx;
    ball->y += ball->vy;
    ball->vx *= FRICTION;
    ball->vy *= FRICTION;
    for (int32_t i = 0; i < NUM_PLAYERS; i++) bounce(ball, &env->players[i]);
    const float wall_x = HALF_LENGTH - BALL, wall_y = HALF_HEIGHT - BALL;
    if (fabsf(ball->y) > wall_y) {
        const float side = ball->y > 0 ? 1.0f : -1.0f;
        ball->y = side * wall_y;
        ball->vy = -side * fabsf(ball->vy);
    }
    if (fabsf(ball->x) <= wall_x) return -1;
    const float end = ball->x > 0 ? 1.0f : -1.0f;
    if (fabsf(ball->y) < HALF_GOAL) {
        if (fabsf(ball->x) < HALF_LENGTH) return -1;
        ball->x = end * HALF_LENGTH;
        return ball->x > 0 ? 0 : 1;
    }
    ball->x = end * wall_x;
    ball->vx = -end * fabsf(ball->vx);
    return -1;
}

// ---- The opponents ------------------------------------------------------------------------------

static Wish towards(float x, float y) {
    const float length = sqrtf(x * x + y * y);
    return length < 0.2f ? (Wish){0, 0, false} : (Wish){x / length, y / length, false};
}

// In the frame of its team: x grows towards the other goal.
static Wish script(const Soccer* env, int32_t i) {
    const float sign = sign_of(team_of(i));
    const Body *self = &env->players[i], *mate = &env->players[i ^ 1], *ball = &env->ball;
    const float x = sign * self->x, y = sign * self->y;
    const float ball_x = sign * ball->x, ball_y = sign * ball->y;
    const float dx = ball_x - x, dy = ball_y - y, d2 = dx * dx + dy * dy;
    const float mate_dx = ball->x - mate->x, mate_dy = ball->y - mate->y;
    const float mate_d2 = mate_dx * mate_dx + mate_dy * mate_dy;
    const bool nearer = d2 < mate_d2 || (d2 == mate_d2 && i % 2 == 0);
    Wish wish;
    if (!nearer && d2 > 16) {  // keep between the ball and the own goal
        wish = towards(0.5f * (ball_x - HALF_LENGTH) - x, 0.5f * ball_y - y);
    } else if (dx < 0.3f) {  // run around the ball, to get behind it
        const float side = dy > 0 ? -1.0f : 1.0f;
        wish = towards(dx - 2.5f, fabsf(dy) < 2 && dx > -3 ? dy + 2.2f * side : dy);
    } else {  // from behind, on the line to the middle of the goal
        const float goal_x = HALF_LENGTH - ball_x, goal_y = -ball_y;
        const float far = sqrtf(goal_x * goal_x + goal_y * goal_y) + 0.01f;
        const float back = d2 > 4 ? 1.2f : 0;
        wish = towards(dx - back * goal_x / far, dy - back * goal_y / far);
    }
    // Where the ball would cross the goal line; anything forward is good in the own half.
    const float cross = dx > 0.2f ? ball_y + dy / dx * (HALF_LENGTH - ball_x) : 99;
    wish.kicks = d2 < REACH * REACH && dx > 0.2f && (ball_x < -5 || fabsf(cross) < HALF_GOAL + 1);
    wish.x *= sign;
    wish.y *= sign;
    return wish;
}

static Wish by_action(int32_t direction, int32_t kicks, float sign) {
    static const float dx[] = {0, 1, DIAGONAL, 0, -DIAGONAL, -1, -DIAGONAL, 0, DIAGONAL};
    static const float dy[] = {0, 0, DIAGONAL, 1, DIAGONAL, 0, -DIAGONAL, -1, -DIAGONAL};
    return (Wish){sign * dx[direction], sign * dy[direction], kicks == 1};
}

static Wish wish_of(Soccer* env, int32_t i) {
    PufRng* rng = &env->slots.rng;
    const float sign = sign_of(team_of(i));
    if (i < agents_of(env))
        return by_action(puf_action_at(&env->slots, i, 0), puf_action_at(&env->slots, i, 1), sign);
    if (env->opponent == SCRIPTED) return script(env, i);
    return by_action(puf_rand_int(rng, 9), puf_rand_int(rng, 2), sign);
}

// ---- One step -----------------------------------------------------------------------------------

static void give(Soccer* env, int32_t team, float reward) {
    if (team * 2 >= agents_of(env)) return;
    puf_reward(&env->slots, 2 * team, reward);
    puf_reward(&env->slots, 2 * team + 1, reward);
}

// Distance of a team's nearest player to the ball.
static float gap(const Soccer* env, int32_t team) {
    float nearest = 1e9f;
    for (int32_t i = 2 * team; i < 2 * team + 2; i++) {
        const float dx = env->ball.x - env->players[i].x, dy = env->ball.y - env->players[i].y;
        nearest = fminf(nearest, dx * dx + dy * dy);
    }
    return sqrtf(nearest);
}

// One tick; the team that scores, or -1.
static int32_t tick(Soccer* env, const Wish* wishes) {
    for (int32_t i = 0; i < NUM_PLAYERS; i++) {
        const bool scripted = i >= 2 && env->opponent == SCRIPTED;
        run(&env->players[i], wishes[i], scripted ? env->opponent_speed : 1);
    }
    push_apart(env);
    for (int32_t i = 0; i < NUM_PLAYERS; i++) kick(env, i, wishes[i].kicks);
    return roll(env);
}

static PufStatus step(Soccer* env) {
    Wish wishes[NUM_PLAYERS];
    const float gaps[2] = {gap(env, 0), gap(env, 1)}, before = env->ball.x;
    int32_t scorer = -1;
    for (int32_t i = 0; i < NUM_PLAYERS; i++) wishes[i] = wish_of(env, i);
    for (int32_t t = 0; t < env->frameskip && scorer < 0; t++) scorer = tick(env, wishes);
    const float forward = env->reward_ball * (env->ball.x - before) * (1.0f / HALF_LENGTH);
    for (int32_t team = 0; team < 2; team++) {
        const float chase =
            env->reward_chase * (gaps[team] - gap(env, team)) * (1.0f / HALF_LENGTH);
        give(env, team, chase + sign_of(team) * forward);
        if (scorer >= 0) give(env, team, scorer == team ? 1 : -1);
    }
    if (scorer >= 0) env->goals[scorer]++;
    env->score = (float)(env->goals[0] - env->goals[1]);
    env->perf = env->score > 0 ? 1 : env->score < 0 ? 0 : 0.5f;
    if (scorer >= 0 && env->goals[scorer] >= env->max_score) return PUF_TERMINATED;
    if (scorer >= 0) kick_off(env);
    return env->slots.tick >= env->max_steps ? PUF_TRUNCATED : PUF_RUNNING;
}

// ---- Observations -------------------------------------------------------------------------------

static void look(const Soccer* env, int32_t i) {
    const float sign = sign_of(team_of(i)), length = sign / HALF_LENGTH;
    const float speed = sign / TOP_SPEED;
    const Body* self = &env->players[i];
    const int32_t other = team_of(i) == 0 ? 2 : 0;
    const Body* bodies[] = {&env->ball, &env->players[i ^ 1], &env->players[other],
                            &env->players[other + 1]};
    float* obs = puf_obs_f32(&env->slots, i);
    obs[0] = self->x * length;
    obs[1] = self->y * length;
    obs[2] = self->vx * speed;
    obs[3] = self->vy * speed;
    obs += 4;
    for (int32_t k = 0; k < NUM_PLAYERS; k++, obs += 4) {
        obs[0] = 0.5f * (bodies[k]->x - self->x) * length;
        obs[1] = 0.5f * (bodies[k]->y - self->y) * length;
        obs[2] = clamp(bodies[k]->vx * speed, -1, 1);
        obs[3] = clamp(bodies[k]->vy * speed, -1, 1);
    }
    obs[0] = env->cooldown[i] == 0;
}

static void observe(const Soccer* env) {
    for (int32_t i = 0; i < agents_of(env); i++) look(env, i);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { SCALE = 14, MARGIN = 24, HEADER = 40 };

static void render(const Soccer* env, PufCanvas* canvas) {
    static const uint32_t colors[] = {PUF_BLUE, PUF_RED};
    const float width = 2 * HALF_LENGTH * SCALE, height = 2 * HALF_HEIGHT * SCALE;
    const float centre_x = MARGIN + 0.5f * width, centre_y = HEADER + 0.5f * height;
    puf_clear(canvas, PUF_INK);
    for (int32_t i = 0; i < 10; i++)
        puf_rect(canvas, MARGIN + 0.1f * width * (float)i, HEADER, 0.1f * width, height,
                 i % 2 ? 0x3B8F4A : 0x429B52);
    puf_rect_outline(canvas, MARGIN, HEADER, width, height, 3, PUF_PAPER);
    puf_rect(canvas, centre_x - 1, HEADER, 3, height, PUF_PAPER);
    puf_ring(canvas, centre_x, centre_y, 4 * SCALE, 3, PUF_PAPER);
    for (float side = -1; side <= 1; side += 2) {
        const float line = centre_x + side * 0.5f * width;
        puf_rect(canvas, side < 0 ? line - MARGIN + 6 : line, centre_y - HALF_GOAL * SCALE,
                 MARGIN - 6, 2 * HALF_GOAL * SCALE, puf_blend(PUF_INK, PUF_PAPER, 0.35f));
        puf_rect_outline(canvas, side < 0 ? MARGIN : line - 5 * SCALE, centre_y - 7 * SCALE,
                         5 * SCALE, 14 * SCALE, 3, PUF_PAPER);
        for (float post = -1; post <= 1; post += 2)
            puf_circle(canvas, line, centre_y + post * HALF_GOAL * SCALE, 5, PUF_WHITE);
    }
    for (int32_t i = 0; i < NUM_PLAYERS; i++) {
        const Body* player = &env->players[i];
        const float x = centre_x + player->x * SCALE, y = centre_y + player->y * SCALE;
        puf_circle(canvas, x + 2, y + 3, PLAYER * SCALE, 0x2C6B38);
        puf_circle(canvas, x, y, PLAYER * SCALE, colors[team_of(i)]);
        puf_circle(canvas, x + 12 * player->vx, y + 12 * player->vy, 0.5f * SCALE, 0xFFD9B3);
        if (env->cooldown[i]) puf_ring(canvas, x, y, PLAYER * SCALE + 2, 2, PUF_WHITE);
    }
    const float x = centre_x + env->ball.x * SCALE, y = centre_y + env->ball.y * SCALE;
    puf_circle(canvas, x, y, BALL * SCALE, PUF_WHITE);
    puf_ring(canvas, x, y, BALL * SCALE, 2, PUF_INK);
    puf_circle(canvas, x, y, 0.3f * BALL * SCALE, PUF_INK);
    puf_textf(canvas, centre_x - 60, 8, 3, PUF_BLUE, "%d", (int)env->goals[0]);
    puf_text(canvas, centre_x - 6, 8, 3, PUF_PAPER, ":");
    puf_textf(canvas, centre_x + 40, 8, 3, PUF_RED, "%d", (int)env->goals[1]);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Soccer* env) {
    const float fastest = 1.001f * TOP_SPEED;
    for (int32_t i = 0; i < NUM_PLAYERS; i++) {
        const Body* player = &env->players[i];
        if (!puf_within(player->x, -HALF_LENGTH + PLAYER, HALF_LENGTH - PLAYER) ||
            !puf_within(player->y, -HALF_HEIGHT + PLAYER, HALF_HEIGHT - PLAYER) ||
            !puf_within(player->vx, -0.5f, 0.5f) || !puf_within(player->vy, -0.5f, 0.5f) ||
            env->cooldown[i] < 0 || env->cooldown[i] > COOLDOWN)
            return false;
    }
    return puf_within(env->ball.x, -HALF_LENGTH, HALF_LENGTH) &&
           puf_within(env->ball.y, -HALF_HEIGHT, HALF_HEIGHT) &&
           puf_within(env->ball.vx, -fastest, fastest) &&
           puf_within(env->ball.vy, -fastest, fastest) && env->goals[0] >= 0 &&
           env->goals[0] < env->max_score && env->goals[1] >= 0 && env->goals[1] < env->max_score &&
           env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) { layout->agents = agents_of(self); }

PUF_ENV(
    soccer, Soccer, .doc = "two against two on a small pitch", .group = "many agents",
    .action_names =
        "none forward forward_right right back_right back back_left left forward_left, run kick",
    .shape = shape,
    .layout = {.agents = 2,
               .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {NUM_FEATURES}, .low = -1, .high = 1},
               .actions = PUF_MULTI_DISCRETE(9, 2),
               .width = 2 * HALF_LENGTH * SCALE + 2 * MARGIN,
               .height = 2 * HALF_HEIGHT * SCALE + HEADER + MARGIN});
