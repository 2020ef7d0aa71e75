/* Reductions over the rows of a channel view (reduce/channel_view.h), for one type: see reals.c.
 *
 * Sums are made in REAL over MG_FOLD_ROWS rows, four rows at a time, and then added up in double,
 * so that the error stays that of a few roundings however many rows there are. Products are made in
 * double throughout, because they soon leave float32's range. The loops are compiled for full
 * tiles, for blocks of 16 lanes and for any width: a width that the compiler knows makes faster
 * loops. */

/* Defines a reduction over `rows` rows of `width` lanes, and one over a run of elements. `type` is
 * the type of partial results; step4 and step1 say how four elements p, q, t and u, or one, join
 * the partial result s[j]. */
#define FOLD(name, type, start, step4, step1)                                                      \
    MG_INLINE void NAME(name##_lanes)(const REAL *restrict x, int64_t rows, int64_t step,          \
                                      int width, double *restrict result) {                        \
        for (int64_t first = 0; first < rows; first += MG_FOLD_ROWS) {                             \
            const int64_t end = first + MG_FOLD_ROWS < rows ? first + MG_FOLD_ROWS : rows;         \
            type s[MG_TILE];                                                                       \
            int64_t r = first;                                                                     \
            for (int j = 0; j < width; j++) s[j] = start;                                          \
            for (; r + 4 <= end; r += 4) {                                                         \
                const REAL *a = x + r * step;                                                      \
                _Pragma("omp simd") for (int j = 0; j < width; j++) {                              \
                    const REAL p = a[j], q = a[j + step], t = a[j + 2 * step];                     \
                    const REAL u = a[j + 3 * step];                                                \
                    s[j] = step4;                                                                  \
                }                                                                                  \
            }                                                                                      \
            for (; r < end; r++) {                                                                 \
                const REAL *a = x + r * step;                                                      \
                _Pragma("omp simd") for (int j = 0; j < width; j++) {                              \
                    const REAL p = a[j];                                                           \
                    s[j] = step1;                                                                  \
                }                                                                                  \
            }                                                                                      \
            for (int j = 0; j < width; j++) result[j] = name##_of(result[j], (double)s[j]);        \
        }                                                                                          \
    }                                                                                              \
    static void NAME(name)(const void *x, int64_t rows, int64_t step, int width, double *result) { \
        if (width == MG_TILE)                                                                      \
            NAME(name##_lanes)(x, rows, step, MG_TILE, result);                                    \
        else if (width == MG_LANES)                                                                \
            NAME(name##_lanes)(x, rows, step, MG_LANES, result);                                   \
        else                                                                                       \
            NAME(name##_lanes)(x, rows, step, width, result);                                      \
    }                                                                                              \
    static double NAME(run_##name)(const void *run, int64_t n) {                                   \
        const REAL *x = run;                                                                       \
        double lanes[MG_TILE], result = (double)(start);                                           \
        const int64_t rows = n / MG_TILE;                                                          \
        if (rows) {                                                                                \
            for (int j = 0; j < MG_TILE; j++) lanes[j] = (double)(start);                          \
            NAME(name##_lanes)(x, rows, MG_TILE, MG_TILE, lanes);                                  \
            for (int half = MG_TILE / 2; half > 0; half /= 2)                                      \
                for (int j = 0; j < half; j++) lanes[j] = name##_of(lanes[j], lanes[j + half]);    \
            result = lanes[0];                                                                     \
        }                                                                                          \
        for (int64_t i = rows * MG_TILE; i < n; i++) result = name##_of(result, (double)x[i]);     \
        return result;                                                                             \
    }

/* ---- reductions ---- */

/* The larger of two numbers, or NaN if either is NaN: two selects, which compilers vectorise. */
static inline REAL NAME(max2)(REAL a, REAL b) {
    const REAL larger = b > a ? b : a;
    return b != b ? b : larger;
}
static inline REAL NAME(min2)(REAL a, REAL b) {
    const REAL smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
/* Partial sums, maxima and minima are kept in REAL. Any and all are 0 or 1, and are computed
 * without branches. */
FOLD(sum, REAL, 0, s[j] + ((p + q) + (t + u)), s[j] + p)
FOLD(prod, double, 1, s[j] * (((double)p * (double)q) * ((double)t * (double)u)), s[j] * (double)p)
FOLD(max, REAL, (REAL)-INFINITY, NAME(max2)(NAME(max2)(s[j], NAME(max2)(p, q)), NAME(max2)(t, u)),
     NAME(max2)(s[j], p))
FOLD(min, REAL, (REAL)INFINITY, NAME(min2)(NAME(min2)(s[j], NAME(min2)(p, q)), NAME(min2)(t, u)),
     NAME(min2)(s[j], p))
FOLD(any, REAL, 0, (s[j] != 0) | (p != 0) | (q != 0) | (t != 0) | (u != 0), (s[j] != 0) | (p != 0))
FOLD(all, REAL, 1, (s[j] != 0) & (p != 0) & (q != 0) & (t != 0) & (u != 0), (s[j] != 0) & (p != 0))
#undef FOLD

/* ---- batch norm ---- */

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

/* The index of the first maximum, or with sign -1 of the first minimum; NaN wins over every
 * number. */
static void NAME(largest)(const void *elements, int32_t *at, int64_t n, int64_t step, int sign) {
    const REAL *x = elements, s = (REAL)sign;
    REAL top = s * x[0];
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        const REAL now = s * x[i * step];
        if (now > top || (now != now && top == top)) best = i, top = now;
    }
    *at = (int32_t)best;
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

/* Running sums, in double. */
static void NAME(cumsum)(const void *elements, void *result, int64_t n, int64_t step,
                         int64_t width) {
    const REAL *x = elements;
    REAL *y = result;
    double sum[MG_TILE] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            y[i * step + j] = (REAL)(sum[j] += (double)x[i * step + j]);
}

/* A row of the table: the op's name and its functions. */
#define REDUCTION(id, start)                                                                       \
    { #id, start, id##_of, NAME(id), NAME(run_##id) }
const mg_simd_folds MG_ISA_NAME(NAME(mg_simd_folds)) = {
    .reductions = {REDUCTION(sum, 0), REDUCTION(prod, 1), REDUCTION(max, -INFINITY),
                   REDUCTION(min, INFINITY), REDUCTION(any, 0), REDUCTION(all, 1)},
    .moments = NAME(moments),
    .products = NAME(products),
    .normalise = NAME(normalise),
    .sum_runs = NAME(sum_runs),
    .finite = NAME(finite),
    .cumsum = NAME(cumsum),
    .largest = NAME(largest),
    .size = sizeof(REAL),
};
#undef REDUCTION
