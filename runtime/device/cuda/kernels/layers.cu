/* Normalizations and softmax: kernels that exist for each float type; the shapes and formulas are
 * in the bodies.
 *
 *     norm_body.h         statistics of columns, batch normalization and the sums of its gradient
 *     layer_norm_body.h   layer normalization, its gradient and the rows' statistics
 *     softmax_body.h      softmax, log_softmax and their gradient; softmax cross-entropy */
#include "device/cuda/kernels/index.h"
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/layer_params.h"

#define BODY "device/cuda/kernels/norm_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/layer_norm_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/softmax_body.h"
#include "device/cuda/kernels/each_float.h"
