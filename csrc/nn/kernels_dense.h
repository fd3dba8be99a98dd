// kernels_dense.h - products of small matrices in registers; included by kernels_source.h only.
//
// A block of sums, BLOCK rows by two vectors of columns, stays in registers over the whole inner
// dimension: each element of x is broadcast once for two multiply-adds, each vector of weights
// loaded once for BLOCK of them. What is left at the edges goes in blocks of 4, 2 and 1 rows, and
// of one vector. Where the inner dimension is at most NARROW, all weights of some columns stay in
// registers instead, and rows pass by. Every sum is taken in the same order whichever way it goes,
// so a row's result does not depend on the rows around it.

// Over the sums of a block, [height, width].
#define EACH UNROLL for (int i = 0; i < height; i++) UNROLL for (int j = 0; j < width; j++)
#define SUM sums[i * width + j]

// In place; not inlined, because a block of tanh is long.
static __attribute__((noinline)) void tanh_block(const int height, const int width, float* y,
                                                 size_t stride) {
    for (int i = 0; i < height; i++)
        for (int j = 0; j < width; j++) {
            float* at = y + (size_t)i * stride + LANES * j;
            store(at, tanh_of(load(at)));
        }
}

// Applies the function at the end of a layer to a block of sums, and stores it.
INLINE void finish_block(const int height, const int width, const PufProduct* p, size_t at,
                         vec* sums) {
    const size_t stride = (size_t)p->y_stride;
    float* y = p->y + at;
    const float* of = p->of ? p->of + at : NULL;
    switch (p->finish) {
        case PUF_PLAIN:
        case PUF_TANH:
            break;
        case PUF_RELU:
            EACH SUM = max_of((vec){0}, SUM);  // nan stays nan
            break;
        case PUF_RELU_SLOPE:
            EACH SUM = zero_unless(load(of + (size_t)i * stride + LANES * j) > 0.0f, SUM);
            break;
        case PUF_TANH_SLOPE:
            EACH {
                vec h = load(of + (size_t)i * stride + LANES * j);
                SUM = SUM * (1.0f - h * h);
            }
            break;
    }
    EACH store(y + (size_t)i * stride + LANES * j, SUM);
    if (p->finish == PUF_TANH) tanh_block(height, width, y, stride);
}

// Stores of all sums of a large block at once would fill the queue in front of the multipliers. So
// the last TAIL columns of x are added strip by strip, and a strip is stored before the next.
enum { STRIP = BLOCK >= 12 ? BLOCK / 3 : BLOCK, TAIL = BLOCK >= 12 ? 4 : 1 };

// Adds to a block of sums: a column of x, times a row of weights.
INLINE void add_product(const int height, const int width, const float* x, size_t stride,
                        const float* weights, vec* sums) {
    vec w[2];
    UNROLL for (int j = 0; j < width; j++) w[j] = load(weights + LANES * j);
    UNROLL for (int i = 0; i < height; i++) {
        vec factor = SET(x[(size_t)i * stride]);
        UNROLL for (int j = 0; j < width; j++) SUM = FMA(factor, w[j], SUM);
    }
}

INLINE void product_block(const int height, const int width, const PufProduct* p, int32_t row,
                          int32_t column, const float* panel) {
    const size_t x_stride = (size_t)p->x_stride, y_stride = (size_t)p->y_stride;
    const float* x = p->x + (size_t)row * x_stride;
    const size_t at = (size_t)row * y_stride + (size_t)column;
    const int strip = height == BLOCK ? STRIP : height;
    vec sums[BLOCK * 2];
    if (p->bias)
        EACH SUM = load(p->bias + column + LANES * j);
    else
        EACH SUM = (vec){0};
    if (p->add) EACH SUM += load(p->y + at + (size_t)i * y_stride + LANES * j);
    for (int32_t k = TAIL; k < p->in; k++, x++, panel += LANES * width)
        add_product(height, width, x, x_stride, panel, sums);
    UNROLL for (int top = 0; top < height; top += strip) {
        const size_t below = (size_t)top;
        if (p->in)  // at least TAIL: fewer are narrow
            UNROLL for (int k = 0; k < TAIL; k++)
                add_product(strip, width, x + below * x_stride + k, x_stride,
                            panel + k * LANES * width, sums + top * width);
        finish_block(strip, width, p, at + below * y_stride, sums + top * width);
    }
}

INLINE void product_panel(const int width, const PufProduct* p, int32_t column,
                          const float* panel) {
    int32_t row = 0;
    for (; row + BLOCK <= p->rows; row += BLOCK) product_block(BLOCK, width, p, row, column, panel);
    for (; BLOCK > 4 && row + 4 <= p->rows; row += 4)
        product_block(4, width, p, row, column, panel);
    for (; row + 2 <= p->rows; row += 2) product_block(2, width, p, row, column, panel);
    if (row < p->rows) product_block(1, width, p, row, column, panel);
}

enum { NARROW = BLOCK >= 12 ? 8 : 4, NARROW_WEIGHTS = 2 * NARROW };  // half of the registers

// `height` rows of `width` vectors of columns, with their weights in registers.
INLINE void narrow_block(const int in, const int height, const int width, const PufProduct* p,
                         int32_t row, int32_t column, const vec* bias, const vec* w) {
    const size_t stride = (size_t)p->x_stride, y_stride = (size_t)p->y_stride;
    const float* x = p->x + (size_t)row * stride;
    const size_t at = (size_t)row * y_stride + (size_t)column;
    vec sums[2 * 4];
    EACH SUM = bias[j];
    if (p->add) EACH SUM += load(p->y + at + (size_t)i * y_stride + LANES * j);
    UNROLL for (int i = 0; i < height; i++) UNROLL for (int k = 0; k < in; k++) {
        vec factor = SET(x[(size_t)i * stride + (size_t)k]);
        UNROLL for (int j = 0; j < width; j++) SUM = FMA(factor, w[k * width + j], SUM);
    }
    finish_block(height, width, p, at, sums);
}

// `width` vectors of columns, from panels of two vectors each, or of one.
INLINE void narrow_panel(const int in, const int width, const PufProduct* p, int32_t column,
                         const float* panel) {
    const int pair = width < 2 ? 1 : 2;
    vec w[NARROW_WEIGHTS], bias[4];
    UNROLL for (int j = 0; j < width; j++) {
        bias[j] = p->bias ? load(p->bias + column + LANES * j) : (vec){0};
        UNROLL for (int k = 0; k < in; k++) w[k * width + j] =
            load(panel + LANES * (j / pair * pair * in + k * pair + j % pair));
    }
    int32_t row = 0;
    for (; row + 2 <= p->rows; row += 2) narrow_block(in, 2, width, p, row, column, bias, w);
    if (row < p->rows) narrow_block(in, 1, width, p, row, column, bias, w);
}

INLINE void narrow_product(const int in, const PufProduct* p) {
    int32_t column = 0;
    const float* panel = p->panels;
    for (; 4 * in <= NARROW_WEIGHTS && p->out - column > 3 * LANES; column += 4 * LANES) {
        narrow_panel(in, 4, p, column, panel);
        panel += 4 * LANES * in;
    }
    for (; p->out - column > LANES; column += 2 * LANES, panel += 2 * LANES * in)
        narrow_panel(in, 2, p, column, panel);
    if (column < p->out) narrow_panel(in, 1, p, column, panel);
}

static void product(const PufProduct* given) {
    const PufProduct own = *given, *p = &own;  // no store changes it
#define NARROW_CASE(in)                                 \
    case in:                                            \
        if (in <= NARROW) return narrow_product(in, p); \
        break
    switch (p->in) {
        NARROW_CASE(1);
        NARROW_CASE(2);
        NARROW_CASE(3);
        NARROW_CASE(4);
        NARROW_CASE(5);
        NARROW_CASE(6);
        NARROW_CASE(7);
        NARROW_CASE(8);
    }
#undef NARROW_CASE
    int32_t column = 0;
    const float* panel = p->panels;
    for (; p->out - column > LANES; column += 2 * LANES, panel += 2 * LANES * (size_t)p->in)
        product_panel(2, p, column, panel);
    if (column < p->out) product_panel(1, p, column, panel);
}

// GROUP rows of as many outputs as fit into the registers.
enum { DOT_OUTPUTS = BLOCK >= 12 ? 3 : 1 };

// Sums of GROUP steps by `width` rows of weights, each over vectors of its own numbers.
INLINE void dots_block(const int width, int32_t in, const float* x, size_t x_stride,
                       const float* weights, size_t stride, const float* bias, float* y) {
    vec sums[DOT_OUTPUTS][GROUP];
    UNROLL for (int j = 0; j < width; j++) UNROLL for (int i = 0; i < GROUP; i++) sums[j][i] =
        (vec){0};
    for (int32_t k = 0; k < in; k += LANES, x += LANES, weights += LANES) {
        vec w[DOT_OUTPUTS];
        UNROLL for (int j = 0; j < width; j++) w[j] = load(weights + (size_t)j * stride);
        UNROLL for (int i = 0; i < GROUP; i++) {
            const vec factor = load(x + (size_t)i * x_stride);
            UNROLL for (int j = 0; j < width; j++) sums[j][i] = FMA(factor, w[j], sums[j][i]);
        }
    }
    UNROLL for (int j = 0; j < width; j++) {
        const vec all = sum_each(sums[j]) + bias[j];
        memcpy(y + j * PUF_TILE, &all, GROUP * sizeof(float));
    }
}

static void dots(int32_t rows, int32_t in, int32_t out, const float* x, int32_t x_stride,
                 const float* weights, const float* bias, float* y) {
    const size_t stride = (size_t)puf_padded(in);
    for (int32_t row = 0; row < rows; row += GROUP) {
        const float* from = x + (size_t)row * (size_t)x_stride;
        int32_t o = 0;
        for (; o + DOT_OUTPUTS <= out; o += DOT_OUTPUTS)
            dots_block(DOT_OUTPUTS, in, from, (size_t)x_stride, weights + (size_t)o * stride,
                       stride, bias + o, y + o * PUF_TILE + row);
        for (; DOT_OUTPUTS > 1 && o < out; o++)
            dots_block(1, in, from, (size_t)x_stride, weights + (size_t)o * stride, stride,
                       bias + o, y + o * PUF_TILE + row);
    }
}

// Outputs and vectors of columns whose gradients fit into the registers, with their weights if
// there are 32 of them.
enum { BACK_OUTPUTS = BLOCK > 4 ? 3 : 2, BACK_WIDTH = BLOCK >= 12 ? 4 : 2 };

// y where x is above 0, else 0. With 16 lanes a comparison of floats takes the place of a
// multiply-add, one of integers does not: a number above 0 has no sign, nor has it when 1 is taken
// from its bits.
INLINE vec where_above_zero(vec x, vec y) {
#if LANES == 16
    const ivec bits = (ivec)x, is_not = (bits | (ivec)((uvec)bits - 1)) >> 31;
    return (vec)(~is_not & (ivec)y);
#else
    return zero_unless(x > 0.0f, y);
#endif
}

// `outputs` outputs from `output` on, `width` vectors of columns from `column` on. Slopes by x
// begin with what is there if `add`, and go through `finish`.
INLINE void dots_back_block(const int outputs, const int width, const PufFinish finish,
                            const PufDotsBack* p, int32_t output, int32_t column, bool add) {
    const size_t stride = (size_t)p->stride, at = (size_t)output * stride + (size_t)column;
    const float *slopes = p->slopes + (size_t)output * PUF_TILE, *x = p->x + column;
    float* x_slopes = p->x_slopes + column;
    vec weights[BACK_OUTPUTS][BACK_WIDTH], grads[BACK_OUTPUTS][BACK_WIDTH];
    UNROLL for (int o = 0; o < outputs; o++) UNROLL for (int j = 0; j < width; j++) {
        const size_t place = at + (size_t)o * stride + (size_t)(LANES * j);
        weights[o][j] = load(p->weights + place);
        grads[o][j] = p->first ? (vec){0} : load(p->grad + place);
    }
    for (int32_t row = 0; row < p->rows; row++, x += stride, x_slopes += stride) {
        vec of_output[BACK_OUTPUTS];
        UNROLL for (int o = 0; o < outputs; o++) of_output[o] = SET(slopes[o * PUF_TILE + row]);
        UNROLL for (int j = 0; j < width; j++) {
            const vec below = load(x + LANES * j);
            vec sum = add ? load(x_slopes + LANES * j) : (vec){0};
            UNROLL for (int o = 0; o < outputs; o++) {
                sum = FMA(of_output[o], weights[o][j], sum);
                grads[o][j] = FMA(of_output[o], below, grads[o][j]);
            }
            if (finish == PUF_RELU_SLOPE) sum = where_above_zero(below, sum);
            if (finish == PUF_TANH_SLOPE) sum = sum * (1.0f - below * below);
            store(x_slopes + LANES * j, sum);
        }
    }
    UNROLL for (int o = 0; o < outputs; o++) UNROLL for (int j = 0; j < width; j++)
        store(p->grad + at + (size_t)o * stride + (size_t)(LANES * j), grads[o][j]);
}

INLINE void dots_back_columns(const int width, const PufFinish finish, const PufDotsBack* p,
                              int32_t column) {
    int32_t output = 0;
    for (; p->out - output > BACK_OUTPUTS; output += BACK_OUTPUTS)
        dots_back_block(BACK_OUTPUTS, width, PUF_PLAIN, p, output, column, output > 0);
    if (p->out - output == 3 && BACK_OUTPUTS >= 3)
        dots_back_block(BACK_OUTPUTS, width, finish, p, output, column, output > 0);
    else if (p->out - output == 2)
        dots_back_block(2, width, finish, p, output, column, output > 0);
    else
        dots_back_block(1, width, finish, p, output, column, output > 0);
}

INLINE void dots_back_finished(const PufFinish finish, const PufDotsBack* p) {
    int32_t column = 0;
    for (; p->in - column > (BACK_WIDTH - 1) * LANES; column += BACK_WIDTH * LANES)
        dots_back_columns(BACK_WIDTH, finish, p, column);
    for (; column < p->in; column += LANES) dots_back_columns(1, finish, p, column);
}

static void dots_back(const PufDotsBack* p) {
    for (int32_t first = 0; first < p->out; first += GROUP) {
        const int32_t count = p->out - first < GROUP ? p->out - first : GROUP;
        vec sums[GROUP] = {{0}};
        for (int32_t o = 0; o < count; o++)
            for (int32_t row = 0; row < p->rows; row += LANES) {
                const vec slopes = load(p->slopes + (first + o) * PUF_TILE + row);
                sums[o] += row + LANES <= p->rows ? slopes : first_lanes(p->rows - row, slopes);
            }
        const vec totals = sum_each(sums);
        for (int32_t o = 0; o < count; o++)
            p->bias[first + o] = p->first ? totals[o] : p->bias[first + o] + totals[o];
    }
    if (p->finish == PUF_RELU_SLOPE)
        dots_back_finished(PUF_RELU_SLOPE, p);
    else if (p->finish == PUF_TANH_SLOPE)
        dots_back_finished(PUF_TANH_SLOPE, p);
    else
        dots_back_finished(PUF_PLAIN, p);
}

// Sums of `width` vectors of columns, over `ways` rows at once, because one addition waits for the
// one before.
INLINE void sum_columns(const int width, const int ways, int32_t rows, const float* from,
                        size_t stride, float* sums, bool first) {
    vec total[8] = {{0}};  // [ways, width]
    int32_t row = 0;
    for (; row + ways <= rows; row += ways, from += (size_t)ways * stride)
        UNROLL for (int i = 0; i < ways; i++) UNROLL for (int j = 0; j < width; j++)
            total[i * width + j] += load(from + (size_t)i * stride + LANES * j);
    for (; row < rows; row++, from += stride)
        UNROLL for (int j = 0; j < width; j++) total[j] += load(from + LANES * j);
    UNROLL for (int j = 0; j < width; j++) {
        UNROLL for (int i = 1; i < ways; i++) total[j] += total[i * width + j];
        store(sums + LANES * j, first ? total[j] : total[j] + load(sums + LANES * j));
    }
}

static void column_sums(int32_t rows, int32_t n, const float* a, int32_t a_stride, float* sums,
                        bool first) {
    int32_t column = 0;
    for (; n - column > 3 * LANES; column += 4 * LANES)
        sum_columns(4, 2, rows, a + column, (size_t)a_stride, sums + column, first);
    for (; column < n; column += LANES)
        sum_columns(1, 8, rows, a + column, (size_t)a_stride, sums + column, first);
}

// `height` rows of the product from row `top` on, `width` vectors of columns from `column` on. With
// the sums of these columns of b if `adds`: b is read anyway, and additions cost less than a second
// look at it.
INLINE void outer_block(const int height, const int width, const bool adds, const PufOuter* p,
                        int32_t top, int32_t column) {
    const size_t a_stride = (size_t)p->a_stride, b_stride = (size_t)p->b_stride;
    const size_t grad_stride = (size_t)p->grad_stride;
    const float *a = p->a + top, *b = p->b + column;
    float* grad = p->grad + (size_t)top * grad_stride + (size_t)column;
    vec sums[BLOCK][4], totals[4];
    if (p->first)
        EACH sums[i][j] = (vec){0};
    else
        EACH sums[i][j] = load(grad + (size_t)i * grad_stride + LANES * j);
    UNROLL for (int j = 0; j < width; j++) totals[j] =
        p->first || !adds ? (vec){0} : load(p->sums + column + LANES * j);
    for (int32_t row = 0; row < p->rows; row++, a += a_stride, b += b_stride) {
        vec columns[4];
        UNROLL for (int j = 0; j < width; j++) columns[j] = load(b + LANES * j);
        UNROLL for (int i = 0; i < height; i++) {
            vec factor = SET(a[i]);
            UNROLL for (int j = 0; j < width; j++) sums[i][j] = FMA(factor, columns[j], sums[i][j]);
        }
        UNROLL for (int j = 0; j < width && adds; j++) totals[j] += columns[j];
    }
    EACH store(grad + (size_t)i * grad_stride + LANES * j, sums[i][j]);
    UNROLL for (int j = 0; j < width && adds; j++) store(p->sums + column + LANES * j, totals[j]);
}

INLINE void outer_panel(const int width, const PufOuter* p, int32_t column) {
    int32_t i = 0;
    bool adds = p->sums != NULL;  // a block of few rows, whose registers leave room, does so
#define OUTER_BLOCKS(height)                                 \
    do {                                                     \
        if ((height) <= 4 && adds && i + (height) <= p->n) { \
            outer_block(height, width, true, p, i, column);  \
            i += (height), adds = false;                     \
        }                                                    \
        for (; i + (height) <= p->n; i += (height))          \
            outer_block(height, width, false, p, i, column); \
    } while (0)
    if (width <= 2) OUTER_BLOCKS(BLOCK);
    if (BLOCK > 4) OUTER_BLOCKS(4);
    OUTER_BLOCKS(3);
    OUTER_BLOCKS(2);
    OUTER_BLOCKS(1);
#undef OUTER_BLOCKS
    if (adds)
        sum_columns(width, 8 / width, p->rows, p->b + column, (size_t)p->b_stride, p->sums + column,
                    p->first);
}

static void outer(const PufOuter* given) {
    const PufOuter own = *given, *p = &own;  // no store changes it
    int32_t column = 0;
    // few rows of sums: more columns at once, because one addition waits for the one before
    for (; p->n < 4 && p->k - column > 3 * LANES; column += 4 * LANES) outer_panel(4, p, column);
    for (; p->k - column > LANES; column += 2 * LANES) outer_panel(2, p, column);
    if (column < p->k) outer_panel(1, p, column);
}
