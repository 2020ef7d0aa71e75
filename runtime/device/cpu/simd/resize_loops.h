/* Loops over pixels of images, for one type: see reals.c. Images are resized along one axis and
 * then along the other (images/resize.c); transforms read up to four pixels around a point.
 * KNOWN_WIDTHS (pool_loops.h) are the numbers of channels for which the loops are compiled
 * separately. */

/* y[e] = the sum over k < n of weight[k] * x[k * row + e], for e < width. Two terms and four are
 * what images that become twice as large, and their gradients, have. */
MG_INLINE void NAME(blend)(const REAL *x, int64_t row, const REAL *weight, int64_t n, int64_t width,
                           REAL *restrict y) {
    if (n == 2) {
        const REAL a = weight[0], b = weight[1];
#pragma omp simd
        for (int64_t e = 0; e < width; e++) y[e] = a * x[e] + b * x[row + e];
        return;
    }
    if (n == 4) {
        const REAL a = weight[0], b = weight[1], c = weight[2], d = weight[3];
#pragma omp simd
        for (int64_t e = 0; e < width; e++)
            y[e] = a * x[e] + b * x[row + e] + (c * x[2 * row + e] + d * x[3 * row + e]);
        return;
    }
    const REAL first = n > 0 ? weight[0] : 0;
#pragma omp simd
    for (int64_t e = 0; e < width; e++) y[e] = n > 0 ? first * x[e] : 0;
    for (int64_t k = 1; k < n; k++) {
        const REAL w = weight[k], *restrict line = x + k * row;
#pragma omp simd
        for (int64_t e = 0; e < width; e++) y[e] += w * line[e];
    }
}

static void NAME(blend_rows)(const void *from, int64_t row, const void *weight, int64_t n,
                             int64_t width, void *to) {
    NAME(blend)(from, row, weight, n, width, to);
}

/* Computes the pixels of a row, of c channels each, from another row; see mg_taps. */
MG_INLINE void NAME(blend_pixels)(const mg_taps *taps, const REAL *x, REAL *y, int64_t c) {
    for (int64_t p = 0; p < taps->n; p++) {
        const REAL *weight = (const REAL *)taps->weight + p * taps->most;
        NAME(blend)(x + taps->first[p] * c, c, weight, taps->count[p], c, y + p * c);
    }
}

static void NAME(blend_columns)(const mg_taps *taps, const void *from, int64_t c, void *to) {
    switch (c) {
#define CASE(n)                                                                                    \
    case n: NAME(blend_pixels)(taps, from, to, n); break;
        KNOWN_WIDTHS(CASE)
#undef CASE
    default: NAME(blend_pixels)(taps, from, to, c); break;
    }
}

/* ---- transforms ---- */

/* Computes n pixels, each from up to 2 x 2 pixels of the image, which has `width` pixels in a
 * row. */
MG_INLINE void NAME(read_pixels)(const mg_sample *s, int64_t n, const REAL *image, int64_t width,
                                 REAL fill, REAL *y, int64_t c) {
    for (int64_t p = 0; p < n; p++, s++, y += c) {
        const REAL *x = image + s->first * c;
        if (s->rows == 2 && s->columns == 2) {
            const REAL *below = x + width * c;
            const REAL a = (REAL)(s->row[0] * s->column[0]), b = (REAL)(s->row[0] * s->column[1]);
            const REAL d = (REAL)(s->row[1] * s->column[0]), e = (REAL)(s->row[1] * s->column[1]);
#pragma omp simd
            for (int64_t k = 0; k < c; k++)
                y[k] = a * x[k] + b * x[c + k] + (d * below[k] + e * below[c + k]);
            continue;
        }
        const REAL rest = s->outside > 0 ? (REAL)s->outside * fill : 0;
        for (int64_t k = 0; k < c; k++) y[k] = rest;
        for (int i = 0; i < s->rows; i++)
            for (int j = 0; j < s->columns; j++) {
                const REAL w = (REAL)(s->row[i] * s->column[j]);
                for (int64_t k = 0; k < c; k++) y[k] += w * x[(i * width + j) * c + k];
            }
    }
}

static void NAME(sample_row)(const mg_sample *s, int64_t n, const void *image, int64_t width,
                             int64_t c, double fill, void *out) {
    switch (c) {
#define CASE(known)                                                                                \
    case known: NAME(read_pixels)(s, n, image, width, (REAL)fill, out, known); break;
        KNOWN_WIDTHS(CASE)
#undef CASE
    default: NAME(read_pixels)(s, n, image, width, (REAL)fill, out, c); break;
    }
}

/* The transpose of sample_row without the fill value: adds dy to the pixels of dx from which it was
 * computed. */
static void NAME(spread_row)(const mg_sample *s, int64_t n, const void *slope, int64_t width,
                             int64_t c, void *image) {
    const REAL *dy = slope;
    for (int64_t p = 0; p < n; p++, s++, dy += c) {
        REAL *dx = (REAL *)image + s->first * c;
        for (int i = 0; i < s->rows; i++)
            for (int j = 0; j < s->columns; j++) {
                const REAL w = (REAL)(s->row[i] * s->column[j]);
#pragma omp simd
                for (int64_t k = 0; k < c; k++) dx[(i * width + j) * c + k] += w * dy[k];
            }
    }
}

const mg_simd_resize MG_ISA_NAME(NAME(mg_simd_resize)) = {
    .blend_rows = NAME(blend_rows),
    .blend_columns = NAME(blend_columns),
    .sample_row = NAME(sample_row),
    .spread_row = NAME(spread_row),
};
