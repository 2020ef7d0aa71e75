/* The parameters of kernels/create.cu and kernels/random.cu. */
#ifndef MG_DEVICE_CUDA_CREATE_PARAMS_H
#define MG_DEVICE_CUDA_CREATE_PARAMS_H

#include "device/cuda/kernels/params.h"

typedef struct fill_params {
    void *out;
    long long bytes;
    unsigned long long value[2]; /* the element, repeated */
} fill_params;

/* {outer, n, inner}: 0 .. n - 1 along the middle. */
typedef struct iota_params {
    void *out;
    long long count, n, inner;
} iota_params;

typedef struct random_params {
    mg_draw draw;
    void *out;
    long long first, count; /* elements [first, first + count) of the whole draw */
    double a, b;
    unsigned long long range; /* of randint */
    unsigned threshold;       /* of bernoulli */
    int aligned;              /* blocks of four can be stored as one */
} random_params;

#endif
