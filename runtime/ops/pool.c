/* Max and average pooling over windows of images x {N, H, W, C}; the result y is {N, OH, OW, C}.
 *
 * Padding is ignored: a padding cell is never the maximum and is not counted in an average (Keras's
 * "same" padding). Pads must be smaller than windows, so every window holds at least one cell of
 * the image. Ties: the first maximum in row-major order wins; a NaN wins over every number.
 *
 * Max pooling keeps no record of the winners. Its gradient, max_pool2d_grad(x, y, dy), finds the
 * winner of each window in x again and adds dy there; the second derivative, max_pool2d_pick(x, y,
 * v), reads v at the winners. Each of the two is the other's transpose. Average pooling is linear,
 * and avg_pool2d_grad is its transpose. All five are split over devices by images. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"
#include "ops/window.h"

/* The attributes that all pooling ops have. */
#define POOL_GEOMETRY                                                                              \
    {"size", MG_ATTR_INTS, offsetof(mg_pool_attrs, size), 0, NULL, "{rows, columns}; default: 2"}, \
        {"strides", MG_ATTR_INTS, offsetof(mg_pool_attrs, strides),                                \
         0,         NULL,         "{rows, columns}; default: size"},                               \
    {                                                                                              \
        "pads", MG_ATTR_INTS, offsetof(mg_pool_attrs, pads), 0, NULL,                              \
            "cells around the image: {top, bottom, left, right}"                                   \
    }

static const mg_attr pool_attrs[] = {POOL_GEOMETRY};

/* avg_pool2d_grad cannot tell the image's shape from dy: the attribute says it. */
static const mg_attr avg_pool_grad_attrs[] = {
    POOL_GEOMETRY,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_pool_attrs, shape), 0, NULL, "shape of the image"},
};

/* ---- inference ---- */

/* Computes the shape of y and completes the attributes (size 2 x 2, strides = size, no pads by
 * default). The backward ops call it too, to check dy:
 *
 *     rows of y = (H + top + bottom - size) / stride + 1, likewise columns */
static mg_status pool_shape(const mg_infer *f, const mg_shape *x, mg_shape *y) {
    mg_pool_attrs *a = f->attrs;
    MG_TRY(mg_window_list(f, &a->size, 2, 2, 1, "size"));
    if (a->strides.n == 0) a->strides = a->size;
    MG_TRY(mg_window_list(f, &a->strides, 2, 0, 1, "strides"));
    MG_TRY(mg_window_list(f, &a->pads, 4, 0, 0, "pads"));
    *y = *x;
    for (int axis = 0; axis < 2; axis++) {
        const mg_window w = mg_window_along(axis, x, a->size.v[axis], &a->strides, &a->pads, NULL);
        if (w.before >= w.size || w.after >= w.size || w.image == 0)
            return mg_infer_fail(f, MG_USAGE,
                                 "a window would lie outside the image %s: pads must be smaller "
                                 "than size",
                                 MG_SHAPE_TEXT(x));
        MG_TRY(mg_window_outputs(f, &w, axis, &y->dim[1 + axis]));
    }
    return MG_OK;
}

/* For error messages. */
static const char *const image_axes = "batch, rows, columns, channels";

/* Shape rule of max_pool2d and avg_pool2d. */
static mg_status pool_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, image_axes));
    return pool_shape(f, mg_infer_shape(f, 0), &f->shape);
}

/* MG_USAGE unless input i has the wanted shape. */
static mg_status check_pool_shape(const mg_infer *f, int i, const mg_shape *wanted) {
    const mg_shape *s = mg_infer_shape(f, i);
    if (mg_shape_equal(s, wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "input %d has shape %s, but must have %s", i + 1,
                         MG_SHAPE_TEXT(s), MG_SHAPE_TEXT(wanted));
}

/* Shape rule of max_pool2d_grad(x, y, dy): the shape of x. */
static mg_status max_pool_grad_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, image_axes));
    f->shape = *mg_infer_shape(f, 0);
    MG_TRY(pool_shape(f, &f->shape, &y));
    MG_TRY(check_pool_shape(f, 1, &y));
    return check_pool_shape(f, 2, &y);
}

/* Shape rule of max_pool2d_pick(x, y, v), v shaped like x: the shape of y. */
static mg_status max_pool_pick_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, image_axes));
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(pool_shape(f, x, &f->shape));
    MG_TRY(check_pool_shape(f, 1, &f->shape));
    return check_pool_shape(f, 2, x);
}

/* Shape rule of avg_pool2d_grad(dy): the attribute input_shape, checked against dy. */
static mg_status avg_pool_grad_infer(mg_infer *f) {
    const mg_ints *given = &((const mg_pool_attrs *)f->attrs)->shape;
    mg_shape y;
    f->shape = mg_shape_of(given->n, given->v);
    if (given->n != 4)
        return mg_infer_fail(f, MG_USAGE, "input_shape must list 4 sizes, got %s",
                             MG_SHAPE_TEXT(&f->shape));
    MG_TRY(mg_shape_check(&f->shape, f->op->name));
    MG_TRY(pool_shape(f, &f->shape, &y));
    return check_pool_shape(f, 0, &y);
}

/* ---- gradients ---- */

/* dx = dy at the maximum of each window, added up, and 0 elsewhere. */
static mg_tensor *max_pool_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return mg_make("max_pool2d_grad", y->attrs, 3, y->inputs[i], y, dy);
}

/* dx = max_pool2d_grad(x, y, dy) moves elements of dy; x and y only select the positions, so no
 * gradient flows to them. The gradient w.r.t. dy picks g at the winners. */
static mg_tensor *max_pool_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    if (i < 2) return mg_no_gradient();
    return mg_make("max_pool2d_pick", dx->attrs, 3, dx->inputs[0], dx->inputs[1], g);
}

/* Picking v at the winners is the transpose of adding dy there: the gradient is max_pool2d_grad. */
static mg_tensor *max_pool_pick_grad(mg_tensor *v, mg_tensor *g, int i) {
    if (i < 2) return mg_no_gradient();
    return mg_make("max_pool2d_grad", v->attrs, 3, v->inputs[0], v->inputs[1], g);
}

/* The transpose of avg_pool2d, which needs only the shape of x. */
static mg_tensor *avg_pool_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_pool_attrs attrs = *(const mg_pool_attrs *)y->attrs;
    attrs.shape = (mg_ints){.n = 4};
    for (int k = 0; k < 4; k++) attrs.shape.v[k] = y->inputs[i]->shape.dim[k];
    return mg_make("avg_pool2d_grad", &attrs, 1, dy);
}

/* dx = avg_pool2d_grad(dy) is linear: its gradient w.r.t. dy is avg_pool2d(g). */
static mg_tensor *avg_pool_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    (void)i;
    mg_pool_attrs attrs = *(const mg_pool_attrs *)dx->attrs;
    attrs.shape = (mg_ints){0};
    return mg_make("avg_pool2d", &attrs, 1, g);
}

/* ---- reference kernels ---- */

/* The part of one window that lies inside the image, for one channel. */
typedef struct pool_window {
    int64_t corner, rows, columns; /* offset of its first cell in x; its size in cells */
    int64_t row, pixel;            /* offsets from one row, and from one cell, to the next */
} pool_window;

/* Bounds of the clipped window. */
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The window of output pixel (oy, ox) of image n, channel 0, clipped to the image. */
static pool_window pool_window_at(const mg_pool_attrs *a, const mg_shape *x, int64_t n, int64_t oy,
                                  int64_t ox) {
    const int64_t h = x->dim[1], w = x->dim[2], c = x->dim[3];
    const int64_t y0 = oy * a->strides.v[0] - a->pads.v[0];
    const int64_t x0 = ox * a->strides.v[1] - a->pads.v[2];
    const int64_t top = larger(y0, 0), left = larger(x0, 0);
    return (pool_window){.corner = ((n * h + top) * w + left) * c,
                         .rows = smaller(y0 + a->size.v[0], h) - top,
                         .columns = smaller(x0 + a->size.v[1], w) - left,
                         .row = w * c,
                         .pixel = c};
}

/* Calls visit(r, window, output offset) for each element of y; the window is that of the element's
 * channel. */
static void visit_pool_windows(const mg_ref *r, const mg_shape *x, const mg_shape *y,
                               void (*visit)(const mg_ref *r, const pool_window *w, int64_t y)) {
    int64_t at = 0;
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t oy = 0; oy < y->dim[1]; oy++)
            for (int64_t ox = 0; ox < y->dim[2]; ox++) {
                pool_window w = pool_window_at(r->attrs, x, n, oy, ox);
                for (int64_t c = 0; c < y->dim[3]; c++, w.corner++) visit(r, &w, at++);
            }
}

/* The offset of cell (i, j) of the window. */
static int64_t cell_offset(const pool_window *w, int64_t i, int64_t j) {
    return w->corner + i * w->row + j * w->pixel;
}

/* The offset of the window's first NaN, or else of its first maximum. */
static int64_t winner_offset(const double *x, const pool_window *w) {
    int64_t best = w->corner;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) {
            const double now = x[cell_offset(w, i, j)], top = x[best];
            /* now != now: a NaN, the first one if top is a number */
            if (now > top || (now != now && top == top)) best = cell_offset(w, i, j);
        }
    return best;
}

/* What happens in one window; see visit_pool_windows. y is an offset into the result. */
static void max_pool_window(const mg_ref *r, const pool_window *w, int64_t y) {
    r->out[y] = r->in[0][winner_offset(r->in[0], w)];
}

/* Windows may overlap, so a cell can win several of them: add. */
static void max_pool_grad_window(const mg_ref *r, const pool_window *w, int64_t y) {
    r->out[winner_offset(r->in[0], w)] += r->in[2][y];
}

/* The winner is found in x; the value at its place is taken from v. */
static void max_pool_pick_window(const mg_ref *r, const pool_window *w, int64_t y) {
    r->out[y] = r->in[2][winner_offset(r->in[0], w)];
}

/* The mean over the cells inside the image; padding is not counted. */
static void avg_pool_window(const mg_ref *r, const pool_window *w, int64_t y) {
    double sum = 0;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) sum += r->in[0][cell_offset(w, i, j)];
    r->out[y] = sum / (double)(w->rows * w->columns);
}

/* Each cell inside the image gets an equal share of dy. */
static void avg_pool_grad_window(const mg_ref *r, const pool_window *w, int64_t y) {
    const double share = r->in[0][y] / (double)(w->rows * w->columns);
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) r->out[cell_offset(w, i, j)] += share;
}

static void max_pool_ref(const mg_ref *r) {
    visit_pool_windows(r, &r->in_shape[0], &r->shape, max_pool_window);
}

/* Windows are visited over dx, the result, by the shape of dy. */
static void max_pool_grad_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_pool_windows(r, &r->in_shape[0], &r->in_shape[2], max_pool_grad_window);
}

static void max_pool_pick_ref(const mg_ref *r) {
    visit_pool_windows(r, &r->in_shape[0], &r->shape, max_pool_pick_window);
}

static void avg_pool_ref(const mg_ref *r) {
    visit_pool_windows(r, &r->in_shape[0], &r->shape, avg_pool_window);
}

/* Windows are visited over dx, the result, by the shape of dy. */
static void avg_pool_grad_ref(const mg_ref *r) {
    mg_fill(r->out, mg_shape_count(&r->shape), 0);
    visit_pool_windows(r, &r->shape, &r->in_shape[0], avg_pool_grad_window);
}

/* ---- split rule ---- */

/* Each device pools the images that it has; all inputs are split alike. */
static bool pool_split(mg_split *s) {
    return mg_split_rows(s, 7, 0);
}

/* ---- the op table ---- */

static const mg_op pool_rows[] = {
    {.name = "max_pool2d",
     .doc = "largest cell of each window of x {n, h, w, c}",
     .example =
         "local x = mgpu.arange(16):reshape { 1, 4, 4, 1 } -- rows 0 1 2 3, 4 5 6 7 and so on\n"
         "print(x:max_pool2d(2):reshape { 2, 2 })\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{ 5,  7},\n"
         "-->  {13, 15}}\n"
         "print(x:max_pool2d { size = 2, strides = 1 }:reshape { 3, 3 })\n"
         "--> tensor {3, 3} float32 cpu:0\n"
         "--> {{ 5,  6,  7},\n"
         "-->  { 9, 10, 11},\n"
         "-->  {13, 14, 15}}",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_pool_attrs, pool_attrs),
     .infer = pool_infer,
     .grad = max_pool_grad,
     .split = pool_split,
     .ref = max_pool_ref},
    {.name = "max_pool2d_grad",
     .doc = "gradient of max_pool2d's x from x, y and dy",
     .example = "local x = mgpu.tensor { 1, 5, 2, 3 }:reshape { 1, 2, 2, 1 }\n"
                "local y, dy = x:max_pool2d(2), mgpu.full({ 1, 1, 1, 1 }, 10)\n"
                "print(mgpu.max_pool2d_grad(x, y, dy, { size = 2 }):reshape { 2, 2 }) -- all of it "
                "goes to the largest cell\n"
                "--> tensor {2, 2} float32 cpu:0\n"
                "--> {{ 0, 10},\n"
                "-->  { 0,  0}}",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_pool_attrs, pool_attrs),
     .infer = max_pool_grad_infer,
     .grad = max_pool_grad_grad,
     .split = pool_split,
     .ref = max_pool_grad_ref},
    {.name = "max_pool2d_pick",
     .doc = "elements of v, shaped like x, where max_pool2d(x) = y found the maxima",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_HIDDEN,
     MG_ATTRS(mg_pool_attrs, pool_attrs),
     .infer = max_pool_pick_infer,
     .grad = max_pool_pick_grad,
     .split = pool_split,
     .ref = max_pool_pick_ref},
    {.name = "avg_pool2d",
     .doc = "mean of each window's cells inside x {n, h, w, c}",
     .example =
         "local x = mgpu.arange(16):reshape { 1, 4, 4, 1 } -- rows 0 1 2 3, 4 5 6 7 and so on\n"
         "print(x:avg_pool2d(2):reshape { 2, 2 })\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{ 2.5,  4.5},\n"
         "-->  {10.5, 12.5}}",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_pool_attrs, pool_attrs),
     .infer = pool_infer,
     .grad = avg_pool_grad,
     .split = pool_split,
     .ref = avg_pool_ref},
    {.name = "avg_pool2d_grad",
     .doc = "gradient of avg_pool2d's x from dy",
     .example =
         "local dy = mgpu.tensor { 4, 8 }:reshape { 1, 1, 2, 1 } -- the gradients of two means of "
         "4 cells\n"
         "print(dy:avg_pool2d_grad { size = 2, input_shape = { 1, 2, 4, 1 } }:reshape { 2, 4 })\n"
         "--> tensor {2, 4} float32 cpu:0\n"
         "--> {{1, 1, 2, 2},\n"
         "-->  {1, 1, 2, 2}}",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_pool_attrs, avg_pool_grad_attrs),
     .infer = avg_pool_grad_infer,
     .grad = avg_pool_grad_grad,
     .split = pool_split,
     .ref = avg_pool_grad_ref},
};

const mg_op_family mg_ops_pool = {"pool", pool_rows, sizeof pool_rows / sizeof pool_rows[0]};
