/* Depthwise convolutions, where each channel has kernels of its own: no product of matrices, but as
 * much reading as computing. Neighbouring threads have neighbouring channels. */
#include "device/cuda/kernels/conv_depth_params.h"
#include "device/cuda/kernels/kernel.h"

#define BODY "device/cuda/kernels/conv_depth_body.h"
#include "device/cuda/kernels/each_float.h"
