/* Reductions over axes: sum prod max min all any; along one axis: argmax argmin cumsum; of whole
 * tensors: all_finite.
 *
 * Shapes: the reduced axes are dropped, or kept with size 1 (keepdims). After inference the
 * attribute `axes` lists them in ascending order, each once; given none, it lists all. cumsum keeps
 * the shape.
 *
 * Dtypes: sums and products of bool and integers are int64, and wrap around; argmax and argmin are
 * int32 (int64 if the axis is too long for that), all and any bool; otherwise the input's dtype. An
 * empty sum is 0 and an empty product 1; max and min of no elements are errors. A NaN wins max,
 * min, argmax and argmin.
 *
 * Gradients: sum repeats dy; max and min divide dy among equal winners; prod multiplies dy by the
 * product of the other factors (the hidden op prod_grad, exact with zeros among the factors);
 * cumsum sums dy from the other end. The others have none.
 *
 * Splitting: along an axis that is kept, each device reduces its part. Along a reduced axis, each
 * device makes a term of the sum, maximum or minimum. prod has no such rule: its input is gathered
 * first. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

/* Attributes of sum, prod, max, min, all and any. */
static const mg_attr reduce_attrs[] = {
    {"axis", MG_ATTR_AXES, offsetof(mg_reduce_attrs, axes), 0, NULL,
     "an axis or a list; none: all"},
    {"keepdims", MG_ATTR_BOOL, offsetof(mg_reduce_attrs, keepdims), 0, NULL,
     "keep reduced axes with size 1"},
};

/* Attributes of argmax, argmin and cumsum. */
static const mg_attr axis_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), -1, NULL, "the axis; default: the last"},
};

/* ---- inference ---- */

/* Makes the list of axes ascending and complete: 0-based, each once, all of them if none was given.
 */
static mg_status normalise_axes(const mg_infer *f, mg_ints *axes, int rank) {
    bool reduced[MG_MAX_RANK] = {0}; /* by axis */
    for (int i = 0; i < axes->n; i++) {
        MG_TRY(mg_infer_axis(f, &axes->v[i], rank));
        if (reduced[axes->v[i]])
            return mg_infer_fail(f, MG_USAGE, "axis %lld is given twice",
                                 (long long)axes->v[i] + 1);
        reduced[axes->v[i]] = true;
    }
    const bool all = axes->n == 0;
    *axes = (mg_ints){0};
    for (int i = 0; i < rank; i++)
        if (all || reduced[i]) axes->v[axes->n++] = i;
    return MG_OK;
}

/* The shape with the reduced axes as 1. */
static mg_shape kept_shape(const mg_shape *x, const mg_ints *axes) {
    mg_shape s = *x;
    for (int i = 0; i < axes->n; i++) s.dim[axes->v[i]] = 1;
    return s;
}

/* The shape without the reduced axes. */
static mg_shape dropped_shape(const mg_shape *x, const mg_ints *axes) {
    mg_shape s = {0};
    for (int i = 0, k = 0; i < x->rank; i++) {
        if (k < axes->n && axes->v[k] == i)
            k++;
        else
            s.dim[s.rank++] = x->dim[i];
    }
    return s;
}

/* Shape rule of the reductions over axes. */
static mg_status reduced_infer(mg_infer *f) {
    mg_reduce_attrs *a = f->attrs;
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(normalise_axes(f, &a->axes, x->rank));
    f->shape = a->keepdims ? kept_shape(x, &a->axes) : dropped_shape(x, &a->axes);
    return MG_OK;
}

/* Shape rule of sum and prod. */
static mg_status sum_infer(mg_infer *f) {
    f->dtype = mg_dtype_of_sums(f->dtype);
    return reduced_infer(f);
}

/* Shape rule of max and min, which need at least one element for each result. */
static mg_status max_infer(mg_infer *f) {
    MG_TRY(reduced_infer(f));
    const mg_shape *x = mg_infer_shape(f, 0);
    if (mg_shape_count(x) == 0 && mg_shape_count(&f->shape) > 0)
        return mg_infer_fail(f, MG_USAGE, "nothing to choose from in a tensor of shape %s",
                             MG_SHAPE_TEXT(x));
    return MG_OK;
}

/* Shape rule of all and any. */
static mg_status all_infer(mg_infer *f) {
    f->dtype = MG_BOOL;
    return reduced_infer(f);
}

/* Shape rule of argmax and argmin: the axis is dropped. */
static mg_status argmax_infer(mg_infer *f) {
    mg_axis_attrs *a = f->attrs;
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(mg_infer_axis(f, &a->axis, x->rank));
    const mg_ints axes = {.n = 1, .v = {a->axis}};
    f->shape = dropped_shape(x, &axes);
    f->dtype = x->dim[a->axis] > INT32_MAX ? MG_I64 : MG_I32;
    if (x->dim[a->axis] == 0 && mg_shape_count(&f->shape) > 0)
        return mg_infer_fail(f, MG_USAGE, "axis %lld of shape %s is empty", (long long)a->axis + 1,
                             MG_SHAPE_TEXT(x));
    return MG_OK;
}

/* The shape of x. */
static mg_status cumsum_infer(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    f->dtype = mg_dtype_of_sums(f->dtype);
    return mg_infer_axis(f, &((mg_axis_attrs *)f->attrs)->axis, f->shape.rank);
}

/* One bool: the preset shape is that of a scalar. */
static mg_status all_finite_infer(mg_infer *f) {
    f->dtype = MG_BOOL;
    return MG_OK;
}

/* prod_grad(x {groups, elements}, dy {groups}) has the shape of x. */
static mg_status prod_grad_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 2, "groups, elements"));
    f->shape = *mg_infer_shape(f, 0);
    return MG_OK;
}

/* ---- reference kernels ---- */

#define LOOPS "ops/reduce_loops.h"
#include "ops/both_numbers.h"

/* Truth values: 0 is false, all else true, NaN included. */
static double all_step(double sofar, double v) {
    return sofar != 0 && v != 0;
}

static double any_step(double sofar, double v) {
    return sofar != 0 || v != 0;
}

static void all_ref(const mg_ref *r) {
    fold_elements(r, 1, all_step);
}

static void any_ref(const mg_ref *r) {
    fold_elements(r, 0, any_step);
}

/* One bool for all inputs: guards are made of it. */
static void all_finite_ref(const mg_ref *r) {
    r->out[0] = 1;
    for (int k = 0; k < r->n_inputs; k++) {
        const int64_t count = mg_shape_count(&r->in_shape[k]);
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(r->in[k][i])) r->out[0] = 0;
    }
}

/* dy times the product of all other elements: the running product from the left, times the running
 * product from the right. No division, so zeros are harmless. */
static void prod_grad_ref(const mg_ref *r) {
    const int64_t n = r->shape.dim[1];
    for (int64_t g = 0; g < r->shape.dim[0]; g++) {
        const double *x = r->in[0] + g * n;
        double *dx = r->out + g * n, before = 1, after = r->in[1][g];
        for (int64_t i = 0; i < n; before *= x[i++]) dx[i] = before;
        for (int64_t i = n - 1; i >= 0; after *= x[i--]) dx[i] *= after;
    }
}

/* ---- gradients ---- */

/* dy, or the result y itself, reshaped to have the reduced axes as 1 again. */
static mg_tensor *with_kept_axes(mg_tensor *t, const mg_tensor *y) {
    const mg_reduce_attrs *a = y->attrs;
    const mg_shape kept = kept_shape(&y->inputs[0]->shape, &a->axes);
    return reshape(t, &kept);
}

/* dy, repeated along the reduced axes. */
static mg_tensor *sum_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return broadcast_to(with_kept_axes(dy, y), &y->inputs[i]->shape);
}

/* Of max and min. Equal winners share the gradient equally, as in Keras. */
static mg_tensor *max_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[i];
    const mg_reduce_attrs *a = y->attrs;
    mg_tensor *hit = cast_like(binary("eq", x, with_kept_axes(y, y)), dy);
    mg_tensor *share = divide(with_kept_axes(dy, y), reduce("sum", hit, &a->axes, true));
    return mul(hit, share);
}

/* x is brought to {groups, elements}, with the reduced axes last, and the gradient back. `order` is
 * that permutation, `back` its inverse, `moved` the permuted shape. */
static mg_tensor *prod_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[i];
    const mg_reduce_attrs *a = y->attrs;
    mg_ints order = {0}, back = {0};
    mg_shape moved = {.rank = x->shape.rank};
    int64_t elements = 1;
    for (int k = 0, r = 0; k < x->shape.rank; k++) {
        if (r < a->axes.n && a->axes.v[r] == k)
            elements *= x->shape.dim[a->axes.v[r++]];
        else
            order.v[order.n++] = k;
    }
    for (int k = 0; k < a->axes.n; k++) order.v[order.n++] = a->axes.v[k];
    for (int k = 0; k < order.n; k++) {
        moved.dim[k] = x->shape.dim[order.v[k]];
        back.v[order.v[k]] = k;
    }
    back.n = order.n;
    const int64_t groups = mg_tensor_count(y);
    const mg_shape flat = MG_SHAPE(groups, elements), flat_dy = MG_SHAPE(groups);
    mg_tensor *rows = reshape(permute(x, &order), &flat);
    mg_tensor *dx = mg_make("prod_grad", NULL, 2, rows, reshape(dy, &flat_dy));
    return permute(reshape(dx, &moved), &back);
}

/* {n, n}, true on the diagonal. */
static mg_tensor *make_diagonal(int64_t n) {
    mg_iota_attrs row = {.shape = {.n = 2, .v = {n, n}}, .axis = 0, .dtype = MG_I32}, column = row;
    column.axis = 1;
    return binary("eq", mg_make("iota", &row, 0), mg_make("iota", &column, 0));
}

/* g = prod_grad(x, dy): g[i] = dy times the product of all x[k] but x[i]; u is the gradient w.r.t.
 * g.
 *
 * W.r.t. dy: sum_i u[i] times that product. W.r.t. x: g[i] is the product of a row in which x[i]
 * was replaced by 1, so its gradient is prod_grad of that row. The n rows of a group make {groups,
 * n, n}; the diagonal, dg[i] / dx[i], is 0. */
static mg_tensor *prod_grad_grad(mg_tensor *g, mg_tensor *u, int i) {
    mg_tensor *x = g->inputs[0], *dy = g->inputs[1];
    const int64_t groups = x->shape.dim[0], n = x->shape.dim[1];
    const mg_ints last = {.n = 1, .v = {1}};
    if (i == 1) {
        mg_tensor *others =
            mg_make("prod_grad", NULL, 2, x, full(1, (mg_dtype)dy->dtype, &dy->shape));
        return reduce("sum", mul(u, others), &last, false);
    }
    const mg_shape wide = MG_SHAPE(groups, 1, n), all = MG_SHAPE(groups, n, n),
                   rows = MG_SHAPE(groups * n, n), flat = MG_SHAPE(groups * n),
                   column = MG_SHAPE(groups, 1);
    mg_tensor *without =
        where(make_diagonal(n), constant(1, x), broadcast_to(reshape(x, &wide), &all));
    mg_tensor *weights = mul(u, reshape(dy, &column));
    mg_tensor *each =
        mg_make("prod_grad", NULL, 2, reshape(without, &rows), reshape(weights, &flat));
    return reduce("sum", where(make_diagonal(n), constant(0, x), reshape(each, &all)), &last,
                  false);
}

/* t with the elements of the axis in opposite order. */
static mg_tensor *make_reverse(mg_tensor *t, const mg_axis_attrs *axis) {
    return mg_make("reverse", axis, 1, t);
}

/* Element i is in all sums from i on: dx[i] = dy[i] + dy[i + 1] + ..., a cumsum from the other end.
 */
static mg_tensor *cumsum_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return make_reverse(mg_make("cumsum", y->attrs, 1, make_reverse(dy, y->attrs)), y->attrs);
}

/* ---- split rules ---- */

/* Split along a reduced axis, each device makes a term of kind `term` (MG_PARTIAL_SUM,
 * MG_PARTIAL_MAX, MG_PARTIAL_MIN). Split along another axis, the result is split along it too; its
 * index decreases by the number of dropped axes before it. A sum may also be taken of terms of a
 * sum. */
static bool reduction_split(mg_split *s, int term) {
    const mg_reduce_attrs *a = s->attrs;
    int below = 0;
    if (s->given[0] == term && term == MG_PARTIAL_SUM) { /* a sum of sums */
        s->in[0] = s->out = MG_PARTIAL_SUM;
        return true;
    }
    if (s->given[0] < 0) return false;
    s->in[0] = s->given[0];
    s->out = s->given[0];
    for (int i = 0; i < a->axes.n; i++) {
        if (a->axes.v[i] == s->given[0]) s->out = term;
        below += a->axes.v[i] < s->given[0];
    }
    if (s->out >= 0 && !a->keepdims) s->out -= below;
    return true;
}

/* The rules of the op table, one for each kind of term. */
static bool sum_split(mg_split *s) {
    return reduction_split(s, MG_PARTIAL_SUM);
}

/* Also for any. */
static bool max_split(mg_split *s) {
    return reduction_split(s, MG_PARTIAL_MAX);
}

/* Also for all: true is 1, so all is a minimum. */
static bool min_split(mg_split *s) {
    return reduction_split(s, MG_PARTIAL_MIN);
}

/* argmax, argmin and cumsum: along any axis but their own. */
static bool argmax_split(mg_split *s) {
    const int axis = (int)((const mg_axis_attrs *)s->attrs)->axis;
    if (!mg_split_except(s, axis)) return false;
    if (s->shape->rank < s->in_shape[0]->rank && s->out > axis) s->out--;
    return true;
}

/* Each device tests what it has; the minimum of the answers is the answer. */
static bool all_finite_split(mg_split *s) {
    bool any = false;
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->given[i] < 0) continue;
        s->in[i] = s->given[i];
        any = true;
    }
    s->out = MG_PARTIAL_MIN;
    return any;
}

/* ---- the op table ---- */

/* The beginning of a row with one input. */
#define REDUCTION(id, text) .name = id, .doc = text, .min_inputs = 1, .max_inputs = 1

static const mg_op reduce_rows[] = {
    {REDUCTION("sum", "sum over axes; integers and bool give int64"),
     .example = "local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }\n"
                "print(t:sum():item())  --> 21\n"
                "print(t:sum(2)) -- over the columns: one sum for each row\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> { 6, 15}\n"
                "print(t:sum { axis = 2, keepdims = true })\n"
                "--> tensor {2, 1} float32 cpu:0\n"
                "--> {{ 6},\n"
                "-->  {15}}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = sum_infer, .grad = sum_grad,
     .split = sum_split, .ref = sum_ref, .ref_integers = sum_ref_integers},
    {REDUCTION("prod", "product over axes; integers and bool give int64"),
     .example = "local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }\n"
                "print(t:prod(1))\n"
                "--> tensor {3} float32 cpu:0\n"
                "--> { 4, 10, 18}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = sum_infer, .grad = prod_grad,
     .ref = prod_ref, .ref_integers = prod_ref_integers},
    {REDUCTION("max", "largest element over axes; ties share the gradient"),
     .example = "local t = mgpu.tensor { { 1, 9, 3 }, { 4, 5, 6 } }\n"
                "print(t:max():item())  --> 9\n"
                "print(t:max(2)) -- of each row\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {9, 6}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = max_infer, .grad = max_grad,
     .split = max_split, .ref = max_ref, .ref_integers = max_ref_integers},
    {REDUCTION("min", "smallest element over axes; ties share the gradient"),
     .example = "local t = mgpu.tensor { { 1, 9, 3 }, { 4, 5, 6 } }\n"
                "print(t:min { axis = 1, keepdims = true })\n"
                "--> tensor {1, 3} float32 cpu:0\n"
                "--> {{1, 5, 3}}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = max_infer, .grad = max_grad,
     .split = min_split, .ref = min_ref, .ref_integers = min_ref_integers},
    {REDUCTION("all", "true where all elements over axes are non-zero"),
     .example = "local t = mgpu.tensor { { 1, 2 }, { 3, 0 } }\n"
                "print(t:all():item())  --> false\n"
                "print(t:all(2)) -- of each row\n"
                "--> tensor {2} bool cpu:0\n"
                "--> { true, false}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = all_infer, .split = min_split,
     .ref = all_ref},
    {REDUCTION("any", "true where any element over axes is non-zero"),
     .example = "local t = mgpu.tensor { { 0, 0 }, { 3, 0 } }\n"
                "print(t:any():item())  --> true\n"
                "print(t:any(2)) -- in each row\n"
                "--> tensor {2} bool cpu:0\n"
                "--> {false,  true}",
     MG_ATTRS(mg_reduce_attrs, reduce_attrs), .infer = all_infer, .split = max_split,
     .ref = any_ref},
    {REDUCTION("argmax", "0-based position of the first largest element along an axis, int32"),
     .example = "local scores = mgpu.tensor { { 0.1, 0.7, 0.2 }, { 0.5, 0.3, 0.2 } }\n"
                "print(scores:argmax()) -- the best class of each row, from 0\n"
                "--> tensor {2} int32 cpu:0\n"
                "--> {1, 0}\n"
                "print(scores:argmax(1))\n"
                "--> tensor {3} int32 cpu:0\n"
                "--> {1, 0, 0}",
     MG_ATTRS(mg_axis_attrs, axis_attrs), .infer = argmax_infer, .split = argmax_split,
     .ref = argmax_ref, .ref_integers = argmax_ref_integers},
    {REDUCTION("argmin", "0-based position of the first smallest element along an axis, int32"),
     .example = "print(mgpu.tensor { 4, 1, 3, 1 }:argmin():item())  --> 1",
     MG_ATTRS(mg_axis_attrs, axis_attrs), .infer = argmax_infer, .split = argmax_split,
     .ref = argmin_ref, .ref_integers = argmin_ref_integers},
    {REDUCTION("cumsum", "running sum along an axis; integers and bool give int64"),
     .example = "local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }\n"
                "print(t:cumsum())\n"
                "--> tensor {2, 3} float32 cpu:0\n"
                "--> {{ 1,  3,  6},\n"
                "-->  { 4,  9, 15}}\n"
                "print(t:cumsum(1)) -- down the columns\n"
                "--> tensor {2, 3} float32 cpu:0\n"
                "--> {{1, 2, 3},\n"
                "-->  {5, 7, 9}}",
     MG_ATTRS(mg_axis_attrs, axis_attrs), .infer = cumsum_infer, .grad = cumsum_grad,
     .split = argmax_split, .ref = cumsum_ref, .ref_integers = cumsum_ref_integers},
    {.name = "all_finite",
     .doc = "true if no element of any input is infinite or NaN; a scalar",
     .example = "local a, b = mgpu.tensor { 1, 2 }, mgpu.tensor { 1 / 0 }\n"
                "print(mgpu.all_finite(a):item(), mgpu.all_finite(a, b):item())  --> true false",
     .min_inputs = 1,
     .max_inputs = 255,
     .infer = all_finite_infer,
     .split = all_finite_split,
     .ref = all_finite_ref},
    {.name = "prod_grad",
     .doc = "gradient of prod over the last axis of {groups, elements} from dy {groups}",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_HIDDEN,
     .infer = prod_grad_infer,
     .grad = prod_grad_grad,
     .ref = prod_grad_ref},
};

const mg_op_family mg_ops_reduce = {"reduce", reduce_rows,
                                    sizeof reduce_rows / sizeof reduce_rows[0]};
