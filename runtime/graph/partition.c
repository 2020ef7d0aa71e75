/* Partition: see partition.h.
 *
 * Once every node has its sharding (sharding.c), the device's own nodes are made, in order of
 * depth, so that collectives are ordered by the time at which their inputs become ready. Each
 * collective also takes the previous one as an input that it does not read: then no device can run
 * them in another order, which would deadlock. A device without rows makes no shards; its partial
 * terms are the identities of their reductions. All-reduces that follow one another and do not
 * depend on one another form buckets. This is decided on the global IR, so all devices form the
 * same buckets. */
#include "graph/sharding.h"
#include "graph/partition_loop.h"
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

/* A batch may have fewer rows than there are devices. */
static bool has_no_rows(const partition *p) {
    return p->shards->rows > 0 && p->shards->count[p->device] == 0;
}

/* The shape of the device's part of a value with this global shape, under a sharding. */
static mg_shape part_shape(const partition *p, mg_shape shape, int sharding) {
    if (is_mixed_rows(sharding)) sharding = 0; /* in another order */
    if (sharding >= 0) shape.dim[sharding] = part_count(p, shape.dim[sharding]);
    return shape;
}

/* ---- making nodes of the device ---- */

/* Appends a node to the device's IR; the array doubles inside the IR's memory. Returns its number,
 * or NOT_MADE. */
static int add_node(partition *p, mg_node node) {
    if (p->part->n == p->capacity) {
        const int wider = p->capacity ? 2 * p->capacity : 2 * p->global->n + 64;
        mg_node *nodes = mg_ir_alloc(p->part, (size_t)wider * sizeof *nodes);
        if (!nodes) return NOT_MADE;
        if (p->part->n) memcpy(nodes, p->part->nodes, (size_t)p->part->n * sizeof *nodes);
        p->part->nodes = nodes;
        p->capacity = wider;
    }
    node.forward = node.group = -1;
    node.uses = 0;
    p->part->nodes[p->part->n] = node;
    return p->part->n++;
}

/* Appends an op over local nodes, with the dtype and the origin of `model`; attrs are copied. An
 * input that is NOT_MADE makes the result so. */
static int add_op(partition *p, const mg_node *model, const char *op, mg_shape shape,
                  const void *attrs, int n_in, const int *in) {
    mg_node node = {.kind = MG_NODE_OP, .dtype = model->dtype, .shape = shape, .n_in = n_in};
    node.op = mg_op_find(op);
    node.origin = model->origin;
    node.in = mg_ir_alloc(p->part, (size_t)(n_in + 1) * sizeof *in);
    void *copy = mg_ir_alloc(p->part, node.op->attrs_size);
    if (!node.in || !copy) return NOT_MADE;
    for (int i = 0; i < n_in; i++) {
        if (in[i] < 0) return NOT_MADE;
        node.in[i] = in[i];
    }
    if (attrs) memcpy(copy, attrs, node.op->attrs_size);
    node.attrs = copy;
    return add_node(p, node);
}

/* `value` in every element. */
static int add_literal(partition *p, const mg_node *model, mg_shape shape, double value) {
    mg_full_attrs attrs = {.value = value, .dtype = model->dtype};
    attrs.shape.n = shape.rank;
    for (int i = 0; i < shape.rank; i++) attrs.shape.v[i] = shape.dim[i];
    const int made = add_op(p, model, "full", shape, &attrs, 0, NULL);
    if (made < 0) return made;
    p->part->nodes[made].kind = MG_NODE_LITERAL;
    p->part->nodes[made].literal = value;
    return made;
}

/* An element-wise op of two values of one shape, or of a value and a scalar. */
static int add_binary(partition *p, const char *op, int a, int b) {
    if (a < 0 || b < 0) return NOT_MADE;
    const mg_node *model = &p->part->nodes[a];
    return add_op(p, model, op, model->shape, NULL, 2, (int[]){a, b});
}

/* a * factor. */
static int add_scaled(partition *p, int a, double factor) {
    if (a < 0) return a;
    const mg_node model = p->part->nodes[a];
    return add_binary(p, "mul", a, add_literal(p, &model, (mg_shape){.rank = 0}, factor));
}

/* Entries [first, first + count) of an axis. */
static int add_slice(partition *p, int from, int axis, int64_t first, int64_t count) {
    if (from < 0) return from;
    const mg_node model = p->part->nodes[from];
    mg_slice_attrs attrs = {0};
    mg_shape shape = model.shape;
    attrs.start.n = attrs.stop.n = attrs.step.n = shape.rank;
    for (int i = 0; i < shape.rank; i++) {
        attrs.stop.v[i] = shape.dim[i];
        attrs.step.v[i] = 1;
    }
    attrs.start.v[axis] = first;
    attrs.stop.v[axis] = first + count;
    shape.dim[axis] = count;
    return add_op(p, &model, "slice", shape, &attrs, 1, &from);
}

/* Whether another device has all the variables. */
static bool is_not_central(const partition *p) {
    return p->central >= 0 && p->central != p->device;
}

/* Appends the next collective, chained behind the previous one. Anything but an all-reduce ends the
 * open bucket. */
static int add_collective(partition *p, const char *op, int from, mg_shape shape, int kind,
                          int axis) {
    if (from < 0) return from;
    const mg_node model = p->part->nodes[from];
    const mg_collective_attrs attrs = {.kind = kind,
                                       .axis = axis,
                                       .number = p->collectives++,
                                       .root = p->central >= 0 ? p->central : 0};
    const int in[] = {from, p->last_collective};
    if (strcmp(op, "all_reduce") != 0) p->bucket.tensors = 0;
    p->last_collective = add_op(p, &model, op, shape, &attrs, p->last_collective >= 0 ? 2 : 1, in);
    return p->last_collective;
}

/* The number of the bucket that node i's all-reduce goes into: the open one, or a new one if that
 * is full, is of another kind or dtype, or must be reduced before the terms of node i can be
 * computed. */
static int find_bucket(partition *p, int i, const mg_node *sum, int kind) {
    const int64_t bytes = mg_shape_count(&sum->shape) * (int64_t)mg_dtype_size(sum->dtype);
    /* after[i] is the latest bucket that the terms need: it must be an earlier one */
    const bool fits = p->bucket.tensors > 0 && p->bucket.tensors < MG_BUCKET_TENSORS &&
                      p->bucket.bytes < MG_BUCKET_BYTES && p->bucket.dtype == sum->dtype &&
                      p->bucket.kind == kind && p->after[i] < p->bucket.number;
    if (!fits) {
        p->bucket.number++;
        p->bucket.tensors = 0;
        p->bucket.bytes = 0;
        p->bucket.dtype = sum->dtype;
        p->bucket.kind = kind;
    }
    p->bucket.tensors++;
    p->bucket.bytes += bytes;
    return p->after[i] = p->bucket.number;
}

/* The whole value of partial node i, on all devices. */
static int add_all_reduce(partition *p, int i, int from, mg_shape shape, int kind) {
    const int made = add_collective(p, "all_reduce", from, shape, kind, 0);
    if (made < 0) return made;
    mg_collective_attrs *attrs = (mg_collective_attrs *)p->part->nodes[made].attrs;
    attrs->bucket = find_bucket(p, i, &p->part->nodes[made], kind);
    return made;
}

/* The whole value of partial node i: on all devices, or only on the central one if no other device
 * reads it. Then the other devices get a scalar placeholder. */
static int add_reduction(partition *p, int i, int from, int kind) {
    mg_shape shape = p->global->nodes[i].shape;
    if (p->central < 0 || p->replicated[i]) return add_all_reduce(p, i, from, shape, kind);
    if (is_not_central(p)) shape = (mg_shape){.rank = 0};
    return add_collective(p, "reduce", from, shape, kind, 0);
}

/* The value of a variable that the central device has. That device reads its own. */
static int add_broadcast(partition *p, const mg_node *n, int own) {
    const mg_shape scalar = {.rank = 0};
    if (!is_not_central(p)) {
        add_collective(p, "broadcast", own, scalar, 0, 0);
        return p->last_collective < 0 ? NOT_MADE : own;
    }
    return add_collective(p, "broadcast", add_literal(p, n, scalar, 0), n->shape, 0, 0);
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
static int copy_node(partition *p, int i, int sharding) {
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
    return copy_results(p, i, &copy) ? add_node(p, copy) : NOT_MADE;
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
        return add_slice(p, mg_partition_local(p, i, MG_REPLICATED), axis,
                         part_first(p, n->shape.dim[axis]), part_count(p, n->shape.dim[axis]));
    const int made = copy_node(p, i, axis);
    if (made < 0) return made;
    const int64_t first = part_first(p, n->shape.dim[axis]);
    if (mg_is_op(n, "random")) p->part->nodes[made].first = first * inner;
    if (!mg_is_op(n, "iota") || ((const mg_iota_attrs *)n->attrs)->axis != axis) return made;
    return add_binary(p, "add", made, add_literal(p, n, (mg_shape){.rank = 0}, (double)first));
}

/* Mean and variance of the whole batch from those of the devices' rows: first the mean of the
 * means, then the mean of the squared distances from it, which avoids cancellation. */
static int make_joint_moments(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const mg_shape row = MG_SHAPE(1, n->shape.dim[1]);
    /* A device's weight in the mean is its share of the rows. */
    const double share = (double)p->shards->count[p->device] / (double)p->shards->rows;
    int own = NOT_MADE, mean, variance;
    if (has_no_rows(p)) {
        mean = add_literal(p, n, row, 0);
    } else {
        own = copy_node(p, i, MG_REPLICATED);
        mean = add_scaled(p, add_slice(p, own, 0, 0, 1), share);
    }
    const int joint = add_all_reduce(p, i, mean, row, MG_REDUCE_SUM);
    if (has_no_rows(p)) {
        variance = add_literal(p, n, row, 0);
    } else {
        /* about the joint mean: own variance + (own mean - joint mean)^2 */
        const int off = add_binary(p, "sub", add_slice(p, own, 0, 0, 1), joint);
        const int about =
            add_binary(p, "add", add_slice(p, own, 0, 1, 1), add_binary(p, "mul", off, off));
        variance = add_scaled(p, about, share);
    }
    const int second = add_all_reduce(p, i, variance, row, MG_REDUCE_SUM);
    const mg_axis_attrs axis = {.axis = 0};
    return add_op(p, n, "concat", n->shape, &axis, 2, (int[]){joint, second});
}

/* Whether all devices have the condition and this step's ticket: their sum is that of n tickets
 * only then (async_guards.h). The term is made of the condition, not written over it. */
static int make_agreement(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const mg_shape scalar = {.rank = 0};
    const int ok = mg_partition_local(p, n->in[0], MG_REPLICATED),
              ticket = mg_partition_local(p, n->in[1], MG_REPLICATED);
    if (ok < 0 || ticket < 0) return NOT_MADE;
    const mg_node model = p->part->nodes[ticket], answer = *n;
    const int in[] = {ok, ticket, add_literal(p, &model, scalar, 0)};
    const int term = add_op(p, &model, "where", scalar, NULL, 3, in);
    const int sum = add_collective(p, "all_reduce", term, scalar, MG_REDUCE_SUM, 0);
    const int all[] = {sum, add_scaled(p, ticket, p->shards->n)};
    return add_op(p, &answer, "eq", scalar, NULL, 2, all);
}

/* The device's rows of an argument or constant: addressed inside its memory. */
static int shard_of_given(partition *p, int i) {
    mg_node copy = p->global->nodes[i];
    copy.first = part_first(p, copy.shape.dim[0]);
    copy.shape = part_shape(p, copy.shape, 0);
    copy.part = true;
    return add_node(p, copy);
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
        return add_broadcast(p, n, is_not_central(p) ? NOT_MADE : copy_node(p, i, sharding));
    if (mg_is_op(n, "place")) return mg_partition_local(p, n->in[0], p->shardings[i].in[0]);
    if (mg_sharding_has_joint_moments(p, i)) return make_joint_moments(p, i);
    if (mg_is_op(n, "agree")) return make_agreement(p, i);
    if (has_no_rows(p)) { /* the reduction's identity, or zero rows */
        if (mg_sharding_is_partial(sharding))
            return add_literal(p, n, n->shape, identity_of(sharding, n->dtype));
        if (sharding == MG_PER_DEVICE) return add_literal(p, n, n->shape, 0);
        if (sharding >= 0 || is_mixed_rows(sharding))
            return add_literal(p, n, part_shape(p, n->shape, sharding), 0);
    }
    if (mg_is_op(n, "shard") && sharding >= 0) return shard_of_shard_op(p, i);
    if (mg_is_op(n, "own_rows"))
        return add_literal(p, n, n->shape,
                           sharding == MG_PER_DEVICE
                               ? (double)p->shards->rows / (double)p->shards->count[p->device]
                               : 1);
    return copy_node(p, i, sharding);
}

/* All of node i on this device. Values per device are averaged, weighted by rows. */
static int make_replicated(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const int sharding = p->shardings[i].sharding;
    if (sharding == MG_ANY_SHARDING) return copy_node(p, i, MG_REPLICATED);
    int own = p->raw[i];
    if (sharding == MG_REPLICATED) return own;
    if (sharding >= 0) return add_collective(p, "all_gather", own, n->shape, 0, sharding);
    /* the remaining case is a value per device */
    own = add_scaled(p, own, (double)p->shards->count[p->device] / (double)p->shards->rows);
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
    if (has_no_rows(p)) return add_literal(p, n, part_shape(p, n->shape, sharding), 0);
    if (any) return shard_of_source(p, i, sharding);
    return add_slice(p, mg_partition_local(p, i, MG_REPLICATED), sharding,
                     part_first(p, n->shape.dim[sharding]), part_count(p, n->shape.dim[sharding]));
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
                                   : add_literal(p, g, scalar, 0);
            if (from < 0) return mg_error_code();
            const int made =
                add_collective(p, "transfer", from,
                               sends ? scalar : local_shape(p, i, sharding_of_index(slot)), 0, 0);
            if (made < 0) return mg_error_code();
            mg_collective_attrs *attrs = (mg_collective_attrs *)p->part->nodes[made].attrs;
            attrs->root = p->stages[i];
            attrs->to = s;
            if (!sends) p->made[i][slot] = made; /* what mg_partition_local will find */
        }
    return MG_OK;
}

/* ---- all nodes ---- */

/* For sorting the nodes: those that wait for the devices' agreement last, then by depth, and by
 * number within a depth. So the agreement is the last collective of a step. */
typedef struct ordered_node {
    bool agreed;
    int depth, node;
} ordered_node;

/* For qsort: a strict order, so every device gets the same order. */
static int compare_depth(const void *a, const void *b) {
    const ordered_node *x = a, *y = b;
    if (x->agreed != y->agreed) return x->agreed ? 1 : -1;
    return x->depth != y->depth ? (x->depth > y->depth) - (x->depth < y->depth)
                                : (x->node > y->node) - (x->node < y->node);
}

/* The nodes in the order in which they are made. The IR has inputs before their readers. */
static void sort_nodes(const partition *p, ordered_node *order) {
    const mg_ir *g = p->global;
    for (int i = 0; i < g->n; i++) {
        bool agreed = mg_is_op(&g->nodes[i], "agree");
        for (int k = 0; k < g->nodes[i].n_in; k++) agreed |= order[g->nodes[i].in[k]].agreed;
        order[i] = (ordered_node){agreed, p->shardings[i].depth, i};
    }
    qsort(order, (size_t)g->n, sizeof *order, compare_depth);
}

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
        return add_literal(p, &p->global->nodes[node], (mg_shape){.rank = 0}, 0);
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
    ordered_node *order = mg_ir_alloc(p->part, (size_t)(g->n + 1) * sizeof *order);
    p->part->roots = mg_ir_alloc(p->part, (size_t)(g->n_roots + 2) * sizeof *p->part->roots);
    p->replicated = mg_ir_alloc(p->part, (size_t)g->n + 1);
    if (!order || !p->part->roots || !p->replicated) return MG_OOM;
    for (int r = 0; r < g->n_roots; r++)
        split_roots[r] = split_roots[r] && p->shardings[g->roots[r].node].sharding == 0;
    if (p->central >= 0) mark_replicated(p, split_roots, wanted);
    sort_nodes(p, order);
    for (int i = 0; i < g->n; i++) MG_TRY(make_node(p, order[i].node, wanted));
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
