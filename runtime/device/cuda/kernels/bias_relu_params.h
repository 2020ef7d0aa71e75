/* The parameters of kernels/bias_relu.cu. */
#ifndef MG_DEVICE_CUDA_BIAS_RELU_PARAMS_H
#define MG_DEVICE_CUDA_BIAS_RELU_PARAMS_H

enum { MG_BIAS_VECTOR = 4 };

typedef struct bias_relu_params {
    void *y;                   /* {count / channels, channels}, changed in place */
    const void *bias;          /* {channels}; NULL: none */
    long long count, channels; /* elements of y and of the last axis */
    int relu;
} bias_relu_params;

#endif
