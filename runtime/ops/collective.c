/* Ops of plans on several devices; on one device they do nothing.
 *
 * shard(x) marks x as sharded by rows over the devices of the step; the shardings of all values
 * computed from x follow from it. The partition pass inserts the collectives, such as
 * all_reduce(x), the sum, maximum or minimum of the devices' values, and all_gather(x), which joins
 * their parts. Every device runs them in the order of their attribute `number`. place(x) moves x to
 * another device. agree(ok, ticket) is true on all devices or on none: see graph/async_guards.h. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <string.h>

static const char *const kinds[] = {"sum", "max", "min", NULL};

static const mg_attr reduce_table[] = {
    {"kind", MG_ATTR_CHOICE, offsetof(mg_collective_attrs, kind), 0, kinds, "sum, max or min"},
    {"number", MG_ATTR_INT, offsetof(mg_collective_attrs, number), 0, NULL,
     "its place in the order"},
};

static const mg_attr gather_table[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_collective_attrs, axis), 0, NULL, "the axis dealt out"},
    {"number", MG_ATTR_INT, offsetof(mg_collective_attrs, number), 0, NULL,
     "its place in the order"},
};

static const mg_attr root_table[] = {
    {"kind", MG_ATTR_CHOICE, offsetof(mg_collective_attrs, kind), 0, kinds, "sum, max or min"},
    {"number", MG_ATTR_INT, offsetof(mg_collective_attrs, number), 0, NULL,
     "its place in the order"},
    {"root", MG_ATTR_INT, offsetof(mg_collective_attrs, root), 0, NULL, "the rank that has it"},
};

static mg_status same_infer(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    return MG_OK;
}

static mg_status shard_infer(mg_infer *f) {
    if (mg_infer_shape(f, 0)->rank == 0)
        return mg_infer_fail(f, MG_USAGE, "a single number has no rows to deal out");
    return same_infer(f);
}

/* A condition that all devices know, and a number that no earlier step has had. */
static mg_status agree_infer(mg_infer *f) {
    f->dtype = MG_BOOL;
    return same_infer(f);
}

static void copy_ref(const mg_ref *r) {
    memcpy(r->out, r->in[0], (size_t)mg_shape_count(&r->shape) * sizeof *r->out);
}

static mg_tensor *same_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)y, (void)i;
    return dy;
}

static const mg_attr place_table[] = {
    {"device", MG_ATTR_DEVICE, offsetof(mg_place_attrs, device), 0, NULL, "the device"},
};

/* The gradient goes back to where x lies. */
static mg_tensor *place_grad(mg_tensor *y, mg_tensor *dy, int i) {
    const mg_place_attrs attrs = {.device = (int64_t)(intptr_t)y->inputs[i]->device};
    return mg_make("place", &attrs, 1, dy);
}

static const mg_attr transfer_table[] = {
    {"number", MG_ATTR_INT, offsetof(mg_collective_attrs, number), 0, NULL,
     "its place in the order"},
    {"root", MG_ATTR_INT, offsetof(mg_collective_attrs, root), 0, NULL, "the stage that sends"},
    {"to", MG_ATTR_INT, offsetof(mg_collective_attrs, to), 0, NULL, "the stage that receives"},
};

static const mg_op rows[] = {
    {.name = "place",
     .doc = "x on another device",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_place_attrs, place_table),
     .infer = same_infer,
     .grad = place_grad,
     .ref = copy_ref},
    {.name = "transfer",
     .doc = "x from one device of the plan to another",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     .collective = MG_TRANSFER,
     MG_ATTRS(mg_collective_attrs, transfer_table),
     .infer = same_infer,
     .grad = same_grad,
     .ref = copy_ref},
    {.name = "shard",
     .doc = "x, its rows dealt out over the devices of the step",
     .example =
         "print(mgpu.arange(4):shard()) -- outside a step on several devices it is t itself\n"
         "--> tensor {4} float32 cpu:0\n"
         "--> {0, 1, 2, 3}",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = shard_infer,
     .grad = same_grad,
     .ref = copy_ref},
    {.name = "all_reduce",
     .doc = "the devices' terms added up (or compared), on each of them",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     .collective = MG_ALL_REDUCE,
     MG_ATTRS(mg_collective_attrs, reduce_table),
     .infer = same_infer,
     .grad = same_grad,
     .ref = copy_ref},
    {.name = "reduce",
     .doc = "the devices' terms added up (or compared), on one of them",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     .collective = MG_REDUCE,
     MG_ATTRS(mg_collective_attrs, root_table),
     .infer = same_infer,
     .grad = same_grad,
     .ref = copy_ref},
    {.name = "agree",
     .doc = "whether x is true and all devices of the step have come here",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_HIDDEN | MG_OP_INTERNAL,
     .infer = agree_infer,
     .ref = copy_ref},
    {.name = "broadcast",
     .doc = "what one of the devices has, on each of them",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     .collective = MG_BROADCAST,
     MG_ATTRS(mg_collective_attrs, root_table),
     .infer = same_infer,
     .grad = same_grad,
     .ref = copy_ref},
    {.name = "all_gather",
     .doc = "the devices' rows one after another, on each of them",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     .collective = MG_ALL_GATHER,
     MG_ATTRS(mg_collective_attrs, gather_table),
     .infer = same_infer,
     .grad = same_grad,
     .ref = copy_ref},
};

const mg_op_family mg_ops_collective = {"collective", rows, sizeof rows / sizeof rows[0]};
