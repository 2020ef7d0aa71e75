/* The parameters of matmul.cu and conv.cu. */
#ifndef MG_DEVICE_CUDA_PRODUCT_PARAMS_H
#define MG_DEVICE_CUDA_PRODUCT_PARAMS_H

#include "device/cuda/kernels/divisor.h"

/* A block makes a tile of MG_TILE x MG_TILE results. */
enum { MG_TILE = 64, MG_TILE_INNER = 16, MG_TILE_THREADS = 256, MG_TILE_EACH = 4 };

typedef struct matmul_params {
    const void *a, *b, *bias; /* bias: or NULL */
    void *y;
    long long m, n, k, matrices;
    long long dim[8], stride_a[8], stride_b[8]; /* of the batch; strides in matrices */
    int rank, turn_a, turn_b, relu;
} matmul_params;

typedef struct conv_params {
    const void *x, *w, *y, *bias; /* the two that are given; bias: or NULL */
    void *out, *partials;         /* partials: {splits, groups, rows, columns}, of weights only */
    long long n, h, wide, c;      /* the image; c: channels of a group */
    long long oh, ow, k;          /* the result; k: kernels of a group */
    int kh, kw, down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    mg_divisor by_c, by_k, by_kw, by_h, by_wide, by_oh, by_ow, by_down, by_across;
    int groups, splits, relu;
} conv_params;

#endif
