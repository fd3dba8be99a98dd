// kernels_math.h - vectors and elementary functions; included by kernels_source.h only.
//
// Polynomials of Cephes (Moshier 1989) and a rational tanh (Eigen), each to a few units in the last
// place, without branches. Nan stays nan.

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4)));
typedef float loose_vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t loose_ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define SET(number) ((float)(number) - (vec){0})
#define UNROLL _Pragma("GCC unroll 16")

INLINE vec load(const float* from) { return *(const loose_vec*)from; }
INLINE void store(float* to, vec x) { *(loose_vec*)to = x; }
INLINE ivec load_int(const int32_t* from) { return *(const loose_ivec*)from; }
INLINE void store_int(int32_t* to, ivec x) { *(loose_ivec*)to = x; }
// a where the mask is -1, b where it is 0.
INLINE vec pick(ivec mask, vec a, vec b) { return (vec)((mask & (ivec)a) | (~mask & (ivec)b)); }
INLINE vec zero_unless(ivec mask, vec a) { return (vec)(mask & (ivec)a); }
// b where one of them is nan; so does x86.
#ifndef MAX
#define MAX(a, b) pick((a) > (b), a, b)
#define MIN(a, b) pick((a) < (b), a, b)
#endif
INLINE vec max_of(vec a, vec b) { return MAX(a, b); }
INLINE vec min_of(vec a, vec b) { return MIN(a, b); }
INLINE vec abs_of(vec a) { return (vec)((ivec)a & 0x7FFFFFFF); }

// x in its first lanes, 0 in the others.
INLINE vec first_lanes(int32_t count, vec x) {
    for (int32_t i = count; i < LANES; i++) x[i] = 0.0f;
    return x;
}

INLINE double sum_lanes(vec x) {
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += (double)x[i];
    return sum;
}

// Elements of a and b by their indices, those of b counted on from LANES.
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif
// Every second element of a, then of b, and the others; four by four, which takes one instruction.
#if LANES == 16
#define EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#define EVEN_FOURS 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD_FOURS 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#elif LANES == 8
#define EVEN 0, 2, 8, 10, 4, 6, 12, 14
#define ODD 1, 3, 9, 11, 5, 7, 13, 15
#define EVEN_FOURS 0, 1, 2, 3, 8, 9, 10, 11
#define ODD_FOURS 4, 5, 6, 7, 12, 13, 14, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif

// Sums of neighbours in each four: those of a, then those of b.
INLINE vec sum_pairs(vec a, vec b) { return SHUFFLE(a, b, EVEN) + SHUFFLE(a, b, ODD); }

// In each four: its sums in x[0], x[1], x[2], x[3].
INLINE vec sum_fours(const vec* x) {
    return sum_pairs(sum_pairs(x[0], x[1]), sum_pairs(x[2], x[3]));
}

enum { GROUP = LANES < 8 ? LANES : 8 };

#if LANES >= 8
// Sums of neighbouring fours: those of a, then those of b.
INLINE vec add_fours(vec a, vec b) { return SHUFFLE(a, b, EVEN_FOURS) + SHUFFLE(a, b, ODD_FOURS); }
#endif

// Element i of the result is the sum of the elements of x[i], of GROUP vectors. Written out, since
// compilers keep the vectors of a loop in memory.
INLINE vec sum_each(const vec* x) {
#if LANES < 8
    return sum_fours(x);
#else
    const vec sums = add_fours(sum_fours(x), sum_fours(x + 4));
    return LANES == 8 ? sums : add_fours(sums, sums);
#endif
}

INLINE vec exp_of(vec x) {
#ifdef SCALE
    vec y = min_of(SET(89.0f), max_of(SET(-105.0f), x));  // nan stays nan
#else
    vec y = min_of(max_of(x, SET(-87.3f)), SET(88.72283f));
#endif
    vec n = FMA(y, SET(1.44269504f), SET(12582912.0f)) - 12582912.0f;  // rounded
    vec r = FMA(n, SET(-0.693359375f), y);
    r = FMA(n, SET(2.12194440e-4f), r);
    vec p = SET(1.9875691500e-4f);
    p = FMA(p, r, SET(1.3981999507e-3f));
    p = FMA(p, r, SET(8.3334519073e-3f));
    p = FMA(p, r, SET(4.1665795894e-2f));
    p = FMA(p, r, SET(1.6666665459e-1f));
    p = FMA(p, r, SET(5.0000001201e-1f));
    p = FMA(p, r * r, r) + 1.0f;
#ifdef SCALE
    return SCALE(p, n);
#else
    // 2^n in two factors: n may be 128
    ivec whole = __builtin_convertvector(n, ivec), half = whole >> 1;
    p = p * (vec)((half + 127) << 23) * (vec)((whole - half + 127) << 23);
    p = pick(x > 88.72283f, SET(__builtin_inff()), zero_unless(~(x < -103.0f), p));
    return pick(x == x, p, x);
#endif
}

// Of numbers above 0.
INLINE vec log_of(vec x) {
    ivec bits = (ivec)x;
    vec m = (vec)((bits & 0x007FFFFF) | 0x3F000000);  // in [0.5, 1)
    vec e = __builtin_convertvector((bits >> 23) - 126, vec);
    ivec small = m < 0.707106781186547524f;
    e = e - zero_unless(small, SET(1.0f));
    m = m + zero_unless(small, m) - 1.0f;
    vec z = m * m;
    vec p = SET(7.0376836292e-2f);
    p = FMA(p, m, SET(-1.1514610310e-1f));
    p = FMA(p, m, SET(1.1676998740e-1f));
    p = FMA(p, m, SET(-1.2420140846e-1f));
    p = FMA(p, m, SET(1.4249322787e-1f));
    p = FMA(p, m, SET(-1.6668057665e-1f));
    p = FMA(p, m, SET(2.0000714765e-1f));
    p = FMA(p, m, SET(-2.4999993993e-1f));
    p = FMA(p, m, SET(3.3333331174e-1f));
    p = p * m * z;
    p = FMA(e, SET(-2.12194440e-4f), p);
    p = FMA(z, SET(-0.5f), p);
    p = FMA(e, SET(0.693359375f), m + p);
    p = pick(x == __builtin_inff(), x, p);
    return pick(x == x, p, x);
}

INLINE vec tanh_of(vec x) {
    const vec limit = SET(7.90531110763549805f);
    vec y = min_of(limit, max_of(-limit, x));  // nan stays nan
    vec z = y * y;
    vec p = SET(-2.76076847742355e-16f);
    p = FMA(p, z, SET(2.00018790482477e-13f));
    p = FMA(p, z, SET(-8.60467152213735e-11f));
    p = FMA(p, z, SET(5.12229709037114e-08f));
    p = FMA(p, z, SET(1.48572235717979e-05f));
    p = FMA(p, z, SET(6.37261928875436e-04f));
    p = FMA(p, z, SET(4.89352455891786e-03f));
    vec q = SET(1.19825839466702e-06f);
    q = FMA(q, z, SET(1.18534705686654e-04f));
    q = FMA(q, z, SET(2.26843463243900e-03f));
    q = FMA(q, z, SET(4.89352518554385e-03f));
    return y * p / q;
}

INLINE vec sigmoid_of(vec x) { return 1.0f / (1.0f + exp_of(-x)); }

// log(1 + exp(x))
INLINE vec softplus_of(vec x) { return max_of(x, SET(0.0f)) + log_of(1.0f + exp_of(-abs_of(x))); }

// cos(2 pi u) for u in [0, 1].
INLINE vec cos_turns(vec u) {
    vec n = FMA(u, SET(4.0f), SET(12582912.0f)) - 12582912.0f;  // the nearest quarter
    vec x = FMA(n, SET(-0.25f), u) * 6.28318530717958648f;
    vec z = x * x;
    vec s = FMA(z, SET(-1.9515295891e-4f), SET(8.3321608736e-3f));
    s = FMA(FMA(s, z, SET(-1.6666654611e-1f)), z * x, x);
    vec c = FMA(z, SET(2.443315711809948e-5f), SET(-1.388731625493765e-3f));
    c = FMA(FMA(c, z, SET(4.166664568298827e-2f)), z * z, FMA(z, SET(-0.5f), SET(1.0f)));
    ivec quarter = __builtin_convertvector(n, ivec) & 3;
    vec y = pick((quarter & 1) == 1, s, c);
    ivec negative = (quarter == 1) | (quarter == 2);  // -sin, -cos
    return pick(negative, -y, y);
}
