/* NCCL communicators over several processes, on the fake CUDA and the fake NCCL.
 *
 * The program starts itself again as another process of the team: `test_nccl rank ID N FIRST HERE
 * WHAT` has the ranks FIRST .. FIRST + HERE - 1 of N, one GPU each, and either works through the
 * collectives or dies in between. Tested is our code (comm.c, nccl.c of the device): results of
 * collectives, deadlines, dead processes, recovery. */
#include "comm/comm.h"
#include "core/alloc.h"
#include "core/placement.h"
#include "core/threads.h"
#include "device/device.h"
#include "fake_cuda.h"
#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 4, COUNT = 10007 }; /* ranks of a process; elements of an operand */

extern char **environ;
static const char *self;

/* ---- a process: some ranks of the team, each on its own thread ---- */

typedef struct process {
    mg_device *devices[MOST];
    mg_comm *comm;
    int first, here;
} process;

typedef struct job {
    process *p;
    int rank;
    mg_status (*work)(mg_comm *comm, mg_device *d, int rank);
    mg_status status;
} job;

/* Finds the process's GPUs and joins the team of the id; waits until all ranks have joined. */
static mg_status join_team(process *p, const mg_comm_id *id, int n, int first, int here) {
    *p = (process){.first = first, .here = here};
    for (int i = 0; i < here; i++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", first + i);
        p->devices[i] = mg_device_find(name);
        if (!p->devices[i]) return mg_error_code();
    }
    p->comm = mg_device_join(
        &(mg_device_team){.n = n, .first = first, .here = here, .id = id, .devices = p->devices});
    return p->comm ? MG_OK : mg_error_code();
}

/* The thread of a rank: does its work and prints its error. */
static void *run_job(void *argument) {
    job *j = argument;
    mg_device *d = j->p->devices[j->rank - j->p->first];
    j->status = d->api->sync(d); /* the thread enters its device */
    if (j->status == MG_OK) j->status = j->work(j->p->comm, d, j->rank);
    if (j->status != MG_OK) fprintf(stderr, "rank %d: %s\n", j->rank, mg_error_message());
    return NULL;
}

/* Runs `work` for all ranks of the process at once; the last failure, or MG_OK. */
static mg_status run_all(process *p, mg_status (*work)(mg_comm *, mg_device *, int)) {
    pthread_t threads[MOST];
    job jobs[MOST];
    mg_status status = MG_OK;
    for (int i = 0; i < p->here; i++) {
        jobs[i] = (job){.p = p, .rank = p->first + i, .work = work};
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0) abort();
    }
    for (int i = 0; i < p->here; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].status != MG_OK) status = jobs[i].status;
    }
    return status;
}

/* ---- what ranks do ---- */

/* Element i of a rank's input: small integers, so sums are exact in any order. */
static float value(int rank, int64_t i) {
    return (float)(rank + 1) * (float)(i % 1000);
}

static float sum_of(int n, int64_t i) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += value(k, i);
    return sum;
}

typedef struct operand { /* an input and an output on the GPU, and a copy on the host */
    mg_device *device;
    float *host, *in, *out;
    size_t bytes;
} operand;

static mg_status make_operand(operand *x, mg_device *d, int rank, size_t room) {
    void *in = NULL, *out = NULL;
    *x = (operand){.device = d, .bytes = room * sizeof(float)};
    x->host = calloc(room, sizeof(float));
    for (int64_t i = 0; i < COUNT; i++) x->host[i] = value(rank, i);
    MG_TRY(mg_device_alloc(d, x->bytes, &in));
    MG_TRY(mg_device_alloc(d, x->bytes, &out));
    x->in = in;
    x->out = out;
    return d->api->copy_in(d, x->in, x->host, x->bytes);
}

static void drop_operand(operand *x) {
    mg_device_free(x->device, x->in, x->bytes);
    mg_device_free(x->device, x->out, x->bytes);
    free(x->host);
}

/* Copies `out` to the host and compares its first n elements with wanted(ranks, i). */
static mg_status expect(operand *x, const char *what, int64_t n, int ranks,
                        float (*wanted)(int ranks, int64_t i)) {
    MG_TRY(x->device->api->copy_out(x->device, x->host, x->out, x->bytes));
    for (int64_t i = 0; i < n; i++)
        if (x->host[i] != wanted(ranks, i))
            return mg_fail(MG_INTERNAL, "%s: element %lld is %g, not %g", what, (long long)i,
                           (double)x->host[i], (double)wanted(ranks, i));
    return MG_OK;
}

/* What a transfer from rank 0, and a broadcast from rank 1, bring. */
static float once(int n, int64_t i) {
    (void)n;
    return value(0, i);
}

static float twice(int n, int64_t i) {
    (void)n;
    return value(1, i);
}

/* What an all-gather of two blocks brings, to each of which rank k gives k + 1 elements. */
static float gathered(int n, int64_t i) {
    const int64_t block = n * (n + 1) / 2;
    int64_t at = i % block;
    for (int k = 0; k < n; at -= k + 1, k++)
        if (at <= k) return value(k, i / block * (k + 1) + at);
    return -1;
}

/* Takes part in one collective with x's tensors. */
static mg_status exchange(mg_comm *c, int rank, const operand *x, mg_collective_call call) {
    const mg_comm_operand one = {x->in, x->out, COUNT};
    call.dtype = MG_F32;
    call.operands = &one;
    call.n_operands = 1;
    return c->api->run(c, rank, &call);
}

/* Every collective once, with uneven parts; each result is checked where it must arrive. */
static mg_status collectives(mg_comm *c, mg_device *d, int rank) {
    const int last = c->n - 1;
    int64_t counts[MOST];
    operand x;
    for (int k = 0; k < c->n; k++) counts[k] = k + 1;
    MG_TRY(make_operand(&x, d, rank, COUNT));
    MG_TRY(exchange(c, rank, &x, (mg_collective_call){.kind = MG_ALL_REDUCE}));
    MG_TRY(expect(&x, "all_reduce", COUNT, c->n, sum_of));
    MG_TRY(exchange(c, rank, &x, (mg_collective_call){.kind = MG_BROADCAST, .root = 1}));
    if (rank != 1) MG_TRY(expect(&x, "broadcast", COUNT, c->n, twice));
    MG_TRY(exchange(c, rank, &x, (mg_collective_call){.kind = MG_REDUCE, .root = last}));
    if (rank == last) MG_TRY(expect(&x, "reduce", COUNT, c->n, sum_of));
    MG_TRY(exchange(c, rank, &x,
                    (mg_collective_call){.kind = MG_ALL_GATHER, .outer = 2, .counts = counts}));
    MG_TRY(expect(&x, "all_gather", c->n * (c->n + 1), c->n, gathered));
    if (rank == 0 || rank == last)
        MG_TRY(exchange(c, rank, &x, (mg_collective_call){.kind = MG_TRANSFER, .to = last}));
    if (rank == last) MG_TRY(expect(&x, "transfer", COUNT, c->n, once));
    MG_TRY(c->api->barrier(c, rank));
    drop_operand(&x);
    return MG_OK;
}

/* A barrier that succeeds, then an all-reduce that misses the ranks of a process that has died. */
static mg_status meet_twice(mg_comm *c, mg_device *d, int rank) {
    operand x;
    MG_TRY(c->api->barrier(c, rank));
    MG_TRY(make_operand(&x, d, rank, COUNT));
    mg_status status = exchange(c, rank, &x, (mg_collective_call){.kind = MG_ALL_REDUCE});
    if (status == MG_OK) status = d->api->sync(d);
    drop_operand(&x);
    return status == MG_OK ? c->api->check(c) : status;
}

/* What the process does that dies after it. */
static mg_status meet_once(mg_comm *c, mg_device *d, int rank) {
    (void)d;
    return c->api->barrier(c, rank);
}

/* ---- other processes ---- */

/* The program as another process of a team; the exit status. */
static int be_rank(char **argv) {
    mg_comm_id id = {""};
    process p;
    snprintf(id.bytes, sizeof id.bytes, "%s", argv[2]); /* the fake NCCL's id is a path */
    if (join_team(&p, &id, atoi(argv[3]), atoi(argv[4]), atoi(argv[5])) != MG_OK) {
        fprintf(stderr, "%s\n", mg_error_message());
        return 1;
    }
    if (strcmp(argv[6], "dies") == 0) {
        run_all(&p, meet_once);
        _exit(7);
    }
    const mg_status status = run_all(&p, collectives);
    p.comm->api->free(p.comm);
    return status == MG_OK ? 0 : 1;
}

/* Starts this program as a process with `here` ranks from `first` on. */
static pid_t start_process(const mg_comm_id *id, int n, int first, int here, const char *what) {
    char numbers[3][8], path[sizeof id->bytes];
    const int values[] = {n, first, here};
    for (int i = 0; i < 3; i++) snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    snprintf(path, sizeof path, "%s", id->bytes);
    char *argv[] = {(char *)(uintptr_t)self,
                    (char *)"rank",
                    path,
                    numbers[0],
                    numbers[1],
                    numbers[2],
                    (char *)(uintptr_t)what,
                    NULL};
    pid_t child = 0;
    assert_int_equal(posix_spawn(&child, self, NULL, NULL, argv, environ), 0);
    return child;
}

static void expect_end(pid_t child, int code) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static mg_comm_id new_id(void) {
    mg_comm_id id;
    assert_int_equal(mg_device_make_id(mg_device_find("cuda:0"), &id), MG_OK);
    return id;
}

/* ---- tests ---- */

static void ranks_of_several_processes_are_one_team(void **state) {
    (void)state;
    static const int cuts[][2] = {
        {1, 1}, {2, 1}, {1, 3}}; /* ranks in this process, and in another one */
    for (int i = 0; i < 3; i++) {
        const mg_comm_id id = new_id();
        const int here = cuts[i][0], n = here + cuts[i][1];
        process p;
        const pid_t child = start_process(&id, n, here, cuts[i][1], "works");
        assert_int_equal(join_team(&p, &id, n, 0, here), MG_OK);
        assert_int_equal(run_all(&p, collectives), MG_OK);
        p.comm->api->free(p.comm);
        expect_end(child, 0);
    }
}

/* Reaps the child as soon as it dies: as a zombie it would still count as alive. */
static void *wait_for_child(void *child) {
    waitpid(*(pid_t *)child, NULL, 0);
    return NULL;
}

/* All ranks that are left get MG_COMM, and their communicator stays unusable. */
static void a_process_that_dies_ends_the_others_wait(void **state) {
    (void)state;
    const mg_comm_id id = new_id();
    process p;
    pthread_t waiter;
    pid_t child = start_process(&id, 3, 2, 1, "dies");
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_child, &child), 0);
    assert_int_equal(join_team(&p, &id, 3, 0, 2), MG_OK);
    assert_int_equal(run_all(&p, meet_twice), MG_COMM);
    assert_int_equal(p.comm->api->check(p.comm), MG_COMM);
    assert_non_null(strstr(mg_error_message(), "remote process exited"));
    p.comm->api->reset(p.comm); /* cannot bring the process back */
    assert_int_equal(p.comm->api->check(p.comm), MG_COMM);
    p.comm->api->free(p.comm);
    pthread_join(waiter, NULL);
}

/* A rank that never joins ends the wait after MGPU_DEADLINE seconds. */
static void who_never_comes_is_not_waited_for_for_ever(void **state) {
    (void)state;
    const mg_comm_id id = new_id();
    process p;
    setenv("MGPU_DEADLINE", "0.3", 1);
    assert_int_equal(join_team(&p, &id, 2, 0, 1), MG_COMM);
    assert_non_null(strstr(mg_error_message(), "did not answer within 0.3 seconds"));
    unsetenv("MGPU_DEADLINE");
    unlink(id.bytes);
}

/* An asynchronous error of NCCL is found by polling; a reset makes a new communicator. */
static void a_failure_that_comes_later_is_found(void **state) {
    (void)state;
    mg_device *devices[] = {mg_device_find("cuda:0"), mg_device_find("cuda:1")};
    mg_comm *c = mg_device_connect(devices, 2);
    assert_string_equal(c->api->kind, "nccl");
    assert_int_equal(c->api->check(c), MG_OK);
    fake_cuda_fail("ncclCommGetAsyncError", 1, ncclInternalError);
    const double start = mg_seconds();
    while (c->api->check(c) == MG_OK && mg_seconds() < start + 20) usleep(1000);
    assert_int_equal(c->api->check(c), MG_COMM);
    assert_non_null(strstr(mg_error_message(), "NCCL: rank 0: "));
    const int generation = c->generation;
    c->api->reset(c); /* within one process the communicator can be made again */
    assert_int_equal(c->api->check(c), MG_OK);
    assert_int_equal(c->generation, generation + 1);
    process p = {.here = 2, .comm = c, .devices = {devices[0], devices[1]}};
    assert_int_equal(run_all(&p, collectives), MG_OK);
    c->api->free(c);
}

/* Two devices on one GPU, and devices that are no GPUs. */
static void what_cannot_be_a_team_is_refused(void **state) {
    (void)state;
    const mg_comm_id id = new_id();
    mg_comm_id other;
    mg_device *twice_same[] = {mg_device_find("cuda:0/0"), mg_device_find("cuda:0/1")};
    mg_device *ref[] = {mg_device_find("ref:0")};
    assert_null(
        mg_device_join(&(mg_device_team){.n = 2, .here = 2, .id = &id, .devices = twice_same}));
    assert_non_null(strstr(mg_error_message(), "a GPU of its own"));
    assert_null(mg_device_join(&(mg_device_team){.n = 2, .here = 1, .id = &id, .devices = ref}));
    assert_non_null(strstr(mg_error_message(), "ref devices do not work together"));
    assert_int_equal(mg_device_make_id(ref[0], &other), MG_UNSUPPORTED);
    unlink(id.bytes);
}

int main(int argc, char **argv) {
    setenv("MGPU_CUDA_LIBRARIES", "build/fake_cuda", 0);
    setenv("MGPU_FAKE_CUDA_GPUS", "4", 1);
    self = argv[0];
    if (argc == 7 && strcmp(argv[1], "rank") == 0) return be_rank(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_several_processes_are_one_team),
        cmocka_unit_test(a_process_that_dies_ends_the_others_wait),
        cmocka_unit_test(who_never_comes_is_not_waited_for_for_ever),
        cmocka_unit_test(a_failure_that_comes_later_is_found),
        cmocka_unit_test(what_cannot_be_a_team_is_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mg_devices_close();
    return failed;
}
