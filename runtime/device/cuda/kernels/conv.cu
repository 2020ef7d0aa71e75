/* Convolutions without a library, any strides, pads, dilations and groups: what cuDNN does not
 * take. */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/kernels/tile.h"

#define BODY "device/cuda/kernels/conv_body.h"
#include "device/cuda/kernels/each_float.h"
