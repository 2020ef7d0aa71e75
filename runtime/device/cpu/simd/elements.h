/* A vector of float, float16 or bfloat16 elements as floats, and back, rounded to nearest even as
 * in conversion_loops.h. The addresses need no alignment beyond that of an element. */
#ifndef MG_DEVICE_CPU_SIMD_ELEMENTS_H
#define MG_DEVICE_CPU_SIMD_ELEMENTS_H

#include "device/cpu/simd/conversion_loops.h"
#include "device/cpu/simd/isa.h"
#include <stdint.h>

typedef uint32_t mg_words __attribute__((vector_size(MG_VECTOR)));

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

/* bfloat16 is the upper half of a float: halves as the upper halves of 32-bit words, and back. gcc
 * 12 splits __builtin_convertvector of wide vectors into several instructions. */
#if defined(__AVX512F__)
typedef uint16_t mg_half_numbers __attribute__((vector_size(64)));
MG_INLINE mg_words mg_load_upper(const uint16_t *p) {
    const mg_half_numbers twice = {0, 0, 1, 1, 2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,
                                   8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15};
    const __m512i halves = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)p));
    return (mg_words)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, (__m512i)twice, halves);
}
MG_INLINE void mg_store_upper(uint16_t *p, mg_words w) {
    const mg_half_numbers odd = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i halves = _mm512_permutexvar_epi16((__m512i)odd, (__m512i)w);
    _mm256_storeu_si256((void *)p, _mm512_castsi512_si256(halves));
}
#elif defined(__AVX2__)
MG_INLINE mg_words mg_load_upper(const uint16_t *p) {
    return (mg_words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)) << 16;
}
MG_INLINE void mg_store_upper(uint16_t *p, mg_words w) {
    const __m256i v = (__m256i)(w >> 16);
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    _mm_storeu_si128((void *)p, _mm_packus_epi32(low, high));
}
#else
typedef uint16_t mg_halves __attribute__((vector_size(MG_VECTOR / 2), aligned(2), may_alias));
MG_INLINE mg_words mg_load_upper(const uint16_t *p) {
    return __builtin_convertvector(*(const mg_halves *)p, mg_words) << 16;
}
MG_INLINE void mg_store_upper(uint16_t *p, mg_words w) {
    *(mg_halves *)p = __builtin_convertvector(w >> 16, mg_halves);
}
#endif

/* Bits of which the upper half is v, rounded. NaN stays NaN. */
MG_INLINE mg_words mg_round_upper(mg_loose_floats v) {
    const mg_words bits = (mg_words)v, quiet = bits | 0x400000;
    const mg_words half_unit = (bits >> 16 & 1) + 0x7fff;
#if defined(__AVX512F__)
    const __mmask16 is_number = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_ORD_Q);
    return (mg_words)_mm512_mask_add_epi32((__m512i)quiet, is_number, (__m512i)bits,
                                           (__m512i)half_unit);
#elif defined(__AVX2__)
    const __m256 rounded = (__m256)(bits + half_unit), is_nan = (__m256)(v != v);
    return (mg_words)_mm256_blendv_ps(rounded, (__m256)quiet, is_nan);
#else
    const mg_words is_nan = (mg_words)(v != v);
    return ((bits + half_unit) & ~is_nan) | (quiet & is_nan);
#endif
}

MG_INLINE mg_loose_floats mg_get_bf16(const uint16_t *p) {
    return (mg_loose_floats)mg_load_upper(p);
}
MG_INLINE void mg_put_bf16(uint16_t *p, mg_loose_floats v) {
    mg_store_upper(p, mg_round_upper(v));
}

/* t: MG_F16 or MG_BF16. */
MG_INLINE mg_loose_floats mg_get_half(const uint16_t *p, const mg_dtype t) {
    return t == MG_F16 ? mg_get_f16(p) : mg_get_bf16(p);
}
MG_INLINE void mg_put_half(uint16_t *p, mg_loose_floats v, const mg_dtype t) {
    if (t == MG_F16)
        mg_put_f16(p, v);
    else
        mg_put_bf16(p, v);
}

/* Calls f with t, MG_F16 or MG_BF16, as its last argument and a constant for the compiler. */
#define MG_WITH_HALF(t, f, ...) (t == MG_F16 ? f(__VA_ARGS__, MG_F16) : f(__VA_ARGS__, MG_BF16))

#endif
