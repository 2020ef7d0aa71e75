/* The plan's own view of a step: numbered nodes, made from tensors, rewritten
 * by the passes.
 *
 * Nodes stand in topological order. A node that a pass replaces gets `forward`;
 * passes read inputs through mg_ir_resolve. Tensors are not changed: the IR
 * lives from mg_plan_new to the compiled program. */
#ifndef MG_GRAPH_IR_H
#define MG_GRAPH_IR_H

#include "device/kernel_graph.h"
#include "graph/graph.h"
#include <string.h>

typedef enum mg_node_kind {
    MG_NODE_OP,
    MG_NODE_LITERAL, /* a `full` value: `literal` everywhere; materialised only
                        where an op asks */
    MG_NODE_VALUE,   /* a tensor that has a buffer */
    MG_NODE_ARGUMENT,
    MG_NODE_VARIABLE
} mg_node_kind;

typedef struct mg_node {
    mg_node_kind kind;
    mg_dtype dtype;
    mg_shape shape;
    const mg_op *op;
    const void *attrs; /* a copy in the IR's memory */
    int n_in;
    int *in;
    double literal;
    mg_tensor *tensor; /* where it came from; borrowed while the plan is made */
    const char *where; /* the user's line, or NULL */
    uint64_t draw;
    uint32_t seed;
    bool draw_relative;
    bool part;     /* of an argument: rows [first, first + shape.dim[0]) of it */
    int64_t first; /* likewise; of a draw: its first element's place in the whole */
    int forward;   /* replaced by this node, or -1 */
    int uses;      /* by live nodes and roots; 0 = dead */
    int group;     /* fused group, or -1 */
} mg_node;

static inline bool mg_is_op(const mg_node *n, const char *name) {
    return n->kind == MG_NODE_OP && strcmp(n->op->name, name) == 0;
}
static inline bool mg_is_live(const mg_node *n) {
    return n->uses && n->forward < 0;
}

typedef struct mg_root { /* a value the plan must produce */
    int node;
    bool commit; /* a variable's new value, wanted by nobody but the commit phase
                  */
} mg_root;

typedef struct mg_ir {
    mg_node *nodes;
    int n;
    mg_root *roots; /* outputs, then new values of variables, then guards */
    int n_roots;
    struct mg_chunk *chunks; /* the memory of all of it */
} mg_ir;

static inline int mg_ir_resolve(const mg_ir *ir, int node) {
    while (ir->nodes[node].forward >= 0) node = ir->nodes[node].forward;
    return node;
}

/* From the tensors (roots in order). `trace` is the serial placeholders must
 * carry: 0 = none may occur. Evaluated tensors become values; their history is
 * not followed. */
mg_status mg_ir_collect(mg_ir *ir, mg_tensor *const *roots, int n_roots, uint16_t trace);
void mg_ir_free(mg_ir *ir);
/* Memory that lives as long as the IR. */
void *mg_ir_alloc(mg_ir *ir, size_t bytes);
/* Sets `uses` from the roots down; dead nodes have 0. */
void mg_ir_count_uses(mg_ir *ir);

/* simplify.c: equal nodes become one, identities vanish, conv/matmul take bias
 * and relu in. */
mg_status mg_simplify(mg_ir *ir);

/* fold_norm.c: batch normalisation goes into products and convolutions. Afterwards equal nodes are
 * there twice, and uses are not counted. `done`: whether anything changed. */
mg_status mg_fold_norms(mg_ir *ir, bool *done);

/* fuse.c: gives element-wise nodes their groups. */
typedef struct mg_group {
    mg_fused expr;
    int n_members, members[MG_FUSE_MAX_INSTRS]; /* node numbers, ascending */
    int in[MG_FUSE_MAX_INPUTS];                 /* nodes */
    int out[MG_FUSE_MAX_OUTPUTS];               /* nodes */
} mg_group;

typedef struct mg_groups {
    mg_group **items; /* in the IR's memory */
    int n, capacity;
} mg_groups;

/* With `fuse` false only MG_NODE_LITERAL operands are dealt with: every group
 * has one member. */
mg_status mg_fuse(mg_ir *ir, bool fuse, mg_groups *groups);

/* schedule.c: the order of steps (ops and groups). A unit is a node, or a
 * group's number + n. */
typedef struct mg_schedule {
    int *units;       /* in the IR's memory; node number, or ir->n + group number */
    int *batch_count; /* likewise; per place: see mg_step */
    int n, n_compute;
} mg_schedule;
mg_status mg_schedule_order(mg_ir *ir, const mg_groups *groups, mg_schedule *order);

/* lower.c: from the ordered IR to the work a device compiles. */
typedef enum mg_external_kind {
    MG_EXTERNAL_VALUE, /* a constant of the plan */
    MG_EXTERNAL_ARGUMENT,
    MG_EXTERNAL_VARIABLE, /* its value at entry */
    MG_EXTERNAL_RESULT,   /* made by a compute step, in a fresh buffer */
    MG_EXTERNAL_UPDATE    /* made by a commit step, in place where that is safe */
} mg_external_kind;

typedef struct mg_external {
    mg_external_kind kind;
    int node;
    mg_dtype dtype;
    mg_shape shape;
    int index; /* of an argument */
    bool part; /* of an argument: its rows from `first` on */
    int64_t first;
    mg_tensor *tensor;     /* of a value or variable read; borrowed */
    mg_variable *variable; /* of a variable read; borrowed from the tensor */
} mg_external;

typedef struct mg_lowered { /* all in the IR's memory */
    mg_kernel_graph graph;
    mg_external *externals; /* graph.n_external of them */
    int *root_external;     /* per root of the IR: its external value */
    const char **where;     /* per step: the user's line, or NULL */
    int *nodes;             /* per step: its node, or -1 for a group */
} mg_lowered;

mg_status mg_lower(mg_ir *ir, const mg_groups *groups, const mg_schedule *order, mg_lowered *l);
/* Per external value the commit step that reads it, directly or through reshapes (which may share
 * its memory). In the IR's memory; NULL: MG_OOM. */
enum { MG_NO_READER = -1, MG_SEVERAL_READERS = -2 };
int *mg_lowered_readers(mg_ir *ir, const mg_lowered *l);

/* passes.c: the passes in their order. mg_passes_rewrite: those from IR to IR; mg_passes_lower:
 * from there to the work of a device, whose element-wise chains are fused if `fuse`. */
mg_status mg_passes_rewrite(mg_ir *ir);
mg_status mg_passes_lower(mg_ir *ir, bool fuse, mg_lowered *lowered);

/* dump.c: one line a step. Owned text, or NULL. */
char *mg_lowered_dump(const mg_lowered *l, bool where);

#endif
