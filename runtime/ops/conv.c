/* Two-dimensional convolution (cross-correlation, as in Keras) and its two backward forms.
 *
 * x {N, H, W, C}, w {KH, KW, C / groups, K}, y {N, OH, OW, K};
 * y[n,i,j,k] = sum over a, b, c of x[n, i s - top + a d, j s - left + b d, c] w[a,b,c,k].
 * Seen as the trilinear form T(x, w, dy) = sum(y dy), conv2d is its derivative by dy,
 * conv2d_grad_input by x, conv2d_grad_weight by w: one loop nest serves all three, and each one's
 * gradients are the other two. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/ops.h"
#include <string.h>

typedef struct geometry {
    int64_t n, h, w, c, kh, kw, cg, k, oh, ow, groups;
    int64_t stride[2], pad[2], dilation[2];
} geometry;

/* ---- attributes ---- */

static mg_status take_list(const mg_infer *f, mg_ints *list, int n, int64_t fallback, int64_t least,
                           const char *name) {
    if (list->n == 0)
        for (int i = 0; i < n; i++) list->v[i] = fallback;
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
    mg_conv_attrs *a = f->attrs;
    MG_TRY(take_list(f, &a->strides, 2, 1, 1, "strides"));
    MG_TRY(take_list(f, &a->pads, 4, 0, 0, "pads"));
    MG_TRY(take_list(f, &a->dilations, 2, 1, 1, "dilations"));
    if (a->groups >= 1) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "groups must be at least 1, got %lld", (long long)a->groups);
}

/* Cells of the output along one axis; less than 1 if the window does not fit. */
static int64_t output_size(const mg_conv_attrs *a, int axis, int64_t size, int64_t kernel) {
    const int64_t window = (kernel - 1) * a->dilations.v[axis] + 1;
    const int64_t room = size + a->pads.v[2 * axis] + a->pads.v[2 * axis + 1] - window;
    return room < 0 ? 0 : room / a->strides.v[axis] + 1;
}

static geometry read_geometry(const mg_conv_attrs *a, const mg_shape *x, const mg_shape *w) {
    return (geometry){.n = x->dim[0],
                      .h = x->dim[1],
                      .w = x->dim[2],
                      .c = x->dim[3],
                      .kh = w->dim[0],
                      .kw = w->dim[1],
                      .cg = w->dim[2],
                      .k = w->dim[3],
                      .oh = output_size(a, 0, x->dim[1], w->dim[0]),
                      .ow = output_size(a, 1, x->dim[2], w->dim[1]),
                      .groups = a->groups,
                      .stride = {a->strides.v[0], a->strides.v[1]},
                      .pad = {a->pads.v[0], a->pads.v[2]},
                      .dilation = {a->dilations.v[0], a->dilations.v[1]}};
}

/* ---- inference ---- */

static mg_status check_pair(const mg_infer *f, const mg_shape *x, const mg_shape *w, mg_shape *y) {
    const mg_conv_attrs *a = f->attrs;
    if (x->dim[3] != w->dim[2] * a->groups)
        return mg_infer_fail(f, MG_USAGE, "the input %s has %lld channels, the kernel %s with %lld "
                                          "groups needs %lld", MG_SHAPE_TEXT(x),
                             (long long)x->dim[3], MG_SHAPE_TEXT(w), (long long)a->groups,
                             (long long)(w->dim[2] * a->groups));
    if (w->dim[3] % a->groups)
        return mg_infer_fail(f, MG_USAGE, "%lld filters cannot be dealt out to %lld groups",
                             (long long)w->dim[3], (long long)a->groups);
    const geometry g = read_geometry(a, x, w);
    if (g.oh < 1 || g.ow < 1)
        return mg_infer_fail(f, MG_USAGE, "the kernel %s does not fit into the input %s: pad it or "
                                          "use a smaller kernel", MG_SHAPE_TEXT(w), MG_SHAPE_TEXT(x));
    *y = MG_SHAPE(g.n, g.oh, g.ow, g.k);
    return MG_OK;
}

static mg_status conv_infer(mg_infer *f) {
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(mg_infer_rank(f, 1, 4, "rows, columns, input channels, filters"));
    MG_TRY(mg_infer_float(f, 0));
    MG_TRY(take_attrs(f));
    MG_TRY(check_pair(f, mg_infer_shape(f, 0), mg_infer_shape(f, 1), &f->shape));
    if (f->n_inputs == 3 &&
        (mg_infer_shape(f, 2)->rank != 1 || mg_infer_shape(f, 2)->dim[0] != f->shape.dim[3]))
        return mg_infer_fail(f, MG_USAGE, "the bias must have shape {%lld}, got %s",
                             (long long)f->shape.dim[3], MG_SHAPE_TEXT(mg_infer_shape(f, 2)));
    return MG_OK;
}

static mg_status check_gradient(const mg_infer *f, const mg_shape *y, const mg_shape *dy) {
    if (mg_shape_equal(y, dy)) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "the gradient has shape %s where the output has %s",
                         MG_SHAPE_TEXT(dy), MG_SHAPE_TEXT(y));
}

static mg_status grad_input_infer(mg_infer *f) {
    mg_conv_attrs *a = f->attrs;
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, filters"));
    MG_TRY(mg_infer_rank(f, 1, 4, "rows, columns, input channels, filters"));
    MG_TRY(mg_infer_float(f, 0));
    MG_TRY(take_attrs(f));
    MG_TRY(take_list(f, &a->shape, 4, -1, 0, "input_shape"));
    f->shape = mg_shape_of(4, a->shape.v);
    MG_TRY(check_pair(f, &f->shape, mg_infer_shape(f, 1), &y));
    return check_gradient(f, &y, mg_infer_shape(f, 0));
}

static mg_status grad_weight_infer(mg_infer *f) {
    mg_conv_attrs *a = f->attrs;
    mg_shape y;
    MG_TRY(mg_infer_rank(f, 0, 4, "batch, rows, columns, channels"));
    MG_TRY(mg_infer_rank(f, 1, 4, "batch, rows, columns, filters"));
    MG_TRY(mg_infer_float(f, 0));
    MG_TRY(take_attrs(f));
    MG_TRY(take_list(f, &a->shape, 4, -1, 0, "kernel_shape"));
    f->shape = mg_shape_of(4, a->shape.v);
    MG_TRY(check_pair(f, mg_infer_shape(f, 0), &f->shape, &y));
    return check_gradient(f, &y, mg_infer_shape(f, 1));
}

/* ---- gradients: the other two of the three ---- */

static mg_tensor *forward(const mg_conv_attrs *a, mg_tensor *x, mg_tensor *w) {
    mg_conv_attrs b = *a;
    b.shape = (mg_ints){0};
    return mg_make("conv2d", &b, 2, x, w);
}

static mg_ints list_of(const mg_shape *s) {
    mg_ints list = {.n = s->rank};
    memcpy(list.v, s->dim, (size_t)s->rank * sizeof list.v[0]);
    return list;
}

static mg_tensor *by_input(const mg_conv_attrs *a, mg_tensor *dy, mg_tensor *w, const mg_shape *x) {
    mg_conv_attrs b = *a;
    b.shape = list_of(x);
    return mg_make("conv2d_grad_input", &b, 2, dy, w);
}

static mg_tensor *by_weight(const mg_conv_attrs *a, mg_tensor *x, mg_tensor *dy, const mg_shape *w) {
    mg_conv_attrs b = *a;
    b.shape = list_of(w);
    return mg_make("conv2d_grad_weight", &b, 2, x, dy);
}

static mg_tensor *conv_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *w = y->inputs[1];
    const mg_conv_attrs *a = y->attrs;
    if (y->n_inputs > 2 || a->relu) {
        mg_fail(MG_INTERNAL, "conv2d: a fused convolution has no gradient rule");
        return NULL;
    }
    return i == 0 ? by_input(a, dy, w, &x->shape) : by_weight(a, x, dy, &w->shape);
}

/* Inputs dy, w; v is the gradient of the result, which has x's shape. */
static mg_tensor *grad_input_grad(mg_tensor *y, mg_tensor *v, int i) {
    mg_tensor *dy = y->inputs[0], *w = y->inputs[1];
    return i == 0 ? forward(y->attrs, v, w) : by_weight(y->attrs, v, dy, &w->shape);
}

/* Inputs x, dy; v has w's shape. */
static mg_tensor *grad_weight_grad(mg_tensor *y, mg_tensor *v, int i) {
    mg_tensor *x = y->inputs[0], *dy = y->inputs[1];
    return i == 0 ? by_input(y->attrs, dy, v, &x->shape) : forward(y->attrs, x, v);
}

/* ---- the loop nest ---- */

typedef void term(double *x, double *w, double *y);

static void add_to_y(double *x, double *w, double *y) {
    *y += *x * *w;
}

static void add_to_x(double *x, double *w, double *y) {
    *x += *y * *w;
}

static void add_to_w(double *x, double *w, double *y) {
    *w += *x * *y;
}

/* Every product of the trilinear form, at one output cell. */
static void one_cell(const geometry *g, int64_t n, int64_t i, int64_t j, int64_t k, double *x,
                     double *w, double *y, term *t) {
    const int64_t first = k / (g->k / g->groups) * g->cg;
    for (int64_t a = 0; a < g->kh; a++)
        for (int64_t b = 0; b < g->kw; b++) {
            const int64_t row = i * g->stride[0] - g->pad[0] + a * g->dilation[0];
            const int64_t column = j * g->stride[1] - g->pad[1] + b * g->dilation[1];
            if (row < 0 || row >= g->h || column < 0 || column >= g->w) continue;
            double *pixel = x + ((n * g->h + row) * g->w + column) * g->c + first;
            double *tap = w + (a * g->kw + b) * g->cg * g->k + k;
            for (int64_t c = 0; c < g->cg; c++) t(pixel + c, tap + c * g->k, y);
        }
}

static void every_cell(const geometry *g, double *x, double *w, double *y, term *t) {
    for (int64_t n = 0; n < g->n; n++)
        for (int64_t i = 0; i < g->oh; i++)
            for (int64_t j = 0; j < g->ow; j++)
                for (int64_t k = 0; k < g->k; k++)
                    one_cell(g, n, i, j, k, x, w, y + ((n * g->oh + i) * g->ow + j) * g->k + k, t);
}

static void clear(const mg_ref *r) {
    memset(r->out, 0, (size_t)mg_shape_count(&r->shape) * sizeof *r->out);
}

/* The operands that a term does not add to are only read. */
static double *operand(const mg_ref *r, int i) {
    return (double *)(uintptr_t)r->in[i];
}

static void conv_ref(const mg_ref *r) {
    const mg_conv_attrs *a = r->attrs;
    const geometry g = read_geometry(a, &r->in_shape[0], &r->in_shape[1]);
    const int64_t n = mg_shape_count(&r->shape);
    clear(r);
    every_cell(&g, operand(r, 0), operand(r, 1), r->out, add_to_y);
    for (int64_t i = 0; i < n; i++) {
        if (r->n_inputs == 3) r->out[i] += r->in[2][i % g.k];
        if (a->relu && r->out[i] < 0) r->out[i] = 0;
    }
}

static void grad_input_ref(const mg_ref *r) {
    const geometry g = read_geometry(r->attrs, &r->shape, &r->in_shape[1]);
    clear(r);
    every_cell(&g, r->out, operand(r, 1), operand(r, 0), add_to_x);
}

static void grad_weight_ref(const mg_ref *r) {
    const geometry g = read_geometry(r->attrs, &r->in_shape[0], &r->shape);
    clear(r);
    every_cell(&g, operand(r, 0), r->out, operand(r, 1), add_to_w);
}

/* ---- rows ---- */

#define COMMON_ATTRS                                                                               \
    {"strides", MG_ATTR_INTS, offsetof(mg_conv_attrs, strides), 0, NULL, "rows, columns; 1"},      \
        {"pads", MG_ATTR_INTS, offsetof(mg_conv_attrs, pads), 0, NULL,                             \
         "top, bottom, left, right; 0"},                                                           \
        {"dilations", MG_ATTR_INTS, offsetof(mg_conv_attrs, dilations), 0, NULL,                   \
         "rows, columns; 1"},                                                                      \
        {"groups", MG_ATTR_INT, offsetof(mg_conv_attrs, groups), 1, NULL,                          \
         "channels are dealt out to so many convolutions"}

static const mg_attr conv_table[] = {COMMON_ATTRS};
static const mg_attr grad_input_table[] = {
    COMMON_ATTRS,
    {"input_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "of the input"}};
static const mg_attr grad_weight_table[] = {
    COMMON_ATTRS,
    {"kernel_shape", MG_ATTR_SHAPE, offsetof(mg_conv_attrs, shape), 0, NULL, "of the kernel"}};

static const mg_op rows[] = {
    {.name = "conv2d",
     .doc = "x {N,H,W,C} with kernel {KH,KW,C/groups,K} -> {N,OH,OW,K}",
     .min_inputs = 2,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_conv_attrs, conv_table),
     .infer = conv_infer,
     .grad = conv_grad,
     .ref = conv_ref},
    {.name = "conv2d_grad_input",
     .doc = "gradient of conv2d by its input, from dy and the kernel (transposed convolution)",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_conv_attrs, grad_input_table),
     .infer = grad_input_infer,
     .grad = grad_input_grad,
     .ref = grad_input_ref},
    {.name = "conv2d_grad_weight",
     .doc = "gradient of conv2d by its kernel, from the input and dy",
     .min_inputs = 2,
     .max_inputs = 2,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_conv_attrs, grad_weight_table),
     .infer = grad_weight_infer,
     .grad = grad_weight_grad,
     .ref = grad_weight_ref},
};

const mg_op_family mg_ops_conv = {"conv", rows, sizeof rows / sizeof rows[0]};
