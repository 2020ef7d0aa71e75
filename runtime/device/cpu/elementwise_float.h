/* The words of elementwise.def in float: vectormath.h's functions, which the compiler runs on
 * vectors, where it has one. No guard: who includes this undefines them again to go on in double.
 */
#include "device/cpu/vectormath.h"

#define K(v) ((float)(v))
#define EXP vm_exp
#define EXPM1 vm_expm1
#define LOG vm_log
#define LOG1P vm_log1p
#define SIN sinf
#define COS cosf
#define TAN tanf
#define ASIN asinf
#define ACOS acosf
#define ATAN atanf
#define SINH sinhf
#define COSH coshf
#define TANH vm_tanh
#define SQRT sqrtf
#define ERF vm_erf
#define FLOOR floorf
#define CEIL ceilf
#define ROUND rintf
#define ABS fabsf
#define POW powf
#define ATAN2 atan2f
