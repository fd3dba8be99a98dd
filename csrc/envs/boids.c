// boids - birds in a sky without borders learn to fly as a flock (after Reynolds 1987).
//
// The sky is a square whose opposite edges are joined. One tick, for all birds at once: a bird
// turns by up to max_turn (first action, -1 right to 1 left), changes its speed by up to a tenth of
// the range between MIN_SPEED and MAX_SPEED (second action), and flies ahead.
//
// Then each bird is rewarded with its flocking, from 0 to 1, the product of
// - company: birds in sight / `company`, at most 1
// - alignment: mean cosine between its heading and theirs, at least 0
// - room: distance to the nearest bird / `separation`, at most 1
//
// A bird observes, ahead and left in its own frame, distances in units of `vision`: its speed and
// company; the mean position and mean heading of the birds in sight; then position and heading of
// the NUM_NEAREST nearest ones in sight, nearest first, zeros where there are fewer.
#include "puf_env.h"

enum { MAX_BIRDS = 64, NUM_NEAREST = 4, FEATURES = 6 + 4 * NUM_NEAREST };
static const float MIN_SPEED = 0.15f, MAX_SPEED = 0.45f;

// Positions in [0, size), headings of length 1.
typedef struct {
    PufSlots slots;
    float total, late;    // sums of flocking over birds and ticks; of the second half
    float total_company;  // sum of birds in sight
    float score, perf, flocking;
    int32_t num_agents, company, max_steps;
    float size, vision, separation, max_turn;
    float x[MAX_BIRDS], y[MAX_BIRDS], ahead_x[MAX_BIRDS], ahead_y[MAX_BIRDS], speed[MAX_BIRDS];
    float seen[MAX_BIRDS][FEATURES];
} Sky;

static const PufField params[] = {
    PUF_PARAM_I32(Sky, num_agents, 24, 1, MAX_BIRDS, "birds in one sky"),
    PUF_PARAM_F32(Sky, size, 24, 4, 200, "width and height of the sky"),
    PUF_PARAM_F32(Sky, vision, 5, 0.5, 50, "how far a bird sees"),
    PUF_PARAM_F32(Sky, separation, 1, 0.01, 10, "distance that birds should keep"),
    PUF_PARAM_I32(Sky, company, 6, 1, MAX_BIRDS, "birds in sight that are company enough"),
    PUF_PARAM_F32(Sky, max_turn, 0.3, 0.01, 0.5, "largest turn in a step, in radians"),
    PUF_PARAM_I32(Sky, max_steps, 256, 1, 100000, "steps before the episode is truncated"),
};

static const PufField metrics[] = {
    PUF_METRIC(Sky, score, "mean number of birds in sight of a bird"),
    PUF_METRIC(Sky, perf, "mean flocking in the second half of the episode"),
    PUF_METRIC(Sky, flocking, "mean flocking in the whole episode"),
};

// ---- What a bird sees ---------------------------------------------------------------------------

typedef struct {
    float right[MAX_BIRDS], down[MAX_BIRDS], squared[MAX_BIRDS];
} Offsets;

// Offsets to all birds, the short way round.
PUF_HOT static void measure(const Sky* env, int32_t bird, Offsets* to) {
    const float size = env->size, half = 0.5f * size, x = env->x[bird], y = env->y[bird];
    for (int32_t i = 0; i < env->num_agents; i++) {
        float right = env->x[i] - x, down = env->y[i] - y;
        right += right > half ? -size : right < -half ? size : 0;
        down += down > half ? -size : down < -half ? size : 0;
        to->right[i] = right;
        to->down[i] = down;
        to->squared[i] = right * right + down * down;
    }
}

// Inserts a bird into the list of the nearest, if it belongs there.
static inline int32_t insert(int32_t* nearest, int32_t count, const float* squared, int32_t bird) {
    int32_t at = count;
    while (at > 0 && squared[nearest[at - 1]] > squared[bird]) at--;
    if (at == NUM_NEAREST) return count;
    if (count < NUM_NEAREST) count++;
    for (int32_t i = count - 1; i > at; i--) nearest[i] = nearest[i - 1];
    nearest[at] = bird;
    return count;
}

// Fills a bird's row; returns its flocking. `company` is the number of birds in sight.
static float look(Sky* env, int32_t bird, int32_t* company) {
    Offsets to;
    measure(env, bird, &to);
    const float ahead_x = env->ahead_x[bird], ahead_y = env->ahead_y[bird];
    const float range = env->vision * env->vision, scale = 1 / env->vision;
    float right = 0, down = 0, heading_x = 0, heading_y = 0, least = 1e9f;
    int32_t nearest[NUM_NEAREST], near[MAX_BIRDS], count = 0, in_sight = 0;
    for (int32_t i = 0; i < env->num_agents; i++) {  // without a branch: chance decides it
        near[in_sight] = i;
        in_sight += (to.squared[i] <= range) & (i != bird);
    }
    for (int32_t k = 0; k < in_sight; k++) {
        const int32_t i = near[k];
        right += to.right[i];
        down += to.down[i];
        heading_x += env->ahead_x[i];
        heading_y += env->ahead_y[i];
        if (to.squared[i] < least) least = to.squared[i];
        count = insert(nearest, count, to.squared, i);
    }
    const float mean = in_sight ? 1 / (float)in_sight : 0;
    const float wanted = (float)in_sight / (float)env->company;
    const float together = wanted < 1 ? wanted : 1;
    const float aligned = mean * (heading_x * ahead_x + heading_y * ahead_y);
    float* seen = env->seen[bird];
    memset(seen, 0, sizeof env->seen[bird]);
    seen[0] = (env->speed[bird] - MIN_SPEED) / (MAX_SPEED - MIN_SPEED);
    seen[1] = together;
    seen[2] = scale * mean * (right * ahead_x + down * ahead_y);
    seen[3] = scale * mean * (right * ahead_y - down * ahead_x);
    seen[4] = aligned;
    seen[5] = mean * (heading_x * ahead_y - heading_y * ahead_x);
    for (int32_t i = 0; i < count; i++) {
        const int32_t other = nearest[i];
        float* part = seen + 6 + 4 * i;
        part[0] = scale * (to.right[other] * ahead_x + to.down[other] * ahead_y);
        part[1] = scale * (to.right[other] * ahead_y - to.down[other] * ahead_x);
        part[2] = env->ahead_x[other] * ahead_x + env->ahead_y[other] * ahead_y;
        part[3] = env->ahead_x[other] * ahead_y - env->ahead_y[other] * ahead_x;
    }
    *company = in_sight;
    if (!in_sight || aligned <= 0) return 0;
    const float gap = sqrtf(least) / env->separation;
    return together * (aligned < 1 ? aligned : 1) * (gap < 1 ? gap : 1);
}

// ---- Rules --------------------------------------------------------------------------------------

static void reset(Sky* env) {
    PufRng* rng = &env->slots.rng;
    for (int32_t i = 0; i < env->num_agents; i++) {
        float x, y, squared;
        do {  // a point in the ring gives any direction equally often
            x = puf_rand_range(rng, -1, 1);
            y = puf_rand_range(rng, -1, 1);
            squared = x * x + y * y;
        } while (squared > 1 || squared < 0.01f);
        env->ahead_x[i] = x / sqrtf(squared);
        env->ahead_y[i] = y / sqrtf(squared);
        env->x[i] = puf_rand(rng) * env->size;
        env->y[i] = puf_rand(rng) * env->size;
        env->speed[i] = puf_rand_range(rng, MIN_SPEED, MAX_SPEED);
    }
    env->total = env->late = env->total_company = 0;
    for (int32_t i = 0, company; i < env->num_agents; i++) look(env, i, &company);
}

// Back into [0, size) after at most one step across the edge.
static inline float wrap(float at, float size) {
    if (at < 0) at += size;
    return at >= size ? at - size : at;
}

static void fly(Sky* env, int32_t bird) {
    const float turn = env->max_turn * puf_action_f32(&env->slots, bird, 0), square = turn * turn;
    const float cosine = 1 - square * (0.5f - square / 24), sine = turn * (1 - square / 6);
    const float x = env->ahead_x[bird] * cosine + env->ahead_y[bird] * sine;
    const float y = env->ahead_y[bird] * cosine - env->ahead_x[bird] * sine;
    const float back = 1.5f - 0.5f * (x * x + y * y);  // Newton's step towards length 1
    env->ahead_x[bird] = x * back;
    env->ahead_y[bird] = y * back;
    float speed =
        env->speed[bird] + 0.1f * (MAX_SPEED - MIN_SPEED) * puf_action_f32(&env->slots, bird, 1);
    speed = speed < MIN_SPEED ? MIN_SPEED : speed > MAX_SPEED ? MAX_SPEED : speed;
    env->speed[bird] = speed;
    env->x[bird] = wrap(env->x[bird] + speed * env->ahead_x[bird], env->size);
    env->y[bird] = wrap(env->y[bird] + speed * env->ahead_y[bird], env->size);
}

static PufStatus step(Sky* env) {
    for (int32_t bird = 0; bird < env->num_agents; bird++) fly(env, bird);
    float sum = 0;
    int32_t in_sight = 0;
    for (int32_t bird = 0; bird < env->num_agents; bird++) {
        int32_t company;
        const float flocking = look(env, bird, &company);
        puf_reward(&env->slots, bird, flocking);
        sum += flocking;
        in_sight += company;
    }
    env->total += sum;
    env->total_company += (float)in_sight;
    if (env->slots.tick > env->max_steps / 2) env->late += sum;
    if (env->slots.tick < env->max_steps) return PUF_RUNNING;
    const float birds = (float)env->num_agents;
    env->score = env->total_company / (birds * (float)env->max_steps);
    env->flocking = env->total / (birds * (float)env->max_steps);
    env->perf = env->late / (birds * (float)(env->max_steps - env->max_steps / 2));
    return PUF_TRUNCATED;
}

// ---- Observations -------------------------------------------------------------------------------

static void observe(const Sky* env) {
    for (int32_t bird = 0; bird < env->num_agents; bird++)
        memcpy(puf_obs_f32(&env->slots, bird), env->seen[bird], sizeof env->seen[bird]);
}

// ---- Picture ------------------------------------------------------------------------------------

enum { HEADER = 28, PICTURE = 512 };

static void draw_bird(PufCanvas* canvas, float x, float y, float ahead_x, float ahead_y,
                      float length, uint32_t color) {
    const float bird[8] = {x + length * ahead_x,
                           y + length * ahead_y,
                           x - 0.7f * length * ahead_x - 0.6f * length * ahead_y,
                           y - 0.7f * length * ahead_y + 0.6f * length * ahead_x,
                           x - 0.35f * length * ahead_x,
                           y - 0.35f * length * ahead_y,
                           x - 0.7f * length * ahead_x + 0.6f * length * ahead_y,
                           y - 0.7f * length * ahead_y - 0.6f * length * ahead_x};
    puf_polygon(canvas, bird, 4, color);
}

static void render(const Sky* env, PufCanvas* canvas) {
    const float pixels = PICTURE / env->size, length = fmaxf(6, fminf(16, 0.55f * pixels));
    puf_clear(canvas, PUF_INK);
    for (int32_t band = 0; band < 16; band++)
        puf_rect(canvas, 0, HEADER + (float)band * PICTURE / 16, PICTURE, PICTURE / 16,
                 puf_blend(0x2F6DB5, 0xBFE3F5, (float)band / 15));
    float flocking = 0;
    for (int32_t i = 0; i < env->num_agents; i++) {
        const float x = env->x[i] * pixels, y = HEADER + env->y[i] * pixels;
        const uint32_t color = puf_blend(PUF_RED, PUF_PAPER, fminf(1, fmaxf(0, env->seen[i][4])));
        draw_bird(canvas, x + 3, y + 4, env->ahead_x[i], env->ahead_y[i], length, 0x2B5F96);
        draw_bird(canvas, x, y, env->ahead_x[i], env->ahead_y[i], length, color);
        flocking += env->seen[i][4];
    }
    puf_rect(canvas, 0, 0, PICTURE, HEADER, PUF_INK);
    puf_textf(canvas, 8, 8, 2, PUF_PAPER, "BIRDS %d  ALIGNMENT %.2f  STEP %d", (int)env->num_agents,
              (double)(flocking / (float)env->num_agents), (int)env->slots.tick);
}

// ---- Validation and layout ----------------------------------------------------------------------

static bool valid(const Sky* env) {
    const float most = (float)MAX_BIRDS * (float)env->max_steps;
    for (int32_t i = 0; i < env->num_agents; i++) {
        const float length = env->ahead_x[i] * env->ahead_x[i] + env->ahead_y[i] * env->ahead_y[i];
        if (!puf_within(env->x[i], 0, env->size) || !puf_within(env->y[i], 0, env->size) ||
            env->x[i] == env->size || env->y[i] == env->size || !puf_within(length, 0.9f, 1.1f) ||
            !puf_within(env->speed[i], MIN_SPEED, MAX_SPEED) || !puf_finite(env->seen[i], FEATURES))
            return false;
    }
    return puf_within(env->total, 0, most) && puf_within(env->late, 0, env->total + 1) &&
           puf_within(env->total_company, 0, most * MAX_BIRDS) && env->slots.tick < env->max_steps;
}

static void shape(const void* self, PufLayout* layout) {
    layout->agents = ((const Sky*)self)->num_agents;
}

PUF_ENV(boids, Sky, .doc = "fly together as a flock of birds", .group = "many agents",
        .action_names = "turn, speed", .shape = shape,
        .layout = {.agents = 24,
                   .obs = PUF_BOX_F32(FEATURES),
                   .actions = PUF_CONTINUOUS(2, -1, 1),
                   .width = PICTURE,
                   .height = PICTURE + HEADER});
