/* result: takes one of the results out of an op that has several (mg_op.n_results). scan: runs the
 * body of a loop (core/loop.h) once per step.
 *
 * Both are made by C code only. The inputs of a scan are the first carries, the arrays that it
 * runs along ({steps, ...} each), and what the body is given from outside. Its results are the last
 * carries, then the stacked ones. What a scan does is in its body, so its gradient and its
 * shardings are derived from those of the body's ops (graph/scan_grad.c, graph/partition_loop.c),
 * and a device runs its kernels in a loop (device/program/loop.c). */
#include "core/loop.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"

/* ---- result ---- */

static const mg_attr result_attrs[] = {
    {"number", MG_ATTR_INT, offsetof(mg_result_attrs, number), 0, NULL, "which one, from 0"},
};

int mg_result_count(const mg_tensor *t) {
    return t->loop ? t->loop->n_results : t->op->n_results(t->attrs);
}

/* Asks the op's own rule, unless a loop tells. Its attributes are in their normal form already. */
mg_status mg_infer_result(const mg_tensor *t, int k, mg_shape *shape, mg_dtype *dtype) {
    if (t->loop) {
        *dtype = (mg_dtype)t->loop->results[k]->dtype;
        return mg_loop_result_shape(t->loop, k, shape);
    }
    mg_infer own = {.op = t->op,
                    .n_inputs = t->n_inputs,
                    .inputs = t->inputs,
                    .attrs = t->attrs,
                    .result = k,
                    .dtype = (mg_dtype)t->inputs[0]->dtype};
    MG_TRY(t->op->infer(&own));
    *shape = own.shape;
    *dtype = own.dtype;
    return MG_OK;
}

static mg_status result_infer(mg_infer *f) {
    const mg_result_attrs *a = f->attrs;
    return mg_infer_result(f->inputs[0], (int)a->number, &f->shape, &f->dtype);
}

mg_tensor *mg_result(mg_tensor *of, int k) {
    const mg_result_attrs attrs = {.number = k};
    return mg_make("result", &attrs, 1, of);
}

/* ---- scan ---- */

/* The tensor of the op itself is never read: see mg_op.n_results. */
static mg_status scan_infer(mg_infer *f) {
    f->shape = MG_SHAPE(0);
    f->dtype = MG_F32;
    return MG_OK;
}

/* mg_result_count asks the loop. */
static int scan_results(const void *attrs) {
    (void)attrs;
    return 0;
}

static const mg_op loop_rows[] = {
    {.name = "result",
     .doc = "one of the results of an op that has several",
     .flags = MG_OP_HIDDEN | MG_OP_INTERNAL,
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_result_attrs, result_attrs),
     .infer = result_infer},
    {.name = "scan",
     .doc = "runs the body of a loop once per step",
     .flags = MG_OP_HIDDEN | MG_OP_INTERNAL,
     .min_inputs = 0,
     .max_inputs = 255,
     .n_results = scan_results,
     .infer = scan_infer},
};

const mg_op_family mg_ops_loop = {"loop", loop_rows, sizeof loop_rows / sizeof loop_rows[0]};
