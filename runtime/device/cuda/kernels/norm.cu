/* Normalisation: statistics of columns (mean and variance), batch normalisation and the sums that
 * its gradient needs; layer normalisation, its gradient and the rows' statistics. */
#include "device/cuda/kernels/kernel.h"
#include "device/cuda/kernels/norm_params.h"

#define BODY "device/cuda/kernels/norm_body.h"
#include "device/cuda/kernels/each_float.h"

#define BODY "device/cuda/kernels/layer_norm_body.h"
#include "device/cuda/kernels/each_float.h"
