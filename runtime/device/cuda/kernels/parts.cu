/* Adds up the parts of a sum that blocks made, always in the same order. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/parts_params.h"

#define BODY "device/cuda/kernels/parts_body.h"
#include "device/cuda/kernels/each_float.h"
