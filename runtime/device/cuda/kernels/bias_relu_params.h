/* The parameters of kernels/bias_relu.cu. */
#ifndef MG_DEVICE_CUDA_BIAS_RELU_PARAMS_H
#define MG_DEVICE_CUDA_BIAS_RELU_PARAMS_H

enum { MG_BIAS_VECTOR = 4 };

typedef struct bias_relu_params {
    void *y;
    const void *bias; /* NULL: none */
    long long count, channels;
    int relu;
} bias_relu_params;

#endif
