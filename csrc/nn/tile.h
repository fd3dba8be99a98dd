// tile.h - steps of a rollout that go through the network together.
#ifndef PUF_NN_TILE_H
#define PUF_NN_TILE_H

#include "minibatch.h"

typedef struct {
    int32_t rows;
    size_t cells[PUF_TILE];  // of the rollout, [segments * horizon]
    float weights[PUF_TILE];
} PufTile;

// Rows [from, from + PUF_TILE) of a minibatch, or those that are left.
void puf_tile_of(const PufPass* pass, const PufMinibatch* batch, int64_t from, PufTile* tile);

// Fills a workspace with observations; and with all that forward pass and loss need.
void puf_tile_read(const PufPass* pass, const PufNetwork* net, PufWorkspace* work,
                   const PufTile* tile);
void puf_tile_gather(const PufPass* pass, const PufNetwork* net, PufWorkspace* work,
                     const PufMinibatch* batch, const PufTile* tile);

// Lets the processor fetch what `puf_tile_gather` will read, while it works on another tile: units
// come in random order, and half of them, or more, from the cache of another core.
void puf_tile_fetch(const PufPass* pass, const PufNetwork* net, const PufTile* tile);

#endif
