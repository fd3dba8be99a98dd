// Stages: arrays of their own, of as many steps as fill a cache line, or fewer for many slots.
#include <stdlib.h>
#include <string.h>

#include "nn/stage.h"
#include "tests/check.h"

static void arrays_do_not_overlap(int32_t slots, int32_t steps) {
    PufStage* stages = puf_stages_create(2, slots);
    const size_t cells = (size_t)slots * (size_t)steps;
    for (int i = 0; i < 2; i++) {
        const PufStage* stage = &stages[i];
        CHECK(stage->slots == slots && stage->steps == steps);
        void* words[] = {stage->logprobs, stage->values, stage->rewards, stage->choices};
        uint8_t* flags[] = {stage->masks, stage->resets, stage->terminals, stage->truncations};
        for (int j = 0; j < 4; j++) memset(words[j], 8 * i + j, 4 * cells);
        for (int j = 0; j < 4; j++) memset(flags[j], 8 * i + 4 + j, cells);
    }
    for (int i = 0; i < 2; i++) {
        const PufStage* stage = &stages[i];
        const void* words[] = {stage->logprobs, stage->values, stage->rewards, stage->choices};
        const uint8_t* flags[] = {stage->masks, stage->resets, stage->terminals,
                                  stage->truncations};
        for (int j = 0; j < 4; j++)
            for (size_t at = 0; at < 4 * cells; at += 4 * cells - 1)
                CHECK(((const uint8_t*)words[j])[at] == 8 * i + j);
        for (int j = 0; j < 4; j++)
            for (size_t at = 0; at < cells; at++) CHECK(flags[j][at] == 8 * i + 4 + j);
    }
    free(stages);
}

int main(void) {
    arrays_do_not_overlap(64, 16);
    arrays_do_not_overlap(3, 16);
    arrays_do_not_overlap(300, 13);
    arrays_do_not_overlap(100000, 1);  // slots of very many agents: step by step
    return CHECK_DONE();
}
