// What a vec guarantees for every env of envs.def.
#include <stdlib.h>

#include "puffer.h"
#include "tests/check.h"
#include "tests/rig.h"

static void test_names_are_unique_and_tables_complete(void) {
    CHECK(puf_num_infos() > 0 && !puf_info(-1) && !puf_info(puf_num_infos()));
    CHECK(!puf_find_info("no such env"));
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        CHECK(puf_find_info(info->name) == info);
        CHECK(info->doc && *info->doc && info->group && *info->group);
        CHECK(info->num_params <= PUF_MAX_PARAMS && info->num_metrics <= PUF_MAX_METRICS);
        CHECK(info->num_metrics >= 2 && !strcmp(info->metrics[0].name, "score"));
        CHECK(info->num_metrics >= 2 && !strcmp(info->metrics[1].name, "perf"));
        for (int32_t k = 0; k < info->num_params; k++) {
            const PufField* field = &info->params[k];
            CHECK(field->doc && *field->doc);
            CHECK(field->low <= field->value && field->value <= field->high);
            CHECK(field->offset >= sizeof(PufSlots) && field->offset + 4 <= info->env_bytes);
            if (field->type == PUF_PARAM_NAMES) {
                int32_t choices = 1;
                for (const char* at = field->choices; *at; at++) choices += *at == '|';
                CHECK(field->low == 0 && field->high == choices - 1);
            }
        }
        for (int32_t k = 0; k < info->num_metrics; k++) {
            CHECK(info->metrics[k].doc && *info->metrics[k].doc);
            CHECK(info->metrics[k].offset >= sizeof(PufSlots) &&
                  info->metrics[k].offset + 4 <= info->env_bytes);
        }
    }
}

// Words up to the next comma; moves `text` behind it.
static int32_t num_words(const char** text) {
    int32_t count = 0;
    bool inside = false;
    for (; **text && **text != ','; ++*text) {
        count += !inside && **text != ' ';
        inside = **text != ' ';
    }
    if (**text) ++*text;
    return count;
}

static void test_action_names_fit_the_default_layout(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        const char* names = info->action_names;
        if (!names) continue;
        double values[PUF_MAX_PARAMS];
        rig_defaults(info, values);
        const PufActions actions = rig_layout(info, values).actions;
        for (int32_t k = 0; k < actions.num_discrete; k++)
            CHECK(num_words(&names) == actions.nvec[k]);
        for (int32_t k = 0; k < actions.num_continuous; k++) CHECK(num_words(&names) == 1);
        CHECK(!*names);
    }
}

// Short episodes where the env has a limit to set, so that many ends are seen.
static void short_episodes(const PufEnvInfo* info, double* values) {
    rig_defaults(info, values);
    int32_t limit = rig_param(info, "max_steps");
    if (limit >= 0 && info->params[limit].low <= 23) values[limit] = 23;
}

// More than one block each for three threads, but no more memory than a test should take.
static int32_t some_envs(const PufEnvInfo* info, const double* values) {
    PufLayout layout = rig_layout(info, values);
    size_t fit = ((size_t)1 << 20) / rig_env_bytes(info, &layout);
    return fit < 5 ? 5 : fit > 100 ? 100 : (int32_t)fit;
}

static uint64_t mix_rows(uint64_t hash, const void* at, size_t bytes) {
    const uint8_t* byte = at;
    for (; bytes >= 8; bytes -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, 8);
        hash = puf_mix64(hash + word) * 3;
    }
    for (; bytes; bytes--) hash = puf_mix64(hash + *byte++) * 3;
    return hash;
}

// A number that changes when any bit of any row that the vec writes does. Final rows count where
// they are valid.
static uint64_t hash_rows(const Rig* rig, uint64_t hash) {
    for (int32_t i = 0; i < rig->num_rows; i++)
        if (rig_at(rig->rows[i]) != rig->final_obs &&
            rig_at(rig->rows[i]) != (const uint8_t*)rig->actions)
            hash = mix_rows(hash, rig_at(rig->rows[i]), rig->rows[i].bytes);
    for (int32_t slot = 0; slot < rig->num_slots; slot++) {
        size_t row = rig->batch->obs_bytes;
        if (rig->truncations[slot]) hash = mix_rows(hash, rig->final_obs + (size_t)slot * row, row);
        if (rig->truncations[slot] || rig->terminals[slot]) {
            hash = mix_rows(hash, &puf_vec_final_returns(rig->vec)[slot], 4);
            hash = mix_rows(hash, &puf_vec_final_lengths(rig->vec)[slot], 4);
        }
    }
    return hash;
}

static uint64_t play(Rig* rig, PufRng* rng, int32_t steps) {
    uint64_t hash = 1;
    for (int32_t i = 0; i < steps; i++) {
        rig_act(rig, rng);
        puf_vec_step(rig->vec, NULL);
        hash = hash_rows(rig, hash);
    }
    return hash;
}

enum { STEPS = 40 };

// Whether an env has drawn a random number since the last reset with `seed`.
static bool has_drawn(const Rig* rig, uint64_t seed) {
    for (int32_t i = 0; i < rig->batch->num_envs; i++) {
        PufSlots* slots = rig_env(rig, i);
        if (slots->rng.state != puf_mix64(puf_env_seed(seed, (uint64_t)i) + 1)) return true;
    }
    return false;
}

static void test_rows_and_statistics_do_not_depend_on_the_number_of_threads(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        double values[PUF_MAX_PARAMS];
        short_episodes(info, values);
        uint64_t first_hash = 0, other_seed = 0;
        PufStats first_stats = {0}, stats;
        for (int32_t threads = 1; threads <= 3; threads++) {
            Rig rig = rig_create(info, some_envs(info, values), threads, values);
            for (int32_t round = 0; round < 2; round++) {  // the second one after a used state
                PufRng rng = {42};
                puf_vec_reset(rig.vec, 7);
                uint64_t hash = hash_rows(&rig, 0);
                hash = play(&rig, &rng, STEPS) + hash;
                puf_vec_drain(rig.vec, &stats);
                if (threads == 1 && round == 0) {
                    first_hash = hash;
                    first_stats = stats;
                }
                if (hash != first_hash)
                    fprintf(stderr, "%s: %d threads, round %d\n", info->name, threads, round);
                CHECK(hash == first_hash);
                CHECK(!memcmp(&stats, &first_stats, sizeof stats));
            }
            if (threads == 1) {
                PufRng rng = {42};
                puf_vec_reset(rig.vec, 8);
                other_seed = hash_rows(&rig, 0);
                other_seed = play(&rig, &rng, STEPS) + other_seed;
                CHECK((other_seed != first_hash) == has_drawn(&rig, 8));
            }
            CHECK(rig_guards_hold(&rig));
            rig_destroy(&rig);
        }
    }
}

// Bytes of one env's rows that a step of `rig` must reproduce.
static uint64_t hash_env(const Rig* rig, int32_t env, uint64_t hash) {
    size_t agents = (size_t)rig->batch->agents_per_env, first = (size_t)env * agents;
    size_t row = rig->batch->obs_bytes;
    hash = mix_rows(hash, rig->obs_u8 + first * row, agents * row);
    hash = mix_rows(hash, rig->rewards + first, 4 * agents);
    hash = mix_rows(hash, rig->terminals + first, agents);
    hash = mix_rows(hash, rig->truncations + first, agents);
    return mix_rows(hash, rig->masks + first, agents);
}

static uint64_t hash_half(const Rig* rig, int32_t half, uint64_t hash) {
    int32_t envs = rig->batch->num_envs / 2;
    for (int32_t env = half * envs; env < (half + 1) * envs; env++) hash = hash_env(rig, env, hash);
    return hash;
}

// Actions are drawn in `script`, so that none changes while a half that reads them is under way.
static void play_in_halves(Rig* rig, Rig* script, PufRng* rng, int32_t steps, uint64_t hashes[2]) {
    size_t words = (size_t)rig->num_slots / 2 * (size_t)rig->batch->action_words;
    for (int32_t i = 0; i <= steps; i++) {
        if (i < steps) rig_act(script, rng);
        for (int32_t half = 0; half < 2; half++) {
            size_t first = (size_t)half * words;
            puf_vec_finish(rig->vec, half);  // the other half goes on while this one is read
            if (i > 0) hashes[half] = hash_half(rig, half, hashes[half]);
            if (i == steps) continue;
            memcpy(rig->actions + first, script->actions + first, 4 * words);
            CHECK(puf_vec_begin(rig->vec, half) == PUF_OK);
        }
    }
}

static void test_halves_in_the_background_play_the_same_game(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        double values[PUF_MAX_PARAMS];
        short_episodes(info, values);
        int32_t num_envs = some_envs(info, values) / 2 * 2;
        Rig whole = rig_create(info, num_envs, 1, values);
        PufRng rng = {42};
        uint64_t expected[2] = {1, 1};
        PufStats expected_stats, stats;
        puf_vec_reset(whole.vec, 7);
        for (int32_t k = 0; k < STEPS; k++) {
            rig_act(&whole, &rng);
            puf_vec_step(whole.vec, NULL);
            for (int32_t half = 0; half < 2; half++)
                expected[half] = hash_half(&whole, half, expected[half]);
        }
        uint64_t last_rows = hash_rows(&whole, 1);
        puf_vec_drain(whole.vec, &expected_stats);
        for (int32_t threads = 1; threads <= 3; threads++) {
            Rig rig = rig_create_as(info, num_envs, threads, true, values);
            PufRng same = {42};
            uint64_t hashes[2] = {1, 1};
            puf_vec_reset(rig.vec, 7);
            play_in_halves(&rig, &whole, &same, STEPS, hashes);
            puf_vec_drain(rig.vec, &stats);
            bool equal = hashes[0] == expected[0] && hashes[1] == expected[1];
            if (!equal) fprintf(stderr, "%s: %d threads\n", info->name, threads);
            CHECK(equal);
            CHECK(hash_rows(&rig, 1) == last_rows);
            CHECK(!memcmp(&stats, &expected_stats, sizeof stats));
            CHECK(rig_guards_hold(&rig));
            rig_destroy(&rig);
        }
        rig_destroy(&whole);
    }
}

static void test_a_snapshot_of_all_replays_in_the_same_and_in_another_vec(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        double values[PUF_MAX_PARAMS];
        short_episodes(info, values);
        int32_t num_envs = some_envs(info, values) / 4 + 1;
        Rig rig = rig_create(info, num_envs, 2, values);
        Rig other = rig_create(info, num_envs, 1, values);
        PufRng rng = {1}, unlike = {2};
        puf_vec_reset(rig.vec, 3);
        puf_vec_reset(other.vec, 99);
        play(&rig, &rng, 31);
        play(&other, &unlike, 10);
        size_t bytes = puf_vec_snapshot_bytes(rig.vec);
        RigRows kept = rig_rows(bytes * (size_t)num_envs);
        for (int32_t env = 0; env < num_envs; env++)
            CHECK(puf_vec_snapshot(rig.vec, env, rig_at(kept) + bytes * (size_t)env) == PUF_OK);
        CHECK(rig_rows_guarded(kept));
        PufRng again = rng;
        uint64_t expected = play(&rig, &rng, STEPS);
        Rig* into[2] = {&rig, &other};
        for (int32_t k = 0; k < 2; k++) {
            for (int32_t env = 0; env < num_envs; env++)
                puf_vec_restore(into[k]->vec, env, rig_at(kept) + bytes * (size_t)env);
            PufRng same = again;
            uint64_t replayed = play(into[k], &same, STEPS);
            if (replayed != expected) fprintf(stderr, "%s: replay %d differs\n", info->name, k);
            CHECK(replayed == expected);
        }
        rig_rows_free(kept);
        rig_destroy(&rig);
        rig_destroy(&other);
    }
}

static void test_a_snapshot_of_one_env_moves_to_another_place(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        double values[PUF_MAX_PARAMS];
        short_episodes(info, values);
        Rig from = rig_create(info, 1, 1, values), to = rig_create(info, 3, 1, values);
        PufRng rng = {1};
        puf_vec_reset(from.vec, 3);
        puf_vec_reset(to.vec, 4);
        play(&from, &rng, 11);
        RigRows kept = rig_rows(puf_vec_snapshot_bytes(from.vec));
        puf_vec_snapshot(from.vec, 0, rig_at(kept));
        CHECK(puf_vec_restore(to.vec, 1, rig_at(kept)) == PUF_OK);
        size_t words = (size_t)from.num_slots * (size_t)from.batch->action_words;
        bool same = true;
        for (int32_t step_count = 0; step_count < STEPS; step_count++) {
            rig_act(&from, &rng);
            rig_act(&to, &rng);
            memcpy(to.actions + words, from.actions, 4 * words);
            puf_vec_step(from.vec, NULL);
            puf_vec_step(to.vec, NULL);
            same = same && hash_env(&from, 0, 1) == hash_env(&to, 1, 1);
        }
        if (!same) fprintf(stderr, "%s\n", info->name);
        CHECK(same);
        rig_rows_free(kept);
        rig_destroy(&from);
        rig_destroy(&to);
    }
}

// Held envs are bit for bit what they were; the others do what they do in a step of all.
static void test_held_envs_do_not_move_and_the_others_do_not_notice(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        double values[PUF_MAX_PARAMS];
        short_episodes(info, values);
        enum { ENVS = 5 };
        Rig some = rig_create(info, ENVS, 2, values), all = rig_create(info, ENVS, 1, values);
        PufRng rng = {1};
        uint64_t seeds[ENVS];
        puf_vec_reset(all.vec, 3);
        for (int32_t env = 0; env < ENVS; env++) seeds[env] = puf_env_seed(3, (uint64_t)env);
        puf_vec_reset_each(some.vec, seeds);
        size_t bytes = puf_vec_snapshot_bytes(all.vec);
        RigRows before = rig_rows(bytes * ENVS), after = rig_rows(bytes), other = rig_rows(bytes);
        bool same = true;
        for (int32_t step_count = 0; step_count < STEPS; step_count++) {
            uint8_t held[ENVS];
            for (int32_t env = 0; env < ENVS; env++) {
                uint8_t* kept = rig_at(before) + bytes * (size_t)env;
                puf_vec_snapshot(some.vec, env, kept);
                puf_vec_restore(all.vec, env, kept);
                held[env] = puf_rand_int(&rng, 3) == 0;
            }
            rig_act(&some, &rng);
            memcpy(all.actions, some.actions,
                   4 * (size_t)all.num_slots * (size_t)all.batch->action_words);
            puf_vec_step(all.vec, NULL);
            puf_vec_step_except(some.vec, NULL, held);
            for (int32_t env = 0; env < ENVS; env++) {
                puf_vec_snapshot(some.vec, env, rig_at(after));
                puf_vec_snapshot(all.vec, env, rig_at(other));
                uint8_t* wanted = held[env] ? rig_at(before) + bytes * (size_t)env : rig_at(other);
                same = same && !memcmp(rig_at(after), wanted, bytes);
            }
            for (int32_t slot = 0; slot < all.num_slots; slot++) {
                bool is_held = held[slot / all.batch->agents_per_env];
                float reward = is_held ? 0 : all.rewards[slot];
                same = same && !memcmp(&some.rewards[slot], &reward, sizeof reward) &&
                       some.terminals[slot] == (is_held ? 0 : all.terminals[slot]) &&
                       some.truncations[slot] == (is_held ? 0 : all.truncations[slot]);
            }
        }
        if (!same) fprintf(stderr, "%s\n", info->name);
        CHECK(same);
        CHECK(rig_guards_hold(&some));
        rig_rows_free(before);
        rig_rows_free(after);
        rig_rows_free(other);
        rig_destroy(&some);
        rig_destroy(&all);
    }
}

// With a limit of k steps, an episode that is cut shows as its final observation what the same
// episode shows after k steps when it is not cut.
static void test_truncated_episodes_end_with_the_observation_of_longer_ones(void) {
    const char* const names[] = {"squared", "continuous", "cartpole"};
    for (int32_t n = 0; n < 3; n++) {
        const PufEnvInfo* info = puf_find_info(names[n]);
        CHECK(info != NULL);
        if (!info) continue;
        double values[PUF_MAX_PARAMS];
        rig_defaults(info, values);
        values[rig_param(info, "max_steps")] = 3;
        Rig cut = rig_create(info, 70, 1, values);
        values[rig_param(info, "max_steps")] = 1000;
        Rig whole = rig_create(info, 70, 1, values);
        puf_vec_reset(cut.vec, 3);
        puf_vec_reset(whole.vec, 3);
        size_t words = (size_t)cut.num_slots * (size_t)cut.batch->action_words;
        PufRng rng = {5};
        for (int32_t tick = 1; tick <= 3; tick++) {
            rig_act(&cut, &rng);
            memcpy(whole.actions, cut.actions, 4 * words);
            puf_vec_step(cut.vec, NULL);
            puf_vec_step(whole.vec, NULL);
        }
        int32_t compared = 0;
        for (int32_t slot = 0; slot < 70; slot++) {
            if (!cut.truncations[slot]) continue;
            size_t row = cut.batch->obs_bytes, at = (size_t)slot * row;
            compared++;
            CHECK(!memcmp(cut.final_obs + at, whole.obs_u8 + at, row));
            CHECK(memcmp(cut.final_obs + at, cut.obs_u8 + at, row));
        }
        CHECK(compared > 60);
        rig_destroy(&cut);
        rig_destroy(&whole);
    }
}

static void test_every_param_is_refused_outside_its_range(void) {
    for (int32_t i = 0; i < puf_num_infos(); i++) {
        const PufEnvInfo* info = puf_info(i);
        for (int32_t k = 0; k < info->num_params; k++) {
            const PufField* field = &info->params[k];
            double values[PUF_MAX_PARAMS];
            rig_defaults(info, values);
            values[k] = field->low - 1;
            CHECK(rig_refused(info, 1, 1, values, field->name, "must be in ["));
            values[k] = field->high + 1;
            CHECK(rig_refused(info, 1, 1, values, field->name, "must be in ["));
            values[k] = (double)NAN;
            CHECK(rig_refused(info, 1, 1, values, field->name, "must be in ["));
            if (field->type == PUF_PARAM_FLOAT || field->low == field->high) continue;
            values[k] = field->low + 0.5;
            CHECK(rig_refused(info, 1, 1, values, field->name, "must be a whole number"));
        }
    }
}

int main(void) {
    test_names_are_unique_and_tables_complete();
    test_action_names_fit_the_default_layout();
    test_rows_and_statistics_do_not_depend_on_the_number_of_threads();
    test_halves_in_the_background_play_the_same_game();
    test_a_snapshot_of_all_replays_in_the_same_and_in_another_vec();
    test_a_snapshot_of_one_env_moves_to_another_place();
    test_held_envs_do_not_move_and_the_others_do_not_notice();
    test_truncated_episodes_end_with_the_observation_of_longer_ones();
    test_every_param_is_refused_outside_its_range();
    return CHECK_DONE();
}
