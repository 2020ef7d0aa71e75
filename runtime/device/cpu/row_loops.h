/* Loops over a row x[0..n), for softmax and what is made of it: text, so that each function with
 * them is compiled whole for an instruction set. */
#ifndef MG_DEVICE_CPU_ROW_LOOPS_H
#define MG_DEVICE_CPU_ROW_LOOPS_H

#include <math.h>

/* Rows too short for vector maxima; numbers that are summed in the type itself. */
enum { SHORT_ROW = 64, ROW_BLOCK = 1024 };

/* exp in double, beside the expf of vectormath.h. */
static inline double wide_exp(double x) {
    return exp(x);
}

/* `largest`, which is -INFINITY before, becomes the maximum; it passes over NaN. */
#define ROW_LARGEST(largest)                                                                       \
    if (n < SHORT_ROW) {                                                                           \
        for (int64_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;                 \
    } else {                                                                                       \
        _Pragma("omp simd reduction(max : largest)") for (int64_t i = 0; i < n; i++) largest =     \
            x[i] > largest ? x[i] : largest;                                                       \
    }

/* Adds the terms of i < n to a double, blockwise. */
#define ROW_SUM(REAL, total, term)                                                                 \
    for (int64_t first = 0; first < n; first += ROW_BLOCK) {                                       \
        const int64_t end = first + ROW_BLOCK < n ? first + ROW_BLOCK : n;                         \
        REAL part = 0;                                                                             \
        _Pragma("omp simd reduction(+ : part)") for (int64_t i = first; i < end; i++) part +=      \
            term;                                                                                  \
        total += (double)part;                                                                     \
    }

#endif
