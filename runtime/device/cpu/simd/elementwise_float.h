/* The functions of elementwise.def (EXP, LOG ...) in float, with those of vectormath.h in place of
 * libm's, because the compiler can run those on vectors. It has no include guard: like
 * ops/elementwise_float.h, it is included where the names are needed, and they are undefined
 * afterwards. */
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
