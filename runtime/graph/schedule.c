/* Scheduling: the order of the steps, first the compute phase, then the commit phase.
 *
 * Among the units that are ready, the one that adds least to the live bytes runs next, so a weight
 * gradient runs as soon as it can free its operands. Units without inputs (random draws, literals
 * in memory) run just before their first user.
 *
 * A fused group whose results only become variables' new values, directly or through other such
 * groups, belongs to the commit phase. There, equal groups of different variables are put next to
 * each other, so that a device can run them as one step (a multi-tensor update). The reductions of
 * a bucket are put next to each other too, at the place where the last one's terms are ready; a
 * step that reads one of them waits for all. */
#include "core/fnv.h"
#include "core/alloc.h"
#include "device/worker.h"
#include "graph/ir.h"
#include "ops/attrs.h"
#include <string.h>

enum { LOOK_AHEAD = 64 }; /* ready units compared; keeps very wide graphs linear */

/* A node that is a step of its own, or a group (number ir->n + group). */
typedef struct unit {
    int n_waiting;     /* producers not yet placed, sources not counted */
    int n_edges, edge; /* consumers: edges[edge .. edge + n_edges) */
    bool exists, source, placed, commit;
    bool follows;   /* another unit, as part of its batch */
    int depth;      /* in the commit phase: length of its chain of producers there */
    int last;       /* of a reduction in a bucket: the bucket's last one; else -1 */
    bool is_urgent; /* such a reduction, or makes the terms of one */
    bool awaits;    /* reads the result of such a reduction */
} unit;

/* The work of one call. */
typedef struct scheduler {
    mg_ir *ir;
    const mg_groups *groups;
    mg_schedule *order;
    unit *units;
    int *edges;
    int *users_left;  /* per node: consuming units not yet placed */
    bool *is_early;   /* per node: a root that is needed before the commit phase */
    bool *has_ranges; /* per node: some group that may be batched reads each element once */
    int n_units;
} scheduler;

/* Whether a node is a unit of its own. A `result` node belongs to the unit that makes it. */
static bool is_step_node(const mg_node *n) {
    return n->uses && n->forward < 0 && n->group < 0 && !mg_is_op(n, "result") &&
           (n->kind == MG_NODE_OP || n->kind == MG_NODE_LITERAL);
}

/* The unit that makes a node, or -1: it is given to the plan. */
static int unit_of(const scheduler *s, int node) {
    const mg_node *n = &s->ir->nodes[node];
    if (n->group >= 0) return s->ir->n + n->group;
    if (mg_is_op(n, "result")) return n->in[0];
    return is_step_node(n) ? node : -1;
}

/* The group that a unit is, or NULL: it is a node. */
static const mg_group *group_of(const scheduler *s, int u) {
    return u >= s->ir->n ? s->groups->items[u - s->ir->n] : NULL;
}

/* A unit's inputs and outputs are nodes; for a group, the inputs and outputs of its expression. */
static int input_count(const scheduler *s, int u) {
    const mg_group *g = group_of(s, u);
    return g ? g->expr.n_inputs : s->ir->nodes[u].n_in;
}

static int input_node(const scheduler *s, int u, int i) {
    const mg_group *g = group_of(s, u);
    return g ? g->in[i] : s->ir->nodes[u].in[i];
}

static int output_count(const scheduler *s, int u) {
    const mg_group *g = group_of(s, u);
    if (g) return g->expr.n_outputs;
    return s->ir->nodes[u].n_results ? s->ir->nodes[u].n_results : 1;
}

/* -1: a result that nothing reads. */
static int output_node(const scheduler *s, int u, int i) {
    const mg_group *g = group_of(s, u);
    if (g) return g->out[i];
    return s->ir->nodes[u].n_results ? s->ir->nodes[u].results[i].node : u;
}

/* Whether input i is the first mention of its node in the unit: a node that is read twice is one
 * edge. */
static bool first_mention(const scheduler *s, int u, int i) {
    for (int k = 0; k < i; k++)
        if (input_node(s, u, k) == input_node(s, u, i)) return false;
    return true;
}

/* A literal inside a group is an immediate; a literal that other units read needs a `full` step.
 * True for all other nodes. */
static bool literal_needed(const scheduler *s, int node) {
    const mg_node *n = &s->ir->nodes[node];
    return n->kind != MG_NODE_LITERAL || s->users_left[node] > 0;
}

/* Counts the units and roots that use each node. A literal that is needed only as an immediate has
 * no unit. */
static void count_users(scheduler *s) {
    for (int u = 0; u < s->n_units; u++) {
        if (!s->units[u].exists) continue;
        for (int i = 0; i < input_count(s, u); i++)
            if (first_mention(s, u, i)) s->users_left[input_node(s, u, i)]++;
    }
    for (int r = 0; r < s->ir->n_roots; r++) s->users_left[s->ir->roots[r].node]++;
    for (int i = 0; i < s->ir->n; i++)
        if (s->units[i].exists && !literal_needed(s, i)) s->units[i].exists = false;
}

/* The number of the bucket that unit u is a reduction of, or 0. */
static int64_t bucket_of(const scheduler *s, int u) {
    return u < s->ir->n && s->units[u].exists ? mg_ir_bucket(&s->ir->nodes[u]) : 0;
}

/* Walks from the last unit to the first, so that the last reduction of each bucket is found first.
 * Reductions, and the units that make their terms, are urgent: other devices wait for them. */
static void find_buckets(scheduler *s) {
    int64_t bucket = 0;
    for (int u = s->n_units - 1, last = -1; u >= 0; u--) {
        const int64_t own = bucket_of(s, u);
        if (own && own != bucket) last = u;
        if (own) bucket = own;
        s->units[u].last = own ? last : -1;
        s->units[u].is_urgent |= own != 0;
        const int terms = own ? unit_of(s, s->ir->nodes[u].in[0]) : -1;
        if (terms >= 0) s->units[terms].is_urgent = true;
    }
}

/* Lists the units that must run before u because of its input i: the one that makes it and, unless
 * u is in the same bucket, the last one of its bucket. Returns how many. */
static int producers(const scheduler *s, int u, int i, int list[2]) {
    const int p = unit_of(s, input_node(s, u, i));
    if (p < 0 || !first_mention(s, u, i)) return 0;
    const int last = s->units[p].last;
    list[0] = p;
    list[1] = last;
    return last < 0 || last == p || last == s->units[u].last ? 1 : 2;
}

/* Sources are not counted in n_waiting: they are placed when their first user is. */
static void count_edges(scheduler *s) {
    for (int u = 0; u < s->n_units; u++)
        s->units[u].source = s->units[u].exists && input_count(s, u) == 0;
    for (int u = 0, p[2]; u < s->n_units; u++) {
        if (!s->units[u].exists) continue;
        for (int i = 0; i < input_count(s, u); i++)
            for (int k = producers(s, u, i, p) - 1; k >= 0; k--) {
                s->units[p[k]].n_edges++;
                s->units[u].awaits |= s->units[p[k]].last >= 0;
                if (!s->units[p[k]].source) s->units[u].n_waiting++;
            }
    }
}

/* Per unit, the list of its consumers, in one array. */
static mg_status build_edges(scheduler *s) {
    int total = 0, p[2];
    find_buckets(s);
    count_edges(s);
    for (int u = 0; u < s->n_units; u++) {
        s->units[u].edge = total;
        total += s->units[u].n_edges;
        s->units[u].n_edges = 0;
    }
    s->edges = mg_ir_alloc(s->ir, (size_t)total * sizeof *s->edges);
    if (!s->edges) return MG_OOM;
    for (int u = 0; u < s->n_units; u++) {
        if (!s->units[u].exists) continue;
        for (int i = 0; i < input_count(s, u); i++)
            for (int k = producers(s, u, i, p) - 1; k >= 0; k--)
                s->edges[s->units[p[k]].edge + s->units[p[k]].n_edges++] = u;
    }
    return MG_OK;
}

/* Bytes of a node's value. */
static int64_t node_bytes(const scheduler *s, int node) {
    if (node < 0) return 0;
    const mg_node *n = &s->ir->nodes[node];
    return mg_shape_count(&n->shape) * (int64_t)mg_dtype_size(n->dtype);
}

/* Bytes made minus bytes freed if u ran now. Urgent units come first, whatever memory they need,
 * and those that read the result of a reduction come when nothing else is ready: an asynchronous
 * communicator then reduces while the steps between compute. */
static int64_t memory_growth(const scheduler *s, int u) {
    int64_t bytes = s->units[u].awaits ? INT64_MAX / 2 : 0;
    if (s->units[u].is_urgent) return INT64_MIN;
    for (int i = 0; i < output_count(s, u); i++) bytes += node_bytes(s, output_node(s, u, i));
    for (int i = 0; i < input_count(s, u); i++) {
        const int node = input_node(s, u, i);
        if (s->users_left[node] == 1 && unit_of(s, node) >= 0 && first_mention(s, u, i))
            bytes -= node_bytes(s, node);
    }
    return bytes;
}

/* u is the next unit of the order. */
static void place_unit(scheduler *s, int u) {
    s->units[u].placed = true;
    s->order->units[s->order->n++] = u;
    for (int i = 0; i < input_count(s, u); i++)
        if (first_mention(s, u, i)) s->users_left[input_node(s, u, i)]--;
}

/* u is next, after those sources among its producers that are not placed yet. */
static void place_with_sources(scheduler *s, int u) {
    for (int i = 0; i < input_count(s, u); i++) {
        const int p = unit_of(s, input_node(s, u, i));
        if (p >= 0 && s->units[p].source && !s->units[p].placed) place_unit(s, p);
    }
    place_unit(s, u);
}

/* List scheduling. `ready` is a queue: the best of its first LOOK_AHEAD units is taken and the
 * others keep their order, so ties are broken by the order of the IR. */
static mg_status list_schedule(scheduler *s, int *ready) {
    int head = 0, tail = 0;
    for (int u = 0; u < s->n_units; u++)
        if (s->units[u].exists && !s->units[u].source && s->units[u].n_waiting == 0)
            ready[tail++] = u;
    while (head < tail) {
        int best = head;
        MG_TRY(mg_worker_poll());
        for (int i = head + 1; i < tail && i < head + LOOK_AHEAD; i++)
            if (memory_growth(s, ready[i]) < memory_growth(s, ready[best])) best = i;
        const int u = ready[best];
        memmove(&ready[head + 1], &ready[head], (size_t)(best - head) * sizeof *ready);
        head++;
        place_with_sources(s, u);
        for (int e = 0; e < s->units[u].n_edges; e++) {
            const int user = s->edges[s->units[u].edge + e];
            if (--s->units[user].n_waiting == 0) ready[tail++] = user;
        }
    }
    for (int u = 0; u < s->n_units; u++) /* sources that only roots use */
        if (s->units[u].source && !s->units[u].placed) place_unit(s, u);
    for (int u = 0; u < s->n_units; u++) /* groups that wait for each other never become ready */
        if (s->units[u].exists && !s->units[u].placed)
            return mg_fail(MG_INTERNAL, "a plan's steps wait for each other in a circle");
    return MG_OK;
}

/* ---- commit ---- */

/* Outputs and the conditions of guards are needed before the commit phase. */
static mg_status find_early_roots(scheduler *s) {
    s->is_early = mg_ir_alloc(s->ir, (size_t)s->ir->n * sizeof *s->is_early);
    if (!s->is_early) return MG_OOM;
    for (int r = 0; r < s->ir->n_roots; r++)
        if (!s->ir->roots[r].commit) s->is_early[s->ir->roots[r].node] = true;
    return MG_OK;
}

/* Whether a unit belongs to the commit phase: a group, or a check of new values, that only units of
 * that phase read. To be called from the last unit to the first. */
static bool is_commit(const scheduler *s, int u) {
    if (!group_of(s, u) && !mg_ir_checks_new_values(s->ir, &s->ir->nodes[u])) return false;
    for (int e = 0; e < s->units[u].n_edges; e++)
        if (!s->units[s->edges[s->units[u].edge + e]].commit) return false;
    for (int i = 0; i < output_count(s, u); i++)
        if (s->is_early[output_node(s, u, i)]) return false;
    return true;
}

/* A stable partition: within each phase the order stays. */
static mg_status split_phases(scheduler *s) {
    mg_schedule *o = s->order;
    int *sorted = mg_ir_alloc(s->ir, (size_t)o->n * sizeof *sorted), n = 0;
    if (!sorted) return MG_OOM;
    MG_TRY(find_early_roots(s));
    for (int i = o->n - 1; i >= 0; i--) s->units[o->units[i]].commit = is_commit(s, o->units[i]);
    for (int i = 0; i < o->n; i++)
        if (!s->units[o->units[i]].commit) sorted[n++] = o->units[i];
    o->n_compute = n;
    for (int i = 0; i < o->n; i++)
        if (s->units[o->units[i]].commit) sorted[n++] = o->units[i];
    o->units = sorted;
    return MG_OK;
}

/* ---- checks ---- */

/* Whether a unit of the compute phase is an all_finite that only the commit phase reads, of values
 * that live on until then, or are small: the commit phase reads them, too, or they are inputs or
 * results of the plan. */
static bool is_late_check(const scheduler *s, int u) {
    enum { SMALL = 1 << 16 }; /* bytes */
    if (group_of(s, u) || !mg_is_op(&s->ir->nodes[u], "all_finite")) return false;
    for (int e = 0; e < s->units[u].n_edges; e++)
        if (!s->units[s->edges[s->units[u].edge + e]].commit) return false;
    for (int i = 0; i < input_count(s, u); i++) {
        const int node = input_node(s, u, i), p = unit_of(s, node);
        bool lives_on = p < 0 || s->is_early[node] || node_bytes(s, node) <= SMALL;
        for (int e = 0; p >= 0 && e < s->units[p].n_edges; e++)
            lives_on |= s->units[s->edges[s->units[p].edge + e]].commit;
        if (!lives_on) return false;
    }
    return true;
}

/* Moves the checks of gradients to the end of the compute phase, where a device can run them as one
 * launch. The gradients stay in memory for the commit phase anyway. */
static mg_status move_checks(scheduler *s) {
    mg_schedule *o = s->order;
    int *late = mg_ir_alloc(s->ir, (size_t)o->n_compute * sizeof *late), n_late = 0, n = 0;
    if (!late) return MG_OOM;
    for (int i = 0; i < o->n_compute; i++)
        if (is_late_check(s, o->units[i]))
            late[n_late++] = o->units[i];
        else
            o->units[n++] = o->units[i];
    memcpy(o->units + n, late, (size_t)n_late * sizeof *late);
    return MG_OK;
}

/* ---- buckets ---- */

/* Moves the reductions of a bucket to the place of the last one. Buckets do not overlap, so only
 * one is open at a time. */
static void close_buckets(scheduler *s) {
    int *units = s->order->units, held[MG_BUCKET_TENSORS], n_held = 0, n = 0;
    for (int i = 0; i < s->order->n_compute; i++) {
        const int u = units[i], last = s->units[u].last;
        if (last >= 0 && last != u) {
            held[n_held++] = u;
            continue;
        }
        if (last == u && n_held) {
            memcpy(units + n, held, (size_t)n_held * sizeof *held);
            s->order->batch_count[n] = n_held + 1;
            for (int k = 1; k <= n_held; k++) s->order->batch_count[n + k] = 0;
            n += n_held;
            n_held = 0;
        }
        units[n++] = u;
    }
}

/* ---- multi-tensor updates ---- */

/* The longest chain of producers within the commit phase. Producers come before their users, so one
 * pass finds it; units of one depth do not depend on one another. Returns the greatest depth. */
static int find_depths(scheduler *s) {
    const mg_schedule *o = s->order;
    int deepest = 0;
    for (int i = o->n_compute; i < o->n; i++) {
        const unit *u = &s->units[o->units[i]];
        if (u->depth > deepest) deepest = u->depth;
        for (int e = u->edge; e < u->edge + u->n_edges; e++) {
            unit *user = &s->units[s->edges[e]];
            if (user->depth <= u->depth) user->depth = u->depth + 1;
        }
    }
    return deepest;
}

/* Sorts the commit phase by depth; units of one depth keep their order. */
static mg_status sort_by_depth(scheduler *s) {
    mg_schedule *o = s->order;
    const int n = o->n - o->n_compute, deepest = find_depths(s);
    int *units = o->units + o->n_compute;
    int *sorted = mg_ir_alloc(s->ir, (size_t)n * sizeof *sorted);
    int *end = mg_ir_alloc(s->ir, ((size_t)deepest + 2) * sizeof *end); /* of each depth's units */
    if (!sorted || !end) return MG_OOM;
    for (int i = 0; i < n; i++) end[s->units[units[i]].depth + 1]++;
    for (int d = 0; d < deepest; d++) end[d + 1] += end[d];
    for (int i = 0; i < n; i++) sorted[end[s->units[units[i]].depth]++] = units[i];
    memcpy(units, sorted, (size_t)n * sizeof *units);
    return MG_OK;
}

/* Whether input i has the shape of the output, so each element is read once. */
static bool has_output_shape(const scheduler *s, int u, int i) {
    return mg_shape_equal(&s->ir->nodes[input_node(s, u, i)].shape,
                          &s->ir->nodes[output_node(s, u, 0)].shape);
}

/* Whether two groups of a phase can run as one step: equal expressions, and each operand is either
 * shared or has a range of its own in each group. */
static bool can_batch(const scheduler *s, int a, int b) {
    const mg_group *x = group_of(s, a), *y = group_of(s, b);
    if (s->units[a].commit != s->units[b].commit || s->units[a].depth != s->units[b].depth ||
        memcmp(&x->expr, &y->expr, sizeof x->expr) != 0)
        return false;
    for (int i = 0; i < x->expr.n_inputs; i++)
        if (x->in[i] != y->in[i] && !(has_output_shape(s, a, i) && has_output_shape(s, b, i)))
            return false;
    return true;
}

/* Groups that can be batched have the same hash. An operand without per-group ranges must be
 * shared, so its node is part of the hash. */
static uint64_t batch_hash(const scheduler *s, int u) {
    const mg_group *g = group_of(s, u);
    int key[2 + MG_FUSE_MAX_INPUTS] = {s->units[u].commit, s->units[u].depth};
    for (int i = 0; i < g->expr.n_inputs; i++) key[2 + i] = s->has_ranges[g->in[i]] ? -1 : g->in[i];
    uint64_t h = mg_fnv(MG_FNV_START, key, sizeof key);
    h = mg_fnv(h, g->expr.imm, (size_t)g->expr.n_imms * sizeof *g->expr.imm);
    return mg_fnv(h, g->expr.instr, (size_t)g->expr.n_instrs * sizeof *g->expr.instr);
}

/* The first unit of each batch. Open addressing. */
typedef struct batch_table {
    int *slots; /* position + 1; 0 = empty */
    size_t mask;
} batch_table;

/* The position of the first unit that can be batched with the one at position i, which may be i
 * itself. */
static int first_of_batch(const scheduler *s, const batch_table *t, int i) {
    const int u = s->order->units[i];
    size_t h = (size_t)batch_hash(s, u) & t->mask;
    for (; t->slots[h]; h = (h + 1) & t->mask)
        if (can_batch(s, s->order->units[t->slots[h] - 1], u)) return t->slots[h] - 1;
    t->slots[h] = i + 1;
    return i;
}

/* A unit that is in no batch yet and may be moved: a group of the commit phase, or a small group
 * that reads only inputs of the plan, such as the cast of a weight. */
static bool may_be_batched(const scheduler *s, int i) {
    /* Bytes. Casts of variables live on for the backward pass anyway. */
    enum { SMALL = 1 << 18, SMALL_WEIGHT = 1 << 22 };
    const int u = s->order->units[i];
    if (!group_of(s, u) || s->order->batch_count[i] != 1) return false;
    if (i >= s->order->n_compute) return true;
    const mg_fused *e = &group_of(s, u)->expr;
    bool weight = e->n_instrs == 1 && e->instr[0].op == MG_EW_cast;
    for (int k = 0; k < input_count(s, u); k++) {
        if (unit_of(s, input_node(s, u, k)) >= 0) return false;
        weight &= s->ir->nodes[input_node(s, u, k)].kind == MG_NODE_VARIABLE;
    }
    return node_bytes(s, output_node(s, u, 0)) <= (weight ? SMALL_WEIGHT : SMALL);
}

static void mark_ranges(scheduler *s) {
    for (int i = 0; i < s->order->n; i++) {
        const int u = s->order->units[i];
        if (!may_be_batched(s, i)) continue;
        for (int k = 0; k < input_count(s, u); k++)
            if (has_output_shape(s, u, k)) s->has_ranges[input_node(s, u, k)] = true;
    }
}

/* Finds the batches. The members of one are a list: next[i] is the position of the member after the
 * one at position i, or 0. All but the first are marked as followers. */
static mg_status find_batches(scheduler *s, int *next) {
    const mg_schedule *o = s->order;
    batch_table table = {.mask = 63};
    while (table.mask < 2 * (size_t)o->n) table.mask = 2 * table.mask + 1; /* at most half full */
    table.slots = mg_ir_alloc(s->ir, (table.mask + 1) * sizeof *table.slots);
    int *last = mg_ir_alloc(s->ir, (size_t)o->n * sizeof *last); /* by the position of the first */
    s->has_ranges = mg_ir_alloc(s->ir, (size_t)s->ir->n * sizeof *s->has_ranges);
    if (!table.slots || !last || !s->has_ranges) return MG_OOM;
    mark_ranges(s);
    for (int i = 0; i < o->n; i++) {
        MG_TRY(mg_worker_poll());
        if (!may_be_batched(s, i)) continue;
        const int first = first_of_batch(s, &table, i);
        if (first != i) next[last[first]] = i;
        s->units[o->units[i]].follows = first != i;
        last[first] = i;
    }
    return MG_OK;
}

/* Units move up to the first one that they can be batched with: one step instead of many of a few
 * numbers each. */
static mg_status batch_units(scheduler *s) {
    mg_schedule *o = s->order;
    const size_t n = (size_t)o->n;
    int *next = mg_ir_alloc(s->ir, n * sizeof *next), n_placed = 0;
    int *units = mg_ir_alloc(s->ir, n * sizeof *units);
    int *batch_count = mg_ir_alloc(s->ir, n * sizeof *batch_count);
    if (!next || !units || !batch_count) return MG_OOM;
    MG_TRY(find_batches(s, next));
    for (int i = 0; i < o->n; i++) {
        const int first = n_placed;
        if (s->units[o->units[i]].follows) continue;
        units[n_placed] = o->units[i];
        batch_count[n_placed++] = o->batch_count[i];
        for (int k = next[i]; k; k = next[k], batch_count[first]++) units[n_placed++] = o->units[k];
    }
    o->units = units;
    o->batch_count = batch_count;
    return MG_OK;
}

mg_status mg_schedule_order(mg_ir *ir, const mg_groups *groups, mg_schedule *order) {
    scheduler s = {.ir = ir, .groups = groups, .order = order, .n_units = ir->n + groups->n};
    *order = (mg_schedule){0};
    s.units = mg_ir_alloc(ir, (size_t)s.n_units * sizeof *s.units);
    s.users_left = mg_ir_alloc(ir, (size_t)ir->n * sizeof *s.users_left);
    order->units = mg_ir_alloc(ir, (size_t)s.n_units * sizeof *order->units);
    order->batch_count = mg_ir_alloc(ir, (size_t)s.n_units * sizeof *order->batch_count);
    int *ready = mg_ir_alloc(ir, (size_t)s.n_units * sizeof *ready);
    if (!s.units || !s.users_left || !order->units || !order->batch_count || !ready) return MG_OOM;
    for (int i = 0; i < ir->n; i++) s.units[i].exists = is_step_node(&ir->nodes[i]);
    for (int g = 0; g < groups->n; g++) s.units[ir->n + g].exists = true;
    count_users(&s);
    MG_TRY(build_edges(&s));
    MG_TRY(list_schedule(&s, ready));
    MG_TRY(split_phases(&s));
    MG_TRY(move_checks(&s));
    MG_TRY(sort_by_depth(&s));
    for (int i = 0; i < order->n; i++) order->batch_count[i] = 1;
    close_buckets(&s);
    return batch_units(&s);
}
