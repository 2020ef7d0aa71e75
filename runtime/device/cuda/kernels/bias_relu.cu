/* y = relu(y + bias), in place, the bias along the last axis: after a convolution for which cuDNN
 * has no engine that does it too. */
#include "device/cuda/kernels/bias_relu_params.h"
#include "device/cuda/kernels/kernel.h"

#define BIAS_RELU(dtype)                                                                           \
    KERNEL(bias_relu_##dtype, bias_relu_params) {                                                  \
        for (int64_t i = FIRST; i < p.count; i += STEP) {                                          \
            float v = mg_load_##dtype(p.y, i);                                                     \
            if (p.bias) v += mg_load_##dtype(p.bias, i % p.channels);                              \
            if (p.relu && v < 0) v = 0;                                                            \
            mg_store_##dtype(p.y, i, v);                                                           \
        }                                                                                          \
    }
BIAS_RELU(bf16)
BIAS_RELU(f16)
BIAS_RELU(f32)
