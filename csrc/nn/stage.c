// stage.c - see stage.h.
#include "stage.h"

#include <stdlib.h>

#include "threads.h"

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
    const size_t table = puf_apart((size_t)count * sizeof(PufStage));
    const size_t bytes = puf_apart(NUM_WORDS * words + NUM_FLAGS * flags);
    uint8_t* memory = aligned_alloc(PUF_APART, table + (size_t)count * bytes);
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
