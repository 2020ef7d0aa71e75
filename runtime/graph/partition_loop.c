/* Shardings of loops, and the loop of one device.
 *
 * A scan is sharded if its whole body can be: then each device runs the steps with its rows of the
 * carries and arrays, and no step needs a collective. The shardings of the body follow from its
 * ops' split rules. Those of the carries must be the same before and after a step, so they are
 * found by repeating the rules until nothing changes. A carry that begins with zeros may be a sum
 * of which each device holds a term: the sum of a weight's gradients over the steps. If no such
 * shardings exist, every device runs the whole loop. */
#include "graph/partition_loop.h"
#include "ops/attrs.h"
#include <string.h>

/* The work of deciding about one scan. */
typedef struct decision {
    const partition *outer;
    const mg_node *scan;
    partition *body; /* the body as a step to be partitioned */
    int *given;      /* per input of the scan: the sharding of its parameter in the body */
    bool *from_zero; /* per carry: it begins with zeros */
    int *input_of;   /* per carry: the input of the scan that it begins with, or -1 */
} decision;

static mg_ir_loop *loop_of(const decision *d) {
    return d->scan->loop;
}

/* ---- what is given ---- */

/* The sharding of an input's parameter: an entry of an array has one axis less. Along the steps
 * nothing can be sharded. */
static int parameter_sharding(const mg_loop_operand *o, int sharding) {
    if (sharding == MG_ANY_SHARDING) return sharding;
    /* before the loop, partial terms are reduced and values per device are averaged */
    if (sharding < 0) return MG_REPLICATED;
    return o->role == MG_LOOP_ROWS ? sharding - 1 : sharding;
}

/* The same the other way round. Each device makes the zeros of a sum by itself. */
static int input_sharding(const mg_loop_operand *o, int sharding) {
    if (sharding < 0) return MG_REPLICATED;
    return o->role == MG_LOOP_ROWS ? sharding + 1 : sharding;
}

static mg_status begin(decision *d) {
    const mg_ir_loop *l = loop_of(d);
    const size_t n = (size_t)d->scan->n_in + 1, n_carries = (size_t)l->n_carries + 1;
    mg_ir *memory = d->outer->part;
    d->given = mg_ir_alloc(memory, n * sizeof *d->given);
    d->from_zero = mg_ir_alloc(memory, n_carries);
    d->input_of = mg_ir_alloc(memory, n_carries * sizeof *d->input_of);
    d->body = mg_ir_alloc(memory, sizeof *d->body);
    if (!d->given || !d->from_zero || !d->input_of || !d->body) return MG_OOM;
    *d->body = *d->outer;
    d->body->global = &l->body;
    d->body->central = -1;
    d->body->shardings = mg_ir_alloc(memory, ((size_t)l->body.n + 1) * sizeof *d->body->shardings);
    for (int j = 0; j < l->n_carries; j++) d->input_of[j] = -1;
    for (int i = 0; i < d->scan->n_in; i++) {
        const int from = d->scan->in[i], carry = l->operands[i].carry;
        const mg_node *x = &d->outer->global->nodes[from];
        d->given[i] = parameter_sharding(&l->operands[i], d->outer->shardings[from].sharding);
        if (carry < 0) continue;
        d->input_of[carry] = i;
        d->from_zero[carry] = x->kind == MG_NODE_LITERAL && x->literal == 0;
    }
    d->body->reduced = mg_ir_alloc(memory, (size_t)l->body.n + 1);
    return d->body->shardings && d->body->reduced ? MG_OK : MG_OOM;
}

/* Whether the rules have to be asked at all. */
static bool has_parts(const decision *d) {
    for (int i = 0; i < d->scan->n_in; i++)
        if (d->given[i] >= 0) return true;
    return false;
}

/* ---- repeating the rules ---- */

/* Rows that are mixed though a reader, or a result, cannot have them so, are not to be mixed.
 * Whether there are any. */
static bool unmix_rows(decision *d) {
    const mg_ir *body = &loop_of(d)->body;
    bool *wanted = d->body->reduced, any = false;
    for (int i = 0; i < body->n; i++)
        for (int k = 0; k < body->nodes[i].n_in; k++) {
            const int from = body->nodes[i].in[k], has = d->body->shardings[from].sharding;
            if (is_mixed_rows(has) && d->body->shardings[i].in[k] != has) any = wanted[from] = true;
        }
    for (int r = 0; r < body->n_roots; r++) {
        const int node = body->roots[r].node;
        if (is_mixed_rows(d->body->shardings[node].sharding)) any = wanted[node] = true;
    }
    return any;
}

static mg_status ask_rules_once(decision *d) {
    for (int i = 0; i < loop_of(d)->body.n; i++) {
        const mg_node *n = &loop_of(d)->body.nodes[i];
        node_sharding *s = &d->body->shardings[i];
        if (n->kind == MG_NODE_PARAMETER) s->given = d->given[n->operand];
        MG_TRY(mg_sharding_decide_node(d->body, i, s));
        s->produced = s->sharding;
    }
    return MG_OK;
}

/* Asks the rules of the body's ops. */
static mg_status ask_rules(decision *d) {
    do {
        MG_TRY(ask_rules_once(d));
    } while (unmix_rows(d));
    return MG_OK;
}

/* The sharding in which a step makes root r. */
static int root_sharding(const decision *d, int r) {
    return d->body->shardings[loop_of(d)->body.roots[r].node].sharding;
}

/* The input of the scan that the carry of root r begins with; -1: the root is no carry, or the
 * input is not read. */
static int input_of_root(const decision *d, int r) {
    const int carry = loop_of(d)->carry[r];
    return carry < 0 ? -1 : d->input_of[carry];
}

/* First all carries that begin with zeros are taken for sums of terms; those that a step does not
 * make as such are none, which may change what it makes of others. */
static mg_status find_sums(decision *d) {
    const mg_ir_loop *l = loop_of(d);
    for (int j = 0; j < l->n_carries; j++)
        if (d->from_zero[j]) d->given[d->input_of[j]] = MG_PARTIAL_SUM;
    for (bool changed = true; changed;) {
        changed = false;
        MG_TRY(ask_rules(d));
        for (int r = 0; r < l->body.n_roots; r++) {
            const int input = input_of_root(d, r);
            if (input < 0 || d->given[input] != MG_PARTIAL_SUM ||
                root_sharding(d, r) == MG_PARTIAL_SUM)
                continue;
            d->given[input] = MG_ANY_SHARDING;
            changed = true;
        }
    }
    return MG_OK;
}

/* Changes the carry's sharding, `given`, to what a step makes of it, if it can begin so. False if
 * the two exclude each other. */
static bool follow_carry(int *given, int made, bool *changed) {
    const int before = *given;
    if (made == MG_ANY_SHARDING || made == before) return true;
    if (mg_sharding_is_partial(made) || mg_sharding_is_partial(before) || made == MG_PER_DEVICE)
        return false;
    if (before == MG_ANY_SHARDING || before == MG_REPLICATED) *given = made;
    *changed |= *given != before;
    /* parts of whole values can be cut out, but not along two axes */
    return before < 0 || made < 0;
}

/* A constant or draw whose users all want the same part of it is given in that sharding, else
 * whole. */
static bool settle_sources(decision *d) {
    const mg_ir *body = &loop_of(d)->body;
    int *wanted = mg_ir_alloc(d->outer->part, (size_t)(d->scan->n_in + 1) * sizeof *wanted);
    bool changed = false;
    for (int i = 0; wanted && i < d->scan->n_in; i++) wanted[i] = MG_ANY_SHARDING;
    for (int i = 0; wanted && i < body->n; i++)
        for (int k = 0; k < body->nodes[i].n_in; k++) {
            const mg_node *p = &body->nodes[body->nodes[i].in[k]];
            if (p->kind != MG_NODE_PARAMETER) continue;
            int *w = &wanted[p->operand];
            const int want = d->body->shardings[i].in[k];
            *w = *w == MG_ANY_SHARDING || *w == want ? want : MG_REPLICATED;
        }
    for (int i = 0; i < d->scan->n_in; i++) {
        if (d->given[i] != MG_ANY_SHARDING) continue;
        d->given[i] = wanted && wanted[i] >= 0 ? wanted[i] : MG_REPLICATED;
        changed = true;
    }
    return changed;
}

/* Until nothing changes. *fits is false if a carry is made in a sharding in which it cannot begin.
 */
static mg_status find_shardings(decision *d, bool *fits) {
    const mg_ir_loop *l = loop_of(d);
    MG_TRY(find_sums(d));
    *fits = true;
    for (bool changed = true; changed && *fits;) {
        changed = false;
        MG_TRY(ask_rules(d));
        for (int r = 0; r < l->body.n_roots; r++) {
            const int input = input_of_root(d, r);
            if (input >= 0) *fits &= follow_carry(&d->given[input], root_sharding(d, r), &changed);
        }
        if (!changed) changed = settle_sources(d);
    }
    return MG_OK;
}

/* Whether an op of the body needs an input in another sharding than it is made in. Parts of what is
 * whole can be cut out; everything else would be a collective in each step. */
static bool needs_collective(const decision *d) {
    const mg_ir *body = &loop_of(d)->body;
    for (int i = 0; i < body->n; i++) {
        const mg_node *n = &body->nodes[i];
        if (mg_sharding_has_joint_moments(d->body, i)) return true;
        for (int k = 0; k < n->n_in; k++) {
            const int has = d->body->shardings[n->in[k]].sharding;
            const int wants = d->body->shardings[i].in[k];
            if (has != wants && has != MG_REPLICATED && has != MG_ANY_SHARDING) return true;
        }
    }
    return false;
}

/* ---- the decision ---- */

static int result_sharding(const decision *d, int r) {
    const int made = root_sharding(d, r), input = input_of_root(d, r);
    if (input >= 0) return d->given[input];
    if (made == MG_ANY_SHARDING) return MG_REPLICATED;
    return loop_of(d)->carry[r] < 0 && made >= 0 ? made + 1 : made;
}

mg_status mg_sharding_decide_loop(const partition *p, const mg_node *n, node_sharding *s) {
    decision d = {.outer = p, .scan = n};
    bool fits = false;
    MG_TRY(begin(&d));
    if (has_parts(&d)) MG_TRY(find_shardings(&d, &fits));
    fits = fits && !needs_collective(&d);
    for (int i = 0; i < n->n_in && !fits; i++) d.given[i] = MG_REPLICATED;
    if (!fits) MG_TRY(ask_rules(&d));
    for (int i = 0; i < n->n_in; i++) s->in[i] = input_sharding(&n->loop->operands[i], d.given[i]);
    for (int r = 0; r < n->n_results; r++) s->results[r] = result_sharding(&d, r);
    s->body = d.body;
    return MG_OK;
}

/* ---- the loop of one device ---- */

/* The local nodes of the body, and its roots in the shardings that the decision says. */
static mg_status make_body(partition *q, const mg_node *scan, const node_sharding *s) {
    const mg_ir *body = q->global;
    MG_TRY(mg_partition_allocate(q));
    for (int i = 0; i < body->n; i++) q->stages[i] = q->stage;
    for (int i = 0; i < body->n; i++) {
        if (is_any_sharding(q, i)) continue;
        q->raw[i] = mg_partition_make(q, i);
        if (q->raw[i] < 0) return mg_error_code() ? mg_error_code() : MG_OOM;
    }
    q->part->roots = mg_ir_alloc(q->part, (size_t)(body->n_roots + 1) * sizeof *q->part->roots);
    if (!q->part->roots) return MG_OOM;
    for (int r = 0; r < body->n_roots; r++) {
        const int sharding = s->results[r];
        const bool stacked = scan->loop->carry[r] < 0;
        const int node = mg_partition_local(q, body->roots[r].node,
                                            stacked && sharding >= 0 ? sharding - 1 : sharding);
        if (node < 0) return mg_error_code() ? mg_error_code() : MG_OOM;
        q->part->roots[r].node = node;
    }
    q->part->n_roots = body->n_roots;
    if (q->last_collective >= 0)
        return mg_fail(MG_INTERNAL, "scan: a step of a sharded loop has a collective");
    return MG_OK;
}

mg_ir_loop *mg_partition_loop(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    mg_ir_loop *l = mg_ir_new_loop(p->part);
    if (!l) return NULL;
    l->steps = n->loop->steps;
    l->reverse = n->loop->reverse;
    l->n_carries = n->loop->n_carries;
    const size_t n_in = (size_t)n->n_in, n_roots = (size_t)n->n_results;
    l->operands = mg_ir_alloc(p->part, (n_in + 1) * sizeof *l->operands);
    l->carry = mg_ir_alloc(p->part, (n_roots + 1) * sizeof *l->carry);
    if (!l->operands || !l->carry) return NULL;
    memcpy(l->operands, n->loop->operands, n_in * sizeof *l->operands);
    memcpy(l->carry, n->loop->carry, n_roots * sizeof *l->carry);
    partition q = *p->shardings[i].body;
    q.part = &l->body;
    q.capacity = 0;
    q.collectives = 0;
    q.last_collective = -1;
    return make_body(&q, n, &p->shardings[i]) == MG_OK ? l : NULL;
}
