/* Collectives: staged through the host they have the bits of the local communicator. Buckets of
 * reductions: several at once have the bits of one after another, and a step issues them
 * so, the same on every device. */
#include "comm/comm.h"
#include "device/buffer.h"
#include "graph/plan.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "ref_devices.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, TENSORS = 6 };

/* ---- the communicator ---- */

/* Numbers of elements: none, few, 2048 (the most that a rank adds up alone), and more, which the
 * ranks share. */
static const int64_t counts[TENSORS] = {0, 1, 7, 2048, 2049, 10007};

/* The work of one rank's thread: all-reduces of TENSORS tensors. */
typedef struct rank_job {
    mg_comm *comm;
    int rank, op;
    mg_dtype dtype;
    bool many;
    void *in[TENSORS], *out[TENSORS];
    mg_status status;
} rank_job;

/* A rank's thread: reduces all tensors, in one call if `many` is set, else one after the other. */
static void *reduce_all(void *argument) {
    rank_job *j = argument;
    mg_comm_operand list[TENSORS];
    for (int i = 0; i < TENSORS; i++) list[i] = (mg_comm_operand){j->in[i], j->out[i], counts[i]};
    mg_collective_call x = {.kind = MG_ALL_REDUCE,
                            .dtype = j->dtype,
                            .reduction = (enum mg_reduce_kind)j->op,
                            .operands = list,
                            .n_operands = j->many ? TENSORS : 1};
    j->status = MG_OK;
    for (int i = 0; i < TENSORS && j->status == MG_OK; i += x.n_operands) {
        x.operands = &list[i];
        j->status = j->comm->api->run(j->comm, j->rank, &x);
    }
    return NULL;
}

/* Runs the jobs of all ranks in threads and waits until all have succeeded. */
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

/* Numbers whose sum depends on the order of addition in every float dtype. */
static void fill(void *data, int64_t n, mg_dtype t, int rank) {
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)((i * 7919 + rank * 104729) % 1000) / 7;
        mg_from_double((char *)data + (size_t)i * mg_dtype_size(t), &v, t, 1);
    }
}

/* Reduces the same tensors one after the other and in one call, and compares the bytes of every
 * rank; the byte behind each output must stay untouched. */
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
    /* One after the other first: rank 1's outputs are the reference for all ranks. */
    run_ranks(jobs, false);
    /* Keep the reference and give rank 1 fresh outputs. */
    for (int i = 0; i < TENSORS; i++) {
        single[i] = jobs[1].out[i];
        jobs[1].out[i] = mg_alloc_zero((size_t)counts[i] * 8 + 1);
    }
    /* The same reductions in one call. */
    run_ranks(jobs, true);
    /* Every rank has the reference's bytes, and one untouched byte behind them. */
    for (int i = 0; i < TENSORS; i++)
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(jobs[r].out[i], single[i],
                                (size_t)counts[i] * mg_dtype_size(t) + 1);
    for (int i = 0; i < TENSORS; i++) {
        mg_free(single[i]);
        for (int r = 0; r < RANKS; r++) mg_free(jobs[r].in[i]), mg_free(jobs[r].out[i]);
    }
}

static void check_all_many(mg_comm *comm) {
    assert_non_null(comm);
    const mg_dtype dtypes[] = {MG_F32, MG_F64, MG_I32, MG_I64, MG_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        for (int op = 0; op < 3; op++) check_many(comm, dtypes[i], op);
    comm->api->free(comm);
}

static void several_at_once_have_the_bits_of_one_after_another(void **state) {
    (void)state;
    check_all_many(mg_comm_local(RANKS));
}

static mg_status copy(mg_device *d, void *dst, const void *src, size_t bytes) {
    (void)d;
    memcpy(dst, src, bytes);
    return MG_OK;
}

/* The last rank's memory is said to be the host's. */
static mg_comm *staged(void) {
    mg_staged_rank ranks[RANKS] = {{NULL, copy, copy}, {NULL, copy, copy}, {NULL, NULL, NULL}};
    return mg_comm_staged(ranks, RANKS);
}

static void buckets_are_staged_through_the_host(void **state) {
    (void)state;
    check_all_many(staged());
}

/* ---- every collective, staged and not ---- */

enum { COUNT = 3001, ROOT = 1 };

typedef struct exchange_job {
    mg_comm *comm;
    int rank;
    mg_collective kind;
    float *in, *out;
    mg_status status;
} exchange_job;

static void *exchange(void *argument) {
    exchange_job *j = argument;
    const int64_t shares[RANKS] = {COUNT, 0, 17};
    const mg_comm_operand operand = {j->in, j->out, COUNT};
    const mg_collective_call x = {.kind = j->kind,
                                  .dtype = MG_F32,
                                  .root = ROOT,
                                  .to = 2,
                                  .operands = &operand,
                                  .n_operands = 1,
                                  .outer = 2,
                                  .counts = shares};
    const bool takes_part = !mg_collective_is_point_to_point(j->kind) ||
                            mg_collective_has_input(&x, j->rank) ||
                            mg_collective_has_output(&x, j->rank);
    j->status = takes_part ? j->comm->api->run(j->comm, j->rank, &x) : MG_OK;
    return NULL;
}

/* All ranks' outs after one collective, one rank after another. */
static void exchange_all(mg_comm *comm, mg_collective kind, float *outs, size_t room) {
    pthread_t threads[RANKS];
    exchange_job jobs[RANKS];
    for (int r = 0; r < RANKS; r++) {
        jobs[r] =
            (exchange_job){.comm = comm, .rank = r, .kind = kind, .out = outs + (size_t)r * room};
        jobs[r].in = mg_alloc(2 * COUNT * sizeof(float));
        fill(jobs[r].in, (int64_t)2 * COUNT, MG_F32, r);
        assert_int_equal(pthread_create(&threads[r], NULL, exchange, &jobs[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(jobs[r].status, MG_OK);
        mg_free(jobs[r].in);
    }
    comm->api->free(comm);
}

static void every_collective_has_the_same_bits_staged(void **state) {
    (void)state;
    const size_t room = 2 * (COUNT + 17), bytes = RANKS * room * sizeof(float);
    for (int kind = MG_NO_COLLECTIVE + 1; kind < MG_N_COLLECTIVES; kind++) {
        float *direct = mg_alloc_zero(bytes), *through_host = mg_alloc_zero(bytes);
        exchange_all(mg_comm_local(RANKS), (mg_collective)kind, direct, room);
        exchange_all(staged(), (mg_collective)kind, through_host, room);
        assert_memory_equal(direct, through_host, bytes);
        /* exactly the ranks that mg_collective_has_output names have a result */
        for (int r = 0; r < RANKS; r++) {
            const mg_collective_call x = {.kind = (mg_collective)kind, .root = ROOT, .to = 2};
            assert_int_equal(direct[(size_t)r * room + 1] != 0, mg_collective_has_output(&x, r));
        }
        mg_free(direct), mg_free(through_host);
    }
}

static void *give_up(void *argument) {
    rank_job *j = argument;
    j->comm->api->abort(j->comm);
    return NULL;
}

/* If one rank aborts, the others' calls return MG_COMM instead of waiting forever. */
static void a_bucket_that_a_rank_gives_up_fails_on_the_others(void **state) {
    (void)state;
    mg_comm *comm = mg_comm_local(2);
    /* Rank 0 reduces in this thread, rank 1 aborts in another. */
    rank_job job = {.comm = comm, .dtype = MG_F32, .many = true};
    pthread_t other;
    for (int i = 0; i < TENSORS; i++) job.in[i] = job.out[i] = mg_alloc_zero(100000);
    assert_int_equal(pthread_create(&other, NULL, give_up, &job), 0);
    reduce_all(&job);
    /* An error of communication, and the other rank's thread has ended. */
    assert_int_equal(job.status, MG_COMM);
    pthread_join(other, NULL);
    for (int i = 0; i < TENSORS; i++) mg_free(job.in[i]);
    comm->api->free(comm);
}

/* ---- a step ---- */

enum { VARIABLES = 5 };
/* The devices of the data-parallel step. */
static mg_device *devices[RANKS];

/* A float32 table on the first device; `scale` makes different tables. Owned. */
static mg_tensor *tensor(int64_t rows, int64_t columns, double scale) {
    const mg_shape shape = MG_SHAPE(rows, columns);
    float *v = mg_alloc((size_t)(rows * columns) * sizeof *v);
    for (int64_t i = 0; i < rows * columns; i++) v[i] = (float)(scale * (double)(i % 97) / 31);
    mg_tensor *t = mg_tensor_from_host(v, MG_F32, &shape, devices[0]);
    mg_free(v);
    return t;
}

/* The column sums of x * v over the rows of all devices, times sum_before if given. The sum over
 * shards needs an all-reduce. */
static mg_tensor *next_value(mg_tensor *rows, mg_variable *v, mg_tensor *sum_before) {
    const mg_ints first = {.n = 1, .v = {0}};
    /* v is broadcast over the rows of each device. */
    mg_tensor *old = mg_scope_own(mg_variable_read(v)), *y = mul(rows, old);
    if (sum_before) y = mul(y, sum_before);
    return reduce("sum", y, &first, true);
}

/* A data-parallel step over all devices that sets every v[i] to the column sums of x * v[i]. The
 * last variable's sum also needs v[0]'s new value, so it cannot share a bucket with it. */
static mg_plan *trace_step(mg_variable **v, mg_tensor *x) {
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_set_devices(t, devices, RANKS, 1, NULL, false, NULL, false), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x)), *sums[VARIABLES];
    for (int i = 0; i < VARIABLES; i++)
        sums[i] = next_value(rows, v[i], i == VARIABLES - 1 ? sums[0] : NULL);
    for (int i = 0; i < VARIABLES; i++) assert_int_equal(mg_variable_assign(v[i], sums[i]), MG_OK);
    mg_plan *plan = mg_trace_end(t, NULL, 0);
    assert_non_null(plan);
    mg_scope_close(scope);
    return plan;
}

/* The real communicator below the counting one, and the numbers of calls: single all-reduces,
 * buckets, and tensors in buckets. */
static const mg_comm_api *whole;
static bool keep_buckets; /* else their tensors go one after another */
static atomic_int singles, buckets, tensors;

/* Counts the all-reduces, and takes buckets apart or not. */
static mg_status count_run(mg_comm *c, int rank, const mg_collective_call *x) {
    assert_int_equal(x->kind, MG_ALL_REDUCE);
    if (x->n_operands > 1 && keep_buckets) {
        atomic_fetch_add(&buckets, 1);
        atomic_fetch_add(&tensors, x->n_operands);
        return whole->run(c, rank, x);
    }
    atomic_fetch_add(&singles, x->n_operands);
    for (int i = 0; i < x->n_operands; i++) {
        mg_collective_call one = *x;
        one.operands = &x->operands[i];
        one.n_operands = 1;
        MG_TRY(whole->run(c, rank, &one));
    }
    return MG_OK;
}

/* Runs one step from fixed values over a communicator that counts its calls; many = false makes it
 * run each tensor of a bucket as a call. The new values of the variables go to `result`. */
static void run_step(int64_t n_rows, bool many, float (*result)[64]) {
    mg_variable *v[VARIABLES];
    /* Fixed start values, so that two runs can be compared byte by byte. */
    mg_tensor *x = tensor(n_rows, 64, 1);
    for (int i = 0; i < VARIABLES; i++) {
        mg_tensor *value = tensor(1, 64, i + 1);
        v[i] = mg_variable_new(value, "v", true);
        mg_tensor_release(value);
    }
    mg_plan *plan = trace_step(v, x);
    /* Replace the communicator's functions by counting ones. */
    mg_comm_api counting = *(whole = plan->comms[0]->api);
    counting.run = count_run;
    keep_buckets = many;
    plan->comms[0]->api = &counting;
    /* Counters of this step only. */
    atomic_store(&singles, 0), atomic_store(&buckets, 0), atomic_store(&tensors, 0);
    assert_int_equal(mg_plan_run(plan, &x, NULL), MG_OK);
    /* The new values of the variables. */
    for (int i = 0; i < VARIABLES; i++) {
        mg_tensor *value = mg_variable_read(v[i]);
        assert_int_equal(mg_tensor_read(value, result[i]), MG_OK);
        mg_tensor_release(value);
    }
    mg_plan_free(plan);
    for (int i = 0; i < VARIABLES; i++) mg_variable_release(v[i]);
    mg_tensor_release(x);
}

/* A plan with buckets has fewer calls than one without and gives the same bits, also for batches of
 * 1 and 2 rows, with which some devices have empty shards. */
static void a_step_issues_buckets_and_has_the_same_bits_without(void **state) {
    (void)state;
    float with[VARIABLES][64], without[VARIABLES][64];
    for (int64_t rows = 1; rows < 9; rows++) {
        run_step(rows, true, with);
        /* On each rank the first four form a bucket; the last needs the first and is alone. */
        assert_int_equal(buckets, RANKS);
        assert_int_equal(tensors, RANKS * (VARIABLES - 1));
        assert_int_equal(singles, RANKS);
        run_step(rows, false, without);
        assert_int_equal(buckets, 0);
        assert_int_equal(singles, RANKS * VARIABLES);
        assert_memory_equal(with, without, sizeof with);
    }
}

enum { MOST_SUMS = 20 };

/* Traces n sums over shards, whose all-reduces are as long as 3/4 of MG_BUCKET_BYTES, and sets
 * lengths[k] to the number of tensors in bucket k. Returns how many buckets there are. */
static int bucket_lengths(int n_sums, int lengths[MOST_SUMS]) {
    const mg_ints first = {.n = 1, .v = {0}};
    mg_tensor *x = tensor(RANKS, MG_BUCKET_BYTES / 4 * 3 / 4, 1), *outputs[MOST_SUMS];
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_set_devices(t, devices, RANKS, 1, NULL, false, NULL, false), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x));
    for (int i = 0; i < n_sums; i++) outputs[i] = reduce("sum", scale(rows, i + 1), &first, false);
    mg_plan *plan = mg_trace_end(t, outputs, n_sums);
    mg_scope_close(scope);
    assert_non_null(plan);
    /* Part 1 has the program of a device; count the tensors of its all-reduces. */
    const mg_kernel_graph *graph = &plan->parts[1].lowered.graph;
    /* batch_count is set on the first all-reduce of each bucket: its length. */
    int n = 0;
    for (int i = 0; i < graph->n_steps; i++)
        if (graph->steps[i].op && strcmp(graph->steps[i].op->name, "all_reduce") == 0 &&
            graph->steps[i].batch_count)
            lengths[n++] = graph->steps[i].batch_count;
    mg_plan_free(plan);
    mg_tensor_release(x);
    return n;
}

/* A bucket is closed when its tensors have as many bytes as the square root of MG_BUCKET_BYTES and
 * the bytes of all: few in a small model, more and larger ones in a large one. Counted in
 * MG_BUCKET_BYTES, n tensors have 3 n / 4. */
static void buckets_grow_with_the_model(void **state) {
    (void)state;
    int lengths[MOST_SUMS];
    assert_int_equal(bucket_lengths(1, lengths), 1);
    assert_int_equal(lengths[0], 1);
    assert_int_equal(bucket_lengths(3, lengths), 2); /* 1.5: the second one closes it */
    assert_int_equal(lengths[0], 2);
    assert_int_equal(bucket_lengths(5, lengths), 2); /* 1.94 */
    assert_int_equal(lengths[0], 3);
    assert_int_equal(lengths[1], 2);
    assert_int_equal(bucket_lengths(20, lengths), 4); /* 3.87 */
    assert_int_equal(lengths[0], 6);
    assert_int_equal(lengths[3], 2);
}

static bool reads_from(const mg_kernel_graph *graph, const mg_step *s, const char *op) {
    for (int i = 0; i < graph->n_steps; i++)
        for (int k = 0; k < s->n_in; k++)
            if (graph->steps[i].op && strcmp(graph->steps[i].op->name, op) == 0 &&
                graph->steps[i].out[0] == s->in[k])
                return true;
    return false;
}

/* What reads the result of a reduction comes after all that can be computed beside it, even if it
 * needs less memory. */
static void a_step_computes_beside_its_reductions(void **state) {
    (void)state;
    const mg_ints first = {.n = 1, .v = {0}}, second = {.n = 1, .v = {1}};
    mg_tensor *x = tensor(RANKS, MG_BUCKET_BYTES / 4, 1), *outputs[2];
    mg_scope *scope;
    assert_int_equal(mg_scope_open(&scope), MG_OK);
    mg_trace *t = mg_trace_begin(devices[0]);
    assert_int_equal(mg_trace_set_devices(t, devices, RANKS, 1, NULL, false, NULL, false), MG_OK);
    mg_tensor *rows = mg_make("shard", NULL, 1, mg_trace_argument(t, x));
    /* The first is done with few numbers, the second needs a table and three passes. */
    outputs[0] = reduce("max", reduce("sum", rows, &first, true), &second, false);
    outputs[1] = mg_make("softmax", &(mg_axis_attrs){.axis = 1}, 1, scale(rows, 2));
    mg_plan *plan = mg_trace_end(t, outputs, 2);
    mg_scope_close(scope);
    assert_non_null(plan);
    const mg_kernel_graph *graph = &plan->parts[1].lowered.graph;
    int reader = -1, beside = -1;
    for (int i = 0; i < graph->n_steps; i++) {
        const mg_step *s = &graph->steps[i];
        if (s->op && strcmp(s->op->name, "softmax") == 0) beside = i;
        if (s->op && strcmp(s->op->name, "max") == 0) {
            assert_true(reads_from(graph, s, "all_reduce"));
            reader = i;
        }
    }
    assert_true(beside >= 0 && reader > beside);
    mg_plan_free(plan);
    mg_tensor_release(x);
}

/* Setup of the group: opens ref:0 to ref:2. */
static int open_devices(void **state) {
    (void)state;
    open_ref_devices(devices, RANKS);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_at_once_have_the_bits_of_one_after_another),
        cmocka_unit_test(buckets_are_staged_through_the_host),
        cmocka_unit_test(every_collective_has_the_same_bits_staged),
        cmocka_unit_test(a_bucket_that_a_rank_gives_up_fails_on_the_others),
        cmocka_unit_test(a_step_issues_buckets_and_has_the_same_bits_without),
        cmocka_unit_test(buckets_grow_with_the_model),
        cmocka_unit_test(a_step_computes_beside_its_reductions),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
