// puf_trig.h against libm.
#include <math.h>

#include "puf_env.h"
#include "puf_trig.h"
#include "tests/check.h"

static void test_sine_and_cosine_are_those_of_libm(void) {
    double worst = 0, worst_far = 0;
    PufRng rng = {1};
    for (int32_t i = 0; i < 200000; i++) {
        double angle = 20 * ((double)puf_rand(&rng) - 0.5), sine, cosine;
        puf_sincos(angle, &sine, &cosine);
        worst = fmax(worst, fmax(fabs(sine - sin(angle)), fabs(cosine - cos(angle))));
        angle *= 1e5;
        puf_sincos(angle, &sine, &cosine);
        worst_far = fmax(worst_far, fmax(fabs(sine - sin(angle)), fabs(cosine - cos(angle))));
        CHECK(sine == puf_sin(angle) && cosine == puf_cos(angle));
    }
    CHECK(worst < 1e-15);
    CHECK(worst_far < 1e-15);
}

static void test_quarter_turns_have_the_right_signs(void) {
    static const double sines[] = {0, 1, 0, -1}, cosines[] = {1, 0, -1, 0};
    for (int32_t i = -8; i <= 8; i++) {
        double angle = i * 1.5707963267948966, sine, cosine;
        puf_sincos(angle, &sine, &cosine);
        CHECK(fabs(sine - sines[i & 3]) < 1e-14 && fabs(cosine - cosines[i & 3]) < 1e-14);
    }
}

static void test_a_wrapped_angle_is_within_half_a_turn_and_the_same(void) {
    const double pi = 3.141592653589793;
    for (double angle = -100; angle < 100; angle += 0.013) {
        double wrapped = puf_wrap_angle(angle), turns = (angle - wrapped) / (2 * pi);
        CHECK(fabs(wrapped) <= pi + 1e-12 && fabs(turns - round(turns)) < 1e-12);
    }
    CHECK(puf_wrap_angle(3) == 3 && fabs(puf_wrap_angle(4) - (4 - 2 * pi)) < 1e-15);
}

int main(void) {
    test_sine_and_cosine_are_those_of_libm();
    test_quarter_turns_have_the_right_signs();
    test_a_wrapped_angle_is_within_half_a_turn_and_the_same();
    return CHECK_DONE();
}
