/* Execution plans: ways in which cuDNN can run a graph, best first, and running one. */
#ifndef MG_DEVICE_CUDA_DNN_PLAN_H
#define MG_DEVICE_CUDA_DNN_PLAN_H

#include "device/cuda/dnn_graph.h"

typedef struct mg_dnn_plan {
    cudnnBackendDescriptor_t engine, plan; /* owned; a plan that was read back has no engine */
    size_t workspace;                      /* bytes */
} mg_dnn_plan;

/* Up to `most` plans in the order of cuDNN's heuristics; *n is how many. What precision and
 * determinism forbid is left out; what compiles at run time, or wants very much memory, is taken
 * only when there is nothing else. None: MG_UNSUPPORTED. */
mg_status mg_dnn_plans(const mg_dnn_target *target, const mg_dnn_graph *g, mg_dtype dtype, int most,
                       mg_dnn_plan *plans, int *n);
void mg_dnn_plan_drop(mg_dnn_plan *plan);

/* A plan as text, a block from mg_alloc (NULL: it has none), and back again. */
char *mg_dnn_plan_write(const mg_dnn_plan *plan, size_t *bytes);
mg_status mg_dnn_plan_read(mg_dnn_plan *plan, cudnnHandle_t handle, const char *text, size_t bytes);

/* Enqueues it, over tensors with these numbers at these addresses. */
mg_status mg_dnn_plan_run(const mg_dnn_plan *plan, cudnnHandle_t handle, int n,
                          const int64_t *numbers, void *const *addresses, void *workspace);

#endif
