/* The op matmul as a batch of products of matrices, for our kernel and for cuBLASLt. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_MATMUL_H
#define MG_DEVICE_CUDA_LAUNCHERS_MATMUL_H

#include "device/program/program.h"

typedef struct mg_product {
    int64_t m, n, k;     /* each product is {m, k} times {k, n} */
    bool turn_a, turn_b; /* the operand is stored transposed */
    bool bias, relu;     /* to be added and applied to the result */
    bool sums;      /* there is a second result: the column sums of b (graph/epilogue_fusion.c) */
    mg_shape batch; /* the batch axes; none if one b serves the whole batch: then m has all rows */
    int64_t stride_a[MG_MAX_RANK],
        stride_b[MG_MAX_RANK]; /* along the batch axes, in matrices; 0: broadcast */
    int64_t matrices;          /* of the batch */
} mg_product;

/* The products that a step asks for, from its shapes and attributes. */
mg_product mg_product_of(const mg_kernel_plan *plan);

/* Whether matrix i of the batch lies at i * step for a single step, 0 or 1, which *step becomes.
 * Some batches are broadcast along only some of their axes, and have none. */
bool mg_product_is_even(const mg_product *p, const int64_t *stride, int64_t *step);

#endif
