// puf_maze.h - mazes on a board of puf_grid.h: carve one, open some of its walls, measure it.
//
// A maze of `width` x `height` rooms takes 2 x width - 1 by 2 x height - 1 cells: rooms lie two
// cells apart, with a wall or a passage between. `origin` is the cell of the first room. All cells
// around must be walls.
#ifndef PUF_MAZE_H
#define PUF_MAZE_H

#include "puf_grid.h"

enum { PUF_MAZE_MAX_ROOMS = 1024, PUF_MAZE_MAX_CELLS = 4096 };

PUF_INLINE int32_t puf_maze_room(int32_t stride, int32_t origin, int32_t width, int32_t room) {
    return origin + 2 * (room / width * stride + room % width);
}

// Carves a maze with exactly one path between any two rooms, by depth-first search: long winding
// passages. Rooms and passages become `floor`; they must be something else before.
PUF_INLINE void puf_maze_carve(PufRng* rng, uint8_t* cells, int32_t stride, int32_t origin,
                               int32_t width, int32_t height, uint8_t floor) {
    uint16_t path[PUF_MAZE_MAX_ROOMS];
    int32_t depth = 0, room = puf_rand_int(rng, width * height);
    int32_t row = room / width, col = room % width;
    cells[puf_maze_room(stride, origin, width, room)] = floor;
    for (;;) {
        const int32_t cell = origin + 2 * (row * stride + col);
        int32_t open[4], num_open = 0;
        if (row > 0 && cells[cell - 2 * stride] != floor) open[num_open++] = 0;
        if (col < width - 1 && cells[cell + 2] != floor) open[num_open++] = 1;
        if (row < height - 1 && cells[cell + 2 * stride] != floor) open[num_open++] = 2;
        if (col > 0 && cells[cell - 2] != floor) open[num_open++] = 3;
        if (!num_open) {
            if (!depth) return;
            room = path[--depth];
            row = room / width;
            col = room % width;
            continue;
        }
        const int32_t direction = open[num_open > 1 ? puf_rand_int(rng, num_open) : 0];
        path[depth++] = (uint16_t)(row * width + col);
        cells[puf_grid_beside(stride, cell, direction)] = floor;
        row += (direction == 2) - (direction == 0);
        col += (direction == 1) - (direction == 3);
        cells[origin + 2 * (row * stride + col)] = floor;
    }
}

// Opens each wall between two neighbouring rooms with probability `share`: loops and short cuts.
PUF_INLINE void puf_maze_open(PufRng* rng, uint8_t* cells, int32_t stride, int32_t origin,
                              int32_t width, int32_t height, uint8_t floor, float share) {
    if (share <= 0) return;
    for (int32_t row = 0; row < height; row++)
        for (int32_t col = 0; col < width; col++) {
            uint8_t* cell = cells + origin + 2 * (row * stride + col);
            if (col < width - 1 && puf_rand(rng) < share) cell[1] = floor;
            if (row < height - 1 && puf_rand(rng) < share) cell[stride] = floor;
        }
}

// Steps from `from` to every cell that is not `wall`, by breadth-first search; walls and cells out
// of reach keep what `distances` held.
PUF_INLINE void puf_maze_distances(const uint8_t* cells, int32_t stride, uint8_t wall, int32_t from,
                                   uint16_t* distances, uint16_t unknown) {
    uint16_t queue[PUF_MAZE_MAX_CELLS];
    int32_t first = 0, last = 0;
    queue[last++] = (uint16_t)from;
    distances[from] = 0;
    while (first < last) {
        const int32_t cell = queue[first++];
        for (int32_t direction = 0; direction < 4; direction++) {
            const int32_t next = puf_grid_beside(stride, cell, direction);
            if (cells[next] == wall || distances[next] != unknown) continue;
            distances[next] = (uint16_t)(distances[cell] + 1);
            queue[last++] = (uint16_t)next;
        }
    }
}

#endif
