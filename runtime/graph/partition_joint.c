/* What the devices of a step compute together, besides sums: see partition_nodes.h. */
#include "graph/partition_nodes.h"
#include "ops/attrs.h"

/* ---- batch statistics ---- */

/* The sum over the first axis. */
static int sum_of_devices(partition *p, int a) {
    if (a < 0) return a;
    const mg_node model = p->part->nodes[a];
    mg_shape row = {.rank = model.shape.rank - 1};
    for (int k = 0; k < row.rank; k++) row.dim[k] = model.shape.dim[k + 1];
    const mg_reduce_attrs attrs = {.axes = {.n = 1, .v = {0}}};
    return mg_part_op(p, &model, "sum", row, &attrs, 1, &a);
}

/* Whether all devices have equally many rows. */
static bool have_equal_shares(const partition *p) {
    for (int k = 0; k < p->shards->n; k++)
        if (p->shards->count[k] * p->shards->n != p->shards->rows) return false;
    return true;
}

/* This device's mean and variance {2, C}; where devices have unequal shares of the rows, a third
 * row with its share. */
static int own_moments(partition *p, int i, int moments, bool equal) {
    const mg_node *n = &p->global->nodes[i];
    const double share = (double)p->shards->count[p->device] / (double)p->shards->rows;
    const mg_shape three = MG_SHAPE(3, n->shape.dim[1]);
    const mg_axis_attrs axis = {.axis = 0};
    if (mg_part_has_no_rows(p)) return mg_part_literal(p, n, three, 0);
    if (equal) return moments;
    const int in[] = {moments, mg_part_literal(p, n, MG_SHAPE(1, n->shape.dim[1]), share)};
    return mg_part_op(p, n, "concat", three, &axis, 2, in);
}

/* One exchange: all devices gather the moments of all, and each combines them. With shares s, the
 * mean is the sum of s mean, and the variance the sum of s (variance + (mean - joint mean)^2),
 * which avoids cancellation. */
int mg_part_joint_moments(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const bool equal = have_equal_shares(p);
    const int64_t devices = p->shards->n, rows = equal ? 2 : 3, channels = n->shape.dim[1];
    const mg_shape each = MG_SHAPE(devices, 1, channels), row = MG_SHAPE(1, channels);
    const int moments = mg_part_has_no_rows(p) ? NOT_MADE : mg_partition_copy(p, i, MG_REPLICATED);
    const int all = mg_part_collective(p, "all_gather", own_moments(p, i, moments, equal),
                                       MG_SHAPE(devices * rows, channels), 0, 0);
    if (all < 0) return all;
    ((mg_collective_attrs *)p->part->nodes[all].attrs)->one_each = true;
    const int table = mg_part_shaped(p, "reshape", all, MG_SHAPE(devices, rows, channels));
    const int mean = mg_part_slice(p, table, 1, 0, 1), variance = mg_part_slice(p, table, 1, 1, 1);
    const int share = equal ? NOT_MADE : mg_part_slice(p, table, 1, 2, 1);
    const double average = 1 / (double)devices;
    const int joint = equal ? mg_part_scaled(p, sum_of_devices(p, mean), average)
                            : sum_of_devices(p, mg_part_binary(p, "mul", mean, share));
    const int center = mg_part_shaped(p, "broadcast_to", joint, each);
    const int off = mg_part_binary(p, "sub", mean, center);
    const int about = mg_part_binary(p, "add", variance, mg_part_binary(p, "mul", off, off));
    const int second = equal ? mg_part_scaled(p, sum_of_devices(p, about), average)
                             : sum_of_devices(p, mg_part_binary(p, "mul", about, share));
    const mg_axis_attrs axis = {.axis = 0};
    const int in[] = {mg_part_shaped(p, "reshape", joint, row),
                      mg_part_shaped(p, "reshape", second, row)};
    return mg_part_op(p, n, "concat", n->shape, &axis, 2, in);
}

/* ---- agreement ---- */

/* Whether all devices have the condition and this step's ticket: their sum is that of n tickets
 * only then (async_guards.h). The term is made of the condition, not written over it. */
int mg_part_agreement(partition *p, int i) {
    const mg_node *n = &p->global->nodes[i];
    const mg_shape scalar = {.rank = 0};
    const int ok = mg_partition_local(p, n->in[0], MG_REPLICATED),
              ticket = mg_partition_local(p, n->in[1], MG_REPLICATED);
    if (ok < 0 || ticket < 0) return NOT_MADE;
    const mg_node model = p->part->nodes[ticket], answer = *n;
    const int in[] = {ok, ticket, mg_part_literal(p, &model, scalar, 0)};
    const int term = mg_part_op(p, &model, "where", scalar, NULL, 3, in);
    const int sum = mg_part_collective(p, "all_reduce", term, scalar, MG_REDUCE_SUM, 0);
    const int all[] = {sum, mg_part_scaled(p, ticket, p->shards->n)};
    return mg_part_op(p, &answer, "eq", scalar, NULL, 2, all);
}
