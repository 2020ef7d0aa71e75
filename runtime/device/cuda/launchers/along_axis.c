/* take_along_axis, scatter_along_axis, scatter_last, argsort and linear_scan
 * (kernels/along_axis.cu). Lines that are too long for a block are sorted on the host. */
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/movement_params.h"
#include "ops/attrs.h"
#include "ops/loops.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum { THREADS = 256, SORT_THREADS = 512, WARP = 32 };

_Static_assert(offsetof(along_params, value) % 16 == 0, "it is loaded 16 bytes at once");

typedef struct state {
    CUfunction kernel;
    along_params p; /* without the addresses */
    sort_lines_params lines;
} state;

static state *new_state(mg_kernel_plan *plan) {
    return plan->state = mg_alloc_zero(sizeof(state));
}

static const char *accepts_count(const mg_kernel_plan *plan) {
    const int64_t most = (int64_t)1 << 30; /* counted in 32 bits */
    if (mg_shape_count(&plan->in[0].value->shape) > most) return "2^30 elements";
    return mg_shape_count(&plan->out[0].value->shape) > most ? "2^30 elements" : NULL;
}

static const char *accepts_float(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->out[0].value->dtype) ? accepts_count(plan)
                                                        : "only floating dtypes";
}

/* For a size of 0, which is no divisor, the divisor of 1; then nothing is launched. */
static mg_divisor divisor_of(int64_t n) {
    return mg_divisor_of(n > 0 ? n : 1);
}

/* The sizes around the axis of `whole`, with ids as input 1. */
static along_params params_of(const mg_kernel_plan *plan, const mg_shape *whole, int64_t axis) {
    const mg_value *ids = plan->in[1].value;
    const mg_axis_view v = mg_axis_view_of(whole, axis), k = mg_axis_view_of(&ids->shape, axis);
    return (along_params){.n = v.n,
                          .count = v.outer * v.inner,
                          .k = divisor_of(k.n),
                          .inner = divisor_of(v.inner),
                          .id_bytes = (int)mg_dtype_size(ids->dtype),
                          .by_row = k.inner == 1};
}

/* Runs the kernel over p.count elements or columns. */
static mg_status run_along(const mg_call *call) {
    const mg_kernel_plan *plan = call->plan;
    const state *s = plan->state;
    along_params p = s->p;
    if (mg_shape_count(&plan->out[0].value->shape) == 0) return MG_OK;
    p.x = call->in[0];
    p.ids = call->in[1];
    p.out = call->out[0];
    return mg_cuda_launch(plan->device, s->kernel, mg_cuda_blocks(plan->device, p.count, THREADS),
                          THREADS, 0, &p);
}

/* ---- take_along_axis ---- */

static mg_status prepare_take(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const double nothing = mg_dtype_is_float(x->dtype) ? NAN : 0;
    const size_t size = mg_dtype_size(x->dtype);
    char name[32];
    state *s = new_state(plan);
    if (!s) return MG_OOM;
    s->p = params_of(plan, &x->shape, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    s->p.count = mg_shape_count(&plan->out[0].value->shape);
    mg_from_double(s->p.value, &nothing, x->dtype, 1);
    snprintf(name, sizeof name, "take_unit_%d", (int)size);
    return mg_cuda_find(plan->device, name, &s->kernel);
}

/* ---- scatter_along_axis and linear_scan ---- */

static mg_status prepare_scatter(mg_kernel_plan *plan) {
    const mg_value *dx = plan->out[0].value;
    const mg_scatter_attrs *a = plan->step->attrs;
    state *s = new_state(plan);
    if (!s) return MG_OOM;
    s->p = params_of(plan, &dx->shape, a->axis);
    if (plan->in[1].value->shape.dim[a->axis] == 0) s->p.k.n = 0; /* a loop that ends at once */
    return mg_cuda_find_typed(plan->device, "scatter_along", dx->dtype, &s->kernel);
}

static mg_status prepare_scan(mg_kernel_plan *plan) {
    const mg_value *y = plan->out[0].value;
    state *s = new_state(plan);
    if (!s) return MG_OOM;
    s->p = params_of(plan, &y->shape, ((const mg_axis_attrs *)plan->step->attrs)->axis);
    return mg_cuda_find_typed(plan->device, "linear_scan", y->dtype, &s->kernel);
}

/* ---- scatter_last ---- */

static mg_status prepare_last(mg_kernel_plan *plan) {
    const mg_value *ids = plan->in[0].value;
    state *s = new_state(plan);
    if (!s) return MG_OOM;
    s->p = (along_params){.n = plan->out[0].value->shape.dim[0],
                          .count = ids->shape.dim[0],
                          .id_bytes = (int)mg_dtype_size(ids->dtype)};
    return mg_cuda_find(plan->device, "scatter_last", &s->kernel);
}

/* -1 has all bits set. */
static mg_status run_last(const mg_call *call) {
    mg_device *d = call->plan->device;
    const state *s = call->plan->state;
    along_params p = s->p;
    p.ids = call->in[0];
    p.out = call->out[0];
    if (p.n == 0) return MG_OK;
    MG_TRY(mg_cuda_check(d,
                         mg_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)call->out[0], 255,
                                               (size_t)p.n * sizeof(int), mg_cuda_of(d)->stream),
                         "clear a tensor"));
    if (p.count == 0) return MG_OK;
    return mg_cuda_launch(d, s->kernel, mg_cuda_blocks(d, p.count, THREADS), THREADS, 0, &p);
}

/* ---- argsort ---- */

static const char *accepts_sort(const mg_kernel_plan *plan) {
    const mg_sort_attrs *a = plan->step->attrs;
    return plan->in[0].value->shape.dim[a->axis] > MG_SORT_ROOM ? "long lines" : NULL;
}

static int sort_type_of(mg_dtype t) {
    switch (t) {
    case MG_BOOL: return MG_SORT_BOOL;
    case MG_U8: return MG_SORT_U8;
    case MG_I32: return MG_SORT_I32;
    case MG_I64: return MG_SORT_I64;
    case MG_F16: return MG_SORT_F16;
    case MG_BF16: return MG_SORT_BF16;
    case MG_F32: return MG_SORT_F32;
    default: return MG_SORT_F64;
    }
}

static mg_status prepare_sort(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const mg_sort_attrs *a = plan->step->attrs;
    const mg_axis_view v = mg_axis_view_of(&x->shape, a->axis);
    state *s = new_state(plan);
    if (!s) return MG_OOM;
    s->lines = (sort_lines_params){.lines = v.outer * v.inner,
                                   .inner = v.inner,
                                   .n = (int)v.n,
                                   .count = (int)a->count,
                                   .room = 1,
                                   .type = sort_type_of(x->dtype),
                                   .flip = (int)a->descending};
    while (s->lines.room < s->lines.n) s->lines.room *= 2;
    return mg_cuda_find(plan->device, "sort_lines", &s->kernel);
}

static mg_status run_sort(const mg_call *call) {
    const state *s = call->plan->state;
    sort_lines_params p = s->lines;
    const int64_t most = 1 << 20; /* blocks: they loop over the rest */
    if (mg_shape_count(&call->plan->out[0].value->shape) == 0) return MG_OK;
    p.x = call->in[0];
    p.out = call->out[0];
    const int threads = p.room < WARP ? WARP : p.room < SORT_THREADS ? p.room : SORT_THREADS;
    return mg_cuda_launch(call->plan->device, s->kernel, p.lines < most ? p.lines : most, threads,
                          0, &p);
}

#define ALONG(id, ACCEPTS, PREPARE, RUN)                                                           \
    const mg_kernel mg_cuda_##id = {.op = #id,                                                     \
                                    .name = #id,                                                   \
                                    .accepts = ACCEPTS,                                            \
                                    .prepare = PREPARE,                                            \
                                    .run = RUN,                                                    \
                                    .release = mg_free}
ALONG(take_along_axis, accepts_count, prepare_take, run_along);
ALONG(scatter_along_axis, accepts_float, prepare_scatter, run_along);
ALONG(linear_scan, accepts_float, prepare_scan, run_along);
ALONG(scatter_last, accepts_count, prepare_last, run_last);
ALONG(argsort, accepts_sort, prepare_sort, run_sort);
