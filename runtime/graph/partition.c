/* Partition: see partition.h.
 *
 * Once every node has its sharding (sharding.c), the device's own nodes are made, in order of
 * depth, so that collectives are ordered by the time at which their inputs become ready. Each
 * collective also takes the previous one as an input that it does not read: then no device can run
 * them in another order, which would deadlock. A device without rows makes no shards; its partial
 * terms are the identities of their reductions. All-reduces form buckets (partition_buckets.c). */
#include "graph/partition_loop.h"
#include "graph/partition_nodes.h"
#include "ops/attrs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

/* A step shards one batch: the axis length of every `shard` op must be the same. */
mg_status mg_partition_rows(const mg_ir *global, int64_t *rows) {
    *rows = 0;
    for (int i = 0; i < global->n; i++) {
        const mg_node *n = &global->nodes[i];
        if (!mg_is_op(n, "shard")) continue;
        if (*rows && *rows != n->shape.dim[0])
            return mg_fail(MG_USAGE,
                           "shard: the values sharded in one step must have equal numbers of rows, "
                           "got %lld and %lld",
                           (long long)*rows, (long long)n->shape.dim[0]);
        *rows = n->shape.dim[0];
    }
    return MG_OK;
}

/* Where the device's shard of an axis of this global length begins, and how long it is. The length
 * is a multiple of the batch's rows. */
static int64_t part_first(const partition *p, int64_t length) {
    return p->shards->first[p->device] * (length / p->shards->rows);
}

/* A device without rows has none of any axis. */
static int64_t part_count(const partition *p, int64_t length) {
    return p->shards->count[p->device] * (length / p->shards->rows);
}

/* The shape of the device's part of a value with this global shape, under a sharding. */
static mg_shape part_shape(const partition *p, mg_shape shape, int sharding) {
    if (is_mixed_rows(sharding)) sharding = 0; /* in another order */
    if (sharding >= 0) shape.dim[sharding] = part_count(p, shape.dim[sharding]);
    return shape;
}

/* Whether another device has all the variables. */
static bool is_not_central(const partition *p) {
    return p->central >= 0 && p->central != p->device;
}

/* The whole value of partial node i: on all devices, or only on the central one if no other device
 * reads it. Then the other devices get a scalar placeholder. */
static int add_reduction(partition *p, int i, int from, int kind) {
    mg_shape shape = p->global->nodes[i].shape;
    if (p->central < 0 || p->replicated[i]) return mg_part_all_reduce(p, i, from, shape, kind);
    if (is_not_central(p)) shape = (mg_shape){.rank = 0};
    return mg_part_collective(p, "reduce", from, shape, kind, 0);
}

/* The value of a variable that the central device has. That device reads its own. */
static int add_broadcast(partition *p, const mg_node *n, int own) {
    const mg_shape scalar = {.rank = 0};
    if (!is_not_central(p)) {
        mg_part_collective(p, "broadcast", own, scalar, 0, 0);
        return p->last_collective < 0 ? NOT_MADE : own;
    }
    return mg_part_collective(p, "broadcast", mg_part_literal(p, n, scalar, 0), n->shape, 0, 0);
}

/* ---- nodes of the global IR, as the device has them ---- */

static mg_shape local_shape(const partition *p, int i, int sharding);

/* The number that changes nothing in a reduction: the term of a device without rows. */
static double identity_of(int sharding, mg_dtype dtype) {
    const bool integer = !mg_dtype_is_float(dtype);
    if (sharding == MG_PARTIAL_SUM) return 0;
    if (dtype == MG_BOOL || dtype == MG_U8)
        return sharding == MG_PARTIAL_MAX ? 0 : dtype == MG_BOOL ? 1 : 255;
    if (!integer) return sharding == MG_PARTIAL_MAX ? -INFINITY : INFINITY;
    /* a literal saturates at the limits of its dtype */
    return sharding == MG_PARTIAL_MAX ? -0x1p63 : 0x1p63;
}

/* The results of an op that has several, as the device has them, and its loop. */
static bool copy_results(partition *p, int i, mg_node *copy) {
    const mg_node *n = &p->global->nodes[i];
    const size_t bytes = (size_t)n->n_results * sizeof *n->results;
    if (!n->n_results) return true;
    copy->results = mg_ir_alloc(p->part, bytes);
    if (!copy->results) return false;
    memcpy(copy->results, n->results, bytes);
    for (int k = 0; k < n->n_results; k++)
        copy->results[k].shape = part_shape(p, n->results[k].shape, p->shardings[i].results[k]);
    if (n->loop) copy->loop = mg_partition_loop(p, i);
    return !n->loop || copy->loop;
}

/* The op over the device's own inputs, its result in the given sharding. A shape attribute is
 * always that of the output, so it follows the sharding. */
int mg_partition_copy(partition *p, int i, int sharding) {
    const mg_node *n = &p->global->nodes[i];
    const node_sharding *d = &p->shardings[i];
    mg_node copy = *n;
    copy.shape = part_shape(p, n->shape, sharding);
    copy.in = mg_ir_alloc(p->part, (size_t)(n->n_in + 1) * sizeof *copy.in);
    void *attrs = n->op ? mg_ir_alloc(p->part, n->op->attrs_size) : NULL;
    if (!copy.in || (n->op && !attrs)) return NOT_MADE;
    for (int k = 0; k < n->n_in; k++) {
        copy.in[k] = mg_partition_local(p, n->in[k], d->in[k]);
        if (copy.in[k] < 0) return NOT_MADE;
    }
    if (n->op) {
        memcpy(attrs, n->attrs, n->op->attrs_size);
        for (int k = 0; k < n->op->n_attrs; k++) {
            if (n->op->attrs[k].type != MG_ATTR_SHAPE) continue;
            mg_ints *shape = (mg_ints *)((char *)attrs + n->op->attrs[k].offset);
            for (int a = 0; a < shape->n; a++) shape->v[a] = copy.shape.dim[a];
        }
        /* A slice that keeps a sharded axis whole ends where the shard does. */
        if (mg_is_op(n, "slice") && sharding >= 0)
            ((mg_slice_attrs *)attrs)->stop.v[sharding] = copy.shape.dim[sharding];
        copy.attrs = attrs;
    }
    return copy_results(p, i, &copy) ? mg_part_node(p, copy) : NOT_MADE;
}

/* The device's shard of a literal, iota, random draw or broadcast: the same numbers as in the
 * whole. Where that cannot be made directly, it is cut out of the whole. */
static int shard_of_source(partition *p, int i, int axis) {
    const mg_node *n = &p->global->nodes[i];
    int64_t outer = 1, inner = 1; /* entries before and after the axis */
    for (int k = 0; k < axis; k++) outer *= n->shape.dim[k];
    for (int k = axis + 1; k < n->shape.rank; k++) inner *= n->shape.dim[k];
    /* A broadcast repeats its input along the axis, or has the axis from it (number `own` there).
     */
    const int own = mg_is_op(n, "broadcast_to")
                        ? axis - (n->shape.rank - p->global->nodes[n->in[0]].shape.rank)
                        : -1;
    const bool repeats = own < 0 || p->global->nodes[n->in[0]].shape.dim[own] != n->shape.dim[axis];
    /* A draw numbers its elements in order, so a shard of it must be contiguous. */
    if ((mg_is_op(n, "random") && outer > 1) || !repeats)
        return mg_part_slice(p, mg_partition_local(p, i, MG_REPLICATED), axis,
                             part_first(p, n->shape.dim[axis]), part_count(p, n->shape.dim[axis]));
    const int made = mg_partition_copy(p, i, axis);
    if (made < 0) return made;
    const int64_t first = part_first(p, n->shape.dim[axis]);
    if (mg_is_op(n, "random")) p->part->nodes[made].first = first * inner;
    if (!mg_is_op(n, "iota") || ((const mg_iota_attrs *)n->attrs)->axis != axis) return made;
    return mg_part_binary(p, "add", made,
                          mg_part_literal(p, n, (mg_shape){.rank = 0}, (double)first));
}

/* The device's rows of an argument or constant: addressed inside its memory. */
static int shard_of_given(partition *p, int i) {
    mg_node copy = p->global->nodes[i];
    copy.first = part_first(p, copy.shape.dim[0]);
    copy.shape = part_shape(p, copy.shape, 0);
    copy.part = true;
    return mg_part_node(p, copy);
}

/* The device's part of a `shard` op's input. */
static int shard_of_shard_op(partition *p, int i) {
    const int from = p->global->nodes[i].in[0];
    const mg_node *x = &p->global->nodes[from];
    if (p->shardings[from].sharding == 0) return mg_partition_local(p, from, 0);
    if (x->kind == MG_NODE_ARGUMENT) return shard_of_given(p, from);
    return mg_partition_local(p, from, 0);
}

/* The node as its op makes it: replicated, sharded, partial or per device. */
int mg_partition_make(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const int sharding = p->shardings[i].produced;
    if (n->kind == MG_NODE_VARIABLE && p->central >= 0 && p->replicated[i])
        return add_broadcast(p, n,
                             is_not_central(p) ? NOT_MADE : mg_partition_copy(p, i, sharding));
    if (mg_is_op(n, "place")) return mg_partition_local(p, n->in[0], p->shardings[i].in[0]);
    if (mg_sharding_has_joint_moments(p, i)) return mg_part_joint_moments(p, i);
    if (mg_is_op(n, "agree")) return mg_part_agreement(p, i);
    if (mg_part_has_no_rows(p)) { /* the reduction's identity, or zero rows */
        if (mg_sharding_is_partial(sharding))
            return mg_part_literal(p, n, n->shape, identity_of(sharding, n->dtype));
        if (sharding == MG_PER_DEVICE) return mg_part_literal(p, n, n->shape, 0);
        if (sharding >= 0 || is_mixed_rows(sharding))
            return mg_part_literal(p, n, part_shape(p, n->shape, sharding), 0);
    }
    if (mg_is_op(n, "shard") && sharding >= 0) return shard_of_shard_op(p, i);
    if (mg_is_op(n, "own_rows"))
        return mg_part_literal(p, n, n->shape,
                               sharding == MG_PER_DEVICE
                                   ? (double)p->shards->rows / (double)p->shards->count[p->device]
                                   : 1);
    return mg_partition_copy(p, i, sharding);
}

/* All of node i on this device. Values per device are averaged, weighted by rows. */
static int make_replicated(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const int sharding = p->shardings[i].sharding;
    if (sharding == MG_ANY_SHARDING) return mg_partition_copy(p, i, MG_REPLICATED);
    int own = p->raw[i];
    if (sharding == MG_REPLICATED) return own;
    if (sharding >= 0) return mg_part_collective(p, "all_gather", own, n->shape, 0, sharding);
    /* the remaining case is a value per device */
    own = mg_part_scaled(p, own, (double)p->shards->count[p->device] / (double)p->shards->rows);
    return add_reduction(p, i, own, MG_REDUCE_SUM);
}

/* The reduction that makes a partial value whole. */
static int reduce_kind(int sharding) {
    return sharding == MG_PARTIAL_MAX   ? MG_REDUCE_MAX
           : sharding == MG_PARTIAL_MIN ? MG_REDUCE_MIN
                                        : MG_REDUCE_SUM;
}

/* Node i in a sharding other than the one it has: gathered, or cut out of the whole. */
static int make_with_sharding(partition *p, int i, int sharding) {
    const mg_node *n = &p->global->nodes[i];
    const bool any = p->shardings[i].sharding == MG_ANY_SHARDING;
    if (any && mg_is_op(n, "place")) return mg_partition_local(p, n->in[0], sharding);
    if (sharding == MG_REPLICATED) return make_replicated(p, i);
    if (mg_part_has_no_rows(p)) return mg_part_literal(p, n, part_shape(p, n->shape, sharding), 0);
    if (any) return shard_of_source(p, i, sharding);
    return mg_part_slice(p, mg_partition_local(p, i, MG_REPLICATED), sharding,
                         part_first(p, n->shape.dim[sharding]),
                         part_count(p, n->shape.dim[sharding]));
}

/* A reader found no node: sharding.c and the order of making disagree. */
static int fail_not_made(const partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    mg_fail(MG_INTERNAL,
            "partition: stage %d reads a result of %s that is neither made nor sent there: an "
            "error of this program, not of the script",
            p->stage, n->op ? n->op->name : "a variable or an argument");
    return NOT_MADE;
}

/* The local node of global node i in a sharding, made at first use. For a node of another stage it
 * is the transferred value. */
int mg_partition_local(partition *p, int i, int sharding) {
    const bool own = is_any_sharding(p, i) || p->stages[i] == p->stage;
    int *place = &p->made[i][index_of_sharding(sharding)];
    if (!own) return *place < 0 ? fail_not_made(p, i) : *place;
    /* The sharding in which the op produced it is the requested one, or the only one there is. */
    const bool raw = sharding == p->shardings[i].sharding && sharding != MG_REPLICATED;
    if (raw || sharding == MG_PER_DEVICE || mg_sharding_is_partial(sharding))
        return p->raw[i] < 0 ? fail_not_made(p, i) : p->raw[i];
    if (*place < 0) *place = make_with_sharding(p, i, sharding);
    return *place;
}

/* The shape of global node i on this device. */
static mg_shape local_shape(const partition *p, int i, int sharding) {
    return part_shape(p, p->global->nodes[i].shape, sharding);
}

/* Sends node i to the stages that read it, or receives it: the same transfers in the same order on
 * both sides. On the sender the transfer's result is a scalar placeholder, on the receiver its
 * input is one. */
static mg_status make_transfers(partition *p, int i) {
    const mg_shape scalar = {.rank = 0};
    for (int slot = 0; slot < N_SHARDINGS; slot++)
        for (int s = 0; s < p->spec->n_stages; s++) {
            if (!(p->sent[i][slot] >> s & 1)) continue;
            /* Every stage sees every transfer, but only two of them take part in it. */
            const bool sends = p->stages[i] == p->stage;
            if (!sends && s != p->stage) continue;
            const mg_node *g = &p->global->nodes[i];
            const int from = sends ? mg_partition_local(p, i, sharding_of_index(slot))
                                   : mg_part_literal(p, g, scalar, 0);
            if (from < 0) return mg_error_code();
            const int made = mg_part_collective(
                p, "transfer", from, sends ? scalar : local_shape(p, i, sharding_of_index(slot)), 0,
                0);
            if (made < 0) return mg_error_code();
            mg_collective_attrs *attrs = (mg_collective_attrs *)p->part->nodes[made].attrs;
            attrs->root = p->stages[i];
            attrs->to = s;
            if (!sends) p->made[i][slot] = made; /* what mg_partition_local will find */
        }
    return MG_OK;
}

/* ---- all nodes ---- */

/* Makes node i, and right after it the reductions, gathers and transfers that others need of it, so
 * that collectives are in order of depth on every device. A device other than the central one skips
 * nodes that only commit needs. */
static mg_status make_node(partition *p, int i, const bool *wanted) {
    const node_sharding *d = &p->shardings[i];
    const mg_node *n = &p->global->nodes[i];
    /* A node needs the buckets that its inputs need. */
    for (int k = 0; k < n->n_in; k++)
        if (p->after[i] < p->after[n->in[k]]) p->after[i] = p->after[n->in[k]];
    /* Its partial terms are reduced right here. */
    const bool reduces = mg_sharding_is_partial(d->produced) && d->sharding == MG_REPLICATED;
    if (is_not_central(p) && !p->replicated[i] && !reduces && !wanted[i] &&
        !mg_sharding_has_joint_moments(p, i))
        return MG_OK;
    if (p->stages[i] != p->stage && d->sharding != MG_ANY_SHARDING) return make_transfers(p, i);
    if (d->sharding != MG_ANY_SHARDING) {
        p->raw[i] = mg_partition_make(p, i);
        if (mg_part_is_gradient(p, i))
            return mg_part_reduce_later(p, i, p->raw[i], reduce_kind(d->produced));
        if (reduces) p->raw[i] = add_reduction(p, i, p->raw[i], reduce_kind(d->produced));
        if (p->raw[i] < 0) return mg_error_code();
    }
    if (wanted[i] && mg_partition_local(p, i, MG_REPLICATED) < 0) return mg_error_code();
    return d->sharding == MG_ANY_SHARDING ? MG_OK : make_transfers(p, i);
}

/* Marks the nodes that devices other than the central one compute or read, walking back from their
 * partial terms and shards. */
static void mark_replicated(partition *p, const bool *split_roots, const bool *wanted) {
    const mg_ir *g = p->global;
    for (int r = 0; r < g->n_roots; r++)
        if (split_roots[r]) p->replicated[g->roots[r].node] = true;
    for (int i = g->n - 1; i >= 0; i--) {
        const node_sharding *d = &p->shardings[i];
        const bool meets = (mg_sharding_is_partial(d->produced) && d->sharding == MG_REPLICATED) ||
                           (wanted[i] && d->sharding != MG_REPLICATED) ||
                           mg_sharding_has_joint_moments(p, i);
        if (!p->replicated[i] && !meets) continue;
        for (int k = 0; k < g->nodes[i].n_in; k++) p->replicated[g->nodes[i].in[k]] = true;
    }
}

/* Root r of the device; a scalar placeholder where another device has it. */
static int make_root(partition *p, int r, bool split) {
    const int node = p->global->roots[r].node;
    /* Literals and draws belong to every stage. */
    const bool elsewhere = p->stages[node] != p->stage && !is_any_sharding(p, node);
    if (elsewhere || (!split && is_not_central(p)))
        return mg_part_literal(p, &p->global->nodes[node], (mg_shape){.rank = 0}, 0);
    return mg_partition_local(p, node, split ? 0 : MG_REPLICATED);
}

/* Every device must meet every collective, whether or not it reads the result. Each takes the
 * previous one as an input, so a root on the last keeps all alive. That a scan reads it is not
 * enough: the input goes if the scan's results that need it are not read on this device. */
static mg_status keep_collectives_alive(partition *p) {
    mg_ir *part = p->part;
    bool *live = mg_ir_alloc(part, (size_t)part->n + 1);
    if (!live) return MG_OOM;
    for (int r = 0; r < part->n_roots; r++) live[part->roots[r].node] = true;
    for (int i = part->n - 1; i >= 0; i--)
        for (int k = 0; k < part->nodes[i].n_in && live[i] && !part->nodes[i].loop; k++)
            live[part->nodes[i].in[k]] = true;
    if (p->last_collective >= 0 && !live[p->last_collective])
        part->roots[part->n_roots++] = (mg_root){p->last_collective, false, false};
    return MG_OK;
}

/* All nodes in order of depth, then the roots. */
static mg_status make_all_nodes(partition *p, bool *split_roots, const bool *wanted) {
    const mg_ir *g = p->global;
    const int *order = mg_part_order(p, wanted);
    p->part->roots = mg_ir_alloc(p->part, (size_t)(g->n_roots + 2) * sizeof *p->part->roots);
    p->replicated = mg_ir_alloc(p->part, (size_t)g->n + 1);
    if (!order || !p->part->roots || !p->replicated) return MG_OOM;
    for (int r = 0; r < g->n_roots; r++)
        split_roots[r] = split_roots[r] && p->shardings[g->roots[r].node].sharding == 0;
    if (p->central >= 0) mark_replicated(p, split_roots, wanted);
    for (int i = 0; i < g->n; i++) {
        MG_TRY(mg_part_reduce_now(p, order[i]));
        MG_TRY(make_node(p, order[i], wanted));
    }
    MG_TRY(mg_part_reduce_now(p, -1));
    for (int r = 0; r < g->n_roots; r++) {
        const int node = make_root(p, r, split_roots[r]);
        if (node < 0) return mg_error_code();
        const bool own = p->stages[g->roots[r].node] == p->stage;
        /* Elsewhere the placeholder is no new value of a variable. */
        const bool mine = !is_not_central(p) && own;
        p->part->roots[r] = (mg_root){node, g->roots[r].commit && mine, g->roots[r].check && mine};
    }
    p->part->n_roots = g->n_roots;
    return keep_collectives_alive(p);
}

/* Scratch arrays lie in the new IR's memory. They begin as zeros, which is a node. */
mg_status mg_partition_allocate(partition *p) {
    const size_t n = (size_t)p->global->n + 1;
    p->made = mg_ir_alloc(p->part, n * sizeof *p->made);
    p->raw = mg_ir_alloc(p->part, n * sizeof *p->raw);
    p->reduced = mg_ir_alloc(p->part, n);
    p->after = mg_ir_alloc(p->part, n * sizeof *p->after);
    p->stages = mg_ir_alloc(p->part, n * sizeof *p->stages);
    p->sent = mg_ir_alloc(p->part, n * sizeof *p->sent);
    if (!p->made || !p->raw || !p->reduced || !p->after || !p->stages || !p->sent) return MG_OOM;
    for (int i = 0; i < p->global->n; i++) {
        p->raw[i] = NOT_MADE;
        for (int w = 0; w < N_SHARDINGS; w++) p->made[i][w] = NOT_MADE;
    }
    return MG_OK;
}

mg_status mg_partition(const mg_partition_spec *spec, int stage, int device, mg_ir *part,
                       bool *split_roots) {
    const mg_ir *global = spec->global;
    *part = (mg_ir){0};
    partition p = {.global = global,
                   .shards = spec->shards,
                   .spec = spec,
                   .stage = stage,
                   .device = device,
                   .central = spec->central,
                   .local_norm = spec->local_norm,
                   .part = part,
                   .last_collective = -1};
    const size_t n = (size_t)global->n + 1;
    p.shardings = mg_ir_alloc(part, n * sizeof *p.shardings);
    bool *wanted = mg_ir_alloc(part, n);
    if (!p.shardings || !wanted) return MG_OOM;
    MG_TRY(mg_partition_allocate(&p));
    /* Every device makes the same decisions, so each transfer has its sender and its receiver. */
    MG_TRY(mg_sharding_decide(&p, split_roots, wanted));
    mg_sharding_assign_stages(&p);
    MG_TRY(make_all_nodes(&p, split_roots, wanted));
    return MG_OK;
}
