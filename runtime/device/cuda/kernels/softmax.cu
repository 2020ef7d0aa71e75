/* softmax, log_softmax and softmax_grad along an axis, and the cross-entropy of softmax with its
 * gradient. See the bodies for shapes and formulas. */
#include "device/cuda/kernels/cross_entropy_params.h"
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/norm_params.h"

#define BODY "device/cuda/kernels/softmax_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/cross_entropy_body.h"
#include "device/cuda/kernels/each_float.h"
