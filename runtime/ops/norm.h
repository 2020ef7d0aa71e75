/* What batch and layer normalization (norm.c, layer_norm.c) share: the attribute epsilon, and the
 * {2, C} pairs in which both keep statistics and sums. */
#ifndef MG_OPS_NORM_H
#define MG_OPS_NORM_H

#include "ops/attrs.h"
#include "ops/build.h"

/* The attributes of every op with an mg_norm_attrs. */
static const mg_attr mg_norm_attr_table[] = {
    {"epsilon", MG_ATTR_NUMBER, offsetof(mg_norm_attrs, epsilon), 1e-3, NULL,
     "added to the variance"},
};

/* The statistics and sums of both families come as one tensor {2, C}. Row i of it, as {C}. */
static inline mg_tensor *mg_pair_row(mg_tensor *pair, int i) {
    if (!pair) return NULL;
    const int64_t c = pair->shape.dim[1];
    const mg_slice_attrs attrs = {.start = {.n = 2, .v = {i, 0}},
                                  .stop = {.n = 2, .v = {i + 1, c}}};
    const mg_shape flat = MG_SHAPE(c);
    return reshape(mg_make("slice", &attrs, 1, pair), &flat);
}

#endif
