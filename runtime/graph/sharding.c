/* Ways: see ways.h.
 *
 * The ops' split rules say how a node comes to lie (`born`); where somebody wants terms whole, they
 * are reduced for all who read them (`how`). That may change what a reader can do, so it goes on
 * until nothing changes. */
#include "graph/sharding.h"

/* Made of nothing, or of one thing repeated: it can be made whole or by parts, with the same
 * numbers. */
static bool is_source(const partition *p, const mg_node *n) {
    if (n->kind == MG_NODE_LITERAL || mg_is_op(n, "iota") || mg_is_op(n, "random"))
        return n->n_in == 0;
    if (!mg_is_op(n, "broadcast_to")) return false;
    const int how = p->decisions[n->in[0]].how;
    return how == MG_WHOLE || how == MG_ANY;
}

static bool ask_rule(const partition *p, const mg_node *n, const int *given, decision *d) {
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
                  .out = MG_WHOLE};
    if (!shapes || !dtypes || !n->op->split) return false;
    for (int k = 0; k < n->n_in; k++) {
        shapes[k] = &p->global->nodes[n->in[k]].shape;
        dtypes[k] = p->global->nodes[n->in[k]].dtype;
    }
    if (!n->op->split(&s)) return false;
    d->how = s.out;
    return true;
}

static mg_status decide_op(const partition *p, const mg_node *n, decision *d) {
    int *given = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *given);
    bool parts = false, local = false, terms = false;
    if (!given) return MG_OOM;
    for (int k = 0; k < n->n_in; k++) {
        const int how = p->decisions[n->in[k]].how;
        given[k] = how;
        parts |= how >= 0;
        terms |= is_term(how);
        local |= how == LOCAL;
    }
    for (int k = 0; k < n->n_in && local; k++) /* what a device makes of its own is its own */
        if (given[k] == LOCAL || given[k] <= MG_SUM)
            given[k] = given[k] == MG_ANY ? MG_ANY : MG_WHOLE;
    d->how = MG_WHOLE;
    const bool ruled = (parts || (terms && !local)) && ask_rule(p, n, given, d);
    if (!ruled)
        for (int k = 0; k < n->n_in; k++) d->in[k] = MG_WHOLE;
    if (local && (d->how == MG_WHOLE)) d->how = LOCAL;
    for (int k = 0; k < n->n_in && local; k++) {
        const int how = p->decisions[n->in[k]].how;
        if (d->in[k] == MG_WHOLE && (how == LOCAL || how == MG_SUM)) d->in[k] = LOCAL;
    }
    return MG_OK;
}

/* How the node comes to lie, left in d->how. */
static mg_status decide_birth(partition *p, int i, decision *d) {
    const mg_node *n = &p->global->nodes[i];
    d->how = is_source(p, n) ? MG_ANY : MG_WHOLE;
    if (!d->in) d->in = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *d->in);
    if (!d->in) return MG_OOM;
    for (int k = 0; k < n->n_in; k++) {
        d->in[k] = MG_WHOLE;
        if (p->decisions[n->in[k]].depth >= d->depth) d->depth = p->decisions[n->in[k]].depth + 1;
    }
    if (n->n_in == 0 || !p->shards->rows || d->how == MG_ANY) return MG_OK;
    if (mg_is_op(n, "place")) { /* as it lies */
        d->how = d->in[0] = p->decisions[n->in[0]].how;
        return MG_OK;
    }
    if (mg_is_op(n, "shard")) {
        d->in[0] = p->decisions[n->in[0]].how == 0 ? 0 : MG_WHOLE;
        d->how = 0;
        return MG_OK;
    }
    if (mg_is_op(n, "moments")) {
        const int by = p->decisions[n->in[0]].how;
        if (by < 0 || by == n->shape.rank) return decide_op(p, n, d);
        d->in[0] = by;
        d->how = p->local_norm ? LOCAL : MG_WHOLE;
        return MG_OK;
    }
    return decide_op(p, n, d);
}

/* Which nodes must be had whole although they lie otherwise. */
static void mark_wanted(const partition *p, const bool *split_roots, bool *wanted) {
    const mg_ir *g = p->global;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int how = p->decisions[g->nodes[i].in[k]].how, in = p->decisions[i].in[k];
            if ((is_term(how) || how == LOCAL) && in != how && in != LOCAL)
                wanted[g->nodes[i].in[k]] = true;
            if (how >= 0 && in != how) wanted[g->nodes[i].in[k]] = true;
        }
    for (int r = 0; r < g->n_roots; r++) {
        const int how = p->decisions[g->roots[r].node].how;
        if (how != MG_WHOLE && how != MG_ANY && !(split_roots[r] && how == 0))
            wanted[g->roots[r].node] = true;
    }
}

/* Terms that one reader wants reduced are reduced for all: until nothing changes. */
mg_status mg_sharding_decide(partition *p, const bool *split_roots, bool *wanted) {
    const int n = p->global->n;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++) {
            decision *d = &p->decisions[i];
            MG_TRY(decide_birth(p, i, d));
            d->born = d->how;
            if (is_term(d->how) && p->reduced[i]) d->how = MG_WHOLE;
            wanted[i] = false;
        }
        mark_wanted(p, split_roots, wanted);
        for (int i = 0; i < n; i++) {
            if (!wanted[i] || !is_term(p->decisions[i].how)) continue;
            changed = p->reduced[i] = true;
        }
    }
    return MG_OK;
}

/* ---- stages ---- */

int mg_partition_stage(const mg_partition_spec *spec, const mg_device *d) {
    for (int s = 0; s < spec->n_stages; s++)
        if (spec->stages[s] == d) return s;
    return 0;
}

/* What is made of nothing is made where it is read, with its inputs; all else has its stage. */
void mg_sharding_mark_sent(partition *p) {
    const mg_ir *g = p->global;
    for (int i = 0; i < g->n; i++)
        p->stages[i] =
            g->nodes[i].tensor ? mg_partition_stage(p->spec, g->nodes[i].tensor->place.device) : 0;
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int from = g->nodes[i].in[k];
            if (anywhere(p, from)) continue;
            for (int s = 0; s < p->spec->n_stages; s++)
                if (s != p->stages[from] && (s == p->stages[i] || anywhere(p, i)))
                    p->sent[from][slot_of(p->decisions[i].in[k])] |= (uint64_t)1 << s;
        }
}
