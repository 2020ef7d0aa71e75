/* The vocabulary of elementwise.def's value column in float, by libm. No guard: whoever needs
 * another width undefines it all. Who includes this has math.h, or CUDA's functions. */
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
#define ROUND rintf
#define ABS fabsf
#define POW powf
#define ATAN2 atan2f
