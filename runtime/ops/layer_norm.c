/* Layer normalization: each row, a run of C numbers along x's last axis, is normalized by its own
 * mean and variance.
 *
 *     layer_norm(x, gamma, beta)   xhat gamma + beta, xhat = (x - mean) s,
 *                                  s = 1 / sqrt(variance + epsilon)
 *     layer_norm_grad(x, gamma, dy)  the gradient w.r.t. x: A (dy gamma), where each row has its
 *                                    symmetric matrix A v = s (v - mean(v) - xhat mean(xhat v))
 *     layer_norm_reduce(x, dy) {2, C}  sums over all rows. Row 0: of dy, row 1: of dy xhat (the
 *                                    gradients w.r.t. beta and gamma)
 *
 * The last two are hidden ops because devices have kernels for them. Gradients of all three are
 * built from the three and element-wise ops, so gradients of any order exist.
 *
 * Splitting: any axis but the last, since rows are independent; layer_norm_reduce makes terms of a
 * sum. x and dy may be float16 or bfloat16 (the row's `data` bits): gamma, beta and the sums are
 * float32 then, and so is the arithmetic. */
#include "ops/norm.h"
#include "ops/ops.h"
#include <math.h>

/* ---- inference ---- */

static mg_status check_has_row_axis(const mg_infer *f) {
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: the numbers of a row");
}

/* MG_USAGE unless input i, called `name` in the message, has the wanted shape. */
static mg_status check_input_shape(const mg_infer *f, int i, const char *name,
                                   const mg_shape *wanted) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s of x %s must have shape %s, got %s", name,
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(wanted),
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)));
}

/* {C}: the shape of gamma and beta. */
static mg_shape row_shape(const mg_shape *x) {
    return MG_SHAPE(x->dim[x->rank - 1]);
}

static mg_status layer_norm_infer(mg_infer *f) {
    MG_TRY(check_has_row_axis(f));
    f->shape = *mg_infer_shape(f, 0);
    const mg_shape row = row_shape(&f->shape);
    MG_TRY(check_input_shape(f, 1, "gamma", &row));
    return check_input_shape(f, 2, "beta", &row);
}

/* Shape rule of layer_norm_grad(x, gamma, dy): the shape of x. */
static mg_status layer_norm_grad_infer(mg_infer *f) {
    MG_TRY(check_has_row_axis(f));
    f->shape = *mg_infer_shape(f, 0);
    const mg_shape row = row_shape(&f->shape);
    MG_TRY(check_input_shape(f, 1, "gamma", &row));
    return check_input_shape(f, 2, "dy", &f->shape);
}

/* Shape rule of layer_norm_reduce(x, dy): two sums for each position in a row. */
static mg_status layer_norm_reduce_infer(mg_infer *f) {
    MG_TRY(check_has_row_axis(f));
    const mg_shape *x = mg_infer_shape(f, 0);
    f->shape = MG_SHAPE(2, x->dim[x->rank - 1]);
    if (mg_dtype_is_half(f->dtype)) f->dtype = MG_F32; /* sums of 16-bit floats */
    return check_input_shape(f, 1, "dy", x);
}

/* ---- reference kernels ---- */

typedef struct row_statistics {
    double mean, inverse; /* 1 / sqrt(variance + epsilon) */
} row_statistics;

/* Statistics of the c numbers at x, in two passes: the variance from x - mean. */
static row_statistics row_statistics_of(const mg_ref *r, const double *x, int64_t c) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < c; j++) sum += x[j];
    const double mean = sum / (double)c;
    for (int64_t j = 0; j < c; j++) squares += (x[j] - mean) * (x[j] - mean);
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    return (row_statistics){mean, 1 / sqrt(squares / (double)c + epsilon)};
}

static int64_t row_length(const mg_ref *r) {
    return row_shape(&r->in_shape[0]).dim[0];
}

static void layer_norm_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i += c) {
        const row_statistics w = row_statistics_of(r, r->in[0] + i, c);
        for (int64_t j = 0; j < c; j++)
            r->out[i + j] = (r->in[0][i + j] - w.mean) * w.inverse * r->in[1][j] + r->in[2][j];
    }
}

/* s (v - mean(v) - xhat mean(xhat v)) with v = dy gamma, row by row. */
static void layer_norm_grad_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i += c) {
        const double *x = r->in[0] + i, *gamma = r->in[1], *dy = r->in[2] + i;
        const row_statistics w = row_statistics_of(r, x, c);
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

static void layer_norm_reduce_ref(const mg_ref *r) {
    const int64_t c = row_length(r), count = mg_shape_count(&r->in_shape[0]);
    for (int64_t j = 0; j < 2 * c; j++) r->out[j] = 0;
    for (int64_t i = 0; i < count; i += c) {
        const double *x = r->in[0] + i, *dy = r->in[1] + i;
        const row_statistics w = row_statistics_of(r, x, c);
        for (int64_t j = 0; j < c; j++) {
            r->out[j] += dy[j];
            r->out[c + j] += dy[j] * (x[j] - w.mean) * w.inverse;
        }
    }
}

/* ---- gradients ---- */

/* The sum of each row, with the last axis kept as 1. */
static mg_tensor *sum_of_rows(mg_tensor *t) {
    if (!t) return NULL;
    const mg_ints last = {.n = 1, .v = {t->shape.rank - 1}};
    return reduce("sum", t, &last, true);
}

static mg_tensor *mean_of_rows(mg_tensor *t) {
    return t ? scale(sum_of_rows(t), 1 / (double)t->shape.dim[t->shape.rank - 1]) : NULL;
}

/* A row {C} of the number v, in the dtype of x. */
static mg_tensor *constant_row(double v, const mg_tensor *x) {
    const mg_shape shape = row_shape(&x->shape);
    return full(v, x->dtype, &shape);
}

/* A (v gamma) for the rows of x; x and epsilon are those of `t`, one of the three ops. */
static mg_tensor *make_layer_norm_grad(const mg_tensor *t, mg_tensor *gamma, mg_tensor *v) {
    return mg_make("layer_norm_grad", t->attrs, 3, t->inputs[0], gamma, v);
}

/* xhat for the x and epsilon of `t`: layer_norm with gamma 1 and beta 0. */
static mg_tensor *make_xhat(const mg_tensor *t) {
    mg_tensor *x = t->inputs[0];
    return mg_make("layer_norm", t->attrs, 3, x, constant_row(1, x), constant_row(0, x));
}

/* W.r.t. x: A (dy gamma). W.r.t. gamma and beta: the two rows of layer_norm_reduce (Ba, Kiros and
 * Hinton, 2016). */
static mg_tensor *layer_norm_gradient(mg_tensor *y, mg_tensor *dy, int i) {
    if (i == 0) return make_layer_norm_grad(y, y->inputs[1], dy);
    mg_tensor *sums = mg_make("layer_norm_reduce", y->attrs, 2, y->inputs[0], dy);
    return mg_pair_row(sums, i == 1 ? 1 : 0);
}

/* The gradient of d w.r.t. x. d = A q with q = dy gamma; v is the gradient w.r.t. d. With sums over
 * the row,
 *
 *     v . A q = s (v . q - mean(v) sum(q) - (xhat . v) (xhat . q) / C)
 *
 * depends on x through s and xhat: the gradient of s is -s^2 xhat / C, the gradient of xhat . u is
 * A u. */
static mg_tensor *layer_norm_grad_by_x(mg_tensor *d, mg_tensor *v) {
    mg_tensor *x = d->inputs[0], *q = mul(d->inputs[2], d->inputs[1]);
    const double share = 1 / (double)row_shape(&x->shape).dim[0];
    mg_tensor *xhat = make_xhat(d), *ones = constant_row(1, x);
    mg_tensor *variance = mean_of_rows(square(sub(x, mean_of_rows(x))));
    mg_tensor *s = rsqrt(shift(variance, ((const mg_norm_attrs *)d->attrs)->epsilon));
    mg_tensor *xv = sum_of_rows(mul(xhat, v)), *xq = sum_of_rows(mul(xhat, q));
    mg_tensor *rest = sub(sum_of_rows(mul(v, q)), mul(mean_of_rows(v), sum_of_rows(q)));
    rest = sub(rest, scale(mul(xv, xq), share));
    mg_tensor *by_s = mul(scale(mul(square(s), rest), -share), xhat);
    mg_tensor *by_xhat = add(mul(xq, make_layer_norm_grad(d, ones, v)), mul(xv, d));
    return sub(by_s, mul(scale(s, share), by_xhat));
}

/* A is symmetric: the gradient w.r.t. q = dy gamma is A v, and the gradients w.r.t. dy and gamma
 * follow from it. */
static mg_tensor *layer_norm_grad_grad(mg_tensor *d, mg_tensor *v, int i) {
    mg_tensor *gamma = d->inputs[1], *dy = d->inputs[2];
    if (i == 0) return layer_norm_grad_by_x(d, v);
    mg_tensor *turned = make_layer_norm_grad(d, constant_row(1, d->inputs[0]), v);
    return i == 2 ? mul(turned, gamma) : sum_to(mul(turned, dy), &gamma->shape);
}

/* s0 = sum(dy), s1 = sum(dy xhat); g {2, C} holds the gradients of both. */
static mg_tensor *layer_norm_reduce_grad(mg_tensor *s, mg_tensor *g, int i) {
    if (i == 0) return make_layer_norm_grad(s, mg_pair_row(g, 1), s->inputs[1]);
    return add(mul(make_xhat(s), mg_pair_row(g, 1)), mg_pair_row(g, 0));
}

/* ---- split rules ---- */

/* x may be split along any axis but the last; gamma and beta are whole. */
static bool layer_norm_split(mg_split *s) {
    return mg_split_except(s, s->shape->rank - 1);
}

/* x and dy (inputs 0 and 2) are split along the same axis. */
static bool layer_norm_grad_split(mg_split *s) {
    const int axis = s->given[0] >= 0 ? s->given[0] : s->given[2];
    if (axis < 0 || axis == s->shape->rank - 1) return false;
    s->out = s->in[0] = s->in[2] = axis;
    return true;
}

/* x and dy are split by rows; each device makes a term of the sums. */
static bool layer_norm_reduce_split(mg_split *s) {
    return s->in_shape[0]->rank > 1 && mg_split_rows(s, 3, MG_PARTIAL_SUM);
}

/* ---- the op table ---- */

static const mg_op layer_norm_rows[] = {
    {.name = "layer_norm",
     .doc = "(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis of x",
     .example =
         "local x, gamma, beta = mgpu.tensor { { 1, 3 }, { 10, 30 } }, mgpu.ones { 2 }, mgpu.zeros "
         "{ 2 }\n"
         "print(x:layer_norm(gamma, beta, { epsilon = 0 })) -- each row: mean 0, variance 1\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{-1,  1},\n"
         "-->  {-1,  1}}",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     MG_ATTRS(mg_norm_attrs, mg_norm_attr_table),
     .infer = layer_norm_infer,
     .grad = layer_norm_gradient,
     .split = layer_norm_split,
     .ref = layer_norm_ref},
    {.name = "layer_norm_grad",
     .doc = "gradient of layer_norm with respect to x, from x, gamma, dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT | MG_OP_HIDDEN,
     .data = 1 | 4,
     MG_ATTRS(mg_norm_attrs, mg_norm_attr_table),
     .infer = layer_norm_grad_infer,
     .grad = layer_norm_grad_grad,
     .split = layer_norm_grad_split,
     .ref = layer_norm_grad_ref},
    {.name = "layer_norm_reduce",
     .doc = "{2, C}: sums over the rows of dy and of dy times the normalised x, from x, dy",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT | MG_OP_HIDDEN,
     .data = 1 | 2,
     MG_ATTRS(mg_norm_attrs, mg_norm_attr_table),
     .infer = layer_norm_reduce_infer,
     .grad = layer_norm_reduce_grad,
     .split = layer_norm_reduce_split,
     .ref = layer_norm_reduce_ref},
};

const mg_op_family mg_ops_layer_norm = {"layer_norm", layer_norm_rows,
                                        sizeof layer_norm_rows / sizeof layer_norm_rows[0]};
