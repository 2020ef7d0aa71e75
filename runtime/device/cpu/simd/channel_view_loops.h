/* Batch norm over the rows of a channel view (reduce/channel_view.h), for one type: see reals.c.
 * The table at the end has the reductions of fold_loops.h too.
 *
 * Sums are made in REAL over MG_FOLD_ROWS rows and then added up in double, as there. */

/* Per lane, a number near its values: the median of the first, middle and last row, so that one
 * outlier cannot spoil it; 0 if that is not finite. */
MG_INLINE void NAME(choose_shift)(const REAL *restrict x, int64_t rows, int64_t step, int width,
                                  REAL *restrict shift) {
    const REAL *middle = x + rows / 2 * step, *last = x + (rows - 1) * step;
#pragma omp simd
    for (int j = 0; j < width; j++) {
        const REAL a = x[j], b = middle[j], c = last[j];
        const REAL low = a < b ? a : b, high = a < b ? b : a;
        const REAL median = c < low ? low : c > high ? high : c;
        shift[j] = median - median == 0 ? median : 0;
    }
}

/* The mean of each lane, and the sum of squared distances from it. d = x - shift is summed, and
 * d * d. Four rows make one term of the sums, which shortens the chain of additions and the
 * rounding error. */
MG_INLINE void NAME(moments_lanes)(const REAL *restrict x, int64_t rows, int64_t step, int width,
                                   double *restrict mean, double *restrict square) {
    REAL k[MG_TILE], s[MG_TILE], q[MG_TILE];
    NAME(choose_shift)(x, rows, step, width, k);
    for (int j = 0; j < width; j++) mean[j] = square[j] = 0;
    for (int64_t first = 0; first < rows; first += MG_FOLD_ROWS) {
        const int64_t end = first + MG_FOLD_ROWS < rows ? first + MG_FOLD_ROWS : rows;
        int64_t r = first;
        for (int j = 0; j < width; j++) s[j] = q[j] = 0;
        for (; r + 4 <= end; r += 4) {
            const REAL *a = x + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                const REAL d = a[j] - k[j], e = a[j + step] - k[j];
                const REAL f = a[j + 2 * step] - k[j], g = a[j + 3 * step] - k[j];
                s[j] += (d + e) + (f + g);
                q[j] += NAME(mg_fma)(d, d, e * e) + NAME(mg_fma)(f, f, g * g);
            }
        }
        for (; r < end; r++) {
            const REAL *a = x + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                const REAL d = a[j] - k[j];
                s[j] += d;
                q[j] = NAME(mg_fma)(d, d, q[j]);
            }
        }
        /* MG_FOLD_ROWS rows are done: on in double */
        for (int j = 0; j < width; j++) mean[j] += (double)s[j], square[j] += (double)q[j];
    }
    const double inverse = 1 / (double)rows;
#pragma omp simd
    for (int j = 0; j < width; j++) {
        /* the mean is off the shift by d, and the squares are around the shift, not the mean */
        const double sum = mean[j], d = sum * inverse, around = square[j] - sum * d;
        mean[j] = (double)k[j] + d;
        square[j] = around < 0 ? 0 : around;
    }
}

/* Picks the loop for the width: full tiles, blocks, or any. */
static void NAME(moments)(const void *x, int64_t rows, int64_t step, int width, double *mean,
                          double *square) {
    if (width == MG_TILE)
        NAME(moments_lanes)(x, rows, step, MG_TILE, mean, square);
    else if (width == MG_LANES)
        NAME(moments_lanes)(x, rows, step, MG_LANES, mean, square);
    else
        NAME(moments_lanes)(x, rows, step, width, mean, square);
}

/* Adds dy to sum and dy * (x - mean) to product, lane by lane; two rows at a time. */
MG_INLINE void NAME(products_lanes)(const REAL *restrict x, const REAL *restrict dy, int64_t rows,
                                    int64_t step, int width, const double *restrict mean,
                                    double *restrict sum, double *restrict product) {
    REAL m[MG_TILE], s[MG_TILE], q[MG_TILE];
    for (int j = 0; j < width; j++) m[j] = (REAL)mean[j];
    for (int64_t first = 0; first < rows; first += MG_FOLD_ROWS) {
        const int64_t end = first + MG_FOLD_ROWS < rows ? first + MG_FOLD_ROWS : rows;
        int64_t r = first;
        for (int j = 0; j < width; j++) s[j] = q[j] = 0;
        for (; r + 2 <= end; r += 2) {
            const REAL *a = x + r * step, *b = dy + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                s[j] += b[j] + b[j + step];
                q[j] += NAME(mg_fma)(b[j], a[j] - m[j], b[j + step] * (a[j + step] - m[j]));
            }
        }
        if (r < end) {
            const REAL *a = x + r * step, *b = dy + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                s[j] += b[j];
                q[j] = NAME(mg_fma)(b[j], a[j] - m[j], q[j]);
            }
        }
        /* MG_FOLD_ROWS rows are done: on in double */
        for (int j = 0; j < width; j++) sum[j] += (double)s[j], product[j] += (double)q[j];
    }
}

/* Picks the loop for the width, as for the moments. */
static void NAME(products)(const void *x, const void *dy, int64_t rows, int64_t step, int width,
                           const double *mean, double *sum, double *product) {
    if (width == MG_TILE)
        NAME(products_lanes)(x, dy, rows, step, MG_TILE, mean, sum, product);
    else if (width == MG_LANES)
        NAME(products_lanes)(x, dy, rows, step, MG_LANES, mean, sum, product);
    else
        NAME(products_lanes)(x, dy, rows, step, width, mean, sum, product);
}

/* y = (x - mean) * scale + beta. The three factors are converted to REAL once per piece. */
MG_INLINE void NAME(normalise_lanes)(const REAL *restrict x, REAL *restrict y, int64_t rows,
                                     int64_t step, int width, const double *restrict mean,
                                     const double *restrict scale, const double *restrict beta) {
    REAL m[MG_TILE], s[MG_TILE], t[MG_TILE];
    for (int j = 0; j < width; j++) {
        m[j] = (REAL)mean[j];
        s[j] = (REAL)scale[j];
        t[j] = (REAL)beta[j];
    }
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int j = 0; j < width; j++)
            y[r * step + j] = NAME(mg_fma)(x[r * step + j] - m[j], s[j], t[j]);
    }
}

/* The same for full tiles, with stores past the caches: the address of y must be a multiple of
 * MG_VECTOR, and so must the distance of its rows in bytes. */
static void NAME(normalise_past_caches)(const void *from, void *to, int64_t rows, int64_t step,
                                        const double *mean, const double *scale,
                                        const double *beta) {
    const REAL *x = from;
    REAL *y = to;
    REAL m[MG_TILE], s[MG_TILE], t[MG_TILE];
    for (int j = 0; j < MG_TILE; j++) {
        m[j] = (REAL)mean[j];
        s[j] = (REAL)scale[j];
        t[j] = (REAL)beta[j];
    }
    for (int64_t r = 0; r < rows; r++, x += step, y += step)
        for (int j = 0; j < MG_TILE; j += VEC) {
            const NAME(vec) d = VECTOR_AT(x + j) - VECTOR_AT(m + j);
            const NAME(vec) v = NAME(mg_fma_vec)(d, VECTOR_AT(s + j), VECTOR_AT(t + j));
            MG_STREAM((void *)(y + j), (mg_floats)v);
        }
}

/* Picks the loop for the width, or the one that stores past the caches. */
static void NAME(normalise)(const void *x, void *y, int64_t rows, int64_t step, int width,
                            const double *mean, const double *scale, const double *beta,
                            bool past_caches) {
    const bool aligned = ((uintptr_t)y | (uintptr_t)step * sizeof(REAL)) % MG_VECTOR == 0;
    if (past_caches && width == MG_TILE && aligned)
        NAME(normalise_past_caches)(x, y, rows, step, mean, scale, beta);
    else if (width == MG_TILE)
        NAME(normalise_lanes)(x, y, rows, step, MG_TILE, mean, scale, beta);
    else if (width == MG_LANES)
        NAME(normalise_lanes)(x, y, rows, step, MG_LANES, mean, scale, beta);
    else
        NAME(normalise_lanes)(x, y, rows, step, width, mean, scale, beta);
}

/* Whether all elements are finite: x - x is 0, but NaN for infinities and NaN. */
static bool NAME(finite)(const void *elements, int64_t n) {
    const REAL *x = elements;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) bad |= x[i] - x[i] != 0;
    return !bad;
}

/* y[j] = the sum of the n runs' elements j. The callers keep n so small that sums in double would
 * not help. */
static void NAME(sum_runs)(const void *elements, const int64_t *offset, int n, int64_t run,
                           void *result) {
    const REAL *x = elements;
    REAL *y = result;
    int64_t j = 0;
    for (; j + 4 * VEC <= run; j += 4 * VEC) {
        NAME(vec) s[4] = {0};
        for (int k = 0; k < n; k++)
            for (int i = 0; i < 4; i++)
                s[i] += *(const NAME(vec) *)(const void *)(x + offset[k] + j + i * VEC);
        for (int i = 0; i < 4; i++) *(NAME(vec) *)(void *)(y + j + i * VEC) = s[i];
    }
    for (; j < run; j++) {
        REAL s = 0;
        for (int k = 0; k < n; k++) s += x[offset[k] + j];
        y[j] = s;
    }
}

const mg_simd_folds MG_ISA_NAME(NAME(mg_simd_folds)) = {
    FOLD_TABLE,
    .moments = NAME(moments),
    .products = NAME(products),
    .normalise = NAME(normalise),
    .sum_runs = NAME(sum_runs),
    .finite = NAME(finite),
};
