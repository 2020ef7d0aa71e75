/* The parameters of the kernels of products.cu: matrix products and convolutions. */
#ifndef MG_DEVICE_CUDA_KERNELS_PRODUCT_PARAMS_H
#define MG_DEVICE_CUDA_KERNELS_PRODUCT_PARAMS_H

#include "device/cuda/kernels/divisor.h"

/* ---- products in tiles (tile.h): matmul_body.h and conv_body.h ---- */

/* A block of MG_TILE_THREADS makes a tile of MG_TILE x MG_TILE results, a thread MG_TILE_EACH x
 * MG_TILE_EACH of them; it goes along the inner axis in steps of MG_TILE_INNER. */
enum { MG_TILE = 64, MG_TILE_INNER = 16, MG_TILE_THREADS = 256, MG_TILE_EACH = 4 };

typedef struct matmul_params {
    const void *a, *b, *bias; /* bias {n}; NULL: none */
    void *y;
    long long m, n, k, matrices;                /* y is {matrices, m, n}, k the inner axis */
    long long dim[8], stride_a[8], stride_b[8]; /* the batch axes; strides in matrices */
    int rank, turn_a, turn_b, relu;             /* batch axes; stored transposed; epilogue */
} matmul_params;

typedef struct conv_params {
    const void *x, *w, *y, *bias; /* inputs: two of x, w and y (y: dy), and bias or NULL */
    void *out;                    /* y, or dx */
    void *partials;               /* dw: partial sums {splits, taps, k of all groups} */
    long long n, h, wide, c;      /* images; c: channels of a group */
    long long oh, ow, k;          /* the result; k: kernels of a group */
    int kh, kw, down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    /* Division by the sizes and strides of the same names. */
    mg_divisor by_c, by_k, by_kw, by_h, by_wide, by_oh, by_ow, by_down, by_across;
    int groups, splits, relu; /* splits: ranges of pixels of a weight gradient */
} conv_params;

/* ---- conv_direct_body.h: images with few channels ---- */

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

/* ---- conv_depth_body.h: depthwise convolutions ---- */

/* MG_DEPTH_TAPS: cells of a kernel whose gradients a thread sums at once (all of a 3 x 3 kernel).
 * MG_DEPTH_VECTOR: channels of one access in the vector form. */
enum { MG_DEPTH_THREADS = 256, MG_DEPTH_TAPS = 9, MG_DEPTH_VECTOR = 4 };

typedef struct depth_params {
    const void *x, *w, *bias, *dy; /* inputs; NULL if the form has no such input, or no bias */
    void *out;   /* y or dx; for a weight gradient the partial sums {chunks, kh, kw, k} of REAL */
    long long n; /* images */
    int h, wide, oh, ow, k,
        each; /* k: kernels, `each` for every input channel; or vectors of them */
    int kh, kw, down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    int width;  /* weight gradient only: kernels of a block, a power of two */
    int chunks; /* weight gradient only: number of ranges that the rows of dy are divided into */
    int relu, unused;
} depth_params;

#endif
