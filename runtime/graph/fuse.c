/* Fuse: chains of element-wise nodes become groups, each one pass over memory.
 *
 * Nodes are taken in order. A node joins the groups of its element-wise producers when the
 * iteration shape and the register width agree, the limits of fused_expr.h hold, and no path leads
 * out of the union and back in (a group runs as one step). What only new values of variables are
 * made of does not join what is wanted before: it is left to the commit phase, where the updates of
 * many variables run as one step. Then each group becomes a straight-line expression in which
 * literals are immediates. */
#include "graph/ir.h"
#include "core/alloc.h"
#include "ops/elementwise.h"
#include <string.h>

enum { MAX_UNION = MG_FUSE_MAX_INSTRS };

/* Scratch of one pass. */
typedef struct fuser {
    mg_ir *ir;
    mg_groups *groups;
    bool *late;     /* per node: only the commit phase wants it */
    uint32_t *seen; /* per node: the search it was last seen in */
    int *stack;
    uint32_t search;
} fuser;

static bool fusible(const mg_node *n) {
    return n->kind == MG_NODE_OP && n->op->elementwise && n->uses && n->forward < 0;
}

static bool is_wide_type(mg_dtype t) {
    return t == MG_F64 || t == MG_I32 || t == MG_I64;
}

static bool is_wide(const mg_ir *ir, const mg_node *n) {
    if (is_wide_type(n->dtype)) return true;
    for (int i = 0; i < n->n_in; i++) {
        const mg_node *in = &ir->nodes[n->in[i]];
        if (in->kind != MG_NODE_LITERAL && is_wide_type(in->dtype)) return true;
    }
    return false;
}

/* ---- what is wanted when ---- */

/* Users stand behind what they use. */
static mg_status find_late(fuser *f) {
    const mg_ir *ir = f->ir;
    f->late = mg_ir_alloc(f->ir, (size_t)ir->n * sizeof *f->late + 1);
    if (!f->late) return MG_OOM;
    memset(f->late, true, (size_t)ir->n);
    for (int r = 0; r < ir->n_roots; r++)
        if (!ir->roots[r].commit) f->late[ir->roots[r].node] = false;
    for (int i = ir->n - 1; i >= 0; i--) {
        const mg_node *n = &ir->nodes[i];
        if (!mg_is_live(n)) continue;
        f->late[i] = f->late[i] && fusible(n);
        for (int k = 0; k < n->n_in && !f->late[i]; k++) f->late[n->in[k]] = false;
    }
    return MG_OK;
}

/* ---- may these members be one step? ---- */

typedef struct member_union {
    int n, members[MAX_UNION];
    int lowest;
} member_union;

static bool contains(const member_union *u, int node) {
    for (int i = 0; i < u->n; i++)
        if (u->members[i] == node) return true;
    return false;
}

/* The first node that may depend on one from `lowest` on. Nodes run no earlier than their whole
 * group does: what reads an early member of a group depends on all that its late members do. */
static int first_that_may_depend(const fuser *f, int lowest) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < f->groups->n; i++) {
            const mg_group *g = f->groups->items[i];
            if (!g->n_members || g->members[0] >= lowest) continue;
            if (g->members[g->n_members - 1] < lowest) continue;
            lowest = g->members[0];
            moved = true;
        }
    }
    return lowest;
}

/* Pushes node, or all of its group, unless it cannot depend on the union. */
static int visit(fuser *f, int top, int node, int lowest) {
    if (f->seen[node] == f->search || node < lowest) return top;
    const int g = f->ir->nodes[node].group;
    if (g < 0) {
        f->seen[node] = f->search;
        f->stack[top++] = node;
        return top;
    }
    const mg_group *group = f->groups->items[g];
    for (int i = 0; i < group->n_members; i++) {
        f->seen[group->members[i]] = f->search;
        f->stack[top++] = group->members[i];
    }
    return top;
}

/* Whether an outside input of the union depends on a member of it. */
static bool has_outside_path(fuser *f, const member_union *u) {
    const mg_ir *ir = f->ir;
    const int lowest = first_that_may_depend(f, u->lowest);
    int top = 0;
    f->search++;
    for (int i = 0; i < u->n; i++) {
        const mg_node *n = &ir->nodes[u->members[i]];
        for (int k = 0; k < n->n_in; k++)
            if (!contains(u, n->in[k])) top = visit(f, top, n->in[k], lowest);
    }
    while (top) {
        const mg_node *n = &ir->nodes[f->stack[--top]];
        for (int k = 0; k < n->n_in; k++) {
            if (contains(u, n->in[k])) return true;
            top = visit(f, top, n->in[k], lowest);
        }
    }
    return false;
}

/* Inputs and outputs the union would have, against the limits. */
static bool within_limits(const mg_ir *ir, const member_union *u) {
    int in[MG_FUSE_MAX_INPUTS], n_in = 0, n_out = 0, inner_uses[MAX_UNION] = {0};
    for (int i = 0; i < u->n; i++) {
        const mg_node *n = &ir->nodes[u->members[i]];
        for (int k = 0; k < n->n_in; k++) {
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

static mg_group *new_group(fuser *f, int node) {
    mg_groups *groups = f->groups;
    if (groups->n == groups->capacity) {
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

static void sort_ascending(int *v, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k - 1] > v[k]; k--) {
            const int t = v[k];
            v[k] = v[k - 1], v[k - 1] = t;
        }
}

/* Moves the members of group `from` into group `to`. */
static void merge_groups(fuser *f, int to, int from) {
    mg_group *a = f->groups->items[to], *b = f->groups->items[from];
    for (int i = 0; i < b->n_members; i++) {
        a->members[a->n_members++] = b->members[i];
        f->ir->nodes[b->members[i]].group = to;
    }
    sort_ascending(a->members, a->n_members);
    b->n_members = 0;
}

/* Every literal operand may need a place of its own in imm. */
static void count_literals(const fuser *f, const mg_group *g, int *n) {
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *node = &f->ir->nodes[g->members[i]];
        for (int k = 0; k < node->n_in; k++)
            *n += f->ir->nodes[node->in[k]].kind == MG_NODE_LITERAL;
    }
}

static bool literals_fit(const fuser *f, int a, int b) {
    int n = 0;
    count_literals(f, f->groups->items[a], &n);
    count_literals(f, f->groups->items[b], &n);
    return n <= MG_FUSE_MAX_INSTRS;
}

static bool may_join(fuser *f, int a, int b) {
    const mg_group *x = f->groups->items[a], *y = f->groups->items[b];
    const mg_node *n = &f->ir->nodes[x->members[0]], *m = &f->ir->nodes[y->members[0]];
    if (x->n_members + y->n_members > MAX_UNION || !mg_shape_equal(&n->shape, &m->shape) ||
        f->late[x->members[0]] != f->late[y->members[0]] ||
        is_wide(f->ir, n) != is_wide(f->ir, m) || !literals_fit(f, a, b))
        return false;
    member_union u = {0};
    for (int i = 0; i < x->n_members; i++) u.members[u.n++] = x->members[i];
    for (int i = 0; i < y->n_members; i++) u.members[u.n++] = y->members[i];
    u.lowest = x->members[0] < y->members[0] ? x->members[0] : y->members[0];
    return within_limits(f->ir, &u) && !has_outside_path(f, &u);
}

static void join_producers(fuser *f, int node) {
    const mg_node *n = &f->ir->nodes[node];
    for (int k = 0; k < n->n_in; k++) {
        const int g = f->ir->nodes[n->in[k]].group;
        if (g >= 0 && g != n->group && may_join(f, g, n->group)) merge_groups(f, g, n->group);
    }
}

/* ---- from members to an expression ---- */

static int operand_of_input(mg_group *g, const mg_ir *ir, int node) {
    for (int i = 0; i < g->expr.n_inputs; i++)
        if (g->in[i] == node) return i;
    g->expr.in_dtype[g->expr.n_inputs] = (uint8_t)ir->nodes[node].dtype;
    g->in[g->expr.n_inputs] = node;
    return g->expr.n_inputs++;
}

static int member_index(const mg_group *g, int node) {
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i] == node) return i;
    return -1;
}

/* Numbers inputs and immediates first: instructions come after both. */
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

static int operand(mg_group *g, const mg_ir *ir, int node) {
    const mg_node *n = &ir->nodes[node];
    const mg_fused *e = &g->expr;
    if (n->kind == MG_NODE_LITERAL)
        for (int m = 0; m < e->n_imms; m++)
            if (memcmp(&e->imm[m], &n->literal, sizeof n->literal) == 0) return e->n_inputs + m;
    const int member = member_index(g, node);
    return member >= 0 ? e->n_inputs + e->n_imms + member : operand_of_input(g, ir, node);
}

/* Whether somebody outside the group, or a root, uses the member. */
static bool used_outside(const mg_group *g, const mg_ir *ir, int node) {
    int inner = 0;
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *n = &ir->nodes[g->members[i]];
        for (int k = 0; k < n->n_in; k++) inner += n->in[k] == node;
    }
    return ir->nodes[node].uses > inner;
}

static void write_expression(mg_group *g, const mg_ir *ir) {
    mg_fused *e = &g->expr;
    number_operands(g, ir);
    for (int i = 0; i < g->n_members; i++) {
        const mg_node *n = &ir->nodes[g->members[i]];
        mg_instr *instr = &e->instr[e->n_instrs++];
        instr->op = (uint8_t)(n->op->elementwise - 1);
        instr->dtype = (uint8_t)n->dtype;
        instr->n_args = (uint8_t)n->n_in;
        for (int k = 0; k < n->n_in; k++) instr->arg[k] = (int16_t)operand(g, ir, n->in[k]);
        if (is_wide(ir, n)) e->wide = 1;
        if (used_outside(g, ir, g->members[i])) {
            g->out[e->n_outputs] = g->members[i];
            e->output[e->n_outputs++] = (int16_t)(e->n_inputs + e->n_imms + i);
        }
    }
}

/* Groups that were merged away leave empty places: close them. */
static void compact(fuser *f) {
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

mg_status mg_fuse(mg_ir *ir, bool fuse, mg_groups *groups) {
    *groups = (mg_groups){0};
    fuser f = {.ir = ir, .groups = groups};
    f.seen = mg_ir_alloc(ir, (size_t)ir->n * sizeof *f.seen);
    f.stack = mg_ir_alloc(ir, (size_t)ir->n * sizeof *f.stack);
    if (!f.seen || !f.stack) return MG_OOM;
    MG_TRY(find_late(&f));
    for (int i = 0; i < ir->n; i++) {
        if (!fusible(&ir->nodes[i])) continue;
        if (!new_group(&f, i)) return MG_OOM;
        if (fuse) join_producers(&f, i);
    }
    compact(&f);
    return MG_OK;
}
