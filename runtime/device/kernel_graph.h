/* The kernel graph, the input of a device's `compile`: steps over numbered values, in execution
 * order.
 *
 * It holds no addresses and no device numbers, so devices of one kind can share the compiled
 * program. Values 0..n_external-1 come from outside at run time (arguments, variables, constants,
 * results); the others are temporaries that live in the arena. */
#ifndef MG_DEVICE_KERNEL_GRAPH_H
#define MG_DEVICE_KERNEL_GRAPH_H

#include "core/activity.h"
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

/* The loop of a scan step: a kernel graph that runs once per step of the loop. */

typedef enum mg_loop_role {
    MG_LOOP_GIVEN, /* the same in each step */
    MG_LOOP_CARRY, /* the value before the first step */
    MG_LOOP_ROWS   /* {steps, ...}: an entry for each step */
} mg_loop_role;

typedef struct mg_loop_operand { /* an input of the scan */
    mg_loop_role role;
    int carry; /* the carry's number */
} mg_loop_operand;

typedef struct mg_loop_root { /* a value that each step makes */
    int external;             /* of the loop's graph; an input of it if a step only hands it on */
    int carry; /* it is the next value of this carry, or -1: it is stacked over the steps */
    int out;   /* the output of the scan that it goes to: the last carry, or the stack; -1: none
                */
} mg_loop_root;

typedef struct mg_step_loop {
    const struct mg_kernel_graph *graph; /* without a commit phase */
    int64_t steps;
    bool reverse; /* step 0 takes the last entries */
    int n_carries, n_roots;
    const mg_loop_operand *operands; /* per input of the scan */
    const int *input;                /* per external value of the graph: the input of the scan that
                                        it stands for in a step, or -1: a root makes it */
    const mg_loop_root *roots;
} mg_step_loop;

typedef struct mg_step {
    const mg_op *op;       /* NULL: a fused group */
    const mg_fused *fused; /* NULL: an op; the iteration shape is that of the first output */
    const void *attrs;     /* of op; of a group that a device has extended: the device's own data */
    const mg_step_loop *loop; /* of a scan, else NULL */
    int n_in, n_out; /* n_out is 1; it is more for fused groups, for ops with several results and
                        for steps with which a device has merged others, and 0 for a step that was
                        merged with another */
    const int *in, *out; /* value numbers */
    mg_origin origin;    /* for profiles and messages */
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
    const bool *fixed; /* of a frozen plan, per external value: whether it is a constant, or a
                          variable that changes rarely. NULL: another plan's */
} mg_kernel_graph;

#endif
