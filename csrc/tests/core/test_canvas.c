// The canvas: exact pixels where they can be derived by hand, no stray write for any argument.
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "puf_canvas.h"
#include "tests/check.h"

enum { SIZE = 16 };

static uint8_t bytes[SIZE * SIZE * 3];
static PufCanvas canvas = {bytes, SIZE, SIZE};
static PufCanvas* const c = &canvas;

static uint32_t at(const PufCanvas* from, int32_t x, int32_t y) {
    const uint8_t* p = from->rgb + ((size_t)y * (size_t)from->width + (size_t)x) * 3;
    return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

// Whether the pixels x0 <= x < x1, y0 <= y < y1 of the canvas have that colour, and all others are
// black.
static bool only(int32_t x0, int32_t y0, int32_t x1, int32_t y1, uint32_t color) {
    for (int32_t y = 0; y < SIZE; y++) {
        for (int32_t x = 0; x < SIZE; x++) {
            bool inside = x0 <= x && x < x1 && y0 <= y && y < y1;
            if (at(c, x, y) != (inside ? color : PUF_BLACK)) {
                return false;
            }
        }
    }
    return true;
}

static bool blank(void) { return only(0, 0, 0, 0, PUF_BLACK); }

// Whether the canvas shows the picture: '#' is white, '.' black; the rest of the canvas is black.
static bool shows(const char* const* rows, int32_t num_rows) {
    for (int32_t y = 0; y < SIZE; y++) {
        size_t length = y < num_rows ? strlen(rows[y]) : 0;
        for (int32_t x = 0; x < SIZE; x++) {
            bool lit = (size_t)x < length && rows[y][x] == '#';
            if (at(c, x, y) != (lit ? PUF_WHITE : PUF_BLACK)) {
                return false;
            }
        }
    }
    return true;
}
#define SHOWS(...)                            \
    shows((const char* const[]){__VA_ARGS__}, \
          sizeof((const char* const[]){__VA_ARGS__}) / sizeof(char*))

// The red channel summed over the canvas, in units of one full pixel: the area of a white shape.
static double area(void) {
    double sum = 0;
    for (size_t i = 0; i < sizeof bytes; i += 3) {
        sum += bytes[i] / 255.0;
    }
    return sum;
}

static void test_bytes_are_red_green_blue_row_by_row(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect(c, 1, 2, 1, 1, 0x123456);
    size_t offset = (2 * SIZE + 1) * 3;
    CHECK(bytes[offset] == 0x12 && bytes[offset + 1] == 0x34 && bytes[offset + 2] == 0x56);
    CHECK(only(1, 2, 2, 3, 0x123456));
}

static void test_clear_fills_canvases_of_every_size_and_ignores_the_top_byte(void) {
    for (int32_t width = 1; width <= 9; width++) {
        for (int32_t height = 1; height <= 5; height++) {
            PufCanvas small = {malloc((size_t)width * (size_t)height * 3), width, height};
            bool same = true;
            puf_clear(&small, 0xFFABCDEF);
            for (int32_t i = 0; i < width * height; i++) {
                same = same && at(&small, i % width, i / width) == 0xABCDEF;
            }
            CHECK(same);
            free(small.rgb);
        }
    }
}

static void test_rect_edges_snap_to_the_nearest_border(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect(c, 2.4f, 3.5f, 3.2f, 2.0f, PUF_RED);  // 2.4 -> 2, 5.6 -> 6; 3.5 -> 4, 5.5 -> 6
    CHECK(only(2, 4, 6, 6, PUF_RED));

    puf_clear(c, PUF_BLACK);
    puf_rect(c, 2.6f, 3, 0.3f, 5, PUF_RED);  // 2.6 -> 3 and 2.9 -> 3: too thin
    CHECK(blank());
}

static void test_rects_in_a_row_leave_no_gap_and_no_overlap(void) {
    // 7 columns of 16 / 7 pixels: each pixel is blended exactly once, to (0 + 255 * 128 + 128) /
    // 256
    puf_clear(c, PUF_BLACK);
    for (int i = 0; i < 7; i++) {
        float left = i * 16.0f / 7, right = (i + 1) * 16.0f / 7;
        puf_rect_alpha(c, left, 0, right - left, SIZE, PUF_WHITE, 0.5f);
    }
    CHECK(only(0, 0, SIZE, SIZE, 0x808080));
}

static void test_rect_clips_at_every_border(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect(c, -5, -5, 8, 7, PUF_GREEN);
    CHECK(only(0, 0, 3, 2, PUF_GREEN));

    puf_clear(c, PUF_BLACK);
    puf_rect(c, 14, 13, 1e30f, 1e30f, PUF_GREEN);
    CHECK(only(14, 13, SIZE, SIZE, PUF_GREEN));

    puf_clear(c, PUF_BLACK);
    puf_rect(c, -FLT_MAX, 4, FLT_MAX, 2, PUF_GREEN);  // ends at 0
    puf_rect(c, SIZE, 0, 4, 4, PUF_GREEN);
    puf_rect(c, 8, 8, -4, 4, PUF_GREEN);
    puf_rect(c, 8, 8, 4, -4, PUF_GREEN);
    CHECK(blank());

    puf_rect(c, -1, 5, SIZE + 2, 3, PUF_GREEN);  // whole rows take the other path
    CHECK(only(0, 5, SIZE, 8, PUF_GREEN));
}

static void test_blend_is_exact_at_both_ends_and_rounds_between(void) {
    CHECK(puf_blend(0x112233, 0xFFEEDD, 0) == 0x112233);
    CHECK(puf_blend(0x112233, 0xFFEEDD, 1) == 0xFFEEDD);
    CHECK(puf_blend(0x112233, 0xFFEEDD, -3) == 0x112233);
    CHECK(puf_blend(0x112233, 0xFFEEDD, 7) == 0xFFEEDD);
    CHECK(puf_blend(0x112233, 0xFFEEDD, NAN) == 0x112233);
    // alpha 64 of 256: (0xFF * 192 + 128) / 256 = 191 = 0xBF; (0xFF * 64 + 128) / 256 = 64 = 0x40
    CHECK(puf_blend(0xFF0000, 0x00FF00, 0.25f) == 0xBF4000);
}

static void test_rect_alpha_blends_inside_only(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect_alpha(c, 2, 2, 3, 3, 0xFF8000, 0.25f);  // 64 = 0x40; (0x80 * 64 + 128) / 256 = 0x20
    CHECK(only(2, 2, 5, 5, 0x402000));
}

static void test_outline_grows_inwards(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect_outline(c, 1, 0, 5, 4, 1, PUF_WHITE);
    CHECK(SHOWS(".#####", ".#...#", ".#...#", ".#####"));

    puf_clear(c, PUF_BLACK);
    puf_rect_outline(c, 0, 0, 7, 5, 2, PUF_WHITE);
    CHECK(SHOWS("#######", "#######", "##...##", "#######", "#######"));
}

static void test_outline_is_at_least_a_pixel_and_fills_up_when_thick(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect_outline(c, 0, 0, 3, 3, 0.1f, PUF_WHITE);
    CHECK(SHOWS("###", "#.#", "###"));

    puf_clear(c, PUF_BLACK);
    puf_rect_outline(c, 2, 3, 5, 4, 2, PUF_CYAN);  // 4 <= 2 * 2: the sides meet
    CHECK(only(2, 3, 7, 7, PUF_CYAN));
}

static void test_outline_sides_beyond_the_canvas_stay_hidden(void) {
    puf_clear(c, PUF_BLACK);
    puf_rect_outline(c, -3, -3, 100, 5, 1, PUF_WHITE);  // bottom side at y = 1, all others outside
    CHECK(only(0, 1, SIZE, 2, PUF_WHITE));
}

static void test_line_through_pixel_middles_is_crisp(void) {
    puf_clear(c, PUF_BLACK);
    puf_line(c, 2.5f, 5.5f, 6.5f, 5.5f, 1, PUF_WHITE);
    CHECK(only(2, 5, 7, 6, PUF_WHITE));

    puf_clear(c, PUF_BLACK);
    puf_line(c, 3.5f, 9.5f, 3.5f, 1.5f, 1, PUF_WHITE);
    CHECK(only(3, 1, 4, 10, PUF_WHITE));
}

static void test_line_between_pixel_middles_covers_half_of_both(void) {
    // y = 5 is 0.5 from the middles of rows 4 and 5: coverage 0.5, (255 * 128 + 128) / 256 = 128
    puf_clear(c, PUF_BLACK);
    puf_line(c, 2.5f, 5, 6.5f, 5, 1, PUF_WHITE);
    CHECK(at(c, 4, 4) == 0x808080 && at(c, 4, 5) == 0x808080);
    CHECK(at(c, 4, 3) == PUF_BLACK && at(c, 4, 6) == PUF_BLACK);
}

static void test_thin_line_is_fainter_not_narrower(void) {
    puf_clear(c, PUF_BLACK);
    puf_line(c, 2.5f, 5.5f, 6.5f, 5.5f, 0.25f, PUF_WHITE);  // alpha 64: (255 * 64 + 128) / 256 = 64
    CHECK(only(2, 5, 7, 6, 0x404040));
}

static void test_slanted_lines_have_the_area_of_length_times_thickness(void) {
    // Plus the two round ends, which are together a disc as thick as the line.
    const float pi = 3.14159265f;
    for (int i = 0; i < 32; i++) {
        float dx = 5 * cosf(i * pi / 16), dy = 5 * sinf(i * pi / 16);
        puf_clear(c, PUF_BLACK);
        puf_line(c, 8.2f - dx, 7.9f - dy, 8.2f + dx, 7.9f + dy, 3, PUF_WHITE);
        CHECK(fabs(area() - (10 * 3 + pi * 1.5 * 1.5)) < 1.0);
    }
}

static void test_line_of_no_length_is_a_dot(void) {
    puf_clear(c, PUF_BLACK);
    puf_line(c, 4.5f, 4.5f, 4.5f, 4.5f, 1, PUF_WHITE);
    CHECK(only(4, 4, 5, 5, PUF_WHITE));
}

static void test_line_from_far_outside_crosses_the_canvas(void) {
    puf_clear(c, PUF_BLACK);
    puf_line(c, -1e6f, 8.5f, 1e6f, 8.5f, 1, PUF_WHITE);
    CHECK(only(0, 8, SIZE, 9, PUF_WHITE));
}

static void test_circle_fades_by_the_distance_of_the_pixel_middle(void) {
    // Middle (8.5, 8.5) is the middle of pixel (8, 8). Along the row distances are whole numbers:
    // at r = 3, pixel 3 away has coverage 0.5, pixel 4 away 0.
    puf_clear(c, PUF_BLACK);
    puf_circle(c, 8.5f, 8.5f, 3, PUF_WHITE);
    CHECK(at(c, 8, 8) == PUF_WHITE && at(c, 10, 8) == PUF_WHITE && at(c, 8, 6) == PUF_WHITE);
    CHECK(at(c, 11, 8) == 0x808080 && at(c, 5, 8) == 0x808080 && at(c, 8, 11) == 0x808080);
    CHECK(at(c, 12, 8) == PUF_BLACK && at(c, 8, 4) == PUF_BLACK);
    // Pixel (2, 2) away: sqrt(8) = 2.8284, coverage 0.6716, alpha 172, (255 * 172 + 128) / 256 =
    // 171
    CHECK(at(c, 10, 10) == 0xABABAB && at(c, 6, 10) == 0xABABAB);
}

static void test_circles_have_the_area_of_circles(void) {
    for (float r = 0.1f; r < 7; r += 0.3f) {
        double disc = 3.14159265 * r * r;
        puf_clear(c, PUF_BLACK);
        puf_circle(c, 8.1f, 7.8f, r, PUF_WHITE);
        CHECK(fabs(area() - disc) < 0.04 * disc + 0.6);
    }
}

static void test_circle_fast_path_equals_the_plain_formula(void) {
    const float cx = 7.3f, cy = 8.6f, r = 6.7f;
    bool equal = true;
    puf_clear(c, PUF_BLACK);
    puf_circle(c, cx, cy, r, PUF_WHITE);
    for (int32_t y = 0; y < SIZE; y++) {
        for (int32_t x = 0; x < SIZE; x++) {
            float coverage = r + 0.5f - hypotf(x + 0.5f - cx, y + 0.5f - cy);
            int32_t plain = (int32_t)(puf_blend(PUF_BLACK, PUF_WHITE, coverage) & 255);
            equal =
                equal && abs((int32_t)(at(c, x, y) & 255) - plain) <= 1;  // float against double
        }
    }
    CHECK(equal);
}

static void test_ring_has_a_hole_and_the_outer_radius(void) {
    // r 6, thickness 2 around pixel (8, 8): 3 away inside, coverage 3 + 0.5 - 4 < 0; 4 away 0.5;
    // 5 away 1; 6 away 0.5; 7 away 0.
    const uint32_t by_distance[] = {PUF_BLACK, PUF_BLACK, PUF_BLACK, PUF_BLACK,
                                    0x808080,  PUF_WHITE, 0x808080,  PUF_BLACK};
    puf_clear(c, PUF_BLACK);
    puf_ring(c, 8.5f, 8.5f, 6, 2, PUF_WHITE);
    for (int32_t i = 0; i < 8; i++) {
        CHECK(at(c, 8 + i, 8) == by_distance[i] && at(c, 8, 8 - i) == by_distance[i]);
    }
    // Area of the annulus: pi * (36 - 16).
    CHECK(fabs(area() - 3.14159265 * 20) < 1.0);
}

static void test_thick_ring_is_a_circle(void) {
    uint8_t disc[sizeof bytes];
    puf_clear(c, PUF_BLACK);
    puf_circle(c, 8, 8, 5, PUF_WHITE);
    memcpy(disc, bytes, sizeof bytes);
    puf_clear(c, PUF_BLACK);
    puf_ring(c, 8, 8, 5, 50, PUF_WHITE);
    CHECK(!memcmp(disc, bytes, sizeof bytes));
}

static void test_polygon_on_pixel_borders_is_a_rect(void) {
    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){2, 3, 7, 3, 7, 9, 2, 9}, 4, PUF_ORANGE);
    CHECK(only(2, 3, 7, 9, PUF_ORANGE));

    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){2, 9, 7, 9, 7, 3, 2, 3}, 4, PUF_ORANGE);  // the other way round
    CHECK(only(2, 3, 7, 9, PUF_ORANGE));
}

static void test_polygon_edges_cover_in_part(void) {
    // 2.25..5.5 x 3..4.5: pixel 2 by 3/4 (191), pixel 5 by 1/2 (128), row 4 by half of that.
    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){2.25f, 3, 5.5f, 3, 5.5f, 4.5f, 2.25f, 4.5f}, 4, PUF_WHITE);
    CHECK(at(c, 2, 3) == 0xBFBFBF && at(c, 3, 3) == PUF_WHITE && at(c, 5, 3) == 0x808080);
    CHECK(at(c, 2, 4) == 0x606060 && at(c, 3, 4) == 0x808080 && at(c, 5, 4) == 0x404040);
    CHECK(at(c, 1, 3) == PUF_BLACK && at(c, 6, 3) == PUF_BLACK && at(c, 3, 5) == PUF_BLACK);
}

static void test_triangle_diagonal_halves_its_pixels(void) {
    // Below the diagonal of a square of 8; each subrow's middle lies symmetric around the pixel's.
    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){0, 0, 8, 8, 0, 8}, 3, PUF_WHITE);
    for (int32_t i = 0; i < 8; i++) {
        CHECK(at(c, i, i) == 0x808080);
        CHECK(at(c, i + 1, i) == PUF_BLACK);
        CHECK(i == 0 || at(c, i - 1, i) == PUF_WHITE);
    }
}

static void test_concave_polygon_keeps_its_notch(void) {
    // A U: the notch is 2..4 x 0..3.
    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){0, 0, 2, 0, 2, 3, 4, 3, 4, 0, 6, 0, 6, 4, 0, 4}, 8, PUF_WHITE);
    CHECK(SHOWS("##..##", "##..##", "##..##", "######"));
}

static void test_polygon_crossing_itself_follows_even_odd(void) {
    // A square of 6 walked round, then one of 2 inside of it walked the same way: a hole.
    puf_clear(c, PUF_BLACK);
    puf_polygon(c, (const float[]){0, 0, 6, 0, 6, 6, 0, 6, 0, 0, 2, 2, 4, 2, 4, 4, 2, 4, 2, 2}, 10,
                PUF_WHITE);
    CHECK(SHOWS("######", "######", "##..##", "##..##", "######", "######"));
}

static void test_polygon_wider_than_a_chunk_has_no_seam(void) {
    enum { WIDE = 700 };
    uint8_t* wide_bytes = calloc(WIDE * 2, 3);
    PufCanvas wide = {wide_bytes, WIDE, 2};
    bool solid = true;
    puf_polygon(&wide, (const float[]){-9, 0, 900, 0, 900, 2, -9, 2}, 4, PUF_PINK);
    for (int32_t i = 0; i < WIDE * 2; i++) {
        solid = solid && at(&wide, i % WIDE, i / WIDE) == PUF_PINK;
    }
    CHECK(solid);
    free(wide_bytes);
}

static void test_polygon_needs_3_to_64_corners(void) {
    float xy[2 * 65];
    for (int i = 0; i < 65; i++) {
        xy[2 * i] = 8 + 7 * cosf(i * 0.09666f), xy[2 * i + 1] = 8 + 7 * sinf(i * 0.09666f);
    }
    const int32_t refused[] = {0, 1, 2, 65, -1, INT_MIN, INT_MAX};
    puf_clear(c, PUF_BLACK);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        puf_polygon(c, xy, refused[i], PUF_WHITE);
    }
    puf_polygon(c, NULL, 4, PUF_WHITE);
    CHECK(blank());
    puf_polygon(c, xy, 64, PUF_WHITE);
    CHECK(at(c, 8, 8) == PUF_WHITE);
}

static void test_sprite_looks_up_keys_and_skips_the_transparent(void) {
    const char* const rows[] = {"ab", NULL, "", ". a?b"};
    puf_clear(c, PUF_BLACK);
    puf_sprite(c, 1, 2, 1, rows, 4, "ab. ", (const uint32_t[]){PUF_RED, PUF_BLUE, 1, 1});
    CHECK(at(c, 1, 2) == PUF_RED && at(c, 2, 2) == PUF_BLUE);
    CHECK(at(c, 3, 5) == PUF_RED && at(c, 5, 5) == PUF_BLUE);
    puf_rect(c, 1, 2, 2, 1, PUF_BLACK);
    puf_rect(c, 3, 5, 1, 1, PUF_BLACK);
    puf_rect(c, 5, 5, 1, 1, PUF_BLACK);
    CHECK(blank());  // those four pixels were all
}

static void test_sprite_cells_scale_without_gaps(void) {
    const char* const rows[] = {"aaa", "aba", "aaa"};
    const uint32_t colors[] = {PUF_WHITE, PUF_BLACK};
    puf_clear(c, PUF_BLACK);
    puf_sprite(c, 0, 0, 2, rows, 3, "ab", colors);
    CHECK(SHOWS("######", "######", "##..##", "##..##", "######", "######"));

    puf_clear(c, PUF_BLACK);
    puf_sprite(c, 0, 0, 1.5f, rows, 3, "ab", colors);  // borders at 0, 1.5 -> 2, 3, 4.5 -> 5
    CHECK(SHOWS("#####", "#####", "##.##", "#####", "#####"));
}

static void test_text_draws_the_dots_of_the_font(void) {
    puf_clear(c, PUF_BLACK);
    puf_text(c, 0, 0, 1, PUF_WHITE, "Ag");
    CHECK(SHOWS(".###.", "#...#", "#...#..####", "#####.#...#", "#...#.#...#", "#...#..####",
                "#...#.....#", ".......###."));
}

static void test_text_scale_is_rounded_to_whole_dots(void) {
    puf_clear(c, PUF_BLACK);
    puf_text(c, 0.4f, -0.4f, 1.6f, PUF_WHITE, "-");  // row 3 of the glyph, dots of 2 pixels
    CHECK(only(0, 6, 10, 8, PUF_WHITE));
    puf_clear(c, PUF_BLACK);
    puf_text(c, 0, 0, 0.49f, PUF_WHITE, "-");
    CHECK(blank());
}

static void test_text_breaks_lines_10_dots_apart(void) {
    puf_clear(c, PUF_BLACK);
    puf_text(c, 1, -4, 1, PUF_WHITE, "-\n-");  // dashes in row 3: y = -1 and 9
    CHECK(only(1, 9, 6, 10, PUF_WHITE));
}

static void test_unprintable_characters_appear_as_a_box(void) {
    const char* const texts[] = {"\x7f", "\x01", "\t", "\x80", "\xff"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        puf_clear(c, PUF_BLACK);
        puf_text(c, 0, 0, 1, PUF_WHITE, texts[i]);
        CHECK(SHOWS("#####", "#...#", "#...#", "#...#", "#...#", "#...#", "#####"));
    }
}

static void test_every_printable_glyph_differs_and_fits_its_cell(void) {
    static uint8_t pictures[127][sizeof bytes];
    for (int letter = ' '; letter <= '~'; letter++) {
        puf_clear(c, PUF_BLACK);
        puf_text(c, 0, 0, 1, PUF_WHITE, (const char[]){(char)letter, 0});
        CHECK((area() > 0) == (letter != ' '));
        memcpy(pictures[letter], bytes, sizeof bytes);
        puf_rect(c, 0, 0, 5, 8, PUF_BLACK);
        CHECK(blank());
        for (int other = ' '; other < letter; other++) {
            CHECK(memcmp(pictures[other], pictures[letter], sizeof bytes) != 0);
        }
    }
}

static void test_text_width_is_that_of_the_longest_line(void) {
    CHECK(puf_text_width(1, "a") == 5);
    CHECK(puf_text_width(2, "abc") == 34);  // 2 * (3 * 6 - 1)
    CHECK(puf_text_width(1, "a\nabcd\nab") == 23);
    CHECK(puf_text_width(1, "abcd\n") == 23);
    CHECK(puf_text_width(1, "") == 0 && puf_text_width(1, "\n\n") == 0);
    CHECK(puf_text_width(1, NULL) == 0 && puf_text_width(NAN, "a") == 0);
    CHECK(puf_text_width(1.6f, "a") == 10);  // rounded as the text is
}

static void test_textf_formats(void) {
    uint8_t plain[sizeof bytes];
    puf_clear(c, PUF_BLACK);
    puf_text(c, 0, 0, 1, PUF_WHITE, "4x");
    memcpy(plain, bytes, sizeof bytes);
    puf_clear(c, PUF_BLACK);
    puf_textf(c, 0, 0, 1, PUF_WHITE, "%d%c", 4, 'x');
    CHECK(!memcmp(plain, bytes, sizeof bytes));
}

static void test_textf_cuts_after_127_bytes(void) {
    // 126 newlines put the next character at y = 1260; one more line would be at 1270.
    char text[200] = {0};
    memset(text, '\n', 126);
    strcat(text, "-\n-");
    puf_clear(c, PUF_BLACK);
    puf_textf(c, 0, -1260, 1, PUF_WHITE, "%s", text);
    CHECK(only(0, 3, 5, 4, PUF_WHITE));  // "-" is byte 127; the second dash would be at y = 13
}

static void test_calls_with_nothing_to_draw_draw_nothing(void) {
    const char* const rows[] = {"a"};
    const uint32_t white = PUF_WHITE;
    const char* none = NULL;
    puf_clear(c, PUF_BLACK);
    puf_text(c, 0, 0, 1, PUF_WHITE, NULL);
    puf_textf(c, 0, 0, 1, PUF_WHITE, none);
    puf_sprite(c, 0, 0, 1, NULL, 1, "a", &white);
    puf_sprite(c, 0, 0, 1, rows, 1, NULL, &white);
    puf_sprite(c, 0, 0, 1, rows, 1, "a", NULL);
    puf_sprite(c, 0, 0, 1, rows, INT_MIN, "a", &white);
    puf_sprite(c, 0, 0, -1, rows, 1, "a", &white);
    puf_circle(c, 8, 8, 0, PUF_WHITE);
    puf_circle(c, 8, 8, -4, PUF_WHITE);
    puf_ring(c, 8, 8, 4, 0, PUF_WHITE);
    puf_line(c, 0, 0, 9, 9, 0, PUF_WHITE);
    puf_rect_outline(c, 0, 0, 9, 9, -1, PUF_WHITE);
    puf_rect_outline(c, 9, 9, -5, -5, 1, PUF_WHITE);
    CHECK(blank());
}

static void test_a_number_that_is_not_finite_draws_nothing(void) {
    const char* const rows[] = {"a"};
    const uint32_t white = PUF_WHITE;
    const float wild[] = {NAN, INFINITY, -INFINITY};
    puf_clear(c, PUF_BLACK);
    for (int i = 0; i < 3; i++) {
        for (int which = 0; which < 5; which++) {
            float v[] = {2, 2, 9, 9, 3};
            v[which] = wild[i];
            if (which < 4) {
                puf_rect(c, v[0], v[1], v[2], v[3], PUF_WHITE);
                puf_rect_alpha(c, v[0], v[1], v[2], v[3], PUF_WHITE, 1);
                puf_ring(c, v[0], v[1], v[2], v[3], PUF_WHITE);
                puf_polygon(c, (const float[]){v[0], v[1], v[2], v[3], 2, 9}, 3, PUF_WHITE);
            }
            if (which < 3) {
                puf_circle(c, v[0], v[1], v[2], PUF_WHITE);
                puf_sprite(c, v[0], v[1], v[2], rows, 1, "a", &white);
                puf_text(c, v[0], v[1], v[2], PUF_WHITE, "#");
            }
            puf_rect_outline(c, v[0], v[1], v[2], v[3], v[4], PUF_WHITE);
            puf_line(c, v[0], v[1], v[2], v[3], v[4], PUF_WHITE);
        }
    }
    CHECK(blank());
}

static uint64_t random_state = 1;

static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float wild_float(void) {
    static const float wild[] = {NAN,   INFINITY, -INFINITY,     FLT_MAX,        -FLT_MAX, FLT_MIN,
                                 -0.0f, 1e-40f,   2147483648.0f, -2147483648.0f, 1e10f,    -1e20f};
    uint32_t bits = random_bits();
    float any;
    switch (random_bits() % 4) {
        case 0:
            return wild[bits % (sizeof wild / sizeof *wild)];
        case 1:
            memcpy(&any, &bits, sizeof any);
            return any;
        default:
            return (float)(bits % 8000) / 100 - 30;
    }
}

static int32_t wild_int(void) {
    static const int32_t wild[] = {INT_MIN, INT_MAX, -1, 0, 65, 64};
    return random_bits() % 2 ? wild[random_bits() % 6] : (int32_t)(random_bits() % 40);
}

static void draw_wildly(PufCanvas* on) {
    static const char* const rows[] = {"#.o#", "", NULL, "oo  ##x#", "\xff\x01"};
    float v[2 * 64];
    char text[24];
    for (int i = 0; i < 2 * 64; i++) {
        v[i] = wild_float();
    }
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = (char)random_bits();
    }
    text[sizeof text - 1] = 0;
    uint32_t color = random_bits();
    int32_t num_rows = wild_int(), corners = wild_int();
    puf_clear(on, color);
    puf_rect(on, v[0], v[1], v[2], v[3], color);
    puf_rect_alpha(on, v[4], v[5], v[6], v[7], color, v[8]);
    puf_rect_outline(on, v[9], v[10], v[11], v[12], v[13], color);
    puf_line(on, v[14], v[15], v[16], v[17], v[18], color);
    puf_circle(on, v[19], v[20], v[21], color);
    puf_ring(on, v[22], v[23], v[24], v[25], color);
    puf_polygon(on, v, corners, color);
    puf_polygon(on, v, 3 + (int32_t)(random_bits() % 4), color);
    puf_sprite(on, v[26], v[27], v[28], rows, num_rows > 5 ? 5 : num_rows, "#o\xff",
               (const uint32_t[]){color, ~color, 0});
    puf_text(on, v[29], v[30], v[31], color, text);
    puf_textf(on, v[32], v[33], v[34], color, "%f %d %s", (double)v[35], num_rows, text);
    puf_text_width(v[36], text);
    puf_blend(color, ~color, v[37]);
}

static void test_no_argument_makes_a_call_write_outside_of_the_canvas(void) {
    // The sanitizers watch the heap blocks, which hold not a byte more than the picture.
    for (int round = 0; round < 4000; round++) {
        int32_t width = (int32_t)(random_bits() % 24), height = (int32_t)(random_bits() % 24);
        PufCanvas wild = {malloc((size_t)width * (size_t)height * 3), width, height};
        draw_wildly(&wild);
        free(wild.rgb);
    }
    CHECK(true);  // reached
}

static void test_canvases_without_pixels_are_left_alone(void) {
    uint8_t guard[3] = {1, 2, 3};
    PufCanvas empties[] = {{guard, 0, 0},         {guard, 5, 0},   {guard, 0, 5}, {guard, -4, 5},
                           {guard, 5, INT32_MIN}, {guard, -1, -1}, {NULL, 8, 8}};
    for (size_t i = 0; i < sizeof empties / sizeof *empties; i++) {
        for (int round = 0; round < 50; round++) {
            draw_wildly(&empties[i]);
        }
    }
    draw_wildly(NULL);
    CHECK(guard[0] == 1 && guard[1] == 2 && guard[2] == 3);
}

int main(void) {
    test_bytes_are_red_green_blue_row_by_row();
    test_clear_fills_canvases_of_every_size_and_ignores_the_top_byte();
    test_rect_edges_snap_to_the_nearest_border();
    test_rects_in_a_row_leave_no_gap_and_no_overlap();
    test_rect_clips_at_every_border();
    test_blend_is_exact_at_both_ends_and_rounds_between();
    test_rect_alpha_blends_inside_only();
    test_outline_grows_inwards();
    test_outline_is_at_least_a_pixel_and_fills_up_when_thick();
    test_outline_sides_beyond_the_canvas_stay_hidden();
    test_line_through_pixel_middles_is_crisp();
    test_line_between_pixel_middles_covers_half_of_both();
    test_thin_line_is_fainter_not_narrower();
    test_slanted_lines_have_the_area_of_length_times_thickness();
    test_line_of_no_length_is_a_dot();
    test_line_from_far_outside_crosses_the_canvas();
    test_circle_fades_by_the_distance_of_the_pixel_middle();
    test_circles_have_the_area_of_circles();
    test_circle_fast_path_equals_the_plain_formula();
    test_ring_has_a_hole_and_the_outer_radius();
    test_thick_ring_is_a_circle();
    test_polygon_on_pixel_borders_is_a_rect();
    test_polygon_edges_cover_in_part();
    test_triangle_diagonal_halves_its_pixels();
    test_concave_polygon_keeps_its_notch();
    test_polygon_crossing_itself_follows_even_odd();
    test_polygon_wider_than_a_chunk_has_no_seam();
    test_polygon_needs_3_to_64_corners();
    test_sprite_looks_up_keys_and_skips_the_transparent();
    test_sprite_cells_scale_without_gaps();
    test_text_draws_the_dots_of_the_font();
    test_text_scale_is_rounded_to_whole_dots();
    test_text_breaks_lines_10_dots_apart();
    test_unprintable_characters_appear_as_a_box();
    test_every_printable_glyph_differs_and_fits_its_cell();
    test_text_width_is_that_of_the_longest_line();
    test_textf_formats();
    test_textf_cuts_after_127_bytes();
    test_calls_with_nothing_to_draw_draw_nothing();
    test_a_number_that_is_not_finite_draws_nothing();
    test_no_argument_makes_a_call_write_outside_of_the_canvas();
    test_canvases_without_pixels_are_left_alone();
    return CHECK_DONE();
}
