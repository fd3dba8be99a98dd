// stage.c - see stage.h.
#include "stage.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 16,        // floats of a cache line
    MAX_CELLS = 4096,  // of a stage with more than one step
    ALIGN = 64,        // bytes
    NUM_WORDS = 4,     // arrays of words, and of flags
    NUM_FLAGS = 4,
};

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

PufStage* puf_stages_create(int32_t count, int32_t slots) {
    int32_t steps = MAX_CELLS / (slots < 1 ? 1 : slots);
    steps = steps < 1 ? 1 : steps > STEPS ? STEPS : steps;
    const size_t cells = (size_t)slots * (size_t)steps;
    const size_t words = aligned(cells * sizeof(float)), flags = aligned(cells);
    const size_t table = aligned((size_t)count * sizeof(PufStage));
    const size_t bytes = NUM_WORDS * words + NUM_FLAGS * flags;
    uint8_t* memory = aligned_alloc(ALIGN, table + (size_t)count * bytes);
    if (!memory) return NULL;
    PufStage* stages = (PufStage*)(void*)memory;
    for (int32_t i = 0; i < count; i++) {
        uint8_t* at = memory + table + (size_t)i * bytes;
        uint8_t* of_flags = at + NUM_WORDS * words;
        stages[i] = (PufStage){.slots = slots,
                               .steps = steps,
                               .logprobs = (float*)(void*)at,
                               .values = (float*)(void*)(at + words),
                               .rewards = (float*)(void*)(at + 2 * words),
                               .choices = (int32_t*)(void*)(at + 3 * words),
                               .masks = of_flags,
                               .resets = of_flags + flags,
                               .terminals = of_flags + 2 * flags,
                               .truncations = of_flags + 3 * flags};
    }
    return stages;
}

// ---- Turning ------------------------------------------------------------------------------------

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

// A square of SIDE vectors: each round interleaves their halves, and the last one leaves columns.
#define DEFINE_SQUARE(name, Vector, type, SIDE, LOW, HIGH)                                      \
    static inline void name(const type* from, size_t stride, type* to, size_t horizon) {        \
        Vector x[SIDE], y[SIDE];                                                                \
        UNROLL for (size_t i = 0; i < SIDE; i++) memcpy(&x[i], from + i * stride, sizeof x[i]); \
        UNROLL for (int round = 1; round < SIDE; round *= 2) {                                  \
            UNROLL for (int i = 0; i < SIDE / 2; i++) {                                         \
                y[2 * i] = MIX(Vector, x[i], x[i + SIDE / 2], LOW);                             \
                y[2 * i + 1] = MIX(Vector, x[i], x[i + SIDE / 2], HIGH);                        \
            }                                                                                   \
            UNROLL for (int i = 0; i < SIDE; i++) x[i] = y[i];                                  \
        }                                                                                       \
        UNROLL for (size_t i = 0; i < SIDE; i++) memcpy(to + i * horizon, &x[i], sizeof x[i]);  \
    }

#define DEFINE_SPREAD(name, square, type, SIDE)                                                  \
    void name(const PufStage* stage, const PufCells* cells, const type* from, type* to) {        \
        const size_t stride = (size_t)stage->slots, horizon = cells->horizon;                    \
        const size_t slots = (size_t)cells->slots, steps = (size_t)cells->steps;                 \
        size_t slot = 0;                                                                         \
        for (; steps % SIDE == 0 && slot + SIDE <= slots; slot += SIDE)                          \
            for (size_t t = 0; t < steps; t += SIDE)                                             \
                square(from + t * stride + slot, stride, to + slot * horizon + t, horizon);      \
        for (; slot < slots; slot++)                                                             \
            for (size_t t = 0; t < steps; t++) to[slot * horizon + t] = from[t * stride + slot]; \
    }

DEFINE_SQUARE(square_of_floats, Words, float, 4, LOW_WORDS, HIGH_WORDS)
DEFINE_SQUARE(square_of_words, Words, int32_t, 4, LOW_WORDS, HIGH_WORDS)
DEFINE_SQUARE(square_of_bytes, Bytes, uint8_t, 16, LOW_BYTES, HIGH_BYTES)
DEFINE_SPREAD(puf_spread_floats, square_of_floats, float, 4)
DEFINE_SPREAD(puf_spread_words, square_of_words, int32_t, 4)
DEFINE_SPREAD(puf_spread_bytes, square_of_bytes, uint8_t, 16)
