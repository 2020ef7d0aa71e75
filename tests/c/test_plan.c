/* Plans on the ref and null devices: evaluation, gradients, traces, commit, fusion, arenas. */
#include "core/alloc.h"
#include "device/program/arena.h"
#include "graph/ir.h"
#include "ops/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static mg_device *ref;

static mg_tensor *values(int n, const double *v) {
    const mg_shape shape = MG_SHAPE(n);
    return mg_tensor_from_host(v, MG_F64, &shape, ref);
}

static mg_tensor *apply2(const char *op, mg_tensor *a, mg_tensor *b) {
    return mg_apply(mg_op_find(op), (mg_tensor *[]){a, b}, 2, NULL);
}

static double scalar(mg_tensor *t) {
    double v[16];
    assert_int_equal(mg_tensor_read_double(t, v), MG_OK);
    return v[0];
}

static mg_variable *variable(int n, const double *v) {
    mg_tensor *t = values(n, v);
    mg_variable *made = mg_variable_new(t, "v", true);
    mg_tensor_release(t);
    return made;
}

static void assign_product(mg_variable *v, double factor) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_tensor *now = mg_scope_own(mg_variable_read(v));
    assert_int_equal(mg_variable_assign(v, scale(now, factor)), MG_OK);
    mg_scope_close(scope);
}

static void an_expression_is_computed_when_it_is_read(void **state) {
    (void)state;
    mg_tensor *a = values(2, (double[]){1, 2}), *b = values(2, (double[]){10, 20});
    mg_tensor *sum = apply2("add", a, b), *twice = apply2("mul", sum, sum);
    assert_null(twice->buffer);
    double v[2];
    assert_int_equal(mg_tensor_read_double(twice, v), MG_OK);
    assert_true(v[0] == 121 && v[1] == 484);
    assert_int_equal(twice->kind, MG_VALUE);
    assert_int_equal(sum->kind, MG_VALUE); /* held by us: kept too */
    mg_tensor_release(a), mg_tensor_release(b), mg_tensor_release(sum), mg_tensor_release(twice);
}

static void an_older_value_survives_assignment(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){3});
    mg_tensor *before = mg_variable_read(v), *product = apply2("mul", before, before);
    assign_product(v, 0);
    assert_true(scalar(product) == 9);
    mg_tensor *after = mg_variable_read(v);
    assert_true(scalar(after) == 0);
    mg_tensor_release(before), mg_tensor_release(product), mg_tensor_release(after);
    mg_variable_release(v);
}

static void a_chain_of_200000_tensors_is_built_and_freed(void **state) {
    (void)state;
    mg_tensor *t = values(1, (double[]){0}), *one = values(1, (double[]){1});
    for (int i = 0; i < 200000; i++) {
        mg_tensor *next = apply2("add", t, one);
        mg_tensor_release(t);
        t = next;
    }
    mg_tensor_release(t);
    mg_tensor_release(one);
}

static void a_million_updates_run_in_flat_memory(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){1});
    int64_t peak = 0;
    for (int i = 0; i < 100000; i++) { /* the Lua test makes the million */
        mg_scope *scope;
        assert_int_equal(mg_scope_open(&scope), MG_OK);
        mg_tensor *next = shift(mg_scope_own(mg_variable_read(v)), 1);
        assert_int_equal(mg_variable_assign(v, next), MG_OK);
        assert_int_equal(mg_eval_pending(next), MG_OK);
        mg_scope_close(scope);
        const int64_t live = mg_alloc_get_stats().live_bytes;
        if (live > peak) peak = live;
    }
    assert_true(peak < 16 << 20);
    mg_tensor *t = mg_variable_read(v);
    assert_true(scalar(t) == 100001);
    mg_tensor_release(t);
    mg_variable_release(v);
}

/* d/dx of x^3 + 2x at 2, and again. */
static void gradients_are_tensors_and_differentiate_again(void **state) {
    (void)state;
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    const mg_shape none = MG_SHAPE();
    mg_tensor *x = mg_scope_own(mg_tensor_from_host(&(double){2}, MG_F64, &none, ref));
    mg_tensor *y = add(mul(mul(x, x), x), scale(x, 2)), *g, *gg;
    assert_int_equal(mg_grad(y, &x, 1, &g), MG_OK);
    assert_int_equal(mg_grad(g, &x, 1, &gg), MG_OK);
    assert_true(scalar(mg_scope_own(g)) == 14);
    assert_true(scalar(mg_scope_own(gg)) == 12);
    mg_scope_close(scope);
}

/* A traced step: v = v * x + 1, result = old v. */
static mg_plan *trace_step(mg_variable *v, mg_tensor *x, bool fail_guard) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
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

static void a_plan_computes_then_commits(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){2});
    mg_tensor *x = values(1, (double[]){10}), *result;
    mg_plan *plan = trace_step(v, x, false);
    assert_non_null(plan);
    mg_tensor *untouched = mg_variable_read(v);
    assert_true(scalar(untouched) == 2);
    mg_tensor_release(untouched);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mg_plan_run(plan, &x, &result), MG_OK);
        assert_true(scalar(result) == (i ? 21 : 2)); /* the value at entry, not overwritten */
        mg_tensor_release(result);
    }
    mg_tensor *now = mg_variable_read(v);
    assert_true(scalar(now) == 211);
    mg_tensor_release(now), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
}

static void a_failed_guard_commits_nothing(void **state) {
    (void)state;
    mg_variable *v = variable(1, (double[]){2});
    mg_tensor *x = values(1, (double[]){10}), *result;
    mg_plan *plan = trace_step(v, x, true);
    assert_int_equal(mg_plan_run(plan, &x, &result), MG_NONFINITE);
    assert_string_equal(mg_error_message(), "too small");
    mg_tensor *now = mg_variable_read(v);
    assert_true(scalar(now) == 2);
    mg_tensor_release(now), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
}

/* Every allocation of trace and run fails once: no leak, and the variable has its old value or, if
 * the step was done, the new one. */
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

static void a_traced_tensor_is_refused_after_the_trace(void **state) {
    (void)state;
    mg_tensor *x = values(1, (double[]){10});
    mg_trace *t = mg_trace_begin(ref);
    mg_tensor *in = mg_trace_argument(t, x), *leaked = apply2("add", in, in);
    mg_trace_abandon(t);
    double v;
    assert_int_equal(mg_tensor_read_double(leaked, &v), MG_USAGE);
    mg_tensor_release(leaked), mg_tensor_release(x);
}

static void elementwise_chains_fuse_and_outside_paths_do_not(void **state) {
    (void)state;
    mg_device *null = mg_device_find("null:0");
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    const mg_shape shape = MG_SHAPE(4, 8);
    const double zero[32] = {0};
    mg_tensor *x = mg_scope_own(mg_tensor_from_host(zero, MG_F64, &shape, null));
    mg_tensor *a = unary("exp", x), *mean = reduce("sum", a, &(mg_ints){.n = 1, .v = {1}}, true);
    mg_tensor *y = add(divide(a, mean), scale(a, 3));
    const mg_plan_spec spec = {.device = null, .n_outputs = 1, .outputs = &y};
    mg_plan *plan = mg_plan_new(&spec);
    char *text = mg_plan_dump(plan, false);
    int lines = 0;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    assert_int_equal(lines, 3); /* exp (3 * exp may ride along), sum, the rest */
    mg_free(text);
    mg_plan_free(plan);
    mg_scope_close(scope);
}

static void blocks_alive_together_never_overlap(void **state) {
    (void)state;
    mg_block blocks[60], *list[60];
    size_t total;
    srand(1);
    for (int i = 0; i < 60; i++) {
        const int first = rand() % 40;
        blocks[i] = (mg_block){(size_t)(rand() % 5000), first, first + rand() % 10, 0};
        list[i] = &blocks[i];
    }
    assert_int_equal(mg_arena_assign(list, 60, &total), MG_OK);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(blocks[i].offset % MG_ARENA_ALIGNMENT, 0);
        for (int k = 0; k < i; k++) {
            const mg_block *a = &blocks[i], *b = &blocks[k];
            if (a->first > b->last || b->first > a->last || !a->bytes || !b->bytes) continue;
            assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
            assert_true(a->offset + a->bytes <= total);
        }
    }
}

static int open_ref(void **state) {
    (void)state;
    ref = mg_device_find("ref:0");
    if (ref) mg_device_set_default(ref);
    return ref ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_expression_is_computed_when_it_is_read),
        cmocka_unit_test(an_older_value_survives_assignment),
        cmocka_unit_test(a_chain_of_200000_tensors_is_built_and_freed),
        cmocka_unit_test(a_million_updates_run_in_flat_memory),
        cmocka_unit_test(gradients_are_tensors_and_differentiate_again),
        cmocka_unit_test(a_plan_computes_then_commits),
        cmocka_unit_test(a_failed_guard_commits_nothing),
        cmocka_unit_test(a_step_survives_every_failing_allocation),
        cmocka_unit_test(a_traced_tensor_is_refused_after_the_trace),
        cmocka_unit_test(elementwise_chains_fuse_and_outside_paths_do_not),
        cmocka_unit_test(blocks_alive_together_never_overlap),
    };
    return cmocka_run_group_tests(tests, open_ref, close_all);
}
