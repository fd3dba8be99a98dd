// puf_env.h - the only header that an environment includes.
//
// An environment is one C file: a flat struct without pointers, two tables, five static functions
// and a PUF_ENV line, in this order. The env sets its own state; the core seeds the rng, counts
// ticks, zeroes rewards, resets after an episode, keeps final observations, sums returns and
// averages metrics.
//
//     static const PufField params[], metrics[];  // what users may set; what an episode reports
//     static void reset(Type* env);               // begin an episode, at random from
//     env->slots.rng static PufStatus step(Type* env);           // one tick: read actions, move,
//     give rewards static void observe(const Type* env);       // write every agent's observation
//     (and mask) static void render(const Type* env, PufCanvas* canvas); static bool valid(const
//     Type* env);         // whether play can reach this state static void shape(const void* env,
//     PufLayout* layout);  // optional: a layout from params
//
// An env may touch only its struct, its arena (bytes directly after the struct, requested in
// `shape`) and its rows, through the accessors below. Therefore equal seeds and actions give equal
// rows for any number of threads.
#ifndef PUF_ENV_H
#define PUF_ENV_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "puf_canvas.h"
#include "puf_hot.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PUF_MAX_DIMS = 4,         // of an observation
    PUF_MAX_COMPONENTS = 16,  // discrete, and as many continuous ones
    PUF_MAX_METRICS = 16,
    PUF_MAX_PARAMS = 32,
};

// ---- Spaces -----------------------------------------------------------------------------------

typedef enum { PUF_U8, PUF_F32 } PufDtype;

typedef struct {
    PufDtype dtype;
    int32_t ndim;
    int32_t shape[PUF_MAX_DIMS];
    float low, high;  // low == high means unbounded
} PufObs;

typedef struct {
    int32_t num_discrete, num_continuous;
    int32_t nvec[PUF_MAX_COMPONENTS];  // choices of each discrete component
    float low, high;                   // bounds of every continuous component
} PufActions;

// Agents, spaces and sizes of one env. `shape` may change them according to params.
typedef struct {
    int32_t agents;
    PufObs obs;
    PufActions actions;
    bool action_masks;      // the env writes puf_action_mask rows in `observe`
    int32_t width, height;  // of a rendered picture
    size_t arena;           // bytes after the struct
} PufLayout;

#define PUF_BOX_F32(...)                                                              \
    {                                                                                 \
        .dtype = PUF_F32, .ndim = PUF_COUNT_ARGS(__VA_ARGS__), .shape = {__VA_ARGS__} \
    }
#define PUF_BOX_U8(...)                   \
    {.dtype = PUF_U8,                     \
     .ndim = PUF_COUNT_ARGS(__VA_ARGS__), \
     .shape = {__VA_ARGS__},              \
     .low = 0,                            \
     .high = 255}
#define PUF_DISCRETE(n)                \
    {                                  \
        .num_discrete = 1, .nvec = {n} \
    }
#define PUF_MULTI_DISCRETE(...)                                            \
    {                                                                      \
        .num_discrete = PUF_COUNT_ARGS(__VA_ARGS__), .nvec = {__VA_ARGS__} \
    }
#define PUF_CONTINUOUS(n, lo, hi) {.num_continuous = (n), .low = (lo), .high = (hi)}
#define PUF_COUNT_ARGS(...) ((int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

// ---- Params and metrics -----------------------------------------------------------------------

typedef enum { PUF_PARAM_FLOAT, PUF_PARAM_INT, PUF_PARAM_NAMES } PufType;

typedef struct {
    const char* name;
    PufType type;
    size_t offset;
    double value, low, high;  // default and inclusive range
    const char* doc;
    const char* choices;  // "scripted|self|random": the field holds the index
} PufField;

#define PUF_PARAM_F32(Type, field, value, low, high, doc) \
    {#field, PUF_PARAM_FLOAT, offsetof(Type, field), value, low, high, doc, NULL}
#define PUF_PARAM_I32(Type, field, value, low, high, doc) \
    {#field, PUF_PARAM_INT, offsetof(Type, field), value, low, high, doc, NULL}
#define PUF_PARAM_CHOICE(Type, field, value, num_choices, choices, doc) \
    {#field, PUF_PARAM_NAMES, offsetof(Type, field), value, 0, (num_choices) - 1, doc, choices}
#define PUF_METRIC(Type, field, doc) \
    {#field, PUF_PARAM_FLOAT, offsetof(Type, field), 0, 0, 0, doc, NULL}

// ---- Random numbers: splitmix64, one stream per env ---------------------------------------------

typedef struct {
    uint64_t state;
} PufRng;

static inline uint64_t puf_mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
static inline uint64_t puf_rand_u64(PufRng* rng) {
    return puf_mix64(rng->state += 0x9E3779B97F4A7C15u);
}
static inline uint32_t puf_rand_u32(PufRng* rng) { return (uint32_t)(puf_rand_u64(rng) >> 32); }
// Uniform in [0, 1).
static inline float puf_rand(PufRng* rng) {
    return (float)(puf_rand_u64(rng) >> 40) * (1.0f / 16777216.0f);
}
static inline float puf_rand_range(PufRng* rng, float low, float high) {
    return low + (high - low) * puf_rand(rng);
}
// Uniform in 0..n-1; 0 for n < 1.
static inline int32_t puf_rand_int(PufRng* rng, int32_t n) {
    return n < 1 ? 0 : (int32_t)(((uint64_t)puf_rand_u32(rng) * (uint32_t)n) >> 32);
}
// Standard normal (Box and Muller 1958).
static inline float puf_rand_normal(PufRng* rng) {
    float radius = sqrtf(-2.0f * logf(1.0f - puf_rand(rng)));
    return radius * cosf(6.2831853f * puf_rand(rng));
}

// ---- The batch and an env's slots ---------------------------------------------------------------

// Filled by the core. Envs use the accessors below, never these fields.
typedef struct PufBatch {
    uint8_t* envs;
    size_t env_bytes;
    int32_t num_envs, agents_per_env;
    PufLayout layout;
    size_t obs_bytes;                // of one slot
    int32_t action_words;            // 4-byte words of one slot: discrete components first
    int32_t mask_width;              // of one slot's action mask: sum of nvec
    size_t obs_stride, mask_stride;  // bytes from one slot's row to the next
    uint8_t* observations;
    const int32_t* actions;
    float* rewards;
    uint8_t *terminals, *truncations, *masks, *action_masks, *final_observations;
} PufBatch;

// First member of every env struct.
typedef struct {
    const PufBatch* batch;
    int32_t first;       // slot of agent 0
    int32_t num_agents;  // slots of this env
    PufRng rng;          // snapshots copy everything from here on
    int32_t tick;        // steps since reset; 1 in the first call of `step`
    int32_t reserved;
} PufSlots;

typedef enum { PUF_RUNNING, PUF_TERMINATED, PUF_TRUNCATED } PufStatus;

static inline float* puf_obs_f32(const PufSlots* slots, int32_t agent) {
    return (float*)(void*)(slots->batch->observations +
                           (size_t)(slots->first + agent) * slots->batch->obs_stride);
}
static inline uint8_t* puf_obs_u8(const PufSlots* slots, int32_t agent) {
    return slots->batch->observations + (size_t)(slots->first + agent) * slots->batch->obs_stride;
}
// One discrete component, always in range: a value outside counts as 0.
static inline int32_t puf_action_at(const PufSlots* slots, int32_t agent, int32_t component) {
    const PufBatch* batch = slots->batch;
    int32_t action =
        batch->actions[(size_t)(slots->first + agent) * (size_t)batch->action_words + component];
    return (uint32_t)action < (uint32_t)batch->layout.actions.nvec[component] ? action : 0;
}
static inline int32_t puf_action(const PufSlots* slots, int32_t agent) {
    return puf_action_at(slots, agent, 0);
}
// One continuous component, clipped to its bounds; NaN counts as 0, then is clipped.
static inline float puf_action_f32(const PufSlots* slots, int32_t agent, int32_t component) {
    const PufBatch* batch = slots->batch;
    const PufActions* space = &batch->layout.actions;
    float action;
    memcpy(&action,
           &batch->actions[(size_t)(slots->first + agent) * (size_t)batch->action_words +
                           space->num_discrete + component],
           sizeof action);
    if (action != action) action = 0;
    return action < space->low ? space->low : action > space->high ? space->high : action;
}
static inline void puf_reward(const PufSlots* slots, int32_t agent, float reward) {
    slots->batch->rewards[slots->first + agent] += reward;
}
// One byte per choice, 1 if legal; the components follow each other.
static inline uint8_t* puf_action_mask(const PufSlots* slots, int32_t agent) {
    return slots->batch->action_masks + (size_t)(slots->first + agent) * slots->batch->mask_stride;
}
// An agent that leaves keeps its slot, masked out, until the env resets.
static inline void puf_set_present(const PufSlots* slots, int32_t agent, bool present) {
    slots->batch->masks[slots->first + agent] = present;
}
static inline bool puf_is_present(const PufSlots* slots, int32_t agent) {
    return slots->batch->masks[slots->first + agent];
}
// Ends one agent's episode while the env continues. Set the metric fields to that agent's values
// first: they are sampled now. The agent may restart at once, or leave (puf_set_present).
void puf_end_agent(const PufSlots* slots, int32_t agent);
// Samples the metric fields as those of one agent. Envs with `own_samples` call this for each
// living agent when the whole env ends, so that long and short episodes count equally.
void puf_sample(const PufSlots* slots, int32_t agent);

// ---- Descriptor -----------------------------------------------------------------------------

typedef struct PufEnvInfo {
    const char* name;
    const char* doc;    // one line: what an agent does
    const char* group;  // probes, classic, arcade, boards, many agents, motion, worlds
    // For people, optional: the names of the choices of each discrete component, then one name for
    // each continuous component. "stay left right" or "stay left right, ground jump".
    const char* action_names;
    PufLayout layout;                                   // for the default params
    void (*shape)(const void* env, PufLayout* layout);  // optional: the layout for these params
    bool own_samples;  // metrics are per agent: the env calls puf_sample itself
    size_t env_bytes;
    const PufField *params, *metrics;
    int32_t num_params, num_metrics;
    void (*reset_one)(void* env);  // reset, then observe
    void (*step_range)(PufBatch* batch, int32_t first, int32_t last);
    void (*render)(const void* env, PufCanvas* canvas);
    bool (*valid)(const void* env);  // called before a restore
} PufEnvInfo;

// ---- Validation of snapshots --------------------------------------------------------------------

// A snapshot is raw memory, and one in a checkpoint may be forged. Before a restore the core checks
// params, tick, metrics and rows; `valid` checks the rest of struct and arena. A state that it
// accepts must be safe to step and draw for ever: indices inside their arrays, counters that cannot
// overflow, loops that end, floats that fit the integers they are cast to.
// csrc/tests/core/test_snapshot.c tests this with forged snapshots.

// For envs that are safe in any state.
#define PUF_ANY_STATE(Type)              \
    static bool valid(const Type* env) { \
        (void)env;                       \
        return true;                     \
    }
// False for NaN.
static inline bool puf_within(float value, float low, float high) {
    return value >= low && value <= high;
}
static inline bool puf_finite(const float* values, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

// ---- Joining the parts --------------------------------------------------------------------------

// Ends an env's episode: flags, final observations, metrics, tick, masks. Called by step ranges.
void puf_finish(PufSlots* slots, PufStatus status);

#define PUF_ARENA(env) ((void*)((env) + 1))

// Defines the env's only exported symbol. PUF_ENV expands the loop over a range of envs in the
// env's own file, so that `step` and `observe` are inlined. PUF_ENV_RANGE takes the env's own loop
// instead.
#define PUF_ENV(id, Type, ...)                                                      \
    static void puf_range_(PufBatch* batch, int32_t first, int32_t last) {          \
        for (int32_t i = first; i < last; i++) {                                    \
            Type* env = (Type*)(void*)(batch->envs + (size_t)i * batch->env_bytes); \
            env->slots.tick++;                                                      \
            PufStatus status = step(env);                                           \
            observe(env);                                                           \
            if (status != PUF_RUNNING) {                                            \
                puf_finish(&env->slots, status);                                    \
                reset(env);                                                         \
                observe(env);                                                       \
            }                                                                       \
        }                                                                           \
    }                                                                               \
    PUF_ENV_RANGE(id, Type, puf_range_, __VA_ARGS__)

#define PUF_ENV_RANGE(id, Type, range, ...)                                                        \
    static void puf_reset_(void* env) {                                                            \
        reset((Type*)env);                                                                         \
        observe((const Type*)env);                                                                 \
    }                                                                                              \
    static void puf_render_(const void* env, PufCanvas* canvas) {                                  \
        render((const Type*)env, canvas);                                                          \
    }                                                                                              \
    static bool puf_valid_(const void* env) { return valid((const Type*)env); }                    \
    const PufEnvInfo puf_env_##id = {.name = #id,                                                  \
                                     .env_bytes = sizeof(Type),                                    \
                                     .params = params,                                             \
                                     .num_params = (int32_t)(sizeof params / sizeof params[0]),    \
                                     .metrics = metrics,                                           \
                                     .num_metrics = (int32_t)(sizeof metrics / sizeof metrics[0]), \
                                     .reset_one = puf_reset_,                                      \
                                     .step_range = range,                                          \
                                     .render = puf_render_,                                        \
                                     .valid = puf_valid_,                                          \
                                     __VA_ARGS__}

#ifdef __cplusplus
}
#endif
#endif
