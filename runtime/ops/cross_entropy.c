/* Cross-entropy between softmax(x) and targets, row by row. A row is a run along x's last axis: the
 * logits of C classes. The result has x's shape without that axis.
 *
 *     softmax_cross_entropy(x, t)             -sum(t log softmax(x)), t shaped like x
 *     sparse_softmax_cross_entropy(x, labels) -log softmax(x)[label], labels are 0-based integers
 *
 * Hidden ops compute the gradients w.r.t. x: dy (softmax(x) sum(t) - t); with labels, t is 1 at the
 * label and 0 elsewhere. For sum(t) = 1 this is the usual dy (softmax(x) - t).
 *
 * Edge cases. Dense: the sum is taken term by term, so a target of 0 where the logarithm is -inf
 * gives NaN, as 0 * -inf does. Sparse: other logits of -inf do no harm. A row whose label is
 * outside 0 .. C-1 has loss and gradient 0; kernels cannot raise, so the caller adds a guard. All
 * rows subtract their maximum before exp, so nothing overflows.
 *
 * All four ops can be split over devices along any axis but the classes. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>

/* ---- inference ---- */

/* The shape of one number per row: x without its last axis. */
static mg_shape shape_of_rows(const mg_shape *x) {
    mg_shape s = *x;
    s.dim[--s.rank] = 0;
    return s;
}

/* x must be floating point and have an axis for the classes. */
static mg_status check_logits(mg_infer *f) {
    MG_TRY(mg_infer_float(f, 0));
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: the classes");
}

/* MG_USAGE unless input i, called `name` in the message, has the wanted shape. */
static mg_status check_input_shape(const mg_infer *f, int i, const char *name,
                                   const mg_shape *wanted) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s for logits %s must have shape %s, got %s", name,
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(wanted),
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)));
}

/* Input 1 of the sparse ops: one integer for each row. */
static mg_status check_labels(const mg_infer *f) {
    const mg_shape rows = shape_of_rows(mg_infer_shape(f, 0));
    MG_TRY(mg_infer_integer(f, 1));
    return check_input_shape(f, 1, "labels", &rows);
}

/* Shape rules of the losses: one number per row, from inputs checked against the logits. */
static mg_status dense_loss_infer(mg_infer *f) {
    MG_TRY(check_logits(f));
    f->shape = shape_of_rows(mg_infer_shape(f, 0));
    return check_input_shape(f, 1, "targets", mg_infer_shape(f, 0));
}

static mg_status sparse_loss_infer(mg_infer *f) {
    MG_TRY(check_logits(f));
    f->shape = shape_of_rows(mg_infer_shape(f, 0));
    return check_labels(f);
}

/* Input 2 of the gradient ops: one number per row, in the dtype of x. Sets the result's shape to
 * that of x. */
static mg_status check_row_dy(mg_infer *f) {
    const mg_shape rows = shape_of_rows(mg_infer_shape(f, 0));
    f->shape = *mg_infer_shape(f, 0);
    if (f->inputs[2]->dtype != f->inputs[0]->dtype)
        return mg_infer_fail(f, MG_USAGE, "dy must have the dtype of x, %s, got %s",
                             mg_dtype_name((mg_dtype)f->inputs[0]->dtype),
                             mg_dtype_name((mg_dtype)f->inputs[2]->dtype));
    return check_input_shape(f, 2, "dy", &rows);
}

/* Shape rules of the gradient ops (x, targets, dy): the shape of x. */
static mg_status dense_loss_grad_infer(mg_infer *f) {
    MG_TRY(check_logits(f));
    MG_TRY(check_input_shape(f, 1, "targets", mg_infer_shape(f, 0)));
    return check_row_dy(f);
}

static mg_status sparse_loss_grad_infer(mg_infer *f) {
    MG_TRY(check_logits(f));
    MG_TRY(check_labels(f));
    return check_row_dy(f);
}

/* ---- reference kernels ---- */

/* One row of logits, with what its softmax needs. */
typedef struct logit_row {
    int64_t n;
    const double *x;
    double largest, sum; /* the largest x; the sum of exp(x - largest) */
} logit_row;

static int64_t row_count(const mg_ref *r) {
    const mg_shape rows = shape_of_rows(&r->in_shape[0]);
    return mg_shape_count(&rows);
}

/* Reads row i of input 0 twice: for the maximum, then for the sum. */
static logit_row logit_row_at(const mg_ref *r, int64_t i) {
    const mg_shape *s = &r->in_shape[0];
    logit_row w = {.n = s->dim[s->rank - 1], .largest = -INFINITY};
    w.x = r->in[0] + i * w.n;
    for (int64_t k = 0; k < w.n; k++) w.largest = fmax(w.largest, w.x[k]);
    for (int64_t k = 0; k < w.n; k++) w.sum += exp(w.x[k] - w.largest);
    return w;
}

/* log softmax(x) at class k. */
static double log_softmax_at(const logit_row *w, int64_t k) {
    return w->x[k] - w->largest - log(w->sum);
}

/* Term by term: a target of 0 times a logarithm of -inf is NaN, as it would be in a product of
 * tensors. */
static void dense_loss_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const logit_row w = logit_row_at(r, i);
        double total = 0;
        for (int64_t k = 0; k < w.n; k++) total += r->in[1][i * w.n + k] * log_softmax_at(&w, k);
        r->out[i] = -total;
    }
}

/* False for labels outside 0 .. C-1, whose rows have loss and gradient 0. */
static bool is_class(double label, const logit_row *w) {
    return label >= 0 && label < (double)w->n;
}

static void sparse_loss_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const logit_row w = logit_row_at(r, i);
        const double label = r->in[1][i];
        r->out[i] = is_class(label, &w) ? -log_softmax_at(&w, (int64_t)label) : 0;
    }
}

/* dy (softmax(x) sum(t) - t), element by element. */
static void dense_loss_grad_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const logit_row w = logit_row_at(r, i);
        const double *t = r->in[1] + i * w.n;
        double total = 0;
        for (int64_t k = 0; k < w.n; k++) total += t[k];
        for (int64_t k = 0; k < w.n; k++)
            r->out[i * w.n + k] = r->in[2][i] * (exp(w.x[k] - w.largest) / w.sum * total - t[k]);
    }
}

/* The same with t = 1 at the label; `total` is 0 in a row whose label is no class. */
static void sparse_loss_grad_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const logit_row w = logit_row_at(r, i);
        const double label = r->in[1][i], total = is_class(label, &w);
        for (int64_t k = 0; k < w.n; k++)
            r->out[i * w.n + k] =
                r->in[2][i] * (exp(w.x[k] - w.largest) / w.sum * total - ((double)k == label));
    }
}

/* ---- gradients ---- */

/* Attributes of the softmax ops that the gradients are built from. */
static const mg_axis_attrs last_axis = {.axis = -1};

static mg_tensor *make_softmax(mg_tensor *x) {
    return mg_make("softmax", &last_axis, 1, x);
}

static mg_tensor *make_log_softmax(mg_tensor *x) {
    return mg_make("log_softmax", &last_axis, 1, x);
}

/* The gradient w.r.t. x of a value whose gradient w.r.t. softmax(x) is g. */
static mg_tensor *softmax_backward(mg_tensor *x, mg_tensor *g) {
    return mg_make("softmax_grad", &last_axis, 2, make_softmax(x), g);
}

/* The sum of each row; keep: with the last axis kept as 1. */
static mg_tensor *sum_rows(mg_tensor *t, bool keep) {
    if (!t) return NULL;
    const mg_ints axes = {.n = 1, .v = {t->shape.rank - 1}};
    return reduce("sum", t, &axes, keep);
}

/* {rows} as {rows, 1}, to broadcast over the classes. */
static mg_tensor *as_column(mg_tensor *rows) {
    if (!rows) return NULL;
    mg_shape s = rows->shape;
    s.dim[s.rank++] = 1;
    return reshape(rows, &s);
}

/* The gradient w.r.t. t is -dy log softmax(x). */
static mg_tensor *dense_loss_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *t = y->inputs[1];
    if (i == 1) return neg(mul(as_column(dy), make_log_softmax(x)));
    return mg_make("softmax_cross_entropy_grad", NULL, 3, x, t, cast_like(dy, x));
}

static mg_tensor *sparse_loss_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    mg_tensor *x = y->inputs[0];
    return mg_make("sparse_softmax_cross_entropy_grad", NULL, 3, x, y->inputs[1], cast_like(dy, x));
}

/* The gradient of d w.r.t. dy. d is linear in dy, so this is the row sum of g times the op applied
 * to dy = 1. */
static mg_tensor *grad_by_dy(const mg_tensor *d, mg_tensor *g) {
    const mg_tensor *dy = d->inputs[2];
    mg_tensor *ones = full(1, (mg_dtype)dy->dtype, &dy->shape);
    return sum_rows(mul(g, mg_make(d->op->name, NULL, 3, d->inputs[0], d->inputs[1], ones)), false);
}

/* d = dy (softmax(x) sum(t) - t), g is the gradient w.r.t. d. The gradient w.r.t. x goes through
 * softmax; the gradient w.r.t. t has a part from each term. */
static mg_tensor *dense_loss_grad_grad(mg_tensor *d, mg_tensor *g, int i) {
    mg_tensor *x = d->inputs[0], *t = d->inputs[1], *dy = as_column(d->inputs[2]);
    if (i == 0) return softmax_backward(x, mul(g, mul(dy, sum_rows(t, true))));
    if (i == 1) return mul(dy, sub(sum_rows(mul(g, make_softmax(x)), true), g));
    return grad_by_dy(d, g);
}

/* As above with sum(t) = 1, or 0 in rows whose label is no class. */
static mg_tensor *sparse_loss_grad_grad(mg_tensor *d, mg_tensor *g, int i) {
    mg_tensor *x = d->inputs[0], *labels = cast(d->inputs[1], MG_I64), *dy = d->inputs[2];
    if (i == 2) return grad_by_dy(d, g);
    mg_tensor *classes = constant((double)x->shape.dim[x->shape.rank - 1], labels);
    mg_tensor *good = binary("logical_and", binary("ge", labels, constant(0, labels)),
                             binary("lt", labels, classes));
    return softmax_backward(x, mul(g, as_column(where(good, dy, constant(0, dy)))));
}

/* ---- splitting ---- */

/* All inputs and the result are split along the same axis of the rows. */
static bool cross_entropy_split(mg_split *s) {
    int axis = -1;
    for (int i = 0; i < s->n_inputs && axis < 0; i++) axis = s->given[i];
    if (axis < 0 || axis == s->in_shape[0]->rank - 1) return false;
    for (int i = 0; i < s->n_inputs; i++) s->in[i] = axis;
    s->out = axis;
    return true;
}

/* ---- the op table ---- */

static const mg_op cross_entropy_rows[] = {
    {.name = "softmax_cross_entropy",
     .doc = "-sum(t log softmax(x)) over the last axis, with targets t of x's shape",
     .example = "local logits, targets = mgpu.tensor { { 2, 0 }, { 9, 9 } }, mgpu.tensor { { 1, 0 "
                "}, { 0.5, 0.5 } }\n"
                "print(logits:softmax_cross_entropy(targets)) -- a loss for each row\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {0.1269..., 0.6931...}",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE,
     .infer = dense_loss_infer,
     .grad = dense_loss_grad,
     .split = cross_entropy_split,
     .ref = dense_loss_ref},
    {.name = "softmax_cross_entropy_grad",
     .doc = "gradient of softmax_cross_entropy by x, from x, t and dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_HIDDEN,
     .infer = dense_loss_grad_infer,
     .grad = dense_loss_grad_grad,
     .split = cross_entropy_split,
     .ref = dense_loss_grad_ref},
    {.name = "sparse_softmax_cross_entropy",
     .doc = "-log softmax(x) over the last axis at 0-based labels; 0 where there is no such class",
     .example = "local logits, labels = mgpu.tensor { { 2, 0 }, { 2, 0 } }, mgpu.tensor({ 0, 1 }, "
                "{ dtype = \"int32\" })\n"
                "print(logits:sparse_softmax_cross_entropy(labels)) -- small where the label has "
                "the largest logit\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {0.1269..., 2.1269...}",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = sparse_loss_infer,
     .grad = sparse_loss_grad,
     .split = cross_entropy_split,
     .ref = sparse_loss_ref},
    {.name = "sparse_softmax_cross_entropy_grad",
     .doc = "gradient of sparse_softmax_cross_entropy by x, from x, labels and dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_HIDDEN,
     .infer = sparse_loss_grad_infer,
     .grad = sparse_loss_grad_grad,
     .split = cross_entropy_split,
     .ref = sparse_loss_grad_ref},
};

const mg_op_family mg_ops_cross_entropy = {
    "cross_entropy", cross_entropy_rows, sizeof cross_entropy_rows / sizeof cross_entropy_rows[0]};
