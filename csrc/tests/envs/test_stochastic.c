// stochastic: the reward and its optimum, which is a random policy.
#include "envs/stochastic.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig stochastic_rig(int32_t num_envs, double share, double steps) {
    return RIG_START(&puf_env_stochastic, num_envs, 2, {"odds", share}, {"length", steps});
}

static bool near(float value, double expected) { return fabs((double)value - expected) < 1e-6; }

// Odds 0.75 in 4 steps, env i chooses i ones: shares 0, 1/4, 2/4, 3/4, 1. The largest error is
// 0.75, so rewards are 1 - (share - 0.75)^2 / 0.5625; the best policy that is not random is 0.25
// away, so perf is 1 only for 3 ones and 0 for all others.
static void test_the_reward_falls_with_the_square_of_the_error(void) {
    Rig rig = stochastic_rig(5, 0.75, 4);
    for (int32_t tick = 0; tick < 4; tick++) {
        for (int32_t i = 0; i < 5; i++) {
            CHECK(rig.obs[i] == 1);
            rig.actions[i] = tick < i;
        }
        puf_vec_step(rig.vec, NULL);
        for (int32_t i = 0; i < 5; i++) CHECK(rig.terminals[i] == (tick == 3));
        if (tick < 3)
            for (int32_t i = 0; i < 5; i++) CHECK(rig.rewards[i] == 0);
    }
    const double expected[] = {0, 1 - 0.25 / 0.5625, 1 - 0.0625 / 0.5625, 1, 1 - 0.0625 / 0.5625};
    for (int32_t i = 0; i < 5; i++) CHECK(near(rig.rewards[i], expected[i]));
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 5 && near((float)stats.metrics[0], 2.5));
    CHECK(near((float)stats.metrics[1], 1));
    rig_destroy(&rig);
}

// perf between the odds and the best policy that is not random: odds 0.5, share 0.6, error 0.1 of
// 0.5: 1 - 0.04.
static void test_perf_falls_with_the_square_of_the_error(void) {
    Rig rig = stochastic_rig(1, 0.5, 10);
    for (int32_t tick = 0; tick < 10; tick++) {
        rig.actions[0] = tick < 6;
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(near((float)stats.metrics[1], 0.96) && near((float)stats.metrics[0], 0.6));
    rig_destroy(&rig);
}

// The mean reward of a policy that takes action 1 with probability q, over 8000 episodes.
static double played(double share, int32_t steps, float q, double* perf) {
    Rig rig = stochastic_rig(8000, share, steps);
    PufRng rng = {9};
    for (int32_t tick = 0; tick < steps; tick++) {
        for (int32_t i = 0; i < rig.num_slots; i++) rig.actions[i] = puf_rand(&rng) < q;
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 8000);
    *perf = stats.metrics[1] / 8000;
    rig_destroy(&rig);
    return stats.return_sum / 8000;
}

// Mean rewards as the head of stochastic.c has them: 1 - ((q - p)^2 + q (1 - q) / n) / max^2.
static void test_the_given_odds_are_best_and_beat_deterministic_policies(void) {
    const int32_t n = 20;
    const double p = 0.7, largest = 0.7, best = (p - 0.5 / n) / (1 - 1.0 / n);
    const double tried[] = {0, 0.5, p, best, 0.9, 1};
    double rewards[6], perfs[6];
    for (int32_t i = 0; i < 6; i++) {
        const double q = tried[i];
        const double expected = 1 - ((q - p) * (q - p) + q * (1 - q) / n) / (largest * largest);
        rewards[i] = played(p, n, (float)q, &perfs[i]);
        CHECK(fabs(rewards[i] - expected) < 0.005);
    }
    for (int32_t i = 0; i < 6; i++) CHECK(rewards[i] <= rewards[3] + 0.005);
    CHECK(perfs[0] == 0 && perfs[5] < 1e-5 && perfs[2] > 0.8 && perfs[3] > 0.8);
}

int main(void) {
    test_the_reward_falls_with_the_square_of_the_error();
    test_perf_falls_with_the_square_of_the_error();
    test_the_given_odds_are_best_and_beat_deterministic_policies();
    return CHECK_DONE();
}
