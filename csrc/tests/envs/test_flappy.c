// The rules of flappy, with numbers derived by hand, and what must hold for any params.
#include "envs/flappy.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

// One env with single ticks, its bird at `y` with the speed `fall`.
static Flappy* one_bird(float y, float fall) {
    rig = RIG_START(&puf_env_flappy, 1, 0, {"frameskip", 1}, {"goal", 3}, {"max_steps", 100000},
                    {"spacing", 144});
    Flappy* env = rig_env(&rig, 0);
    env->y = y;
    env->fall = fall;
    return env;
}

static void test_gravity_adds_one_per_tick_up_to_max_fall(void) {
    Flappy* env = one_bird(100, 7);
    static const float falls[] = {8, 9, 10, 10}, heights[] = {108, 117, 127, 137};
    for (int32_t i = 0; i < 4; i++) {
        rig_play(&rig, GLIDE);
        CHECK(env->fall == falls[i] && env->y == heights[i]);
    }
    rig_destroy(&rig);
}

static void test_flap_sets_the_speed_and_the_ceiling_stops_the_bird(void) {
    Flappy* env = one_bird(100, 10);
    rig_play(&rig, FLAP);
    CHECK(env->fall == -9 && env->y == 91);
    env->y = 4;
    rig_play(&rig, FLAP);
    CHECK(env->y == 0 && !rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_flap_happens_in_the_first_tick_of_a_step(void) {
    rig = RIG_START(&puf_env_flappy, 1, 0, {"frameskip", 3});
    Flappy* env = rig_env(&rig, 0);
    env->y = 200;
    rig_play(&rig, FLAP);  // -9, -8, -7
    CHECK(env->y == 176 && env->fall == -7 && env->pipe == WIDTH - 12);
    rig_destroy(&rig);
}

static void test_the_ground_is_deadly(void) {
    Flappy* env = one_bird(370, 4);  // 375 + 24 = 399, then 381 + 24 = 405 >= 404
    rig_play(&rig, GLIDE);
    CHECK(!rig.terminals[0] && rig.rewards[0] == 0);
    rig_play(&rig, GLIDE);
    CHECK(rig.terminals[0] && rig.rewards[0] == -1 && env->score == 0 && env->perf == 0);
    rig_destroy(&rig);
}

// The bird's box spans x 57 to 91. With fall -1 and gravity 1 it stays at its height.
static void test_a_pipe_is_deadly_outside_its_gap_only(void) {
    static const struct {
        float pipe, y;
        bool dies;
    } cases[] = {
        {94, 199, true},   // the pipe arrives at 90 < 91; the gap begins at 200
        {94, 200, false},  // touches the upper edge from inside
        {94, 276, false},  // 276 + 24 = 300: touches the lower edge
        {94, 277, true},   // a pixel lower
        {95, 100, false},  // 91: the bird is just in front
        {10, 199, true},   // 6 + 52 = 58 > 57: still inside
        {9, 199, false},   // 57: just behind
    };
    for (int32_t i = 0; i < 7; i++) {
        Flappy* env = one_bird(cases[i].y, -1);
        env->pipe = cases[i].pipe;
        env->gaps[0] = 200;
        env->gaps[1] = 150;
        rig_play(&rig, GLIDE);
        CHECK(rig.terminals[0] == cases[i].dies);
        CHECK(rig.rewards[0] == (cases[i].dies ? -1 : cases[i].pipe == 9 ? 1 : 0));
        rig_destroy(&rig);
    }
}

static void test_a_passed_pipe_counts_once_and_the_goal_truncates(void) {
    Flappy* env = one_bird(210, -1);
    env->pipe = 9;
    for (int32_t i = 0; i < NUM_PIPES; i++) env->gaps[i] = 200;
    float sum = 0;
    int32_t ticks = 0;
    for (; ticks < 200 && !rig.truncations[0]; ticks++) {
        env->y = 250;  // holds the bird inside the gaps
        env->fall = -1;
        for (int32_t i = 0; i < NUM_PIPES; i++) env->gaps[i] = 200;
        rig_play(&rig, GLIDE);
        sum += rig.rewards[0];
        CHECK(!rig.terminals[0]);
    }
    // Pipes stand 144 / 4 = 36 ticks apart: the first is passed in tick 1, the third in tick 73.
    CHECK(ticks == 73 && sum == 3 && env->score == 3 && env->perf == 1);
    rig_destroy(&rig);
}

static void test_pipes_follow_each_other_at_their_spacing(void) {
    Flappy* env = one_bird(210, -1);
    env->pipe = -50;
    env->behind = 1;
    env->passed = 1;
    const float last = env->gaps[4];
    env->gaps[1] = 200;
    rig_play(&rig, GLIDE);  // -54 is out: pipe 1, at -54 + 144 = 90 < 91, becomes pipe 0
    CHECK(env->pipe == 90 && env->gaps[0] == 200 && env->gaps[3] == last && !env->behind);
    CHECK(!rig.terminals[0]);
    rig_destroy(&rig);
}

static void test_gaps_are_uniform_in_the_middle_of_the_sky(void) {
    rig = rig_create(&puf_env_flappy, 1024, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    double sum = 0;
    for (int32_t i = 0; i < 1024; i++) {
        const Flappy* env = rig_env(&rig, i);
        for (int32_t k = 0; k < NUM_PIPES; k++) {
            CHECK(env->gaps[k] >= 80.8f && env->gaps[k] + 100 <= 323.2f);
            sum += (double)env->gaps[k];
        }
    }
    CHECK(fabs(sum / 5120 - 152) < 3);  // (80.8 + 223.2) / 2; deviation of the mean is 0.57
    rig_destroy(&rig);
}

static void test_observations_are_those_of_the_next_two_pipes(void) {
    Flappy* env = one_bird(210, -1);
    env->pipe = 64;
    env->gaps[0] = 200;
    env->gaps[1] = 150;
    rig_play(&rig, GLIDE);  // pipe at 60, bird at 210 with speed 0
    const float* obs = rig.obs;
    CHECK(near(obs[0], 210 / 202.0f - 1) && obs[1] == 0);
    CHECK(near(obs[2], (60 + 52 - 57) / 800.0f) && near(obs[3], 10 / 404.0f));
    CHECK(near(obs[4], (300 - 234) / 404.0f));
    CHECK(near(obs[5], (204 + 52 - 57) / 800.0f) && near(obs[6], 60 / 404.0f));
    CHECK(near(obs[7], (250 - 234) / 404.0f));
    env->pipe = 9;
    rig_play(&rig, GLIDE);  // passed: pipe 1 is the next one, at 5 + 144
    CHECK(near(obs[2], (149 + 52 - 57) / 800.0f) && near(obs[3], (env->y - 150) / 404));
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_flappy, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

// What the agent is to learn is in reach: a bird that flaps when it sinks out of the gap, or
// to a higher gap, passes most of them.
static void test_a_simple_rule_passes_most_of_100_gaps(void) {
    rig = rig_create(&puf_env_flappy, 16, 1, NULL);
    puf_vec_reset(rig.vec, 3);
    for (int32_t t = 0; t < 6000; t++) {
        for (int32_t i = 0; i < 16; i++) {
            const float* obs = rig.obs + NUM_FEATURES * i;
            float above = obs[3] * GROUND, below = obs[4] * GROUND, fall = obs[1] * 20;
            bool sinks = below < 2 * fall + 3 + 2;        // two ticks of fall lead out of the gap
            bool climbs = obs[6] > obs[3] && above > 47;  // a flap lifts by 9 + 8 + ... = 45
            rig.actions[i] = sinks || climbs ? FLAP : GLIDE;
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples >= 16 && stats.metrics[1] / (double)stats.samples > 0.8);
    rig_destroy(&rig);
}

int main(void) {
    test_gravity_adds_one_per_tick_up_to_max_fall();
    test_flap_sets_the_speed_and_the_ceiling_stops_the_bird();
    test_flap_happens_in_the_first_tick_of_a_step();
    test_the_ground_is_deadly();
    test_a_pipe_is_deadly_outside_its_gap_only();
    test_a_passed_pipe_counts_once_and_the_goal_truncates();
    test_pipes_follow_each_other_at_their_spacing();
    test_gaps_are_uniform_in_the_middle_of_the_sky();
    test_observations_are_those_of_the_next_two_pipes();
    test_max_steps_truncates();
    test_a_simple_rule_passes_most_of_100_gaps();
    return CHECK_DONE();
}
