/* The steps of threaded code, see fused_threaded.h, on strips of float and of double: fused_steps.h
 * is included twice, with REAL set to the type and NAME(x) to a name with the type's suffix.
 *
 * The expressions are written with the names of elementwise_float.h (EXP, LOG ...), whose functions
 * vectorise, or with those of ops/elementwise_double.h, which are libm's functions. */
#include "device/cpu/simd/fused_threaded.h"
#include "device/cpu/simd/conversion_loops.h"
#include "device/cpu/simd/isa.h"
#include <math.h>
#include <stdint.h>

/* The vectors of a strip, r0, r1 ...: all are parameters of each step, so they stay in registers.
 * Shorter strips overlap better in the processor, longer ones need fewer jumps. */
#if MG_VECTOR >= 64
enum { VECTORS = 4 };
#define EACH(F) F(r0, 0), F(r1, 1), F(r2, 2), F(r3, 3)
#else
enum { VECTORS = 8 };
#define EACH(F) F(r0, 0), F(r1, 1), F(r2, 2), F(r3, 3), F(r4, 4), F(r5, 5), F(r6, 6), F(r7, 7)
#endif
enum { STRIP = VECTORS * MG_VECTOR };
_Static_assert(STRIP <= (int)MG_STRIP_BYTES, "a strip fits into its place");

/* What EACH(F) writes for the vector r, number k of the strip: a parameter, an argument, a load ...
 */
#define PARAMETER(r, k) NAME(lanes) r
#define NONE(r, k) none
#define UNUSED(r, k) (void)r
#define SAME(r, k) r
#define LOAD(r, k) m[k]
#define STORE(r, k) m[k] = r
#define STREAM(r, k) MG_STREAM((float *)(m + k), (mg_floats)r)
#define LAY(r, k) strip.in[k] = r
#define TAKE(r, k) strip.in[k]

/* Bytes that arrays are prefetched ahead, so that memory and arithmetic overlap. Half and twice as
 * much are no better; without prefetching, Adam over 2.35 million weights takes a third longer. */
enum { AHEAD = 1024 };

/* A stack protector would cost each strip a few instructions. Steps write only to their own strip,
 * at constant offsets. */
#ifdef __has_attribute
#if __has_attribute(no_stack_protector)
#define UNPROTECTED __attribute__((no_stack_protector))
#endif
#endif
#ifndef UNPROTECTED
#define UNPROTECTED
#endif

#define CODE(name) ((mg_threaded_code *)(NAME(name)))

#define REAL float
#define NAME(x) x##_f32
#define TYPES(F) F(BOOL, uint8_t) F(U8, uint8_t) F(BF16, uint16_t) F(F16, uint16_t)
#define OWN_TYPE MG_F32
#include "device/cpu/simd/elementwise_float.h"
#include "device/cpu/simd/fused_steps.h"
#undef REAL
#undef NAME
#undef TYPES
#undef OWN_TYPE
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

#define REAL double
#define NAME(x) x##_f64
#define TYPES(F)                                                                                   \
    F(BOOL, uint8_t)                                                                               \
    F(U8, uint8_t)                                                                                 \
    F(I32, int32_t)                                                                                \
    F(I64, int64_t) F(BF16, uint16_t) F(F16, uint16_t) F(F32, float)
#define OWN_TYPE MG_F64
#include "ops/elementwise_double.h"
#include "device/cpu/simd/fused_steps.h"
