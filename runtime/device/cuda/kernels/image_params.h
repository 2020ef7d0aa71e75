/* The parameters of the kernels of images.cu. */
#ifndef MG_DEVICE_CUDA_KERNELS_IMAGE_PARAMS_H
#define MG_DEVICE_CUDA_KERNELS_IMAGE_PARAMS_H

#include "ops/resize_formulas.h"

/* A linear map between two axes: cell p of the result is the sum over k < count[p] of weight[p *
 * most + k] times cell first[p] + k. Weights are float, or double if `wide`. */
typedef struct taps_table {
    int *first, *count; /* {n} */
    void *weight;       /* {n, most} */
    long long n;
    int most, wide;
} taps_table;

/* Fills a table: of the axis or, if `back`, its transposed one. */
typedef struct taps_params {
    taps_table table;
    mg_resize_axis axis;
    int back, unused;
} taps_params;

/* Images {n, h, w, c} to {n, oh, ow, c}. */
typedef struct resize_params {
    const void *x;
    void *out;
    taps_table rows, columns;
    long long n;
    int h, w, c, oh, ow; /* c: channels, vectors of them, or units of a pixel */
    int unused;
} resize_params;

/* The dtypes of transforms. */
enum { MG_TRANSFORM_F16, MG_TRANSFORM_BF16, MG_TRANSFORM_F32, MG_TRANSFORM_F64 };

typedef struct transform_params {
    const void *x, *transforms;
    void *out;
    double fill;
    long long n;
    int h, w, c, oh, ow;
    int numbers, each; /* 6 or 8 numbers of a transform; one for each image, or one for all */
    int type, mode;    /* of the transforms, above; enum mg_transform_fill */
    int unused;
    /* One unit, written where nothing is read; aligned because kernels read up to 16 bytes at once.
     */
    unsigned long long value[2] __attribute__((aligned(16)));
} transform_params;

#endif
