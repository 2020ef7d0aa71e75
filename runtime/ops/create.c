/* Ops without inputs: full (a constant) and iota (0, 1, 2, ... along an axis).
 *
 * Their shape and dtype are attributes. They have no input to differentiate or to split: the
 * partition pass itself makes each device's part of them. */
#include "ops/attrs.h"
#include "ops/loops.h"
#include "ops/ops.h"

/* The result has the shape and dtype of the attributes. */
static mg_status take_shape_and_dtype(mg_infer *f, const mg_ints *shape, int64_t dtype) {
    f->shape = mg_shape_of(shape->n, shape->v);
    f->dtype = (mg_dtype)dtype;
    return MG_OK;
}

/* ---- full ---- */

static const mg_attr full_attrs[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_full_attrs, shape), 0, NULL, "the shape; {} is a scalar"},
    {"value", MG_ATTR_NUMBER, offsetof(mg_full_attrs, value), 0, NULL, "every element"},
    {"dtype", MG_ATTR_DTYPE, offsetof(mg_full_attrs, dtype), MG_F32, NULL, "the dtype"},
};

static mg_status full_infer(mg_infer *f) {
    const mg_full_attrs *a = f->attrs;
    return take_shape_and_dtype(f, &a->shape, a->dtype);
}

/* The value is rounded to the dtype by the caller, as every reference result is. */
static void full_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), ((const mg_full_attrs *)r->attrs)->value);
}

/* ---- iota: 0-based positions ---- */

static const mg_attr iota_attrs[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_iota_attrs, shape), 0, NULL, "the shape"},
    {"axis", MG_ATTR_AXIS, offsetof(mg_iota_attrs, axis), 0, NULL, "the axis along which to count"},
    {"dtype", MG_ATTR_DTYPE, offsetof(mg_iota_attrs, dtype), MG_I32, NULL, "the dtype"},
};

/* The axis is resolved against the shape that is asked for: iota has no input. */
static mg_status iota_infer(mg_infer *f) {
    mg_iota_attrs *a = f->attrs;
    MG_TRY(mg_infer_axis(f, &a->axis, a->shape.n));
    return take_shape_and_dtype(f, &a->shape, a->dtype);
}

/* Element (o, i, j) around the axis is i. */
static void iota_ref(const mg_ref *r) {
    const mg_axis_view v = mg_axis_view_of(&r->shape, ((const mg_iota_attrs *)r->attrs)->axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.n; i++)
            for (int64_t j = 0; j < v.inner; j++) r->out[(o * v.n + i) * v.inner + j] = (double)i;
}

/* ---- the op table ---- */

static const mg_op create_rows[] = {
    {.name = "full",
     .doc = "a tensor whose elements are all `value`",
     MG_ATTRS(mg_full_attrs, full_attrs),
     .infer = full_infer,
     .ref = full_ref},
    {.name = "iota",
     .doc = "0, 1, 2, ... along an axis",
     .example = "print(mgpu.iota { shape = { 2, 3 } }) -- along the first axis\n"
                "--> tensor {2, 3} int32 cpu:0\n"
                "--> {{0, 0, 0},\n"
                "-->  {1, 1, 1}}\n"
                "print(mgpu.iota { shape = { 2, 3 }, axis = 2 })\n"
                "--> tensor {2, 3} int32 cpu:0\n"
                "--> {{0, 1, 2},\n"
                "-->  {0, 1, 2}}",
     MG_ATTRS(mg_iota_attrs, iota_attrs),
     .infer = iota_infer,
     .ref = iota_ref},
};

const mg_op_family mg_ops_create = {"create", create_rows,
                                    sizeof create_rows / sizeof create_rows[0]};
