/* cumsum: running sums along an axis, in double; threads share the other axes. */
#include "device/cpu/channel_view.h"
#include "ops/attrs.h"
#include "ops/loops.h"

static mg_status cumsum_prepare(mg_kernel_plan *plan) {
    mg_all_row_major(plan);
    return MG_OK;
}

static mg_status cumsum_run(const mg_call *call) {
    const mg_value *x = call->plan->in[0].value;
    const mg_axis_view v =
        mg_axis_view_of(&x->shape, ((const mg_axis_attrs *)call->plan->step->attrs)->axis);
    const mg_simd_folds *f = mg_folds_of(x->dtype);
    const int64_t tiles = (v.inner + MG_TILE - 1) / MG_TILE;
#pragma omp parallel for schedule(static) num_threads(mg_cpu_team(v.outer *v.n *v.inner))
    for (int64_t unit = 0; unit < v.outer * tiles; unit++) {
        const int64_t column = unit % tiles * MG_TILE, left = v.inner - column;
        const int64_t first = unit / tiles * v.n * v.inner + column;
        const int64_t width = left < MG_TILE ? left : MG_TILE;
        f->cumsum((const char *)call->in[0] + first * f->size,
                  (char *)call->out[0] + first * f->size, v.n, v.inner, width);
    }
    return MG_OK;
}

const mg_kernel mg_cpu_cumsum = {.op = "cumsum",
                                 .name = "columns",
                                 .accepts = mg_folds_refuse,
                                 .prepare = cumsum_prepare,
                                 .run = cumsum_run};
