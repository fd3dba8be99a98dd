// minibatch.c - see minibatch.h.
#include "minibatch.h"

#include <math.h>

#include "order.h"
#include "returns.h"

// Where a minibatch begins in the order.
static int64_t begin_of(const PufPass* pass, int32_t index) {
    const int64_t number = index / pass->per_pass, part = index % pass->per_pass;
    const int64_t size = pass->units / pass->per_pass, rest = pass->units % pass->per_pass;
    return number * pass->units + part * size + (part < rest ? part : rest);
}

int64_t puf_minibatch_entries(const PufPass* pass) { return begin_of(pass, pass->num_minibatches); }

static void draw(const PufPass* pass, int32_t index, const PufMinibatch* batch, int64_t* order) {
    const int64_t number = index / pass->per_pass, before = number * pass->units;
    const PufOrder drawn = puf_order(pass->keys[number], (uint32_t)pass->units);
    puf_order_fill(&drawn, (uint32_t)(batch->first - before), (uint32_t)batch->units,
                   order + batch->first);
}

// Sums of the advantages of one unit, or of single steps that weigh the same, as many as fill a
// tile; the first is *unit, which is moved behind the last.
static PufSums next_sums(const PufPass* pass, int64_t* unit, int64_t end, float origin) {
    const PufRollout* rollout = pass->rollout;
    if (!pass->by_step || pass->weights) {
        const size_t cell = puf_unit_cell(pass, (*unit)++);
        return puf_sums(puf_unit_steps(pass), pass->advantages + cell,
                        rollout->all_present ? NULL : rollout->masks + cell, origin);
    }
    float advantages[PUF_TILE];
    uint8_t masks[PUF_TILE];
    int32_t count = 0;
    for (; count < PUF_TILE && *unit < end; count++, (*unit)++) {
        const size_t cell = puf_unit_cell(pass, *unit);
        advantages[count] = pass->advantages[cell];
        if (!rollout->all_present) masks[count] = rollout->masks[cell];
    }
    return puf_sums(count, advantages, rollout->all_present ? NULL : masks, origin);
}

// In one go, from a number that lies among them.
static void measure(const PufPass* pass, PufMinibatch* batch) {
    const int64_t end = batch->first + batch->units;
    const float origin =
        batch->units > 0 ? pass->advantages[puf_unit_cell(pass, batch->first)] : 0.0f;
    double count = 0, total = 0, sum = 0, squares = 0;
    for (int64_t unit = batch->first; unit < end;) {
        const double weight = (double)puf_unit_weight(pass, unit);
        const PufSums sums = next_sums(pass, &unit, end, origin);
        count += sums.count;
        total += weight * sums.count;
        sum += weight * sums.sum;
        squares += weight * sums.squares;
    }
    const double offset = total > 0 ? sum / total : 0, mean = (double)origin + offset;
    const double variance = total > 0 ? squares / total - offset * offset : 0;
    const double std = variance > 0 ? sqrt(variance) : 0, floor = (double)pass->adv_floor;
    batch->mean = pass->norm_adv ? mean : 0;
    batch->std = !pass->norm_adv ? 1 : std < floor ? floor : std;
    batch->share = (float)(1.0 / (count > 0 ? count : 1));
}

PufMinibatch puf_minibatch(const PufPass* pass, int32_t index, int64_t* order) {
    const int64_t first = begin_of(pass, index), units = begin_of(pass, index + 1) - first;
    PufMinibatch batch = {.first = first, .units = units, .steps = units * puf_unit_steps(pass)};
    if (pass->keys) draw(pass, index, &batch, order);
    if (!pass->moments) {
        measure(pass, &batch);
        return batch;
    }
    const double* given = pass->moments + 3 * (size_t)index;
    batch.share = (float)(1.0 / (given[0] > 0 ? given[0] : 1));
    batch.mean = given[1], batch.std = given[2];
    return batch;
}
