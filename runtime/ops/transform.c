/* affine_transform: each pixel of the result is read at a point of the image that a projective
 * transform of its own position gives: rotations, shifts, zooms, shears, perspective.
 *
 * images {n, rows, columns, channels}; transforms {n, 8}, {1, 8} or {8} (6 instead of 8: the last
 * two are 0), whose meaning transform_formulas.h defines. The op is linear in the images apart from
 * the constant fill value, and affine_transform_grad is its transpose. No gradient flows to the
 * transforms, as in TensorFlow. Both are split over devices by images. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include "ops/transform_formulas.h"
#include "ops/window.h"
#include <string.h>

static const char *const interpolations[] = {"nearest", "bilinear", NULL};
static const char *const fill_modes[] = {"constant", "nearest", "reflect", "wrap", NULL};

/* The attributes of both ops; only the meaning of size differs. */
#define TRANSFORM_ATTRS(size_text)                                                                 \
    {"size", MG_ATTR_INTS, offsetof(mg_transform_attrs, size), 0, NULL, size_text},                \
        {"interpolation", MG_ATTR_CHOICE,       offsetof(mg_transform_attrs, interpolation), 1,    \
         interpolations,  "nearest or bilinear"},                                                  \
        {"fill_mode",                                                                              \
         MG_ATTR_CHOICE,                                                                           \
         offsetof(mg_transform_attrs, fill_mode),                                                  \
         MG_OUTSIDE_CONSTANT,                                                                      \
         fill_modes,                                                                               \
         "what lies outside: constant, nearest, reflect or wrap"},                                 \
    {                                                                                              \
        "fill_value", MG_ATTR_NUMBER, offsetof(mg_transform_attrs, fill_value), 0, NULL,           \
            "what lies outside with fill_mode constant"                                            \
    }

static const mg_attr transform_attrs[] = {
    TRANSFORM_ATTRS("{rows, columns} of the result; default: those of the images")};
static const mg_attr transform_grad_attrs[] = {TRANSFORM_ATTRS("{rows, columns} of the images")};

/* ---- inference ---- */

/* MG_USAGE unless input 1 is one transform, or one for each image. */
static mg_status check_transforms(const mg_infer *f) {
    const mg_shape *t = mg_infer_shape(f, 1), *x = mg_infer_shape(f, 0);
    const int64_t numbers = t->rank > 0 ? t->dim[t->rank - 1] : 0;
    const int64_t count = t->rank == 2 ? t->dim[0] : 1;
    MG_TRY(mg_infer_float(f, 1));
    if ((t->rank == 1 || t->rank == 2) && (numbers == 6 || numbers == 8) &&
        (count == 1 || count == x->dim[0]))
        return MG_OK;
    return mg_infer_fail(f, MG_USAGE,
                         "the transforms must have shape {%lld, 8}, {1, 8} or {8} (or 6 instead of "
                         "8), got %s",
                         (long long)x->dim[0], MG_SHAPE_TEXT(t));
}

/* Both ops change rows and columns to `size`, by default those of the input. */
static mg_status transform_infer(mg_infer *f) {
    mg_transform_attrs *a = f->attrs;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    f->shape = *mg_infer_shape(f, 0);
    if (f->shape.dim[1] < 1 || f->shape.dim[2] < 1 || f->shape.dim[1] > INT32_MAX ||
        f->shape.dim[2] > INT32_MAX)
        return mg_infer_fail(f, MG_USAGE, "cannot transform images of shape %s",
                             MG_SHAPE_TEXT(&f->shape));
    MG_TRY(check_transforms(f));
    if (a->interpolation != 0) MG_TRY(mg_infer_float(f, 0));
    if (a->size.n == 0) a->size = (mg_ints){.n = 2, .v = {f->shape.dim[1], f->shape.dim[2]}};
    MG_TRY(mg_window_list(f, &a->size, 2, 0, 1, "size"));
    for (int axis = 0; axis < 2; axis++) f->shape.dim[1 + axis] = a->size.v[axis];
    return MG_OK;
}

/* ---- gradients ---- */

/* Applies `op`, the transpose of y's op without the fill, to dy: the result has the shape of y's
 * input. */
static mg_tensor *make_transpose(const char *op, const mg_tensor *y, mg_tensor *dy, int i) {
    mg_transform_attrs attrs = *(const mg_transform_attrs *)y->attrs;
    if (i == 1) return mg_no_gradient();
    for (int axis = 0; axis < 2; axis++) attrs.size.v[axis] = y->inputs[0]->shape.dim[1 + axis];
    attrs.fill_value = 0;
    return mg_make(op, &attrs, 2, dy, y->inputs[1]);
}

static mg_tensor *transform_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return make_transpose("affine_transform_grad", y, dy, i);
}

static mg_tensor *transform_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    return make_transpose("affine_transform", dx, g, i);
}

/* ---- reference kernels ---- */

/* The eight numbers of an image's transform; the last two are 0 if it has only six. */
static void transform_of(const mg_ref *r, int64_t image, double t[8]) {
    const mg_shape *s = &r->in_shape[1];
    const int64_t numbers = s->dim[s->rank - 1], at = s->rank == 2 && s->dim[0] > 1 ? image : 0;
    for (int64_t i = 0; i < 8; i++) t[i] = i < numbers ? r->in[1][at * numbers + i] : 0;
}

/* The pixels of an image of shape s that pixel (ox, oy) of the result reads: along rows in at[0],
 * along columns in at[1]. */
static void pixels_at(const mg_ref *r, const mg_shape *s, const double t[8], int64_t ox, int64_t oy,
                      mg_transform_axis at[2]) {
    const mg_transform_attrs *a = r->attrs;
    double point[2];
    memset(at, 0, 2 * sizeof *at);
    if (!mg_transform_point(t, ox, oy, &point[1], &point[0])) return;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t n = s->dim[1 + axis];
        const double place = mg_transform_fold(point[axis], n, (int)a->fill_mode);
        at[axis] = mg_transform_pixels(place, n, (int)a->interpolation);
    }
}

/* One pixel of the result at offset `result`, of the image that begins at `image`. */
static void read_pixel(const mg_ref *r, const mg_transform_axis at[2], int64_t image, int64_t w,
                       int64_t result) {
    const double outside = 1 - at[0].inside * at[1].inside;
    const double fill = ((const mg_transform_attrs *)r->attrs)->fill_value;
    for (int64_t k = 0; k < r->shape.dim[3]; k++) {
        double sum = outside > 0 ? outside * fill : 0;
        for (int i = 0; i < at[0].count; i++)
            for (int j = 0; j < at[1].count; j++) {
                const int64_t cell = (at[0].first + i) * w + at[1].first + j;
                sum += at[0].weight[i] * at[1].weight[j] *
                       r->in[0][image + cell * r->shape.dim[3] + k];
            }
        r->out[result + k] = sum;
    }
}

/* Adds dy at offset `result` to the pixels that were read. */
static void add_pixel(const mg_ref *r, const mg_transform_axis at[2], int64_t image, int64_t w,
                      int64_t result) {
    for (int i = 0; i < at[0].count; i++)
        for (int j = 0; j < at[1].count; j++) {
            const int64_t cell = (at[0].first + i) * w + at[1].first + j;
            for (int64_t k = 0; k < r->shape.dim[3]; k++)
                r->out[image + cell * r->shape.dim[3] + k] +=
                    at[0].weight[i] * at[1].weight[j] * r->in[0][result + k];
        }
}

/* Visits all pixels of results of shape `to`, read from images of shape `from`. */
static void visit_pixels(const mg_ref *r, const mg_shape *from, const mg_shape *to,
                         void (*visit)(const mg_ref *r, const mg_transform_axis at[2],
                                       int64_t image, int64_t w, int64_t result)) {
    mg_transform_axis at[2];
    double t[8];
    int64_t result = 0;
    for (int64_t n = 0; n < to->dim[0]; n++) {
        transform_of(r, n, t);
        for (int64_t oy = 0; oy < to->dim[1]; oy++)
            for (int64_t ox = 0; ox < to->dim[2]; ox++, result += to->dim[3]) {
                pixels_at(r, from, t, ox, oy, at);
                visit(r, at, n * from->dim[1] * from->dim[2] * from->dim[3], from->dim[2], result);
            }
    }
}

static void transform_ref(const mg_ref *r) {
    visit_pixels(r, &r->in_shape[0], &r->shape, read_pixel);
}

static void transform_grad_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_pixels(r, &r->shape, &r->in_shape[0], add_pixel);
}

/* ---- split rule ---- */

/* Images and their transforms are split alike; one transform for all is on every device. */
static bool transform_split(mg_split *s) {
    const mg_shape *t = s->in_shape[1];
    const bool each = t->rank == 2 && t->dim[0] == s->in_shape[0]->dim[0] && t->dim[0] > 1;
    return mg_split_rows(s, each ? 3 : 1, 0);
}

/* ---- the op table ---- */

static const mg_op transform_rows[] = {
    {.name = "affine_transform",
     .doc = "images {n, h, w, c}, each pixel read where its transform {n, 8} maps it to",
     .min_inputs = 2,
     .max_inputs = 2,
     MG_ATTRS(mg_transform_attrs, transform_attrs),
     .infer = transform_infer,
     .grad = transform_grad,
     .split = transform_split,
     .ref = transform_ref},
    {.name = "affine_transform_grad",
     .doc = "gradient of affine_transform's images from dy and the transforms",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_HIDDEN,
     MG_ATTRS(mg_transform_attrs, transform_grad_attrs),
     .infer = transform_infer,
     .grad = transform_grad_grad,
     .split = transform_split,
     .ref = transform_grad_ref},
};

const mg_op_family mg_ops_transform = {"transform", transform_rows,
                                       sizeof transform_rows / sizeof transform_rows[0]};
