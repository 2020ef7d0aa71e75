/* Movement: reshape permute slice pad concat broadcast_to reverse. They place elements elsewhere
 * and compute nothing, so they accept any dtype.
 *
 * All are linear, and the gradient of each is another movement of dy:
 *
 *     op            gradient
 *     reshape       reshape to the old shape
 *     permute       the inverse permutation
 *     slice         pad with zeros (a step above 1 leaves gaps: the attribute interior)
 *     pad           slice
 *     concat        a slice for each input
 *     broadcast_to  sum over the repeated axes
 *     reverse       reverse
 *
 * Positions are 0-based and ranges half-open here; error messages count from 1 and include both
 * ends, as Lua does.
 *
 * Splitting: a device moves the elements that it has if the split axis stays in one piece; each
 * rule says when that is. Some movements may also be applied to the terms of a sum. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"

/* out[i] = in[offset of the i-th step of the loop]. */
static void copy_along(const mg_ref *r, mg_index_walk from) {
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i++, mg_index_next(&from)) r->out[i] = r->in[0][from.offset];
}

/* t with the elements of the axis in opposite order, for gradients. */
static mg_tensor *make_reverse(mg_tensor *t, int64_t axis) {
    const mg_axis_attrs attrs = {.axis = axis};
    return mg_make("reverse", &attrs, 1, t);
}

/* ---- reshape ---- */

/* reshape(x {2, 6}, {3, -1}) is {3, 4}. Elements keep their row-major order; on a device it is a
 * view or a copy. */
static const mg_attr reshape_attrs[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_ints_attrs, list), 0, NULL,
     "the new shape; one size may be -1: it follows from the others"},
};

/* Replaces the one size of -1, if there is one, so that the number of elements is that of the
 * input. MG_USAGE if no size does that, or if the counts differ. */
static mg_status fill_unknown_size(const mg_infer *f, mg_ints *list) {
    const mg_shape *x = mg_infer_shape(f, 0), wanted = mg_shape_of(list->n, list->v);
    int unknown = -1;  /* the position of the -1 */
    int64_t known = 1; /* the product of the other sizes */
    for (int i = 0; i < list->n; i++) {
        if (list->v[i] < -1 || (list->v[i] == -1 && unknown >= 0))
            return mg_infer_fail(f, MG_USAGE, "shape %s: one size may be -1, none smaller",
                                 MG_SHAPE_TEXT(&wanted));
        if (list->v[i] == -1)
            unknown = i;
        else if (__builtin_mul_overflow(known, list->v[i], &known))
            return mg_infer_fail(f, MG_USAGE, "shape %s: too many elements",
                                 MG_SHAPE_TEXT(&wanted));
    }
    const int64_t count = mg_shape_count(x);
    if (unknown >= 0 && known > 0 && count % known == 0) {
        list->v[unknown] = count / known;
        known = count;
    }
    if (known == count && (unknown < 0 || list->v[unknown] >= 0)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "shape %s (%lld elements) does not fit into %s",
                         MG_SHAPE_TEXT(x), (long long)count, MG_SHAPE_TEXT(&wanted));
}

/* Shape rule: the list, with its -1 replaced. */
static mg_status reshape_infer(mg_infer *f) {
    mg_ints *list = &((mg_ints_attrs *)f->attrs)->list;
    MG_TRY(fill_unknown_size(f, list));
    f->shape = mg_shape_of(list->n, list->v);
    return MG_OK;
}

/* The elements keep their order, so dy only gets the old shape back. */
static mg_tensor *reshape_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return reshape(dy, &y->inputs[i]->shape);
}

static void reshape_ref(const mg_ref *r) {
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i++) r->out[i] = r->in[0][i];
}

/* ---- permute ---- */

/* permute(x {n, h, w, c}, order = 0, 3, 1, 2) is {n, c, h, w}: axis i of the result is axis
 * order[i] of x. */
static const mg_attr permute_attrs[] = {
    {"order", MG_ATTR_AXES, offsetof(mg_ints_attrs, list), 0, NULL,
     "axis i of the result is axis order[i] of x; none: reversed"},
};

/* Checks that `order` is a permutation of the axes; an empty one becomes the reversed order. */
static mg_status permute_infer(mg_infer *f) {
    mg_ints *order = &((mg_ints_attrs *)f->attrs)->list;
    const mg_shape *x = mg_infer_shape(f, 0);
    if (order->n == 0)
        for (; order->n < x->rank; order->n++) order->v[order->n] = x->rank - 1 - order->n;
    if (order->n != x->rank)
        return mg_infer_fail(f, MG_USAGE, "order has %d axes, the tensor of shape %s has %d",
                             order->n, MG_SHAPE_TEXT(x), x->rank);
    bool seen[MG_MAX_RANK] = {0};
    f->shape.rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        MG_TRY(mg_infer_axis(f, &order->v[i], x->rank));
        if (seen[order->v[i]])
            return mg_infer_fail(f, MG_USAGE, "axis %lld is given twice in the order",
                                 (long long)order->v[i] + 1);
        seen[order->v[i]] = true;
        f->shape.dim[i] = x->dim[order->v[i]];
    }
    return MG_OK;
}

/* The inverse permutation. */
static mg_tensor *permute_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const mg_ints *order = &((const mg_ints_attrs *)y->attrs)->list;
    mg_ints back = {.n = order->n};
    for (int k = 0; k < order->n; k++) back.v[order->v[k]] = k;
    return permute(dy, &back);
}

/* Walks the result; axis i steps along axis order[i] of x. */
static void permute_ref(const mg_ref *r) {
    const mg_ints *order = &((const mg_ints_attrs *)r->attrs)->list;
    int64_t stride[MG_MAX_RANK];
    mg_shape_strides(&r->in_shape[0], NULL, stride);
    mg_index_walk from = {.shape = r->shape};
    for (int i = 0; i < order->n; i++) from.stride[i] = stride[order->v[i]];
    copy_along(r, from);
}

/* ---- slice ---- */

/* slice takes elements start, start + step, ... before stop along each axis; a negative step runs
 * backwards. */
static const mg_attr slice_attrs[] = {
    {"start", MG_ATTR_INTS, offsetof(mg_slice_attrs, start), 0, NULL,
     "first position per axis, from 0; missing: all of the axis"},
    {"stop", MG_ATTR_INTS, offsetof(mg_slice_attrs, stop), 0, NULL,
     "end per axis, itself excluded; -1 lies before the first when step is negative"},
    {"step", MG_ATTR_INTS, offsetof(mg_slice_attrs, step), 0, NULL,
     "per axis; missing: 1; negative: backwards"},
};

/* Completes entry i of the lists, where they are shorter than the rank, and checks it. With a
 * negative step, start is the last position and stop may be -1: before the first. Sets the size. */
static mg_status slice_axis(mg_infer *f, int i) {
    mg_slice_attrs *a = f->attrs;
    const int64_t size = mg_infer_shape(f, 0)->dim[i];
    if (a->step.n <= i) a->step.v[i] = 1;
    const int64_t step = a->step.v[i];
    if (step == 0 || step == INT64_MIN)
        return mg_infer_fail(f, MG_USAGE, "step of axis %d must not be %lld", i + 1,
                             (long long)step);
    if (a->start.n <= i) a->start.v[i] = step > 0 ? 0 : size - 1;
    if (a->stop.n <= i) a->stop.v[i] = step > 0 ? size : -1;
    const int64_t start = a->start.v[i], stop = a->stop.v[i], low = step > 0 ? 0 : -1;
    if (start < low || start > size + low || stop < low || stop > size + low)
        return mg_infer_fail(f, MG_USAGE, "%lld to %lld lies outside axis %d of shape %s",
                             (long long)start + 1, (long long)(step > 0 ? stop : stop + 2), i + 1,
                             MG_SHAPE_TEXT(mg_infer_shape(f, 0)));
    const int64_t span = step > 0 ? stop - start : start - stop, gap = step > 0 ? step : -step;
    f->shape.dim[i] = span > 0 ? (span - 1) / gap + 1 : 0;
    return MG_OK;
}

/* One range for each axis; missing ones take all of their axis. */
static mg_status slice_infer(mg_infer *f) {
    mg_slice_attrs *a = f->attrs;
    const int rank = f->shape.rank = mg_infer_shape(f, 0)->rank;
    if (a->start.n > rank || a->stop.n > rank || a->step.n > rank)
        return mg_infer_fail(f, MG_USAGE, "more ranges than shape %s has axes",
                             MG_SHAPE_TEXT(mg_infer_shape(f, 0)));
    for (int i = 0; i < rank; i++) MG_TRY(slice_axis(f, i));
    a->start.n = a->stop.n = a->step.n = rank;
    return MG_OK;
}

/* pad puts dy back where it was taken: step - 1 cells between neighbours, zeros elsewhere. A slice
 * that ran backwards is reversed first. */
static mg_tensor *slice_grad(mg_tensor *y, mg_tensor *dy, int i) {
    const mg_slice_attrs *a = y->attrs;
    const mg_shape *x = &y->inputs[i]->shape;
    mg_pad_attrs pad = {.before.n = x->rank, .after.n = x->rank, .interior.n = x->rank};
    for (int k = 0; k < x->rank; k++) {
        const int64_t n = y->shape.dim[k], step = a->step.v[k], size = x->dim[k];
        int64_t first = a->start.v[k], gap = step;
        if (step < 0) {
            dy = make_reverse(dy, k);
            first += (n - 1) * step;
            gap = -step;
        }
        pad.interior.v[k] = n > 1 ? gap - 1 : 0;
        pad.before.v[k] = n ? first : size;
        pad.after.v[k] = n ? size - first - (n - 1) * gap - 1 : 0;
    }
    return mg_make("pad", &pad, 1, dy);
}

/* Walks the result with the strides of x times the steps. */
static void slice_ref(const mg_ref *r) {
    const mg_slice_attrs *a = r->attrs;
    int64_t stride[MG_MAX_RANK];
    mg_shape_strides(&r->in_shape[0], NULL, stride);
    mg_index_walk from = {.shape = r->shape};
    for (int i = 0; i < r->shape.rank; i++) {
        from.stride[i] = stride[i] * a->step.v[i];
        from.offset += stride[i] * a->start.v[i];
    }
    copy_along(r, from);
}

/* ---- pad ---- */

/* pad puts constant cells before and after the elements of each axis, and `interior` cells between
 * neighbours. It undoes a slice: interior = step - 1. */
static const mg_attr pad_attrs[] = {
    {"before", MG_ATTR_INTS, offsetof(mg_pad_attrs, before), 0, NULL, "cells before, per axis"},
    {"after", MG_ATTR_INTS, offsetof(mg_pad_attrs, after), 0, NULL, "cells after, per axis"},
    {"value", MG_ATTR_NUMBER, offsetof(mg_pad_attrs, value), 0, NULL, "what the cells hold"},
    {"interior", MG_ATTR_INTS, offsetof(mg_pad_attrs, interior), 0, NULL,
     "cells between neighbours, per axis"},
};

/* Adds up the size of axis i, refusing overflow. */
static mg_status pad_axis(mg_infer *f, int i) {
    const mg_pad_attrs *a = f->attrs;
    const int64_t size = mg_infer_shape(f, 0)->dim[i], gap = a->interior.v[i];
    int64_t between, total;
    if (a->before.v[i] < 0 || a->after.v[i] < 0 || gap < 0)
        return mg_infer_fail(f, MG_USAGE, "sizes of axis %d must not be negative", i + 1);
    if (__builtin_mul_overflow(size > 1 ? size - 1 : 0, gap, &between) ||
        __builtin_add_overflow(size, between, &total) ||
        __builtin_add_overflow(total, a->before.v[i], &total) ||
        __builtin_add_overflow(total, a->after.v[i], &total))
        return mg_infer_fail(f, MG_USAGE, "sizes of axis %d are too large", i + 1);
    f->shape.dim[i] = total;
    return MG_OK;
}

/* The lists get one entry for each axis. `interior` becomes empty if it is all zeros, so that
 * kernels recognise a plain pad at once. */
static mg_status pad_infer(mg_infer *f) {
    mg_pad_attrs *a = f->attrs;
    const int rank = f->shape.rank = mg_infer_shape(f, 0)->rank;
    if (a->before.n > rank || a->after.n > rank || a->interior.n > rank)
        return mg_infer_fail(f, MG_USAGE, "more sizes than shape %s has axes",
                             MG_SHAPE_TEXT(mg_infer_shape(f, 0)));
    a->before.n = a->after.n = rank;
    a->interior.n = 0;
    for (int i = 0; i < rank; i++) {
        MG_TRY(pad_axis(f, i));
        if (a->interior.v[i]) a->interior.n = rank;
    }
    return MG_OK;
}

/* The part of dy at the positions of x; the gradient of the constant cells is dropped. */
static mg_tensor *pad_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    const mg_pad_attrs *a = y->attrs;
    const int rank = y->shape.rank;
    mg_slice_attrs slice = {.start.n = rank, .stop.n = rank, .step.n = rank};
    for (int k = 0; k < rank; k++) {
        slice.start.v[k] = a->before.v[k];
        slice.stop.v[k] = y->shape.dim[k] - a->after.v[k];
        slice.step.v[k] = a->interior.v[k] + 1;
    }
    return mg_make("slice", &slice, 1, dy);
}

/* Fills the result with the value, then copies the elements of x to their positions. */
static void pad_ref(const mg_ref *r) {
    const mg_pad_attrs *a = r->attrs;
    const int64_t n_in = mg_shape_count(&r->in_shape[0]);
    int64_t stride[MG_MAX_RANK];
    mg_shape_strides(&r->shape, NULL, stride);
    mg_index_walk to = {.shape = r->in_shape[0]};
    for (int i = 0; i < r->shape.rank; i++) {
        to.stride[i] = stride[i] * (a->interior.v[i] + 1);
        to.offset += stride[i] * a->before.v[i];
    }
    mg_fill(r->out, mg_shape_count(&r->shape), a->value);
    for (int64_t i = 0; i < n_in; i++, mg_index_next(&to)) r->out[to.offset] = r->in[0][i];
}

/* ---- concat ---- */

/* concat joins its inputs, one after another, along an axis. Their dtypes are promoted. */
static const mg_attr concat_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), 0, NULL, "the axis; default: the first"},
};

/* All inputs have the same shape except along the axis, whose sizes add up. */
static mg_status concat_infer(mg_infer *f) {
    mg_axis_attrs *a = f->attrs;
    const mg_shape *first = mg_infer_shape(f, 0);
    f->shape = *first;
    MG_TRY(mg_infer_axis(f, &a->axis, first->rank));
    for (int k = 1; k < f->n_inputs; k++) {
        const mg_shape *s = mg_infer_shape(f, k);
        bool fits = s->rank == first->rank;
        for (int i = 0; i < s->rank && fits; i++) fits = i == a->axis || s->dim[i] == first->dim[i];
        if (!fits)
            return mg_infer_fail(f, MG_USAGE, "shapes %s and %s differ in more than axis %lld",
                                 MG_SHAPE_TEXT(first), MG_SHAPE_TEXT(s), (long long)a->axis + 1);
        if (__builtin_add_overflow(f->shape.dim[a->axis], s->dim[a->axis], &f->shape.dim[a->axis]))
            return mg_infer_fail(f, MG_USAGE, "axis %lld gets too large", (long long)a->axis + 1);
    }
    return MG_OK;
}

/* Input i gets its run of dy: the runs of the inputs before it come first. */
static mg_tensor *concat_grad(mg_tensor *y, mg_tensor *dy, int i) {
    const int64_t axis = ((const mg_axis_attrs *)y->attrs)->axis;
    const int rank = y->shape.rank;
    mg_slice_attrs slice = {.start.n = rank, .stop.n = rank};
    for (int k = 0; k < rank; k++) slice.stop.v[k] = y->shape.dim[k];
    for (int k = 0; k < i; k++) slice.start.v[axis] += y->inputs[k]->shape.dim[axis];
    slice.stop.v[axis] = slice.start.v[axis] + y->inputs[i]->shape.dim[axis];
    return mg_make("slice", &slice, 1, dy);
}

/* Each input is `outer` runs, of its size along the axis times `inner` elements. */
static void concat_ref(const mg_ref *r) {
    const int64_t axis = ((const mg_axis_attrs *)r->attrs)->axis;
    const mg_axis_view out = mg_axis_view_of(&r->shape, axis);
    int64_t first = 0;
    for (int k = 0; k < r->n_inputs; k++) {
        const int64_t run = r->in_shape[k].dim[axis] * out.inner;
        for (int64_t o = 0; o < out.outer; o++)
            for (int64_t j = 0; j < run; j++)
                r->out[o * out.n * out.inner + first + j] = r->in[k][o * run + j];
        first += run;
    }
}

/* ---- broadcast_to ---- */

/* broadcast_to repeats x along missing leading axes and along axes of size 1, as NumPy does. */
static const mg_attr broadcast_attrs[] = {
    {"shape", MG_ATTR_SHAPE, offsetof(mg_ints_attrs, list), 0, NULL, "the shape to repeat x to"},
};

/* Shape rule: axes are aligned at the last; each must be 1, missing or equal to the wanted size. */
static mg_status broadcast_infer(mg_infer *f) {
    const mg_ints *list = &((const mg_ints_attrs *)f->attrs)->list;
    const mg_shape *x = mg_infer_shape(f, 0), wanted = mg_shape_of(list->n, list->v);
    const int lead = wanted.rank - x->rank;
    bool fits = lead >= 0;
    for (int i = 0; i < x->rank && fits; i++)
        fits = x->dim[i] == 1 || x->dim[i] == wanted.dim[lead + i];
    if (!fits)
        return mg_infer_fail(f, MG_USAGE, "shape %s does not broadcast to %s", MG_SHAPE_TEXT(x),
                             MG_SHAPE_TEXT(&wanted));
    f->shape = wanted;
    return MG_OK;
}

/* dy summed over the axes along which x was repeated. */
static mg_tensor *broadcast_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return sum_to(dy, &y->inputs[i]->shape);
}

/* Walks the result; the stride of a repeated axis is 0. */
static void broadcast_ref(const mg_ref *r) {
    mg_index_walk from = {.shape = r->shape};
    mg_shape_strides(&r->in_shape[0], &r->shape, from.stride);
    copy_along(r, from);
}

/* ---- reverse ---- */

/* reverse turns the order of an axis round. (In Lua, a slice with step -1 does the same; gradients
 * use this op.) */
static const mg_attr reverse_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_axis_attrs, axis), 0, NULL, "the axis; default: the first"},
};

/* The shape of x. */
static mg_status reverse_infer(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    return mg_infer_axis(f, &((mg_axis_attrs *)f->attrs)->axis, f->shape.rank);
}

/* Reversing is its own inverse. */
static mg_tensor *reverse_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return make_reverse(dy, ((const mg_axis_attrs *)y->attrs)->axis);
}

/* Begins at the last position of the axis and steps back. */
static void reverse_ref(const mg_ref *r) {
    const int64_t axis = ((const mg_axis_attrs *)r->attrs)->axis;
    mg_index_walk from = {.shape = r->shape};
    mg_shape_strides(&r->shape, NULL, from.stride);
    from.offset = from.stride[axis] * (r->shape.dim[axis] - 1);
    from.stride[axis] = -from.stride[axis];
    copy_along(r, from);
}

/* ---- split rules ---- */

/* The result is split along its axis i if each device's part is the same run of elements in memory.
 * So the product of the sizes before axis i must equal the product before the split axis of x, and
 * the size of axis i must be a multiple of the batch's rows, so that both are cut at the same
 * places. */
static bool reshape_split(mg_split *s) {
    const mg_shape *x = s->in_shape[0], *y = s->shape;
    int64_t before = 1, blocks = 1;
    s->in[0] = s->given[0];
    if (s->given[0] < 0) { /* terms of a reduction have all elements: any shape will do */
        s->out = s->given[0];
        return s->given[0] != MG_ANY_SHARDING;
    }
    for (int i = 0; i < s->given[0]; i++) before *= x->dim[i];
    for (int i = 0; i < y->rank; i++) {
        if (blocks == before && y->dim[i] % s->rows == 0 && y->dim[i] > 0 &&
            (y->dim[i] > 1 || s->rows == 1)) {
            s->out = i;
            return true;
        }
        blocks *= y->dim[i];
    }
    return false;
}

/* The split axis keeps its elements and gets its new number. */
static bool permute_split(mg_split *s) {
    const mg_ints *order = s->attrs;
    s->in[0] = s->given[0];
    s->out = s->given[0];
    for (int i = 0; i < order->n && s->given[0] >= 0; i++)
        if (order->v[i] == s->given[0]) s->out = i;
    return s->given[0] != MG_ANY_SHARDING;
}

/* The split axis must be taken whole, in order. Terms of a sum may be sliced in any way. */
static bool slice_split(mg_split *s) {
    const mg_slice_attrs *a = s->attrs;
    const int axis = s->given[0];
    s->in[0] = s->out = axis;
    if (axis < 0) return axis != MG_ANY_SHARDING;
    return a->start.v[axis] == 0 && a->stop.v[axis] == s->in_shape[0]->dim[axis] &&
           (a->step.n == 0 || a->step.v[axis] == 1);
}

/* The split axis must not be padded. False for terms of a sum: each device would add the value
 * once. */
static bool pad_split(mg_split *s) {
    return s->given[0] >= 0 && s->shape->dim[s->given[0]] == s->in_shape[0]->dim[s->given[0]] &&
           mg_split_except(s, -1);
}

/* All inputs are split along the same axis, which is not the one they are joined along. */
static bool concat_split(mg_split *s) {
    const int64_t axis = ((const mg_axis_attrs *)s->attrs)->axis;
    int by = MG_REPLICATED;
    for (int i = 0; i < s->n_inputs; i++) {
        if (s->given[i] < 0) continue;
        if (s->given[i] == axis || (by >= 0 && by != s->given[i])) return false;
        by = s->given[i];
    }
    for (int i = 0; i < s->n_inputs; i++) s->in[i] = by;
    s->out = by;
    return by >= 0;
}

/* A split axis of x keeps its place in the result. */
static bool broadcast_split(mg_split *s) {
    if (s->given[0] < 0) { /* repeated terms are the terms of the repeated sum */
        s->in[0] = s->out = s->given[0];
        return s->given[0] != MG_ANY_SHARDING;
    }
    return mg_split_broadcast(s);
}

/* Along the reversed axis, a device would need the elements of the others: false. */
static bool reverse_split(mg_split *s) {
    return mg_split_except(s, ((const mg_axis_attrs *)s->attrs)->axis);
}

/* ---- the op table ---- */

/* The beginning of a row with one input. */
#define ONE_INPUT(id, text) .name = id, .doc = text, .min_inputs = 1, .max_inputs = 1

static const mg_op movement_rows[] = {
    {ONE_INPUT("reshape", "the same elements in row-major order under another shape"),
     .example = "local t = mgpu.arange(6)\n"
                "print(t:reshape { 2, 3 })\n"
                "--> tensor {2, 3} float32 cpu:0\n"
                "--> {{0, 1, 2},\n"
                "-->  {3, 4, 5}}\n"
                "print(table.concat(t:reshape { -1, 2 }:shape(), \" \")) -- -1: as many rows as it "
                "takes  --> 3 2",
     MG_ATTRS(mg_ints_attrs, reshape_attrs), .infer = reshape_infer, .grad = reshape_grad,
     .split = reshape_split, .ref = reshape_ref},
    {ONE_INPUT("permute", "axes in another order"),
     .example = "local images = mgpu.zeros { 8, 28, 28, 3 } -- batch, rows, columns, channels\n"
                "print(table.concat(images:permute { 1, 4, 2, 3 }:shape(), \" \")) -- channels "
                "first  --> 8 3 28 28",
     MG_ATTRS(mg_ints_attrs, permute_attrs), .infer = permute_infer, .grad = permute_grad,
     .split = permute_split, .ref = permute_ref},
    {ONE_INPUT("slice", "every step-th element from start to stop, per axis"),
     MG_ATTRS(mg_slice_attrs, slice_attrs), .infer = slice_infer, .grad = slice_grad,
     .split = slice_split, .ref = slice_ref},
    {ONE_INPUT("pad", "x with cells of one value around it"),
     .example = "print(mgpu.tensor { { 1, 2 }, { 3, 4 } }:pad { before = { 1, 0 }, after = { 0, 2 "
                "}, value = 9 })\n"
                "--> tensor {3, 4} float32 cpu:0\n"
                "--> {{9, 9, 9, 9},\n"
                "-->  {1, 2, 9, 9},\n"
                "-->  {3, 4, 9, 9}}",
     MG_ATTRS(mg_pad_attrs, pad_attrs), .infer = pad_infer, .grad = pad_grad, .split = pad_split,
     .ref = pad_ref},
    {.name = "concat",
     .doc = "inputs one after another along an axis",
     .min_inputs = 1,
     .max_inputs = 255,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_axis_attrs, concat_attrs),
     .infer = concat_infer,
     .grad = concat_grad,
     .split = concat_split,
     .ref = concat_ref},
    {ONE_INPUT("broadcast_to", "x repeated along missing axes and axes of size 1"),
     .example = "print(mgpu.tensor { 1, 2, 3 }:broadcast_to { 2, 3 })\n"
                "--> tensor {2, 3} float32 cpu:0\n"
                "--> {{1, 2, 3},\n"
                "-->  {1, 2, 3}}",
     MG_ATTRS(mg_ints_attrs, broadcast_attrs), .infer = broadcast_infer, .grad = broadcast_grad,
     .split = broadcast_split, .ref = broadcast_ref},
    {ONE_INPUT("reverse", "the elements of an axis in opposite order"),
     .example =
         "print(mgpu.tensor { { 1, 2 }, { 3, 4 } }:reverse(2)) -- mgpu.flip takes several axes\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{2, 1},\n"
         "-->  {4, 3}}",
     MG_ATTRS(mg_axis_attrs, reverse_attrs), .infer = reverse_infer, .grad = reverse_grad,
     .split = reverse_split, .ref = reverse_ref},
};

const mg_op_family mg_ops_movement = {"movement", movement_rows,
                                      sizeof movement_rows / sizeof movement_rows[0]};
