/* y = relu(y + bias), in place. */
#include "device/cuda/bias_relu.h"

enum { THREADS = 256 };

mg_status mg_cuda_find_bias_relu(mg_device *d, mg_dtype t, mg_bias_relu *kernels) {
    MG_TRY(mg_cuda_find_typed(d, "bias_relu", t, &kernels->one));
    return mg_cuda_find_typed(d, "bias_relu_vector", t, &kernels->vector);
}

/* Four elements at once if they lie so, and if a thread meets the same channels all the way. */
mg_status mg_cuda_run_bias_relu(const mg_device *d, const mg_bias_relu *kernels,
                                const bias_relu_params *p) {
    const bool even = !p->bias || (p->channels % MG_BIAS_VECTOR == 0 &&
                                   THREADS * MG_BIAS_VECTOR % p->channels == 0);
    const bool vector = even && p->count % MG_BIAS_VECTOR == 0 && (uintptr_t)p->y % 16 == 0;
    const int64_t n = vector ? p->count / MG_BIAS_VECTOR : p->count;
    return mg_cuda_launch(d, vector ? kernels->vector : kernels->one, mg_cuda_blocks(d, n, THREADS),
                          THREADS, 0, p);
}
