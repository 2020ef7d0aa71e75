/* Folding of batch normalisation into its neighbours.
 *
 * y = x * s + t, with a channel's s = gamma / sqrt(variance + epsilon) and t = beta - mean * s, is
 * linear in x. If x is a product or a convolution that nobody else reads, as in prediction, that op
 * takes the weights W * s and the bias b * s + t, and makes y.
 *
 * If y is read only by convolutions without padding, these read x instead, with the weights W * s
 * and the bias b + sum of W * t. In the backward pass, each tap of a kernel is multiplied with
 * every pixel of dz, the gradient of the convolution's result, once. So with G =
 * conv2d_grad_weight(x, dz) and db the sum of dz over the pixels,
 * - the weights' gradient is G * s + t * db,
 * - the sum of dy over the pixels is the sum of W * db over taps and kernels,
 * - the sum of dy * x is the sum of W * G over taps and kernels.
 *
 * y is never made, which saves a pass over the image and one over image and gradient.
 *
 * The formulas are exact, but rounding differs: if the mean is large compared with the deviation,
 * digits are lost to cancellation. In the second rewrite x must therefore come from a relu, whose
 * mean is not much larger than its deviation. There float16 rounds G and W * s in place of y and
 * dy. Measured against float64 with 16 images of 14 x 14, the gradients are off by 1 to 1.4 times
 * as much as without the rewrite, and by 2 times if the mean is four deviations; with 6 images of
 * 10 x 10, where sums have few terms, that of gamma is off by 0.2 %, not by 0.02 %. bfloat16 is
 * excluded: it lost 2 to 5 times as much. The precision must be "fast", or the dtype float64; and
 * the images must be larger than the weights, or the rewrite saves nothing. */
#include "core/alloc.h"
#include "core/precision.h"
#include "graph/ir.h"
#include "ops/attrs.h"
#include <string.h>

enum {
    MOST_NODES = 40, /* nodes that replace one rewritten node, at most */
    WORTH = 2        /* the image must have this many times the elements of the weights */
};

/* The work of one call: a new list of nodes is written beside the old one. */
typedef struct folder {
    mg_ir *ir;
    bool *folded;   /* per node: a batch_norm that is folded away */
    mg_node *nodes; /* the new list of the IR */
    int n;
    int *at; /* per node of the IR: its new number */
    mg_dtype dtype;
    mg_origin origin;
    bool failed; /* out of memory */
} folder;

/* Input i of n. */
static const mg_node *input(const mg_ir *ir, const mg_node *n, int i) {
    return &ir->nodes[mg_ir_resolve(ir, n->in[i])];
}

/* ---- what can be folded ---- */

/* A batch_norm whose rounding may change. */
static bool may_reorder_norm(const mg_node *n) {
    return mg_is_live(n) && mg_is_op(n, "batch_norm") &&
           (n->dtype == MG_F64 || mg_precision_fast());
}

/* A batch_norm of images that may be folded into the convolutions that read it. */
static bool may_fold_into_users(const mg_ir *ir, const mg_node *n) {
    return may_reorder_norm(n) && n->shape.rank == 4 && n->dtype != MG_BF16 &&
           mg_ir_comes_from_relu(ir, input(ir, n, 0));
}

/* The rewrite saves passes over the image and adds passes over the weights; those of a frozen step
 * are made once for many runs. */
static bool is_worth_it(const mg_ir *ir, const mg_shape *image, const mg_shape *weights) {
    return ir->frozen || mg_shape_count(image) >= WORTH * mg_shape_count(weights);
}

/* A batch_norm that is the only reader of a product or convolution. A bias is added to rows, so the
 * weights' last axis must be the columns. */
static bool may_fold_into_product(const mg_ir *ir, const mg_node *n) {
    if (!may_reorder_norm(n) || n->shape.rank < 2) return false;
    const mg_node *x = input(ir, n, 0);
    if (x->uses != 1 || x->n_in < 2 || !is_worth_it(ir, &n->shape, &input(ir, x, 1)->shape))
        return false;
    if (mg_is_op(x, "conv2d")) return !((const mg_conv_attrs *)x->attrs)->relu;
    if (!mg_is_op(x, "matmul") || input(ir, x, 1)->shape.rank != 2) return false;
    const mg_matmul_attrs *a = x->attrs;
    return !a->relu && !a->transpose_b;
}

/* Whether every tap is used for every pixel of the result. */
static bool has_no_padding(const mg_node *n) {
    const mg_conv_attrs *a = n->attrs;
    for (int i = 0; i < 4; i++)
        if (a->pads.v[i]) return false;
    return a->groups == 1;
}

/* Whether n can read the batch_norm's input in place of its result, which is input i of n. */
static bool folds_input(const mg_ir *ir, const mg_node *n, int i) {
    const bool back = mg_is_op(n, "conv2d_grad_weight");
    if (i != 0 || !(back || mg_is_op(n, "conv2d")) || !has_no_padding(n)) return false;
    return is_worth_it(ir, &input(ir, n, 0)->shape, back ? &n->shape : &input(ir, n, 1)->shape);
}

/* Whether the first input of n is a batch_norm that is folded away. */
static bool reads_folded(const mg_ir *ir, const mg_node *n, const bool *folded) {
    return mg_is_live(n) && n->n_in && folded[mg_ir_resolve(ir, n->in[0])];
}

/* Marks the batch_norms to fold away: candidates that are no root and whose readers can all be
 * rewritten. Returns how many nodes may be rewritten; 0: nothing to do. */
static size_t find_folded(const mg_ir *ir, bool *folded) {
    size_t readers = 0, sums = 0, followers = 0;
    for (int i = 0; i < ir->n; i++) folded[i] = may_fold_into_users(ir, &ir->nodes[i]);
    for (int r = 0; r < ir->n_roots; r++) folded[mg_ir_resolve(ir, ir->roots[r].node)] = false;
    for (int i = 0; i < ir->n; i++) {
        const mg_node *n = &ir->nodes[i];
        for (int k = 0; mg_is_live(n) && k < n->n_in; k++)
            if (!folds_input(ir, n, k)) folded[mg_ir_resolve(ir, n->in[k])] = false;
    }
    for (int i = 0; i < ir->n; i++) {
        readers += reads_folded(ir, &ir->nodes[i], folded);
        sums += mg_is_op(&ir->nodes[i], "batch_norm_reduce");
        followers += may_fold_into_product(ir, &ir->nodes[i]);
    }
    return readers + followers ? readers + followers + sums : 0;
}

/* The folded batch_norm whose gradient `reduce` adds up, if that gradient comes from one
 * convolution whose weight gradient is computed too; else NULL. */
static const mg_node *norm_of_reduce(const folder *f, const mg_node *reduce) {
    if (!mg_is_op(reduce, "batch_norm_reduce")) return NULL;
    const mg_ir *ir = f->ir;
    const mg_node *dy = input(ir, reduce, 2);
    if (!mg_is_op(dy, "conv2d_grad_input") || !has_no_padding(dy)) return NULL;
    for (int i = 0; i < ir->n; i++) {
        const mg_node *g = &ir->nodes[i];
        if (!mg_is_live(g) || !mg_is_op(g, "conv2d_grad_weight")) continue;
        const mg_node *norm = input(ir, g, 0);
        if (f->folded[norm - ir->nodes] && input(ir, g, 1) == input(ir, dy, 0) &&
            input(ir, norm, 0) == input(ir, reduce, 0) &&
            input(ir, norm, 1) == input(ir, reduce, 1) &&
            memcmp(norm->attrs, reduce->attrs, sizeof(mg_norm_attrs)) == 0)
            return norm;
    }
    return NULL;
}

/* ---- making nodes ---- */

/* Appends a node with up to three inputs, a and b filled in. Returns its number; 0 after a failed
 * allocation, which `failed` remembers. */
static int add_node(folder *f, mg_node n, int a, int b) {
    n.in = mg_ir_alloc(f->ir, 3 * sizeof *n.in);
    if (!n.in) {
        f->failed = true;
        return 0;
    }
    n.in[0] = a;
    n.in[1] = b;
    f->nodes[f->n] = n;
    return f->n++;
}

/* Appends an op of one or two inputs (b >= 0) in f->dtype; attrs are copied. */
static int add_op(folder *f, const char *name, const void *attrs, mg_shape shape, int a, int b) {
    const mg_op *op = mg_op_find(name);
    void *own = mg_ir_alloc(f->ir, op->attrs_size);
    if (!own) f->failed = true;
    if (own && op->attrs_size) memcpy(own, attrs, op->attrs_size);
    const mg_node n = {.kind = MG_NODE_OP,
                       .dtype = f->dtype,
                       .shape = shape,
                       .op = op,
                       .attrs = own,
                       .n_in = 1 + (b >= 0),
                       .origin = f->origin,
                       .forward = -1,
                       .group = -1};
    return add_node(f, n, a, b);
}

/* An op without attributes. */
static int add_elementwise(folder *f, const char *name, mg_shape shape, int a, int b) {
    return add_op(f, name, NULL, shape, a, b);
}

/* A scalar. */
static int add_literal(folder *f, double v) {
    const mg_full_attrs attrs = {.value = v, .dtype = f->dtype};
    const int i = add_op(f, "full", &attrs, (mg_shape){0}, 0, -1);
    f->nodes[i].kind = MG_NODE_LITERAL;
    f->nodes[i].literal = v;
    f->nodes[i].n_in = 0;
    return i;
}

/* x in another shape of as many elements. */
static int add_reshape(folder *f, int x, mg_shape shape) {
    mg_ints_attrs attrs = {.list = {.n = shape.rank}};
    for (int i = 0; i < shape.rank; i++) attrs.list.v[i] = shape.dim[i];
    return add_op(f, "reshape", &attrs, shape, x, -1);
}

/* The sum over axes, which are dropped. */
static int add_sum(folder *f, int x, mg_ints axes, mg_shape shape) {
    const mg_reduce_attrs attrs = {.axes = axes};
    return add_op(f, "sum", &attrs, shape, x, -1);
}

/* x cast to a dtype. If x is itself a cast from that dtype, the value before that cast is used. */
static int cast_to(folder *f, int x, mg_dtype dtype) {
    const mg_node *n = &f->nodes[x];
    const mg_cast_attrs attrs = {.dtype = dtype};
    if (n->dtype == dtype) return x;
    if (mg_is_op(n, "cast") && f->nodes[n->in[0]].dtype == dtype) return n->in[0];
    const int y = add_op(f, "cast", &attrs, n->shape, x, -1);
    f->nodes[y].dtype = dtype;
    return y;
}

/* Row i of the moments {2, C}, as a column {C, 1}. */
static int add_column(folder *f, int moments, int i, int64_t c) {
    const mg_slice_attrs attrs = {.start = {.n = 2, .v = {i, 0}},
                                  .stop = {.n = 2, .v = {i + 1, c}},
                                  .step = {.n = 2, .v = {1, 1}}};
    const int row = add_op(f, "slice", &attrs, MG_SHAPE(1, c), moments, -1);
    return add_reshape(f, row, MG_SHAPE(c, 1));
}

/* ---- the formulas ---- */

/* The columns {C, 1} that describe a batch_norm. */
typedef struct affine {
    mg_shape shape; /* of all of them */
    int mean, inverse, s, t;
} affine;

/* The new number of input i of an old node. */
static int new_input(const folder *f, const mg_node *n, int i) {
    return f->at[mg_ir_resolve(f->ir, n->in[i])];
}

/* Equal columns of several calls are merged by the simplify pass that follows. */
static affine affine_of(folder *f, const mg_node *norm) {
    const int64_t c = norm->shape.dim[norm->shape.rank - 1];
    const double epsilon = ((const mg_norm_attrs *)norm->attrs)->epsilon;
    const int moments = new_input(f, norm, 1);
    affine a = {.shape = MG_SHAPE(c, 1), .mean = add_column(f, moments, 0, c)};
    const int variance = add_column(f, moments, 1, c);
    a.inverse = add_elementwise(f, "rsqrt", a.shape,
                                add_elementwise(f, "add", a.shape, variance,
                                                add_literal(f, mg_dtype_round(f->dtype, epsilon))),
                                -1);
    a.s = add_elementwise(f, "mul", a.shape, add_reshape(f, new_input(f, norm, 2), a.shape),
                          a.inverse);
    a.t = add_elementwise(f, "sub", a.shape, add_reshape(f, new_input(f, norm, 3), a.shape),
                          add_elementwise(f, "mul", a.shape, a.mean, a.s));
    return a;
}

/* The weights' sums over taps {C, K}. */
static int sum_of_taps(folder *f, int weights, const mg_shape *w) {
    const mg_ints axes = {.n = 2, .v = {0, 1}};
    return add_sum(f, weights, axes, MG_SHAPE(w->dim[2], w->dim[3]));
}

/* The gradient's sums over pixels {K}: those that the bias takes, rounded as they are. */
static int sum_of_pixels(folder *f, int dz, int64_t k) {
    const mg_ints axes = {.n = 3, .v = {0, 1, 2}};
    const int sum = add_sum(f, dz, axes, MG_SHAPE(k));
    f->nodes[sum].dtype = f->nodes[dz].dtype;
    return cast_to(f, sum, f->dtype);
}

/* batch_norm(conv2d(x, W, b)) = conv2d(x, W * s, b * s + t). For 16-bit floats the factors are
 * computed in float32. */
static int fold_into_product(folder *f, const mg_node *norm) {
    const mg_node *n = input(f->ir, norm, 0);
    const mg_shape *w = &input(f->ir, n, 1)->shape, row = MG_SHAPE(w->dim[w->rank - 1]);
    if (mg_dtype_is_half(n->dtype)) f->dtype = MG_F32;
    const affine a = affine_of(f, norm);
    const int s = add_reshape(f, a.s, row);
    int bias = add_reshape(f, a.t, row);
    if (n->n_in == 3)
        bias = add_elementwise(
            f, "add", row,
            add_elementwise(f, "mul", row, cast_to(f, new_input(f, n, 2), f->dtype), s), bias);
    const int scaled = add_elementwise(f, "mul", *w, cast_to(f, new_input(f, n, 1), f->dtype), s);
    bias = cast_to(f, bias, n->dtype);
    const int y = add_node(f, *n, new_input(f, n, 0), cast_to(f, scaled, n->dtype));
    f->nodes[y].in[2] = bias;
    f->nodes[y].n_in = 3;
    return y;
}

/* conv2d(y, W, b) = conv2d(x, W * s, b + sum of W * t). Of 16-bit floats the factors are computed
 * in float32, from the weights before they were cast. */
static int fold_into_conv(folder *f, const mg_node *n) {
    const mg_node *norm = input(f->ir, n, 0);
    const mg_shape *w = &input(f->ir, n, 1)->shape;
    const int64_t c = w->dim[2], k = w->dim[3];
    const mg_ints channels = {.n = 1, .v = {0}};
    if (mg_dtype_is_half(n->dtype)) f->dtype = MG_F32;
    const int weights = cast_to(f, new_input(f, n, 1), f->dtype);
    const affine a = affine_of(f, norm);
    const int scaled = cast_to(f, add_elementwise(f, "mul", *w, weights, a.s), n->dtype);
    const int shifts = add_elementwise(f, "mul", MG_SHAPE(c, k), sum_of_taps(f, weights, w), a.t);
    int bias = add_sum(f, shifts, channels, MG_SHAPE(k));
    if (n->n_in == 3)
        bias =
            add_elementwise(f, "add", MG_SHAPE(k), cast_to(f, new_input(f, n, 2), f->dtype), bias);
    bias = cast_to(f, bias, n->dtype);
    const int z = add_node(f, *n, new_input(f, norm, 0), scaled);
    f->nodes[z].in[2] = bias;
    f->nodes[z].n_in = 3;
    return z;
}

/* conv2d_grad_weight(y, dz) = G * s + t * db */
static int fold_into_weight_gradient(folder *f, const mg_node *n) {
    const mg_node *norm = input(f->ir, n, 0);
    const int64_t c = n->shape.dim[2], k = n->shape.dim[3];
    const int dz = new_input(f, n, 1);
    if (mg_dtype_is_half(n->dtype)) f->dtype = MG_F32;
    const affine a = affine_of(f, norm);
    const int g = cast_to(f, add_node(f, *n, new_input(f, norm, 0), dz), f->dtype);
    const int shift = add_elementwise(f, "mul", MG_SHAPE(c, k), a.t, sum_of_pixels(f, dz, k));
    const int scaled = add_elementwise(f, "mul", n->shape, g, a.s);
    return cast_to(f, add_elementwise(f, "add", n->shape, scaled, shift), n->dtype);
}

/* batch_norm_reduce {2, C}: the sums of dy and of dy * (x - mean) * inverse. */
static int fold_reduce(folder *f, const mg_node *n, const mg_node *norm) {
    const mg_node *dy = input(f->ir, n, 2);
    const mg_shape *w = &input(f->ir, dy, 1)->shape;
    const int64_t c = w->dim[2], k = w->dim[3];
    const mg_ints kernels = {.n = 1, .v = {1}}, all_but_channels = {.n = 3, .v = {0, 1, 3}};
    const int dz = new_input(f, dy, 0), weights = cast_to(f, new_input(f, dy, 1), f->dtype);
    const affine a = affine_of(f, norm);
    mg_conv_attrs attrs = *(const mg_conv_attrs *)dy->attrs;
    attrs.shape = (mg_ints){.n = 4, .v = {w->dim[0], w->dim[1], c, k}};
    int g = add_op(f, "conv2d_grad_weight", &attrs, *w, new_input(f, norm, 0), dz);
    f->nodes[g].dtype = f->nodes[dz].dtype; /* rounded: the node that makes the weights' gradient */
    g = cast_to(f, g, f->dtype);
    const int dots = add_elementwise(f, "mul", MG_SHAPE(c, k), sum_of_taps(f, weights, w),
                                     sum_of_pixels(f, dz, k));
    const int first = add_reshape(f, add_sum(f, dots, kernels, MG_SHAPE(c)), a.shape);
    const int with_x =
        add_sum(f, add_elementwise(f, "mul", *w, weights, g), all_but_channels, MG_SHAPE(c));
    const int centred = add_elementwise(f, "sub", a.shape, add_reshape(f, with_x, a.shape),
                                        add_elementwise(f, "mul", a.shape, a.mean, first));
    const int second = add_elementwise(f, "mul", a.shape, centred, a.inverse);
    const mg_axis_attrs rows = {.axis = 0};
    return add_op(f, "concat", &rows, MG_SHAPE(2, c), add_reshape(f, first, MG_SHAPE(1, c)),
                  add_reshape(f, second, MG_SHAPE(1, c)));
}

/* ---- all nodes ---- */

/* An untouched node with its inputs' new numbers. */
static int copy_node(folder *f, const mg_node *n) {
    mg_node own = *n;
    own.in = mg_ir_alloc(f->ir, (size_t)(n->n_in + 1) * sizeof *own.in);
    if (!own.in) f->failed = true;
    for (int i = 0; own.in && i < n->n_in; i++) own.in[i] = new_input(f, n, i);
    f->nodes[f->n] = own;
    return f->n++;
}

/* The new number of node n. */
static int rewrite_node(folder *f, const mg_node *n) {
    const mg_node *norm = mg_is_live(n) ? norm_of_reduce(f, n) : NULL;
    f->dtype = n->dtype;
    f->origin = n->origin;
    if (norm) return fold_reduce(f, n, norm);
    if (may_fold_into_product(f->ir, n)) return fold_into_product(f, n);
    if (reads_folded(f->ir, n, f->folded))
        return mg_is_op(n, "conv2d") ? fold_into_conv(f, n) : fold_into_weight_gradient(f, n);
    return copy_node(f, n);
}

/* Nodes must come after their inputs. A violation is a bug in this pass, which would give wrong
 * results. */
static mg_status check_order(const folder *f) {
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < f->nodes[i].n_in; k++)
            if (f->nodes[i].in[k] >= i)
                return mg_fail(MG_INTERNAL,
                               "folding batch normalization put %s before one of its inputs",
                               f->nodes[i].op->name);
    return MG_OK;
}

/* Replaces the IR's list by the new one. */
static mg_status rewrite_nodes(folder *f) {
    mg_ir *ir = f->ir;
    for (int i = 0; i < ir->n && !f->failed; i++)
        f->at[i] = ir->nodes[i].forward < 0 ? rewrite_node(f, &ir->nodes[i]) : -1;
    if (f->failed) return MG_OOM;
    MG_TRY(check_order(f));
    for (int r = 0; r < ir->n_roots; r++)
        ir->roots[r].node = f->at[mg_ir_resolve(ir, ir->roots[r].node)];
    ir->nodes = f->nodes;
    ir->n = f->n;
    return MG_OK;
}

/* Room for the new nodes is taken once: each rewritten node becomes at most MOST_NODES. */
mg_status mg_fold_norms(mg_ir *ir, bool *changed) {
    const size_t n = (size_t)ir->n;
    *changed = false;
    if (ir->recorded) return MG_OK;
    folder f = {.ir = ir, .folded = mg_alloc(n * sizeof(bool) + 1)};
    if (!f.folded) return MG_OOM;
    mg_status status = MG_OK;
    const size_t n_rewritten = find_folded(ir, f.folded);
    if (n_rewritten) {
        f.at = mg_alloc(n * sizeof *f.at);
        f.nodes = mg_ir_alloc(ir, (n + n_rewritten * MOST_NODES) * sizeof *f.nodes);
        status = f.at && f.nodes ? rewrite_nodes(&f) : MG_OOM;
        *changed = status == MG_OK;
        mg_free(f.at);
    }
    mg_free(f.folded);
    return status;
}
