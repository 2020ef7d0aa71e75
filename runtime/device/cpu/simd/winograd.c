/* Winograd convolution in float32: the transforms. The products between them are those of
 * gemm_loops.h.
 *
 * An image is cut into tiles of 8x8, 6x6 or 4x4 pixels, or 8x4 and so on, that overlap by taps - 1
 * pixels: with 3x3 filters, for 6x6, 4x4 or 2x2 results. With
 *     V = B'xB of an image tile, U = GwG' of a filter, D = AyA' of a tile of the result's gradient
 * each pass is one matrix product for every element of a transformed tile:
 *     result              M = V U, summed over channels     y = A'MA
 *     filters' gradient   dU = V'D, summed over tiles       dw = G'(dU)G
 * and the image's gradient is a result whose image is dy and whose filters are rotated (Lavin and
 * Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). winograd_nested.h has the
 * transforms of single lines. */
#include "device/cpu/simd/simd.h"
#include "device/cpu/simd/winograd_gather.h"
#include "device/cpu/simd/winograd_nested.h"
#include <string.h>

enum {
    STRIP = 2 * LANES, /* columns of a strip, as in gemm_loops.h */
    MOST = MOST_WIDE,  /* elements of a line, at most */
    MOST_RESULTS = 7,  /* results of a line, with two taps */
    MOST_TAPS = 5,
    VECTORS = MG_VECTOR < MG_LINE ? 2 : 1 /* of results that are written together */
};

/* Calls f with sizes that are constants for the compiler where they are common. */
#define WITH_SIZES(f, taps, high, wide, ...)                                                       \
    do {                                                                                           \
        if (high != MOST || wide != MOST)                                                          \
            if (taps == 3 && high == 6 && wide == 6)                                               \
                f(3, 6, 6, __VA_ARGS__);                                                           \
            else                                                                                   \
                f(taps, high, wide, __VA_ARGS__);                                                  \
        else if (taps == 2)                                                                        \
            f(2, MOST, MOST, __VA_ARGS__);                                                         \
        else if (taps == 3)                                                                        \
            f(3, MOST, MOST, __VA_ARGS__);                                                         \
        else if (taps == 4)                                                                        \
            f(4, MOST, MOST, __VA_ARGS__);                                                         \
        else                                                                                       \
            f(5, MOST, MOST, __VA_ARGS__);                                                         \
    } while (0)

/* Loads the first n lanes, and zeros in the others; n may be 0 or more than there are lanes. */
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

/* Stores a row of a transformed tile: `wide` elements, a plane apart. */
MG_INLINE void store_row(float *row, int64_t plane, const vec *elements, const int wide) {
    UNROLL for (int x = 0; x < MOST; x++) if (x < wide) store(row + x * plane, elements[x]);
}

/* ---- filters ---- */

/* Transforms a vector of filters of one channel: from w, k weights apart, to u. */
MG_INLINE void transform_filter(const int taps, const int high, const int wide, const float *w,
                                const mg_winograd_filters *f, int64_t lanes, mg_winograd_planes u) {
    vec t[MOST][6], in[6] = {{0}}, out[MOST] = {{0}};
    for (int x = 0; x < taps; x++) {
        UNROLL for (int y = 0; y < MOST_TAPS; y++) if (y < taps) in[y] =
            load_lanes(w + (y * taps + x) * f->c * f->k, lanes);
        filter_line(taps, high, in, &t[0][x], 6);
    }
    for (int y = 0; y < high; y++, u.at += wide * u.plane) {
        filter_line(taps, wide, t[y], out, 1);
        store_row(u.at, u.plane, out, wide);
    }
}

static void transform_filters(const mg_winograd_filters *w, const float *from, mg_winograd_planes u,
                              int64_t strip, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++)
        for (int64_t lane = 0; lane < STRIP; lane += LANES) {
            const int64_t column = strip * STRIP + lane;
            WITH_SIZES(transform_filter, w->taps, u.high, u.wide, from + i * w->k + column, w,
                       w->k - column, planes_at(u, i * STRIP + lane));
        }
}

MG_INLINE void transform_filter_gradient(const int taps, const int high, const int wide,
                                         mg_winograd_planes du, const mg_winograd_filters *f,
                                         int64_t lanes, float *dw) {
    vec t[MOST_TAPS][MOST], in[MOST] = {{0}}, out[MOST_TAPS] = {{0}};
    for (int x = 0; x < wide; x++) {
        UNROLL for (int y = 0; y < MOST; y++) if (y < high) in[y] =
            load(du.at + (y * wide + x) * du.plane);
        filter_gradient_line(taps, high, in, &t[0][x], MOST);
    }
    for (int y = 0; y < taps; y++) {
        filter_gradient_line(taps, wide, t[y], out, 1);
        UNROLL for (int x = 0; x < MOST_TAPS; x++) if (x < taps)
            store_lanes(dw + (y * taps + x) * f->c * f->k, out[x], lanes);
    }
}

static void transform_filter_gradients(const mg_winograd_filters *w, mg_winograd_planes du,
                                       float *dw, int64_t strip, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++)
        for (int64_t lane = 0; lane < STRIP; lane += LANES) {
            const int64_t column = strip * STRIP + lane;
            WITH_SIZES(transform_filter_gradient, w->taps, du.high, du.wide,
                       planes_at(du, i * STRIP + lane), w, w->k - column, dw + i * w->k + column);
        }
}

/* ---- tiles ---- */

typedef struct tile_place { /* of a tile: its image, and its first result */
    int64_t image, y, x;
} tile_place;

MG_INLINE tile_place place_of(const mg_winograd_region *r, int64_t tile) {
    const int64_t row = tile / r->columns;
    return (tile_place){row / r->rows, r->y + row % r->rows * (r->high - r->taps + 1),
                        r->x + tile % r->columns * (r->wide - r->taps + 1)};
}

/* Where the pixels of a tile lie. */
typedef enum pixels {
    INSIDE, /* the image */
    PADDED, /* partly outside, where they are 0 */
    TAIL    /* perhaps outside, and the channels do not fill the vector */
} pixels;

/* A tile of an image: its first pixel, a vector of its channels, and the distance of the next tile
 * in floats, which is prefetched. */
typedef struct tile {
    const float *image;
    int64_t y, x, channel, ahead;
    int known; /* first columns of the next tile that this one has read */
} tile;

/* Loads pixel (y, x), which may lie outside the image. */
MG_INLINE vec load_pixel(mg_winograd_image g, const float *image, int64_t y, int64_t x,
                         int64_t channel, const pixels where) {
    static const float zeros[LANES];
    const int64_t at = (y * g.w + x) * g.c + channel;
    if (where == INSIDE) return load(image + at);
    const bool inside = y >= 0 && y < g.h && x >= 0 && x < g.w;
    if (where == PADDED) return load(inside ? image + at : zeros);
    return load_lanes(inside ? image + at : zeros, inside ? g.c - channel : LANES);
}

MG_INLINE void transform_image(mg_winograd_image g, tile i, mg_winograd_planes v, const int high,
                               const int wide, const int step, const pixels where) {
    vec t[MOST][MOST], in[MOST] = {{0}}, out[MOST] = {{0}};
    for (int q = 0; q < wide; q++) {
        UNROLL for (int r = 0; r < MOST; r++) {
            if (r >= high) continue;
            const int64_t y = i.y + r * step, x = i.x + q * step;
            in[r] = load_pixel(g, i.image, y, x, i.channel, where);
            if (q >= i.known)
                __builtin_prefetch(i.image + (y * g.w + x) * g.c + i.channel + i.ahead);
        }
        image_line(high, in, &t[0][q], MOST);
    }
    for (int r = 0; r < high; r++, v.at += v.wide * v.plane) {
        image_line(wide, t[r], out, 1);
        store_row(v.at, v.plane, out, wide);
    }
}

/* Transforms all channels of a tile, to rows of V that begin at `to`. */
MG_INLINE void transform_pixels(mg_winograd_image g, tile i, mg_winograd_planes to, const int high,
                                const int wide, const int step) {
    const bool largest = high == MOST && wide == MOST;
    const bool inside =
        i.y >= 0 && i.x >= 0 && i.y + (high - 1) * step < g.h && i.x + (wide - 1) * step < g.w;
    for (i.channel = 0; i.channel < g.c; i.channel += LANES, to.at += LANES)
        if (i.channel + LANES > g.c)
            transform_image(g, i, to, high, wide, step, TAIL);
        else if (high == 6 && wide == 6)
            transform_image(g, i, to, 6, 6, step, PADDED);
        else if (!largest)
            transform_image(g, i, to, high, wide, step, PADDED);
        else if (inside)
            transform_image(g, i, to, MOST, MOST, step, INSIDE);
        else
            transform_image(g, i, to, MOST, MOST, step, PADDED);
}

/* Two functions, for step 1 and step 2: with both in one, the loops take 3 % longer. */
static __attribute__((noinline)) void transform_neighbours(const mg_winograd_image *g,
                                                           const tile *i, mg_winograd_planes to,
                                                           int high, int wide) {
    transform_pixels(*g, *i, to, high, wide, 1);
}

static __attribute__((noinline)) void transform_every_second(const mg_winograd_image *g,
                                                             const tile *i, mg_winograd_planes to,
                                                             int high, int wide) {
    transform_pixels(*g, *i, to, high, wide, 2);
}

/* ---- gathered tiles ---- */

static int64_t whole_vectors(int64_t channels) {
    return (channels + LANES - 1) / LANES * LANES;
}

/* Image i. */
static const void *image_at(const mg_winograd_image *g, const void *images, int64_t i) {
    return (const char *)images + bytes_to(g, i * g->h * g->w * g->c);
}

/* Whether the grid points of a tile are gathered with the channels of their four pixels side by
 * side, because most lanes of a vector with the few channels of one pixel would be idle. */
static bool has_wide_points(const mg_winograd_image *g) {
    return g->step == 2 && g->c % LANES != 0 && 4 * g->c <= MOST_GATHERED;
}

static void transform_wide_points(const mg_winograd_image *g, const mg_winograd_region *r,
                                  const void *images, int64_t first, int64_t n,
                                  mg_winograd_planes v, int64_t ld) {
    mg_gathered buffer;
    const int64_t c = whole_vectors(4 * g->c);
    const mg_winograd_image gathered = {.h = r->high, .w = r->wide, .c = c, .step = 1};
    const tile whole = {.image = buffer, .known = MOST};
    memset(buffer, 0, (size_t)(r->high * r->wide * c) * sizeof *buffer);
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        for (int row = 0; row < r->high; row++)
            gather_points(g, image_at(g, images, p.image), (p.y + row) * 2 - g->top,
                          p.x * 2 - g->left, r->wide, c, buffer + row * r->wide * c);
        transform_neighbours(&gathered, &whole, planes_at(v, i * ld), r->high, r->wide);
    }
}

static void transform_halves(const mg_winograd_image *g, const mg_winograd_region *r,
                             const void *images, int64_t first, int64_t n, mg_winograd_planes v,
                             int64_t ld) {
    mg_gathered buffer;
    const tile whole = {.image = buffer, .known = MOST};
    mg_winograd_image gathered = {.h = r->high, .w = r->wide, .step = 1};
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        for (int64_t phase = 0; phase < g->step * g->step; phase++)
            for (int64_t c = 0; c < g->c; c += MOST_GATHERED) {
                const int64_t channels = g->c - c < MOST_GATHERED ? g->c - c : MOST_GATHERED;
                gathered.c = whole_vectors(channels);
                gather_pixels(g, image_at(g, images, p.image),
                              p.y * g->step + phase / g->step - g->top,
                              p.x * g->step + phase % g->step - g->left, r->high, r->wide, c,
                              channels, gathered.c, buffer);
                transform_neighbours(&gathered, &whole, planes_at(v, i * ld + phase * g->phase + c),
                                     r->high, r->wide);
            }
    }
}

static void transform_images(const mg_winograd_image *g, const mg_winograd_region *r,
                             const void *images, int64_t first, int64_t n, mg_winograd_planes v,
                             int64_t ld) {
    if (has_wide_points(g)) {
        transform_wide_points(g, r, images, first, n, v, ld);
        return;
    }
    if (g->dtype != MG_F32) {
        transform_halves(g, r, images, first, n, v, ld);
        return;
    }
    const int high = r->high, wide = r->wide, step = (int)g->step;
    tile_place next = place_of(r, first);
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = next;
        next = place_of(r, first + i + 1);
        const int64_t rows = (next.image - p.image) * g->h + (next.y - p.y) * step;
        tile from = {.image = image_at(g, images, p.image),
                     .ahead = (rows * g->w + (next.x - p.x) * step) * g->c};
        if (rows == 0) from.known = r->taps - 1;
        for (int64_t phase = 0; phase < step * step; phase++) {
            const mg_winograd_planes to = planes_at(v, i * ld + phase * g->phase);
            from.y = p.y * step + phase / step - g->top;
            from.x = p.x * step + phase % step - g->left;
            if (step == 1)
                transform_neighbours(g, &from, to, high, wide);
            else
                transform_every_second(g, &from, to, high, wide);
        }
    }
}

/* the part of a tile that lies in the image, and of a vector that has channels */
typedef struct part {
    int64_t rows, columns, lanes;
} part;

/* Transforms a vector of channels of a tile of gradients. `whole`: all of it is in the image. */
MG_INLINE void transform_gradient(const int taps, const int high, const int wide,
                                  mg_winograd_image g, const float *dy, part p,
                                  mg_winograd_planes d, const bool whole) {
    vec t[MOST][MOST], in[MOST] = {{0}}, out[MOST] = {{0}};
    const int rows = high - taps + 1, columns = wide - taps + 1;
    for (int q = 0; q < columns; q++) {
        UNROLL for (int r = 0; r < MOST_RESULTS; r++) {
            if (r >= rows) continue;
            const int64_t at = (r * g.w + q) * g.c;
            if (whole) __builtin_prefetch(dy + at + columns * g.c); /* the next tile's */
            if (whole)
                in[r] = load(dy + at);
            else if (r < p.rows && q < p.columns)
                in[r] = load_lanes(dy + at, p.lanes);
            else
                in[r] = (vec){0};
        }
        gradient_line(taps, high, in, &t[0][q], MOST);
    }
    for (int r = 0; r < high; r++, d.at += d.wide * d.plane) {
        gradient_line(taps, wide, t[r], out, 1);
        store_row(d.at, d.plane, out, wide);
    }
}

/* Transforms a tile of gradients from the first of its pixels on. */
MG_INLINE void transform_gradient_tile(const mg_winograd_image *g, const mg_winograd_region *r,
                                       const float *from, part of, int64_t lane,
                                       mg_winograd_planes to) {
    const int taps = r->taps, high = r->high, wide = r->wide;
    const bool inside = of.rows > high - taps && of.columns > wide - taps;
    of.lanes = g->c - lane;
    if (of.lanes <= 0) of.rows = 0;
    if (!inside || of.lanes < LANES)
        transform_gradient(taps, high, wide, *g, from + lane, of, to, false);
    else
        WITH_SIZES(transform_gradient, taps, high, wide, *g, from + lane, of, to, true);
}

static void transform_gradients(const mg_winograd_image *g, const mg_winograd_region *r,
                                const void *dy, int64_t first, int64_t n, mg_winograd_planes d,
                                int64_t tiles) {
    mg_gathered buffer;
    const int rows = r->high - r->taps + 1, columns = r->wide - r->taps + 1;
    const int64_t end = (g->c + STRIP - 1) / STRIP * STRIP;
    const int64_t run = g->dtype == MG_F32 ? end : MOST_GATHERED; /* channels at a time */
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        const void *image = image_at(g, dy, p.image);
        for (int64_t c = 0; c < end; c += run) {
            mg_winograd_image from = *g;
            const float *at = (const float *)image + (p.y * g->w + p.x) * g->c;
            part of = {g->h - p.y, g->w - p.x, 0};
            if (g->dtype != MG_F32) {
                from = (mg_winograd_image){
                    .h = rows, .w = columns, .c = end - c < run ? end - c : run};
                gather_pixels(g, image, p.y, p.x, rows, columns, c,
                              g->c - c < from.c ? g->c - c : from.c, from.c, buffer);
                at = buffer;
                of = (part){rows, columns, 0};
            }
            for (int64_t lane = 0; lane < run && c + lane < end; lane += LANES)
                transform_gradient_tile(
                    &from, r, at, of, lane,
                    planes_at(d, ((c + lane) / STRIP * tiles + i) * STRIP + lane % STRIP));
        }
    }
}

/* Transforms `vectors` vectors of channels of a tile of results, `apart` floats apart in M, and
 * writes them. Non-temporal stores fill whole cache lines at once: where they filled half lines, a
 * convolution with AVX2 of 26 MB to 26 MB took 1.3 times as long. */
MG_INLINE void transform_result(const int taps, const int high, const int wide, const int vectors,
                                mg_winograd_planes m, int64_t apart, mg_winograd_image g, part p,
                                const float *bias, mg_winograd_finish f, float *y) {
    const uintptr_t addresses = (uintptr_t)y | (uintptr_t)g.c * sizeof *y; /* of all pixels */
    const bool stream = f.past_caches && vectors * MG_VECTOR >= MG_LINE &&
                        p.lanes >= vectors * LANES && addresses % MG_LINE == 0;
    vec t[VECTORS][MOST_RESULTS][MOST], in[MOST] = {{0}};
    vec out[VECTORS][MOST_RESULTS] = {{{0}}}, first[VECTORS] = {{0}};
    const int rows = high - taps + 1, columns = wide - taps + 1;
    const int64_t step = g.step * g.c; /* floats between the pixels of neighbouring results */
    UNROLL for (int v = 0; v < vectors; v++) {
        if (bias) first[v] = load_lanes(bias + v * LANES, p.lanes - v * LANES);
        for (int q = 0; q < wide; q++) {
            UNROLL for (int r = 0; r < MOST; r++) if (r < high) in[r] =
                load(m.at + v * apart + (r * m.wide + q) * m.plane);
            result_line(taps, high, in, &t[v][0][q], MOST);
        }
    }
    for (int r = 0; r < rows && r < p.rows; r++) {
        UNROLL for (int v = 0; v < vectors; v++) result_line(taps, wide, t[v][r], out[v], 1);
        UNROLL for (int q = 0; q < MOST_RESULTS; q++) {
            if (q >= columns || q >= p.columns) continue;
            UNROLL for (int v = 0; v < vectors; v++) {
                float *to = y + (r * g.w + q) * step + v * LANES;
                const vec sum = out[v][q] + first[v], result = f.relu ? clamp(sum) : sum;
                if (stream)
                    MG_STREAM(to, (mg_floats)result);
                else
                    store_lanes(to, result, p.lanes - v * LANES);
            }
        }
    }
}

/* The part of a tile's results that lies in the image: pixels of a phase, from (row, column) on. */
static part part_of(const mg_winograd_image *g, int64_t row, int64_t column) {
    return (part){(g->h - row + g->step - 1) / g->step, (g->w - column + g->step - 1) / g->step, 0};
}

/* Column `column` of M, whose strips have `tiles` rows each. */
MG_INLINE mg_winograd_planes column_of(mg_winograd_planes m, int64_t tiles, int64_t column) {
    return planes_at(m, column / STRIP * tiles * STRIP + column % STRIP);
}

static void transform_to_floats(const mg_winograd_image *g, const mg_winograd_region *r,
                                mg_winograd_planes m, int64_t tiles, float *y, int64_t first,
                                int64_t n, const mg_winograd_finish *f) {
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        const mg_winograd_planes row_of_m = planes_at(m, i * STRIP);
        for (int64_t phase = 0; phase < g->step * g->step; phase++) {
            const int64_t row = p.y * g->step + phase / g->step;
            const int64_t column = p.x * g->step + phase % g->step;
            float *to = y + ((p.image * g->h + row) * g->w + column) * g->c;
            part of = part_of(g, row, column);
            for (int64_t c = f->first; c < f->end; c += VECTORS * LANES) {
                const int64_t from = phase * g->phase + c - f->first;
                const mg_winograd_planes left = column_of(row_of_m, tiles, from);
                const mg_winograd_planes right = column_of(row_of_m, tiles, from + LANES);
                const float *bias = f->bias ? f->bias + c : NULL;
                of.lanes = g->c - c;
                if (VECTORS == 1 || of.lanes <= LANES)
                    WITH_SIZES(transform_result, r->taps, r->high, r->wide, 1, left, 0, *g, of,
                               bias, *f, to + c);
                else
                    WITH_SIZES(transform_result, r->taps, r->high, r->wide, VECTORS, left,
                               right.at - left.at, *g, of, bias, *f, to + c);
            }
        }
    }
}

/* Transforms channels [c, end) of a tile of halves, of which m holds `from` channels before them,
 * to floats in the buffer. */
static void transform_to_buffer(const mg_winograd_region *r, mg_winograd_planes m, int64_t tiles,
                                int64_t from, int64_t c, int64_t end, const mg_winograd_finish *f,
                                float *buffer) {
    const int rows = r->high - r->taps + 1, columns = r->wide - r->taps + 1;
    const mg_winograd_image gathered = {.h = rows, .w = columns, .c = MOST_GATHERED, .step = 1};
    const mg_winograd_finish finish = {.relu = f->relu};
    for (; c < end; c += LANES, from += LANES, buffer += LANES) {
        const part of = {rows, columns, end - c};
        const float *bias = f->bias ? f->bias + c : NULL;
        WITH_SIZES(transform_result, r->taps, r->high, r->wide, 1, column_of(m, tiles, from), 0,
                   gathered, of, bias, finish, buffer);
    }
}

static void transform_to_halves(const mg_winograd_image *g, const mg_winograd_region *r,
                                mg_winograd_planes m, int64_t tiles, void *y, int64_t first,
                                int64_t n, const mg_winograd_finish *f) {
    mg_gathered buffer;
    const int rows = r->high - r->taps + 1, columns = r->wide - r->taps + 1;
    for (int64_t i = 0; i < n; i++) {
        const tile_place p = place_of(r, first + i);
        void *image = (char *)y + bytes_to(g, p.image * g->h * g->w * g->c);
        for (int64_t phase = 0; phase < g->step * g->step; phase++) {
            const int64_t row = p.y * g->step + phase / g->step;
            const int64_t column = p.x * g->step + phase % g->step;
            const part of = part_of(g, row, column);
            for (int64_t c = f->first; c < f->end; c += MOST_GATHERED) {
                const int64_t end = c + MOST_GATHERED < f->end ? c + MOST_GATHERED : f->end;
                transform_to_buffer(r, planes_at(m, i * STRIP), tiles,
                                    phase * g->phase + c - f->first, c, end, f, buffer);
                scatter_pixels(g, buffer, columns, MOST_GATHERED, of.rows < rows ? of.rows : rows,
                               of.columns < columns ? of.columns : columns, row, column, c, end - c,
                               image);
            }
        }
    }
}

/* Two functions: with both in one, the loops for floats take 4 % longer. */
static void transform_results(const mg_winograd_image *g, const mg_winograd_region *r,
                              mg_winograd_planes m, int64_t tiles, void *y, int64_t first,
                              int64_t n, const mg_winograd_finish *f) {
    if (g->dtype == MG_F32)
        transform_to_floats(g, r, m, tiles, y, first, n, f);
    else
        transform_to_halves(g, r, m, tiles, y, first, n, f);
}

#undef WITH_SIZES

const mg_simd_winograd MG_ISA_NAME(mg_simd_winograd) = {
    .filters = transform_filters,
    .filter_gradients = transform_filter_gradients,
    .images = transform_images,
    .gradients = transform_gradients,
    .results = transform_results};
