/* Matrix product over the last two axes; leading axes broadcast, and operands of one axis are
 * treated as in NumPy.
 *
 *     y = op(a) op(b), op = transposition of the last two axes if requested
 *     da = dy op(b)^T, db = op(a)^T dy, each transposed back where op transposed
 *
 * If a has one axis, it is treated as a row; if b has one axis, as a column. The added axis is
 * dropped from y again, and transposing has no effect on such an operand. A gradient is summed over
 * leading axes along which its operand was broadcast. Products of integers and bool are int64, and
 * wrap around.
 *
 * Bias (third input, added along the last axis) and the attribute relu exist for the simplify pass,
 * which sets them in finished plans, after gradients were taken. They have no gradient. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/ops.h"

static const mg_attr matmul_attrs[] = {
    {"transpose_a", MG_ATTR_BOOL, offsetof(mg_matmul_attrs, transpose_a), 0, NULL,
     "swap the last two axes of a first"},
    {"transpose_b", MG_ATTR_BOOL, offsetof(mg_matmul_attrs, transpose_b), 0, NULL,
     "swap the last two axes of b first"},
    {"relu", MG_ATTR_BOOL, offsetof(mg_matmul_attrs, relu), 0, NULL,
     "max(y, 0); set by the simplify pass"},
};

/* The operands in the form {batch..., m, k} x {batch..., k, n}. */
typedef struct matmul_dims {
    mg_shape a, b;       /* with an axis of 1 added where there was only one; not transposed */
    bool turn_a, turn_b; /* whether to transpose */
    int64_t m, k, n;     /* rows, inner size, columns */
    int64_t k_b;         /* the inner size as b has it: must equal k */
    bool drop_row, drop_column; /* a, b had one axis: y drops the axis of size 1 */
} matmul_dims;

/* All axes but the last two. */
static mg_shape leading_axes(const mg_shape *s) {
    mg_shape lead = {.rank = s->rank - 2};
    for (int i = 0; i < lead.rank; i++) lead.dim[i] = s->dim[i];
    return lead;
}

/* From the operands' shapes and the transposition flags. */
static matmul_dims matmul_dims_of(const mg_shape *a, const mg_shape *b,
                                  const mg_matmul_attrs *attrs) {
    matmul_dims p = {.a = *a, .b = *b, .drop_row = a->rank == 1, .drop_column = b->rank == 1};
    p.turn_a = attrs->transpose_a && !p.drop_row;
    p.turn_b = attrs->transpose_b && !p.drop_column;
    if (p.drop_row) p.a = MG_SHAPE(1, a->dim[0]);
    if (p.drop_column) p.b = MG_SHAPE(b->dim[0], 1);
    const int64_t *da = p.a.dim + p.a.rank - 2, *db = p.b.dim + p.b.rank - 2;
    p.m = da[p.turn_a], p.k = da[!p.turn_a];
    p.k_b = db[p.turn_b], p.n = db[!p.turn_b];
    return p;
}

/* The bias has one number for each column. */
static mg_status check_bias(const mg_infer *f, const matmul_dims *p) {
    const mg_shape *bias = mg_infer_shape(f, 2);
    if (bias->rank == 1 && bias->dim[0] == p->n) return MG_OK;
    return mg_infer_fail(f, MG_USAGE, "bias must have shape {%lld}, got %s", (long long)p->n,
                         MG_SHAPE_TEXT(bias));
}

/* Shape rule: the broadcast leading axes, then m and n unless dropped. */
static mg_status matmul_infer(mg_infer *f) {
    const mg_shape *a = mg_infer_shape(f, 0), *b = mg_infer_shape(f, 1);
    if (a->rank == 0 || b->rank == 0)
        return mg_infer_fail(f, MG_USAGE, "inputs need at least one axis: %s x %s",
                             MG_SHAPE_TEXT(a), MG_SHAPE_TEXT(b));
    const matmul_dims p = matmul_dims_of(a, b, f->attrs);
    f->dtype = mg_dtype_of_sums(f->dtype);
    if (p.k != p.k_b)
        return mg_infer_fail(f, MG_USAGE, "inner sizes differ: %s%s x %s%s (%lld and %lld)",
                             MG_SHAPE_TEXT(a), p.turn_a ? " transposed" : "", MG_SHAPE_TEXT(b),
                             p.turn_b ? " transposed" : "", (long long)p.k, (long long)p.k_b);
    const mg_shape lead_a = leading_axes(&p.a), lead_b = leading_axes(&p.b);
    MG_TRY(mg_shape_broadcast(&lead_a, &lead_b, &f->shape, "matmul: leading axes"));
    if (!p.drop_row) f->shape.dim[f->shape.rank++] = p.m;
    if (!p.drop_column) f->shape.dim[f->shape.rank++] = p.n;
    return f->n_inputs == 3 ? check_bias(f, &p) : MG_OK;
}

/* ---- gradient ---- */

/* Brings operands and dy of y into the form of matmul_dims. If b is a single matrix, the matrices
 * of a are stacked into one, so that the gradient is one large product instead of a batch of small
 * ones and a sum. */
static matmul_dims as_matrices(const mg_tensor *y, mg_tensor **a, mg_tensor **b, mg_tensor **dy) {
    matmul_dims p = matmul_dims_of(&y->inputs[0]->shape, &y->inputs[1]->shape, y->attrs);
    mg_shape out = y->shape;
    if (p.b.rank == 2 && p.a.rank > 2 && !p.turn_a) {
        const mg_shape lead = leading_axes(&p.a);
        p.a = MG_SHAPE(mg_shape_count(&lead) * p.m, p.k);
        out = MG_SHAPE(p.a.dim[0], p.n);
    } else {
        if (p.drop_column) out.dim[out.rank++] = 1;
        if (p.drop_row) {
            out.rank++;
            out.dim[out.rank - 1] = out.dim[out.rank - 2];
            out.dim[out.rank - 2] = 1;
        }
    }
    *a = reshape(y->inputs[0], &p.a);
    *b = reshape(y->inputs[1], &p.b);
    *dy = reshape(*dy, &out);
    return p;
}

/* da = dy b^T and db = a^T dy; transposed operands swap the factors: for y = a^T b, da = b dy^T. */
static mg_tensor *matmul_grad(mg_tensor *y, mg_tensor *dy, int i) {
    const mg_matmul_attrs *attrs = y->attrs;
    if (y->n_inputs == 3 || attrs->relu) {
        mg_fail(MG_UNSUPPORTED, "matmul: a bias input or the option relu has no gradient: apply "
                                "bias and relu as separate ops");
        return NULL;
    }
    mg_tensor *a, *b, *g;
    /* The rows of stacked matrices that meet one matrix stay on the device that has them. */
    if (i == 0 && y->inputs[0]->shape.rank > 2 && y->inputs[1]->shape.rank == 2 &&
        !attrs->transpose_a)
        return matmul(dy, y->inputs[1], false, !attrs->transpose_b);
    const matmul_dims p = as_matrices(y, &a, &b, &dy);
    if (i == 0)
        g = p.turn_a ? matmul(b, dy, p.turn_b, true) : matmul(dy, b, false, !p.turn_b);
    else
        g = p.turn_b ? matmul(dy, a, true, p.turn_a) : matmul(a, dy, !p.turn_a, false);
    return reshape(sum_to(g, i == 0 ? &p.a : &p.b), &y->inputs[i]->shape);
}

/* ---- the reference kernel ---- */

#define LOOPS "ops/matmul_loops.h"
#include "ops/both_numbers.h"

/* ---- split rule ---- */

/* Which axis an input is split along, before transposition, decides what each device makes:
 *
 *     k of a and of b   a term of the sum over k (not with bias or relu, which come after the sum)
 *     m of a            its rows of y
 *     n of b            its columns of y (not with bias, which is whole)
 *     a leading axis    its own products */
static bool matmul_split(mg_split *s) {
    const mg_matmul_attrs *at = s->attrs;
    const int ra = s->in_shape[0]->rank, rb = s->in_shape[1]->rank, r = s->shape->rank;
    const int m = at->transpose_a ? ra - 1 : ra - 2, k = at->transpose_a ? ra - 2 : ra - 1;
    const int kb = at->transpose_b ? rb - 1 : rb - 2, n = at->transpose_b ? rb - 2 : rb - 1;
    const int a = s->given[0], b = s->given[1];
    if (a == k || b == kb) {
        if ((a >= 0 && a != k) || (b >= 0 && b != kb) || s->n_inputs > 2 || at->relu) return false;
        s->in[0] = k, s->in[1] = kb, s->out = MG_PARTIAL_SUM;
        return true;
    }
    if (a == m && b < 0) {
        s->in[0] = m, s->out = r - 2;
        return true;
    }
    if (b == n && a < 0 && s->n_inputs == 2) {
        s->in[1] = n, s->out = r - 1;
        return true;
    }
    const int lead = a >= 0 ? a + r - ra : b >= 0 ? b + r - rb : -1;
    if (lead < 0 || lead >= r - 2 || (a >= 0 && b >= 0 && a + r - ra != b + r - rb)) return false;
    for (int i = 0; i < 2; i++) {
        const int own = lead - (r - s->in_shape[i]->rank);
        if (own >= 0 && s->in_shape[i]->dim[own] == s->shape->dim[lead]) s->in[i] = own;
    }
    s->out = lead;
    return true;
}

/* ---- the op table ---- */

static const mg_op matmul_rows[] = {
    {.name = "matmul",
     .doc = "{..., m, k} x {..., k, n} = {..., m, n}; integers and bool give int64",
     .example =
         "local a, b = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 1, 0 }, { 10, 1 } }\n"
         "print(a:matmul(b))\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{21,  2},\n"
         "-->  {43,  4}}\n"
         "print(a:matmul(b, { transpose_b = true }))\n"
         "--> tensor {2, 2} float32 cpu:0\n"
         "--> {{ 1, 12},\n"
         "-->  { 3, 34}}",
     .min_inputs = 2,
     .max_inputs = 3,
     .flags = MG_OP_PROMOTE,
     MG_ATTRS(mg_matmul_attrs, matmul_attrs),
     .infer = matmul_infer,
     .grad = matmul_grad,
     .split = matmul_split,
     .ref = matmul_ref,
     .ref_integers = matmul_ref_integers},
};

const mg_op_family mg_ops_matmul = {"matmul", matmul_rows,
                                    sizeof matmul_rows / sizeof matmul_rows[0]};
