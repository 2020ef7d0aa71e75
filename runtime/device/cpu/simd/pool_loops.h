/* Pooling loops, for one type: see reals.c.
 *
 * x and dx point at a plane (h x w pixels of `width` neighbouring channels each). In max_row and
 * avg_row, y is one row of the pooled plane; elsewhere y and dy are the whole pooled plane. */

#ifndef KNOWN_WIDTHS
enum { MAX_RUN = 64 }; /* channels of a window that are computed at a time */
/* Numbers of channels for which the loops over 2 x 2 windows are compiled separately, so that the
 * compiler fills vectors without tests. With 6 channels that made max pools three times as fast. */
#define KNOWN_WIDTHS(X) X(1) X(2) X(3) X(4) X(6) X(8) X(12) X(16)
#endif

/* The larger of two numbers, or NaN if either is NaN: two selects, which vectorise. */
static inline REAL NAME(larger)(REAL a, REAL b) {
    const REAL top = b > a ? b : a;
    return b != b ? b : top;
}

/* Whether v is the maximum m: equal, or both NaN. */
static inline int NAME(hits)(REAL v, REAL m) {
    return (v == m) | ((v != v) & (m != m));
}

/* A row of 2 x 2 windows with stride 2. */
MG_INLINE void NAME(max_pairs)(const mg_pool_plane *p, const REAL *restrict x, REAL *restrict y,
                               int64_t width) {
    const int64_t row = p->w * width;
    for (int64_t o = 0; o < p->ow; o++, x += 2 * width, y += width) {
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            const REAL a = x[c], b = x[c + width], d = x[c + row], e = x[c + row + width];
            y[c] = NAME(larger)(NAME(larger)(a, b), NAME(larger)(d, e));
        }
    }
}

/* One window; `rows` and `columns` are its pixels that lie inside the image. */
MG_INLINE void NAME(max_window)(const mg_pool_plane *p, const REAL *restrict x, REAL *restrict y,
                                const span *rows, const span *columns, int64_t width) {
    memcpy(y, x + (rows->low * p->w + columns->low) * width, (size_t)width * sizeof *y);
    for (int64_t i = rows->low; i < rows->high; i++)
        for (int64_t j = columns->low; j < columns->high; j++) {
            const REAL *cell = x + (i * p->w + j) * width;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) y[c] = NAME(larger)(y[c], cell[c]);
        }
}

/* One row of the pooled plane. */
static void NAME(max_row)(const mg_pool_plane *p, const void *image, void *pooled, int64_t oy) {
    const REAL *x = image;
    REAL *y = pooled;
    if (p->pairs) {
        x += 2 * oy * p->w * p->width;
        switch (p->width) {
#define CASE(n)                                                                                    \
    case n: NAME(max_pairs)(p, x, y, n); break;
            KNOWN_WIDTHS(CASE)
#undef CASE
        default: NAME(max_pairs)(p, x, y, p->width); break;
        }
    } else {
        const span rows = span_of(p, 0, oy);
        for (int64_t ox = 0; ox < p->ow; ox++) {
            const span columns = span_of(p, 1, ox);
            if (p->width == MG_LANES)
                NAME(max_window)(p, x, y + ox * MG_LANES, &rows, &columns, MG_LANES);
            else
                NAME(max_window)(p, x, y + ox * p->width, &rows, &columns, p->width);
        }
    }
}

/* One row of the pooled plane. The mean is over pixels inside the image: padding does not count. */
static void NAME(avg_row)(const mg_pool_plane *p, const void *image, void *pooled, int64_t oy) {
    const REAL *restrict x = image;
    const int64_t width = p->width;
    const span rows = span_of(p, 0, oy);
    for (int64_t ox = 0; ox < p->ow; ox++) {
        REAL *restrict y = (REAL *)pooled + ox * width;
        const span columns = span_of(p, 1, ox);
        const REAL count = (REAL)((rows.high - rows.low) * (columns.high - columns.low));
        memset(y, 0, (size_t)width * sizeof *y);
        for (int64_t i = rows.low; i < rows.high; i++)
            for (int64_t j = columns.low; j < columns.high; j++) {
                const REAL *cell = x + (i * p->w + j) * width;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) y[c] += cell[c];
            }
#pragma omp simd
        for (int64_t c = 0; c < width; c++) y[c] /= count;
    }
}

/* The two rows of dx under a row of 2 x 2 windows with stride 2. dx may be x: a window is read
 * before it is written. */
MG_INLINE void NAME(max_grad_pairs)(const mg_pool_plane *p, const REAL *x, const REAL *restrict y,
                                    const REAL *restrict dy, REAL *dx, int64_t width) {
    const int64_t row = p->w * width;
    for (int64_t o = 0; o < p->ow; o++) {
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            /* `left` is the slope until a cell has taken it, so only the first maximum gets it */
            const REAL m = y[c], zero = 0;
            REAL left = dy[c];
            const int a = NAME(hits)(x[c], m), b = NAME(hits)(x[c + width], m);
            const int d = NAME(hits)(x[c + row], m), e = NAME(hits)(x[c + row + width], m);
            dx[c] = a ? left : zero;
            left = a ? zero : left;
            dx[c + width] = b ? left : zero;
            left = b ? zero : left;
            dx[c + row] = d ? left : zero;
            left = d ? zero : left;
            dx[c + row + width] = e ? left : zero;
        }
        x += 2 * width, dx += 2 * width, y += width, dy += width;
    }
    /* an odd last column of the image belongs to no window */
    const size_t rest = (size_t)((p->w - 2 * p->ow) * width) * sizeof *dx;
    memset(dx, 0, rest);
    memset(dx + row, 0, rest);
}

/* The rows of dx under one row of windows; the last one also clears the rows of dx without a
 * window. */
static void NAME(max_grad_row)(const mg_pool_plane *p, const void *image, const void *pooled,
                               const void *slope, void *image_slope, int64_t oy) {
    const int64_t row = p->w * p->width, at = oy * p->ow * p->width;
    const REAL *x = (const REAL *)image + 2 * oy * row, *y = (const REAL *)pooled + at;
    const REAL *dy = (const REAL *)slope + at;
    REAL *dx = (REAL *)image_slope + 2 * oy * row;
    switch (p->width) {
#define CASE(n)                                                                                    \
    case n: NAME(max_grad_pairs)(p, x, y, dy, dx, n); break;
        KNOWN_WIDTHS(CASE)
#undef CASE
    default: NAME(max_grad_pairs)(p, x, y, dy, dx, p->width); break;
    }
    if (oy == p->oh - 1) memset(dx + 2 * row, 0, (size_t)((p->h - 2 * p->oh) * row) * sizeof *dx);
}

/* Clears rows of dx when the windows first reach them, just before they are added to. */
static inline void NAME(clear_rows)(const mg_pool_plane *p, REAL *dx, int64_t *clean, int64_t end) {
    const int64_t row = p->w * p->width;
    if (end <= *clean) return;
    memset(dx + *clean * row, 0, (size_t)((end - *clean) * row) * sizeof *dx);
    *clean = end;
}

/* One window's part of the channels: dy is added to the first pixel that equals y, if its row is
 * `first` or later. */
MG_INLINE void NAME(max_grad_window)(const mg_pool_plane *p, const REAL *restrict x,
                                     const REAL *restrict y, const REAL *restrict dy,
                                     REAL *restrict dx, const span *rows, const span *columns,
                                     int64_t first, int64_t n) {
    REAL left[MAX_RUN]; /* dy of each channel until the first maximum has taken it */
    memcpy(left, dy, (size_t)n * sizeof *left);
    for (int64_t i = rows->low; i < rows->high; i++)
        for (int64_t j = columns->low; j < columns->high; j++) {
            const int64_t at = (i * p->w + j) * p->width;
            if (i < first) {
#pragma omp simd
                for (int64_t c = 0; c < n; c++)
                    left[c] = NAME(hits)(x[at + c], y[c]) ? (REAL)0 : left[c];
                continue;
            }
#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                const int hit = NAME(hits)(x[at + c], y[c]);
                dx[at + c] += hit ? left[c] : (REAL)0;
                left[c] = hit ? (REAL)0 : left[c];
            }
        }
}

/* Windows of any size, which may overlap: dx is added to. */
static void NAME(max_grad_rows)(const mg_pool_plane *p, const void *image, const void *pooled,
                                const void *slope, void *image_slope, int64_t first, int64_t end) {
    const REAL *x = image;
    REAL *dx = image_slope;
    int64_t clean = first;
    for (int64_t oy = 0; oy < p->oh; oy++) {
        span rows = span_of(p, 0, oy);
        if (rows.high <= first || rows.low >= end) continue;
        if (rows.high > end) rows.high = end;
        NAME(clear_rows)(p, dx, &clean, rows.high);
        const int64_t row = oy * p->ow * p->width;
        const REAL *y = (const REAL *)pooled + row, *dy = (const REAL *)slope + row;
        for (int64_t ox = 0; ox < p->ow; ox++, y += p->width, dy += p->width) {
            const span columns = span_of(p, 1, ox);
            for (int64_t c = 0; c < p->width; c += MAX_RUN) {
                const int64_t n = p->width - c < MAX_RUN ? p->width - c : MAX_RUN;
                /* the width as a constant, so that the compiler keeps a window in registers */
                switch (n) {
                case MAX_RUN:
                    NAME(max_grad_window)
                    (p, x + c, y + c, dy + c, dx + c, &rows, &columns, first, MAX_RUN);
                    break;
                case MG_LANES:
                    NAME(max_grad_window)
                    (p, x + c, y + c, dy + c, dx + c, &rows, &columns, first, MG_LANES);
                    break;
                default:
                    NAME(max_grad_window)
                    (p, x + c, y + c, dy + c, dx + c, &rows, &columns, first, n);
                }
            }
        }
    }
    NAME(clear_rows)(p, dx, &clean, end);
}

/* Each pixel of a window gets the same share of dy. */
static void NAME(avg_grad_rows)(const mg_pool_plane *p, const void *slope, void *image_slope,
                                int64_t first, int64_t end) {
    REAL *restrict dx = image_slope;
    const int64_t width = p->width;
    int64_t clean = first;
    for (int64_t oy = 0; oy < p->oh; oy++) {
        const span rows = span_of(p, 0, oy);
        const int64_t low = rows.low < first ? first : rows.low;
        const int64_t high = rows.high > end ? end : rows.high;
        if (low >= high) continue;
        NAME(clear_rows)(p, dx, &clean, high);
        const REAL *restrict dy = (const REAL *)slope + oy * p->ow * width;
        for (int64_t ox = 0; ox < p->ow; ox++, dy += width) {
            const span columns = span_of(p, 1, ox);
            const REAL count = (REAL)((rows.high - rows.low) * (columns.high - columns.low));
            for (int64_t i = low; i < high; i++)
                for (int64_t j = columns.low; j < columns.high; j++) {
                    REAL *cell = dx + (i * p->w + j) * width;
#pragma omp simd
                    for (int64_t c = 0; c < width; c++) cell[c] += dy[c] / count;
                }
        }
    }
    NAME(clear_rows)(p, dx, &clean, end);
}

const mg_simd_pool MG_ISA_NAME(NAME(mg_simd_pool)) = {
    .max_row = NAME(max_row),
    .avg_row = NAME(avg_row),
    .max_grad_row = NAME(max_grad_row),
    .max_grad_rows = NAME(max_grad_rows),
    .avg_grad_rows = NAME(avg_grad_rows),
    .size = sizeof(REAL),
};
