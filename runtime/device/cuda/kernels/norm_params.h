/* The parameters of softmax.cu, norm.cu and layer_norm.cu. */
#ifndef MG_DEVICE_CUDA_NORM_PARAMS_H
#define MG_DEVICE_CUDA_NORM_PARAMS_H

typedef struct softmax_params {
    const void *x, *dy; /* of softmax_grad x is y */
    void *y;
    long long outer, n, inner;
    int kind, unused; /* 0 softmax, 1 log_softmax, 2 softmax_grad */
} softmax_params;

/* Statistics of the columns of {rows, channels}. A block has MG_COLUMN_THREADS threads: `width`
 * neighbouring columns or vectors of columns (a power of two), the others are as many rows at once;
 * block b does the part b % chunks of the rows of tile b / chunks. */
enum { MG_COLUMN_THREADS = 256, MG_JOIN_THREADS = 1024 };

/* Rows that a thread reads at once, for moments, sums and normalising. */
enum { MG_MOMENTS_ROWS = 8, MG_SUMS_ROWS = 4, MG_NORM_ROWS = 4 };

typedef struct column_params {
    const void *x, *dy, *moments; /* moments {2, channels}, or of each row: {rows, 2} */
    void *partials;               /* {chunks, 2, channels} of the numbers that are computed with */
    void *out;                    /* {2, channels} */
    long long rows, channels, piece; /* rows of a chunk; the last one's may be fewer */
    double epsilon;
    int width, chunks, by_row, unused; /* by_row: the moments are the rows' */
} column_params;

typedef struct batch_norm_params {
    const void *x, *moments, *gamma, *beta;
    void *y;
    long long rows, channels; /* channels: vectors of MG_VECTOR where there are such */
    double epsilon;
    int width, unused; /* columns of a block, as above */
} batch_norm_params;

typedef struct layer_norm_params {
    const void *x, *gamma, *other; /* other: beta, or dy */
    void *y;                       /* the result, or {rows, 2}: mean and 1 / deviation */
    long long rows, n;
    double epsilon;
    int kind, unused; /* 0 the result, 1 the gradient of x, 2 the rows' statistics */
} layer_norm_params;

#endif
