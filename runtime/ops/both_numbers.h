/* Includes LOOPS, a header of reference kernels, twice: for double, and for int64, which wraps
 * around. No include guard: a family defines LOOPS and includes this. In LOOPS
 *
 *     NUMBER          is the type
 *     NAME(x)         is x for double, and x_integers for int64
 *     IN(k), OUT      are input k and the output of the mg_ref r
 *     ADD, MULTIPLY   are the arithmetic of the type
 *     LEAST, MOST     are its smallest and its largest number
 *     IS_NAN(v)       is false for integers */
#include "core/dtype.h"
#include <math.h>

#define NUMBER double
#define NAME(x) x
#define IN(k) r->in[k]
#define OUT r->out
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LEAST (-INFINITY)
#define MOST INFINITY
#define IS_NAN(v) isnan(v)
#include LOOPS
#undef NUMBER
#undef NAME
#undef IN
#undef OUT
#undef ADD
#undef MULTIPLY
#undef LEAST
#undef MOST
#undef IS_NAN

#define NUMBER int64_t
#define NAME(x) x##_integers
#define IN(k) r->in_integers[k]
#define OUT r->out_integers
#define ADD(a, b) mg_int64_add(a, b)
#define MULTIPLY(a, b) mg_int64_multiply(a, b)
#define LEAST INT64_MIN
#define MOST INT64_MAX
#define IS_NAN(v) false
#include LOOPS
#undef NUMBER
#undef NAME
#undef IN
#undef OUT
#undef ADD
#undef MULTIPLY
#undef LEAST
#undef MOST
#undef IS_NAN
#undef LOOPS
