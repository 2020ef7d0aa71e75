/* The parameters of conv_depth.cu. */
#ifndef MG_DEVICE_CUDA_CONV_DEPTH_PARAMS_H
#define MG_DEVICE_CUDA_CONV_DEPTH_PARAMS_H

/* Taps of a thread of a weight gradient: the cells of a kernel are taken so many at once. */
enum { MG_DEPTH_THREADS = 256, MG_DEPTH_TAPS = 9, MG_DEPTH_VECTOR = 4 };

typedef struct depth_params {
    const void *x, *w, *bias, *dy; /* those that are given */
    void *out;                     /* or the parts {chunks, kh, kw, k} of a weight gradient */
    long long n;
    int h, wide, oh, ow, k, each; /* k: kernels, `each` of every channel; or vectors of them */
    int kh, kw, down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    int width, chunks; /* of a weight gradient: neighbours of a block (a power of two); of rows */
    int relu, unused;
} depth_params;

#endif
