/* The descriptors of cuDNN's older interface, and what its calls check alike. */
#ifndef FAKE_CUDA_CUDNN_LEGACY_H
#define FAKE_CUDA_CUDNN_LEGACY_H

#include "cudnn_compute.h"

/* Each begins with its kind, as long as it lives; `set`: it was described. */
struct cudnnTensorStruct {
    uint32_t kind;
    bool set;
    cudnnTensorFormat_t format;
    tensor t; /* without an address */
};

struct cudnnFilterStruct {
    struct cudnnTensorStruct as; /* k, c, h, w in the place of n, c, h, w */
};

struct cudnnConvolutionStruct {
    uint32_t kind;
    bool set;
    int pad[2], stride[2], dilation[2], groups;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t type; /* in which it computes */
    cudnnMathType_t math;
};

struct cudnnPoolingStruct {
    uint32_t kind;
    bool set;
    cudnnPoolingMode_t mode;
    cudnnNanPropagation_t nan;
    int window[2], pad[2], stride[2];
};

/* The tensor of a descriptor; NULL: there is none, or it was not described. */
const tensor *legacy_tensor(const struct cudnnTensorStruct *d);
const struct cudnnTensorStruct *legacy_filter(cudnnFilterDescriptor_t d);
const struct cudnnConvolutionStruct *legacy_convolution(cudnnConvolutionDescriptor_t d);
const struct cudnnPoolingStruct *legacy_pooling(cudnnPoolingDescriptor_t d);

/* The tensor at an address, if all of it is device memory and its elements are aligned. */
bool legacy_place(const struct cudnnTensorStruct *d, const void *at, tensor *placed);
/* alpha or beta, for data of this type. */
double legacy_factor(const void *factor, cudnnDataType_t data);
bool legacy_overlap(const tensor *a, const tensor *b);

#endif
