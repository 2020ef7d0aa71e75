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

/* An image, of which (top, left) pixels are padding. */
typedef struct mg_winograd_image {
    int64_t h, w, c, top, left;
} mg_winograd_image;

/* The part of every image whose tiles have the same size: rows x columns tiles with high x wide
 * elements, two more than results either way, which are 6, 4 or 2. (y, x): its first result. */
typedef struct mg_winograd_region {
    int64_t y, x, rows, columns;
    int high, wide;
} mg_winograd_region;

/* A transformed operand has a plane for each element of the largest tiles; (i, j) lies at
 * at + (i * wide + j) * plane. Smaller tiles have the first elements of some rows. */
typedef struct mg_winograd_planes {
    float *at;
    int high, wide;
    int64_t plane;
} mg_winograd_planes;

/* What becomes of results. Written past the caches, they are visible to other threads after
 * end_stream. */
typedef struct mg_winograd_finish {
    const float *bias; /* or NULL */
    bool relu, past_caches;
} mg_winograd_finish;

typedef struct mg_simd_winograd {
    int strip; /* columns of a strip: floats of two vectors */
    void (*multiply)(const mg_winograd_product *p, int64_t rows);
    /* Filters w {3, 3, c, k} become planes {strips, c, strip}, of which strips [first, end) are
     * made or read; columns past k are 0. */
    void (*filters)(const float *w, int64_t c, int64_t k, mg_winograd_planes u, int64_t first,
                    int64_t end);
    void (*filter_gradients)(mg_winograd_planes du, int64_t c, int64_t k, float *dw, int64_t first,
                             int64_t end);
    /* n tiles of x from tile `first` of the region on: planes {n, ld}. Pixels outside the image are
     * 0. */
    void (*images)(const mg_winograd_image *g, const mg_winograd_region *r, const float *x,
                   int64_t first, int64_t n, mg_winograd_planes v, int64_t ld);
    /* Tiles of dy, or of the result: planes {strips, tiles, strip}. */
    void (*gradients)(const mg_winograd_image *g, const mg_winograd_region *r, const float *dy,
                      int64_t first, int64_t n, mg_winograd_planes d, int64_t tiles);
    void (*results)(const mg_winograd_image *g, const mg_winograd_region *r, mg_winograd_planes m,
                    int64_t tiles, float *y, int64_t first, int64_t n, const mg_winograd_finish *f);
} mg_simd_winograd;

#endif
