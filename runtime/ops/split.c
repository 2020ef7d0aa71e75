/* split: the equal parts of an axis, one after another: an op with several results. Its gradient is
 * one concat of the parts' gradients, where slices would each be padded to the size of the whole.
 */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include <string.h>

static const mg_attr split_attrs[] = {
    {"axis", MG_ATTR_AXIS, offsetof(mg_split_attrs, axis), 0, NULL, "the axis; default: the first"},
    {"parts", MG_ATTR_INT, offsetof(mg_split_attrs, parts), 1, NULL, "how many parts"},
};

/* All parts have the same shape. */
static mg_status split_infer(mg_infer *f) {
    mg_split_attrs *a = f->attrs;
    f->shape = *mg_infer_shape(f, 0);
    MG_TRY(mg_infer_axis(f, &a->axis, f->shape.rank));
    if (a->parts < 1 || a->parts > MG_MOST_PARTS || f->shape.dim[a->axis] % a->parts)
        return mg_infer_fail(f, MG_USAGE, "axis %lld of size %lld cannot be cut into %lld parts",
                             (long long)a->axis + 1, (long long)f->shape.dim[a->axis],
                             (long long)a->parts);
    f->shape.dim[a->axis] /= a->parts;
    return MG_OK;
}

static int split_results(const void *attrs) {
    return (int)((const mg_split_attrs *)attrs)->parts;
}

/* Parts without a gradient count as zeros. */
static mg_tensor *split_grad(mg_tensor *y, mg_tensor *const *dys, int i) {
    const mg_split_attrs *a = y->attrs;
    const mg_axis_attrs axis = {.axis = a->axis};
    mg_tensor *parts[MG_MOST_PARTS];
    mg_shape part = y->inputs[i]->shape;
    part.dim[a->axis] /= a->parts;
    for (int k = 0; k < a->parts; k++) {
        parts[k] = dys[k] ? dys[k] : full(0, (mg_dtype)y->inputs[i]->dtype, &part);
        if (!parts[k]) return NULL;
    }
    return mg_scope_own(mg_apply(mg_op_find("concat"), parts, (int)a->parts, &axis));
}

/* The parts are sharded as the whole is, unless along their own axis. */
static bool split_split(mg_split *s) {
    return mg_split_except(s, ((const mg_split_attrs *)s->attrs)->axis);
}

/* Part k is, for each `outer`, a run of the input's row. `size` is that of a number. */
static void copy_parts(const mg_ref *r, const char *from, char *const *to, size_t size) {
    const mg_split_attrs *a = r->attrs;
    const mg_axis_view v = mg_axis_view_of(&r->in_shape[0], a->axis);
    const size_t run = (size_t)(v.n / a->parts * v.inner) * size;
    for (int64_t o = 0; o < v.outer; o++)
        for (int k = 0; k < r->n_outs; k++)
            memcpy(to[k] + (size_t)o * run, from + ((size_t)o * (size_t)a->parts + (size_t)k) * run,
                   run);
}

static void split_ref(const mg_ref *r) {
    copy_parts(r, (const char *)r->in[0], (char *const *)r->outs, sizeof **r->outs);
}

static void split_ref_integers(const mg_ref *r) {
    copy_parts(r, (const char *)r->in_integers[0], (char *const *)r->outs_integers,
               sizeof **r->outs_integers);
}

static const mg_op split_rows[] = {
    {.name = "split",
     .doc = "equal parts of an axis",
     .flags = MG_OP_HIDDEN,
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_split_attrs, split_attrs),
     .infer = split_infer,
     .n_results = split_results,
     .grad_many = split_grad,
     .split = split_split,
     .ref = split_ref,
     .ref_integers = split_ref_integers},
};

const mg_op_family mg_ops_split = {"split", split_rows, sizeof split_rows / sizeof split_rows[0]};
