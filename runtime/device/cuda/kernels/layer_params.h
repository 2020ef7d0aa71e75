/* The parameters of the kernels of layers.cu, pool.cu and finish.cu. */
#ifndef MG_DEVICE_CUDA_KERNELS_LAYER_PARAMS_H
#define MG_DEVICE_CUDA_KERNELS_LAYER_PARAMS_H

/* ---- finish.cu: bias and relu ---- */

enum { MG_BIAS_VECTOR = 4 };

typedef struct bias_relu_params {
    void *y;                   /* {count / channels, channels}, changed in place */
    const void *bias;          /* {channels}; NULL: none */
    long long count, channels; /* elements of y and of the last axis */
    int relu;
} bias_relu_params;

/* ---- finish.cu: adding partial sums ---- */

/* A block takes MG_PARTS_WIDTH neighbouring elements and MG_PARTS_THREADS / MG_PARTS_WIDTH parts at
 * a time. */
enum { MG_PARTS_WIDTH = 32, MG_PARTS_THREADS = 1024 };

typedef struct parts_params {
    const void *parts; /* {n, count} of float, or of double for f64 */
    void *out;         /* {count} of the dtype */
    long long n, count;
} parts_params;

/* ---- pool_body.h ---- */

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

/* ---- softmax_body.h, norm_body.h, layer_norm_body.h ---- */

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
    int by_row, unused; /* by_row: moments are per row (layer norm), else per column */
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

/* ---- cross-entropy, in softmax_body.h ---- */

typedef struct cross_entropy_params {
    const void *x;       /* logits {rows, n} */
    const void *targets; /* probabilities {rows, n}, or integer labels {rows} */
    const void *dy;      /* {rows}, for the gradient; NULL: dy_value in each row */
    void *loss;          /* {rows}, or NULL */
    void *gradient;      /* {rows, n}, or NULL */
    double dy_value;
    long long rows, n;
    int label_bytes; /* size of a label; 0: targets are probabilities */
    /* Beside 16-bit logits: whether targets, dy and loss are float32, and the gradient */
    int beside, gradient_beside;
} cross_entropy_params;

#endif
