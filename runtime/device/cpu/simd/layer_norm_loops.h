/* Layer norms of rows, for one type: see reals.c.
 *
 * Each op computes mean and standard deviation of the rows again, in one pass: sums of d = x -
 * shift and of d * d. The shift is near the mean, so that little is lost when the square of the
 * mean of d is subtracted. Sums over NORM_BLOCK numbers are made in REAL, in several vectors side
 * by side, and then added up in double.
 *
 * A few rows take each pass together, while they are in the L1 cache, so that the processor begins
 * with the next row while it still joins the sums of the last. xhat = (x - mean) / deviation is one
 * multiplication and addition: x * scale + off. */

#ifndef NORM_BLOCK
#define NORM_BLOCK 1024 /* numbers that are summed in REAL */
#endif

/* The vector at p[j]. */
#define AT(p, j) (*(NAME(vec) *)(uintptr_t)((p) + (j)))

typedef REAL NAME(half) __attribute__((vector_size(32)));
typedef REAL NAME(quarter) __attribute__((vector_size(16)));

/* ---- sums over rows ---- */

/* The sum of the elements of four vectors. Vectors are halved in registers until 16 bytes are left.
 * (By way of an array, the layer over rows of 256 took 1.25 times as long.) */
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

/* Sums over a row, or a part of it, where d = x - shift and g = dy * gamma. */
typedef struct NAME(row_sums) {
    double d, square;  /* of d and d * d */
    double g, product; /* of g and g * d */
} NAME(row_sums);

/* The mean of four of the n numbers at x: the shift. Its square distance from the mean is at most n
 * / 4 variances, which bounds the rounding error of the variance; for random numbers it is 1 / 4.
 */
MG_INLINE REAL NAME(rough_mean)(const REAL *x, int64_t n) {
    const int64_t step = n / 4;
    return ((x[0] + x[step]) + (x[2 * step] + x[3 * step])) * (REAL)0.25;
}

/* Adds `width` vectors to the partial sums of d, d * d, g and g * d, in this order. Without
 * `products` only the first two, and numbers that lie `ahead` are prefetched: memory would be idle
 * while the rows are read from the L1 cache. (With products there are no free slots for that.) */
MG_INLINE void NAME(add_vectors)(const REAL *x, const REAL *gamma, const REAL *dy, bool products,
                                 int width, REAL shift, int64_t ahead, NAME(vec) sums[4][4]) {
    enum { LINE = MG_LINE / sizeof(REAL) };
    UNROLL for (int k = 0; k < width; k++) {
        const NAME(vec) d = AT(x, k * VEC) - shift;
        sums[0][k] += d;
        sums[1][k] = NAME(mg_fma_vec)(d, d, sums[1][k]);
        if (!products && k * VEC % LINE == 0) __builtin_prefetch(x + ahead + k * VEC);
        if (!products) continue;
        const NAME(vec) g = AT(dy, k * VEC) * AT(gamma, k * VEC);
        sums[2][k] += g;
        sums[3][k] = NAME(mg_fma_vec)(g, d, sums[3][k]);
    }
}

/* The sums over NORM_BLOCK numbers at most; those of g and g * d only with `products`. */
MG_INLINE NAME(row_sums)
    NAME(sums_of_block)(const REAL *restrict x, const REAL *restrict gamma, const REAL *restrict dy,
                        bool products, int64_t n, REAL shift, int64_t ahead) {
    const int width = products ? 2 : 4; /* vectors side by side: eight chains of additions */
    NAME(vec) sums[4][4] = {{{0}}};
    REAL rest[4] = {0};
    int64_t j = 0;
    for (; j + width * VEC <= n; j += width * VEC)
        NAME(add_vectors)(x + j, gamma + j, dy + j, products, width, shift, ahead, sums);
    for (; j + VEC <= n; j += VEC)
        NAME(add_vectors)(x + j, gamma + j, dy + j, products, 1, shift, ahead, sums);
    for (; j < n; j++) {
        const REAL d = x[j] - shift, g = products ? dy[j] * gamma[j] : 0;
        rest[0] += d, rest[1] = NAME(mg_fma)(d, d, rest[1]);
        rest[2] += g, rest[3] = NAME(mg_fma)(g, d, rest[3]);
    }
    NAME(row_sums)
    s = {.d = NAME(join)(sums[0]) + (double)rest[0],
         .square = NAME(join)(sums[1]) + (double)rest[1]};
    if (products) s.g = NAME(join)(sums[2]) + (double)rest[2];
    if (products) s.product = NAME(join)(sums[3]) + (double)rest[3];
    return s;
}

/* The sums of n rows, and their shifts. Each block of a row has its own shift; its sums are
 * converted to the shift of the row's first block. */
MG_INLINE void NAME(sums_of)(const REAL *x, const REAL *gamma, const REAL *dy, bool products,
                             int64_t n, int64_t c, NAME(row_sums) *restrict sums,
                             double *restrict shift) {
    for (int64_t i = 0; i < n; i++) {
        NAME(row_sums) s = {0};
        for (int64_t k = 0; k < c; k += NORM_BLOCK) {
            const int64_t len = c - k < NORM_BLOCK ? c - k : NORM_BLOCK, at = i * c + k;
            const REAL here = NAME(rough_mean)(x + at, len);
            const NAME(row_sums) b =
                NAME(sums_of_block)(x + at, gamma + k, dy + at, products, len, here, n * c);
            if (k == 0) shift[i] = (double)here;
            const double by = (double)here - shift[i];
            s.d += b.d + (double)len * by;
            s.square += b.square + (2 * b.d + (double)len * by) * by;
            s.g += b.g;
            s.product += b.product + by * b.g;
        }
        sums[i] = s;
    }
}

/* Mean and 1 / deviation of n rows. */
MG_INLINE void NAME(moments_of)(const NAME(row_sums) *restrict sums, const double *restrict shift,
                                int64_t n, int64_t c, double epsilon, double *restrict mean,
                                double *restrict inverse) {
    const double part = 1 / (double)c;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const double d = sums[i].d * part, variance = sums[i].square * part - d * d;
        mean[i] = shift[i] + d;
        inverse[i] = 1 / sqrt((variance > 0 ? variance : 0) + epsilon);
    }
}

/* ---- layer_norm ---- */

/* y = (x - mean) / deviation * gamma + beta. */
static void NAME(normalise_rows)(const void *px, const void *pgamma, const void *pbeta, void *py,
                                 int64_t n, int64_t c, double epsilon) {
    const REAL *restrict gamma = pgamma, *restrict beta = pbeta;
    double mean[MG_NORM_ROWS], inverse[MG_NORM_ROWS], shift[MG_NORM_ROWS];
    NAME(row_sums) sums[MG_NORM_ROWS];
    NAME(sums_of)(px, px, px, false, n, c, sums, shift);
    NAME(moments_of)(sums, shift, n, c, epsilon, mean, inverse);
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict x = (const REAL *)px + i * c, v = (REAL)inverse[i];
        const REAL off = (REAL)(-mean[i] * (double)v);
        REAL *restrict y = (REAL *)py + i * c;
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            y[j] = NAME(mg_fma)(NAME(mg_fma)(x[j], v, off), gamma[j], beta[j]);
    }
}

/* ---- gradients ---- */

/* The factors of one row: xhat = x * scale + off, dx = dy * gamma * scale + (xhat * slope +
 * level). */
typedef struct NAME(grad_factors) {
    REAL scale, off, slope, level;
} NAME(grad_factors);

/* The factors of n rows. dx = (g - mean(g) - xhat * mean(g * xhat)) / deviation, with g = dy *
 * gamma; slope and level are for dx only. */
MG_INLINE void NAME(factors_of)(const REAL *x, const REAL *gamma, const REAL *dy, bool with_dx,
                                int64_t n, int64_t c, double epsilon, NAME(grad_factors) * f) {
    const double part = 1 / (double)c;
    double mean[MG_NORM_ROWS], inverse[MG_NORM_ROWS], shift[MG_NORM_ROWS];
    NAME(row_sums) sums[MG_NORM_ROWS];
    NAME(sums_of)(x, gamma, dy, with_dx, n, c, sums, shift);
    NAME(moments_of)(sums, shift, n, c, epsilon, mean, inverse);
    for (int64_t i = 0; i < n; i++) {
        const double s = inverse[i], product = sums[i].product - (mean[i] - shift[i]) * sums[i].g;
        f[i] = (NAME(grad_factors)){.scale = (REAL)s,
                                    .off = (REAL)(-mean[i] * (double)(REAL)s),
                                    .slope = (REAL)(-s * s * product * part),
                                    .level = (REAL)(-s * sums[i].g * part)};
    }
}

/* The operands of the gradients of some rows. */
typedef struct NAME(grad_block) {
    const REAL *x, *gamma, *dy;
    REAL *dx;
    REAL *sums; /* {2, c}: of dy, and of dy * xhat */
    const NAME(grad_factors) * f;
    int64_t n, c; /* rows, and their length */
} NAME(grad_block);

/* Computes `width` vectors of each row, from column k on: dx and the sums, or one of them. */
MG_INLINE void NAME(grad_columns)(const NAME(grad_block) * b, int64_t k, int width, bool with_dx,
                                  bool with_sums) {
    NAME(vec) s[4], p[4];
    UNROLL for (int v = 0; with_sums && v < width; v++) {
        s[v] = AT(b->sums, k + v * VEC);
        p[v] = AT(b->sums, b->c + k + v * VEC);
    }
    for (int64_t i = 0; i < b->n; i++) {
        const NAME(grad_factors) f = b->f[i];
        const NAME(vec) scale = NAME(mg_splat)(f.scale), off = NAME(mg_splat)(f.off);
        const NAME(vec) slope = NAME(mg_splat)(f.slope), level = NAME(mg_splat)(f.level);
        UNROLL for (int v = 0; v < width; v++) {
            const int64_t at = i * b->c + k + v * VEC;
            const NAME(vec) d = AT(b->dy, at), xhat = NAME(mg_fma_vec)(AT(b->x, at), scale, off);
            if (with_sums) s[v] += d;
            if (with_sums) p[v] = NAME(mg_fma_vec)(d, xhat, p[v]);
            if (with_dx)
                AT(b->dx, at) = NAME(mg_fma_vec)(d * AT(b->gamma, k + v * VEC), scale,
                                                 NAME(mg_fma_vec)(xhat, slope, level));
        }
    }
    UNROLL for (int v = 0; with_sums && v < width; v++) {
        AT(b->sums, k + v * VEC) = s[v];
        AT(b->sums, b->c + k + v * VEC) = p[v];
    }
}

/* Computes all columns; those that fill no vector one by one. */
MG_INLINE void NAME(grad_rows)(const NAME(grad_block) * b, bool with_dx, bool with_sums) {
    enum { WIDTH = MG_REGISTERS >= 32 ? 4 : 2 }; /* vectors side by side */
    int64_t k = 0;
    for (; k + WIDTH * VEC <= b->c; k += WIDTH * VEC)
        NAME(grad_columns)(b, k, WIDTH, with_dx, with_sums);
    for (; k + VEC <= b->c; k += VEC) NAME(grad_columns)(b, k, 1, with_dx, with_sums);
    for (; k < b->c; k++)
        for (int64_t i = 0; i < b->n; i++) {
            const NAME(grad_factors) f = b->f[i];
            const REAL d = b->dy[i * b->c + k], x = b->x[i * b->c + k];
            const REAL xhat = NAME(mg_fma)(x, f.scale, f.off);
            REAL *product = b->sums + b->c + k;
            if (with_sums) b->sums[k] += d;
            if (with_sums) *product = NAME(mg_fma)(d, xhat, *product);
            if (with_dx)
                b->dx[i * b->c + k] =
                    NAME(mg_fma)(d * b->gamma[k], f.scale, NAME(mg_fma)(xhat, f.slope, f.level));
        }
}

/* Adds n partial sums to sums, and clears them. */
MG_INLINE void NAME(fold)(REAL *restrict partial, int64_t n, double *restrict sums) {
    for (int64_t j = 0; j < n; j++) sums[j] += (double)partial[j];
    memset(partial, 0, (size_t)n * sizeof *partial);
}

/* `few` rows at a time are read twice while they are in the L1 cache, the second time for dx and
 * for partial sums {2, c} in REAL, to which at most MG_NORM_ROWS rows are added. */
MG_INLINE void NAME(gradients_with)(const mg_layer_norm_rows *r, bool with_dx, bool with_sums) {
    const int64_t c = r->length;
    NAME(grad_factors) f[MG_NORM_ROWS];
    int64_t added = 0; /* rows in the partial sums */
    if (with_sums) memset(r->partial, 0, (size_t)(2 * c) * sizeof(REAL));
    for (int64_t i = 0; i < r->n; i += r->few) {
        const NAME(grad_block) b = {
            .x = (const REAL *)r->x + i * c,
            .gamma = with_dx ? r->gamma : r->x,
            .dy = (const REAL *)r->dy + i * c,
            .dx = with_dx ? (REAL *)r->dx + i * c : NULL,
            .sums = r->partial,
            .f = f,
            .n = r->n - i < r->few ? r->n - i : r->few,
            .c = c,
        };
        if (with_sums && added + b.n > MG_NORM_ROWS) {
            NAME(fold)(r->partial, 2 * c, r->sums);
            added = 0;
        }
        NAME(factors_of)(b.x, b.gamma, b.dy, with_dx, b.n, c, r->epsilon, f);
        NAME(grad_rows)(&b, with_dx, with_sums);
        added += b.n;
    }
    if (with_sums) NAME(fold)(r->partial, 2 * c, r->sums);
}

/* The loops are compiled for each of the three cases. */
static void NAME(gradients)(const mg_layer_norm_rows *r) {
    if (!r->sums)
        NAME(gradients_with)(r, true, false);
    else if (!r->dx)
        NAME(gradients_with)(r, false, true);
    else
        NAME(gradients_with)(r, true, true);
}

const mg_simd_layer_norm MG_ISA_NAME(NAME(mg_simd_layer_norm)) = {
    .normalise_rows = NAME(normalise_rows),
    .gradients = NAME(gradients),
};
#undef AT
