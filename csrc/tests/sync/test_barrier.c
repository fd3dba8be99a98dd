// Threads stand for processes: all that matters lies in the memory between them.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sync/barrier.h"
#include "tests/check.h"

enum { SIZE = 3, TURNS = 2000 };

static PufBarrier* place;
static int64_t slots[2][SIZE];  // one is read while the other is written
static uint32_t first_turn;
static int32_t spins;

static void* take_part(void* argument) {
    const int32_t rank = (int32_t)(intptr_t)argument;
    intptr_t wrong = 0;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        slots[turn % 2][rank] = (int64_t)turn * (rank + 1);
        while (!puf_barrier_wait(place, rank, SIZE, first_turn + turn, spins, 1000)) continue;
        int64_t sum = 0;
        for (int32_t other = 0; other < SIZE; other++) sum += slots[turn % 2][other];
        wrong += sum != (int64_t)turn * (SIZE * (SIZE + 1) / 2);
    }
    return (void*)wrong;
}

static void test_all_see_what_all_wrote(void) {
    const uint32_t starts[] = {1, UINT32_MAX - TURNS / 2};  // the second wraps
    for (int round = 0; round < 4; round++) {
        memset(place, 0, puf_barrier_bytes(SIZE));
        first_turn = starts[round % 2];
        if (round % 2) {  // as if it had been counted up to there
            for (int32_t rank = 0; rank < SIZE; rank++)
                *(uint32_t*)((char*)place + (size_t)rank * 64) = first_turn - 1;
        }
        spins = round < 2 ? 0 : 1000;
        pthread_t threads[SIZE];
        for (intptr_t rank = 0; rank < SIZE; rank++)
            pthread_create(&threads[rank], NULL, take_part, (void*)rank);
        for (int32_t rank = 0; rank < SIZE; rank++) {
            void* wrong;
            pthread_join(threads[rank], &wrong);
            CHECK((intptr_t)wrong == 0);
        }
    }
}

static void test_a_wait_ends(void) {
    memset(place, 0, puf_barrier_bytes(SIZE));
    CHECK(puf_barrier_wait(place, 0, SIZE, 1, 10, 5) == 0);  // nobody else has come
    CHECK(puf_barrier_wait(place, 1, SIZE, 1, 10, 5) == 0);
    CHECK(puf_barrier_wait(place, 2, SIZE, 1, 10, 5) == 1);
    CHECK(puf_barrier_wait(place, 0, SIZE, 1, 10, 5) == 1);  // asked again
    CHECK(puf_barrier_wait(place, 0, 1, 2, 0, 5) == 1);      // alone
}

int main(void) {
    place = aligned_alloc(64, puf_barrier_bytes(SIZE));
    test_all_see_what_all_wrote();
    test_a_wait_ends();
    free(place);
    return CHECK_DONE();
}
