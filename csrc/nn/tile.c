// tile.c - see tile.h.
#include "tile.h"

#include <string.h>

void puf_tile_of(const PufPass* pass, const PufMinibatch* batch, int64_t from, PufTile* tile) {
    const int64_t length = puf_unit_steps(pass), left = batch->steps - from;
    const int32_t rows = left < PUF_TILE ? (int32_t)left : PUF_TILE;
    const int64_t* order = pass->order;
    const float* weights = pass->weights;
    tile->rows = rows;
    if (length == 1 && order && !weights) {  // the most frequent case, in vectors
        for (int32_t row = 0; row < rows; row++)
            tile->cells[row] = (size_t)order[batch->first + from + row];
        for (int32_t row = 0; row < PUF_TILE; row++) tile->weights[row] = 1.0f;
        return;
    }
    int64_t unit = batch->first + from / length, step = from % length;
    for (int32_t row = 0; row < rows; row++) {
        tile->cells[row] = (size_t)((order ? order[unit] : unit) * length + step);
        tile->weights[row] = weights ? weights[unit] : 1.0f;
        if (++step == length) unit++, step = 0;
    }
}

// Stores of bytes may change any number in memory, as far as the compiler knows, so what a loop
// needs of the network is in locals.
void puf_tile_read(const PufPass* pass, const PufNetwork* net, PufWorkspace* work,
                   const PufTile* tile) {
    const uint8_t* observations = pass->rollout->observations;
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
static void gather_columns(const PufPass* pass, const PufColumns* steps, const PufMinibatch* batch,
                           const PufTile* tile) {
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

static void gather_actions(const PufPass* pass, const PufActionHead* head, const PufColumns* steps,
                           const PufTile* tile) {
    const int32_t discrete = head->num_discrete, continuous = head->num_continuous;
    const int32_t *actions = pass->rollout->actions, rows = tile->rows;
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

void puf_tile_gather(const PufPass* pass, const PufNetwork* net, PufWorkspace* work,
                     const PufMinibatch* batch, const PufTile* tile) {
    const uint8_t* masks = pass->rollout->action_masks;
    const size_t width = (size_t)puf_network_mask_width(net);
    puf_tile_read(pass, net, work, tile);
    gather_columns(pass, &work->steps, batch, tile);
    gather_actions(pass, &net->head, &work->steps, tile);
    work->steps.legal = masks ? work->legal : NULL;
    for (int32_t row = 0; row < tile->rows && masks; row++)
        puf_network_read_mask(net, work, row, masks + tile->cells[row] * width);
}

// Inlined: to GCC a call of it would do nothing.
static inline __attribute__((always_inline)) void fetch_bytes(const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const uint8_t*)from + i, 0, 3);
}

void puf_tile_fetch(const PufPass* pass, const PufNetwork* net, const PufTile* tile) {
    const PufRollout* rollout = pass->rollout;
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
