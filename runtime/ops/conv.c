/* 2-D convolution (as in neural networks: not flipped) and its two backward forms.
 *
 * Images x are {N, H, W, C}, kernels w {KH, KW, C / groups, K}, results y {N, OH, OW, K}. All three
 * ops walk the same taps, y[n, o, :] += x[n, o * stride + k * dilation - pad, :] * w[k, :, :], and
 * are linear in both inputs, so their gradients are made of one another, to any order. Bias and
 * relu are set by the simplify pass only, after gradients are made. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include "ops/window.h"

#define GEOMETRY                                                                                   \
    {"strides", MG_ATTR_INTS, offsetof(mg_conv_attrs, strides), 0, NULL, "{rows, columns}"},       \
        {"pads", MG_ATTR_INTS, offsetof(mg_conv_attrs, pads),                                      \
         0,      NULL,         "cells of 0 around the image: {top, bottom, left, right}"},         \
        {"dilations", MG_ATTR_INTS, offsetof(mg_conv_attrs, dilations),                            \
         0,           NULL,         "{rows, columns} between the kernel's cells"},                 \
    {                                                                                              \
        "groups", MG_ATTR_INT, offsetof(mg_conv_attrs, groups), 1, NULL,                           \
            "channels are cut into this many groups, each with its own kernels"                    \
    }

static const mg_attr conv_table[] = {
    GEOMETRY,
    {"relu", MG_ATTR_BOOL, offsetof(mg_conv_attrs, relu), 0, NULL,
     "max(y, 0); set by the simplify pass"},
};

static const mg_attr grad_input_table[] = {
    GEOMETRY,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "shape of the image"},
};

static const mg_attr grad_weight_table[] = {
    GEOMETRY,
    {"kernel_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "shape of the kernel"},
};

/* ---- inference ---- */

/* The shape of y, after filling in the attributes. */
static mg_status conv_shape(const mg_infer *f, const mg_shape *x, const mg_shape *w, mg_shape *y) {
    mg_conv_attrs *a = f->attrs;
    MG_TRY(mg_window_list(f, &a->strides, 2, 1, 1, "strides"));
    MG_TRY(mg_window_list(f, &a->dilations, 2, 1, 1, "dilations"));
    MG_TRY(mg_window_list(f, &a->pads, 4, 0, 0, "pads"));
    const int64_t channels = x->dim[3], kernels = w->dim[3];
    if (a->groups < 1 || channels % a->groups || kernels % a->groups)
        return mg_infer_fail(f, MG_USAGE,
                             "groups = %lld must divide the %lld channels and the %lld kernels",
                             (long long)a->groups, (long long)channels, (long long)kernels);
    if (w->dim[2] != channels / a->groups)
        return mg_infer_fail(f, MG_USAGE,
                             "the image %s has %lld channels, the kernel %s (rows, columns, "
                             "channels, kernels) wants %lld",
                             MG_SHAPE_TEXT(x), (long long)channels, MG_SHAPE_TEXT(w),
                             (long long)(w->dim[2] * a->groups));
    *y = MG_SHAPE(x->dim[0], 0, 0, kernels);
    for (int axis = 0; axis < 2; axis++) {
        const mg_window window =
            mg_window_along(axis, x, w->dim[axis], &a->strides, &a->pads, &a->dilations);
        MG_TRY(mg_window_outputs(f, &window, axis, &y->dim[1 + axis]));
    }
    return MG_OK;
}

static mg_status images_and(const mg_infer *f, int kernel) {
    for (int i = 0; i < 2; i++)
        MG_TRY(mg_infer_rank(f, i, 4,
                             i == kernel ? "rows, columns, channels, kernels"
                                         : "batch, rows, columns, channels"));
    return MG_OK;
}

static mg_status conv_infer(mg_infer *f) {
    MG_TRY(images_and(f, 1));
    MG_TRY(conv_shape(f, mg_infer_shape(f, 0), mg_infer_shape(f, 1), &f->shape));
    if (f->n_inputs < 3) return MG_OK;
    const mg_shape *bias = mg_infer_shape(f, 2);
    if (bias->rank == 1 && bias->dim[0] == f->shape.dim[3]) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "bias must have shape {%lld}, got %s",
                         (long long)f->shape.dim[3], MG_SHAPE_TEXT(bias));
}

/* The shape given as an attribute: the result's. */
static mg_status given_shape(mg_infer *f, const char *name) {
    const mg_ints *given = &((const mg_conv_attrs *)f->attrs)->shape;
    f->shape = mg_shape_of(given->n, given->v);
    if (given->n == 4) return mg_shape_check(&f->shape, f->op->name);
    return mg_infer_fail(f, MG_USAGE, "%s must list 4 sizes, got %s", name,
                         MG_SHAPE_TEXT(&f->shape));
}

static mg_status check_dy(const mg_infer *f, const mg_shape *dy, const mg_shape *y) {
    if (mg_shape_equal(dy, y)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "dy has shape %s, the convolution gives %s",
                         MG_SHAPE_TEXT(dy), MG_SHAPE_TEXT(y));
}

static mg_status grad_input_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(images_and(f, 1));
    MG_TRY(given_shape(f, "input_shape"));
    MG_TRY(conv_shape(f, &f->shape, mg_infer_shape(f, 1), &y));
    return check_dy(f, mg_infer_shape(f, 0), &y);
}

static mg_status grad_weight_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(images_and(f, -1));
    MG_TRY(given_shape(f, "kernel_shape"));
    MG_TRY(conv_shape(f, mg_infer_shape(f, 0), &f->shape, &y));
    return check_dy(f, mg_infer_shape(f, 1), &y);
}

/* ---- gradients ---- */

static mg_tensor *conv(mg_tensor *x, mg_tensor *w, const mg_tensor *like) {
    mg_conv_attrs attrs = *(const mg_conv_attrs *)like->attrs;
    attrs.shape = (mg_ints){0};
    return mg_make("conv2d", &attrs, 2, x, w);
}

/* One of the backward forms, whose result has the shape of `as`. */
static mg_tensor *back(const char *op, mg_tensor *a, mg_tensor *b, const mg_tensor *as,
                       const mg_tensor *like) {
    mg_conv_attrs attrs = *(const mg_conv_attrs *)like->attrs;
    attrs.shape = (mg_ints){.n = 4};
    for (int i = 0; i < 4; i++) attrs.shape.v[i] = as->shape.dim[i];
    return mg_make(op, &attrs, 2, a, b);
}

static mg_tensor *conv_grad(mg_tensor *y, mg_tensor *dy, int i) {
    if (y->n_inputs == 3 || ((const mg_conv_attrs *)y->attrs)->relu) {
        mg_fail(MG_UNSUPPORTED, "conv2d: no gradient with bias or relu inside: add them outside");
        return NULL;
    }
    mg_tensor *x = y->inputs[0], *w = y->inputs[1];
    return i == 0 ? back("conv2d_grad_input", dy, w, x, y)
                  : back("conv2d_grad_weight", x, dy, w, y);
}

/* dx = grad_input(dy, w); g has dx's shape. */
static mg_tensor *grad_input_grad(mg_tensor *dx, mg_tensor *g, int i) {
    mg_tensor *dy = dx->inputs[0], *w = dx->inputs[1];
    return i == 0 ? conv(g, w, dx) : back("conv2d_grad_weight", g, dy, w, dx);
}

/* dw = grad_weight(x, dy); g has dw's shape. */
static mg_tensor *grad_weight_grad(mg_tensor *dw, mg_tensor *g, int i) {
    mg_tensor *x = dw->inputs[0], *dy = dw->inputs[1];
    return i == 0 ? back("conv2d_grad_input", dy, g, x, dw) : conv(x, g, dw);
}

/* ---- reference kernels ---- */

typedef struct taps {
    mg_window rows, columns;
    int64_t batch, out_rows, out_columns;
    int64_t groups, channels, kernels; /* of one group */
    const double *x, *w, *y;           /* the two that are inputs */
    double *out;
} taps;

static taps taps_of(const mg_ref *r, const mg_shape *x, const mg_shape *w, const mg_shape *y) {
    const mg_conv_attrs *a = r->attrs;
    return (taps){
        .rows = mg_window_along(0, x, w->dim[0], &a->strides, &a->pads, &a->dilations),
        .columns = mg_window_along(1, x, w->dim[1], &a->strides, &a->pads, &a->dilations),
        .batch = x->dim[0],
        .out_rows = y->dim[1],
        .out_columns = y->dim[2],
        .groups = a->groups,
        .channels = w->dim[2],
        .kernels = w->dim[3] / a->groups,
        .out = r->out,
    };
}

/* Calls tap with the offsets of a pixel of x, a kernel cell of one group, and a pixel of y. */
static void each_tap(const taps *t, void (*tap)(const taps *t, int64_t x, int64_t w, int64_t y)) {
    const int64_t c = t->channels * t->groups, k = t->kernels * t->groups;
    for (int64_t n = 0; n < t->batch; n++)
        for (int64_t oy = 0; oy < t->out_rows; oy++)
            for (int64_t ox = 0; ox < t->out_columns; ox++)
                for (int64_t ky = 0; ky < t->rows.size; ky++)
                    for (int64_t kx = 0; kx < t->columns.size; kx++) {
                        const int64_t iy = mg_window_cell(&t->rows, oy, ky);
                        const int64_t ix = mg_window_cell(&t->columns, ox, kx);
                        if (iy < 0 || ix < 0) continue;
                        const int64_t x = ((n * t->rows.image + iy) * t->columns.image + ix) * c;
                        const int64_t w = (ky * t->columns.size + kx) * t->channels * k;
                        const int64_t y = ((n * t->out_rows + oy) * t->out_columns + ox) * k;
                        for (int64_t g = 0; g < t->groups; g++)
                            tap(t, x + g * t->channels, w + g * t->kernels, y + g * t->kernels);
                    }
}

static void forward_tap(const taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[y + k] += t->x[x + c] * t->w[w + c * row + k];
}

static void input_tap(const taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[x + c] += t->y[y + k] * t->w[w + c * row + k];
}

static void weight_tap(const taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[w + c * row + k] += t->x[x + c] * t->y[y + k];
}

static void clear(const mg_ref *r) {
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i++) r->out[i] = 0;
}

static void conv_ref(const mg_ref *r) {
    taps t = taps_of(r, &r->in_shape[0], &r->in_shape[1], &r->shape);
    t.x = r->in[0], t.w = r->in[1];
    clear(r);
    each_tap(&t, forward_tap);
    const int64_t count = mg_shape_count(&r->shape), kernels = r->shape.dim[3];
    const bool relu = ((const mg_conv_attrs *)r->attrs)->relu;
    for (int64_t i = 0; i < count; i++) {
        if (r->n_inputs == 3) r->out[i] += r->in[2][i % kernels];
        if (relu && r->out[i] < 0) r->out[i] = 0;
    }
}

static void grad_input_ref(const mg_ref *r) {
    taps t = taps_of(r, &r->shape, &r->in_shape[1], &r->in_shape[0]);
    t.y = r->in[0], t.w = r->in[1];
    clear(r);
    each_tap(&t, input_tap);
}

static void grad_weight_ref(const mg_ref *r) {
    taps t = taps_of(r, &r->in_shape[0], &r->shape, &r->in_shape[1]);
    t.x = r->in[0], t.y = r->in[1];
    clear(r);
    each_tap(&t, weight_tap);
}

/* ---- split rules: images by rows; the kernels' gradient is a sum over them ---- */

static bool image_split(mg_split *s) {
    return mg_split_rows(s, 1, 0);
}

static bool grad_weight_split(mg_split *s) {
    return mg_split_rows(s, 3, MG_PARTIAL_SUM);
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "conv2d",
     .doc = "x {n, h, w, c} with kernels {kh, kw, c / groups, k} = {n, oh, ow, k}",
     .min_inputs = 2,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, conv_table),
     .infer = conv_infer,
     .grad = conv_grad,
     .split = image_split,
     .ref = conv_ref},
    {.name = "conv2d_grad_input",
     .doc = "gradient of conv2d's image from dy and the kernels; also transposed convolution",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, grad_input_table),
     .infer = grad_input_infer,
     .grad = grad_input_grad,
     .split = image_split,
     .ref = grad_input_ref},
    {.name = "conv2d_grad_weight",
     .doc = "gradient of conv2d's kernels from the image and dy",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, grad_weight_table),
     .infer = grad_weight_infer,
     .grad = grad_weight_grad,
     .split = grad_weight_split,
     .ref = grad_weight_ref},
};

const mg_op_family mg_ops_conv = {"conv", rows, sizeof rows / sizeof rows[0]};
