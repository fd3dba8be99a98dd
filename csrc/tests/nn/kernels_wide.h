// kernels_wide.h - kernels of 16 lanes and blocks of 12 rows, as with AVX-512, from the vectors of
// any CPU, so that every machine tests those sizes.
#include <math.h>

#include "nn/kernels.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed to another file
#endif
#define LANES 16
#define BLOCK 12
#define FMA(a, b, c) ((a) * (b) + (c))
#define SQRT(a)                                                                            \
    ((vec){sqrtf((a)[0]), sqrtf((a)[1]), sqrtf((a)[2]), sqrtf((a)[3]), sqrtf((a)[4]),      \
           sqrtf((a)[5]), sqrtf((a)[6]), sqrtf((a)[7]), sqrtf((a)[8]), sqrtf((a)[9]),      \
           sqrtf((a)[10]), sqrtf((a)[11]), sqrtf((a)[12]), sqrtf((a)[13]), sqrtf((a)[14]), \
           sqrtf((a)[15])})
#define KERNELS_NAME "wide"
#define KERNELS kernels_wide
static const PufKernels* kernels_wide(void);
#include "nn/kernels_source.h"
