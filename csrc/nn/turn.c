// turn.c - see turn.h.
//
// Squares of vectors: each round interleaves their halves, and the last one leaves columns. What is
// left at the edges goes one by one.
#include "turn.h"

#include <string.h>

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int32_t Words __attribute__((vector_size(16)));
#ifdef __clang__
#define MIX(Vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIX(Vector, a, b, ...) __builtin_shuffle(a, b, (Vector){__VA_ARGS__})
#endif
#define LOW_WORDS 0, 4, 1, 5
#define HIGH_WORDS 2, 6, 3, 7
#define LOW_BYTES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_BYTES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define UNROLL _Pragma("GCC unroll 16")

#define DEFINE_SQUARE(name, Vector, number, SIDE, LOW, HIGH)                                     \
    static inline void name(const number* from, size_t stride, number* to, size_t to_stride) {   \
        Vector x[SIDE], y[SIDE];                                                                 \
        UNROLL for (size_t i = 0; i < SIDE; i++) memcpy(&x[i], from + i * stride, sizeof x[i]);  \
        UNROLL for (int round = 1; round < SIDE; round *= 2) {                                   \
            UNROLL for (int i = 0; i < SIDE / 2; i++) {                                          \
                y[2 * i] = MIX(Vector, x[i], x[i + SIDE / 2], LOW);                              \
                y[2 * i + 1] = MIX(Vector, x[i], x[i + SIDE / 2], HIGH);                         \
            }                                                                                    \
            UNROLL for (int i = 0; i < SIDE; i++) x[i] = y[i];                                   \
        }                                                                                        \
        UNROLL for (size_t i = 0; i < SIDE; i++) memcpy(to + i * to_stride, &x[i], sizeof x[i]); \
    }

DEFINE_SQUARE(square_of_words, Words, int32_t, 4, LOW_WORDS, HIGH_WORDS)
DEFINE_SQUARE(square_of_bytes, Bytes, uint8_t, 16, LOW_BYTES, HIGH_BYTES)

// Squares as far as they fit. Columns of `from` are rows of `to`, so a column of squares writes a
// few rows of it from end to end.
#define DEFINE_TURN(name, square, number, SIDE)                                                   \
    static inline void name(size_t rows, size_t cols, const number* from, size_t stride,          \
                            number* to, size_t to_stride) {                                       \
        for (size_t col = 0, width; col < cols; col += width) {                                   \
            width = cols - col < SIDE ? 1 : SIDE;                                                 \
            size_t row = 0;                                                                       \
            for (; width == SIDE && row + SIDE <= rows; row += SIDE)                              \
                square(from + row * stride + col, stride, to + col * to_stride + row, to_stride); \
            for (; row < rows; row++)                                                             \
                for (size_t i = col; i < col + width; i++)                                        \
                    memcpy(to + i * to_stride + row, from + row * stride + i, sizeof *to);        \
        }                                                                                         \
    }

DEFINE_TURN(turn_words, square_of_words, int32_t, 4)
DEFINE_TURN(turn_bytes, square_of_bytes, uint8_t, 16)

void puf_turn_words(int32_t rows, int32_t cols, const void* from, size_t stride, void* to,
                    size_t to_stride) {
    turn_words((size_t)rows, (size_t)cols, from, stride, to, to_stride);
}

void puf_turn_bytes(int32_t rows, int32_t cols, const uint8_t* from, size_t stride, uint8_t* to,
                    size_t to_stride) {
    turn_bytes((size_t)rows, (size_t)cols, from, stride, to, to_stride);
}
