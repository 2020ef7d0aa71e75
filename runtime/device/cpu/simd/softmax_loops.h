/* Softmax and the cross-entropy of softmax, for one type: see reals.c.
 *
 * A row is read three times: for its maximum, for the sum of its exponentials and for the result,
 * mostly from the cache. Long sums are made in double. The maximum ignores NaN; the sum then makes
 * the whole row NaN. */

#ifndef ROW_BLOCK
#define SHORT_ROW 64   /* rows too short for vector maxima */
#define ROW_BLOCK 1024 /* numbers that are summed in REAL */
/* Adds `term`, for each i < n, to the double `total`. */
#define ROW_SUM(total, term)                                                                       \
    for (int64_t first = 0; first < n; first += ROW_BLOCK) {                                       \
        const int64_t end = first + ROW_BLOCK < n ? first + ROW_BLOCK : n;                         \
        REAL part = 0;                                                                             \
        _Pragma("omp simd reduction(+ : part)") for (int64_t i = first; i < end; i++) part +=      \
            term;                                                                                  \
        total += (double)part;                                                                     \
    }
#endif

/* The maximum of a row, or -INFINITY if it holds NaN only. */
MG_INLINE REAL NAME(row_largest)(const REAL *restrict x, int64_t n) {
    REAL largest = -INFINITY;
    if (n < SHORT_ROW) {
        for (int64_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    } else {
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    }
    return largest;
}

/* ---- softmax and log_softmax ---- */

static void NAME(softmax_row)(const void *src, void *dst, int64_t n, bool logarithm) {
    const REAL *restrict x = src;
    REAL *restrict y = dst;
    const REAL largest = NAME(row_largest)(x, n);
    double sum = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = EXP(x[i] - largest);
    ROW_SUM(sum, y[i])
    /* log softmax(x) = x - max - log(sum); the subtraction is in double, where it is exact enough
     */
    const double shift = logarithm ? log(sum) : 0;
    const REAL scale = (REAL)(1 / sum);
    if (logarithm) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (REAL)((double)(x[i] - largest) - shift);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = y[i] * scale;
    }
}

/* The same for `width` columns side by side. Sums are made in double throughout: there are few per
 * column. */
static void NAME(softmax_columns)(const void *src, void *dst, int64_t n, int64_t step, int width,
                                  bool logarithm) {
    const REAL *restrict x = src;
    REAL *restrict y = dst, largest[MG_TILE];
    double sum[MG_TILE];
    for (int j = 0; j < width; j++) largest[j] = -INFINITY, sum[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            largest[j] = x[i * step + j] > largest[j] ? x[i * step + j] : largest[j];
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int j = 0; j < width; j++) {
            const REAL e = EXP(x[i * step + j] - largest[j]);
            sum[j] += (double)e;
            y[i * step + j] = e;
        }
    }
    /* from here on sum holds log(sum) or 1 / sum, for the last pass */
    for (int j = 0; j < width; j++) sum[j] = logarithm ? log(sum[j]) : 1 / sum[j];
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int j = 0; j < width; j++) {
            const double d = (double)(x[i * step + j] - largest[j]);
            const double e = (double)y[i * step + j];
            y[i * step + j] = (REAL)(logarithm ? d - sum[j] : e * sum[j]);
        }
    }
}

/* dx = y * (dy - sum(dy * y)). */
static void NAME(softmax_grad_row)(const void *result, const void *slope, void *dst, int64_t n) {
    const REAL *restrict y = result, *restrict dy = slope;
    REAL *restrict dx = dst;
    double sum = 0;
    ROW_SUM(sum, dy[i] * y[i])
    const REAL s = (REAL)sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - s);
}

static void NAME(softmax_grad_columns)(const void *result, const void *slope, void *dst, int64_t n,
                                       int64_t step, int width) {
    const REAL *restrict y = result, *restrict dy = slope;
    REAL *restrict dx = dst;
    double sum[MG_TILE] = {0};
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int j = 0; j < width; j++) sum[j] += (double)(dy[i * step + j] * y[i * step + j]);
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int j = 0; j < width; j++)
            dx[i * step + j] = y[i * step + j] * (dy[i * step + j] - (REAL)sum[j]);
    }
}

const mg_simd_softmax MG_ISA_NAME(NAME(mg_simd_softmax)) = {
    .row = NAME(softmax_row),
    .grad_row = NAME(softmax_grad_row),
    .columns = NAME(softmax_columns),
    .grad_columns = NAME(softmax_grad_columns),
};

/* ---- cross-entropy of softmax ---- */

/* The sum of the exponentials of x - largest. */
MG_INLINE double NAME(exponentials)(const REAL *restrict x, int64_t n, REAL largest) {
    double sum = 0;
    ROW_SUM(sum, EXP(x[i] - largest))
    return sum;
}

/* -sum(t * log softmax(x)). */
static void NAME(cross_entropy)(const void *logits, const void *targets, int64_t n, void *loss) {
    const REAL *restrict x = logits, *restrict t = targets;
    const REAL largest = NAME(row_largest)(x, n);
    const double shift = log(NAME(exponentials)(x, n, largest));
    double total = 0;
    ROW_SUM(total, t[i] * (REAL)((double)(x[i] - largest) - shift))
    *(REAL *)loss = (REAL)-total;
}

/* dx = dy * (softmax(x) * sum(t) - t). */
static void NAME(cross_entropy_grad)(const void *logits, const void *targets, const void *slope,
                                     int64_t n, void *result) {
    const REAL *restrict x = logits, *restrict t = targets;
    REAL *restrict dx = result;
    const REAL dy = *(const REAL *)slope, largest = NAME(row_largest)(x, n);
    double sum = 0, total = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = EXP(x[i] - largest);
    ROW_SUM(sum, dx[i])
    ROW_SUM(total, t[i])
    /* softmax(x) times the sum of the targets, which need not be 1 */
    const REAL scale = (REAL)(total / sum);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = dy * (dx[i] * scale - t[i]);
}

/* The loss for a target that is 1 at `label` and 0 elsewhere: log(sum(exp(x - max))) - (x[label] -
 * max). */
static void NAME(label_cross_entropy)(const void *logits, int64_t label, int64_t n, void *loss) {
    const REAL *restrict x = logits;
    REAL *at = loss;
    *at = 0;
    if (label < 0 || label >= n) return;
    const REAL largest = NAME(row_largest)(x, n);
    *at = (REAL)(log(NAME(exponentials)(x, n, largest)) - (double)(x[label] - largest));
}

/* The gradient for such a target: dy * (softmax(x) - 1 at the label). A label outside the row gives
 * 0. */
static void NAME(label_cross_entropy_grad)(const void *logits, int64_t label, const void *slope,
                                           int64_t n, void *result) {
    const REAL *restrict x = logits;
    REAL *restrict dx = result;
    const REAL dy = *(const REAL *)slope, largest = NAME(row_largest)(x, n);
    const bool inside = label >= 0 && label < n;
    double sum = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = EXP(x[i] - largest);
    ROW_SUM(sum, dx[i])
    const REAL scale = (REAL)((double)inside / sum);
    /* the gradient at the label, before the loop below overwrites dx[label] */
    const REAL own = inside ? dy * (dx[label] * scale - 1) : 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = dy * (dx[i] * scale);
    if (inside) dx[label] = own;
}

const mg_simd_cross_entropy MG_ISA_NAME(NAME(mg_simd_cross_entropy)) = {
    .loss = NAME(cross_entropy),
    .grad = NAME(cross_entropy_grad),
    .label_loss = NAME(label_cross_entropy),
    .label_grad = NAME(label_cross_entropy_grad),
};
