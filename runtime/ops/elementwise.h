/* Numbers of the element-wise ops (MG_EW_add, ...), in the order of elementwise.def: shared by
 * every file that expands it. */
#ifndef MG_OPS_ELEMENTWISE_H
#define MG_OPS_ELEMENTWISE_H

#include <stdbool.h>

enum mg_elementwise {
#define UNARY(name, rule, value, grad, ...) MG_EW_##name,
#define BINARY(name, rule, value, grad_a, grad_b, ...) MG_EW_##name,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) MG_EW_##name,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
    MG_N_ELEMENTWISE
};

/* Computes op on up to three operands in double; unary ops read a only. The caller rounds the
 * result to the dtype. */
double mg_elementwise_value(enum mg_elementwise op, double a, double b, double c);

/* Whether the op has the rule BOOL: its result is bool, and its value is always 0 or 1. */
bool mg_elementwise_is_bool(enum mg_elementwise op);

#endif
