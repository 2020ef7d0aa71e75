/* Scopes and the short builder functions: see build.h.
 *
 * A builder that gets NULL returns NULL, so a failure passes through a whole formula without a
 * check. */
#include "ops/build.h"
#include "core/alloc.h"
#include "ops/attrs.h"
#include <stdarg.h>
#include <string.h>

/* Owns the tensors that its builders have made. */
struct mg_scope {
    struct mg_scope *outer;
    mg_tensor **kept;
    int n, capacity;
};

/* The innermost open scope of this thread. */
static _Thread_local mg_scope *current;
/* Only its address is used. */
static mg_tensor no_gradient;

/* Becomes the current scope. */
mg_status mg_scope_open(mg_scope **scope) {
    mg_scope *s = mg_alloc_zero(sizeof *s);
    if (!s) return MG_OOM;
    s->outer = current;
    current = *scope = s;
    return MG_OK;
}

/* Last made, first released. */
void mg_scope_close(mg_scope *scope) {
    current = scope->outer;
    for (int i = scope->n - 1; i >= 0; i--) mg_tensor_release(scope->kept[i]);
    mg_free(scope->kept);
    mg_free(scope);
}

/* If the scope cannot hold t, t is released and the result is NULL. */
mg_tensor *mg_scope_own(mg_tensor *t) {
    if (!t) return NULL;
    if (mg_reserve((void **)&current->kept, current->n, &current->capacity,
                   sizeof *current->kept) != MG_OK) {
        mg_tensor_release(t);
        return NULL;
    }
    return current->kept[current->n++] = t;
}

/* Rules return it in place of a tensor; NULL would mean a failure. */
mg_tensor *mg_no_gradient(void) {
    return &no_gradient;
}

/* All builders end here. */
static mg_tensor *apply(const char *op, const void *attrs, int n, mg_tensor *const *inputs) {
    for (int i = 0; i < n; i++)
        if (!inputs[i]) return NULL;
    return mg_scope_own(mg_apply(mg_op_find(op), inputs, n, attrs));
}

/* At most 8 inputs. */
mg_tensor *mg_make(const char *op, const void *attrs, int n, ...) {
    mg_tensor *inputs[8];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) inputs[i] = va_arg(args, mg_tensor *);
    va_end(args);
    return apply(op, attrs, n, inputs);
}

/* ---- element-wise ---- */

/* One input, no attributes. */
mg_tensor *unary(const char *op, mg_tensor *a) {
    return apply(op, NULL, 1, &a);
}

mg_tensor *binary(const char *op, mg_tensor *a, mg_tensor *b) {
    return apply(op, NULL, 2, (mg_tensor *[]){a, b});
}

mg_tensor *add(mg_tensor *a, mg_tensor *b) {
    return binary("add", a, b);
}

mg_tensor *sub(mg_tensor *a, mg_tensor *b) {
    return binary("sub", a, b);
}

mg_tensor *mul(mg_tensor *a, mg_tensor *b) {
    return binary("mul", a, b);
}

mg_tensor *divide(mg_tensor *a, mg_tensor *b) {
    return binary("div", a, b);
}

mg_tensor *power(mg_tensor *a, mg_tensor *b) {
    return binary("pow", a, b);
}

mg_tensor *neg(mg_tensor *a) {
    return unary("neg", a);
}

mg_tensor *square(mg_tensor *a) {
    return unary("square", a);
}

mg_tensor *rsqrt(mg_tensor *a) {
    return unary("rsqrt", a);
}

mg_tensor *where(mg_tensor *c, mg_tensor *a, mg_tensor *b) {
    return apply("where", NULL, 3, (mg_tensor *[]){c, a, b});
}

/* A cast to the tensor's own dtype is left out. */
mg_tensor *cast(mg_tensor *a, mg_dtype t) {
    if (!a || a->dtype == t) return a;
    const int64_t dtype = t;
    return apply("cast", &dtype, 1, &a);
}

mg_tensor *cast_like(mg_tensor *a, mg_tensor *like) {
    return like ? cast(a, (mg_dtype)like->dtype) : NULL;
}

/* A shape as an attribute. */
static mg_ints ints_of_shape(const mg_shape *shape) {
    mg_ints v = {.n = shape->rank};
    memcpy(v.v, shape->dim, (size_t)shape->rank * sizeof(int64_t));
    return v;
}

/* `full` has no inputs, so it lies wherever it is used. */
mg_tensor *full(double v, mg_dtype t, const mg_shape *shape) {
    const mg_full_attrs attrs = {.shape = ints_of_shape(shape), .value = v, .dtype = t};
    return apply("full", &attrs, 0, NULL);
}

/* A scalar: the op that uses it broadcasts. */
mg_tensor *constant(double v, mg_tensor *like) {
    const mg_shape scalar = MG_SHAPE();
    return like ? full(v, (mg_dtype)like->dtype, &scalar) : NULL;
}

/* The factor is rounded to a's dtype. */
mg_tensor *scale(mg_tensor *a, double factor) {
    return mul(a, constant(factor, a));
}

mg_tensor *shift(mg_tensor *a, double term) {
    return add(a, constant(term, a));
}

/* ---- reductions ---- */

mg_tensor *reduce(const char *op, mg_tensor *a, const mg_ints *axes, bool keep) {
    const mg_reduce_attrs attrs = {.axes = *axes, .keepdims = keep};
    return apply(op, &attrs, 1, &a);
}

/* Sums over leading axes that `shape` lacks and over axes that are 1 there. */
mg_tensor *sum_to(mg_tensor *a, const mg_shape *shape) {
    if (!a || mg_shape_equal(&a->shape, shape)) return a;
    mg_ints axes = {0};
    const int lead = a->shape.rank - shape->rank;
    for (int i = 0; i < a->shape.rank; i++)
        if (i < lead || (shape->dim[i - lead] == 1 && a->shape.dim[i] != 1)) axes.v[axes.n++] = i;
    return reshape(axes.n ? reduce("sum", a, &axes, false) : a, shape);
}

/* ---- movement ---- */

/* No op is made if the shape is the same. */
mg_tensor *reshape(mg_tensor *a, const mg_shape *shape) {
    if (!a || mg_shape_equal(&a->shape, shape)) return a;
    const mg_ints attrs = ints_of_shape(shape);
    return apply("reshape", &attrs, 1, &a);
}

mg_tensor *broadcast_to(mg_tensor *a, const mg_shape *shape) {
    if (!a || mg_shape_equal(&a->shape, shape)) return a;
    const mg_ints attrs = ints_of_shape(shape);
    return apply("broadcast_to", &attrs, 1, &a);
}

mg_tensor *permute(mg_tensor *a, const mg_ints *order) {
    return apply("permute", order, 1, &a);
}

mg_tensor *matmul(mg_tensor *a, mg_tensor *b, bool transpose_a, bool transpose_b) {
    const mg_matmul_attrs attrs = {.transpose_a = transpose_a, .transpose_b = transpose_b};
    return apply("matmul", &attrs, 2, (mg_tensor *[]){a, b});
}
