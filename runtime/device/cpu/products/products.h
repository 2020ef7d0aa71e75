/* Matrix products. matmul.c computes the steps that oneDNN (onednn/matmul.c) leaves; convolutions
 * use gemm.h, too. */
#ifndef MG_DEVICE_CPU_PRODUCTS_PRODUCTS_H
#define MG_DEVICE_CPU_PRODUCTS_PRODUCTS_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_packed_matmul, mg_cpu_matmul;

#endif
