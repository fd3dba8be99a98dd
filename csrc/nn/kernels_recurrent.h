// kernels_recurrent.h - one step of recurrent cells; included by kernels_source.h only.
//
//   LSTM     c' = f * c + i * g,  h' = o * tanh(c')    i, f, o = sigmoid, g = tanh of sums
//   GRU      h' = (1 - z) * n + z * h                  r, z = sigmoid, n = tanh(x_n + r * m_n)
//   MinGRU   h' = (1 - z) * h + z * n                  z = sigmoid of the gate, n = the candidate
//
// Backward passes take the slope of h' from the outputs and from the next step.

// Over the vectors of all rows: units of a row lie at `at`, those of its first gate at `gate`.
#define EACH_UNIT(num_gates)                                                      \
    for (int32_t row = 0; row < cell->rows; row++)                                \
        for (size_t width = (size_t)cell->width, k = 0, at = (size_t)row * width, \
                    gate = (num_gates) * at;                                      \
             k < width; k += LANES, at += LANES, gate += LANES)

INLINE ivec flag_of(int32_t flag) { return flag - (ivec){0}; }

INLINE vec slope_of(const PufCell* cell, int32_t row, size_t at) {
    vec later = zero_unless(flag_of(cell->kept[row]), load(cell->later_hidden + at));
    return load(cell->slopes + at) + later;
}

static void lstm_forward(const PufCell* cell) {
    EACH_UNIT(4) {
        float* gates = cell->gates + gate;
        const float* sums = cell->sums + gate;
        const ivec kept = flag_of(cell->kept[row]);
        const vec i = sigmoid_of(load(gates) + load(sums));
        const vec f = sigmoid_of(load(gates + width) + load(sums + width));
        const vec g = tanh_of(load(gates + 2 * width) + load(sums + 2 * width));
        const vec o = sigmoid_of(load(gates + 3 * width) + load(sums + 3 * width));
        const vec c = FMA(f, load(cell->cell + at), i * g), squashed = tanh_of(c), h = o * squashed;
        store(gates, i);
        store(gates + width, f);
        store(gates + 2 * width, g);
        store(gates + 3 * width, o);
        store(cell->extra + at, squashed);
        store(cell->output + at, h);
        store(cell->next_hidden + at, zero_unless(kept, h));
        store(cell->next_cell + at, zero_unless(kept, c));
    }
}

static void lstm_backward(const PufCell* cell) {
    EACH_UNIT(4) {
        float* gates = cell->gates + gate;
        const vec i = load(gates), f = load(gates + width);
        const vec g = load(gates + 2 * width), o = load(gates + 3 * width);
        const vec squashed = load(cell->extra + at), of_h = slope_of(cell, row, at);
        const vec later = zero_unless(flag_of(cell->kept[row]), load(cell->later_cell + at));
        const vec of_c = FMA(of_h * o, 1.0f - squashed * squashed, later);
        store(gates, of_c * g * i * (1.0f - i));
        store(gates + width, of_c * load(cell->cell + at) * f * (1.0f - f));
        store(gates + 2 * width, of_c * i * (1.0f - g * g));
        store(gates + 3 * width, of_h * squashed * o * (1.0f - o));
        store(cell->later_cell + at, of_c * f);
    }
}

static void gru_forward(const PufCell* cell) {
    EACH_UNIT(3) {
        float* gates = cell->gates + gate;
        const float* sums = cell->sums + gate;
        const vec m = load(sums + 2 * width);
        const vec r = sigmoid_of(load(gates) + load(sums));
        const vec z = sigmoid_of(load(gates + width) + load(sums + width));
        const vec n = tanh_of(FMA(r, m, load(gates + 2 * width)));
        const vec h = FMA(z, load(cell->hidden + at) - n, n);
        store(gates, r);
        store(gates + width, z);
        store(gates + 2 * width, n);
        store(cell->extra + at, m);
        store(cell->output + at, h);
        store(cell->next_hidden + at, zero_unless(flag_of(cell->kept[row]), h));
    }
}

static void gru_backward(const PufCell* cell) {
    EACH_UNIT(3) {
        float *gates = cell->gates + gate, *sums = cell->sums + gate;
        const vec r = load(gates), z = load(gates + width), n = load(gates + 2 * width);
        const vec of_h = slope_of(cell, row, at);
        const vec of_n = of_h * (1.0f - z) * (1.0f - n * n);
        const vec of_r = of_n * load(cell->extra + at) * r * (1.0f - r);
        const vec of_z = of_h * (load(cell->hidden + at) - n) * z * (1.0f - z);
        store(gates, of_r);
        store(gates + width, of_z);
        store(gates + 2 * width, of_n);
        store(sums, of_r);
        store(sums + width, of_z);
        store(sums + 2 * width, of_n * r);
        store(cell->later_hidden + at, of_h * z);
    }
}

static void mingru_forward(const PufCell* cell) {
    EACH_UNIT(2) {
        float* gates = cell->gates + gate;
        const vec z = sigmoid_of(load(gates)), before = load(cell->hidden + at);
        const vec h = FMA(z, load(gates + width) - before, before);
        store(gates, z);
        store(cell->output + at, h);
        store(cell->next_hidden + at, zero_unless(flag_of(cell->kept[row]), h));
    }
}

static void mingru_backward(const PufCell* cell) {
    EACH_UNIT(2) {
        float* gates = cell->gates + gate;
        const vec z = load(gates), n = load(gates + width), of_h = slope_of(cell, row, at);
        store(gates, of_h * (n - load(cell->hidden + at)) * z * (1.0f - z));
        store(gates + width, of_h * z);
        store(cell->later_hidden + at, of_h * (1.0f - z));
    }
}
