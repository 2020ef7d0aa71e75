/* The words of elementwise.def in float, with vectormath.h's functions, which the compiler runs on
 * vectors, instead of libm's. No guard, as ops/elementwise_float.h. */
#include "device/cpu/simd/vectormath.h"
#include "ops/elementwise_float.h"

#undef EXP
#undef EXPM1
#undef LOG
#undef LOG1P
#undef TANH
#undef ERF
#define EXP vm_exp
#define EXPM1 vm_expm1
#define LOG vm_log
#define LOG1P vm_log1p
#define TANH vm_tanh
#define ERF vm_erf
