// password - enter a fixed string of bits; only the complete string is rewarded. Nothing on the way
// distinguishes right from wrong, so a trainer must explore until it succeeds by chance, and then
// remember it: one guess in 2 ^ length is right.
//
// The observation is the string entered so far: +1 for a one, -1 for a zero, 0 for bits to come.
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    uint32_t entered;  // bit i is the i-th action
    float score, perf;
    int32_t length, password;
} Password;

enum { MAX_LENGTH = 31, MAX_PASSWORD = 0x7FFFFFFF };  // the range of int32_t

static const PufField params[] = {
    PUF_PARAM_I32(Password, length, 8, 1, MAX_LENGTH, "bits in the string"),
    PUF_PARAM_I32(Password, password, 178, 0, MAX_PASSWORD,
                  "the string as a number, lowest bit first"),
};

static const PufField metrics[] = {
    PUF_METRIC(Password, score, "correct bits"),
    PUF_METRIC(Password, perf, "1 if the whole string is correct, else 0"),
};

static uint32_t bit(uint32_t word, int32_t i) { return word >> i & 1; }

static bool is_right(const Password* env, int32_t i) {
    return bit(env->entered, i) == bit((uint32_t)env->password, i);
}

static void reset(Password* env) { env->entered = 0; }

static PufStatus step(Password* env) {
    const int32_t tick = env->slots.tick;
    env->entered |= (uint32_t)puf_action(&env->slots, 0) << (tick - 1);
    if (tick < env->length) return PUF_RUNNING;
    int32_t right = 0;
    for (int32_t i = 0; i < env->length; i++) right += is_right(env, i);
    env->score = (float)right;
    env->perf = right == env->length;
    puf_reward(&env->slots, 0, env->perf);
    return PUF_TERMINATED;
}

static void observe(const Password* env) {
    float* obs = puf_obs_f32(&env->slots, 0);
    for (int32_t i = 0; i < env->length; i++)
        obs[i] = i >= env->slots.tick ? 0 : bit(env->entered, i) ? 1 : -1;
}

// A padlock and its row of dials: green for a correct bit, red for a wrong one, empty for bits to
// come.
static void render(const Password* env, PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float r = 0.14f * height, cx = 0.5f * width, top = 0.1f * height;
    puf_clear(canvas, PUF_INK);
    puf_ring(canvas, cx, top + r, r, 0.3f * r, PUF_GREY);
    puf_rect(canvas, cx - r, top + r, 0.3f * r, 1.1f * r, PUF_GREY);
    puf_rect(canvas, cx + 0.7f * r, top + r, 0.3f * r, 1.1f * r, PUF_GREY);
    puf_rect(canvas, cx - 0.7f * r, top + r, 1.4f * r, 1.1f * r, PUF_INK);
    puf_rect(canvas, cx - 1.45f * r, top + 1.9f * r, 2.9f * r, 2.2f * r, PUF_YELLOW);
    puf_circle(canvas, cx, top + 2.75f * r, 0.32f * r, PUF_INK);
    puf_rect(canvas, cx - 0.13f * r, top + 2.8f * r, 0.26f * r, 0.85f * r, PUF_INK);
    const float cell = fminf(0.92f * width / (float)env->length, 0.2f * height);
    const float left = cx - 0.5f * cell * (float)env->length, y = 0.75f * height;
    for (int32_t i = 0; i < env->length; i++) {
        const float x = left + (float)i * cell, gap = 0.06f * cell, side = cell - 2 * gap;
        const bool known = i < env->slots.tick;
        puf_rect(canvas, x + gap, y, side, 0.9f * cell,
                 !known             ? PUF_SLATE
                 : is_right(env, i) ? PUF_GREEN
                                    : PUF_RED);
        const float scale = fmaxf(0.08f * cell, 1);
        if (known)
            puf_text(canvas, x + 0.5f * cell - 2.5f * scale, y + 0.45f * cell - 3.5f * scale, scale,
                     PUF_INK, bit(env->entered, i) ? "1" : "0");
        if (i == env->slots.tick)
            puf_rect_outline(canvas, x + gap, y, side, 0.9f * cell, 2, PUF_PAPER);
    }
}

static bool valid(const Password* env) { return env->slots.tick < env->length; }

static void shape(const void* self, PufLayout* layout) {
    layout->obs.shape[0] = ((const Password*)self)->length;
}

PUF_ENV(password, Password, .doc = "guess a fixed bit string; only the complete one is rewarded",
        .group = "probes", .shape = shape,
        .layout = {.agents = 1,
                   .obs = {.dtype = PUF_F32, .ndim = 1, .low = -1, .high = 1},
                   .actions = PUF_DISCRETE(2),
                   .width = 480,
                   .height = 320});
