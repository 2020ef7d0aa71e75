/* Inner loops of the Winograd convolutions in float32: the transforms, and the product of
 * transformed tiles. Images are row-major {n, h, w, c}. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

/* c[r][column] (+)= the sum over d of a[r * ra + d * da] * b[d][column], for a strip of columns.
 * Either ra or da is 1. */
typedef struct mg_winograd_product {
    const float *a;
    int64_t ra, da, depth;
    const float *b; /* {depth, strip} */
    float *c;       /* {rows, strip} */
    bool add;       /* to what c holds */
} mg_winograd_product;

/* Images cut into tiles: rows x columns of them per image. For the 6x6 tiles that are read, (top,
 * left) is how far the first tile lies above and left of the image. */
typedef struct mg_winograd_tiles {
    int64_t h, w, c, top, left, rows, columns;
} mg_winograd_tiles;

typedef struct mg_simd_winograd {
    int strip; /* columns of a strip: floats of two vectors */
    void (*multiply)(const mg_winograd_product *p, int64_t rows);
    /* A transformed operand is 36 planes, one for each element of a tile, `plane` floats apart.
     *
     * Filters w {3, 3, c, k} become planes {strips, c, strip}, of which strips [first, end) are
     * made or read; columns past k are 0. */
    void (*filters)(const float *w, int64_t c, int64_t k, float *u, int64_t plane, int64_t first,
                    int64_t end);
    void (*filter_gradients)(const float *du, int64_t plane, int64_t c, int64_t k, float *dw,
                             int64_t first, int64_t end);
    /* 6x6 tiles of x, n of them from tile `first` on: planes {n, ld}. Pixels outside the image are
     * 0. */
    void (*images)(const mg_winograd_tiles *g, const float *x, int64_t first, int64_t n, float *v,
                   int64_t plane, int64_t ld);
    /* 4x4 tiles of dy, or of the result: planes {strips, tiles, strip}. The result gets bias (or
     * NULL) and relu. Written past the caches, it is visible to other threads after end_stream. */
    void (*gradients)(const mg_winograd_tiles *g, const float *dy, int64_t first, int64_t n,
                      float *d, int64_t plane, int64_t tiles);
    void (*results)(const mg_winograd_tiles *g, const float *m, int64_t plane, int64_t tiles,
                    float *y, int64_t first, int64_t n, const float *bias, bool relu,
                    bool past_caches);
} mg_simd_winograd;

#endif
