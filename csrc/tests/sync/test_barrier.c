// Barriers, with threads in place of processes: only the shared memory matters.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sync/barrier.h"
#include "tests/check.h"

enum { SIZE = 3, ROUNDS = 2000 };

static PufBarrier* barrier;
static int64_t slots[2][SIZE];  // one is read while the other is written
static uint32_t first_round;
static int32_t spins;

static void* run_rank(void* argument) {
    const int32_t rank = (int32_t)(intptr_t)argument;
    intptr_t wrong = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        slots[round % 2][rank] = (int64_t)round * (rank + 1);
        while (!puf_barrier_wait(barrier, rank, SIZE, first_round + round, spins, 1000)) continue;
        int64_t sum = 0;
        for (int32_t other = 0; other < SIZE; other++) sum += slots[round % 2][other];
        wrong += sum != (int64_t)round * (SIZE * (SIZE + 1) / 2);
    }
    return (void*)wrong;
}

static void test_every_rank_sees_the_writes_of_all(void) {
    const uint32_t starts[] = {1, UINT32_MAX - ROUNDS / 2};  // the second wraps
    for (int variant = 0; variant < 4; variant++) {
        memset(barrier, 0, puf_barrier_bytes(SIZE));
        first_round = starts[variant % 2];
        if (variant % 2) {  // as after that many rounds
            for (int32_t rank = 0; rank < SIZE; rank++)
                *(uint32_t*)((char*)barrier + (size_t)rank * 64) = first_round - 1;
        }
        spins = variant < 2 ? 0 : 1000;
        pthread_t threads[SIZE];
        for (intptr_t rank = 0; rank < SIZE; rank++)
            pthread_create(&threads[rank], NULL, run_rank, (void*)rank);
        for (int32_t rank = 0; rank < SIZE; rank++) {
            void* wrong;
            pthread_join(threads[rank], &wrong);
            CHECK((intptr_t)wrong == 0);
        }
    }
}

static void test_a_wait_times_out_until_all_ranks_arrive(void) {
    memset(barrier, 0, puf_barrier_bytes(SIZE));
    CHECK(puf_barrier_wait(barrier, 0, SIZE, 1, 10, 5) == 0);  // no other rank has arrived
    CHECK(puf_barrier_wait(barrier, 1, SIZE, 1, 10, 5) == 0);
    CHECK(puf_barrier_wait(barrier, 2, SIZE, 1, 10, 5) == 1);
    CHECK(puf_barrier_wait(barrier, 0, SIZE, 1, 10, 5) == 1);  // a second call
    CHECK(puf_barrier_wait(barrier, 0, 1, 2, 0, 5) == 1);      // a barrier of one
}

int main(void) {
    barrier = aligned_alloc(64, puf_barrier_bytes(SIZE));
    test_every_rank_sees_the_writes_of_all();
    test_a_wait_times_out_until_all_ranks_arrive();
    free(barrier);
    return CHECK_DONE();
}
