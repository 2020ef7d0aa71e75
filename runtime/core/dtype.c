/* Names, sizes, promotion and conversion of element types.
 *
 * Conversions go through double, except where rounding twice would give another result. */
#include "core/dtype.h"
#include <math.h>
#include <string.h>

/* Keras's name, a short alias and the size in bytes, in the order of the enum. */
static const struct {
    const char *name, *alias;
    size_t size;
} types[MG_N_DTYPES] = {
    [MG_BOOL] = {"bool", "boolean", 1},  [MG_U8] = {"uint8", "u8", 1},
    [MG_I32] = {"int32", "i32", 4},      [MG_I64] = {"int64", "i64", 8},
    [MG_BF16] = {"bfloat16", "bf16", 2}, [MG_F16] = {"float16", "f16", 2},
    [MG_F32] = {"float32", "f32", 4},    [MG_F64] = {"float64", "f64", 8},
};

/* Accepts any number: messages may name a damaged file's type. */
const char *mg_dtype_name(mg_dtype t) {
    return (unsigned)t < MG_N_DTYPES ? types[t].name : "unknown";
}

/* The table's names first, then the usual spellings of other libraries. */
int mg_dtype_from_name(const char *name) {
    for (int i = 0; i < MG_N_DTYPES; i++)
        if (strcmp(name, types[i].name) == 0 || strcmp(name, types[i].alias) == 0) return i;
    if (strcmp(name, "double") == 0) return MG_F64;
    if (strcmp(name, "float") == 0) return MG_F32;
    if (strcmp(name, "half") == 0) return MG_F16;
    if (strcmp(name, "int") == 0) return MG_I32;
    return -1;
}

/* Bytes of one element. */
size_t mg_dtype_size(mg_dtype t) {
    return types[t].size;
}

/* The enum is in promotion order; only float16 with bfloat16 has a wider common type. */
mg_dtype mg_dtype_promote(mg_dtype a, mg_dtype b) {
    if ((a == MG_F16 && b == MG_BF16) || (a == MG_BF16 && b == MG_F16)) return MG_F32;
    return a > b ? a : b;
}

/* Round to nearest even, by integer arithmetic on the bits: NaN keeps its sign, numbers from 65520
 * on become infinity. */
uint16_t mg_f32_to_f16(float v) {
    union {
        float f;
        uint32_t u;
    } x = {v};
    const uint32_t sign = (x.u >> 16) & 0x8000u, magnitude = x.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (magnitude < 0x38800000u) { /* subnormal: let the adder round at 2^-24 */
        union {
            uint32_t u;
            float f;
        } m = {magnitude};
        return (uint16_t)(sign | (uint32_t)lrintf(m.f * 0x1p24f));
    }
    /* Adds just under half of the last kept bit, or half if that bit is set: ties go to even. */
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* Exact. Exponent 0 means a subnormal number, exponent 31 infinity or NaN. */
float mg_f16_to_f32(uint16_t v) {
    const uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 31u, m = v & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } x;
    if (exponent == 0) {
        const float small = (float)m * 0x1p-24f;
        return sign ? -small : small;
    }
    x.u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (m << 13);
    return x.f;
}

/* Rounds a double to a float "to odd": if it is not exact, the last bit is set. A later rounding to
 * f16 or bf16 then gives what rounding the double directly would; rounding to nearest twice would
 * err at halfway cases. */
static float to_odd(double v) {
    float f = (float)v;
    if ((double)f == v || !isfinite(f)) return f;
    union {
        float f;
        uint32_t u;
    } x = {f};
    if (fabs((double)f) > fabs(v)) x.u--; /* towards zero: now f is v cut off */
    x.u |= 1u;
    return x.f;
}

/* NaN becomes 0; a number out of range becomes the nearest bound. low and high are min and max as
 * doubles. */
static int64_t saturate(double v, double low, double high, int64_t min, int64_t max) {
    if (v != v) return 0;
    return v <= low ? min : v >= high ? max : (int64_t)v;
}

static int64_t clamp(int64_t v, int64_t min, int64_t max) {
    return v < min ? min : v > max ? max : v;
}

/* Loops over n elements: EACH writes typed elements from src; LOAD writes doubles, and LOAD_INT64
 * writes int64, from typed elements. */
#define EACH(type, expression)                                                                     \
    for (size_t i = 0; i < n; i++) ((type *)dst)[i] = (expression)
#define LOAD_AS(number, type, expression)                                                          \
    for (size_t i = 0; i < n; i++) {                                                               \
        const type v = ((const type *)src)[i];                                                     \
        dst[i] = (number)(expression);                                                             \
    }
#define LOAD(type, expression) LOAD_AS(double, type, expression)
#define LOAD_INT64(type, expression) LOAD_AS(int64_t, type, expression)

/* Every type but int64 is represented exactly. */
void mg_to_double(double *dst, const void *src, mg_dtype t, size_t n) {
    switch (t) {
    case MG_BOOL: LOAD(uint8_t, v != 0) break;
    case MG_U8: LOAD(uint8_t, v) break;
    case MG_I32: LOAD(int32_t, v) break;
    case MG_I64: LOAD(int64_t, v) break;
    case MG_BF16: LOAD(uint16_t, mg_bf16_to_f32(v)) break;
    case MG_F16: LOAD(uint16_t, mg_f16_to_f32(v)) break;
    case MG_F32: LOAD(float, v) break;
    case MG_F64: LOAD(double, v) break;
    case MG_N_DTYPES: break;
    }
}

/* 16-bit floats are rounded through to_odd, to avoid rounding twice. */
void mg_from_double(void *dst, const double *src, mg_dtype t, size_t n) {
    switch (t) {
    case MG_BOOL: EACH(uint8_t, src[i] != 0); break;
    case MG_U8: EACH(uint8_t, (uint8_t)saturate(src[i], 0, 255, 0, 255)); break;
    case MG_I32:
        EACH(int32_t, (int32_t)saturate(src[i], INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX));
        break;
    case MG_I64: EACH(int64_t, saturate(src[i], -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)); break;
    case MG_BF16: EACH(uint16_t, mg_f32_to_bf16(to_odd(src[i]))); break;
    case MG_F16: EACH(uint16_t, mg_f32_to_f16(to_odd(src[i]))); break;
    case MG_F32: EACH(float, (float)src[i]); break;
    case MG_F64: EACH(double, src[i]); break;
    case MG_N_DTYPES: break;
    }
}

void mg_to_int64(int64_t *dst, const void *src, mg_dtype t, size_t n) {
    switch (t) {
    case MG_BOOL: LOAD_INT64(uint8_t, v != 0) break;
    case MG_U8: LOAD_INT64(uint8_t, v) break;
    case MG_I32: LOAD_INT64(int32_t, v) break;
    case MG_I64: memcpy(dst, src, n * sizeof *dst); break;
    default: break;
    }
}

void mg_from_int64(void *dst, const int64_t *src, mg_dtype t, size_t n) {
    switch (t) {
    case MG_BOOL: EACH(uint8_t, src[i] != 0); break;
    case MG_U8: EACH(uint8_t, (uint8_t)clamp(src[i], 0, UINT8_MAX)); break;
    case MG_I32: EACH(int32_t, (int32_t)clamp(src[i], INT32_MIN, INT32_MAX)); break;
    case MG_I64: memcpy(dst, src, n * sizeof *src); break;
    default: break;
    }
}

/* To t and back: eight bytes hold an element of any type. */
double mg_dtype_round(mg_dtype t, double v) {
    uint64_t place[1];
    mg_from_double(place, &v, t, 1);
    mg_to_double(&v, place, t, 1);
    return v;
}
