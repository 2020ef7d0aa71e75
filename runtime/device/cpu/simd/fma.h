/* a * b + c, rounded once where the instruction set has fused multiply-adds, and twice elsewhere.
 *
 * Loops that want fused multiply-adds call these functions; the compiler makes none by itself
 * (-ffp-contract=off). If it may, it decides for each loop anew: gcc 14 fuses no sum that is a
 * single chain of multiply-adds, so tiles of one row were rounded unlike taller ones, and the bits
 * of a matrix product depended on how threads share its rows. */
#ifndef MG_DEVICE_CPU_SIMD_FMA_H
#define MG_DEVICE_CPU_SIMD_FMA_H

#include "device/cpu/simd/isa.h"

typedef double mg_doubles __attribute__((vector_size(MG_VECTOR)));

#if defined(__AVX512F__)
#define FUSED(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FUSED_F64(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(__FMA__)
#define FUSED(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FUSED_F64(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif defined(__aarch64__)
#define FUSED(a, b, c) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define FUSED_F64(a, b, c) vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#endif

/* Of numbers. The compiler vectorises loops over them. */
MG_INLINE float mg_fma_f32(float a, float b, float c) {
#ifdef FUSED
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

MG_INLINE double mg_fma_f64(double a, double b, double c) {
#ifdef FUSED
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

/* Of vectors. */
MG_INLINE mg_floats mg_fma_vec_f32(mg_floats a, mg_floats b, mg_floats c) {
#ifdef FUSED
    return (mg_floats)FUSED(a, b, c);
#else
    return a * b + c;
#endif
}

MG_INLINE mg_doubles mg_fma_vec_f64(mg_doubles a, mg_doubles b, mg_doubles c) {
#ifdef FUSED
    return (mg_doubles)FUSED_F64(a, b, c);
#else
    return a * b + c;
#endif
}

/* sum += a * b, for sums of a loop that stay in registers. With AVX-512, gcc 12 chose instructions
 * that write over a factor and copied every sum twice per turn of the loop: products ran at 66
 * GFLOP/s instead of 150 on an Ice Lake, whose copies of 64-byte vectors take the ports of the
 * multiply-adds. So the instruction is given by name there. */
#if defined(__AVX512F__)
#define MG_ADD_PRODUCT_f32(sum, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))
#define MG_ADD_PRODUCT_f64(sum, a, b) __asm__("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))
#else
#define MG_ADD_PRODUCT_f32(sum, a, b) (void)((sum) = mg_fma_vec_f32(a, b, sum))
#define MG_ADD_PRODUCT_f64(sum, a, b) (void)((sum) = mg_fma_vec_f64(a, b, sum))
#endif

/* A number in all lanes. Subtracting 0 changes no bit, and the compiler leaves it out. */
MG_INLINE mg_floats mg_splat_f32(float v) {
    return v - (mg_floats){0};
}

MG_INLINE mg_doubles mg_splat_f64(double v) {
    return v - (mg_doubles){0};
}

#undef FUSED
#undef FUSED_F64

#endif
