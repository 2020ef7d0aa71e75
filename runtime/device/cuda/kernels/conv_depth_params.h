/* The parameters of conv_depth_body.h: depthwise convolutions. */
#ifndef MG_DEVICE_CUDA_CONV_DEPTH_PARAMS_H
#define MG_DEVICE_CUDA_CONV_DEPTH_PARAMS_H

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
    int chunks; /* weight gradient only: the rows of dy are cut into so many ranges */
    int relu, unused;
} depth_params;

#endif
