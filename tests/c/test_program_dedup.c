/* Shared programs: devices whose parts of a step are equal run one program instead of a copy each,
 * which saves planning time and memory. The results must be the same as with separate programs. */
#include "core/rng.h"
#include "device/buffer.h"
#include "graph/plan.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "ref_devices.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { DEVICES = 4, COLUMNS = 5, MAX_ROWS = 16 };
/* The devices of the data-parallel step. */
static mg_device *devices[DEVICES];

/* A data-parallel step with two results: each row of x * v plus random numbers, and the sum of all
 * that, which becomes the new v. The random numbers show whether every device draws the numbers of
 * its own rows. */
static mg_plan *trace_step(mg_variable *v, mg_tensor *x) {
    const mg_ints all = {.n = 2, .v = {0, 1}};
    /* Uniform numbers in [0, 1) for each row of x. */
    mg_random_attrs draw = {.shape = {.n = 2, .v = {x->shape.dim[0], COLUMNS}},
                            .kind = MG_RANDOM_UNIFORM,
                            .b = 1,
                            .dtype = MG_F64,
                            .stream = 3};
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_set_devices(t, devices, DEVICES, 1, NULL, false, NULL, false), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x));
    mg_tensor *y = mul(rows, mg_scope_own(mg_variable_read(v)));
    mg_tensor *noisy = add(y, mg_make("random", &draw, 0));
    mg_tensor *sum = reduce("sum", noisy, &all, false), *outputs[] = {noisy, sum};
    assert_int_equal(mg_variable_assign(v, sum), MG_OK);
    mg_plan *plan = mg_trace_end(t, outputs, 2);
    assert_non_null(plan);
    mg_scope_close(scope);
    return plan;
}

/* The number of different programs in the parts of a plan. */
static int count_programs(const mg_plan *p) {
    int n = 0;
    for (int i = 0; i < p->n_parts; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) seen |= p->parts[k].program == p->parts[i].program;
        n += !seen;
    }
    return n;
}

/* Runs two steps on `rows` rows. The results of both go to `values`; returns the number of
 * programs. */
static int run_steps(int64_t rows, double *values) {
    const mg_shape none = MG_SHAPE(), shape = MG_SHAPE(rows, COLUMNS);
    double numbers[MAX_ROWS * COLUMNS];
    for (int i = 0; i < MAX_ROWS * COLUMNS; i++) numbers[i] = 1.0 / (i + 3);
    mg_tensor *x = mg_tensor_from_host(numbers, MG_F64, &shape, devices[0]), *results[2];
    mg_tensor *two = mg_tensor_from_host(&(double){2}, MG_F64, &none, devices[0]);
    mg_variable *v = mg_variable_new(two, "v", true);
    /* The same seed for every run. */
    mg_rng_set((mg_rng_state){7, 0});
    mg_plan *plan = trace_step(v, x);
    const int programs = count_programs(plan);
    for (int step = 0; step < 2; step++) {
        assert_int_equal(mg_plan_run(plan, &x, results), MG_OK);
        assert_int_equal(mg_tensor_read_double(results[0], values), MG_OK);
        assert_int_equal(mg_tensor_read_double(results[1], values + rows * COLUMNS), MG_OK);
        values += rows * COLUMNS + 1;
        mg_tensor_release(results[0]), mg_tensor_release(results[1]);
    }
    mg_plan_free(plan);
    mg_variable_release(v);
    mg_tensor_release(two), mg_tensor_release(x);
    return programs;
}

/* Compares steps with shared programs and with a program for each device: the results must have the
 * same bytes, and there must be `shared` programs. */
static void check_rows(int64_t rows, int shared) {
    double one[2 * (MAX_ROWS * COLUMNS + 1)], own[2 * (MAX_ROWS * COLUMNS + 1)];
    const mg_device_api *api = devices[0]->api;
    mg_device_api alone = *api;
    /* A copy of the devices' interface that does not share programs. */
    alone.shares_programs = false;
    const int programs = run_steps(rows, one);
    for (int i = 0; i < DEVICES; i++) devices[i]->api = &alone;
    assert_int_equal(run_steps(rows, own), DEVICES);
    for (int i = 0; i < DEVICES; i++) devices[i]->api = api;
    assert_int_equal(programs, shared);
    const size_t n = 2 * (size_t)(rows * COLUMNS + 1);
    assert_memory_equal(one, own, n * sizeof *one);
    /* Every row has other random numbers, although devices share a program. */
    for (int64_t i = 1; i < rows; i++) assert_true(one[i * COLUMNS] != one[0]);
}

/* With equally many rows on every device there is one program. */
static void equal_shards_run_one_program(void **state) {
    (void)state;
    check_rows(8, 1);
    check_rows(16, 1);
}

/* Devices with equally many rows share a program; here there are two row counts, 0 among them. */
static void unequal_shards_share_with_their_equals_only(void **state) {
    (void)state;
    check_rows(10, 2); /* 3 3 2 2 */
    check_rows(9, 2);  /* 3 2 2 2 */
    check_rows(2, 2);  /* 1 1 0 0 */
}

/* Setup of the group: opens ref:0 to ref:3. */
static int open_devices(void **state) {
    (void)state;
    open_ref_devices(devices, DEVICES);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shards_run_one_program),
        cmocka_unit_test(unequal_shards_share_with_their_equals_only),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
