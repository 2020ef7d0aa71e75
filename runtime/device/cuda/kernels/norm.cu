/* Moments of columns, batch normalisation, and the sums its gradient needs. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/norm_params.h"

#define BODY "device/cuda/kernels/norm_body.h"
#include "device/cuda/kernels/each_float.h"
