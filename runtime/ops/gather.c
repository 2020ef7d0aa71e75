/* gather picks slices of x by number along an axis; scatter_add, its transpose, adds slices to the
 * places that the numbers give.
 *
 *     gather(x, ids):        y[..., i, ...] = x[..., ids[i], ...]
 *     scatter_add(dy, ids):  dx[..., ids[i], ...] += dy[..., i, ...]
 *     scatter_last(ids):     y[k] = the last i with ids[i] = k, or -1
 *
 * gather replaces the axis by the axes of ids; scatter_add replaces these by one axis of `size`
 * entries. Each of the two is linear and the gradient of the other. Ids are 0-based. An id outside
 * 0 .. n-1 gathers NaN (0 in integer tensors) and scatters nothing, on every device: kernels cannot
 * raise errors, so callers add a guard where ids come from data.
 *
 * Split rules: if ids are split, each device gathers its own slices, and scatter_add gives a term
 * of a sum; if x is split along another axis, each device works on its part. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <math.h>

static const mg_attr gather_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), 0, NULL, "the axis; default: the first"},
};

/* size: the size of the result along the axis, which does not follow from ids. */
static const mg_attr scatter_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_scatter_attrs, axis), 0, NULL, "the axis"},
    {"size", MG_ATTR_INT, offsetof(mg_scatter_attrs, size), 0, NULL, "size of the axis"},
};

/* The loops of both ops: x is {outer, size of the axis, inner}; the gathered slices are {outer,
 * number of ids, inner}, which is the view returned. */
static mg_axis_view picked_view(const mg_shape *x, int64_t axis, const mg_shape *ids) {
    mg_axis_view v = mg_axis_view_of(x, axis);
    v.n = mg_shape_count(ids);
    return v;
}

/* ---- gather(x, ids) ---- */

/* The shape of x with `axis` replaced by the axes of ids. */
static mg_status gather_infer(mg_infer *f) {
    mg_axis_attrs *a = f->attrs;
    const mg_shape *x = mg_infer_shape(f, 0), *ids = mg_infer_shape(f, 1);
    MG_TRY(mg_infer_integer(f, 1));
    MG_TRY(mg_infer_axis(f, &a->axis, x->rank));
    if (x->rank - 1 + ids->rank > MG_MAX_RANK)
        return mg_infer_fail(f, MG_USAGE,
                             "shape %s with ids %s gives a result of more than %d axes",
                             MG_SHAPE_TEXT(x), MG_SHAPE_TEXT(ids), MG_MAX_RANK);
    for (int i = 0; i < a->axis; i++) f->shape.dim[f->shape.rank++] = x->dim[i];
    for (int i = 0; i < ids->rank; i++) f->shape.dim[f->shape.rank++] = ids->dim[i];
    for (int i = (int)a->axis + 1; i < x->rank; i++) f->shape.dim[f->shape.rank++] = x->dim[i];
    return MG_OK;
}

/* Slice i of each outer block is a copy of x's slice number ids[i]. */
static void gather_ref(const mg_ref *r) {
    const int64_t axis = ((const mg_axis_attrs *)r->attrs)->axis;
    const int64_t rows = r->in_shape[0].dim[axis];
    const mg_axis_view v = picked_view(&r->in_shape[0], axis, &r->in_shape[1]);
    /* the value for ids out of range */
    const double nothing = mg_dtype_is_float(r->dtype) ? NAN : 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.n; i++) {
            const double id = r->in[1][i];
            const bool inside = id >= 0 && id < (double)rows;
            const double *x = r->in[0] + (o * rows + (inside ? (int64_t)id : 0)) * v.inner;
            double *y = r->out + (o * v.n + i) * v.inner;
            for (int64_t j = 0; j < v.inner; j++) y[j] = inside ? x[j] : nothing;
        }
}

/* With respect to x only; ids are integers. */
static mg_tensor *gather_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const int64_t axis = ((const mg_axis_attrs *)y->attrs)->axis;
    const mg_scatter_attrs attrs = {.axis = axis, .size = y->inputs[0]->shape.dim[axis]};
    return mg_make("scatter_add", &attrs, 2, dy, y->inputs[1]);
}

/* ---- scatter_add(dy, ids) ---- */

/* The shape of dy with the axes of ids, which begin at `axis`, replaced by one axis of `size`. */
static mg_status scatter_infer(mg_infer *f) {
    const mg_scatter_attrs *a = f->attrs;
    const mg_shape *ids = mg_infer_shape(f, 1), *dy = mg_infer_shape(f, 0);
    MG_TRY(mg_infer_integer(f, 1));
    bool fits = a->size >= 0 && a->axis >= 0 && a->axis + ids->rank <= dy->rank &&
                dy->rank - ids->rank < MG_MAX_RANK;
    for (int i = 0; i < ids->rank && fits; i++) fits = ids->dim[i] == dy->dim[a->axis + i];
    if (!fits)
        return mg_infer_fail(
            f, MG_USAGE, "ids %s do not match the slices %s: the ids' axes must stand at the axis",
            MG_SHAPE_TEXT(ids), MG_SHAPE_TEXT(dy));
    for (int i = 0; i < a->axis; i++) f->shape.dim[f->shape.rank++] = dy->dim[i];
    f->shape.dim[f->shape.rank++] = a->size;
    for (int i = (int)a->axis + ids->rank; i < dy->rank; i++)
        f->shape.dim[f->shape.rank++] = dy->dim[i];
    return MG_OK;
}

#define LOOPS "ops/scatter_loops.h"
#include "ops/both_numbers.h"

/* With respect to dy only: each slice was added once, so its gradient is gathered back. */
static mg_tensor *scatter_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const mg_axis_attrs attrs = {.axis = ((const mg_scatter_attrs *)y->attrs)->axis};
    return mg_make("gather", &attrs, 2, dy, y->inputs[1]);
}

/* ---- scatter_last(ids) ---- */

/* {size}, in int32. */
static mg_status last_infer(mg_infer *f) {
    const mg_scatter_attrs *a = f->attrs;
    MG_TRY(mg_infer_rank(f, 0, 1, "ids"));
    MG_TRY(mg_infer_integer(f, 0));
    if (a->size < 0 || mg_infer_shape(f, 0)->dim[0] > INT32_MAX)
        return mg_infer_fail(f, MG_USAGE, "%lld ids for a size of %lld",
                             (long long)mg_infer_shape(f, 0)->dim[0], (long long)a->size);
    f->shape = MG_SHAPE(a->size);
    f->dtype = MG_I32;
    return MG_OK;
}

/* The last i with ids[i] = k, for each k; -1 if there is none. */
static void last_ref(const mg_ref *r) {
    const int64_t n = r->in_shape[0].dim[0], size = r->shape.dim[0];
    mg_fill(r->out, size, -1);
    for (int64_t i = 0; i < n; i++)
        if (r->in[0][i] >= 0 && r->in[0][i] < (double)size)
            r->out[(int64_t)r->in[0][i]] = (double)i;
}

/* ---- split rules ---- */

/* If ids are split, each device gathers the slices of its own ids from the whole x. If x is split
 * along an axis other than the gathered one, each device gathers from its part. */
static bool gather_split(mg_split *s) {
    const int axis = (int)((const mg_axis_attrs *)s->attrs)->axis, ids = s->in_shape[1]->rank;
    if (s->given[1] >= 0) {
        s->in[1] = s->given[1];
        s->out = axis + s->given[1];
        return true;
    }
    if (s->given[0] < 0 || s->given[0] == axis) return false;
    s->in[0] = s->given[0];
    s->out = s->given[0] < axis ? s->given[0] : s->given[0] - 1 + ids;
    return true;
}

/* If ids are split, or dy along one of the axes of ids, each device adds up its own slices, which
 * gives a term of the sum. If dy is split along another axis, each device makes its part of the
 * result. */
static bool scatter_split(mg_split *s) {
    const int axis = (int)((const mg_scatter_attrs *)s->attrs)->axis, ids = s->in_shape[1]->rank;
    int by = s->given[1];
    if (by < 0 && s->given[0] >= axis && s->given[0] < axis + ids) by = s->given[0] - axis;
    if (by >= 0) {
        s->in[1] = by;
        s->in[0] = axis + by;
        s->out = MG_PARTIAL_SUM;
        return true;
    }
    if (s->given[0] < 0) return false;
    s->in[0] = s->given[0];
    s->out = s->given[0] < axis ? s->given[0] : s->given[0] - ids + 1;
    return true;
}

/* ---- the op table ---- */

static const mg_op gather_rows[] = {
    {.name = "gather",
     .doc = "slices of x along an axis, picked by 0-based ids; NaN (integers: 0) outside",
     .min_inputs = 2,
     .max_inputs = 2,
     MG_ATTRS(mg_axis_attrs, gather_attrs),
     .infer = gather_infer,
     .grad = gather_grad,
     .split = gather_split,
     .ref = gather_ref},
    {.name = "scatter_add",
     .doc = "zeros with the slices dy added where ids say; ids outside are skipped",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_scatter_attrs, scatter_attrs),
     .infer = scatter_infer,
     .grad = scatter_grad,
     .split = scatter_split,
     .ref = scatter_ref,
     .ref_integers = scatter_ref_integers},
    {.name = "scatter_last",
     .doc = "for each of `size` places the position of the last id that names it, or -1; int32",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_scatter_attrs, scatter_attrs),
     .infer = last_infer,
     .ref = last_ref},
};

const mg_op_family mg_ops_gather = {"gather", gather_rows,
                                    sizeof gather_rows / sizeof gather_rows[0]};
