// targets.c - scans over a whole rollout on all threads: rewards are normalised, and advantages and
// returns follow from them; see engine.h.
#include <math.h>
#include <stdlib.h>

#include "advantage.h"
#include "engine.h"
#include "returns.h"

enum { CHUNK = 32 };  // slots of an item

// One scan: each item is some slots, and gives two moments.
typedef struct {
    PufEngine* engine;
    const PufTargets* targets;
    const PufRewardNorm* norm;
    PufMoments before;       // of returns, for the norm
    PufMoments (*found)[2];  // [items]: of returns, of advantages
    int32_t num_slots, num_items;
} ScanJob;

static PufCode run_scan(ScanJob* job, PufEngine* engine, const PufRollout* rollout, PufBody body) {
    job->engine = engine;
    job->num_slots = rollout->num_slots;
    job->num_items = (rollout->num_slots + CHUNK - 1) / CHUNK;
    job->found = calloc((size_t)job->num_items, sizeof *job->found);
    if (!job->found) return puf_fail(PUF_NO_MEMORY, "cannot allocate the scan of a rollout");
    return puf_threads_run(engine->threads, 2, body, job);
}

// The slots [first, last) of the next item of a phase; false when none is left.
static bool next_slots(const ScanJob* job, int32_t worker, size_t phase, int32_t* item,
                       int32_t* first, int32_t* last) {
    *item = puf_threads_claim(job->engine->threads, worker, phase, job->num_items);
    *first = *item * CHUNK;
    *last = *first + CHUNK < job->num_slots ? *first + CHUNK : job->num_slots;
    return *item >= 0;
}

static PufMoments all_found(const ScanJob* job, int32_t which) {
    PufMoments all = {0};
    for (int32_t i = 0; i < job->num_items; i++) all = puf_merged(all, job->found[i][which]);
    return all;
}

// ---- Rewards ------------------------------------------------------------------------------------

static PufMoments returns_of(const PufRewardNorm* norm, int32_t first, int32_t last) {
    const PufRollout* rollout = norm->rollout;
    PufMoments found = {0};
    for (int32_t segment = first; segment < rollout->segments; segment += rollout->num_slots) {
        const size_t cell = (size_t)segment * (size_t)rollout->horizon;
        const PufMoments more = puf_return_moments(
            last - first, rollout->horizon, rollout->rewards + cell, rollout->terminals + cell,
            rollout->truncations + cell, rollout->all_present ? NULL : rollout->masks + cell,
            norm->gamma, norm->running + first);
        found = puf_merged(found, more);
    }
    return found;
}

// The statistics after this rollout; as before, but for their count, where it is not finite.
static PufMoments moments_after(const ScanJob* job) {
    const PufMoments before = job->before, after = puf_merged(before, all_found(job, 0));
    if (isfinite(after.mean) && isfinite(after.variance)) return after;
    return (PufMoments){after.count, before.mean, before.variance};
}

static void rewards_body(void* context, int32_t worker) {
    const ScanJob* job = context;
    const PufRewardNorm* norm = job->norm;
    const PufRollout* rollout = norm->rollout;
    int32_t item, first, last;
    while (next_slots(job, worker, 0, &item, &first, &last))
        job->found[item][0] = returns_of(norm, first, last);
    puf_threads_meet(job->engine->threads);
    const double deviation = sqrt(moments_after(job).variance);
    const float factor = (float)(1 / (deviation < norm->floor ? norm->floor : deviation));
    while (next_slots(job, worker, 1, &item, &first, &last))
        for (int32_t segment = first; segment < rollout->segments; segment += rollout->num_slots)
            puf_scale((int64_t)(last - first) * rollout->horizon,
                      rollout->rewards + (size_t)segment * (size_t)rollout->horizon, factor,
                      norm->limit);
}

PufCode puf_engine_normalise_rewards(PufEngine* engine, const PufRewardNorm* norm) {
    ScanJob job = {.norm = norm, .before = {*norm->count, *norm->mean, *norm->variance}};
    const PufCode code = run_scan(&job, engine, norm->rollout, rewards_body);
    if (code == PUF_OK) {
        const PufMoments after = moments_after(&job);
        *norm->count = after.count, *norm->mean = after.mean, *norm->variance = after.variance;
    }
    free(job.found);
    return code;
}

// ---- Advantages and returns ---------------------------------------------------------------------

// Slots [first, last), from their last stretch to the first one. What the last step of a stretch
// sees of the next is its first value, and its first advantage: gamma * (v + gae_lambda * A).
static void scan_slots(const PufTargets* targets, int32_t first, int32_t last,
                       PufMoments found[2]) {
    const PufRollout* rollout = targets->rollout;
    const size_t horizon = (size_t)rollout->horizon;
    const int32_t count = last - first;
    float bootstrap[CHUNK], after[CHUNK] = {0};
    for (int32_t segment = rollout->segments - rollout->num_slots + first; segment >= 0;
         segment -= rollout->num_slots) {
        const size_t cell = (size_t)segment * horizon, cells = (size_t)count * horizon;
        float *advantages = targets->advantages + cell, *returns = targets->returns + cell;
        const float* values = rollout->values + cell;
        const uint8_t* masks = rollout->all_present ? NULL : rollout->masks + cell;
        for (int32_t i = 0; i < count; i++)
            bootstrap[i] = rollout->bootstrap[segment + i] + targets->gae_lambda * after[i];
        puf_advantage(count, rollout->horizon, rollout->rewards + cell, values, bootstrap,
                      rollout->terminals + cell, rollout->truncations + cell,
                      rollout->final_values + cell, masks, NULL, targets->gamma,
                      targets->gae_lambda, 1.0f, 1.0f, advantages);
        for (size_t i = 0; i < cells; i++) returns[i] = advantages[i] + values[i];
        for (int32_t i = 0; i < count; i++) after[i] = advantages[(size_t)i * horizon];
        found[0] = puf_merged(found[0], puf_moments((int64_t)cells, returns, masks));
        found[1] = puf_merged(found[1], puf_moments((int64_t)cells, advantages, masks));
    }
}

static void targets_body(void* context, int32_t worker) {
    const ScanJob* job = context;
    int32_t item, first, last;
    while (next_slots(job, worker, 0, &item, &first, &last))
        scan_slots(job->targets, first, last, job->found[item]);
}

PufCode puf_engine_targets(PufEngine* engine, PufTargets* targets) {
    ScanJob job = {.targets = targets};
    const PufCode code = run_scan(&job, engine, targets->rollout, targets_body);
    if (code == PUF_OK) {
        const double of_returns = all_found(&job, 0).variance;
        const double of_advantages = all_found(&job, 1).variance;
        targets->explained_variance = of_returns > 0 ? 1 - of_advantages / of_returns : (double)NAN;
    }
    free(job.found);
    return code;
}
