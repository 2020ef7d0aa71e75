/* Fusing: chains of element-wise nodes become groups, each of which is one pass over memory.
 *
 * Nodes are taken in order. A node joins the groups of its element-wise producers if the iteration
 * shape and the register width agree, the limits of fused_expr.h hold, and no path leads out of the
 * union and back in (a group runs as one step). Nodes that are needed only for new values of
 * variables do not join nodes that are needed earlier: they are left to the commit phase, where the
 * updates of many variables run as one step. Nor does a node of a frozen step that is computed once
 * for many runs join one that is computed in each. Then groups that read the same value are joined,
 * under the same conditions, so that the value is read once: both gradients of a product read dy.
 * Finally each group becomes a straight-line expression in which literals are immediates. */
#include "graph/ir.h"
#include "core/alloc.h"
#include "device/worker.h"
#include "graph/unit_order.h"
#include "ops/elementwise.h"
#include <string.h>

/* Members of a group: each is one instruction. */
enum { MAX_UNION = MG_FUSE_MAX_INSTRS };

/* Scratch of one pass; arrays lie in the IR's memory. */
typedef struct fuser {
    mg_ir *ir;
    mg_groups *groups;
    bool *commit_only;    /* per node: only the commit phase needs it */
    int *reader;          /* per node: a member of the last group that reads it, or -1 */
    mg_unit_order *order; /* NULL if nothing is joined */
} fuser;

/* A live element-wise op. */
static bool is_fusible(const mg_node *n) {
    return n->kind == MG_NODE_OP && n->op->elementwise && n->uses && n->forward < 0;
}

/* Types that need double registers. */
static bool is_wide_type(mg_dtype t) {
    return t == MG_F64 || t == MG_I32 || t == MG_I64;
}

/* Whether any input or the result needs a double register. Literals are immediates and fit either.
 */
static bool is_wide(const mg_ir *ir, const mg_node *n) {
    if (is_wide_type(n->dtype)) return true;
    for (int i = 0; i < n->n_in; i++) {
        const mg_node *in = &ir->nodes[n->in[i]];
        if (in->kind != MG_NODE_LITERAL && is_wide_type(in->dtype)) return true;
    }
    return false;
}

/* ---- nodes of the two phases ---- */

/* From the last node to the first: a node's users come after it. Only element-wise ops and the
 * checks of new values may be left to the commit phase. */
static mg_status find_commit_only(fuser *f) {
    const mg_ir *ir = f->ir;
    f->commit_only = mg_ir_alloc(f->ir, (size_t)ir->n * sizeof *f->commit_only + 1);
    if (!f->commit_only) return MG_OOM;
    memset(f->commit_only, true, (size_t)ir->n);
    for (int r = 0; r < ir->n_roots; r++)
        if (!ir->roots[r].commit) f->commit_only[ir->roots[r].node] = false;
    for (int i = ir->n - 1; i >= 0; i--) {
        const mg_node *n = &ir->nodes[i];
        if (!mg_is_live(n)) continue;
        f->commit_only[i] = f->commit_only[i] && (is_fusible(n) || mg_ir_checks_new_values(ir, n));
        for (int k = 0; k < n->n_in && !f->commit_only[i]; k++) f->commit_only[n->in[k]] = false;
    }
    return MG_OK;
}

/* ---- nodes of a frozen step ---- */

/* Marks the nodes that depend on constants and variables only: they are computed once for many
 * runs, so they join no others. */
static void mark_fixed(mg_ir *ir) {
    for (int i = 0; i < ir->n && ir->frozen; i++) {
        mg_node *n = &ir->nodes[i];
        if (!mg_is_live(n)) continue;
        n->fixed = n->kind != MG_NODE_ARGUMENT && !n->loop &&
                   !(n->kind == MG_NODE_OP && n->op->flags & MG_OP_RANDOM);
        for (int k = 0; k < n->n_in; k++) n->fixed = n->fixed && ir->nodes[n->in[k]].fixed;
    }
}

/* ---- may these members be one step? ---- */

/* The members that two groups would have together. */
typedef struct member_union {
    int n, members[MAX_UNION];
} member_union;

/* Whether the union would have few enough inputs and outputs. A member is an output if it has more
 * uses than those inside. */
static bool is_within_limits(const mg_ir *ir, const member_union *u) {
    int in[MG_FUSE_MAX_INPUTS], n_in = 0, n_out = 0, inner_uses[MAX_UNION] = {0};
    for (int i = 0; i < u->n; i++) {
        const mg_node *n = &ir->nodes[u->members[i]];
        for (int k = 0; k < n->n_in; k++) { /* inputs from outside, each once */
            int seen = 0;
            if (ir->nodes[n->in[k]].kind == MG_NODE_LITERAL) continue;
            for (int m = 0; m < u->n; m++)
                if (u->members[m] == n->in[k]) inner_uses[m]++, seen = 1;
            for (int m = 0; m < n_in && !seen; m++) seen = in[m] == n->in[k];
            if (seen) continue;
            if (n_in == MG_FUSE_MAX_INPUTS) return false;
            in[n_in++] = n->in[k];
        }
    }
    for (int i = 0; i < u->n; i++) n_out += ir->nodes[u->members[i]].uses > inner_uses[i];
    return n_out <= MG_FUSE_MAX_OUTPUTS;
}

/* ---- joining ---- */

/* A group of one node. NULL: MG_OOM. */
static mg_group *new_group(fuser *f, int node) {
    mg_groups *groups = f->groups;
    if (groups->n == groups->capacity) { /* mg_reserve cannot grow blocks of the IR's memory */
        const int capacity = groups->capacity ? 2 * groups->capacity : 32;
        mg_group **items = mg_ir_alloc(f->ir, (size_t)capacity * sizeof *items);
        if (!items) return NULL;
        if (groups->n) memcpy(items, groups->items, (size_t)groups->n * sizeof *items);
        groups->items = items;
        groups->capacity = capacity;
    }
    mg_group *g = mg_ir_alloc(f->ir, sizeof *g);
    if (!g) return NULL;
    g->n_members = 1;
    g->members[0] = node;
    f->ir->nodes[node].group = groups->n;
    groups->items[groups->n++] = g;
    return g;
}

/* Insertion sort: both halves are sorted already, and short. */
static void sort_ascending(int *v, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k - 1] > v[k]; k--) {
            const int t = v[k];
            v[k] = v[k - 1], v[k - 1] = t;
        }
}

/* Adds the literal operands of a group to *n: each may need a place of its own in imm. */
static void count_literals(const fuser *f, const mg_group *g, int *n) {
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *node = &f->ir->nodes[g->members[i]];
        for (int k = 0; k < node->n_in; k++)
            *n += f->ir->nodes[node->in[k]].kind == MG_NODE_LITERAL;
    }
}

/* Whether the immediates of both groups fit into one expression. */
static bool literals_fit(const fuser *f, int a, int b) {
    int n = 0;
    count_literals(f, f->groups->items[a], &n);
    count_literals(f, f->groups->items[b], &n);
    return n <= MG_FUSE_MAX_INSTRS;
}

/* Whether groups a and b may become one, as far as their members tell. */
static bool may_join(const fuser *f, int a, int b) {
    const mg_group *x = f->groups->items[a], *y = f->groups->items[b];
    const mg_node *n = &f->ir->nodes[x->members[0]], *m = &f->ir->nodes[y->members[0]];
    if (x->n_members + y->n_members > MAX_UNION || !mg_shape_equal(&n->shape, &m->shape) ||
        f->commit_only[x->members[0]] != f->commit_only[y->members[0]] || n->fixed != m->fixed ||
        is_wide(f->ir, n) != is_wide(f->ir, m) || !literals_fit(f, a, b))
        return false;
    member_union u = {0};
    for (int i = 0; i < x->n_members; i++) u.members[u.n++] = x->members[i];
    for (int i = 0; i < y->n_members; i++) u.members[u.n++] = y->members[i];
    return is_within_limits(f->ir, &u);
}

/* Moves the members of group `from` into group `to` if they may be one. The empty group keeps its
 * number for now. */
static void join_groups(fuser *f, int to, int from) {
    mg_group *a = f->groups->items[to], *b = f->groups->items[from];
    if (!may_join(f, to, from) || !mg_unit_order_join(f->order, a->members[0], b->members[0]))
        return;
    for (int i = 0; i < b->n_members; i++) {
        a->members[a->n_members++] = b->members[i];
        f->ir->nodes[b->members[i]].group = to;
    }
    sort_ascending(a->members, a->n_members);
    b->n_members = 0;
}

/* The node's group joins that of its first producer that allows it, then the next. */
static void join_producers(fuser *f, int node) {
    const mg_node *n = &f->ir->nodes[node];
    for (int k = 0; k < n->n_in; k++) {
        const int g = f->ir->nodes[n->in[k]].group;
        if (g >= 0 && g != n->group) join_groups(f, g, n->group);
    }
}

/* Whether the node is a verdict on a step: a scalar that tells which checks hold. */
static bool is_verdict(const mg_node *n) {
    return n->shape.rank == 0 && (n->dtype == MG_BOOL || n->dtype == MG_U8);
}

/* The node's group joins the groups that read the same inputs. A shared broadcast input is no
 * reason to join, because reading it again costs little. Updates of variables are not joined, so
 * that the updates of many variables stay equal and can run as one step; verdicts are. */
static void join_readers(fuser *f, int node) {
    const mg_node *n = &f->ir->nodes[node];
    for (int k = 0; k < n->n_in && (!f->commit_only[node] || is_verdict(n)); k++) {
        const mg_node *in = &f->ir->nodes[n->in[k]];
        if (in->kind == MG_NODE_LITERAL || !mg_shape_equal(&in->shape, &n->shape)) continue;
        const int other = f->reader[n->in[k]];
        f->reader[n->in[k]] = node;
        if (other < 0) continue;
        const int g = f->ir->nodes[other].group;
        if (g != n->group) join_groups(f, g, n->group);
    }
}

/* Whether the group makes the new value of a variable. */
static bool is_update(const fuser *f, int group) {
    const mg_group *g = f->groups->items[group];
    bool update = false;
    for (int i = 0; i < g->n_members; i++) update |= f->ir->nodes[g->members[i]].new_value;
    return update;
}

/* In the commit phase a group of scalars that is no update, such as the cast of the learning rate,
 * joins one of the same width. Two updates are not joined, as above. */
static void join_scalars(fuser *f) {
    const mg_ir *ir = f->ir;
    int last[2] = {-1, -1}; /* by width: the last scalar of the commit phase */
    for (int i = 0; i < ir->n; i++) {
        const mg_node *n = &ir->nodes[i];
        if (!is_fusible(n) || !f->commit_only[i] || n->shape.rank > 0) continue;
        const int wide = is_wide(ir, n);
        const int other = last[wide] < 0 ? n->group : ir->nodes[last[wide]].group;
        last[wide] = i;
        if (other != n->group && !(is_update(f, other) && is_update(f, n->group)))
            join_groups(f, other, n->group);
    }
}

/* ---- from members to an expression ---- */

/* The operand number of an input, a new one if it has none. */
static int operand_of_input(mg_group *g, const mg_ir *ir, int node) {
    for (int i = 0; i < g->expr.n_inputs; i++)
        if (g->in[i] == node) return i;
    g->expr.in_dtype[g->expr.n_inputs] = (uint8_t)ir->nodes[node].dtype;
    g->in[g->expr.n_inputs] = node;
    return g->expr.n_inputs++;
}

/* The node's position among the members, or -1. */
static int member_index(const mg_group *g, int node) {
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] == node) return i;
    return -1;
}

/* Numbers inputs and immediates first, because instructions come after both. Equal literals share
 * an immediate; their bits are compared, so -0 and 0 differ. */
static void number_operands(mg_group *g, const mg_ir *ir) {
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *n = &ir->nodes[g->members[i]];
        for (int k = 0; k < n->n_in; k++) {
            const mg_node *in = &ir->nodes[n->in[k]];
            int seen = 0;
            if (in->kind != MG_NODE_LITERAL) {
                if (member_index(g, n->in[k]) < 0) operand_of_input(g, ir, n->in[k]);
                continue;
            }
            for (int m = 0; m < g->expr.n_imms && !seen; m++)
                seen = memcmp(&g->expr.imm[m], &in->literal, sizeof in->literal) == 0;
            if (!seen) g->expr.imm[g->expr.n_imms++] = in->literal;
        }
    }
}

/* The operand number of a literal, a member or an input. */
static int operand_of(mg_group *g, const mg_ir *ir, int node) {
    const mg_node *n = &ir->nodes[node];
    const mg_fused *e = &g->expr;
    if (n->kind == MG_NODE_LITERAL)
        for (int m = 0; m < e->n_imms; m++)
            if (memcmp(&e->imm[m], &n->literal, sizeof n->literal) == 0) return e->n_inputs + m;
    const int member = member_index(g, node);
    return member >= 0 ? e->n_inputs + e->n_imms + member : operand_of_input(g, ir, node);
}

/* Whether a root or a node outside the group uses the member: then it is an output. */
static bool is_used_outside(const mg_group *g, const mg_ir *ir, int node) {
    int inner = 0;
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *n = &ir->nodes[g->members[i]];
        for (int k = 0; k < n->n_in; k++) inner += n->in[k] == node;
    }
    return ir->nodes[node].uses > inner;
}

/* One instruction per member, in their order. */
static void write_expression(mg_group *g, const mg_ir *ir) {
    mg_fused *e = &g->expr;
    number_operands(g, ir);
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *n = &ir->nodes[g->members[i]];
        mg_instr *instr = &e->instr[e->n_instrs++];
        instr->op = (uint8_t)(n->op->elementwise - 1);
        instr->dtype = (uint8_t)n->dtype;
        instr->n_args = (uint8_t)n->n_in;
        for (int k = 0; k < n->n_in; k++) instr->arg[k] = (int16_t)operand_of(g, ir, n->in[k]);
        if (is_wide(ir, n)) e->wide = 1; /* then all members are */
        if (is_used_outside(g, ir, g->members[i])) {
            g->out[e->n_outputs] = g->members[i];
            e->output[e->n_outputs++] = (int16_t)(e->n_inputs + e->n_imms + i);
        }
    }
}

/* Closes the gaps that merging has left in the list, and writes the expressions. */
static void compact_groups(fuser *f) {
    mg_groups *groups = f->groups;
    int kept = 0;
    for (int i = 0; i < groups->n; i++) {
        mg_group *g = groups->items[i];
        if (!g->n_members) continue;
        for (int k = 0; k < g->n_members; k++) f->ir->nodes[g->members[k]].group = kept;
        write_expression(g, f->ir);
        groups->items[kept++] = g;
    }
    groups->n = kept;
}

/* What reads one reduction of a bucket waits for all of them, so a bucket counts as one unit. */
static void join_buckets(const fuser *f) {
    int last = -1; /* reduction */
    for (int i = 0; i < f->ir->n; i++) {
        const int64_t bucket = mg_ir_bucket(&f->ir->nodes[i]);
        if (!bucket) continue;
        if (last >= 0 && mg_ir_bucket(&f->ir->nodes[last]) == bucket)
            mg_unit_order_join(f->order, last, i);
        last = i;
    }
}

/* Every element-wise op becomes a member of a group, if only a group of one: devices run all of
 * them as expressions. */
mg_status mg_fuse(mg_ir *ir, bool fuse, mg_groups *groups) {
    *groups = (mg_groups){0};
    fuser f = {.ir = ir, .groups = groups};
    f.reader = mg_ir_alloc(ir, (size_t)ir->n * sizeof *f.reader);
    f.order = fuse ? mg_unit_order_new(ir) : NULL;
    if (!f.reader || (fuse && !f.order)) return MG_OOM;
    if (fuse) join_buckets(&f);
    MG_TRY(find_commit_only(&f));
    mark_fixed(ir);
    for (int i = 0; i < ir->n; i++) {
        if (!is_fusible(&ir->nodes[i])) continue;
        MG_TRY(mg_worker_poll());
        if (!new_group(&f, i)) return MG_OOM;
        if (fuse) join_producers(&f, i); /* producers come before i, so they have their groups */
    }
    for (int i = 0; i < ir->n; i++) f.reader[i] = -1;
    for (int i = 0; fuse && i < ir->n; i++) {
        MG_TRY(mg_worker_poll());
        if (is_fusible(&ir->nodes[i])) join_readers(&f, i);
    }
    if (fuse) join_scalars(&f);
    compact_groups(&f);
    return MG_OK;
}
