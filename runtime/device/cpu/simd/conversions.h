/* Conversions of arrays between stored dtypes and float or double: the dtypes in which fused groups
 * compute, and in which kernels without versions for other dtypes run. */
#ifndef MG_DEVICE_CPU_SIMD_CONVERSIONS_H
#define MG_DEVICE_CPU_SIMD_CONVERSIONS_H

#include "core/dtype.h"
#include <stdint.h>

typedef struct mg_simd_conversions {
    /* Convert n elements of dtype t in memory to or from float or double. Stores round to nearest
     * even; integers saturate, and bool is "not zero". The float functions do not take int32, int64
     * and float64. */
    void (*load_f32)(float *out, const void *src, mg_dtype t, int n);
    void (*store_f32)(void *dst, const float *v, mg_dtype t, int n);
    void (*load_f64)(double *out, const void *src, mg_dtype t, int n);
    void (*store_f64)(void *dst, const double *v, mg_dtype t, int n);
    /* Convert `rows` rows of n elements between float16 or bfloat16, where they lie `row` elements
     * apart, and floats, where they follow each other. */
    void (*load_rows)(float *out, const uint16_t *src, int64_t row, int64_t rows, int64_t n,
                      mg_dtype t);
    void (*store_rows)(uint16_t *dst, int64_t row, const float *v, int64_t rows, int64_t n,
                       mg_dtype t);
} mg_simd_conversions;

#endif
