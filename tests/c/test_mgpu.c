/* The public header mgpu.h: a host program in C that includes nothing else of the library. */
#include <pthread.h>
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

/* A call that failed gives NULL; passing that on is one more error, not a crash. */
static void wrong_arguments_are_errors(void **state) {
    (void)state;
    const float numbers[] = {1, 2, 3};
    const mg_shape shape = mg_shape_of(1, (const int64_t[]){3});
    mg_shape wrong = mg_shape_of(MG_MAX_RANK + 1, NULL);
    mg_device *ref = mg_device_find("ref:0");
    mg_tensor *x = mg_tensor_from_host(numbers, MG_F32, &shape, ref), *none = NULL;
    mg_tensor *pair[] = {x, mg_apply(mg_op_find("no such op"), &x, 1, NULL)};
    double values[3];
    assert_null(pair[1]);
    assert_non_null(strstr(mg_error_message(), "the op is NULL"));
    assert_null(mg_apply(mg_op_find("add"), pair, 2, NULL));
    assert_string_equal(mg_error_message(),
                        "add: tensor 2 is NULL: the call that made it has failed");
    assert_int_equal(mg_eval(pair, 2), MG_USAGE);
    assert_int_equal(mg_grad(none, &x, 1, &pair[1]), MG_USAGE);
    assert_int_equal(mg_grad(x, &none, 1, &pair[1]), MG_USAGE);
    assert_int_equal(mg_tensor_read(none, values), MG_USAGE);
    assert_int_equal(mg_tensor_read_double(none, values), MG_USAGE);
    assert_null(mg_tensor_from_host(numbers, MG_F32, &wrong, ref));
    assert_string_equal(mg_error_message(), "tensor: a shape has 0 to 8 axes, got 9");
    wrong.rank = -1;
    assert_null(mg_tensor_from_host(numbers, MG_F32, &wrong, ref));
    assert_null(mg_tensor_from_host(numbers, (mg_dtype)99, &shape, ref));
    assert_string_equal(mg_error_message(), "tensor: there is no dtype 99");
    assert_null(mg_tensor_from_host(NULL, MG_F32, &shape, ref));
    mg_tensor_release(x);
}

enum { THREADS = 4, RUNS = 300, SIDE = 40 };

/* Sums the square of a matrix of `number`s over and over; how often the sum was wrong. */
static void *square_and_sum(void *number) {
    float numbers[SIDE * SIDE];
    const float v = *(const float *)number;
    const mg_shape shape = mg_shape_of(2, (const int64_t[]){SIDE, SIDE});
    intptr_t wrong = 0;
    for (int i = 0; i < SIDE * SIDE; i++) numbers[i] = v;
    for (int run = 0; run < RUNS; run++) {
        double sum = 0;
        mg_tensor *x = mg_tensor_from_host(numbers, MG_F32, &shape, mg_device_find("ref:0"));
        mg_tensor *product = mg_apply(mg_op_find("matmul"), (mg_tensor *[]){x, x}, 2, NULL);
        mg_tensor *twice = mg_apply(mg_op_find("add"), (mg_tensor *[]){product, x}, 2, NULL);
        mg_tensor *y = mg_apply(mg_op_find("sum"), &twice, 1, NULL);
        wrong += mg_tensor_read_double(y, &sum) != MG_OK ||
                 sum != (double)(SIDE * SIDE * ((float)SIDE * v * v + v));
        mg_tensor_release(y);
        mg_tensor_release(twice);
        mg_tensor_release(product);
        mg_tensor_release(x);
    }
    return (void *)wrong;
}

/* The device's working memory is used by one thread at a time. */
static void threads_take_turns_on_a_device(void **state) {
    pthread_t thread[THREADS];
    float number[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        number[i] = (float)(i + 1);
        assert_int_equal(pthread_create(&thread[i], NULL, square_and_sum, &number[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enums_agree), cmocka_unit_test(a_gradient_is_computed),
        cmocka_unit_test(an_error_has_a_message), cmocka_unit_test(wrong_arguments_are_errors),
        cmocka_unit_test(threads_take_turns_on_a_device)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Ends the devices' worker threads, as a host program does at its end. */
    mg_devices_close();
    return failed;
}
