/* The inner loops of the cpu device: those compiled for AVX2 and AVX-512 compute what the baseline
 * ones compute. All sets that this processor runs are checked. */
#include "core/dtype.h"
#include "device/cpu/simd/simd.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { N = 3 * MG_STRIP };

static const mg_simd *sets[3]; /* those of this processor, baseline first */
static int n_sets;
static float a[N], b[N], c[N];
static double wide[3][N]; /* a, b and c in double */

/* Operands: random numbers in [-4, 4), with special values mixed in so that all pairs occur. */
static int fill(void **state) {
    static const float special[] = {0,    -0.0f, 1,        -1,        1e-45f, 1e-38f, 3e38f, -3e38f,
                                    0.5f, 2.5f,  INFINITY, -INFINITY, NAN,    65504,  65520, 255};
    uint32_t random = 1;
    (void)state;
    n_sets = mg_simd_available(sets);
    for (int i = 0; i < n_sets / 2; i++) {
        const mg_simd *wider = sets[i];
        sets[i] = sets[n_sets - 1 - i];
        sets[n_sets - 1 - i] = wider;
    }
    for (int i = 0; i < N; i++) {
        float *const arrays[] = {a, b, c};
        for (int k = 0; k < 3; k++) {
            random = random * 1664525u + 1013904223u;
            arrays[k][i] = (float)(random >> 8) * 0x1p-21f - 4;
        }
        if (i % 3 == 0) a[i] = special[i / 3 % 16];
        if (i % 5 == 0) b[i] = special[i / 5 % 16];
    }
    for (int i = 0; i < N; i++) wide[0][i] = a[i], wide[1][i] = b[i], wide[2][i] = c[i];
    return 0;
}

/* Equal, both NaN, or within a relative tolerance. */
static bool near(double x, double y, double tolerance) {
    return x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * fabs(y);
}

/* Contraction to fused multiply-adds changes the last bits; of a remainder more of them, the more
 * often the divisor goes into the number. */
static bool is_comparable(int op, int i) {
    return op != MG_EW_mod || !(fabsf(a[i] / b[i]) > 10);
}

/* Each op in float and in double, for lengths that leave a rest after the last vector. */
static void elementwise_loops(void **state) {
    (void)state;
    /* set 0, the baseline, is what the others are compared with */
    for (int t = 1; t < n_sets; t++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++) {
            float got[N], expected[N];
            double got_wide[N], expected_wide[N];
            sets[0]->elementwise->f32[op](expected, a, b, c, N);
            sets[0]->elementwise->f64[op](expected_wide, wide[0], wide[1], wide[2], N);
            /* lengths that end in all places of a vector */
            for (int n = N; n > 0; n = n * 2 / 3) {
                sets[t]->elementwise->f32[op](got, a, b, c, n);
                sets[t]->elementwise->f64[op](got_wide, wide[0], wide[1], wide[2], n);
                for (int i = 0; i < n; i++)
                    if (is_comparable(op, i) && (!near((double)got[i], (double)expected[i], 1e-5) ||
                                                 !near(got_wide[i], expected_wide[i], 1e-12)))
                        fail_msg("set %s, op %d of %g, %g, %g: %g and %g, not %g and %g",
                                 sets[t]->name, op, (double)a[i], (double)b[i], (double)c[i],
                                 (double)got[i], got_wide[i], (double)expected[i],
                                 expected_wide[i]);
            }
        }
}

/* Stores and loads of each dtype against core/dtype.h, signs of zero included. */
static void conversions(void **state) {
    static const mg_dtype types[] = {MG_BOOL, MG_U8, MG_BF16, MG_F16, MG_F32};
    (void)state;
    for (int t = 0; t < n_sets; t++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            float back[N], expected[N];
            double doubles[N];
            uint8_t bytes[4 * N], wanted[4 * N];
            mg_from_double(wanted, wide[0], types[k], N);
            mg_to_double(doubles, wanted, types[k], N);
            for (int i = 0; i < N; i++) expected[i] = (float)doubles[i];
            for (int n = N; n > 0; n = n * 2 / 3) {
                sets[t]->elementwise->store_f32(bytes, a, types[k], n);
                sets[t]->elementwise->load_f32(back, bytes, types[k], n);
                for (int i = 0; i < n; i++)
                    if (!near((double)back[i], (double)expected[i], 0) ||
                        !!signbit(back[i]) != !!signbit(expected[i]))
                        fail_msg("set %s, %s of %g: %g, not %g", sets[t]->name,
                                 mg_dtype_name(types[k]), (double)a[i], (double)back[i],
                                 (double)expected[i]);
            }
        }
}

/* All 65,536 float16 and bfloat16 numbers survive a load and a store. */
static void every_half(void **state) {
    static uint16_t halves[65536], again[65536];
    static float got[65536];
    (void)state;
    for (int i = 0; i < 65536; i++) halves[i] = (uint16_t)i;
    for (int t = 0; t < n_sets; t++)
        for (mg_dtype type = MG_BF16; type <= MG_F16; type++) {
            sets[t]->elementwise->load_f32(got, halves, type, 65536);
            sets[t]->elementwise->store_f32(again, got, type, 65536);
            for (int i = 0; i < 65536; i++) {
                double expected;
                mg_to_double(&expected, &halves[i], type, 1);
                assert_true(near((double)got[i], expected, 0));
                if (!isnan(got[i])) assert_int_equal(again[i], halves[i]);
            }
        }
}

/* Threaded code: a load, one instruction and a store. */
static void run_threaded(const mg_simd_threaded *threaded, int op, int form, float *first,
                         float *second, float *third, float *out) {
    mg_threaded_step steps[5];
    int n = 0;
    steps[n++] = (mg_threaded_step){threaded->load, (char *)first, -1};
    steps[n++] = (mg_threaded_step){threaded->op[op][form], (char *)second, -1};
    if (third) steps[n++] = (mg_threaded_step){NULL, (char *)third, -1};
    steps[n++] = (mg_threaded_step){threaded->store, (char *)out, -1};
    steps[n++] = (mg_threaded_step){threaded->end, NULL, -1};
    threaded->run(steps, N / threaded->strip, NULL, 0);
}

/* The same bits, or both NaN. */
static void check_bits(const float *got, const float *expected, int t, int op, int form) {
    for (int i = 0; i < N; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0 &&
            !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("set %s, op %d, form %d, element %d: %g, not %g", sets[t]->name, op, form, i,
                     (double)got[i], (double)expected[i]);
}

#define UNARY(name, rule, value, grad, ...) 1,
#define BINARY(name, rule, value, grad_a, grad_b, ...) 2,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, ...) 3,
/* The number of operands of each op. */
static const int n_operands[] = {
#include "ops/elementwise.def"
};
#undef UNARY
#undef BINARY
#undef TERNARY

/* Every form of every op: the forms say which operand is the strip. */
static void threaded_code_has_the_bits_of_loops(void **state) {
    (void)state;
    for (int t = 0; t < n_sets; t++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++) {
            float got[N], expected[N];
            sets[t]->elementwise->f32[op](expected, a, b, c, N);
            /* three operands: the form says which of them is the strip */
            if (n_operands[op] == 3) {
                run_threaded(sets[t]->threaded, op, 0, a, b, c, got);
                check_bits(got, expected, t, op, 0);
                run_threaded(sets[t]->threaded, op, 1, b, a, c, got);
                check_bits(got, expected, t, op, 1);
                run_threaded(sets[t]->threaded, op, 2, c, a, b, got);
                check_bits(got, expected, t, op, 2);
                continue;
            }
            run_threaded(sets[t]->threaded, op, MG_WITH, a, b, NULL, got);
            check_bits(got, expected, t, op, MG_WITH);
            if (n_operands[op] == 1) continue;
            run_threaded(sets[t]->threaded, op, MG_FROM, b, a, NULL, got);
            check_bits(got, expected, t, op, MG_FROM);
        }
}

/* Transposed squares and random words are the same on all sets; normal numbers nearly so. */
static void squares_and_random_words(void **state) {
    (void)state;
    uint32_t words[64], turned[64], expected[64];
    float numbers[64], same[64];
    sets[0]->random->philox16(words, 5, 7, 9, 11);
    sets[0]->movement->transpose_square(words, MG_SQUARE, expected, MG_SQUARE);
    sets[0]->random->normal64(words, same, 1, 2);
    for (int i = 0; i < 64; i++) assert_int_equal(expected[i], words[i % 8 * 8 + i / 8]);
    for (int t = 1; t < n_sets; t++) {
        sets[t]->random->philox16(turned, 5, 7, 9, 11);
        assert_memory_equal(turned, words, sizeof words);
        sets[t]->movement->transpose_square(words, MG_SQUARE, turned, MG_SQUARE);
        assert_memory_equal(turned, expected, sizeof words);
        sets[t]->random->normal64(words, numbers, 1, 2);
        for (int i = 0; i < 64; i++) assert_true(near((double)numbers[i], (double)same[i], 1e-6));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_loops),
        cmocka_unit_test(conversions),
        cmocka_unit_test(every_half),
        cmocka_unit_test(threaded_code_has_the_bits_of_loops),
        cmocka_unit_test(squares_and_random_words),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
