/* softmax and log_softmax along one axis, computed from x - max(x) so that nothing overflows.
 *
 *     y = softmax(x):      dx = softmax_grad(y, dy) = y (dy - sum(dy y))
 *     y = log_softmax(x):  dx = dy - exp(y) sum(dy)
 *
 * Sums run along the axis. softmax_grad is an op (hidden), because devices have kernels for it. All
 * three can be split over devices along any other axis. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr softmax_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), -1, NULL, "the axis; default: the last"},
};

/* ---- inference ---- */

/* The shape of x; integers are refused rather than cast. */
static mg_status softmax_infer(mg_infer *f) {
    MG_TRY(mg_infer_float(f, 0));
    f->shape = *mg_infer_shape(f, 0);
    return mg_infer_axis(f, &((mg_axis_attrs *)f->attrs)->axis, f->shape.rank);
}

/* softmax_grad(y, dy): both have the same shape. */
static mg_status softmax_grad_infer(mg_infer *f) {
    MG_TRY(softmax_infer(f));
    if (mg_shape_equal(mg_infer_shape(f, 1), &f->shape)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "dy has shape %s, but y has %s",
                         MG_SHAPE_TEXT(mg_infer_shape(f, 1)), MG_SHAPE_TEXT(&f->shape));
}

/* ---- reference kernels ---- */

/* Calls finish(x, m, sum of exp(x - m)) for every element x, m being the largest x along its axis.
 */
static void softmax_along_axis(const mg_ref *r,
                               double (*finish)(double x, double largest, double sum)) {
    const mg_axis_view v = mg_axis_view_of(&r->shape, ((const mg_axis_attrs *)r->attrs)->axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t j = 0; j < v.inner; j++) {
            const int64_t first = o * v.n * v.inner + j;
            const double *x = r->in[0] + first;
            double largest = -INFINITY, sum = 0;
            for (int64_t i = 0; i < v.n; i++) largest = fmax(largest, x[i * v.inner]);
            for (int64_t i = 0; i < v.n; i++) sum += exp(x[i * v.inner] - largest);
            for (int64_t i = 0; i < v.n; i++)
                r->out[first + i * v.inner] = finish(x[i * v.inner], largest, sum);
        }
}

/* The two formulas, for one element. */
static double softmax_of(double x, double largest, double sum) {
    return exp(x - largest) / sum;
}

static double log_softmax_of(double x, double largest, double sum) {
    return x - largest - log(sum);
}

static void softmax_ref(const mg_ref *r) {
    softmax_along_axis(r, softmax_of);
}

static void log_softmax_ref(const mg_ref *r) {
    softmax_along_axis(r, log_softmax_of);
}

/* One pass for sum(dy y), one for the result; k counts the runs along the axis. */
static void softmax_grad_ref(const mg_ref *r) {
    const mg_axis_view v = mg_axis_view_of(&r->shape, ((const mg_axis_attrs *)r->attrs)->axis);
    for (int64_t k = 0; k < v.outer * v.inner; k++) {
        const int64_t first = k / v.inner * v.n * v.inner + k % v.inner;
        const double *y = r->in[0] + first, *dy = r->in[1] + first;
        double sum = 0;
        for (int64_t i = 0; i < v.n; i++) sum += y[i * v.inner] * dy[i * v.inner];
        for (int64_t i = 0; i < v.n; i++)
            r->out[first + i * v.inner] = y[i * v.inner] * (dy[i * v.inner] - sum);
    }
}

/* ---- gradients ---- */

/* The sum of t along the axis of y's op, kept as 1. */
static mg_tensor *sum_along(mg_tensor *t, const mg_tensor *y) {
    const mg_ints axes = {.n = 1, .v = {((const mg_axis_attrs *)y->attrs)->axis}};
    return reduce("sum", t, &axes, true);
}

/* dx = y (dy - sum(dy y)). */
static mg_tensor *softmax_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return mg_make("softmax_grad", y->attrs, 2, y, dy);
}

/* d = y (dy - sum(dy y)). As a function of dy it is symmetric, so the gradient w.r.t. dy is
 * softmax_grad(y, g). W.r.t. y, the product rule gives g (dy - sum(dy y)) - dy sum(g y). */
static mg_tensor *softmax_grad_grad(mg_tensor *d, mg_tensor *g, int i) {
    mg_tensor *y = d->inputs[0], *dy = d->inputs[1];
    if (i == 1) return mg_make("softmax_grad", d->attrs, 2, y, g);
    return sub(mul(g, sub(dy, sum_along(mul(dy, y), d))), mul(dy, sum_along(mul(g, y), d)));
}

/* dx = dy - softmax(x) sum(dy), and softmax(x) = exp(y). */
static mg_tensor *log_softmax_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return sub(dy, mul(unary("exp", y), sum_along(dy, y)));
}

/* ---- split rules ---- */

/* Along the op's axis, a device would need the sums of the others: false. */
static bool softmax_split(mg_split *s) {
    return mg_split_except(s, ((const mg_axis_attrs *)s->attrs)->axis);
}

/* y and dy are split along the same axis, which is not the op's own. */
static bool softmax_grad_split(mg_split *s) {
    const int axis = s->given[0] >= 0 ? s->given[0] : s->given[1];
    if (axis < 0 || axis == ((const mg_axis_attrs *)s->attrs)->axis) return false;
    s->out = s->in[0] = s->in[1] = axis;
    return true;
}

/* ---- the op table ---- */

static const mg_op softmax_rows[] = {
    {.name = "softmax",
     .doc = "e^x / sum(e^x) along an axis",
     .example =
         "local logits = mgpu.tensor { { 1, 2, 3 }, { 0, 0, 0 } }\n"
         "print(logits:softmax():max(2)) -- the probability of each row's most likely class\n"
         "--> tensor {2} float32 cpu:0\n"
         "--> {0.6652..., 0.3333...}\n"
         "print(logits:softmax():sum(2))\n"
         "--> tensor {2} float32 cpu:0\n"
         "--> {1, 1}",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_axis_attrs, softmax_attrs),
     .infer = softmax_infer,
     .grad = softmax_grad,
     .split = softmax_split,
     .ref = softmax_ref},
    {.name = "softmax_grad",
     .doc = "gradient of softmax, from its result y and dy",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_HIDDEN,
     MG_ATTRS(mg_axis_attrs, softmax_attrs),
     .infer = softmax_grad_infer,
     .grad = softmax_grad_grad,
     .split = softmax_grad_split,
     .ref = softmax_grad_ref},
    {.name = "log_softmax",
     .doc = "logarithm of softmax, exact where softmax underflows",
     .example = "local t = mgpu.tensor { 0, 1000 }\n"
                "print(t:log_softmax())\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {-1000,     0}\n"
                "print(t:softmax():log())\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {-inf,    0}",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_axis_attrs, softmax_attrs),
     .infer = softmax_infer,
     .grad = log_softmax_grad,
     .split = softmax_split,
     .ref = log_softmax_ref},
};

const mg_op_family mg_ops_softmax = {"softmax", softmax_rows,
                                     sizeof softmax_rows / sizeof softmax_rows[0]};
