/* Sliding windows over images {N, H, W, C}: the geometry that conv2d and the pooling ops share.
 *
 * Everything is computed along one axis at a time: axis 0 is rows (H), axis 1 is columns (W). */
#ifndef MG_OPS_WINDOW_H
#define MG_OPS_WINDOW_H

#include "ops/op.h"

/* A window along one axis: tap k of output o is image cell o * stride + k * dilation - before. */
typedef struct mg_window {
    int64_t image, size;   /* cells of the image; taps of the window */
    int64_t stride;        /* cells from one output's window to the next */
    int64_t before, after; /* padding cells at both ends */
    int64_t dilation;      /* cells from one tap to the next */
} mg_window;

/* The window of `size` taps along `axis` of an image. `pads` lists top, bottom, left, right;
 * `dilations` NULL means 1. */
static inline mg_window mg_window_along(int axis, const mg_shape *image, int64_t size,
                                        const mg_ints *strides, const mg_ints *pads,
                                        const mg_ints *dilations) {
    return (mg_window){.image = image->dim[1 + axis],
                       .size = size,
                       .stride = strides->v[axis],
                       .before = pads->v[2 * axis],
                       .after = pads->v[2 * axis + 1],
                       .dilation = dilations ? dilations->v[axis] : 1};
}

/* The image cell of output o and tap k, or -1 if it lies in the padding. */
static inline int64_t mg_window_cell(const mg_window *w, int64_t o, int64_t k) {
    const int64_t at = o * w->stride + k * w->dilation - w->before;
    return at >= 0 && at < w->image ? at : -1;
}

/* Completes the attribute list `name` to n entries: an empty list becomes n times `fallback`, a
 * single number n times that number. MG_USAGE if it has another length, or if an entry is smaller
 * than `low`. */
static inline mg_status mg_window_list(const mg_infer *f, mg_ints *list, int n, int64_t fallback,
                                       int64_t low, const char *name) {
    if (list->n > 1 && list->n != n)
        return mg_infer_fail(f, MG_USAGE, "%s must be a list of %d, got %d", name, n, list->n);
    const int64_t all = list->n ? list->v[0] : fallback;
    for (int i = 0; i < n; i++) {
        if (list->n <= 1) list->v[i] = all;
        if (list->v[i] < low || list->v[i] > INT32_MAX)
            return mg_infer_fail(f, MG_USAGE, "%s must be %lld to %d, got %lld", name,
                                 (long long)low, INT32_MAX, (long long)list->v[i]);
    }
    list->n = n;
    return MG_OK;
}

/* Sets *outputs to the number of window positions along `axis`. MG_USAGE if the window is larger
 * than the padded image. */
static inline mg_status mg_window_outputs(const mg_infer *f, const mg_window *w, int axis,
                                          int64_t *outputs) {
    const char *along = axis == 0 ? "rows" : "columns";
    int64_t extent, padded;
    if (w->size < 1)
        return mg_infer_fail(f, MG_USAGE,
                             "a window of %lld %s is not possible: give a size of at least 1",
                             (long long)w->size, along);
    if (__builtin_mul_overflow(w->size - 1, w->dilation, &extent) ||
        __builtin_add_overflow(extent, 1, &extent) ||
        __builtin_add_overflow(w->image, w->before + w->after, &padded))
        return mg_infer_fail(f, MG_USAGE, "the window spans too many %s", along);
    if (extent > padded)
        return mg_infer_fail(f, MG_USAGE, "the window spans %lld %s, but the image has %lld%s",
                             (long long)extent, along, (long long)padded,
                             w->before + w->after ? " with its padding" : "");
    *outputs = (padded - extent) / w->stride + 1;
    return MG_OK;
}

#endif
