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
#include "order.h"
#include "returns.h"
#include "sync/waiting.h"

enum {
    MIN_TILES = 2,      // of a part
    TILES_OF_TWO = 4,   // of a part whose last tile is an item of its own
    MIN_SEGMENTS = 16,  // of a part, for recurrent policies: a product of fewer rows is slow
    MAX_SEGMENTS = 32,  // that go through a core together: two steps fill a tile
    MAX_ROWS = 4096,    // of such segments
};

#define INLINE static inline __attribute__((always_inline))

// ---- Minibatches --------------------------------------------------------------------------------

typedef struct {
    double mean, std;
    float share;    // 1 / steps that count
    int64_t steps;  // rows of the minibatch, masked ones included
    int32_t parts;
} Minibatch;

// A part of the present minibatch, on cache lines of its own.
typedef struct {
    _Alignas(128) double losses[PUF_NUM_LOSSES];
    atomic_int begun;  // 1 + the last minibatch whose part is there, up to its last tile
} Part;

typedef struct {
    PufEngine* engine;
    const PufPass* pass;
    const int64_t* order;  // of the units of all passes; NULL: one after another
    int64_t* drawn;        // the same, to be written, if the pass has keys
    Minibatch* minibatches;
    Part* parts;  // [max_parts]
    bool uses_muon;
} PassJob;

// Steps of a unit: they are consecutive cells [segments * horizon].
static int64_t unit_steps(const PufPass* pass) {
    return pass->by_step ? 1 : pass->rollout->horizon;
}

static size_t first_cell(const PassJob* job, int64_t unit) {
    return (size_t)((job->order ? job->order[unit] : unit) * unit_steps(job->pass));
}

// Where a minibatch begins in the order.
static int64_t begin_of(const PufPass* pass, int32_t index) {
    const int64_t number = index / pass->per_pass, part = index % pass->per_pass;
    const int64_t size = pass->units / pass->per_pass, rest = pass->units % pass->per_pass;
    return number * pass->units + part * size + (part < rest ? part : rest);
}

static float weight_of(const PufPass* pass, int64_t unit) {
    return pass->weights ? pass->weights[unit] : 1.0f;
}

// In how many parts a minibatch is differentiated: a number that its size alone decides.
static int32_t num_parts(const PufEngine* engine, int64_t units, int64_t steps) {
    if (!engine->network->spec.core) {
        const int64_t parts = (steps + PUF_TILE - 1) / PUF_TILE / MIN_TILES;
        return parts < 1 ? 1 : parts < engine->max_parts ? (int32_t)parts : engine->max_parts;
    }
    int32_t parts = units < 2 ? 1 : 2;  // doubled: equal parts for most numbers of threads
    while (2 * parts <= engine->max_parts && 2 * parts * MIN_SEGMENTS <= units) parts *= 2;
    return parts;
}

// Draws the order of a minibatch.
static void draw_order(const PassJob* job, int32_t index) {
    const PufPass* pass = job->pass;
    const int64_t first = begin_of(pass, index), units = begin_of(pass, index + 1) - first;
    const int64_t number = index / pass->per_pass;
    const PufOrder order = puf_order(pass->keys[number], (uint32_t)pass->units);
    puf_order_fill(&order, (uint32_t)(first - number * pass->units), (uint32_t)units,
                   job->drawn + first);
}

// Sums of the advantages of one unit, or of single steps that weigh the same, as many as fill a
// tile; the first is *unit, which is moved behind the last.
static PufSums next_sums(const PassJob* job, int64_t* unit, int64_t end, float origin) {
    const PufPass* pass = job->pass;
    const PufRollout* rollout = pass->rollout;
    if (!pass->by_step || pass->weights) {
        const size_t cell = first_cell(job, (*unit)++);
        return puf_sums(unit_steps(pass), pass->advantages + cell,
                        rollout->all_present ? NULL : rollout->masks + cell, origin);
    }
    float advantages[PUF_TILE];
    uint8_t masks[PUF_TILE];
    int32_t count = 0;
    for (; count < PUF_TILE && *unit < end; count++, (*unit)++) {
        const size_t cell = first_cell(job, *unit);
        advantages[count] = pass->advantages[cell];
        if (!rollout->all_present) masks[count] = rollout->masks[cell];
    }
    return puf_sums(count, advantages, rollout->all_present ? NULL : masks, origin);
}

// Mean and deviation of the advantages of a minibatch, and how many steps count.
static void measure(const PassJob* job, int32_t index) {
    const PufPass* pass = job->pass;
    const PufRollout* rollout = pass->rollout;
    Minibatch* batch = &job->minibatches[index];
    const int64_t first = begin_of(pass, index), units = begin_of(pass, index + 1) - first;
    batch->steps = pass->by_step ? units : units * rollout->horizon;
    batch->parts = num_parts(job->engine, units, batch->steps);
    if (pass->keys) draw_order(job, index);
    if (pass->moments) {
        const double* given = pass->moments + 3 * (size_t)index;
        batch->share = (float)(1.0 / (given[0] > 0 ? given[0] : 1));
        batch->mean = given[1], batch->std = given[2];
        return;
    }
    // one pass, from a number that lies among them
    const float origin = units > 0 ? pass->advantages[first_cell(job, first)] : 0.0f;
    double count = 0, total = 0, sum = 0, squares = 0;
    for (int64_t unit = first; unit < first + units;) {
        const double weight = (double)weight_of(pass, unit);
        const PufSums sums = next_sums(job, &unit, first + units, origin);
        count += sums.count;
        total += weight * sums.count;
        sum += weight * sums.sum;
        squares += weight * sums.squares;
    }
    const double offset = total > 0 ? sum / total : 0, mean = (double)origin + offset;
    const double variance = total > 0 ? squares / total - offset * offset : 0;
    const double std = variance > 0 ? sqrt(variance) : 0;
    batch->mean = pass->norm_adv ? mean : 0;
    batch->std = !pass->norm_adv                 ? 1
                 : std < (double)pass->adv_floor ? (double)pass->adv_floor
                                                 : std;
    batch->share = (float)(1.0 / (count > 0 ? count : 1));
}

// Steps of the rollout that go through the network together.
typedef struct {
    int32_t rows;
    size_t cells[PUF_TILE];
    float weights[PUF_TILE];
} Tile;

// Stores of bytes may change any number in memory, as far as the compiler knows, so what a loop
// needs of the network is in locals.
static void read_tile(const PassJob* job, PufWorkspace* work, const Tile* tile) {
    const PufNetwork* net = job->engine->network;
    const uint8_t* observations = job->pass->rollout->observations;
    const size_t bytes = net->obs_bytes, stride = (size_t)net->x_stride;
    const int32_t rows = tile->rows;
    float* x = work->x;
    const bool is_four = net->reads_as_is && bytes == 16;  // numbers, copied in one go
    for (int32_t row = 0; row < rows && is_four; row++)
        memcpy(x + (size_t)row * stride, observations + tile->cells[row] * 16, 16);
    for (int32_t row = 0; row < rows && net->reads_as_is && !is_four; row++, x += stride)
        puf_copy(x, observations + tile->cells[row] * bytes, bytes);
    for (int32_t row = 0; row < rows && !net->reads_as_is; row++)
        puf_network_convert(net, work, row, observations + tile->cells[row] * bytes);
}

// Whether the loss reads the values of the rollout.
static bool clips_values(const PufPass* pass) { return pass->loss.vf_clip_coef >= 0.0f; }

// The columns of a tile that the loss reads.
static void gather_columns(const PassJob* job, const PufColumns* steps, const Minibatch* batch,
                           const Tile* tile) {
    const PufPass* pass = job->pass;
    const float *logprobs = pass->rollout->logprobs, *values = pass->rollout->values;
    const float *advantages = pass->advantages, *returns = pass->returns;
    const uint8_t* masks = pass->rollout->all_present ? NULL : pass->rollout->masks;
    const float mean = (float)batch->mean, scale = (float)(1.0 / batch->std);
    const int32_t rows = tile->rows;
    const PufColumns to = *steps;
    for (int32_t row = 0; row < rows; row++) {
        const size_t cell = tile->cells[row];
        to.old_logprobs[row] = logprobs[cell];
        to.advantages[row] = (advantages[cell] - mean) * scale;
        to.returns[row] = returns[cell];
    }
    for (int32_t row = 0; row < rows && clips_values(pass); row++)
        to.old_values[row] = values[tile->cells[row]];
    for (int32_t row = 0; row < PUF_TILE; row++) to.present[row] = row < rows ? -1 : 0;
    for (int32_t row = 0; row < rows && masks; row++)
        if (!masks[tile->cells[row]]) to.present[row] = 0;
    memcpy(to.weights, tile->weights, sizeof tile->weights);
}

static void gather_actions(const PassJob* job, const PufColumns* steps, const Tile* tile) {
    const PufActionHead* head = &job->engine->network->head;
    const int32_t discrete = head->num_discrete, continuous = head->num_continuous;
    const int32_t *actions = job->pass->rollout->actions, rows = tile->rows;
    int32_t* choices = steps->choices;
    if (discrete == 1 && !continuous) {
        for (int32_t row = 0; row < rows; row++) choices[row] = actions[tile->cells[row]];
        return;
    }
    for (int32_t row = 0; row < rows; row++) {
        const int32_t* action = actions + tile->cells[row] * (size_t)(discrete + continuous);
        for (int32_t i = 0; i < discrete; i++) choices[i * PUF_TILE + row] = *action++;
        for (int32_t i = 0; i < continuous; i++)
            memcpy(&steps->reals[i * PUF_TILE + row], action++, sizeof(float));
    }
}

// Fills a workspace with a tile: all that forward pass and loss need.
static void gather(const PassJob* job, PufWorkspace* work, const Minibatch* batch,
                   const Tile* tile) {
    const PufNetwork* net = job->engine->network;
    const uint8_t* masks = job->pass->rollout->action_masks;
    const size_t width = (size_t)puf_network_mask_width(net);
    read_tile(job, work, tile);
    gather_columns(job, &work->steps, batch, tile);
    gather_actions(job, &work->steps, tile);
    work->steps.legal = masks ? work->legal : NULL;
    for (int32_t row = 0; row < tile->rows && masks; row++)
        puf_network_read_mask(net, work, row, masks + tile->cells[row] * width);
}

// Rows [from, from + PUF_TILE) of a minibatch that begins at `first` in the order.
static void tile_of(const PassJob* job, const Minibatch* batch, int64_t first, int64_t from,
                    Tile* tile) {
    const int64_t length = unit_steps(job->pass), left = batch->steps - from;
    const int32_t rows = left < PUF_TILE ? (int32_t)left : PUF_TILE;
    const int64_t* order = job->order;
    const float* weights = job->pass->weights;
    tile->rows = rows;
    if (length == 1 && order && !weights) {  // the most frequent case, in vectors
        for (int32_t row = 0; row < rows; row++)
            tile->cells[row] = (size_t)order[first + from + row];
        for (int32_t row = 0; row < PUF_TILE; row++) tile->weights[row] = 1.0f;
        return;
    }
    int64_t unit = first + from / length, step = from % length;
    for (int32_t row = 0; row < rows; row++) {
        tile->cells[row] = (size_t)((order ? order[unit] : unit) * length + step);
        tile->weights[row] = weights ? weights[unit] : 1.0f;
        if (++step == length) unit++, step = 0;
    }
}

INLINE void fetch_bytes(const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const uint8_t*)from + i, 0, 3);
}

// Lets the processor fetch a tile while it works on another: units come in random order, and half
// of them, or more, from the cache of another core. Inlined: to GCC a call of it would do nothing.
INLINE void fetch_ahead(const PassJob* job, const Tile* tile) {
    const PufPass* pass = job->pass;
    const PufRollout* rollout = pass->rollout;
    const PufNetwork* net = job->engine->network;
    const size_t words = (size_t)puf_network_action_words(net);
    const bool clips = clips_values(pass);
    for (int32_t row = 0; row < tile->rows; row++) {
        const size_t cell = tile->cells[row];
        fetch_bytes(rollout->observations + cell * net->obs_bytes, net->obs_bytes);
        fetch_bytes(rollout->actions + cell * words, words * sizeof(int32_t));
        __builtin_prefetch(rollout->logprobs + cell, 0, 3);
        if (clips) __builtin_prefetch(rollout->values + cell, 0, 3);
        __builtin_prefetch(pass->advantages + cell, 0, 3);
        __builtin_prefetch(pass->returns + cell, 0, 3);
    }
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
    const Minibatch* batch = &job->minibatches[index];
    const int64_t tiles = (batch->steps + PUF_TILE - 1) / PUF_TILE;
    const int64_t first = tiles * part / batch->parts, end = tiles * (part + 1) / batch->parts;
    const int64_t middle = end - first < TILES_OF_TWO ? end : end - 1;
    const int64_t begin = begin_of(job->pass, index);
    Tile tile;
    tile_of(job, batch, begin, (is_last ? middle : first) * PUF_TILE, &tile);
    for (int64_t i = is_last ? middle : first; i < (is_last ? end : middle); i++) {
        gather(job, work, batch, &tile);
        const int32_t rows = tile.rows;
        tile_of(job, batch, begin, (i + 1) * PUF_TILE, &tile);
        fetch_ahead(job, &tile);
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

static void tile_of_group(const PassJob* job, const Group* group, int32_t t, Tile* tile) {
    const int32_t horizon = job->pass->rollout->horizon;
    tile->rows = 0;
    for (int32_t end = t + group->steps; t < end && t < horizon; t++)
        for (int64_t unit = group->first; unit < group->first + group->count; unit++) {
            tile->cells[tile->rows] = first_cell(job, unit) + (size_t)t;
            tile->weights[tile->rows++] = weight_of(job->pass, unit);
        }
}

// Prepares the states in which the segments of a group begin, and where they forget.
static void begin_group(const PassJob* job, PufWorkspace* work, const Group* group) {
    const PufRollout* rollout = job->pass->rollout;
    const int32_t horizon = rollout->horizon, count = group->count;
    int32_t* kept = work->core.kept;
    for (int32_t i = 0; i < count; i++) {
        const size_t cell = first_cell(job, group->first + i);
        for (int32_t t = 0; t < horizon; t++)
            kept[t * count + i] = rollout->resets[cell + (size_t)t] ? 0 : -1;
        kept[horizon * count + i] = 0;  // no gradient comes from behind the segment
        puf_core_load(job->engine->network, work, i, &rollout->states, cell / (size_t)horizon);
    }
}

static void differentiate_group(const PassJob* job, PufWorkspace* work, const Minibatch* batch,
                                const Group* group, Sums* sums, bool first) {
    const PufNetwork* net = job->engine->network;
    const int32_t horizon = job->pass->rollout->horizon, count = group->count;
    const int32_t last = (horizon - 1) / group->steps * group->steps;  // where the last tile begins
    begin_group(job, work, group);
    for (int32_t t = 0; t < horizon; t += group->steps) {
        Tile tile;
        tile_of_group(job, group, t, &tile);
        gather(job, work, batch, &tile);
        puf_core_forward(net, work, t * count, count, tile.rows / count);
        net->kernels->ppo(&net->head, &sums->options, &work->steps, sums->losses,
                          sums->partial + net->log_std_at);
        puf_core_backward_outputs(net, work, t * count, tile.rows, sums->partial, first && t == 0);
    }
    for (int32_t t = last; t >= 0; t -= group->steps) {
        Tile tile;
        tile_of_group(job, group, t, &tile);
        read_tile(job, work, &tile);
        puf_core_backward(net, work, t * count, count, tile.rows / count, sums->partial,
                          first && t == last);
    }
}

static Group group_at(const PassJob* job, int64_t first, int64_t end) {
    const int32_t most = group_size(job->pass->rollout->horizon);
    const int32_t count = end - first < most ? (int32_t)(end - first) : most;
    return (Group){first, count, PUF_TILE / count};
}

static void differentiate_segments(const PassJob* job, PufWorkspace* work, int32_t index,
                                   int32_t part, Sums* sums) {
    const Minibatch* batch = &job->minibatches[index];
    const int64_t from = begin_of(job->pass, index), units = begin_of(job->pass, index + 1) - from;
    const int64_t first = from + units * part / batch->parts;
    const int64_t end = from + units * (part + 1) / batch->parts;
    for (int64_t at = first; at < end;) {
        const Group group = group_at(job, at, end);
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
    const int32_t parts = job->minibatches[index].parts;
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
        measure(job, item);
    puf_threads_meet(threads);
    for (int32_t index = 0; index < pass->num_minibatches; index++) {
        const Minibatch* batch = &job->minibatches[index];
        differentiate_parts(job, worker, phase + 1, index);
        puf_threads_meet(threads);
        phase += 3;
        while ((item = puf_threads_claim(threads, worker, phase, engine->num_pieces)) >= 0) {
            const PufPiece* piece = &engine->pieces[item];
            engine->squares[item] =
                puf_network_join(engine->network, piece->param, piece->first, piece->last,
                                 batch->parts, engine->partials, engine->joined);
        }
        if (worker == 0)
            for (int32_t i = 0; i < PUF_NUM_LOSSES; i++) {
                double sum = 0;
                for (int32_t part = 0; part < batch->parts; part++)
                    sum += job->parts[part].losses[i];
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

PufCode puf_engine_pass(PufEngine* engine, const PufPass* pass) {
    if (engine->network->spec.core && pass->by_step)
        return puf_fail(PUF_BAD_ARGUMENT, "a recurrent policy learns from segments, not steps");
    if (reserve(engine, pass->rollout->horizon)) return PUF_NO_MEMORY;
    const size_t count = (size_t)pass->num_minibatches;
    PassJob job = {.engine = engine, .pass = pass, .order = pass->order};
    if (pass->step && prepare_muon(engine, &job.uses_muon)) return PUF_NO_MEMORY;
    if (pass->keys) {
        const int64_t entries = begin_of(pass, pass->num_minibatches);
        job.order = job.drawn = malloc((size_t)entries * sizeof(int64_t));
    }
    job.minibatches = calloc(count, sizeof(Minibatch));
    const size_t bytes = (size_t)engine->max_parts * sizeof(Part);
    job.parts = aligned_alloc(_Alignof(Part), bytes);
    const size_t phases = 4 + (job.uses_muon ? PUF_MUON_PHASES : 0);  // of a minibatch
    PufCode code = PUF_NO_MEMORY;
    if (job.minibatches && job.parts && (job.drawn || !pass->keys)) {
        memset(job.parts, 0, bytes);
        code = puf_threads_run(engine->threads, phases * count + 1, pass_body, &job);
    } else {
        puf_fail(code, "cannot allocate a pass over %zu minibatches", count);
    }
    free(job.drawn);
    free(job.minibatches);
    free(job.parts);
    return code;
}

// ---- Log-probabilities --------------------------------------------------------------------------

typedef struct {
    PassJob pass;
    float* logprobs;
    int64_t units;  // steps, or segments of a recurrent policy
    int32_t num_items, units_of_item;
} JudgeJob;

static void judge_tile(const JudgeJob* job, PufWorkspace* work, const Tile* tile,
                       const Group* group, int32_t t) {
    static const Minibatch plain = {.std = 1, .share = 1};
    static const PufLossOptions no_loss = {.vf_clip_coef = -1};
    const PufNetwork* net = job->pass.engine->network;
    double losses[PUF_NUM_LOSSES] = {0};
    float of_log_std[PUF_MAX_ACTION_PARTS] = {0};
    gather(&job->pass, work, &plain, tile);
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
    PufWorkspace* work = job->pass.engine->works[worker];
    const bool has_core = job->pass.engine->network->spec.core;
    const Minibatch all = {.steps = job->units};
    int32_t item;
    while ((item = puf_threads_claim(job->pass.engine->threads, worker, 0, job->num_items)) >= 0) {
        const int64_t first = (int64_t)item * job->units_of_item;
        Tile tile;
        if (!has_core) {
            tile_of(&job->pass, &all, 0, first, &tile);
            judge_tile(job, work, &tile, NULL, 0);
            continue;
        }
        const Group group = group_at(&job->pass, first, job->units);
        begin_group(&job->pass, work, &group);
        for (int32_t t = 0; t < job->pass.pass->rollout->horizon; t += group.steps) {
            tile_of_group(&job->pass, &group, t, &tile);
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
                         .by_step = !has_core};  // without an order: all units, one after another
    const int64_t units = (int64_t)rollout->segments * (has_core ? 1 : rollout->horizon);
    const int32_t size = has_core ? group_size(rollout->horizon) : PUF_TILE;
    JudgeJob job = {
        .pass = {.engine = engine, .pass = &all},
        .logprobs = logprobs,
        .units = units,
        .num_items = (int32_t)((units + size - 1) / size),
        .units_of_item = size,
    };
    return puf_threads_run(engine->threads, 1, judge_body, &job);
}
