/* y = relu(y + bias) in place, for products and convolutions of a library that cannot fuse that, or
 * whose relu loses NaN. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_BIAS_RELU_H
#define MG_DEVICE_CUDA_LAUNCHERS_BIAS_RELU_H

#include "device/cuda/kernels/bias_relu_params.h"
#include "device/cuda/context/context.h"

typedef struct mg_bias_relu {
    CUfunction one, vector; /* one element at once, or MG_BIAS_VECTOR of them */
} mg_bias_relu;

/* Looks the kernels up; there are such for f16, bf16 and f32. */
mg_status mg_cuda_find_bias_relu(mg_device *d, mg_dtype t, mg_bias_relu *kernels);
/* Enqueues it. The bias runs along the last axis, of p->channels elements; without one p->bias is
 * NULL. */
mg_status mg_cuda_run_bias_relu(const mg_device *d, const mg_bias_relu *kernels,
                                const bias_relu_params *p);
/* Adds what is missing to the result of a conv2d that ran without bias and relu. */
mg_status mg_cuda_finish_conv(const mg_call *call, const mg_bias_relu *kernels);

#endif
