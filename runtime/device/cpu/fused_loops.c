/* Loops over registers, generated from elementwise.def: float ones that vectorise, double ones on
 * libm. What has no polynomial of its own calls libm in float too. */
#include "device/cpu/fused_loops.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vectormath.h"

/* ---- float ---- */

#define T float
#define K(v) ((float)(v))
#define EXP mg_exp_f
#define EXPM1 mg_expm1_f
#define LOG mg_log_f
#define LOG1P mg_log1p_f
#define SIN sinf
#define COS cosf
#define TAN tanf
#define ASIN asinf
#define ACOS acosf
#define ATAN atanf
#define SINH sinhf
#define COSH coshf
#define TANH mg_tanh_f
#define SQRT sqrtf
#define ERF erff
#define FLOOR floorf
#define CEIL ceilf
#define ROUND rintf
#define ABS fabsf
#define POW powf
#define ATAN2 atan2f
#define NAME(name) name##_f32

#define HEAD(name)                                                                                 \
    MG_CLONES static void NAME(name)(void *y_, const void *a_, const void *b_, const void *c_,     \
                                     int64_t n) {                                                  \
        T *restrict y = y_;                                                                        \
        const T *pa = a_, *pb = b_, *pc = c_;                                                      \
        (void)pb, (void)pc;                                                                        \
        for (int64_t i = 0; i < n; i++) {
#define UNARY(name, rule, value, grad, doc)                                                        \
    HEAD(name) const T x = pa[i];                                                                  \
    y[i] = value;                                                                                  \
    }                                                                                              \
    }
#define BINARY(name, rule, value, grad_a, grad_b, doc)                                             \
    HEAD(name) const T a = pa[i], b = pb[i];                                                       \
    y[i] = value;                                                                                  \
    }                                                                                              \
    }
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc)                                    \
    HEAD(name) const T a = pa[i], b = pb[i], c = pc[i];                                            \
    y[i] = value;                                                                                  \
    }                                                                                              \
    }
#include "ops/elementwise.def"

/* ---- double ---- */

#undef T
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
#undef NAME
#define T double
#define K(v) ((double)(v))
#define EXP exp
#define EXPM1 expm1
#define LOG log
#define LOG1P log1p
#define SIN sin
#define COS cos
#define TAN tan
#define ASIN asin
#define ACOS acos
#define ATAN atan
#define SINH sinh
#define COSH cosh
#define TANH tanh
#define SQRT sqrt
#define ERF erf
#define FLOOR floor
#define CEIL ceil
#define ROUND rint
#define ABS fabs
#define POW pow
#define ATAN2 atan2
#define NAME(name) name##_f64
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY

/* ---- conversions ---- */

#define LOAD(name, type, value)                                                                    \
    MG_CLONES static void load_##name(float *restrict dst, const type *src, int64_t n) {           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const type v = src[i];                                                                 \
            dst[i] = value;                                                                        \
        }                                                                                          \
    }
LOAD(bool, uint8_t, v ? 1.0f : 0.0f)
LOAD(u8, uint8_t, (float)v)
LOAD(bf16, uint16_t, mg_bf16_to_f32(v))
LOAD(f16, uint16_t, mg_f16_to_f32(v))
#undef LOAD

#define STORE(name, type, value)                                                                   \
    MG_CLONES static void store_##name(type *restrict dst, const float *src, int64_t n) {          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float v = src[i];                                                                \
            dst[i] = value;                                                                        \
        }                                                                                          \
    }
STORE(bool, uint8_t, v != 0)
STORE(u8, uint8_t, (uint8_t)(int32_t)(v > 0 ? (v < 255 ? v : 255.0f) : 0.0f))
STORE(bf16, uint16_t, mg_f32_to_bf16(v))
STORE(f16, uint16_t, mg_f32_to_f16(v))
#undef STORE

void mg_registers_load(void *dst, const void *src, mg_dtype t, int64_t n, bool wide) {
    if (wide) {
        mg_to_double(dst, src, t, (size_t)n);
        return;
    }
    switch (t) {
    case MG_BOOL: load_bool(dst, src, n); break;
    case MG_U8: load_u8(dst, src, n); break;
    case MG_BF16: load_bf16(dst, src, n); break;
    case MG_F16: load_f16(dst, src, n); break;
    default: memcpy(dst, src, (size_t)n * sizeof(float)); break;
    }
}

void mg_registers_store(void *dst, const void *src, mg_dtype t, int64_t n, bool wide) {
    if (wide) {
        mg_from_double(dst, src, t, (size_t)n);
        return;
    }
    switch (t) {
    case MG_BOOL: store_bool(dst, src, n); break;
    case MG_U8: store_u8(dst, src, n); break;
    case MG_BF16: store_bf16(dst, src, n); break;
    case MG_F16: store_f16(dst, src, n); break;
    default: memcpy(dst, src, (size_t)n * sizeof(float)); break;
    }
}

void mg_registers_round(void *registers, mg_dtype t, int64_t n, bool wide) {
    uint64_t typed[128];
    char *at = registers;
    const size_t width = wide ? sizeof(double) : sizeof(float);
    for (int64_t done = 0; done < n; done += 128) {
        const int64_t part = n - done < 128 ? n - done : 128;
        char *place = at + (size_t)done * width;
        mg_registers_store(typed, place, t, part, wide);
        mg_registers_load(place, typed, t, part, wide);
    }
}

void mg_registers_fill(void *dst, double value, int64_t n, bool wide) {
    if (wide)
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = value;
    else
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)value;
}

/* ---- tables ---- */

#define UNARY(name, rule, value, grad, doc) [MG_EW_##name] = name##_f32,
#define BINARY(name, rule, value, grad_a, grad_b, doc) [MG_EW_##name] = name##_f32,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) [MG_EW_##name] = name##_f32,
const mg_loop_fn mg_loops_f32[MG_N_ELEMENTWISE] = {
#include "ops/elementwise.def"
};
#undef UNARY
#undef BINARY
#undef TERNARY

#define UNARY(name, rule, value, grad, doc) [MG_EW_##name] = name##_f64,
#define BINARY(name, rule, value, grad_a, grad_b, doc) [MG_EW_##name] = name##_f64,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) [MG_EW_##name] = name##_f64,
const mg_loop_fn mg_loops_f64[MG_N_ELEMENTWISE] = {
#include "ops/elementwise.def"
};
