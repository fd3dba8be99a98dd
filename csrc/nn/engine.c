// engine.c - see engine.h.
#include "engine.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARTS = 16,          // of a gradient: enough for as many threads
    MIN_TILES = 2,           // of a part
    PIECE = 2048,            // floats
    MAX_PARTIALS = 1 << 23,  // floats of all partial gradients together
};

// Rows [first, last) of a parameter.
typedef struct PufPiece {
    int32_t param, first, last;
} PufPiece;

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
        if (!(engine->works[i] = puf_workspace_create(net))) goto failed;
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

static int32_t action_words(const PufNetwork* net) {
    return net->head.num_discrete + net->head.num_continuous;
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

typedef struct {
    PufEngine* engine;
    const PufAct* act;
    atomic_int next;
} ActJob;

static void act_tile(const PufNetwork* net, PufWorkspace* work, const PufAct* act, int32_t first,
                     int32_t rows) {
    const size_t words = (size_t)action_words(net), width = (size_t)puf_network_mask_width(net);
    work->steps.legal = act->action_masks ? work->legal : NULL;
    for (int32_t row = 0; row < rows; row++) {
        const size_t at = (size_t)(first + row);
        puf_network_read(net, work, row, act->observations + at * net->obs_bytes);
        if (act->action_masks)
            puf_network_read_mask(net, work, row, act->action_masks + at * width);
    }
    puf_network_forward(net, work, rows);
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
    uint64_t key, first_slot;
    int32_t blocks_per_unit;
    atomic_int next;
    atomic_bool some_absent;
} CollectJob;

// Looks at slots [first, first + rows) and writes what the policy does in step (stretch, t).
static void collect_tile(CollectJob* job, PufWorkspace* work, int32_t first, int32_t rows,
                         int32_t stretch, int32_t t) {
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    PufRollout* rollout = job->rollout;
    const size_t horizon = (size_t)rollout->horizon, words = (size_t)action_words(net);
    const size_t width = (size_t)batch->mask_width;
    const size_t segment = (size_t)stretch * (size_t)rollout->num_slots + (size_t)first;
    work->steps.legal = rollout->action_masks ? work->legal : NULL;
    for (int32_t row = 0; row < rows; row++) {
        const size_t slot = (size_t)(first + row);
        const size_t cell = (segment + (size_t)row) * horizon + (size_t)t;
        const uint8_t* observation = batch->observations + slot * batch->obs_stride;
        memcpy(rollout->observations + cell * net->obs_bytes, observation, net->obs_bytes);
        puf_network_read(net, work, row, observation);
        rollout->masks[cell] = batch->masks[slot];
        rollout->resets[cell] = job->resets[slot];
        if (!batch->masks[slot])
            atomic_store_explicit(&job->some_absent, true, memory_order_relaxed);
        if (rollout->action_masks) {
            const uint8_t* legal = batch->action_masks + slot * batch->mask_stride;
            memcpy(rollout->action_masks + cell * width, legal, width);
            puf_network_read_mask(net, work, row, legal);
        }
    }
    puf_network_forward(net, work, rows);
    const float* values = values_of(net, work);
    for (int32_t row = 0; row < rows; row++)
        rollout->values[(segment + (size_t)row) * horizon + (size_t)t] = values[row];
    draw(net, work, rows, job->key, job->first_slot + (uint64_t)first,
         (uint64_t)stretch * horizon + (uint64_t)t);
    int32_t* env_rows = puf_vec_action_rows(job->vec);
    for (int32_t row = 0; row < rows; row++) {
        const size_t cell = (segment + (size_t)row) * horizon + (size_t)t;
        write_words(net, work, row, work->steps.reals, rollout->actions + cell * words);
        write_words(net, work, row, work->steps.env_reals,
                    env_rows + (size_t)(first + row) * words);
        rollout->logprobs[cell] = work->steps.logprobs[row];
    }
}

// Values of rows that `from` gives for the slots listed, into `to` at each slot's place.
static void value_rows(const PufNetwork* net, PufWorkspace* work, const uint8_t* from,
                       size_t stride, const int32_t* slots, int32_t count) {
    for (int32_t row = 0; row < count; row++)
        puf_network_read(net, work, row, from + (size_t)slots[row] * stride);
    puf_network_forward(net, work, count);
}

// Takes what the step led to, for slots [first, last).
static void store_step(CollectJob* job, PufWorkspace* work, int32_t first, int32_t last,
                       int32_t stretch, int32_t t) {
    const PufNetwork* net = job->engine->network;
    const PufBatch* batch = job->batch;
    PufRollout* rollout = job->rollout;
    const size_t horizon = (size_t)rollout->horizon;
    int32_t cut[PUF_TILE], num_cut = 0;
    for (int32_t slot = first; slot < last; slot++) {
        const size_t segment = (size_t)stretch * (size_t)rollout->num_slots + (size_t)slot;
        const size_t cell = segment * horizon + (size_t)t;
        const uint8_t terminal = batch->terminals[slot], truncation = batch->truncations[slot];
        rollout->rewards[cell] = batch->rewards[slot];
        rollout->terminals[cell] = terminal;
        rollout->truncations[cell] = truncation;
        // an agent that left at an end must come back without a memory
        job->resets[slot] = (terminal | truncation) || (job->resets[slot] && !rollout->masks[cell]);
        if (truncation) cut[num_cut++] = slot;
        if (num_cut && (num_cut == PUF_TILE || slot + 1 == last)) {
            value_rows(net, work, batch->final_observations, batch->obs_bytes, cut, num_cut);
            for (int32_t i = 0; i < num_cut; i++) {
                const size_t of = (size_t)stretch * (size_t)rollout->num_slots + (size_t)cut[i];
                rollout->final_values[of * horizon + (size_t)t] = values_of(net, work)[i];
            }
            num_cut = 0;
        }
    }
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
        value_rows(net, work, job->batch->observations, job->batch->obs_stride, slots, rows);
        for (int32_t row = 0; row < rows; row++)
            after[slot + row] = job->batch->masks[slot + row] ? values_of(net, work)[row] : 0.0f;
    }
}

// One thread takes a few blocks of envs through the whole rollout.
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
                store_step(job, work, slot, end, stretch, t);
            }
        bootstrap(job, work, slot, end);
    }
}

PufCode puf_engine_collect(PufEngine* engine, PufVec* vec, PufRollout* rollout, uint8_t* resets,
                           uint64_t key, uint64_t first_slot) {
    const PufBatch* batch = puf_vec_batch(vec);
    const PufNetwork* net = engine->network;
    const int32_t num_slots = batch->num_envs * batch->agents_per_env;
    const bool has_masks = batch->layout.action_masks;
    if (!batch->observations) return puf_fail(PUF_BAD_ARGUMENT, "bind buffers before collect");
    if (rollout->num_slots != num_slots || rollout->segments % num_slots ||
        batch->obs_bytes != net->obs_bytes || batch->action_words != action_words(net) ||
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
                      .key = key,
                      .first_slot = first_slot,
                      .blocks_per_unit = (num_blocks + units - 1) / units};
    puf_threads_run(engine->threads, collect_body, &job);
    rollout->all_present = !atomic_load(&job.some_absent);
    return PUF_OK;
}

// ---- Updates ------------------------------------------------------------------------------------

typedef struct {
    double mean, std;
    float share;    // 1 / steps that count
    int64_t steps;  // rows of the minibatch, masked ones included
    int32_t parts;
} Minibatch;

typedef struct {
    PufEngine* engine;
    const PufPass* pass;
    Minibatch* minibatches;
    double (*losses)[PUF_NUM_LOSSES];  // [max_parts]
    atomic_int* counters;              // next item of each phase
} PassJob;

// The cell [segments * horizon] of row `row` of a minibatch that begins at `first` in the order.
static size_t cell_of(const PufPass* pass, int64_t first, int64_t row, float* weight) {
    const int64_t horizon = pass->rollout->horizon;
    const int64_t unit = pass->by_step ? first + row : first + row / horizon;
    if (!pass->order) {  // all steps in order
        *weight = 1.0f;
        return (size_t)unit;
    }
    *weight = pass->weights ? pass->weights[unit] : 1.0f;
    return (size_t)(pass->by_step ? pass->order[unit]
                                  : pass->order[unit] * horizon + row % horizon);
}

// Mean and deviation of the advantages of a minibatch, and how many steps count.
static void measure(const PassJob* job, int32_t index) {
    const PufPass* pass = job->pass;
    const PufRollout* rollout = pass->rollout;
    Minibatch* batch = &job->minibatches[index];
    const int64_t first = pass->splits[index], units = pass->splits[index + 1] - first;
    batch->steps = pass->by_step ? units : units * rollout->horizon;
    const int64_t tiles = (batch->steps + PUF_TILE - 1) / PUF_TILE;
    int64_t parts = tiles / MIN_TILES;
    parts = parts < 1 ? 1 : parts;
    batch->parts = parts < job->engine->max_parts ? (int32_t)parts : job->engine->max_parts;
    double count = 0, total = 0, sum = 0, squares = 0;
    for (int64_t row = 0; row < batch->steps; row++) {
        float weight;
        const size_t cell = cell_of(pass, first, row, &weight);
        if (!rollout->all_present && !rollout->masks[cell]) continue;
        count += 1;
        total += (double)weight;
        sum += (double)weight * (double)pass->advantages[cell];
    }
    const double mean = total > 0 ? sum / total : 0;
    for (int64_t row = 0; row < batch->steps && pass->norm_adv; row++) {
        float weight;
        const size_t cell = cell_of(pass, first, row, &weight);
        if (!rollout->all_present && !rollout->masks[cell]) continue;
        const double offset = (double)pass->advantages[cell] - mean;
        squares += (double)weight * offset * offset;
    }
    const double std = total > 0 ? sqrt(squares / total) : 0;
    batch->mean = pass->norm_adv ? mean : 0;
    batch->std = !pass->norm_adv                 ? 1
                 : std < (double)pass->adv_floor ? (double)pass->adv_floor
                                                 : std;
    batch->share = (float)(1.0 / (count > 0 ? count : 1));
}

// Fills rows of a tile with steps of the rollout.
static void gather(const PassJob* job, PufWorkspace* work, const Minibatch* batch, int64_t first,
                   int64_t from, int32_t rows) {
    const PufPass* pass = job->pass;
    const PufRollout* rollout = pass->rollout;
    const PufNetwork* net = job->engine->network;
    PufColumns* steps = &work->steps;
    const size_t words = (size_t)action_words(net), width = (size_t)puf_network_mask_width(net);
    const float mean = (float)batch->mean, scale = (float)(1.0 / batch->std);
    steps->legal = rollout->action_masks ? work->legal : NULL;
    for (int32_t row = 0; row < rows; row++) {
        const size_t cell = cell_of(pass, first, from + row, &steps->weights[row]);
        puf_network_read(net, work, row, rollout->observations + cell * net->obs_bytes);
        if (rollout->action_masks)
            puf_network_read_mask(net, work, row, rollout->action_masks + cell * width);
        const int32_t* action = rollout->actions + cell * words;
        for (int32_t i = 0; i < net->head.num_discrete; i++)
            steps->choices[i * PUF_TILE + row] = *action++;
        for (int32_t i = 0; i < net->head.num_continuous; i++)
            memcpy(&steps->reals[i * PUF_TILE + row], action++, sizeof(float));
        steps->old_logprobs[row] = rollout->logprobs[cell];
        steps->old_values[row] = rollout->values[cell];
        steps->advantages[row] = (pass->advantages[cell] - mean) * scale;
        steps->returns[row] = pass->returns[cell];
        steps->present[row] = rollout->all_present || rollout->masks[cell] ? -1 : 0;
    }
    for (int32_t row = rows; row < PUF_TILE; row++) steps->present[row] = 0;
}

// Tiles of one part of a minibatch, forwards and backwards.
static void differentiate(const PassJob* job, PufWorkspace* work, int32_t index, int32_t part) {
    const PufPass* pass = job->pass;
    const PufNetwork* net = job->engine->network;
    const Minibatch* batch = &job->minibatches[index];
    const int64_t tiles = (batch->steps + PUF_TILE - 1) / PUF_TILE;
    const int64_t first = tiles * part / batch->parts, last = tiles * (part + 1) / batch->parts;
    float* partial = job->engine->partials + (size_t)part * net->partial_floats;
    double* losses = job->losses[part];
    PufLossOptions options = pass->loss;
    options.share = batch->share;
    memset(losses, 0, sizeof job->losses[part]);
    memset(partial + net->log_std_at, 0, (size_t)net->head.num_continuous * sizeof(float));
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t from = tile * PUF_TILE;
        const int32_t rows =
            batch->steps - from < PUF_TILE ? (int32_t)(batch->steps - from) : PUF_TILE;
        gather(job, work, batch, pass->splits[index], from, rows);
        puf_network_forward(net, work, rows);
        net->kernels->ppo(&net->head, &options, &work->steps, losses, partial + net->log_std_at);
        puf_network_backward(net, work, rows, partial, tile == first);
    }
}

// The next item of a phase that has `count` of them; -1 when none is left.
static int32_t claim(const PassJob* job, int32_t phase, int32_t count) {
    const int32_t item = atomic_fetch_add_explicit(&job->counters[phase], 1, memory_order_relaxed);
    return item < count ? item : -1;
}

static void update_piece(const PassJob* job, const PufAdam* adam, const PufPiece* piece) {
    PufNetwork* net = job->engine->network;
    const PufParam* param = &net->params[piece->param];
    const size_t at = (size_t)piece->first * (size_t)param->cols;
    net->kernels->adam((piece->last - piece->first) * param->cols, adam,
                       job->engine->joined + param->grad_at + at, param->value + at,
                       param->mean + at, param->square + at);
    puf_network_pack_rows(net, piece->param, piece->first, piece->last);
}

// What all threads do together. Phases: measure all minibatches; then for each one differentiate
// its parts, join them piece by piece, and update piece by piece.
static void pass_body(void* context, int32_t worker) {
    PassJob* job = context;
    PufEngine* engine = job->engine;
    const PufPass* pass = job->pass;
    int32_t phase = 0, item;
    double num_steps = pass->num_steps ? (double)*pass->num_steps : 0;
    while ((item = claim(job, phase, pass->num_minibatches)) >= 0) measure(job, item);
    puf_threads_meet(engine->threads);
    for (int32_t index = 0; index < pass->num_minibatches; index++) {
        const Minibatch* batch = &job->minibatches[index];
        phase++;
        while ((item = claim(job, phase, batch->parts)) >= 0)
            differentiate(job, engine->works[worker], index, item);
        puf_threads_meet(engine->threads);
        phase++;
        while ((item = claim(job, phase, engine->num_pieces)) >= 0) {
            const PufPiece* piece = &engine->pieces[item];
            engine->squares[item] =
                puf_network_join(engine->network, piece->param, piece->first, piece->last,
                                 batch->parts, engine->partials, engine->joined);
        }
        if (worker == 0)
            for (int32_t i = 0; i < PUF_NUM_LOSSES; i++) {
                double sum = 0;
                for (int32_t part = 0; part < batch->parts; part++) sum += job->losses[part][i];
                pass->numbers[index * (PUF_NUM_LOSSES + 1) + i] =
                    (float)(sum * (double)batch->share);
            }
        puf_threads_meet(engine->threads);
        double squares = 0;
        for (int32_t i = 0; i < engine->num_pieces; i++) squares += engine->squares[i];
        const float norm = (float)sqrt(squares);
        if (worker == 0) pass->numbers[index * (PUF_NUM_LOSSES + 1) + PUF_NUM_LOSSES] = norm;
        phase++;
        if (!pass->step) continue;
        if (isfinite(norm)) {  // else the weights stay as they are
            PufAdam adam = pass->adam;
            num_steps += 1;
            adam.correction1 = (float)(1 - pow((double)adam.beta1, num_steps));
            adam.correction2 = (float)(1 - pow((double)adam.beta2, num_steps));
            const float limit = pass->max_grad_norm;
            adam.grad_scale = limit >= 0 && norm > limit ? limit / norm : 1.0f;
            while ((item = claim(job, phase, engine->num_pieces)) >= 0)
                update_piece(job, &adam, &engine->pieces[item]);
        }
        puf_threads_meet(engine->threads);
    }
    if (worker == 0 && pass->num_steps) *pass->num_steps = (float)num_steps;
}

PufCode puf_engine_pass(PufEngine* engine, const PufPass* pass) {
    const size_t count = (size_t)pass->num_minibatches;
    PassJob job = {.engine = engine, .pass = pass};
    job.minibatches = calloc(count, sizeof(Minibatch));
    job.losses = calloc((size_t)engine->max_parts, sizeof *job.losses);
    job.counters = calloc(3 * count + 1, sizeof(atomic_int));
    const bool good = job.minibatches && job.losses && job.counters;
    if (good) puf_threads_run(engine->threads, pass_body, &job);
    free(job.minibatches);
    free(job.losses);
    free(job.counters);
    return good ? PUF_OK
                : puf_fail(PUF_NO_MEMORY, "cannot allocate a pass over %zu minibatches", count);
}

// ---- Log-probabilities --------------------------------------------------------------------------

typedef struct {
    PassJob pass;
    float* logprobs;
    int64_t steps;
    atomic_int next;
} JudgeJob;

static void judge_body(void* context, int32_t worker) {
    static const Minibatch plain = {.std = 1, .share = 1};
    static const PufLossOptions no_loss = {.vf_clip_coef = -1};
    JudgeJob* job = context;
    const PufNetwork* net = job->pass.engine->network;
    PufWorkspace* work = job->pass.engine->works[worker];
    for (;;) {
        const int64_t first = (int64_t)atomic_fetch_add(&job->next, 1) * PUF_TILE;
        const int64_t left = job->steps - first;
        if (left <= 0) return;
        const int32_t rows = left < PUF_TILE ? (int32_t)left : PUF_TILE;
        double losses[PUF_NUM_LOSSES] = {0};
        float of_log_std[PUF_MAX_ACTION_PARTS] = {0};
        gather(&job->pass, work, &plain, 0, first, rows);
        puf_network_forward(net, work, rows);
        net->kernels->ppo(&net->head, &no_loss, &work->steps, losses, of_log_std);
        memcpy(job->logprobs + first, work->steps.logprobs, (size_t)rows * sizeof(float));
    }
}

void puf_engine_logprobs(PufEngine* engine, const PufRollout* rollout, float* logprobs) {
    const PufPass all = {.rollout = rollout,
                         .advantages = rollout->values,
                         .returns = rollout->values,
                         .by_step = true};  // without an order: all steps, one after another
    JudgeJob job = {.pass = {.engine = engine, .pass = &all},
                    .logprobs = logprobs,
                    .steps = (int64_t)rollout->segments * rollout->horizon};
    puf_threads_run(engine->threads, judge_body, &job);
}
