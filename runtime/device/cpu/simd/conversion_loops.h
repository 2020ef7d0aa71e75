/* The conversions of conversions.h as inline functions: with a constant dtype and length they
 * become a few instructions. */
#ifndef MG_DEVICE_CPU_SIMD_CONVERSION_LOOPS_H
#define MG_DEVICE_CPU_SIMD_CONVERSION_LOOPS_H

#include "core/dtype.h"
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/vectormath.h"
#include <string.h>

/* A vector loop over the elements. */
#define EACH_ELEMENT _Pragma("omp simd") for (int i = 0; i < n; i++)

/* Unrolled as often as a strip has vectors, so that steps keep it in registers; without unrolling,
 * arrays took up to 1.2 times as long. */
#define UNROLL _Pragma("GCC unroll 8")

/* ---- float16 and bfloat16, rounded to nearest even as core/dtype.h rounds them ---- */

/* float16 to float: by the processor's instructions where it has them, by bit operations elsewhere
 * and for the last elements. */
MG_INLINE void mg_from_f16(float *out, const uint16_t *x, int n) {
    int i = 0;
#if defined(__AVX512F__)
    UNROLL for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
#elif defined(__F16C__)
    UNROLL for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#elif defined(__aarch64__)
    UNROLL for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#endif
    for (; i < n; i++) out[i] = mg_f16_to_f32(x[i]);
}

/* float to float16, rounded to nearest even. */
MG_INLINE void mg_to_f16(uint16_t *out, const float *x, int n) {
    int i = 0;
#if defined(__AVX512F__)
    UNROLL for (; i + 16 <= n; i += 16) _mm256_storeu_si256(
        (void *)(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    UNROLL for (; i + 8 <= n; i += 8) _mm_storeu_si128(
        (void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    UNROLL for (; i + 4 <= n; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
#endif
    for (; i < n; i++) out[i] = mg_f32_to_f16(x[i]);
}

/* float to bfloat16: rounds to nearest even by adding half a unit of the bits that stay; NaN stays
 * NaN. */
MG_INLINE void mg_to_bf16(uint16_t *out, const float *x, int n) {
    EACH_ELEMENT {
        const uint32_t u = vm_bits(x[i]);
        const uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
        out[i] = (uint16_t)((x[i] != x[i] ? quiet : rounded) >> 16);
    }
}

/* ---- other dtypes to and from float and double ---- */

/* int32, int64 and double are not loaded as float: groups that read them compute in double. */
MG_INLINE void mg_load_f32(float *out, const void *src, mg_dtype t, int n) {
    const uint8_t *bytes = src;
    const uint16_t *halves = src;
    switch (t) {
    case MG_U8: EACH_ELEMENT out[i] = (float)bytes[i]; break;
    case MG_BOOL: EACH_ELEMENT out[i] = bytes[i] ? 1.0f : 0.0f; break;
    case MG_BF16: EACH_ELEMENT out[i] = vm_from_bits((uint32_t)halves[i] << 16); break;
    case MG_F16: mg_from_f16(out, halves, n); break;
    default: memcpy(out, src, (size_t)n * sizeof *out); break;
    }
}

/* uint8 saturates, NaN becomes 0. */
MG_INLINE void mg_store_f32(void *dst, const float *v, mg_dtype t, int n) {
    uint8_t *bytes = dst;
    uint16_t *halves = dst;
    switch (t) {
    case MG_BOOL: EACH_ELEMENT bytes[i] = v[i] != 0.0f; break;
    case MG_U8:
        EACH_ELEMENT bytes[i] = (uint8_t)(v[i] > 0.0f ? v[i] < 255.0f ? v[i] : 255.0f : 0.0f);
        break;
    case MG_BF16: mg_to_bf16(halves, v, n); break;
    case MG_F16: mg_to_f16(halves, v, n); break;
    default: memcpy(dst, v, (size_t)n * sizeof *v); break;
    }
}

/* int64, float16 and bfloat16 are converted by core/dtype.h. */
MG_INLINE void mg_load_f64(double *out, const void *src, mg_dtype t, int n) {
    const float *floats = src;
    const int32_t *ints = src;
    const uint8_t *bytes = src;
    switch (t) {
    case MG_U8: EACH_ELEMENT out[i] = (double)bytes[i]; break;
    case MG_BOOL: EACH_ELEMENT out[i] = bytes[i] ? 1.0 : 0.0; break;
    case MG_F64: memcpy(out, src, (size_t)n * sizeof *out); break;
    case MG_F32: EACH_ELEMENT out[i] = (double)floats[i]; break;
    case MG_I32: EACH_ELEMENT out[i] = (double)ints[i]; break;
    default: mg_to_double(out, src, t, (size_t)n); break;
    }
}

/* v between low and high; NaN becomes 0. */
MG_INLINE double mg_within(double v, double low, double high) {
    const double number = v == v ? v : 0.0, above = number > low ? number : low;
    return above < high ? above : high;
}

/* int64, float16 and bfloat16 are converted by core/dtype.h, which rounds and saturates. */
MG_INLINE void mg_store_f64(void *dst, const double *v, mg_dtype t, int n) {
    float *floats = dst;
    uint8_t *bytes = dst;
    int32_t *ints = dst;
    switch (t) {
    case MG_F64: memcpy(dst, v, (size_t)n * sizeof *v); break;
    case MG_F32: EACH_ELEMENT floats[i] = (float)v[i]; break;
    case MG_I32:
        EACH_ELEMENT ints[i] = (int32_t)mg_within(v[i], -2147483648.0, 2147483647.0);
        break;
    case MG_U8: EACH_ELEMENT bytes[i] = (uint8_t)(int32_t)mg_within(v[i], 0.0, 255.0); break;
    case MG_BOOL: EACH_ELEMENT bytes[i] = v[i] != 0.0; break;
    default: mg_from_double(dst, v, t, (size_t)n); break;
    }
}

#undef UNROLL
#undef EACH_ELEMENT
#endif
