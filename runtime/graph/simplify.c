/* Simplifying: rewrites that change no value.
 *
 * One pass in topological order: a node is folded if its inputs are literals, replaced if it is an
 * identity, then merged with an equal earlier node. A second pass lets conv2d and matmul take a
 * following bias and relu as epilogues, moves the relu mask before a max pool to the pooled side,
 * and lets all_finite read gradients as they were made. Replacements are always earlier nodes, and
 * a rewritten node keeps its place, so the order stays topological. */
#include "graph/ir.h"
#include "core/fnv.h"
#include "core/alloc.h"
#include "device/worker.h"
#include "ops/attrs.h"
#include "ops/elementwise.h"
#include <float.h>
#include <string.h>

/* Whether n is this row of elementwise.def. */
static bool is_elementwise(const mg_node *n, enum mg_elementwise op) {
    return n->kind == MG_NODE_OP && n->op->elementwise == (int)op + 1;
}

/* Whether both have the same dtype and shape. */
static bool same_type(const mg_node *a, const mg_node *b) {
    return a->dtype == b->dtype && mg_shape_equal(&a->shape, &b->shape);
}

/* Input i of n, which must be resolved. */
static const mg_node *input(const mg_ir *ir, const mg_node *n, int i) {
    return &ir->nodes[n->in[i]];
}

/* Whether n is v in every element. -0 counts as 0. */
static bool is_literal(const mg_node *n, double v) {
    return n->kind == MG_NODE_LITERAL && n->literal == v;
}

/* ---- folding and identities ---- */

/* Makes n the literal v. Its op becomes `full`, for the case that a user needs it in memory. */
static mg_status become_literal(mg_ir *ir, mg_node *n, double v) {
    mg_full_attrs *attrs = mg_ir_alloc(ir, sizeof *attrs);
    if (!attrs) return MG_OOM;
    *attrs = (mg_full_attrs){.value = v, .dtype = n->dtype};
    attrs->shape.n = n->shape.rank;
    for (int i = 0; i < n->shape.rank; i++) attrs->shape.v[i] = n->shape.dim[i];
    n->kind = MG_NODE_LITERAL;
    n->literal = v;
    n->op = mg_op_find("full");
    n->attrs = attrs;
    n->n_in = 0;
    return MG_OK;
}

/* Ops that only move or repeat elements: applied to a literal they give the same literal. */
static bool is_movement(const mg_node *n) {
    return mg_is_op(n, "broadcast_to") || mg_is_op(n, "reshape") || mg_is_op(n, "permute") ||
           mg_is_op(n, "slice");
}

/* An element-wise op or a movement of literals becomes a literal, computed as the reference device
 * does and rounded to the dtype. */
static mg_status fold_constants(mg_ir *ir, mg_node *n) {
    double v[3] = {0};
    if (is_movement(n) && input(ir, n, 0)->kind == MG_NODE_LITERAL)
        return become_literal(ir, n, input(ir, n, 0)->literal);
    if (mg_is_op(n, "own_rows")) return become_literal(ir, n, 1); /* partition has made others */
    if (n->kind != MG_NODE_OP || !n->op->elementwise || n->n_in == 0) return MG_OK;
    for (int i = 0; i < n->n_in; i++) {
        if (input(ir, n, i)->kind != MG_NODE_LITERAL) return MG_OK;
        v[i] = input(ir, n, i)->literal;
    }
    const enum mg_elementwise op = (enum mg_elementwise)(n->op->elementwise - 1);
    const double y = mg_elementwise_value(op, v[0], v[1], v[2]);
    return become_literal(ir, n, mg_dtype_round(n->dtype, y));
}

/* Which input (0, 1) equals the result if the types agree, or -1. */
static int identity_input_elementwise(const mg_ir *ir, const mg_node *n) {
    const mg_node *a = input(ir, n, 0), *b = n->n_in > 1 ? input(ir, n, 1) : NULL;
    switch ((enum mg_elementwise)(n->op->elementwise - 1)) {
    case MG_EW_add: return is_literal(b, 0) ? 0 : is_literal(a, 0) ? 1 : -1;
    case MG_EW_mul: return is_literal(b, 1) ? 0 : is_literal(a, 1) ? 1 : -1;
    case MG_EW_sub: return is_literal(b, 0) ? 0 : -1;
    case MG_EW_div: return is_literal(b, 1) ? 0 : -1;
    case MG_EW_pow: return is_literal(b, 1) ? 0 : -1;
    case MG_EW_cast:
    case MG_EW_stop_gradient: return 0;
    default: return -1;
    }
}

/* Likewise, for all ops. */
static int identity_input(const mg_ir *ir, const mg_node *n) {
    if (n->kind != MG_NODE_OP || n->n_in == 0) return -1;
    if (n->op->elementwise) return identity_input_elementwise(ir, n);
    if (mg_is_op(n, "reshape") || mg_is_op(n, "broadcast_to") || mg_is_op(n, "shard")) return 0;
    return -1;
}

/* x ^ 2 as a multiplication, which takes a tenth of the time. */
static void square_by_product(const mg_ir *ir, mg_node *n) {
    if (n->kind != MG_NODE_OP || n->op->elementwise != MG_EW_pow + 1 ||
        !is_literal(input(ir, n, 1), 2) || !same_type(n, input(ir, n, 0)) ||
        !mg_dtype_is_float(n->dtype))
        return;
    n->op = mg_op_find("square");
    n->n_in = 1;
}

/* reshape(reshape(x)) = reshape(x): reads x itself. */
static void skip_inner_reshape(const mg_ir *ir, mg_node *n) {
    while (mg_is_op(n, "reshape") && mg_is_op(input(ir, n, 0), "reshape"))
        n->in[0] = input(ir, n, 0)->in[0];
}

/* An element-wise op broadcasts by itself as long as another operand still has the full shape. This
 * avoids the large copy in the gradient of a sum. */
static void skip_broadcasts(const mg_ir *ir, mg_node *n) {
    bool shape_told = false;
    if (n->kind != MG_NODE_OP || !n->op->elementwise) return;
    for (int i = 0; i < n->n_in; i++)
        shape_told |= mg_shape_equal(&input(ir, n, i)->shape, &n->shape) &&
                      input(ir, n, i)->kind != MG_NODE_LITERAL &&
                      !mg_is_op(input(ir, n, i), "broadcast_to");
    for (int i = 0; i < n->n_in && shape_told; i++)
        if (mg_is_op(input(ir, n, i), "broadcast_to")) n->in[i] = input(ir, n, i)->in[0];
}

/* Whether the outer permutation undoes the inner one. */
static bool permutes_back(const mg_node *outer, const mg_node *inner) {
    const mg_ints *a = outer->attrs, *b = inner->attrs;
    for (int i = 0; i < a->n; i++)
        if (b->v[a->v[i]] != i) return false;
    return true;
}

/* The operand of a concat that a slice cuts out again, or -1. */
static int sliced_operand(const mg_ir *ir, const mg_node *n) {
    if (!mg_is_op(n, "slice") || !mg_is_op(input(ir, n, 0), "concat")) return -1;
    const mg_node *whole = input(ir, n, 0);
    const mg_slice_attrs *a = n->attrs;
    const int64_t axis = ((const mg_axis_attrs *)whole->attrs)->axis;
    int64_t at = 0;
    for (int i = 0; i < n->shape.rank; i++)
        if (a->step.v[i] != 1 || (i != axis && n->shape.dim[i] != whole->shape.dim[i])) return -1;
    for (int i = 0; i < whole->n_in; i++) {
        const int64_t size = input(ir, whole, i)->shape.dim[axis];
        if (at == a->start.v[axis] && size == n->shape.dim[axis]) return whole->in[i];
        at += size;
    }
    return -1;
}

/* The earlier node that n equals, or -1. May first make n read less. */
static int find_replacement(const mg_ir *ir, mg_node *n) {
    square_by_product(ir, n);
    skip_inner_reshape(ir, n);
    skip_broadcasts(ir, n);
    if (mg_is_op(n, "permute") && mg_is_op(input(ir, n, 0), "permute") &&
        permutes_back(n, input(ir, n, 0)))
        return input(ir, n, 0)->in[0];
    /* slice(concat(..., x, ...)) that is exactly x */
    const int part = sliced_operand(ir, n);
    if (part >= 0 && same_type(n, &ir->nodes[part])) return part;
    const int i = identity_input(ir, n);
    return i >= 0 && same_type(n, input(ir, n, i)) ? n->in[i] : -1;
}

/* ---- the sum of a max pool's gradient ---- */

/* sum(max_pool2d_grad(x, p, dy)) over all pixels = sum(dy): each window gives its gradient to one
 * cell. Not if windows overlap, where sums of halves are rounded in between, and not with padding.
 */
static void skip_pool_gradient(const mg_ir *ir, mg_node *n) {
    if (!mg_is_op(n, "sum") || !mg_is_op(input(ir, n, 0), "max_pool2d_grad")) return;
    const mg_node *grad = input(ir, n, 0);
    const mg_pool_attrs *a = grad->attrs;
    const mg_ints *axes = &((const mg_reduce_attrs *)n->attrs)->axes;
    bool over[4] = {false};
    for (int i = 0; i < axes->n; i++) over[axes->v[i]] = true;
    for (int i = 0; i < 2; i++)
        if (!over[1 + i] || a->strides.v[i] < a->size.v[i] || a->pads.v[2 * i] ||
            a->pads.v[2 * i + 1])
            return;
    n->in[0] = grad->in[2];
}

/* ---- equal nodes ---- */

/* Hashes the fields that equal_nodes compares, all but the types. */
static uint64_t hash_node(const mg_node *n) {
    uint64_t h = mg_fnv(MG_FNV_START, &n->op, sizeof n->op);
    h = mg_fnv(h, n->in, (size_t)n->n_in * sizeof *n->in);
    if (n->kind == MG_NODE_LITERAL) return mg_fnv(h, &n->literal, sizeof n->literal);
    return mg_fnv(h, n->attrs, n->op->attrs_size);
}

/* Whether a and b compute the same. Literals are compared by their bits: -0 and 0 differ. */
static bool equal_nodes(const mg_node *a, const mg_node *b) {
    if (a->kind != b->kind || !same_type(a, b)) return false;
    if (a->kind == MG_NODE_LITERAL) return memcmp(&a->literal, &b->literal, sizeof(double)) == 0;
    return a->op == b->op && a->n_in == b->n_in &&
           memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) == 0 &&
           memcmp(a->attrs, b->attrs, a->op->attrs_size) == 0;
}

/* A hash table with open addressing. */
typedef struct node_table {
    int *slots; /* node + 1; 0 = empty */
    size_t mask;
} node_table;

/* The equal node met earlier, or -1; then n enters the table. Random draws are never equal, nor is
 * what is given to the plan. */
static int find_equal(const mg_ir *ir, node_table *table, int n) {
    const mg_node *node = &ir->nodes[n];
    const bool comparable =
        node->kind == MG_NODE_LITERAL ||
        (node->kind == MG_NODE_OP && !(node->op->flags & MG_OP_RANDOM) && !node->loop);
    if (!comparable) return -1;
    size_t h = (size_t)hash_node(node) & table->mask;
    for (; table->slots[h]; h = (h + 1) & table->mask)
        if (equal_nodes(&ir->nodes[table->slots[h] - 1], node)) return table->slots[h] - 1;
    table->slots[h] = n + 1;
    return -1;
}

/* The first pass. Inputs are resolved as the pass goes, so equal nodes have equal inputs. */
static mg_status fold_and_merge(mg_ir *ir) {
    node_table table = {.mask = 63};
    /* at most half full */
    while (table.mask < 2 * (size_t)ir->n) table.mask = 2 * table.mask + 1;
    table.slots = mg_alloc_zero((table.mask + 1) * sizeof *table.slots);
    if (!table.slots) return MG_OOM;
    mg_status status = MG_OK;
    for (int i = 0; i < ir->n && status == MG_OK; i++) {
        mg_node *n = &ir->nodes[i];
        for (int k = 0; k < n->n_in; k++) n->in[k] = mg_ir_resolve(ir, n->in[k]);
        skip_pool_gradient(ir, n);
        status = mg_worker_poll();
        if (status == MG_OK) status = fold_constants(ir, n);
        n->forward = find_replacement(ir, n);
        if (n->forward < 0) n->forward = find_equal(ir, &table, i);
    }
    mg_free(table.slots);
    return status;
}

/* ---- bias and relu into conv2d and matmul ---- */

/* A convolution or product that has no relu yet: a bias cannot be added after a relu. */
static bool takes_epilogue(const mg_node *n) {
    if (mg_is_op(n, "conv2d")) return !((const mg_conv_attrs *)n->attrs)->relu;
    if (mg_is_op(n, "matmul")) return !((const mg_matmul_attrs *)n->attrs)->relu;
    return false;
}

/* Whether `bias` has one number per column of n, in its dtype. */
static bool is_bias_for(const mg_node *bias, const mg_node *n) {
    return bias->shape.rank == 1 && bias->dtype == n->dtype && n->shape.rank >= 2 &&
           bias->shape.dim[0] == n->shape.dim[n->shape.rank - 1];
}

/* n becomes a copy of its producer, with one more input (a bias, if >= 0) or with relu set. The
 * producer dies, because n was its only user. */
static mg_status become_epilogue(mg_ir *ir, mg_node *n, const mg_node *producer, int bias,
                                 bool relu) {
    int *in = mg_ir_alloc(ir, 3 * sizeof *in);
    void *attrs = mg_ir_alloc(ir, producer->op->attrs_size);
    if (!in || !attrs) return MG_OOM;
    memcpy(in, producer->in, (size_t)producer->n_in * sizeof *in);
    memcpy(attrs, producer->attrs, producer->op->attrs_size);
    if (relu && mg_is_op(producer, "conv2d")) ((mg_conv_attrs *)attrs)->relu = 1;
    if (relu && mg_is_op(producer, "matmul")) ((mg_matmul_attrs *)attrs)->relu = 1;
    n->n_in = producer->n_in;
    if (bias >= 0) in[n->n_in++] = bias;
    n->in = in;
    n->op = producer->op;
    n->attrs = attrs;
    return MG_OK;
}

/* relu(conv) or conv + bias, in either order of the sum. */
static mg_status take_epilogue(mg_ir *ir, mg_node *n) {
    if (is_elementwise(n, MG_EW_relu)) {
        const mg_node *a = input(ir, n, 0);
        if (a->uses == 1 && takes_epilogue(a)) return become_epilogue(ir, n, a, -1, true);
    }
    if (!is_elementwise(n, MG_EW_add)) return MG_OK;
    for (int i = 0; i < 2; i++) {
        const mg_node *a = input(ir, n, i), *bias = input(ir, n, 1 - i);
        if (a->uses == 1 && takes_epilogue(a) && a->n_in == 2 && is_bias_for(bias, a) &&
            same_type(n, a))
            return become_epilogue(ir, n, a, n->in[1 - i], false);
    }
    return MG_OK;
}

/* ---- the relu mask before a max pool ---- */

/* The new number of a node after the node at `from` has moved to `to`. */
static int new_position(int node, int from, int to) {
    return node == from ? to : node > from && node <= to ? node - 1 : node;
}

/* Moves a node to a later place, and those in between forward by one. Does nothing if one of those
 * reads it, as a dead node may. */
static void move_later(mg_ir *ir, int from, int to) {
    for (int i = from + 1; i <= to; i++)
        for (int k = 0; k < ir->nodes[i].n_in; k++)
            if (ir->nodes[i].in[k] == from) return;
    const mg_node n = ir->nodes[from];
    memmove(&ir->nodes[from], &ir->nodes[from + 1], (size_t)(to - from) * sizeof n);
    ir->nodes[to] = n;
    for (int i = from; i < ir->n; i++) {
        mg_node *user = &ir->nodes[i];
        for (int k = 0; k < user->n_in; k++) user->in[k] = new_position(user->in[k], from, to);
        if (user->forward >= 0) user->forward = new_position(user->forward, from, to);
    }
    for (int r = 0; r < ir->n_roots; r++)
        ir->roots[r].node = new_position(ir->roots[r].node, from, to);
}

/* where(x > 0, max_pool2d_grad(x, p, dy), 0) = max_pool2d_grad(x, p, where(p > 0, dy, 0)), because
 * gradient only reaches cells with x == p. The mask is then smaller by the pool's size. The new
 * nodes take the places of those that die; it is not done where that would break the order. */
static void move_mask_behind_pool(mg_ir *ir, mg_node *n) {
    if (!is_elementwise(n, MG_EW_where)) return;
    const mg_node *gt = input(ir, n, 0), *grad = input(ir, n, 1);
    if (!mg_is_op(grad, "max_pool2d_grad") || !is_elementwise(gt, MG_EW_gt) || gt->uses != 1 ||
        grad->uses != 1 || gt->in[0] != grad->in[0] || !is_literal(input(ir, gt, 1), 0) ||
        !is_literal(input(ir, n, 2), 0) || input(ir, n, 2)->shape.rank != 0)
        return;
    /* The mask must come after the pool's result, which it will read. */
    if (n->in[0] < grad->in[1]) move_later(ir, n->in[0], grad->in[1]);
    const int test = n->in[0], pool = n->in[1], lo = test < pool ? test : pool,
              hi = test + pool - lo;
    gt = &ir->nodes[test], grad = &ir->nodes[pool];
    const int pooled = grad->in[1], dy = grad->in[2], zero = gt->in[1], other = n->in[2];
    if (pooled >= lo || dy >= hi || zero >= lo || other >= hi || zero == pool || other == test)
        return;
    const mg_node mask = *gt, pick = *n, back = *grad;
    ir->nodes[lo] = mask, ir->nodes[lo].shape = ir->nodes[pooled].shape;
    ir->nodes[lo].in[0] = pooled;
    ir->nodes[hi] = pick, ir->nodes[hi].shape = ir->nodes[dy].shape;
    ir->nodes[hi].in[0] = lo, ir->nodes[hi].in[1] = dy;
    *n = back;
    n->in[2] = hi;
    ir->nodes[lo].uses = ir->nodes[hi].uses = 1;
}

/* ---- what all_finite reads ---- */

enum { MOST_INPUTS = 255 };

/* The node before a cast from half floats to float32, which changes no value; else the node itself.
 */
static int skip_cast(const mg_ir *ir, int node) {
    const mg_node *n = &ir->nodes[node];
    if (!is_elementwise(n, MG_EW_cast) || n->dtype != MG_F32) return node;
    return mg_dtype_is_half(input(ir, n, 0)->dtype) ? n->in[0] : node;
}

/* For op(x, literal) or op(literal, x) of scalars: x, and the literal in *literal. Else -1. */
static int operand_beside_literal(const mg_ir *ir, int node, enum mg_elementwise op,
                                  double *literal) {
    const mg_node *n = &ir->nodes[node];
    if (!is_elementwise(n, op) || n->shape.rank) return -1;
    for (int k = 0; k < 2; k++) {
        if (input(ir, n, k)->kind != MG_NODE_LITERAL) continue;
        *literal = input(ir, n, k)->literal;
        return n->in[1 - k];
    }
    return -1;
}

/* For x / minimum(maximum(s, 2^-24), m) with x in float16: x, and the divisor in *divisor. The
 * quotient is finite exactly if x and the divisor are: the divisor is not so small that a quotient
 * overflows, nor infinite, but may be NaN. Else the node itself, and *divisor is -1. */
static int skip_division(const mg_ir *ir, int node, int *divisor) {
    const mg_node *n = &ir->nodes[node];
    double least = 0, most = 0;
    *divisor = -1;
    if (!is_elementwise(n, MG_EW_div) || n->dtype != MG_F32) return node;
    const int x = skip_cast(ir, n->in[0]);
    const int bounded = operand_beside_literal(ir, n->in[1], MG_EW_minimum, &most);
    if (ir->nodes[x].dtype != MG_F16 || bounded < 0 ||
        operand_beside_literal(ir, bounded, MG_EW_maximum, &least) < 0 || !(least >= 0x1p-24) ||
        !(most >= least && most <= FLT_MAX))
        return node;
    *divisor = n->in[1];
    return x;
}

/* all_finite reads gradients as they were made, and the divisor of their unscaling once. Unscaled
 * gradients in float32 are then only read by the update, which computes them for itself. */
static mg_status skip_unscaling(mg_ir *ir, mg_node *n) {
    if (!mg_is_op(n, "all_finite") || n->n_in >= MOST_INPUTS) return MG_OK;
    int *in = mg_ir_alloc(ir, (size_t)(n->n_in + 1) * sizeof *in), divisor, scale = -1;
    if (!in) return MG_OOM;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = skip_cast(ir, skip_division(ir, n->in[i], &divisor));
        /* another divisor than the first one's: there is room for one only */
        if (divisor >= 0 && scale >= 0 && divisor != scale) in[i] = n->in[i];
        if (scale < 0) scale = divisor;
    }
    n->in = in;
    if (scale >= 0) n->in[n->n_in++] = scale; /* the divisor is checked in place of the quotients */
    return MG_OK;
}

/* Uses are counted in between, because the second pass checks for single users. */
mg_status mg_simplify(mg_ir *ir) {
    MG_TRY(fold_and_merge(ir));
    mg_ir_count_uses(ir);
    for (int i = 0; i < ir->n; i++) {
        mg_node *n = &ir->nodes[i];
        if (n->kind != MG_NODE_OP || !n->uses || n->forward >= 0) continue;
        MG_TRY(mg_worker_poll());
        MG_TRY(take_epilogue(ir, n));
        MG_TRY(skip_unscaling(ir, n));
        move_mask_behind_pool(ir, n);
        skip_pool_gradient(ir, n); /* the gradient may have moved just now */
    }
    mg_ir_count_uses(ir);
    return MG_OK;
}
