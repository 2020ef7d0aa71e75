/* Batch normalization: statistics and normalization over all axes but the last (C channels).
 *
 *     moments(x) {2, C}                       row 0: means, row 1: biased variances
 *     batch_norm(x, moments, gamma, beta)     xhat gamma + beta, xhat = (x - mean) inv,
 *                                             inv = 1 / sqrt(variance + epsilon)
 *     batch_norm_reduce(x, moments, dy) {2, C}  row 0: sum of dy, row 1: sum of dy xhat
 *
 * Apart from these two sums, the gradients need only element-wise ops, so devices have kernels for
 * the sums. Every gradient is built from differentiable ops, so gradients of any order exist.
 *
 * Splitting: batch_norm works on any part of x with the whole moments; batch_norm_reduce makes
 * terms of a sum. moments has no split rule: variances do not add up, so the partition pass
 * combines the moments of the devices itself.
 *
 * x and dy may be float16 or bfloat16 (the row's `data` bits); all other inputs and the statistics
 * are float32 then, and so is the arithmetic. */
#include "ops/norm.h"
#include "ops/ops.h"
#include <math.h>

/* ---- inference ---- */

static mg_status check_has_channels(const mg_infer *f) {
    if (mg_infer_shape(f, 0)->rank > 0) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "x needs at least one axis: the channels");
}

static int64_t channels_of(const mg_shape *x) {
    return x->dim[x->rank - 1];
}

/* Input 1 must be the {2, C} moments of input 0's channels. */
static mg_status check_moments(const mg_infer *f) {
    const int64_t c = channels_of(mg_infer_shape(f, 0));
    const mg_shape *m = mg_infer_shape(f, 1), wanted = MG_SHAPE(2, c);
    if (mg_shape_equal(m, &wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "moments of x %s must have shape %s, got %s",
                         MG_SHAPE_TEXT(mg_infer_shape(f, 0)), MG_SHAPE_TEXT(&wanted),
                         MG_SHAPE_TEXT(m));
}

/* Statistics of float16 and bfloat16 data are float32. */
static mg_dtype statistics_dtype(const mg_infer *f) {
    return mg_dtype_is_half(f->dtype) ? MG_F32 : f->dtype;
}

/* Shape rule of moments: a mean and a variance for each channel. */
static mg_status moments_infer(mg_infer *f) {
    MG_TRY(check_has_channels(f));
    f->dtype = statistics_dtype(f);
    f->shape = MG_SHAPE(2, channels_of(mg_infer_shape(f, 0)));
    return MG_OK;
}

/* Shape rule of batch_norm: the shape of x; gamma and beta are {C}. */
static mg_status batch_norm_infer(mg_infer *f) {
    MG_TRY(check_has_channels(f));
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

/* Shape rule of batch_norm_reduce: two sums for each channel; dy is shaped like x. */
static mg_status batch_norm_reduce_infer(mg_infer *f) {
    MG_TRY(check_has_channels(f));
    MG_TRY(check_moments(f));
    const mg_shape *x = mg_infer_shape(f, 0), *dy = mg_infer_shape(f, 2);
    if (!mg_shape_equal(x, dy))
        return mg_infer_fail(f, MG_USAGE, "dy has shape %s, but x has %s", MG_SHAPE_TEXT(dy),
                             MG_SHAPE_TEXT(x));
    f->shape = MG_SHAPE(2, channels_of(x));
    f->dtype = statistics_dtype(f);
    return MG_OK;
}

/* ---- reference kernels ---- */

/* In two passes, the mean first: sums of squares would lose digits where the mean is large. */
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

/* Row 0 adds dy up, row 1 dy xhat; element i belongs to channel i % c. */
static void batch_norm_reduce_ref(const mg_ref *r) {
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

/* {C} and {C} as {2, C}. */
static mg_tensor *pair_of_rows(mg_tensor *a, mg_tensor *b) {
    if (!a || !b) return NULL;
    const mg_shape one = MG_SHAPE(1, a->shape.dim[0]);
    return mg_make("concat", NULL, 2, reshape(a, &one), reshape(b, &one));
}

/* With n = elements per channel: dx = dmean / n + dvariance 2 (x - mean) / n. Statistics of a
 * device's own rows are means over fewer elements: own_rows makes up for that. */
static mg_tensor *moments_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[i];
    dy = mul(dy, unary("own_rows", x));
    const double n = (double)mg_tensor_count(x) / (double)(y->shape.dim[1] ? y->shape.dim[1] : 1);
    mg_tensor *of_variance = mul(sub(x, mg_pair_row(y, 0)), scale(mg_pair_row(dy, 1), 2 / n));
    return add(of_variance, scale(mg_pair_row(dy, 0), 1 / n));
}

/* inv = 1 / sqrt(variance + epsilon), from the moments and epsilon of y. */
static mg_tensor *inverse_deviation(const mg_tensor *y) {
    return rsqrt(shift(mg_pair_row(y->inputs[1], 1), ((const mg_norm_attrs *)y->attrs)->epsilon));
}

/* The gradient w.r.t. the moments, for both ops below. With the sums s0 = sum(dy), s1 = sum(dy
 * xhat), and slope = inv times the factor of xhat (gamma, or the gradient w.r.t. s1):
 *
 *     dmean = -slope s0,  dvariance = -slope inv s1 / 2 */
static mg_tensor *moments_backward(mg_tensor *slope, mg_tensor *inv, mg_tensor *s) {
    return pair_of_rows(neg(mul(slope, mg_pair_row(s, 0))),
                        scale(mul(mul(slope, inv), mg_pair_row(s, 1)), -0.5));
}

/* With s0, s1 = the sums of dy and dy xhat: dbeta = s0, dgamma = s1, dx = dy gamma inv, and w.r.t.
 * the moments dmean = -gamma inv s0, dvariance = -gamma inv^2 s1 / 2 (Ioffe and Szegedy, 2015;
 * moments_grad continues from the moments to x). */
static mg_tensor *batch_norm_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *moments = y->inputs[1], *gamma = y->inputs[2];
    mg_tensor *inv = inverse_deviation(y), *slope = mul(gamma, inv);
    if (i == 0) return mul(dy, slope);
    mg_tensor *sums = mg_make("batch_norm_reduce", y->attrs, 3, x, moments, dy);
    if (i == 2) return mg_pair_row(sums, 1);
    if (i == 3) return mg_pair_row(sums, 0);
    return moments_backward(slope, inv, sums);
}

/* s0 = sum(dy), s1 = sum(dy (x - mean) inv); g {2, C} holds the gradients of both. */
static mg_tensor *batch_norm_reduce_grad(mg_tensor *s, mg_tensor *g, int i) {
    mg_tensor *x = s->inputs[0], *moments = s->inputs[1], *dy = s->inputs[2];
    mg_tensor *inv = inverse_deviation(s), *slope = mul(mg_pair_row(g, 1), inv);
    if (i == 0) return mul(dy, slope);
    if (i == 2) return add(mul(sub(x, mg_pair_row(moments, 0)), slope), mg_pair_row(g, 0));
    return moments_backward(slope, inv, s);
}

/* ---- split rules ---- */

/* x may be split along any axis but the channels; moments, gamma and beta are whole. */
static bool batch_norm_split(mg_split *s) {
    return mg_split_except(s, s->shape->rank - 1);
}

/* x and dy (inputs 0 and 2) are split by rows; each device makes a term of the sums. */
static bool batch_norm_reduce_split(mg_split *s) {
    return mg_split_rows(s, 5, MG_PARTIAL_SUM);
}

/* ---- the op table ---- */

static mg_status own_rows_infer(mg_infer *f) {
    MG_TRY(check_has_channels(f));
    f->shape = (mg_shape){.rank = 0};
    f->dtype = statistics_dtype(f);
    return MG_OK;
}

static void own_rows_ref(const mg_ref *r) {
    r->out[0] = 1;
}

/* No gradient: it depends on the number of rows only. */
static mg_tensor *own_rows_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)y, (void)dy, (void)i;
    return mg_no_gradient();
}

static const mg_op norm_rows[] = {
    {.name = "moments",
     .doc = "{2, C}: mean and biased variance of x {..., C} over all axes but the last",
     .example = "print(mgpu.tensor { { 1, 10 }, { 3, 30 } }:moments()) -- the means of the "
                "columns, then their variances\n"
                "--> tensor {2, 2} float32 cpu:0\n"
                "--> {{  2,  20},\n"
                "-->  {  1, 100}}",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     .infer = moments_infer,
     .grad = moments_grad,
     .ref = moments_ref},
    {.name = "own_rows",
     .doc = "how many times the rows of x that its moments cover fit into all of them: 1, unless "
            "each device has moments of its own rows",
     .flags = MG_OP_HIDDEN,
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = own_rows_infer,
     .grad = own_rows_grad,
     .ref = own_rows_ref},
    {.name = "batch_norm",
     .doc = "(x - mean) / sqrt(variance + epsilon) * gamma + beta, from x, moments, gamma, beta",
     .example = "local x, gamma, beta = mgpu.tensor { { 1, 10 }, { 3, 30 } }, mgpu.ones { 2 }, "
                "mgpu.zeros { 2 }\n"
                "print(x:batch_norm(x:moments(), gamma, beta, { epsilon = 0 })) -- each column: "
                "mean 0, variance 1\n"
                "--> tensor {2, 2} float32 cpu:0\n"
                "--> {{-1, -1},\n"
                "-->  { 1,  1}}",
     .min_inputs = 4,
     .max_inputs = 4,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1,
     MG_ATTRS(mg_norm_attrs, mg_norm_attr_table),
     .infer = batch_norm_infer,
     .grad = batch_norm_grad,
     .split = batch_norm_split,
     .ref = batch_norm_ref},
    {.name = "batch_norm_reduce",
     .doc = "{2, C}: sums of dy and of dy times the normalised x, from x, moments, dy",
     .example = "local x, dy = mgpu.tensor { { 1 }, { 3 } }, mgpu.tensor { { 10 }, { 20 } }\n"
                "print(x:batch_norm_reduce(x:moments(), dy, { epsilon = 0 })) -- 10 + 20, and 10 * "
                "-1 + 20 * 1\n"
                "--> tensor {2, 1} float32 cpu:0\n"
                "--> {{30},\n"
                "-->  {10}}",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     .data = 1 | 4,
     MG_ATTRS(mg_norm_attrs, mg_norm_attr_table),
     .infer = batch_norm_reduce_infer,
     .grad = batch_norm_reduce_grad,
     .split = batch_norm_reduce_split,
     .ref = batch_norm_reduce_ref},
};

const mg_op_family mg_ops_norm = {"norm", norm_rows, sizeof norm_rows / sizeof norm_rows[0]};
