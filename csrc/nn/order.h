// order.h - a random order of 0 .. count - 1 that is computed place by place.
//
// A place goes through rounds of multiply, add and shift, each of which is one-to-one on the
// numbers of so many bits. A number that is not below `count` goes through them again, until it is.
// So no place depends on the one before, and threads compute their own.
#ifndef PUF_NN_ORDER_H
#define PUF_NN_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PUF_ORDER_ROUNDS = 10 };

typedef struct {
    uint32_t count, mask, shift;
    uint32_t factors[PUF_ORDER_ROUNDS], terms[PUF_ORDER_ROUNDS];
} PufOrder;

PufOrder puf_order(uint64_t key, uint32_t count);

// Writes what is at places [first, first + number).
void puf_order_fill(const PufOrder* order, uint32_t first, uint32_t number, int64_t* to);

#ifdef __cplusplus
}
#endif
#endif
