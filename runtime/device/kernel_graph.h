/* The kernel graph, the input of a device's `compile`: steps over numbered values, in execution
 * order.
 *
 * It holds no addresses and no device numbers, so devices of one kind can share the compiled
 * program. Values 0..n_external-1 come from outside at run time (arguments, variables, constants,
 * results); the others are temporaries that live in the arena. */
#ifndef MG_DEVICE_KERNEL_GRAPH_H
#define MG_DEVICE_KERNEL_GRAPH_H

#include "ops/fused_expr.h"
#include "ops/op.h"

typedef struct mg_value {
    mg_shape shape;
    mg_dtype dtype;
} mg_value;

/* Bytes of a value, in any layout. */
static inline size_t mg_value_bytes(const mg_value *v) {
    return (size_t)mg_shape_count(&v->shape) * mg_dtype_size(v->dtype);
}

typedef struct mg_step {
    const mg_op *op;       /* NULL: a fused group */
    const mg_fused *fused; /* NULL: an op; the iteration shape is that of the first output */
    const void *attrs;     /* of op; of a group that a device has extended: the device's own data */
    int n_in, n_out; /* n_out is 1; it is more for fused groups and for steps with which a device
                        has merged others, and 0 for a step that was merged with another */
    const int *in, *out; /* value numbers */
    /* Of a random op: */
    uint64_t draw;      /* the ordinal ... */
    uint32_t seed;      /* ... and the key; */
    bool draw_relative; /* if true, the ordinal counts from mg_run.rng.base, and the key is
                           mg_run.rng.seed */
    int64_t first;      /* position of its first element in the whole draw */
    /* Steps of a batch follow one another. The first has their number, the others have 0; a step
     * outside a batch has 1. Fused groups of a batch have equal expressions over their own ranges
     * and do not depend on one another (a multi-tensor update). All-reduces of a batch are one
     * bucket, and run as one call on every device. */
    int batch_count;
} mg_step;

typedef struct mg_kernel_graph {
    int n_values, n_external, n_steps, n_compute; /* steps from n_compute on are the commit phase */
    const mg_value *values;
    const mg_step *steps;
} mg_kernel_graph;

#endif
