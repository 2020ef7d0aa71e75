/* Buckets of reductions: several at once have the bits of one after another, and a step issues them
 * so, the same on every device. */
#include "comm/comm.h"
#include "graph/plan.h"
#include "ops/build.h"
#include "ref_devices.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, TENSORS = 6 };

/* ---- the communicator ---- */

/* Empty, short, as long as a rank still adds up alone, and longer. */
static const int64_t counts[TENSORS] = {0, 1, 7, 2048, 2049, 10007};

typedef struct rank_job {
    mg_comm *comm;
    int rank, op;
    mg_dtype dtype;
    bool many;
    void *in[TENSORS], *out[TENSORS];
    mg_status status;
} rank_job;

static void *reduce_all(void *argument) {
    rank_job *j = argument;
    mg_reduction list[TENSORS];
    for (int i = 0; i < TENSORS; i++) list[i] = (mg_reduction){j->in[i], j->out[i], counts[i]};
    const mg_comm_api *api = j->comm->api;
    j->status = MG_OK;
    if (j->many) j->status = api->all_reduce_many(j->comm, j->rank, list, TENSORS, j->dtype, j->op);
    for (int i = 0; i < TENSORS && !j->many && j->status == MG_OK; i++)
        j->status =
            api->all_reduce(j->comm, j->rank, list[i].in, list[i].out, counts[i], j->dtype, j->op);
    return NULL;
}

static void run_ranks(rank_job *jobs, bool many) {
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        jobs[r].many = many;
        assert_int_equal(pthread_create(&threads[r], NULL, reduce_all, &jobs[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(jobs[r].status, MG_OK);
    }
}

/* Sums of such numbers depend on their order in every float dtype. */
static void fill(void *data, int64_t n, mg_dtype t, int rank) {
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)((i * 7919 + rank * 104729) % 1000) / 7;
        mg_from_double((char *)data + (size_t)i * mg_dtype_size(t), &v, t, 1);
    }
}

static void check_many(mg_comm *comm, mg_dtype t, int op) {
    rank_job jobs[RANKS];
    void *single[TENSORS];
    for (int r = 0; r < RANKS; r++) {
        jobs[r] = (rank_job){.comm = comm, .rank = r, .op = op, .dtype = t};
        for (int i = 0; i < TENSORS; i++) {
            jobs[r].in[i] = mg_alloc((size_t)counts[i] * 8 + 1);
            jobs[r].out[i] = mg_alloc_zero((size_t)counts[i] * 8 + 1);
            fill(jobs[r].in[i], counts[i], t, r);
        }
    }
    run_ranks(jobs, false);
    for (int i = 0; i < TENSORS; i++) {
        single[i] = jobs[1].out[i];
        jobs[1].out[i] = mg_alloc_zero((size_t)counts[i] * 8 + 1);
    }
    run_ranks(jobs, true);
    for (int i = 0; i < TENSORS; i++)
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(jobs[r].out[i], single[i],
                                (size_t)counts[i] * mg_dtype_size(t) + 1);
    for (int i = 0; i < TENSORS; i++) {
        mg_free(single[i]);
        for (int r = 0; r < RANKS; r++) mg_free(jobs[r].in[i]), mg_free(jobs[r].out[i]);
    }
}

static void several_at_once_have_the_bits_of_one_after_another(void **state) {
    (void)state;
    mg_comm *comm = mg_comm_local(RANKS);
    assert_non_null(comm);
    const mg_dtype dtypes[] = {MG_F32, MG_F64, MG_I32, MG_I64, MG_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        for (int op = 0; op < 3; op++) check_many(comm, dtypes[i], op);
    comm->api->free(comm);
}

static void *give_up(void *argument) {
    rank_job *j = argument;
    j->comm->api->abort(j->comm);
    return NULL;
}

static void a_bucket_that_a_rank_gives_up_fails_on_the_others(void **state) {
    (void)state;
    mg_comm *comm = mg_comm_local(2);
    rank_job job = {.comm = comm, .dtype = MG_F32, .many = true};
    pthread_t other;
    for (int i = 0; i < TENSORS; i++) job.in[i] = job.out[i] = mg_alloc_zero(100000);
    assert_int_equal(pthread_create(&other, NULL, give_up, &job), 0);
    reduce_all(&job);
    assert_int_equal(job.status, MG_COMM);
    pthread_join(other, NULL);
    for (int i = 0; i < TENSORS; i++) mg_free(job.in[i]);
    comm->api->free(comm);
}

/* ---- a step ---- */

enum { VARIABLES = 5 };
static mg_device *devices[RANKS];

static mg_tensor *tensor(int64_t rows, int64_t columns, double scale) {
    const mg_shape shape = MG_SHAPE(rows, columns);
    float *v = mg_alloc((size_t)(rows * columns) * sizeof *v);
    for (int64_t i = 0; i < rows * columns; i++) v[i] = (float)(scale * (double)(i % 97) / 31);
    mg_tensor *t = mg_tensor_from_host(v, MG_F32, &shape, devices[0]);
    mg_free(v);
    return t;
}

/* Column sums of x * v over all rows: terms of every device. The last one is of a sum. */
static mg_tensor *next_value(mg_tensor *rows, mg_variable *v, mg_tensor *sum_before) {
    const mg_ints first = {.n = 1, .v = {0}};
    mg_tensor *old = mg_scope_own(mg_variable_read(v)), *y = mul(rows, old);
    if (sum_before) y = mul(y, sum_before);
    return reduce("sum", y, &first, true);
}

/* v[i] = sum over rows of x * v[i]; the last also times v[0]'s new value, which must be there. */
static mg_plan *trace_step(mg_variable **v, mg_tensor *x) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_spread(t, devices, RANKS, 1, NULL, false, NULL), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x)), *sums[VARIABLES];
    for (int i = 0; i < VARIABLES; i++)
        sums[i] = next_value(rows, v[i], i == VARIABLES - 1 ? sums[0] : NULL);
    for (int i = 0; i < VARIABLES; i++) assert_int_equal(mg_variable_assign(v[i], sums[i]), MG_OK);
    mg_plan *plan = mg_trace_end(t, NULL, 0);
    assert_non_null(plan);
    mg_scope_close(scope);
    return plan;
}

static const mg_comm_api *whole;
static atomic_int singles, buckets, tensors;

static mg_status count_single(mg_comm *c, int rank, const void *in, void *out, int64_t count,
                              mg_dtype t, int op) {
    atomic_fetch_add(&singles, 1);
    return whole->all_reduce(c, rank, in, out, count, t, op);
}

static mg_status count_many(mg_comm *c, int rank, const mg_reduction *list, int n, mg_dtype t,
                            int op) {
    atomic_fetch_add(&buckets, 1);
    atomic_fetch_add(&tensors, n);
    return whole->all_reduce_many(c, rank, list, n, t, op);
}

/* One step from the same values, over a communicator that counts, and has buckets or not. */
static void run_step(int64_t n_rows, bool many, float (*result)[64]) {
    mg_variable *v[VARIABLES];
    mg_tensor *x = tensor(n_rows, 64, 1);
    for (int i = 0; i < VARIABLES; i++) {
        mg_tensor *value = tensor(1, 64, i + 1);
        v[i] = mg_variable_new(value, "v", true);
        mg_tensor_release(value);
    }
    mg_plan *plan = trace_step(v, x);
    mg_comm_api counting = *(whole = plan->comms[0]->api);
    counting.all_reduce = count_single;
    counting.all_reduce_many = many ? count_many : NULL;
    plan->comms[0]->api = &counting;
    atomic_store(&singles, 0), atomic_store(&buckets, 0), atomic_store(&tensors, 0);
    assert_int_equal(mg_plan_run(plan, &x, NULL), MG_OK);
    for (int i = 0; i < VARIABLES; i++) {
        mg_tensor *value = mg_variable_read(v[i]);
        assert_int_equal(mg_tensor_read(value, result[i]), MG_OK);
        mg_tensor_release(value);
    }
    mg_plan_free(plan);
    for (int i = 0; i < VARIABLES; i++) mg_variable_release(v[i]);
    mg_tensor_release(x);
}

static void a_step_issues_buckets_and_has_the_same_bits_without(void **state) {
    (void)state;
    float with[VARIABLES][64], without[VARIABLES][64];
    for (int64_t rows = 1; rows < 9; rows++) { /* 1, 2: devices without rows */
        run_step(rows, true, with);
        /* the first four together; the last needs the first, so it is one alone */
        assert_int_equal(buckets, RANKS);
        assert_int_equal(tensors, RANKS * (VARIABLES - 1));
        assert_int_equal(singles, RANKS);
        run_step(rows, false, without);
        assert_int_equal(buckets, 0);
        assert_int_equal(singles, RANKS * VARIABLES);
        assert_memory_equal(with, without, sizeof with);
    }
}

static void a_bucket_is_full_at_its_length(void **state) {
    (void)state;
    const mg_ints first = {.n = 1, .v = {0}};
    mg_tensor *x = tensor(RANKS, MG_BUCKET_BYTES / 4 * 3 / 4, 1), *outputs[5];
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_spread(t, devices, RANKS, 1, NULL, false, NULL), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x));
    for (int i = 0; i < 5; i++) outputs[i] = reduce("sum", scale(rows, i + 1), &first, false);
    mg_plan *plan = mg_trace_end(t, outputs, 5);
    mg_scope_close(scope);
    assert_non_null(plan);
    const mg_kernel_graph *graph = &plan->parts[1].lowered.graph;
    int lengths[5], n = 0;
    for (int i = 0; i < graph->n_steps; i++)
        if (graph->steps[i].op && strcmp(graph->steps[i].op->name, "all_reduce") == 0 &&
            graph->steps[i].batch_count)
            lengths[n++] = graph->steps[i].batch_count;
    assert_int_equal(n, 3); /* two of 3/4 of a bucket close it */
    assert_int_equal(lengths[0], 2);
    assert_int_equal(lengths[1], 2);
    assert_int_equal(lengths[2], 1);
    mg_plan_free(plan);
    mg_tensor_release(x);
}

static int open_devices(void **state) {
    (void)state;
    open_ref_devices(devices, RANKS);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_at_once_have_the_bits_of_one_after_another),
        cmocka_unit_test(a_bucket_that_a_rank_gives_up_fails_on_the_others),
        cmocka_unit_test(a_step_issues_buckets_and_has_the_same_bits_without),
        cmocka_unit_test(a_bucket_is_full_at_its_length),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
