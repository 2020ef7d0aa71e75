/* Normalisation of each row, the run of x's last axis (C numbers), by its own mean and variance.
 *
 * layer_norm(x, gamma, beta): xhat * gamma + beta with xhat = (x - mean) / sqrt(variance +
 * epsilon). layer_norm_grad(x, gamma, dy): the gradient with respect to x, A (dy gamma) with the
 * symmetric A v = (v - mean(v) - xhat mean(xhat v)) / sqrt(variance + epsilon).
 * layer_norm_reduce(x, dy) {2, C}: the sums of dy and of dy * xhat over the rows. All three are
 * made of one another and of element-wise work when they are differentiated. x and dy may be
 * halves, beside a float32 gamma, beta and sums; the work is done in float32 then. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr norm_table[] = {
    {"epsilon", MG_ATTR_NUMBER, offsetof(mg_norm_attrs, epsilon), 1e-3, NULL,
     "added to the variance"},
};

/* ---- inference ---- */

static mg_status check_x(const mg_infer *f) {
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: that of the numbers of a row");
}

static mg_status check_shape(const mg_infer *f, int i, const char *name, const mg_shape *wanted) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s of x %s must have shape %s, got %s", name,
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(wanted),
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)));
}

static mg_shape row_shape(const mg_shape *x) {
    return MG_SHAPE(x->dim[x->rank - 1]);
}

static mg_status layer_norm_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    f->shape = *mg_infer_shape(f, 0);
    const mg_shape row = row_shape(&f->shape);
    MG_TRY(check_shape(f, 1, "gamma", &row));
    return check_shape(f, 2, "beta", &row);
}

static mg_status grad_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    f->shape = *mg_infer_shape(f, 0);
    const mg_shape row = row_shape(&f->shape);
    MG_TRY(check_shape(f, 1, "gamma", &row));
    return check_shape(f, 2, "dy", &f->shape);
}

static mg_status reduce_infer(mg_infer *f) {
    MG_TRY(check_x(f));
    const mg_shape *x = mg_infer_shape(f, 0);
    f->shape = MG_SHAPE(2, x->dim[x->rank - 1]);
    if (mg_dtype_is_half(f->dtype)) f->dtype = MG_F32; /* sums of halves */
    return check_shape(f, 1, "dy", x);
}

/* ---- reference kernels ---- */

typedef struct row {
    double mean, inverse; /* 1 / sqrt(variance + epsilon) */
} row;

static row row_of(const mg_ref *r, const double *x, int64_t c) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < c; j++) sum += x[j];
    const double mean = sum / (double)c;
    for (int64_t j = 0; j < c; j++) squares += (x[j] - mean) * (x[j] - mean);
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    return (row){mean, 1 / sqrt(squares / (double)c + epsilon)};
}

static int64_t row_length(const mg_ref *r) {
    return row_shape(&r->in_shape[0]).dim[0];
}

static void layer_norm_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i += c) {
        const row w = row_of(r, r->in[0] + i, c);
        for (int64_t j = 0; j < c; j++)
            r->out[i + j] = (r->in[0][i + j] - w.mean) * w.inverse * r->in[1][j] + r->in[2][j];
    }
}

static void grad_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i += c) {
        const double *x = r->in[0] + i, *gamma = r->in[1], *dy = r->in[2] + i;
        const row w = row_of(r, x, c);
        double sum = 0, product = 0;
        for (int64_t j = 0; j < c; j++) {
            sum += dy[j] * gamma[j];
            product += dy[j] * gamma[j] * (x[j] - w.mean) * w.inverse;
        }
        for (int64_t j = 0; j < c; j++)
            r->out[i + j] = w.inverse * (dy[j] * gamma[j] - sum / (double)c -
                                         (x[j] - w.mean) * w.inverse * product / (double)c);
    }
}

static void reduce_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->in_shape[0]);
    for (int64_t j = 0; j < 2 * c; j++) r->out[j] = 0;
    for (int64_t i = 0; i < count; i += c) {
        const double *x = r->in[0] + i, *dy = r->in[1] + i;
        const row w = row_of(r, x, c);
        for (int64_t j = 0; j < c; j++) {
            r->out[j] += dy[j];
            r->out[c + j] += dy[j] * (x[j] - w.mean) * w.inverse;
        }
    }
}

/* ---- gradients ---- */

/* Row i of {2, C}, as {C}. */
static mg_tensor *half(mg_tensor *t, int i) {
    if (!t) return NULL;
    const int64_t c = t->shape.dim[1];
    const mg_slice_attrs attrs = {.start = {.n = 2, .v = {i, 0}},
                                  .stop = {.n = 2, .v = {i + 1, c}}};
    const mg_shape flat = MG_SHAPE(c);
    return reshape(mg_make("slice", &attrs, 1, t), &flat);
}

static mg_tensor *sum_of_rows(mg_tensor *t) {
    if (!t) return NULL;
    const mg_ints last = {.n = 1, .v = {t->shape.rank - 1}};
    return reduce("sum", t, &last, true);
}

static mg_tensor *mean_of_rows(mg_tensor *t) {
    return t ? scale(sum_of_rows(t), 1 / (double)t->shape.dim[t->shape.rank - 1]) : NULL;
}

static mg_tensor *like_a_row(double v, const mg_tensor *x) {
    const mg_shape shape = row_shape(&x->shape);
    return full(v, x->dtype, &shape);
}

/* A v and xhat, of the x and epsilon of `t`. */
static mg_tensor *apply(const mg_tensor *t, mg_tensor *gamma, mg_tensor *v) {
    return mg_make("layer_norm_grad", t->attrs, 3, t->inputs[0], gamma, v);
}

static mg_tensor *normalised(const mg_tensor *t) {
    mg_tensor *x = t->inputs[0];
    return mg_make("layer_norm", t->attrs, 3, x, like_a_row(1, x), like_a_row(0, x));
}

static mg_tensor *layer_norm_grad(mg_tensor *y, mg_tensor *dy, int i) {
    if (i == 0) return apply(y, y->inputs[1], dy);
    mg_tensor *sums = mg_make("layer_norm_reduce", y->attrs, 2, y->inputs[0], dy);
    return half(sums, i == 1 ? 1 : 0);
}

/* Of v A q = s (v q - mean(v) sum(q) - (xhat v) (xhat q) / C), where products are sums over the row
 * and s = 1 / sqrt(variance + epsilon): d s = -s^2 xhat / C and d (xhat u) = A u. */
static mg_tensor *grad_of_x(mg_tensor *d, mg_tensor *v) {
    mg_tensor *x = d->inputs[0], *q = mul(d->inputs[2], d->inputs[1]);
    const double share = 1 / (double)row_shape(&x->shape).dim[0];
    mg_tensor *xhat = normalised(d), *ones = like_a_row(1, x);
    mg_tensor *variance = mean_of_rows(square(sub(x, mean_of_rows(x))));
    mg_tensor *s = rsqrt(shift(variance, ((const mg_norm_attrs *)d->attrs)->epsilon));
    mg_tensor *xv = sum_of_rows(mul(xhat, v)), *xq = sum_of_rows(mul(xhat, q));
    mg_tensor *rest = sub(sum_of_rows(mul(v, q)), mul(mean_of_rows(v), sum_of_rows(q)));
    rest = sub(rest, scale(mul(xv, xq), share));
    mg_tensor *by_s = mul(scale(mul(square(s), rest), -share), xhat);
    mg_tensor *by_xhat = add(mul(xq, apply(d, ones, v)), mul(xv, d));
    return sub(by_s, mul(scale(s, share), by_xhat));
}

static mg_tensor *grad_grad(mg_tensor *d, mg_tensor *v, int i) {
    mg_tensor *gamma = d->inputs[1], *dy = d->inputs[2];
    if (i == 0) return grad_of_x(d, v);
    mg_tensor *turned = apply(d, like_a_row(1, d->inputs[0]), v);
    return i == 2 ? mul(turned, gamma) : sum_to(mul(turned, dy), &gamma->shape);
}

/* s0 = sum dy, s1 = sum dy * xhat; g holds the gradients of both. */
static mg_tensor *reduce_grad(mg_tensor *s, mg_tensor *g, int i) {
    if (i == 0) return apply(s, half(g, 1), s->inputs[1]);
    return add(mul(normalised(s), half(g, 1)), half(g, 0));
}

/* ---- split rules ---- */

/* By any axis but the rows' own. */
static bool layer_norm_split(mg_split *s) {
    return mg_split_except(s, s->shape->rank - 1);
}

static bool grad_split(mg_split *s) {
    const int axis = s->given[0] >= 0 ? s->given[0] : s->given[2];
    if (axis < 0 || axis == s->shape->rank - 1) return false;
    s->out = s->in[0] = s->in[2] = axis;
    return true;
}

static bool reduce_split(mg_split *s) {
    return s->in_shape[0]->rank > 1 && mg_split_rows(s, 3, MG_PARTIAL_SUM);
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "layer_norm",
     .doc = "(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis of x",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = layer_norm_infer,
     .grad = layer_norm_grad,
     .split = layer_norm_split,
     .ref = layer_norm_ref},
    {.name = "layer_norm_grad",
     .doc = "gradient of layer_norm with respect to x, from x, gamma, dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT | MG_OP_HIDDEN,
     .data = 1 | 4,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = grad_infer,
     .grad = grad_grad,
     .split = grad_split,
     .ref = grad_ref},
    {.name = "layer_norm_reduce",
     .doc = "{2, C}: sums over the rows of dy and of dy times the normalised x, from x, dy",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT | MG_OP_HIDDEN,
     .data = 1 | 2,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = reduce_infer,
     .grad = reduce_grad,
     .split = reduce_split,
     .ref = reduce_ref},
};

const mg_op_family mg_ops_layer_norm = {"layer_norm", rows, sizeof rows / sizeof rows[0]};
