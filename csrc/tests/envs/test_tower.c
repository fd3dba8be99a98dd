// The rules of tower, with numbers derived by hand, and a plan that wins.
#include "envs/tower.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

static int32_t act(int32_t site, int32_t k) { return 1 + 4 * site + k; }

// One env in which no enemy comes for a while.
static Defence* quiet(void) {
    rig = RIG_START(&puf_env_tower, 1, 0, {"start_gold", 1000}, {"frameskip", 1});
    Defence* env = rig_env(&rig, 0);
    env->timer = 30;
    return env;
}

static void put(Defence* env, float place, int32_t kind, float health) {
    const int32_t i = env->num_enemies++;
    env->place[i] = place;
    env->kind[i] = (uint8_t)kind;
    env->health[i] = health;
    env->chilled[i] = 0;
}

static void test_path_is_connected_and_sites_are_beside_it(void) {
    for (int32_t i = 0; i < PATH - 1; i++) {
        const int32_t dx = path_x[i + 1] - path_x[i], dy = path_y[i + 1] - path_y[i];
        CHECK(dx * dx + dy * dy == 1);
    }
    for (int32_t site = 0; site < NUM_SITES; site++) {
        int32_t nearest = 99;
        for (int32_t i = 0; i < PATH; i++) {
            const int32_t dx = path_x[i] - site_x[site], dy = path_y[i] - site_y[site];
            nearest = min_int(nearest, dx * dx + dy * dy);
        }
        CHECK(nearest == 1);
        for (int32_t other = 0; other < site; other++)
            CHECK(site_x[site] != site_x[other] || site_y[site] != site_y[other]);
    }
    CHECK(near(x_at(12.5f), 12) && near(y_at(12.5f), 1.5f) && near(x_at(15.25f), 11.75f));
}

static void test_building_and_upgrades_cost_gold(void) {
    Defence* env = quiet();
    static const int32_t prices[] = {50, 90, 60};
    for (int32_t k = 0; k < 3; k++) {
        const int32_t before = env->gold;
        rig_play(&rig, act(k, k));
        CHECK(env->gold == before - prices[k] && env->towers[k].kind == k + 1);
        CHECK(env->towers[k].level == 1);
        rig_play(&rig, act(k, (k + 1) % 3));  // taken
        CHECK(env->gold == before - prices[k] && env->towers[k].kind == k + 1);
        rig_play(&rig, act(k, UPGRADE));  // costs x 2 / 2, then x 3 / 2
        CHECK(env->gold == before - 2 * prices[k] && env->towers[k].level == 2);
        rig_play(&rig, act(k, UPGRADE));
        CHECK(env->gold == before - 2 * prices[k] - prices[k] * 3 / 2);
        rig_play(&rig, act(k, UPGRADE));
        CHECK(env->towers[k].level == 3 && env->gold == before - 2 * prices[k] - prices[k] * 3 / 2);
    }
    env->gold = 49;
    rig_play(&rig, act(5, 0));
    CHECK(env->gold == 49 && env->towers[5].kind == NO_TOWER);
    rig_play(&rig, act(5, UPGRADE));
    CHECK(env->towers[5].level == 0);
    rig_destroy(&rig);
}

static void test_masks_allow_what_is_possible_and_affordable(void) {
    Defence* env = quiet();
    env->gold = 140;
    rig_play(&rig, act(2, 1));  // 90: 50 are left
    const uint8_t* mask = rig.action_masks;
    CHECK(mask[0] == 1);
    for (int32_t site = 0; site < NUM_SITES; site++) {
        CHECK(mask[act(site, 0)] == (site != 2) && !mask[act(site, 1)] && !mask[act(site, 2)]);
        CHECK(!mask[act(site, UPGRADE)]);  // 90
    }
    env->gold = 90;
    rig_play(&rig, 0);
    CHECK(mask[act(2, UPGRADE)] && mask[act(3, 1)] && !mask[act(2, 1)]);
    rig_destroy(&rig);
}

static void test_waves_come_one_enemy_every_three_ticks(void) {
    rig = RIG_START(&puf_env_tower, 1, 0, {"lives", 1000}, {"frameskip", 1});
    Defence* env = rig_env(&rig, 0);
    int32_t sent[3] = {0};
    bool differ = false;
    // Wave 0 in ticks 30, 33, ... 45, wave 1 (8 enemies) from 75 to 96, wave 2 from 126.
    for (int32_t tick = 1; tick <= 130; tick++) {
        const int32_t before = env->num_enemies, wave = env->wave;
        rig_play(&rig, 0);
        if (env->num_enemies > before) {
            const int32_t i = env->num_enemies - 1;
            const float usual = strength_of(env, wave, env->kind[i]);
            CHECK(env->health[i] >= 0.8f * usual && env->health[i] <= 1.2f * usual);
            differ = differ || env->health[i] != usual;
        }
        const bool due = (tick >= 30 && tick <= 45 && tick % 3 == 0) ||
                         (tick >= 75 && tick <= 96 && tick % 3 == 0) || tick == 126 || tick == 129;
        CHECK(env->num_enemies == before + due);
        sent[wave] += due;
    }
    CHECK(sent[0] == 6 && sent[1] == 8 && sent[2] == 2 && env->wave == 2 && differ);
    CHECK(wave_size(9) == 24 && all_enemies(env) == 150);
    rig_destroy(&rig);
}

static void test_waves_have_themes_and_bosses(void) {
    rig = RIG_START(&puf_env_tower, 64, 0, {"growth", 1.5});
    int32_t themes[NUM_THEMES] = {0};
    for (int32_t i = 0; i < 64; i++) {
        const Defence* env = rig_env(&rig, i);
        CHECK(env->themes[0] == WALKER && env->themes[1] == WALKER);
        for (int32_t wave = 2; wave < 10; wave++) themes[env->themes[wave]]++;
    }
    for (int32_t k = 0; k < NUM_THEMES; k++)
        CHECK(abs(themes[k] - 128) < 50);  // 5 deviations of 10
    Defence* env = rig_env(&rig, 0);
    int32_t drawn[NUM_FOES] = {0};
    env->wave = 3;
    env->themes[3] = FLYER;
    for (int32_t i = 0; i < 3000; i++) drawn[draw_foe(env)]++;
    CHECK(abs(drawn[WALKER] - 1000) < 130 && drawn[WALKER] + drawn[FLYER] == 3000);
    env->spawned = wave_size(3) - 1;
    CHECK(draw_foe(env) != BOSS);  // only every fifth wave has one
    env->wave = 4;
    CHECK(draw_foe(env) != BOSS);  // at its end
    env->spawned = wave_size(4) - 1;
    CHECK(draw_foe(env) == BOSS);
    CHECK(near(strength_of(env, 0, WALKER), 25) && near(strength_of(env, 2, WALKER), 56.25f));
    CHECK(near(strength_of(env, 0, RUNNER), 15) && near(strength_of(env, 1, TANK), 112.5f));
    rig_destroy(&rig);
}

static void test_flyers_take_the_straight_way_and_cannons_miss_them(void) {
    Defence* env = quiet();
    float x, y;
    put(env, 19.5f, FLYER, 100);  // half way from (0, 1) to (13, 7)
    find_place(env, 0, &x, &y);
    CHECK(near(x, 6.5f) && near(y, 4));
    put(env, 19.1f, WALKER, 100);                          // at (8.62, 4) after the tick
    env->towers[7] = (Tower){.kind = CANNON, .level = 1};  // at (7, 5)
    rig_play(&rig, 0);
    CHECK(env->health[0] == 100 && env->health[1] == 80);  // nor does the blast reach into the air
    env->towers[7] = (Tower){.kind = ARROW, .level = 1};
    rig_play(&rig, 0);
    CHECK(env->health[0] == 90 && env->health[1] == 80);
    rig_destroy(&rig);
}

static void test_armour_takes_off_arrows_and_frost(void) {
    // Level 1: an arrow of 10 and frost of 4 do the least, 1. Level 3: 30 - 14.
    static const struct {
        int32_t kind, level;
        float damage;
    } cases[] = {{ARROW, 1, 1}, {FROST, 1, 1}, {ARROW, 3, 16}, {CANNON, 1, 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Defence* env = quiet();
        env->towers[0] = (Tower){.kind = cases[i].kind, .level = cases[i].level};
        put(env, 2.5f, TANK, 100);
        rig_play(&rig, 0);
        CHECK(near(env->health[0], 100 - cases[i].damage));
        rig_destroy(&rig);
    }
}

static void test_enemies_walk_and_cost_lives_where_they_arrive(void) {
    Defence* env = quiet();
    put(env, 5, WALKER, 20);
    put(env, 5, RUNNER, 20);
    put(env, 5, TANK, 20);
    put(env, 5, WALKER, 20);
    env->chilled[3] = 1;
    rig_play(&rig, 0);
    CHECK(near(env->place[0], 5.28f) && near(env->place[1], 5.4f) && near(env->place[2], 5.18f));
    CHECK(near(env->place[3], 5.14f) && env->chilled[3] == 0);
    env->place[0] = env->place[2] = 38.9f;
    rig_play(&rig, 0);
    CHECK(env->num_enemies == 2 && env->lives_left == 6 && near(rig.rewards[0], -2));
    CHECK(env->killed == 0);
    env->kind[0] = TANK;
    env->place[0] = 38.9f;
    env->lives_left = 2;
    rig_play(&rig, 0);
    CHECK(rig.terminals[0] && near(rig.rewards[0], -1) && env->lives_left == 10);
    env->num_enemies = 0;
    put(env, 38.9f, BOSS, 20);
    put(env, 38.9f, FLYER, 20);
    rig_play(&rig, 0);
    CHECK(env->num_enemies == 0 && env->lives_left == 4);
    rig_destroy(&rig);
}

static void test_arrows_hit_the_foremost_in_range(void) {
    Defence* env = quiet();
    env->towers[0] = (Tower){.kind = ARROW, .level = 1};  // at (2, 2): range 2.6
    put(env, 0.72f, WALKER, 100);                         // at (1, 1) after the tick
    put(env, 3.72f, WALKER, 100);                         // at (4, 1): 2.24 away
    put(env, 4.22f, WALKER, 100);                         // at (4.5, 1): 2.69 away
    rig_play(&rig, 0);
    CHECK(env->health[0] == 100 && env->health[1] == 90 && env->health[2] == 100);
    CHECK(env->towers[0].cooldown == 2);
    rig_play(&rig, 0);
    CHECK(env->health[0] == 100 && env->health[1] == 90);
    rig_play(&rig, 0);  // ready again; (4.56, 1) is out of range now
    CHECK(env->health[0] == 90 && env->health[1] == 90);
    env->towers[0].level = 3;  // range 3.2, damage 30
    env->towers[0].cooldown = 0;
    rig_play(&rig, 0);
    CHECK(env->health[1] == 60);
    rig_destroy(&rig);
}

static void test_cannons_hit_all_near_the_target_and_frost_chills(void) {
    Defence* env = quiet();
    env->towers[0] = (Tower){.kind = CANNON, .level = 2};  // 20 x 1.8
    put(env, 2.72f, WALKER, 100);                          // (3, 1): the target
    put(env, 1.42f, WALKER, 100);                          // 1.3 behind
    put(env, 1.22f, WALKER, 100);                          // 1.5 behind
    rig_play(&rig, 0);
    CHECK(near(env->health[0], 64) && near(env->health[1], 64) && env->health[2] == 100);
    CHECK(env->towers[0].cooldown == 5 && env->chilled[0] == 0);
    env->towers[0] = (Tower){.kind = FROST, .level = 1};
    rig_play(&rig, 0);
    CHECK(near(env->health[0], 60) && env->chilled[0] == 5 && env->chilled[1] == 0);
    const float before = env->place[0];
    rig_play(&rig, 0);
    CHECK(near(env->place[0], before + 0.14f));
    rig_destroy(&rig);
}

static void test_kills_earn_gold_and_the_last_one_wins(void) {
    Defence* env = quiet();
    env->towers[0] = (Tower){.kind = CANNON, .level = 1};
    env->wave = 5;
    put(env, 2.72f, WALKER, 10);
    put(env, 2.72f, TANK, 10);
    put(env, 20, WALKER, 12);
    const int32_t before = env->gold;
    rig_play(&rig, 0);
    CHECK(env->gold == before + 5 + 2 + 15 + 2 && env->killed == 2 && env->num_enemies == 1);
    CHECK(near(rig.rewards[0], 0.2f) && near(env->perf, 2 / 150.0f));
    CHECK(env->place[0] > 20 && env->health[0] == 12);
    env->wave = 10;  // all have come
    env->towers[0].cooldown = 0;
    env->place[0] = 2;
    rig_play(&rig, 0);
    CHECK(rig.terminals[0] && near(rig.rewards[0], 2.1f) && env->wave == 0);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.metrics[0] == 3 && stats.metrics[2] == 10);
    rig_destroy(&rig);
}

static void test_observations(void) {
    Defence* env = quiet();
    env->gold = 250;
    env->lives_left = 5;
    env->wave = 2;
    env->timer = 16;
    env->themes[2] = TANK;
    env->themes[3] = FLYER;
    env->towers[3] = (Tower){.kind = FROST, .level = 2};
    put(env, 7.22f, WALKER, 84.5f);  // 7.5 after the tick: part 2
    put(env, 7.22f, TANK, 999);
    put(env, 7.1f, FLYER, 42.25f);
    rig_play(&rig, 0);
    const float *obs = rig.obs, *themes = obs + 5, *site = themes + 8 + 4 * 3;
    const float* part = themes + 8 + 48 + 6;
    CHECK(near(obs[0], 0.5f) && near(obs[1], 0.5f) && near(obs[2], 0.2f) && near(obs[3], 0.5f));
    CHECK(site[0] == 0 && site[1] == 0 && site[2] == 1 && near(site[3], 2 / 3.0f));
    for (int32_t k = 0; k < 8; k++) CHECK(themes[k] == (k == TANK || k == 4 + FLYER));
    // Frost at (10, 2) reaches 2.6 cells: not (7.5, 1), nor (2.5, 2.15) where the flyer is. Four
    // walkers of wave 2 have 4 x 25 x 1.3^2 = 169.
    CHECK(near(part[0], 0.25f) && part[1] == 1 && near(part[2], 0.25f));
    CHECK(part[-3] == 0 && part[-1] == 0 && part[3] == 0 && part[5] == 0);
    env->num_enemies = 1;
    env->place[0] = 7.22f;
    rig_play(&rig, 0);
    CHECK(near(part[0], 0.125f) && near(part[1], 0.5f));
    rig_destroy(&rig);
}

// Central sites first, upgraded as soon as gold allows, with towers of the given kinds in turn.
static double plan(const char* kinds) {
    static const int32_t order[] = {5, 4, 7, 6, 1, 2, 9, 10, 3, 8, 0, 11};
    const int32_t count = (int32_t)strlen(kinds);
    rig = rig_create(&puf_env_tower, 16, 1, NULL);
    puf_vec_reset(rig.vec, 1);
    for (int32_t t = 0; t < 2000; t++) {
        for (int32_t e = 0; e < 16; e++) {
            const Defence* env = rig_env(&rig, e);
            rig.actions[e] = 0;
            for (int32_t i = 0; count && i < NUM_SITES && !rig.actions[e]; i++) {
                const Tower* tower = &env->towers[order[i]];
                const int32_t k = tower->kind == NO_TOWER ? kinds[i % count] - '0' : UPGRADE;
                if (price(env, order[i], k) >= 0) rig.actions[e] = act(order[i], k);
            }  // what it cannot afford yet it saves for
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    rig_destroy(&rig);
    return stats.metrics[1] / (double)stats.samples;
}

static void test_a_mix_of_towers_beats_one_kind_and_idling(void) {
    const double mix = plan("010201"), arrows = plan("0"), cannons = plan("1"), none = plan("");
    if (mix < 0.8) fprintf(stderr, "%.3f, %.3f, %.3f, %.3f\n", mix, arrows, cannons, none);
    CHECK(mix > 0.8 && arrows < 0.8 && cannons < 0.6 && none < 0.05);
}

static void test_a_step_has_several_ticks(void) {
    rig = RIG_START(&puf_env_tower, 1, 0, {"frameskip", 4}, {"start_gold", 1000});
    Defence* env = rig_env(&rig, 0);
    put(env, 5, TANK, 20);
    rig_play(&rig, act(0, 0));
    CHECK(near(env->place[0], 5 + 4 * 0.18f) && env->gold == 950 && env->timer == 26);
    env->lives_left = 1;
    env->place[0] = 38.9f;  // the game is lost in the first of four ticks
    put(env, 2.5f, WALKER, 5);
    env->towers[0].cooldown = 2;  // so this one is not shot in the second
    rig_play(&rig, 0);
    CHECK(rig.terminals[0] && near(rig.rewards[0], -0.5f));
    rig_destroy(&rig);
}

static void test_max_steps_truncates(void) {
    rig = RIG_START(&puf_env_tower, 1, 0, {"max_steps", 3});
    CHECK(rig_truncates_at(&rig, 3));
    rig_destroy(&rig);
}

int main(void) {
    test_path_is_connected_and_sites_are_beside_it();
    test_building_and_upgrades_cost_gold();
    test_masks_allow_what_is_possible_and_affordable();
    test_waves_come_one_enemy_every_three_ticks();
    test_waves_have_themes_and_bosses();
    test_flyers_take_the_straight_way_and_cannons_miss_them();
    test_armour_takes_off_arrows_and_frost();
    test_enemies_walk_and_cost_lives_where_they_arrive();
    test_arrows_hit_the_foremost_in_range();
    test_cannons_hit_all_near_the_target_and_frost_chills();
    test_kills_earn_gold_and_the_last_one_wins();
    test_observations();
    test_a_mix_of_towers_beats_one_kind_and_idling();
    test_a_step_has_several_ticks();
    test_max_steps_truncates();
    return CHECK_DONE();
}
