// turn.h - transposes: to[c * to_stride + r] = from[r * stride + c] for `rows` rows of `cols`
// numbers, which do not overlap.
#ifndef PUF_NN_TURN_H
#define PUF_NN_TURN_H

#include <stddef.h>
#include <stdint.h>

void puf_turn_words(int32_t rows, int32_t cols, const void* from, size_t stride, void* to,
                    size_t to_stride);  // of 4 bytes: floats or integers
void puf_turn_bytes(int32_t rows, int32_t cols, const uint8_t* from, size_t stride, uint8_t* to,
                    size_t to_stride);

#endif
