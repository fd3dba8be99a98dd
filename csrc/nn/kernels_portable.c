// kernels_portable.c - kernels for any CPU: vectors of 4 floats, which x86-64 and ARM64 have
// always.
#include <math.h>

#include "kernels.h"

#define LANES 4
#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define BLOCK 12  // 24 sums, 2 columns and a broadcast of 32 registers
#define FMA(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define KERNELS_NAME "neon"
#else
#define BLOCK 4
#define FMA(a, b, c) ((a) * (b) + (c))
#define KERNELS_NAME "portable"
#endif
#define SQRT(a) ((vec){sqrtf((a)[0]), sqrtf((a)[1]), sqrtf((a)[2]), sqrtf((a)[3])})
#define KERNELS puf_kernels_portable
#include "kernels_source.h"
