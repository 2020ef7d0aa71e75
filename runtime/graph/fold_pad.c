/* Folding of padding into convolutions and pools.
 *
 * A convolution of an image that `pad` has surrounded with zeros equals a convolution of the image
 * itself with more padding, and so does the gradient of its weights. The gradient of the image,
 * whose border a slice removes, is computed without the border. The padded images then need no
 * memory and no passes over it. The values are the same unless a weight is not finite: multiplied
 * with a zero of the border it gave NaN, while padding is skipped.
 *
 * A max pool skips its padding, too. Zeros around an image that has no negative pixels, because
 * relu made it, never exceed the largest pixel of a window, of which each has at least one. */
#include "graph/ir.h"
#include "ops/attrs.h"
#include <string.h>

/* Input i of n, which must be resolved. */
static const mg_node *input(const mg_ir *ir, const mg_node *n, int i) {
    return &ir->nodes[n->in[i]];
}

/* A border of rows and columns around images. */
typedef struct border {
    int64_t rows[2], columns[2]; /* before and after */
} border;

/* Whether n puts zeros around images and nothing else. */
static bool pads_images(const mg_node *n, border *b) {
    if (!mg_is_op(n, "pad") || n->shape.rank != 4) return false;
    const mg_pad_attrs *a = n->attrs;
    const int64_t *before = a->before.v, *after = a->after.v;
    if (a->value != 0 || a->interior.n || before[0] || after[0] || before[3] || after[3])
        return false;
    *b = (border){{before[1], after[1]}, {before[2], after[2]}};
    return true;
}

/* Whether n takes a border off images and does nothing else. */
static bool crops_images(const mg_ir *ir, const mg_node *n, border *b) {
    if (!mg_is_op(n, "slice") || n->shape.rank != 4) return false;
    const mg_slice_attrs *a = n->attrs;
    const int64_t *whole = input(ir, n, 0)->shape.dim, *left = n->shape.dim;
    for (int i = 0; i < 4; i++)
        if (a->step.v[i] != 1) return false;
    if (left[0] != whole[0] || left[3] != whole[3]) return false;
    *b = (border){{a->start.v[1], whole[1] - left[1] - a->start.v[1]},
                  {a->start.v[2], whole[2] - left[2] - a->start.v[2]}};
    return true;
}

/* Adds the border to a convolution's padding. Kernels expect less padding than the filter has rows
 * and columns; false if it becomes more. */
static bool add_border(mg_conv_attrs *a, const mg_shape *weights, const border *b) {
    for (int i = 0; i < 2; i++) {
        a->pads.v[i] += b->rows[i];
        a->pads.v[2 + i] += b->columns[i];
        if (a->pads.v[i] >= weights->dim[0] || a->pads.v[2 + i] >= weights->dim[1]) return false;
    }
    return true;
}

/* A copy of a convolution's attributes with the border, in *attrs; NULL if it is too large. */
static mg_status attrs_with(mg_ir *ir, const mg_node *conv, const mg_shape *weights,
                            const border *b, mg_conv_attrs **attrs) {
    mg_conv_attrs *a = mg_ir_alloc(ir, sizeof *a);
    if (!a) return MG_OOM;
    *a = *(const mg_conv_attrs *)conv->attrs;
    *attrs = add_border(a, weights, b) ? a : NULL;
    return MG_OK;
}

/* conv2d and conv2d_grad_weight read the image without its border. */
static mg_status read_unpadded(mg_ir *ir, mg_node *n) {
    const bool back = mg_is_op(n, "conv2d_grad_weight");
    mg_conv_attrs *attrs;
    border b;
    if (!(back || mg_is_op(n, "conv2d")) || !pads_images(input(ir, n, 0), &b)) return MG_OK;
    int *in = mg_ir_alloc(ir, (size_t)n->n_in * sizeof *in);
    if (!in) return MG_OOM;
    MG_TRY(attrs_with(ir, n, back ? &n->shape : &input(ir, n, 1)->shape, &b, &attrs));
    if (!attrs) return MG_OK;
    memcpy(in, n->in, (size_t)n->n_in * sizeof *in);
    in[0] = input(ir, n, 0)->in[0];
    n->in = in;
    n->attrs = attrs;
    return MG_OK;
}

/* max_pool2d reads the image without the zeros, unless its gradient reads them as well. */
static mg_status pool_unpadded(mg_ir *ir, mg_node *n) {
    border b;
    if (!mg_is_op(n, "max_pool2d")) return MG_OK;
    const mg_node *padded = input(ir, n, 0);
    if (!pads_images(padded, &b) || padded->uses != 1) return MG_OK;
    if (!mg_ir_comes_from_relu(ir, input(ir, padded, 0))) return MG_OK;
    mg_pool_attrs *a = mg_ir_alloc(ir, sizeof *a);
    if (!a) return MG_OOM;
    *a = *(const mg_pool_attrs *)n->attrs;
    for (int i = 0; i < 2; i++) {
        a->pads.v[i] += b.rows[i];
        a->pads.v[2 + i] += b.columns[i];
        if (a->pads.v[i] >= a->size.v[0] || a->pads.v[2 + i] >= a->size.v[1]) return MG_OK;
    }
    n->attrs = a;
    n->in = padded->in;
    return MG_OK;
}

/* A slice becomes the conv2d_grad_input that only it reads, without the border. */
static mg_status make_unpadded(mg_ir *ir, mg_node *n) {
    mg_conv_attrs *attrs;
    border b;
    if (!crops_images(ir, n, &b)) return MG_OK;
    const mg_node *whole = input(ir, n, 0);
    if (!mg_is_op(whole, "conv2d_grad_input") || whole->uses != 1) return MG_OK;
    MG_TRY(attrs_with(ir, whole, &input(ir, whole, 1)->shape, &b, &attrs));
    if (!attrs) return MG_OK;
    for (int i = 0; i < 4; i++) attrs->shape.v[i] = n->shape.dim[i];
    n->op = whole->op;
    n->attrs = attrs;
    n->in = whole->in;
    n->n_in = whole->n_in;
    return MG_OK;
}

mg_status mg_fold_pads(mg_ir *ir) {
    for (int i = 0; i < ir->n; i++) {
        mg_node *n = &ir->nodes[i];
        if (!mg_is_live(n) || n->kind != MG_NODE_OP) continue;
        MG_TRY(read_unpadded(ir, n));
        MG_TRY(pool_unpadded(ir, n));
        MG_TRY(make_unpadded(ir, n));
    }
    mg_ir_count_uses(ir);
    return MG_OK;
}
