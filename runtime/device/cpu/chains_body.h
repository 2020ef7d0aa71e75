/* The steps of chains: included once for each instruction set with TABLE set to the name of the
 * table to define. The call of the next step is a jump where the compiler optimises. */
#include "device/cpu/chains.h"
#include <math.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
typedef __m512 lanes;
#define ROOT _mm512_sqrt_ps
#define PUT_PAST _mm512_stream_ps
#elif defined(__AVX__)
typedef __m256 lanes;
#define ROOT _mm256_sqrt_ps
#define PUT_PAST _mm256_stream_ps
#elif defined(__SSE2__)
typedef __m128 lanes;
#define ROOT _mm_sqrt_ps
#define PUT_PAST _mm_stream_ps
#else
typedef float lanes __attribute__((vector_size(16)));
#define PUT_PAST(place, x) (void)(*(lanes *)(void *)(place) = (x))
static inline lanes ROOT(lanes x) {
    for (int i = 0; i < 4; i++) x[i] = sqrtf(x[i]);
    return x;
}
#endif
typedef int32_t ints __attribute__((vector_size(sizeof(lanes))));
typedef lanes loose __attribute__((aligned(sizeof(float)), may_alias));

/* What holds a strip. Shorter strips overlap better, longer ones need fewer jumps. */
#ifdef __AVX512F__
enum { STRIP = 4 * sizeof(lanes) };
#define EACH(F, op) F(op, a, 0), F(op, b, 1), F(op, c, 2), F(op, d, 3)
#else
enum { STRIP = 8 * sizeof(lanes) };
#define EACH(F, op)                                                                                \
    F(op, a, 0), F(op, b, 1), F(op, c, 2), F(op, d, 3), F(op, e, 4), F(op, f, 5), F(op, g, 6),     \
        F(op, h, 7)
#endif
#define PARAMETER(op, r, k) lanes r
#define NONE(op, r, k) none
#define UNUSED(op, r, k) (void)r
#define SAME(op, r, k) r
#define LOAD(op, r, k) m[k]
#define STORE(op, r, k) m[k] = r
#define STREAM(op, r, k) PUT_PAST((float *)(m + k), r)
#define OF(op, r, k) op##_of(r)
#define WITH(op, r, k) op##_of(r, m[k])
#define FROM(op, r, k) op##_of(m[k], r)
#define WITH_ONE(op, r, k) op##_of(r, m[0])
#define FROM_ONE(op, r, k) op##_of(m[0], r)

/* How far ahead memory is asked for what comes: memory and arithmetic go on together. Half and
 * twice as far are no better; without it Adam over 2.35 million weights takes a third longer. */
enum { AHEAD = 1024 };
_Static_assert(STRIP <= MG_STRIP * sizeof(float), "a strip fits into its place");

typedef void step(EACH(PARAMETER, ), const mg_chain_step *s, ptrdiff_t at);
#define STEP(name) static void name(EACH(PARAMETER, ), const mg_chain_step *s, ptrdiff_t at)
#define OPERAND loose *m = (loose *)(void *)(s->at + (at & s->moves))
#define NEXT(...) ((step *)s[1].code)(__VA_ARGS__, s + 1, at)

#define UNARY(op, value)                                                                           \
    static inline lanes op##_of(lanes x) {                                                         \
        return value;                                                                              \
    }                                                                                              \
    STEP(op##_step) {                                                                              \
        NEXT(EACH(OF, op));                                                                        \
    }
#define BINARY(op, value)                                                                          \
    static inline lanes op##_of(lanes x, lanes y) {                                                \
        return value;                                                                              \
    }                                                                                              \
    STEP(op##_with) {                                                                              \
        const OPERAND;                                                                             \
        NEXT(EACH(WITH, op));                                                                      \
    }                                                                                              \
    STEP(op##_from) {                                                                              \
        const OPERAND;                                                                             \
        NEXT(EACH(FROM, op));                                                                      \
    }                                                                                              \
    STEP(op##_with_one) {                                                                          \
        const OPERAND;                                                                             \
        NEXT(EACH(WITH_ONE, op));                                                                  \
    }                                                                                              \
    STEP(op##_from_one) {                                                                          \
        const OPERAND;                                                                             \
        NEXT(EACH(FROM_ONE, op));                                                                  \
    }
#define PICK(test, x, y) (lanes)(((ints)(x) & (test)) | ((ints)(y) & ~(test)))
#define TRUTH(test) PICK(test, (lanes){0} + 1, (lanes){0})
#define IS(x) ((x) != 0)

UNARY(neg, -x)
UNARY(abs, (lanes)(INT32_MAX &(ints)x))
UNARY(square, x *x)
UNARY(sqrt, ROOT(x))
UNARY(relu, PICK(x < 0, (lanes){0}, x))
UNARY(logical_not, TRUTH(x == 0))
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(maximum, PICK((ints)(x != x) | (ints)(x > y), x, y))
BINARY(minimum, PICK((ints)(x != x) | (ints)(x < y), x, y))
BINARY(gt, TRUTH(x > y))
BINARY(ge, TRUTH(x >= y))
BINARY(lt, TRUTH(x < y))
BINARY(le, TRUTH(x <= y))
BINARY(eq, TRUTH(x == y))
BINARY(ne, TRUTH(x != y))
BINARY(logical_and, TRUTH(IS(x) & IS(y)))
BINARY(logical_or, TRUTH(IS(x) | IS(y)))

/* The condition, or what is picked if it is true or if not, is the strip; the other two are the
 * operands of this step and of the next one, which is skipped. */
#define OPERANDS                                                                                   \
    const loose *m = (const loose *)(const void *)(s->at + (at & s->moves));                       \
    const loose *o = (const loose *)(const void *)(s[1].at + (at & s[1].moves))
#define AFTER(...) ((step *)s[2].code)(__VA_ARGS__, s + 2, at)
#define WHERE_IT(op, r, k) PICK(IS(r), m[k], o[k])
#define WHERE_THEN(op, r, k) PICK(IS(m[k]), r, o[k])
#define WHERE_ELSE(op, r, k) PICK(IS(m[k]), o[k], r)
STEP(where_it) {
    OPERANDS;
    AFTER(EACH(WHERE_IT, ));
}
STEP(where_then) {
    OPERANDS;
    AFTER(EACH(WHERE_THEN, ));
}
STEP(where_else) {
    OPERANDS;
    AFTER(EACH(WHERE_ELSE, ));
}

STEP(load) {
    const OPERAND;
    EACH(UNUSED, );
    NEXT(EACH(LOAD, ));
}

STEP(store) {
    OPERAND;
    EACH(STORE, );
    NEXT(EACH(SAME, ));
}

STEP(end) {
    EACH(UNUSED, ), (void)s, (void)at;
}

/* Past the caches. */
STEP(stream) {
    OPERAND;
    EACH(STREAM, );
    NEXT(EACH(SAME, ));
}

static void run(const mg_chain_step *s, int strips, const char *const *arrays, int n_arrays) {
    const lanes none = {0};
    for (ptrdiff_t at = 0; at < (ptrdiff_t)strips * STRIP; at += STRIP) {
        for (int i = 0; i < n_arrays; i++)
            for (int k = 0; k < STRIP; k += 64) __builtin_prefetch(arrays[i] + at + AHEAD + k);
        ((step *)s->code)(EACH(NONE, ), s, at);
    }
}

#define CODE(name) ((mg_chain_code *)(name))
#define ONE(op) [MG_EW_##op] = {CODE(op##_step), CODE(op##_step), CODE(op##_step), CODE(op##_step)}
#define TWO(op)                                                                                    \
    [MG_EW_##op] = {CODE(op##_with), CODE(op##_from), CODE(op##_with_one), CODE(op##_from_one)}
const mg_chains TABLE = {
    .strip = STRIP / sizeof(float),
    .op = {ONE(neg), ONE(abs), ONE(square), ONE(sqrt), ONE(relu), ONE(logical_not), TWO(add),
           TWO(sub), TWO(mul), TWO(div), TWO(maximum), TWO(minimum), TWO(gt), TWO(ge), TWO(lt),
           TWO(le), TWO(eq), TWO(ne), TWO(logical_and), TWO(logical_or),
           [MG_EW_where] = {CODE(where_it), CODE(where_then), CODE(where_else)}},
    .load = CODE(load),
    .store = CODE(store),
    .stream = CODE(stream),
    .end = CODE(end),
    .run = run,
};
