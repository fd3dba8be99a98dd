// memory - watch a string of bits, wait, then repeat it. The observation is the bit while it is
// shown, as -1 or +1; 0 during the wait; then a cursor in (0, 0.5] that marks which bit to answer
// but not its value. A policy without recurrent state gets each bit right half of the time.
//
// With length L and delay D an episode has 2 L + D steps. Observation t = 0 .. L-1 shows bit t; the
// action taken on observation L + D + i is the answer for bit i; all other actions are ignored.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    uint64_t bits, answers;  // bit i of the string; of the answers so far
    int32_t right;           // correct answers
    float score, perf;
    int32_t length, delay;
} Memory;

enum { MAX_LENGTH = 64 };  // bits of a word

static const PufField params[] = {
    PUF_PARAM_I32(Memory, length, 2, 1, MAX_LENGTH, "bits to remember"),
    PUF_PARAM_I32(Memory, delay, 2, 0, 100000, "steps between the last bit and the first answer"),
};

static const PufField metrics[] = {
    PUF_METRIC(Memory, score, "bits repeated correctly"),
    PUF_METRIC(Memory, perf, "1 if the whole string is repeated correctly, else 0"),
};

static uint64_t bit(uint64_t word, int32_t i) { return word >> i & 1; }

static void reset(Memory* env) {
    env->bits = puf_rand_u64(&env->slots.rng);
    env->answers = 0;
    env->right = 0;
}

static PufStatus step(Memory* env) {
    int32_t answer = env->slots.tick - 1 - env->length - env->delay;  // index of the bit to answer
    if (answer < 0) return PUF_RUNNING;
    uint64_t action = (uint64_t)puf_action(&env->slots, 0);
    env->answers |= action << answer;
    if (action == bit(env->bits, answer)) {
        env->right++;
        puf_reward(&env->slots, 0, 1.0f / (float)env->length);
    }
    env->score = (float)env->right;
    env->perf = env->right == env->length;
    return answer == env->length - 1 ? PUF_TERMINATED : PUF_RUNNING;
}

static void observe(const Memory* env) {
    int32_t tick = env->slots.tick, answer = tick - env->length - env->delay;
    float seen = 0;
    if (tick < env->length)
        seen = bit(env->bits, tick) ? 1 : -1;
    else if (answer >= 0 && answer < env->length)
        seen = 0.5f * (float)(answer + 1) / (float)env->length;
    puf_obs_f32(&env->slots, 0)[0] = seen;
}

// Two rows of lamps, dark for 0 and lit for 1: the part of the string shown so far, and the answers
// with a green or red frame. The bar between them shows the progress of the episode.
static void render(const Memory* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const int32_t length = env->length, delay = env->delay, tick = env->slots.tick;
    const int32_t columns = length < 16 ? length : 16, rows = (length + 15) / 16;
    const int32_t given = tick - length - delay;  // answers so far
    const float margin = 0.04f * width, board = 0.3f * height;
    const float cell =
        fminf(fminf((width - 2 * margin) / (float)columns, board / (float)rows), 0.15f * width);
    const char* phase = tick < length ? "WATCH" : given < 0 ? "WAIT" : "REPEAT";
    puf_clear(canvas, PUF_INK);
    puf_text(canvas, margin, margin, 2, given < 0 ? PUF_YELLOW : PUF_GREEN, phase);
    puf_textf(canvas, width - margin - 12 * 7, margin, 2, PUF_PAPER, "%3d/%d", (int)env->right,
              (int)length);
    for (int32_t i = 0; i < length; i++) {
        float x = 0.5f * (width - cell * (float)columns) + ((float)(i % 16) + 0.5f) * cell;
        float y =
            0.14f * height + 0.5f * (board - cell * (float)rows) + ((float)(i / 16) + 0.5f) * cell;
        bool shown = i <= tick;
        puf_circle(canvas, x, y, 0.4f * cell, PUF_SLATE);
        if (shown && bit(env->bits, i)) puf_circle(canvas, x, y, 0.33f * cell, PUF_YELLOW);
        if (shown && !bit(env->bits, i)) puf_circle(canvas, x, y, 0.33f * cell, PUF_BLACK);
        if (i == tick) puf_ring(canvas, x, y, 0.46f * cell, 0.06f * cell, PUF_PAPER);
        y += 0.48f * height;
        puf_circle(canvas, x, y, 0.4f * cell, PUF_SLATE);
        if (i < given) {
            bool good = bit(env->answers, i) == bit(env->bits, i);
            puf_circle(canvas, x, y, 0.33f * cell, bit(env->answers, i) ? PUF_YELLOW : PUF_BLACK);
            puf_ring(canvas, x, y, 0.46f * cell, 0.1f * cell, good ? PUF_GREEN : PUF_RED);
        }
        if (i == given) puf_ring(canvas, x, y, 0.46f * cell, 0.06f * cell, PUF_PAPER);
    }
    const float total = (float)(2 * length + delay), bar = width - 2 * margin;
    const float at = bar * (float)tick / total, mid = 0.52f * height, thick = 0.03f * height;
    puf_rect(canvas, margin, mid, bar, thick, PUF_SLATE);
    puf_rect(canvas, margin + bar * (float)length / total, mid, bar * (float)delay / total, thick,
             0x12304F);
    puf_rect(canvas, margin, mid, at, thick, PUF_CYAN);
}

static bool valid(const Memory* env) {
    int32_t given = env->slots.tick - env->length - env->delay;  // answers so far
    return given < env->length && env->right >= 0 && env->right <= (given > 0 ? given : 0);
}

PUF_ENV(memory, Memory, .doc = "repeat a bit string after a delay", .group = "probes",
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .shape = {1}, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(2),
                   .width = 480,
                   .height = 320});
