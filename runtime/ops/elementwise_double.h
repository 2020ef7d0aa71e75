/* The functions of elementwise.def's value column, computed in double by libm. The reference
 * kernels use it, and any device that computes in double registers.
 *
 * No include guard: to expand elementwise.def in another width, #undef these names and define them
 * again. The including file provides math.h, or CUDA's functions of the same names. */
#define K(v) ((double)(v))
#define EXP exp
#define EXPM1 expm1
#define LOG log
#define LOG1P log1p
#define SIN sin
#define COS cos
#define TAN tan
#define ASIN asin
#define ACOS acos
#define ATAN atan
#define SINH sinh
#define COSH cosh
#define TANH tanh
#define SQRT sqrt
#define ERF erf
#define FLOOR floor
#define CEIL ceil
/* ROUND: halves to even */
#define ROUND rint
#define ABS fabs
#define POW pow
#define ATAN2 atan2
