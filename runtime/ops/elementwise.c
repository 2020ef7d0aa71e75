/* Element-wise ops: names, shape rules, gradients, reference kernel and table rows are all expanded
 * from elementwise.def.
 *
 * Operands broadcast as in NumPy. The result's dtype follows from the line's rule (SAME, FLOAT,
 * BOOL, CAST, WHERE), for which there is one inference function and one set of row flags each. The
 * reference kernel evaluates the value column in double with libm, so int64 beyond 2^53 is rounded.
 * Gradients are summed back over broadcast axes to each operand's shape. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/elementwise.h"
#include "ops/elementwise_double.h"
#include "ops/ops.h"
#include <math.h>

/* The value column as one switch. */
double mg_elementwise_value(enum mg_elementwise op, double a, double b, double c) {
    const double x = a;
    switch (op) {
/* clang-format off */
#define UNARY(name, rule, value, grad, ...) case MG_EW_##name: return value;
#define BINARY(name, rule, value, grad_a, grad_b, ...) case MG_EW_##name: return value;
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) case MG_EW_##name: return value;
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
        /* clang-format on */
    case MG_N_ELEMENTWISE: break;
    }
    return NAN;
}

/* The rule column as a table. */
bool mg_elementwise_is_bool(enum mg_elementwise op) {
    enum { SAME, FLOAT, BOOL, CAST, WHERE };
    static const bool is_bool[] = {
#define UNARY(name, rule, value, grad, ...) [MG_EW_##name] = (rule) == BOOL,
#define BINARY(name, rule, value, grad_a, grad_b, ...) [MG_EW_##name] = (rule) == BOOL,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) [MG_EW_##name] = (rule) == BOOL,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
    };
    return is_bool[op];
}

/* ---- the reference kernel ---- */

/* Walks the output in row-major order with an offset into each operand; the stride of a broadcast
 * axis is 0. */
static void elementwise_ref(const mg_ref *r) {
    int64_t stride[3][MG_MAX_RANK] = {{0}}, at[MG_MAX_RANK] = {0}, offset[3] = {0};
    for (int i = 0; i < r->n_inputs; i++) mg_shape_strides(&r->in_shape[i], &r->shape, stride[i]);
    const enum mg_elementwise op = (enum mg_elementwise)(r->op->elementwise - 1);
    const int64_t count = mg_shape_count(&r->shape);
    for (int64_t n = 0; n < count; n++) {
        double v[3] = {0};
        for (int i = 0; i < r->n_inputs; i++) v[i] = r->in[i][offset[i]];
        r->out[n] = mg_elementwise_value(op, v[0], v[1], v[2]);
        for (int axis = r->shape.rank - 1; axis >= 0; axis--) {
            for (int i = 0; i < r->n_inputs; i++) offset[i] += stride[i][axis];
            if (++at[axis] < r->shape.dim[axis]) break;
            for (int i = 0; i < r->n_inputs; i++) offset[i] -= stride[i][axis] * at[axis];
            at[axis] = 0;
        }
    }
}

/* ---- inference: one function for each rule of elementwise.def ---- */

/* The common shape of all operands. */
static mg_status broadcast_shape(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    for (int i = 1; i < f->n_inputs; i++) {
        const mg_shape sofar = f->shape;
        MG_TRY(mg_shape_broadcast(&sofar, mg_infer_shape(f, i), &f->shape, f->op->name));
    }
    return MG_OK;
}

/* The dtype is preset to that of the first operand, after the promotion that the flags ask for. */
#define infer_SAME broadcast_shape
#define infer_FLOAT broadcast_shape

/* Comparisons and tests: the operands are promoted, the result is bool. */
static mg_status infer_BOOL(mg_infer *f) {
    f->dtype = MG_BOOL;
    return broadcast_shape(f);
}

static const mg_attr cast_attr_table[] = {{"dtype", MG_ATTR_DTYPE, offsetof(mg_cast_attrs, dtype),
                                           MG_F32, NULL, "the dtype of the result"}};

/* The dtype is the attribute's. */
static mg_status infer_CAST(mg_infer *f) {
    f->dtype = (mg_dtype)((const mg_cast_attrs *)f->attrs)->dtype;
    return broadcast_shape(f);
}

/* The condition (operand 1) does not take part in promotion; the dtype is that of the values. */
static mg_status infer_WHERE(mg_infer *f) {
    f->dtype = (mg_dtype)f->inputs[1]->dtype;
    return broadcast_shape(f);
}

/* ---- gradients ---- */

#define NONE mg_no_gradient()

/* The gradient columns as one switch over op and operand. The result has the broadcast shape. */
static mg_tensor *def_gradient(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *a = x;
    mg_tensor *b = y->n_inputs > 1 ? y->inputs[1] : NULL,
              *c = y->n_inputs > 2 ? y->inputs[2] : NULL;
    (void)b, (void)c;
    switch ((enum mg_elementwise)(y->op->elementwise - 1)) {
/* clang-format off */
#define UNARY(name, rule, value, grad, ...) case MG_EW_##name: return grad;
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    case MG_EW_##name: return i == 0 ? (grad_a) : (grad_b);
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    case MG_EW_##name: return i == 0 ? (grad_a) : i == 1 ? (grad_b) : (grad_c);
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
        /* clang-format on */
    case MG_N_ELEMENTWISE: break;
    }
    return NULL;
}

/* The gradient w.r.t. operand i, cast to its dtype and summed over the axes along which it was
 * repeated. */
static mg_tensor *elementwise_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *g = def_gradient(y, dy, i);
    if (!g || g == mg_no_gradient()) return g;
    return sum_to(cast_like(g, y->inputs[i]), &y->inputs[i]->shape);
}

/* ---- split rule ---- */

/* The rule for terms of a sum (MG_PARTIAL_SUM): an op that is linear in an input may be applied to
 * each device's term, and the results are terms of its sum. This holds for `neg`, for a sum whose
 * operands are both terms, and for terms multiplied or divided by a replicated value. In all other
 * cases the rule is false, and the terms are added up first. */
static bool linear_split(mg_split *s) {
    const int a = s->given[0], b = s->n_inputs > 1 ? s->given[1] : MG_REPLICATED;
    switch ((enum mg_elementwise)(s->op->elementwise - 1)) {
    case MG_EW_neg:
    case MG_EW_stop_gradient: break;
    case MG_EW_cast: /* float16 to float32 is exact, so the terms may be added up in float32 */
        if (!mg_dtype_is_half(s->in_dtype[0])) return false;
        if (!mg_dtype_is_float((mg_dtype)((const mg_cast_attrs *)s->attrs)->dtype)) return false;
        if (mg_dtype_is_half((mg_dtype)((const mg_cast_attrs *)s->attrs)->dtype)) return false;
        break;
    case MG_EW_add:
    case MG_EW_sub:
        if (a != MG_PARTIAL_SUM || b != MG_PARTIAL_SUM) return false;
        break;
    case MG_EW_mul:
        if (a != MG_PARTIAL_SUM && b != MG_PARTIAL_SUM) return false;
        if ((a != MG_PARTIAL_SUM && a != MG_REPLICATED && a != MG_ANY_SHARDING) ||
            (b != MG_PARTIAL_SUM && b != MG_REPLICATED && b != MG_ANY_SHARDING) || a == b)
            return false;
        break;
    case MG_EW_div:
        if (a != MG_PARTIAL_SUM || (b != MG_REPLICATED && b != MG_ANY_SHARDING)) return false;
        break;
    default: return false;
    }
    for (int i = 0; i < s->n_inputs; i++)
        s->in[i] = s->given[i] == MG_PARTIAL_SUM ? MG_PARTIAL_SUM : MG_REPLICATED;
    s->out = MG_PARTIAL_SUM;
    return true;
}

/* Inputs split along an axis of the output: each device computes its part. Inputs that are terms of
 * a sum: see linear_split. */
static bool elementwise_split(mg_split *s) {
    bool term = false, dealt = false;
    for (int i = 0; i < s->n_inputs; i++) {
        term |= s->given[i] == MG_PARTIAL_SUM;
        dealt |= s->given[i] >= 0;
    }
    if (term && !dealt) return linear_split(s);
    return mg_split_broadcast(s);
}

/* ---- the op table: row flags and attributes of each rule, then a row for each line ---- */

#define flags_SAME MG_OP_PROMOTE
#define flags_FLOAT (MG_OP_PROMOTE | MG_OP_FLOAT)
#define flags_BOOL MG_OP_PROMOTE
#define flags_CAST 0
#define flags_WHERE MG_OP_PROMOTE_REST
#define attrs_SAME
#define attrs_FLOAT
#define attrs_BOOL
#define attrs_WHERE
#define attrs_CAST MG_ATTRS(mg_cast_attrs, cast_attr_table),

#define ROW(id, rule, arity, text, code)                                                           \
    {.name = #id,                                                                                  \
     .doc = text,                                                                                  \
     .example = code,                                                                              \
     .min_inputs = arity,                                                                          \
     .max_inputs = arity,                                                                          \
     .flags = flags_##rule,                                                                        \
     .elementwise = MG_EW_##id + 1,                                                                \
     attrs_##rule.infer = infer_##rule,                                                            \
     .grad = elementwise_grad,                                                                     \
     .split = elementwise_split,                                                                   \
     .ref = elementwise_ref},

static const mg_op elementwise_rows[] = {
#define UNARY(name, rule, value, grad, ...) ROW(name, rule, 1, __VA_ARGS__)
#define BINARY(name, rule, value, grad_a, grad_b, ...) ROW(name, rule, 2, __VA_ARGS__)
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) ROW(name, rule, 3, __VA_ARGS__)
#include "ops/elementwise.def"
};

const mg_op_family mg_ops_elementwise = {"elementwise", elementwise_rows,
                                         sizeof elementwise_rows / sizeof elementwise_rows[0]};
