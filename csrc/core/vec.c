// vec.c - a vector of envs: slots, seeding, autoreset, episode statistics, snapshots.
//
// Envs are cut into blocks whose size depends on their number alone. A block is stepped by one
// thread and has statistics of its own, so neither rows nor sums depend on the number of threads.
// Where that number is even no block lies in both halves, so that each half can step by itself.
#include <float.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "puffer.h"

#define ENV(name) extern const PufEnvInfo puf_env_##name;
#include "envs.def"
#undef ENV
#define ENV(name) &puf_env_##name,
static const PufEnvInfo* const infos[] = {
#include "envs.def"
};
#undef ENV

enum { MAX_BLOCK = 64, NUM_BLOCKS = 64, MAX_SLOTS = 1 << 26 };

typedef struct {
    _Alignas(64) PufStats stats;
} Block;

struct PufVec {
    PufBatch batch;  // first: an env's batch pointer is also its vec
    const PufEnvInfo* info;
    PufPool* pool;
    int32_t half_envs, half_blocks;  // the first half is all there is where envs are odd in number
    int32_t block_envs, num_blocks;
    Block* blocks;
    int32_t running[2], num_running;  // halves in the background, the oldest first
    bool double_buffer;
    float *returns, *final_returns;  // [slots] running; of the episode that ended last
    int32_t *lengths, *final_lengths;
    float* final_metrics;  // [slots, metrics] of the episode that ended last
    int32_t* bound_actions;
    uint8_t* candidate;        // room for one env: a state that is looked at before it is taken
    uint64_t seed, first_env;  // the number of env 0 in a larger vector, whose seeds count on
};

static _Thread_local char last_error[512] = "";

const char* puf_last_error(void) { return last_error; }

PufCode puf_fail(PufCode code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

int32_t puf_num_infos(void) { return (int32_t)(sizeof infos / sizeof infos[0]); }

const PufEnvInfo* puf_info(int32_t index) {
    return index >= 0 && index < puf_num_infos() ? infos[index] : NULL;
}

const PufEnvInfo* puf_find_info(const char* name) {
    for (int32_t i = 0; i < puf_num_infos(); i++)
        if (!strcmp(infos[i]->name, name)) return infos[i];
    return NULL;
}

uint64_t puf_env_seed(uint64_t seed, uint64_t index) {
    const uint64_t mask = 0x7FFFFFFFFFFFFFFFu;
    if (index == 0) return seed & mask;
    return puf_mix64(puf_mix64(seed + 0x9E3779B97F4A7C15u) + index * 0xD1B54A32D192ED03u) & mask;
}

// ---- Building -----------------------------------------------------------------------------------

static PufCode check_params(const PufEnvInfo* info, const double* params) {
    for (int32_t i = 0; i < info->num_params; i++) {
        const PufField* field = &info->params[i];
        double value = params[i];
        if (!(value >= field->low && value <= field->high))
            return puf_fail(PUF_BAD_ARGUMENT, "`%s` must be in [%g, %g], but got %g.", field->name,
                            field->low, field->high, value);
        if (field->type != PUF_PARAM_FLOAT && value != (double)(int32_t)value)
            return puf_fail(PUF_BAD_ARGUMENT, "`%s` must be a whole number, but got %g.",
                            field->name, value);
    }
    return PUF_OK;
}

static void write_params(const PufEnvInfo* info, const double* params, uint8_t* env) {
    for (int32_t i = 0; i < info->num_params; i++) {
        float as_float = (float)params[i];
        int32_t as_int = (int32_t)params[i];
        bool is_float = info->params[i].type == PUF_PARAM_FLOAT;
        memcpy(env + info->params[i].offset, is_float ? (void*)&as_float : (void*)&as_int, 4);
    }
}

static PufCode check_layout(const PufEnvInfo* info, const PufLayout* layout) {
    int64_t cells = 1;
    bool good = layout->agents >= 1 && layout->obs.ndim >= 1 && layout->obs.ndim <= PUF_MAX_DIMS &&
                layout->actions.num_discrete + layout->actions.num_continuous >= 1 &&
                layout->actions.num_discrete <= PUF_MAX_COMPONENTS &&
                layout->actions.num_continuous <= PUF_MAX_COMPONENTS &&
                info->num_metrics <= PUF_MAX_METRICS && info->num_params <= PUF_MAX_PARAMS;
    for (int32_t i = 0; good && i < layout->obs.ndim; i++) {
        good = layout->obs.shape[i] >= 1 && layout->obs.shape[i] <= 1 << 20;
        cells *= good ? layout->obs.shape[i] : 1;
        good = good && cells <= 1 << 24;
    }
    for (int32_t i = 0; good && i < layout->actions.num_discrete; i++)
        good = layout->actions.nvec[i] >= 1;
    return good ? PUF_OK
                : puf_fail(PUF_BAD_ARGUMENT, "env `%s` gives a bad layout for these params",
                           info->name);
}

// One allocation for all that a vec owns; pieces are 64-byte aligned.
static size_t carve(size_t* total, size_t bytes) {
    size_t at = *total;
    *total = (at + bytes + 63) / 64 * 64;
    return at;
}

static void place_envs(PufVec* vec, const double* params) {
    PufBatch* batch = &vec->batch;
    for (int32_t i = 0; i < batch->num_envs; i++) {
        uint8_t* env = batch->envs + (size_t)i * batch->env_bytes;
        write_params(vec->info, params, env);
        PufSlots* slots = (PufSlots*)(void*)env;
        slots->batch = batch;
        slots->first = i * batch->agents_per_env;
        slots->num_agents = batch->agents_per_env;
    }
}

PufVec* puf_vec_create(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                       bool double_buffer, const double* params) {
    if (num_envs < 1 || num_threads < 1 || num_threads > 1024) {
        puf_fail(PUF_BAD_ARGUMENT,
                 "`num_envs` must be at least 1 and threads in 1..1024, but got %d and %d.",
                 num_envs, num_threads);
        return NULL;
    }
    if (double_buffer && num_envs % 2) {
        puf_fail(PUF_BAD_ARGUMENT,
                 "`num_envs` must be even to be double-buffered, but got %d. Try %d.", num_envs,
                 num_envs + 1);
        return NULL;
    }
    if (check_params(info, params)) return NULL;
    PufLayout layout = info->layout;
    if (info->shape) {
        uint8_t* sample = calloc(1, info->env_bytes);
        if (!sample) {
            puf_fail(PUF_NO_MEMORY, "cannot allocate %zu bytes for one env", info->env_bytes);
            return NULL;
        }
        write_params(info, params, sample);
        info->shape(sample, &layout);
        free(sample);
    }
    if (check_layout(info, &layout)) return NULL;
    if ((int64_t)num_envs * layout.agents > MAX_SLOTS) {
        puf_fail(PUF_BAD_ARGUMENT, "`num_envs` x agents must be at most %d, but got %d x %d.",
                 MAX_SLOTS, num_envs, layout.agents);
        return NULL;
    }

    size_t num_slots = (size_t)num_envs * (size_t)layout.agents;
    size_t env_bytes = (info->env_bytes + layout.arena + 63) / 64 * 64;
    int32_t halves = num_envs % 2 ? 1 : 2;
    int32_t half_envs = num_envs / halves;
    int32_t block_envs = (half_envs + NUM_BLOCKS / halves - 1) / (NUM_BLOCKS / halves);
    if (block_envs > MAX_BLOCK) block_envs = MAX_BLOCK;
    int32_t half_blocks = (half_envs + block_envs - 1) / block_envs;
    int32_t num_blocks = halves * half_blocks;
    size_t total = 0;
    size_t vec_at = carve(&total, sizeof(PufVec));
    size_t blocks_at = carve(&total, (size_t)num_blocks * sizeof(Block));
    size_t returns_at = carve(&total, num_slots * sizeof(float));
    size_t final_returns_at = carve(&total, num_slots * sizeof(float));
    size_t lengths_at = carve(&total, num_slots * sizeof(int32_t));
    size_t final_lengths_at = carve(&total, num_slots * sizeof(int32_t));
    size_t metrics_at = carve(&total, num_slots * (size_t)info->num_metrics * sizeof(float));
    size_t candidate_at = carve(&total, env_bytes);
    size_t envs_at = carve(&total, (size_t)num_envs * env_bytes);
    uint8_t* memory = aligned_alloc(64, total);
    if (!memory) {
        puf_fail(PUF_NO_MEMORY, "cannot allocate %zu bytes for %d envs", total, num_envs);
        return NULL;
    }
    memset(memory, 0, total);
    PufVec* vec = (PufVec*)(void*)(memory + vec_at);
    size_t cells = 1;
    for (int32_t i = 0; i < layout.obs.ndim; i++) cells *= (size_t)layout.obs.shape[i];
    int32_t mask_width = 0;
    for (int32_t i = 0; i < layout.actions.num_discrete; i++) mask_width += layout.actions.nvec[i];
    *vec = (PufVec){
        .batch = {.envs = memory + envs_at,
                  .env_bytes = env_bytes,
                  .num_envs = num_envs,
                  .agents_per_env = layout.agents,
                  .layout = layout,
                  .obs_bytes = cells * (layout.obs.dtype == PUF_F32 ? 4 : 1),
                  .action_words = layout.actions.num_discrete + layout.actions.num_continuous,
                  .mask_width = mask_width},
        .info = info,
        .half_envs = half_envs,
        .half_blocks = half_blocks,
        .block_envs = block_envs,
        .num_blocks = num_blocks,
        .double_buffer = double_buffer,
        .blocks = (Block*)(void*)(memory + blocks_at),
        .returns = (float*)(void*)(memory + returns_at),
        .final_returns = (float*)(void*)(memory + final_returns_at),
        .lengths = (int32_t*)(void*)(memory + lengths_at),
        .final_lengths = (int32_t*)(void*)(memory + final_lengths_at),
        .final_metrics = (float*)(void*)(memory + metrics_at),
        .candidate = memory + candidate_at,
    };
    place_envs(vec, params);
    int32_t useful = double_buffer ? half_blocks : num_blocks;
    vec->pool = puf_pool_create(num_threads < useful ? num_threads : useful, double_buffer);
    if (!vec->pool) {
        free(memory);
        return NULL;
    }
    return vec;
}

void puf_vec_destroy(PufVec* vec) {
    if (!vec) return;
    puf_pool_destroy(vec->pool);
    free(vec);  // the first piece of the one allocation
}

static bool is_running(const PufVec* vec, int32_t half) {
    for (int32_t i = 0; i < vec->num_running; i++)
        if (vec->running[i] == half) return true;
    return false;
}

void puf_vec_finish(PufVec* vec, int32_t half) {
    while (is_running(vec, half)) {  // the pool finishes in the order of their beginning
        puf_pool_finish(vec->pool);
        vec->running[0] = vec->running[1];
        vec->num_running--;
    }
}

static void wait_for_all(PufVec* vec) {
    while (vec->num_running) puf_vec_finish(vec, vec->running[0]);
}

const PufBatch* puf_vec_batch(const PufVec* vec) { return &vec->batch; }
const float* puf_vec_final_returns(const PufVec* vec) { return vec->final_returns; }
const int32_t* puf_vec_final_lengths(const PufVec* vec) { return vec->final_lengths; }
const float* puf_vec_final_metrics(const PufVec* vec) { return vec->final_metrics; }

PufCode puf_vec_bind(PufVec* vec, const PufBuffers* buffers) {
    PufBatch* batch = &vec->batch;
    wait_for_all(vec);
    if (!buffers->observations || !buffers->actions || !buffers->final_observations ||
        !buffers->rewards || !buffers->terminals || !buffers->truncations || !buffers->masks ||
        (batch->layout.action_masks && !buffers->action_masks))
        return puf_fail(PUF_BAD_ARGUMENT, "every buffer must be given, but one is missing");
    const size_t obs = batch->obs_bytes, mask = (size_t)batch->mask_width;
    const size_t obs_stride = buffers->obs_stride ? buffers->obs_stride : obs;
    const size_t mask_stride = buffers->mask_stride ? buffers->mask_stride : mask;
    if (obs_stride < obs || mask_stride < mask ||
        (batch->num_envs > 1 && (obs_stride > obs || mask_stride > mask)))
        return puf_fail(PUF_BAD_ARGUMENT,
                        "rows must not overlap, and those of several envs must "
                        "lie side by side");
    batch->obs_stride = obs_stride;
    batch->mask_stride = mask_stride;
    batch->observations = buffers->observations;
    vec->bound_actions = buffers->actions;
    batch->actions = vec->bound_actions;
    batch->final_observations = buffers->final_observations;
    batch->rewards = buffers->rewards;
    batch->terminals = buffers->terminals;
    batch->truncations = buffers->truncations;
    batch->masks = buffers->masks;
    batch->action_masks = buffers->action_masks;
    return PUF_OK;
}

// ---- Episode ends -------------------------------------------------------------------------------

static PufVec* vec_of(const PufSlots* slots) { return (PufVec*)(void*)slots->batch; }

// Counts the metric fields once, and keeps them for the slots of agents [first, last).
static void sample(const PufSlots* slots, int32_t first, int32_t last) {
    PufVec* vec = vec_of(slots);
    const int32_t width = vec->info->num_metrics;
    float* kept = vec->final_metrics + (size_t)(slots->first + first) * (size_t)width;
    int32_t env = slots->first / vec->batch.agents_per_env;
    int32_t block =
        env / vec->half_envs * vec->half_blocks + env % vec->half_envs / vec->block_envs;
    PufStats* stats = &vec->blocks[block].stats;
    stats->samples++;
    for (int32_t i = 0; i < width; i++) {
        float value;
        memcpy(&value, (const uint8_t*)slots + vec->info->metrics[i].offset, sizeof value);
        stats->metrics[i] += (double)value;
        for (int32_t agent = first; agent < last; agent++)
            kept[(agent - first) * width + i] = value;
    }
}

void puf_sample(const PufSlots* slots, int32_t agent) { sample(slots, agent, agent + 1); }

static void start_episode(const PufBatch* batch, PufSlots* slots) {
    slots->tick = 0;
    memset(batch->masks + slots->first, 1, (size_t)slots->num_agents);
    if (batch->layout.action_masks)
        for (int32_t agent = 0; agent < slots->num_agents; agent++)
            memset(puf_action_mask(slots, agent), 1, (size_t)batch->mask_width);
}

static void keep_observation(const PufBatch* batch, int32_t slot) {
    memcpy(batch->final_observations + (size_t)slot * batch->obs_bytes,
           batch->observations + (size_t)slot * batch->obs_stride, batch->obs_bytes);
}

void puf_end_agent(const PufSlots* slots, int32_t agent) {
    const PufBatch* batch = slots->batch;
    batch->terminals[slots->first + agent] = 1;
    keep_observation(batch, slots->first + agent);  // the last it saw: nobody draws its death
    puf_sample(slots, agent);
}

void puf_finish(PufSlots* slots, PufStatus status) {
    const PufBatch* batch = slots->batch;
    uint8_t* flags = status == PUF_TERMINATED ? batch->terminals : batch->truncations;
    for (int32_t slot = slots->first; slot < slots->first + slots->num_agents; slot++)
        if (batch->masks[slot] && !batch->terminals[slot]) {
            flags[slot] = 1;
            keep_observation(batch, slot);
        }
    if (!vec_of(slots)->info->own_samples) sample(slots, 0, slots->num_agents);
    start_episode(batch, slots);
}

PUF_HOT static void add_rewards(int32_t count, const float* restrict rewards,
                                float* restrict returns) {
    for (int32_t i = 0; i < count; i++) returns[i] += rewards[i];
}

PUF_HOT static void add_steps(int32_t count, const uint8_t* restrict masks,
                              int32_t* restrict lengths) {
    for (int32_t i = 0; i < count; i++) lengths[i] += masks[i];
}

PUF_HOT static uint8_t any_set(int32_t count, const uint8_t* restrict a,
                               const uint8_t* restrict b) {
    uint8_t any = 0;
    for (int32_t i = 0; i < count; i++) any |= a[i] | b[i];
    return any;
}

static void close_episodes(PufVec* vec, PufStats* stats, int32_t first, int32_t last) {
    for (int32_t slot = first; slot < last; slot++) {
        if (!(vec->batch.terminals[slot] | vec->batch.truncations[slot])) continue;
        double value = (double)vec->returns[slot];
        if (!stats->episodes || value < stats->return_min) stats->return_min = value;
        if (!stats->episodes || value > stats->return_max) stats->return_max = value;
        stats->episodes++;
        stats->return_sum += value;
        stats->length_sum += vec->lengths[slot];
        vec->final_returns[slot] = vec->returns[slot];
        vec->final_lengths[slot] = vec->lengths[slot];
        vec->returns[slot] = 0;
        vec->lengths[slot] = 0;
    }
}

// Envs [first, last) of a block.
static void block_range(const PufVec* vec, int32_t block, int32_t* first, int32_t* last) {
    int32_t half = block / vec->half_blocks, end = (half + 1) * vec->half_envs;
    *first = half * vec->half_envs + block % vec->half_blocks * vec->block_envs;
    *last = *first + vec->block_envs;
    if (*last > end) *last = end;
}

static void step_block(PufVec* vec, int32_t block) {
    PufBatch* batch = &vec->batch;
    int32_t first, last;
    block_range(vec, block, &first, &last);
    int32_t first_slot = first * batch->agents_per_env;
    int32_t count = (last - first) * batch->agents_per_env;
    memset(batch->rewards + first_slot, 0, (size_t)count * sizeof(float));
    memset(batch->terminals + first_slot, 0, (size_t)count);
    memset(batch->truncations + first_slot, 0, (size_t)count);
    add_steps(count, batch->masks + first_slot, vec->lengths + first_slot);  // who acts in it
    vec->info->step_range(batch, first, last);
    add_rewards(count, batch->rewards + first_slot, vec->returns + first_slot);
    if (any_set(count, batch->terminals + first_slot, batch->truncations + first_slot))
        close_episodes(vec, &vec->blocks[block].stats, first_slot, first_slot + count);
}

int32_t puf_vec_num_blocks(const PufVec* vec) { return vec->num_blocks; }

void puf_vec_block_slots(const PufVec* vec, int32_t block, int32_t* first, int32_t* last) {
    block_range(vec, block, first, last);
    *first *= vec->batch.agents_per_env;
    *last *= vec->batch.agents_per_env;
}

void puf_vec_step_block(PufVec* vec, int32_t block) { step_block(vec, block); }

int32_t* puf_vec_action_rows(PufVec* vec) { return vec->bound_actions; }

// ---- Reset and step -----------------------------------------------------------------------------

static void step_job(void* context, int32_t block) { step_block(context, block); }

static void reset_job(void* context, int32_t block) {
    PufVec* vec = context;
    PufBatch* batch = &vec->batch;
    int32_t first, last;
    block_range(vec, block, &first, &last);
    for (int32_t i = first; i < last; i++) {
        uint8_t* env = batch->envs + (size_t)i * batch->env_bytes;
        PufSlots* slots = (PufSlots*)(void*)env;
        slots->rng.state = puf_mix64(puf_env_seed(vec->seed, vec->first_env + (uint64_t)i) + 1);
        start_episode(batch, slots);
        vec->info->reset_one(env);
    }
}

void puf_vec_place(PufVec* vec, uint64_t first_env) { vec->first_env = first_env; }

PufCode puf_vec_reset(PufVec* vec, uint64_t seed) {
    PufBatch* batch = &vec->batch;
    if (!batch->observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before reset");
    wait_for_all(vec);
    size_t num_slots = (size_t)batch->num_envs * (size_t)batch->agents_per_env;
    vec->seed = seed;
    memset(batch->rewards, 0, num_slots * sizeof(float));
    memset(batch->terminals, 0, num_slots);
    memset(batch->truncations, 0, num_slots);
    memset(vec->returns, 0, num_slots * sizeof(float));
    memset(vec->lengths, 0, num_slots * sizeof(int32_t));
    for (int32_t i = 0; i < vec->num_blocks; i++) vec->blocks[i].stats = (PufStats){0};
    puf_pool_run(vec->pool, vec->num_blocks, reset_job, vec);
    return PUF_OK;
}

PufCode puf_vec_step(PufVec* vec, const void* actions) {
    if (!vec->batch.observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before step");
    wait_for_all(vec);
    vec->batch.actions = actions ? actions : vec->bound_actions;
    puf_pool_run(vec->pool, vec->num_blocks, step_job, vec);
    vec->batch.actions = vec->bound_actions;  // what a half reads; theirs are the caller's again
    return PUF_OK;
}

PufCode puf_vec_begin(PufVec* vec, int32_t half) {
    if (!vec->double_buffer || half < 0 || half > 1)
        return puf_fail(PUF_BAD_ARGUMENT, "half must be 0 or 1 of a double-buffered vec");
    if (!vec->batch.observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before begin");
    if (is_running(vec, half))
        return puf_fail(PUF_BAD_ARGUMENT, "half %d must be finished before it begins again", half);
    vec->running[vec->num_running++] = half;
    puf_pool_begin(vec->pool, half * vec->half_blocks, vec->half_blocks, step_job, vec);
    return PUF_OK;
}

void puf_vec_drain(PufVec* vec, PufStats* out) {
    wait_for_all(vec);
    *out = (PufStats){0};
    for (int32_t b = 0; b < vec->num_blocks; b++) {
        PufStats* stats = &vec->blocks[b].stats;
        if (stats->episodes) {
            if (!out->episodes || stats->return_min < out->return_min)
                out->return_min = stats->return_min;
            if (!out->episodes || stats->return_max > out->return_max)
                out->return_max = stats->return_max;
        }
        out->episodes += stats->episodes;
        out->samples += stats->samples;
        out->return_sum += stats->return_sum;
        out->length_sum += stats->length_sum;
        for (int32_t i = 0; i < vec->info->num_metrics; i++) out->metrics[i] += stats->metrics[i];
        *stats = (PufStats){0};
    }
}

PufCode puf_vec_render(PufVec* vec, int32_t env, PufCanvas* canvas) {
    if (env < 0 || env >= vec->batch.num_envs)
        return puf_fail(PUF_BAD_ARGUMENT, "env must be in 0..%d, but got %d.",
                        vec->batch.num_envs - 1, env);
    if (!vec->batch.observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before render");
    wait_for_all(vec);
    vec->info->render(vec->batch.envs + (size_t)env * vec->batch.env_bytes, canvas);
    return PUF_OK;
}

// ---- Snapshots ----------------------------------------------------------------------------------

enum { STATE, RETURNS, LENGTHS, OBSERVATIONS, MASKS, ACTION_MASKS, NUM_PIECES };
enum { HEADER = offsetof(PufSlots, rng) };  // pointers and place: no part of a snapshot
enum { MAX_TICKS = 1 << 30 };  // no episode gets there, and counters can go on from it for long

// A part of an env's state: where it lies in the vec and in a snapshot.
typedef struct {
    void* in_vec;
    size_t at, bytes;
} Piece;

static void find_pieces(const PufVec* vec, int32_t env, Piece pieces[NUM_PIECES]) {
    const PufBatch* batch = &vec->batch;
    const size_t agents = (size_t)batch->agents_per_env, first = (size_t)env * agents;
    const size_t mask = batch->layout.action_masks ? (size_t)batch->mask_width : 0;
    const Piece found[NUM_PIECES] = {
        [STATE] = {batch->envs + (size_t)env * batch->env_bytes + HEADER, 0,
                   batch->env_bytes - HEADER},
        [RETURNS] = {vec->returns + first, 0, agents * sizeof(float)},
        [LENGTHS] = {vec->lengths + first, 0, agents * sizeof(int32_t)},
        [OBSERVATIONS] = {batch->observations + first * batch->obs_bytes, 0,
                          agents * batch->obs_bytes},
        [MASKS] = {batch->masks + first, 0, agents},
        [ACTION_MASKS] = {mask ? batch->action_masks + first * mask : NULL, 0, agents * mask},
    };
    size_t at = 0;
    for (int32_t i = 0; i < NUM_PIECES; at += pieces[i++].bytes) {
        pieces[i] = found[i];
        pieces[i].at = at;
    }
}

size_t puf_vec_snapshot_bytes(const PufVec* vec) {
    const PufBatch* batch = &vec->batch;
    size_t agents = (size_t)batch->agents_per_env;
    size_t mask = batch->layout.action_masks ? (size_t)batch->mask_width : 0;
    return batch->env_bytes - HEADER +
           agents * (sizeof(float) + sizeof(int32_t) + batch->obs_bytes + 1 + mask);
}

static PufCode check_range(PufVec* vec, int32_t first, int32_t last) {
    wait_for_all(vec);
    if (first < 0 || last < first || last > vec->batch.num_envs)
        return puf_fail(PUF_BAD_ARGUMENT, "env must be in 0..%d, but got %d.",
                        vec->batch.num_envs - 1, first < 0 ? first : last - 1);
    if (!vec->batch.observations)
        return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before a snapshot");
    if (vec->batch.obs_stride != vec->batch.obs_bytes ||
        vec->batch.mask_stride != (size_t)vec->batch.mask_width)
        return puf_fail(PUF_BAD_ARGUMENT, "rows must lie side by side for a snapshot");
    return PUF_OK;
}

PufCode puf_vec_snapshot(PufVec* vec, int32_t env, uint8_t* out) {
    PufCode code = check_range(vec, env, env + 1);
    if (code) return code;
    Piece pieces[NUM_PIECES];
    find_pieces(vec, env, pieces);
    for (int32_t i = 0; i < NUM_PIECES; i++)
        if (pieces[i].bytes) memcpy(out + pieces[i].at, pieces[i].in_vec, pieces[i].bytes);
    return PUF_OK;
}

// Params lie in the env and so in its snapshot, but rows and arena were made for those of this vec.
static PufCode check_params_of(const PufVec* vec, int32_t env, const uint8_t* state) {
    const uint8_t* own = vec->batch.envs + (size_t)env * vec->batch.env_bytes;
    for (int32_t i = 0; i < vec->info->num_params; i++) {
        const PufField* field = &vec->info->params[i];
        if (memcmp(own + field->offset, state + field->offset, 4))
            return puf_fail(PUF_BAD_ARGUMENT, "its `%s` is another.", field->name);
    }
    return PUF_OK;
}

// Whether `count` floats, at any alignment, are numbers between `low` and `high`.
static bool floats_within(const uint8_t* at, size_t count, float low, float high) {
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, at + i * sizeof value, sizeof value);
        if (!(value >= low && value <= high)) return false;
    }
    return true;
}

static bool bytes_within(const uint8_t* at, size_t count, float high) {
    for (size_t i = 0; i < count; i++)
        if ((float)at[i] > high) return false;
    return true;
}

static bool lengths_good(const uint8_t* at, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int32_t length;
        memcpy(&length, at + i * sizeof length, sizeof length);
        if (length < 0 || length > MAX_TICKS) return false;
    }
    return true;
}

static bool observations_good(const PufBatch* batch, const uint8_t* at) {
    const PufObs* space = &batch->layout.obs;
    const size_t bytes = (size_t)batch->agents_per_env * batch->obs_bytes;
    const bool bounded = space->low < space->high;
    if (space->dtype == PUF_U8) return !bounded || bytes_within(at, bytes, space->high);
    return floats_within(at, bytes / sizeof(float), bounded ? space->low : -FLT_MAX,
                         bounded ? space->high : FLT_MAX);
}

// Whoever is present must have something to choose.
static bool action_masks_good(const PufBatch* batch, const uint8_t* present, const uint8_t* legal) {
    const PufActions* space = &batch->layout.actions;
    for (int32_t agent = 0; agent < batch->agents_per_env; agent++)
        for (int32_t component = 0; component < space->num_discrete; component++) {
            const int32_t choices = space->nvec[component];
            if (!bytes_within(legal, (size_t)choices, 1)) return false;
            if (present[agent] && !memchr(legal, 1, (size_t)choices)) return false;
            legal += choices;
        }
    return true;
}

static bool metrics_good(const PufEnvInfo* info, const uint8_t* state) {
    for (int32_t i = 0; i < info->num_metrics; i++)
        if (!floats_within(state + info->metrics[i].offset, 1, -FLT_MAX, FLT_MAX)) return false;
    return true;
}

// A snapshot may come from a file that anyone can have written. What passes is safe to step: this
// looks at all that the core itself relies on, the env's `valid` at the rest.
static PufCode check_snapshot(PufVec* vec, int32_t env, const uint8_t* from) {
    const PufBatch* batch = &vec->batch;
    const size_t agents = (size_t)batch->agents_per_env;
    Piece pieces[NUM_PIECES];
    find_pieces(vec, env, pieces);
    const uint8_t *masks = from + pieces[MASKS].at, *legal = from + pieces[ACTION_MASKS].at;

    memcpy(vec->candidate + HEADER, from, pieces[STATE].bytes);  // snapshots have no alignment
    PufBatch rows = *batch;
    rows.masks = (uint8_t*)masks;
    rows.observations = rows.action_masks = NULL;
    PufSlots* slots = (PufSlots*)(void*)vec->candidate;
    slots->batch = &rows;
    slots->first = 0;
    slots->num_agents = batch->agents_per_env;

    PufCode code = check_params_of(vec, env, vec->candidate);
    if (code) return code;
    const char* wrong = NULL;
    if (slots->tick < 0 || slots->tick > MAX_TICKS)
        wrong = "its tick";
    else if (!floats_within(from + pieces[RETURNS].at, agents, -FLT_MAX, FLT_MAX))
        wrong = "a return";
    else if (!lengths_good(from + pieces[LENGTHS].at, agents))
        wrong = "a length";
    else if (!observations_good(batch, from + pieces[OBSERVATIONS].at))
        wrong = "an observation";
    else if (!bytes_within(masks, agents, 1))
        wrong = "a mask";
    else if (pieces[ACTION_MASKS].bytes && !action_masks_good(batch, masks, legal))
        wrong = "an action mask";
    else if (!metrics_good(vec->info, vec->candidate))
        wrong = "a metric";
    else if (!vec->info->valid(vec->candidate))
        wrong = "its state";
    slots->batch = NULL;  // `rows` ends here
    if (!wrong) return PUF_OK;
    return puf_fail(PUF_BAD_ARGUMENT, "%s is none that `%s` can have (env %d).", wrong,
                    vec->info->name, env);
}

PufCode puf_vec_restore_range(PufVec* vec, int32_t first, int32_t last, const uint8_t* from) {
    const size_t bytes = puf_vec_snapshot_bytes(vec);
    PufCode code = check_range(vec, first, last);
    for (int32_t env = first; !code && env < last; env++)
        code = check_snapshot(vec, env, from + (size_t)(env - first) * bytes);
    if (code) return code;
    for (int32_t env = first; env < last; env++, from += bytes) {
        Piece pieces[NUM_PIECES];
        find_pieces(vec, env, pieces);
        for (int32_t i = 0; i < NUM_PIECES; i++)
            if (pieces[i].bytes) memcpy(pieces[i].in_vec, from + pieces[i].at, pieces[i].bytes);
    }
    return PUF_OK;
}

PufCode puf_vec_restore(PufVec* vec, int32_t env, const uint8_t* from) {
    return puf_vec_restore_range(vec, env, env + 1, from);
}
