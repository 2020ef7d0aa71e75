/* A lost device: one that does not return from a step within MGPU_GRACE seconds. The step fails,
 * the other devices keep the weights and can go on, and memory that the lost device may still
 * access is freed only after it has come back. mg_fault_plan makes a ref device get stuck, and
 * mg_fault_let_go lets it come back. */
#include "core/alloc.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/fault.h"
#include "graph/abandoned.h"
#include "ops/build.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { DEVICES = 3, ROWS = 6 };

/* The device ref:N; NULL if it is refused. */
static mg_device *device(int ordinal) {
    char name[8];
    snprintf(name, sizeof name, "ref:%d", ordinal);
    return mg_device_find(name);
}

/* A data-parallel step on n devices: y = x * v, row by row; then v = v - sum(y) / 10. Returns NULL
 * on failure. */
static mg_plan *trace_step(mg_variable *v, mg_tensor *x, mg_device *const *devices, int n) {
    /* Both axes. */
    const mg_ints all = {.n = 2, .v = {0, 1}};
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_set_devices(t, devices, n, 1, NULL, false, NULL, false), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x));
    mg_tensor *old = mg_scope_own(mg_variable_read(v)), *y = mul(rows, old);
    mg_tensor *sum = reduce("sum", y, &all, false), *outputs[] = {y};
    assert_int_equal(mg_variable_assign(v, sub(old, scale(sum, 0.1))), MG_OK);
    mg_plan *plan = mg_trace_end(t, outputs, 1);
    mg_scope_close(scope);
    return plan;
}

/* A column of ROWS ones. Owned. */
static mg_tensor *ones(const mg_device *d) {
    const double v[ROWS] = {1, 1, 1, 1, 1, 1};
    const mg_shape shape = MG_SHAPE(ROWS, 1);
    return mg_tensor_from_host(v, MG_F64, &shape, (mg_device *)d);
}

/* A scalar variable of value 2 on the device. Owned. */
static mg_variable *new_variable(mg_device *d) {
    const mg_shape none = MG_SHAPE();
    mg_tensor *t = mg_tensor_from_host(&(double){2}, MG_F64, &none, d);
    mg_variable *v = mg_variable_new(t, "v", true);
    mg_tensor_release(t);
    return v;
}

/* The value of the variable on its own device. */
static double value_of(mg_variable *v) {
    double value;
    mg_tensor *t = mg_variable_read(v);
    assert_int_equal(mg_tensor_read_double(t, &value), MG_OK);
    mg_tensor_release(t);
    return value;
}

/* The value of the variable's copy on device d. */
static double on_device(mg_variable *v, mg_device *d) {
    double value;
    mg_tensor *t = mg_variable_on(v, d);
    assert_non_null(t);
    assert_int_equal(mg_tensor_read_double(t, &value), MG_OK);
    return value;
}

/* Runs the plan; asserts success. */
static void run_well(mg_plan *plan, mg_tensor *x) {
    mg_tensor *y;
    assert_non_null(plan);
    assert_int_equal(mg_plan_run(plan, &x, &y), MG_OK);
    mg_tensor_release(y);
}

/* Lets the lost device come back, and waits until the abandoned execution is freed, so that
 * `blocks` blocks of memory are left. It takes milliseconds; ten seconds pass only in a hang. */
static void await_return(int64_t blocks) {
    const struct timespec nap = {.tv_nsec = 10000000};
    mg_fault_let_go();
    for (int i = 0; i < 1000 && mg_alloc_get_stats().live_blocks != blocks; i++) {
        nanosleep(&nap, NULL);
        mg_plan_reclaim_abandoned();
    }
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

/* A step on three devices that has run once. */
typedef struct scene {
    mg_device *devices[DEVICES];
    mg_variable *v;
    mg_tensor *x;
    mg_plan *plan;
    int64_t blocks; /* without variable, argument and plan */
} scene;

/* Builds the scene on the devices ref:first and the next two. Each test uses other devices, because
 * a lost one stays refused. After one step v is 2 - 0.1 * 12 = 0.8. */
static scene set_up(int first) {
    scene s;
    for (int i = 0; i < DEVICES; i++) assert_non_null(s.devices[i] = device(first + i));
    /* The first round makes workers and arenas, which stay; the second one counts blocks. */
    for (int round = 0; round < 2; round++) {
        s.blocks = mg_alloc_get_stats().live_blocks;
        s.v = new_variable(s.devices[0]);
        s.x = ones(s.devices[0]);
        s.plan = trace_step(s.v, s.x, s.devices, DEVICES);
        run_well(s.plan, s.x);
        if (round) break;
        mg_plan_free(s.plan);
        mg_variable_release(s.v);
        mg_tensor_release(s.x);
    }
    assert_true(value_of(s.v) == 2 - 0.1 * 12);
    return s;
}

/* Runs the step so that device `which` gets lost in op `op`, or in the commit phase; checks the
 * error, whose message must name both. */
static void lose(scene *s, int which, const char *op, bool commit) {
    /* The first op of this name (or the first of the phase) on that device gets stuck. */
    mg_fault fault = {.lost = true, .at = 1, .commit = commit};
    snprintf(fault.device, sizeof fault.device, "%s", s->devices[which]->name);
    snprintf(fault.op, sizeof fault.op, "%s", op);
    mg_tensor *y;
    mg_fault_plan(&fault);
    assert_int_equal(mg_plan_run(s->plan, &s->x, &y), MG_DEVICE);
    assert_null(y);
    mg_fault_plan(NULL);
    /* The message names the device, the op and the reason. */
    assert_non_null(strstr(mg_error_message(), s->devices[which]->name));
    assert_non_null(strstr(mg_error_message(), op));
    assert_non_null(strstr(mg_error_message(), "lost"));
    assert_true(mg_abandoned_is(s->plan->execution));
}

/* Takes two steps on the devices a and b; checks the first one's result. */
static void go_on(scene *s, int a, int b) {
    mg_device *rest[] = {s->devices[a], s->devices[b]};
    const double before = value_of(s->v);
    mg_plan *plan = trace_step(s->v, s->x, rest, 2);
    run_well(plan, s->x);
    assert_true(value_of(s->v) == before - 0.1 * (6 * before));
    run_well(plan, s->x);
    mg_plan_free(plan);
}

/* Releases what the scene holds; the lost device may still be using some of it. */
static void tear_down(scene *s) {
    mg_plan_free(s->plan);
    mg_variable_release(s->v);
    mg_tensor_release(s->x);
}

/* Lost before the commit phase: the variable and its copies on the other devices keep their values.
 */
static void a_device_lost_in_compute_leaves_the_weights(void **state) {
    (void)state;
    scene s = set_up(0);
    const double before = value_of(s.v);
    lose(&s, 1, "all_reduce", false);
    assert_true(value_of(s.v) == before);
    assert_true(on_device(s.v, s.devices[0]) == before);
    assert_true(on_device(s.v, s.devices[2]) == before);
    /* The other two devices train on. */
    go_on(&s, 0, 2);
    tear_down(&s);
    await_return(s.blocks);
}

/* A lost device cannot be found, run or traced for any more, even after it has come back. */
static void a_lost_device_is_refused(void **state) {
    (void)state;
    scene s = set_up(4);
    lose(&s, 0, "sum", false); /* the device of v itself */
    assert_null(device(4));
    assert_non_null(strstr(mg_error_message(), "ref:4 is lost"));
    /* The old plan is refused, and so is a new one for the same devices. */
    mg_tensor *y;
    assert_int_equal(mg_plan_run(s.plan, &s.x, &y), MG_DEVICE);
    assert_non_null(strstr(mg_error_message(), "choose other devices"));
    assert_null(trace_step(s.v, s.x, s.devices, DEVICES));
    assert_non_null(strstr(mg_error_message(), "ref:4 is lost"));
    go_on(&s, 1, 2);
    tear_down(&s);
    await_return(s.blocks);
    assert_null(device(4)); /* even after it has come back */
}

/* Lost in the commit phase: the others have the new value. */
static void a_device_lost_in_commit_leaves_the_new_weights_on_the_others(void **state) {
    (void)state;
    scene s = set_up(8);
    const double before = value_of(s.v), after = before - 0.1 * (6 * before);
    lose(&s, 2, "", true);
    assert_true(value_of(s.v) == after);
    assert_true(on_device(s.v, s.devices[1]) == after);
    go_on(&s, 0, 1);
    tear_down(&s);
    await_return(s.blocks);
}

/* Plan, variable and argument are released while the lost device may still read them: their memory
 * must stay until it comes back. */
static void an_argument_given_up_at_once_outlives_the_device(void **state) {
    (void)state;
    scene s = set_up(12);
    lose(&s, 1, "fused", false);
    tear_down(&s); /* while the device may still read x and v */
    /* The abandoned execution still holds memory. */
    assert_true(mg_alloc_get_stats().live_blocks > s.blocks);
    /* The two other devices have freed their arenas too. */
    await_return(s.blocks - (DEVICES - 1));
}

int main(void) {
    /* Short waits: a device counts as lost after 0.4 seconds. */
    setenv("MGPU_DEADLINE", "0.2", 1);
    setenv("MGPU_GRACE", "0.2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_lost_in_compute_leaves_the_weights),
        cmocka_unit_test(a_lost_device_is_refused),
        cmocka_unit_test(a_device_lost_in_commit_leaves_the_new_weights_on_the_others),
        cmocka_unit_test(an_argument_given_up_at_once_outlives_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
