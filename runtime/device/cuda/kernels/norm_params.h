/* The parameters of softmax_body.h, norm_body.h and layer_norm_body.h. */
#ifndef MG_DEVICE_CUDA_NORM_PARAMS_H
#define MG_DEVICE_CUDA_NORM_PARAMS_H

/* softmax along the middle axis of {outer, n, inner}. */
typedef struct softmax_params {
    const void *x, *dy; /* softmax_grad: x is the softmax y, dy its gradient */
    void *y;
    long long outer, n, inner;
    int kind, unused; /* 0 softmax, 1 log_softmax, 2 softmax_grad */
} softmax_params;

/* Statistics of the columns of {rows, channels}. A block has MG_COLUMN_THREADS threads: `width` (a
 * power of two) side by side over neighbouring columns or vectors of columns, and MG_COLUMN_THREADS
 * / width rows at once. Block b takes chunk b % chunks of the rows of tile b / chunks of the
 * columns. */
enum { MG_COLUMN_THREADS = 256, MG_JOIN_THREADS = 1024 };

/* Rows that a thread reads at once, in moments_partial, sums_partial and batch_norm. */
enum { MG_MOMENTS_ROWS = 8, MG_SUMS_ROWS = 4, MG_NORM_ROWS = 4 };

typedef struct column_params {
    const void *x, *dy, *moments; /* moments {2, channels}; by_row {rows, 2} */
    void *partials;               /* {chunks, 2, channels} of float, or of double for f64 */
    void *out;                    /* {2, channels} */
    long long rows, channels;
    long long piece; /* rows of a chunk; the last chunk may have fewer */
    double epsilon;
    int width, chunks;
    int by_row, unused; /* by_row: moments belong to rows (layer norm), else to columns */
} column_params;

typedef struct batch_norm_params {
    const void *x, *moments, *gamma, *beta;
    void *y;
    long long rows, channels; /* batch_norm_vector: channels counts vectors of 4 */
    double epsilon;
    int width, unused; /* columns of a block, as in column_params */
} batch_norm_params;

typedef struct layer_norm_params {
    const void *x, *gamma, *other; /* x {rows, n}; other: beta for kind 0, dy for kind 1 */
    void *y;                       /* {rows, n}; kind 2: {rows, 2} of mean and 1 / deviation */
    long long rows, n;
    double epsilon;
    int kind, unused; /* 0 y, 1 the gradient of x, 2 the rows' statistics */
} layer_norm_params;

#endif
