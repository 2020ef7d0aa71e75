/* Pooling over windows of images {n, h, w, c} and its gradients: see ops/pool.c. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/layer_params.h"

#define BODY "device/cuda/kernels/pool_body.h"
#include "device/cuda/kernels/each_float.h"
