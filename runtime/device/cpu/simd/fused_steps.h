/* The steps of threaded code on strips of REAL; fused_threaded.c includes this file once for each
 * type. The call of the next step is a jump where the compiler optimises; without optimisation the
 * steps nest, a few dozen deep at most. */

/* A vector, and one at any address. */
typedef REAL NAME(lanes) __attribute__((vector_size(MG_VECTOR)));
typedef NAME(lanes) NAME(loose) __attribute__((aligned(sizeof(REAL)), may_alias));

/* The strip as an array, for loops over its elements. The compiler keeps it in the registers. */
typedef union NAME(laid_down) {
    NAME(lanes) in[VECTORS];
    REAL at[STRIP / sizeof(REAL)];
} NAME(laid_down);

/* The code of a step. Its parameters: the strip; the step itself, with the operand (those of later
 * steps are behind it); and the strip's offset in bytes. */
typedef void NAME(step)(EACH(PARAMETER), const mg_threaded_step *s, ptrdiff_t at);
#define STEP(name)                                                                                 \
    UNPROTECTED static void NAME(name)(EACH(PARAMETER), const mg_threaded_step *s, ptrdiff_t at)
/* The operand's strip in memory. */
#define PLACE(s) (void *)((s)->at + (at & (s)->moves))
/* The strip of an operand with elements of another size, which is never a row. */
#define PLACE_OF(s, size) (void *)((s)->at + (size_t)(at & (s)->moves) / sizeof(REAL) * (size))
/* Jumps to the step that is `steps` further on. */
#define GO_ON(steps, ...) ((NAME(step) *)s[steps].code)(__VA_ARGS__, s + (steps), at)

/* ---- the ops ---- */

enum { NAME(ELEMENTS) = STRIP / sizeof(REAL) };

/* An operand of a selection (`where`). With AVX-512, which has enough registers, it is loaded into
 * them first: see MG_KEEP in isa.h. */
#ifdef __AVX512F__
MG_INLINE const REAL *NAME(kept)(const void *place, NAME(laid_down) * strip) {
    const NAME(loose) *from = place;
    for (int k = 0; k < VECTORS; k++) {
        NAME(lanes) r = from[k];
        MG_KEEP(r);
        strip->in[k] = r;
    }
    return strip->at;
}
#define KEPT(s) NAME(kept)(PLACE(s), &(NAME(laid_down)){0})
#else
#define KEPT(s) PLACE(s)
#endif

/* Defines the step `name`: each element of the strip becomes `value`, an expression in the
 * variables that the last arguments declare. m and o are the addresses of the operands that are not
 * in the strip. */
#define OP(name, steps, m_place, o_place, value, ...)                                              \
    STEP(name) {                                                                                   \
        const REAL *m = m_place, *o = o_place;                                                     \
        NAME(laid_down) strip;                                                                     \
        EACH(LAY);                                                                                 \
        (void)m, (void)o;                                                                          \
        _Pragma("omp simd") for (int i = 0; i < NAME(ELEMENTS); i++) {                             \
            const REAL __VA_ARGS__;                                                                \
            strip.at[i] = value;                                                                   \
        }                                                                                          \
        GO_ON(steps, EACH(TAKE));                                                                  \
    }

/* Defines the loop `name`: `value` of n elements in memory. */
#define LOOP(name, value, ...)                                                                     \
    static void NAME(name)(void *to, const void *first, const void *second, int n) {               \
        REAL *out = to;                                                                            \
        const REAL *pa = first, *pb = second;                                                      \
        (void)pb;                                                                                  \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                          \
            const REAL __VA_ARGS__;                                                                \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define IT strip.at[i]
#define UNARY(name, rule, value, grad, ...)                                                        \
    OP(name##_step, 1, NULL, NULL, value, x = IT)                                                  \
    LOOP(name##_loop, value, x = pa[i])
#define BINARY(name, rule, value, grad_a, grad_b, ...)                                             \
    LOOP(name##_loop, value, a = pa[i], b = pb[i])                                                 \
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

/* Steps between the strip and memory of a dtype. */
#define MOVES(type, element)                                                                       \
    STEP(load_##type) {                                                                            \
        NAME(laid_down) strip;                                                                     \
        EACH(UNUSED);                                                                              \
        NAME(mg_load)(strip.at, PLACE_OF(s, sizeof(element)), MG_##type, NAME(ELEMENTS));          \
        GO_ON(1, EACH(TAKE));                                                                      \
    }                                                                                              \
    STEP(store_##type) {                                                                           \
        NAME(laid_down) strip;                                                                     \
        EACH(LAY);                                                                                 \
        NAME(mg_store)(PLACE_OF(s, sizeof(element)), strip.at, MG_##type, NAME(ELEMENTS));         \
        GO_ON(1, EACH(SAME));                                                                      \
    }                                                                                              \
    STEP(round_##type) {                                                                           \
        NAME(laid_down) strip;                                                                     \
        element stored[NAME(ELEMENTS)];                                                            \
        EACH(LAY);                                                                                 \
        NAME(mg_store)(stored, strip.at, MG_##type, NAME(ELEMENTS));                               \
        NAME(mg_load)(strip.at, stored, MG_##type, NAME(ELEMENTS));                                \
        GO_ON(1, EACH(TAKE));                                                                      \
    }
TYPES(MOVES)

/* Loads a strip of REAL, which may be a part of a row. */
STEP(load) {
    const NAME(loose) *m = PLACE(s);
    EACH(UNUSED);
    GO_ON(1, EACH(LOAD));
}

/* Stores the strip as REAL, and keeps it in the registers. */
STEP(store) {
    NAME(loose) *m = PLACE(s);
    EACH(STORE);
    GO_ON(1, EACH(SAME));
}

/* The same with non-temporal stores. */
STEP(stream) {
    NAME(loose) *m = PLACE(s);
    EACH(STREAM);
    GO_ON(1, EACH(SAME));
}

/* Returns to `run`. */
STEP(end) {
    EACH(UNUSED), (void)s, (void)at;
}

/* The first step gets zeros as its strip; it always loads another. */
static void NAME(run)(mg_threaded_step *s, const mg_threaded_strips *strips) {
    const NAME(lanes) none = {0};
    const ptrdiff_t period = strips->period, all = strips->n * STRIP;
    ptrdiff_t row = strips->row;
    for (ptrdiff_t at = 0; at < all; at += STRIP) {
        for (int i = 0; i < strips->n_arrays; i++)
            for (int k = 0; k < STRIP; k += 64)
                __builtin_prefetch(strips->arrays[i] + at + AHEAD + k);
        ((NAME(step) *)s->code)(EACH(NONE), s, at);
        if (strips->n_row_steps == 0) continue;
        const ptrdiff_t on = row + STRIP < period ? STRIP : STRIP - period;
        row += on;
        for (int i = 0; i < strips->n_row_steps; i++) s[strips->row_step[i]].at += on;
    }
}

#define LOADS(type, element) [MG_##type] = CODE(load_##type),
#define STORES(type, element) [MG_##type] = CODE(store_##type),
#define ROUNDS(type, element) [MG_##type] = CODE(round_##type),
const mg_simd_threaded MG_ISA_NAME(NAME(mg_simd_threaded)) = {
    .strip = NAME(ELEMENTS),
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
    .loop =
        {
#undef UNARY
#undef BINARY
#undef TERNARY
#define UNARY(name, rule, value, grad, ...) [MG_EW_##name] = NAME(name##_loop),
#define BINARY(name, rule, value, grad_a, grad_b, ...) [MG_EW_##name] = NAME(name##_loop),
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...)
#include "ops/elementwise.def"
        },
    .load = {TYPES(LOADS)[OWN_TYPE] = CODE(load)},
    .store = {TYPES(STORES)[OWN_TYPE] = CODE(store)},
    .round = {TYPES(ROUNDS)},
    .stream = CODE(stream),
    .end = CODE(end),
    .run = NAME(run),
};

#undef UNARY
#undef BINARY
#undef TERNARY
#undef STEP
#undef PLACE
#undef PLACE_OF
#undef GO_ON
#undef KEPT
#undef OP
#undef IT
#undef MOVES
#undef LOADS
#undef LOOP
#undef STORES
#undef ROUNDS
