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

static const mg_simd *sets[3]; /* the sets of this processor, baseline first */
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
                sets[t]->conversions->store_f32(bytes, a, types[k], n);
                sets[t]->conversions->load_f32(back, bytes, types[k], n);
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
            sets[t]->conversions->load_f32(got, halves, type, 65536);
            sets[t]->conversions->store_f32(again, got, type, 65536);
            for (int i = 0; i < 65536; i++) {
                double expected;
                mg_to_double(&expected, &halves[i], type, 1);
                assert_true(near((double)got[i], expected, 0));
                if (!isnan(got[i])) assert_int_equal(again[i], halves[i]);
            }
        }
}

/* ---- threaded code ---- */

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

/* The operands in float and in double, and their sizes. */
static void *const operands[2][3] = {{a, b, c}, {wide[0], wide[1], wide[2]}};
static const mg_dtype real[2] = {MG_F32, MG_F64};

/* Runs n steps and the end over N elements. */
static void run_steps(const mg_simd_threaded *t, mg_threaded_step *steps, int n) {
    steps[n] = (mg_threaded_step){t->end, NULL, 0};
    const mg_threaded_strips strips = {.n = N / t->strip};
    t->run(steps, &strips);
}

/* A load, one instruction and a store. The form says which operand the strip is, and whether the
 * other one is a single number. */
static void run_op(const mg_simd_threaded *t, int type, int op, int form, void *out) {
    void *const *x = operands[type];
    mg_threaded_step steps[5];
    int n = 0, it = form;
    if (n_operands[op] == 2) it = form == MG_FROM || form == MG_FROM_ONE;
    const ptrdiff_t moves = n_operands[op] == 2 && form >= MG_WITH_ONE ? 0 : -1;
    steps[n++] = (mg_threaded_step){t->load[real[type]], x[it], -1};
    steps[n++] = (mg_threaded_step){t->op[op][form], x[it == 0], moves};
    if (n_operands[op] == 3) steps[n++] = (mg_threaded_step){NULL, x[it == 2 ? 1 : 2], -1};
    steps[n++] = (mg_threaded_step){t->store[real[type]], out, -1};
    run_steps(t, steps, n);
}

/* Element i of the result, or of an operand. */
static double element(const void *x, int type, int i) {
    return type ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Fails unless all elements are near; tolerance 0: equal, signs of zero too. */
static void check_near(const void *got, const void *expected, int n, int type, double tolerance,
                       const char *what, int t, int op) {
    for (int i = 0; i < n; i++) {
        const double x = element(got, type, i), y = element(expected, type, i);
        if (tolerance > 0 ? !near(x, y, tolerance)
                          : !near(x, y, 0) || (x == x && !!signbit(x) != !!signbit(y)))
            fail_msg("set %s, op %d, %s, element %d of %g, %g, %g: %g, not %g", sets[t]->name, op,
                     what, i, (double)a[i], (double)b[i], (double)c[i], x, y);
    }
}

/* Every op in every form that reads strips, in float and double: all forms give the same bits, and
 * every instruction set gives nearly the results of the baseline. */
static void ops_in_all_forms(void **state) {
    (void)state;
    double first[N], got[N], expected[N];
    for (int type = 0; type < 2; type++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++)
            for (int t = 0; t < n_sets; t++) {
                const int forms = n_operands[op] == 2 ? MG_FROM + 1 : n_operands[op];
                run_op(sets[t]->threaded[type], type, op, 0, first);
                if (t == 0) memcpy(expected, first, sizeof first);
                check_near(first, expected, N, type, type ? 1e-12 : 1e-5, "form 0", t, op);
                for (int form = 1; form < (n_operands[op] == 1 ? 1 : forms); form++) {
                    run_op(sets[t]->threaded[type], type, op, form, got);
                    check_near(got, first, N, type, 0, "another form", t, op);
                }
            }
}

/* An operand that is a single number gives the bits of a strip of copies. */
static void single_numbers(void **state) {
    (void)state;
    double got[N], expected[N], saved[N];
    for (int type = 0; type < 2; type++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++)
            for (int t = 0; t < n_sets && n_operands[op] == 2; t++)
                for (int form = MG_WITH_ONE; form <= MG_FROM_ONE; form++) {
                    const int one = form == MG_WITH_ONE;
                    const size_t size = type ? sizeof(double) : sizeof(float);
                    char *x = operands[type][one];
                    run_op(sets[t]->threaded[type], type, op, form, got);
                    memcpy(saved, x, N * size);
                    for (int i = 1; i < N; i++) memcpy(x + (size_t)i * size, x, size);
                    run_op(sets[t]->threaded[type], type, op, form - MG_WITH_ONE, expected);
                    memcpy(x, saved, N * size);
                    check_near(got, expected, N, type, 0, "one number", t, op);
                }
}

/* Loops have the bits of steps, for lengths that end in all places of a vector. */
static void loops_of_single_ops(void **state) {
    (void)state;
    double got[N], expected[N];
    for (int type = 0; type < 2; type++)
        for (int op = 0; op < MG_N_ELEMENTWISE; op++)
            for (int t = 0; t < n_sets && n_operands[op] < 3; t++) {
                const mg_simd_threaded *threaded = sets[t]->threaded[type];
                run_op(threaded, type, op, MG_WITH, expected);
                for (int n = N; n > 0; n = n * 2 / 3) {
                    threaded->loop[op](got, operands[type][0], operands[type][1], n);
                    check_near(got, expected, n, type, 0, "loop", t, op);
                }
            }
}

/* Loads, stores and rounding of each dtype against core/dtype.h. Steps that read and write a dtype
 * advance by its size. */
static void typed_loads_and_stores(void **state) {
    (void)state;
    for (int type = 0; type < 2; type++)
        for (int t = 0; t < n_sets; t++)
            for (mg_dtype k = 0; k < MG_N_DTYPES; k++) {
                const mg_simd_threaded *threaded = sets[t]->threaded[type];
                double expected[N], rounded[N], back[N];
                float narrow[N];
                char wanted[N * 8], stored[N * 8];
                if (!threaded->load[k] || k == real[type]) continue;
                mg_threaded_step steps[5] = {{threaded->load[real[type]], operands[type][0], -1},
                                             {threaded->store[k], stored, -1},
                                             {threaded->round[k], NULL, 0},
                                             {threaded->store[real[type]], (char *)rounded, -1}};
                run_steps(threaded, steps, 4);
                mg_threaded_step loads[3] = {{threaded->load[k], stored, -1},
                                             {threaded->store[real[type]], (char *)back, -1}};
                run_steps(threaded, loads, 2);
                mg_from_double(wanted, wide[0], k, N);
                mg_to_double(expected, wanted, k, N);
                for (int i = 0; i < N; i++) narrow[i] = (float)expected[i];
                const void *right = type ? (const void *)expected : narrow;
                check_near(rounded, right, N, type, 0, mg_dtype_name(k), t, -1);
                check_near(back, right, N, type, 0, mg_dtype_name(k), t, -1);
            }
}

/* A row of 100 elements, with a strip of its beginning behind it, repeats across strips, also from
 * the middle. */
static void rows_repeat(void **state) {
    enum { ROW = 100 };
    (void)state;
    for (int t = 0; t < n_sets; t++)
        for (int from = 0; from < ROW; from += 7) {
            const mg_simd_threaded *threaded = sets[t]->threaded[0];
            float row[ROW + MG_STRIP], got[N];
            for (int i = 0; i < ROW + MG_STRIP; i++) row[i] = (float)(i % ROW);
            mg_threaded_step steps[3] = {{threaded->load[MG_F32], (char *)(row + from), 0},
                                         {threaded->store[MG_F32], (char *)got, -1},
                                         {threaded->end, NULL, 0}};
            const mg_threaded_strips strips = {.n = N / threaded->strip,
                                               .row_step = (const int16_t[]){0},
                                               .n_row_steps = 1,
                                               .row = from * (ptrdiff_t)sizeof *row,
                                               .period = ROW * sizeof *row};
            threaded->run(steps, &strips);
            for (int i = 0; i < N; i++) assert_true(got[i] == (float)((from + i) % ROW));
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
        cmocka_unit_test(conversions),         cmocka_unit_test(every_half),
        cmocka_unit_test(ops_in_all_forms),    cmocka_unit_test(single_numbers),
        cmocka_unit_test(loops_of_single_ops), cmocka_unit_test(typed_loads_and_stores),
        cmocka_unit_test(rows_repeat),         cmocka_unit_test(squares_and_random_words),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
