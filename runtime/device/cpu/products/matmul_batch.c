/* The matrix products of a matmul step: see products/matmul_batch.h. */
#include "device/cpu/products/matmul_batch.h"
#include "ops/attrs.h"

/* The shape of a matrix: a vector becomes a row, or a column. */
static mg_shape with_two_axes(const mg_shape *s, bool column) {
    if (s->rank > 1) return *s;
    return column ? MG_SHAPE(s->dim[0], 1) : MG_SHAPE(1, s->dim[0]);
}

/* All axes but the last two. */
static mg_shape batch_axes(const mg_shape *s) {
    return mg_shape_of(s->rank - 2, s->dim);
}

mg_status mg_matmul_batch_of(mg_matmul_batch *batch, const mg_kernel_plan *plan) {
    const mg_matmul_attrs *attrs = plan->step->attrs;
    const mg_shape *raw_a = &plan->in[0].value->shape, *raw_b = &plan->in[1].value->shape;
    const mg_shape a = with_two_axes(raw_a, false), b = with_two_axes(raw_b, true);
    const bool transpose_a = attrs->transpose_a && raw_a->rank > 1;
    const bool transpose_b = attrs->transpose_b && raw_b->rank > 1;
    const mg_shape lead_a = batch_axes(&a), lead_b = batch_axes(&b);
    batch->one = (mg_product){.m = a.dim[a.rank - 2 + transpose_a],
                              .n = b.dim[b.rank - 1 - transpose_b],
                              .k = a.dim[a.rank - 1 - transpose_a],
                              .transpose_a = transpose_a,
                              .transpose_b = transpose_b};
    batch->count = 1;
    if (!transpose_a && mg_shape_count(&lead_b) == 1 && a.rank >= b.rank) {
        batch->one.m *= mg_shape_count(&lead_a);
        return MG_OK;
    }
    MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &batch->shape, "matmul"));
    mg_shape_strides(&lead_a, &batch->shape, batch->stride_a);
    mg_shape_strides(&lead_b, &batch->shape, batch->stride_b);
    batch->count = mg_shape_count(&batch->shape);
    return MG_OK;
}

mg_matmul_operands mg_matmul_operands_of(const mg_matmul_batch *batch, int64_t i) {
    mg_matmul_operands at = {0, 0};
    for (int axis = batch->shape.rank - 1; axis >= 0; axis--) {
        const int64_t place = i % batch->shape.dim[axis];
        at.a += place * batch->stride_a[axis];
        at.b += place * batch->stride_b[axis];
        i /= batch->shape.dim[axis];
    }
    return at;
}
