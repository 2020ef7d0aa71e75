/* Element types, their names, sizes, promotion, and conversion to and from double. */
#ifndef MG_CORE_DTYPE_H
#define MG_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In promotion order: the common type of two operands is the larger number (but f16 with bf16 gives
 * f32). */
typedef enum mg_dtype {
    MG_BOOL,
    MG_U8,
    MG_I32,
    MG_I64,
    MG_BF16,
    MG_F16,
    MG_F32,
    MG_F64,
    MG_N_DTYPES
} mg_dtype;

/* Keras's name: "float32". mg_dtype_from_name accepts "float32", "f32", "double", ...; -1 (as int)
 * if unknown. */
const char *mg_dtype_name(mg_dtype t);
int mg_dtype_from_name(const char *name);
size_t mg_dtype_size(mg_dtype t);
static inline bool mg_dtype_is_float(mg_dtype t) {
    return t >= MG_BF16;
}
/* float16 and bfloat16: kernels accumulate them in float32. */
static inline bool mg_dtype_is_half(mg_dtype t) {
    return t == MG_BF16 || t == MG_F16;
}
mg_dtype mg_dtype_promote(mg_dtype a, mg_dtype b);
/* The dtype of sums and products of elements: int64 for integers and bool, otherwise t. */
static inline mg_dtype mg_dtype_of_sums(mg_dtype t) {
    return mg_dtype_is_float(t) ? t : MG_I64;
}

/* Convert n elements between a typed row-major buffer and doubles. Float to integer truncates and
 * saturates; NaN becomes 0; anything non-zero becomes true. Rounding to f16, bf16 and f32 is to
 * nearest even. */
void mg_to_double(double *dst, const void *src, mg_dtype t, size_t n);
void mg_from_double(void *dst, const double *src, mg_dtype t, size_t n);
/* Convert n elements between a buffer of an integer dtype or bool and int64. A number out of range
 * saturates; anything non-zero becomes true. */
void mg_to_int64(int64_t *dst, const void *src, mg_dtype t, size_t n);
void mg_from_int64(void *dst, const int64_t *src, mg_dtype t, size_t n);
/* Sum and product of int64, which wrap around. (In C the overflow of a signed sum is undefined.) */
static inline int64_t mg_int64_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t mg_int64_multiply(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
/* The value nearest to v that `t` can hold. */
double mg_dtype_round(mg_dtype t, double v);

uint16_t mg_f32_to_f16(float v);
float mg_f16_to_f32(uint16_t v);
/* Round to nearest even; NaN stays NaN. */
static inline uint16_t mg_f32_to_bf16(float v) {
    union {
        float f;
        uint32_t u;
    } x = {v};
    if ((x.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x.u >> 16) | 0x40u);
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}
static inline float mg_bf16_to_f32(uint16_t v) {
    union {
        uint32_t u;
        float f;
    } x = {(uint32_t)v << 16};
    return x.f;
}

#endif
