/* Loops of the reference kernels: a walk over a shape with strides, and a tensor seen as three
 * nested loops around one axis. */
#ifndef MG_OPS_LOOPS_H
#define MG_OPS_LOOPS_H

#include "core/shape.h"

/* out[0 .. n-1] = v. */
static inline void mg_fill(double *out, int64_t n, double v) {
    for (int64_t i = 0; i < n; i++) out[i] = v;
}

/* Visits the positions of a shape in row-major order. `offset` is the sum of position * stride over
 * the axes: strides of 0 repeat elements (broadcasting), negative ones walk backwards. */
typedef struct mg_index_walk {
    mg_shape shape;
    int64_t stride[MG_MAX_RANK]; /* in elements */
    int64_t at[MG_MAX_RANK];     /* the position */
    int64_t offset;
} mg_index_walk;

/* Goes to the next position: the last axis counts fastest. */
static inline void mg_index_next(mg_index_walk *l) {
    for (int i = l->shape.rank - 1; i >= 0; i--) {
        l->offset += l->stride[i];
        if (++l->at[i] < l->shape.dim[i]) return;
        l->offset -= l->stride[i] * l->at[i];
        l->at[i] = 0;
    }
}

/* A row-major tensor seen around one axis: element (o, i, j) is at (o * n + i) * inner + j. */
typedef struct mg_axis_view {
    int64_t outer, n, inner; /* products of the sizes before, at and after the axis */
} mg_axis_view;

static inline mg_axis_view mg_axis_view_of(const mg_shape *s, int64_t axis) {
    mg_axis_view v = {1, s->dim[axis], 1};
    for (int i = 0; i < axis; i++) v.outer *= s->dim[i];
    for (int i = (int)axis + 1; i < s->rank; i++) v.inner *= s->dim[i];
    return v;
}

#endif
