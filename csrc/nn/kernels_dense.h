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

// Applies the function at the end of a layer to a block of sums, and stores it.
INLINE void finish_block(const int height, const int width, const PufProduct* p, size_t at,
                         vec* sums) {
    const size_t stride = (size_t)p->y_stride;
    float* y = p->y + at;
    const float* of = p->of ? p->of + at : NULL;
    switch (p->finish) {
        case PUF_PLAIN:
            break;
        case PUF_RELU:
            EACH SUM = max_of((vec){0}, SUM);  // nan stays nan
            break;
        case PUF_TANH:
            EACH SUM = tanh_of(SUM);
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
}

INLINE void product_block(const int height, const int width, const PufProduct* p, int32_t row,
                          int32_t column, const float* panel) {
    const size_t x_stride = (size_t)p->x_stride, y_stride = (size_t)p->y_stride;
    const float* x = p->x + (size_t)row * x_stride;
    const size_t at = (size_t)row * y_stride + (size_t)column;
    vec sums[BLOCK * 2];
    if (p->bias)
        EACH SUM = load(p->bias + column + LANES * j);
    else
        EACH SUM = (vec){0};
    if (p->add) EACH SUM += load(p->y + at + (size_t)i * y_stride + LANES * j);
    for (int32_t k = 0; k < p->in; k++, panel += LANES * width) {
        vec w[2];
        UNROLL for (int j = 0; j < width; j++) w[j] = load(panel + LANES * j);
        UNROLL for (int i = 0; i < height; i++) {
            vec factor = SET(x[(size_t)i * x_stride + (size_t)k]);
            UNROLL for (int j = 0; j < width; j++) SUM = FMA(factor, w[j], SUM);
        }
    }
    finish_block(height, width, p, at, sums);
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

// `width` vectors of columns, from panels of two vectors each, or of one.
INLINE void narrow_panel(const int in, const int width, const PufProduct* p, int32_t column,
                         const float* panel) {
    enum { height = 1 };
    const int pair = width < 2 ? 1 : 2;
    vec w[NARROW_WEIGHTS], bias[4];
    UNROLL for (int j = 0; j < width; j++) {
        bias[j] = p->bias ? load(p->bias + column + LANES * j) : (vec){0};
        UNROLL for (int k = 0; k < in; k++) w[k * width + j] =
            load(panel + LANES * (j / pair * pair * in + k * pair + j % pair));
    }
    for (int32_t row = 0; row < p->rows; row++) {
        const float* x = p->x + (size_t)row * (size_t)p->x_stride;
        const size_t at = (size_t)row * (size_t)p->y_stride + (size_t)column;
        vec sums[4];
        EACH SUM = bias[j];
        if (p->add) EACH SUM += load(p->y + at + LANES * j);
        UNROLL for (int k = 0; k < in; k++) {
            vec factor = SET(x[k]);
            UNROLL for (int j = 0; j < width; j++) sums[j] = FMA(factor, w[k * width + j], sums[j]);
        }
        finish_block(height, width, p, at, sums);
    }
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

static void product(const PufProduct* p) {
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

INLINE void outer_block(const int height, const int width, int32_t rows, const float* a,
                        size_t a_stride, const float* b, size_t b_stride, float* grad,
                        size_t grad_stride, bool first) {
    vec sums[BLOCK][4];
    if (first)
        EACH sums[i][j] = (vec){0};
    else
        EACH sums[i][j] = load(grad + (size_t)i * grad_stride + LANES * j);
    for (int32_t row = 0; row < rows; row++, a += a_stride, b += b_stride) {
        vec columns[4];
        UNROLL for (int j = 0; j < width; j++) columns[j] = load(b + LANES * j);
        UNROLL for (int i = 0; i < height; i++) {
            vec factor = SET(a[i]);
            UNROLL for (int j = 0; j < width; j++) sums[i][j] = FMA(factor, columns[j], sums[i][j]);
        }
    }
    EACH store(grad + (size_t)i * grad_stride + LANES * j, sums[i][j]);
}

INLINE void outer_panel(const int width, int32_t rows, int32_t n, const float* a, size_t a_stride,
                        const float* b, size_t b_stride, float* grad, size_t grad_stride,
                        bool first) {
    int32_t i = 0;
#define OUTER_BLOCKS(height)                                                                       \
    for (; i + (height) <= n; i += (height))                                                       \
    outer_block(height, width, rows, a + i, a_stride, b, b_stride, grad + (size_t)i * grad_stride, \
                grad_stride, first)
    if (width <= 2) OUTER_BLOCKS(BLOCK);
    if (BLOCK > 4) OUTER_BLOCKS(4);
    OUTER_BLOCKS(3);
    OUTER_BLOCKS(2);
    OUTER_BLOCKS(1);
#undef OUTER_BLOCKS
}

static void outer(int32_t rows, int32_t n, int32_t k, const float* a, int32_t a_stride,
                  const float* b, int32_t b_stride, float* grad, int32_t grad_stride, bool first) {
    int32_t column = 0;
#define OUTER_PANEL(width)                                                                        \
    outer_panel(width, rows, n, a, (size_t)a_stride, b + column, (size_t)b_stride, grad + column, \
                (size_t)grad_stride, first)
    // few rows of sums: more columns at once, because one addition waits for the one before
    for (; n < 4 && k - column > 3 * LANES; column += 4 * LANES) OUTER_PANEL(4);
    for (; k - column > LANES; column += 2 * LANES) OUTER_PANEL(2);
    if (column < k) OUTER_PANEL(1);
#undef OUTER_PANEL
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
