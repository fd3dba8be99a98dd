// puf_grid.h - boards of one byte per cell, with a border so that every window lies inside.
//
// A board has `stride` bytes per row. Its inner cells are surrounded by `border` cells of wall on
// each side: row r, column c of the inside is cell (r + border) * stride + c + border. With a
// border as wide as an agent sees, the window around an inner cell needs no test of bounds, and
// with a border of at least 1 a neighbour of an inner cell always exists. Give `stride` and
// `vision` as constants: then the loops have constant length.
#ifndef PUF_GRID_H
#define PUF_GRID_H

#include "puf_env.h"

#define PUF_INLINE static inline __attribute__((always_inline))

// The cell beside `cell`: 0 above, 1 right, 2 below, 3 left.
PUF_INLINE int32_t puf_grid_beside(int32_t stride, int32_t cell, int32_t direction) {
    const int32_t deltas[4] = {-stride, 1, stride, -1};
    return cell + deltas[direction];
}

PUF_INLINE int32_t puf_grid_cell(int32_t stride, int32_t border, int32_t row, int32_t col) {
    return (row + border) * stride + col + border;
}

// Makes the inside `empty` and everything around it `wall`; `rows` counts all rows of the board.
PUF_INLINE void puf_grid_clear(uint8_t* cells, int32_t stride, int32_t rows, int32_t border,
                               int32_t width, int32_t height, uint8_t wall, uint8_t empty) {
    memset(cells, wall, (size_t)(stride * rows));
    for (int32_t row = 0; row < height; row++)
        memset(cells + puf_grid_cell(stride, border, row, 0), empty, (size_t)width);
}

// Whether everything around the inside is `wall` and no code is above `highest`.
PUF_INLINE bool puf_grid_is_walled(const uint8_t* cells, int32_t stride, int32_t rows,
                                   int32_t border, int32_t width, int32_t height, uint8_t wall,
                                   uint8_t highest) {
    for (int32_t row = 0; row < rows; row++)
        for (int32_t col = 0; col < stride; col++) {
            const uint8_t code = cells[row * stride + col];
            const bool inside =
                row >= border && row < border + height && col >= border && col < border + width;
            if (inside ? code > highest : code != wall) return false;
        }
    return true;
}

// Whether `cell` is an inner cell.
PUF_INLINE bool puf_grid_is_inside(int32_t stride, int32_t border, int32_t width, int32_t height,
                                   int32_t cell) {
    if (cell < 0) return false;
    const int32_t row = cell / stride - border, col = cell % stride - border;
    return row >= 0 && row < height && col >= 0 && col < width;
}

// Whether each of `count` agents has an inner cell of its own, and just these cells hold `code`.
PUF_INLINE bool puf_grid_has_agents(const uint8_t* cells, int32_t stride, int32_t rows,
                                    int32_t border, int32_t width, int32_t height,
                                    const int16_t* places, int32_t count, uint8_t code) {
    int32_t held = 0;
    for (int32_t cell = 0; cell < stride * rows; cell++) held += cells[cell] == code;
    for (int32_t i = 0; i < count; i++) {
        if (!puf_grid_is_inside(stride, border, width, height, places[i]) ||
            cells[places[i]] != code)
            return false;
        for (int32_t j = 0; j < i; j++)
            if (places[j] == places[i]) return false;
    }
    return held == count;
}

// A random inner cell that holds `empty`, or 0 (a corner of the border) if there is none.
// A board that is nearly full is searched from a random place on.
PUF_INLINE int32_t puf_grid_find(PufRng* rng, const uint8_t* cells, int32_t stride, int32_t border,
                                 int32_t width, int32_t height, uint8_t empty) {
    for (int32_t i = 0; i < 16; i++) {
        int32_t row = puf_rand_int(rng, height), col = puf_rand_int(rng, width);
        int32_t cell = puf_grid_cell(stride, border, row, col);
        if (cells[cell] == empty) return cell;
    }
    int32_t at = puf_rand_int(rng, width * height);
    for (int32_t i = 0; i < width * height; i++, at = at + 1 < width * height ? at + 1 : 0) {
        int32_t cell = puf_grid_cell(stride, border, at / width, at % width);
        if (cells[cell] == empty) return cell;
    }
    return 0;
}

// The cells up to `across` columns and `down` rows away from `cell`, row by row.
PUF_INLINE void puf_grid_view(const uint8_t* cells, int32_t stride, int32_t across, int32_t down,
                              int32_t cell, uint8_t* out) {
    const int32_t width = 2 * across + 1;
    const uint8_t* from = cells + cell - down * stride - across;
    for (int32_t row = 0; row <= 2 * down; row++, from += stride, out += width)
        memcpy(out, from, (size_t)width);
}

// The square of 2 x vision + 1 cells around `cell`, row by row.
PUF_INLINE void puf_grid_window(const uint8_t* cells, int32_t stride, int32_t vision, int32_t cell,
                                uint8_t* out) {
    puf_grid_view(cells, stride, vision, vision, cell, out);
}

typedef uint8_t PufLanes __attribute__((vector_size(16)));

// One plane per code: `on` where the window holds that code, else 0. `count` must be at least 16:
// the last vector of a plane overlaps the one before.
PUF_INLINE void puf_grid_planes(const uint8_t* restrict window, int32_t count, const uint8_t* codes,
                                int32_t num_codes, uint8_t on, uint8_t* restrict out) {
    for (int32_t plane = 0; plane < num_codes; plane++, out += count)
        for (int32_t i = 0; i < count; i += 16) {
            const int32_t at = i + 16 <= count ? i : count - 16;
            PufLanes lanes;
            memcpy(&lanes, window + at, 16);
            lanes = (PufLanes)(lanes == codes[plane]) & on;
            memcpy(out + at, &lanes, 16);
        }
}

// One plane: 1 where the window holds one of the `num_codes` codes from `first` on, else 0. `count`
// must be at least 16.
PUF_INLINE void puf_grid_range(const uint8_t* restrict window, int32_t count, uint8_t first,
                               uint8_t num_codes, uint8_t* restrict out) {
    for (int32_t i = 0; i < count; i += 16) {
        const int32_t at = i + 16 <= count ? i : count - 16;
        PufLanes lanes;
        memcpy(&lanes, window + at, 16);
        lanes = (PufLanes)(lanes - first < num_codes) & 1;
        memcpy(out + at, &lanes, 16);
    }
}

// One plane per bit, for boards whose cells hold flags: 1 where bit k is set, else 0. `count` must
// be at least 16.
PUF_INLINE void puf_grid_bits(const uint8_t* restrict window, int32_t count, int32_t num_bits,
                              uint8_t* restrict out) {
    for (int32_t bit = 0; bit < num_bits; bit++, out += count)
        for (int32_t i = 0; i < count; i += 16) {
            const int32_t at = i + 16 <= count ? i : count - 16;
            PufLanes lanes;
            memcpy(&lanes, window + at, 16);
            lanes = (PufLanes)((lanes & (uint8_t)(1 << bit)) != 0) & 1;
            memcpy(out + at, &lanes, 16);
        }
}

// Four flags that point from one cell to another: 1 where it lies above, right, below, left.
PUF_INLINE void puf_grid_compass(int32_t stride, int32_t from, int32_t to, uint8_t out[4]) {
    const int32_t down = to / stride - from / stride, right = to % stride - from % stride;
    out[0] = down < 0;
    out[1] = right > 0;
    out[2] = down > 0;
    out[3] = right < 0;
}

// Steps between two cells where nothing is in the way.
PUF_INLINE int32_t puf_grid_distance(int32_t stride, int32_t a, int32_t b) {
    const int32_t down = a / stride - b / stride, right = a % stride - b % stride;
    return (down < 0 ? -down : down) + (right < 0 ? -right : right);
}

// The nearest of `count` cells, at least one.
PUF_INLINE int32_t puf_grid_nearest(int32_t stride, int32_t from, const int16_t* cells,
                                    int32_t count) {
    int32_t nearest = cells[0], least = puf_grid_distance(stride, from, nearest);
    for (int32_t i = 1; i < count; i++) {
        const int32_t distance = puf_grid_distance(stride, from, cells[i]);
        if (distance < least) {
            least = distance;
            nearest = cells[i];
        }
    }
    return nearest;
}

#endif
