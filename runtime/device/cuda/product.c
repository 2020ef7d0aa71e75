/* Shapes and attributes of matmul, settled: see ops/matmul.c. */
#include "device/cuda/product.h"
#include "ops/attrs.h"

/* With two axes at least; a vector has become a row (or a column). */
static mg_shape widened(const mg_shape *s, bool column) {
    if (s->rank > 1) return *s;
    return column ? MG_SHAPE(s->dim[0], 1) : MG_SHAPE(1, s->dim[0]);
}

static mg_shape leading(const mg_shape *s) {
    return mg_shape_of(s->rank - 2, s->dim);
}

mg_product mg_product_of(const mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = widened(raw_a, false), b = widened(raw_b, true);
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
    if (mg_shape_count(&lead_b) == 1 && !p.turn_a && mg_shape_count(&lead_a) == p.matrices) {
        p.m *= p.matrices;
        p.matrices = 1;
        p.batch.rank = 0;
    }
    return p;
}

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
