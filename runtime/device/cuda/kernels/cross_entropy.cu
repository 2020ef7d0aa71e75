/* Cross-entropy of softmax by rows of n logits, and its gradient: see ops/cross_entropy.c. */
#include "device/cuda/kernels/cross_entropy_params.h"
#include "device/cuda/kernels/ids.h"
#include "device/cuda/kernels/kernel.h"

#define BODY "device/cuda/kernels/cross_entropy_body.h"
#include "device/cuda/kernels/each_float.h"
