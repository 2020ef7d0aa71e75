/* Layer normalisation, its gradient, and the rows' statistics. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/norm_params.h"

#define BODY "device/cuda/kernels/layer_norm_body.h"
#include "device/cuda/kernels/each_float.h"
