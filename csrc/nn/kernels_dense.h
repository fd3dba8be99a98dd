// kernels_dense.h - products of small matrices in registers; included by kernels_source.h only.
//
// A block of sums, BLOCK rows by two vectors of columns, stays in registers over the whole inner
// dimension: each element of x is broadcast once for two multiply-adds, each vector of weights
// loaded once for BLOCK of them. What is left at the edges goes in blocks of 4, 2 and 1 rows, and
// of one vector. Every sum is taken in the same order whichever block it falls into, so a row's
// result does not depend on the rows around it.

// Over the sums of a block.
#define EACH UNROLL for (int i = 0; i < height; i++) UNROLL for (int j = 0; j < width; j++)

INLINE void product_block(const int height, const int width, const PufProduct* p, int32_t row,
                          int32_t column, const float* panel) {
    const size_t x_stride = (size_t)p->x_stride, y_stride = (size_t)p->y_stride;
    const float* x = p->x + (size_t)row * x_stride;
    const size_t at = (size_t)row * y_stride + (size_t)column;
    float* y = p->y + at;
    vec sums[BLOCK][2];
    if (p->bias)
        EACH sums[i][j] = load(p->bias + column + LANES * j);
    else
        EACH sums[i][j] = (vec){0};
    if (p->add) EACH sums[i][j] += load(y + (size_t)i * y_stride + LANES * j);
    for (int32_t k = 0; k < p->in; k++, panel += LANES * width) {
        vec w[2];
        UNROLL for (int j = 0; j < width; j++) w[j] = load(panel + LANES * j);
        UNROLL for (int i = 0; i < height; i++) {
            vec factor = SET(x[(size_t)i * x_stride + (size_t)k]);
            UNROLL for (int j = 0; j < width; j++) sums[i][j] = FMA(factor, w[j], sums[i][j]);
        }
    }
    const float* of = p->of ? p->of + at : NULL;
    switch (p->finish) {
        case PUF_PLAIN:
            break;
        case PUF_RELU:
            EACH sums[i][j] = max_of((vec){0}, sums[i][j]);  // nan stays nan
            break;
        case PUF_TANH:
            EACH sums[i][j] = tanh_of(sums[i][j]);
            break;
        case PUF_RELU_SLOPE:
            EACH sums[i][j] =
                zero_unless(load(of + (size_t)i * y_stride + LANES * j) > 0.0f, sums[i][j]);
            break;
        case PUF_TANH_SLOPE:
            EACH {
                vec h = load(of + (size_t)i * y_stride + LANES * j);
                sums[i][j] = sums[i][j] * (1.0f - h * h);
            }
            break;
    }
    EACH store(y + (size_t)i * y_stride + LANES * j, sums[i][j]);
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

static void product(const PufProduct* p) {
    int32_t column = 0;
    const float* panel = p->panels;
    for (; p->out - column > LANES; column += 2 * LANES, panel += 2 * LANES * (size_t)p->in)
        product_panel(2, p, column, panel);
    if (column < p->out) product_panel(1, p, column, panel);
}

// One row of weights at a time: LANES steps are summed side by side, each over vectors of its own
// numbers.
static void dots(int32_t rows, int32_t in, int32_t out, const float* x, int32_t x_stride,
                 const float* weights, const float* bias, float* y) {
    const size_t stride = (size_t)puf_padded(in);
    for (int32_t row = 0; row < rows; row += LANES)
        for (int32_t o = 0; o < out; o++) {
            const float *w = weights + (size_t)o * stride, *from = x + (size_t)(row * x_stride);
            vec sums[LANES] = {{0}};
            for (int32_t k = 0; k < in; k += LANES) {
                const vec factor = load(w + k);
                UNROLL for (int i = 0; i < LANES; i++) sums[i] =
                    FMA(factor, load(from + (size_t)(i * x_stride + k)), sums[i]);
            }
            store(y + o * PUF_TILE + row, sum_each(sums) + bias[o]);
        }
}

INLINE void outer_block(const int height, const int width, int32_t rows, const float* a,
                        size_t a_stride, const float* b, size_t b_stride, float* grad,
                        size_t grad_stride, bool first) {
    vec sums[BLOCK][2];
    if (first)
        EACH sums[i][j] = (vec){0};
    else
        EACH sums[i][j] = load(grad + (size_t)i * grad_stride + LANES * j);
    for (int32_t row = 0; row < rows; row++, a += a_stride, b += b_stride) {
        vec columns[2];
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
    for (; i + BLOCK <= n; i += BLOCK)
        outer_block(BLOCK, width, rows, a + i, a_stride, b, b_stride,
                    grad + (size_t)i * grad_stride, grad_stride, first);
    for (; BLOCK > 4 && i + 4 <= n; i += 4)
        outer_block(4, width, rows, a + i, a_stride, b, b_stride, grad + (size_t)i * grad_stride,
                    grad_stride, first);
    for (; i + 2 <= n; i += 2)
        outer_block(2, width, rows, a + i, a_stride, b, b_stride, grad + (size_t)i * grad_stride,
                    grad_stride, first);
    if (i < n)
        outer_block(1, width, rows, a + i, a_stride, b, b_stride, grad + (size_t)i * grad_stride,
                    grad_stride, first);
}

static void outer(int32_t rows, int32_t n, int32_t k, const float* a, int32_t a_stride,
                  const float* b, int32_t b_stride, float* grad, int32_t grad_stride, bool first) {
    int32_t column = 0;
    for (; k - column > LANES; column += 2 * LANES)
        outer_panel(2, rows, n, a, (size_t)a_stride, b + column, (size_t)b_stride, grad + column,
                    (size_t)grad_stride, first);
    if (column < k)
        outer_panel(1, rows, n, a, (size_t)a_stride, b + column, (size_t)b_stride, grad + column,
                    (size_t)grad_stride, first);
}

static void column_sums(int32_t rows, int32_t n, const float* a, int32_t a_stride, float* sums,
                        bool first) {
    for (int32_t column = 0; column < n; column += LANES) {
        vec sum = first ? (vec){0} : load(sums + column);
        for (int32_t row = 0; row < rows; row++)
            sum += load(a + (size_t)row * (size_t)a_stride + column);
        store(sums + column, sum);
    }
}
