/* The parameters of cross_entropy_body.h. */
#ifndef MG_DEVICE_CUDA_CROSS_ENTROPY_PARAMS_H
#define MG_DEVICE_CUDA_CROSS_ENTROPY_PARAMS_H

typedef struct cross_entropy_params {
    const void *x;       /* logits {rows, n} */
    const void *targets; /* probabilities {rows, n}, or integer labels {rows} */
    const void *dy;      /* {rows} for the gradient; NULL for the loss */
    void *y;             /* loss {rows}, or gradient {rows, n} */
    long long rows, n;
    int label_bytes, unused; /* size of a label; 0: targets are probabilities */
} cross_entropy_params;

#endif
