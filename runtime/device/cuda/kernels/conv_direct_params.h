/* The parameters of conv_direct.cu. */
#ifndef MG_DEVICE_CUDA_CONV_DIRECT_PARAMS_H
#define MG_DEVICE_CUDA_CONV_DIRECT_PARAMS_H

/* Kernels are taken in vectors; a thread makes MG_DIRECT_PIXELS x MG_DIRECT_VECTOR results, or of a
 * weight gradient MG_DIRECT_TAPS x MG_DIRECT_VECTOR. A tap: a cell of the kernel and a channel. */
enum { MG_DIRECT_THREADS = 256, MG_DIRECT_VECTOR = 4, MG_DIRECT_PIXELS = 4, MG_DIRECT_TAPS = 9 };

/* Taps whose lanes are added up together. */
enum { MG_DIRECT_TOGETHER = 3 };

typedef struct direct_params {
    const void *x, *w, *bias, *dy; /* those that are given */
    void *out;                     /* y, or the parts {parts, taps, k} of a weight gradient */
    long long tiles;               /* of all images: bands x strips of each */
    int h, wide, c, oh, ow, k, kh, kw;
    int down, across, spread_y, spread_x, top, left; /* strides, dilations, pads */
    int rows, columns, bands, strips;                /* of a tile, in results */
    int patch_rows, patch_run;                       /* of x under a tile: numbers in a row */
    int kernels, slices; /* of a block, whole vectors; how many such there are */
    int lanes;           /* of a weight gradient: pixels at once */
    int relu, vector;    /* vector: k is a multiple of it, out and dy lie accordingly */
    int unused;
} direct_params;

#endif
