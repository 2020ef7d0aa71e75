/* Loops of the reference kernels: a walk with strides, and the view of an axis as three loops. */
#ifndef MG_OPS_LOOPS_H
#define MG_OPS_LOOPS_H

#include "core/shape.h"

/* Visits a shape in row-major order; `offset` is where the given strides lead. */
typedef struct mg_loop {
    mg_shape shape;
    int64_t stride[MG_MAX_RANK], at[MG_MAX_RANK];
    int64_t offset;
} mg_loop;

static inline void mg_loop_next(mg_loop *l) {
    for (int i = l->shape.rank - 1; i >= 0; i--) {
        l->offset += l->stride[i];
        if (++l->at[i] < l->shape.dim[i]) return;
        l->offset -= l->stride[i] * l->at[i];
        l->at[i] = 0;
    }
}

/* A row-major tensor seen around one axis: element (o, i, j) is at (o * n + i) * inner + j. */
typedef struct mg_axis_view {
    int64_t outer, n, inner;
} mg_axis_view;

static inline mg_axis_view mg_axis_view_of(const mg_shape *s, int64_t axis) {
    mg_axis_view v = {1, s->dim[axis], 1};
    for (int i = 0; i < axis; i++) v.outer *= s->dim[i];
    for (int i = (int)axis + 1; i < s->rank; i++) v.inner *= s->dim[i];
    return v;
}

#endif
