/* Merging the axes of an iteration space: neighbouring axes are merged if every operand steps
 * through them as through one axis, so that most tensors have only one or two axes left. Devices
 * divide these into tiles. */
#ifndef MG_DEVICE_AXES_H
#define MG_DEVICE_AXES_H

#include "core/shape.h"

/* Drops axes of size 1, and merges axis k into k + 1 where all n operands have stride[k] ==
 * stride[k + 1] * dim[k + 1]. dim and each operand's strides are changed in place. Returns the
 * number of axes left, which is 0 if all had size 1. */
int mg_axes_merge(int rank, int64_t *dim, int64_t *const *stride, int n);

/* Merged axes of a row-major tensor that is reduced over some of its axes. */
typedef struct mg_reduce_axis {
    int64_t n, stride; /* elements of the axis; distance between them */
    bool reduced;
} mg_reduce_axis;

/* Fills in the merged axes of x, outermost first; reduced and kept ones alternate. reduced[k] says
 * whether axis k of x is reduced. Axes of size 1 are dropped. Returns how many are left. */
int mg_axes_of_reduction(const mg_shape *x, const bool *reduced, mg_reduce_axis axes[MG_MAX_RANK]);

#endif
