/* What the op matmul asks for, as products of matrices. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_MATMUL_H
#define MG_DEVICE_CUDA_LAUNCHERS_MATMUL_H

#include "device/program/program.h"

typedef struct mg_product {
    int64_t m, n, k;
    bool turn_a, turn_b, bias, relu;
    bool sums;      /* a second result: those of the columns of b (see join.h) */
    mg_shape batch; /* one b for all of a batch: then they are more rows instead */
    int64_t stride_a[MG_MAX_RANK], stride_b[MG_MAX_RANK]; /* over the batch, in matrices */
    int64_t matrices;
} mg_product;

mg_product mg_product_of(const mg_kernel_plan *plan);

/* Whether matrix i of the batch lies at i * step, with this step (0 or 1). */
bool mg_product_is_even(const mg_product *p, const int64_t *stride, int64_t *step);

#endif
