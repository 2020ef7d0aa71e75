/* Cross-entropy of the softmax of each row, the run of x's last axis (C logits), with targets t.
 *
 * softmax_cross_entropy(x, t): -sum(t log softmax(x)), one number a row, term by term: a target of
 * 0 where the logarithm is -inf gives NaN, as 0 * -inf does. sparse_softmax_cross_entropy(x,
 * labels): -log softmax(x) at the label, whatever the other logits are; a row whose label is not in
 * 0 .. C-1 has loss and gradient 0 (the caller guards). The gradients by x, dy (softmax(x) sum(t) -
 * t) with t as given or 1 at the label, are ops too. All rows shift by their maximum, so that
 * nothing overflows. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>

/* ---- inference ---- */

/* The shape of one number a row. */
static mg_shape rows_of(const mg_shape *x) {
    mg_shape s = *x;
    s.dim[--s.rank] = 0;
    return s;
}

static mg_status check_x(mg_infer *f) {
    MG_TRY(mg_infer_float(f, 0));
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: that of the classes");
}

static mg_status check_shape(const mg_infer *f, int i, const char *name, const mg_shape *wanted) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s for logits %s must have shape %s, got %s", name,
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(wanted),
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)));
}

static mg_status check_labels(const mg_infer *f) {
    const mg_shape rows = rows_of(mg_infer_shape(f, 0));
    MG_TRY(mg_infer_integer(f, 1));
    return check_shape(f, 1, "labels", &rows);
}

static mg_status dense_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    f->shape = rows_of(mg_infer_shape(f, 0));
    return check_shape(f, 1, "targets", mg_infer_shape(f, 0));
}

static mg_status sparse_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    f->shape = rows_of(mg_infer_shape(f, 0));
    return check_labels(f);
}

static mg_status check_dy(mg_infer *f) {
    const mg_shape rows = rows_of(mg_infer_shape(f, 0));
    f->shape = *mg_infer_shape(f, 0);
    if (f->inputs[2]->dtype != f->inputs[0]->dtype)
        return mg_infer_fail(f, MG_USAGE, "dy must have the dtype of x");
    return check_shape(f, 2, "dy", &rows);
}

static mg_status dense_grad_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    MG_TRY(check_shape(f, 1, "targets", mg_infer_shape(f, 0)));
    return check_dy(f);
}

static mg_status sparse_grad_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    MG_TRY(check_labels(f));
    return check_dy(f);
}

/* ---- reference kernels ---- */

typedef struct row {
    int64_t n;
    const double *x;
    double largest, sum; /* of x; of exp(x - largest) */
} row;

static int64_t row_count(const mg_ref *r) {
    const mg_shape rows = rows_of(&r->in_shape[0]);
    return mg_shape_count(&rows);
}

static row row_at(const mg_ref *r, int64_t i) {
    const mg_shape *s = &r->in_shape[0];
    row w = {.n = s->dim[s->rank - 1], .largest = -INFINITY};
    w.x = r->in[0] + i * w.n;
    for (int64_t k = 0; k < w.n; k++) w.largest = fmax(w.largest, w.x[k]);
    for (int64_t k = 0; k < w.n; k++) w.sum += exp(w.x[k] - w.largest);
    return w;
}

static double log_softmax_at(const row *w, int64_t k) {
    return w->x[k] - w->largest - log(w->sum);
}

static void dense_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const row w = row_at(r, i);
        double total = 0;
        for (int64_t k = 0; k < w.n; k++) total += r->in[1][i * w.n + k] * log_softmax_at(&w, k);
        r->out[i] = -total;
    }
}

static bool is_class(double label, const row *w) {
    return label >= 0 && label < (double)w->n;
}

static void sparse_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const row w = row_at(r, i);
        const double label = r->in[1][i];
        r->out[i] = is_class(label, &w) ? -log_softmax_at(&w, (int64_t)label) : 0;
    }
}

static void dense_grad_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const row w = row_at(r, i);
        const double *t = r->in[1] + i * w.n;
        double total = 0;
        for (int64_t k = 0; k < w.n; k++) total += t[k];
        for (int64_t k = 0; k < w.n; k++)
            r->out[i * w.n + k] = r->in[2][i] * (exp(w.x[k] - w.largest) / w.sum * total - t[k]);
    }
}

static void sparse_grad_ref(const mg_ref *r) {
    const int64_t count = row_count(r);
    for (int64_t i = 0; i < count; i++) {
        const row w = row_at(r, i);
        const double label = r->in[1][i], total = is_class(label, &w);
        for (int64_t k = 0; k < w.n; k++)
            r->out[i * w.n + k] =
                r->in[2][i] * (exp(w.x[k] - w.largest) / w.sum * total - ((double)k == label));
    }
}

/* ---- gradients ---- */

static const mg_axis_attrs last = {.axis = -1};

static mg_tensor *softmax(mg_tensor *x) {
    return mg_make("softmax", &last, 1, x);
}

static mg_tensor *log_softmax(mg_tensor *x) {
    return mg_make("log_softmax", &last, 1, x);
}

/* softmax's gradient by x. */
static mg_tensor *through_softmax(mg_tensor *x, mg_tensor *g) {
    return mg_make("softmax_grad", &last, 2, softmax(x), g);
}

static mg_tensor *sum_rows(mg_tensor *t, bool keep) {
    if (!t) return NULL;
    const mg_ints axes = {.n = 1, .v = {t->shape.rank - 1}};
    return reduce("sum", t, &axes, keep);
}

/* One number a row, to go with the row's. */
static mg_tensor *column(mg_tensor *rows) {
    if (!rows) return NULL;
    mg_shape s = rows->shape;
    s.dim[s.rank++] = 1;
    return reshape(rows, &s);
}

static mg_tensor *dense_gradient(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *t = y->inputs[1];
    if (i == 1) return neg(mul(column(dy), log_softmax(x)));
    return mg_make("softmax_cross_entropy_grad", NULL, 3, x, t, cast_like(dy, x));
}

static mg_tensor *sparse_gradient(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    mg_tensor *x = y->inputs[0];
    return mg_make("sparse_softmax_cross_entropy_grad", NULL, 3, x, y->inputs[1], cast_like(dy, x));
}

/* By dy, in which both gradients are linear. */
static mg_tensor *by_dy(const mg_tensor *d, mg_tensor *g) {
    const mg_tensor *dy = d->inputs[2];
    mg_tensor *ones = full(1, (mg_dtype)dy->dtype, &dy->shape);
    return sum_rows(mul(g, mg_make(d->op->name, NULL, 3, d->inputs[0], d->inputs[1], ones)), false);
}

static mg_tensor *dense_grad_gradient(mg_tensor *d, mg_tensor *g, int i) {
    mg_tensor *x = d->inputs[0], *t = d->inputs[1], *dy = column(d->inputs[2]);
    if (i == 0) return through_softmax(x, mul(g, mul(dy, sum_rows(t, true))));
    if (i == 1) return mul(dy, sub(sum_rows(mul(g, softmax(x)), true), g));
    return by_dy(d, g);
}

/* Rows without a class have no gradient. */
static mg_tensor *sparse_grad_gradient(mg_tensor *d, mg_tensor *g, int i) {
    mg_tensor *x = d->inputs[0], *labels = cast(d->inputs[1], MG_I64), *dy = d->inputs[2];
    if (i == 2) return by_dy(d, g);
    mg_tensor *classes = constant((double)x->shape.dim[x->shape.rank - 1], labels);
    mg_tensor *good = binary("logical_and", binary("ge", labels, constant(0, labels)),
                             binary("lt", labels, classes));
    return through_softmax(x, mul(g, column(where(good, dy, constant(0, dy)))));
}

/* ---- splitting ---- */

/* All have the rows' axes in common. */
static bool rows_split(mg_split *s) {
    int axis = -1;
    for (int i = 0; i < s->n_inputs && axis < 0; i++) axis = s->given[i];
    if (axis < 0 || axis == s->in_shape[0]->rank - 1) return false;
    for (int i = 0; i < s->n_inputs; i++) s->in[i] = axis;
    s->out = axis;
    return true;
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "softmax_cross_entropy",
     .doc = "-sum(t log softmax(x)) over the last axis, with targets t of x's shape",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE,
     .infer = dense_infer,
     .grad = dense_gradient,
     .split = rows_split,
     .ref = dense_ref},
    {.name = "softmax_cross_entropy_grad",
     .doc = "gradient of softmax_cross_entropy by x, from x, t and dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_HIDDEN,
     .infer = dense_grad_infer,
     .grad = dense_grad_gradient,
     .split = rows_split,
     .ref = dense_grad_ref},
    {.name = "sparse_softmax_cross_entropy",
     .doc = "-log softmax(x) over the last axis at 0-based labels; 0 where there is no such class",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = sparse_infer,
     .grad = sparse_gradient,
     .split = rows_split,
     .ref = sparse_ref},
    {.name = "sparse_softmax_cross_entropy_grad",
     .doc = "gradient of sparse_softmax_cross_entropy by x, from x, labels and dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_HIDDEN,
     .infer = sparse_grad_infer,
     .grad = sparse_grad_gradient,
     .split = rows_split,
     .ref = sparse_grad_ref},
};

const mg_op_family mg_ops_cross_entropy = {"cross_entropy", rows, sizeof rows / sizeof rows[0]};
