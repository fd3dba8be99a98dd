// bandit: what each arm pays, when an episode ends, and what counts as solved.
#include "envs/bandit.c"
#include "tests/check.h"
#include "tests/rig.h"

// In the order of the table.
typedef struct {
    double arms, best, gap, noise, pulls;
} Setting;

static const Setting usual = {4, 2, 0.25, 1, 16};

static Rig bandit_rig(int32_t num_envs, const Setting* setting) {
    Rig rig = rig_create(&puf_env_bandit, num_envs, 1, (const double*)setting);
    puf_vec_reset(rig.vec, 3);
    return rig;
}

static void test_defaults_are_those_of_the_table(void) {
    double values[PUF_MAX_PARAMS];
    rig_defaults(&puf_env_bandit, values);
    CHECK(!memcmp(values, &usual, sizeof usual));
}

// Best is arm 1 of 3, a gap of 0.5 and no noise: arm 1 pays 1, arm 2 0.5, arm 0, two places after
// the best in the circle, 0. A pull earns a quarter of it.
static void test_without_noise_each_arm_pays_its_mean(void) {
    Rig rig = bandit_rig(1, &(Setting){3, 1, 0.5, 0, 4});
    const float earned[] = {0, 0.25f, 0.125f};
    for (int32_t arm = 0; arm < 3; arm++) {
        CHECK(rig.obs[0] == 0.25f * (float)arm);
        rig_play(&rig, arm);
        CHECK(rig.rewards[0] == earned[arm] && !rig.terminals[0]);
    }
    rig_play(&rig, 1);
    CHECK(rig.terminals[0] && !rig.truncations[0] && rig.obs[0] == 0);
    CHECK(((float*)(void*)rig.final_obs)[0] == 1);
    CHECK(puf_vec_final_returns(rig.vec)[0] == 0.625f && puf_vec_final_lengths(rig.vec)[0] == 4);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[0] == 2 && stats.metrics[1] == 0.5);
    rig_destroy(&rig);
}

static void test_a_best_arm_beyond_the_last_is_the_last(void) {
    Rig rig = bandit_rig(1, &(Setting){3, 31, 0.5, 0, 1});
    rig_play(&rig, 2);
    CHECK(rig.rewards[0] == 1 && rig.terminals[0]);
    rig_destroy(&rig);
}

// 20,000 pulls of each arm: means have a deviation of 0.5 / 141 = 0.0035, so do the deviations.
static void test_pays_have_the_mean_and_the_noise_of_the_params(void) {
    for (int32_t arm = 0; arm < 4; arm++) {
        Rig rig = bandit_rig(20000, &(Setting){4, 2, 0.25, 0.5, 1});
        double sum = 0, squares = 0;
        rig_play(&rig, arm);
        for (int32_t i = 0; i < rig.num_slots; i++) {
            sum += (double)rig.rewards[i];
            squares += (double)rig.rewards[i] * (double)rig.rewards[i];
        }
        const double mean = sum / rig.num_slots, expected = 1 - 0.25 * ((arm + 2) % 4);
        CHECK(fabs(mean - expected) < 5 * 0.0035);
        CHECK(fabs(sqrt(squares / rig.num_slots - mean * mean) - 0.5) < 5 * 0.0035);
        rig_destroy(&rig);
    }
}

static void test_always_the_best_arm_is_perf_1(void) {
    Rig rig = bandit_rig(2000, &usual);
    for (int32_t i = 0; i < 16; i++) rig_play(&rig, 2);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 2000 && stats.metrics[0] == 16 * 2000 && stats.metrics[1] == 2000);
    // Returns have mean 1 and deviation 1 / 4, their mean one of 1 / 179.
    CHECK(fabs(stats.return_sum / 2000 - 1) < 5.0 / 179);
    rig_destroy(&rig);
}

int main(void) {
    test_defaults_are_those_of_the_table();
    test_without_noise_each_arm_pays_its_mean();
    test_a_best_arm_beyond_the_last_is_the_last();
    test_pays_have_the_mean_and_the_noise_of_the_params();
    test_always_the_best_arm_is_perf_1();
    return CHECK_DONE();
}
