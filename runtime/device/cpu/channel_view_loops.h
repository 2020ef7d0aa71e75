/* Inner loops over views, for one type: included with REAL and NAME(x) defined.
 *
 * Products, which leave float32's range soon, are made in double. Sums run over SHORT rows in REAL,
 * four rows at a time, then in double: the error stays that of a few roundings however many rows
 * there are. */

#define FOLD(name, type, start, step4, step1)                                                      \
    static inline __attribute__((always_inline)) void NAME(name##_lanes)(                          \
        const REAL *restrict x, int64_t rows, int64_t step, int width, double *restrict result) {  \
        for (int64_t first = 0; first < rows; first += SHORT) {                                    \
            const int64_t end = first + SHORT < rows ? first + SHORT : rows;                       \
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
    MG_CLONES static void NAME(name)(const void *x, int64_t rows, int64_t step, int width,         \
                                     double *result) {                                             \
        if (width == MG_TILE)                                                                      \
            NAME(name##_lanes)(x, rows, step, MG_TILE, result);                                    \
        else if (width == MG_LANES)                                                                \
            NAME(name##_lanes)(x, rows, step, MG_LANES, result);                                   \
        else                                                                                       \
            NAME(name##_lanes)(x, rows, step, width, result);                                      \
    }                                                                                              \
    MG_CLONES static double NAME(run_##name)(const void *run, int64_t n) {                         \
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

/* NaN wins, and stays; two selects, which compilers know how to vectorise. */
static inline REAL NAME(max2)(REAL a, REAL b) {
    const REAL larger = b > a ? b : a;
    return b != b ? b : larger;
}
static inline REAL NAME(min2)(REAL a, REAL b) {
    const REAL smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
FOLD(sum, REAL, 0, s[j] + ((p + q) + (t + u)), s[j] + p)
FOLD(prod, double, 1, s[j] * (((double)p * (double)q) * ((double)t * (double)u)), s[j] * (double)p)
FOLD(max, REAL, (REAL)-INFINITY, NAME(max2)(NAME(max2)(s[j], NAME(max2)(p, q)), NAME(max2)(t, u)),
     NAME(max2)(s[j], p))
FOLD(min, REAL, (REAL)INFINITY, NAME(min2)(NAME(min2)(s[j], NAME(min2)(p, q)), NAME(min2)(t, u)),
     NAME(min2)(s[j], p))
FOLD(any, REAL, 0, (s[j] != 0) | (p != 0) | (q != 0) | (t != 0) | (u != 0), (s[j] != 0) | (p != 0))
FOLD(all, REAL, 1, (s[j] != 0) & (p != 0) & (q != 0) & (t != 0) & (u != 0), (s[j] != 0) & (p != 0))
#undef FOLD

static inline __attribute__((always_inline)) void
NAME(moments_lanes)(const REAL *restrict x, int64_t rows, int64_t step, int width,
                    const double *restrict shift, double *restrict sum, double *restrict square) {
    REAL k[MG_TILE], s[MG_TILE], q[MG_TILE];
    for (int j = 0; j < width; j++) k[j] = (REAL)shift[j];
    for (int64_t first = 0; first < rows; first += SHORT) {
        const int64_t end = first + SHORT < rows ? first + SHORT : rows;
        int64_t r = first;
        for (int j = 0; j < width; j++) s[j] = q[j] = 0;
        for (; r + 4 <= end; r += 4) {
            const REAL *a = x + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                const REAL d = a[j] - k[j], e = a[j + step] - k[j];
                const REAL f = a[j + 2 * step] - k[j], g = a[j + 3 * step] - k[j];
                s[j] += (d + e) + (f + g);
                q[j] += (d * d + e * e) + (f * f + g * g);
            }
        }
        for (; r < end; r++) {
            const REAL *a = x + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                const REAL d = a[j] - k[j];
                s[j] += d;
                q[j] += d * d;
            }
        }
        for (int j = 0; j < width; j++) sum[j] += (double)s[j], square[j] += (double)q[j];
    }
}

MG_CLONES static void NAME(moments)(const void *x, int64_t rows, int64_t step, int width,
                                    const double *shift, double *sum, double *square) {
    if (width == MG_TILE)
        NAME(moments_lanes)(x, rows, step, MG_TILE, shift, sum, square);
    else if (width == MG_LANES)
        NAME(moments_lanes)(x, rows, step, MG_LANES, shift, sum, square);
    else
        NAME(moments_lanes)(x, rows, step, width, shift, sum, square);
}

static inline __attribute__((always_inline)) void
NAME(products_lanes)(const REAL *restrict x, const REAL *restrict dy, int64_t rows, int64_t step,
                     int width, const double *restrict mean, double *restrict sum,
                     double *restrict product) {
    REAL m[MG_TILE], s[MG_TILE], q[MG_TILE];
    for (int j = 0; j < width; j++) m[j] = (REAL)mean[j];
    for (int64_t first = 0; first < rows; first += SHORT) {
        const int64_t end = first + SHORT < rows ? first + SHORT : rows;
        int64_t r = first;
        for (int j = 0; j < width; j++) s[j] = q[j] = 0;
        for (; r + 2 <= end; r += 2) {
            const REAL *a = x + r * step, *b = dy + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                s[j] += b[j] + b[j + step];
                q[j] += b[j] * (a[j] - m[j]) + b[j + step] * (a[j + step] - m[j]);
            }
        }
        if (r < end) {
            const REAL *a = x + r * step, *b = dy + r * step;
#pragma omp simd
            for (int j = 0; j < width; j++) {
                s[j] += b[j];
                q[j] += b[j] * (a[j] - m[j]);
            }
        }
        for (int j = 0; j < width; j++) sum[j] += (double)s[j], product[j] += (double)q[j];
    }
}

MG_CLONES static void NAME(products)(const void *x, const void *dy, int64_t rows, int64_t step,
                                     int width, const double *mean, double *sum, double *product) {
    if (width == MG_TILE)
        NAME(products_lanes)(x, dy, rows, step, MG_TILE, mean, sum, product);
    else if (width == MG_LANES)
        NAME(products_lanes)(x, dy, rows, step, MG_LANES, mean, sum, product);
    else
        NAME(products_lanes)(x, dy, rows, step, width, mean, sum, product);
}

static inline __attribute__((always_inline)) void
NAME(normalise_lanes)(const REAL *restrict x, REAL *restrict y, int64_t rows, int64_t step,
                      int width, const double *restrict mean, const double *restrict scale,
                      const double *restrict beta) {
    REAL m[MG_TILE], s[MG_TILE], t[MG_TILE];
    for (int j = 0; j < width; j++) {
        m[j] = (REAL)mean[j];
        s[j] = (REAL)scale[j];
        t[j] = (REAL)beta[j];
    }
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int j = 0; j < width; j++) y[r * step + j] = (x[r * step + j] - m[j]) * s[j] + t[j];
    }
}

MG_CLONES static void NAME(normalise)(const void *x, void *y, int64_t rows, int64_t step, int width,
                                      const double *mean, const double *scale, const double *beta) {
    if (width == MG_TILE)
        NAME(normalise_lanes)(x, y, rows, step, MG_TILE, mean, scale, beta);
    else if (width == MG_LANES)
        NAME(normalise_lanes)(x, y, rows, step, MG_LANES, mean, scale, beta);
    else
        NAME(normalise_lanes)(x, y, rows, step, width, mean, scale, beta);
}

/* x - x is 0, or NaN if x is not finite. */
MG_CLONES static bool NAME(finite)(const void *elements, int64_t n) {
    const REAL *x = elements;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) bad |= x[i] - x[i] != 0;
    return !bad;
}

/* The first element that no later one beats, of n that lie `step` apart. */
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

#define REDUCTION(id, start)                                                                       \
    { #id, start, id##_of, NAME(id), NAME(run_##id) }
static const mg_folds NAME(folds) = {
    .reductions = {REDUCTION(sum, 0), REDUCTION(prod, 1), REDUCTION(max, -INFINITY),
                   REDUCTION(min, INFINITY), REDUCTION(any, 0), REDUCTION(all, 1)},
    .moments = NAME(moments),
    .products = NAME(products),
    .normalise = NAME(normalise),
    .finite = NAME(finite),
    .largest = NAME(largest),
    .size = sizeof(REAL),
};
#undef REDUCTION
