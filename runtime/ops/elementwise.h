/* Numbers for the lines of elementwise.def, shared by everything that expands it. */
#ifndef MG_OPS_ELEMENTWISE_H
#define MG_OPS_ELEMENTWISE_H

enum mg_elementwise {
#define UNARY(name, rule, value, grad, doc) MG_EW_##name,
#define BINARY(name, rule, value, grad_a, grad_b, doc) MG_EW_##name,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) MG_EW_##name,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
    MG_N_ELEMENTWISE
};

/* The value in double, of up to three operands; `value` is rounded to the dtype by the caller. */
double mg_elementwise_value(enum mg_elementwise op, double a, double b, double c);

#endif
