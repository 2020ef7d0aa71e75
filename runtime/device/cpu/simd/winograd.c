/* Winograd convolution F(4x4, 3x3) in float32: the transforms, and the products between
 * them.
 *
 * An image is cut into 6x6 tiles that overlap by two, one for each 4x4 tile of the result. With
 *     V = B'xB of an image tile, U = GwG' of a filter, D = AyA' of a tile of the result's gradient
 * each pass is 36 matrix products, one for every element of a transformed tile:
 *     result              M = V U, summed over channels     y = A'MA
 *     filters' gradient   dU = V'D, summed over tiles       dw = G'(dU)G
 * and the image's gradient is a result whose image is dy and whose filters are rotated (Lavin and
 * Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). winograd_lines.h has the
 * transforms of single lines. */
#include "device/cpu/simd/winograd.h"
#include "device/cpu/simd/winograd_lines.h"
#include <string.h>

/* A tile of sums, a row of the second operand and one broadcast factor fill the registers: 6 x 2
 * sums of 16 registers, 14 x 2 of 32. */
enum { STRIP = 2 * LANES, TILE_ROWS = MG_REGISTERS >= 32 ? 14 : 6 };

/* The first n lanes, zeros in the others; n may be 0 or more than there are lanes. */
MG_INLINE vec load_lanes(const float *p, int64_t n) {
    vec v = {0};
    if (n >= LANES) return load(p);
    if (n > 0) memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

MG_INLINE void store_lanes(float *p, vec v, int64_t n) {
    if (n >= LANES)
        store(p, v);
    else if (n > 0)
        memcpy(p, &v, (size_t)n * sizeof *p);
}

/* ---- one line of the filters' tiles; results lie `step` vectors apart ---- */

/* G: three weights to six elements. */
MG_INLINE void filter_line(const vec w[3], vec *u, int step) {
    const vec a = OVER_A * w[0] + (OVER_A * A2) * w[2], b = (OVER_A * A) * w[1];
    const vec c = OVER_B * w[0] + (OVER_B * B2) * w[2], d = (OVER_B * B) * w[1];
    u[0] = OVER_0 * w[0];
    u[1 * step] = a + b;
    u[2 * step] = a - b;
    u[3 * step] = c + d;
    u[4 * step] = c - d;
    u[5 * step] = w[2];
}

/* G': six elements to the gradients of three weights. */
MG_INLINE void filter_gradient_line(const vec u[6], vec *w, int step) {
    const vec a = u[1] + u[2], b = u[1] - u[2], c = u[3] + u[4], d = u[3] - u[4];
    w[0] = OVER_0 * u[0] + OVER_A * a + OVER_B * c;
    w[1 * step] = (OVER_A * A) * b + (OVER_B * B) * d;
    w[2 * step] = (OVER_A * A2) * a + (OVER_B * B2) * c + u[5];
}

/* ---- filters ---- */

/* A vector of filters of one channel: from w, k weights apart, to the 36 planes of u. */
static void transform_filter(const float *w, int64_t c, int64_t k, int64_t lanes, float *u,
                             int64_t plane) {
    vec t[6][3], in[3], out[6];
    for (int x = 0; x < 3; x++) {
        for (int y = 0; y < 3; y++) in[y] = load_lanes(w + (y * 3 + x) * c * k, lanes);
        filter_line(in, &t[0][x], 3);
    }
    for (int y = 0; y < 6; y++) {
        filter_line(t[y], out, 1);
        for (int x = 0; x < 6; x++) store(u + (y * 6 + x) * plane, out[x]);
    }
}

static void transform_filters(const float *w, int64_t c, int64_t k, float *u, int64_t plane,
                              int64_t first, int64_t end) {
    for (int64_t s = first; s < end; s++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t lane = 0; lane < STRIP; lane += LANES) {
                const int64_t column = s * STRIP + lane;
                transform_filter(w + i * k + column, c, k, k - column,
                                 u + (s * c + i) * STRIP + lane, plane);
            }
}

static void transform_filter_gradient(const float *du, int64_t plane, int64_t c, int64_t k,
                                      int64_t lanes, float *dw) {
    vec t[3][6], in[6], out[3];
    for (int x = 0; x < 6; x++) {
        for (int y = 0; y < 6; y++) in[y] = load(du + (y * 6 + x) * plane);
        filter_gradient_line(in, &t[0][x], 6);
    }
    for (int y = 0; y < 3; y++) {
        filter_gradient_line(t[y], out, 1);
        for (int x = 0; x < 3; x++) store_lanes(dw + (y * 3 + x) * c * k, out[x], lanes);
    }
}

static void transform_filter_gradients(const float *du, int64_t plane, int64_t c, int64_t k,
                                       float *dw, int64_t first, int64_t end) {
    for (int64_t s = first; s < end; s++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t lane = 0; lane < STRIP; lane += LANES) {
                const int64_t column = s * STRIP + lane;
                transform_filter_gradient(du + (s * c + i) * STRIP + lane, plane, c, k, k - column,
                                          dw + i * k + column);
            }
}

/* ---- tiles ---- */

typedef struct tile_place { /* of a tile, counted over all images: its image, row and column */
    int64_t image, row, column;
} tile_place;

MG_INLINE tile_place place_of(const mg_winograd_tiles *g, int64_t tile) {
    const int64_t row = tile / g->columns;
    return (tile_place){row / g->rows, row % g->rows, tile % g->columns};
}

/* A vector of channels of a 6x6 tile whose pixels are all inside the image. */
MG_INLINE void transform_inner_tile(const float *x, int64_t row, int64_t pixel, float *v,
                                    int64_t plane) {
    vec t[6][6], in[6], out[6];
    UNROLL for (int q = 0; q < 6; q++) {
        UNROLL for (int r = 0; r < 6; r++) {
            in[r] = load(x + r * row + q * pixel);
            if (q > 1) __builtin_prefetch(x + r * row + (q + 4) * pixel); /* of the next tile */
        }
        image_line(in, &t[0][q], 6);
    }
    UNROLL for (int r = 0; r < 6; r++) {
        image_line(t[r], out, 1);
        UNROLL for (int q = 0; q < 6; q++) store(v + (r * 6 + q) * plane, out[q]);
    }
}

/* Any tile: (y, x) is its first pixel, perhaps outside the image, where it is 0. */
static void transform_edge_tile(const mg_winograd_tiles *g, const float *image, int64_t y,
                                int64_t x, int64_t channel, float *v, int64_t plane) {
    vec t[6][6], in[6], out[6];
    for (int q = 0; q < 6; q++) {
        const bool column = x + q >= 0 && x + q < g->w;
        for (int r = 0; r < 6; r++) {
            const bool inside = column && y + r >= 0 && y + r < g->h;
            const int64_t at = inside ? ((y + r) * g->w + x + q) * g->c + channel : 0;
            in[r] = load_lanes(image + at, inside ? g->c - channel : 0);
        }
        image_line(in, &t[0][q], 6);
    }
    for (int r = 0; r < 6; r++) {
        image_line(t[r], out, 1);
        for (int q = 0; q < 6; q++) store(v + (r * 6 + q) * plane, out[q]);
    }
}

static void transform_images(const mg_winograd_tiles *g, const float *x, int64_t first, int64_t n,
                             float *v, int64_t plane, int64_t ld) {
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(g, first + i);
        const int64_t top = p.row * 4 - g->top, left = p.column * 4 - g->left;
        const float *image = x + p.image * g->h * g->w * g->c;
        const bool inner = top >= 0 && left >= 0 && top + 6 <= g->h && left + 6 <= g->w;
        for (int64_t c = 0; c < g->c; c += LANES)
            if (inner && c + LANES <= g->c)
                transform_inner_tile(image + (top * g->w + left) * g->c + c, g->w * g->c, g->c,
                                     v + i * ld + c, plane);
            else
                transform_edge_tile(g, image, top, left, c, v + i * ld + c, plane);
    }
}

/* A vector of channels of a 4x4 tile of gradients, `high` x `wide` pixels of it in the image. */
MG_INLINE void transform_gradient_tile(const mg_winograd_tiles *g, const float *dy, int64_t high,
                                       int64_t wide, int64_t lanes, float *d, int64_t plane) {
    vec t[6][4], in[4], out[6];
    for (int q = 0; q < 4; q++) {
        UNROLL for (int r = 0; r < 4; r++) in[r] =
            r < high && q < wide ? load_lanes(dy + (r * g->w + q) * g->c, lanes) : (vec){0};
        gradient_line_4(in, &t[0][q], 4);
    }
    for (int r = 0; r < 6; r++) {
        gradient_line_4(t[r], out, 1);
        UNROLL for (int q = 0; q < 6; q++) store(d + (r * 6 + q) * plane, out[q]);
    }
}

static void transform_gradients(const mg_winograd_tiles *g, const float *dy, int64_t first,
                                int64_t n, float *d, int64_t plane, int64_t tiles) {
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(g, first + i);
        const float *from = dy + ((p.image * g->h + p.row * 4) * g->w + p.column * 4) * g->c;
        const int64_t high = g->h - p.row * 4, wide = g->w - p.column * 4;
        for (int64_t c = 0, strip = 0; c < g->c; c += STRIP, strip++)
            for (int64_t lane = 0; lane < STRIP; lane += LANES) {
                const int64_t lanes = g->c - c - lane;
                const float *tile = lanes > 0 ? from + c + lane : from;
                float *to = d + (strip * tiles + i) * STRIP + lane;
                if (lanes < LANES)
                    transform_gradient_tile(g, tile, lanes > 0 ? high : 0, wide, lanes, to, plane);
                else if (high >= 4 && wide >= 4) /* most tiles */
                    transform_gradient_tile(g, tile, 4, 4, LANES, to, plane);
                else
                    transform_gradient_tile(g, tile, high, wide, LANES, to, plane);
            }
    }
}

typedef struct finish { /* what becomes of a result before it is written */
    vec bias;
    bool relu, past_caches;
} finish;

MG_INLINE void store_result(float *p, vec v, int64_t lanes, bool past_caches) {
    if (past_caches && lanes >= LANES && (uintptr_t)p % MG_VECTOR == 0)
        MG_STREAM(p, (mg_floats)v);
    else
        store_lanes(p, v, lanes);
}

/* A vector of channels of a 4x4 tile of results, `high` x `wide` pixels of it in the image. */
MG_INLINE void transform_result_tile(const float *m, int64_t plane, const mg_winograd_tiles *g,
                                     int64_t high, int64_t wide, int64_t lanes, finish f,
                                     float *y) {
    vec t[4][6], in[6], out[4];
    UNROLL for (int q = 0; q < 6; q++) {
        UNROLL for (int r = 0; r < 6; r++) in[r] = load(m + (r * 6 + q) * plane);
        result_line_4(in, &t[0][q], 6);
    }
    UNROLL for (int r = 0; r < 4; r++) {
        result_line_4(t[r], out, 1);
        UNROLL for (int q = 0; q < 4; q++) {
            vec z = out[q] + f.bias;
            if (f.relu) z = clamp(z);
            if (r < high && q < wide)
                store_result(y + (r * g->w + q) * g->c, z, lanes, f.past_caches);
        }
    }
}

static void transform_results(const mg_winograd_tiles *g, const float *m, int64_t plane,
                              int64_t tiles, float *y, int64_t first, int64_t n, const float *bias,
                              bool relu, bool past_caches) {
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(g, first + i);
        float *to = y + ((p.image * g->h + p.row * 4) * g->w + p.column * 4) * g->c;
        for (int64_t c = 0; c < g->c; c += LANES) {
            finish f = {.relu = relu, .past_caches = past_caches};
            if (bias) f.bias = load_lanes(bias + c, g->c - c);
            const float *from = m + (c / STRIP * tiles + i) * STRIP + c % STRIP;
            transform_result_tile(from, plane, g, g->h - p.row * 4, g->w - p.column * 4, g->c - c,
                                  f, to + c);
        }
    }
}

/* ---- the product ---- */

/* A tile: `rows` rows from `row` on. The first operand's factors are broadcast from where they lie.
 * ra and da are passed apart from p so that the one which is 1 is a constant for the compiler. */
MG_INLINE void multiply_tile(const mg_winograd_product *p, int64_t row, int64_t ra, int64_t da,
                             const int rows) {
    vec sum[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vec){0};
    const float *a = p->a + row * ra, *b = p->b;
    for (int64_t d = 0; d < p->depth; d++, b += STRIP) {
        const vec left = load(b), right = load(b + LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            sum[r][0] += a[r * ra + d * da] * left;
            sum[r][1] += a[r * ra + d * da] * right;
        }
    }
    float *c = p->c + row * STRIP;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < 2; v++) {
        float *to = c + r * STRIP + v * LANES;
        if (p->add) sum[r][v] += load(to);
        store(to, sum[r][v]);
    }
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (p->da == 1)                                                                            \
            multiply_tile(p, row, p->ra, 1, n);                                                    \
        else                                                                                       \
            multiply_tile(p, row, 1, p->da, n);                                                    \
        break;

/* Cuts the rows into tiles as even in height as can be: 8 rows are 4 + 4, not 6 + 2. */
static void multiply_rows(const mg_winograd_product *p, int64_t rows) {
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t i = 0, row = 0, n; i < tiles; i++, row += n) {
        n = (rows - row + tiles - i - 1) / (tiles - i);
        switch (n) {
            /* clang-format off */
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MG_REGISTERS >= 32
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#endif
            /* clang-format on */
        }
    }
}

#undef CASE

const mg_simd_winograd MG_ISA_NAME(mg_simd_winograd) = {
    .strip = STRIP,
    .multiply = multiply_rows,
    .filters = transform_filters,
    .filter_gradients = transform_filter_gradients,
    .images = transform_images,
    .gradients = transform_gradients,
    .results = transform_results};
