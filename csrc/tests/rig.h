// rig - a vec with rows of its own for C tests. Every row array lies between guards; under ASan a
// touch of a guard stops the test at the line that did it, elsewhere rig_guards_hold finds it
// later.
#ifndef PUF_RIG_H
#define PUF_RIG_H

#include <stdlib.h>

#include "puffer.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define RIG_FORBID(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define RIG_ALLOW(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define RIG_FORBID(at, bytes) ((void)(at), (void)(bytes))
#define RIG_ALLOW(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { RIG_GUARD = 64, RIG_GUARD_BYTE = 0xA5, RIG_FILL_BYTE = 0x5A, RIG_MAX_ROWS = 8 };

// Bytes between two guards.
typedef struct {
    uint8_t* memory;
    size_t bytes;
} RigRows;

// Filled with a pattern that is not a valid row, so that missing writes show.
static inline RigRows rig_rows(size_t bytes) {
    RigRows rows = {malloc(bytes + 2 * RIG_GUARD), bytes};
    if (!rows.memory) abort();
    memset(rows.memory, RIG_GUARD_BYTE, bytes + 2 * RIG_GUARD);
    memset(rows.memory + RIG_GUARD, RIG_FILL_BYTE, bytes);
    RIG_FORBID(rows.memory, RIG_GUARD);
    RIG_FORBID(rows.memory + RIG_GUARD + bytes, RIG_GUARD);
    return rows;
}

static inline uint8_t* rig_at(RigRows rows) { return rows.memory + RIG_GUARD; }

static inline bool rig_rows_guarded(RigRows rows) {
    bool good = true;
    uint8_t* guards[2] = {rows.memory, rows.memory + RIG_GUARD + rows.bytes};
    for (int32_t g = 0; g < 2; g++) {
        RIG_ALLOW(guards[g], RIG_GUARD);
        for (int32_t i = 0; i < RIG_GUARD; i++) good = good && guards[g][i] == RIG_GUARD_BYTE;
        RIG_FORBID(guards[g], RIG_GUARD);
    }
    return good;
}

static inline void rig_rows_free(RigRows rows) {
    RIG_ALLOW(rows.memory, RIG_GUARD);
    RIG_ALLOW(rows.memory + RIG_GUARD + rows.bytes, RIG_GUARD);
    free(rows.memory);
}

typedef struct {
    PufVec* vec;
    const PufBatch* batch;
    const PufEnvInfo* info;
    int32_t num_slots;
    float *obs, *rewards;  // rows as floats; use bytes of `rows` for uint8 envs
    int32_t* actions;      // [num_slots, action_words]
    uint8_t *obs_u8, *final_obs, *terminals, *truncations, *masks, *action_masks;
    RigRows rows[RIG_MAX_ROWS];
    int32_t num_rows;
} Rig;

static inline void rig_defaults(const PufEnvInfo* info, double* params) {
    for (int32_t i = 0; i < info->num_params; i++) params[i] = info->params[i].value;
}

// Index of a param, or -1.
static inline int32_t rig_param(const PufEnvInfo* info, const char* name) {
    for (int32_t i = 0; i < info->num_params; i++)
        if (!strcmp(info->params[i].name, name)) return i;
    return -1;
}

static inline uint8_t* rig_add(Rig* rig, size_t row_bytes) {
    rig->rows[rig->num_rows] = rig_rows((size_t)rig->num_slots * row_bytes);
    return rig_at(rig->rows[rig->num_rows++]);
}

static inline PufBuffers rig_buffers(const Rig* rig) {
    return (PufBuffers){.observations = rig->obs_u8,
                        .actions = rig->actions,
                        .final_observations = rig->final_obs,
                        .rewards = rig->rewards,
                        .terminals = rig->terminals,
                        .truncations = rig->truncations,
                        .masks = rig->masks,
                        .action_masks = rig->action_masks};
}

// A bound vec, not reset yet; `params` NULL: the defaults. `vec` is NULL where the core refused.
static inline Rig rig_create_as(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                                bool double_buffer, const double* params) {
    Rig rig = {.info = info};
    double defaults[PUF_MAX_PARAMS];
    rig_defaults(info, defaults);
    rig.vec =
        puf_vec_create(info, num_envs, num_threads, double_buffer, params ? params : defaults);
    if (!rig.vec) return rig;
    rig.batch = puf_vec_batch(rig.vec);
    rig.num_slots = num_envs * rig.batch->agents_per_env;
    rig.obs_u8 = rig_add(&rig, rig.batch->obs_bytes);
    rig.obs = (float*)(void*)rig.obs_u8;
    rig.final_obs = rig_add(&rig, rig.batch->obs_bytes);
    rig.actions = (int32_t*)(void*)rig_add(&rig, 4 * (size_t)rig.batch->action_words);
    rig.rewards = (float*)(void*)rig_add(&rig, sizeof(float));
    rig.terminals = rig_add(&rig, 1);
    rig.truncations = rig_add(&rig, 1);
    rig.masks = rig_add(&rig, 1);
    if (rig.batch->layout.action_masks)
        rig.action_masks = rig_add(&rig, (size_t)rig.batch->mask_width);
    PufBuffers buffers = rig_buffers(&rig);
    if (puf_vec_bind(rig.vec, &buffers)) abort();
    memset(rig.actions, 0, 4 * (size_t)rig.num_slots * (size_t)rig.batch->action_words);
    return rig;
}

static inline Rig rig_create(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                             const double* params) {
    return rig_create_as(info, num_envs, num_threads, false, params);
}

typedef struct {
    const char* name;
    double value;
} RigSetting;

// A vec that is reset with `seed`. Params are set by name and end with {0}; others are defaults.
static inline Rig rig_start(const PufEnvInfo* info, int32_t num_envs, uint64_t seed,
                            const RigSetting* settings) {
    double params[PUF_MAX_PARAMS];
    rig_defaults(info, params);
    for (; settings->name; settings++) {
        int32_t i = rig_param(info, settings->name);
        if (i < 0) abort();
        params[i] = settings->value;
    }
    Rig rig = rig_create(info, num_envs, 1, params);
    if (!rig.vec || puf_vec_reset(rig.vec, seed)) abort();
    return rig;
}
// RIG_START(&puf_env_pong, 1, 0, {"frameskip", 1}, {"speedup", 0})
#define RIG_START(info, num_envs, seed, ...) \
    rig_start(info, num_envs, seed, (const RigSetting[]){__VA_ARGS__, {0}})

// The struct of env `i`, of the env's own type.
static inline void* rig_env(const Rig* rig, int32_t i) {
    return rig->batch->envs + (size_t)i * rig->batch->env_bytes;
}

// Steps once with the same discrete action in every slot; for envs with one action component.
static inline void rig_play(Rig* rig, int32_t action) {
    for (int32_t i = 0; i < rig->num_slots; i++) rig->actions[i] = action;
    puf_vec_step(rig->vec, NULL);
}

// Plays action 0 for two episodes; whether they are truncated at step `limit` and only there.
static inline bool rig_truncates_at(Rig* rig, int32_t limit) {
    bool good = true;
    for (int32_t i = 1; i <= 2 * limit; i++) {
        rig_play(rig, 0);
        good = good && rig->truncations[0] == (i % limit == 0) && !rig->terminals[0];
    }
    return good;
}

static inline void rig_destroy(Rig* rig) {
    puf_vec_destroy(rig->vec);
    for (int32_t i = 0; i < rig->num_rows; i++) rig_rows_free(rig->rows[i]);
    *rig = (Rig){0};
}

static inline bool rig_guards_hold(const Rig* rig) {
    bool good = true;
    for (int32_t i = 0; i < rig->num_rows; i++) good = good && rig_rows_guarded(rig->rows[i]);
    return good;
}

// Random actions inside the space: any choice, any number between the bounds.
static inline void rig_act(Rig* rig, PufRng* rng) {
    const PufActions* space = &rig->batch->layout.actions;
    int32_t* word = rig->actions;
    for (int32_t slot = 0; slot < rig->num_slots; slot++) {
        for (int32_t i = 0; i < space->num_discrete; i++)
            *word++ = puf_rand_int(rng, space->nvec[i]);
        for (int32_t i = 0; i < space->num_continuous; i++) {
            float value = puf_rand_range(rng, space->low, space->high);
            memcpy(word++, &value, sizeof value);
        }
    }
}

static inline bool rig_refused(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                               const double* values, const char* named, const char* given) {
    puf_fail(PUF_OK, "%s", "");
    PufVec* vec = puf_vec_create(info, num_envs, num_threads, false, values);
    const char* line = puf_last_error();
    bool good = !vec && strstr(line, named) && strstr(line, given) && !strchr(line, '\n');
    puf_vec_destroy(vec);
    return good;
}

// The layout for these params, without building anything of that size.
static inline PufLayout rig_layout(const PufEnvInfo* info, const double* params) {
    PufLayout layout;
    if (puf_layout(info, params, &layout)) abort();
    return layout;
}

// Bytes of one env with all its rows.
static inline size_t rig_env_bytes(const PufEnvInfo* info, const PufLayout* layout) {
    size_t row = layout->obs.dtype == PUF_F32 ? 4 : 1;
    for (int32_t i = 0; i < layout->obs.ndim; i++) row *= (size_t)layout->obs.shape[i];
    size_t mask = 0;
    for (int32_t i = 0; i < layout->actions.num_discrete; i++)
        mask += (size_t)layout->actions.nvec[i];
    return info->env_bytes + layout->arena + (size_t)layout->agents * (2 * row + mask + 32);
}

#endif
