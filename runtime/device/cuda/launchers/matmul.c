/* matmul by our own kernel, for products that cuBLASLt refuses or if it is missing; and the
 * analysis of a matmul step, which cublas/matmul.c uses too. */
#include "device/cuda/launchers/launchers.h"
#include "core/alloc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/kernels/product_params.h"
#include "ops/attrs.h"

/* ---- the product of a step ---- */

/* The shape with at least two axes: a vector becomes a row or a column. */
static mg_shape as_matrix(const mg_shape *s, bool column) {
    if (s->rank > 1) return *s;
    return column ? MG_SHAPE(s->dim[0], 1) : MG_SHAPE(1, s->dim[0]);
}

/* The batch axes: all but the last two. */
static mg_shape leading(const mg_shape *s) {
    return mg_shape_of(s->rank - 2, s->dim);
}

/* Vectors become matrices, and leading axes the batch (see ops/matmul.c). */
mg_product mg_product_of(const mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = as_matrix(raw_a, false), b = as_matrix(raw_b, true);
    const mg_shape lead_a = leading(&a), lead_b = leading(&b);
    mg_product p = {.turn_a = attrs->transpose_a && raw_a->rank > 1,
                    .turn_b = attrs->transpose_b && raw_b->rank > 1,
                    .bias = plan->step->n_in == 3,
                    .relu = attrs->relu,
                    .sums = plan->step->n_out == 2};
    p.m = a.dim[a.rank - 2 + p.turn_a];
    p.k = a.dim[a.rank - 1 - p.turn_a];
    p.n = b.dim[b.rank - 1 - p.turn_b];
    mg_shape_broadcast(&lead_a, &lead_b, &p.batch, "matmul");
    mg_shape_strides(&lead_a, &p.batch, p.stride_a);
    mg_shape_strides(&lead_b, &p.batch, p.stride_b);
    p.matrices = mg_shape_count(&p.batch);
    /* One b for all matrices of a: a single product with more rows. */
    if (mg_shape_count(&lead_b) == 1 && !p.turn_a && mg_shape_count(&lead_a) == p.matrices) {
        p.m *= p.matrices;
        p.matrices = 1;
        p.batch.rank = 0;
    }
    return p;
}

/* All strides 0: one matrix for the whole batch. All strides those of a contiguous batch: one for
 * each. */
bool mg_product_is_even(const mg_product *p, const int64_t *stride, int64_t *step) {
    int64_t full = 1;
    bool none = true, all = true;
    for (int axis = p->batch.rank - 1; axis >= 0; full *= p->batch.dim[axis--]) {
        if (p->batch.dim[axis] == 1) continue;
        none = none && stride[axis] == 0;
        all = all && stride[axis] == full;
    }
    *step = none ? 0 : 1;
    return none || all;
}

/* ---- the kernel ---- */

typedef struct state {
    CUfunction function;
    mg_product product;
} state;

/* Any float dtype and any shape. Column sums are computed by cuBLASLt or by a separate step. */
static const char *accepts_matmul(const mg_kernel_plan *plan) {
    if (plan->step->n_out > 1) return "it has no column sums";
    return mg_dtype_is_float(plan->out[0].value->dtype) ? NULL : "only floating dtypes";
}

/* One kernel for all shapes: it bounds-checks its tiles. */
static mg_status prepare_matmul(mg_kernel_plan *plan) {
    state *s = plan->state = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->product = mg_product_of(plan);
    return mg_cuda_find_typed(plan->device, "matmul", plan->out[0].value->dtype, &s->function);
}

/* A block computes one tile of one product. */
static mg_status run_matmul(const mg_call *call) {
    const state *s = call->plan->state;
    const mg_product *m = &s->product;
    const int64_t down = (m->m + MG_TILE - 1) / MG_TILE, across = (m->n + MG_TILE - 1) / MG_TILE;
    matmul_params p = {.a = call->in[0],
                       .b = call->in[1],
                       .bias = m->bias ? call->in[2] : NULL,
                       .y = call->out[0],
                       .m = m->m,
                       .n = m->n,
                       .k = m->k,
                       .matrices = m->matrices,
                       .rank = m->batch.rank,
                       .turn_a = m->turn_a,
                       .turn_b = m->turn_b,
                       .relu = m->relu};
    for (int i = 0; i < m->batch.rank; i++) { /* offsets of the matrices of the batch */
        p.dim[i] = m->batch.dim[i];
        p.stride_a[i] = m->stride_a[i];
        p.stride_b[i] = m->stride_b[i];
    }
    return mg_cuda_launch(call->plan->device, s->function, down * across * m->matrices,
                          MG_TILE_THREADS, 0, &p);
}

const mg_kernel mg_cuda_matmul = {.op = "matmul",
                                  .name = "tiles",
                                  .accepts = accepts_matmul,
                                  .prepare = prepare_matmul,
                                  .run = run_matmul,
                                  .release = mg_free};
