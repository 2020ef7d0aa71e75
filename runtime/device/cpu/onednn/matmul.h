/* A product of two float32 matrices, for matmul and for convolutions that are one. */
#ifndef MG_DEVICE_CPU_ONEDNN_MATMUL_H
#define MG_DEVICE_CPU_ONEDNN_MATMUL_H

#include "device/cpu/onednn/onednn.h"

/* y {m, n} = a {m, k} times b {k, n}, all row-major; a transposed factor lies in memory as {k, m},
 * or as {n, k}. */
typedef struct mg_product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} mg_product;

/* Bytes of scratch that mg_product_run needs. */
size_t mg_product_scratch(const mg_product *p);
/* With all threads. No size may be 0. */
dnnl_status_t mg_product_run(const mg_product *p, const float *a, const float *b, float *y,
                             float *scratch);

#endif
