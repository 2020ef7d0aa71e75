/* Pooling over windows of images {N, H, W, C}.
 *
 * Padding never counts: it does not win a maximum and is no part of an average (Keras's "same").
 * Every window holds at least one cell, because pads are smaller than windows. The first maximum
 * in row-major order wins, a NaN wins over numbers; backward forms look for it again. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include "ops/window.h"

#define GEOMETRY                                                                                   \
    {"size", MG_ATTR_INTS, offsetof(mg_pool_attrs, size), 0, NULL, "{rows, columns}; default: 2"}, \
        {"strides", MG_ATTR_INTS, offsetof(mg_pool_attrs, strides),                                \
         0,         NULL,         "{rows, columns}; default: size"},                               \
    {                                                                                              \
        "pads", MG_ATTR_INTS, offsetof(mg_pool_attrs, pads), 0, NULL,                              \
            "cells around the image: {top, bottom, left, right}"                                   \
    }

static const mg_attr pool_table[] = {GEOMETRY};

static const mg_attr avg_grad_table[] = {
    GEOMETRY,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_pool_attrs, shape), 0, NULL, "shape of the image"},
};

/* ---- inference ---- */

/* The pooled shape, after filling in the attributes. */
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

static const char *const image = "batch, rows, columns, channels";

static mg_status pool_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, image));
    return pool_shape(f, mg_infer_shape(f, 0), &f->shape);
}

static mg_status check_shape(const mg_infer *f, int i, const mg_shape *wanted) {
    const mg_shape *s = mg_infer_shape(f, i);
    if (mg_shape_equal(s, wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "input %d has shape %s, must have %s", i + 1,
                         MG_SHAPE_TEXT(s), MG_SHAPE_TEXT(wanted));
}

static mg_status max_grad_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, image));
    f->shape = *mg_infer_shape(f, 0);
    MG_TRY(pool_shape(f, &f->shape, &y));
    MG_TRY(check_shape(f, 1, &y));
    return check_shape(f, 2, &y);
}

static mg_status max_pick_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, image));
    const mg_shape *x = mg_infer_shape(f, 0);
    MG_TRY(pool_shape(f, x, &f->shape));
    MG_TRY(check_shape(f, 1, &f->shape));
    return check_shape(f, 2, x);
}

static mg_status avg_grad_infer(mg_infer *f) {
    const mg_ints *given = &((const mg_pool_attrs *)f->attrs)->shape;
    mg_shape y;
    f->shape = mg_shape_of(given->n, given->v);
    if (given->n != 4)
        return mg_infer_fail(f, MG_USAGE, "input_shape must list 4 sizes, got %s",
                             MG_SHAPE_TEXT(&f->shape));
    MG_TRY(mg_shape_check(&f->shape, f->op->name));
    MG_TRY(pool_shape(f, &f->shape, &y));
    return check_shape(f, 0, &y);
}

/* ---- gradients ---- */

static mg_tensor *max_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return mg_make("max_pool2d_grad", y->attrs, 3, y->inputs[i], y, dy);
}

/* dx = max_pool2d_grad(x, y, dy) moves elements of dy: x and y only say where to. */
static mg_tensor *max_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    if (i < 2) return mg_no_gradient();
    return mg_make("max_pool2d_pick", dx->attrs, 3, dx->inputs[0], dx->inputs[1], g);
}

static mg_tensor *max_pick_grad(mg_tensor *v, mg_tensor *g, int i) {
    if (i < 2) return mg_no_gradient();
    return mg_make("max_pool2d_grad", v->attrs, 3, v->inputs[0], v->inputs[1], g);
}

static mg_tensor *avg_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_pool_attrs attrs = *(const mg_pool_attrs *)y->attrs;
    attrs.shape = (mg_ints){.n = 4};
    for (int k = 0; k < 4; k++) attrs.shape.v[k] = y->inputs[i]->shape.dim[k];
    return mg_make("avg_pool2d_grad", &attrs, 1, dy);
}

static mg_tensor *avg_grad_grad(mg_tensor *dx, mg_tensor *g, int i) {
    (void)i;
    mg_pool_attrs attrs = *(const mg_pool_attrs *)dx->attrs;
    attrs.shape = (mg_ints){0};
    return mg_make("avg_pool2d", &attrs, 1, g);
}

/* ---- reference kernels ---- */

/* The cells of one window: offsets of its corner's channels, and how many lie inside. */
typedef struct cells {
    int64_t corner, rows, columns; /* offset into x; counts inside the image */
    int64_t row, pixel;            /* distances in x */
} cells;

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static cells cells_of(const mg_pool_attrs *a, const mg_shape *x, int64_t n, int64_t oy,
                      int64_t ox) {
    const int64_t h = x->dim[1], w = x->dim[2], c = x->dim[3];
    const int64_t y0 = oy * a->strides.v[0] - a->pads.v[0];
    const int64_t x0 = ox * a->strides.v[1] - a->pads.v[2];
    const int64_t top = larger(y0, 0), left = larger(x0, 0);
    return (cells){.corner = ((n * h + top) * w + left) * c,
                   .rows = smaller(y0 + a->size.v[0], h) - top,
                   .columns = smaller(x0 + a->size.v[1], w) - left,
                   .row = w * c,
                   .pixel = c};
}

/* Calls visit(r, the window's cells for channel c, the output's offset) for every output. */
static void each_window(const mg_ref *r, const mg_shape *x, const mg_shape *y,
                        void (*visit)(const mg_ref *r, const cells *w, int64_t y)) {
    int64_t at = 0;
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t oy = 0; oy < y->dim[1]; oy++)
            for (int64_t ox = 0; ox < y->dim[2]; ox++) {
                cells w = cells_of(r->attrs, x, n, oy, ox);
                for (int64_t c = 0; c < y->dim[3]; c++, w.corner++) visit(r, &w, at++);
            }
}

static int64_t cell(const cells *w, int64_t i, int64_t j) {
    return w->corner + i * w->row + j * w->pixel;
}

/* The first NaN, else the first maximum. */
static int64_t winner(const double *x, const cells *w) {
    int64_t best = w->corner;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) {
            const double now = x[cell(w, i, j)], top = x[best];
            if (now > top || (now != now && top == top)) best = cell(w, i, j);
        }
    return best;
}

static void visit_max(const mg_ref *r, const cells *w, int64_t y) {
    r->out[y] = r->in[0][winner(r->in[0], w)];
}

static void visit_max_grad(const mg_ref *r, const cells *w, int64_t y) {
    r->out[winner(r->in[0], w)] += r->in[2][y];
}

static void visit_max_pick(const mg_ref *r, const cells *w, int64_t y) {
    r->out[y] = r->in[2][winner(r->in[0], w)];
}

static void visit_avg(const mg_ref *r, const cells *w, int64_t y) {
    double sum = 0;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) sum += r->in[0][cell(w, i, j)];
    r->out[y] = sum / (double)(w->rows * w->columns);
}

static void visit_avg_grad(const mg_ref *r, const cells *w, int64_t y) {
    const double share = r->in[0][y] / (double)(w->rows * w->columns);
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++) r->out[cell(w, i, j)] += share;
}

static void max_ref(const mg_ref *r) {
    each_window(r, &r->in_shape[0], &r->shape, visit_max);
}

static void clear(const mg_ref *r) {
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t i = 0; i < count; i++) r->out[i] = 0;
}

static void max_grad_ref(const mg_ref *r) {
    clear(r);
    each_window(r, &r->in_shape[0], &r->in_shape[2], visit_max_grad);
}

static void max_pick_ref(const mg_ref *r) {
    each_window(r, &r->in_shape[0], &r->shape, visit_max_pick);
}

static void avg_ref(const mg_ref *r) {
    each_window(r, &r->in_shape[0], &r->shape, visit_avg);
}

static void avg_grad_ref(const mg_ref *r) {
    clear(r);
    each_window(r, &r->shape, &r->in_shape[0], visit_avg_grad);
}

static bool image_split(mg_split *s) {
    return mg_split_rows(s, 7, 0);
}

/* ---- the rows ---- */

static const mg_op rows[] = {
    {.name = "max_pool2d",
     .doc = "largest cell of each window of x {n, h, w, c}",
     .min_inputs = 1,
     .max_inputs = 1,
     MG_ATTRS(mg_pool_attrs, pool_table),
     .infer = pool_infer,
     .grad = max_grad,
     .split = image_split,
     .ref = max_ref},
    {.name = "max_pool2d_grad",
     .doc = "gradient of max_pool2d's x from x, y and dy",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_pool_attrs, pool_table),
     .infer = max_grad_infer,
     .grad = max_grad_grad,
     .split = image_split,
     .ref = max_grad_ref},
    {.name = "max_pool2d_pick",
     .doc = "from v, shaped like x, the cells that max_pool2d(x) = y picked",
     .min_inputs = 3,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE | MG_OP_HIDDEN,
     MG_ATTRS(mg_pool_attrs, pool_table),
     .infer = max_pick_infer,
     .grad = max_pick_grad,
     .split = image_split,
     .ref = max_pick_ref},
    {.name = "avg_pool2d",
     .doc = "mean of each window's cells inside x {n, h, w, c}",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_pool_attrs, pool_table),
     .infer = pool_infer,
     .grad = avg_grad,
     .split = image_split,
     .ref = avg_ref},
    {.name = "avg_pool2d_grad",
     .doc = "gradient of avg_pool2d's x from dy",
     .min_inputs = 1,
     .max_inputs = 1,
     .flags = MG_OP_PROMOTE | MG_OP_FLOAT,
     MG_ATTRS(mg_pool_attrs, avg_grad_table),
     .infer = avg_grad_infer,
     .grad = avg_grad_grad,
     .split = image_split,
     .ref = avg_grad_ref},
};

const mg_op_family mg_ops_pool = {"pool", rows, sizeof rows / sizeof rows[0]};
