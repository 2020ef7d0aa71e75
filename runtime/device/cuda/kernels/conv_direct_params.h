/* The parameters of conv_direct_body.h: convolutions of images with few channels. */
#ifndef MG_DEVICE_CUDA_CONV_DIRECT_PARAMS_H
#define MG_DEVICE_CUDA_CONV_DIRECT_PARAMS_H

/* A thread makes MG_DIRECT_PIXELS x MG_DIRECT_VECTOR results (pixels x kernels), or, for a weight
 * gradient, MG_DIRECT_TAPS x MG_DIRECT_VECTOR sums (taps x kernels). A tap is one cell of a kernel
 * with one channel. */
enum { MG_DIRECT_THREADS = 256, MG_DIRECT_VECTOR = 4, MG_DIRECT_PIXELS = 4, MG_DIRECT_TAPS = 9 };

/* Weight gradient: taps whose lanes are added at the same time, limited by shared memory. */
enum { MG_DIRECT_TOGETHER = 3 };

typedef struct direct_params {
    const void *x, *w, *bias, *dy; /* inputs; NULL if the form has no such input, or no bias */
    void *out;       /* y; for a weight gradient the partial sums {parts, taps, k} of REAL */
    long long tiles; /* of all images; an image has bands x strips of them */
    int h, wide, c, oh, ow, k, kh, kw;
    int down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    int rows, columns, bands, strips; /* a tile's size in results; tiles down and across an image */
    int patch_rows, patch_run;        /* the patch of x under a tile: rows, numbers in a row */
    int kernels, slices; /* kernels of a block, whole vectors; blocks that cover all kernels */
    int lanes;           /* weight gradient only: pixels that a block takes at once */
    int relu;
    int vector; /* k is a multiple of MG_DIRECT_VECTOR and out and dy are aligned for vector access
                 */
    int unused;
} direct_params;

#endif
