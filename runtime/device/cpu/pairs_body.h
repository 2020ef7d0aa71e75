/* The bodies of the paired loops: included once for each instruction set with TABLE set to the name
 * of the table to define. Compiled without contraction. */
#include "device/cpu/pairs.h"
#include <math.h>

#define PAIR(first, second, x, y)                                                                  \
    static void first##_##second(float *out, const float *pa, const float *pb, const float *pc,    \
                                 int n) {                                                          \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                          \
            const float a = pa[i], b = pb[i], c = pc[i], t = x;                                    \
            (void)b, (void)c;                                                                      \
            out[i] = y;                                                                            \
        }                                                                                          \
    }
#define SECONDS(first, x)                                                                          \
    PAIR(first, add, x, t + c)                                                                     \
    PAIR(first, sub, x, t - c)                                                                     \
    PAIR(first, sub_from, x, c - t)                                                                \
    PAIR(first, mul, x, t *c)                                                                      \
    PAIR(first, div, x, t / c)                                                                     \
    PAIR(first, div_into, x, c / t)                                                                \
    PAIR(first, sqrt, x, sqrtf(t))
SECONDS(add, a + b)
SECONDS(sub, a - b)
SECONDS(mul, a *b)
SECONDS(div, a / b)
SECONDS(square, a *a)
SECONDS(sqrt, sqrtf(a))

#define ROW(first)                                                                                 \
    {                                                                                              \
        first##_add, first##_sub, first##_sub_from, first##_mul, first##_div, first##_div_into,    \
            first##_sqrt                                                                           \
    }
const mg_pair_table TABLE = {ROW(add), ROW(sub), ROW(mul), ROW(div), ROW(square), ROW(sqrt)};
