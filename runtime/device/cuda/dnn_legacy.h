/* cuDNN's calls from before its graph interface: pooling and normalization, which that one only has
 * compiled at run time, and convolutions that it has no plan for. */
#ifndef MG_DEVICE_CUDA_DNN_LEGACY_H
#define MG_DEVICE_CUDA_DNN_LEGACY_H

#include "device/cuda/dnn.h"

#define MG_CUDNN_LEGACY(X)                                                                         \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnSetTensor4dDescriptor)                                                                  \
    X(cudnnDestroyTensorDescriptor)                                                                \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnSetFilter4dDescriptor)                                                                  \
    X(cudnnDestroyFilterDescriptor)                                                                \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnSetConvolution2dDescriptor)                                                             \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnDestroyConvolutionDescriptor)                                                           \
    X(cudnnGetConvolutionForwardAlgorithm_v7)                                                      \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                 \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                               \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)                                                              \
    X(cudnnCreatePoolingDescriptor)                                                                \
    X(cudnnSetPooling2dDescriptor)                                                                 \
    X(cudnnDestroyPoolingDescriptor)                                                               \
    X(cudnnPoolingForward)                                                                         \
    X(cudnnPoolingBackward)                                                                        \
    X(cudnnBatchNormalizationForwardInference)

MG_LIBRARY_TABLE(mg_cudnn_legacy, MG_CUDNN_LEGACY);
extern mg_cudnn_legacy mg_dnn_old; /* usable once mg_dnn_legacy_open has returned MG_OK */

/* Also opens what dnn.h has. MG_UNSUPPORTED if the library is missing, or has them no more. */
mg_status mg_dnn_legacy_open(void);

/* NULL, or why the library cannot be used: for `accepts`. */
const char *mg_dnn_legacy_missing(void);

/* A tensor {N, H, W, C} as it lies row-major; one of fewer axes has its last one as channels.
 * *made is for cudnnDestroyTensorDescriptor. */
mg_status mg_dnn_image(cudnnTensorDescriptor_t *made, const mg_shape *shape, mg_dtype dtype);

/* A factor as the calls want it: the address of a float, or for f64 of a double. */
const void *mg_dnn_factor(mg_dtype dtype, bool one);

/* Whether all sizes are what the calls have: an int. */
bool mg_dnn_fits(const mg_shape *shape);

#endif
