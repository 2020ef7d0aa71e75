/* The parameters of pool.cu. */
#ifndef MG_DEVICE_CUDA_POOL_PARAMS_H
#define MG_DEVICE_CUDA_POOL_PARAMS_H

typedef struct pool_params {
    const void *x; /* {n, h, w, c} */
    const void *v; /* what is picked from, or dy {n, oh, ow, c} */
    void *out;
    long long n;
    int h, w, c, oh, ow; /* c: vectors of channels where there are such */
    int rows, columns;   /* of a window */
    int down, across;    /* strides */
    int top, left;       /* pads */
} pool_params;

#endif
