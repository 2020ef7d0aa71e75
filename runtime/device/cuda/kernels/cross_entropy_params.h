/* The parameters of cross_entropy.cu. */
#ifndef MG_DEVICE_CUDA_CROSS_ENTROPY_PARAMS_H
#define MG_DEVICE_CUDA_CROSS_ENTROPY_PARAMS_H

typedef struct cross_entropy_params {
    const void *x, *targets; /* {rows, n}; targets likewise, or labels {rows} */
    const void *dy;          /* {rows}: the gradient is asked for; or NULL: the loss */
    void *y;
    long long rows, n;
    int label_bytes, unused; /* 0: there are no labels */
} cross_entropy_params;

#endif
