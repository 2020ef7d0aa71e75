/* What a device is given to compile: steps over numbered values, in execution
 * order.
 *
 * No addresses, no device numbers. Values 0..n_external-1 come from outside at
 * run time (arguments, variables, constants, results); the others are
 * temporaries that live in the arena. */
#ifndef MG_DEVICE_KERNEL_GRAPH_H
#define MG_DEVICE_KERNEL_GRAPH_H

#include "ops/fused_expr.h"
#include "ops/op.h"

typedef struct mg_value {
    mg_shape shape;
    mg_dtype dtype;
} mg_value;

/* In any layout. */
static inline size_t mg_value_bytes(const mg_value *v) {
    return (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
}

typedef struct mg_step {
    const mg_op *op;       /* NULL: a fused group */
    const mg_fused *fused; /* else NULL; iteration shape = shape of its first output */
    const void *attrs;     /* of op; of a group that a device has joined: what it wants to know */
    int n_in, n_out;       /* n_out is 1; more for fused groups and for steps that a device has
                              joined, where the other one has none */
    const int *in, *out;   /* value numbers */
    uint64_t draw;         /* of a random op: its ordinal ... */
    uint32_t seed;         /* ... and key; */
    bool draw_relative;    /* or the ordinal counted from the base, with the seed,
                              given to run */
    int64_t first;         /* of a random op: where its first element stands in the whole
                              draw */
    /* Of a fused group: this many steps from here on, itself among them, have
     * equal expressions over ranges of their own and do not need one another: a
     * multi-tensor update. Of an all_reduce: this many are one bucket, and run as one call on
     * every device. Else 1, and 0 for the others of such a row. */
    int batch_count;
} mg_step;

typedef struct mg_kernel_graph {
    int n_values, n_external, n_steps, n_compute; /* steps from n_compute on are the commit phase */
    const mg_value *values;
    const mg_step *steps;
} mg_kernel_graph;

#endif
