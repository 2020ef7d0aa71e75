/* The parameters of pool_body.h. */
#ifndef MG_DEVICE_CUDA_POOL_PARAMS_H
#define MG_DEVICE_CUDA_POOL_PARAMS_H

typedef struct pool_params {
    const void *x; /* {n, h, w, c} */
    const void *v; /* max_pool: the tensor to pick elements from; gradients: dy {n, oh, ow, c} */
    void *out;
    long long n;
    int h, w, c, oh, ow; /* c: channels, or vectors of them in the _vector kernels */
    int rows, columns;   /* of a window */
    int down, across;    /* strides */
    int top, left;       /* pads */
} pool_params;

#endif
