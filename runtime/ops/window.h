/* Sliding windows over images {N, H, W, C}: what the rules of conv2d and the pools share. */
#ifndef MG_OPS_WINDOW_H
#define MG_OPS_WINDOW_H

#include "ops/op.h"

/* Where a window lies along one axis: cell of output o and tap k = o * stride + k * dilation -
 * before. */
typedef struct mg_window {
    int64_t size, stride, before, after, dilation;
} mg_window;

static inline mg_window mg_window_along(int axis, const mg_ints *size, const mg_ints *strides,
                                        const mg_ints *pads, const mg_ints *dilations) {
    return (mg_window){.size = size->v[axis],
                       .stride = strides->v[axis],
                       .before = pads->v[2 * (axis == 0 ? 0 : 1) + (axis == 0 ? 0 : 0)],
                       .after = pads->v[1],
                       .dilation = dilations ? dilations->v[axis] : 1};
}

#endif
