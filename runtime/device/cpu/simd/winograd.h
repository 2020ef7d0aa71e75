/* Inner loops of the Winograd convolutions in float32: the transforms. Images are row-major {n, h,
 * w, c}, in float32, float16 or bfloat16; strips of channels or filters are as wide as those of
 * mg_simd_gemm. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_H

#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* An image as the convolution sees it: a grid whose points are step x step pixels (space-to-depth).
 * Pixel (i, j) of grid point (y, x) lies in row y * step + i - top and column x * step + j - left
 * of the image, and is 0 outside of it. A grid point has the channels of all its pixels, one pixel
 * after the other: `phase` channels for each, of which those from c on are 0. */
typedef struct mg_winograd_image {
    int64_t h, w, c, top, left;
    int64_t step, phase;
    mg_dtype dtype; /* float32, float16 or bfloat16 */
} mg_winograd_image;

/* The part of every image whose tiles have the same size: rows x columns tiles with high x wide
 * elements (8, 6 or 4). A tile makes high - taps + 1 times wide - taps + 1 results. (y, x): the
 * first result of the region. */
typedef struct mg_winograd_region {
    int64_t y, x, rows, columns;
    int high, wide, taps;
} mg_winograd_region;

/* Filters {taps, taps, c, k}. */
typedef struct mg_winograd_filters {
    int taps;
    int64_t c, k;
} mg_winograd_filters;

/* A transformed operand has a plane for each element of the largest tiles; that of element (i, j)
 * begins at at + (i * wide + j) * plane. Smaller tiles use the first elements of the first rows. */
typedef struct mg_winograd_planes {
    float *at;
    int high, wide;
    int64_t plane;
} mg_winograd_planes;

/* The epilogue of results. If they are written past the caches, end_stream must follow before other
 * threads read them. */
typedef struct mg_winograd_finish {
    const float *bias; /* or NULL */
    bool relu, past_caches;
    int64_t first,
        end; /* the channels of a pixel that are computed; strips of m begin with the first */
} mg_winograd_finish;

typedef struct mg_simd_winograd {
    /* Transforms filters w {taps, taps, c, k}, with 2 to 5 taps, to planes {strips, c, strip};
     * columns past k are 0. A call computes channels [first, end) of one strip, which begins at
     * u.at. filter_gradients does the reverse with the gradients, from a strip at du.at to dw. */
    void (*filters)(const mg_winograd_filters *w, const float *from, mg_winograd_planes u,
                    int64_t strip, int64_t first, int64_t end);
    void (*filter_gradients)(const mg_winograd_filters *w, mg_winograd_planes du, float *dw,
                             int64_t strip, int64_t first, int64_t end);
    /* Transforms n tiles of x from tile `first` of the region on, to planes {n, ld}. */
    void (*images)(const mg_winograd_image *g, const mg_winograd_region *r, const void *x,
                   int64_t first, int64_t n, mg_winograd_planes v, int64_t ld);
    /* Transforms tiles of dy, whose step is 1, to planes {strips, tiles, strip}; or such planes to
     * tiles of the result. */
    void (*gradients)(const mg_winograd_image *g, const mg_winograd_region *r, const void *dy,
                      int64_t first, int64_t n, mg_winograd_planes d, int64_t tiles);
    void (*results)(const mg_winograd_image *g, const mg_winograd_region *r, mg_winograd_planes m,
                    int64_t tiles, void *y, int64_t first, int64_t n, const mg_winograd_finish *f);
} mg_simd_winograd;

#endif
