// Stages: every cell gets the step and slot that belong to it, and no other cell is written.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nn/stage.h"
#include "tests/check.h"

enum { MOST = 70, HORIZON = 37 };

static void cells_get_their_steps(int32_t slots, int32_t used) {
    static float floats[MOST * HORIZON];
    static int32_t words[MOST * HORIZON];
    static uint8_t bytes[MOST * HORIZON];
    PufStage* stages = puf_stages_create(2, slots);
    PufStage* stage = &stages[1];
    CHECK(stage->slots == slots && stage->steps == 16);
    for (int32_t i = 0; i < slots * stage->steps; i++)
        stage->rewards[i] = (float)i, stage->choices[i] = i, stage->truncations[i] = (uint8_t)i;
    for (int32_t steps = 1; steps <= stage->steps; steps++) {
        memset(floats, 0xFF, sizeof floats);
        memset(words, 0xFF, sizeof words);
        memset(bytes, 0xFF, sizeof bytes);
        const PufCells cells = {used, steps, HORIZON};
        puf_spread_floats(stage, &cells, stage->rewards, floats);
        puf_spread_words(stage, &cells, stage->choices, words);
        puf_spread_bytes(stage, &cells, stage->truncations, bytes);
        for (int32_t n = 0; n < MOST; n++)
            for (int32_t t = 0; t < HORIZON; t++) {
                const int32_t at = n * HORIZON + t, from = t * slots + n;
                const bool is_ours = n < used && t < steps;
                CHECK(is_ours ? floats[at] == (float)from : floats[at] != floats[at]);
                CHECK(words[at] == (is_ours ? from : -1));
                CHECK(bytes[at] == (is_ours ? (uint8_t)from : 0xFF));
            }
    }
    free(stages);
}

int main(void) {
    cells_get_their_steps(64, 64);
    cells_get_their_steps(64, 37);
    cells_get_their_steps(MOST, MOST);
    cells_get_their_steps(3, 3);
    PufStage* many = puf_stages_create(1, 100000);  // slots of very many agents: step by step
    CHECK(many->steps == 1);
    free(many);
    return CHECK_DONE();
}
