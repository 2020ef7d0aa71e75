/* Element-wise loops: every op of elementwise.def over n elements, in float and in double, and the
 * conversions between stored dtypes and those two. */
#ifndef MG_DEVICE_CPU_SIMD_ELEMENTWISE_H
#define MG_DEVICE_CPU_SIMD_ELEMENTWISE_H

#include "core/dtype.h"
#include "ops/elementwise.h"
#include <stddef.h>
#include <stdint.h>

/* out[i] = op(a[i], b[i], c[i]); an op with fewer operands ignores the rest. `out` may be one of
 * the operands. */
typedef void mg_loop_f32(float *out, const float *a, const float *b, const float *c, int n);
typedef void mg_loop_f64(double *out, const double *a, const double *b, const double *c, int n);

typedef struct mg_simd_elementwise {
    mg_loop_f32 *f32[MG_N_ELEMENTWISE];
    mg_loop_f64 *f64[MG_N_ELEMENTWISE];
    /* n elements of dtype t in memory, to and from float or double. Stores round to nearest even;
     * uint8 saturates, bool is "not zero". */
    void (*load_f32)(float *out, const void *src, mg_dtype t, int n);
    void (*store_f32)(void *dst, const float *v, mg_dtype t, int n);
    void (*load_f64)(double *out, const void *src, mg_dtype t, int n);
    void (*store_f64)(void *dst, const double *v, mg_dtype t, int n);
} mg_simd_elementwise;

#endif
