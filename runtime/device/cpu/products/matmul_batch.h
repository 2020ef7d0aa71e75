/* The matrix products that a matmul step consists of. */
#ifndef MG_DEVICE_CPU_PRODUCTS_MATMUL_BATCH_H
#define MG_DEVICE_CPU_PRODUCTS_MATMUL_BATCH_H

#include "device/cpu/cpu.h"

/* y {m, n} = a {m, k} times b {k, n}, all row-major. A transposed factor is stored as {k, m}, or as
 * {n, k}. */
typedef struct mg_product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} mg_product;

/* `count` products of equal sizes. If all matrices a are multiplied by the same b, the batch axes
 * of a become rows of a single product. */
typedef struct mg_matmul_batch {
    mg_product one;
    int64_t count;
    mg_shape shape;
    /* from one matrix to the next along each axis of `shape`, counted in matrices */
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK];
} mg_matmul_batch;

/* Sets *batch, which must be zeroed. Fails if the batch axes cannot be broadcast. */
mg_status mg_matmul_batch_of(mg_matmul_batch *batch, const mg_kernel_plan *plan);

/* The matrices, counted from 0, that product i multiplies; its result is matrix i. */
typedef struct mg_matmul_operands {
    int64_t a, b;
} mg_matmul_operands;
mg_matmul_operands mg_matmul_operands_of(const mg_matmul_batch *batch, int64_t i);

#endif
