/* y = relu(y + bias), in place: what a library's kernel does not do, or not for NaN. */
#ifndef MG_DEVICE_CUDA_LAUNCHERS_BIAS_RELU_H
#define MG_DEVICE_CUDA_LAUNCHERS_BIAS_RELU_H

#include "device/cuda/kernels/bias_relu_params.h"
#include "device/cuda/context/context.h"

typedef struct mg_bias_relu {
    CUfunction one, vector; /* elements at once */
} mg_bias_relu;

/* For f16, bf16 and f32. */
mg_status mg_cuda_find_bias_relu(mg_device *d, mg_dtype t, mg_bias_relu *kernels);
/* The bias lies along the last axis, of `channels` elements; NULL: none. */
mg_status mg_cuda_run_bias_relu(const mg_device *d, const mg_bias_relu *kernels,
                                const bias_relu_params *p);
/* The same for a conv2d that was run without its bias, if it has one, and relu, if it is to be. */
mg_status mg_cuda_finish_conv(const mg_call *call, const mg_bias_relu *kernels);

#endif
