/* layer_norm, its gradient for x, and its sums over rows (the gradients of gamma and beta).
 *
 * Rows of up to LONG elements are computed by a warp each, longer ones by a block.
 * layer_norm_reduce first computes each row's mean and variance to scratch, and then sums columns
 * with them. */
#include "core/alloc.h"
#include "device/cuda/launchers/launchers.h"
#include "device/cuda/kernels.h"
#include "ops/attrs.h"
#include <string.h>

enum { THREADS = 256, WARP = 32, LONG = 1024 };

typedef struct state {
    CUfunction function;
    layer_norm_params p; /* without the addresses */
    int64_t blocks;
    mg_columns columns; /* layer_norm_reduce: how columns are summed */
    size_t partials; /* layer_norm_reduce: bytes of the partial sums in scratch, which are followed
                        by the rows' statistics */
} state;

static const char *accepts_layer_norm(const mg_kernel_plan *plan) {
    return mg_dtype_is_float(plan->in[0].value->dtype) ? NULL : "only floating dtypes";
}

/* Prepares the kernel over rows, which all three ops use. */
static mg_status prepare_layer_norm(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    const int64_t n = x->shape.dim[x->shape.rank - 1], count = mg_shape_count(&x->shape);
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->p = (layer_norm_params){.rows = n ? count / n : 0,
                               .n = n,
                               .epsilon = ((const mg_norm_attrs *)plan->step->attrs)->epsilon,
                               .kind = strcmp(plan->step->op->name, "layer_norm") == 0 ? 0 : 1};
    const bool wide = n > LONG;
    s->blocks = mg_cuda_blocks(plan->device, s->p.rows * (wide ? THREADS : WARP), THREADS);
    return mg_cuda_find_typed(plan->device, wide ? "layer_norm_block" : "layer_norm_warp", x->dtype,
                              &s->function);
}

/* Scratch holds the partial sums and two doubles of statistics per row. */
static mg_status prepare_reduce(mg_kernel_plan *plan) {
    const mg_value *x = plan->in[0].value;
    MG_TRY(prepare_layer_norm(plan));
    state *s = plan->state;
    MG_TRY(mg_cuda_columns_prepare(plan->device, false, x, &s->columns, &s->partials));
    s->p.kind = 2;
    s->partials = (s->partials + 63) / 64 * 64;
    plan->scratch = s->partials + 2 * (size_t)s->p.rows * sizeof(double);
    return MG_OK;
}

/* layer_norm has beta as its third input, the gradient has dy. */
static mg_status run_layer_norm(const mg_call *call) {
    const state *s = call->plan->state;
    layer_norm_params p = s->p;
    p.x = call->in[0];
    p.gamma = call->in[1];
    p.other = call->in[2];
    p.y = call->out[0];
    return mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &p);
}

/* Statistics of the rows, then the sums of the columns. */
static mg_status run_reduce(const mg_call *call) {
    const state *s = call->plan->state;
    layer_norm_params rows = s->p;
    column_params p = s->columns.p;
    rows.x = p.x = call->in[0];
    rows.y = (char *)call->scratch + s->partials;
    MG_TRY(mg_cuda_launch(call->plan->device, s->function, s->blocks, THREADS, 0, &rows));
    p.dy = call->in[1];
    p.moments = rows.y;
    p.by_row = 1;
    p.partials = call->scratch;
    p.out = call->out[0];
    const size_t size = mg_dtype_size(call->plan->in[0].value->dtype);
    return mg_cuda_columns_run(call->plan->device, &s->columns, size, p);
}

const mg_kernel mg_cuda_layer_norm = {.op = "layer_norm",
                                      .name = "layer_norm",
                                      .accepts = accepts_layer_norm,
                                      .prepare = prepare_layer_norm,
                                      .run = run_layer_norm,
                                      .release = mg_free};
const mg_kernel mg_cuda_layer_norm_grad = {.op = "layer_norm_grad",
                                           .name = "layer_norm",
                                           .accepts = accepts_layer_norm,
                                           .prepare = prepare_layer_norm,
                                           .run = run_layer_norm,
                                           .release = mg_free};
const mg_kernel mg_cuda_layer_norm_reduce = {.op = "layer_norm_reduce",
                                             .name = "layer_norm",
                                             .accepts = accepts_layer_norm,
                                             .prepare = prepare_reduce,
                                             .run = run_reduce,
                                             .release = mg_free};
