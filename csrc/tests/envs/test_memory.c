// memory: what is shown, when it is asked for, what an answer earns.
#include "envs/memory.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig memory_rig(int32_t num_envs, double string_length, double wait) {
    return RIG_START(&puf_env_memory, num_envs, 11, {"length", string_length}, {"delay", wait});
}

static Memory* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

// Bits 1, 0, 0 with a delay of 2: +1 -1 -1 | 0 0 | the cursor 1/6 2/6 3/6, then a new string.
static void test_bits_are_shown_in_order_and_never_again(void) {
    Rig rig = memory_rig(1, 3, 2);
    Memory* env = env_of(&rig, 0);
    env->bits = 1;  // least bit first
    observe(env);
    const float seen[] = {1, -1, -1, 0, 0, 0.5f / 3, 1.0f / 3, 0.5f};
    for (int32_t tick = 0; tick < 8; tick++) {
        CHECK(rig.obs[0] == seen[tick] && env->slots.tick == tick);
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.terminals[0] == (tick == 7) && !rig.truncations[0]);
    }
    CHECK(env->slots.tick == 0 && (rig.obs[0] == 1 || rig.obs[0] == -1));
    rig_destroy(&rig);
}

// Two strings that differ give the same rows from the end of the show on, whatever is answered.
static void test_observations_after_the_string_do_not_depend_on_it(void) {
    Rig rig = memory_rig(2, 5, 3);
    env_of(&rig, 0)->bits = 0;
    env_of(&rig, 1)->bits = ~(uint64_t)0;
    PufRng rng = {1};
    for (int32_t tick = 1; tick < 2 * 5 + 3; tick++) {
        rig_act(&rig, &rng);
        puf_vec_step(rig.vec, NULL);
        if (tick >= 5) CHECK(rig.obs[0] == rig.obs[1]);
        if (tick >= 5 && tick < 8) CHECK(rig.obs[0] == 0);
    }
    puf_vec_step(rig.vec, NULL);
    CHECK(rig.terminals[0] && rig.terminals[1]);
    CHECK(!memcmp(rig.final_obs, (float[]){0, 0}, 8));
    rig_destroy(&rig);
}

// Bits 1, 0, 1, 1 and answers 1, 1, 1, 0: right, wrong, right, wrong. Each right bit earns 1/4.
static void test_each_right_answer_earns_its_share(void) {
    Rig rig = memory_rig(1, 4, 1);
    env_of(&rig, 0)->bits = 0xD;
    const int32_t answers[] = {1, 1, 1, 0};
    for (int32_t tick = 1; tick <= 9; tick++) {
        bool asked = tick > 5;
        rig.actions[0] = asked ? answers[tick - 6] : 1;
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.rewards[0] == (asked && tick % 2 == 0 ? 0.25f : 0.0f));
    }
    CHECK(rig.terminals[0] && puf_vec_final_returns(rig.vec)[0] == 0.5f);
    CHECK(puf_vec_final_lengths(rig.vec)[0] == 9);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 1 && stats.metrics[0] == 2 && stats.metrics[1] == 0);
    rig_destroy(&rig);
}

// A player that remembers what it saw repeats every string, for any length and delay.
static void test_a_player_that_remembers_the_bits_scores_1(void) {
    const int32_t shapes[][2] = {{1, 0},  {1, 7},  {2, 0},  {4, 4},
                                 {31, 2}, {32, 0}, {33, 1}, {64, 5}};
    for (int32_t s = 0; s < 8; s++) {
        const int32_t string_length = shapes[s][0], wait = shapes[s][1];
        const int32_t steps = 2 * string_length + wait;
        Rig rig = memory_rig(9, string_length, wait);
        uint64_t seen[9] = {0};
        for (int32_t episode = 0; episode < 3; episode++) {
            memset(seen, 0, sizeof seen);
            for (int32_t tick = 0; tick < steps; tick++) {
                int32_t asked = tick - string_length - wait;
                for (int32_t i = 0; i < 9; i++) {
                    if (rig.obs[i] == 1) seen[i] |= (uint64_t)1 << tick;
                    rig.actions[i] = asked < 0 ? 0 : (int32_t)bit(seen[i], asked);
                }
                puf_vec_step(rig.vec, NULL);
            }
            for (int32_t i = 0; i < 9; i++) {
                CHECK(rig.terminals[i]);
                CHECK(fabsf(puf_vec_final_returns(rig.vec)[i] - 1) < 1e-5f);
            }
        }
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.episodes == 27 && stats.metrics[1] == 27);
        CHECK(stats.metrics[0] == 27 * string_length);
        CHECK(stats.length_sum == 27 * steps);
        rig_destroy(&rig);
    }
}

// Without memory the best is a constant answer: half the bits, 1 in 2^4 strings. Over 4000 strings
// of 4 bits the standard deviations are 0.004 of the share of bits and 0.004 of that of strings.
static void test_a_player_that_guesses_gets_half_of_the_bits(void) {
    Rig rig = memory_rig(1000, 4, 4);
    for (int32_t step_count = 0; step_count < 4 * 12; step_count++) {
        rig_play(&rig, 1);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.episodes == 4000);
    CHECK(fabs(stats.return_sum / 4000 - 0.5) < 5 * 0.004);
    CHECK(fabs(stats.metrics[1] / 4000 - 1.0 / 16) < 5 * 0.004);
    rig_destroy(&rig);
}

int main(void) {
    test_bits_are_shown_in_order_and_never_again();
    test_observations_after_the_string_do_not_depend_on_it();
    test_each_right_answer_earns_its_share();
    test_a_player_that_remembers_the_bits_scores_1();
    test_a_player_that_guesses_gets_half_of_the_bits();
    return CHECK_DONE();
}
