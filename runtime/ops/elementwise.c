/* Element-wise ops: everything about them is derived from elementwise.def.
 *
 * Operands broadcast as in NumPy. The reference kernel evaluates the value column in double with
 * libm; int64 beyond 2^53 therefore rounds. Gradients are summed back to each operand's shape. */
#include "ops/build.h"
#include "ops/elementwise.h"
#include "ops/elementwise_double.h"
#include "ops/ops.h"
#include <math.h>

double mg_elementwise_value(enum mg_elementwise op, double a, double b, double c) {
    const double x = a;
    switch (op) {
/* clang-format off */
#define UNARY(name, rule, value, grad, doc) case MG_EW_##name: return value;
#define BINARY(name, rule, value, grad_a, grad_b, doc) case MG_EW_##name: return value;
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) case MG_EW_##name: return value;
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
        /* clang-format on */
    case MG_N_ELEMENTWISE: break;
    }
    return NAN;
}

/* ---- the reference kernel ---- */

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

/* ---- inference, one rule each ---- */

static mg_status infer_shape(mg_infer *f) {
    f->shape = *mg_infer_shape(f, 0);
    for (int i = 1; i < f->n_inputs; i++) {
        const mg_shape sofar = f->shape;
        MG_TRY(mg_shape_broadcast(&sofar, mg_infer_shape(f, i), &f->shape, f->op->name));
    }
    return MG_OK;
}

static mg_status infer_SAME(mg_infer *f) {
    return infer_shape(f);
}

#define infer_FLOAT infer_SAME

static mg_status infer_BOOL(mg_infer *f) {
    f->dtype = MG_BOOL;
    return infer_shape(f);
}

typedef struct cast_attrs {
    int64_t dtype;
} cast_attrs;

static const mg_attr cast_table[] = {
    {"dtype", MG_ATTR_DTYPE, offsetof(cast_attrs, dtype), MG_F32, NULL, "the dtype of the result"}};

static mg_status infer_CAST(mg_infer *f) {
    f->dtype = (mg_dtype)((const cast_attrs *)f->attrs)->dtype;
    return infer_shape(f);
}

static mg_status infer_WHERE(mg_infer *f) {
    f->dtype = (mg_dtype)f->inputs[1]->dtype;
    return infer_shape(f);
}

/* ---- gradients ---- */

#define NONE mg_no_gradient()

/* The columns, as one switch over op and operand. */
static mg_tensor *raw_gradient(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *x = y->inputs[0], *a = x;
    mg_tensor *b = y->n_inputs > 1 ? y->inputs[1] : NULL,
              *c = y->n_inputs > 2 ? y->inputs[2] : NULL;
    (void)b, (void)c;
    switch ((enum mg_elementwise)(y->op->elementwise - 1)) {
/* clang-format off */
#define UNARY(name, rule, value, grad, doc) case MG_EW_##name: return grad;
#define BINARY(name, rule, value, grad_a, grad_b, doc)                                             \
    case MG_EW_##name: return i == 0 ? (grad_a) : (grad_b);
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc)                                    \
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

static mg_tensor *elementwise_grad(mg_tensor *y, mg_tensor *dy, int i) {
    mg_tensor *g = raw_gradient(y, dy, i);
    if (!g || g == mg_no_gradient()) return g;
    return sum_to(cast_like(g, y->inputs[i]), &y->inputs[i]->shape);
}

/* ---- the rows ---- */

/* ---- split rule ---- */

/* Ops that are linear in an input may work on the terms of its sum. */
static bool linear_split(mg_split *s) {
    const int a = s->given[0], b = s->n_inputs > 1 ? s->given[1] : MG_REPLICATED;
    switch ((enum mg_elementwise)(s->op->elementwise - 1)) {
    case MG_EW_neg:
    case MG_EW_stop_gradient: break;
    case MG_EW_cast: /* a half is summed up in what it becomes: each term is exact there */
        if (!mg_dtype_is_half(s->in_dtype[0])) return false;
        if (!mg_dtype_is_float((mg_dtype)((const cast_attrs *)s->attrs)->dtype)) return false;
        if (mg_dtype_is_half((mg_dtype)((const cast_attrs *)s->attrs)->dtype)) return false;
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

static bool elementwise_split(mg_split *s) {
    bool term = false, dealt = false;
    for (int i = 0; i < s->n_inputs; i++) {
        term |= s->given[i] == MG_PARTIAL_SUM;
        dealt |= s->given[i] >= 0;
    }
    if (term && !dealt) return linear_split(s);
    return mg_split_broadcast(s);
}

#define flags_SAME MG_OP_PROMOTE
#define flags_FLOAT (MG_OP_PROMOTE | MG_OP_FLOAT)
#define flags_BOOL MG_OP_PROMOTE
#define flags_CAST 0
#define flags_WHERE MG_OP_PROMOTE_REST
#define attrs_SAME
#define attrs_FLOAT
#define attrs_BOOL
#define attrs_WHERE
#define attrs_CAST MG_ATTRS(cast_attrs, cast_table),

#define ROW(id, rule, arity, text)                                                                 \
    {.name = #id,                                                                                  \
     .doc = text,                                                                                  \
     .min_inputs = arity,                                                                          \
     .max_inputs = arity,                                                                          \
     .flags = flags_##rule,                                                                        \
     .elementwise = MG_EW_##id + 1,                                                                \
     attrs_##rule.infer = infer_##rule,                                                            \
     .grad = elementwise_grad,                                                                     \
     .split = elementwise_split,                                                                   \
     .ref = elementwise_ref},

static const mg_op rows[] = {
#define UNARY(name, rule, value, grad, doc) ROW(name, rule, 1, doc)
#define BINARY(name, rule, value, grad_a, grad_b, doc) ROW(name, rule, 2, doc)
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) ROW(name, rule, 3, doc)
#include "ops/elementwise.def"
};

const mg_op_family mg_ops_elementwise = {"elementwise", rows, sizeof rows / sizeof rows[0]};
