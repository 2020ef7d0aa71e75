/* image_resize: images x {n, rows, columns, channels} with other numbers of rows and columns.
 *
 * Every cell of the result is a weighted sum of cells of x, along rows and columns independently;
 * resize_formulas.h says which cells and weights. So the op is linear, and its gradient
 * image_resize_grad is its transpose: each element of dy is added, by the same weights, to the
 * cells that it was computed from. Both are split over devices by images. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include "ops/resize_formulas.h"
#include "ops/window.h"

const char *const mg_resize_kinds[] = {
    [MG_RESIZE_NEAREST] = "nearest",   [MG_RESIZE_BILINEAR] = "bilinear",
    [MG_RESIZE_BICUBIC] = "bicubic",   [MG_RESIZE_AREA] = "area",
    [MG_RESIZE_LANCZOS3] = "lanczos3", [MG_RESIZE_LANCZOS5] = "lanczos5",
    [MG_RESIZE_LANCZOS5 + 1] = NULL};

/* The attributes of both ops; only the meaning of size differs. */
#define RESIZE_ATTRS(size_text)                                                                    \
    {"size", MG_ATTR_INTS, offsetof(mg_resize_attrs, size), 0, NULL, size_text},                   \
        {"interpolation",                                                                          \
         MG_ATTR_CHOICE,                                                                           \
         offsetof(mg_resize_attrs, interpolation),                                                 \
         MG_RESIZE_BILINEAR,                                                                       \
         mg_resize_kinds,                                                                          \
         "nearest, bilinear, bicubic, area, lanczos3 or lanczos5"},                                \
    {                                                                                              \
        "antialias", MG_ATTR_BOOL, offsetof(mg_resize_attrs, antialias), 0, NULL,                  \
            "average over all cells where an image shrinks"                                        \
    }

static const mg_attr resize_attrs[] = {RESIZE_ATTRS("{rows, columns} of the result")};
static const mg_attr resize_grad_attrs[] = {RESIZE_ATTRS("{rows, columns} of x")};

/* ---- inference ---- */

/* Both ops change rows and columns to `size`. */
static mg_status resize_infer(mg_infer *f) {
    mg_resize_attrs *a = f->attrs;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    if (a->size.n == 0)
        return mg_infer_fail(f, MG_USAGE, "the option \"size\" is missing: {rows, columns}");
    MG_TRY(mg_window_list(f, &a->size, 2, 0, 1, "size"));
    if (a->interpolation != MG_RESIZE_NEAREST) MG_TRY(mg_infer_float(f, 0));
    f->shape = *mg_infer_shape(f, 0);
    for (int axis = 1; axis <= 2; axis++) {
        if (f->shape.dim[axis] < 1 || f->shape.dim[axis] > INT32_MAX)
            return mg_infer_fail(f, MG_USAGE, "cannot resize images of shape %s",
                                 MG_SHAPE_TEXT(mg_infer_shape(f, 0)));
        f->shape.dim[axis] = a->size.v[axis - 1];
    }
    return MG_OK;
}

/* ---- gradients ---- */

/* Applies `op`, the transpose of y's op, to dy: the result has the shape of y's input. */
static mg_tensor *make_transpose(const char *op, const mg_tensor *y, mg_tensor *dy) {
    mg_resize_attrs attrs = *(const mg_resize_attrs *)y->attrs;
    for (int axis = 0; axis < 2; axis++) attrs.size.v[axis] = y->inputs[0]->shape.dim[1 + axis];
    return mg_make(op, &attrs, 1, dy);
}

static mg_tensor *resize_grad(mg_tensor *y, mg_tensor *dy, int i) {
    (void)i;
    return make_transpose("image_resize_grad", y, dy);
}

static mg_tensor *resize_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    (void)i;
    return make_transpose("image_resize", dx, g);
}

/* ---- reference kernels ---- */

/* Rows (axis 0) or columns (1) of a resize from `small` to `large`. */
static mg_resize_axis axis_of(const mg_ref *r, int axis, const mg_shape *from, const mg_shape *to) {
    const mg_resize_attrs *a = r->attrs;
    return (mg_resize_axis){.from = from->dim[1 + axis],
                            .to = to->dim[1 + axis],
                            .kind = (int)a->interpolation,
                            .antialias = (int)a->antialias};
}

/* Visits each pixel of the resized images and each pixel of the source that it is made of: `put`
 * gets their offsets, of channel 0, and the weight. */
static void visit_pixels(const mg_ref *r, const mg_shape *from, const mg_shape *to,
                         void (*put)(const mg_ref *r, int64_t source, int64_t result, double w)) {
    const mg_resize_axis rows = axis_of(r, 0, from, to), columns = axis_of(r, 1, from, to);
    const int64_t c = from->dim[3], pixels = to->dim[0] * rows.to * columns.to;
    int64_t top, bottom, left, right;
    for (int64_t at = 0; at < pixels; at++) {
        const int64_t ox = at % columns.to, oy = at / columns.to % rows.to;
        const int64_t image = at / columns.to / rows.to;
        const double sum = mg_resize_sum(&rows, oy) * mg_resize_sum(&columns, ox);
        mg_resize_cells(&rows, oy, &top, &bottom);
        mg_resize_cells(&columns, ox, &left, &right);
        for (int64_t y = top; y <= bottom; y++)
            for (int64_t x = left; x <= right; x++) {
                const double w = mg_resize_kernel(&rows, oy, y) * mg_resize_kernel(&columns, ox, x);
                put(r, ((image * rows.from + y) * columns.from + x) * c, at * c, w / sum);
            }
    }
}

static void put_forward(const mg_ref *r, int64_t source, int64_t result, double w) {
    for (int64_t k = 0; k < r->shape.dim[3]; k++) r->out[result + k] += w * r->in[0][source + k];
}

static void put_back(const mg_ref *r, int64_t source, int64_t result, double w) {
    for (int64_t k = 0; k < r->shape.dim[3]; k++) r->out[source + k] += w * r->in[0][result + k];
}

static void resize_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_pixels(r, &r->in_shape[0], &r->shape, put_forward);
}

static void resize_grad_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_pixels(r, &r->shape, &r->in_shape[0], put_back);
}

/* ---- split rule ---- */

static bool resize_split(mg_split *s) {
    return mg_split_rows(s, 1, 0);
}

/* ---- the op table ---- */

static const mg_op resize_rows[] = {
    {.name = "image_resize",
     .doc = "images x {n, h, w, c} resized to {n, rows, columns, c}",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_resize_attrs, resize_attrs),
     .infer = resize_infer,
     .grad = resize_grad,
     .split = resize_split,
     .ref = resize_ref},
    {.name = "image_resize_grad",
     .doc = "gradient of image_resize's x from dy",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_resize_attrs, resize_grad_attrs),
     .infer = resize_infer,
     .grad = resize_grad_grad,
     .split = resize_split,
     .ref = resize_grad_ref},
};

const mg_op_family mg_ops_resize = {"resize", resize_rows,
                                    sizeof resize_rows / sizeof resize_rows[0]};
