// multiagent: two rules, two kinds of reward, and nothing of the one reaches the other.
#include "envs/multiagent.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig agents_rig(int32_t num_envs, double steps) {
    return RIG_START(&puf_env_multiagent, num_envs, 8, {"max_steps", steps});
}

static MultiAgent* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

// All 16 cases of lights and answers. Agent 0 answers what it sees for 1 / 4, agent 1 the opposite,
// or loses 1 / 4.
static void test_each_agent_is_judged_by_its_own_light_and_answer(void) {
    Rig rig = agents_rig(1, 4);
    MultiAgent* env = env_of(&rig, 0);
    for (int32_t k = 0; k < 16; k++) {
        const int32_t lights[2] = {k & 1, k >> 1 & 1}, answers[2] = {k >> 2 & 1, k >> 3};
        memcpy(env->lights, lights, sizeof lights);
        observe(env);
        CHECK(rig.obs[0] == (lights[0] ? 0.5f : -0.5f) && rig.obs[1] == (lights[1] ? 1.0f : -1.0f));
        memcpy(rig.actions, answers, sizeof answers);
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.rewards[0] == (answers[0] == lights[0] ? 0.25f : 0.0f));
        CHECK(rig.rewards[1] == (answers[1] != lights[1] ? 0.0f : -0.25f));
    }
    rig_destroy(&rig);
}

// Three steps: both right, one right, none right.
static void test_perf_counts_the_steps_in_which_both_are_right(void) {
    Rig rig = agents_rig(1, 3);
    MultiAgent* env = env_of(&rig, 0);
    for (int32_t i = 0; i < 3; i++) {
        rig.actions[0] = i < 2 ? env->lights[0] : !env->lights[0];
        rig.actions[1] = i < 1 ? !env->lights[1] : env->lights[1];
        puf_vec_step(rig.vec, NULL);
        for (int32_t slot = 0; slot < 2; slot++)
            CHECK(rig.truncations[slot] == (i == 2) && !rig.terminals[slot] && rig.masks[slot]);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 2 && stats.samples == 1);
    CHECK(stats.metrics[0] == 3 && fabs(stats.metrics[1] - 1.0 / 3) < 1e-6);
    const float* returns = puf_vec_final_returns(rig.vec);
    CHECK(fabsf(returns[0] - 2.0f / 3) < 1e-6f && fabsf(returns[1] + 2.0f / 3) < 1e-6f);
    rig_destroy(&rig);
}

// Over 4000 envs each pair of lights comes up a quarter of the time (deviation 0.007).
static void test_lights_are_uniform_and_independent(void) {
    Rig rig = agents_rig(4000, 16);
    for (int32_t i = 0; i < 3; i++) {
        int32_t counts[4] = {0};
        for (int32_t env = 0; env < 4000; env++)
            counts[(rig.obs[2 * env] > 0) + 2 * (rig.obs[2 * env + 1] > 0)]++;
        for (int32_t k = 0; k < 4; k++) CHECK(fabs(counts[k] / 4000.0 - 0.25) < 5 * 0.007);
        puf_vec_step(rig.vec, NULL);
    }
    rig_destroy(&rig);
}

static void test_the_right_answers_follow_from_the_observation_alone(void) {
    Rig rig = agents_rig(50, 16);
    for (int32_t tick = 0; tick < 32; tick++) {
        for (int32_t slot = 0; slot < 100; slot++) {
            const bool second = fabsf(rig.obs[slot]) == 1, on = rig.obs[slot] > 0;
            rig.actions[slot] = second ? !on : on;
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 200 && stats.samples == 100);
    CHECK(stats.metrics[0] == 100 * 32 && stats.metrics[1] == 100);
    CHECK(stats.return_min == 0 && stats.return_max == 1 && stats.return_sum == 100);
    rig_destroy(&rig);
}

int main(void) {
    test_each_agent_is_judged_by_its_own_light_and_answer();
    test_perf_counts_the_steps_in_which_both_are_right();
    test_lights_are_uniform_and_independent();
    test_the_right_answers_follow_from_the_observation_alone();
    return CHECK_DONE();
}
