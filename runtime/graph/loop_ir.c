/* The IRs of loops: made from the tensors of their bodies, and pruned to what is needed.
 *
 * A body's parameters and given tensors become parameter nodes, in the order of the scan's inputs.
 * Its roots are the results that are needed: those that live `result` nodes stand for, and the
 * carries that these depend on. So a value that only a gradient reads costs nothing where there is
 * none. */
#include "core/alloc.h"
#include "core/loop.h"
#include "graph/ir.h"
#include "ops/attrs.h"

mg_ir_loop *mg_ir_new_loop(mg_ir *ir) {
    mg_ir_loop *l = mg_ir_alloc(ir, sizeof *l);
    if (!l) return NULL;
    l->next = ir->loops;
    return ir->loops = l;
}

/* ---- collecting ---- */

/* Inputs of the scan: carries, arrays, given tensors. */
static mg_status list_operands(mg_ir *ir, mg_ir_loop *made, const mg_loop *l) {
    const int n_params = l->n_carries + l->n_rows, n = n_params + l->n_given;
    made->operands = mg_ir_alloc(ir, (size_t)(n + 1) * sizeof *made->operands);
    if (!made->operands) return MG_OOM;
    for (int i = 0; i < n; i++)
        made->operands[i] = (mg_loop_operand){i < l->n_carries ? MG_LOOP_CARRY
                                              : i < n_params   ? MG_LOOP_ROWS
                                                               : MG_LOOP_GIVEN,
                                              i < l->n_carries ? i : -1};
    return MG_OK;
}

static mg_status collect_body(mg_ir *body, const mg_loop *l) {
    const int n_params = l->n_carries + l->n_rows;
    mg_ir_ends ends = {.n = n_params + l->n_given};
    ends.items = mg_alloc((size_t)(ends.n + 1) * sizeof *ends.items);
    if (!ends.items) return MG_OOM;
    for (int i = 0; i < ends.n; i++)
        ends.items[i] = (mg_ir_end){i < n_params ? l->params[i] : l->given[i - n_params], i};
    mg_ir_sort_ends(&ends);
    const mg_status status = mg_ir_collect_body(body, l->results, l->n_results, &ends);
    mg_free(ends.items);
    return status;
}

static mg_status collect_loop(mg_ir *ir, int node) {
    const mg_loop *l = ir->nodes[node].tensor->loop;
    mg_ir_loop *made = mg_ir_new_loop(ir);
    if (!made) return MG_OOM;
    made->steps = l->steps;
    made->reverse = l->reverse;
    made->n_carries = l->n_carries;
    made->carry = mg_ir_alloc(ir, (size_t)(l->n_results + 1) * sizeof *made->carry);
    if (!made->carry) return MG_OOM;
    for (int k = 0; k < l->n_results; k++) made->carry[k] = k < l->n_carries ? k : -1;
    ir->nodes[node].loop = made;
    MG_TRY(list_operands(ir, made, l));
    return collect_body(&made->body, l);
}

mg_status mg_ir_collect_loops(mg_ir *ir) {
    for (int i = 0; i < ir->n; i++) {
        const mg_node *n = &ir->nodes[i];
        if (n->kind == MG_NODE_OP && n->tensor->loop) MG_TRY(collect_loop(ir, i));
    }
    return MG_OK;
}

/* ---- results ---- */

/* Sets mg_ir_result.node of all results. */
static void find_results(mg_ir *ir) {
    for (int i = 0; i < ir->n; i++)
        for (int k = 0; k < ir->nodes[i].n_results; k++) ir->nodes[i].results[k].node = -1;
    for (int i = 0; i < ir->n; i++) {
        const mg_node *n = &ir->nodes[i];
        if (!mg_is_live(n) || !mg_is_op(n, "result")) continue;
        const mg_result_attrs *a = n->attrs;
        ir->nodes[n->in[0]].results[a->number].node = i;
    }
}

/* ---- pruning ---- */

/* Marks what the body's kept roots need. */
static void mark_live(const mg_ir *body, const bool *kept, bool *live) {
    memset(live, 0, (size_t)body->n);
    for (int r = 0; r < body->n_roots; r++)
        if (kept[r]) live[mg_ir_resolve(body, body->roots[r].node)] = true;
    for (int i = body->n - 1; i >= 0; i--)
        for (int k = 0; k < body->nodes[i].n_in && live[i]; k++)
            live[mg_ir_resolve(body, body->nodes[i].in[k])] = true;
}

/* Keeps the next values of carries that kept roots depend on; whether there was another one. */
static bool keep_carries(const mg_ir_loop *l, const bool *live, bool *kept) {
    bool more = false;
    for (int i = 0; i < l->body.n; i++) {
        const mg_node *n = &l->body.nodes[i];
        if (!live[i] || n->kind != MG_NODE_PARAMETER) continue;
        const int carry = l->operands[n->operand].carry;
        for (int r = 0; r < l->body.n_roots && carry >= 0; r++) {
            if (l->carry[r] != carry || kept[r]) continue;
            more = kept[r] = true;
        }
    }
    return more;
}

/* Only kept roots stay, and the results of node i with them. Its `result` nodes, of which several
 * may stand for one result, get the new numbers. */
static mg_status drop_roots(mg_ir *ir, int i, const bool *kept) {
    mg_node *n = &ir->nodes[i];
    mg_ir_loop *l = n->loop;
    int to = 0;
    int64_t *number = mg_ir_alloc(ir, (size_t)(l->body.n_roots + 1) * sizeof *number);
    if (!number) return MG_OOM;
    for (int r = 0; r < l->body.n_roots; r++) {
        if (!kept[r]) continue;
        number[r] = to;
        l->body.roots[to] = l->body.roots[r];
        l->carry[to] = l->carry[r];
        n->results[to++] = n->results[r];
    }
    l->body.n_roots = n->n_results = to;
    for (int k = i + 1; k < ir->n; k++) {
        const mg_node *user = &ir->nodes[k];
        if (!mg_is_live(user) || !mg_is_op(user, "result") || user->in[0] != i) continue;
        mg_result_attrs *attrs = mg_ir_alloc(ir, sizeof *attrs);
        if (!attrs) return MG_OOM;
        attrs->number = number[((const mg_result_attrs *)user->attrs)->number];
        ir->nodes[k].attrs = attrs;
    }
    return MG_OK;
}

/* Dead nodes go: sharding.c and partition.c take every node for one that some root needs. */
static mg_status drop_dead(mg_ir *ir) {
    int *number = mg_ir_alloc(ir, (size_t)(ir->n + 1) * sizeof *number), to = 0;
    if (!number) return MG_OOM;
    for (int i = 0; i < ir->n; i++) {
        const mg_node n = ir->nodes[i];
        if (!mg_is_live(&n)) continue;
        for (int k = 0; k < n.n_in; k++) n.in[k] = number[n.in[k]];
        number[i] = to;
        ir->nodes[to++] = n;
    }
    for (int r = 0; r < ir->n_roots; r++) ir->roots[r].node = number[ir->roots[r].node];
    ir->n = to;
    find_results(ir);
    return MG_OK;
}

/* Inputs that no node of the body reads go. */
static mg_status drop_operands(mg_ir *ir, mg_node *n) {
    mg_ir_loop *l = n->loop;
    int *number = mg_ir_alloc(ir, (size_t)(n->n_in + 1) * sizeof *number), to = 0;
    if (!number) return MG_OOM;
    for (int i = 0; i < l->body.n; i++) {
        const mg_node *p = &l->body.nodes[i];
        if (p->kind == MG_NODE_PARAMETER) number[p->operand] = 1;
    }
    for (int k = 0; k < n->n_in; k++) {
        if (!number[k]) continue;
        number[k] = to;
        n->in[to] = n->in[k];
        l->operands[to++] = l->operands[k];
    }
    n->n_in = to;
    for (int i = 0; i < l->body.n; i++) {
        mg_node *p = &l->body.nodes[i];
        if (p->kind == MG_NODE_PARAMETER) p->operand = number[p->operand];
    }
    return MG_OK;
}

static mg_status prune_loop(mg_ir *ir, int i) {
    mg_node *n = &ir->nodes[i];
    mg_ir_loop *l = n->loop;
    bool *kept = mg_ir_alloc(ir, (size_t)l->body.n_roots + 1);
    bool *live = mg_ir_alloc(ir, (size_t)l->body.n + 1);
    if (!kept || !live) return MG_OOM;
    for (int r = 0; r < l->body.n_roots; r++) kept[r] = n->results[r].node >= 0;
    do {
        mark_live(&l->body, kept, live);
    } while (keep_carries(l, live, kept));
    MG_TRY(drop_roots(ir, i, kept));
    mg_ir_count_uses(&l->body);
    MG_TRY(mg_ir_prune_loops(&l->body)); /* may free parameters */
    return drop_operands(ir, n);
}

/* Users first, because what they read may become unused. */
mg_status mg_ir_prune_loops(mg_ir *ir) {
    find_results(ir);
    for (int i = ir->n - 1; i >= 0; i--) {
        if (!mg_is_live(&ir->nodes[i]) || !ir->nodes[i].loop) continue;
        MG_TRY(prune_loop(ir, i));
        mg_ir_count_uses(ir);
        find_results(ir);
    }
    return drop_dead(ir);
}
