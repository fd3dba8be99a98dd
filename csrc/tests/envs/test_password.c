// password: only the whole string earns, and what is entered shows.
#include "envs/password.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig password_rig(int32_t num_envs, double string_length, double string) {
    return RIG_START(&puf_env_password, num_envs, 1, {"length", string_length},
                     {"password", string});
}

// 13 = 1101 in binary: the string 1, 0, 1, 1. Entered are its first three bits and then `last`.
static float earned_with(int32_t last) {
    Rig rig = password_rig(1, 4, 13);
    const int32_t bits[] = {1, 0, 1, last};
    float earned = 0;
    for (int32_t i = 0; i < 4; i++) {
        rig.actions[0] = bits[i];
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.terminals[0] == (i == 3) && !rig.truncations[0]);
        if (i < 3) CHECK(rig.rewards[0] == 0);
        earned += rig.rewards[0];
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 3 + last && stats.metrics[1] == last);
    rig_destroy(&rig);
    return earned;
}

static void test_only_the_whole_string_earns(void) {
    CHECK(earned_with(1) == 1);
    CHECK(earned_with(0) == 0);
}

// Enters 0, 1, 1: observes -1, +1, +1, and 0 for bits to come, for every password.
static void test_the_observation_shows_the_entered_bits_and_not_the_password(void) {
    for (int32_t string = 0; string < 8; string++) {
        Rig rig = password_rig(1, 3, string);
        const float seen[][3] = {{0, 0, 0}, {-1, 0, 0}, {-1, 1, 0}};
        const int32_t bits[] = {0, 1, 1};
        for (int32_t i = 0; i < 3; i++) {
            CHECK(!memcmp(rig.obs, seen[i], sizeof seen[i]));
            rig.actions[0] = bits[i];
            puf_vec_step(rig.vec, NULL);
        }
        CHECK(!memcmp(rig.final_obs, (float[]){-1, 1, 1}, 12));
        CHECK(!memcmp(rig.obs, seen[0], sizeof seen[0]));
        rig_destroy(&rig);
    }
}

// Every string of 10 bits is tried once: one of the 1024 opens.
static void test_exactly_one_string_is_correct(void) {
    Rig rig = password_rig(1024, 10, 0x2B5);
    for (int32_t bit_index = 0; bit_index < 10; bit_index++) {
        for (int32_t i = 0; i < 1024; i++) rig.actions[i] = i >> bit_index & 1;
        puf_vec_step(rig.vec, NULL);
    }
    for (int32_t i = 0; i < 1024; i++) CHECK(rig.terminals[i] && rig.rewards[i] == (i == 0x2B5));
    rig_destroy(&rig);
}

// The last bit of the longest string is the highest that a param can have.
static void test_the_longest_string_has_31_bits(void) {
    Rig rig = password_rig(1, 31, MAX_PASSWORD);
    for (int32_t i = 0; i < 31; i++) {
        rig.actions[0] = 1;
        puf_vec_step(rig.vec, NULL);
    }
    CHECK(rig.terminals[0] && rig.rewards[0] == 1);
    rig_destroy(&rig);
}

int main(void) {
    test_only_the_whole_string_earns();
    test_the_observation_shows_the_entered_bits_and_not_the_password();
    test_exactly_one_string_is_correct();
    test_the_longest_string_has_31_bits();
    return CHECK_DONE();
}
