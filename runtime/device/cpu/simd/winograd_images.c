/* Winograd convolutions of several images at a time, F(4x4, 3x3) and F(2x2, 5x5): the transforms
 * and the products. A vector holds the same element of LANES images, so that every lane works
 * however few channels there are. winograd.c explains the algorithm; here the image's gradient is
 * the exact transpose of the forward pass,
 *     D = AyA' of a tile of dy     dV = D U', summed over kernels     dx += B(dV)B'
 * in which neighbouring tiles overlap: an unpadded image has fewer tiles of dy than of dx.
 *
 * The vertical lines of a row of tiles are transformed first, once for all tiles that share
 * them. */
#include "device/cpu/simd/winograd_images.h"
#include "device/cpu/simd/winograd_lines.h"

enum {
    EDGE = 6, /* elements of a side of a tile */
    ELEMENTS = EDGE * EDGE,
    /* The registers of a product: TILES x OUTPUTS sums, and for the filters' gradient CHANNELS x
     * KERNELS. With vectors of 64 bytes, loads deliver factors as fast as they are used, so one
     * tile is enough. */
    TILES = MG_VECTOR >= 64 ? 1 : 2,
    OUTPUTS = MG_REGISTERS >= 32 ? 8 : 6,
    CHANNELS = 3,
    KERNELS = MG_REGISTERS >= 32 ? 8 : 4,
    BLOCK = 9, /* tiles of a block of the filters' gradient */
    MOST_TAPS = 5,
    PADDING = 16 /* floats between elements: apart by a power of two, they would share cache sets */
};

/* ---- sizes ---- */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Floats from one element to the next, for `tiles` tiles of `channels` channels. */
MG_INLINE int64_t plane_of(int64_t tiles, int64_t channels) {
    return tiles * channels * LANES + PADDING;
}

/* Rows and columns of the pixels that an image's tiles read. */
static int64_t high_of(const mg_winograd_images *s) {
    return s->rows * s->side + EDGE - s->side;
}

static int64_t wide_of(const mg_winograd_images *s) {
    return s->columns * s->side + EDGE - s->side;
}

typedef struct places { /* places in scratch */
    float *image;       /* {high, wide, c}: padded, x or dx */
    float *lines;       /* {EDGE, wide, c}: a row of tiles, transformed in one direction */
    float *results;     /* {rows * side, columns * side, k}: dy, or the first of these rows: y */
    float *v, *d;       /* transformed tiles, of c and of k channels */
} places;

/* Channels of a transformed tile for the filters' gradient: a multiple of what the product takes at
 * a time. */
static int64_t padded_c(const mg_winograd_images *s) {
    return round_up(s->c, CHANNELS);
}

static int64_t padded_k(const mg_winograd_images *s) {
    return round_up(s->k, KERNELS);
}

/* Sets the places, and returns the floats of all of them. */
static size_t place(const mg_winograd_images *s, float *scratch, places *p) {
    const int64_t result_pixels = s->rows * s->columns * s->side * s->side;
    const int64_t floats[] = {high_of(s) * wide_of(s) * s->c * LANES,
                              EDGE * wide_of(s) * s->c * LANES, result_pixels * s->k * LANES,
                              ELEMENTS * plane_of(BLOCK, padded_c(s)),
                              ELEMENTS * plane_of(BLOCK, padded_k(s))};
    float **to[] = {&p->image, &p->lines, &p->results, &p->v, &p->d};
    size_t sum = 0;
    for (int i = 0; i < 5; sum += (size_t)floats[i++]) *to[i] = scratch + sum;
    return sum;
}

static size_t scratch_floats(const mg_winograd_images *s) {
    static float none;
    places unused;
    return place(s, &none, &unused);
}

static size_t sum_floats(const mg_winograd_images *s) {
    return (size_t)(ELEMENTS * padded_c(s) * padded_k(s) * LANES);
}

/* ---- filters ---- */

/* G {EDGE, taps}: the powers of the points, divided by M'(p) (winograd_lines.h). */
static void fill_filter_table(float g[EDGE][MOST_TAPS], int taps) {
    static const float point[] = {0, A, -A, B, -B},
                       over[] = {OVER_0, OVER_A, OVER_A, OVER_B, OVER_B};
    for (int e = 0; e < EDGE; e++) {
        float power = 1;
        for (int i = 0; i < taps; i++) {
            g[e][i] = e == EDGE - 1 ? (float)(i == taps - 1) : over[e] * power;
            power *= e == EDGE - 1 ? 1 : point[e];
        }
    }
}

enum { RUN = 16 }; /* kernels that are transformed side by side */
typedef float kernels[RUN];

/* to[i][j] = the sum over a and b of left[i][a] from[a][b] right[j][b], for RUN matrices. */
static void transform_runs(const float *left, int i_step, int a_step, int edge, int inner,
                           kernels from[EDGE][EDGE], kernels to[EDGE][EDGE]) {
    kernels half[EDGE][EDGE] = {{{0}}};
    for (int i = 0; i < edge; i++)
        for (int b = 0; b < inner; b++)
            for (int a = 0; a < inner; a++)
#pragma omp simd
                for (int r = 0; r < RUN; r++)
                    half[i][b][r] =
                        mg_fma_f32(left[i * i_step + a * a_step], from[a][b][r], half[i][b][r]);
    for (int i = 0; i < edge; i++)
        for (int j = 0; j < edge; j++) {
            memset(to[i][j], 0, sizeof to[i][j]);
            for (int b = 0; b < inner; b++)
#pragma omp simd
                for (int r = 0; r < RUN; r++)
                    to[i][j][r] =
                        mg_fma_f32(left[j * i_step + b * a_step], half[i][b][r], to[i][j][r]);
        }
}

static void transform_filters(const mg_winograd_images *s, const float *w, bool transposed,
                              int64_t c, float *u) {
    const int taps = EDGE + 1 - s->side;
    const int64_t ends = s->c * s->k, u_c = transposed ? 1 : s->k, u_k = transposed ? s->c : 1;
    float g[EDGE][MOST_TAPS];
    kernels from[EDGE][EDGE] = {{{0}}}, to[EDGE][EDGE];
    fill_filter_table(g, taps);
    for (int64_t k = 0; k < s->k; k += RUN) {
        const int64_t n = s->k - k < RUN ? s->k - k : RUN;
        for (int i = 0; i < taps * taps; i++)
            memcpy(from[i / taps][i % taps], w + (i * s->c + c) * s->k_total + k,
                   (size_t)n * sizeof *w);
        transform_runs(g[0], MOST_TAPS, 1, EDGE, taps, from, to);
        for (int e = 0; e < ELEMENTS; e++)
            for (int64_t r = 0; r < n; r++)
                u[e * ends + c * u_c + (k + r) * u_k] = to[e / EDGE][e % EDGE][r];
    }
}

/* Makes an element of dU, {padded_c, padded_k}. Scratch holds the sums of its vectors, then their
 * lanes one after another. */
static void fold_sums(const mg_winograd_images *s, float *sums, int teams, size_t step, int element,
                      float *scratch) {
    const int64_t n = padded_c(s) * padded_k(s);
    float *of_element = sums + element * n * LANES, *flat = scratch + n * LANES;
    for (int64_t i = 0; i < n * LANES; i += LANES) {
        vec sum = load(of_element + i);
        for (int t = 1; t < teams; t++) sum += load(of_element + (size_t)t * step + i);
        store(scratch + i, sum);
    }
    scatter_lanes(scratch, n, LANES, n, flat);
    for (int64_t i = 0; i < n; i += KERNELS) {
        double sum[KERNELS] = {0};
        for (int64_t lane = 0; lane < LANES; lane++)
#pragma omp simd
            for (int j = 0; j < KERNELS; j++) sum[j] += (double)flat[lane * n + i + j];
        for (int j = 0; j < KERNELS; j++) of_element[i + j] = (float)sum[j];
    }
}

static void transform_filter_gradient(const mg_winograd_images *s, const float *sums, int64_t c,
                                      float *dw) {
    const int taps = EDGE + 1 - s->side;
    const int64_t n = padded_c(s) * padded_k(s);
    float g[EDGE][MOST_TAPS];
    kernels from[EDGE][EDGE] = {{{0}}}, to[EDGE][EDGE];
    fill_filter_table(g, taps);
    for (int64_t k = 0; k < s->k; k += RUN) {
        const int64_t count = s->k - k < RUN ? s->k - k : RUN;
        for (int e = 0; e < ELEMENTS; e++)
            memcpy(from[e / EDGE][e % EDGE], sums + e * n * LANES + c * padded_k(s) + k,
                   (size_t)count * sizeof *sums);
        transform_runs(g[0], 1, MOST_TAPS, taps, EDGE, from, to);
        for (int i = 0; i < taps * taps; i++)
            memcpy(dw + (i * s->c + c) * s->k_total + k, to[i / taps][i % taps],
                   (size_t)count * sizeof *dw);
    }
}

/* ---- images to lanes and back ---- */

/* Gathers `rows` rows of `columns` pixels with c of `total` channels, `step` floats apart in each
 * of `count` images, as lanes; their rows are `wide` pixels there. */
static void gather_pixels(const float *x, int64_t rows, int64_t columns, int64_t c, int64_t total,
                          int64_t step, int64_t count, int64_t wide, float *to) {
    const int64_t run = c == total ? columns : 1; /* pixels side by side */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i += run)
            gather_lanes(x + (r * columns + i) * total, run * c, count, step,
                         to + (r * wide + i) * c * LANES);
}

/* The reverse. */
static void scatter_pixels(const float *from, int64_t rows, int64_t columns, int64_t c,
                           int64_t total, int64_t step, int64_t count, int64_t wide, float *y) {
    const int64_t run = c == total ? columns : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i += run)
            scatter_lanes(from + (r * wide + i) * c * LANES, run * c, count, step,
                          y + (r * columns + i) * total);
}

/* Gathers images, with their padding. */
static void gather_images(const mg_winograd_images *s, const float *x, int64_t count, float *to) {
    const int64_t high = high_of(s), wide = wide_of(s);
    if (high > s->h || wide > s->w)
        memset(to, 0, (size_t)(high * wide * s->c * LANES) * sizeof *to);
    gather_pixels(x, s->h, s->w, s->c, s->c_total, s->h * s->w * s->c_total, count, wide,
                  to + (s->top * wide + s->left) * s->c * LANES);
}

/* Gathers gradients of results, with zeros up to whole tiles. */
static void gather_gradients(const mg_winograd_images *s, const float *dy, int64_t count,
                             float *to) {
    const int64_t high = s->rows * s->side, wide = s->columns * s->side;
    if (high > s->oh || wide > s->ow)
        memset(to, 0, (size_t)(high * wide * s->k * LANES) * sizeof *to);
    gather_pixels(dy, s->oh, s->ow, s->k, s->k_total, s->oh * s->ow * s->k_total, count, wide, to);
}

/* ---- transforms of tiles ---- */

/* Transforms the vertical lines of a row of tiles. */
static void transform_columns(const mg_winograd_images *s, const float *image, int64_t row,
                              float *lines) {
    const int64_t n = wide_of(s) * s->c * LANES;
    const float *x = image + row * s->side * n;
    for (int64_t j = 0; j < n; j += LANES) {
        vec in[EDGE], out[EDGE];
        UNROLL for (int r = 0; r < EDGE; r++) in[r] = load(x + r * n + j);
        image_line(in, out, 1);
        UNROLL for (int r = 0; r < EDGE; r++) store(lines + r * n + j, out[r]);
    }
}

/* Computes V of tile `column` from the row's lines; elements lie `plane` floats apart. */
static void transform_tile(const mg_winograd_images *s, const float *lines, int64_t column,
                           float *v, int64_t plane) {
    const int64_t pixel = s->c * LANES, row = wide_of(s) * pixel;
    for (int r = 0; r < EDGE; r++)
        for (int64_t c = 0; c < pixel; c += LANES) {
            const float *x = lines + r * row + column * s->side * pixel + c;
            vec in[EDGE], out[EDGE];
            UNROLL for (int q = 0; q < EDGE; q++) in[q] = load(x + q * pixel);
            image_line(in, out, 1);
            UNROLL for (int q = 0; q < EDGE; q++) store(v + (r * EDGE + q) * plane + c, out[q]);
        }
}

/* Computes D of a tile of dy. */
MG_INLINE void transform_gradient(const mg_winograd_images *s, const float *dy, int64_t row,
                                  int64_t column, float *d, int64_t plane, const int side) {
    const int64_t pixel = s->k * LANES, wide = s->columns * side * pixel;
    const float *tile = dy + row * side * wide + column * side * pixel;
    for (int64_t k = 0; k < pixel; k += LANES) {
        vec t[EDGE][4], in[4] = {{0}}, out[EDGE];
        UNROLL for (int q = 0; q < side; q++) {
            UNROLL for (int r = 0; r < side; r++) in[r] = load(tile + r * wide + q * pixel + k);
            if (side == 4)
                gradient_line_4(in, &t[0][q], 4);
            else
                gradient_line_2(in, &t[0][q], 4);
        }
        UNROLL for (int r = 0; r < EDGE; r++) {
            if (side == 4)
                gradient_line_4(t[r], out, 1);
            else
                gradient_line_2(t[r], out, 1);
            UNROLL for (int q = 0; q < EDGE; q++) store(d + (r * EDGE + q) * plane + k, out[q]);
        }
    }
}

/* Computes a tile of one channel of the result from M, whose elements lie `plane` floats apart, to
 * y, whose rows and pixels lie `row` and `pixel` floats apart. */
MG_INLINE void transform_result(const float *m, int64_t plane, float bias, bool relu, float *y,
                                int64_t row, int64_t pixel, const int side) {
    vec t[4][EDGE], in[EDGE], out[4];
    UNROLL for (int q = 0; q < EDGE; q++) {
        UNROLL for (int r = 0; r < EDGE; r++) in[r] = load(m + (r * EDGE + q) * plane);
        if (side == 4)
            result_line_4(in, &t[0][q], EDGE);
        else
            result_line_2(in, &t[0][q], EDGE);
    }
    UNROLL for (int r = 0; r < side; r++) {
        if (side == 4)
            result_line_4(t[r], out, 1);
        else
            result_line_2(t[r], out, 1);
        UNROLL for (int q = 0; q < side; q++) {
            const vec z = out[q] + bias;
            store(y + r * row + q * pixel, relu ? clamp(z) : z);
        }
    }
}

/* ---- products ---- */

/* For each element m[tile][output] = the sum over `depth` channels of v[tile][channel] *
 * u[channel][output]; channels of u lie `row` floats apart. */
MG_INLINE void multiply_tiles(const float *v, const float *u, int64_t depth, int64_t row, float *m,
                              const int tiles, const int outputs) {
    for (int e = 0; e < ELEMENTS; e++) {
        vec sum[TILES][OUTPUTS];
        UNROLL for (int t = 0; t < tiles; t++) UNROLL for (int o = 0; o < outputs; o++) sum[t][o] =
            (vec){0};
        for (int64_t i = 0; i < depth; i++, u += row) {
            vec a[TILES];
            UNROLL for (int t = 0; t < tiles; t++) a[t] = load(v + (t * depth + i) * LANES);
            UNROLL for (int o = 0; o < outputs; o++) UNROLL for (int t = 0; t < tiles; t++)
                sum[t][o] = add_scaled(sum[t][o], u[o], a[t]);
        }
        UNROLL for (int t = 0; t < tiles; t++) UNROLL for (int o = 0; o < outputs; o++)
            store(m + (t * OUTPUTS + o) * LANES, sum[t][o]);
        v += plane_of(TILES, depth);
        m += plane_of(TILES, OUTPUTS);
    }
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (tiles == TILES)                                                                        \
            multiply_tiles(v, u, depth, row, m, TILES, n);                                         \
        else                                                                                       \
            multiply_tiles(v, u, depth, row, m, 1, n);                                             \
        break;

static void multiply(const float *v, const float *u, int64_t depth, int64_t row, float *m,
                     int64_t tiles, int64_t outputs) {
    switch (outputs) {
        /* clang-format off */
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MG_REGISTERS >= 32
        CASE(7) CASE(8)
#endif
        /* clang-format on */
    }
}

#undef CASE

/* How many of the `left` outputs come next, so that all turns have about equally many. */
static int64_t next_outputs(int64_t left) {
    const int64_t parts = (left + OUTPUTS - 1) / OUTPUTS;
    return (left + parts - 1) / parts;
}

/* dU += V'D of `n` tiles, whose elements are {BLOCK, channels}. */
static void add_products(const mg_winograd_images *s, const float *v, const float *d, int64_t n,
                         float *sums) {
    const int64_t v_row = padded_c(s) * LANES, d_row = padded_k(s) * LANES;
    for (int e = 0; e < ELEMENTS; e++, v += v_row * BLOCK + PADDING, d += d_row * BLOCK + PADDING)
        for (int64_t c = 0; c < v_row; c += CHANNELS * LANES, sums += CHANNELS * d_row)
            for (int64_t k = 0; k < d_row; k += KERNELS * LANES) {
                vec sum[CHANNELS][KERNELS];
                UNROLL for (int i = 0; i < CHANNELS; i++) UNROLL for (int j = 0; j < KERNELS; j++)
                    sum[i][j] = load(sums + i * d_row + k + j * LANES);
                for (int64_t t = 0; t < n; t++) {
                    vec a[CHANNELS];
                    UNROLL for (int i = 0; i < CHANNELS; i++) a[i] =
                        load(v + t * v_row + c + i * LANES);
                    UNROLL for (int j = 0; j < KERNELS; j++) {
                        const vec b = load(d + t * d_row + k + j * LANES);
                        UNROLL for (int i = 0; i < CHANNELS; i++) sum[i][j] =
                            add_product(sum[i][j], a[i], b);
                    }
                }
                UNROLL for (int i = 0; i < CHANNELS; i++) UNROLL for (int j = 0; j < KERNELS; j++)
                    store(sums + i * d_row + k + j * LANES, sum[i][j]);
            }
}

/* ---- the three passes ---- */

MG_INLINE void forward_row(const mg_winograd_images *s, const places *p, const float *u,
                           const float *bias, bool relu, const int side) {
    const int64_t pixel = s->k * LANES, wide = s->columns * side * pixel;
    for (int64_t column = 0; column < s->columns; column += TILES) {
        const int64_t tiles = s->columns - column < TILES ? 1 : TILES;
        for (int64_t t = 0; t < tiles; t++)
            transform_tile(s, p->lines, column + t, p->v + t * s->c * LANES, plane_of(TILES, s->c));
        for (int64_t k = 0, n; k < s->k; k += n) {
            n = next_outputs(s->k - k);
            multiply(p->v, u + k, s->c, s->k, p->d, tiles, n);
            for (int64_t t = 0; t < tiles; t++)
                for (int64_t i = 0; i < n; i++)
                    transform_result(p->d + (t * OUTPUTS + i) * LANES, plane_of(TILES, OUTPUTS),
                                     bias ? bias[k + i] : 0, relu,
                                     p->results + (column + t) * side * pixel + (k + i) * LANES,
                                     wide, pixel, side);
        }
    }
}

static void forward(const mg_winograd_images *s, const float *x, int64_t count, const float *u,
                    const float *bias, bool relu, float *scratch, float *y) {
    places p;
    place(s, scratch, &p);
    gather_images(s, x, count, p.image);
    for (int64_t row = 0; row < s->rows; row++) {
        const int64_t first = row * s->side, left = s->oh - first;
        transform_columns(s, p.image, row, p.lines);
        if (s->side == 4)
            forward_row(s, &p, u, bias, relu, 4);
        else
            forward_row(s, &p, u, bias, relu, 2);
        scatter_pixels(p.results, left < s->side ? left : s->side, s->ow, s->k, s->k_total,
                       s->oh * s->ow * s->k_total, count, s->columns * s->side,
                       y + first * s->ow * s->k_total);
    }
}

/* Adds n channels of dV, from channel c on, to the lines of the row's tile `column`. */
static void add_lines(const mg_winograd_images *s, const float *m, int64_t column, int64_t c,
                      int64_t n, float *lines) {
    const int64_t pixel = s->c * LANES, row = wide_of(s) * pixel;
    for (int r = 0; r < EDGE; r++)
        for (int64_t i = 0; i < n; i++) {
            float *x = lines + r * row + column * s->side * pixel + (c + i) * LANES;
            vec in[EDGE], out[EDGE];
            UNROLL for (int q = 0; q < EDGE; q++) in[q] =
                load(m + (r * EDGE + q) * plane_of(TILES, OUTPUTS) + i * LANES);
            image_gradient_line(in, out, 1);
            UNROLL for (int q = 0; q < EDGE; q++)
                store(x + q * pixel, load(x + q * pixel) + out[q]);
        }
}

/* Adds the lines of a row of tiles to the image's gradient. */
static void add_columns(const mg_winograd_images *s, const float *lines, int64_t row,
                        float *image) {
    const int64_t n = wide_of(s) * s->c * LANES;
    float *x = image + row * s->side * n;
    for (int64_t j = 0; j < n; j += LANES) {
        vec in[EDGE], out[EDGE];
        UNROLL for (int r = 0; r < EDGE; r++) in[r] = load(lines + r * n + j);
        image_gradient_line(in, out, 1);
        UNROLL for (int r = 0; r < EDGE; r++) store(x + r * n + j, load(x + r * n + j) + out[r]);
    }
}

static void transform_gradients(const mg_winograd_images *s, const float *dy, int64_t row,
                                int64_t column, float *d, int64_t plane) {
    if (s->side == 4)
        transform_gradient(s, dy, row, column, d, plane, 4);
    else
        transform_gradient(s, dy, row, column, d, plane, 2);
}

static void image_gradient(const mg_winograd_images *s, const float *dy, int64_t count,
                           const float *u, float *scratch, float *dx) {
    const int64_t wide = wide_of(s), tile = s->k * LANES;
    places p;
    place(s, scratch, &p);
    gather_gradients(s, dy, count, p.results);
    memset(p.image, 0, (size_t)(high_of(s) * wide * s->c * LANES) * sizeof *p.image);
    for (int64_t row = 0; row < s->rows; row++) {
        memset(p.lines, 0, (size_t)(EDGE * wide * s->c * LANES) * sizeof *p.lines);
        for (int64_t column = 0; column < s->columns; column += TILES) {
            const int64_t tiles = s->columns - column < TILES ? 1 : TILES;
            for (int64_t t = 0; t < tiles; t++)
                transform_gradients(s, p.results, row, column + t, p.d + t * tile,
                                    plane_of(TILES, s->k));
            for (int64_t c = 0, n; c < s->c; c += n) {
                n = next_outputs(s->c - c);
                multiply(p.d, u + c, s->k, s->c, p.v, tiles, n);
                for (int64_t t = 0; t < tiles; t++)
                    add_lines(s, p.v + t * OUTPUTS * LANES, column + t, c, n, p.lines);
            }
        }
        add_columns(s, p.lines, row, p.image);
    }
    scatter_pixels(p.image + (s->top * wide + s->left) * s->c * LANES, s->h, s->w, s->c, s->c_total,
                   s->h * s->w * s->c_total, count, wide, dx);
}

static void add_gradient(const mg_winograd_images *s, const float *x, const float *dy,
                         int64_t count, float *scratch, float *sums) {
    const int64_t v_row = padded_c(s) * LANES, d_row = padded_k(s) * LANES;
    places p;
    place(s, scratch, &p);
    gather_images(s, x, count, p.image);
    gather_gradients(s, dy, count, p.results);
    /* channels past the last one are 0 */
    if (s->c < padded_c(s))
        memset(p.v, 0, (size_t)(ELEMENTS * (BLOCK * v_row + PADDING)) * sizeof *p.v);
    if (s->k < padded_k(s))
        memset(p.d, 0, (size_t)(ELEMENTS * (BLOCK * d_row + PADDING)) * sizeof *p.d);
    const int64_t tiles = s->rows * s->columns, blocks = (tiles + BLOCK - 1) / BLOCK;
    const int64_t block = (tiles + blocks - 1) / blocks;
    for (int64_t i = 0, n = 0; i < tiles; i++) {
        const int64_t row = i / s->columns, column = i % s->columns;
        if (column == 0) transform_columns(s, p.image, row, p.lines);
        transform_tile(s, p.lines, column, p.v + n * v_row, BLOCK * v_row + PADDING);
        transform_gradients(s, p.results, row, column, p.d + n * d_row, BLOCK * d_row + PADDING);
        if (++n < block && i + 1 < tiles) continue;
        add_products(s, p.v, p.d, n, sums);
        n = 0;
    }
}

const mg_simd_winograd_images MG_ISA_NAME(mg_simd_winograd_images) = {
    .images = LANES,
    .elements = ELEMENTS,
    .scratch_floats = scratch_floats,
    .sum_floats = sum_floats,
    .filters = transform_filters,
    .forward = forward,
    .image_gradient = image_gradient,
    .add_gradient = add_gradient,
    .fold_sums = fold_sums,
    .filter_gradient = transform_filter_gradient,
};
