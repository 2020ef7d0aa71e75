/* Plans on one device: lazy evaluation, gradients, tracing, compute and commit, fusion. */
#include "core/alloc.h"
#include "core/threads.h"
#include "device/buffer.h"
#include "graph/ir.h"
#include "ops/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ref_devices.h"

static mg_device *ref;

static int open_ref(void **state) {
    (void)state;
    return open_default_ref(&ref);
}

/* A float64 vector of n numbers. Owned. */
static mg_tensor *values(int n, const double *v) {
    const mg_shape shape = MG_SHAPE(n);
    return mg_tensor_from_host(v, MG_F64, &shape, ref);
}

/* The op of this name applied to two tensors. Owned. */
static mg_tensor *apply2(const char *op, mg_tensor *a, mg_tensor *b) {
    return mg_apply(mg_op_find(op), (mg_tensor *[]){a, b}, 2, NULL);
}

/* The first element of a tensor; reading it evaluates the tensor. */
static double scalar(mg_tensor *t) {
    double v[16];
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    return v[0];
}

/* A variable with these n values. Owned. */
static mg_variable *variable(int n, const double *v) {
    mg_tensor *t = values(n, v);
    mg_variable *made = mg_variable_new(t, "v", true);
    mg_tensor_release(t);
    return made;
}

/* Assigns v * factor to the variable v. */
static void assign_product(mg_variable *v, double factor) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_tensor *now = mg_scope_own(mg_variable_read(v));
    assert_int_equal(mg_variable_assign(v, scale(now, factor)), MG_OK);
    mg_scope_close(scope);
}

/* Applying ops computes nothing; reading the last tensor computes it, and also keeps the values of
 * intermediate tensors that are still referenced. */
static void an_expression_is_computed_when_it_is_read(void **state) {
    (void)state;
    /* (a + b)^2, where the sum is also kept as a tensor. */
    mg_tensor *a = values(2, (double[]){1, 2}), *b = values(2, (double[]){10, 20});
    mg_tensor *sum = apply2("add", a, b), *twice = apply2("mul", sum, sum);
    /* Nothing is computed yet. */
    assert_null(twice->buffer);
    double v[2];
    assert_int_equal(mg_tensor_read_double(twice, v), MG_OK);
    assert_true(v[0] == 121 && v[1] == 484);
    assert_int_equal(twice->kind, MG_VALUE);
    assert_int_equal(sum->kind, MG_VALUE); /* referenced, so its value is kept */
    mg_tensor_release(a), mg_tensor_release(b), mg_tensor_release(sum), mg_tensor_release(twice);
}

/* An expression of a variable's old value does not see a later assignment, although it is computed
 * after it. */
static void an_older_value_survives_assignment(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){3});
    mg_tensor *before = mg_variable_read(v), *product = apply2("mul", before, before);
    /* The product is pending, and must use 3 and not 0. */
    assign_product(v, 0);
    assert_true(scalar(product) == 9);
    mg_tensor *after = mg_variable_read(v);
    assert_true(scalar(after) == 0);
    mg_tensor_release(before), mg_tensor_release(product), mg_tensor_release(after);
    mg_variable_release(v);
}

/* Releasing the last of 200,000 tensors, each of which holds the one before, must not recurse that
 * deep. */
static void a_chain_of_200000_tensors_is_built_and_freed(void **state) {
    (void)state;
    /* t = t + 1, 200,000 times; only the last tensor is kept by name. */
    mg_tensor *t = values(1, (double[]){0}), *one = values(1, (double[]){1});
    for (int i = 0; i < 200000; i++) {
        mg_tensor *next = apply2("add", t, one);
        mg_tensor_release(t);
        t = next;
    }
    mg_tensor_release(t);
    mg_tensor_release(one);
}

/* Repeated assignment does not keep old values alive: the peak of live memory stays below 16 MiB.
 */
static void repeated_updates_run_in_flat_memory(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){1});
    int64_t peak = 0;
    for (int i = 0; i < 100000; i++) {
        mg_scope *scope;
        assert_int_equal(mg_scope_open(&scope), MG_OK);
        mg_tensor *next = shift(mg_scope_own(mg_variable_read(v)), 1);
        assert_int_equal(mg_variable_assign(v, next), MG_OK);
        assert_int_equal(mg_eval_pending(next), MG_OK);
        mg_scope_close(scope);
        /* The highest use of memory so far. */
        const int64_t live = mg_alloc_get_stats().live_bytes;
        if (live > peak) peak = live;
    }
    assert_true(peak < 16 << 20);
    mg_tensor *t = mg_variable_read(v);
    assert_true(scalar(t) == 100001);
    mg_tensor_release(t);
    mg_variable_release(v);
}

/* The first and second derivative of x^3 + 2x at 2: 3 * 4 + 2 = 14, and 6 * 2 = 12. */
static void gradients_are_tensors_and_differentiate_again(void **state) {
    (void)state;
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    const mg_shape none = MG_SHAPE();
    mg_tensor *x = mg_scope_own(mg_tensor_from_host(&(double){2}, MG_F64, &none, ref));
    /* y = x^3 + 2 x, its gradient g, and the gradient gg of that. */
    mg_tensor *y = add(mul(mul(x, x), x), scale(x, 2)), *g, *gg;
    assert_int_equal(mg_grad(y, &x, 1, &g), MG_OK);
    assert_int_equal(mg_grad(g, &x, 1, &gg), MG_OK);
    assert_true(scalar(mg_scope_own(g)) == 14);
    assert_true(scalar(mg_scope_own(gg)) == 12);
    mg_scope_close(scope);
}

/* A traced step: v = v * x + 1; the result is the old v. With fail_guard the step also guards that
 * x is above 100. */
static mg_plan *trace_step(mg_variable *v, mg_tensor *x, bool fail_guard) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    /* From here ops are recorded instead of computed. */
    mg_trace *t = mg_trace_begin(ref);
    mg_tensor *in = mg_trace_argument(t, x), *old = mg_scope_own(mg_variable_read(v));
    assert_int_equal(mg_variable_assign(v, shift(mul(old, in), 1)), MG_OK);
    if (fail_guard) {
        const mg_shape none = MG_SHAPE();
        mg_tensor *ok = reshape(binary("gt", in, constant(100, in)), &none);
        assert_int_equal(mg_guard_add(ok, MG_NONFINITE, "too small"), MG_OK);
    }
    mg_plan *plan = mg_trace_end(t, &old, 1);
    mg_scope_close(scope);
    return plan;
}

/* Tracing changes nothing. Each run returns the value from before the step and assigns the new one:
 * 2, 2 * 10 + 1 = 21, 21 * 10 + 1 = 211. */
static void a_plan_computes_then_commits(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){2});
    mg_tensor *x = values(1, (double[]){10}), *result;
    mg_plan *plan = trace_step(v, x, false);
    assert_non_null(plan);
    /* Tracing has not changed the variable. */
    mg_tensor *untouched = mg_variable_read(v);
    assert_true(scalar(untouched) == 2);
    mg_tensor_release(untouched);
    /* Run the same plan twice. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mg_plan_run(plan, &x, &result), MG_OK);
        assert_true(scalar(result) == (i ? 21 : 2)); /* the value before the step */
        mg_tensor_release(result);
    }
    mg_tensor *now = mg_variable_read(v);
    assert_true(scalar(now) == 211);
    mg_tensor_release(now), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
}

/* A guard that fails stops the step between compute and commit: the variable keeps its value, and
 * the guard's code and message are the error. */
static void a_failed_guard_commits_nothing(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){2});
    mg_tensor *x = values(1, (double[]){10}), *result;
    mg_plan *plan = trace_step(v, x, true);
    assert_int_equal(mg_plan_run(plan, &x, &result), MG_NONFINITE);
    assert_string_equal(mg_error_message(), "too small");
    /* The guard stopped the commit. */
    mg_tensor *now = mg_variable_read(v);
    assert_true(scalar(now) == 2);
    mg_tensor_release(now), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
}

/* Fails each allocation of tracing and running once: no memory is left, and the variable has its
 * old value or, if the step succeeded, the new one. */
static void a_step_survives_every_failing_allocation(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){2});
    mg_tensor *x = values(1, (double[]){10});
    const int64_t before = mg_alloc_get_stats().live_blocks;
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        mg_tensor *result = NULL;
        mg_scope *scope;
        assert_int_equal(mg_scope_open(&scope), MG_OK);
        mg_alloc_fail_after(n);
        mg_trace *t = mg_trace_begin(ref);
        mg_tensor *in = t ? mg_trace_argument(t, x) : NULL;
        mg_tensor *old = t ? mg_scope_own(mg_variable_read(v)) : NULL;
        mg_tensor *next = in && old ? shift(mul(old, in), 1) : NULL;
        /* A trace whose assignment failed is discarded. */
        mg_plan *plan = NULL;
        if (next && mg_variable_assign(v, next) == MG_OK)
            plan = mg_trace_end(t, &old, 1);
        else if (t)
            mg_trace_abandon(t);
        const mg_status status = plan ? mg_plan_run(plan, &x, &result) : MG_OOM;
        mg_alloc_fail_after(0);
        mg_tensor_release(result);
        mg_plan_free(plan);
        mg_scope_close(scope);
        done = status == MG_OK;
        mg_tensor *now = mg_variable_read(v);
        assert_true(scalar(now) == (done ? 21 : 2));
        mg_tensor_release(now);
        assert_int_equal(mg_alloc_get_stats().live_blocks, before);
    }
    mg_tensor_release(x);
    mg_variable_release(v);
}

/* A tensor that escapes from a trace has no value and cannot be read. */
static void a_traced_tensor_is_refused_after_the_trace(void **state) {
    (void)state;
    mg_tensor *x = values(1, (double[]){10});
    mg_trace *t = mg_trace_begin(ref);
    mg_tensor *in = mg_trace_argument(t, x), *leaked = apply2("add", in, in);
    /* The trace ends, but `leaked` is still referenced. */
    mg_trace_abandon(t);
    double v;
    assert_int_equal(mg_tensor_read_double(leaked, &v), MG_USAGE);
    mg_tensor_release(leaked), mg_tensor_release(x);
}

/* a / mean(a) + 3 * a with a = exp(x): the element-wise ops fuse into one group before the sum and
 * one after it, because the sum lies on a path between them. The null device only makes plans. */
static void elementwise_ops_fuse_unless_a_path_leaves_the_group(void **state) {
    (void)state;
    mg_device *null = mg_device_find("null:0");
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    const mg_shape shape = MG_SHAPE(4, 8);
    const double zero[32] = {0};
    /* On the null device nothing is computed. */
    mg_tensor *x = mg_scope_own(mg_tensor_from_host(zero, MG_F64, &shape, null));
    /* The mean is a sum along the last axis. */
    mg_tensor *a = unary("exp", x), *mean = reduce("sum", a, &(mg_ints){.n = 1, .v = {1}}, true);
    mg_tensor *y = add(divide(a, mean), scale(a, 3));
    /* The plan that an evaluation of y would run. */
    const mg_plan_spec spec = {.device = null, .n_outputs = 1, .outputs = &y};
    mg_plan *plan = mg_plan_new(&spec);
    char *text = mg_plan_dump(plan, false);
    /* A line of the plan is a step: a fused group or a sum. */
    int lines = 0;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    assert_int_equal(lines, 3); /* the group of exp, the sum, the group of the division */
    mg_free(text);
    mg_plan_free(plan);
    mg_scope_close(scope);
}

/* Ctrl-C while a plan is made ends that, and the function can be traced again. */
static void an_interrupt_stops_the_making_of_a_plan(void **state) {
    (void)state;
    mg_variable *v = variable(2, (double[]){3, 4});
    for (int interrupted = 1; interrupted >= 0; interrupted--) {
        mg_trace *t = mg_trace_begin(ref);
        assert_non_null(t);
        for (int i = 0; i < 20; i++) assign_product(v, 2);
        if (interrupted) mg_interrupt();
        mg_plan *plan = mg_trace_end(t, NULL, 0);
        if (interrupted) assert_int_equal(mg_error_code(), MG_INTERRUPTED);
        assert_int_equal(plan == NULL, interrupted);
        assert_false(mg_interrupt_pending());
        mg_plan_free(plan);
    }
    mg_variable_release(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_expression_is_computed_when_it_is_read),
        cmocka_unit_test(an_older_value_survives_assignment),
        cmocka_unit_test(a_chain_of_200000_tensors_is_built_and_freed),
        cmocka_unit_test(repeated_updates_run_in_flat_memory),
        cmocka_unit_test(gradients_are_tensors_and_differentiate_again),
        cmocka_unit_test(a_plan_computes_then_commits),
        cmocka_unit_test(a_failed_guard_commits_nothing),
        cmocka_unit_test(an_interrupt_stops_the_making_of_a_plan),
        cmocka_unit_test(a_step_survives_every_failing_allocation),
        cmocka_unit_test(a_traced_tensor_is_refused_after_the_trace),
        cmocka_unit_test(elementwise_ops_fuse_unless_a_path_leaves_the_group),
    };
    return cmocka_run_group_tests(tests, open_ref, close_devices);
}
