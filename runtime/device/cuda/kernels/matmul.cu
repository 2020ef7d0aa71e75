/* Matrix products without a library, for shapes and types that cuBLASLt does not take. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/kernels/tile.h"

#define BODY "device/cuda/kernels/matmul_body.h"
#include "device/cuda/kernels/each_float.h"
