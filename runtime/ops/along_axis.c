/* Ops along one axis: gather and scatter with different ids in each row (take_along_axis,
 * scatter_along_axis), sorting (argsort) and scans (linear_scan).
 *
 *     take_along_axis(x, ids):       y[o, i, j] = x[o, ids[o, i, j], j]
 *     scatter_along_axis(dy, ids):   dx[o, ids[o, i, j], j] += dy[o, i, j]
 *     argsort(x):                    y[o, :, j] = the positions of x[o, :, j] in ascending order
 *     linear_scan(a, b):             s[o, i, j] = a[o, i, j] s[o, i - 1, j] + b[o, i, j]
 *
 * o indexes the axes before the axis, j the axes after it. Where ids have size 1 in all axes after
 * it, whole slices are picked. The first two ops are linear, and each is the gradient of the other.
 * An id out of range gathers NaN (0 in integer tensors) and scatters nothing. argsort is stable,
 * and NaN comes last in either order. All four can be split over devices along any axis but their
 * own. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr take_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), 0, NULL, "the axis; default: the first"},
};

static const mg_attr scatter_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_scatter_attrs, axis), 0, NULL, "the axis"},
    {"size", MG_ATTR_INT, offsetof(mg_scatter_attrs, size), 0, NULL, "size of the axis"},
};

static const mg_attr sort_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_sort_attrs, axis), -1, NULL, "the axis; default: the last"},
    {"descending", MG_ATTR_BOOL, offsetof(mg_sort_attrs, descending), 0, NULL,
     "the largest first; equal elements keep their order"},
    {"count", MG_ATTR_INT, offsetof(mg_sort_attrs, count), -1, NULL,
     "how many of the first positions; default: all"},
};

/* ---- inference ---- */

/* MG_USAGE unless ids fit x: the axes before `axis` are equal, the axes after it are equal or all 1
 * in ids. */
static mg_status check_ids(const mg_infer *f, int64_t axis) {
    const mg_shape *x = mg_infer_shape(f, 0), *ids = mg_infer_shape(f, 1);
    bool fits = x->rank == ids->rank, equal = true, ones = true;
    MG_TRY(mg_infer_integer(f, 1));
    for (int i = 0; fits && i < x->rank; i++) {
        if (i < axis) fits = x->dim[i] == ids->dim[i];
        if (i <= axis) continue;
        equal &= x->dim[i] == ids->dim[i];
        ones &= ids->dim[i] == 1;
    }
    if (fits && (equal || ones)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "ids of shape %s do not fit %s along axis %lld",
                         MG_SHAPE_TEXT(ids), MG_SHAPE_TEXT(x), (long long)axis + 1);
}

static mg_status take_infer(mg_infer *f) {
    mg_axis_attrs *a = f->attrs;
    f->shape = *mg_infer_shape(f, 0);
    MG_TRY(mg_infer_axis(f, &a->axis, f->shape.rank));
    MG_TRY(check_ids(f, a->axis));
    f->shape.dim[a->axis] = mg_infer_shape(f, 1)->dim[a->axis];
    return MG_OK;
}

static mg_status scatter_infer(mg_infer *f) {
    mg_scatter_attrs *a = f->attrs;
    f->shape = *mg_infer_shape(f, 0);
    MG_TRY(mg_infer_axis(f, &a->axis, f->shape.rank));
    MG_TRY(check_ids(f, a->axis));
    if (a->size < 0 || f->shape.dim[a->axis] != mg_infer_shape(f, 1)->dim[a->axis])
        return mg_infer_fail(f, MG_USAGE, "%lld ids for %lld slices",
                             (long long)mg_infer_shape(f, 1)->dim[a->axis],
                             (long long)f->shape.dim[a->axis]);
    f->shape.dim[a->axis] = a->size;
    return MG_OK;
}

static mg_status sort_infer(mg_infer *f) {
    mg_sort_attrs *a = f->attrs;
    f->shape = *mg_infer_shape(f, 0);
    f->dtype = MG_I32;
    MG_TRY(mg_infer_axis(f, &a->axis, f->shape.rank));
    int64_t *size = &f->shape.dim[a->axis];
    if (*size > INT32_MAX) return mg_infer_fail(f, MG_USAGE, "an axis of 2^31 elements");
    if (a->count == -1) a->count = *size;
    if (a->count < 0 || a->count > *size)
        return mg_infer_fail(f, MG_USAGE,
                             "count must be 0 to %lld, the size of axis %lld, got %lld",
                             (long long)*size, (long long)a->axis + 1, (long long)a->count);
    *size = a->count;
    return MG_OK;
}

static mg_status scan_infer(mg_infer *f) {
    mg_axis_attrs *a = f->attrs;
    f->shape = *mg_infer_shape(f, 0);
    f->dtype = mg_dtype_of_sums(f->dtype);
    MG_TRY(mg_infer_axis(f, &a->axis, f->shape.rank));
    if (mg_shape_equal(&f->shape, mg_infer_shape(f, 1))) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "shapes %s and %s differ", MG_SHAPE_TEXT(&f->shape),
                         MG_SHAPE_TEXT(mg_infer_shape(f, 1)));
}

/* ---- gradients ---- */

/* With respect to x or dy only; ids are integers. */
static mg_tensor *take_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const int64_t axis = ((const mg_axis_attrs *)y->attrs)->axis;
    const mg_scatter_attrs attrs = {.axis = axis, .size = y->inputs[0]->shape.dim[axis]};
    return mg_make("scatter_along_axis", &attrs, 2, dy, y->inputs[1]);
}

static mg_tensor *scatter_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const mg_axis_attrs attrs = {.axis = ((const mg_scatter_attrs *)y->attrs)->axis};
    return mg_make("take_along_axis", &attrs, 2, dy, y->inputs[1]);
}

/* t shifted by one position along the axis, towards its end (by > 0) or its beginning; the free
 * position becomes 0. */
static mg_tensor *moved(mg_tensor *t, int64_t axis, int by) {
    if (!t) return NULL;
    const int rank = t->shape.rank;
    mg_slice_attrs slice = {.start.n = rank, .stop.n = rank, .step.n = rank};
    mg_pad_attrs pad = {.before.n = rank, .after.n = rank};
    for (int k = 0; k < rank; k++) slice.stop.v[k] = t->shape.dim[k], slice.step.v[k] = 1;
    if (t->shape.dim[axis] == 0) return t;
    if (by > 0)
        slice.stop.v[axis]--, pad.before.v[axis] = 1;
    else
        slice.start.v[axis]++, pad.after.v[axis] = 1;
    return mg_make("pad", &pad, 1, mg_make("slice", &slice, 1, t));
}

static mg_tensor *reversed(mg_tensor *t, const mg_axis_attrs *axis) {
    return mg_make("reverse", axis, 1, t);
}

/* The gradient w.r.t. b is a scan from the end, g[i] = dy[i] + a[i + 1] g[i + 1]; the gradient
 * w.r.t. a[i] is g[i] s[i - 1]. */
static mg_tensor *scan_grad(mg_tensor *y, mg_tensor *dy, int i) {
    const mg_axis_attrs *a = y->attrs;
    mg_tensor *next = reversed(moved(y->inputs[0], a->axis, -1), a);
    mg_tensor *g = reversed(mg_make("linear_scan", a, 2, next, reversed(dy, a)), a);
    return i == 1 ? g : mul(g, moved(y, a->axis, 1));
}

/* ---- reference kernels ---- */

/* The loops of take_along_axis and scatter_along_axis. For each picked element, visit gets its
 * offset `there` in the tensor of shape `whole` (-1 for an id out of range) and its offset `here`
 * in the picked tensor. */
static void visit_ids(const mg_ref *r, int64_t axis, const mg_shape *whole,
                      void (*visit)(const mg_ref *r, int64_t there, int64_t here)) {
    const mg_axis_view v = mg_axis_view_of(whole, axis),
                       ids = mg_axis_view_of(&r->in_shape[1], axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < ids.n; i++)
            for (int64_t j = 0; j < v.inner; j++) {
                const double id = r->in[1][(o * ids.n + i) * ids.inner + (ids.inner > 1 ? j : 0)];
                const bool inside = id >= 0 && id < (double)v.n;
                visit(r, inside ? (o * v.n + (int64_t)id) * v.inner + j : -1,
                      (o * ids.n + i) * v.inner + j);
            }
}

static void take_element(const mg_ref *r, int64_t there, int64_t here) {
    const double nothing = mg_dtype_is_float(r->dtype) ? NAN : 0;
    r->out[here] = there < 0 ? nothing : r->in[0][there];
}

static void add_element(const mg_ref *r, int64_t there, int64_t here) {
    if (there >= 0) r->out[there] += r->in[0][here];
}

static void take_ref(const mg_ref *r) {
    visit_ids(r, ((const mg_axis_attrs *)r->attrs)->axis, &r->in_shape[0], take_element);
}

static void scatter_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_ids(r, ((const mg_scatter_attrs *)r->attrs)->axis, &r->shape, add_element);
}

/* A line of x and of the result, whose elements lie `step` apart. */
typedef struct sort_line {
    const double *x;
    double *at; /* positions: the result */
    int64_t step;
    bool descending;
} sort_line;

/* Whether position a comes after position b: NaN last, then by value, then by position. */
static bool is_after(const sort_line *s, double a, double b) {
    const double u = s->x[(int64_t)a * s->step], v = s->x[(int64_t)b * s->step];
    if (u != u || v != v) return u != u && (v == v || a > b);
    if (u == v) return a > b;
    return s->descending ? u < v : u > v;
}

/* Sifts down entry i of a heap of n, in which no entry sorts after its parent. */
static void sink(const sort_line *s, int64_t i, int64_t n) {
    const double moving = s->at[i * s->step];
    for (int64_t below = 2 * i + 1; below < n; i = below, below = 2 * i + 1) {
        if (below + 1 < n && is_after(s, s->at[(below + 1) * s->step], s->at[below * s->step]))
            below++;
        if (!is_after(s, s->at[below * s->step], moving)) break;
        s->at[i * s->step] = s->at[below * s->step];
    }
    s->at[i * s->step] = moving;
}

/* Heap sort in the result itself. The heap holds the `count` positions that sort first among those
 * visited so far. */
static void sort_line_of(const sort_line *s, int64_t n, int64_t count) {
    for (int64_t i = 0; i < count; i++) s->at[i * s->step] = (double)i;
    for (int64_t i = count / 2 - 1; i >= 0; i--) sink(s, i, count);
    for (int64_t i = count; i < n && count > 0; i++) {
        if (!is_after(s, s->at[0], (double)i)) continue;
        s->at[0] = (double)i;
        sink(s, 0, count);
    }
    for (int64_t last = count - 1; last > 0; last--) {
        const double top = s->at[0];
        s->at[0] = s->at[last * s->step];
        s->at[last * s->step] = top;
        sink(s, 0, last);
    }
}

static void sort_ref(const mg_ref *r) {
    const mg_sort_attrs *a = r->attrs;
    const mg_axis_view v = mg_axis_view_of(&r->in_shape[0], a->axis);
    for (int64_t k = 0; k < v.outer * v.inner; k++) {
        const int64_t o = k / v.inner, j = k % v.inner;
        const sort_line line = {.x = r->in[0] + o * v.n * v.inner + j,
                                .at = r->out + o * a->count * v.inner + j,
                                .step = v.inner,
                                .descending = a->descending};
        sort_line_of(&line, v.n, a->count);
    }
}

#define LOOPS "ops/scan_loops.h"
#include "ops/both_numbers.h"

/* ---- split rules ---- */

/* x and ids are split along the same axis; ids of size 1 along it are on every device. */
static bool split_with_ids(mg_split *s, int64_t axis) {
    const int by = s->given[0] >= 0 ? s->given[0] : s->given[1];
    if (by < 0 || by == axis || (s->given[1] >= 0 && s->given[1] != by)) return false;
    s->in[0] = s->out = by;
    if (s->in_shape[1]->dim[by] == s->in_shape[0]->dim[by]) s->in[1] = by;
    return true;
}

static bool take_split(mg_split *s) {
    return split_with_ids(s, ((const mg_axis_attrs *)s->attrs)->axis);
}

static bool scatter_split(mg_split *s) {
    return split_with_ids(s, ((const mg_scatter_attrs *)s->attrs)->axis);
}

static bool sort_split(mg_split *s) {
    return mg_split_except(s, ((const mg_sort_attrs *)s->attrs)->axis);
}

static bool scan_split(mg_split *s) {
    return split_with_ids(s, ((const mg_axis_attrs *)s->attrs)->axis);
}

/* ---- the op table ---- */

static const mg_op along_axis_rows[] = {
    {.name = "take_along_axis",
     .doc = "elements of x along an axis, picked by 0-based ids of x's rank; NaN (integers: 0) "
            "outside",
     .min_inputs = 2,
     .max_inputs = 2,
     MG_ATTRS(mg_axis_attrs, take_attrs),
     .infer = take_infer,
     .grad = take_grad,
     .split = take_split,
     .ref = take_ref},
    {.name = "scatter_along_axis",
     .doc = "zeros with the elements of dy added where ids say along an axis",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_scatter_attrs, scatter_attrs),
     .infer = scatter_infer,
     .grad = scatter_grad,
     .split = scatter_split,
     .ref = scatter_ref},
    {.name = "argsort",
     .doc = "0-based positions that put an axis in order, int32; stable, NaN last",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_sort_attrs, sort_attrs),
     .infer = sort_infer,
     .split = sort_split,
     .ref = sort_ref},
    {.name = "linear_scan",
     .doc = "s[i] = a[i] * s[i - 1] + b[i] along an axis, from s = 0; integers and bool "
            "give int64",
     .example = "local decay, input = mgpu.full({ 4 }, 0.5), mgpu.tensor { 8, 0, 0, 8 }\n"
                "print(decay:linear_scan(input)) -- 8, 8 / 2 + 0, 4 / 2 + 0, 2 / 2 + 8\n"
                "--> tensor {4} float32 cpu:0\n"
                "--> {8, 4, 2, 9}",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_axis_attrs, take_attrs),
     .infer = scan_infer,
     .grad = scan_grad,
     .split = scan_split,
     .ref = scan_ref,
     .ref_integers = scan_ref_integers},
};

const mg_op_family mg_ops_along_axis = {"along_axis", along_axis_rows,
                                        sizeof along_axis_rows / sizeof along_axis_rows[0]};
