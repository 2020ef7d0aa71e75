/* Nodes of a device's IR: see partition_nodes.h. */
#include "graph/partition_nodes.h"
#include "ops/attrs.h"
#include <string.h>

/* The array doubles inside the IR's memory. */
int mg_part_node(partition *p, mg_node node) {
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

int mg_part_op(partition *p, const mg_node *model, const char *op, mg_shape shape,
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
    return mg_part_node(p, node);
}

int mg_part_literal(partition *p, const mg_node *model, mg_shape shape, double value) {
    mg_full_attrs attrs = {.value = value, .dtype = model->dtype};
    attrs.shape.n = shape.rank;
    for (int i = 0; i < shape.rank; i++) attrs.shape.v[i] = shape.dim[i];
    const int made = mg_part_op(p, model, "full", shape, &attrs, 0, NULL);
    if (made < 0) return made;
    p->part->nodes[made].kind = MG_NODE_LITERAL;
    p->part->nodes[made].literal = value;
    return made;
}

int mg_part_binary(partition *p, const char *op, int a, int b) {
    if (a < 0 || b < 0) return NOT_MADE;
    const mg_node *model = &p->part->nodes[a];
    return mg_part_op(p, model, op, model->shape, NULL, 2, (int[]){a, b});
}

int mg_part_scaled(partition *p, int a, double factor) {
    if (a < 0) return a;
    const mg_node model = p->part->nodes[a];
    return mg_part_binary(p, "mul", a, mg_part_literal(p, &model, (mg_shape){.rank = 0}, factor));
}

int mg_part_slice(partition *p, int from, int axis, int64_t first, int64_t count) {
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
    return mg_part_op(p, &model, "slice", shape, &attrs, 1, &from);
}

int mg_part_shaped(partition *p, const char *op, int from, mg_shape shape) {
    if (from < 0) return from;
    const mg_node model = p->part->nodes[from];
    mg_ints_attrs attrs = {.list = {.n = shape.rank}};
    for (int i = 0; i < shape.rank; i++) attrs.list.v[i] = shape.dim[i];
    return mg_part_op(p, &model, op, shape, &attrs, 1, &from);
}

int mg_part_collective(partition *p, const char *op, int from, mg_shape shape, int kind, int axis) {
    if (from < 0) return from;
    const mg_node model = p->part->nodes[from];
    const mg_collective_attrs attrs = {.kind = kind,
                                       .axis = axis,
                                       .number = p->collectives++,
                                       .root = p->central >= 0 ? p->central : 0};
    const int in[] = {from, p->last_collective};
    if (strcmp(op, "all_reduce") != 0) p->bucket.tensors = 0;
    p->last_collective =
        mg_part_op(p, &model, op, shape, &attrs, p->last_collective >= 0 ? 2 : 1, in);
    return p->last_collective;
}
