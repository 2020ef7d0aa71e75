/* The steps of threaded code, see fused_threaded.h. The call of the next step is a jump where the
 * compiler optimises; without optimisation the steps nest, a few dozen deep at most. */
#include "device/cpu/simd/fused_threaded.h"
#include "device/cpu/simd/elementwise_float.h"
#include "device/cpu/simd/isa.h"
#include <math.h>
#include <stdint.h>

typedef mg_floats lanes;
typedef mg_loose_floats loose;

/* The vectors of a strip, r0, r1 ...: all are parameters of each step, so they stay in registers.
 * Shorter strips overlap better in the processor, longer ones need fewer jumps. */
#if MG_VECTOR >= 64
enum { STRIP = 4 * sizeof(lanes) };
#define EACH(F) F(r0, 0), F(r1, 1), F(r2, 2), F(r3, 3)
#else
enum { STRIP = 8 * sizeof(lanes) };
#define EACH(F) F(r0, 0), F(r1, 1), F(r2, 2), F(r3, 3), F(r4, 4), F(r5, 5), F(r6, 6), F(r7, 7)
#endif
/* What EACH(F) writes for the vector r, number k of the strip: a parameter, an argument, a load ...
 */
#define PARAMETER(r, k) lanes r
#define NONE(r, k) none
#define UNUSED(r, k) (void)r
#define SAME(r, k) r
#define LOAD(r, k) m[k]
#define STORE(r, k) m[k] = r
#define STREAM(r, k) MG_STREAM((float *)(m + k), r)

/* Bytes that arrays are prefetched ahead, so that memory and arithmetic overlap. Half and twice as
 * much are no better; without prefetching, Adam over 2.35 million weights takes a third longer. */
enum { AHEAD = 1024 };
_Static_assert(STRIP <= MG_STRIP * sizeof(float), "a strip fits into its place");

/* The code of a step: the strip, the step itself (the operands are in it and behind it), and the
 * strip's offset in bytes. */
typedef void step(EACH(PARAMETER), const mg_threaded_step *s, ptrdiff_t at);
#define STEP(name) static void name(EACH(PARAMETER), const mg_threaded_step *s, ptrdiff_t at)
/* The operand's strip: its address, plus the offset if the operand advances. */
#define PLACE(s) (void *)((s)->at + (at & (s)->moves))
/* Jumps to the step that is `steps` further on. */
#define GO_ON(steps, ...) ((step *)s[steps].code)(__VA_ARGS__, s + (steps), at)

/* ---- the ops ---- */

/* The strip as an array, for loops over its elements. The compiler keeps it in the registers. */
typedef union laid_down {
    lanes in[STRIP / sizeof(lanes)];
    float at[STRIP / sizeof(float)];
} laid_down;
#define LAY(r, k) strip.in[k] = r
#define TAKE(r, k) strip.in[k]
#define ELEMENTS _Pragma("omp simd") for (int i = 0; i < (int)(STRIP / sizeof(float)); i++)

/* An operand that a step selects from: in registers where MG_KEEP matters and they are enough. */
#ifdef __AVX512F__
MG_INLINE const float *kept(const void *place, laid_down *strip) {
    const loose *from = place;
    for (int k = 0; k < (int)(STRIP / sizeof(lanes)); k++) {
        lanes r = from[k];
        MG_KEEP(r);
        strip->in[k] = r;
    }
    return strip->at;
}
#define KEPT(s) kept(PLACE(s), &(laid_down){0})
#else
#define KEPT(s) PLACE(s)
#endif

/* Defines the step `name`: each element of the strip becomes `value`, an expression in the
 * variables declared last. m and o are the addresses of the operands that are not the strip. */
#define OP(name, steps, m_place, o_place, value, ...)                                              \
    STEP(name) {                                                                                   \
        const float *m = m_place, *o = o_place;                                                    \
        laid_down strip;                                                                           \
        EACH(LAY);                                                                                 \
        (void)m, (void)o;                                                                          \
        ELEMENTS {                                                                                 \
            const float __VA_ARGS__;                                                               \
            strip.at[i] = value;                                                                   \
        }                                                                                          \
        GO_ON(steps, EACH(TAKE));                                                                  \
    }
#define IT strip.at[i]
#define UNARY(name, rule, value, grad, ...) OP(name##_step, 1, NULL, NULL, value, x = IT)
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    OP(name##_with, 1, PLACE(s), NULL, value, a = IT, b = m[i])                                    \
    OP(name##_from, 1, PLACE(s), NULL, value, a = m[i], b = IT)                                    \
    OP(name##_with_one, 1, PLACE(s), NULL, value, a = IT, b = m[0])                                \
    OP(name##_from_one, 1, PLACE(s), NULL, value, a = m[0], b = IT)
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    OP(name##_first, 2, KEPT(s), KEPT(s + 1), value, a = IT, b = m[i], c = o[i])                   \
    OP(name##_second, 2, PLACE(s), KEPT(s + 1), value, a = m[i], b = IT, c = o[i])                 \
    OP(name##_third, 2, PLACE(s), KEPT(s + 1), value, a = m[i], b = o[i], c = IT)
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#undef TERNARY

/* ---- loads, stores, the end ---- */

/* Replaces the strip by one from memory. */
STEP(load) {
    const loose *m = PLACE(s);
    EACH(UNUSED);
    GO_ON(1, EACH(LOAD));
}

/* Writes the strip to memory and keeps it. */
STEP(store) {
    loose *m = PLACE(s);
    EACH(STORE);
    GO_ON(1, EACH(SAME));
}

/* The same past the caches. */
STEP(stream) {
    loose *m = PLACE(s);
    EACH(STREAM);
    GO_ON(1, EACH(SAME));
}

/* Returns to `run`. */
STEP(end) {
    EACH(UNUSED), (void)s, (void)at;
}

/* `at` is the offset of the strip in bytes; PLACE masks it for operands that do not advance. The
 * first step gets empty registers, which it loads. */
static void run(const mg_threaded_step *s, int strips, const char *const *arrays, int n_arrays) {
    const lanes none = {0};
    for (ptrdiff_t at = 0; at < (ptrdiff_t)strips * STRIP; at += STRIP) {
        for (int i = 0; i < n_arrays; i++)
            for (int k = 0; k < STRIP; k += 64) __builtin_prefetch(arrays[i] + at + AHEAD + k);
        ((step *)s->code)(EACH(NONE), s, at);
    }
}

#define CODE(name) ((mg_threaded_code *)(name))
const mg_simd_threaded MG_ISA_NAME(mg_simd_threaded) = {
    .strip = STRIP / sizeof(float),
    .op =
        {
#define UNARY(name, rule, value, grad, ...) [MG_EW_##name] = {CODE(name##_step)},
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    [MG_EW_##name] = {CODE(name##_with), CODE(name##_from), CODE(name##_with_one),                 \
                      CODE(name##_from_one)},
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)                                    \
    [MG_EW_##name] = {CODE(name##_first), CODE(name##_second), CODE(name##_third)},
#include "ops/elementwise.def"
        },
    .load = CODE(load),
    .store = CODE(store),
    .stream = CODE(stream),
    .end = CODE(end),
    .run = run,
};
