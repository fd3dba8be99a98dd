#include "puf_canvas.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "puf_canvas.c must see NaN and infinity to refuse them: compile it without -ffast-math"
#endif

enum {
    CHANNELS = 3,
    OPAQUE = 256,       // alpha in fixed point, so that blending is exact at both ends
    MAX_CORNERS = 64,   // of a polygon
    SUBROWS = 8,        // of a pixel row, per which a polygon's coverage is summed
    CHUNK = 256,        // pixels of a row that a polygon works on at once: bounds the stack
    TEXT_BYTES = 128,   // of a formatted text, with its final zero
    FIRST_GLYPH = ' ',  // of the font
    BOX_GLYPH = 127,    // stands for every character that the font lacks
    GLYPHS_PER_STRIP = 12,
    GLYPH_WIDTH = 5,
    GLYPH_ROWS = 8,  // 7 above the baseline, 1 below
    GLYPH_ADVANCE = 6,
    LINE_ADVANCE = 10,
};

// A clipped range of pixels: columns x0 <= x < x1, rows y0 <= y < y1. Empty ones have x0 >= x1 or
// y0 >= y1.
typedef struct {
    int32_t x0, y0, x1, y1;
} Box;

// Twelve glyphs side by side per strip, in ASCII order from ' '; '#' is a dot. The last is the box.
// clang-format off
static const char* const font[8][GLYPH_ROWS] = {
    {
        // sp    !     "     #     $     %     &     '     (     )     *     +
        "..... ..#.. .#.#. .#.#. ..#.. ##... .##.. ..#.. ...#. .#... ..... .....",
        "..... ..#.. .#.#. .#.#. .#### ##..# #..#. ..#.. ..#.. ..#.. ..#.. ..#..",
        "..... ..#.. .#.#. ##### #.#.. ...#. #.#.. ..#.. .#... ...#. #.#.# ..#..",
        "..... ..#.. ..... .#.#. .###. ..#.. .#... ..... .#... ...#. .###. #####",
        "..... ..#.. ..... ##### ..#.# .#... #.#.# ..... .#... ...#. #.#.# ..#..",
        "..... ..... ..... .#.#. ####. #..## #..#. ..... ..#.. ..#.. ..#.. ..#..",
        "..... ..#.. ..... .#.#. ..#.. ...## .##.# ..... ...#. .#... ..... .....",
        "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    },
    {
        // ,     -     .     /     0     1     2     3     4     5     6     7
        "..... ..... ..... ....# .###. ..#.. .###. .###. ...#. ##### ..##. #####",
        "..... ..... ..... ....# #...# .##.. #...# #...# ..##. #.... .#... ....#",
        "..... ..... ..... ...#. #..## ..#.. ....# ....# .#.#. ####. #.... ...#.",
        "..... ##### ..... ..#.. #.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#..",
        "..... ..... ..... .#... ##..# ..#.. ..#.. ....# ##### ....# #...# ..#..",
        "..##. ..... ..##. #.... #...# ..#.. .#... #...# ...#. #...# #...# ..#..",
        "..##. ..... ..##. #.... .###. .###. ##### .###. ...#. .###. .###. ..#..",
        "..#.. ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    },
    {
        // 8     9     :     ;     <     =     >     ?     @     A     B     C
        ".###. .###. ..... ..... ...#. ..... .#... .###. .###. .###. ####. .###.",
        "#...# #...# ..##. ..##. ..#.. ..... ..#.. #...# #...# #...# #...# #...#",
        "#...# #...# ..##. ..##. .#... ##### ...#. ....# #.### #...# #...# #....",
        ".###. .#### ..... ..... #.... ..... ....# ...#. #.#.# ##### ####. #....",
        "#...# ....# ..##. ..... .#... ##### ...#. ..#.. #.### #...# #...# #....",
        "#...# ...#. ..##. ..##. ..#.. ..... ..#.. ..... #.... #...# #...# #...#",
        ".###. .##.. ..... ..##. ...#. ..... .#... ..#.. .###. #...# ####. .###.",
        "..... ..... ..... ..#.. ..... ..... ..... ..... ..... ..... ..... .....",
    },
    {
        // D     E     F     G     H     I     J     K     L     M     N     O
        "####. ##### ##### .###. #...# .###. ..### #...# #.... #...# #...# .###.",
        "#...# #.... #.... #...# #...# ..#.. ...#. #..#. #.... ##.## ##..# #...#",
        "#...# #.... #.... #.... #...# ..#.. ...#. #.#.. #.... #.#.# ##..# #...#",
        "#...# ####. ####. #.### ##### ..#.. ...#. ##... #.... #.#.# #.#.# #...#",
        "#...# #.... #.... #...# #...# ..#.. ...#. #.#.. #.... #...# #..## #...#",
        "#...# #.... #.... #...# #...# ..#.. #..#. #..#. #.... #...# #..## #...#",
        "####. ##### #.... .###. #...# .###. .##.. #...# ##### #...# #...# .###.",
        "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    },
    {
        // P     Q     R     S     T     U     V     W     X     Y     Z     [
        "####. .###. ####. .###. ##### #...# #...# #...# #...# #...# ##### .###.",
        "#...# #...# #...# #...# ..#.. #...# #...# #...# #...# #...# ....# .#...",
        "#...# #...# #...# #.... ..#.. #...# #...# #...# .#.#. .#.#. ...#. .#...",
        "####. #...# ####. .###. ..#.. #...# #...# #.#.# ..#.. ..#.. ..#.. .#...",
        "#.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.# .#.#. ..#.. .#... .#...",
        "#.... #..#. #..#. #...# ..#.. #...# .#.#. ##.## #...# ..#.. #.... .#...",
        "#.... .##.# #...# .###. ..#.. .###. ..#.. #...# #...# ..#.. ##### .###.",
        "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    },
    {
        // \     ]     ^     _     `     a     b     c     d     e     f     g
        "#.... .###. ..#.. ..... .#... ..... #.... ..... ....# ..... ..##. .....",
        "#.... ...#. .#.#. ..... ..#.. ..... #.... ..... ....# ..... .#... .....",
        ".#... ...#. #...# ..... ..... .###. ####. .###. .#### .###. ###.. .####",
        "..#.. ...#. ..... ..... ..... ....# #...# #...# #...# #...# .#... #...#",
        "...#. ...#. ..... ..... ..... .#### #...# #.... #...# ##### .#... #...#",
        "....# ...#. ..... ..... ..... #...# #...# #...# #...# #.... .#... .####",
        "....# .###. ..... ..... ..... .#### ####. .###. .#### .###. .#... ....#",
        "..... ..... ..... ##### ..... ..... ..... ..... ..... ..... ..... .###.",
    },
    {
        // h     i     j     k     l     m     n     o     p     q     r     s
        "#.... ..#.. ...#. #.... .##.. ..... ..... ..... ..... ..... ..... .....",
        "#.... ..... ..... #.... ..#.. ..... ..... ..... ..... ..... ..... .....",
        "####. .##.. ..##. #..#. ..#.. ##.#. ####. .###. ####. .#### #.##. .####",
        "#...# ..#.. ...#. #.#.. ..#.. #.#.# #...# #...# #...# #...# ##..# #....",
        "#...# ..#.. ...#. ##... ..#.. #.#.# #...# #...# #...# #...# #.... .###.",
        "#...# ..#.. ...#. #.#.. ..#.. #.#.# #...# #...# ####. .#### #.... ....#",
        "#...# .###. #..#. #..#. .###. #.#.# #...# .###. #.... ....# #.... ####.",
        "..... ..... .##.. ..... ..... ..... ..... ..... #.... ....# ..... .....",
    },
    {
        // t     u     v     w     x     y     z     {     |     }     ~     box
        ".#... ..... ..... ..... ..... ..... ..... ...## ..#.. ##... ..... #####",
        ".#... ..... ..... ..... ..... ..... ..... ..#.. ..#.. ..#.. ..... #...#",
        "###.. #...# #...# #...# #...# #...# ##### ..#.. ..#.. ..#.. .#... #...#",
        ".#... #...# #...# #...# .#.#. #...# ...#. .#... ..#.. ...#. #.#.# #...#",
        ".#... #...# #...# #.#.# ..#.. #...# ..#.. ..#.. ..#.. ..#.. ...#. #...#",
        ".#... #...# .#.#. #.#.# .#.#. .#### .#... ..#.. ..#.. ..#.. ..... #...#",
        "..##. .#### ..#.. .#.#. #...# ....# ##### ...## ..#.. ##... ..... #####",
        "..... ..... ..... ..... ..... .###. ..... ..... ..... ..... ..... .....",
    },
};
// clang-format on

static uint8_t* pixel(const PufCanvas* c, int32_t x, int32_t y) {
    return c->rgb + ((size_t)y * (size_t)c->width + (size_t)x) * CHANNELS;
}

static bool drawable(const PufCanvas* c) { return c && c->rgb && c->width > 0 && c->height > 0; }

// Unlike fmin and fmax these inline: no argument of theirs is NaN.
static double min(double a, double b) { return a < b ? a : b; }

static double max(double a, double b) { return a > b ? a : b; }

// The integer nearest to a finite `v`, clamped to 0..limit. Compares before it casts: a cast of a
// float beyond int32 is undefined.
static int32_t snap(double v, int32_t limit) {
    if (v <= 0) {
        return 0;
    }
    return v >= limit ? limit : (int32_t)(v + 0.5);
}

// The pixels between finite edges that snap to pixel borders.
static Box snap_box(const PufCanvas* c, double x0, double y0, double x1, double y1) {
    return (Box){snap(x0, c->width), snap(y0, c->height), snap(x1, c->width), snap(y1, c->height)};
}

// Every pixel that a shape between finite edges may touch.
static Box touched_box(const PufCanvas* c, double x0, double y0, double x1, double y1) {
    return snap_box(c, x0 - 0.5, y0 - 0.5, x1 + 0.5, y1 + 0.5);
}

static bool empty(Box box) { return box.x0 >= box.x1 || box.y0 >= box.y1; }

static int32_t to_alpha(double coverage) {
    if (!(coverage > 0)) {  // also NaN
        return 0;
    }
    return coverage >= 1 ? OPAQUE : (int32_t)(coverage * OPAQUE + 0.5);
}

static uint32_t mix_channel(uint32_t under, uint32_t over, int32_t alpha) {
    return (under * (uint32_t)(OPAQUE - alpha) + over * (uint32_t)alpha + OPAQUE / 2) / OPAQUE;
}

static void set_pixel(uint8_t* p, uint32_t color) {
    p[0] = (uint8_t)(color >> 16);
    p[1] = (uint8_t)(color >> 8);
    p[2] = (uint8_t)color;
}

static void mix_pixel(uint8_t* p, uint32_t color, int32_t alpha) {
    if (alpha == OPAQUE) {
        set_pixel(p, color);
        return;
    }
    p[0] = (uint8_t)mix_channel(p[0], color >> 16 & 255, alpha);
    p[1] = (uint8_t)mix_channel(p[1], color >> 8 & 255, alpha);
    p[2] = (uint8_t)mix_channel(p[2], color & 255, alpha);
}

// Writes num_pixels > 0 equal pixels, by copying what is already written: log2(n) calls of memcpy.
static void fill_run(uint8_t* out, size_t num_pixels, uint32_t color) {
    size_t bytes = num_pixels * CHANNELS;
    size_t done = CHANNELS;
    set_pixel(out, color);
    while (done < bytes) {
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy(out + done, out, more);
        done += more;
    }
}

static void fill_box(PufCanvas* c, Box box, uint32_t color) {
    if (empty(box)) {
        return;
    }
    size_t columns = (size_t)(box.x1 - box.x0);
    uint8_t* first = pixel(c, box.x0, box.y0);
    if (columns == (size_t)c->width) {  // whole rows are one run
        fill_run(first, columns * (size_t)(box.y1 - box.y0), color);
        return;
    }
    fill_run(first, columns, color);
    for (int32_t y = box.y0 + 1; y < box.y1; y++) {
        memcpy(pixel(c, box.x0, y), first, columns * CHANNELS);
    }
}

uint32_t puf_blend(uint32_t under, uint32_t over, float alpha) {
    int32_t a = to_alpha(alpha);
    return mix_channel(under >> 16 & 255, over >> 16 & 255, a) << 16 |
           mix_channel(under >> 8 & 255, over >> 8 & 255, a) << 8 |
           mix_channel(under & 255, over & 255, a);
}

void puf_clear(PufCanvas* c, uint32_t color) {
    if (drawable(c)) {
        fill_box(c, (Box){0, 0, c->width, c->height}, color);
    }
}

static bool finite4(float a, float b, float c, float d) {
    return isfinite(a) && isfinite(b) && isfinite(c) && isfinite(d);
}

// Edges are added in double, where the sum of two floats cannot overflow.
static Box rect_box(const PufCanvas* c, float x, float y, float w, float h) {
    if (!drawable(c) || !finite4(x, y, w, h)) {
        return (Box){0};
    }
    return snap_box(c, x, y, (double)x + w, (double)y + h);
}

void puf_rect(PufCanvas* c, float x, float y, float w, float h, uint32_t color) {
    fill_box(c, rect_box(c, x, y, w, h), color);
}

void puf_rect_alpha(PufCanvas* c, float x, float y, float w, float h, uint32_t color, float alpha) {
    Box box = rect_box(c, x, y, w, h);
    int32_t a = to_alpha(alpha);
    for (int32_t row = box.y0; row < box.y1; row++) {
        for (int32_t column = box.x0; column < box.x1; column++) {
            mix_pixel(pixel(c, column, row), color, a);
        }
    }
}

void puf_rect_outline(PufCanvas* c, float x, float y, float w, float h, float thickness,
                      uint32_t color) {
    if (!drawable(c) || !finite4(x, y, w, h) || !(w > 0) || !(h > 0) || !(thickness > 0) ||
        !isfinite(thickness)) {
        return;
    }
    // Rounded before clipping: a side beyond the canvas must not move to its border.
    double left = floor(x + 0.5), right = floor((double)x + w + 0.5);
    double top = floor(y + 0.5), bottom = floor((double)y + h + 0.5);
    double t = max(1, floor(thickness + 0.5));
    if (right - left <= 2 * t || bottom - top <= 2 * t) {  // the sides meet
        fill_box(c, snap_box(c, left, top, right, bottom), color);
        return;
    }
    fill_box(c, snap_box(c, left, top, right, top + t), color);
    fill_box(c, snap_box(c, left, bottom - t, right, bottom), color);
    fill_box(c, snap_box(c, left, top + t, left + t, bottom - t), color);
    fill_box(c, snap_box(c, right - t, top + t, right, bottom - t), color);
}

void puf_line(PufCanvas* c, float x0, float y0, float x1, float y1, float thickness,
              uint32_t color) {
    if (!drawable(c) || !finite4(x0, y0, x1, y1) || !isfinite(thickness) || !(thickness > 0)) {
        return;
    }
    // A line thinner than a pixel is a fainter line of one pixel; it would break up otherwise.
    double strength = min(thickness, 1);
    double reach = max(thickness, 1) / 2 + 0.5;  // distance from its middle where it has faded out
    double dx = (double)x1 - x0, dy = (double)y1 - y0;
    double length = hypot(dx, dy);
    double ux = length > 0 ? dx / length : 1, uy = length > 0 ? dy / length : 0;
    Box box = touched_box(c, min(x0, x1) - reach, min(y0, y1) - reach, max(x0, x1) + reach,
                          max(y0, y1) + reach);
    for (int32_t row = box.y0; row < box.y1; row++) {
        double py = row + 0.5 - y0;
        int32_t first = box.x0, last = box.x1;
        if (fabs(uy) > 1e-3) {  // skip the pixels left and right of a slanted line
            double middle = x0 + py * ux / uy, half = reach / fabs(uy);
            Box band = touched_box(c, middle - half, row, middle + half, row);
            first = band.x0 > first ? band.x0 : first;
            last = band.x1 < last ? band.x1 : last;
        }
        for (int32_t column = first; column < last; column++) {
            double px = column + 0.5 - x0;
            double along = min(max(px * ux + py * uy, 0), length);  // nearest point of the line
            double across_x = px - along * ux, across_y = py - along * uy;
            double distance = sqrt(across_x * across_x + across_y * across_y);
            int32_t alpha = to_alpha(min(reach - distance, 1) * strength);
            if (alpha) {
                mix_pixel(pixel(c, column, row), color, alpha);
            }
        }
    }
}

// What lies between two circles, as seen through `strength`. A pixel fades with the distance of its
// middle from either edge. inner < 0 leaves no hole.
static void draw_annulus(PufCanvas* c, double cx, double cy, double outer, double inner,
                         double strength, uint32_t color) {
    Box box = touched_box(c, cx - outer, cy - outer, cx + outer, cy + outer);
    // Within this radius every pixel is alike: all hole, or all disc. Less a pixel, so that no
    // rounding eats into the fading edge.
    double plain = (inner < 0 ? outer : inner) - 1.5;
    for (int32_t row = box.y0; row < box.y1; row++) {
        double dy = row + 0.5 - cy;
        double seen_half = sqrt(max((outer + 0.5) * (outer + 0.5) - dy * dy, 0));
        Box seen = touched_box(c, cx - seen_half, row, cx + seen_half, row + 1);
        Box middle = {0};
        if (plain > fabs(dy)) {
            double half = sqrt(plain * plain - dy * dy);
            middle = snap_box(c, cx - half, row, cx + half, row + 1);
        }
        if (inner < 0) {
            fill_box(c, middle, color);
        }
        for (int32_t column = seen.x0; column < seen.x1; column++) {
            if (column == middle.x0 && !empty(middle)) {
                column = middle.x1 - 1;
                continue;
            }
            double dx = column + 0.5 - cx;
            double distance = sqrt(dx * dx + dy * dy);
            double coverage = min(outer + 0.5 - distance, 1);
            if (inner >= 0) {
                coverage = min(coverage, distance + 0.5 - inner);
            }
            int32_t alpha = to_alpha(coverage * strength);
            if (alpha) {
                mix_pixel(pixel(c, column, row), color, alpha);
            }
        }
    }
}

void puf_circle(PufCanvas* c, float cx, float cy, float r, uint32_t color) {
    if (!drawable(c) || !isfinite(cx) || !isfinite(cy) || !isfinite(r) || !(r > 0)) {
        return;
    }
    // A disc smaller than a pixel is a fainter disc of one pixel, by area.
    double strength = r < 0.5 ? 4.0 * r * r : 1;
    draw_annulus(c, cx, cy, max(r, 0.5), -1, strength, color);
}

void puf_ring(PufCanvas* c, float cx, float cy, float r, float thickness, uint32_t color) {
    if (!drawable(c) || !finite4(cx, cy, r, thickness) || !(r > 0) || !(thickness > 0)) {
        return;
    }
    if (thickness >= r) {
        puf_circle(c, cx, cy, r, color);
        return;
    }
    double middle = r - thickness / 2.0, half = max(thickness, 1) / 2;  // as in puf_line
    draw_annulus(c, cx, cy, middle + half, max(middle - half, 0), min(thickness, 1), color);
}

// Where the outline crosses the horizontal line at y, sorted; an even number of them.
static int32_t find_crossings(const float* xy, int32_t n, double y, double* crossings) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i + 1 < n ? i + 1 : 0;
        double x0 = xy[2 * i], y0 = xy[2 * i + 1], x1 = xy[2 * j], y1 = xy[2 * j + 1];
        if ((y0 <= y) == (y1 <= y)) {
            continue;
        }
        double x = x0 + (y - y0) / (y1 - y0) * (x1 - x0);
        int32_t at = count++;
        for (; at > 0 && crossings[at - 1] > x; at--) {
            crossings[at] = crossings[at - 1];
        }
        crossings[at] = x;
    }
    return count;
}

// Makes the running sum of `rise` one `weight` higher from x on: by a part in the pixel that holds
// x, by all of it from the next pixel.
static void add_edge(float* rise, double x, float weight) {
    int32_t i = (int32_t)x;
    float behind = weight * (float)(x - i);
    rise[i] += weight - behind;
    rise[i + 1] += behind;
}

// Exact along x, SUBROWS samples along y.
void puf_polygon(PufCanvas* c, const float* xy, int32_t n, uint32_t color) {
    if (!drawable(c) || !xy || n < 3 || n > MAX_CORNERS) {
        return;
    }
    double left = xy[0], right = xy[0], top = xy[1], bottom = xy[1];
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(xy[2 * i]) || !isfinite(xy[2 * i + 1])) {
            return;
        }
        left = min(left, xy[2 * i]), right = max(right, xy[2 * i]);
        top = min(top, xy[2 * i + 1]), bottom = max(bottom, xy[2 * i + 1]);
    }
    Box box = touched_box(c, left, top, right, bottom);
    double crossings[SUBROWS][MAX_CORNERS];
    int32_t counts[SUBROWS];
    for (int32_t row = box.y0; row < box.y1; row++) {
        for (int32_t sub = 0; sub < SUBROWS; sub++) {
            counts[sub] = find_crossings(xy, n, row + (sub + 0.5) / SUBROWS, crossings[sub]);
        }
        for (int32_t start = box.x0; start < box.x1; start += CHUNK) {
            int32_t columns = box.x1 - start < CHUNK ? box.x1 - start : CHUNK;
            float rise[CHUNK + 2] = {0};  // of coverage, from pixel to pixel
            for (int32_t sub = 0; sub < SUBROWS; sub++) {
                for (int32_t i = 0; i < counts[sub]; i++) {  // in at even ones, out at odd ones
                    double x = min(max(crossings[sub][i] - start, 0), columns);
                    add_edge(rise, x, (i % 2 ? -1.0f : 1.0f) / SUBROWS);
                }
            }
            float cover = 0;
            for (int32_t i = 0; i < columns; i++) {
                cover += rise[i];
                int32_t alpha = to_alpha(cover);
                if (alpha) {
                    mix_pixel(pixel(c, start + i, row), color, alpha);
                }
            }
        }
    }
}

void puf_sprite(PufCanvas* c, float x, float y, float scale, const char* const* rows,
                int32_t num_rows, const char* keys, const uint32_t* colors) {
    if (!drawable(c) || !isfinite(x) || !isfinite(y) || !isfinite(scale) || !(scale > 0) || !rows ||
        !keys || !colors) {
        return;
    }
    for (int32_t row = 0; row < num_rows; row++) {
        double top = y + (double)row * scale;
        const char* cells = rows[row];
        for (size_t i = 0, end; cells && cells[i]; i = end) {
            for (end = i + 1; cells[end] == cells[i]; end++) {  // equal cells are one rectangle
            }
            const char* key = cells[i] == ' ' || cells[i] == '.' ? NULL : strchr(keys, cells[i]);
            if (key) {
                Box box =
                    snap_box(c, x + (double)i * scale, top, x + (double)end * scale, top + scale);
                fill_box(c, box, colors[key - keys]);
            }
        }
    }
}

static double dot_size(float scale) {
    return isfinite(scale) && scale >= 0.5f ? floor(scale + 0.5) : 0;
}

static void draw_glyph(PufCanvas* c, double x, double y, double dot, uint32_t color, char letter) {
    bool known = letter >= FIRST_GLYPH && letter < BOX_GLYPH;
    int32_t index = (known ? letter : BOX_GLYPH) - FIRST_GLYPH;
    const char* const* strip = font[index / GLYPHS_PER_STRIP];
    for (int32_t row = 0; row < GLYPH_ROWS; row++) {
        const char* dots = strip[row] + index % GLYPHS_PER_STRIP * GLYPH_ADVANCE;
        double top = y + row * dot;
        for (int32_t i = 0; i < GLYPH_WIDTH; i++) {
            if (dots[i] == '#') {
                fill_box(c, snap_box(c, x + i * dot, top, x + (i + 1) * dot, top + dot), color);
            }
        }
    }
}

void puf_text(PufCanvas* c, float x, float y, float scale, uint32_t color, const char* text) {
    double dot = dot_size(scale);
    if (!drawable(c) || !isfinite(x) || !isfinite(y) || dot == 0 || !text) {
        return;
    }
    double left = floor(x + 0.5), top = floor(y + 0.5);  // dots stay equal in size
    for (double at = left; *text; text++) {
        if (*text == '\n') {
            at = left;
            top += LINE_ADVANCE * dot;
        } else {
            draw_glyph(c, at, top, dot, color, *text);
            at += GLYPH_ADVANCE * dot;
        }
    }
}

void puf_textf(PufCanvas* c, float x, float y, float scale, uint32_t color, const char* fmt, ...) {
    char text[TEXT_BYTES];
    if (!fmt) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length > 0) {
        puf_text(c, x, y, scale, color, text);
    }
}

float puf_text_width(float scale, const char* text) {
    size_t longest = 0;
    while (text && *text) {
        size_t length = strcspn(text, "\n");
        longest = length > longest ? length : longest;
        text += length + (text[length] == '\n');
    }
    // All characters but the last have a gap after them.
    return longest ? (float)(dot_size(scale) * ((double)longest * GLYPH_ADVANCE - 1)) : 0;
}
