/* softmax and log_softmax over one axis, shifted by the maximum so that nothing overflows. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr softmax_table[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), -1, NULL, "the axis; default: the last"},
};

static mg_status softmax_infer(mg_infer *f) {
    MG_TRY(mg_infer_float(f, 0));
    f->shape = *mg_infer_shape(f, 0);
    return mg_infer_axis(f, &((mg_axis_attrs *)f->attrs)->axis, f->shape.rank);
}

/* Calls finish(x, largest, sum of exp(x - largest)) for every element. */
static void along_axis(const mg_ref *r, double (*finish)(double x, double largest, double sum)) {
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

static double softmax_of(double x, double largest, double sum) {
    return exp(x - largest) / sum;
}

static double log_softmax_of(double x, double largest, double sum) {
    return x - largest - log(sum);
}

static void softmax_ref(const mg_ref *r) {
    along_axis(r, softmax_of);
}

static void log_softmax_ref(const mg_ref *r) {
    along_axis(r, log_softmax_of);
}

static mg_tensor *sum_along(mg_tensor *t, const mg_tensor *y) {
    const mg_ints axes = {.n = 1, .v = {((const mg_axis_attrs *)y->attrs)->axis}};
    return reduce("sum", t, &axes, true);
}

static mg_tensor *softmax_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return mul(y, sub(dy, sum_along(mul(dy, y), y)));
}

static mg_tensor *log_softmax_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return sub(dy, mul(unary("exp", y), sum_along(dy, y)));
}

static bool softmax_split(mg_split *s) {
    return mg_split_except(s, ((const mg_axis_attrs *)s->attrs)->axis);
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "softmax",
     .doc = "e^x / sum(e^x) along an axis",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_axis_attrs, softmax_table),
     .infer = softmax_infer,
     .grad = softmax_grad,
     .split = softmax_split,
     .ref = softmax_ref},
    {.name = "log_softmax",
     .doc = "logarithm of softmax, exact where softmax underflows",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_axis_attrs, softmax_table),
     .infer = softmax_infer,
     .grad = log_softmax_grad,
     .split = softmax_split,
     .ref = log_softmax_ref},
};

const mg_op_family mg_ops_softmax = {"softmax", rows, sizeof rows / sizeof rows[0]};
