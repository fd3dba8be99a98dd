// order.c - see order.h.
#include "order.h"

#include "puf_env.h"
#include "puf_hot.h"

enum { CHUNK = 64 };

PufOrder puf_order(uint64_t key, uint32_t count) {
    PufOrder order = {.count = count, .shift = 1};
    uint32_t bits = 0;
    while (order.mask + 1 < count) order.mask = 2 * order.mask + 1, bits++;
    if (bits > 1) order.shift = (bits + 1) / 2;
    for (uint32_t i = 0; i < PUF_ORDER_ROUNDS; i++) {
        const uint64_t word = puf_mix64(key + (i + 1) * 0x9E3779B97F4A7C15u);
        order.factors[i] = (uint32_t)word | 1;  // odd: one-to-one
        order.terms[i] = (uint32_t)(word >> 32);
    }
    return order;
}

static inline __attribute__((always_inline)) uint32_t moved(const PufOrder* order, uint32_t x) {
    for (int32_t i = 0; i < PUF_ORDER_ROUNDS; i++) {
        x = (x * order->factors[i] + order->terms[i]) & order->mask;
        x ^= x >> order->shift;
    }
    return x;
}

PUF_HOT void puf_order_fill(const PufOrder* given, uint32_t first, uint32_t number, int64_t* to) {
    const PufOrder order = *given;  // no store changes it
    uint32_t chunk[CHUNK];
    for (uint32_t done = 0; done < number; done += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) chunk[i] = moved(&order, first + done + i);
        const uint32_t left = number - done < CHUNK ? number - done : CHUNK;
        for (uint32_t i = 0; i < left; i++) {
            while (chunk[i] >= order.count) chunk[i] = moved(&order, chunk[i]);
            to[done + i] = chunk[i];
        }
    }
}
