/* Layer norms of rows, for one type: see reals.c.
 *
 * Sums over NORM_BLOCK numbers are made in the type itself, four vectors side by side, and then
 * added up in double; the variance is that of x - mean. Each op computes mean and deviation of the
 * rows again. xhat = (x - mean) / deviation is one multiplication and addition: x * scale + off. */

#ifndef NORM_BLOCK
#define NORM_BLOCK 1024 /* numbers summed in the type itself */
#endif

/* The vector at p[j]. */
#define AT(p, j) (*(NAME(vec) *)(uintptr_t)((p) + (j)))

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

/* As add_block with mean as the shift, and adds the sums of dy gamma and of dy gamma (x - mean). */
MG_INLINE void NAME(add_products)(const REAL *restrict x, const REAL *restrict gamma,
                                  const REAL *restrict dy, int64_t n, REAL mean,
                                  double sums[4][MG_NORM_ROWS], int64_t row) {
    enum { SIDE = 2 }; /* vectors side by side: with the products, as many chains as add_block */
    NAME(vec) s[4][4] = {{{0}}};
    int64_t j = 0;
    for (; j + SIDE * VEC <= n; j += SIDE * VEC)
        for (int k = 0; k < SIDE; k++) {
            const int64_t at = j + k * VEC;
            const NAME(vec) d = AT(x, at) - mean, v = AT(dy, at) * AT(gamma, at);
            s[0][k] += d;
            s[1][k] += d * d;
            s[2][k] += v;
            s[3][k] += v * d;
        }
    REAL rest[4] = {0};
    for (; j < n; j++) {
        const REAL d = x[j] - mean, v = dy[j] * gamma[j];
        rest[0] += d;
        rest[1] += d * d;
        rest[2] += v;
        rest[3] += v * d;
    }
    for (int k = 0; k < 4; k++) sums[k][row] += NAME(join)(s[k]) + (double)rest[k];
}

/* 1 / deviation of n rows from their sums of squares around the mean. `off` holds the sums of
 * x - mean, which rounding has left different from 0; they correct the variances. */
MG_INLINE void NAME(inverses_of)(const double *restrict square, const double *restrict off,
                                 int64_t n, int64_t c, double epsilon, double *restrict inverse) {
    const double part = 1 / (double)c;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const double d = off[i] * part, variance = square[i] * part - d * d;
        inverse[i] = 1 / sqrt((variance > 0 ? variance : 0) + epsilon);
    }
}

/* Prefetches a row that will be read or written soon. The passes over a few rows are short, and
 * most of them find the rows in the first-level cache; memory would be idle meanwhile. Measured:
 * the forward pass and the sums over rows gain 5 to 10 %, grad_rows loses as much with AVX-512. */
MG_INLINE void NAME(fetch)(const REAL *row, int64_t c) {
    for (int64_t k = 0; k < c; k += (int64_t)(64 / sizeof(REAL))) __builtin_prefetch(row + k);
}

/* The means of n rows; prefetches the same rows of `other`, unless it is NULL. */
MG_INLINE void NAME(means_of)(const REAL *restrict x, int64_t n, int64_t c, REAL *restrict mean,
                              const REAL *other) {
    const double part = 1 / (double)c;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, unused = 0;
        if (other) NAME(fetch)(other + i * c, c);
        for (int64_t k = 0; k < c; k += NORM_BLOCK) NAME(add_block)
        (x + i * c + k, k + NORM_BLOCK < c ? NORM_BLOCK : c - k, 0, &sum, &unused);
        mean[i] = (REAL)(sum * part);
    }
}

/* Mean and 1 / deviation of n rows: one pass for the mean, one for the squares around it. The rows
 * take each pass together, so that the processor goes on with the next row while it still joins the
 * sums of the last. */
MG_INLINE void NAME(moments_of)(const REAL *restrict x, int64_t n, int64_t c, double epsilon,
                                REAL *restrict mean, double *restrict inverse, const REAL *other) {
    double off[MG_NORM_ROWS], square[MG_NORM_ROWS];
    NAME(means_of)(x, n, c, mean, other);
    for (int64_t i = 0; i < n; i++) {
        NAME(fetch)(x + (i + n) * c, c);
        off[i] = square[i] = 0;
        for (int64_t k = 0; k < c; k += NORM_BLOCK) NAME(add_block)
        (x + i * c + k, k + NORM_BLOCK < c ? NORM_BLOCK : c - k, mean[i], &off[i], &square[i]);
    }
    NAME(inverses_of)(square, off, n, c, epsilon, inverse);
}

/* y = (x - mean) / deviation * gamma + beta. */
static void NAME(normalise_rows)(const void *px, const void *pgamma, const void *pbeta, void *py,
                                 int64_t n, int64_t c, double epsilon) {
    const REAL *restrict gamma = pgamma, *restrict beta = pbeta;
    REAL mean[MG_NORM_ROWS];
    double inverse[MG_NORM_ROWS];
    NAME(moments_of)(px, n, c, epsilon, mean, inverse, py);
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict x = (const REAL *)px + i * c, v = (REAL)inverse[i];
        const REAL off = (REAL)(-(double)mean[i] * (double)v);
        REAL *restrict y = (REAL *)py + i * c;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) y[j] = (x[j] * v + off) * gamma[j] + beta[j];
    }
}

/* dx = (g - mean(g) - xhat * mean(g * xhat)) / deviation, with g = dy * gamma. */
static void NAME(grad_rows)(const void *px, const void *pgamma, const void *pdy, void *pdx,
                            int64_t n, int64_t c, double epsilon) {
    const REAL *restrict gamma = pgamma;
    const double part = 1 / (double)c;
    REAL mean[MG_NORM_ROWS];
    /* sums of x - mean, its square, g, and g (x - mean) */
    double sums[4][MG_NORM_ROWS], inverse[MG_NORM_ROWS];
    NAME(means_of)(px, n, c, mean, NULL);
    for (int64_t i = 0; i < n; i++) {
        const REAL *x = (const REAL *)px + i * c, *dy = (const REAL *)pdy + i * c;
        for (int k = 0; k < 4; k++) sums[k][i] = 0;
        for (int64_t k = 0; k < c; k += NORM_BLOCK) NAME(add_products)
        (x + k, gamma + k, dy + k, k + NORM_BLOCK < c ? NORM_BLOCK : c - k, mean[i], sums, i);
    }
    NAME(inverses_of)(sums[1], sums[0], n, c, epsilon, inverse);
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict x = (const REAL *)px + i * c, *restrict dy = (const REAL *)pdy + i * c;
        REAL *restrict dx = (REAL *)pdx + i * c;
        const double d = inverse[i];
        const REAL v = (REAL)d, p = (REAL)(d * d * d * sums[3][i] * part);
        const REAL off = (REAL)((double)mean[i] * (double)p - d * sums[2][i] * part);
#pragma omp simd
        for (int64_t j = 0; j < c; j++) dx[j] = dy[j] * gamma[j] * v + (off - x[j] * p);
    }
}

/* Adds n rows' dy and dy * xhat to sums {2, c}, where xhat = x * scale + off. */
MG_INLINE void NAME(add_columns)(const REAL *restrict x, const REAL *restrict dy, const REAL *scale,
                                 const REAL *off, int64_t n, int64_t c, REAL *restrict sums) {
    enum { SIDE = 4 }; /* vectors side by side */
    int64_t k = 0;
    for (; k + SIDE * VEC <= c; k += SIDE * VEC) {
        NAME(vec) s[SIDE], p[SIDE];
        for (int v = 0; v < SIDE; v++) {
            s[v] = AT(sums, k + v * VEC);
            p[v] = AT(sums, c + k + v * VEC);
        }
        for (int64_t i = 0; i < n; i++)
            for (int v = 0; v < SIDE; v++) {
                const int64_t at = i * c + k + v * VEC;
                const NAME(vec) d = AT(dy, at);
                s[v] += d;
                p[v] += d * (AT(x, at) * scale[i] + off[i]);
            }
        for (int v = 0; v < SIDE; v++) {
            AT(sums, k + v * VEC) = s[v];
            AT(sums, c + k + v * VEC) = p[v];
        }
    }
    for (; k < c; k++)
        for (int64_t i = 0; i < n; i++) {
            const REAL d = dy[i * c + k];
            sums[k] += d;
            sums[c + k] += d * (x[i * c + k] * scale[i] + off[i]);
        }
}

/* Adds n partial sums to sums, and clears them. */
MG_INLINE void NAME(fold)(REAL *restrict partial, int64_t n, double *restrict sums) {
    for (int64_t j = 0; j < n; j++) sums[j] += (double)partial[j];
    memset(partial, 0, (size_t)n * sizeof *partial);
}

/* Adds the rows' dy and dy * xhat to sums {2, c}. `few` rows are read twice while they are in the
 * first-level cache, the second time into partial sums {2, c} of the type itself, which at most
 * MG_NORM_ROWS rows share. */
static void NAME(reduce_rows)(const void *px, const void *pdy, int64_t rows, int64_t few, int64_t c,
                              double epsilon, void *ppartial, double *restrict sums) {
    REAL mean[MG_NORM_ROWS], scale[MG_NORM_ROWS], off[MG_NORM_ROWS], *partial = ppartial;
    double inverse[MG_NORM_ROWS];
    int64_t added = 0; /* rows in the partial sums */
    memset(partial, 0, (size_t)(2 * c) * sizeof *partial);
    for (int64_t i = 0; i < rows; i += few) {
        const int64_t n = rows - i < few ? rows - i : few;
        const REAL *x = (const REAL *)px + i * c, *dy = (const REAL *)pdy + i * c;
        if (added + n > MG_NORM_ROWS) {
            NAME(fold)(partial, 2 * c, sums);
            added = 0;
        }
        NAME(moments_of)(x, n, c, epsilon, mean, inverse, dy);
        for (int64_t r = 0; r < n; r++) {
            scale[r] = (REAL)inverse[r];
            off[r] = (REAL)(-(double)mean[r] * (double)scale[r]);
        }
        NAME(add_columns)(x, dy, scale, off, n, c, partial);
        added += n;
    }
    NAME(fold)(partial, 2 * c, sums);
}

const mg_simd_layer_norm MG_ISA_NAME(NAME(mg_simd_layer_norm)) = {
    .normalise_rows = NAME(normalise_rows),
    .grad_rows = NAME(grad_rows),
    .reduce_rows = NAME(reduce_rows),
};
#undef AT
