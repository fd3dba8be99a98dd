// Transposes: every number gets to its place, and no other is written.
#include <string.h>

#include "nn/turn.h"
#include "tests/check.h"

enum { MOST = 40, STRIDE = 43, TO_STRIDE = 45 };

static void numbers_get_to_their_places(int32_t rows, int32_t cols) {
    static float floats[MOST * STRIDE], to[MOST * TO_STRIDE];
    static uint8_t bytes[MOST * STRIDE], bytes_to[MOST * TO_STRIDE];
    for (int32_t i = 0; i < MOST * STRIDE; i++) floats[i] = (float)i, bytes[i] = (uint8_t)(i % 251);
    for (int32_t i = 0; i < MOST * TO_STRIDE; i++) to[i] = -1;
    memset(bytes_to, 0xFF, sizeof bytes_to);
    puf_turn_words(rows, cols, floats, STRIDE, to, TO_STRIDE);
    puf_turn_bytes(rows, cols, bytes, STRIDE, bytes_to, TO_STRIDE);
    for (int32_t i = 0; i < MOST; i++)
        for (int32_t j = 0; j < TO_STRIDE; j++) {
            const int32_t at = i * TO_STRIDE + j, from = j * STRIDE + i;
            const int is_ours = i < cols && j < rows;
            CHECK(to[at] == (is_ours ? floats[from] : -1.0f));
            CHECK(bytes_to[at] == (is_ours ? bytes[from] : 0xFF));
        }
}

int main(void) {
    const int32_t sizes[] = {0, 1, 3, 4, 5, 15, 16, 17, 32, 37, MOST};
    const size_t count = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) numbers_get_to_their_places(sizes[i], sizes[j]);
    return CHECK_DONE();
}
