// masked: deals, masks and rewards.
#include "envs/masked.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig masked_rig(int32_t num_envs, double actions, double legal, double steps) {
    return RIG_START(&puf_env_masked, num_envs, 5, {"num_actions", actions}, {"num_legal", legal},
                     {"max_steps", steps});
}

static Masked* env_of(const Rig* rig, int32_t i) { return rig_env(rig, i); }

// Four actions worth 2, 4, 1, 3, of which 0 and 2 are legal: 0 is the best of them, 2 is legal, 1
// and 3 are neither, though worth more.
static void test_the_best_legal_action_earns_and_an_illegal_one_costs(void) {
    const float earned[] = {0.25f, -0.25f, 0, -0.25f};
    for (int32_t action = 0; action < 4; action++) {
        Rig rig = masked_rig(1, 4, 2, 4);
        Masked* env = env_of(&rig, 0);
        memcpy(env->worth, (uint8_t[]){2, 4, 1, 3}, 4);
        env->legal = 0x5;
        observe(env);
        CHECK(!memcmp(rig.obs, (float[]){0.5f, 1, 0.25f, 0.75f}, 16));
        CHECK(!memcmp(rig.action_masks, (uint8_t[]){1, 0, 1, 0}, 4));
        rig.actions[0] = action;
        puf_vec_step(rig.vec, NULL);
        CHECK(rig.rewards[0] == earned[action]);
        CHECK(env->hits == (action == 0) && env->faults == action % 2);
        rig_destroy(&rig);
    }
}

static void test_each_deal_has_every_worth_once_and_num_legal_legal_actions(void) {
    const int32_t shapes[][2] = {{8, 3}, {2, 1}, {5, 64}, {64, 1}, {64, 64}, {7, 6}};
    for (int32_t s = 0; s < 6; s++) {
        const int32_t n = shapes[s][0], wanted = shapes[s][1] < n ? shapes[s][1] : n;
        Rig rig = masked_rig(3, n, shapes[s][1], 10);
        PufRng rng = {7};
        for (int32_t tick = 0; tick < 40; tick++) {
            for (int32_t i = 0; i < 3; i++) {
                uint64_t seen = 0;
                int32_t legal = 0;
                for (int32_t k = 0; k < n; k++) {
                    seen |= (uint64_t)1 << (int32_t)lrintf(rig.obs[n * i + k] * (float)n - 1);
                    legal += rig.action_masks[n * i + k];
                }
                CHECK(seen == (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1));
                CHECK(legal == wanted);
            }
            rig_act(&rig, &rng);
            puf_vec_step(rig.vec, NULL);
        }
        rig_destroy(&rig);
    }
}

// 8000 deals of 8 with 3 legal: each action is legal in 3/8 of them (deviation 0.0054) and the most
// worth in 1/8 (0.0037).
static void test_all_deals_are_equally_likely(void) {
    Rig rig = masked_rig(8000, 8, 3, 16);
    int32_t legal[8] = {0}, highest[8] = {0};
    for (int32_t i = 0; i < 8000; i++)
        for (int32_t k = 0; k < 8; k++) {
            legal[k] += rig.action_masks[8 * i + k];
            highest[k] += rig.obs[8 * i + k] == 1;
        }
    for (int32_t k = 0; k < 8; k++) {
        CHECK(fabs(legal[k] / 8000.0 - 0.375) < 5 * 0.0054);
        CHECK(fabs(highest[k] / 8000.0 - 0.125) < 5 * 0.0037);
    }
    rig_destroy(&rig);
}

// The highest worth that the mask allows is always right; the highest of all is legal, and then
// right, in 3 of 8 deals (deviation 0.0054 over 8000).
static void test_perf_1_needs_the_mask(void) {
    for (int32_t looks = 0; looks < 2; looks++) {
        Rig rig = masked_rig(500, 8, 3, 16);
        for (int32_t tick = 0; tick < 16; tick++) {
            for (int32_t i = 0; i < 500; i++) {
                float most = -1;
                for (int32_t k = 0; k < 8; k++)
                    if (rig.obs[8 * i + k] > most && (!looks || rig.action_masks[8 * i + k])) {
                        most = rig.obs[8 * i + k];
                        rig.actions[i] = k;
                    }
            }
            puf_vec_step(rig.vec, NULL);
        }
        PufStats stats;
        puf_vec_drain(rig.vec, &stats);
        CHECK(stats.episodes == 500 && rig.truncations[0] && !rig.terminals[0]);
        if (looks) CHECK(stats.metrics[0] == 8000 && stats.metrics[1] == 500);
        if (looks) CHECK(stats.metrics[2] == 0 && stats.return_sum == 500);
        if (!looks) CHECK(fabs(stats.metrics[1] / 500 - 0.375) < 5 * 0.0054);
        if (!looks) CHECK(fabs(stats.metrics[2] / 500 - 0.625) < 5 * 0.0054);
        rig_destroy(&rig);
    }
}

int main(void) {
    test_the_best_legal_action_earns_and_an_illegal_one_costs();
    test_each_deal_has_every_worth_once_and_num_legal_legal_actions();
    test_all_deals_are_equally_likely();
    test_perf_1_needs_the_mask();
    return CHECK_DONE();
}
