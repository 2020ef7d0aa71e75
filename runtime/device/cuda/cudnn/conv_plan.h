/* A convolution followed by bias and relu, as cuDNN's graph of operations, and the execution plans
 * with which cuDNN can run that graph.
 *
 * cuDNN lists sizes in the order N, C, H, W and K, C, R, S whatever the strides; here images lie
 * row-major as {N, H, W, C} and kernels as {K, R, S, C / groups} (the layout MG_KRSC). It computes
 * in float and rounds once, where the result is stored. */
#ifndef MG_DEVICE_CUDA_CUDNN_CONV_PLAN_H
#define MG_DEVICE_CUDA_CUDNN_CONV_PLAN_H

#include "core/dtype.h"
#include "device/cuda/cudnn/cudnn.h"
#include <stdbool.h>

/* The tensors of a convolution: image, kernel, result, bias. The values are also their numbers in
 * the graph, by which a run gives their addresses. */
enum { MG_DNN_X = 1, MG_DNN_W, MG_DNN_Y, MG_DNN_BIAS };

typedef struct mg_dnn_conv {
    int result;     /* MG_DNN_Y: forward; MG_DNN_X, MG_DNN_W: the gradient of that tensor */
    mg_dtype dtype; /* of all tensors: f16, bf16 or f32 */
    int64_t x[4], w[4], y[4]; /* in cuDNN's order; the groups are x[1] / w[1] */
    int64_t strides[2], dilations[2], before[2], after[2]; /* rows, columns; padding */
    bool bias, relu; /* of the forward form; the bias has K elements */
} mg_dnn_conv;

/* The GPU that plans are made for: the GPU of a handle, or a described one that need not exist (in
 * tests). */
typedef struct mg_dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
} mg_dnn_target;

enum { MG_DNN_DESCRIPTORS = 16 };

typedef struct mg_dnn_graph {
    cudnnBackendDescriptor_t graph;                    /* the operation graph; owned by `made` */
    cudnnBackendDescriptor_t made[MG_DNN_DESCRIPTORS]; /* owned: all descriptors of it */
    int n;
} mg_dnn_graph;

/* Describes a convolution. The graph must be dropped also after an error. */
mg_status mg_dnn_graph_make(mg_dnn_graph *g, const mg_dnn_target *target, const mg_dnn_conv *conv);
void mg_dnn_graph_drop(mg_dnn_graph *g);

/* ---- execution plans ---- */

typedef struct mg_dnn_plan {
    cudnnBackendDescriptor_t engine, plan; /* owned; a plan from text has no engine */
    size_t workspace;                      /* bytes */
} mg_dnn_plan;

/* Makes up to `most` plans, in the order of cuDNN's heuristics; *n is their number. Algorithms that
 * the current precision or determinism forbids are left out. Plans that compile at run time or need
 * a very large workspace are made only if there are no others. MG_UNSUPPORTED if there is none. */
mg_status mg_dnn_plans(const mg_dnn_target *target, const mg_dnn_graph *g, mg_dtype dtype, int most,
                       mg_dnn_plan *plans, int *n);
void mg_dnn_plan_drop(mg_dnn_plan *plan);

/* A plan as text, a block from mg_alloc, or NULL if it has no such form; and a plan from text. */
char *mg_dnn_plan_write(const mg_dnn_plan *plan, size_t *bytes);
mg_status mg_dnn_plan_read(mg_dnn_plan *plan, cudnnHandle_t handle, const char *text, size_t bytes);

/* Enqueues the plan on the handle's stream. Its n tensors have these numbers and addresses. */
mg_status mg_dnn_plan_run(const mg_dnn_plan *plan, cudnnHandle_t handle, int n,
                          const int64_t *numbers, void *const *addresses, void *workspace);

#endif
