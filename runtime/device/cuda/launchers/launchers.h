/* Code shared by launchers and callers of libraries: the form of a matrix product, statistics of
 * columns, bias and relu, partial sums. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_LAUNCHERS_H
#define MG_DEVICE_CUDA_LAUNCHERS_LAUNCHERS_H

#include "device/cuda/context/context.h"
#include "device/cuda/kernels/layer_params.h"
#include "device/program/program.h"

/* ---- matmul.c: matmul as a batch of products, for our kernel and for cuBLASLt ---- */

typedef struct mg_product {
    int64_t m, n, k;     /* each product is {m, k} times {k, n} */
    bool turn_a, turn_b; /* the operand is stored transposed */
    bool bias, relu;     /* to be added and applied to the result */
    bool sums; /* there is a second result: the column sums of b (graph/epilogue_fusion.c) */
    mg_shape
        batch; /* the batch axes; none if the whole batch has the same b: then m counts all rows */
    int64_t stride_a[MG_MAX_RANK],
        stride_b[MG_MAX_RANK]; /* along the batch axes, in matrices; 0: broadcast */
    int64_t matrices;          /* of the batch */
} mg_product;

/* The products of a step, from its shapes and attributes. */
mg_product mg_product_of(const mg_kernel_plan *plan);

/* Whether matrix i of the batch is at i * *step for one step of 0 or 1; sets *step. False for
 * batches that are broadcast along only some of their axes. */
bool mg_product_is_even(const mg_product *p, const int64_t *stride, int64_t *step);

/* ---- norm.c: statistics of the columns of a matrix {rows, channels}: moments, or weighted sums.
 *
 * Blocks compute partial results over chunks of rows, and a second kernel combines them. ---- */

typedef struct mg_columns {
    struct mg_column_form { /* how the work is divided */
        CUfunction partial; /* NULL if this form is not possible */
        int width, chunks;  /* columns of a block; chunks of rows */
        int64_t piece;      /* rows of a chunk */
    } one, vector;          /* a thread takes one channel, or VECTOR of them */
    CUfunction join,
        add;         /* the second kernel: `join` for moments, `add` for sums; the other is NULL */
    column_params p; /* without addresses and form */
} mg_columns;

/* Fills *columns for x: for its moments, or for sums. *scratch: bytes of the partial results. */
mg_status mg_cuda_columns_prepare(mg_device *d, bool moments, const mg_value *x,
                                  mg_columns *columns, size_t *scratch);
/* Enqueues both kernels. The caller has set p.x, dy, moments, partials and out; elements have
 * `size` bytes. */
mg_status mg_cuda_columns_run(const mg_device *d, const mg_columns *columns, size_t size,
                              column_params p);
/* How many columns a block takes: the smallest power of two that covers all channels, at most 32.
 */
int mg_cuda_column_width(int64_t channels);

/* ---- finish.c: y = relu(y + bias) in place, for products and convolutions of a library that
 * cannot fuse that, or whose relu loses NaN ---- */

typedef struct mg_bias_relu {
    CUfunction one, vector; /* one element at once, or MG_BIAS_VECTOR of them */
} mg_bias_relu;

/* Looks up the kernels, which exist for f16, bf16 and f32. */
mg_status mg_cuda_find_bias_relu(mg_device *d, mg_dtype t, mg_bias_relu *kernels);
/* Enqueues it. The bias runs along the last axis, of p->channels elements; without one p->bias is
 * NULL. */
mg_status mg_cuda_run_bias_relu(const mg_device *d, const mg_bias_relu *kernels,
                                const bias_relu_params *p);
/* Applies bias and relu to the result of a conv2d that ran without them. */
mg_status mg_cuda_finish_conv(const mg_call *call, const mg_bias_relu *kernels);

/* ---- finish.c: a kernel whose blocks each sum a part writes {n, count} partial results to
 * scratch, and a second kernel (kernels/finish.cu) adds them up in a fixed order ---- */

/* Bytes of scratch for n partial sums of `count` numbers each, whose total becomes a `dtype`: they
 * are doubles for f64 and floats otherwise. */
size_t mg_cuda_partial_sums_bytes(mg_dtype dtype, int64_t n, int64_t count);

/* Looks up the kernel that adds them up. */
mg_status mg_cuda_find_partial_sums(mg_device *d, mg_dtype dtype, CUfunction *add);

/* Enqueues it: parts {n, count} become out {count} of its dtype. */
mg_status mg_cuda_add_partial_sums(const mg_device *d, CUfunction add, const void *parts, int64_t n,
                                   void *out, int64_t count);

#endif
