/* The cpu device's tables of loops and chains: those for AVX2 and AVX-512 do what the plain one
 * does, whichever of them this processor would choose. */
#include "core/dtype.h"
#include "device/cpu/chains.h"
#include "device/cpu/loops.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { N = 3 * MG_STRIP, N_TABLES = 3 };

static const mg_loops *const all_loops[N_TABLES] = {&mg_loops_base, &mg_loops_avx2,
                                                    &mg_loops_avx512};
static const mg_chains *const all_chains[N_TABLES] = {&mg_chains_base, &mg_chains_avx2,
                                                      &mg_chains_avx512};
static float a[N], b[N], c[N];
static double wide[3][N];

/* The tables up to the best one run here. */
static int n_tables(void) {
    int n = 1;
    while (all_loops[n - 1] != mg_loops_best()) n++;
    return n;
}

static int fill(void **state) {
    static const float special[] = {0,    -0.0f, 1,        -1,        1e-45f, 1e-38f, 3e38f, -3e38f,
                                    0.5f, 2.5f,  INFINITY, -INFINITY, NAN,    65504,  65520, 255};
    uint32_t random = 1;
    (void)state;
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

static bool near(double x, double y, double tolerance) {
    return x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * fabs(y);
}

/* Contraction to fused multiply-adds changes the last bits; of a remainder more of them, the more
 * often the divisor goes into the number. */
static bool is_comparable(int op, int i) {
    return op != MG_EW_mod || !(fabsf(a[i] / b[i]) > 10);
}

static void elementwise_loops(void **state) {
    (void)state;
    for (int t = 1; t < n_tables(); t++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++) {
            float got[N], expected[N];
            double got_wide[N], expected_wide[N];
            mg_loops_base.f32[op](expected, a, b, c, N);
            mg_loops_base.f64[op](expected_wide, wide[0], wide[1], wide[2], N);
            for (int n = N; n > 0; n = n * 2 / 3) {
                all_loops[t]->f32[op](got, a, b, c, n);
                all_loops[t]->f64[op](got_wide, wide[0], wide[1], wide[2], n);
                for (int i = 0; i < n; i++)
                    if (is_comparable(op, i) && (!near((double)got[i], (double)expected[i], 1e-5) ||
                                                 !near(got_wide[i], expected_wide[i], 1e-12)))
                        fail_msg("table %d, op %d of %g, %g, %g: %g and %g, not %g and %g", t, op,
                                 (double)a[i], (double)b[i], (double)c[i], (double)got[i],
                                 got_wide[i], (double)expected[i], expected_wide[i]);
            }
        }
}

static void conversions(void **state) {
    static const mg_dtype types[] = {MG_BOOL, MG_U8, MG_BF16, MG_F16, MG_F32};
    (void)state;
    for (int t = 0; t < n_tables(); t++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            float back[N], expected[N];
            double doubles[N];
            uint8_t bytes[4 * N], wanted[4 * N];
            mg_from_double(wanted, wide[0], types[k], N);
            mg_to_double(doubles, wanted, types[k], N);
            for (int i = 0; i < N; i++) expected[i] = (float)doubles[i];
            for (int n = N; n > 0; n = n * 2 / 3) {
                all_loops[t]->store_f32(bytes, a, types[k], n);
                all_loops[t]->load_f32(back, bytes, types[k], n);
                for (int i = 0; i < n; i++)
                    if (!near((double)back[i], (double)expected[i], 0) ||
                        !!signbit(back[i]) != !!signbit(expected[i]))
                        fail_msg("table %d, %s of %g: %g, not %g", t, mg_dtype_name(types[k]),
                                 (double)a[i], (double)back[i], (double)expected[i]);
            }
        }
}

static void every_half(void **state) {
    static uint16_t halves[65536], again[65536];
    static float got[65536];
    (void)state;
    for (int i = 0; i < 65536; i++) halves[i] = (uint16_t)i;
    for (int t = 0; t < n_tables(); t++)
        for (mg_dtype type = MG_BF16; type <= MG_F16; type++) {
            all_loops[t]->load_f32(got, halves, type, 65536);
            all_loops[t]->store_f32(again, got, type, 65536);
            for (int i = 0; i < 65536; i++) {
                double expected;
                mg_to_double(&expected, &halves[i], type, 1);
                assert_true(near((double)got[i], expected, 0));
                if (!isnan(got[i])) assert_int_equal(again[i], halves[i]);
            }
        }
}

/* A chain of a load, one instruction and a store has the bits of the table's loop. */
static void run_chain(const mg_chains *chains, int op, int form, float *first, float *second,
                      float *third, float *out) {
    mg_chain_step steps[5];
    int n = 0;
    steps[n++] = (mg_chain_step){chains->load, (char *)first, -1};
    steps[n++] = (mg_chain_step){chains->op[op][form], (char *)second, -1};
    if (third) steps[n++] = (mg_chain_step){NULL, (char *)third, -1};
    steps[n++] = (mg_chain_step){chains->store, (char *)out, -1};
    steps[n++] = (mg_chain_step){chains->end, NULL, -1};
    chains->run(steps, N / chains->strip, NULL, 0);
}

static void check_bits(const float *got, const float *expected, int t, int op, int form) {
    for (int i = 0; i < N; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0 &&
            !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("table %d, op %d, form %d, element %d: %g, not %g", t, op, form, i,
                     (double)got[i], (double)expected[i]);
}

#define UNARY(name, rule, value, grad, doc) 1,
#define BINARY(name, rule, value, grad_a, grad_b, doc) 2,
#define TERNARY(name, rule, value, grad_a, grad_b, grad_c, doc) 3,
static const int n_operands[] = {
#include "ops/elementwise.def"
};
#undef UNARY
#undef BINARY
#undef TERNARY

static void chains_have_the_bits_of_loops(void **state) {
    (void)state;
    for (int t = 0; t < n_tables(); t++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++) {
            float got[N], expected[N];
            all_loops[t]->f32[op](expected, a, b, c, N);
            if (n_operands[op] == 3) {
                run_chain(all_chains[t], op, 0, a, b, c, got);
                check_bits(got, expected, t, op, 0);
                run_chain(all_chains[t], op, 1, b, a, c, got);
                check_bits(got, expected, t, op, 1);
                run_chain(all_chains[t], op, 2, c, a, b, got);
                check_bits(got, expected, t, op, 2);
                continue;
            }
            run_chain(all_chains[t], op, MG_WITH, a, b, NULL, got);
            check_bits(got, expected, t, op, MG_WITH);
            if (n_operands[op] == 1) continue;
            run_chain(all_chains[t], op, MG_FROM, b, a, NULL, got);
            check_bits(got, expected, t, op, MG_FROM);
        }
}

static void squares_and_random_words(void **state) {
    (void)state;
    uint32_t words[64], turned[64], expected[64];
    float numbers[64], same[64];
    mg_loops_base.philox16(words, 5, 7, 9, 11);
    mg_loops_base.turn(words, MG_SQUARE, expected, MG_SQUARE);
    mg_loops_base.normal64(words, same, 1, 2);
    for (int i = 0; i < 64; i++) assert_int_equal(expected[i], words[i % 8 * 8 + i / 8]);
    for (int t = 1; t < n_tables(); t++) {
        all_loops[t]->philox16(turned, 5, 7, 9, 11);
        assert_memory_equal(turned, words, sizeof words);
        all_loops[t]->turn(words, MG_SQUARE, turned, MG_SQUARE);
        assert_memory_equal(turned, expected, sizeof words);
        all_loops[t]->normal64(words, numbers, 1, 2);
        for (int i = 0; i < 64; i++) assert_true(near((double)numbers[i], (double)same[i], 1e-6));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_loops),
        cmocka_unit_test(conversions),
        cmocka_unit_test(every_half),
        cmocka_unit_test(chains_have_the_bits_of_loops),
        cmocka_unit_test(squares_and_random_words),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
