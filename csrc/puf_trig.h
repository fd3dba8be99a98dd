// puf_trig.h - sine and cosine without libm: faster, and the same bits on every platform.
#ifndef PUF_TRIG_H
#define PUF_TRIG_H

#include <stdint.h>

// Both at once, within 1e-15, for |angle| <= 1e6 and not NaN. The angle is reduced to the nearest
// multiple of pi/2, where the Taylor terms that are kept leave an error below 1e-16.
static inline void puf_sincos(double angle, double* sine, double* cosine) {
    const double to_nearest = 6755399441055744.0;  // 1.5 x 2^52: adding it rounds to an integer
    const double turns = (angle * 0.63661977236758134 + to_nearest) - to_nearest;
    // pi/2 as 33 bits, which times `turns` is exact, and the rest.
    const double r = (angle - turns * 1.5707963267341256) - turns * 6.0771005065061922e-11;
    const double q = r * r;
    const double s =
        r * (1 + q * (-1.0 / 6 +
                      q * (1.0 / 120 +
                           q * (-1.0 / 5040 +
                                q * (1.0 / 362880 + q * (-1.0 / 39916800 +
                                                         q * (1.0 / 6227020800.0 +
                                                              q * (-1.0 / 1307674368000.0))))))));
    const double c =
        1 + q * (-1.0 / 2 +
                 q * (1.0 / 24 + q * (-1.0 / 720 +
                                      q * (1.0 / 40320 + q * (-1.0 / 3628800 +
                                                              q * (1.0 / 479001600.0 +
                                                                   q * (-1.0 / 87178291200.0 +
                                                                        q / 20922789888000.0)))))));
    const int32_t quadrant = (int32_t)turns;
    const double major = quadrant & 1 ? c : s, minor = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -major : major;
    *cosine = (quadrant + 1) & 2 ? -minor : minor;
}

static inline double puf_sin(double angle) {
    double sine, cosine;
    puf_sincos(angle, &sine, &cosine);
    return sine;
}

static inline double puf_cos(double angle) {
    double sine, cosine;
    puf_sincos(angle, &sine, &cosine);
    return cosine;
}

// The same angle in -pi..pi, up to rounding; |angle| <= 1e6.
static inline double puf_wrap_angle(double angle) {
    const double to_nearest = 6755399441055744.0;
    return angle - ((angle * 0.15915494309189535 + to_nearest) - to_nearest) * 6.283185307179586;
}

#endif
