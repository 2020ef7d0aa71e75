/* Layer norms of rows, for one type: see reals.c.
 *
 * Sums over NORM_BLOCK numbers are made in the type itself, four vectors side by side, and then
 * added up in double; the variance is that of x - mean. */

#ifndef NORM_BLOCK
#define NORM_BLOCK 1024 /* numbers summed in the type itself */
#define NORM_ROWS 32    /* rows whose sums by column are made in the type itself */
#endif

typedef REAL NAME(half) __attribute__((vector_size(32)));
typedef REAL NAME(quarter) __attribute__((vector_size(16)));

/* The sum of the elements of four vectors. Vectors are halved in registers until 16 bytes are left
 * (by way of an array the layer over rows of 256 took 1.25 times as long). */
MG_INLINE double NAME(join)(const NAME(vec) * v) {
    const union {
        NAME(vec) all;
        NAME(half) half[MG_VECTOR >= 64 ? 2 : 1];
        NAME(quarter) quarter[2];
    } a = {(v[0] + v[1]) + (v[2] + v[3])};
#if MG_VECTOR >= 64
    const union {
        NAME(half) all;
        NAME(quarter) quarter[2];
    } b = {a.half[0] + a.half[1]};
    const NAME(quarter) c = b.quarter[0] + b.quarter[1];
#elif MG_VECTOR >= 32
    const NAME(quarter) c = a.quarter[0] + a.quarter[1];
#else
    const NAME(quarter) c = a.quarter[0];
#endif
    enum { N = 16 / sizeof(REAL) };
    return (double)(N == 2 ? c[0] + c[1] : (c[0] + c[N / 2]) + (c[1] + c[N - 1]));
}

/* Adds the sums of x - shift and of its square, over NORM_BLOCK numbers at most. Four vectors side
 * by side hide the latency of the additions; numbers beyond the last whole four are added one by
 * one. */
MG_INLINE void NAME(add_block)(const REAL *restrict x, int64_t n, REAL shift, double *sum,
                               double *square) {
    NAME(vec) s[4] = {0}, q[4] = {0};
    int64_t j = 0;
    for (; j + 4 * VEC <= n; j += 4 * VEC) {
        const NAME(vec) *at = (const NAME(vec) *)(const void *)(x + j);
        const NAME(vec) a = at[0] - shift, b = at[1] - shift, c = at[2] - shift, d = at[3] - shift;
        s[0] += a, s[1] += b, s[2] += c, s[3] += d;
        q[0] += a * a, q[1] += b * b, q[2] += c * c, q[3] += d * d;
    }
    /* numbers that do not fill four vectors */
    REAL rest = 0, rest_square = 0;
    for (; j < n; j++) {
        const REAL d = x[j] - shift;
        rest += d;
        rest_square += d * d;
    }
    *sum += NAME(join)(s) + (double)rest;
    *square += NAME(join)(q) + (double)rest_square;
}

/* Adds the sums of dy gamma and of dy gamma (x - mean), in the same way. */
MG_INLINE void NAME(add_products)(const REAL *restrict x, const REAL *restrict gamma,
                                  const REAL *restrict dy, int64_t n, REAL mean, double *sum,
                                  double *product) {
    NAME(vec) s[4] = {0}, p[4] = {0};
    int64_t j = 0;
    for (; j + 4 * VEC <= n; j += 4 * VEC)
        for (int k = 0; k < 4; k++) {
            const int64_t at = j + k * VEC;
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

/* Mean and 1 / deviation of a row: one pass for the mean, one for the squares around it. `off` is
 * the sum of x - mean, which rounding has left different from 0; it corrects the variance. */
MG_INLINE row_moments NAME(row_of)(const REAL *restrict x, int64_t c, double epsilon) {
    double sum = 0, off = 0, square = 0, unused = 0; /* off: what rounding took from the mean */
    for (int64_t first = 0; first < c; first += NORM_BLOCK) NAME(add_block)
    (x + first, first + NORM_BLOCK < c ? NORM_BLOCK : c - first, 0, &sum, &unused);
    const REAL mean = (REAL)(sum / (double)c);
    for (int64_t first = 0; first < c; first += NORM_BLOCK) NAME(add_block)
    (x + first, first + NORM_BLOCK < c ? NORM_BLOCK : c - first, mean, &off, &square);
    const double n = (double)c, variance = square / n - off / n * (off / n);
    return (row_moments){(double)mean, 1 / sqrt((variance > 0 ? variance : 0) + epsilon)};
}

/* y = (x - mean) / deviation * gamma + beta. */
static void NAME(normalise_row)(const void *px, const void *pgamma, const void *pbeta, void *py,
                                int64_t c, double epsilon) {
    const REAL *restrict x = px, *restrict gamma = pgamma, *restrict beta = pbeta;
    REAL *restrict y = py;
    const row_moments r = NAME(row_of)(x, c, epsilon);
    const REAL mean = (REAL)r.mean, inverse = (REAL)r.inverse;
#pragma omp simd
    for (int64_t j = 0; j < c; j++) y[j] = (x[j] - mean) * inverse * gamma[j] + beta[j];
}

/* dx = (g - mean(g) - xhat * mean(g * xhat)) / deviation, with g = dy * gamma. */
static void NAME(grad_row)(const void *px, const void *pgamma, const void *pdy, void *pdx,
                           int64_t c, double epsilon) {
    const REAL *restrict x = px, *restrict gamma = pgamma, *restrict dy = pdy;
    REAL *restrict dx = pdx;
    const row_moments r = NAME(row_of)(x, c, epsilon);
    const REAL mean = (REAL)r.mean, inverse = (REAL)r.inverse;
    double sum = 0, product = 0;
    for (int64_t k = 0; k < c; k += NORM_BLOCK) {
        const int64_t n = k + NORM_BLOCK < c ? NORM_BLOCK : c - k;
        NAME(add_products)(x + k, gamma + k, dy + k, n, mean, &sum, &product);
    }
    const REAL m = (REAL)(sum / (double)c);
    const REAL p = (REAL)(product * r.inverse * r.inverse / (double)c);
#pragma omp simd
    for (int64_t j = 0; j < c; j++) dx[j] = inverse * (dy[j] * gamma[j] - m - (x[j] - mean) * p);
}

/* Adds `width` columns, from `first` on, of at most NORM_ROWS rows. `sums` holds c sums of dy, then
 * c sums of dy * xhat. r holds the rows' means and deviations. */
MG_INLINE void NAME(reduce_columns)(const REAL *restrict x, const REAL *restrict dy,
                                    const row_moments *r, int64_t rows, int64_t c, int64_t first,
                                    int width, double *restrict sums) {
    REAL s[MG_TILE] = {0}, p[MG_TILE] = {0};
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

/* Adds the rows' dy and dy * xhat to sums {2, c}: NORM_ROWS rows at a time in the type itself, by
 * tiles of columns. */
static void NAME(reduce_rows)(const void *px, const void *pdy, int64_t rows, int64_t c,
                              double epsilon, double *restrict sums) {
    const REAL *x = px, *dy = pdy;
    row_moments r[NORM_ROWS];
    for (int64_t i = 0; i < rows; i += NORM_ROWS) {
        const int64_t n = rows - i < NORM_ROWS ? rows - i : NORM_ROWS;
        int64_t first = 0;
        for (int64_t k = 0; k < n; k++) r[k] = NAME(row_of)(x + (i + k) * c, c, epsilon);
        for (; first + MG_TILE <= c; first += MG_TILE)
            NAME(reduce_columns)(x + i * c, dy + i * c, r, n, c, first, MG_TILE, sums);
        if (first < c) NAME(reduce_columns)
        (x + i * c, dy + i * c, r, n, c, first, (int)(c - first), sums);
    }
}

const mg_simd_layer_norm MG_ISA_NAME(NAME(mg_simd_layer_norm)) = {
    .normalise_row = NAME(normalise_row),
    .grad_row = NAME(grad_row),
    .reduce_rows = NAME(reduce_rows),
};
