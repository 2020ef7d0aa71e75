/* 2-D convolution (cross-correlation: the kernel is not flipped) and its two backward ops.
 *
 * Layouts: images x {N, H, W, C}, kernels w {KH, KW, C / groups, K}, results y {N, OH, OW, K}. With
 * groups, the channels of x and the kernels of w are cut into `groups` equal runs, and kernel run g
 * sees channel run g only; groups = C is a depthwise convolution.
 *
 * All three ops visit the same taps (output pixel o, kernel cell k):
 *
 *     y[n, o, :] += x[n, o * stride + k * dilation - pad, :] * w[k, :, :]      conv2d
 *     dx[the same pixel] += dy[n, o, :] * transpose(w[k, :, :])                conv2d_grad_input
 *     dw[k, :, :] += outer(x[the same pixel], dy[n, o, :])                     conv2d_grad_weight
 *
 * Each op is linear in both of its inputs, so the gradient of any of them is one of the other two,
 * to any order. A convolution is split over devices by images; the kernel gradient is then a sum
 * over the devices.
 *
 * Bias (third input) and relu (attribute) of conv2d exist for the simplify pass, which sets them in
 * finished plans, after gradients were taken. They have no gradient. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include "ops/window.h"

/* The attributes that all three ops have. */
#define CONV_GEOMETRY                                                                              \
    {"strides", MG_ATTR_INTS, offsetof(mg_conv_attrs, strides), 0, NULL, "{rows, columns}"},       \
        {"pads", MG_ATTR_INTS, offsetof(mg_conv_attrs, pads),                                      \
         0,      NULL,         "cells of 0 around the image: {top, bottom, left, right}"},         \
        {"dilations", MG_ATTR_INTS, offsetof(mg_conv_attrs, dilations),                            \
         0,           NULL,         "{rows, columns} between the kernel's cells"},                 \
    {                                                                                              \
        "groups", MG_ATTR_INT, offsetof(mg_conv_attrs, groups), 1, NULL,                           \
            "channels are cut into this many groups, each with its own kernels"                    \
    }

static const mg_attr conv2d_attrs[] = {
    CONV_GEOMETRY,
    {"relu", MG_ATTR_BOOL, offsetof(mg_conv_attrs, relu), 0, NULL,
     "max(y, 0); set by the simplify pass"},
};

static const mg_attr conv_grad_input_attrs[] = {
    CONV_GEOMETRY,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "shape of the image"},
};

static const mg_attr conv_grad_weight_attrs[] = {
    CONV_GEOMETRY,
    {"kernel_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "shape of the kernel"},
};

/* ---- inference ---- */

/* Computes the shape of y from x and w, and completes the attributes: missing strides, dilations
 * and pads get their defaults, single numbers become lists. The backward ops call it too, to check
 * that dy has the shape that the forward convolution would give:
 *
 *     rows of y = (H + top + bottom - ((KH - 1) * dilation + 1)) / stride + 1, likewise columns */
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
                             "the image %s has %lld channels, but the kernel %s (rows, columns, "
                             "channels, kernels) is for %lld",
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

/* Checks that inputs 0 and 1 have four axes; input `kernel` holds kernels, the others images (-1:
 * both hold images). */
static mg_status check_image_ranks(const mg_infer *f, int kernel) {
    for (int i = 0; i < 2; i++)
        MG_TRY(mg_infer_rank(f, i, 4,
                             i == kernel ? "rows, columns, channels, kernels"
                                         : "batch, rows, columns, channels"));
    return MG_OK;
}

/* Shape rule of conv2d(x, w[, bias]): bias has one number for each kernel. */
static mg_status conv2d_infer(mg_infer *f) {
    MG_TRY(check_image_ranks(f, 1));
    MG_TRY(conv_shape(f, mg_infer_shape(f, 0), mg_infer_shape(f, 1), &f->shape));
    if (f->n_inputs < 3) return MG_OK;
    const mg_shape *bias = mg_infer_shape(f, 2);
    if (bias->rank == 1 && bias->dim[0] == f->shape.dim[3]) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "bias must have shape {%lld}, got %s",
                         (long long)f->shape.dim[3], MG_SHAPE_TEXT(bias));
}

/* Takes the shape of the result from the attribute `name`. The shape of dx does not follow from dy
 * and w: with a stride above 1, images of several sizes give the same y. */
static mg_status take_given_shape(mg_infer *f, const char *name) {
    const mg_ints *given = &((const mg_conv_attrs *)f->attrs)->shape;
    f->shape = mg_shape_of(given->n, given->v);
    if (given->n == 4) return mg_shape_check(&f->shape, f->op->name);
    return mg_infer_fail(f, MG_USAGE, "%s must list 4 sizes, got %s", name,
                         MG_SHAPE_TEXT(&f->shape));
}

/* MG_USAGE unless dy has the shape y of the forward convolution. */
static mg_status check_conv_dy(const mg_infer *f, const mg_shape *dy, const mg_shape *y) {
    if (mg_shape_equal(dy, y)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "dy has shape %s, but the convolution gives %s",
                         MG_SHAPE_TEXT(dy), MG_SHAPE_TEXT(y));
}

/* Shape rule of conv2d_grad_input(dy, w): the attribute input_shape, checked against dy and w. */
static mg_status conv_grad_input_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(check_image_ranks(f, 1));
    MG_TRY(take_given_shape(f, "input_shape"));
    MG_TRY(conv_shape(f, &f->shape, mg_infer_shape(f, 1), &y));
    return check_conv_dy(f, mg_infer_shape(f, 0), &y);
}

/* Shape rule of conv2d_grad_weight(x, dy): the attribute kernel_shape, checked against x and dy. */
static mg_status conv_grad_weight_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(check_image_ranks(f, -1));
    MG_TRY(take_given_shape(f, "kernel_shape"));
    MG_TRY(conv_shape(f, mg_infer_shape(f, 0), &f->shape, &y));
    return check_conv_dy(f, mg_infer_shape(f, 1), &y);
}

/* ---- gradients ---- */

/* conv2d(x, w) with the geometry of the backward op `like`. */
static mg_tensor *make_conv2d(mg_tensor *x, mg_tensor *w, const mg_tensor *like) {
    mg_conv_attrs attrs = *(const mg_conv_attrs *)like->attrs;
    attrs.shape = (mg_ints){0};
    return mg_make("conv2d", &attrs, 2, x, w);
}

/* The backward op `op` of inputs a and b with the geometry of `like`; the result has the shape of
 * `as`. */
static mg_tensor *make_conv2d_backward(const char *op, mg_tensor *a, mg_tensor *b,
                                       const mg_tensor *as, const mg_tensor *like) {
    mg_conv_attrs attrs = *(const mg_conv_attrs *)like->attrs;
    attrs.shape = (mg_ints){.n = 4};
    for (int i = 0; i < 4; i++) attrs.shape.v[i] = as->shape.dim[i];
    return mg_make(op, &attrs, 2, a, b);
}

/* y = conv2d(x, w): dx = grad_input(dy, w), dw = grad_weight(x, dy). */
static mg_tensor *conv2d_grad(mg_tensor *y, mg_tensor *dy, int i) {
    if (y->n_inputs == 3 || ((const mg_conv_attrs *)y->attrs)->relu) {
        mg_fail(MG_UNSUPPORTED, "conv2d: a bias input or the option relu has no gradient: apply "
                                "bias and relu as separate ops");
        return NULL;
    }
    mg_tensor *x = y->inputs[0], *w = y->inputs[1];
    return i == 0 ? make_conv2d_backward("conv2d_grad_input", dy, w, x, y)
                  : make_conv2d_backward("conv2d_grad_weight", x, dy, w, y);
}

/* dx = grad_input(dy, w) is linear in both. g, the gradient w.r.t. dx, has the shape of an image,
 * so the gradient w.r.t. dy is conv2d(g, w) and the gradient w.r.t. w is grad_weight(g, dy). */
static mg_tensor *conv_grad_input_grad(mg_tensor *dx, mg_tensor *g, int i) {
    mg_tensor *dy = dx->inputs[0], *w = dx->inputs[1];
    return i == 0 ? make_conv2d(g, w, dx)
                  : make_conv2d_backward("conv2d_grad_weight", g, dy, w, dx);
}

/* dw = grad_weight(x, dy) is linear in both. g, the gradient w.r.t. dw, has the shape of the
 * kernels, so the gradient w.r.t. x is grad_input(dy, g) and the gradient w.r.t. dy is conv2d(x,
 * g). */
static mg_tensor *conv_grad_weight_grad(mg_tensor *dw, mg_tensor *g, int i) {
    mg_tensor *x = dw->inputs[0], *dy = dw->inputs[1];
    return i == 0 ? make_conv2d_backward("conv2d_grad_input", dy, g, x, dw) : make_conv2d(x, g, dw);
}

/* ---- reference kernels ---- */

/* The loops of all three reference kernels. */
typedef struct conv_taps {
    mg_window rows, columns;
    int64_t batch, out_rows, out_columns;
    int64_t groups, channels, kernels; /* channels and kernels of one group */
    const double *x, *w, *y;           /* the op's two inputs; the third is NULL */
    double *out;
} conv_taps;

/* Fills in everything but the input pointers, from the shapes of image, kernel and result. */
static conv_taps conv_taps_of(const mg_ref *r, const mg_shape *x, const mg_shape *w,
                              const mg_shape *y) {
    const mg_conv_attrs *a = r->attrs;
    return (conv_taps){
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

/* Calls tap(t, x, w, y) for each output pixel, kernel cell inside the image and group: the offsets
 * of the first channel of the image pixel, of the first weight of the kernel cell, and of the first
 * channel of the output pixel, each within the group. */
static void visit_conv_taps(const conv_taps *t,
                            void (*tap)(const conv_taps *t, int64_t x, int64_t w, int64_t y)) {
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

/* y += x w: channel c of the pixel times row c of the kernel cell. */
static void conv_forward_tap(const conv_taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[y + k] += t->x[x + c] * t->w[w + c * row + k];
}

/* dx += dy times the transposed kernel cell. */
static void conv_input_tap(const conv_taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[x + c] += t->y[y + k] * t->w[w + c * row + k];
}

/* dw += the outer product of image pixel and dy pixel. */
static void conv_weight_tap(const conv_taps *t, int64_t x, int64_t w, int64_t y) {
    const int64_t row = t->kernels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t k = 0; k < t->kernels; k++)
            t->out[w + c * row + k] += t->x[x + c] * t->y[y + k];
}

static void conv2d_ref(const mg_ref *r) {
    conv_taps t = conv_taps_of(r, &r->in_shape[0], &r->in_shape[1], &r->shape);
    t.x = r->in[0], t.w = r->in[1];
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_conv_taps(&t, conv_forward_tap);
    const int64_t count = mg_shape_count(&r->shape), kernels = r->shape.dim[3];
    const bool relu = ((const mg_conv_attrs *)r->attrs)->relu;
    for (int64_t i = 0; i < count; i++) {
        if (r->n_inputs == 3) r->out[i] += r->in[2][i % kernels];
        if (relu && r->out[i] < 0) r->out[i] = 0;
    }
}

static void conv_grad_input_ref(const mg_ref *r) {
    conv_taps t = conv_taps_of(r, &r->shape, &r->in_shape[1], &r->in_shape[0]);
    t.y = r->in[0], t.w = r->in[1];
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_conv_taps(&t, conv_input_tap);
}

static void conv_grad_weight_ref(const mg_ref *r) {
    conv_taps t = conv_taps_of(r, &r->in_shape[0], &r->shape, &r->in_shape[1]);
    t.x = r->in[0], t.y = r->in[1];
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_conv_taps(&t, conv_weight_tap);
}

/* ---- split rules ---- */

/* conv2d and conv2d_grad_input: each device computes the images (rows of input 0) that it has, with
 * the whole kernels. */
static bool conv_image_split(mg_split *s) {
    return mg_split_rows(s, 1, 0);
}

/* conv2d_grad_weight: x and dy are split by images, and each device computes one term of the sum.
 */
static bool conv_grad_weight_split(mg_split *s) {
    return mg_split_rows(s, 3, MG_PARTIAL_SUM);
}

/* ---- the op table ---- */

static const mg_op conv_rows[] = {
    {.name = "conv2d",
     .doc = "x {n, h, w, c} with kernels {kh, kw, c / groups, k} = {n, oh, ow, k}",
     .example =
         "local image = mgpu.tensor { { 0, 0, 9, 9 }, { 0, 0, 9, 9 } }:reshape { 1, 2, 4, 1 }\n"
         "local edge = mgpu.tensor { -1, 1 }:reshape { 1, 2, 1, 1 } -- each pixel minus its left "
         "neighbour\n"
         "print(image:conv2d(edge):reshape { 2, 3 })\n"
         "--> tensor {2, 3} float32 cpu:0\n"
         "--> {{0, 9, 0},\n"
         "-->  {0, 9, 0}}\n"
         "print(image:conv2d(edge, { pads = { 0, 0, 0, 1 }, strides = { 1, 2 } }):reshape { 2, 2 "
         "})\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{0, 0},\n"
         "-->  {0, 0}}",
     .min_inputs = 2,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, conv2d_attrs),
     .infer = conv2d_infer,
     .grad = conv2d_grad,
     .split = conv_image_split,
     .ref = conv2d_ref},
    {.name = "conv2d_grad_input",
     .doc = "gradient of conv2d's image from dy and the kernels; also transposed convolution",
     .example = "local dy = mgpu.tensor { 1, 2 }:reshape { 1, 1, 2, 1 }\n"
                "local kernel = mgpu.tensor { 10, 20 }:reshape { 1, 2, 1, 1 }\n"
                "local dx = dy:conv2d_grad_input(kernel, { strides = { 1, 2 }, input_shape = { 1, "
                "1, 4, 1 } })\n"
                "print(dx:flatten()) -- each number of dy, times the kernel\n"
                "--> tensor {4} float32 cpu:0\n"
                "--> {10, 20, 20, 40}",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, conv_grad_input_attrs),
     .infer = conv_grad_input_infer,
     .grad = conv_grad_input_grad,
     .split = conv_image_split,
     .ref = conv_grad_input_ref},
    {.name = "conv2d_grad_weight",
     .doc = "gradient of conv2d's kernels from the image and dy",
     .example = "local image = mgpu.tensor { 1, 2, 3 }:reshape { 1, 1, 3, 1 }\n"
                "local dy = mgpu.ones { 1, 1, 2, 1 }\n"
                "print(image:conv2d_grad_weight(dy, { kernel_shape = { 1, 2, 1, 1 } }):flatten()) "
                "-- 1 + 2 and 2 + 3\n"
                "--> tensor {2} float32 cpu:0\n"
                "--> {3, 5}",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_conv_attrs, conv_grad_weight_attrs),
     .infer = conv_grad_weight_infer,
     .grad = conv_grad_weight_grad,
     .split = conv_grad_weight_split,
     .ref = conv_grad_weight_ref},
};

const mg_op_family mg_ops_conv = {"conv", conv_rows, sizeof conv_rows / sizeof conv_rows[0]};
