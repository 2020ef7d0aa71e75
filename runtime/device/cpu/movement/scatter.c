/* scatter_add: adds slices to a tensor of zeros, at the indices that ids name; the gradient of
 * gather.
 *
 * Many slices may go to the same row. So threads share the columns or, where slices are narrow, the
 * rows of the result: each element belongs to one thread, which adds to it in the order of the
 * ids. */
#include "device/cpu/movement/movement.h"
#include "ops/attrs.h"
#include "ops/loops.h"

enum { WIDE = 32 }; /* columns per thread; with fewer, threads share rows instead of columns */

/* Ids of smaller dtypes are upcast first (upcast.c). */
static const char *scatter_accepts(const mg_kernel_plan *plan) {
    const mg_dtype t = plan->in[0].value->dtype, ids = plan->in[1].value->dtype;
    if (t != MG_F32 && t != MG_F64) return "neither float32 nor float64";
    return ids == MG_I32 || ids == MG_I64 ? NULL : "ids are neither int32 nor int64";
}

/* The op as matrices: dy {outer, n, inner}, the result {outer, size, inner}. */
static mg_scatter scatter_of(const mg_call *call) {
    const mg_port *in = call->plan->in, *out = call->plan->out;
    const mg_scatter_attrs *a = call->plan->step->attrs;
    const mg_axis_view v = mg_axis_view_of(&out->value->shape, a->axis);
    const bool wide = in[1].value->dtype == MG_I64;
    return (mg_scatter){.outer = v.outer,
                        .n = mg_count(&in[1]),
                        .size = v.n,
                        .inner = v.inner,
                        .ids = wide ? NULL : call->in[1],
                        .long_ids = wide ? call->in[1] : NULL};
}

/* Part k of n of the result: some columns, or some rows. */
static mg_matrix_part part_of(const mg_scatter *s, int64_t k, int64_t n) {
    /* columns begin at multiples of 16, so that threads do not share cache lines */
    if (s->inner >= n * WIDE)
        return (mg_matrix_part){.end_row = s->size,
                                .column = s->inner * k / n / 16 * 16,
                                .end_column =
                                    k + 1 == n ? s->inner : s->inner * (k + 1) / n / 16 * 16};
    return (mg_matrix_part){
        .row = s->size * k / n, .end_row = s->size * (k + 1) / n, .end_column = s->inner};
}

/* A unit of work is one part of one pair of matrices. */
static mg_status scatter_run(const mg_call *call) {
    const mg_scatter s = scatter_of(call);
    const mg_simd_movement *loops = mg_simd_used->movement;
    const bool f32 = call->plan->in[0].value->dtype == MG_F32;
    const int64_t size = f32 ? (int64_t)sizeof(float) : (int64_t)sizeof(double);
    const int64_t parts = mg_cpu_team(mg_count(call->plan->in) + mg_count(call->plan->out));
    if (mg_count(call->plan->out) == 0) return MG_OK;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t unit = 0; unit < s.outer * parts; unit++) {
        const mg_matrix_part p = part_of(&s, unit % parts, parts);
        const void *dy = (const char *)call->in[0] + unit / parts * s.n * s.inner * size;
        void *dx = (char *)call->out[0] + unit / parts * s.size * s.inner * size;
        if (f32)
            loops->scatter_f32(&s, &p, dy, dx);
        else
            loops->scatter_f64(&s, &p, dy, dx);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_scatter_add = {
    .op = "scatter_add", .name = "scatter_add", .accepts = scatter_accepts, .run = scatter_run};
