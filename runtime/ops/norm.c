/* Normalisation over all axes but the last (the channels, C).
 *
 * moments(x) {2, C}: row 0 the means, row 1 the biased variances. batch_norm(x, moments, gamma,
 * beta): (x - mean) / sqrt(variance + epsilon) * gamma + beta. batch_norm_reduce(x, moments, dy)
 * {2, C}: the sums of dy and of dy * xhat, xhat the normalised x: all that the gradient needs
 * besides element-wise work. Every gradient is composed of differentiable ops. Moments of a batch
 * that is split are made by the partition pass from the devices' own. x and dy may be halves:
 * everything else is float32 then, and the work is done in it. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr norm_table[] = {
    {"epsilon", MG_ATTR_NUMBER, offsetof(mg_norm_attrs, epsilon), 1e-3, NULL,
     "added to the variance"},
};

/* ---- inference ---- */

static mg_status check_rank(const mg_infer *f) {
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: the channels");
}

static int64_t channels_of(const mg_shape *x) {
    return x->dim[x->rank - 1];
}

static mg_status check_moments(const mg_infer *f) {
    const int64_t c = channels_of(mg_infer_shape(f, 0));
    const mg_shape *m = mg_infer_shape(f, 1), wanted = MG_SHAPE(2, c);
    if (mg_shape_equal(m, &wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "moments of x %s must have shape %s, got %s",
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(&wanted),
                         MG_SHAPE_TEXT(m));
}

/* Statistics of halves are float32. */
static mg_dtype statistics_dtype(const mg_infer *f) {
    return mg_dtype_is_half(f->dtype) ? MG_F32 : f->dtype;
}

static mg_status moments_infer(mg_infer *f) {
    MG_TRY(check_rank(f));
    f->dtype = statistics_dtype(f);
    f->shape = MG_SHAPE(2, channels_of(mg_infer_shape(f, 0)));
    return MG_OK;
}

static mg_status batch_norm_infer(mg_infer *f) {
    MG_TRY(check_rank(f));
    MG_TRY(check_moments(f));
    f->shape = *mg_infer_shape(f, 0);
    const mg_shape wanted = MG_SHAPE(channels_of(&f->shape));
    for (int i = 2; i < 4; i++)
        if (!mg_shape_equal(mg_infer_shape(f, i), &wanted))
            return mg_infer_fail(f, MG_USAGE, "%s of x %s must have shape %s, got %s",
                                 i == 2 ? "gamma" : "beta", MG_SHAPE_TEXT(&f->shape),
                                 MG_SHAPE_TEXT(&wanted), MG_SHAPE_TEXT(mg_infer_shape(f, i)));
    return MG_OK;
}

static mg_status reduce_infer(mg_infer *f) {
    MG_TRY(check_rank(f));
    MG_TRY(check_moments(f));
    const mg_shape *x = mg_infer_shape(f, 0), *dy = mg_infer_shape(f, 2);
    if (!mg_shape_equal(x, dy))
        return mg_infer_fail(f, MG_USAGE, "dy has shape %s, x has %s", MG_SHAPE_TEXT(dy),
                             MG_SHAPE_TEXT(x));
    f->shape = MG_SHAPE(2, channels_of(x));
    f->dtype = statistics_dtype(f);
    return MG_OK;
}

/* ---- reference kernels ---- */

/* Two passes: the variance is that of x - mean. */
static void moments_ref(const mg_ref *r) {
    const int64_t c = r->shape.dim[1], count = mg_shape_count(&r->in_shape[0]);
    const double *x = r->in[0], n = c ? (double)(count / c) : 0;
    double *mean = r->out, *variance = r->out + c;
    for (int64_t k = 0; k < 2 * c; k++) r->out[k] = 0;
    for (int64_t i = 0; i < count; i++) mean[i % c] += x[i];
    for (int64_t k = 0; k < c; k++) mean[k] /= n;
    for (int64_t i = 0; i < count; i++) {
        const double d = x[i] - mean[i % c];
        variance[i % c] += d * d;
    }
    for (int64_t k = 0; k < c; k++) variance[k] /= n;
}

static void batch_norm_ref(const mg_ref *r) {
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    const double *x = r->in[0], *mean = r->in[1], *gamma = r->in[2], *beta = r->in[3];
    const int64_t count = mg_shape_count(&r->shape), c = channels_of(&r->shape);
    for (int64_t i = 0; i < count; i++) {
        const int64_t k = i % c;
        r->out[i] = (x[i] - mean[k]) / sqrt(mean[c + k] + epsilon) * gamma[k] + beta[k];
    }
}

static void reduce_ref(const mg_ref *r) {
    const double epsilon = ((const mg_norm_attrs *)r->attrs)->epsilon;
    const double *x = r->in[0], *mean = r->in[1], *dy = r->in[2];
    const int64_t count = mg_shape_count(&r->in_shape[0]), c = r->shape.dim[1];
    for (int64_t k = 0; k < 2 * c; k++) r->out[k] = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t k = i % c;
        r->out[k] += dy[i];
        r->out[c + k] += dy[i] * (x[i] - mean[k]) / sqrt(mean[c + k] + epsilon);
    }
}

/* ---- gradients ---- */

/* Row i of {2, C}, as {C}. */
static mg_tensor *row(mg_tensor *t, int i) {
    if (!t) return NULL;
    const int64_t c = t->shape.dim[1];
    const mg_slice_attrs attrs = {.start = {.n = 2, .v = {i, 0}},
                                  .stop = {.n = 2, .v = {i + 1, c}}};
    const mg_shape flat = MG_SHAPE(c);
    return reshape(mg_make("slice", &attrs, 1, t), &flat);
}

/* {C} and {C} as {2, C}. */
static mg_tensor *two_rows(mg_tensor *a, mg_tensor *b) {
    if (!a || !b) return NULL;
    const mg_shape one = MG_SHAPE(1, a->shape.dim[0]);
    return mg_make("concat", NULL, 2, reshape(a, &one), reshape(b, &one));
}

/* dx = dmean / n + dvariance * 2 (x - mean) / n */
static mg_tensor *moments_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[i];
    const double n = (double)mg_tensor_count(x) / (double)(y->shape.dim[1] ? y->shape.dim[1] : 1);
    mg_tensor *of_variance = mul(sub(x, row(y, 0)), scale(row(dy, 1), 2 / n));
    return add(of_variance, scale(row(dy, 0), 1 / n));
}

static mg_tensor *inverse_deviation(const mg_tensor *y) {
    return rsqrt(shift(row(y->inputs[1], 1), ((const mg_norm_attrs *)y->attrs)->epsilon));
}

/* The gradient of the moments, by which inv = 1 / sqrt(variance + epsilon) and mean depend on x:
 * from sums s of what slope multiplies, and of that times x - mean and inv. */
static mg_tensor *to_moments(mg_tensor *slope, mg_tensor *inv, mg_tensor *s) {
    return two_rows(neg(mul(slope, row(s, 0))), scale(mul(mul(slope, inv), row(s, 1)), -0.5));
}

/* From the sums s of dy and dy * xhat: dbeta = s0, dgamma = s1, dmean = -gamma * inv * s0,
 * dvariance = -gamma * inv^2 / 2 * s1, with inv = 1 / sqrt(variance + epsilon). */
static mg_tensor *batch_norm_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *moments = y->inputs[1], *gamma = y->inputs[2];
    mg_tensor *inv = inverse_deviation(y), *slope = mul(gamma, inv);
    if (i == 0) return mul(dy, slope);
    mg_tensor *sums = mg_make("batch_norm_reduce", y->attrs, 3, x, moments, dy);
    if (i == 2) return row(sums, 1);
    if (i == 3) return row(sums, 0);
    return to_moments(slope, inv, sums);
}

/* s0 = sum dy, s1 = sum dy (x - mean) inv; g holds the gradients of both. */
static mg_tensor *reduce_grad(mg_tensor *s, mg_tensor *g, int i) {
    mg_tensor *x = s->inputs[0], *moments = s->inputs[1], *dy = s->inputs[2];
    mg_tensor *inv = inverse_deviation(s), *slope = mul(row(g, 1), inv);
    if (i == 0) return mul(dy, slope);
    if (i == 2) return add(mul(sub(x, row(moments, 0)), slope), row(g, 0));
    return to_moments(slope, inv, s);
}

/* ---- split rules ---- */

/* x by any axis but the channels; the moments are those of the whole batch. */
static bool batch_norm_split(mg_split *s) {
    return mg_split_except(s, s->shape->rank - 1);
}

static bool reduce_split(mg_split *s) {
    return mg_split_rows(s, 5, MG_PARTIAL_SUM);
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "moments",
     .doc = "{2, C}: mean and biased variance of x {..., C} over all axes but the last",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     .infer = moments_infer,
     .grad = moments_grad,
     .ref = moments_ref},
    {.name = "batch_norm",
     .doc = "(x - mean) / sqrt(variance + epsilon) * gamma + beta, from x, moments, gamma, beta",
     .min_inputs = 4,
     .max_inputs = 4,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = batch_norm_infer,
     .grad = batch_norm_grad,
     .split = batch_norm_split,
     .ref = batch_norm_ref},
    {.name = "batch_norm_reduce",
     .doc = "{2, C}: sums of dy and of dy times the normalised x, from x, moments, dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1 | 4,
     MG_ATTRS(mg_norm_attrs, norm_table),
     .infer = reduce_infer,
     .grad = reduce_grad,
     .split = reduce_split,
     .ref = reduce_ref},
};

const mg_op_family mg_ops_norm = {"norm", rows, sizeof rows / sizeof rows[0]};
