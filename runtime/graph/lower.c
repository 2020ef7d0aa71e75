/* Lowering: from the ordered IR to numbered values and steps.
 *
 * External values come first: the plan's inputs (constants, arguments, variables), then its
 * outputs. All others are temporaries, in the order of the steps that make them. */
#include "core/alloc.h"
#include "graph/ir.h"
#include <string.h>

/* The work of one call of mg_lower. */
typedef struct lowering {
    mg_ir *ir;
    const mg_groups *groups;
    const mg_schedule *order;
    bool fuse;
    mg_lowered *out;
    int *value; /* per node: its value's number, or -1 */
    mg_value *values;
    bool *fixed; /* per value, of a frozen step; else NULL */
    mg_step *steps;
} lowering;

/* The group that a unit of the schedule is, or NULL: it is a node. */
static const mg_group *group_of(const lowering *l, int unit) {
    return unit >= l->ir->n ? l->groups->items[unit - l->ir->n] : NULL;
}

/* The next value number, for a node that has none. */
static int add_value(lowering *l, int node) {
    const int v = l->out->graph.n_values++;
    l->values[v] = (mg_value){.shape = l->ir->nodes[node].shape, .dtype = l->ir->nodes[node].dtype};
    return l->value[node] = v;
}

/* An external value for the node, unless it has one: two roots may be the same node. */
static void add_external(lowering *l, int node, mg_external_kind kind) {
    const mg_node *n = &l->ir->nodes[node];
    if (l->value[node] >= 0) return; /* numbered already */
    const int v = add_value(l, node);
    if (l->fixed) l->fixed[v] = kind == MG_EXTERNAL_VALUE || kind == MG_EXTERNAL_VARIABLE;
    l->out->graph.n_external = v + 1;
    l->out->externals[v] = (mg_external){.kind = kind,
                                         .node = node,
                                         .dtype = n->dtype,
                                         .shape = n->shape,
                                         .index = n->kind == MG_NODE_PARAMETER ? n->operand
                                                  : n->tensor                  ? n->tensor->index
                                                                               : 0,
                                         .part = n->part,
                                         .first = n->part ? n->first : 0,
                                         .tensor = n->tensor,
                                         .variable = n->tensor ? n->tensor->variable : NULL};
}

/* Numbers the plan's inputs, in the order of the nodes. */
static void add_given(lowering *l) {
    for (int i = 0; i < l->ir->n; i++) {
        const mg_node *n = &l->ir->nodes[i];
        if (!n->uses || n->forward >= 0) continue;
        if (n->kind == MG_NODE_VALUE) add_external(l, i, MG_EXTERNAL_VALUE);
        if (n->kind == MG_NODE_ARGUMENT) add_external(l, i, MG_EXTERNAL_ARGUMENT);
        if (n->kind == MG_NODE_VARIABLE) add_external(l, i, MG_EXTERNAL_VARIABLE);
        if (n->kind == MG_NODE_PARAMETER) add_external(l, i, MG_EXTERNAL_ARGUMENT);
    }
}

/* *commit, per node: whether a group of the commit phase makes it. */
static mg_status mark_commit(const lowering *l, bool **commit) {
    *commit = mg_ir_alloc(l->ir, (size_t)l->ir->n);
    if (!*commit) return MG_OOM;
    for (int i = l->order->n_compute; i < l->order->n; i++) { /* groups, and checks of them */
        const mg_group *g = group_of(l, l->order->units[i]);
        for (int k = 0; g && k < g->expr.n_outputs; k++) (*commit)[g->out[k]] = true;
    }
    return MG_OK;
}

/* Numbers the plan's outputs, in the order of the roots. A root that is itself an input keeps that
 * external value. */
static mg_status add_roots(lowering *l) {
    bool *commit;
    MG_TRY(mark_commit(l, &commit));
    for (int i = 0; i < l->ir->n_roots; i++) {
        const int node = l->ir->roots[i].node;
        const bool update = commit[node] && !l->ir->roots[i].check;
        add_external(l, node, update ? MG_EXTERNAL_UPDATE : MG_EXTERNAL_RESULT);
        l->out->root_external[i] = l->value[node];
    }
    return MG_OK;
}

/* The number of the node's value, a new temporary if it has none. */
static int value_of(lowering *l, int node) {
    return l->value[node] >= 0 ? l->value[node] : add_value(l, node);
}

/* ---- loops ---- */

/* What the roots of the body make: values of the scan, if something reads them. */
static mg_loop_root *lower_roots(lowering *l, const mg_node *n, const mg_lowered *body) {
    mg_loop_root *roots = mg_ir_alloc(l->ir, (size_t)(n->n_results + 1) * sizeof *roots);
    for (int r = 0, out = 0; roots && r < n->n_results; r++)
        roots[r] = (mg_loop_root){.external = body->root_external[r],
                                  .carry = n->loop->carry[r],
                                  .out = n->results[r].node >= 0 ? out++ : -1};
    return roots;
}

/* Per external value of the body: the input of the scan that it is, or -1. */
static int *lower_inputs(lowering *l, const mg_lowered *body) {
    int *input = mg_ir_alloc(l->ir, (size_t)(body->graph.n_external + 1) * sizeof *input);
    for (int i = 0; input && i < body->graph.n_external; i++) {
        const mg_external *e = &body->externals[i];
        input[i] = e->kind == MG_EXTERNAL_ARGUMENT ? e->index : -1;
    }
    return input;
}

/* Lowers the body of a scan. *loop stays NULL for other nodes. */
static mg_status lower_loop(lowering *l, const mg_node *n, const mg_step_loop **loop) {
    *loop = NULL;
    if (!n->loop) return MG_OK;
    mg_lowered *body = mg_ir_alloc(l->ir, sizeof *body);
    mg_step_loop *made = mg_ir_alloc(l->ir, sizeof *made);
    if (!body || !made) return MG_OOM;
    MG_TRY(mg_passes_lower(&n->loop->body, l->fuse, body));
    *made = (mg_step_loop){.graph = &body->graph,
                           .steps = n->loop->steps,
                           .reverse = n->loop->reverse,
                           .n_carries = n->loop->n_carries,
                           .n_roots = n->n_results,
                           .operands = n->loop->operands,
                           .input = lower_inputs(l, body),
                           .roots = lower_roots(l, n, body)};
    l->out->loops[l->out->graph.n_steps] = body;
    *loop = made;
    return made->input && made->roots ? MG_OK : MG_OOM;
}

/* ---- steps ---- */

/* A value that no step reads, of an op with several results. */
static int add_unread(lowering *l, const mg_ir_result *r) {
    const int v = l->out->graph.n_values++;
    l->values[v] = (mg_value){.shape = r->shape, .dtype = r->dtype};
    return v;
}

/* The values that the unit makes; of a loop only those that are read. Returns their number. */
static int list_outputs(lowering *l, int unit, const mg_group *g, int *out) {
    const mg_node *n = g ? NULL : &l->ir->nodes[unit];
    int n_out = 0;
    for (int i = 0; g && i < g->expr.n_outputs; i++) out[n_out++] = value_of(l, g->out[i]);
    for (int k = 0; n && k < n->n_results; k++) {
        const mg_ir_result *r = &n->results[k];
        if (r->node >= 0) out[n_out++] = value_of(l, r->node);
        if (r->node < 0 && !n->loop) out[n_out++] = add_unread(l, r);
    }
    if (n && !n->n_results) out[n_out++] = value_of(l, unit);
    return n_out;
}

/* The step of the unit at position `at` of the schedule. A group has the origin and the draw of
 * its last member. */
static mg_status add_step(lowering *l, int at) {
    const int unit = l->order->units[at];
    const mg_group *g = group_of(l, unit);
    /* the node that tells the origin: the step's own, or a group's last member */
    const mg_node *n = &l->ir->nodes[g ? g->members[g->n_members - 1] : unit];
    const int n_in = g ? g->expr.n_inputs : n->n_in;
    const int most = g ? g->expr.n_outputs : n->n_results + 1;
    int *in = mg_ir_alloc(l->ir, (size_t)n_in * sizeof *in);
    int *out = mg_ir_alloc(l->ir, (size_t)most * sizeof *out);
    if (!in || !out) return MG_OOM;
    const mg_step_loop *loop = NULL;
    if (!g) MG_TRY(lower_loop(l, n, &loop));
    /* Inputs were made by earlier steps, so only outputs can be new temporaries. */
    for (int i = 0; i < n_in; i++) in[i] = value_of(l, g ? g->in[i] : n->in[i]);
    const int n_out = list_outputs(l, unit, g, out);
    l->out->nodes[l->out->graph.n_steps] = g ? -1 : unit;
    l->steps[l->out->graph.n_steps++] = (mg_step){.op = g ? NULL : n->op,
                                                  .fused = g ? &g->expr : NULL,
                                                  .attrs = g ? NULL : n->attrs,
                                                  .loop = loop,
                                                  .n_in = n_in,
                                                  .n_out = n_out,
                                                  .in = in,
                                                  .out = out,
                                                  .draw = n->draw,
                                                  .seed = n->seed,
                                                  .draw_relative = n->draw_relative,
                                                  .first = g ? 0 : n->first,
                                                  .origin = n->origin,
                                                  .batch_count = l->order->batch_count[at]};
    return MG_OK;
}

/* There are at most as many values as nodes and results. */
mg_status mg_lower(mg_ir *ir, const mg_groups *groups, const mg_schedule *order, bool fuse,
                   mg_lowered *out) {
    *out = (mg_lowered){0};
    lowering l = {.ir = ir, .groups = groups, .order = order, .fuse = fuse, .out = out};
    size_t n = (size_t)ir->n;
    for (int i = 0; i < ir->n; i++) n += (size_t)ir->nodes[i].n_results;
    l.value = mg_ir_alloc(ir, n * sizeof *l.value);
    l.values = mg_ir_alloc(ir, n * sizeof *l.values);
    l.steps = mg_ir_alloc(ir, (size_t)order->n * sizeof *l.steps);
    if (ir->frozen) l.fixed = mg_ir_alloc(ir, n * sizeof *l.fixed);
    out->externals = mg_ir_alloc(ir, n * sizeof *out->externals);
    out->root_external = mg_ir_alloc(ir, (size_t)ir->n_roots * sizeof *out->root_external);
    out->nodes = mg_ir_alloc(ir, (size_t)order->n * sizeof *out->nodes);
    out->loops = mg_ir_alloc(ir, (size_t)order->n * sizeof(mg_lowered *));
    if ((ir->frozen && !l.fixed) || !out->nodes || !out->loops || !l.value || !l.values ||
        !l.steps || !out->externals || !out->root_external)
        return MG_OOM;
    for (size_t i = 0; i < n; i++) l.value[i] = -1; /* no value has a number yet */
    /* External values have the first numbers; the steps number the temporaries as they go. */
    add_given(&l);
    MG_TRY(add_roots(&l));
    for (int i = 0; i < order->n; i++) MG_TRY(add_step(&l, i));
    out->graph.n_compute = order->n_compute;
    out->graph.fixed = l.fixed;
    out->graph.values = l.values;
    out->graph.steps = l.steps;
    return MG_OK;
}

/* Values are followed through reshapes to the external value whose memory they may share. */
int *mg_lowered_readers(mg_ir *ir, const mg_lowered *l) {
    const mg_kernel_graph *w = &l->graph;
    const size_t n = (size_t)w->n_values + 1;
    int *readers = mg_ir_alloc(ir, n * sizeof *readers);
    int *origin =
        mg_ir_alloc(ir, n * sizeof *origin); /* the value that it is a reshape of, or itself */
    if (!readers || !origin) return NULL;
    for (int v = 0; v < w->n_values; v++) {
        readers[v] = MG_NO_READER;
        origin[v] = v;
    }
    for (int i = 0; i < w->n_steps; i++) {
        const mg_step *s = &w->steps[i];
        /* a device may let a reshape's result share its input's memory */
        if (s->op && strcmp(s->op->name, "reshape") == 0) origin[s->out[0]] = origin[s->in[0]];
        /* Only commit steps count: the compute phase is over before any update. */
        for (int k = 0; k < s->n_in && i >= w->n_compute; k++) {
            int *reader = &readers[origin[s->in[k]]];
            *reader = *reader == MG_NO_READER || *reader == i ? i : MG_SEVERAL_READERS;
        }
    }
    return readers;
}
