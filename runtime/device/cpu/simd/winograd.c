/* Winograd convolution of 3x3 filters in float32: the transforms, and the products between them.
 *
 * An image is cut into tiles that overlap by two, of 8x8, 6x6 or 4x4 pixels, or 8x4 and so on, for
 * 6x6, 4x4 or 2x2 results. With
 *     V = B'xB of an image tile, U = GwG' of a filter, D = AyA' of a tile of the result's gradient
 * each pass is one matrix product for every element of a transformed tile:
 *     result              M = V U, summed over channels     y = A'MA
 *     filters' gradient   dU = V'D, summed over tiles       dw = G'(dU)G
 * and the image's gradient is a result whose image is dy and whose filters are rotated (Lavin and
 * Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). winograd_nested.h has the
 * transforms of single lines. */
#include "device/cpu/simd/winograd.h"
#include "device/cpu/simd/winograd_nested.h"
#include <string.h>

/* A product's tile: 7 x 2 sums, as many totals, a row of the second operand and one broadcast
 * factor fill 32 registers. With 16, sums of 6 x 2 do, and totals lie in memory. */
enum {
    STRIP = 2 * LANES,
    TILE_ROWS = MG_REGISTERS >= 32 ? 7 : 6,
    CHAIN = 16, /* terms of a sum that is added to a total: longer sums lose more to rounding */
    MOST = 8    /* elements of a line */
};

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

MG_INLINE mg_winograd_planes planes_at(mg_winograd_planes p, int64_t offset) {
    p.at += offset;
    return p;
}

/* A row of a transformed tile: `wide` elements, a plane apart. */
MG_INLINE void store_row(float *row, int64_t plane, const vec *elements, const int wide) {
    UNROLL for (int x = 0; x < MOST; x++) if (x < wide) store(row + x * plane, elements[x]);
}

/* ---- filters ---- */

/* A vector of filters of one channel: from w, k weights apart, to u. */
MG_INLINE void transform_filter(const float *w, int64_t c, int64_t k, int64_t lanes,
                                mg_winograd_planes u, const int high, const int wide) {
    vec t[MOST][3], in[3], out[MOST] = {{0}};
    for (int x = 0; x < 3; x++) {
        for (int y = 0; y < 3; y++) in[y] = load_lanes(w + (y * 3 + x) * c * k, lanes);
        filter_line(high, in, &t[0][x], 3);
    }
    for (int y = 0; y < high; y++, u.at += wide * u.plane) {
        filter_line(wide, t[y], out, 1);
        store_row(u.at, u.plane, out, wide);
    }
}

static void transform_filters(const float *w, int64_t c, int64_t k, mg_winograd_planes u,
                              int64_t first, int64_t end) {
    for (int64_t s = first; s < end; s++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t lane = 0; lane < STRIP; lane += LANES) {
                const int64_t column = s * STRIP + lane, lanes = k - column;
                const float *from = w + i * k + column;
                const mg_winograd_planes to = planes_at(u, (s * c + i) * STRIP + lane);
                if (u.high == 8 && u.wide == 8)
                    transform_filter(from, c, k, lanes, to, 8, 8);
                else if (u.high == 6 && u.wide == 6)
                    transform_filter(from, c, k, lanes, to, 6, 6);
                else
                    transform_filter(from, c, k, lanes, to, u.high, u.wide);
            }
}

MG_INLINE void transform_filter_gradient(mg_winograd_planes du, int64_t c, int64_t k, int64_t lanes,
                                         float *dw, const int high, const int wide) {
    vec t[3][MOST], in[MOST], out[3];
    for (int x = 0; x < wide; x++) {
        for (int y = 0; y < high; y++) in[y] = load(du.at + (y * wide + x) * du.plane);
        filter_gradient_line(high, in, &t[0][x], MOST);
    }
    for (int y = 0; y < 3; y++) {
        filter_gradient_line(wide, t[y], out, 1);
        for (int x = 0; x < 3; x++) store_lanes(dw + (y * 3 + x) * c * k, out[x], lanes);
    }
}

static void transform_filter_gradients(mg_winograd_planes du, int64_t c, int64_t k, float *dw,
                                       int64_t first, int64_t end) {
    for (int64_t s = first; s < end; s++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t lane = 0; lane < STRIP; lane += LANES) {
                const int64_t column = s * STRIP + lane, lanes = k - column;
                const mg_winograd_planes from = planes_at(du, (s * c + i) * STRIP + lane);
                float *to = dw + i * k + column;
                if (du.high == 8 && du.wide == 8)
                    transform_filter_gradient(from, c, k, lanes, to, 8, 8);
                else if (du.high == 6 && du.wide == 6)
                    transform_filter_gradient(from, c, k, lanes, to, 6, 6);
                else
                    transform_filter_gradient(from, c, k, lanes, to, du.high, du.wide);
            }
}

/* ---- tiles ---- */

typedef struct tile_place { /* of a tile, counted over all images: its image and first result */
    int64_t image, y, x;
} tile_place;

MG_INLINE tile_place place_of(const mg_winograd_region *r, int64_t tile) {
    const int64_t row = tile / r->columns;
    return (tile_place){row / r->rows, r->y + row % r->rows * (r->high - 2),
                        r->x + tile % r->columns * (r->wide - 2)};
}

/* Where the pixels of a tile lie. */
typedef enum pixels {
    INSIDE, /* the image */
    PADDED, /* partly outside, where they are 0 */
    TAIL    /* perhaps outside, and the channels do not fill the vector */
} pixels;

/* Pixel (y, x), perhaps outside the image. */
MG_INLINE vec load_pixel(mg_winograd_image g, const float *image, int64_t y, int64_t x,
                         int64_t channel, const pixels where) {
    static const float zeros[LANES];
    const int64_t at = (y * g.w + x) * g.c + channel;
    if (where == INSIDE) return load(image + at);
    const bool inside = y >= 0 && y < g.h && x >= 0 && x < g.w;
    if (where == PADDED) return load(inside ? image + at : zeros);
    return load_lanes(inside ? image + at : zeros, inside ? g.c - channel : LANES);
}

/* A vector of channels of the high x wide pixels from (y, x) on. The next tile's lie `ahead` floats
 * further; two columns are the same if it is a neighbour. */
MG_INLINE void transform_image(mg_winograd_image g, const float *image, int64_t y, int64_t x,
                               int64_t channel, int64_t ahead, mg_winograd_planes v, const int high,
                               const int wide, const pixels where) {
    vec t[MOST][MOST], in[MOST] = {{0}}, out[MOST] = {{0}};
    const int known = ahead == (wide - 2) * g.c ? 2 : 0;
    for (int q = 0; q < wide; q++) {
        UNROLL for (int r = 0; r < MOST; r++) {
            if (r >= high) continue;
            in[r] = load_pixel(g, image, y + r, x + q, channel, where);
            if (q >= known)
                __builtin_prefetch(image + ((y + r) * g.w + x + q) * g.c + channel + ahead);
        }
        image_line(high, in, &t[0][q], MOST);
    }
    for (int r = 0; r < high; r++, v.at += v.wide * v.plane) {
        image_line(wide, t[r], out, 1);
        store_row(v.at, v.plane, out, wide);
    }
}

static void transform_images(const mg_winograd_image *g, const mg_winograd_region *r,
                             const float *images, int64_t first, int64_t n, mg_winograd_planes v,
                             int64_t ld) {
    const int high = r->high, wide = r->wide;
    const bool largest = high == MOST && wide == MOST;
    tile_place next = place_of(r, first);
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = next;
        next = place_of(r, first + i + 1);
        const int64_t y = p.y - g->top, x = p.x - g->left;
        const int64_t rows = (next.image - p.image) * g->h + next.y - p.y;
        const int64_t ahead = (rows * g->w + next.x - p.x) * g->c;
        const float *image = images + p.image * g->h * g->w * g->c;
        const bool inside = y >= 0 && x >= 0 && y + high <= g->h && x + wide <= g->w;
        for (int64_t c = 0; c < g->c; c += LANES) {
            const mg_winograd_planes to = planes_at(v, i * ld + c);
            if (c + LANES > g->c)
                transform_image(*g, image, y, x, c, ahead, to, high, wide, TAIL);
            else if (high == 6 && wide == 6)
                transform_image(*g, image, y, x, c, ahead, to, 6, 6, PADDED);
            else if (!largest)
                transform_image(*g, image, y, x, c, ahead, to, high, wide, PADDED);
            else if (inside)
                transform_image(*g, image, y, x, c, ahead, to, MOST, MOST, INSIDE);
            else
                transform_image(*g, image, y, x, c, ahead, to, MOST, MOST, PADDED);
        }
    }
}

typedef struct part { /* of a tile that lies in the image, and of a vector */
    int64_t rows, columns, lanes;
} part;

/* A vector of channels of a tile of gradients. `whole`: all of it is in the image. */
MG_INLINE void transform_gradient(mg_winograd_image g, const float *dy, part p,
                                  mg_winograd_planes d, const int high, const int wide,
                                  const bool whole) {
    vec t[MOST][MOST - 2], in[MOST - 2] = {{0}}, out[MOST] = {{0}};
    for (int q = 0; q < wide - 2; q++) {
        UNROLL for (int r = 0; r < MOST - 2; r++) {
            if (r >= high - 2) continue;
            const int64_t at = (r * g.w + q) * g.c;
            if (whole) __builtin_prefetch(dy + at + (wide - 2) * g.c); /* the next tile's */
            if (whole)
                in[r] = load(dy + at);
            else if (r < p.rows && q < p.columns)
                in[r] = load_lanes(dy + at, p.lanes);
            else
                in[r] = (vec){0};
        }
        gradient_line(high, in, &t[0][q], MOST - 2);
    }
    for (int r = 0; r < high; r++, d.at += d.wide * d.plane) {
        gradient_line(wide, t[r], out, 1);
        store_row(d.at, d.plane, out, wide);
    }
}

static void transform_gradients(const mg_winograd_image *g, const mg_winograd_region *r,
                                const float *dy, int64_t first, int64_t n, mg_winograd_planes d,
                                int64_t tiles) {
    const int high = r->high, wide = r->wide;
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        const float *from = dy + ((p.image * g->h + p.y) * g->w + p.x) * g->c;
        part of = {g->h - p.y, g->w - p.x, 0};
        const bool inside = of.rows >= high - 2 && of.columns >= wide - 2;
        for (int64_t lane = 0; lane < (g->c + STRIP - 1) / STRIP * STRIP; lane += LANES) {
            const mg_winograd_planes to =
                planes_at(d, (lane / STRIP * tiles + i) * STRIP + lane % STRIP);
            of.lanes = g->c - lane;
            if (of.lanes <= 0) of.rows = 0;
            if (!inside || of.lanes < LANES)
                transform_gradient(*g, from + lane, of, to, high, wide, false);
            else if (high == MOST && wide == MOST)
                transform_gradient(*g, from + lane, of, to, MOST, MOST, true);
            else if (high == 6 && wide == 6)
                transform_gradient(*g, from + lane, of, to, 6, 6, true);
            else
                transform_gradient(*g, from + lane, of, to, high, wide, true);
        }
    }
}

/* A vector of channels of a tile of results. */
MG_INLINE void transform_result(mg_winograd_planes m, mg_winograd_image g, part p, vec bias,
                                mg_winograd_finish f, float *y, const int high, const int wide) {
    const uintptr_t addresses = (uintptr_t)y | (uintptr_t)g.c * sizeof *y; /* of all pixels */
    const bool stream = f.past_caches && p.lanes >= LANES && addresses % MG_VECTOR == 0;
    vec t[MOST - 2][MOST], in[MOST] = {{0}}, out[MOST - 2] = {{0}};
    for (int q = 0; q < wide; q++) {
        UNROLL for (int r = 0; r < MOST; r++) if (r < high) in[r] =
            load(m.at + (r * m.wide + q) * m.plane);
        result_line(high, in, &t[0][q], MOST);
    }
    for (int r = 0; r < high - 2 && r < p.rows; r++) {
        result_line(wide, t[r], out, 1);
        UNROLL for (int q = 0; q < MOST - 2; q++) {
            if (q >= wide - 2 || q >= p.columns) continue;
            float *to = y + (r * g.w + q) * g.c;
            const vec sum = out[q] + bias, result = f.relu ? clamp(sum) : sum;
            if (stream)
                MG_STREAM(to, (mg_floats)result);
            else
                store_lanes(to, result, p.lanes);
        }
    }
}

static void transform_results(const mg_winograd_image *g, const mg_winograd_region *r,
                              mg_winograd_planes m, int64_t tiles, float *y, int64_t first,
                              int64_t n, const mg_winograd_finish *f) {
    const int high = r->high, wide = r->wide;
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        float *to = y + ((p.image * g->h + p.y) * g->w + p.x) * g->c;
        for (int64_t c = 0; c < g->c; c += LANES) {
            const part of = {g->h - p.y, g->w - p.x, g->c - c};
            const vec bias = f->bias ? load_lanes(f->bias + c, of.lanes) : (vec){0};
            const mg_winograd_planes from =
                planes_at(m, (c / STRIP * tiles + i) * STRIP + c % STRIP);
            if (high == MOST && wide == MOST)
                transform_result(from, *g, of, bias, *f, to + c, MOST, MOST);
            else if (high == 6 && wide == 6)
                transform_result(from, *g, of, bias, *f, to + c, 6, 6);
            else
                transform_result(from, *g, of, bias, *f, to + c, high, wide);
        }
    }
}

/* ---- the product ---- */

/* A tile: `rows` rows from `row` on. The first operand's factors are broadcast from where they lie.
 * ra and da are passed apart from p so that the one which is 1 is a constant for the compiler. */
MG_INLINE void multiply_tile(const mg_winograd_product *p, int64_t row, int64_t ra, int64_t da,
                             const int rows) {
    vec total[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) total[r][0] = total[r][1] = (vec){0};
    const float *a = p->a + row * ra, *b = p->b;
    for (int64_t d = 0; d < p->depth;) {
        const int64_t end = p->depth - d < CHAIN ? p->depth : d + CHAIN;
        vec sum[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vec){0};
        for (; d < end; d++, b += STRIP) {
            const vec left = load(b), right = load(b + LANES);
            UNROLL for (int r = 0; r < rows; r++) {
                sum[r][0] += a[r * ra + d * da] * left;
                sum[r][1] += a[r * ra + d * da] * right;
            }
        }
        UNROLL for (int r = 0; r < rows; r++) {
            total[r][0] += sum[r][0];
            total[r][1] += sum[r][1];
        }
    }
    float *c = p->c + row * STRIP;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < 2; v++) {
        float *to = c + r * STRIP + v * LANES;
        if (p->add) total[r][v] += load(to);
        store(to, total[r][v]);
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
            CASE(7)
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
