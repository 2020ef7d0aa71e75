/* Plans on several devices: a step is split into shards, its sums are all-reduced, and the
 * variables are committed on every device. Each allocation on any of the devices fails once. */
#include "device/buffer.h"
#include "device/worker.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "ops/build.h"
#include "ref_devices.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { DEVICES = 3, ROWS = 5 };
/* The devices of every plan here. */
static mg_device *devices[DEVICES];

/* A float64 column of ROWS numbers on the first device. Owned. */
static mg_tensor *column(const double *v) {
    const mg_shape shape = MG_SHAPE(ROWS, 1);
    return mg_tensor_from_host(v, MG_F64, &shape, devices[0]);
}

/* A data-parallel step on all devices: y = x * v, row by row; v = v - sum(y) / 10; the results are
 * y and sum(y). Returns NULL if an allocation fails. */
static mg_plan *trace_step(mg_variable *v, mg_tensor *x) {
    const mg_ints all = {.n = 2, .v = {0, 1}};
    mg_scope *scope;
    mg_plan *plan = NULL;
    if (mg_scope_open(&scope) != MG_OK) return NULL;
    /* A failed allocation may show at each of these calls. */
    mg_trace *t = mg_trace_begin(devices[0]);
    if (t && mg_trace_set_devices(t, devices, DEVICES, 1, NULL, false, NULL, false) == MG_OK) {
        mg_tensor *in = mg_trace_argument(t, x), *old = mg_scope_own(mg_variable_read(v));
        mg_tensor *rows = in ? mg_make("shard", NULL, 1, in) : NULL;
        mg_tensor *y = rows && old ? mul(rows, old) : NULL,
                  *sum = y ? reduce("sum", y, &all, false) : NULL;
        mg_tensor *next = sum ? sub(old, scale(sum, 0.1)) : NULL, *outputs[] = {y, sum};
        if (next && mg_variable_assign(v, next) == MG_OK)
            plan = mg_trace_end(t, outputs, 2);
        else
            mg_trace_abandon(t);
    } else if (t) {
        mg_trace_abandon(t);
    }
    mg_scope_close(scope);
    return plan;
}

/* The first element of a tensor. */
static double scalar(mg_tensor *t) {
    double value[ROWS];
    assert_int_equal(mg_tensor_read_double(t, value), MG_OK);
    return value[0];
}

/* A scalar variable of value 2. Owned. */
static mg_variable *two(void) {
    const mg_shape none = MG_SHAPE();
    mg_tensor *t = mg_tensor_from_host(&(double){2}, MG_F64, &none, devices[0]);
    mg_variable *v = mg_variable_new(t, "v", true);
    mg_tensor_release(t);
    return v;
}

/* The value of the variable. */
static double value_of(mg_variable *v) {
    mg_tensor *t = mg_variable_read(v);
    const double value = scalar(t);
    mg_tensor_release(t);
    return value;
}

/* mg_shards_deal gives the first devices one row more where the rows do not divide evenly, gives
 * nothing where there are too few rows, and divides by weight if weights are given. */
static void rows_are_dealt_out_evenly_or_by_weight(void **state) {
    (void)state;
    mg_shards s;
    /* Ten rows on four devices. */
    mg_shards_deal(&s, 4, 10, NULL);
    const int64_t even[] = {3, 3, 2, 2}, by_weight[] = {8, 2};
    for (int i = 0; i < 4; i++) assert_int_equal(s.count[i], even[i]);
    assert_int_equal(s.first[3], 8);
    /* Three rows on four devices: the last one has none. */
    mg_shards_deal(&s, 4, 3, NULL);
    assert_int_equal(s.count[3], 0);
    /* Weights 3 to 1. */
    mg_shards_deal(&s, 2, 10, (double[]){3, 1});
    for (int i = 0; i < 2; i++) assert_int_equal(s.count[i], by_weight[i]);
}

/* Five rows on three devices: the results are in the order of the rows, the sum includes all rows,
 * and v is 2 - 30 / 10. */
static void a_step_is_split_reduced_and_committed(void **state) {
    (void)state;
    mg_variable *v = two();
    mg_tensor *x = column((double[]){1, 2, 3, 4, 5}), *results[2];
    mg_plan *plan = trace_step(v, x);
    assert_non_null(plan);
    /* The third device has the last row only. */
    assert_int_equal(mg_plan_devices(plan), DEVICES);
    assert_int_equal(mg_plan_describe(plan, 2).rows, 1);
    assert_int_equal(mg_plan_run(plan, &x, results), MG_OK);
    /* y = 2 x, gathered from the three devices. */
    double y[ROWS];
    assert_int_equal(mg_tensor_read_double(results[0], y), MG_OK);
    for (int i = 0; i < ROWS; i++) assert_true(y[i] == 2 * (i + 1));
    /* 2 * (1 + 2 + 3 + 4 + 5), over all devices. */
    assert_true(scalar(results[1]) == 30);
    assert_true(value_of(v) == -1);
    mg_tensor_release(results[0]), mg_tensor_release(results[1]), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
}

/* Fails each allocation of tracing and running once, on whichever device it happens. The variable
 * keeps its value unless the step succeeds, and no memory is left. A device whose neighbour fails
 * reports MG_COMM. */
static void a_split_step_survives_every_failing_allocation(void **state) {
    (void)state;
    mg_tensor *x = column((double[]){1, 2, 3, 4, 5});
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        const int64_t before = mg_alloc_get_stats().live_blocks;
        mg_variable *v = two();
        mg_tensor *results[2] = {NULL};
        /* From here to the next call the n-th allocation fails. */
        mg_alloc_fail_after(n);
        mg_plan *plan = trace_step(v, x);
        const mg_status status = plan ? mg_plan_run(plan, &x, results) : MG_OOM;
        mg_alloc_fail_after(0);
        done = status == MG_OK;
        /* The step reports its failure, and v is committed only on success. */
        if (!done) assert_true(status == MG_OOM || status == MG_COMM);
        assert_true(value_of(v) == (done ? -1 : 2));
        mg_tensor_release(results[0]), mg_tensor_release(results[1]);
        mg_plan_free(plan);
        mg_variable_release(v);
        assert_int_equal(mg_alloc_get_stats().live_blocks, before);
    }
    mg_tensor_release(x);
}

/* A job for begun_jobs_outlast_a_common_job: takes 50 ms, then fails. */
static mg_status slow_failure(void *context, int i) {
    (void)context, (void)i;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return mg_fail(MG_DATA, "of the begun job");
}

/* A job of all devices: counts its calls in *context, an array. */
static mg_status count_call(void *context, int i) {
    ((int *)context)[i]++;
    return MG_OK;
}

/* While a begun job is under way on a device, the device refuses a second one, but still does its
 * share of a job of all devices, once; the begun job's outcome is kept meanwhile. */
static void begun_jobs_outlast_a_common_job(void **state) {
    (void)state;
    int calls[DEVICES] = {0};
    mg_status statuses[DEVICES];
    char *messages[DEVICES], *message = NULL;
    atomic_bool stop = false;
    assert_int_equal(mg_worker_begin(devices[1], slow_failure, NULL, 0), MG_OK);
    assert_int_equal(mg_worker_begin(devices[1], slow_failure, NULL, 0), MG_USAGE);
    assert_false(mg_worker_done(devices[1], 1));
    assert_int_equal(
        mg_workers_run(devices, DEVICES, count_call, calls, 1, NULL, statuses, messages), MG_OK);
    for (int i = 0; i < DEVICES; i++) {
        assert_int_equal(calls[i], 1);
        assert_int_equal(statuses[i], MG_OK);
        assert_null(messages[i]);
    }
    /* The outcome has not been taken: still no second job. */
    assert_true(mg_worker_done(devices[1], 1));
    assert_int_equal(mg_worker_begin(devices[1], slow_failure, NULL, 0), MG_USAGE);
    assert_int_equal(mg_worker_end(devices[1], 1, &stop, &message), MG_DATA);
    assert_string_equal(message, "of the begun job");
    mg_free(message);
    /* Now the device takes another. */
    assert_int_equal(mg_worker_begin(devices[1], count_call, calls, 1), MG_OK);
    assert_int_equal(mg_worker_end(devices[1], 1, &stop, &message), MG_OK);
    assert_int_equal(calls[1], 2);
}

/* Setup of the group: opens the devices and runs one step, because workers and arenas are allocated
 * at the first step and stay. */
static int open_devices(void **state) {
    (void)state;
    open_ref_devices(devices, DEVICES);
    mg_variable *v = two();
    mg_tensor *x = column((double[]){1, 2, 3, 4, 5}), *results[2];
    mg_plan *plan = trace_step(v, x);
    if (!plan || mg_plan_run(plan, &x, results) != MG_OK) return 1;
    mg_tensor_release(results[0]), mg_tensor_release(results[1]), mg_tensor_release(x);
    mg_plan_free(plan);
    mg_variable_release(v);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_dealt_out_evenly_or_by_weight),
        cmocka_unit_test(a_step_is_split_reduced_and_committed),
        cmocka_unit_test(a_split_step_survives_every_failing_allocation),
        cmocka_unit_test(begun_jobs_outlast_a_common_job),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
