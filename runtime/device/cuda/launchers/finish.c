/* Launching the kernels of kernels/finish.cu: bias and relu, adding up partial sums. */
#include "device/cuda/launchers/launchers.h"
#include "ops/attrs.h"

/* ---- y = relu(y + bias), in place ---- */

enum { THREADS = 256 };

mg_status mg_cuda_find_bias_relu(mg_device *d, mg_dtype t, mg_bias_relu *kernels) {
    MG_TRY(mg_cuda_find_typed(d, "bias_relu", t, &kernels->one));
    return mg_cuda_find_typed(d, "bias_relu_vector", t, &kernels->vector);
}

/* By vectors if the address and the counts allow that, and if all vectors of a thread belong to the
 * same channels: a thread loads its part of the bias once. */
mg_status mg_cuda_run_bias_relu(const mg_device *d, const mg_bias_relu *kernels,
                                const bias_relu_params *p) {
    const bool even = !p->bias || (p->channels % MG_BIAS_VECTOR == 0 &&
                                   THREADS * MG_BIAS_VECTOR % p->channels == 0);
    const bool vector = even && p->count % MG_BIAS_VECTOR == 0 && (uintptr_t)p->y % 16 == 0;
    const int64_t n = vector ? p->count / MG_BIAS_VECTOR : p->count;
    return mg_cuda_launch(d, vector ? kernels->vector : kernels->one, mg_cuda_blocks(d, n, THREADS),
                          THREADS, 0, p);
}

mg_status mg_cuda_finish_conv(const mg_call *call, const mg_bias_relu *kernels) {
    const mg_kernel_plan *plan = call->plan;
    const mg_shape *y = &plan->out[0].value->shape;
    const bias_relu_params p = {.y = call->out[0],
                                .bias = plan->step->n_in == 3 ? call->in[2] : NULL,
                                .count = mg_shape_count(y),
                                .channels = y->dim[3],
                                .relu = ((const mg_conv_attrs *)plan->step->attrs)->relu != 0};
    return mg_cuda_run_bias_relu(plan->device, kernels, &p);
}

/* ---- partial sums ---- */

size_t mg_cuda_partial_sums_bytes(mg_dtype dtype, int64_t n, int64_t count) {
    return (size_t)n * (size_t)count * (dtype == MG_F64 ? sizeof(double) : sizeof(float));
}

mg_status mg_cuda_find_partial_sums(mg_device *d, mg_dtype dtype, CUfunction *add) {
    return mg_cuda_find_typed(d, "add_parts", dtype, add);
}

mg_status mg_cuda_add_partial_sums(const mg_device *d, CUfunction add, const void *parts, int64_t n,
                                   void *out, int64_t count) {
    const parts_params p = {.parts = parts, .out = out, .n = n, .count = count};
    return mg_cuda_launch(d, add, (count + MG_PARTS_WIDTH - 1) / MG_PARTS_WIDTH, MG_PARTS_THREADS,
                          0, &p);
}
