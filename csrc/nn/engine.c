// engine.c - acting and rollouts of the native engine; targets.c and updates.c have the rest of
// engine.h.
#include "engine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "puf_hot.h"
#include "stage.h"
#include "sync/waiting.h"
#include "turn.h"

enum {
    MAX_PARTS = 16,          // of a gradient: enough for as many threads
    PIECE = 2048,            // floats
    MAX_PARTIALS = 1 << 23,  // floats of all partial gradients together
    TIMED = 8,               // steps of a rollout: one of so many is timed
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
    puf_muon_destroy(engine->muon);
    puf_network_destroy(engine->network);
    free(engine);
}

// ---- Acting -------------------------------------------------------------------------------------

// The stream of random numbers of a slot: splitmix64 from a start of its own.
static inline uint64_t stream_of(uint64_t key, uint64_t slot) {
    return puf_mix64(key + (slot + 1) * 0xD1B54A32D192ED03u);
}

static inline float uniform_at(uint64_t stream, uint64_t index) {
    const uint64_t bits = puf_mix64(stream + (index + 1) * 0x9E3779B97F4A7C15u);
    return (float)(int32_t)(bits >> 40) * (1.0f / 16777216.0f);
}

// Number `index` of the streams of slots `slot`, ...
PUF_HOT static void fill_uniforms(int32_t rows, uint64_t key, uint64_t slot, uint64_t index,
                                  float* restrict to) {
    for (int32_t row = 0; row < rows; row++)
        to[row] = uniform_at(stream_of(key, slot + (uint64_t)row), index);
}

// Draws actions for rows of a tile whose outputs are there; the first row is slot `slot`.
static void draw(const PufNetwork* net, PufWorkspace* work, int32_t rows, uint64_t key,
                 uint64_t slot, uint64_t counter) {
    const int32_t numbers = net->head.num_discrete + 2 * net->head.num_continuous;
    for (int32_t i = 0; i < numbers; i++)
        fill_uniforms(rows, key, slot, counter * (uint64_t)numbers + (uint64_t)i,
                      work->steps.uniforms + i * PUF_TILE);
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
    int32_t tiles;
} ActJob;

static void act_tile(const ActJob* job, int32_t worker, int32_t tile) {
    const PufNetwork* net = job->engine->network;
    PufWorkspace* work = job->engine->works[worker];
    const PufAct* act = job->act;
    const int32_t first = tile * PUF_TILE, left = act->rows - first;
    const int32_t rows = left < PUF_TILE ? left : PUF_TILE;
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
    const ActJob* job = context;
    int32_t tile;
    while ((tile = puf_threads_claim(job->engine->threads, worker, 0, job->tiles)) >= 0)
        act_tile(job, worker, tile);
}

void puf_engine_act(PufEngine* engine, const PufAct* act) {
    ActJob job = {engine, act, (act->rows + PUF_TILE - 1) / PUF_TILE};
    if (job.tiles > 4)
        puf_threads_run(engine->threads, 1, act_body, &job);
    else  // waking a thread takes longer
        for (int32_t tile = 0; tile < job.tiles; tile++) act_tile(&job, 0, tile);
}

// ---- Rollouts -----------------------------------------------------------------------------------

typedef struct {
    PufEngine* engine;
    PufVec* vec;
    const PufBatch* batch;
    PufRollout* rollout;
    uint8_t* resets;
    PufState state;          // of each slot
    const PufObsNorm* norm;  // NULL: observations are as the envs give them
    PufObsSums* sums;        // [blocks], of the norm
    uint64_t key, first_slot;
    int32_t num_units, blocks_per_unit;
    PufStage* stages;  // [threads]
    atomic_bool some_absent, some_infinite;
    atomic_llong env_ns, all_ns;  // of the steps that are timed
} CollectJob;

// Some slots, step by step.
typedef struct {
    CollectJob* job;
    PufWorkspace* work;
    PufStage* stage;
    int32_t first, last;  // slots
    int32_t stretch, t;
    int64_t env_ns, all_ns;  // of all units of a thread: see CollectJob
} Unit;

static bool stages_choices(const PufNetwork* net) {
    return net->head.num_discrete == 1 && !net->head.num_continuous;
}

// The cell of the first slot in step t of this stretch.
static size_t cell_of(const Unit* unit, int32_t t) {
    const PufRollout* rollout = unit->job->rollout;
    const size_t segment = (size_t)unit->stretch * (size_t)rollout->num_slots + (size_t)unit->first;
    return segment * (size_t)rollout->horizon + (size_t)t;
}

// Where slot `slot` of the present step is in the stage.
static size_t staged_at(const Unit* unit, int32_t slot) {
    return (size_t)(unit->t % unit->stage->steps) * (size_t)unit->stage->slots +
           (size_t)(slot - unit->first);
}

// Moves the staged steps up to this one into the rollout.
static void unload(const Unit* unit) {
    const PufStage* stage = unit->stage;
    const PufRollout* rollout = unit->job->rollout;
    const int32_t steps = unit->t % stage->steps + 1, slots = unit->last - unit->first;
    const size_t stride = (size_t)stage->slots, horizon = (size_t)rollout->horizon;
    const size_t cell = cell_of(unit, unit->t + 1 - steps);
    puf_turn_words(steps, slots, stage->logprobs, stride, rollout->logprobs + cell, horizon);
    puf_turn_words(steps, slots, stage->values, stride, rollout->values + cell, horizon);
    puf_turn_words(steps, slots, stage->rewards, stride, rollout->rewards + cell, horizon);
    if (stages_choices(unit->job->engine->network))
        puf_turn_words(steps, slots, stage->choices, stride, rollout->actions + cell, horizon);
    puf_turn_bytes(steps, slots, stage->masks, stride, rollout->masks + cell, horizon);
    puf_turn_bytes(steps, slots, stage->resets, stride, rollout->resets + cell, horizon);
    puf_turn_bytes(steps, slots, stage->terminals, stride, rollout->terminals + cell, horizon);
    puf_turn_bytes(steps, slots, stage->truncations, stride, rollout->truncations + cell, horizon);
}

static void note(atomic_bool* flag) { atomic_store_explicit(flag, true, memory_order_relaxed); }

// Stores observations, masks and resets of a tile, and gives them to the workspace. Stores of bytes
// may change any pointer in memory, as far as the compiler knows, so pointers are locals.
static void store_before(const Unit* unit, int32_t first, int32_t rows) {
    CollectJob* job = unit->job;
    PufWorkspace* work = unit->work;
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    const size_t horizon = (size_t)job->rollout->horizon, bytes = net->obs_bytes;
    const size_t cell = cell_of(unit, unit->t) + (size_t)(first - unit->first) * horizon;
    const uint8_t* seen = batch->observations + (size_t)first * batch->obs_stride;
    uint8_t* kept = job->rollout->observations + cell * bytes;
    if (job->norm)
        puf_obs_norm_apply(job->norm, rows, seen, batch->obs_stride, kept, horizon * bytes);
    for (int32_t row = 0; row < rows; row++, seen += batch->obs_stride, kept += horizon * bytes) {
        if (!job->norm) puf_copy(kept, seen, bytes);
        puf_network_read(net, work, row, job->norm ? kept : seen);
    }
    const size_t at = staged_at(unit, first);
    const uint8_t* present = batch->masks + first;
    const size_t count = (uint32_t)rows;  // otherwise compilers warn about a negative size
    memcpy(unit->stage->masks + at, present, count);
    memcpy(unit->stage->resets + at, job->resets + first, count);
    uint8_t all = 1;
    for (int32_t row = 0; row < rows; row++) all &= present[row] != 0;
    if (!all) note(&job->some_absent);
    work->steps.legal = job->rollout->action_masks ? work->legal : NULL;
    const size_t width = (size_t)batch->mask_width;
    for (int32_t row = 0; row < rows && work->steps.legal; row++) {
        const uint8_t* legal = batch->action_masks + (size_t)(first + row) * batch->mask_stride;
        memcpy(job->rollout->action_masks + (cell + (size_t)row * horizon) * width, legal, width);
        puf_network_read_mask(net, work, row, legal);
    }
}

// Stores the actions of a tile, and writes them into the rows of the env.
static void store_actions(const Unit* unit, int32_t first, int32_t rows) {
    const PufWorkspace* work = unit->work;
    const PufRollout* rollout = unit->job->rollout;
    const PufNetwork* net = unit->job->engine->network;
    const size_t words = (size_t)puf_network_action_words(net);
    int32_t* to_env = puf_vec_action_rows(unit->job->vec) + (size_t)first * words;
    if (stages_choices(net)) {
        const size_t bytes = (size_t)rows * sizeof(int32_t);
        memcpy(to_env, work->steps.choices, bytes);
        memcpy(unit->stage->choices + staged_at(unit, first), work->steps.choices, bytes);
        return;
    }
    const size_t step = (size_t)rollout->horizon * words;
    int32_t* to =
        rollout->actions + cell_of(unit, unit->t) * words + (size_t)(first - unit->first) * step;
    for (int32_t row = 0; row < rows; row++, to += step, to_env += words) {
        write_words(net, work, row, work->steps.reals, to);
        write_words(net, work, row, work->steps.env_reals, to_env);
    }
}

// Reads slots [first, first + rows), acts, and stores the step up to the actions.
static void collect_tile(const Unit* unit, int32_t first, int32_t rows) {
    CollectJob* job = unit->job;
    PufWorkspace* work = unit->work;
    const PufNetwork* net = job->engine->network;
    const PufRollout* rollout = job->rollout;
    const size_t segment = (size_t)unit->stretch * (size_t)rollout->num_slots + (size_t)first;
    store_before(unit, first, rows);
    forward_step(net, work, rows, &job->state, NULL, first);
    for (int32_t row = 0; row < rows && net->spec.core && unit->t == 0; row++)
        puf_core_store(net, work, row, &rollout->states, segment + (size_t)row);
    store_state(net, work, rows, &job->state, first);
    draw(net, work, rows, job->key, job->first_slot + (uint64_t)first,
         (uint64_t)unit->stretch * (uint64_t)rollout->horizon + (uint64_t)unit->t);
    store_actions(unit, first, rows);
    const float *values = values_of(net, work), *logprobs = work->steps.logprobs;
    const size_t at = staged_at(unit, first);
    memcpy(unit->stage->values + at, values, (size_t)rows * sizeof(float));
    memcpy(unit->stage->logprobs + at, logprobs, (size_t)rows * sizeof(float));
    bool finite =
        net->kernels->all_finite(rows, values) && net->kernels->all_finite(rows, logprobs);
    if (net->reads_as_is && !job->norm && job->batch->obs_stride == net->obs_bytes)
        finite = finite && net->kernels->all_finite(
                               rows * net->spec.obs_size,
                               (const float*)(const void*)(job->batch->observations +
                                                           (size_t)first * net->obs_bytes));
    else if (net->spec.obs_type == PUF_OBS_F32 || net->spec.obs_type == PUF_OBS_F64)
        finite = finite && net->kernels->all_finite(rows * net->x_stride, work->x);
    if (!finite) note(&job->some_infinite);
}

// Computes the values of the rows of `from` that belong to the listed slots.
static void value_rows(const CollectJob* job, PufWorkspace* work, const uint8_t* from,
                       size_t stride, const int32_t* slots, int32_t count) {
    const PufNetwork* net = job->engine->network;
    for (int32_t row = 0; row < count; row++) {
        const uint8_t* seen = from + (size_t)slots[row] * stride;
        if (job->norm) {
            puf_obs_norm_apply(job->norm, 1, seen, 0, work->seen, 0);
            seen = work->seen;
        }
        puf_network_read(net, work, row, seen);
    }
    forward_step(net, work, count, &job->state, slots, 0);
}

// The values of the final observations of slots that were cut off in this step.
static void store_final_values(const Unit* unit, const int32_t* cut, int32_t num_cut) {
    const CollectJob* job = unit->job;
    const PufRollout* rollout = job->rollout;
    float* values = rollout->final_values + cell_of(unit, unit->t);
    value_rows(job, unit->work, job->batch->final_observations, job->batch->obs_bytes, cut,
               num_cut);
    for (int32_t i = 0; i < num_cut; i++)
        values[(size_t)(cut[i] - unit->first) * (size_t)rollout->horizon] =
            values_of(job->engine->network, unit->work)[i];
}

// Stores rewards and ends of a step.
static void store_after(const Unit* unit) {
    CollectJob* job = unit->job;
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    const int32_t first = unit->first, count = unit->last - first;
    const size_t at = staged_at(unit, first);
    const uint8_t *terminals = batch->terminals + first, *truncations = batch->truncations + first;
    const uint8_t* masks = unit->stage->masks + at;
    uint8_t *resets = job->resets + first, any_cut = 0;
    memcpy(unit->stage->rewards + at, batch->rewards + first, (size_t)count * sizeof(float));
    memcpy(unit->stage->terminals + at, terminals, (size_t)count);
    memcpy(unit->stage->truncations + at, truncations, (size_t)count);
    if (!net->kernels->all_finite(count, batch->rewards + first)) note(&job->some_infinite);
    for (int32_t i = 0; i < count; i++) {
        // an agent that left at an end must return without a recurrent state
        const uint8_t ends = terminals[i] | truncations[i], left = masks[i] ? 0 : resets[i];
        resets[i] = (ends | left) != 0;
        any_cut |= truncations[i];
    }
    int32_t cut[PUF_TILE], num_cut = 0;
    for (int32_t i = 0; i < count && any_cut; i++) {
        if (truncations[i]) cut[num_cut++] = first + i;
        if (num_cut && (num_cut == PUF_TILE || i + 1 == count)) {
            store_final_values(unit, cut, num_cut);
            num_cut = 0;
        }
    }
    for (int32_t i = 0; i < count && net->spec.core; i++)
        if (resets[i]) puf_core_clear(net, &job->state, (size_t)(first + i));
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

// The slots of a unit: a few blocks of envs.
static void unit_slots(const CollectJob* job, int32_t unit, int32_t* first, int32_t* last) {
    const int32_t block = unit * job->blocks_per_unit, num_blocks = puf_vec_num_blocks(job->vec);
    const int32_t end = block + job->blocks_per_unit;
    int32_t unused;
    puf_vec_block_slots(job->vec, block, first, &unused);
    puf_vec_block_slots(job->vec, (end < num_blocks ? end : num_blocks) - 1, &unused, last);
}

// Adds what the policy is about to see to the sums of the norm. They are those of blocks, which do
// not depend on the number of threads.
static void add_observations(const CollectJob* job, int32_t first_block, int32_t last_block) {
    const PufBatch* batch = job->batch;
    for (int32_t block = first_block; block < last_block; block++) {
        int32_t first, last;
        puf_vec_block_slots(job->vec, block, &first, &last);
        puf_obs_norm_add(job->norm, last - first,
                         batch->observations + (size_t)first * batch->obs_stride, batch->obs_stride,
                         batch->masks + first, &job->sums[block]);
    }
}

static void collect_step(Unit* unit, int32_t first_block, int32_t last_block) {
    const bool is_timed = unit->t % TIMED == 0;
    const int64_t start = is_timed ? puf_now_ns() : 0;
    if (unit->job->norm) add_observations(unit->job, first_block, last_block);
    for (int32_t at = unit->first; at < unit->last; at += PUF_TILE)
        collect_tile(unit, at, unit->last - at < PUF_TILE ? unit->last - at : PUF_TILE);
    const int64_t before = is_timed ? puf_now_ns() : 0;
    puf_vec_step_blocks(unit->job->vec, first_block, last_block);
    if (is_timed) unit->env_ns += puf_now_ns() - before;
    store_after(unit);
    if (is_timed) unit->all_ns += puf_now_ns() - start;
}

// A thread steps a few blocks of envs through the whole rollout.
static void collect_body(void* context, int32_t worker) {
    CollectJob* job = context;
    const PufRollout* rollout = job->rollout;
    const int32_t num_blocks = puf_vec_num_blocks(job->vec), horizon = rollout->horizon;
    const int32_t stretches = rollout->segments / rollout->num_slots;
    Unit unit = {.job = job, .work = job->engine->works[worker], .stage = &job->stages[worker]};
    int32_t item;
    while ((item = puf_threads_claim(job->engine->threads, worker, 0, job->num_units)) >= 0) {
        const int32_t first = item * job->blocks_per_unit, end = first + job->blocks_per_unit;
        unit_slots(job, item, &unit.first, &unit.last);
        for (unit.stretch = 0; unit.stretch < stretches; unit.stretch++)
            for (unit.t = 0; unit.t < horizon; unit.t++) {
                collect_step(&unit, first, end < num_blocks ? end : num_blocks);
                if (unit.t + 1 == horizon || (unit.t + 1) % unit.stage->steps == 0) unload(&unit);
            }
        bootstrap(job, unit.work, unit.first, unit.last);
    }
    atomic_fetch_add(&job->env_ns, unit.env_ns);
    atomic_fetch_add(&job->all_ns, unit.all_ns);
}

static int32_t most_slots(const CollectJob* job) {
    int32_t most = 0, first, last;
    for (int32_t i = 0; i < job->num_units; i++) {
        unit_slots(job, i, &first, &last);
        if (last - first > most) most = last - first;
    }
    return most;
}

// Sums of a norm, all 0, for `count` blocks: one allocation, to be freed. NULL without memory.
static PufObsSums* sums_create(int32_t count, int32_t size) {
    const size_t table = (size_t)count * sizeof(PufObsSums), row = (size_t)size * sizeof(double);
    PufObsSums* sums = calloc(1, table + 2 * (size_t)count * row);
    double* at = sums ? (double*)(void*)(sums + count) : NULL;
    for (int32_t i = 0; sums && i < count; i++, at += 2 * size)
        sums[i].sums = at, sums[i].squares = at + size;
    return sums;
}

PufCode puf_engine_collect(PufEngine* engine, PufVec* vec, PufRollout* rollout, uint8_t* resets,
                           const PufState* state, const PufObsNorm* norm, uint64_t key,
                           uint64_t first_slot) {
    const PufBatch* batch = puf_vec_batch(vec);
    const PufNetwork* net = engine->network;
    const int32_t num_slots = batch->num_envs * batch->agents_per_env;
    const bool has_masks = batch->layout.action_masks;
    if (!batch->observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before collect");
    if (rollout->num_slots != num_slots || rollout->segments % num_slots ||
        batch->obs_bytes != net->obs_bytes ||
        batch->action_words != puf_network_action_words(net) ||
        (has_masks &&
         (!rollout->action_masks || batch->mask_width != puf_network_mask_width(net))) ||
        (norm && (norm->size != net->spec.obs_size ||
                  net->spec.obs_type != (norm->is_double ? PUF_OBS_F64 : PUF_OBS_F32))))
        return puf_fail(PUF_BAD_ARGUMENT, "the rollout must fit the envs and the policy");
    const int32_t num_blocks = puf_vec_num_blocks(vec);
    const int32_t threads = puf_threads_count(engine->threads);
    // units of about a tile, but at least two for each thread
    int32_t units = (num_slots + PUF_TILE - 1) / PUF_TILE;
    if (units < 2 * threads) units = 2 * threads;
    if (units > num_blocks) units = num_blocks;
    const int32_t blocks_per_unit = (num_blocks + units - 1) / units;
    CollectJob job = {.engine = engine,
                      .vec = vec,
                      .batch = batch,
                      .rollout = rollout,
                      .resets = resets,
                      .state = *state,
                      .norm = norm,
                      .key = key,
                      .first_slot = first_slot,
                      .num_units = (num_blocks + blocks_per_unit - 1) / blocks_per_unit,
                      .blocks_per_unit = blocks_per_unit};
    job.stages = puf_stages_create(threads, most_slots(&job));
    job.sums = norm ? sums_create(num_blocks, norm->size) : NULL;
    const bool good = job.stages && (job.sums || !norm);
    if (good) puf_threads_run(engine->threads, 1, collect_body, &job);
    if (good && norm) puf_obs_norm_join(norm, num_blocks, job.sums);
    free(job.stages);
    free(job.sums);
    if (!good) return puf_fail(PUF_NO_MEMORY, "cannot allocate a rollout");
    rollout->all_present = !atomic_load(&job.some_absent);
    rollout->all_finite = !atomic_load(&job.some_infinite);
    const double timed = (double)atomic_load(&job.all_ns);
    rollout->env_share = timed > 0 ? (double)atomic_load(&job.env_ns) / timed : 0;
    return PUF_OK;
}
