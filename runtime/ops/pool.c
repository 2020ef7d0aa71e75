/* Two-dimensional pooling and its backward forms, x {N, H, W, C}.
 *
 * Padding never wins a maximum and does not count in a mean (Keras's `same`). The gradient of a
 * maximum goes to the first cell of the window, in row-major order, that equals it. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <math.h>
#include <string.h>

typedef struct window { /* the part of a window that lies in the image */
    int64_t top, bottom, left, right;
} window;

/* ---- attributes and shapes ---- */

static mg_status take_list(const mg_infer *f, mg_ints *list, int n, const int64_t *fallback,
                           int64_t least, const char *name) {
    if (list->n == 0)
        memcpy(list->v, fallback, (size_t)n * sizeof *fallback);
    else if (list->n == 1)
        for (int i = 1; i < n; i++) list->v[i] = list->v[0];
    else if (list->n != n)
        return mg_infer_fail(f, MG_USAGE, "%s needs %d numbers, got %d", name, n, list->n);
    list->n = n;
    for (int i = 0; i < n; i++)
        if (list->v[i] < least)
            return mg_infer_fail(f, MG_USAGE, "%s must be at least %lld, got %lld", name,
                                 (long long)least, (long long)list->v[i]);
    return MG_OK;
}

static mg_status take_attrs(const mg_infer *f) {
    mg_pool_attrs *a = f->attrs;
    MG_TRY(take_list(f, &a->size, 2, (const int64_t[]){2, 2}, 1, "size"));
    MG_TRY(take_list(f, &a->strides, 2, a->size.v, 1, "strides"));
    MG_TRY(take_list(f, &a->pads, 4, (const int64_t[4]){0}, 0, "pads"));
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i] >= a->size.v[i / 2])
            return mg_infer_fail(f, MG_USAGE, "pads must be smaller than the window");
    return MG_OK;
}

static mg_status pooled_shape(const mg_infer *f, const mg_shape *x, mg_shape *y) {
    const mg_pool_attrs *a = f->attrs;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        const int64_t room = x->dim[1 + i] + a->pads.v[2 * i] + a->pads.v[2 * i + 1] - a->size.v[i];
        if (room < 0)
            return mg_infer_fail(f, MG_USAGE, "the window {%lld, %lld} does not fit into %s",
                                 (long long)a->size.v[0], (long long)a->size.v[1], MG_SHAPE_TEXT(x));
        y->dim[1 + i] = room / a->strides.v[i] + 1;
    }
    return MG_OK;
}

static mg_status pool_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(mg_infer_float(f, 0));
    MG_TRY(take_attrs(f));
    return pooled_shape(f, mg_infer_shape(f, 0), &f->shape);
}

static mg_status same_shape(const mg_infer *f, int i, const mg_shape *wanted) {
    if (mg_shape_equal(mg_infer_shape(f, i), wanted)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "input %d has shape %s, needs %s", i + 1,
                         MG_SHAPE_TEXT(mg_infer_shape(f, i)), MG_SHAPE_TEXT(wanted));
}

/* x, y, dy -> shape of x */
static mg_status max_grad_infer(mg_infer *f) {
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(take_attrs(f));
    MG_TRY(pooled_shape(f, mg_infer_shape(f, 0), &y));
    MG_TRY(same_shape(f, 1, &y));
    MG_TRY(same_shape(f, 2, &y));
    f->shape = *mg_infer_shape(f, 0);
    return MG_OK;
}

/* x, y, v (like x) -> shape of y */
static mg_status max_pick_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(take_attrs(f));
    MG_TRY(pooled_shape(f, mg_infer_shape(f, 0), &f->shape));
    MG_TRY(same_shape(f, 1, &f->shape));
    return same_shape(f, 2, mg_infer_shape(f, 0));
}

static mg_status avg_grad_infer(mg_infer *f) {
    mg_pool_attrs *a = f->attrs;
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(take_attrs(f));
    if (a->shape.n != 4) return mg_infer_fail(f, MG_USAGE, "input_shape needs 4 numbers");
    f->shape = mg_shape_of(4, a->shape.v);
    MG_TRY(pooled_shape(f, &f->shape, &y));
    return same_shape(f, 0, &y);
}

/* ---- gradients ---- */

static mg_tensor *max_grad(mg_tensor *y, mg_tensor *dy, int i) {
    return mg_make("max_pool2d_grad", y->attrs, 3, y->inputs[i], y, dy);
}

/* The choice of cells is piecewise constant: only dy carries a gradient. */
static mg_tensor *max_grad_grad(mg_tensor *g, mg_tensor *v, int i) {
    if (i != 2) return mg_no_gradient();
    return mg_make("max_pool2d_pick", g->attrs, 3, g->inputs[0], g->inputs[1], v);
}

static mg_tensor *max_pick_grad(mg_tensor *p, mg_tensor *v, int i) {
    if (i != 2) return mg_no_gradient();
    return mg_make("max_pool2d_grad", p->attrs, 3, p->inputs[0], p->inputs[1], v);
}

static mg_tensor *avg_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_pool_attrs a = *(const mg_pool_attrs *)y->attrs;
    a.shape.n = 4;
    memcpy(a.shape.v, y->inputs[i]->shape.dim, 4 * sizeof a.shape.v[0]);
    return mg_make("avg_pool2d_grad", &a, 1, dy);
}

static mg_tensor *avg_grad_grad(mg_tensor *g, mg_tensor *v, int i) {
    (void)i;
    mg_pool_attrs a = *(const mg_pool_attrs *)g->attrs;
    a.shape = (mg_ints){0};
    return mg_make("avg_pool2d", &a, 1, v);
}

/* ---- reference kernels: one visit per output cell ---- */

static window clip(const mg_pool_attrs *a, const mg_shape *x, int64_t i, int64_t j) {
    const int64_t top = i * a->strides.v[0] - a->pads.v[0];
    const int64_t left = j * a->strides.v[1] - a->pads.v[2];
    window w = {top, top + a->size.v[0], left, left + a->size.v[1]};
    if (w.top < 0) w.top = 0;
    if (w.left < 0) w.left = 0;
    if (w.bottom > x->dim[1]) w.bottom = x->dim[1];
    if (w.right > x->dim[2]) w.right = x->dim[2];
    return w;
}

static int64_t cell(const mg_shape *s, int64_t n, int64_t i, int64_t j, int64_t c) {
    return ((n * s->dim[1] + i) * s->dim[2] + j) * s->dim[3] + c;
}

typedef void visit(const double *const *in, double *out, const mg_shape *x, window w, int64_t n,
                   int64_t c, int64_t at);

static void every_window(const mg_ref *r, const mg_shape *x, const mg_shape *y, visit *f) {
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t i = 0; i < y->dim[1]; i++)
            for (int64_t j = 0; j < y->dim[2]; j++)
                for (int64_t c = 0; c < y->dim[3]; c++)
                    f(r->in, r->out, x, clip(r->attrs, x, i, j), n, c, cell(y, n, i, j, c));
}

static void max_visit(const double *const *in, double *out, const mg_shape *x, window w, int64_t n,
                      int64_t c, int64_t at) {
    double top = -INFINITY;
    for (int64_t i = w.top; i < w.bottom; i++)
        for (int64_t j = w.left; j < w.right; j++) {
            const double v = in[0][cell(x, n, i, j, c)];
            if (v > top || v != v) top = v;
        }
    out[at] = top;
}

/* Where the maximum `top` stands, or -1 (NaN equals nothing). */
static int64_t find_max(const double *values, double top, const mg_shape *x, window w, int64_t n,
                        int64_t c) {
    for (int64_t i = w.top; i < w.bottom; i++)
        for (int64_t j = w.left; j < w.right; j++)
            if (values[cell(x, n, i, j, c)] == top) return cell(x, n, i, j, c);
    return -1;
}

static void max_grad_visit(const double *const *in, double *out, const mg_shape *x, window w,
                           int64_t n, int64_t c, int64_t at) {
    const int64_t to = find_max(in[0], in[1][at], x, w, n, c);
    if (to >= 0) out[to] += in[2][at];
}

static void max_pick_visit(const double *const *in, double *out, const mg_shape *x, window w,
                           int64_t n, int64_t c, int64_t at) {
    const int64_t from = find_max(in[0], in[1][at], x, w, n, c);
    out[at] = from >= 0 ? in[2][from] : 0;
}

static void avg_visit(const double *const *in, double *out, const mg_shape *x, window w, int64_t n,
                      int64_t c, int64_t at) {
    double sum = 0;
    for (int64_t i = w.top; i < w.bottom; i++)
        for (int64_t j = w.left; j < w.right; j++) sum += in[0][cell(x, n, i, j, c)];
    out[at] = sum / (double)((w.bottom - w.top) * (w.right - w.left));
}

static void avg_grad_visit(const double *const *in, double *out, const mg_shape *x, window w,
                           int64_t n, int64_t c, int64_t at) {
    const double share = in[0][at] / (double)((w.bottom - w.top) * (w.right - w.left));
    for (int64_t i = w.top; i < w.bottom; i++)
        for (int64_t j = w.left; j < w.right; j++) out[cell(x, n, i, j, c)] += share;
}

static void clear(const mg_ref *r) {
    memset(r->out, 0, (size_t)mg_shape_count(&r->shape) * sizeof *r->out);
}

static void max_ref(const mg_ref *r) {
    every_window(r, &r->in_shape[0], &r->shape, max_visit);
}

static void max_grad_ref(const mg_ref *r) {
    clear(r);
    every_window(r, &r->shape, &r->in_shape[1], max_grad_visit);
}

static void max_pick_ref(const mg_ref *r) {
    every_window(r, &r->in_shape[0], &r->shape, max_pick_visit);
}

static void avg_ref(const mg_ref *r) {
    every_window(r, &r->in_shape[0], &r->shape, avg_visit);
}

static void avg_grad_ref(const mg_ref *r) {
    clear(r);
    every_window(r, &r->shape, &r->in_shape[0], avg_grad_visit);
}

/* ---- rows ---- */

#define COMMON_ATTRS                                                                               \
    {"size", MG_ATTR_INTS, offsetof(mg_pool_attrs, size), 0, NULL, "rows, columns; 2"},            \
        {"strides", MG_ATTR_INTS, offsetof(mg_pool_attrs, strides), 0, NULL,                       \
         "rows, columns; the size"},                                                               \
        {"pads", MG_ATTR_INTS, offsetof(mg_pool_attrs, pads), 0, NULL,                             \
         "top, bottom, left, right; 0"}

static const mg_attr pool_table[] = {COMMON_ATTRS};
static const mg_attr avg_grad_table[] = {
    COMMON_ATTRS,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_pool_attrs, shape), 0, NULL, "of the input"}};

#define ROW(id, text, n, table, more, infer_rule, grad_rule, ref_kernel)                           \
    {.name = id,                                                                                   \
     .doc = text,                                                                                  \
     .min_inputs = n,                                                                              \
     .max_inputs = n,                                                                              \
     .flags = MG_OP_PROMOTE | (more),                                                              \
     MG_ATTRS(mg_pool_attrs, table),                                                               \
     .infer = infer_rule,                                                                          \
     .grad = grad_rule,                                                                            \
     .ref = ref_kernel}

static const mg_op rows[] = {
    ROW("max_pool2d", "largest of each window, {N,H,W,C} -> {N,OH,OW,C}", 1, pool_table, 0,
        pool_infer, max_grad, max_ref),
    ROW("max_pool2d_grad", "x, y, dy -> gradient by x", 3, pool_table, 0, max_grad_infer,
        max_grad_grad, max_grad_ref),
    ROW("max_pool2d_pick", "x, y, v -> v where x has each window's maximum", 3, pool_table,
        MG_OP_HIDDEN, max_pick_infer, max_pick_grad, max_pick_ref),
    ROW("avg_pool2d", "mean of each window's cells inside the image", 1, pool_table, 0, pool_infer,
        avg_grad, avg_ref),
    ROW("avg_pool2d_grad", "dy -> gradient by x", 1, avg_grad_table, 0, avg_grad_infer,
        avg_grad_grad, avg_grad_ref),
};

const mg_op_family mg_ops_pool = {"pool", rows, sizeof rows / sizeof rows[0]};
