/* Merging the axes of an iteration space. */
#include "device/axes.h"

/* Removes an axis; returns the rank that is left. */
static int drop_axis(int rank, int64_t *dim, int64_t *const *stride, int n, int axis) {
    for (int k = axis; k + 1 < rank; k++) {
        dim[k] = dim[k + 1];
        for (int i = 0; i < n; i++) stride[i][k] = stride[i][k + 1];
    }
    return rank - 1;
}

/* Goes from the innermost axis outwards, so that an axis is merged with all axes inside it. */
int mg_axes_merge(int rank, int64_t *dim, int64_t *const *stride, int n) {
    for (int k = rank - 1; k >= 0; k--)
        if (dim[k] == 1) rank = drop_axis(rank, dim, stride, n, k);
    for (int k = rank - 2; k >= 0; k--) {
        bool run_on = true;
        for (int i = 0; i < n; i++) run_on &= stride[i][k] == stride[i][k + 1] * dim[k + 1];
        if (!run_on) continue;
        dim[k + 1] *= dim[k];
        rank = drop_axis(rank, dim, stride, n, k);
    }
    return rank;
}

/* x is row-major, so neighbouring axes that are all reduced, or all kept, can always be merged. */
int mg_axes_of_reduction(const mg_shape *x, const bool *reduced, mg_reduce_axis axes[MG_MAX_RANK]) {
    int64_t stride[MG_MAX_RANK];
    int n = 0;
    mg_shape_strides(x, NULL, stride);
    for (int k = 0; k < x->rank; k++) {
        if (x->dim[k] == 1) continue;
        if (n > 0 && axes[n - 1].reduced == reduced[k]) {
            axes[n - 1].n *= x->dim[k];
            axes[n - 1].stride = stride[k];
        } else {
            axes[n++] = (mg_reduce_axis){x->dim[k], stride[k], reduced[k]};
        }
    }
    return n;
}
