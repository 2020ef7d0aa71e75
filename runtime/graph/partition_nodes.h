/* Making the nodes of a device's IR: for the files of the partition pass.
 *
 *   partition_nodes.c      nodes and collectives
 *   partition_buckets.c    the order of nodes, and reductions in buckets
 *   partition_joint.c      what all devices compute together: batch statistics, agreement
 *   partition.c            everything else
 *
 * All functions return the number of a node, or NOT_MADE; a node that is NOT_MADE as an input gives
 * NOT_MADE. */
#ifndef MG_GRAPH_PARTITION_NODES_H
#define MG_GRAPH_PARTITION_NODES_H

#include "graph/sharding.h"

/* ---- partition_nodes.c ---- */

/* Appends a node. */
int mg_part_node(partition *p, mg_node node);
/* Appends an op over local nodes, with the dtype and the origin of `model`; attrs are copied. */
int mg_part_op(partition *p, const mg_node *model, const char *op, mg_shape shape,
               const void *attrs, int n_in, const int *in);
/* `value` in every element. */
int mg_part_literal(partition *p, const mg_node *model, mg_shape shape, double value);
/* An element-wise op of two values of one shape, or of a value and a scalar. */
int mg_part_binary(partition *p, const char *op, int a, int b);
/* a * factor. */
int mg_part_scaled(partition *p, int a, double factor);
/* Entries [first, first + count) of an axis. */
int mg_part_slice(partition *p, int from, int axis, int64_t first, int64_t count);
/* Reshape or broadcast_to. */
int mg_part_shaped(partition *p, const char *op, int from, mg_shape shape);
/* The next collective, chained behind the previous one. Anything but an all-reduce ends the open
 * bucket of values that are waited for. */
int mg_part_collective(partition *p, const char *op, int from, mg_shape shape, int kind, int axis);

/* A batch may have fewer rows than there are devices. */
static inline bool mg_part_has_no_rows(const partition *p) {
    return p->shards->rows > 0 && p->shards->count[p->device] == 0;
}

/* ---- partition_buckets.c ---- */

/* The nodes of the global IR in the order in which they are made. `wanted` as in sharding.h. NULL:
 * MG_OOM. */
const int *mg_part_order(partition *p, const bool *wanted);
/* The whole value of partial node i, on all devices. */
int mg_part_all_reduce(partition *p, int i, int from, mg_shape shape, int kind);
/* Whether partial node i is a gradient or another sum that no collective waits for. Its reduction
 * is made later, in a bucket: */
bool mg_part_is_gradient(const partition *p, int i);
mg_status mg_part_reduce_later(partition *p, int i, int from, int kind);
/* Before node i is made, which may read such sums; i = -1: at the end. */
mg_status mg_part_reduce_now(partition *p, int i);

/* ---- partition_joint.c ---- */

/* Mean and variance of the whole batch from those of the devices' rows, for the node `moments`. */
int mg_part_joint_moments(partition *p, int i);
/* The node `agree`. */
int mg_part_agreement(partition *p, int i);

#endif
