/* Inner loops of the float32 convolutions: the product of image rows with a strip of filters, and
 * the transforms of Winograd's algorithm. Images are row-major {n, h, w, c}. */
#ifndef MG_DEVICE_CPU_SIMD_CONV_H
#define MG_DEVICE_CPU_SIMD_CONV_H

#include <stdbool.h>
#include <stdint.h>

/* c[r][column] (+)= sum over segments s and steps d of a[segment[s] + r * ra + d * da] *
 * b[s][d][column], then bias, then relu. Either ra or da is 1. */
typedef struct mg_conv_product {
    const float *a;
    const int64_t *segment;
    int64_t n_segments, ra, da, depth;
    const float *b; /* {n_segments, depth, strip} */
    float *c;       /* rows ldc apart; of the strip the first `columns` are written */
    int64_t ldc, columns;
    const float *bias; /* strip floats, or NULL */
    bool add, relu;
} mg_conv_product;

/* Images cut into tiles: rows x columns of them per image. For the 6x6 tiles that are read, (top,
 * left) is how far the first tile lies above and left of the image. */
typedef struct mg_conv_tiles {
    int64_t h, w, c, top, left, rows, columns;
} mg_conv_tiles;

typedef struct mg_simd_conv {
    int strip;     /* columns of a strip: floats of two vectors */
    int tile_rows; /* rows that multiply keeps in registers */
    void (*multiply)(const mg_conv_product *p, int64_t rows);
    /* Winograd F(4x4, 3x3). A transformed operand is 36 planes, one for each element of a tile,
     * each plane floats after the one before: u, du {strips, c, strip}   filters w {3, 3, c, k},
     * strips [first, end); columns past k are 0 v {n, ld}                  n 6x6 tiles of x from
     * tile `first` on, 0 outside the image d, m {strips, tiles, strip} 4x4 tiles of the result's
     * gradient, or of the result */
    void (*filters)(const float *w, int64_t c, int64_t k, float *u, int64_t plane, int64_t first,
                    int64_t end);
    void (*filter_gradients)(const float *du, int64_t plane, int64_t c, int64_t k, float *dw,
                             int64_t first, int64_t end);
    void (*images)(const mg_conv_tiles *g, const float *x, int64_t first, int64_t n, float *v,
                   int64_t plane, int64_t ld);
    void (*gradients)(const mg_conv_tiles *g, const float *dy, int64_t first, int64_t n, float *d,
                      int64_t plane, int64_t tiles);
    void (*results)(const mg_conv_tiles *g, const float *m, int64_t plane, int64_t tiles, float *y,
                    int64_t first, int64_t n, const float *bias, bool relu);
} mg_simd_conv;

#endif
