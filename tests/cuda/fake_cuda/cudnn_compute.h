/* The arithmetic of the fake cuDNN: tensors with strides, and convolutions of them. */
#ifndef FAKE_CUDA_CUDNN_COMPUTE_H
#define FAKE_CUDA_CUDNN_COMPUTE_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tensor {
    int64_t number;            /* its unique id in a graph */
    int64_t dim[4], stride[4]; /* {n, c, h, w}, in whatever order in memory */
    cudnnDataType_t type;      /* float, half, bfloat16 or double */
    bool is_virtual;           /* between two operations: has no memory */
    const void *at;            /* its address, set when it runs */
} tensor;

/* A convolution with what follows it: all that an engine needs to run it. */
typedef struct work {
    cudnnBackendDescriptorType_t form; /* forward, or one of the two gradients */
    int engine, bias, relu;
    tensor x, w, y, b; /* image, filter, result (after bias and relu), bias */
    int64_t strides[2], dilations[2], before[2], after[2];
    char *workspace;
    size_t workspace_bytes;
} work;

size_t dnn_size(cudnnDataType_t type); /* of an element, in bytes */
double dnn_load(const tensor *t, int64_t i);
void dnn_store(const tensor *t, int64_t i, double value);

int64_t dnn_offset(const tensor *t, int64_t a, int64_t b, int64_t c, int64_t d);
int64_t dnn_extent(const tensor *t); /* elements from the first to the last */
/* Whether the whole tensor lies in device memory. */
bool dnn_is_owned(const tensor *t);

/* Whether the sizes of a convolution fit one another. */
bool dnn_is_consistent(const work *w);
/* The one of x, w and y that the form writes. */
const tensor *dnn_result_of(const work *w);
/* Overwrites the workspace and computes; args: a struct work. */
void dnn_convolve(void *args);

#endif
