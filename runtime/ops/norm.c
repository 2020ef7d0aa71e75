/* Normalisation over all axes but the last: moments, batch_norm, batch_norm_reduce.
 *
 * Rows of {2, C} results: moments = mean, biased variance; batch_norm_reduce = sum of dy, sum of
 * dy x_hat. The gradient of batch_norm by x holds the moments fixed; what flows through them comes
 * back by the gradient of `moments`, so both add up to the usual formula (Ioffe & Szegedy 2015) in
 * one fused pass. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>
#include <string.h>

static int64_t channels(const mg_shape *x) {
    return x->dim[x->rank - 1];
}

static int64_t rows_of(const mg_shape *x) {
    return channels(x) ? mg_shape_count(x) / channels(x) : 0;
}

/* Row i of a {2, C} tensor, as {C}. */
static mg_tensor *row(mg_tensor *pair, int i) {
    if (!pair) return NULL;
    const int64_t c = pair->shape.dim[1];
    const mg_slice_attrs part = {.start = {.n = 2, .v = {i, 0}},
                                 .stop = {.n = 2, .v = {i + 1, c}},
                                 .step = {.n = 2, .v = {1, 1}}};
    const mg_shape line = MG_SHAPE(c);
    return reshape(mg_make("slice", &part, 1, pair), &line);
}

static mg_tensor *pair_of(mg_tensor *a, mg_tensor *b) {
    if (!a || !b) return NULL;
    const mg_shape line = MG_SHAPE(1, a->shape.dim[0]);
    return mg_make("concat", &(mg_axis_attrs){0}, 2, reshape(a, &line), reshape(b, &line));
}

/* ---- moments ---- */

static mg_status moments_infer(mg_infer *f) {
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(mg_infer_float(f, 0));
    if (x->rank < 2)
        return mg_infer_fail(f, MG_USAGE, "needs at least 2 axes, got shape %s", MG_SHAPE_TEXT(x));
    if (rows_of(x) == 0)
        return mg_infer_fail(f, MG_USAGE, "shape %s has no rows to average", MG_SHAPE_TEXT(x));
    f->shape = MG_SHAPE(2, channels(x));
    return MG_OK;
}

/* dx = dmean / n + 2 (x - mean) dvar / n */
static mg_tensor *moments_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[i];
    const double n = (double)rows_of(&x->shape);
    mg_tensor *slope = scale(row(dy, 1), 2 / n);
    return add(mul(sub(x, row(y, 0)), slope), scale(row(dy, 0), 1 / n));
}

static void moments_ref(const mg_ref *r) {
    const int64_t c = channels(&r->in_shape[0]), n = rows_of(&r->in_shape[0]);
    double *mean = r->out, *variance = r->out + c;
    memset(r->out, 0, 2 * (size_t)c * sizeof *r->out);
    for (int64_t i = 0; i < n * c; i++) mean[i % c] += r->in[0][i] / (double)n;
    for (int64_t i = 0; i < n * c; i++) {
        const double d = r->in[0][i] - mean[i % c];
        variance[i % c] += d * d / (double)n;
    }
}

/* ---- batch_norm: x, moments, gamma, beta ---- */

static mg_status check_channels(const mg_infer *f, int i, const mg_shape *wanted, const char *name) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "%s must have shape %s, got %s", name, MG_SHAPE_TEXT(wanted),
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)));
}

static mg_status norm_infer(mg_infer *f) {
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(mg_infer_float(f, 0));
    if (x->rank < 2)
        return mg_infer_fail(f, MG_USAGE, "needs at least 2 axes, got shape %s", MG_SHAPE_TEXT(x));
    const mg_shape pair = MG_SHAPE(2, channels(x)), line = MG_SHAPE(channels(x));
    MG_TRY(check_channels(f, 1, &pair, "the moments"));
    MG_TRY(check_channels(f, 2, &line, "gamma"));
    MG_TRY(check_channels(f, 3, &line, "beta"));
    f->shape = *x;
    return MG_OK;
}

static mg_tensor *inverse_deviation(mg_tensor *moments, const mg_norm_attrs *a) {
    return rsqrt(shift(row(moments, 1), a->epsilon));
}

static mg_tensor *norm_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *moments = y->inputs[1], *gamma = y->inputs[2];
    mg_tensor *inverse = inverse_deviation(moments, y->attrs), *factor = mul(gamma, inverse);
    if (i == 0) return mul(dy, factor);
    mg_tensor *sums = mg_make("batch_norm_reduce", y->attrs, 3, x, moments, dy);
    if (i == 2) return row(sums, 1);
    if (i == 3) return row(sums, 0);
    mg_tensor *by_mean = neg(mul(factor, row(sums, 0)));
    return pair_of(by_mean, mul(scale(mul(factor, inverse), -0.5), row(sums, 1)));
}

static void norm_ref(const mg_ref *r) {
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    const int64_t c = channels(&r->shape), n = mg_shape_count(&r->shape);
    const double *mean = r->in[1], *variance = r->in[1] + c;
    for (int64_t i = 0; i < n; i++) {
        const double unit = (r->in[0][i] - mean[i % c]) / sqrt(variance[i % c] + epsilon);
        r->out[i] = unit * r->in[2][i % c] + r->in[3][i % c];
    }
}

/* ---- batch_norm_reduce: x, moments, dy ---- */

static mg_status sums_infer(mg_infer *f) {
    const mg_shape *x = mg_infer_shape(f, 0);
    if (x->rank < 2)
        return mg_infer_fail(f, MG_USAGE, "needs at least 2 axes, got shape %s", MG_SHAPE_TEXT(x));
    f->shape = MG_SHAPE(2, channels(x));
    MG_TRY(check_channels(f, 1, &f->shape, "the moments"));
    return check_channels(f, 2, x, "dy");
}

static void sums_ref(const mg_ref *r) {
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    const int64_t c = channels(&r->in_shape[0]), n = mg_shape_count(&r->in_shape[0]);
    const double *mean = r->in[1], *variance = r->in[1] + c;
    memset(r->out, 0, 2 * (size_t)c * sizeof *r->out);
    for (int64_t i = 0; i < n; i++) {
        const double unit = (r->in[0][i] - mean[i % c]) / sqrt(variance[i % c] + epsilon);
        r->out[i % c] += r->in[2][i];
        r->out[c + i % c] += r->in[2][i] * unit;
    }
}

/* ---- rows ---- */

static const mg_attr norm_table[] = {
    {"epsilon", MG_ATTR_NUMBER, offsetof(mg_norm_attrs, epsilon), 1e-3, NULL,
     "added to the variance"}};

static const mg_op rows[] = {
    {.name = "moments",
     .doc = "x {..., C} -> {2, C}: mean and biased variance over all axes but the last",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = moments_infer,
     .grad = moments_grad,
     .ref = moments_ref},
    {.name = "batch_norm",
     .doc = "x {..., C}, moments {2, C}, gamma {C}, beta {C} -> (x - mean) / sqrt(var + eps) * "
            "gamma + beta",
     .min_inputs = 4,
     .max_inputs = 4,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = norm_infer,
     .grad = norm_grad,
     .ref = norm_ref},
    {.name = "batch_norm_reduce",
     .doc = "x, moments, dy -> {2, C}: sums of dy and of dy times the normalised x",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_ONCE,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = sums_infer,
     .ref = sums_ref},
};

const mg_op_family mg_ops_norm = {"norm", rows, sizeof rows / sizeof rows[0]};
