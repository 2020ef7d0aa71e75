/* Streams (data/stream.h), on which mgpu.data is built: elements in their order, made in the
 * caller's thread or ahead of it in a thread of the stream. */
#define _GNU_SOURCE
#include "core/threads.h"
#include "stream_rows.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A chain with three kinds of stages. */
static const mg_stage shuffled[] = {SHUFFLE(ROWS, 1), BATCH(3), CYCLE(2)};

/* A stream with a thread gives the elements of one without, for several depths, and its end stays
 * the end. */
static void a_thread_gives_what_the_caller_would(void **state) {
    (void)state;
    int32_t one[MOST], two[MOST];
    /* The rows without a thread, as the reference. */
    mg_stream *s = stream_of(shuffled, 3, 1, 0);
    assert_int_equal(read_rows(s, one, MOST), 2 * ROWS);
    assert_int_equal(read_rows(s, one, MOST), 0); /* the end stays */
    mg_stream_free(s);
    s = stream_of(shuffled, 3, 1, 0);
    read_rows(s, one, MOST);
    mg_stream_free(s);
    /* From one element ahead to more than the stream has. */
    for (int64_t depth = 1; depth < 100; depth *= 3) {
        s = stream_of(shuffled, 3, 1, depth);
        assert_int_equal(read_rows(s, two, MOST), 2 * ROWS);
        assert_int_equal(read_rows(s, two + 2 * ROWS, MOST), 0);
        assert_memory_equal(one, two, 2 * ROWS * sizeof one[0]);
        mg_stream_free(s);
    }
}

/* The buffers of a batch of batches: 10 of one row, 5 of a batch, or 1 of both, depending on
 * `dense`. */
static void outer_batches_come_in_parts(void **state) {
    (void)state;
    static const mg_stage stages[] = {BATCH(2), BATCH(5)};
    int32_t rows[MOST];
    for (int dense = 0; dense <= 2; dense++) {
        /* Buffers in an element, by `dense`. */
        static const int64_t parts[] = {10, 5, 1};
        mg_stream *s = stream_of(stages, 2, dense, 0);
        mg_element *e;
        assert_int_equal(mg_stream_next(s, &e), MG_OK);
        assert_int_equal(e->n_parts, parts[dense]);
        assert_int_equal(e->outer.rank, 2 - dense);
        assert_int_equal(e->value[0].shape.rank, dense + 1);
        if (dense < 2) assert_int_equal(e->outer.dim[0], 5);
        assert_int_equal(rows_of(e, rows), 10);
        for (int i = 0; i < 10; i++) assert_int_equal(rows[i], i);
        mg_element_free(e);
        mg_stream_free(s);
    }
}

/* A stream with a working thread can be freed after any number of elements. */
static void a_stream_may_be_left_at_any_time(void **state) {
    (void)state;
    static const mg_stage endless[] = {SHUFFLE(7, 1), CYCLE(MG_ENDLESS), BATCH(3)};
    int32_t rows[MOST];
    /* Free the stream after every number of elements, with and without a thread. */
    for (int taken = 0; taken < 8; taken++)
        for (int64_t depth = 0; depth < 4; depth++) {
            mg_stream *s = stream_of(endless, 3, 1, depth);
            assert_int_equal(read_rows(s, rows, taken), 3 * taken);
            mg_stream_free(s);
        }
}

/* Reads all rows of a stream of which the fail_at-th allocation fails. Each failure must be MG_OOM
 * and happen once, and the next try must succeed. Returns the number of rows. */
static int rows_in_spite_of(const mg_stream_spec *spec, int64_t fail_at, int32_t *rows,
                            int *n_failures) {
    int n = 0;
    /* From here on, so that making the stream can fail, too. */
    mg_alloc_fail_after(fail_at);
    mg_stream *s = mg_stream_new(spec);
    /* Making the stream has failed: try again. */
    if (!s) {
        ++*n_failures;
        s = mg_stream_new(spec);
        assert_non_null(s);
    }
    for (;;) {
        mg_element *e;
        const mg_status status = mg_stream_next(s, &e);
        if (status == MG_OK && !e) break;
        if (status != MG_OK) {
            assert_int_equal(status, MG_OOM);
            assert_non_null(strstr(mg_error_message(), "out of memory"));
            ++*n_failures;
            assert_int_equal(mg_stream_next(s, &e), MG_OK);
            assert_non_null(e);
        }
        n += rows_of(e, rows + n);
        mg_element_free(e);
    }
    mg_stream_free(s);
    mg_alloc_fail_after(0);
    return n;
}

/* Fails each allocation in a stream's life once, with and without a thread: the rows stay complete
 * and in order. */
static void failing_memory_loses_no_element(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(40, 1), BATCH(3), SHUFFLE(2, 2), CYCLE(2)};
    int32_t expected[MOST], rows[MOST];
    mg_stream_spec spec = spec_of(rows_source(), stages, 4);
    spec.dense = 1;
    /* Without a thread, then with one that works two elements ahead. */
    for (spec.depth = 0; spec.depth < 3; spec.depth += 2) {
        int n_failures = 0, fail_at = 0, before;
        assert_int_equal(rows_in_spite_of(&spec, 0, expected, &n_failures), 2 * ROWS);
        assert_int_equal(n_failures, 0);
        /* Until there is no such allocation any more. */
        do {
            before = n_failures;
            assert_int_equal(rows_in_spite_of(&spec, ++fail_at, rows, &n_failures), 2 * ROWS);
            assert_memory_equal(rows, expected, 2 * ROWS * sizeof rows[0]);
        } while (n_failures == before + 1);
        assert_int_equal(n_failures, fail_at - 1);
        assert_true(fail_at > 20);
    }
    mg_source_release(spec.source);
}

/* A memory limit of the device, as MGPU_MEMORY sets it, fails every call until it is lifted; then
 * the stream continues with the element that failed. */
static void a_stream_goes_on_when_there_is_memory_again(void **state) {
    (void)state;
    static const mg_stage stages[] = {BATCH(4)};
    mg_device *d = mg_device_find("ref:0");
    const int64_t limit = d->limit;
    int32_t rows[MOST];
    mg_element *e;
    mg_stream *s = stream_of(stages, 1, 1, 0);
    assert_int_equal(read_rows(s, rows, 1), 4);
    /* Room for 16 more bytes: less than an element. */
    d->limit = atomic_load(&d->used) + 16;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mg_stream_next(s, &e), MG_OOM);
        assert_non_null(strstr(mg_error_message(), "ref:0: out of memory"));
    }
    /* With memory again, the stream continues with row 4. */
    d->limit = limit;
    assert_int_equal(read_rows(s, rows + 4, MOST), 16);
    for (int i = 0; i < ROWS; i++) assert_int_equal(rows[i], i);
    mg_stream_free(s);
    /* The same with a thread, whose errors reach the caller. */
    mg_stream_spec spec = spec_of(rows_source(), NULL, 0);
    spec.depth = 2;
    d->limit = atomic_load(&d->used) + 16;
    s = mg_stream_new(&spec);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mg_stream_next(s, &e), MG_OOM);
        assert_non_null(strstr(mg_error_message(), "ref:0: out of memory"));
    }
    mg_stream_free(s);
    d->limit = limit;
    mg_source_release(spec.source);
}

/* An interrupt ends one call with MG_INTERRUPTED and loses no element. */
static void an_interrupt_ends_one_call_only(void **state) {
    (void)state;
    int32_t rows[MOST];
    mg_element *e;
    mg_stream *s = stream_of(shuffled, 3, 1, 0);
    /* The interrupt is pending before the call, and taken by it. */
    mg_interrupt();
    assert_int_equal(mg_stream_next(s, &e), MG_INTERRUPTED);
    assert_false(mg_interrupt_pending());
    assert_int_equal(read_rows(s, rows, MOST), 2 * ROWS);
    mg_stream_free(s);
}

/* Finding the first element would take years here. Neither an interrupted wait nor mg_stream_free
 * waits for it. */
static void long_work_can_be_interrupted_and_left(void **state) {
    (void)state;
    /* The skip has to pass 2^50 elements of a shuffle. */
    static const mg_stage far[] = {CYCLE(MG_ENDLESS), SHUFFLE(3, 1), SKIP((int64_t)1 << 50)};
    mg_element *e;
    /* The caller works, then the thread. */
    for (int64_t depth = 0; depth < 2; depth++) {
        mg_stream *s = stream_of(far, 3, 0, depth);
        for (int i = 0; i < 2; i++) {
            mg_interrupt();
            assert_int_equal(mg_stream_next(s, &e), MG_INTERRUPTED);
            assert_false(mg_interrupt_pending());
        }
        mg_stream_free(s);
    }
}

/* The mask of the signals that a thread of this process blocks, from /proc. */
static uint64_t blocked_signals(const char *thread) {
    char path[300], line[200];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *f = fopen(path, "r");
    /* The line is "SigBlk:" and a hexadecimal mask. */
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "SigBlk: %llx", &mask) == 1) break;
    if (f) fclose(f);
    return mask;
}

/* The stream's thread blocks signals, so that the host program's handlers run in its own threads.
 */
static void the_thread_takes_no_signals(void **state) {
    (void)state;
    sigset_t user; /* a signal that this thread does not block */
    sigemptyset(&user), sigaddset(&user, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &user, NULL);
    int32_t rows[MOST];
    mg_stream *s = stream_of(shuffled, 3, 1, 1);
    read_rows(s, rows, 1); /* wait for the thread's start: glibc blocks all signals during it */
    /* The threads of this process are folders in /proc/self/task. */
    DIR *tasks = opendir("/proc/self/task");
    const long self = (long)getpid();
    uint64_t others = 0;
    assert_non_null(tasks);
    for (struct dirent *d; (d = readdir(tasks)) != NULL;) {
        /* Every other thread of the process. */
        if (atol(d->d_name) == 0 || atol(d->d_name) == self) continue;
        others += blocked_signals(d->d_name) >> (SIGUSR1 - 1) & 1;
    }
    closedir(tasks);
    assert_true(others >= 1);
    /* The caller's own mask has not changed. */
    pthread_sigmask(SIG_SETMASK, NULL, &user);
    assert_false(sigismember(&user, SIGUSR1));
    mg_stream_free(s);
}

/* Tensors with different numbers of rows, too many axes, and too many stages are refused with a
 * message. */
static void what_is_no_table_of_rows_is_refused(void **state) {
    (void)state;
    /* Nine stages, each of which adds an axis: more than are allowed of both. */
    static const mg_stage ninth[] = {BATCH(1), BATCH(1), BATCH(1), BATCH(1), BATCH(1),
                                     BATCH(1), BATCH(1), BATCH(1), BATCH(1)};
    mg_tensor *t[] = {numbers(MG_F64, ROWS), numbers(MG_I32, ROWS - 1)};
    assert_null(mg_tensors_source(t, 2));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "tensor 1 has 20 rows but tensor 2 has 19"));
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    /* The table has two axes, one of them the rows; eight batch stages make nine axes; nine stages
     * are one too many. */
    const mg_stream_spec spec = spec_of(rows_source(), ninth, 8);
    assert_null(mg_stream_new(&spec));
    assert_non_null(strstr(mg_error_message(), "9 axes, at most 8"));
    mg_source_release(spec.source);
    assert_null(mg_order_new(3, ninth, 9));
    assert_non_null(strstr(mg_error_message(), "more than 8"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_gives_what_the_caller_would),
        cmocka_unit_test(outer_batches_come_in_parts),
        cmocka_unit_test(a_stream_may_be_left_at_any_time),
        cmocka_unit_test(failing_memory_loses_no_element),
        cmocka_unit_test(a_stream_goes_on_when_there_is_memory_again),
        cmocka_unit_test(an_interrupt_ends_one_call_only),
        cmocka_unit_test(long_work_can_be_interrupted_and_left),
        cmocka_unit_test(the_thread_takes_no_signals),
        cmocka_unit_test(what_is_no_table_of_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
