// Every env of envs.def with default, extreme and random params and with wild actions: no stray
// access, no undefined behaviour, and rows that keep the contract at every step.
//
// `test_fuzz NAME STEPS` fuzzes one env, or `all`, for at least so many steps of slots.
#include <limits.h>
#include <stdlib.h>

#include "puffer.h"
#include "tests/check.h"
#include "tests/rig.h"

// Work is counted in bytes of env state and rows per step, and shared out evenly, so that the test
// takes about the same few seconds for any number of envs and params.
static const double WORK = 2e9, LONG_WORK = 1e10;
enum { NUM_ENVS = 3, MIN_STEPS = 30, MAX_STEPS = 3000, RANDOM_COMBOS = 6, LAST_SEED = 999 };
static const size_t MAX_ENV_BYTES = (size_t)8 << 20;
// A step costs more than its bytes do; this many of them stand for the rest.
static const double STEP_BYTES = 500;

// What can be wrong with one step; each is reported once a combo.
typedef struct {
    bool flags, masks, rewards, observations, bounds, action_masks, episodes;
} Faults;

static int32_t wild_word(PufRng* rng, int32_t inside) {
    static const uint32_t words[] = {
        0x80000000u, 0x7FFFFFFFu, 0xFFFFFFFFu,  // INT_MIN (and -0), INT_MAX (and a NaN), -1 (NaN)
        0x7FC00000u, 0xFFC00000u, 0x7F800001u,  // NaNs: quiet, negative, signalling
        0x7F800000u, 0xFF800000u, 0x7F7FFFFFu,  // infinities, FLT_MAX
        0x00000001u, 0x3F800000u, 0xBF800000u,  // a denormal, 1, -1
    };
    uint32_t word = words[puf_rand_int(rng, sizeof words / sizeof words[0])];
    int32_t kind = puf_rand_int(rng, 16);
    if (kind == 0) word = puf_rand_u32(rng);
    if (kind >= 1 && kind <= 11) return inside;  // mostly legal, so that games get somewhere
    int32_t action;
    memcpy(&action, &word, sizeof action);
    return action;
}

static void act_wildly(Rig* rig, PufRng* rng) {
    rig_act(rig, rng);
    int32_t words = rig->num_slots * rig->batch->action_words;
    for (int32_t i = 0; i < words; i++) rig->actions[i] = wild_word(rng, rig->actions[i]);
}

static void look_at_observations(const Rig* rig, Faults* faults) {
    const PufObs* space = &rig->batch->layout.obs;
    bool bounded = space->low < space->high;
    if (space->dtype == PUF_F32) {
        size_t count = (size_t)rig->num_slots * rig->batch->obs_bytes / 4;
        for (size_t i = 0; i < count; i++) {
            if (!isfinite(rig->obs[i])) faults->observations = true;
            if (bounded && !(rig->obs[i] >= space->low && rig->obs[i] <= space->high))
                faults->bounds = true;
        }
    } else {
        size_t count = (size_t)rig->num_slots * rig->batch->obs_bytes;
        for (size_t i = 0; i < count; i++)
            if (rig->obs_u8[i] > space->high) faults->bounds = true;
    }
}

static void look_at_action_masks(const Rig* rig, Faults* faults) {
    const PufActions* space = &rig->batch->layout.actions;
    const uint8_t* legal = rig->action_masks;
    for (int32_t slot = 0; slot < rig->num_slots; slot++)
        for (int32_t component = 0; component < space->num_discrete; component++) {
            int32_t count = 0;
            for (int32_t i = 0; i < space->nvec[component]; i++, legal++) {
                if (*legal > 1) faults->action_masks = true;
                count += *legal;
            }
            if (rig->masks[slot] && !count) faults->action_masks = true;  // nothing is legal
        }
}

static void look_at_rows(const Rig* rig, Faults* faults) {
    for (int32_t slot = 0; slot < rig->num_slots; slot++) {
        uint8_t terminal = rig->terminals[slot], truncation = rig->truncations[slot];
        if (terminal > 1 || truncation > 1 || (terminal && truncation)) faults->flags = true;
        if (rig->masks[slot] > 1) faults->masks = true;
        if (!isfinite(rig->rewards[slot])) faults->rewards = true;
        if ((terminal || truncation) && (puf_vec_final_lengths(rig->vec)[slot] < 1 ||
                                         !isfinite(puf_vec_final_returns(rig->vec)[slot])))
            faults->episodes = true;
    }
    look_at_observations(rig, faults);
    if (rig->action_masks) look_at_action_masks(rig, faults);
}

static bool statistics_make_sense(const Rig* rig) {
    PufStats stats;
    puf_vec_drain(rig->vec, &stats);
    bool good = stats.episodes >= 0 && stats.return_min <= stats.return_max;
    if (stats.samples) {
        double perf = stats.metrics[1] / (double)stats.samples;
        good = good && perf >= 0 && perf <= 1.0001;
    }
    for (int32_t i = 0; i < rig->info->num_metrics; i++) good = good && isfinite(stats.metrics[i]);
    return good;
}

static bool renders_into(const Rig* rig, int32_t width, int32_t height) {
    RigRows pixels = rig_rows((size_t)width * (size_t)height * 3);
    PufCanvas canvas = {rig_at(pixels), width, height};
    bool good = puf_vec_render(rig->vec, rig->batch->num_envs - 1, &canvas) == PUF_OK;
    good = good && rig_rows_guarded(pixels);
    rig_rows_free(pixels);
    return good;
}

static bool renders(const Rig* rig, bool thorough) {
    static const int32_t sizes[][2] = {{1, 1}, {2, 3}, {7, 1}, {1, 97}, {333, 17}, {19, 241}};
    bool good = renders_into(rig, rig->batch->layout.width, rig->batch->layout.height);
    for (int32_t i = 0; thorough && i < (int32_t)(sizeof sizes / sizeof sizes[0]); i++)
        good = good && renders_into(rig, sizes[i][0], sizes[i][1]);
    return good;
}

static double wanted_steps;  // of all slots of an env, over its combos; 0: as WORK allows
static double slot_steps;    // made so far

// Whether the combo was small enough to be built.
static bool fuzz(const PufEnvInfo* info, const double* params, uint64_t seed, double work,
                 const char* combo) {
    PufLayout layout = rig_layout(info, params);
    size_t bytes = rig_env_bytes(info, &layout);
    if (bytes > MAX_ENV_BYTES) return false;
    double cost = NUM_ENVS * ((double)bytes + STEP_BYTES * (double)layout.agents);
    double affordable = work / cost;
    int32_t steps = affordable < MIN_STEPS   ? MIN_STEPS
                    : affordable > MAX_STEPS ? MAX_STEPS
                                             : (int32_t)affordable;
    if (wanted_steps > 0) {  // the last run, with the defaults, makes up for combos that are large
        const int32_t combos = 2 + 2 * info->num_params + RANDOM_COMBOS;
        const bool is_last = seed == LAST_SEED;
        const double slots = NUM_ENVS * layout.agents;
        const double share = is_last ? wanted_steps - slot_steps : wanted_steps / combos;
        const double most = is_last ? INT32_MAX / 2 : LONG_WORK / combos / cost;
        steps = MIN_STEPS + (int32_t)fmin(fmax(share, 0) / slots, most);
    }
    int failed_before = check_failed;
    Rig rig = rig_create(info, NUM_ENVS, 1, params);
    if (!rig.vec) fprintf(stderr, "%s\n", puf_last_error());
    CHECK(rig.vec != NULL);
    if (rig.vec) {
        Faults faults = {0};
        PufRng rng = {seed};
        puf_vec_reset(rig.vec, seed);
        look_at_rows(&rig, &faults);
        CHECK(renders(&rig, true));
        for (int32_t i = 0; i < steps; i++) {
            act_wildly(&rig, &rng);
            puf_vec_step(rig.vec, NULL);
            look_at_rows(&rig, &faults);
        }
        slot_steps += (double)steps * rig.num_slots;
        CHECK(renders(&rig, true));
        CHECK(statistics_make_sense(&rig));
        CHECK(!faults.flags);
        CHECK(!faults.masks);
        CHECK(!faults.rewards);
        CHECK(!faults.observations);
        CHECK(!faults.bounds);
        CHECK(!faults.action_masks);
        CHECK(!faults.episodes);
        CHECK(rig_guards_hold(&rig));
    }
    rig_destroy(&rig);
    if (check_failed > failed_before) fprintf(stderr, "  in %s with %s\n", info->name, combo);
    return true;
}

static double random_value(const PufField* field, PufRng* rng) {
    double share = (double)puf_rand(rng), value;
    if (puf_rand_int(rng, 4) == 0) return field->value;
    if (field->low > 0 && field->high > 100 * field->low)  // wide ranges: evenly over magnitudes
        value = field->low * pow(field->high / field->low, share);
    else
        value = field->low + (field->high - field->low) * share * share;
    if (field->type != PUF_PARAM_FLOAT) value = floor(value + 0.5);
    return value < field->low ? field->low : value > field->high ? field->high : value;
}

static void fuzz_env(const PufEnvInfo* info, double work) {
    double params[PUF_MAX_PARAMS];
    char combo[1024];
    slot_steps = 0;
    int32_t skipped = 0, combos = 2 + 2 * info->num_params + RANDOM_COMBOS;
    work /= combos;
    rig_defaults(info, params);
    CHECK(fuzz(info, params, 1, 2 * work, "the defaults"));
    for (int32_t i = 0; i < info->num_params; i++)
        for (int32_t high = 0; high < 2; high++) {
            const PufField* field = &info->params[i];
            rig_defaults(info, params);
            params[i] = high ? field->high : field->low;
            snprintf(combo, sizeof combo, "%s=%g", field->name, params[i]);
            skipped += !fuzz(info, params, (uint64_t)(2 + 2 * i + high), work, combo);
        }
    PufRng rng = {7};
    for (int32_t k = 0; k < RANDOM_COMBOS; k++) {
        size_t at = 0;
        for (int32_t i = 0; i < info->num_params; i++) {
            const PufField* field = &info->params[i];
            params[i] = k == 0 ? field->low : k == 1 ? field->high : random_value(field, &rng);
            if (at < sizeof combo)
                at += (size_t)snprintf(combo + at, sizeof combo - at, "%s=%.9g ", field->name,
                                       params[i]);
        }
        skipped += !fuzz(info, params, (uint64_t)(100 + k), work, combo);
    }
    if (wanted_steps > 0) {
        rig_defaults(info, params);
        CHECK(fuzz(info, params, LAST_SEED, work, "the defaults"));
        printf("%-22s %.0f steps\n", info->name, slot_steps);
        fflush(stdout);
    }
    if (skipped) fprintf(stderr, "%s: %d of %d combos too large\n", info->name, skipped, combos);
}

int main(int argc, char** argv) {
    wanted_steps = argc > 2 ? atof(argv[2]) : 0;
    for (int32_t i = 0; i < puf_num_infos(); i++)
        if (argc < 2 || !strcmp(argv[1], puf_info(i)->name) || !strcmp(argv[1], "all"))
            fuzz_env(puf_info(i), WORK / puf_num_infos());
    return CHECK_DONE();
}
