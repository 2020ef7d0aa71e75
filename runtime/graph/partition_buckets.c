/* The order of a device's nodes, and the buckets of its reductions.
 *
 * Nodes are made in order of depth, so that collectives are ordered by the time at which their
 * inputs become ready. A reduction is one of two kinds. Most are gradients: no other collective
 * depends on them, and the next reader is the update at the end of the step. They are collected in
 * large buckets, whose size follows from the model's (bucket_bytes), and a bucket is reduced when
 * it is full. The others, as the sums of batch normalization's backward pass, hold up the
 * computation: they never share a bucket with gradients, neither wait for one to fill up nor close
 * it. Nodes that read gradients come after all nodes that do not, and those that wait for the
 * devices' agreement last, so the agreement is the last collective of a step.
 *
 * All of this is decided on the global IR, so all devices form the same buckets in the same
 * order. */
#include "graph/partition_nodes.h"
#include "ops/attrs.h"
#include <math.h>
#include <stdlib.h>

enum { N_KINDS = MG_REDUCE_MIN + 1, FIRST, READS_GRADIENTS, AGREED };

/* Gradients that will be reduced together. */
struct mg_gradients {
    int n;
    int64_t bytes;
    int node[MG_BUCKET_TENSORS], term[MG_BUCKET_TENSORS]; /* of the global IR; of this device */
};

/* ---- the order ---- */

typedef struct ordered_node { /* sorted by all members in turn */
    int turn;                 /* FIRST, READS_GRADIENTS or AGREED */
    int depth, node;
} ordered_node;

/* For qsort: a strict order, so every device gets the same order. */
static int compare_nodes(const void *a, const void *b) {
    const ordered_node *x = a, *y = b;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static bool is_reduced(const partition *p, int i) {
    const node_sharding *d = &p->shardings[i];
    return mg_sharding_is_partial(d->produced) && d->sharding == MG_REPLICATED;
}

/* Whether making node i takes a collective before its readers are made. The agreement is none: it
 * waits for everything. */
static bool meets(const partition *p, int i, const bool *wanted) {
    bool sent = false;
    for (int w = 0; w < N_SHARDINGS; w++) sent |= p->sent[i][w] != 0;
    return is_reduced(p, i) || wanted[i] || sent || mg_sharding_has_joint_moments(p, i);
}

/* Reductions that no collective depends on, while all devices have all variables. */
static mg_status find_gradients(partition *p, const bool *wanted) {
    const mg_ir *g = p->global;
    bool *feeds = mg_ir_alloc(p->part, (size_t)g->n + 1); /* some collective depends on it */
    p->gradient = mg_ir_alloc(p->part, (size_t)g->n + 1);
    p->gradients = mg_ir_alloc(p->part, (size_t)MG_N_DTYPES * N_KINDS * sizeof *p->gradients);
    if (!feeds || !p->gradient || !p->gradients) return MG_OOM;
    for (int i = g->n - 1; i >= 0; i--) {
        if (feeds[i] || meets(p, i, wanted))
            for (int k = 0; k < g->nodes[i].n_in; k++) feeds[g->nodes[i].in[k]] = true;
        if (feeds[i] || !is_reduced(p, i) || p->central >= 0 || p->spec->n_stages > 1) continue;
        p->gradient[i] = true;
        p->gradient_bytes +=
            mg_shape_count(&g->nodes[i].shape) * (int64_t)mg_dtype_size(g->nodes[i].dtype);
    }
    return MG_OK;
}

/* The IR has inputs before their readers. */
const int *mg_part_order(partition *p, const bool *wanted) {
    const mg_ir *g = p->global;
    ordered_node *order = mg_ir_alloc(p->part, (size_t)(g->n + 1) * sizeof *order);
    int *nodes = mg_ir_alloc(p->part, (size_t)(g->n + 1) * sizeof *nodes);
    p->turn = mg_ir_alloc(p->part, (size_t)(g->n + 1) * sizeof *p->turn);
    if (!order || !nodes || !p->turn || find_gradients(p, wanted) != MG_OK) return NULL;
    for (int i = 0; i < g->n; i++) {
        int turn = mg_is_op(&g->nodes[i], "agree") ? AGREED : FIRST;
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            const int in = g->nodes[i].in[k];
            const int after = p->gradient[in] ? READS_GRADIENTS : p->turn[in];
            if (after > turn) turn = after;
        }
        p->turn[i] = turn;
        order[i] = (ordered_node){turn, p->shardings[i].depth, i};
    }
    qsort(order, (size_t)g->n, sizeof *order, compare_nodes);
    for (int i = 0; i < g->n; i++) nodes[i] = order[i].node;
    return nodes;
}

/* ---- reductions that the computation waits for ---- */

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

int mg_part_all_reduce(partition *p, int i, int from, mg_shape shape, int kind) {
    const int made = mg_part_collective(p, "all_reduce", from, shape, kind, 0);
    if (made < 0) return made;
    mg_collective_attrs *attrs = (mg_collective_attrs *)p->part->nodes[made].attrs;
    attrs->bucket = find_bucket(p, i, &p->part->nodes[made], kind);
    return made;
}

/* ---- gradients ---- */

/* A step waits for its last bucket, so buckets should be small; but each takes the time of a
 * message besides, in which a link could move MG_BUCKET_BYTES. With B bytes in all and buckets of
 * b, b + B / b * MG_BUCKET_BYTES is least for this b. */
static double bucket_bytes(const partition *p) {
    return sqrt((double)p->gradient_bytes * MG_BUCKET_BYTES);
}

bool mg_part_is_gradient(const partition *p, int i) {
    return p->gradient[i];
}

/* Reduces what is in the bucket, one tensor behind the other in the chain of collectives. */
static mg_status close_bucket(partition *p, struct mg_gradients *b, int kind) {
    if (b->n == 0) return MG_OK;
    p->bucket.tensors = 0; /* buckets do not overlap */
    const int number = ++p->bucket.number;
    for (int k = 0; k < b->n; k++) {
        const int i = b->node[k];
        p->raw[i] =
            mg_part_collective(p, "all_reduce", b->term[k], p->global->nodes[i].shape, kind, 0);
        if (p->raw[i] < 0) return mg_error_code();
        ((mg_collective_attrs *)p->part->nodes[p->raw[i]].attrs)->bucket = number;
    }
    b->n = 0;
    b->bytes = 0;
    return MG_OK;
}

mg_status mg_part_reduce_later(partition *p, int i, int from, int kind) {
    const mg_node *n = &p->global->nodes[i];
    struct mg_gradients *b = &p->gradients[(int)n->dtype * N_KINDS + kind];
    if (from < 0) return mg_error_code();
    b->node[b->n] = i;
    b->term[b->n++] = from;
    b->bytes += mg_shape_count(&n->shape) * (int64_t)mg_dtype_size(n->dtype);
    const bool full = (double)b->bytes >= bucket_bytes(p) || b->n == MG_BUCKET_TENSORS;
    return full ? close_bucket(p, b, kind) : MG_OK;
}

mg_status mg_part_reduce_now(partition *p, int i) {
    if (i >= 0 && p->turn[i] == FIRST) return MG_OK;
    for (int b = 0; b < MG_N_DTYPES * N_KINDS; b++)
        MG_TRY(close_bucket(p, &p->gradients[b], b % N_KINDS));
    return MG_OK;
}
