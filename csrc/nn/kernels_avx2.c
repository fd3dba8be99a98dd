// kernels_avx2.c - kernels for x86-64 CPUs with AVX2 and FMA: 16 registers of 8 floats.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
#endif
#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LANES 8
#define BLOCK 6  // 12 sums, 2 columns and a broadcast: 15 registers
#define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define MAX(a, b) ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define MIN(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define SQRT(a) ((vec)_mm256_sqrt_ps((__m256)(a)))
#define KERNELS_NAME "avx2"
#define KERNELS puf_kernels_avx2
#include "kernels_source.h"
#else
const PufKernels* puf_kernels_avx2(void) { return NULL; }
#endif
