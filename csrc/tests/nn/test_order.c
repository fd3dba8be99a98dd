// Orders: each number is at one place, parts are those of the whole, and every place is fair.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/order.h"
#include "tests/check.h"

static void every_order_names_each_number_once(void) {
    enum { MOST = 5000 };
    static int64_t places[MOST];
    static uint8_t seen[MOST];
    for (uint32_t count = 1; count < MOST; count += 1 + count / 7)
        for (uint64_t key = 0; key < 5; key++) {
            const PufOrder order = puf_order(key, count);
            puf_order_fill(&order, 0, count, places);
            memset(seen, 0, count);
            for (uint32_t i = 0; i < count; i++) {
                CHECK(places[i] >= 0 && places[i] < count && !seen[places[i]]);
                seen[places[i]] = 1;
            }
        }
}

static void parts_are_those_of_the_whole(void) {
    enum { COUNT = 1000 };
    static int64_t whole[COUNT], part[COUNT];
    const PufOrder order = puf_order(77, COUNT);
    puf_order_fill(&order, 0, COUNT, whole);
    for (uint32_t first = 0; first < COUNT; first += 93)
        for (uint32_t number = 0; first + number <= COUNT; number += 131) {
            puf_order_fill(&order, first, number, part);
            CHECK(!memcmp(part, whole + first, number * sizeof *part));
        }
}

// How far counts are from equal, in deviations of a chi-square distribution.
static double unevenness(const int64_t* counts, size_t cells, int64_t draws) {
    const double expected = (double)draws / (double)cells;
    double sum = 0;
    for (size_t i = 0; i < cells; i++) {
        const double off = (double)counts[i] - expected;
        sum += off * off / expected;
    }
    const double freedom = (double)cells - 1;
    return (sum - freedom) / sqrt(2 * freedom);
}

// Over many keys: which number is at a place, and which pair is at two neighbouring places.
static void places_and_pairs_are_fair(uint32_t count) {
    enum { MOST = 64, KEYS = 100000 };
    static int64_t places[MOST], at[MOST][MOST], pairs[MOST * MOST];
    memset(at, 0, sizeof at);
    memset(pairs, 0, sizeof pairs);
    for (uint64_t key = 0; key < KEYS; key++) {
        const PufOrder order = puf_order(key * 1000003, count);
        puf_order_fill(&order, 0, count, places);
        for (uint32_t i = 0; i < count; i++) at[i][places[i]]++;
        const int64_t a = places[count / 2 - 1], b = places[count / 2];
        pairs[a * (count - 1) + (b > a ? b - 1 : b)]++;
    }
    for (uint32_t i = 0; i < count; i++) CHECK(unevenness(at[i], count, KEYS) < 5);
    CHECK(unevenness(pairs, (size_t)count * (count - 1), KEYS) < 5);
}

// A large order leaves no pattern: means of minibatches spread as those of a fair draw do.
static void minibatches_are_fair(void) {
    enum { COUNT = 32768, SIZE = 512, KEYS = 50 };
    static int64_t places[COUNT];
    const double middle = (COUNT - 1) / 2.0, variance = ((double)COUNT * COUNT - 1) / 12;
    const double of_mean = variance / SIZE * (COUNT - SIZE) / (COUNT - 1);
    double squares = 0, together = 0;
    for (uint64_t key = 1; key <= KEYS; key++) {
        const PufOrder order = puf_order(key, COUNT);
        puf_order_fill(&order, 0, COUNT, places);
        for (uint32_t first = 0; first < COUNT; first += SIZE) {
            double sum = 0;
            for (uint32_t i = first; i < first + SIZE; i++) sum += (double)places[i] - middle;
            squares += sum * sum / ((double)SIZE * SIZE) / of_mean;
        }
        for (uint32_t i = 0; i + 1 < COUNT; i++)
            together += ((double)places[i] - middle) * ((double)places[i + 1] - middle) / variance;
    }
    const double means = KEYS * (COUNT / SIZE), pairs = (double)KEYS * COUNT;
    CHECK(fabs(squares / means - 1) < 5 * sqrt(2 / means));
    CHECK(fabs(together / pairs) < 5 / sqrt(pairs));
}

int main(void) {
    every_order_names_each_number_once();
    parts_are_those_of_the_whole();
    for (uint32_t count = 2; count <= 64; count = count * 3 / 2 + 1)
        places_and_pairs_are_fair(count);
    places_and_pairs_are_fair(64);
    minibatches_are_fair();
    return CHECK_DONE();
}
