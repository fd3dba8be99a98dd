// vec.c - a vector of envs: slots, seeding, autoreset, episode statistics.
//
// Envs are split into blocks whose size depends only on the number of envs. One thread steps a
// block, and each block has its own statistics, so neither rows nor sums depend on the number of
// threads. With an even number of envs no block spans both halves: each half can step on its own.
#include "core/vec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ENV(name) extern const PufEnvInfo puf_env_##name;
#include "envs.def"
#undef ENV
#define ENV(name) &puf_env_##name,
static const PufEnvInfo* const infos[] = {
#include "envs.def"
};
#undef ENV

enum { MAX_BLOCK = 64, NUM_BLOCKS = 64, MAX_SLOTS = 1 << 26 };

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

PUF_HOT bool puf_words_below(const uint32_t* words, size_t count, uint32_t limit) {
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) most = words[i] > most ? words[i] : most;
    return most < limit;
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
                : puf_fail(PUF_BAD_ARGUMENT, "env `%s` has an invalid layout for these params",
                           info->name);
}

PufCode puf_layout(const PufEnvInfo* info, const double* params, PufLayout* layout) {
    if (check_params(info, params)) return PUF_BAD_ARGUMENT;
    *layout = info->layout;
    if (info->shape) {
        uint8_t* sample = calloc(1, info->env_bytes);
        if (!sample)
            return puf_fail(PUF_NO_MEMORY, "cannot allocate %zu bytes for one env",
                            info->env_bytes);
        write_params(info, params, sample);
        info->shape(sample, layout);
        free(sample);
    }
    return check_layout(info, layout);
}

// Reserves `bytes` of a vec's one allocation, 64-byte aligned; returns their offset.
static size_t reserve(size_t* total, size_t bytes) {
    size_t at = *total;
    *total = (at + bytes + 63) / 64 * 64;
    return at;
}

static void place_envs(PufVec* vec, const double* params) {
    PufBatch* batch = &vec->batch;
    for (int32_t i = 0; i < batch->num_envs; i++) {
        uint8_t* env = puf_vec_env(vec, i);
        write_params(vec->info, params, env);
        PufSlots* slots = (PufSlots*)(void*)env;
        slots->batch = batch;
        slots->first = i * batch->agents_per_env;
        slots->num_agents = batch->agents_per_env;
    }
}

static PufCode check_sizes(int32_t num_envs, int32_t num_threads, bool double_buffer) {
    if (num_envs < 1 || num_threads < 1 || num_threads > 1024)
        return puf_fail(
            PUF_BAD_ARGUMENT,
            "`num_envs` must be at least 1 and threads must be in 1..1024, but got %d and %d.",
            num_envs, num_threads);
    if (double_buffer && num_envs % 2)
        return puf_fail(PUF_BAD_ARGUMENT,
                        "`num_envs` must be even for double buffering, but got %d. Try %d.",
                        num_envs, num_envs + 1);
    return PUF_OK;
}

PufVec* puf_vec_create(const PufEnvInfo* info, int32_t num_envs, int32_t num_threads,
                       bool double_buffer, const double* params) {
    PufLayout layout;
    if (check_sizes(num_envs, num_threads, double_buffer)) return NULL;
    if (puf_layout(info, params, &layout)) return NULL;
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
    size_t vec_at = reserve(&total, sizeof(PufVec));
    size_t blocks_at = reserve(&total, (size_t)num_blocks * sizeof(Block));
    size_t returns_at = reserve(&total, num_slots * sizeof(float));
    size_t final_returns_at = reserve(&total, num_slots * sizeof(float));
    size_t lengths_at = reserve(&total, num_slots * sizeof(int32_t));
    size_t final_lengths_at = reserve(&total, num_slots * sizeof(int32_t));
    size_t metrics_at = reserve(&total, num_slots * (size_t)info->num_metrics * sizeof(float));
    size_t candidate_at = reserve(&total, env_bytes);
    size_t envs_at = reserve(&total, (size_t)num_envs * env_bytes);
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
    free(vec);  // the start of its one allocation
}

static bool is_running(const PufVec* vec, int32_t half) {
    for (int32_t i = 0; i < vec->num_running; i++)
        if (vec->running[i] == half) return true;
    return false;
}

void puf_vec_finish(PufVec* vec, int32_t half) {
    while (is_running(vec, half)) {  // the pool finishes halves in the order they began
        puf_pool_finish(vec->pool);
        vec->running[0] = vec->running[1];
        vec->num_running--;
    }
}

void puf_vec_wait(PufVec* vec) {
    while (vec->num_running) puf_vec_finish(vec, vec->running[0]);
}

bool puf_vec_take(PufVec* vec) {
    return !atomic_exchange_explicit(&vec->is_taken, true, memory_order_acquire);
}
void puf_vec_give_back(PufVec* vec) {
    atomic_store_explicit(&vec->is_taken, false, memory_order_release);
}

const PufBatch* puf_vec_batch(const PufVec* vec) { return &vec->batch; }
const float* puf_vec_final_returns(const PufVec* vec) { return vec->final_returns; }
const int32_t* puf_vec_final_lengths(const PufVec* vec) { return vec->final_lengths; }
const float* puf_vec_final_metrics(const PufVec* vec) { return vec->final_metrics; }

PufCode puf_vec_bind(PufVec* vec, const PufBuffers* buffers) {
    PufBatch* batch = &vec->batch;
    puf_vec_wait(vec);
    if (!buffers->observations || !buffers->actions || !buffers->final_observations ||
        !buffers->rewards || !buffers->terminals || !buffers->truncations || !buffers->masks ||
        (batch->layout.action_masks && !buffers->action_masks))
        return puf_fail(PUF_BAD_ARGUMENT, "all buffers must be given, but one is missing");
    const size_t obs = batch->obs_bytes, mask = (size_t)batch->mask_width;
    const size_t obs_stride = buffers->obs_stride ? buffers->obs_stride : obs;
    const size_t mask_stride = buffers->mask_stride ? buffers->mask_stride : mask;
    if (obs_stride < obs || mask_stride < mask ||
        (batch->num_envs > 1 && (obs_stride > obs || mask_stride > mask)))
        return puf_fail(PUF_BAD_ARGUMENT,
                        "rows must not overlap, and rows of several envs must be contiguous");
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

// Adds the metric fields to the statistics, and stores them for the slots of agents [first, last).
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
    keep_observation(batch, slots->first + agent);  // the last one it saw
    puf_sample(slots, agent);
}

void puf_finish(PufSlots* slots, PufStatus status) {
    const PufBatch* batch = slots->batch;
    const int32_t* lengths = vec_of(slots)->lengths;  // 0: an agent that joined in this step
    uint8_t* flags = status == PUF_TERMINATED ? batch->terminals : batch->truncations;
    for (int32_t slot = slots->first; slot < slots->first + slots->num_agents; slot++)
        if (batch->masks[slot] && !batch->terminals[slot] && lengths[slot] > 0) {
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

// Steps envs [first, last) that are not held. The rows of held ones stay, but for the zeros that
// every step begins with; no step of theirs is counted.
static void step_others(PufVec* vec, int32_t first, int32_t last) {
    const int32_t agents = vec->batch.agents_per_env;
    for (int32_t env = first; env < last; env++) {
        if (!vec->held[env]) vec->info->step_range(&vec->batch, env, env + 1);
        for (int32_t slot = env * agents; vec->held[env] && slot < (env + 1) * agents; slot++)
            vec->lengths[slot] -= vec->batch.masks[slot];
    }
}

void puf_vec_step_blocks(PufVec* vec, int32_t first_block, int32_t last_block) {
    PufBatch* batch = &vec->batch;
    int32_t first, last, unused;
    block_range(vec, first_block, &first, &unused);
    block_range(vec, last_block - 1, &unused, &last);
    int32_t first_slot = first * batch->agents_per_env;
    int32_t count = (last - first) * batch->agents_per_env;
    memset(batch->rewards + first_slot, 0, (size_t)count * sizeof(float));
    memset(batch->terminals + first_slot, 0, (size_t)count);
    memset(batch->truncations + first_slot, 0, (size_t)count);
    add_steps(count, batch->masks + first_slot, vec->lengths + first_slot);  // present agents
    if (vec->held)
        step_others(vec, first, last);
    else
        vec->info->step_range(batch, first, last);
    add_rewards(count, batch->rewards + first_slot, vec->returns + first_slot);
    if (!any_set(count, batch->terminals + first_slot, batch->truncations + first_slot)) return;
    for (int32_t block = first_block, from, to; block < last_block; block++) {
        puf_vec_block_slots(vec, block, &from, &to);
        close_episodes(vec, &vec->blocks[block].stats, from, to);
    }
}

int32_t puf_vec_num_blocks(const PufVec* vec) { return vec->num_blocks; }

void puf_vec_block_slots(const PufVec* vec, int32_t block, int32_t* first, int32_t* last) {
    block_range(vec, block, first, last);
    *first *= vec->batch.agents_per_env;
    *last *= vec->batch.agents_per_env;
}

int32_t* puf_vec_action_rows(PufVec* vec) { return vec->bound_actions; }

// ---- Reset and step -----------------------------------------------------------------------------

static void step_job(void* context, int32_t block) {
    puf_vec_step_blocks(context, block, block + 1);
}

static void reset_job(void* context, int32_t block) {
    PufVec* vec = context;
    PufBatch* batch = &vec->batch;
    int32_t first, last;
    block_range(vec, block, &first, &last);
    for (int32_t i = first; i < last; i++) {
        uint8_t* env = puf_vec_env(vec, i);
        PufSlots* slots = (PufSlots*)(void*)env;
        uint64_t seed = vec->seeds ? puf_env_seed(vec->seeds[i], 0)
                                   : puf_env_seed(vec->seed, vec->first_env + (uint64_t)i);
        slots->rng.state = puf_mix64(seed + 1);
        start_episode(batch, slots);
        vec->info->reset_one(env);
    }
}

void puf_vec_place(PufVec* vec, uint64_t first_env) { vec->first_env = first_env; }

static PufCode reset(PufVec* vec) {
    PufBatch* batch = &vec->batch;
    if (!batch->observations)
        return puf_fail(PUF_BAD_ARGUMENT, "buffers must be bound before `reset`");
    puf_vec_wait(vec);
    size_t num_slots = (size_t)batch->num_envs * (size_t)batch->agents_per_env;
    memset(batch->rewards, 0, num_slots * sizeof(float));
    memset(batch->terminals, 0, num_slots);
    memset(batch->truncations, 0, num_slots);
    memset(vec->returns, 0, num_slots * sizeof(float));
    memset(vec->lengths, 0, num_slots * sizeof(int32_t));
    for (int32_t i = 0; i < vec->num_blocks; i++) vec->blocks[i].stats = (PufStats){0};
    puf_pool_run(vec->pool, vec->num_blocks, reset_job, vec);
    return PUF_OK;
}

PufCode puf_vec_reset(PufVec* vec, uint64_t seed) {
    vec->seed = seed;
    return reset(vec);
}

PufCode puf_vec_reset_each(PufVec* vec, const uint64_t* seeds) {
    vec->seeds = seeds;
    PufCode code = reset(vec);
    vec->seeds = NULL;
    return code;
}

PufCode puf_vec_step(PufVec* vec, const void* actions) {
    if (!vec->batch.observations)
        return puf_fail(PUF_BAD_ARGUMENT, "buffers must be bound before `step`");
    puf_vec_wait(vec);
    vec->batch.actions = actions ? actions : vec->bound_actions;
    puf_pool_run(vec->pool, vec->num_blocks, step_job, vec);
    vec->batch.actions = vec->bound_actions;  // `begin` reads these
    return PUF_OK;
}

PufCode puf_vec_step_except(PufVec* vec, const void* actions, const uint8_t* held) {
    puf_vec_wait(vec);
    vec->held = held;
    PufCode code = puf_vec_step(vec, actions);
    vec->held = NULL;
    return code;
}

PufCode puf_vec_begin(PufVec* vec, int32_t half) {
    if (!vec->double_buffer || half < 0 || half > 1)
        return puf_fail(PUF_BAD_ARGUMENT, "`half` must be 0 or 1, of a double-buffered vec");
    if (!vec->batch.observations)
        return puf_fail(PUF_BAD_ARGUMENT, "buffers must be bound before `begin`");
    if (is_running(vec, half))
        return puf_fail(PUF_BAD_ARGUMENT, "half %d must be finished before it can begin again",
                        half);
    vec->running[vec->num_running++] = half;
    puf_pool_begin(vec->pool, half * vec->half_blocks, vec->half_blocks, step_job, vec);
    return PUF_OK;
}

void puf_vec_drain(PufVec* vec, PufStats* out) {
    puf_vec_wait(vec);
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
        return puf_fail(PUF_BAD_ARGUMENT, "`env` must be in 0..%d, but got %d.",
                        vec->batch.num_envs - 1, env);
    if (!vec->batch.observations)
        return puf_fail(PUF_BAD_ARGUMENT, "buffers must be bound before `render`");
    puf_vec_wait(vec);
    vec->info->render(puf_vec_env(vec, env), canvas);
    return PUF_OK;
}
