/* Shardings: see sharding.h.
 *
 * The ops' split rules say in which sharding a node is produced. If some reader needs a partial
 * value whole, it is reduced once for all its readers. This may change the result of a reader's
 * rule, so the decision is repeated until nothing changes. */
#include "graph/sharding.h"
#include "graph/partition_loop.h"
#include "ops/attrs.h"

/* A node without inputs, or a broadcast of one: a device can make the whole of it or any part, with
 * the same numbers. */
static bool is_source(const partition *p, const mg_node *n) {
    if (n->kind == MG_NODE_LITERAL || mg_is_op(n, "iota") || mg_is_op(n, "random"))
        return n->n_in == 0;
    if (!mg_is_op(n, "broadcast_to")) return false;
    const int sharding = p->shardings[n->in[0]].sharding;
    return sharding == MG_REPLICATED || sharding == MG_ANY_SHARDING;
}

/* Asks the op's split rule with the inputs' shardings. True: d->in and d->sharding hold the answer.
 * False: there is no rule, or it cannot go on. */
static bool ask_rule(const partition *p, const mg_node *n, const int *given, node_sharding *d) {
    const mg_shape **shapes = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *shapes);
    mg_dtype *dtypes = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *dtypes);
    mg_split s = {.op = n->op,
                  .attrs = n->attrs,
                  .n_inputs = n->n_in,
                  .in_shape = shapes,
                  .in_dtype = dtypes,
                  .shape = &n->shape,
                  .rows = p->shards->rows,
                  .given = given,
                  .in = d->in,
                  .out = MG_REPLICATED};
    if (!shapes || !dtypes || !n->op->split) return false;
    for (int k = 0; k < n->n_in; k++) {
        shapes[k] = &p->global->nodes[n->in[k]].shape;
        dtypes[k] = p->global->nodes[n->in[k]].dtype;
    }
    if (!n->op->split(&s)) return false;
    d->sharding = s.out;
    return true;
}

/* A reshape of {n, ..., batch, rest} to {n * ... * batch, rest}, where a rule can give no sharding
 * of the rows: a device still has all that it needs to contract over them. */
static void mix_rows(const partition *p, int i, node_sharding *d) {
    const mg_node *n = &p->global->nodes[i];
    const mg_shape *x = &p->global->nodes[n->in[0]].shape, *y = &n->shape;
    const int axis = p->shardings[n->in[0]].sharding;
    if (!mg_is_op(n, "reshape") || axis < 1 || d->sharding != MG_REPLICATED || p->reduced[i] ||
        p->spec->n_stages > 1 || y->rank != x->rank - axis)
        return;
    int64_t before = 1;
    for (int k = 0; k < axis; k++) before *= x->dim[k];
    bool fits = y->dim[0] == before * x->dim[axis];
    for (int k = 1; k < y->rank; k++) fits = fits && y->dim[k] == x->dim[axis + k];
    if (!fits || before > INT32_MAX / 2) return;
    d->in[0] = axis;
    d->sharding = MG_MIXED_ROWS - (int)before;
}

/* a' b over rows that both are mixed in the same way. */
static bool contracts_mixed_rows(const partition *p, const mg_node *n, node_sharding *d) {
    if (!mg_is_op(n, "matmul") || n->n_in != 2 || n->shape.rank != 2) return false;
    const mg_matmul_attrs *a = n->attrs;
    const int rows = p->shardings[n->in[0]].sharding;
    if (!is_mixed_rows(rows) || p->shardings[n->in[1]].sharding != rows || !a->transpose_a ||
        a->transpose_b || a->relu)
        return false;
    d->in[0] = d->in[1] = rows;
    d->sharding = MG_PARTIAL_SUM;
    return true;
}

/* An op over inputs of which one may be per device (MG_PER_DEVICE): the rule is asked as if such an
 * input were replicated, and the result is per device too. */
static mg_status decide_op(const partition *p, const mg_node *n, node_sharding *d) {
    int *given = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *given);
    bool parts = false, local = false, terms = false;
    if (!given) return MG_OOM;
    if (contracts_mixed_rows(p, n, d)) return MG_OK;
    for (int k = 0; k < n->n_in; k++) {
        const int own = p->shardings[n->in[k]].sharding;
        const int sharding = is_mixed_rows(own) ? MG_REPLICATED : own; /* no rule knows it */
        given[k] = sharding;
        parts |= sharding >= 0;
        terms |= mg_sharding_is_partial(sharding);
        local |= sharding == MG_PER_DEVICE;
    }
    /* Values computed from per-device values are per device too: their partial sums count as
     * whole. */
    for (int k = 0; k < n->n_in && local; k++)
        if (given[k] == MG_PER_DEVICE || given[k] <= MG_PARTIAL_SUM)
            given[k] = given[k] == MG_ANY_SHARDING ? MG_ANY_SHARDING : MG_REPLICATED;
    d->sharding = MG_REPLICATED;
    /* The rule is called only if some input is not replicated. */
    const bool ruled = (parts || (terms && !local)) && ask_rule(p, n, given, d);
    if (!ruled)
        for (int k = 0; k < n->n_in; k++) d->in[k] = MG_REPLICATED;
    if (local && (d->sharding == MG_REPLICATED)) d->sharding = MG_PER_DEVICE;
    for (int k = 0; k < n->n_in && local; k++) {
        const int sharding = p->shardings[n->in[k]].sharding;
        if (d->in[k] == MG_REPLICATED && (sharding == MG_PER_DEVICE || sharding == MG_PARTIAL_SUM))
            d->in[k] = MG_PER_DEVICE;
    }
    return MG_OK;
}

/* An op with several results: a scan, or one whose rule gives all of them the same sharding. */
static mg_status decide_results(partition *p, const mg_node *n, node_sharding *d) {
    if (n->loop) return mg_sharding_decide_loop(p, n, d);
    if (p->shards->rows) MG_TRY(decide_op(p, n, d));
    for (int k = 0; k < n->n_results; k++) d->results[k] = d->sharding;
    d->sharding = MG_REPLICATED;
    return MG_OK;
}

bool mg_sharding_has_joint_moments(const partition *p, int i) {
    return mg_is_op(&p->global->nodes[i], "moments") && p->shards->rows &&
           p->shardings[i].in[0] >= 0 && p->shardings[i].produced == MG_REPLICATED;
}

mg_status mg_sharding_decide_node(partition *p, int i, node_sharding *d) {
    const mg_node *n = &p->global->nodes[i];
    d->sharding = is_source(p, n) ? MG_ANY_SHARDING : MG_REPLICATED;
    if (n->kind == MG_NODE_PARAMETER) d->sharding = d->given;
    if (n->n_results && !d->results)
        d->results = mg_ir_alloc(p->part, (size_t)n->n_results * sizeof *d->results);
    if (n->n_results && !d->results) return MG_OOM;
    /* Kept from round to round. */
    if (!d->in) d->in = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *d->in);
    if (!d->in) return MG_OOM;
    for (int k = 0; k < n->n_in; k++) {
        d->in[k] = MG_REPLICATED;
        if (p->shardings[n->in[k]].depth >= d->depth) d->depth = p->shardings[n->in[k]].depth + 1;
    }
    if (n->n_results) return decide_results(p, n, d);
    if (mg_is_op(n, "result")) {
        const mg_result_attrs *a = n->attrs;
        d->sharding = p->shardings[n->in[0]].results[a->number];
        return MG_OK;
    }
    if (n->n_in == 0 || !p->shards->rows || d->sharding == MG_ANY_SHARDING) return MG_OK;
    if (mg_is_op(n, "place")) { /* as its input is sharded */
        d->sharding = d->in[0] = p->shardings[n->in[0]].sharding;
        return MG_OK;
    }
    if (mg_is_op(n, "shard")) {
        d->in[0] = p->shardings[n->in[0]].sharding == 0 ? 0 : MG_REPLICATED;
        d->sharding = 0;
        return MG_OK;
    }
    if (mg_is_op(n, "own_rows")) { /* reads nothing: partition.c makes a literal of it */
        const int by = p->shardings[n->in[0]].sharding;
        d->in[0] = by;
        const bool own =
            p->local_norm && by >= 0 && by != p->global->nodes[n->in[0]].shape.rank - 1;
        d->sharding = own ? MG_PER_DEVICE : MG_REPLICATED;
        return MG_OK;
    }
    if (mg_is_op(n,
                 "moments")) { /* partition.c joins the devices' moments, unless they stay apart */
        const int by = p->shardings[n->in[0]].sharding;
        if (by < 0 || by == n->shape.rank) return decide_op(p, n, d);
        d->in[0] = by;
        d->sharding = p->local_norm ? MG_PER_DEVICE : MG_REPLICATED;
        return MG_OK;
    }
    MG_TRY(decide_op(p, n, d));
    mix_rows(p, i, d);
    return MG_OK;
}

/* Marks the nodes that some reader or root needs replicated although their sharding is another. */
static void mark_wanted(const partition *p, const bool *split_roots, bool *wanted) {
    const mg_ir *g = p->global;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int sharding = p->shardings[g->nodes[i].in[k]].sharding,
                      in = p->shardings[i].in[k];
            if ((mg_sharding_is_partial(sharding) || sharding == MG_PER_DEVICE ||
                 is_mixed_rows(sharding)) &&
                in != sharding && in != MG_PER_DEVICE)
                wanted[g->nodes[i].in[k]] = true;
            if (sharding >= 0 && in != sharding) wanted[g->nodes[i].in[k]] = true;
        }
    for (int r = 0; r < g->n_roots; r++) {
        const int sharding = p->shardings[g->roots[r].node].sharding;
        if (sharding != MG_REPLICATED && sharding != MG_ANY_SHARDING &&
            !(split_roots[r] && sharding == 0))
            wanted[g->roots[r].node] = true;
    }
}

/* Partial terms that one reader needs whole are reduced for all readers; the next round calls the
 * rules again. `reduced` only grows, so the rounds end. */
mg_status mg_sharding_decide(partition *p, const bool *split_roots, bool *wanted) {
    const int n = p->global->n;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++) {
            node_sharding *d = &p->shardings[i];
            MG_TRY(mg_sharding_decide_node(p, i, d));
            d->produced = d->sharding;
            if (mg_sharding_is_partial(d->sharding) && p->reduced[i]) d->sharding = MG_REPLICATED;
            wanted[i] = false; /* marked anew in each round */
        }
        mark_wanted(p, split_roots, wanted);
        for (int i = 0; i < n; i++) {
            const int sharding = p->shardings[i].sharding;
            if (!wanted[i] || !(mg_sharding_is_partial(sharding) || is_mixed_rows(sharding)))
                continue;
            changed = p->reduced[i] = true; /* its readers' rules are asked again */
        }
    }
    return MG_OK;
}

/* ---- stages ---- */

/* A device that is not the first device of a stage counts as part of the first stage. */
int mg_partition_stage(const mg_partition_spec *spec, const mg_device *d) {
    for (int s = 0; s < spec->n_stages; s++)
        if (spec->stages[s] == d) return s;
    return 0;
}

/* Literals and draws are made where they are read, and so are their inputs; every other node
 * belongs to the stage it was traced on. */
void mg_sharding_assign_stages(partition *p) {
    const mg_ir *g = p->global;
    for (int i = 0; i < g->n; i++)
        p->stages[i] =
            g->nodes[i].tensor ? mg_partition_stage(p->spec, g->nodes[i].tensor->device) : 0;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int from = g->nodes[i].in[k];
            if (is_any_sharding(p, from)) continue;
            for (int s = 0; s < p->spec->n_stages; s++)
                if (s != p->stages[from] && (s == p->stages[i] || is_any_sharding(p, i)))
                    p->sent[from][index_of_sharding(p->shardings[i].in[k])] |= (uint64_t)1 << s;
        }
}
