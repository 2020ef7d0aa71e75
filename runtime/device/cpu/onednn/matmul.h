/* A product of two float32 matrices by oneDNN, for matmul and for 1x1 convolutions. */
#ifndef MG_DEVICE_CPU_ONEDNN_MATMUL_H
#define MG_DEVICE_CPU_ONEDNN_MATMUL_H

#include "device/cpu/products/matmul_batch.h"
#include "device/cpu/onednn/onednn.h"

/* Bytes of scratch that mg_product_run needs. */
size_t mg_product_scratch(const mg_product *p);
/* With all threads. No size may be 0. */
dnnl_status_t mg_product_run(const mg_product *p, const float *a, const float *b, float *y,
                             float *scratch);

#endif
