/* Builders: short names to write gradient rules and composed ops with.
 *
 * Every function returns a tensor *borrowed* from the innermost open scope, which releases it when
 * it closes. NULL in gives NULL out (the error was set where it happened), so rules need no checks:
 *     return mul(dy, sub(constant(1, y), square(y)));
 * For use inside the runtime only; included by .c files, never by mgpu.h. The short names exist in
 * the source only: the symbols have a prefix (MG_BUILDER), so they cannot clash with symbols of a
 * host program. */
#ifndef MG_OPS_BUILD_H
#define MG_OPS_BUILD_H

#include "ops/op.h"

#define MG_BUILDER(name) __asm__("mg_build_" #name)

typedef struct mg_scope mg_scope;
/* Scopes nest, per thread. close releases everything kept since open; keep()s survive. */
mg_status mg_scope_open(mg_scope **scope);
void mg_scope_close(mg_scope *scope);
/* Hands an owned tensor (or NULL) to the scope; returns it. */
mg_tensor *mg_scope_own(mg_tensor *t);
/* The result of a rule for an input that no gradient reaches. */
mg_tensor *mg_no_gradient(void);

/* Any op by row; NULL inputs give NULL. */
mg_tensor *mg_make(const char *op, const void *attrs, int n, ...);

/* Result k, from 0, of an op that has several. */
mg_tensor *mg_result(mg_tensor *of, int k);

/* element-wise (broadcasting, promoting) */
mg_tensor *add(mg_tensor *a, mg_tensor *b) MG_BUILDER(add);
mg_tensor *sub(mg_tensor *a, mg_tensor *b) MG_BUILDER(sub);
mg_tensor *mul(mg_tensor *a, mg_tensor *b) MG_BUILDER(mul);
mg_tensor *divide(mg_tensor *a, mg_tensor *b) MG_BUILDER(divide);
mg_tensor *power(mg_tensor *a, mg_tensor *b) MG_BUILDER(power);
mg_tensor *neg(mg_tensor *a) MG_BUILDER(neg);
mg_tensor *square(mg_tensor *a) MG_BUILDER(square);
mg_tensor *rsqrt(mg_tensor *a) MG_BUILDER(rsqrt);
mg_tensor *where(mg_tensor *c, mg_tensor *a, mg_tensor *b) MG_BUILDER(where);
mg_tensor *unary(const char *op, mg_tensor *a) MG_BUILDER(unary); /* any unary by name */
mg_tensor *binary(const char *op, mg_tensor *a, mg_tensor *b)
    MG_BUILDER(binary); /* any binary by name: "gt" */
mg_tensor *cast(mg_tensor *a, mg_dtype t) MG_BUILDER(cast);
mg_tensor *cast_like(mg_tensor *a, mg_tensor *like) MG_BUILDER(cast_like);
/* a scalar of like's dtype */
mg_tensor *constant(double v, mg_tensor *like) MG_BUILDER(constant);
mg_tensor *scale(mg_tensor *a, double factor) MG_BUILDER(scale); /* a * factor */
mg_tensor *shift(mg_tensor *a, double term) MG_BUILDER(shift);   /* a + term */
mg_tensor *full(double v, mg_dtype t, const mg_shape *shape) MG_BUILDER(full);

/* reductions; axes are 0-based bits; keep = keep reduced axes as 1 */
mg_tensor *reduce(const char *op, mg_tensor *a, const mg_ints *axes, bool keep) MG_BUILDER(reduce);
/* Sums a down to `shape` (the gradient of broadcasting). */
mg_tensor *sum_to(mg_tensor *a, const mg_shape *shape) MG_BUILDER(sum_to);

/* movement */
mg_tensor *reshape(mg_tensor *a, const mg_shape *shape) MG_BUILDER(reshape);
mg_tensor *broadcast_to(mg_tensor *a, const mg_shape *shape) MG_BUILDER(broadcast_to);
mg_tensor *permute(mg_tensor *a, const mg_ints *order) MG_BUILDER(permute);

/* matmul with transposes: op(a) x op(b) over the last two axes */
mg_tensor *matmul(mg_tensor *a, mg_tensor *b, bool transpose_a, bool transpose_b)
    MG_BUILDER(matmul);

#endif
