// engine.c - acting and rollouts of the native engine; updates.c has the rest of engine.h.
#include "engine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARTS = 16,          // of a gradient: enough for as many threads
    PIECE = 2048,            // floats
    MAX_PARTIALS = 1 << 23,  // floats of all partial gradients together
};

// ---- Building -----------------------------------------------------------------------------------

static int32_t cut_params(const PufNetwork* net, PufPiece* pieces) {
    int32_t count = 0;
    for (int32_t i = 0; i < net->num_params; i++) {
        const PufParam* param = &net->params[i];
        int32_t rows = PIECE / param->cols;
        rows = rows < 1 ? 1 : rows;
        for (int32_t first = 0; first < param->rows; first += rows, count++)
            if (pieces)
                pieces[count] =
                    (PufPiece){i, first, first + rows < param->rows ? first + rows : param->rows};
    }
    return count;
}

static float* aligned_floats(size_t count) {
    return aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
}

PufEngine* puf_engine_create(const PufNetworkSpec* spec, const PufKernels* kernels,
                             int32_t num_threads) {
    PufEngine* engine = calloc(1, sizeof(PufEngine));
    if (!engine) goto no_memory;
    engine->network = puf_network_create(spec, kernels);
    if (!engine->network) goto failed;
    engine->threads = puf_threads_create(num_threads);
    if (!engine->threads) goto failed;
    const PufNetwork* net = engine->network;
    const size_t most = MAX_PARTIALS / net->partial_floats;
    engine->max_parts = most < 2 ? 2 : most > MAX_PARTS ? MAX_PARTS : (int32_t)most;
    engine->num_pieces = cut_params(net, NULL);
    engine->partials = aligned_floats((size_t)engine->max_parts * net->partial_floats);
    engine->joined = aligned_floats(net->grad_floats);
    engine->pieces = calloc((size_t)engine->num_pieces, sizeof(PufPiece));
    engine->squares = calloc((size_t)engine->num_pieces, sizeof(double));
    engine->works = calloc((size_t)num_threads, sizeof(PufWorkspace*));
    if (!engine->partials || !engine->joined || !engine->pieces || !engine->squares ||
        !engine->works)
        goto no_memory;
    cut_params(net, engine->pieces);
    for (int32_t i = 0; i < num_threads; i++)
        if (!(engine->works[i] = puf_workspace_create(net, PUF_TILE))) goto failed;
    return engine;
no_memory:
    puf_fail(PUF_NO_MEMORY, "cannot allocate an engine");
failed:
    puf_engine_destroy(engine);
    return NULL;
}

void puf_engine_destroy(PufEngine* engine) {
    if (!engine) return;
    const int32_t count = engine->threads ? puf_threads_count(engine->threads) : 0;
    puf_threads_destroy(engine->threads);
    for (int32_t i = 0; engine->works && i < count; i++) puf_workspace_destroy(engine->works[i]);
    free(engine->works);
    free(engine->partials);
    free(engine->joined);
    free(engine->pieces);
    free(engine->squares);
    puf_network_destroy(engine->network);
    free(engine);
}

// ---- Acting -------------------------------------------------------------------------------------

// The stream of random numbers of a slot: splitmix64 from a start of its own.
static uint64_t stream_of(uint64_t key, uint64_t slot) {
    return puf_mix64(key + (slot + 1) * 0xD1B54A32D192ED03u);
}

static float uniform_at(uint64_t stream, uint64_t index) {
    const uint64_t bits = puf_mix64(stream + (index + 1) * 0x9E3779B97F4A7C15u);
    return (float)(bits >> 40) * (1.0f / 16777216.0f);
}

// Draws actions for rows of a tile whose outputs are there; the first row is slot `slot`.
static void draw(const PufNetwork* net, PufWorkspace* work, int32_t rows, uint64_t key,
                 uint64_t slot, uint64_t counter) {
    const int32_t numbers = net->head.num_discrete + 2 * net->head.num_continuous;
    for (int32_t row = 0; row < rows; row++) {
        const uint64_t stream = stream_of(key, slot + (uint64_t)row);
        for (int32_t i = 0; i < numbers; i++)
            work->steps.uniforms[i * PUF_TILE + row] =
                uniform_at(stream, counter * (uint64_t)numbers + (uint64_t)i);
    }
    net->kernels->sample(&net->head, &work->steps);
}

static void write_words(const PufNetwork* net, const PufWorkspace* work, int32_t row,
                        const float* reals, int32_t* to) {
    const PufColumns* steps = &work->steps;
    for (int32_t i = 0; i < net->head.num_discrete; i++) *to++ = steps->choices[i * PUF_TILE + row];
    for (int32_t i = 0; i < net->head.num_continuous; i++)
        memcpy(to++, &reals[i * PUF_TILE + row], sizeof(float));
}

static const float* values_of(const PufNetwork* net, const PufWorkspace* work) {
    return work->steps.outputs + (size_t)(net->num_outputs - 1) * PUF_TILE;
}

// From the observations that were read to outputs. Row r belongs to slots[r], or to slot first + r;
// its recurrent state is read there, and the one after the step is left at row rows + r.
static void forward_step(const PufNetwork* net, PufWorkspace* work, int32_t rows,
                         const PufState* state, const int32_t* slots, int32_t first) {
    if (!net->spec.core) {
        puf_network_forward(net, work, rows);
        return;
    }
    for (int32_t row = 0; row < 2 * rows; row++) work->core.kept[row] = -1;
    for (int32_t row = 0; row < rows; row++)
        puf_core_load(net, work, row, state, (size_t)(slots ? slots[row] : first + row));
    puf_core_forward(net, work, 0, rows, 1);
}

// Writes the recurrent state after `forward_step` for rows from slot `first` on.
static void store_state(const PufNetwork* net, const PufWorkspace* work, int32_t rows,
                        const PufState* state, int32_t first) {
    for (int32_t row = 0; row < rows && state->parts[0]; row++)
        puf_core_store(net, work, rows + row, state, (size_t)(first + row));
}

typedef struct {
    PufEngine* engine;
    const PufAct* act;
    atomic_int next;
} ActJob;

static void act_tile(const PufNetwork* net, PufWorkspace* work, const PufAct* act, int32_t first,
                     int32_t rows) {
    const size_t words = (size_t)puf_network_action_words(net),
                 width = (size_t)puf_network_mask_width(net);
    work->steps.legal = act->action_masks ? work->legal : NULL;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)(first + row);
        puf_network_read(net, work, row, act->observations + at * net->obs_bytes);
        if (act->action_masks)
            puf_network_read_mask(net, work, row, act->action_masks + at * width);
    }
    forward_step(net, work, rows, &act->state, NULL, first);
    store_state(net, work, rows, &act->next_state, first);
    if (act->values)
        memcpy(act->values + first, values_of(net, work), (size_t)rows * sizeof(float));
    if (!act->actions) return;
    draw(net, work, rows, act->key, act->first_slot + (uint64_t)first, act->counter);
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)(first + row) * words;
        write_words(net, work, row, work->steps.reals, act->actions + at);
        if (act->env_actions)
            write_words(net, work, row, work->steps.env_reals, act->env_actions + at);
    }
    memcpy(act->logprobs + first, work->steps.logprobs, (size_t)rows * sizeof(float));
}

static void act_body(void* context, int32_t worker) {
    ActJob* job = context;
    for (;;) {
        const int32_t first = atomic_fetch_add(&job->next, 1) * PUF_TILE;
        const int32_t left = job->act->rows - first;
        if (left <= 0) return;
        act_tile(job->engine->network, job->engine->works[worker], job->act, first,
                 left < PUF_TILE ? left : PUF_TILE);
    }
}

void puf_engine_act(PufEngine* engine, const PufAct* act) {
    ActJob job = {.engine = engine, .act = act};
    if (act->rows <= 4 * PUF_TILE)  // waking a thread takes longer
        act_body(&job, 0);
    else
        puf_threads_run(engine->threads, act_body, &job);
}

// ---- Rollouts -----------------------------------------------------------------------------------

typedef struct {
    PufEngine* engine;
    PufVec* vec;
    const PufBatch* batch;
    PufRollout* rollout;
    uint8_t* resets;
    PufState state;  // of each slot
    uint64_t key, first_slot;
    int32_t blocks_per_unit;
    atomic_int next;
    atomic_bool some_absent, some_infinite;
} CollectJob;

static void note(atomic_bool* flag) { atomic_store_explicit(flag, true, memory_order_relaxed); }

// Copies observations, masks and resets of slots [first, first + rows) into cells that are
// `horizon` apart, and into the workspace. Stores of bytes may change any pointer in memory, as far
// as the compiler knows, so pointers are locals.
static void store_before(CollectJob* job, PufWorkspace* work, int32_t first, int32_t rows,
                         size_t cell) {
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    const size_t horizon = (size_t)job->rollout->horizon, bytes = net->obs_bytes;
    const uint8_t* seen = batch->observations + (size_t)first * batch->obs_stride;
    uint8_t* kept = job->rollout->observations + cell * bytes;
    for (int32_t row = 0; row < rows; row++, seen += batch->obs_stride, kept += horizon * bytes) {
        puf_copy(kept, seen, bytes);
        puf_network_read(net, work, row, seen);
    }
    const uint8_t *present = batch->masks + first, *begins = job->resets + first;
    uint8_t *masks = job->rollout->masks + cell, *resets = job->rollout->resets + cell;
    bool all = true;
    for (int32_t row = 0; row < rows; row++, masks += horizon, resets += horizon) {
        *masks = present[row], *resets = begins[row];
        all &= present[row] != 0;
    }
    if (!all) note(&job->some_absent);
    work->steps.legal = job->rollout->action_masks ? work->legal : NULL;
    const size_t width = (size_t)batch->mask_width;
    for (int32_t row = 0; row < rows && work->steps.legal; row++, cell += horizon) {
        const uint8_t* legal = batch->action_masks + (size_t)(first + row) * batch->mask_stride;
        memcpy(job->rollout->action_masks + cell * width, legal, width);
        puf_network_read_mask(net, work, row, legal);
    }
}

// Writes the actions of a tile into the rollout and into the rows of the env.
static void store_actions(CollectJob* job, const PufWorkspace* work, int32_t first, int32_t rows,
                          size_t cell) {
    const PufNetwork* net = job->engine->network;
    const size_t words = (size_t)puf_network_action_words(net);
    const size_t step = (size_t)job->rollout->horizon * words;
    int32_t *to = job->rollout->actions + cell * words,
            *to_env = puf_vec_action_rows(job->vec) + (size_t)first * words;
    if (words == 1 && net->head.num_discrete == 1) {
        const int32_t* choices = work->steps.choices;
        for (int32_t row = 0; row < rows; row++, to += step) *to = to_env[row] = choices[row];
        return;
    }
    for (int32_t row = 0; row < rows; row++, to += step, to_env += words) {
        write_words(net, work, row, work->steps.reals, to);
        write_words(net, work, row, work->steps.env_reals, to_env);
    }
}

// Reads slots [first, first + rows), acts, and writes step (stretch, t) up to the actions.
static void collect_tile(CollectJob* job, PufWorkspace* work, int32_t first, int32_t rows,
                         int32_t stretch, int32_t t) {
    const PufNetwork* net = job->engine->network;
    PufRollout* rollout = job->rollout;
    const size_t horizon = (size_t)rollout->horizon;
    const size_t segment = (size_t)stretch * (size_t)rollout->num_slots + (size_t)first;
    const size_t cell = segment * horizon + (size_t)t;
    store_before(job, work, first, rows, cell);
    forward_step(net, work, rows, &job->state, NULL, first);
    for (int32_t row = 0; row < rows && net->spec.core && t == 0; row++)
        puf_core_store(net, work, row, &rollout->states, segment + (size_t)row);
    store_state(net, work, rows, &job->state, first);
    draw(net, work, rows, job->key, job->first_slot + (uint64_t)first,
         (uint64_t)stretch * horizon + (uint64_t)t);
    store_actions(job, work, first, rows, cell);
    const float *values = values_of(net, work), *logprobs = work->steps.logprobs;
    float *to_values = rollout->values + cell, *to_logprobs = rollout->logprobs + cell;
    for (int32_t row = 0; row < rows; row++, to_values += horizon, to_logprobs += horizon)
        *to_values = values[row], *to_logprobs = logprobs[row];
    bool finite =
        net->kernels->all_finite(rows, values) && net->kernels->all_finite(rows, logprobs);
    if (net->spec.obs_type == PUF_OBS_F32 || net->spec.obs_type == PUF_OBS_F64)
        finite = finite && net->kernels->all_finite(rows * net->x_stride, work->x);
    if (!finite) note(&job->some_infinite);
}

// Computes the values of the rows of `from` that belong to the listed slots.
static void value_rows(const CollectJob* job, PufWorkspace* work, const uint8_t* from,
                       size_t stride, const int32_t* slots, int32_t count) {
    const PufNetwork* net = job->engine->network;
    for (int32_t row = 0; row < count; row++)
        puf_network_read(net, work, row, from + (size_t)slots[row] * stride);
    forward_step(net, work, count, &job->state, slots, 0);
}

// The values of the final observations of slots that were cut off in step (stretch, t).
static void store_final_values(CollectJob* job, PufWorkspace* work, const int32_t* cut,
                               int32_t num_cut, int32_t stretch, int32_t t) {
    PufRollout* rollout = job->rollout;
    value_rows(job, work, job->batch->final_observations, job->batch->obs_bytes, cut, num_cut);
    for (int32_t i = 0; i < num_cut; i++) {
        const size_t segment = (size_t)stretch * (size_t)rollout->num_slots + (size_t)cut[i];
        rollout->final_values[segment * (size_t)rollout->horizon + (size_t)t] =
            values_of(job->engine->network, work)[i];
    }
}

// Stores rewards and ends of a step, for slots [first, last).
static void store_after(CollectJob* job, PufWorkspace* work, int32_t first, int32_t last,
                        int32_t stretch, int32_t t) {
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    PufRollout* rollout = job->rollout;
    const size_t horizon = (size_t)rollout->horizon;
    const size_t segment = (size_t)stretch * (size_t)rollout->num_slots + (size_t)first;
    const size_t cell = segment * horizon + (size_t)t;
    const uint8_t *terminals = batch->terminals, *truncations = batch->truncations;
    const float* rewards = batch->rewards;
    float* to_rewards = rollout->rewards + cell;
    uint8_t *to_terminals = rollout->terminals + cell,
            *to_truncations = rollout->truncations + cell;
    uint8_t *masks = rollout->masks + cell, *resets = job->resets;
    int32_t cut[PUF_TILE], num_cut = 0;
    if (!net->kernels->all_finite(last - first, rewards + first)) note(&job->some_infinite);
    for (int32_t slot = first; slot < last; slot++) {
        const uint8_t terminal = terminals[slot], truncation = truncations[slot];
        *to_rewards = rewards[slot], *to_terminals = terminal, *to_truncations = truncation;
        // an agent that left at an end must return without a recurrent state
        resets[slot] = (terminal | truncation) || (resets[slot] && !*masks);
        to_rewards += horizon, to_terminals += horizon, to_truncations += horizon, masks += horizon;
        if (truncation) cut[num_cut++] = slot;
        if (num_cut && (num_cut == PUF_TILE || slot + 1 == last)) {
            store_final_values(job, work, cut, num_cut, stretch, t);
            num_cut = 0;
        }
    }
    for (int32_t slot = first; slot < last && net->spec.core; slot++)
        if (resets[slot]) puf_core_clear(net, &job->state, (size_t)slot);
}

static void bootstrap(CollectJob* job, PufWorkspace* work, int32_t first, int32_t last) {
    const PufNetwork* net = job->engine->network;
    PufRollout* rollout = job->rollout;
    const int32_t num_slots = rollout->num_slots, stretches = rollout->segments / num_slots;
    // a stretch goes on with the next one's first value
    for (int32_t segment = 0; segment < (stretches - 1) * num_slots; segment += num_slots)
        for (int32_t slot = first; slot < last; slot++) {
            const size_t ahead = (size_t)(segment + num_slots + slot) * (size_t)rollout->horizon;
            rollout->bootstrap[segment + slot] =
                rollout->masks[ahead] ? rollout->values[ahead] : 0.0f;
        }
    float* after = rollout->bootstrap + (size_t)(stretches - 1) * (size_t)num_slots;
    for (int32_t slot = first; slot < last; slot += PUF_TILE) {
        const int32_t rows = last - slot < PUF_TILE ? last - slot : PUF_TILE;
        int32_t slots[PUF_TILE];
        for (int32_t row = 0; row < rows; row++) slots[row] = slot + row;
        value_rows(job, work, job->batch->observations, job->batch->obs_stride, slots, rows);
        for (int32_t row = 0; row < rows; row++)
            after[slot + row] = job->batch->masks[slot + row] ? values_of(net, work)[row] : 0.0f;
    }
}

// A thread steps a few blocks of envs through the whole rollout.
static void collect_body(void* context, int32_t worker) {
    CollectJob* job = context;
    PufWorkspace* work = job->engine->works[worker];
    PufRollout* rollout = job->rollout;
    const int32_t num_blocks = puf_vec_num_blocks(job->vec);
    const int32_t stretches = rollout->segments / rollout->num_slots;
    for (;;) {
        const int32_t first = atomic_fetch_add(&job->next, 1) * job->blocks_per_unit;
        if (first >= num_blocks) return;
        int32_t last = first + job->blocks_per_unit;
        if (last > num_blocks) last = num_blocks;
        int32_t slot, end, unused;
        puf_vec_block_slots(job->vec, first, &slot, &unused);
        puf_vec_block_slots(job->vec, last - 1, &unused, &end);
        for (int32_t stretch = 0; stretch < stretches; stretch++)
            for (int32_t t = 0; t < rollout->horizon; t++) {
                for (int32_t at = slot; at < end; at += PUF_TILE)
                    collect_tile(job, work, at, end - at < PUF_TILE ? end - at : PUF_TILE, stretch,
                                 t);
                for (int32_t block = first; block < last; block++)
                    puf_vec_step_block(job->vec, block);
                store_after(job, work, slot, end, stretch, t);
            }
        bootstrap(job, work, slot, end);
    }
}

PufCode puf_engine_collect(PufEngine* engine, PufVec* vec, PufRollout* rollout, uint8_t* resets,
                           const PufState* state, uint64_t key, uint64_t first_slot) {
    const PufBatch* batch = puf_vec_batch(vec);
    const PufNetwork* net = engine->network;
    const int32_t num_slots = batch->num_envs * batch->agents_per_env;
    const bool has_masks = batch->layout.action_masks;
    if (!batch->observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before collect");
    if (rollout->num_slots != num_slots || rollout->segments % num_slots ||
        batch->obs_bytes != net->obs_bytes ||
        batch->action_words != puf_network_action_words(net) ||
        (has_masks && (!rollout->action_masks || batch->mask_width != puf_network_mask_width(net))))
        return puf_fail(PUF_BAD_ARGUMENT, "the rollout must fit the envs and the policy");
    const int32_t num_blocks = puf_vec_num_blocks(vec);
    const int32_t threads = puf_threads_count(engine->threads);
    // units of about a tile, but at least two for each thread
    int32_t units = (num_slots + PUF_TILE - 1) / PUF_TILE;
    if (units < 2 * threads) units = 2 * threads;
    if (units > num_blocks) units = num_blocks;
    CollectJob job = {.engine = engine,
                      .vec = vec,
                      .batch = batch,
                      .rollout = rollout,
                      .resets = resets,
                      .state = *state,
                      .key = key,
                      .first_slot = first_slot,
                      .blocks_per_unit = (num_blocks + units - 1) / units};
    puf_threads_run(engine->threads, collect_body, &job);
    rollout->all_present = !atomic_load(&job.some_absent);
    rollout->all_finite = !atomic_load(&job.some_infinite);
    return PUF_OK;
}
