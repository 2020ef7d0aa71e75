/* The arithmetic of the fake CUDA for cuDNN: tensors with strides, and convolutions of them. */
#ifndef FAKE_CUDA_CUDNN_COMPUTE_H
#define FAKE_CUDA_CUDNN_COMPUTE_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tensor {
    int64_t number, dim[4], stride[4];
    cudnnDataType_t type; /* float, half, bfloat16 or double */
    bool is_virtual;
    const void *at; /* when it runs */
} tensor;

typedef struct work {
    cudnnBackendDescriptorType_t form;
    int engine, bias, relu;
    tensor x, w, y, b; /* y: of the convolution, then the last result */
    int64_t strides[2], dilations[2], before[2], after[2];
    char *workspace;
    size_t workspace_bytes;
} work;

size_t dnn_size(cudnnDataType_t type); /* of an element, in bytes */
double dnn_load(const tensor *t, int64_t i);
void dnn_store(const tensor *t, int64_t i, double value);

int64_t dnn_offset(const tensor *t, int64_t a, int64_t b, int64_t c, int64_t d);
int64_t dnn_extent(const tensor *t); /* elements from the first to the last */
/* Whether all of it is device memory. */
bool dnn_is_owned(const tensor *t);

/* Whether the sizes of a convolution fit one another. */
bool dnn_is_consistent(const work *w);
/* Of x, w and y the one that is written. */
const tensor *dnn_result_of(const work *w);
/* Spoils the workspace and computes; args: a work. */
void dnn_convolve(void *args);

#endif
