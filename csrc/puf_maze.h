// puf_maze.h - mazes and rooms on a board of puf_grid.h.
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

// ---- Rooms and tunnels ------------------------------------------------------------------------

// The floor of a room; rows and columns are counted from the origin of its board.
typedef struct {
    uint8_t row, col, height, width;
} PufRoom;

PUF_INLINE bool puf_room_holds(const PufRoom* room, int32_t row, int32_t col) {
    return row >= room->row && row < room->row + room->height && col >= room->col &&
           col < room->col + room->width;
}

// A passage between two cells, with one bend; `across_first` says where.
PUF_INLINE void puf_tunnel(uint8_t* cells, int32_t stride, int32_t from, int32_t to,
                           bool across_first, uint8_t floor) {
    const int32_t bend =
        across_first ? from / stride * stride + to % stride : to / stride * stride + from % stride;
    const int32_t ends[3] = {from, bend, to};
    for (int32_t leg = 0; leg < 2; leg++) {
        const int32_t a = ends[leg], b = ends[leg + 1];
        const int32_t unit = a / stride != b / stride ? stride : 1, step = a < b ? unit : -unit;
        for (int32_t cell = a; cell != b; cell += step) cells[cell] = floor;
        cells[b] = floor;
    }
}

PUF_INLINE int32_t puf_room_cell(PufRng* rng, int32_t stride, int32_t origin, const PufRoom* room) {
    const int32_t row = room->row + puf_rand_int(rng, room->height);
    return origin + row * stride + room->col + puf_rand_int(rng, room->width);
}

// Cuts the board into `down` x `across` sectors, at most 32, and digs a room of random size in
// each, at least 3 x 3 and a cell away from the sector's edge. Tunnels join the rooms of
// neighbouring sectors: a random tree, so that every room can be reached, and a few more.
PUF_INLINE void puf_maze_rooms(PufRng* rng, uint8_t* cells, int32_t stride, int32_t origin,
                               int32_t across, int32_t down, int32_t sector_width,
                               int32_t sector_height, uint8_t floor, PufRoom* rooms) {
    const int32_t count = across * down;
    for (int32_t i = 0; i < count; i++) {
        PufRoom* room = &rooms[i];
        room->height = (uint8_t)(3 + puf_rand_int(rng, sector_height - 4));
        room->width = (uint8_t)(3 + puf_rand_int(rng, sector_width - 4));
        room->row = (uint8_t)(i / across * sector_height + 1 +
                              puf_rand_int(rng, sector_height - 1 - room->height));
        room->col = (uint8_t)(i % across * sector_width + 1 +
                              puf_rand_int(rng, sector_width - 1 - room->width));
        for (int32_t row = 0; row < room->height; row++)
            memset(cells + origin + (room->row + row) * stride + room->col, floor, room->width);
    }
    // Join a room that is reached with a neighbour that is not, until all are reached.
    uint32_t reached = 1u << puf_rand_int(rng, count);
    const uint32_t all = count < 32 ? (1u << count) - 1 : 0xFFFFFFFFu;
    for (int32_t more = count / 4; reached != all || more > 0;) {
        const int32_t i = puf_rand_int(rng, count), direction = puf_rand_int(rng, 4);
        const int32_t row = i / across + (direction == 2) - (direction == 0);
        const int32_t col = i % across + (direction == 1) - (direction == 3);
        const int32_t k = row * across + col;
        if (row < 0 || row >= down || col < 0 || col >= across) continue;
        const bool done = reached == all;
        if (!done && (!(reached >> i & 1) || (reached >> k & 1))) continue;
        puf_tunnel(cells, stride, puf_room_cell(rng, stride, origin, &rooms[i]),
                   puf_room_cell(rng, stride, origin, &rooms[k]), direction & 1, floor);
        reached |= 1u << k;
        more -= done;
    }
}

#endif
