/* full and iota. */
#include "device/cuda/kernels/create_params.h"
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include "ops/loops.h"

enum { THREADS = 256 };

/* ---- full ---- */

static mg_status prepare_full(mg_kernel_plan *plan) {
    return mg_cuda_find(plan->device, "fill", (CUfunction *)&plan->state);
}

static mg_status run_full(const mg_call *call) {
    const mg_value *y = call->plan->out[0].value;
    const mg_full_attrs *a = call->plan->step->attrs;
    const size_t size = mg_dtype_size(y->dtype);
    fill_params p = {.out = call->out[0], .bytes = mg_shape_count(&y->shape) * (int64_t)size};
    for (size_t at = 0; at < sizeof p.value; at += size)
        mg_from_double((char *)p.value + at, &a->value, y->dtype, 1);
    return mg_cuda_launch(call->plan->device, call->plan->state,
                          mg_cuda_blocks(call->plan->device, (p.bytes + 15) / 16, THREADS), THREADS,
                          0, &p);
}

/* ---- iota ---- */

static mg_status prepare_iota(mg_kernel_plan *plan) {
    return mg_cuda_find_typed(plan->device, "iota", plan->out[0].value->dtype,
                              (CUfunction *)&plan->state);
}

static mg_status run_iota(const mg_call *call) {
    const mg_shape *shape = &call->plan->out[0].value->shape;
    const mg_axis_view v =
        mg_axis_view_of(shape, ((const mg_iota_attrs *)call->plan->step->attrs)->axis);
    const iota_params p = {
        .out = call->out[0], .count = mg_shape_count(shape), .n = v.n, .inner = v.inner};
    return mg_cuda_launch(call->plan->device, call->plan->state,
                          mg_cuda_blocks(call->plan->device, p.count, THREADS), THREADS, 0, &p);
}

const mg_kernel mg_cuda_full = {
    .op = "full", .name = "full", .prepare = prepare_full, .run = run_full};
const mg_kernel mg_cuda_iota = {
    .op = "iota", .name = "iota", .prepare = prepare_iota, .run = run_iota};
