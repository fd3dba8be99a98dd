// puf_bits.h - sets of up to 64 cells as the bits of a word.
#ifndef PUF_BITS_H
#define PUF_BITS_H

#include "puf_env.h"

// Bit number `index`, counted from 0, of those that are set; there are more than that.
static inline uint64_t puf_nth_bit(uint64_t bits, int32_t index) {
    while (index--) bits &= bits - 1;
    return bits & -bits;
}

// One of the set bits, each equally likely; 0 if there is none.
static inline uint64_t puf_pick_bit(PufRng* rng, uint64_t bits) {
    return bits ? puf_nth_bit(bits, puf_rand_int(rng, __builtin_popcountll(bits))) : 0;
}

// One byte for each of `count` bits, a multiple of 8: 0 or 1.
static inline void puf_bits_to_bytes(uint8_t* out, uint64_t bits, int32_t count) {
    for (int32_t i = 0; i < count; i += 8, bits >>= 8) {
        // Byte k keeps bit k; adding 127 carries it into the byte's highest bit.
        const uint64_t kept = (bits & 255) * 0x0101010101010101u & 0x8040201008040201u;
        const uint64_t carried = (kept & 0x7F7F7F7F7F7F7F7Fu) + 0x7F7F7F7F7F7F7F7Fu;
        const uint64_t bytes = (carried | kept) >> 7 & 0x0101010101010101u;
        memcpy(out + i, &bytes, sizeof bytes);
    }
}

#endif
