// updates.c - the gradients of a rollout and the steps that use them; see engine.h.
//
// A minibatch is cut into parts, and each part goes through the network in tiles. Without a core a
// tile is any PUF_TILE steps; with one it is some steps of a group of segments, and groups follow
// one another.
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "minibatch.h"
#include "sync/waiting.h"
#include "tile.h"

enum {
    MIN_TILES = 2,      // of a part
    TILES_OF_TWO = 4,   // of a part whose last tile is an item of its own
    MIN_SEGMENTS = 16,  // of a part, for recurrent policies: a product of fewer rows is slow
    MAX_SEGMENTS = 32,  // that go through a core together: two steps fill a tile
    MAX_ROWS = 4096,    // of such segments
};

// ---- Parts
// ---------------------------------------------------------------------------------------

// A part of the present minibatch, on cache lines of its own.
typedef struct {
    _Alignas(128) double losses[PUF_NUM_LOSSES];
    atomic_int begun;  // 1 + the last minibatch whose part is there, up to its last tile
} Part;

typedef struct {
    PufEngine* engine;
    const PufPass* pass;
    int64_t* order;  // that of the pass if it has keys: to be drawn
    PufMinibatch* minibatches;
    Part* parts;  // [max_parts]
    bool uses_muon;
} PassJob;

// In how many parts a minibatch is differentiated: a number that its size alone decides.
static int32_t num_parts(const PufEngine* engine, const PufMinibatch* batch) {
    if (!engine->network->spec.core) {
        const int64_t parts = (batch->steps + PUF_TILE - 1) / PUF_TILE / MIN_TILES;
        return parts < 1 ? 1 : parts < engine->max_parts ? (int32_t)parts : engine->max_parts;
    }
    int32_t parts = batch->units < 2 ? 1 : 2;  // doubled: equal parts for most numbers of threads
    while (2 * parts <= engine->max_parts && 2 * parts * MIN_SEGMENTS <= batch->units) parts *= 2;
    return parts;
}

// What the steps of a part add to: its gradient, and the sums of its losses.
typedef struct {
    PufLossOptions options;
    float* partial;
    double* losses;
} Sums;

// Tiles of one part of a minibatch, forwards and backwards: all but the last one, or that one.
static void differentiate_tiles(const PassJob* job, PufWorkspace* work, int32_t index, int32_t part,
                                bool is_last, Sums* sums) {
    const PufNetwork* net = job->engine->network;
    const PufMinibatch* batch = &job->minibatches[index];
    const int64_t tiles = (batch->steps + PUF_TILE - 1) / PUF_TILE;
    const int32_t parts = num_parts(job->engine, batch);
    const int64_t first = tiles * part / parts, end = tiles * (part + 1) / parts;
    const int64_t middle = end - first < TILES_OF_TWO ? end : end - 1;
    PufTile tile;
    puf_tile_of(job->pass, batch, (is_last ? middle : first) * PUF_TILE, &tile);
    for (int64_t i = is_last ? middle : first; i < (is_last ? end : middle); i++) {
        puf_tile_gather(job->pass, net, work, batch, &tile);
        const int32_t rows = tile.rows;
        puf_tile_of(job->pass, batch, (i + 1) * PUF_TILE, &tile);
        puf_tile_fetch(job->pass, net, &tile);
        puf_network_forward(net, work, rows);
        net->kernels->ppo(&net->head, &sums->options, &work->steps, sums->losses,
                          sums->partial + net->log_std_at);
        puf_network_backward(net, work, rows, sums->partial, i == first);
    }
}

// ---- Segments through a core --------------------------------------------------------------------

// `count` units of the order from `first` on, with their rows in order of time; see core.h.
typedef struct {
    int64_t first;
    int32_t count;
    int32_t steps;  // of a tile
} Group;

// How many segments of a horizon go through a core together.
static int32_t group_size(int32_t horizon) {
    const int32_t most = MAX_ROWS / horizon;
    return most < 1 ? 1 : most < MAX_SEGMENTS ? most : MAX_SEGMENTS;
}

static void tile_of_group(const PufPass* pass, const Group* group, int32_t t, PufTile* tile) {
    const int32_t horizon = pass->rollout->horizon;
    tile->rows = 0;
    for (int32_t end = t + group->steps; t < end && t < horizon; t++)
        for (int64_t unit = group->first; unit < group->first + group->count; unit++) {
            tile->cells[tile->rows] = puf_unit_cell(pass, unit) + (size_t)t;
            tile->weights[tile->rows++] = puf_unit_weight(pass, unit);
        }
}

// Prepares the states in which the segments of a group begin, and where they forget.
static void begin_group(const PufPass* pass, const PufNetwork* net, PufWorkspace* work,
                        const Group* group) {
    const PufRollout* rollout = pass->rollout;
    const int32_t horizon = rollout->horizon, count = group->count;
    int32_t* kept = work->core.kept;
    for (int32_t i = 0; i < count; i++) {
        const size_t cell = puf_unit_cell(pass, group->first + i);
        for (int32_t t = 0; t < horizon; t++)
            kept[t * count + i] = rollout->resets[cell + (size_t)t] ? 0 : -1;
        kept[horizon * count + i] = 0;  // no gradient comes from behind the segment
        puf_core_load(net, work, i, &rollout->states, cell / (size_t)horizon);
    }
}

static void differentiate_group(const PassJob* job, PufWorkspace* work, const PufMinibatch* batch,
                                const Group* group, Sums* sums, bool first) {
    const PufNetwork* net = job->engine->network;
    const PufPass* pass = job->pass;
    const int32_t horizon = pass->rollout->horizon, count = group->count;
    const int32_t last = (horizon - 1) / group->steps * group->steps;  // where the last tile begins
    begin_group(pass, net, work, group);
    for (int32_t t = 0; t < horizon; t += group->steps) {
        PufTile tile;
        tile_of_group(pass, group, t, &tile);
        puf_tile_gather(pass, net, work, batch, &tile);
        puf_core_forward(net, work, t * count, count, tile.rows / count);
        net->kernels->ppo(&net->head, &sums->options, &work->steps, sums->losses,
                          sums->partial + net->log_std_at);
        puf_core_backward_outputs(net, work, t * count, tile.rows, sums->partial, first && t == 0);
    }
    for (int32_t t = last; t >= 0; t -= group->steps) {
        PufTile tile;
        tile_of_group(pass, group, t, &tile);
        puf_tile_read(pass, net, work, &tile);
        puf_core_backward(net, work, t * count, count, tile.rows / count, sums->partial,
                          first && t == last);
    }
}

static Group group_at(const PufPass* pass, int64_t first, int64_t end) {
    const int32_t most = group_size(pass->rollout->horizon);
    const int32_t count = end - first < most ? (int32_t)(end - first) : most;
    return (Group){first, count, PUF_TILE / count};
}

static void differentiate_segments(const PassJob* job, PufWorkspace* work, int32_t index,
                                   int32_t part, Sums* sums) {
    const PufMinibatch* batch = &job->minibatches[index];
    const int32_t parts = num_parts(job->engine, batch);
    const int64_t first = batch->first + batch->units * part / parts;
    const int64_t end = batch->first + batch->units * (part + 1) / parts;
    for (int64_t at = first; at < end;) {
        const Group group = group_at(job->pass, at, end);
        differentiate_group(job, work, batch, &group, sums, at == first);
        at += group.count;
    }
}

// Gives every thread the memory for segments of a horizon.
static PufCode reserve(PufEngine* engine, int32_t horizon) {
    const int32_t rows = group_size(horizon) * horizon;
    const int32_t capacity = rows < PUF_TILE ? PUF_TILE : rows;
    const int32_t count = engine->network->spec.core ? puf_threads_count(engine->threads) : 0;
    for (int32_t i = 0; i < count; i++) {
        if (engine->works[i]->capacity >= capacity) continue;
        PufWorkspace* work = puf_workspace_create(engine->network, capacity);
        if (!work) return PUF_NO_MEMORY;
        puf_workspace_destroy(engine->works[i]);
        engine->works[i] = work;
    }
    return PUF_OK;
}

// ---- Passes -------------------------------------------------------------------------------------

// Adds up the gradient of a part, without its last tile or with it alone.
static void differentiate(const PassJob* job, PufWorkspace* work, int32_t index, int32_t part,
                          bool is_last) {
    const PufNetwork* net = job->engine->network;
    Sums sums = {.options = job->pass->loss,
                 .partial = job->engine->partials + (size_t)part * net->partial_floats,
                 .losses = job->parts[part].losses};
    sums.options.share = job->minibatches[index].share;
    if (!is_last) {
        memset(sums.losses, 0, sizeof job->parts[part].losses);
        memset(sums.partial + net->log_std_at, 0, (size_t)net->head.num_continuous * sizeof(float));
        if (!job->minibatches[index].steps)  // another process has all of them
            memset(sums.partial, 0, net->partial_floats * sizeof(float));
    }
    if (!net->spec.core)
        differentiate_tiles(job, work, index, part, is_last, &sums);
    else if (!is_last)
        differentiate_segments(job, work, index, part, &sums);
}

// Differentiates parts until none is left: all of them up to their last tile, and then the last
// tiles. So a thread that is ahead of the others always finds something small to do for them.
static void differentiate_parts(const PassJob* job, int32_t worker, size_t phase, int32_t index) {
    const PufThreads* threads = job->engine->threads;
    PufWorkspace* work = job->engine->works[worker];
    const int32_t parts = num_parts(job->engine, &job->minibatches[index]);
    int32_t part;
    while ((part = puf_threads_claim(threads, worker, phase, parts)) >= 0) {
        differentiate(job, work, index, part, false);
        atomic_store_explicit(&job->parts[part].begun, index + 1, memory_order_release);
    }
    while ((part = puf_threads_claim(threads, worker, phase + 1, parts)) >= 0) {
        for (int spins = 0;
             atomic_load_explicit(&job->parts[part].begun, memory_order_acquire) != index + 1;
             spins++)
            if (spins < 1000)
                puf_pause();
            else
                sched_yield();  // the thread that is at this part may need this core
        differentiate(job, work, index, part, true);
    }
}

static void update_piece(const PassJob* job, const PufAdam* adam, const PufPiece* piece) {
    PufNetwork* net = job->engine->network;
    const PufParam* param = &net->params[piece->param];
    if (puf_muon_steps(param)) return;
    const size_t at = (size_t)piece->first * (size_t)param->cols;
    net->kernels->adam((piece->last - piece->first) * param->cols, adam,
                       job->engine->joined + param->grad_at + at, param->value + at,
                       param->mean + at, param->square + at);
    puf_network_pack_rows(net, piece->param, piece->first, piece->last);
}

static void step_by_muon(const PassJob* job, int32_t worker, size_t phase, const PufAdam* adam) {
    PufEngine* engine = job->engine;
    const PufMuonOptions options = {.learning_rate = adam->learning_rate,
                                    .momentum = job->pass->muon_momentum,
                                    .grad_scale = adam->grad_scale};
    puf_muon_step(engine->muon, engine->network, engine->threads, worker, phase, &options,
                  engine->joined);
}

// Runs on all threads. Phases: measure all minibatches; then, for each minibatch, differentiate its
// parts, join their gradients piece by piece, and update the parameters piece by piece.
static void pass_body(void* context, int32_t worker) {
    PassJob* job = context;
    PufEngine* engine = job->engine;
    const PufPass* pass = job->pass;
    PufThreads* threads = engine->threads;
    size_t phase = 0;
    int32_t item;
    double num_steps = pass->num_steps ? (double)*pass->num_steps : 0;
    while ((item = puf_threads_claim(threads, worker, phase, pass->num_minibatches)) >= 0)
        job->minibatches[item] = puf_minibatch(pass, item, job->order);
    puf_threads_meet(threads);
    for (int32_t index = 0; index < pass->num_minibatches; index++) {
        const PufMinibatch* batch = &job->minibatches[index];
        const int32_t parts = num_parts(engine, batch);
        differentiate_parts(job, worker, phase + 1, index);
        puf_threads_meet(threads);
        phase += 3;
        while ((item = puf_threads_claim(threads, worker, phase, engine->num_pieces)) >= 0) {
            const PufPiece* piece = &engine->pieces[item];
            engine->squares[item] =
                puf_network_join(engine->network, piece->param, piece->first, piece->last, parts,
                                 engine->partials, engine->joined);
        }
        if (worker == 0)
            for (int32_t i = 0; i < PUF_NUM_LOSSES; i++) {
                double sum = 0;
                for (int32_t part = 0; part < parts; part++) sum += job->parts[part].losses[i];
                pass->numbers[index * (PUF_NUM_LOSSES + 1) + i] =
                    (float)(sum * (double)batch->share);
            }
        puf_threads_meet(threads);
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
            while ((item = puf_threads_claim(threads, worker, phase, engine->num_pieces)) >= 0)
                update_piece(job, &adam, &engine->pieces[item]);
            if (job->uses_muon) step_by_muon(job, worker, phase + 1, &adam);
        }
        if (job->uses_muon) phase += PUF_MUON_PHASES;
        puf_threads_meet(threads);
    }
    if (worker == 0 && pass->num_steps) *pass->num_steps = (float)num_steps;
}

// Prepares for the parameters that Muon steps, if there are any.
static PufCode prepare_muon(PufEngine* engine, bool* uses_muon) {
    const PufNetwork* net = engine->network;
    *uses_muon = false;
    for (int32_t i = 0; i < net->num_params; i++) *uses_muon |= puf_muon_steps(&net->params[i]);
    if (!*uses_muon || (engine->muon && puf_muon_fits(engine->muon, net))) return PUF_OK;
    puf_muon_destroy(engine->muon);
    engine->muon = puf_muon_create(net);
    return engine->muon ? PUF_OK : PUF_NO_MEMORY;
}

PufCode puf_engine_pass(PufEngine* engine, const PufPass* given) {
    PufPass own = *given, *pass = &own;
    if (engine->network->spec.core && pass->by_step)
        return puf_fail(PUF_BAD_ARGUMENT, "a recurrent policy learns from segments, not steps");
    if (reserve(engine, pass->rollout->horizon)) return PUF_NO_MEMORY;
    const size_t count = (size_t)pass->num_minibatches;
    PassJob job = {.engine = engine, .pass = pass};
    if (pass->step && prepare_muon(engine, &job.uses_muon)) return PUF_NO_MEMORY;
    if (pass->keys) {
        const int64_t entries = puf_minibatch_entries(pass);
        pass->order = job.order = malloc((size_t)entries * sizeof(int64_t));
    }
    job.minibatches = calloc(count, sizeof(PufMinibatch));
    const size_t bytes = (size_t)engine->max_parts * sizeof(Part);
    job.parts = aligned_alloc(_Alignof(Part), bytes);
    const size_t phases = 4 + (job.uses_muon ? PUF_MUON_PHASES : 0);  // of a minibatch
    PufCode code;
    if (job.minibatches && job.parts && (job.order || !pass->keys)) {
        memset(job.parts, 0, bytes);
        code = puf_threads_run(engine->threads, phases * count + 1, pass_body, &job);
    } else {
        code = puf_fail(PUF_NO_MEMORY, "cannot allocate a pass over %zu minibatches", count);
    }
    free(job.order);
    free(job.minibatches);
    free(job.parts);
    return code;
}

// ---- Log-probabilities --------------------------------------------------------------------------

typedef struct {
    PufEngine* engine;
    const PufPass* pass;  // over all steps, without an order
    float* logprobs;
    int64_t units;  // steps, or segments of a recurrent policy
    int32_t num_items, units_of_item;
} JudgeJob;

static void judge_tile(const JudgeJob* job, PufWorkspace* work, const PufTile* tile,
                       const Group* group, int32_t t) {
    static const PufMinibatch plain = {.std = 1, .share = 1};
    static const PufLossOptions no_loss = {.vf_clip_coef = -1};
    const PufNetwork* net = job->engine->network;
    double losses[PUF_NUM_LOSSES] = {0};
    float of_log_std[PUF_MAX_ACTION_PARTS] = {0};
    puf_tile_gather(job->pass, net, work, &plain, tile);
    if (group)
        puf_core_forward(net, work, t * group->count, group->count, tile->rows / group->count);
    else
        puf_network_forward(net, work, tile->rows);
    net->kernels->ppo(&net->head, &no_loss, &work->steps, losses, of_log_std);
    for (int32_t row = 0; row < tile->rows; row++)
        job->logprobs[tile->cells[row]] = work->steps.logprobs[row];
}

static void judge_body(void* context, int32_t worker) {
    const JudgeJob* job = context;
    const PufNetwork* net = job->engine->network;
    PufWorkspace* work = job->engine->works[worker];
    const PufMinibatch all = {.steps = job->units};
    int32_t item;
    while ((item = puf_threads_claim(job->engine->threads, worker, 0, job->num_items)) >= 0) {
        const int64_t first = (int64_t)item * job->units_of_item;
        PufTile tile;
        if (!net->spec.core) {
            puf_tile_of(job->pass, &all, first, &tile);
            judge_tile(job, work, &tile, NULL, 0);
            continue;
        }
        const Group group = group_at(job->pass, first, job->units);
        begin_group(job->pass, net, work, &group);
        for (int32_t t = 0; t < job->pass->rollout->horizon; t += group.steps) {
            tile_of_group(job->pass, &group, t, &tile);
            judge_tile(job, work, &tile, &group, t);
        }
    }
}

PufCode puf_engine_logprobs(PufEngine* engine, const PufRollout* rollout, float* logprobs) {
    const bool has_core = engine->network->spec.core;
    if (reserve(engine, rollout->horizon)) return PUF_NO_MEMORY;
    const PufPass all = {.rollout = rollout,
                         .advantages = rollout->values,
                         .returns = rollout->values,
                         .by_step = !has_core};
    const int64_t units = (int64_t)rollout->segments * (has_core ? 1 : rollout->horizon);
    const int32_t size = has_core ? group_size(rollout->horizon) : PUF_TILE;
    JudgeJob job = {
        .engine = engine,
        .pass = &all,
        .logprobs = logprobs,
        .units = units,
        .num_items = (int32_t)((units + size - 1) / size),
        .units_of_item = size,
    };
    return puf_threads_run(engine->threads, 1, judge_body, &job);
}
