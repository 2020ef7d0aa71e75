/* A convolution, with what follows it, as cuDNN's graph of operations.
 *
 * cuDNN names sizes in the order N, C, H, W and K, C, R, S whatever the strides; here images lie
 * row-major as {N, H, W, C} and kernels as {K, R, S, C / groups} (the layout MG_KRSC). It computes
 * in float, and rounds once, where the result is stored. */
#ifndef MG_DEVICE_CUDA_DNN_GRAPH_H
#define MG_DEVICE_CUDA_DNN_GRAPH_H

#include "core/dtype.h"
#include "device/cuda/dnn.h"
#include <stdbool.h>

/* Which of the three tensors is the result; also their numbers in a variant pack. */
enum { MG_DNN_X = 1, MG_DNN_W, MG_DNN_Y, MG_DNN_BIAS };

typedef struct mg_dnn_conv {
    int result;     /* MG_DNN_Y: forward; MG_DNN_X, MG_DNN_W: their gradients from the other two */
    mg_dtype dtype; /* of all tensors: f16, bf16 or f32 */
    int64_t x[4], w[4], y[4]; /* in cuDNN's order; the groups are x[1] / w[1] */
    int64_t strides[2], dilations[2], before[2], after[2]; /* rows, columns; padding */
    bool bias, relu; /* of the forward form; the bias has K elements */
} mg_dnn_conv;

/* For whom plans are made: a handle, or a description of a GPU that need not be there. */
typedef struct mg_dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
} mg_dnn_target;

enum { MG_DNN_DESCRIPTORS = 16 };

typedef struct mg_dnn_graph {
    cudnnBackendDescriptor_t graph; /* the last of them */
    cudnnBackendDescriptor_t made[MG_DNN_DESCRIPTORS];
    int n;
} mg_dnn_graph;

/* The descriptors are for mg_dnn_graph_drop, also after an error. */
mg_status mg_dnn_graph_make(mg_dnn_graph *g, const mg_dnn_target *target, const mg_dnn_conv *conv);
void mg_dnn_graph_drop(mg_dnn_graph *g);

#endif
