/* Launching the kernel that adds up partial sums. */
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/kernels/layer_params.h"

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
