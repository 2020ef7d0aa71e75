/* Element types (core/dtype): names, promotion, and conversions of numbers to the last bit. The
 * rounding to 16-bit floats is tested over all their values. */
#include "core/dtype.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Every dtype is found by Keras's name, by a short form and, for float64, by "double"; an unknown
 * name gives -1. */
static void names_are_kerass_and_their_short_forms(void **state) {
    (void)state;
    static const struct {
        const char *name, *alias;
        mg_dtype t;
        size_t size;
    } rows[] = {{"bool", "boolean", MG_BOOL, 1},  {"uint8", "u8", MG_U8, 1},
                {"int32", "i32", MG_I32, 4},      {"int64", "i64", MG_I64, 8},
                {"bfloat16", "bf16", MG_BF16, 2}, {"float16", "f16", MG_F16, 2},
                {"float32", "f32", MG_F32, 4},    {"float64", "f64", MG_F64, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(mg_dtype_name(rows[i].t), rows[i].name);
        assert_int_equal(mg_dtype_from_name(rows[i].name), rows[i].t);
        assert_int_equal(mg_dtype_from_name(rows[i].alias), rows[i].t);
        assert_int_equal(mg_dtype_size(rows[i].t), rows[i].size);
        assert_int_equal(mg_dtype_is_float(rows[i].t), rows[i].t >= MG_BF16);
    }
    /* The alias double, an unknown name, and a number that is no dtype. */
    assert_int_equal(mg_dtype_from_name("double"), MG_F64);
    assert_int_equal(mg_dtype_from_name("float8"), -1);
    assert_string_equal(mg_dtype_name((mg_dtype)99), "unknown");
}

/* Promotion takes the later dtype of the enum, which is ordered by width. Only float16 with
 * bfloat16 gives float32, because neither can represent the other's numbers. */
static void the_wider_type_wins(void **state) {
    (void)state;
    for (int a = 0; a < MG_N_DTYPES; a++)
        for (int b = 0; b < MG_N_DTYPES; b++) {
            const mg_dtype ab = mg_dtype_promote((mg_dtype)a, (mg_dtype)b);
            const bool halves = (a == MG_F16 && b == MG_BF16) || (a == MG_BF16 && b == MG_F16);
            assert_int_equal(ab, halves ? MG_F32 : (mg_dtype)(a > b ? a : b));
        }
}

/* v converted to the dtype and back. */
static double converted(mg_dtype t, double v) {
    return mg_dtype_round(t, v);
}

/* Conversions to integers drop the fraction and clamp to the dtype's limits instead of wrapping;
 * NaN becomes 0. Any number but 0, also NaN, is true as a boolean. */
static void integers_truncate_and_saturate(void **state) {
    (void)state;
    assert_true(converted(MG_U8, 254.9) == 254 && converted(MG_U8, -0.9) == 0);
    assert_true(converted(MG_U8, 256) == 255 && converted(MG_U8, -1) == 0);
    assert_true(converted(MG_I32, -2.7) == -2 && converted(MG_I32, 1e20) == INT32_MAX);
    assert_true(converted(MG_I32, -INFINITY) == INT32_MIN && converted(MG_I32, NAN) == 0);
    assert_true(converted(MG_I64, 0x1p62) == 0x1p62 && converted(MG_I64, -1e30) == -0x1p63);
    /* The largest int64 is not a double, so it is read as an integer. */
    int64_t most;
    mg_from_double(&most, &(double){1e30}, MG_I64, 1);
    assert_true(most == INT64_MAX);
    /* Booleans: every number but 0, and NaN, is true. */
    assert_true(converted(MG_BOOL, -0.5) == 1 && converted(MG_BOOL, 0) == 0);
    assert_true(converted(MG_BOOL, NAN) == 1);
}

/* Conversions between integers clamp too. Their sums and products wrap around, and are int64
 * whatever the dtype; those of floats keep it. */
static void sums_of_integers_are_int64(void **state) {
    (void)state;
    const int64_t given[] = {-1, INT64_MIN, INT64_MAX, 7};
    int64_t back[4], place[4];
    static const int64_t expected[][4] = {[MG_BOOL] = {1, 1, 1, 1},
                                          [MG_U8] = {0, 0, UINT8_MAX, 7},
                                          [MG_I32] = {-1, INT32_MIN, INT32_MAX, 7},
                                          [MG_I64] = {-1, INT64_MIN, INT64_MAX, 7}};
    for (int t = 0; t < MG_N_DTYPES; t++) {
        const bool is_float = mg_dtype_is_float((mg_dtype)t);
        assert_int_equal(mg_dtype_of_sums((mg_dtype)t), is_float ? t : MG_I64);
        if (is_float) continue;
        mg_from_int64(place, given, (mg_dtype)t, 4);
        mg_to_int64(back, place, (mg_dtype)t, 4);
        assert_memory_equal(back, expected[t], sizeof back);
    }
    assert_true(mg_int64_add(INT64_MAX, 1) == INT64_MIN);
    assert_true(mg_int64_multiply(INT64_MAX, 2) == -2);
}

/* All 65,536 float16 and bfloat16 values survive a conversion to float32 and back; NaN may change
 * its bits, but stays NaN. */
static void every_half_comes_back_as_it_was(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 1u << 16; i++) {
        const uint16_t h = (uint16_t)i;
        const float f = mg_f16_to_f32(h), b = mg_bf16_to_f32(h);
        /* float16 */
        if (isnan(f))
            assert_true(isnan(mg_f16_to_f32(mg_f32_to_f16(f))));
        else
            assert_int_equal(mg_f32_to_f16(f), h);
        /* bfloat16 */
        if (isnan(b))
            assert_true(isnan(mg_bf16_to_f32(mg_f32_to_bf16(b))));
        else
            assert_int_equal(mg_f32_to_bf16(b), h);
    }
}

/* Checks the rounding between the 16-bit float `low`, of value a, and its upper neighbour of value
 * b: below the middle down, above it up, and exactly at the middle to the even one of the two; the
 * same for negative numbers. */
static void check_middle(mg_dtype t, uint16_t low, double a, double b) {
    const double middle = (a + b) / 2, quarter = (b - a) / 4;
    uint16_t got;
    const double v[] = {a + quarter, middle - quarter * 0x1p-30, middle, middle + quarter * 0x1p-30,
                        b - quarter};
    const uint16_t high = (uint16_t)(low + 1), even = low % 2 ? high : low;
    const uint16_t expected[] = {low, low, even, high, high};
    for (int i = 0; i < 5; i++) {
        mg_from_double(&got, &v[i], t, 1);
        assert_int_equal(got, expected[i]);
        const double minus = -v[i];
        mg_from_double(&got, &minus, t, 1);
        assert_int_equal(got, expected[i] | 0x8000);
    }
}

/* A double is rounded once. Rounding to float32 first would lose the 2^-32 beside the middle and go
 * to the wrong neighbour. */
static void doubles_round_once_to_the_nearest_even_half(void **state) {
    (void)state;
    for (int i = 1; i < 0x7bff; i += 7)
        check_middle(MG_F16, (uint16_t)i, (double)mg_f16_to_f32((uint16_t)i),
                     (double)mg_f16_to_f32((uint16_t)(i + 1)));
    for (int i = 0x100; i < 0x7f7f; i += 13)
        check_middle(MG_BF16, (uint16_t)i, (double)mg_bf16_to_f32((uint16_t)i),
                     (double)mg_bf16_to_f32((uint16_t)(i + 1)));
}

/* float16 ends at 65504: from 65520 on numbers become infinite. Below half its smallest number,
 * 2^-24, they become 0 with their sign. */
static void halves_overflow_to_infinity_and_underflow_to_zero(void **state) {
    (void)state;
    assert_true(converted(MG_F16, 65519.9) == 65504 && isinf(converted(MG_F16, 65520)));
    assert_true(converted(MG_F16, -1e300) == -INFINITY && converted(MG_BF16, 1e300) == INFINITY);
    assert_true(converted(MG_F16, 0x1p-25) == 0 && converted(MG_F16, 0x1.8p-25) == 0x1p-24);
    assert_true(converted(MG_F16, 1e-300) == 0 && signbit(converted(MG_F16, -1e-300)));
    assert_true(converted(MG_F16, INFINITY) == INFINITY && isnan(converted(MG_BF16, NAN)));
    assert_true(converted(MG_F32, 0.1) == (double)0.1f && converted(MG_F64, 0.1) == 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_kerass_and_their_short_forms),
        cmocka_unit_test(the_wider_type_wins),
        cmocka_unit_test(integers_truncate_and_saturate),
        cmocka_unit_test(sums_of_integers_are_int64),
        cmocka_unit_test(every_half_comes_back_as_it_was),
        cmocka_unit_test(doubles_round_once_to_the_nearest_even_half),
        cmocka_unit_test(halves_overflow_to_infinity_and_underflow_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
