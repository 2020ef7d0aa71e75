/* The public header mgpu.h: a host program in C that includes nothing else of the library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "mgpu.h"

/* The header repeats the library's enums; the names of their values show whether both still agree.
 */
static void enums_agree(void **state) {
    (void)state;
    assert_string_equal(mg_status_name(MG_USAGE), "usage");
    assert_string_equal(mg_status_name(MG_OOM), "oom");
    assert_string_equal(mg_status_name(MG_INTERNAL), "internal");
    /* The first, a middle and the last dtype. */
    assert_string_equal(mg_dtype_name(MG_BOOL), "bool");
    assert_string_equal(mg_dtype_name(MG_BF16), "bfloat16");
    assert_string_equal(mg_dtype_name(MG_F64), "float64");
    assert_int_equal(mg_dtype_size(MG_I64), 8);
}

/* Sum of squares and its gradient, computed through the public functions only: 1 + 4 + 9, and 2 x.
 */
static void a_gradient_is_computed(void **state) {
    (void)state;
    const float numbers[] = {1, 2, 3};
    /* A vector of three numbers on the reference device. */
    const mg_shape shape = mg_shape_of(1, (const int64_t[]){3});
    mg_tensor *x = mg_tensor_from_host(numbers, MG_F32, &shape, mg_device_find("ref:0"));
    assert_non_null(x);
    mg_tensor *squares = mg_apply(mg_op_find("square"), &x, 1, NULL);
    mg_tensor *y = mg_apply(mg_op_find("sum"), &squares, 1, NULL), *dx = NULL;
    /* Tensors are lazy: reading one computes it. */
    double value, slope[3];
    /* The gradient is one more tensor, to be released like the others. */
    assert_int_equal(mg_grad(y, &x, 1, &dx), MG_OK);
    assert_int_equal(mg_tensor_read_double(y, &value), MG_OK);
    assert_int_equal(mg_tensor_read_double(dx, slope), MG_OK);
    assert_true(value == 14 && slope[0] == 2 && slope[2] == 6);
    mg_tensor_release(dx);
    mg_tensor_release(y);
    mg_tensor_release(squares);
    mg_tensor_release(x);
}

/* An unknown device is a usage error whose message contains the name; an unknown op is NULL. */
static void an_error_has_a_message(void **state) {
    (void)state;
    assert_null(mg_device_find("no such device"));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "no such device"));
    assert_null(mg_op_find("no such op"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(enums_agree),
                                       cmocka_unit_test(a_gradient_is_computed),
                                       cmocka_unit_test(an_error_has_a_message)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Ends the devices' worker threads, as a host program does at its end. */
    mg_devices_close();
    return failed;
}
