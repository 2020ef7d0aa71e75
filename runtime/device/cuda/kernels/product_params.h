/* The parameters of products in tiles (tile.h): matmul_body.h and conv_body.h. */
#ifndef MG_DEVICE_CUDA_PRODUCT_PARAMS_H
#define MG_DEVICE_CUDA_PRODUCT_PARAMS_H

#include "device/cuda/kernels/divisor.h"

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

#endif
