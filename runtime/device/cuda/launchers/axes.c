/* Merging axes, and dividing by them. */
#include "device/cuda/launchers/axes.h"
#include <stdbool.h>

/* Hacker's Delight, 10-9: n / size = (n * magic / 2^32 + n) / 2^shift. */
mg_axis mg_axis_of(int64_t size) {
    mg_axis a = {.size = size};
    if (size <= 0 || size > INT32_MAX) return a;
    while (((int64_t)1 << a.shift) < size) a.shift++;
    const uint64_t excess = ((uint64_t)1 << a.shift) - (uint64_t)size;
    a.magic = (uint32_t)((excess << 32) / (uint64_t)size + 1);
    return a;
}

static void drop_axis(mg_axes *axes, int64_t (*stride)[MG_MAX_RANK], int n, int axis) {
    axes->rank--;
    for (int k = axis; k < axes->rank; k++) {
        axes->dim[k] = axes->dim[k + 1];
        for (int i = 0; i < n; i++) stride[i][k] = stride[i][k + 1];
    }
}

void mg_axes_merge(mg_axes *axes, int64_t (*stride)[MG_MAX_RANK], int n) {
    for (int k = axes->rank - 1; k >= 0; k--)
        if (axes->dim[k] == 1) drop_axis(axes, stride, n, k);
    for (int k = axes->rank - 2; k >= 0; k--) {
        bool alike = true;
        for (int i = 0; i < n; i++) alike &= stride[i][k] == stride[i][k + 1] * axes->dim[k + 1];
        if (!alike) continue;
        axes->dim[k + 1] *= axes->dim[k];
        drop_axis(axes, stride, n, k);
    }
}
