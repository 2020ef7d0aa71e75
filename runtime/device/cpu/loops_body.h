/* The bodies of the tile loops: included once for each instruction set with TABLE set to the name
 * of the table to define. The value column of elementwise.def becomes one loop an op and width. */
#include "device/cpu/loops.h"
#include "device/cpu/vectormath.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define EACH _Pragma("omp simd") for (int i = 0; i < n; i++)

/* ---- in float ---- */

#include "device/cpu/elementwise_float.h"
#define UNARY(name, rule, value, grad, doc)                                                        \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        (void)pb, (void)pc;                                                                        \
        EACH {                                                                                     \
            const float x = pa[i];                                                                 \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define BINARY(name, rule, value, grad_a, grad_b, doc)                                             \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        (void)pc;                                                                                  \
        EACH {                                                                                     \
            const float a = pa[i], b = pb[i];                                                      \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc)                                    \
    static void name##_f32(float *out, const float *pa, const float *pb, const float *pc, int n) { \
        EACH {                                                                                     \
            const float a = pa[i], b = pb[i], c = pc[i];                                           \
            out[i] = value;                                                                        \
        }                                                                                          \
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

/* ---- in double ---- */

#include "ops/elementwise_double.h"
#define UNARY(name, rule, value, grad, doc)                                                        \
    static void name##_f64(double *out, const double *pa, const double *pb, const double *pc,      \
                           int n) {                                                                \
        (void)pb, (void)pc;                                                                        \
        EACH {                                                                                     \
            const double x = pa[i];                                                                \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define BINARY(name, rule, value, grad_a, grad_b, doc)                                             \
    static void name##_f64(double *out, const double *pa, const double *pb, const double *pc,      \
                           int n) {                                                                \
        (void)pc;                                                                                  \
        EACH {                                                                                     \
            const double a = pa[i], b = pb[i];                                                     \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc)                                    \
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

/* ---- halves: to nearest even, as core/dtype.h has it ---- */

static void from_f16(float *out, const uint16_t *x, int n) {
    int i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#endif
    for (; i < n; i++) out[i] = mg_f16_to_f32(x[i]);
}

static void to_f16(uint16_t *out, const float *x, int n) {
    int i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++) out[i] = mg_f32_to_f16(x[i]);
}

static void to_bf16(uint16_t *out, const float *x, int n) {
    EACH {
        const uint32_t u = vm_bits(x[i]);
        const uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
        out[i] = (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
    }
}

/* ---- edges of a tile ---- */

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

static void stream_f32(float *dst, const float *src, int n) {
    int i = 0;
    if ((uintptr_t)dst % 64 == 0) {
#if defined(__AVX512F__)
        for (; i + 16 <= n; i += 16) _mm512_stream_ps(dst + i, _mm512_loadu_ps(src + i));
#elif defined(__AVX__)
        for (; i + 8 <= n; i += 8) _mm256_stream_ps(dst + i, _mm256_loadu_ps(src + i));
#elif defined(__SSE2__)
        for (; i + 4 <= n; i += 4) _mm_stream_ps(dst + i, _mm_loadu_ps(src + i));
#endif
    }
    if (dst != src) memcpy(dst + i, src + i, (size_t)(n - i) * sizeof *dst);
}

static void end_stream(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* ---- squares ---- */

typedef uint32_t eight __attribute__((vector_size(4 * MG_SQUARE)));
typedef eight loose_eight __attribute__((aligned(4), may_alias));
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_PAIR(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_PAIR(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_HALF(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_HALF(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

/* Words of two rows side by side, then of four, then of eight. */
static void turn(const uint32_t *src, ptrdiff_t src_row, uint32_t *dst, ptrdiff_t dst_row) {
    eight two[MG_SQUARE], four[MG_SQUARE];
    for (int i = 0; i < MG_SQUARE; i += 2) {
        const eight a = *(const loose_eight *)(src + i * src_row);
        const eight b = *(const loose_eight *)(src + (i + 1) * src_row);
        two[i] = LOW(a, b), two[i + 1] = HIGH(a, b);
    }
    for (int i = 0; i < MG_SQUARE; i += 4) {
        four[i] = LOW_PAIR(two[i], two[i + 2]), four[i + 1] = HIGH_PAIR(two[i], two[i + 2]);
        four[i + 2] = LOW_PAIR(two[i + 1], two[i + 3]);
        four[i + 3] = HIGH_PAIR(two[i + 1], two[i + 3]);
    }
    for (int i = 0; i < MG_SQUARE / 2; i++) {
        *(loose_eight *)(dst + i * dst_row) = LOW_HALF(four[i], four[i + 4]);
        *(loose_eight *)(dst + (i + 4) * dst_row) = HIGH_HALF(four[i], four[i + 4]);
    }
}

static void load_f64(double *out, const void *src, mg_dtype t, int n) {
    const float *floats = src;
    const int32_t *ints = src;
    switch (t) {
    case MG_F32: EACH out[i] = (double)floats[i]; break;
    case MG_I32: EACH out[i] = (double)ints[i]; break;
    default: mg_to_double(out, src, t, (size_t)n); break;
    }
}

static void store_f64(void *dst, const double *v, mg_dtype t, int n) {
    float *floats = dst;
    uint8_t *bytes = dst;
    switch (t) {
    case MG_F32: EACH floats[i] = (float)v[i]; break;
    case MG_BOOL: EACH bytes[i] = v[i] != 0.0; break;
    default: mg_from_double(dst, v, t, (size_t)n); break;
    }
}

/* ---- random words ---- */

static void philox16(uint32_t *words, uint64_t index, uint64_t ordinal, uint32_t seed,
                     uint32_t stream) {
    uint32_t c0[16], c1[16], c2[16], c3[16], k0 = seed, k1 = stream;
    for (int i = 0; i < 16; i++) {
        c0[i] = (uint32_t)(index + (uint64_t)i);
        c1[i] = (uint32_t)((index + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)ordinal, c3[i] = (uint32_t)(ordinal >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        _Pragma("omp simd") for (int i = 0; i < 16; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1, c3[i] = (uint32_t)p0, c0[i] = n0, c2[i] = n2;
        }
    }
    for (int i = 0; i < 16; i++) {
        words[4 * i] = c0[i], words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i], words[4 * i + 3] = c3[i];
    }
}

/* Logarithm of x in [2^-33, 1): 2 atanh((m - 1) / (m + 1)) of the mantissa m in [0.7, 1.42). */
static inline double log_inside(double x) {
    union {
        double d;
        uint64_t u;
    } v = {.d = x};
    const uint64_t shifted = v.u - 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    const double e = (double)((int32_t)(shifted >> 32) >> 20);
    v.u = (shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
    const double s = (v.d - 1) / (v.d + 1), z = s * s;
    double p = 1.0 / 23;
    p = p * z + 1.0 / 21, p = p * z + 1.0 / 19, p = p * z + 1.0 / 17, p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13, p = p * z + 1.0 / 11, p = p * z + 1.0 / 9, p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5, p = p * z + 1.0 / 3;
    return e * 0.6931471805599453 + (2 * s + 2 * s * z * p);
}

/* Standard normal numbers from 64 words, as mg_random_normal_pair makes them: in double, with
 * logarithm, sine and cosine by series, so that rounded to float they are the same. The angle is
 * word / 2^32 turns: the nearest quarter is exact, and an eighth at most is left. */
static void normal64(const uint32_t *words, float *out, double mean, double deviation) {
    _Pragma("omp simd") for (int i = 0; i < 32; i++) {
        const double inside = ((double)words[2 * i] + 0.5) * 0x1p-32;
        const double radius = sqrt(-2 * log_inside(inside));
        const uint32_t quarter = (words[2 * i + 1] + 0x20000000u) >> 30;
        const int32_t rest = (int32_t)(words[2 * i + 1] - (quarter << 30));
        const double a = (double)rest * (6.283185307179586 * 0x1p-32), z = a * a;
        double c = 1.0 / 20922789888000, s = 1.0 / 355687428096000;
        c = c * z - 1.0 / 87178291200, s = s * z - 1.0 / 1307674368000;
        c = c * z + 1.0 / 479001600, s = s * z + 1.0 / 6227020800;
        c = c * z - 1.0 / 3628800, s = s * z - 1.0 / 39916800;
        c = c * z + 1.0 / 40320, s = s * z + 1.0 / 362880;
        c = c * z - 1.0 / 720, s = s * z - 1.0 / 5040;
        c = c * z + 1.0 / 24, s = s * z + 1.0 / 120;
        c = c * z - 0.5, s = s * z - 1.0 / 6;
        c = c * z + 1, s = s * z * a + a;
        const double x = quarter & 1 ? s : c, y = quarter & 1 ? c : s;
        out[2 * i] = (float)(mean + deviation * (radius * (quarter == 1 || quarter == 2 ? -x : x)));
        out[2 * i + 1] = (float)(mean + deviation * (radius * (quarter & 2 ? -y : y)));
    }
}

const mg_loops TABLE = {
    .f32 =
        {
#define UNARY(name, rule, value, grad, doc) [MG_EW_##name] = name##_f32,
#define BINARY(name, rule, value, grad_a, grad_b, doc) [MG_EW_##name] = name##_f32,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) [MG_EW_##name] = name##_f32,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY
        },
    .f64 =
        {
#define UNARY(name, rule, value, grad, doc) [MG_EW_##name] = name##_f64,
#define BINARY(name, rule, value, grad_a, grad_b, doc) [MG_EW_##name] = name##_f64,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) [MG_EW_##name] = name##_f64,
#include "ops/elementwise.def"
        },
    .load_f32 = load_f32,
    .store_f32 = store_f32,
    .stream_f32 = stream_f32,
    .end_stream = end_stream,
    .turn = turn,
    .load_f64 = load_f64,
    .store_f64 = store_f64,
    .philox16 = philox16,
    .normal64 = normal64,
};
