/* softmax, log_softmax and softmax_grad along an axis: runs of n elements, `inner` apart. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/norm_params.h"

#define BODY "device/cuda/kernels/softmax_body.h"
#include "device/cuda/kernels/each_float.h"
