/* Shapes (core/shape): element counts, checks, broadcasting, strides, and their text in messages.
 */
#include "core/shape.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* A shape without axes has one element, one with a size of 0 has none; the text is Lua's notation.
 */
static void a_scalar_has_one_element(void **state) {
    (void)state;
    /* No axes, a size of 0, and three axes. */
    const mg_shape scalar = MG_SHAPE(), empty = MG_SHAPE(3, 0, 2), box = MG_SHAPE(2, 3, 4);
    assert_int_equal(scalar.rank, 0);
    assert_int_equal(mg_shape_count(&scalar), 1);
    assert_int_equal(mg_shape_count(&empty), 0);
    assert_int_equal(mg_shape_count(&box), 24);
    assert_string_equal(MG_SHAPE_TEXT(&scalar), "{}");
    assert_string_equal(MG_SHAPE_TEXT(&box), "{2, 3, 4}");
}

/* Unused entries are zero, so that shapes can be compared and hashed as bytes. */
static void equal_shapes_have_equal_bytes(void **state) {
    (void)state;
    const mg_shape a = MG_SHAPE(2, 3), b = MG_SHAPE(2, 3), c = MG_SHAPE(3, 2), d = MG_SHAPE(2);
    assert_true(mg_shape_equal(&a, &b) && memcmp(&a, &b, sizeof a) == 0);
    assert_false(mg_shape_equal(&a, &c));
    assert_false(mg_shape_equal(&a, &d));
}

/* Asserts that the shape is refused for the op `full`, with the op and the reason in the message.
 */
static void refused(const mg_shape *s, const char *why) {
    assert_int_equal(mg_shape_check(s, "full"), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), why));
    assert_ptr_equal(strstr(mg_error_message(), "full: shape {"), mg_error_message());
}

/* Negative sizes, and sizes whose product does not fit into memory. */
static void negative_and_enormous_sizes_are_refused(void **state) {
    (void)state;
    const mg_shape good = MG_SHAPE(1 << 20, 1 << 20), negative = MG_SHAPE(2, -1);
    /* A size whose square overflows. */
    const int64_t big = (int64_t)1 << 40;
    const mg_shape huge = MG_SHAPE(big, big), hidden = MG_SHAPE(big, 0, big);
    const mg_shape edge = MG_SHAPE(INT64_MAX);
    assert_int_equal(mg_shape_check(&good, "full"), MG_OK);
    refused(&negative, "{2, -1}: sizes must not be negative");
    /* The product of the sizes overflows 64 bits, even where a 0 makes the count 0; the last one
     * overflows only in bytes. */
    refused(&huge, "too many elements");
    refused(&hidden, "too many elements");
    refused(&edge, "too many elements");
}

/* NumPy's rules: axes are aligned at the end, and a size of 1 adapts to the other one, also to 0.
 * The result may be written over an operand. */
static void shapes_broadcast_as_in_numpy(void **state) {
    (void)state;
    /* The example of NumPy's manual. */
    const mg_shape a = MG_SHAPE(8, 1, 6, 1), b = MG_SHAPE(7, 1, 5), ab = MG_SHAPE(8, 7, 6, 5);
    const mg_shape scalar = MG_SHAPE(), none = MG_SHAPE(0), one = MG_SHAPE(1);
    mg_shape out;
    assert_int_equal(mg_shape_broadcast(&a, &b, &out, "add"), MG_OK);
    assert_memory_equal(&out, &ab, sizeof out);
    assert_int_equal(mg_shape_broadcast(&scalar, &b, &out, "add"), MG_OK);
    assert_true(mg_shape_equal(&out, &b));
    assert_int_equal(mg_shape_broadcast(&none, &one, &out, "add"), MG_OK);
    assert_true(mg_shape_equal(&out, &none));
    /* The result may be an operand. */
    out = a;
    assert_int_equal(mg_shape_broadcast(&out, &b, &out, "add"), MG_OK);
    assert_true(mg_shape_equal(&out, &ab));
}

/* The message about shapes that do not broadcast shows both and the first axis that differs. */
static void shapes_that_do_not_broadcast_are_named(void **state) {
    (void)state;
    const mg_shape a = MG_SHAPE(4, 2, 3), b = MG_SHAPE(4, 3);
    mg_shape out;
    assert_int_equal(mg_shape_broadcast(&a, &b, &out, "add"), MG_USAGE);
    assert_string_equal(mg_error_message(), "add: shapes {4, 2, 3} and {4, 3} do not broadcast: "
                                            "axis 2 is 2 against 4");
}

/* An axis that is repeated has the stride 0, also an added one. */
static void broadcast_axes_have_stride_zero(void **state) {
    (void)state;
    const mg_shape s = MG_SHAPE(3, 1, 5), over = MG_SHAPE(2, 3, 4, 5);
    int64_t strides[MG_MAX_RANK];
    mg_shape_strides(&s, NULL, strides);
    assert_memory_equal(strides, ((int64_t[]){5, 5, 1}), 3 * sizeof *strides);
    /* The same numbers seen as a larger shape. */
    mg_shape_strides(&s, &over, strides);
    assert_memory_equal(strides, ((int64_t[]){0, 5, 0, 1}), 4 * sizeof *strides);
}

/* The text of a long shape is cut to the room and never written past it. */
static void text_is_cut_where_the_room_ends(void **state) {
    (void)state;
    const mg_shape s = MG_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX);
    for (size_t room = 1; room < 80; room++) {
        char text[80];
        memset(text, '#', sizeof text);
        mg_shape_text(&s, text, room);
        assert_true(strlen(text) < room);
        assert_int_equal(text[room], '#');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scalar_has_one_element),
        cmocka_unit_test(equal_shapes_have_equal_bytes),
        cmocka_unit_test(negative_and_enormous_sizes_are_refused),
        cmocka_unit_test(shapes_broadcast_as_in_numpy),
        cmocka_unit_test(shapes_that_do_not_broadcast_are_named),
        cmocka_unit_test(broadcast_axes_have_stride_zero),
        cmocka_unit_test(text_is_cut_where_the_room_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
