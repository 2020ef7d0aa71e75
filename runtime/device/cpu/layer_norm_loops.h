/* Rows of layer norms, for one type: included with REAL and NAME(x) defined. Sums over BLOCK
 * numbers are made in the type itself, then in double; the variance is that of x - mean. */

typedef REAL NAME(vec) __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));
#define LANES ((int64_t)(64 / sizeof(REAL)))
typedef REAL NAME(half) __attribute__((vector_size(32)));
typedef REAL NAME(quarter) __attribute__((vector_size(16)));

/* Sum of the lanes of four: halves of halves, in the processor's registers (by way of an array the
 * layer over rows of 256 took 1.25 times as long). */
static inline __attribute__((always_inline)) double NAME(join)(const NAME(vec) * v) {
    const union {
        NAME(vec) all;
        NAME(half) half[2];
    } a = {(v[0] + v[1]) + (v[2] + v[3])};
    const union {
        NAME(half) all;
        NAME(quarter) half[2];
    } b = {a.half[0] + a.half[1]};
    const NAME(quarter) c = b.half[0] + b.half[1];
    return (double)(LANES == 8 ? c[0] + c[1] : (c[0] + c[LANES / 8]) + (c[1] + c[LANES / 4 - 1]));
}

/* Sums of x - shift and of its square over BLOCK numbers at most, four vectors side by side. */
static inline __attribute__((always_inline)) void
NAME(add_block)(const REAL *restrict x, int64_t n, REAL shift, double *sum, double *square) {
    NAME(vec) s[4] = {0}, q[4] = {0};
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        const NAME(vec) *at = (const NAME(vec) *)(const void *)(x + j);
        const NAME(vec) a = at[0] - shift, b = at[1] - shift, c = at[2] - shift, d = at[3] - shift;
        s[0] += a, s[1] += b, s[2] += c, s[3] += d;
        q[0] += a * a, q[1] += b * b, q[2] += c * c, q[3] += d * d;
    }
    REAL rest = 0, rest_square = 0;
    for (; j < n; j++) {
        const REAL d = x[j] - shift;
        rest += d;
        rest_square += d * d;
    }
    *sum += NAME(join)(s) + (double)rest;
    *square += NAME(join)(q) + (double)rest_square;
}

/* Sums of dy gamma and of dy gamma (x - mean), likewise. */
static inline __attribute__((always_inline)) void
NAME(add_products)(const REAL *restrict x, const REAL *restrict gamma, const REAL *restrict dy,
                   int64_t n, REAL mean, double *sum, double *product) {
    NAME(vec) s[4] = {0}, p[4] = {0};
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            const int64_t at = j + k * LANES;
            const NAME(vec) v = *(const NAME(vec) *)(const void *)(dy + at) *
                                *(const NAME(vec) *)(const void *)(gamma + at);
            s[k] += v;
            p[k] += v * (*(const NAME(vec) *)(const void *)(x + at) - mean);
        }
    REAL rest = 0, rest_product = 0;
    for (; j < n; j++) {
        const REAL v = dy[j] * gamma[j];
        rest += v;
        rest_product += v * (x[j] - mean);
    }
    *sum += NAME(join)(s) + (double)rest;
    *product += NAME(join)(p) + (double)rest_product;
}
#undef LANES

static inline __attribute__((always_inline)) row NAME(row_of)(const REAL *restrict x, int64_t c,
                                                              double epsilon) {
    double sum = 0, off = 0, square = 0, unused = 0; /* off: what rounding took from the mean */
    for (int64_t first = 0; first < c; first += BLOCK)
        NAME(add_block)(x + first, first + BLOCK < c ? BLOCK : c - first, 0, &sum, &unused);
    const REAL mean = (REAL)(sum / (double)c);
    for (int64_t first = 0; first < c; first += BLOCK)
        NAME(add_block)(x + first, first + BLOCK < c ? BLOCK : c - first, mean, &off, &square);
    const double n = (double)c, variance = square / n - off / n * (off / n);
    return (row){(double)mean, 1 / sqrt((variance > 0 ? variance : 0) + epsilon)};
}

MG_CLONES static void NAME(normalise_row)(const void *px, const void *pgamma, const void *pbeta,
                                          void *py, int64_t c, double epsilon) {
    const REAL *restrict x = px, *restrict gamma = pgamma, *restrict beta = pbeta;
    REAL *restrict y = py;
    const row r = NAME(row_of)(x, c, epsilon);
    const REAL mean = (REAL)r.mean, inverse = (REAL)r.inverse;
#pragma omp simd
    for (int64_t j = 0; j < c; j++) y[j] = (x[j] - mean) * inverse * gamma[j] + beta[j];
}

MG_CLONES static void NAME(grad_row)(const void *px, const void *pgamma, const void *pdy, void *pdx,
                                     int64_t c, double epsilon) {
    const REAL *restrict x = px, *restrict gamma = pgamma, *restrict dy = pdy;
    REAL *restrict dx = pdx;
    const row r = NAME(row_of)(x, c, epsilon);
    const REAL mean = (REAL)r.mean, inverse = (REAL)r.inverse;
    double sum = 0, product = 0;
    for (int64_t k = 0; k < c; k += BLOCK) {
        const int64_t n = k + BLOCK < c ? BLOCK : c - k;
        NAME(add_products)(x + k, gamma + k, dy + k, n, mean, &sum, &product);
    }
    const REAL m = (REAL)(sum / (double)c);
    const REAL p = (REAL)(product * r.inverse * r.inverse / (double)c);
#pragma omp simd
    for (int64_t j = 0; j < c; j++) dx[j] = inverse * (dy[j] * gamma[j] - m - (x[j] - mean) * p);
}

/* Adds columns first .. end - 1 of SHORT rows at most. */
static inline __attribute__((always_inline)) void
NAME(reduce_columns)(const REAL *restrict x, const REAL *restrict dy, const row *r, int64_t rows,
                     int64_t c, int64_t first, int width, double *restrict sums) {
    REAL s[TILE] = {0}, p[TILE] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const REAL mean = (REAL)r[i].mean, inverse = (REAL)r[i].inverse;
        const REAL *a = x + i * c + first, *b = dy + i * c + first;
#pragma omp simd
        for (int j = 0; j < width; j++) {
            s[j] += b[j];
            p[j] += b[j] * ((a[j] - mean) * inverse);
        }
    }
    for (int j = 0; j < width; j++) {
        sums[first + j] += (double)s[j];
        sums[c + first + j] += (double)p[j];
    }
}

/* Adds the rows' dy and dy * xhat to sums {2, c}. */
MG_CLONES static void NAME(reduce_rows)(const void *px, const void *pdy, int64_t rows, int64_t c,
                                        double epsilon, double *restrict sums) {
    const REAL *x = px, *dy = pdy;
    row r[SHORT];
    for (int64_t i = 0; i < rows; i += SHORT) {
        const int64_t n = rows - i < SHORT ? rows - i : SHORT;
        int64_t first = 0;
        for (int64_t k = 0; k < n; k++) r[k] = NAME(row_of)(x + (i + k) * c, c, epsilon);
        for (; first + TILE <= c; first += TILE)
            NAME(reduce_columns)(x + i * c, dy + i * c, r, n, c, first, TILE, sums);
        if (first < c) NAME(reduce_columns)
        (x + i * c, dy + i * c, r, n, c, first, (int)(c - first), sums);
    }
}
