// Forged snapshots, for every env of envs.def: flipped bits, extreme words, noise, and mixtures of
// true states. Each is refused and changes nothing, or plays on without a stray access, without
// undefined behaviour, and without ever reaching a state that would be refused.
//
// The env under test lies between others whose memory and rows may not be touched while it steps.
#include <stdlib.h>

#include "puffer.h"
#include "tests/check.h"
#include "tests/rig.h"

// Shared out evenly over envs and params, as in test_fuzz.c, so that any number takes a few
// seconds.
static const double WORK = 1e9;
static const double STEP_BYTES = 500;
static const size_t MAX_ENV_BYTES = (size_t)1 << 20;
static const size_t REACH = (size_t)1 << 17;  // of a 16-bit index into words, either way
enum {
    STEPS = 1000,
    MIN_FORGERIES = 12,
    MAX_FORGERIES = 3000,
    RANDOM_COMBOS = 5,
    MAX_NEIGHBOURS = 64
};

typedef struct {
    Rig rig;
    int32_t env;  // under test
    size_t bytes;
    uint8_t *before, *forged, *other, *after;
    PufRng rng;
    int32_t accepted, refused;
} Forge;

static void guard_neighbours(const Forge* forge, bool forbid) {
    const PufBatch* batch = forge->rig.batch;
    const size_t own = (size_t)forge->env, all = (size_t)batch->num_envs;
    uint8_t* rows[] = {batch->envs,
                       forge->rig.obs_u8,
                       forge->rig.final_obs,
                       forge->rig.masks,
                       forge->rig.terminals,
                       forge->rig.truncations,
                       (uint8_t*)(void*)forge->rig.rewards,
                       forge->rig.action_masks};
    const size_t agents = (size_t)batch->agents_per_env;
    const size_t strides[] = {batch->env_bytes,
                              agents * batch->obs_bytes,
                              agents * batch->obs_bytes,
                              agents,
                              agents,
                              agents,
                              agents * sizeof(float),
                              agents * (size_t)batch->mask_width};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i]) continue;
        uint8_t* behind = rows[i] + (own + 1) * strides[i];
        const size_t left = (all - own - 1) * strides[i];
        if (forbid) {
            RIG_FORBID(rows[i], own * strides[i]);
            RIG_FORBID(behind, left);
        } else {
            RIG_ALLOW(rows[i], own * strides[i]);
            RIG_ALLOW(behind, left);
        }
    }
}

// One tick of the env under test alone, as the core would do it.
static void step_alone(Forge* forge) {
    const Rig* rig = &forge->rig;
    const size_t agents = (size_t)rig->batch->agents_per_env, first = (size_t)forge->env * agents;
    const int32_t words = rig->batch->action_words;
    for (size_t i = first * (size_t)words; i < (first + agents) * (size_t)words; i++)
        if (puf_rand_int(&forge->rng, 4) == 0)
            rig->actions[i] = puf_rand_int(&forge->rng, 2) ? puf_rand_int(&forge->rng, 12)
                                                           : (int32_t)puf_rand_u32(&forge->rng);
    memset(rig->rewards + first, 0, agents * sizeof(float));
    memset(rig->terminals + first, 0, agents);
    memset(rig->truncations + first, 0, agents);
    rig->info->step_range((PufBatch*)rig->batch, forge->env, forge->env + 1);
}

static bool is_accepted(Forge* forge, const uint8_t* snapshot) {
    return puf_vec_restore(forge->rig.vec, forge->env, snapshot) == PUF_OK;
}

static uint32_t odd_word(PufRng* rng, uint32_t word) {
    static const uint32_t words[] = {
        0,           1,           2,           3,           0x80000000u, 0x7FFFFFFFu, 0xFFFFFFFFu,
        0x7FFFFFFEu, 0x7FC00000u, 0x7F800000u, 0xFF800000u, 0x7F7FFFFFu, 0x00000001u, 0x3F800000u,
        0xBF800000u, 0x0000FFFFu, 0xFFFF0000u, 0x3FFFFFFFu, 0x40000000u, 0x01010101u, 0x00FF00FFu,
    };
    switch (puf_rand_int(rng, 4)) {
        case 0:
            return word + (uint32_t)puf_rand_int(rng, 9) - 4;
        case 1:
            return puf_rand_u32(rng);
        default:
            return words[puf_rand_int(rng, sizeof words / sizeof words[0])];
    }
}

// Params are left as they are: with others the core need not ask any further.
static void keep_params(Forge* forge) {
    const PufEnvInfo* info = forge->rig.info;
    for (int32_t i = 0; i < info->num_params; i++) {
        size_t at = info->params[i].offset - offsetof(PufSlots, rng);
        memcpy(forge->forged + at, forge->before + at, 4);
    }
}

enum { TICK = offsetof(PufSlots, tick) - offsetof(PufSlots, rng) };  // in a snapshot

static void forge_state(Forge* forge) {
    PufRng* rng = &forge->rng;
    uint8_t* forged = forge->forged;
    const size_t state = forge->rig.batch->env_bytes - offsetof(PufSlots, rng);
    const size_t range = puf_rand_int(rng, 4) ? state : forge->bytes;
    const int32_t kind = puf_rand_int(rng, 8), times = 1 + puf_rand_int(rng, 3);
    memcpy(forged, forge->before, forge->bytes);
    for (int32_t i = 0; i < times; i++) {
        size_t at = (size_t)puf_rand_int(rng, (int32_t)range);
        if (kind < 2) {
            forged[at] ^= (uint8_t)(1 << puf_rand_int(rng, 8));
        } else if (kind == 2) {
            forged[at] =
                (uint8_t)(puf_rand_int(rng, 2) ? puf_rand_int(rng, 8) : puf_rand_int(rng, 256));
        } else if (kind < 6) {
            uint32_t word;
            at = puf_rand_int(rng, 8) ? at / 4 * 4 : TICK;
            if (at + 4 > forge->bytes) continue;
            memcpy(&word, forged + at, 4);
            word = odd_word(rng, word);
            memcpy(forged + at, &word, 4);
        } else if (kind == 6) {  // another true state's words from here on
            size_t count = 1 + (size_t)puf_rand_int(rng, (int32_t)(forge->bytes - at));
            memcpy(forged + at, forge->other + at, count);
        } else {
            size_t count = 1 + (size_t)puf_rand_int(rng, (int32_t)(forge->bytes - at));
            for (size_t k = 0; k < count; k++) forged[at + k] = (uint8_t)puf_rand_u32(rng);
        }
    }
    keep_params(forge);
}

static void try_forgery(Forge* forge) {
    Rig* rig = &forge->rig;
    forge_state(forge);
    if (!is_accepted(forge, forge->forged)) {
        forge->refused++;
        puf_vec_snapshot(rig->vec, forge->env, forge->after);
        CHECK(!memcmp(forge->before, forge->after, forge->bytes));  // nothing has changed
        return;
    }
    forge->accepted++;
    guard_neighbours(forge, true);
    for (int32_t i = 0; i < STEPS; i++) {
        step_alone(forge);
        if (i % 97 && i != STEPS - 1) continue;
        puf_vec_snapshot(rig->vec, forge->env, forge->after);
        bool still_good = is_accepted(forge, forge->after);
        if (!still_good) fprintf(stderr, "after %d steps: %s\n", (int)(i + 1), puf_last_error());
        CHECK(still_good);
        if (!still_good) break;
    }
    guard_neighbours(forge, false);
    RigRows pixels =
        rig_rows((size_t)rig->batch->layout.width * (size_t)rig->batch->layout.height * 3);
    PufCanvas canvas = {rig_at(pixels), rig->batch->layout.width, rig->batch->layout.height};
    CHECK(puf_vec_render(rig->vec, forge->env, &canvas) == PUF_OK);
    CHECK(rig_rows_guarded(pixels));
    rig_rows_free(pixels);
}

// True states along the way: every one of them must be accepted.
static void play(Forge* forge, int32_t steps) {
    bool all_accepted = true;
    for (int32_t i = 0; i < steps; i++) {
        rig_act(&forge->rig, &forge->rng);
        puf_vec_step(forge->rig.vec, NULL);
        puf_vec_snapshot(forge->rig.vec, forge->env, forge->before);
        bool accepted = is_accepted(forge, forge->before);
        if (!accepted && all_accepted)
            fprintf(stderr, "a true state after %d steps: %s\n", (int)(i + 1), puf_last_error());
        all_accepted = all_accepted && accepted;
    }
    CHECK(all_accepted);
}

static void forge_with(const PufEnvInfo* info, const double* params, uint64_t seed, double work,
                       const char* combo, int32_t* accepted, int32_t* refused) {
    PufLayout layout = rig_layout(info, params);
    size_t bytes = rig_env_bytes(info, &layout);
    if (bytes > MAX_ENV_BYTES) return;
    size_t neighbours = REACH / (info->env_bytes + layout.arena) + 1;
    if (neighbours > MAX_NEIGHBOURS) neighbours = MAX_NEIGHBOURS;
    if (neighbours * bytes > 8 * MAX_ENV_BYTES) neighbours = 1;
    double cost = STEPS * ((double)bytes / 8 + STEP_BYTES * (double)layout.agents);
    int32_t forgeries = (int32_t)(work / cost);
    if (forgeries < MIN_FORGERIES) forgeries = MIN_FORGERIES;
    if (forgeries > MAX_FORGERIES) forgeries = MAX_FORGERIES;

    int failed_before = check_failed;
    Forge forge = {.rig = rig_create(info, 2 * (int32_t)neighbours + 1, 1, params),
                   .env = (int32_t)neighbours,
                   .rng = {seed}};
    CHECK(forge.rig.vec != NULL);
    if (!forge.rig.vec) return;
    forge.bytes = puf_vec_snapshot_bytes(forge.rig.vec);
    uint8_t* memory = malloc(4 * forge.bytes);
    if (!memory) abort();
    forge.before = memory;
    forge.forged = memory + forge.bytes;
    forge.other = memory + 2 * forge.bytes;
    forge.after = memory + 3 * forge.bytes;
    puf_vec_reset(forge.rig.vec, seed);
    for (int32_t i = 0; i < forgeries; i++) {
        if (i % 8 == 0) {
            puf_vec_reset(forge.rig.vec, seed + (uint64_t)i);
            play(&forge, puf_rand_int(&forge.rng, 40));
            puf_vec_snapshot(forge.rig.vec, forge.env, forge.other);
            play(&forge, puf_rand_int(&forge.rng, 40));
        }
        puf_vec_snapshot(forge.rig.vec, forge.env, forge.before);
        try_forgery(&forge);
    }
    CHECK(rig_guards_hold(&forge.rig));
    *accepted += forge.accepted;
    *refused += forge.refused;
    free(memory);
    rig_destroy(&forge.rig);
    if (check_failed > failed_before) fprintf(stderr, "  in %s with %s\n", info->name, combo);
}

static void forge_env(const PufEnvInfo* info, double work) {
    double params[PUF_MAX_PARAMS];
    char combo[64];
    int32_t accepted = 0, refused = 0;
    rig_defaults(info, params);
    forge_with(info, params, 1, 0.5 * work, "the defaults", &accepted, &refused);
    PufRng rng = {11};
    for (int32_t k = 0; k < RANDOM_COMBOS; k++) {
        for (int32_t i = 0; i < info->num_params; i++) {
            const PufField* field = &info->params[i];
            double share = (double)puf_rand(&rng);
            params[i] = field->low + (field->high - field->low) * share * share * share;
            if (field->type != PUF_PARAM_FLOAT) params[i] = floor(params[i] + 0.5);
        }
        snprintf(combo, sizeof combo, "random params %d", (int)k);
        forge_with(info, params, (uint64_t)(2 + k), 0.5 * work / RANDOM_COMBOS, combo, &accepted,
                   &refused);
    }
    CHECK(accepted > 0);  // else nothing was tried
    CHECK(refused > 0);
    printf("%-22s %5d accepted, %5d refused\n", info->name, (int)accepted, (int)refused);
    fflush(stdout);
}

int main(int argc, char** argv) {
    double work = argc > 2 ? atof(argv[2]) : WORK;
    for (int32_t i = 0; i < puf_num_infos(); i++)
        if (argc < 2 || !strcmp(argv[1], puf_info(i)->name) || !strcmp(argv[1], "all"))
            forge_env(puf_info(i), work / puf_num_infos());
    return CHECK_DONE();
}
