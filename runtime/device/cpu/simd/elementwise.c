/* Element-wise loops: the value column of elementwise.def becomes one loop per op in float and one
 * in double, and so does each conversion between stored dtypes and those two.
 *
 * The expressions use the vocabulary of elementwise_float.h (EXP, LOG ...), whose functions
 * vectorise, or that of ops/elementwise_double.h, which is libm's. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/isa.h"
#include "device/cpu/simd/vectormath.h"
#include <math.h>
#include <string.h>

/* A vector loop over the elements; memory may overlap only where `out` is one of the operands. */
#define EACH _Pragma("omp simd") for (int i = 0; i < n; i++)

/* ---- in float ----
 *
 * Each line of elementwise.def becomes a loop name_f32, with the op's expression as its body. */

/* Whether a loop that selects between vectors loads them first: see MG_KEEP. */
#ifdef __AVX512F__
enum { KEEPS = 1 };
#else
enum { KEEPS = 0 };
#endif

typedef union kept {
    mg_floats in;
    float at[MG_WIDTH];
} kept;

MG_INLINE kept keep(const float *from) {
    mg_floats v = *(const mg_loose_floats *)from;
    MG_KEEP(v);
    return (kept){v};
}

#include "device/cpu/simd/elementwise_float.h"
#define UNARY(name, rule, value, grad, ...)                                                        \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        (void)pb, (void)pc;                                                                        \
        EACH {                                                                                     \
            const float x = pa[i];                                                                 \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        (void)pc;                                                                                  \
        EACH {                                                                                     \
            const float a = pa[i], b = pb[i];                                                      \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    static inline float name##_of(float a, float b, float c) {                                     \
        return value;                                                                              \
    }                                                                                              \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        int first = 0;                                                                             \
        for (; KEEPS && first + MG_WIDTH <= n; first += MG_WIDTH) {                                \
            const kept b = keep(pb + first), c = keep(pc + first);                                 \
            _Pragma("omp simd") for (int i = 0; i < MG_WIDTH; i++) out[first + i] =                \
                name##_of(pa[first + i], b.at[i], c.at[i]);                                        \
        }                                                                                          \
        _Pragma("omp simd") for (int i = first; i < n; i++) out[i] =                               \
            name##_of(pa[i], pb[i], pc[i]);                                                        \
    }
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
#undef K
#undef EXP
#undef EXPM1
#undef LOG
#undef LOG1P
#undef SIN
#undef COS
#undef TAN
#undef ASIN
#undef ACOS
#undef ATAN
#undef SINH
#undef COSH
#undef TANH
#undef SQRT
#undef ERF
#undef FLOOR
#undef CEIL
#undef ROUND
#undef ABS
#undef POW
#undef ATAN2

/* ---- in double, likewise ---- */

#include "ops/elementwise_double.h"
#define UNARY(name, rule, value, grad, ...)                                                        \
    static void name##_f64(double *out, const double *pa, const double *pb, const double *pc,      \
                           int n) {                                                                \
        (void)pb, (void)pc;                                                                        \
        EACH {                                                                                     \
            const double x = pa[i];                                                                \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    static void name##_f64(double *out, const double *pa, const double *pb, const double *pc,      \
                           int n) {                                                                \
        (void)pc;                                                                                  \
        EACH {                                                                                     \
            const double a = pa[i], b = pb[i];                                                     \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    static void name##_f64(double *out, const double *pa, const double *pb, const double *pc,      \
                           int n) {                                                                \
        EACH {                                                                                     \
            const double a = pa[i], b = pb[i], c = pc[i];                                          \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY

/* Without unrolling, the two loops below took up to 1.2 times as long, by where they happened to
 * lie. */
#define UNROLL _Pragma("GCC unroll 4")

/* ---- float16 and bfloat16, rounded to nearest even as core/dtype.h rounds them ---- */

/* float16 to float: by the processor where it can, by bits elsewhere and for the rest. */
static void from_f16(float *out, const uint16_t *x, int n) {
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
static void to_f16(uint16_t *out, const float *x, int n) {
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

/* float to bfloat16: adds half a unit, to even, to the bits that stay; NaN stays NaN. */
static void to_bf16(uint16_t *out, const float *x, int n) {
    EACH {
        const uint32_t u = vm_bits(x[i]);
        const uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
        out[i] = (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
    }
}

/* ---- other dtypes to and from float and double ---- */

/* int32, int64 and double do not come here: groups that read them compute in double. */
static void load_f32(float *out, const void *src, mg_dtype t, int n) {
    const uint8_t *bytes = src;
    const uint16_t *halves = src;
    switch (t) {
    case MG_U8: EACH out[i] = (float)bytes[i]; break;
    case MG_BOOL: EACH out[i] = bytes[i] ? 1.0f : 0.0f; break;
    case MG_BF16: EACH out[i] = vm_from_bits((uint32_t)halves[i] << 16); break;
    case MG_F16: from_f16(out, halves, n); break;
    default: memcpy(out, src, (size_t)n * sizeof *out); break;
    }
}

/* uint8 saturates, NaN becomes 0. */
static void store_f32(void *dst, const float *v, mg_dtype t, int n) {
    uint8_t *bytes = dst;
    uint16_t *halves = dst;
    switch (t) {
    case MG_BOOL: EACH bytes[i] = v[i] != 0.0f; break;
    case MG_U8:
        EACH bytes[i] = (uint8_t)(v[i] > 0.0f ? v[i] < 255.0f ? v[i] : 255.0f : 0.0f);
        break;
    case MG_BF16: to_bf16(halves, v, n); break;
    case MG_F16: to_f16(halves, v, n); break;
    default: memcpy(dst, v, (size_t)n * sizeof *v); break;
    }
}

/* The common dtypes have vector loops; the others go through core/dtype.h. */
static void load_f64(double *out, const void *src, mg_dtype t, int n) {
    const float *floats = src;
    const int32_t *ints = src;
    switch (t) {
    case MG_F32: EACH out[i] = (double)floats[i]; break;
    case MG_I32: EACH out[i] = (double)ints[i]; break;
    default: mg_to_double(out, src, t, (size_t)n); break;
    }
}

/* float32 and bool have vector loops; the others go through core/dtype.h, which rounds and
 * saturates. */
static void store_f64(void *dst, const double *v, mg_dtype t, int n) {
    float *floats = dst;
    uint8_t *bytes = dst;
    switch (t) {
    case MG_F32: EACH floats[i] = (float)v[i]; break;
    case MG_BOOL: EACH bytes[i] = v[i] != 0.0; break;
    default: mg_from_double(dst, v, t, (size_t)n); break;
    }
}

const mg_simd_elementwise MG_ISA_NAME(mg_simd_elementwise) = {
    .f32 =
        {
#define UNARY(name, rule, value, grad, ...) [MG_EW_##name] = name##_f32,
#define BINARY(name, rule, value, grad_a, grad_b, ...) [MG_EW_##name] = name##_f32,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) [MG_EW_##name] = name##_f32,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
        },
    .f64 =
        {
#define UNARY(name, rule, value, grad, ...) [MG_EW_##name] = name##_f64,
#define BINARY(name, rule, value, grad_a, grad_b, ...) [MG_EW_##name] = name##_f64,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) [MG_EW_##name] = name##_f64,
#include "ops/elementwise.def"
        },
    .load_f32 = load_f32,
    .store_f32 = store_f32,
    .load_f64 = load_f64,
    .store_f64 = store_f64,
};
