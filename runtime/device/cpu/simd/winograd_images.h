/* Inner loops of Winograd convolutions whose vectors hold the same element of several images; see
 * conv/winograd_images.c one folder up. */
#ifndef MG_DEVICE_CPU_SIMD_WINOGRAD_IMAGES_H
#define MG_DEVICE_CPU_SIMD_WINOGRAD_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sizes of a convolution, for one group of its channels. */
typedef struct mg_winograd_images {
    int64_t n, h, w, oh, ow;  /* images, and results */
    int64_t c, k;             /* channels of an image and of a result in the group */
    int64_t c_total, k_total; /* in all groups: floats of a pixel */
    int64_t top, left;        /* padding */
    int side;                 /* results along a side of a tile: 4 for 3x3 filters, 2 for 5x5 */
    int64_t rows, columns;    /* tiles of an image */
} mg_winograd_images;

/* Operands point at the first image and the first channel of the group. `count` images are computed
 * together, at most `images`; `scratch` has room for scratch_floats. */
typedef struct mg_simd_winograd_images {
    int images;   /* one per lane of a vector */
    int elements; /* of a transformed tile */
    size_t (*scratch_floats)(const mg_winograd_images *s);
    size_t (*sum_floats)(const mg_winograd_images *s);
    /* Transforms one channel of the filters w {taps, taps, c, k_total} to u {36, c, k}, or to u
     * {36, k, c} if transposed. */
    void (*filters)(const mg_winograd_images *s, const float *w, bool transposed, int64_t channel,
                    float *u);
    /* u is not transposed; bias may be NULL */
    void (*forward)(const mg_winograd_images *s, const float *x, int64_t count, const float *u,
                    const float *bias, bool relu, float *scratch, float *y);
    /* u is transposed */
    void (*image_gradient)(const mg_winograd_images *s, const float *dy, int64_t count,
                           const float *u, float *scratch, float *dx);
    /* Adds what these images contribute to the sums, which are sum_floats floats. */
    void (*add_gradient)(const mg_winograd_images *s, const float *x, const float *dy,
                         int64_t count, float *scratch, float *sums);
    /* For one of the `elements` of a tile: adds up the sums of `teams` threads, `step` floats
     * apart, in the order of the threads, and then their lanes. The result replaces the first
     * thread's sums of the element. */
    void (*fold_sums)(const mg_winograd_images *s, float *sums, int teams, size_t step, int element,
                      float *scratch);
    /* Computes one channel of dw, from sums whose elements have all been folded. */
    void (*filter_gradient)(const mg_winograd_images *s, const float *sums, int64_t channel,
                            float *dw);
} mg_simd_winograd_images;

#endif
