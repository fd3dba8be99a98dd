// Normalised observations beside the same numbers computed one by one.
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "nn/obs_norm.h"
#include "puf_env.h"
#include "tests/check.h"

enum { ROWS = 11, SIZE = 19, STRIDE = SIZE + 3, PARTS = 3 };

// Rows of floats and of doubles with the same values, and masks.
typedef struct {
    float floats[ROWS * STRIDE], offset[SIZE], factor[SIZE];
    double doubles[ROWS * STRIDE], double_offset[SIZE], double_factor[SIZE];
    uint8_t masks[ROWS];
    double count, mean[SIZE], variance[SIZE];
} Data;

static void fill(Data* data) {
    PufRng rng = {8};
    memset(data, 0, sizeof *data);
    for (int i = 0; i < ROWS * STRIDE; i++) {
        data->floats[i] = 1000.0f + 3.0f * puf_rand_normal(&rng);  // far from 0
        data->doubles[i] = (double)data->floats[i];
    }
    for (int i = 0; i < SIZE; i++) {
        data->offset[i] = 1000.0f + puf_rand_normal(&rng);
        data->factor[i] = 0.1f + puf_rand(&rng);
        data->double_offset[i] = (double)data->offset[i];
        data->double_factor[i] = (double)data->factor[i];
    }
    for (int i = 0; i < ROWS; i++) data->masks[i] = i % 3 != 1;
}

static PufObsNorm norm_of(Data* data, bool is_double) {
    PufObsNorm norm = {.size = SIZE,
                       .is_double = is_double,
                       .offset = data->offset,
                       .factor = data->factor,
                       .limit = 2,
                       .count = &data->count,
                       .mean = data->mean,
                       .variance = data->variance};
    if (is_double) norm.offset = data->double_offset, norm.factor = data->double_factor;
    return norm;
}

static const uint8_t* rows_of(const Data* data, bool is_double, size_t* stride) {
    *stride = STRIDE * (is_double ? sizeof(double) : sizeof(float));
    return is_double ? (const uint8_t*)data->doubles : (const uint8_t*)data->floats;
}

static void rows_are_shifted_scaled_and_clipped(void) {
    static Data data;
    fill(&data);
    data.floats[4] = NAN, data.floats[5] = INFINITY, data.floats[6] = -INFINITY;
    const PufObsNorm norm = norm_of(&data, false);
    float got[ROWS * SIZE];
    size_t stride;
    const uint8_t* rows = rows_of(&data, false, &stride);
    puf_obs_norm_apply(&norm, ROWS, rows, stride, (uint8_t*)got, SIZE * sizeof(float));
    int clipped = 0;
    for (int i = 0; i < ROWS * SIZE; i++) {
        const int at = i / SIZE * STRIDE + i % SIZE;
        const float z = (data.floats[at] - data.offset[i % SIZE]) * data.factor[i % SIZE];
        if (at == 4) {
            CHECK(isnan(got[i]));
            continue;
        }
        clipped += fabsf(z) > 2.0f;
        CHECK(got[i] == fminf(fmaxf(z, -2.0f), 2.0f));
    }
    CHECK(clipped > 2 && clipped < ROWS * SIZE / 2);
    double same[SIZE];
    const PufObsNorm other = norm_of(&data, true);
    puf_obs_norm_apply(&other, 1, (const uint8_t*)(data.doubles + STRIDE), 0, (uint8_t*)same, 0);
    for (int i = 0; i < SIZE; i++) CHECK(fabs(same[i] - (double)got[SIZE + i]) < 1e-4);
}

static void moments_are_those_of_present_rows(bool is_double) {
    static Data data;
    fill(&data);
    const PufObsNorm norm = norm_of(&data, is_double);
    double memory[PARTS][2 * SIZE] = {{0}};
    PufObsSums parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = (PufObsSums){0, memory[i], memory[i] + SIZE};
    size_t stride;
    const uint8_t* rows = rows_of(&data, is_double, &stride);
    const int32_t ends[PARTS + 1] = {0, 4, 4, ROWS};  // one part has no rows
    for (int i = 0; i < PARTS; i++)
        puf_obs_norm_add(&norm, ends[i + 1] - ends[i], rows + (size_t)ends[i] * stride, stride,
                         data.masks + ends[i], &parts[i]);
    puf_obs_norm_join(&norm, PARTS, parts);
    CHECK(data.count == 7);  // rows 1, 4, 7 and 10 of 11 are absent
    for (int i = 0; i < SIZE; i++) {
        double mean = 0, variance = 0;
        for (int row = 0; row < ROWS; row++)
            if (data.masks[row]) mean += data.doubles[row * STRIDE + i] / 7;
        for (int row = 0; row < ROWS; row++)
            if (data.masks[row]) variance += pow(data.doubles[row * STRIDE + i] - mean, 2) / 7;
        CHECK(fabs(data.mean[i] - mean) < 1e-9 && fabs(data.variance[i] - variance) < 1e-9);
    }
    memset(data.masks, 0, sizeof data.masks);
    for (int i = 0; i < PARTS; i++) parts[i].count = 0;
    memset(memory, 0, sizeof memory);
    puf_obs_norm_add(&norm, ROWS, rows, stride, data.masks, &parts[0]);
    puf_obs_norm_join(&norm, PARTS, parts);
    CHECK(data.count == 0);
}

int main(void) {
    rows_are_shifted_scaled_and_clipped();
    moments_are_those_of_present_rows(false);
    moments_are_those_of_present_rows(true);
    return CHECK_DONE();
}
