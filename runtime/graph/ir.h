/* The intermediate representation (IR) of a step: numbered nodes, made from tensors and rewritten
 * by the passes.
 *
 * Nodes stand in topological order. A node that a pass replaces gets `forward`, the number of its
 * replacement; passes read inputs through mg_ir_resolve. Tensors are not changed. An IR lives as
 * long as the plan, because the lowered graph lies in its memory. */
#ifndef MG_GRAPH_IR_H
#define MG_GRAPH_IR_H

#include "device/kernel_graph.h"
#include "graph/graph.h"
#include <string.h>

typedef enum mg_node_kind {
    MG_NODE_OP,
    MG_NODE_LITERAL, /* `literal` in every element; made in memory only where an op needs it */
    MG_NODE_VALUE,   /* a tensor that has a buffer */
    MG_NODE_ARGUMENT,
    MG_NODE_VARIABLE,
    MG_NODE_PARAMETER /* of a loop's body: stands for input `operand` of the scan in a step */
} mg_node_kind;

typedef struct mg_ir_result { /* of an op with several */
    mg_dtype dtype;
    mg_shape shape;
    int node; /* the live `result` node that stands for it, or -1 */
} mg_ir_result;

/* Whether fields are used depends on the kind; the others are 0. */
typedef struct mg_node {
    mg_node_kind kind;
    mg_dtype dtype;
    mg_shape shape;
    const mg_op *op;
    const void *attrs; /* a copy in the IR's memory */
    int n_in;
    int *in;       /* node numbers, smaller than its own */
    int n_results; /* 0: the node is its op's only result */
    mg_ir_result *results;
    struct mg_ir_loop *loop; /* of a scan */
    int operand;             /* of a parameter */
    double literal;
    mg_tensor *tensor; /* that it was made from; borrowed while the plan is made */
    mg_origin origin;
    /* Of a random op: */
    uint64_t draw;      /* the ordinal */
    uint32_t seed;      /* the key */
    bool draw_relative; /* the ordinal counts from the run's base, and the key is the run's */
    /* On several devices: */
    bool part;     /* the node is only rows [first, first + dim[0]) of an argument or constant */
    int64_t first; /* see `part`; of a random op: position of its first element in the whole draw */
    /* Marks of the passes: */
    int forward;    /* the node that replaces this one, or -1 */
    int uses;       /* by live nodes and roots; 0: dead */
    int group;      /* the fused group that it is a member of, or -1 */
    bool new_value; /* a variable's new value: a root of the commit phase that is no check */
    bool fixed;     /* of a frozen step: depends on constants and variables only (mark_fixed) */
} mg_node;

/* Whether n is an op of this name. */
static inline bool mg_is_op(const mg_node *n, const char *name) {
    return n->kind == MG_NODE_OP && strcmp(n->op->name, name) == 0;
}
/* After mg_ir_count_uses: some root depends on n, and nothing has replaced it. */
static inline bool mg_is_live(const mg_node *n) {
    return n->uses && n->forward < 0;
}

typedef struct mg_root { /* a value the plan must produce */
    int node;
    bool commit; /* a variable's new value, which only the commit phase needs */
    bool check;  /* a guard on new values: made in the commit phase, in separate memory */
} mg_root;

typedef struct mg_ir {
    mg_node *nodes;
    int n;
    mg_root *roots; /* outputs, then new values of variables, then guards; of a loop's body: the
                       kept results */
    int n_roots;
    bool recorded; /* mg_plan_spec.recorded: no rewrite may change how results are rounded */
    bool frozen;   /* variables change rarely: what depends on nothing else is computed once, not in
                      each run. The step assigns no variable */
    struct mg_ir_loop *loops; /* all that belong to its nodes, linked by `next` */
    struct mg_chunk *chunks;  /* the memory of all of it, freed at once */
} mg_ir;

/* The loop of a scan node. Result k of the node is what root k of the body makes: the last value of
 * a carry, or the stack over the steps. */
typedef struct mg_ir_loop {
    struct mg_ir_loop *next;
    mg_ir body;
    int64_t steps;
    bool reverse;
    int n_carries;
    mg_loop_operand *operands; /* per input of the scan */
    int *carry;                /* per root: the carry whose next value it is, or -1 */
} mg_ir_loop;

/* The node that stands for `node` after all replacements. */
static inline int mg_ir_resolve(const mg_ir *ir, int node) {
    while (ir->nodes[node].forward >= 0) node = ir->nodes[node].forward;
    return node;
}

/* Makes the IR of the roots, in order. `trace` is the serial number that placeholders must carry;
 * 0: there may be none. An evaluated tensor becomes a value, and its history is not followed. */
mg_status mg_ir_collect(mg_ir *ir, mg_tensor *const *roots, int n_roots, uint16_t trace);

typedef struct mg_ir_end { /* a tensor that becomes a parameter */
    const mg_tensor *tensor;
    int operand;
} mg_ir_end;

typedef struct mg_ir_ends {
    mg_ir_end *items; /* sorted by address */
    int n;
} mg_ir_ends;

void mg_ir_sort_ends(mg_ir_ends *ends);
/* The same for the body of a loop, which ends at these tensors. Uses are not counted. */
mg_status mg_ir_collect_body(mg_ir *ir, mg_tensor *const *roots, int n_roots,
                             const mg_ir_ends *ends);
void mg_ir_free(mg_ir *ir);
/* Memory that lives as long as the IR. */
void *mg_ir_alloc(mg_ir *ir, size_t bytes);
/* Sets `uses` from the roots down, and `new_value`; resolves the inputs of live nodes. Dead nodes
 * have 0 uses. */
void mg_ir_count_uses(mg_ir *ir);

/* loop_ir.c: the IRs of loops. */

/* A loop in the IR's memory, with an empty body; NULL: MG_OOM. */
mg_ir_loop *mg_ir_new_loop(mg_ir *ir);
/* Makes the loops of the scan nodes, once all nodes of the IR exist. */
mg_status mg_ir_collect_loops(mg_ir *ir);
/* Once uses are counted: removes what no live result of a scan needs from its body, and inputs that
 * the body does not read; then all dead nodes of the IR. Sets mg_ir_result.node of all results. */
mg_status mg_ir_prune_loops(mg_ir *ir);

/* Whether the node is an all_finite of variables' new values, which belongs to the commit phase. */
bool mg_ir_checks_new_values(const mg_ir *ir, const mg_node *n);

/* Whether the node is the result of a relu: directly, through max pools, or as the epilogue of a
 * product. */
bool mg_ir_comes_from_relu(const mg_ir *ir, const mg_node *n);

/* The number of the bucket that the node is a reduction of, or 0. */
int64_t mg_ir_bucket(const mg_node *n);

/* simplify.c: constants are folded, equal nodes merged, identities vanish, conv2d and matmul take
 * bias and relu as epilogues. */
mg_status mg_simplify(mg_ir *ir);

/* fold_pad.c: zeros around images become padding of the convolutions that read them. */
mg_status mg_fold_pads(mg_ir *ir);

/* fold_norm.c: batch normalisation is folded into neighbouring products and convolutions. If
 * *changed, equal nodes may occur twice and uses are not counted. */
mg_status mg_fold_norms(mg_ir *ir, bool *changed);

/* fuse.c: groups of element-wise nodes that run as one step. */
typedef struct mg_group {
    mg_fused expr;
    int n_members, members[MG_FUSE_MAX_INSTRS]; /* node numbers, ascending */
    int in[MG_FUSE_MAX_INPUTS];                 /* per input of expr: its node */
    int out[MG_FUSE_MAX_OUTPUTS];               /* per output of expr: its node */
} mg_group;

typedef struct mg_groups {
    mg_group **items; /* in the IR's memory */
    int n, capacity;
} mg_groups;

/* With `fuse` false every group has one member: only literal operands become immediates. */
mg_status mg_fuse(mg_ir *ir, bool fuse, mg_groups *groups);

/* schedule.c: the order of the steps. */
typedef struct mg_schedule {
    int *units;       /* in order: node numbers, or for groups ir->n + group number */
    int *batch_count; /* per unit: see mg_step */
    int n, n_compute; /* units from n_compute on are the commit phase */
} mg_schedule;
mg_status mg_schedule_order(mg_ir *ir, const mg_groups *groups, mg_schedule *order);

/* lower.c: from the ordered IR to the kernel graph that a device compiles. */

/* The kinds of external values of the kernel graph: values whose addresses are given at each
 * run. */
typedef enum mg_external_kind {
    MG_EXTERNAL_VALUE, /* a constant of the plan */
    MG_EXTERNAL_ARGUMENT,
    MG_EXTERNAL_VARIABLE, /* its value at entry */
    MG_EXTERNAL_RESULT,   /* made by a compute step, or a check of new values, in a new buffer */
    MG_EXTERNAL_UPDATE    /* made by a commit step, over the old value where that is safe */
} mg_external_kind;

typedef struct mg_external {
    mg_external_kind kind;
    int node;
    mg_dtype dtype;
    mg_shape shape;
    int index; /* of an argument */
    bool part; /* only its rows from `first` on belong to this part */
    int64_t first;
    mg_tensor *tensor;     /* of a value or variable read; borrowed */
    mg_variable *variable; /* of a variable read; borrowed from the tensor */
} mg_external;

typedef struct mg_lowered { /* all in the IR's memory */
    mg_kernel_graph graph;
    mg_external *externals;    /* graph.n_external of them */
    int *root_external;        /* per root of the IR: its external value */
    struct mg_lowered **loops; /* per step: what a loop's body was lowered to, or NULL */
    int *nodes;                /* per step: its node, or -1 for a group */
} mg_lowered;

/* Bodies of loops are lowered too, by mg_passes_lower with `fuse`. */
mg_status mg_lower(mg_ir *ir, const mg_groups *groups, const mg_schedule *order, bool fuse,
                   mg_lowered *l);
enum { MG_NO_READER = -1, MG_SEVERAL_READERS = -2 };
/* Per external value: the commit step that reads it, directly or through reshapes (which may share
 * its memory), or one of these. In the IR's memory; NULL: MG_OOM. */
int *mg_lowered_readers(mg_ir *ir, const mg_lowered *l);

/* passes.c: the passes in their order. mg_passes_rewrite: those from IR to IR; mg_passes_lower:
 * from there to the work of a device, whose element-wise chains are fused if `fuse`. */
mg_status mg_passes_rewrite(mg_ir *ir);
mg_status mg_passes_lower(mg_ir *ir, bool fuse, mg_lowered *lowered);

/* dump.c: one line per step. Owned text, or NULL. */
char *mg_lowered_dump(const mg_lowered *l, bool where);

#endif
