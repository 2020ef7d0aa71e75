/* The parameters of kernels/create.cu and kernels/random.cu. */
#ifndef MG_DEVICE_CUDA_CREATE_PARAMS_H
#define MG_DEVICE_CUDA_CREATE_PARAMS_H

#include "device/cuda/kernels/params.h"

typedef struct fill_params {
    void *out;
    long long bytes;
    unsigned long long value[2]; /* 16 bytes: the element, repeated */
} fill_params;

/* out {outer, n, inner} gets 0 .. n - 1 along the middle axis; count: all elements. */
typedef struct iota_params {
    void *out;
    long long count, n, inner;
} iota_params;

/* A device computes its shard of a draw: elements [first, first + count) of the whole tensor. */
typedef struct random_params {
    mg_draw draw;
    void *out;
    long long first, count;   /* in elements */
    double a, b;              /* low, high; or mean, deviation; randint: a is the lowest value */
    unsigned long long range; /* randint: how many values there are */
    unsigned threshold;       /* bernoulli: true for 24-bit numbers below this */
    int aligned;              /* four elements can be stored in one access */
} random_params;

#endif
