/* Inner loops of convolutions with few channels; ../conv_small.c says how they are used.
 *
 * One input channel: a vector holds the same pixel of LANES images, so every lane works, whatever
 * the number of kernels. Sums of a tile of pixels x kernels (or taps x kernels) stay in registers;
 * the tile's size follows the number of registers.
 *
 * Gradient of an input with few channels: a vector holds neighbouring floats of a row of dx. */
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/simd.h"
#include <string.h>

/* Tiles of sums: forward FORWARD_PIXELS x 6, the weights' gradient 5 x WEIGHT_KERNELS. */
#if MG_REGISTERS >= 32
enum { FORWARD_PIXELS = 4, WEIGHT_KERNELS = 6 };
#else
enum { FORWARD_PIXELS = 2, WEIGHT_KERNELS = 2 };
#endif
/* The input's gradient: up to 8 sums, as many multiply-adds as two units have under way. */
#define INPUT_PIXELS(vectors) ((vectors) > 2 ? 8 / (vectors) : 4)

/* Reads rows of images with one channel as pixels of LANES images each, with zeros for padding and
 * for lanes without an image. */
static void gather_images(const mg_conv_small *s, const float *x, const mg_conv_rows *rows,
                          float *out) {
    const int64_t last = rows->last + s->kh - 1;
    memset(out + rows->first * s->wide * LANES, 0,
           (size_t)((last - rows->first) * s->wide * LANES) * sizeof *out);
    for (int64_t r = rows->first; r < last; r++) {
        const int64_t y = r - s->top;
        if (y < 0 || y >= s->h) continue;
        gather_lanes(x + y * s->w, s->w, rows->count, s->h * s->w,
                     out + (r * s->wide + s->left) * LANES);
    }
}

/* gather_lanes as a function of the table. */
static void gather_row(float *row, int64_t n, int64_t count, const float *y, int64_t step) {
    gather_lanes(y, n, count, step, row);
}

/* ---- forward, one input channel ---- */

/* Computes `kernels` results of each of `pixels` neighbours, summed in registers. */
MG_INLINE void sum_taps(const mg_conv_small *s, const float *in, const float *w, const float *bias,
                        bool relu, float *out, const int pixels, const int kernels) {
    vec sum[FORWARD_PIXELS][6];
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int k = 0; k < kernels; k++) sum[p][k] =
        (vec){0} + bias[k];
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t kx = 0; kx < s->kw; kx++) {
            const float *x = in + (ky * s->wide + kx) * LANES;
            const float *tap = w + (ky * s->kw + kx) * s->k;
            UNROLL for (int k = 0; k < kernels; k++) UNROLL for (int p = 0; p < pixels; p++)
                sum[p][k] = add_scaled(sum[p][k], tap[k], load(x + p * LANES));
        }
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int k = 0; k < kernels; k++) {
        if (relu) sum[p][k] = clamp(sum[p][k]);
        *(vec *)(out + (p * s->k + k) * LANES) = sum[p][k];
    }
}

/* Computes a row of results for some kernels: tiles of FORWARD_PIXELS, then single pixels. */
MG_INLINE void forward_row(const mg_conv_small *s, const float *in, const float *w,
                           const float *bias, bool relu, float *out, const int kernels) {
    int64_t ox = 0;
    for (; ox + FORWARD_PIXELS <= s->ow; ox += FORWARD_PIXELS)
        sum_taps(s, in + ox * LANES, w, bias, relu, out + ox * s->k * LANES, FORWARD_PIXELS,
                 kernels);
    for (; ox < s->ow; ox++)
        sum_taps(s, in + ox * LANES, w, bias, relu, out + ox * s->k * LANES, 1, kernels);
}

/* The kernels are taken six, three or one at a time. */
static void forward_rows(const mg_conv_small *s, const float *images, const float *w,
                         const float *bias, bool relu, const mg_conv_rows *rows, float *row,
                         float *y) {
    for (int64_t oy = rows->first; oy < rows->last; oy++) {
        const float *in = images + oy * s->wide * LANES;
        for (int64_t k = 0; k < s->k;) {
            const int64_t left = s->k - k, kernels = left >= 6 ? 6 : left >= 3 ? 3 : 1;
            float *out = row + k * LANES;
            if (kernels == 6) forward_row(s, in, w + k, bias + k, relu, out, 6);
            if (kernels == 3) forward_row(s, in, w + k, bias + k, relu, out, 3);
            if (kernels == 1) forward_row(s, in, w + k, bias + k, relu, out, 1);
            k += kernels;
        }
        scatter_lanes(row, s->ow * s->k, rows->count, s->oh * s->ow * s->k, y + oy * s->ow * s->k);
    }
}

/* ---- gradient of the kernel, one input channel ---- */

/* sums[kx][k] += x[ox + kx] * dy[ox][k] along a row, for some kx and k. */
MG_INLINE void add_products(const mg_conv_small *s, const float *in, const float *dy, float *sums,
                            const int taps, const int kernels) {
    vec sum[5][WEIGHT_KERNELS];
    UNROLL for (int i = 0; i < taps; i++) UNROLL for (int k = 0; k < kernels; k++) sum[i][k] =
        (vec){0};
    for (int64_t ox = 0; ox < s->ow; ox++) UNROLL for (int k = 0; k < kernels; k++) {
            const vec d = *(const vec *)(dy + (ox * s->k + k) * LANES);
            UNROLL for (int i = 0; i < taps; i++) sum[i][k] =
                add_product(sum[i][k], load(in + (ox + i) * LANES), d);
        }
    UNROLL for (int i = 0; i < taps; i++) UNROLL for (int k = 0; k < kernels; k++) *
        (vec *)(sums + (i * s->k + k) * LANES) += sum[i][k];
}

/* Adds the products of one row of dy and one row of pixels, for five, three or one taps at a
 * time. */
MG_INLINE void weight_kernels(const mg_conv_small *s, const float *in, const float *dy, float *sums,
                              const int kernels) {
    for (int64_t kx = 0; kx < s->kw;) {
        const int64_t left = s->kw - kx, taps = left >= 5 ? 5 : left >= 3 ? 3 : 1;
        float *to = sums + kx * s->k * LANES;
        if (taps == 5) add_products(s, in + kx * LANES, dy, to, 5, kernels);
        if (taps == 3) add_products(s, in + kx * LANES, dy, to, 3, kernels);
        if (taps == 1) add_products(s, in + kx * LANES, dy, to, 1, kernels);
        kx += taps;
    }
}

/* Adds the products of one row of dy and all rows of pixels that it depends on. */
static void weight_row(const mg_conv_small *s, const float *images, const float *row, float *sums) {
    enum { MOST = WEIGHT_KERNELS, SOME = WEIGHT_KERNELS / 2 };
    for (int64_t ky = 0; ky < s->kh; ky++) {
        const float *in = images + ky * s->wide * LANES;
        for (int64_t k = 0; k < s->k;) {
            const int64_t left = s->k - k, kernels = left >= MOST ? MOST : left >= SOME ? SOME : 1;
            const float *dy = row + k * LANES;
            float *to = sums + (ky * s->kw * s->k + k) * LANES;
            if (kernels == MOST)
                weight_kernels(s, in, dy, to, MOST);
            else if (kernels == SOME)
                weight_kernels(s, in, dy, to, SOME);
            else
                weight_kernels(s, in, dy, to, 1);
            k += kernels;
        }
    }
}

/* ---- gradient of an input with few channels ---- */

/* Adds `pixels` neighbouring pixels of dy to a row of dx; each adds `vectors` vectors. */
MG_INLINE void add_pixels(const mg_conv_small *s, const float *dy, const float *w, float *dx,
                          const int pixels, const int vectors) {
    vec sum[4][8] = {{{0}}};
    for (int64_t k = 0; k < s->k; k++)
        for (int p = 0; p < pixels; p++)
            for (int v = 0; v < vectors; v++)
                sum[p][v] =
                    add_scaled(sum[p][v], dy[p * s->k + k], load(w + k * s->row + v * LANES));
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++)
            *(vec *)(dx + p * s->across * s->c + v * LANES) += sum[p][v];
}

/* Adds the products of a row of dy and one row of the kernels to a row of dx. */
MG_INLINE void add_row(const mg_conv_small *s, const float *dy, const float *w, float *dx,
                       const int vectors) {
    const int pixels = INPUT_PIXELS(vectors);
    const int64_t step = s->across * s->c;
    int64_t ox = 0;
    for (; ox + pixels <= s->ow; ox += pixels)
        add_pixels(s, dy + ox * s->k, w, dx + ox * step, pixels, vectors);
    if (pixels > 2)
        for (; ox + 2 <= s->ow; ox += 2)
            add_pixels(s, dy + ox * s->k, w, dx + ox * step, 2, vectors);
    for (; ox < s->ow; ox++) add_pixels(s, dy + ox * s->k, w, dx + ox * step, 1, vectors);
}

/* Adds into rows of a padded image, which have room for whole vectors, and copies out of them. */
static void input_rows(const mg_conv_small *s, const float *dy, const float *w, int64_t first,
                       int64_t end, float *padded, float *dx) {
    const int64_t top = first + s->top; /* of the padded rows */
    memset(padded, 0, (size_t)((end - first) * s->wide) * sizeof *padded);
    for (int64_t oy = 0; oy < s->oh; oy++)
        for (int64_t ky = 0; ky < s->kh; ky++) {
            const int64_t row = oy * s->down + ky - top;
            if (row < 0 || row >= end - first) continue;
            const float *from = dy + oy * s->ow * s->k, *table = w + ky * s->k * s->row;
            float *to = padded + row * s->wide;
            if (s->row == MG_LANES)
                add_row(s, from, table, to, MG_LANES / LANES);
            else
                add_row(s, from, table, to, 2 * MG_LANES / LANES);
        }
    /* the image without its padding; pixels outside of all windows get 0 */
    for (int64_t y = first; y < end; y++)
        for (int64_t i = 0; i < s->w; i++) {
            const int64_t column = i + s->left;
            const float *from = padded + (y - first) * s->wide + column * s->c;
            const bool met = column < (s->ow - 1) * s->across + s->kw;
            for (int64_t c = 0; c < s->c; c++) dx[(y * s->w + i) * s->c + c] = met ? from[c] : 0;
        }
}

const mg_simd_conv_small MG_ISA_NAME(mg_simd_conv_small) = {
    .images = LANES,
    .gather_images = gather_images,
    .gather_row = gather_row,
    .forward_rows = forward_rows,
    .weight_row = weight_row,
    .input_rows = input_rows,
};
