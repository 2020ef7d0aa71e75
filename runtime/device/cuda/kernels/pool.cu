/* Pooling over windows of images {N, H, W, C}, and its backward forms: see ops/pool.c. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/pool_params.h"

#define BODY "device/cuda/kernels/pool_body.h"
#include "device/cuda/kernels/each_float.h"
