/* Normalization over channels (batch_norm.c) or rows (layer_norm.c), softmax and cross-entropy. */
#ifndef MG_DEVICE_CPU_NORM_NORM_H
#define MG_DEVICE_CPU_NORM_NORM_H

#include "device/cpu/cpu.h"

extern const mg_kernel mg_cpu_moments, mg_cpu_batch_norm, mg_cpu_batch_norm_reduce,
    mg_cpu_layer_norm, mg_cpu_layer_norm_gradients, mg_cpu_layer_norm_grad,
    mg_cpu_layer_norm_reduce, mg_cpu_softmax, mg_cpu_softmax_grad, mg_cpu_log_softmax,
    mg_cpu_softmax_cross_entropy, mg_cpu_softmax_cross_entropy_grad,
    mg_cpu_sparse_softmax_cross_entropy, mg_cpu_sparse_softmax_cross_entropy_grad;

/* For mg_kernel_set.merge: the two gradients of a layer norm become one step (layer_norm.c). */
mg_status mg_cpu_merge_layer_norms(mg_device *d, const mg_kernel_graph *graph, mg_step **steps);

#endif
