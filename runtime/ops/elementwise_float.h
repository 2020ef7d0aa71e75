/* The functions of elementwise.def's value column, computed in float by libm.
 *
 * No include guard: to expand elementwise.def in another width, #undef these names and define them
 * again. The including file provides math.h, or CUDA's functions of the same names. */
#define K(v) ((float)(v))
#define EXP expf
#define EXPM1 expm1f
#define LOG logf
#define LOG1P log1pf
#define SIN sinf
#define COS cosf
#define TAN tanf
#define ASIN asinf
#define ACOS acosf
#define ATAN atanf
#define SINH sinhf
#define COSH coshf
#define TANH tanhf
#define SQRT sqrtf
#define ERF erff
#define FLOOR floorf
#define CEIL ceilf
/* ROUND: halves to even */
#define ROUND rintf
#define ABS fabsf
#define POW powf
#define ATAN2 atan2f
