/* A vector of float, float16 or bfloat16 elements as floats, and back, rounded to nearest even as
 * in conversion_loops.h. The addresses need no alignment beyond that of an element. */
#ifndef MG_DEVICE_CPU_SIMD_ELEMENTS_H
#define MG_DEVICE_CPU_SIMD_ELEMENTS_H

#include "device/cpu/simd/conversion_loops.h"
#include "device/cpu/simd/isa.h"
#include <stdint.h>

typedef uint32_t mg_words __attribute__((vector_size(MG_VECTOR)));
typedef uint16_t mg_halves __attribute__((vector_size(MG_VECTOR / 2), aligned(2), may_alias));

MG_INLINE mg_loose_floats mg_get_f32(const float *p) {
    return *(const mg_loose_floats *)p;
}
MG_INLINE void mg_put_f32(float *p, mg_loose_floats v) {
    *(mg_loose_floats *)p = v;
}

MG_INLINE mg_loose_floats mg_get_f16(const uint16_t *p) {
    float v[MG_WIDTH];
    mg_from_f16(v, p, MG_WIDTH);
    return mg_get_f32(v);
}
MG_INLINE void mg_put_f16(uint16_t *p, mg_loose_floats floats) {
    float v[MG_WIDTH];
    mg_put_f32(v, floats);
    mg_to_f16(p, v, MG_WIDTH);
}

/* 16-bit integers to and from 32 bits. gcc 12 splits __builtin_convertvector of wide vectors into
 * several instructions. */
MG_INLINE mg_words mg_widen(const uint16_t *p) {
#if defined(__AVX512F__)
    return (mg_words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
#elif defined(__AVX2__)
    return (mg_words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
#else
    return __builtin_convertvector(*(const mg_halves *)p, mg_words);
#endif
}
MG_INLINE void mg_narrow(uint16_t *p, mg_words w) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)w));
#elif defined(__AVX2__)
    const __m256i v = (__m256i)w;
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    _mm_storeu_si128((void *)p, _mm_packus_epi32(low, high));
#else
    *(mg_halves *)p = __builtin_convertvector(w, mg_halves);
#endif
}

/* bfloat16 is the upper half of a float. NaN stays NaN. */
MG_INLINE mg_loose_floats mg_get_bf16(const uint16_t *p) {
    return (mg_loose_floats)(mg_widen(p) << 16);
}
MG_INLINE void mg_put_bf16(uint16_t *p, mg_loose_floats v) {
    const mg_words bits = (mg_words)v, is_nan = (mg_words)(v != v);
    const mg_words rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    mg_narrow(p, ((rounded & ~is_nan) | (quiet & is_nan)) >> 16);
}

#endif
