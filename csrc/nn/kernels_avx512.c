// kernels_avx512.c - kernels for x86-64 CPUs with AVX-512: 32 registers of 16 floats.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#endif
#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>
#define LANES 16
#define BLOCK 12  // 24 sums, 2 columns and a broadcast: 27 registers
#define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define MAX(a, b) ((vec)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define MIN(a, b) ((vec)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define SCALE(a, n) ((vec)_mm512_scalef_ps((__m512)(a), (__m512)(n)))  // a * 2^n
#define SQRT(a) ((vec)_mm512_sqrt_ps((__m512)(a)))
#define KERNELS_NAME "avx512"
#define KERNELS puf_kernels_avx512
#include "kernels_source.h"
#else
const PufKernels* puf_kernels_avx512(void) { return NULL; }
#endif
