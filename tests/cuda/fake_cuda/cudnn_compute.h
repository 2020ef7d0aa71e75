/* The arithmetic of the fake cuDNN: tensors with strides, and convolutions of them. */
#ifndef FAKE_CUDA_CUDNN_COMPUTE_H
#define FAKE_CUDA_CUDNN_COMPUTE_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tensor {
    int64_t number;            /* its unique id in a graph */
    int64_t dim[4], stride[4]; /* {n, c, h, w}; the strides give the order in memory */
    cudnnDataType_t type;      /* float, half or bfloat16 */
    bool is_virtual;           /* between two operations: has no memory */
    const void *at;            /* its address, set when it runs */
} tensor;

/* A convolution with its epilogue: all that an engine needs to run it. */
typedef struct work {
    cudnnBackendDescriptorType_t form; /* forward, or one of the two gradients */
    int engine, bias, relu;
    tensor x, w, y, b; /* image, filter, result (after bias and relu), bias */
    int64_t strides[2], dilations[2], before[2], after[2];
    char *workspace;
    size_t workspace_bytes;
} work;

/* Whether the whole tensor lies in device memory. */
bool dnn_is_owned(const tensor *t);

/* Whether the sizes of a convolution fit one another. */
bool dnn_is_consistent(const work *w);
/* Overwrites the workspace and computes; args: a struct work. */
void dnn_convolve(void *args);

#endif
