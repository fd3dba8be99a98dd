// puf_canvas - draw into plain RGB bytes: no window, no OpenGL, the same picture everywhere.
//
// Coordinates are pixels: (0, 0) is the top left corner of the canvas, y grows downwards, and
// pixel (i, j) is the square from (i, j) to (i + 1, j + 1). Colours are 0xRRGGBB.
// Every call clips to the canvas and allocates nothing. A shape with a NaN or infinite
// coordinate, or of no size, is not drawn.
#ifndef PUF_CANVAS_H
#define PUF_CANVAS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PUF_PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PUF_PRINTF_LIKE(fmt, args)
#endif

#define PUF_BLACK 0x000000u
#define PUF_INK 0x06182Eu    // dark navy: the usual background
#define PUF_SLATE 0x1E3A55u  // a panel, wall or grid line on PUF_INK
#define PUF_GREY 0x8596A8u
#define PUF_PAPER 0xF3EDDFu  // warm white: text, or a light background
#define PUF_WHITE 0xFFFFFFu
#define PUF_RED 0xE5484Du
#define PUF_ORANGE 0xF58A42u
#define PUF_YELLOW 0xF7CE5Bu
#define PUF_GREEN 0x4CBB7Fu
#define PUF_CYAN 0x35C5D0u
#define PUF_BLUE 0x4080F0u
#define PUF_PURPLE 0x9A6CE0u
#define PUF_PINK 0xF283B0u
#define PUF_BROWN 0x96684Au

// The picture: height rows of width pixels of 3 bytes (r, g, b), without padding. The caller owns
// the bytes.
typedef struct {
    uint8_t* rgb;  // [height, width, 3]
    int32_t width, height;
} PufCanvas;

// The colour `over` laid on `under`: alpha 0 gives `under`, 1 gives `over`.
uint32_t puf_blend(uint32_t under, uint32_t over, float alpha);

// Fills the whole canvas.
void puf_clear(PufCanvas* c, uint32_t color);

// A filled rectangle. Its edges snap to the nearest pixel border, so rectangles that share an edge
// neither overlap nor leave a gap, and one thinner than half a pixel may vanish.
void puf_rect(PufCanvas* c, float x, float y, float w, float h, uint32_t color);

// A see-through rectangle, snapped like puf_rect; alpha is clamped to 0..1.
void puf_rect_alpha(PufCanvas* c, float x, float y, float w, float h, uint32_t color, float alpha);

// The frame of a rectangle, snapped like puf_rect. It grows inwards and is at least a pixel thick.
void puf_rect_outline(PufCanvas* c, float x, float y, float w, float h, float thickness,
                      uint32_t color);

// A smooth line with round ends.
void puf_line(PufCanvas* c, float x0, float y0, float x1, float y1, float thickness,
              uint32_t color);

// A smooth filled disc.
void puf_circle(PufCanvas* c, float cx, float cy, float r, uint32_t color);

// A smooth circle line with outer radius r, growing inwards.
void puf_ring(PufCanvas* c, float cx, float cy, float r, float thickness, uint32_t color);

// A smooth filled polygon of n corners x0, y0, x1, y1, ..., convex or not; where it crosses
// itself the even-odd rule decides. Draws nothing unless 3 <= n <= 64.
void puf_polygon(PufCanvas* c, const float* xy, int32_t n, uint32_t color);

// Pixel art: rows[j][i] becomes a square of `scale` pixels in colors[k], where keys[k] is that
// character. ' ', '.' and characters not in `keys` are transparent. Rows may differ in length.
//     static const char* const ghost[] = {".###.", "#o#o#", "#####", "#.#.#"};
//     puf_sprite(c, x, y, 4, ghost, 4, "#o", (const uint32_t[]){PUF_CYAN, PUF_INK});
void puf_sprite(PufCanvas* c, float x, float y, float scale, const char* const* rows,
                int32_t num_rows, const char* keys, const uint32_t* colors);

// ASCII text with its top left corner at (x, y). Capitals are 5 x 7 dots, a character is 6 dots
// wide with its gap, and '\n' starts a new line 10 dots below. A dot is `scale` pixels, rounded to
// a whole number. NULL draws nothing; what is not printable ASCII appears as a box.
void puf_text(PufCanvas* c, float x, float y, float scale, uint32_t color, const char* text);

// puf_text of a printf format; cut after 127 bytes.
void puf_textf(PufCanvas* c, float x, float y, float scale, uint32_t color, const char* fmt, ...)
    PUF_PRINTF_LIKE(6, 7);

// The width in pixels of the longest line of `text`, without the gap after it: for centring, start
// at x - puf_text_width(scale, text) / 2.
float puf_text_width(float scale, const char* text);

#ifdef __cplusplus
}
#endif

#endif
