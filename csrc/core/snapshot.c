// snapshot.c - copies of envs: take one, check one, restore one.
//
// A snapshot is raw memory: the env's struct and arena without its header, then the running sums
// and rows of its slots. One from a file may be forged, so `restore` checks all that the core
// relies on, and the env's `valid` checks the rest, before a byte of the vec changes.
#include <float.h>

#include "core/vec.h"

enum { STATE, RETURNS, LENGTHS, OBSERVATIONS, MASKS, ACTION_MASKS, NUM_PIECES };
enum { HEADER = offsetof(PufSlots, rng) };  // pointers and position: not part of a snapshot
enum { MAX_TICKS = 1 << 30 };               // no episode is that long, and counters have room left

// One part of a snapshot: where it lies in the vec, its offset in the snapshot, its size.
typedef struct {
    void* in_vec;
    size_t at, bytes;
} Piece;

static void find_pieces(const PufVec* vec, int32_t env, Piece pieces[NUM_PIECES]) {
    const PufBatch* batch = &vec->batch;
    const size_t agents = (size_t)batch->agents_per_env, first = (size_t)env * agents;
    const size_t mask = batch->layout.action_masks ? (size_t)batch->mask_width : 0;
    const Piece found[NUM_PIECES] = {
        [STATE] = {puf_vec_env(vec, env) + HEADER, 0, batch->env_bytes - HEADER},
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
    puf_vec_wait(vec);
    if (first < 0 || last < first || last > vec->batch.num_envs)
        return puf_fail(PUF_BAD_ARGUMENT, "`env` must be in 0..%d, but got %d.",
                        vec->batch.num_envs - 1, first < 0 ? first : last - 1);
    if (!vec->batch.observations)
        return puf_fail(PUF_BAD_ARGUMENT, "buffers must be bound before a snapshot");
    if (vec->batch.obs_stride != vec->batch.obs_bytes ||
        vec->batch.mask_stride != (size_t)vec->batch.mask_width)
        return puf_fail(PUF_BAD_ARGUMENT, "rows must be contiguous for a snapshot");
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

// ---- Validation ---------------------------------------------------------------------------------

// A snapshot holds params too; they must be those of this vec, whose rows and arenas they size.
static PufCode check_same_params(const PufVec* vec, int32_t env, const uint8_t* state) {
    for (int32_t i = 0; i < vec->info->num_params; i++) {
        const PufField* field = &vec->info->params[i];
        if (memcmp(puf_vec_env(vec, env) + field->offset, state + field->offset, 4))
            return puf_fail(PUF_BAD_ARGUMENT, "the snapshot was taken with a different `%s`",
                            field->name);
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

// Each agent that is present must have a legal action.
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

static PufCode check_snapshot(PufVec* vec, int32_t env, const uint8_t* from) {
    const PufBatch* batch = &vec->batch;
    const size_t agents = (size_t)batch->agents_per_env;
    Piece pieces[NUM_PIECES];
    find_pieces(vec, env, pieces);
    const uint8_t *masks = from + pieces[MASKS].at, *legal = from + pieces[ACTION_MASKS].at;

    // The candidate gives the env's struct its alignment, and `valid` the masks of the snapshot.
    memcpy(vec->candidate + HEADER, from, pieces[STATE].bytes);
    PufBatch rows = *batch;
    rows.masks = (uint8_t*)masks;
    rows.observations = rows.action_masks = NULL;
    PufSlots* slots = (PufSlots*)(void*)vec->candidate;
    slots->batch = &rows;
    slots->first = 0;
    slots->num_agents = batch->agents_per_env;

    PufCode code = check_same_params(vec, env, vec->candidate);
    if (code) return code;
    const char* problem = NULL;
    if (slots->tick < 0 || slots->tick > MAX_TICKS)
        problem = "tick out of range";
    else if (!floats_within(from + pieces[RETURNS].at, agents, -FLT_MAX, FLT_MAX))
        problem = "non-finite return";
    else if (!lengths_good(from + pieces[LENGTHS].at, agents))
        problem = "episode length out of range";
    else if (!observations_good(batch, from + pieces[OBSERVATIONS].at))
        problem = "observation outside the space";
    else if (!bytes_within(masks, agents, 1))
        problem = "mask neither 0 nor 1";
    else if (pieces[ACTION_MASKS].bytes && !action_masks_good(batch, masks, legal))
        problem = "action mask without a legal action, or neither 0 nor 1";
    else if (!metrics_good(vec->info, vec->candidate))
        problem = "non-finite metric";
    else if (!vec->info->valid(vec->candidate))
        problem = "state that play cannot reach";
    slots->batch = NULL;  // `rows` goes out of scope
    if (!problem) return PUF_OK;
    return puf_fail(PUF_BAD_ARGUMENT, "invalid snapshot for `%s`: %s (env %d)", vec->info->name,
                    problem, env);
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
