/* The vocabulary of elementwise.def's value column in double, by libm: for the reference kernels,
 * and for any device's double registers. No guard: whoever needs another width undefines it all.
 * Who includes this has math.h, or CUDA's functions. */
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
#define ROUND rint
#define ABS fabs
#define POW pow
#define ATAN2 atan2
