/* Loops and ops with several results: a scan and its gradient with every allocation failing in
 * turn; results whose siblings are computed, released or never read. */
#include "core/alloc.h"
#include "device/buffer.h"
#include "graph/graph.h"
#include "graph/loop.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "ref_devices.h"

static mg_device *ref;

static int open_ref(void **state) {
    (void)state;
    return open_default_ref(&ref);
}

/* A float64 tensor {rows, columns} of 1, 2, 3, ... Owned. */
static mg_tensor *matrix(int rows, int columns) {
    double v[64];
    for (int i = 0; i < rows * columns; i++) v[i] = i + 1;
    const mg_shape shape = MG_SHAPE(rows, columns);
    return mg_tensor_from_host(v, MG_F64, &shape, ref);
}

/* In the open scope: the scan of h' = h w + x over the rows of xs, which also stacks h. NULL on
 * failure. */
static mg_tensor *product_scan(mg_tensor *h, mg_tensor *w, mg_tensor *xs) {
    mg_loop_trace *t = mg_loop_begin(xs->shape.dim[0], false, false);
    if (!t) return NULL;
    mg_tensor *carry = mg_loop_carry(t, h);
    mg_tensor *x = carry ? mg_loop_rows(t, xs) : NULL;
    mg_tensor *results[] = {x ? add(matmul(carry, w, false, false), x) : NULL, carry};
    if (!results[0]) {
        mg_loop_abandon(t);
        return NULL;
    }
    return mg_scope_own(mg_loop_end(t, results, 2));
}

static double first(mg_tensor *t) {
    double v[64];
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    return v[0];
}

/* Sets *slope to the first number of d sum(last h) / d w. */
static mg_status slope_of_scan(mg_tensor *h, mg_tensor *w, mg_tensor *xs, double *slope) {
    mg_scope *scope;
    mg_tensor *gradient = NULL;
    double v[64];
    const mg_ints all = {0};
    MG_TRY(mg_scope_open(&scope));
    mg_tensor *scan = product_scan(h, w, xs);
    mg_tensor *loss = scan ? reduce("sum", mg_result(scan, 0), &all, false) : NULL;
    mg_status status = loss ? mg_grad(loss, &w, 1, &gradient) : mg_error_code();
    if (status == MG_OK) status = mg_tensor_read_double(gradient, v);
    if (status == MG_OK) *slope = v[0];
    mg_tensor_release(gradient);
    mg_scope_close(scope);
    return status;
}

static void a_scan_survives_every_failing_allocation(void **state) {
    (void)state;
    mg_tensor *h = matrix(1, 2), *w = matrix(2, 2), *xs = matrix(3, 2);
    double expected = 0, slope = 0;
    const mg_shape rows = MG_SHAPE(3, 1, 2);
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_tensor *steps = reshape(xs, &rows);
    assert_int_equal(mg_eval(&steps, 1), MG_OK);
    assert_int_equal(slope_of_scan(h, w, steps, &expected), MG_OK); /* also fills caches */
    const int64_t before = mg_alloc_get_stats().live_blocks;
    mg_status status = MG_OOM;
    for (int64_t n = 1; status != MG_OK; n++) {
        mg_alloc_fail_after(n);
        status = slope_of_scan(h, w, steps, &slope);
        mg_alloc_fail_after(0);
        assert_true(status == MG_OK || status == MG_OOM);
        assert_int_equal(mg_alloc_get_stats().live_blocks, before);
        assert_null(mg_loop_current());
    }
    assert_true(slope == expected);
    mg_scope_close(scope);
    mg_tensor_release(h), mg_tensor_release(w), mg_tensor_release(xs);
}

/* The loop of h = 1 2 over three rows: 8 14, then 53 76, ... by hand for the first number. */
static void results_are_computed_each_for_itself_or_together(void **state) {
    (void)state;
    mg_tensor *h = matrix(1, 2), *w = matrix(2, 2), *xs = matrix(3, 2);
    const mg_shape rows = MG_SHAPE(3, 1, 2);
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_tensor *scan = product_scan(h, w, reshape(xs, &rows));
    mg_tensor *last = mg_result(scan, 0), *all = mg_result(scan, 1), *again = mg_result(scan, 1);
    assert_int_equal(all->shape.rank, 3);
    assert_int_equal(all->shape.dim[0], 3);
    const double direct = ((1 * 1 + 2 * 3 + 1) * 1.0 + (1 * 2 + 2 * 4 + 2) * 3.0 + 3);
    const double second = ((1 * 1 + 2 * 3 + 1) * 2.0 + (1 * 2 + 2 * 4 + 2) * 4.0 + 4);
    assert_true(first(last) == direct * 1 + second * 3 + 5);
    assert_true(first(all) == 1); /* from the same scan, whose other result has its value */
    assert_true(first(again) == 1);
    mg_scope_close(scope);
    mg_tensor_release(h), mg_tensor_release(w), mg_tensor_release(xs);
}

static void parts_of_a_split_are_read_in_any_order(void **state) {
    (void)state;
    mg_tensor *x = matrix(2, 6);
    mg_scope *scope;
    const mg_split_attrs attrs = {.axis = 1, .parts = 3};
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_tensor *split = mg_make("split", &attrs, 1, x);
    assert_int_equal(mg_result_count(split), 3);
    assert_true(first(mg_result(split, 2)) == 5);
    assert_true(first(mg_result(split, 0)) == 1);
    assert_true(first(add(mg_result(split, 1), mg_result(split, 1))) == 6);
    mg_scope_close(scope);
    mg_tensor_release(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scan_survives_every_failing_allocation),
        cmocka_unit_test(results_are_computed_each_for_itself_or_together),
        cmocka_unit_test(parts_of_a_split_are_read_in_any_order),
    };
    return cmocka_run_group_tests(tests, open_ref, close_devices);
}
