/* What an op is: a row of one table. The row is the op's whole specification, beside its code.
 *
 * An op makes one tensor, or several (see mg_op.n_results). Rows stand at the end of ops/<family>.c
 * as `const mg_op_family mg_ops_<family>`; ops/ops.h lists the families, and nothing else does. */
#ifndef MG_OPS_OP_H
#define MG_OPS_OP_H

#include "comm/collective.h"
#include "core/placement.h"
#include "core/rng.h"
#include "core/tensor.h"
#include <stddef.h>

/* ---- attributes: a plain struct (zero the padding) described by a table ---- */

typedef struct mg_ints { /* a list of up to 8 integers */
    int32_t n;
    int32_t unused;
    int64_t v[MG_MAX_RANK];
} mg_ints;

typedef enum mg_attr_type {                 /* the C type at `offset` */
                            MG_ATTR_INT,    /* int64_t */
                            MG_ATTR_NUMBER, /* double */
                            MG_ATTR_BOOL,   /* int64_t, 0 or 1 */
                            MG_ATTR_DTYPE,  /* int64_t holding an mg_dtype */
                            MG_ATTR_DEVICE, /* int64_t: the address of an mg_device; 0: none */
                            MG_ATTR_CHOICE, /* int64_t: index into choices */
                            MG_ATTR_INTS,   /* mg_ints */
                            MG_ATTR_SHAPE,  /* mg_ints: a shape; -1 = unknown where the op allows it
                                             */
                            MG_ATTR_AXIS,   /* int64_t: 0-based in C; Lua gives 1-based or negative,
                                               the binding translates */
                            MG_ATTR_AXES /* mg_ints: likewise; n = 0 means "all axes" unless the op
                                            says otherwise */
} mg_attr_type;

typedef struct mg_attr {
    const char *name;
    mg_attr_type type;
    size_t offset;
    double fallback;            /* default of scalar types; lists default to empty */
    const char *const *choices; /* NULL-terminated names, for MG_ATTR_CHOICE */
    const char *doc;
} mg_attr;

/* ---- inference: from inputs and attributes to the output's shape and dtype ---- */

typedef struct mg_infer {
    const mg_op *op;
    int n_inputs;
    mg_tensor *const *inputs;
    void *attrs;    /* the tensor's own copy: the rule may normalise it (negative axes, say) */
    int result;     /* the number of the result to infer, of an op with several */
    mg_shape shape; /* to fill */
    mg_dtype dtype; /* preset to the first input's */
} mg_infer;

/* ---- the reference kernel: readable, row-major, in double or int64 ---- */

typedef struct mg_ref {
    const mg_op *op;
    const void *attrs;
    int n_inputs;
    const mg_shape *in_shape; /* one per input */
    const mg_dtype *in_dtype;
    const double *const *in;
    const int64_t *const *in_integers; /* for ref_integers, as out_integers: no doubles are made */
    mg_shape shape;                    /* of the output */
    mg_dtype dtype;
    double *out; /* rounded to dtype afterwards */
    int64_t *out_integers;
    int n_outs;
    double *const *outs; /* of an op with several results, in place of `out`; likewise for integers
                          */
    int64_t *const *outs_integers;
    mg_rng_state rng;
    int64_t first; /* of a draw: position of its first element in the whole draw */
} mg_ref;

/* ---- sharding: how an op works on the parts that the devices of a step hold ---- */

/* The input and output of a split rule. Shardings are those of core/placement.h. */
typedef struct mg_split {
    const mg_op *op;
    const void *attrs;
    int n_inputs;
    const mg_shape *const *in_shape; /* global */
    const mg_dtype *in_dtype;
    const mg_shape *shape; /* of the output, global */
    int64_t rows;          /* of the batch; the length of a sharded axis is a multiple of it */
    const int *given;      /* per input: its sharding */
    int *in;               /* to fill: the sharding each input must have; preset MG_REPLICATED */
    int out;               /* to fill: the output's sharding */
} mg_split;

/* ---- the row ---- */

enum mg_op_flags {
    MG_OP_PROMOTE = 1,       /* inputs are cast to their common dtype */
    MG_OP_FLOAT = 2,         /* integer inputs are cast to float32 (after promotion) */
    MG_OP_HIDDEN = 4,        /* internal: no Lua function */
    MG_OP_RANDOM = 8,        /* draws: never merged with an equal node */
    MG_OP_PROMOTE_REST = 16, /* inputs after the first are cast to their common dtype */
    MG_OP_INTERNAL = 32      /* made by C code only: Lua does not have it at all */
};

struct mg_op {
    const char *name;
    const char *doc;                /* one line; {2,3} style shapes */
    const char *example;            /* Lua code that tests run, with "--> text" for what it prints;
                                       NULL only for hidden ops */
    uint8_t min_inputs, max_inputs; /* 255 = any number */
    uint8_t flags;
    uint8_t data;        /* bit i: input i is data, which may be of a half dtype; the other inputs,
                            statistics and parameters, are then float32, and so is the arithmetic */
    uint8_t collective;  /* mg_collective: runs on all devices of the plan together; 0: does not */
    int16_t elementwise; /* index in elementwise.def + 1; 0 = not element-wise */
    const mg_attr *attrs;
    int n_attrs;
    size_t attrs_size;
    mg_status (*infer)(mg_infer *f);
    /* NULL: the op makes one tensor. Else the number of its results (of a scan its loop tells it).
     * The tensor of such an op is never read or handed to users: a `result` op on it stands for
     * each result. `infer` is asked for one result at a time, `ref` fills outs, and the gradient
     * rule is grad_many. */
    int (*n_results)(const void *attrs);
    /* d loss / d inputs[i] from dy = d loss / d y; borrowed from the scope of ops/build.h. It may
     * have a wider dtype than the input: it is cast after all terms are added up.
     * NULL = an error was set. mg_no_gradient() = nothing flows this way.
     * A NULL rule means "not differentiable": mg_grad raises only if such a path is needed. */
    mg_tensor *(*grad)(mg_tensor *y, mg_tensor *dy, int i);
    /* Of an op with several results: dys[k] is d loss / d result k, or NULL where there is none. */
    mg_tensor *(*grad_many)(mg_tensor *y, mg_tensor *const *dys, int i);
    /* Whether the op can work on its inputs as they are sharded (at least one is not replicated),
     * and what its output's sharding is then. false, or a NULL rule: all devices first gather the
     * sharded inputs and reduce the partial ones. Several results have the same sharding. */
    bool (*split)(mg_split *s);
    void (*ref)(const mg_ref *r);
    /* The same for integers and bool, in int64: exact, and sums and products wrap around. NULL: ref
     * computes integers too, in double. */
    void (*ref_integers)(const mg_ref *r);
};

typedef struct mg_op_family {
    const char *name;
    const mg_op *rows;
    int n_rows;
} mg_op_family;

/* By name, over all families; NULL if there is none. */
const mg_op *mg_op_find(const char *name);
/* All rows, for walks: 0 <= i < mg_op_count(). */
int mg_op_count(void);
const mg_op *mg_op_at(int i);

/* Sets the fields of zeroed attributes to their defaults. Lists stay empty: their row's infer rule
 * knows what that means. */
void mg_op_default_attrs(const mg_op *op, void *attrs);

/* A lazy tensor of op. `attrs` (op->attrs_size bytes, or NULL for the defaults) is copied. Checks
 * the number of inputs, promotes dtypes if the row says so, and infers shape, dtype and device:
 * mistakes of the user fail here, before anything is computed. Owned; NULL on failure. */
mg_tensor *mg_apply(const mg_op *op, mg_tensor *const *inputs, int n, const void *attrs);

/* A lazy scan of the loop over its inputs (see ops/loop.c). Owned; NULL on failure. */
mg_tensor *mg_apply_loop(mg_loop *loop, mg_tensor *const *inputs, int n);

/* The number of results of a tensor of an op that has several. */
int mg_result_count(const mg_tensor *t);
/* Shape and dtype of result k of a tensor of an op that has several. */
mg_status mg_infer_result(const mg_tensor *t, int k, mg_shape *shape, mg_dtype *dtype);

/* Shorthands for infer rules. `mg_infer_fail(f, code, "fmt")` prefixes "opname: ". */
mg_status mg_infer_fail(const mg_infer *f, mg_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline const mg_shape *mg_infer_shape(const mg_infer *f, int i) {
    return &f->inputs[i]->shape;
}
/* MG_USAGE unless input i has this rank / a floating dtype / an integer dtype. */
mg_status mg_infer_rank(const mg_infer *f, int i, int rank, const char *meaning);
mg_status mg_infer_float(const mg_infer *f, int i);
mg_status mg_infer_integer(const mg_infer *f, int i);
/* Makes *axis non-negative; MG_USAGE if it is out of range for `rank`. Messages count from 1. */
mg_status mg_infer_axis(const mg_infer *f, int64_t *axis, int rank);

/* ---- shorthands for split rules ---- */

/* Input i is sharded along its first axis where bit i of `inputs` is set; the output's sharding is
 * `out`: 0, or MG_PARTIAL_SUM where each device makes a term. False if none of them is sharded. */
bool mg_split_rows(mg_split *s, unsigned inputs, int out);
/* The output is sharded like the one input, which may be sharded along any axis but `axis`. */
bool mg_split_except(mg_split *s, int64_t axis);
/* Broadcasting: output and inputs are sharded along the same axis, counted from the last. */
bool mg_split_broadcast(mg_split *s);

/* In a row: MG_ATTRS(my_attrs_struct, my_attr_table). */
#define MG_ATTRS(type, table)                                                                      \
    .attrs = (table), .n_attrs = (int)(sizeof(table) / sizeof((table)[0])),                        \
    .attrs_size = sizeof(type)

#endif
