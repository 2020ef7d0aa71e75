/* softmax, log_softmax and the gradient of softmax over one axis; the loops are in
 * simd/softmax_loops.h.
 *
 * Along the last axis, a unit of work is a row. Along another axis, it is up to MG_TILE
 * neighbouring columns, so that memory is read in contiguous pieces. */
#include "device/cpu/norm/norm.h"
#include "ops/attrs.h"
#include "ops/loops.h"

/* float16 and bfloat16 are upcast first (upcast.c). */
static const char *softmax_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype;
    return t == MG_F32 || t == MG_F64 ? NULL : "neither float32 nor float64";
}

/* softmax or its logarithm, which differ in the last pass only. The tensor is {outer, n, inner}
 * around the axis; a unit of work is a tile of `inner`, or a whole row where inner is 1. */
static mg_status softmax_run_either(const mg_call *call, bool logarithm) {
    const mg_value *x = call->plan->in[0].value;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&x->shape, axis);
    const mg_simd_softmax *loops = mg_simd_used->softmax[mg_simd_index(x->dtype)];
    const int64_t size = (int64_t)mg_dtype_size(x->dtype),
                  tiles = (v.inner + MG_TILE - 1) / MG_TILE;
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW / 4)
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        /* a unit is a tile of columns; along the last axis, one row */
        const int64_t first = unit % tiles * MG_TILE;
        const int64_t at = (unit / tiles * v.n * v.inner + first) * size;
        const void *src = (const char *)call->in[0] + at;
        void *dst = (char *)call->out[0] + at;
        if (v.inner == 1) {
            loops->row(src, dst, v.n, logarithm);
        } else {
            const int64_t left = v.inner - first;
            loops->columns(src, dst, v.n, v.inner, (int)(left < MG_TILE ? left : MG_TILE),
                           logarithm);
        }
    }
    return MG_OK;
}

static mg_status softmax_run(const mg_call *call) {
    return softmax_run_either(call, false);
}

static mg_status log_softmax_run(const mg_call *call) {
    return softmax_run_either(call, true);
}

/* dx = y * (dy - sum(y * dy)); inputs y and dy, cut into units in the same way. */
static mg_status softmax_grad_run(const mg_call *call) {
    const mg_value *y = call->plan->in[0].value;
    const int64_t axis = ((const mg_axis_attrs *)call->plan->step->attrs)->axis;
    const mg_axis_view v = mg_axis_view_of(&y->shape, axis);
    const mg_simd_softmax *loops = mg_simd_used->softmax[mg_simd_index(y->dtype)];
    const int64_t size = (int64_t)mg_dtype_size(y->dtype),
                  tiles = (v.inner + MG_TILE - 1) / MG_TILE;
    if (v.n == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (v.outer * v.n * v.inner > MG_SERIAL_BELOW)
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t first = unit % tiles * MG_TILE, left = v.inner - first;
        const int width = (int)(left < MG_TILE ? left : MG_TILE);
        const int64_t at = (unit / tiles * v.n * v.inner + first) * size;
        const char *from = (const char *)call->in[0] + at, *dy = (const char *)call->in[1] + at;
        char *dx = (char *)call->out[0] + at;
        if (v.inner == 1)
            loops->grad_row(from, dy, dx, v.n);
        else
            loops->grad_columns(from, dy, dx, v.n, v.inner, width);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_softmax_grad = {.op = "softmax_grad",
                                       .name = "softmax_grad",
                                       .accepts = softmax_accepts,
                                       .run = softmax_grad_run};
const mg_kernel mg_cpu_softmax = {
    .op = "softmax", .name = "softmax", .accepts = softmax_accepts, .run = softmax_run};
const mg_kernel mg_cpu_log_softmax = {
    .op = "log_softmax", .name = "log_softmax", .accepts = softmax_accepts, .run = log_softmax_run};
