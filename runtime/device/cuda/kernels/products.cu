/* Matrix products and convolutions without a library, for each float type; convolutions with both
 * gradients.
 *
 *     matmul_body.h        for shapes and types that cuBLASLt does not support
 *     conv_body.h          a matrix product in tiles (implicit GEMM): any strides, pads, dilations
 *                          and groups, for cases that cuDNN does not support
 *     conv_direct_body.h   few input channels, as in a network's first layer: image patch and
 *                          weights in shared memory
 *     conv_depth_body.h    depthwise: each input channel has kernels of its own
 *
 * Images are {n, h, w, c}, weights {kh, kw, c, k}: the last axis is contiguous. */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/product_params.h"
#include "device/cuda/kernels/tile.h"

#define BODY "device/cuda/kernels/matmul_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/conv_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/conv_direct_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/conv_depth_body.h"
#include "device/cuda/kernels/each_float.h"
