/* Orders and streams (data/order, data/stream), on which mgpu.data is built. An order is the
 * sequence of row numbers that stages such as shuffle, batch and cycle make; a stream copies these
 * rows from tensors, in the caller's thread or ahead of it in a thread of its own. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/threads.h"
#include "data/sources/tensors.h"
#include "data/stream.h"
#include "device/buffer.h"
#include "device/device.h"
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* The stages of a dataset, in the notation of mg_stage. */
#define SHUFFLE(size, s)                                                                           \
    { .kind = MG_SHUFFLE, .n = (size), .seed = (s) }
#define BATCH(size)                                                                                \
    { .kind = MG_BATCH, .n = (size) }
#define FULL_BATCH(size)                                                                           \
    { .kind = MG_BATCH, .n = (size), .drop_remainder = true }
#define CYCLE(times)                                                                               \
    { .kind = MG_CYCLE, .n = (times) }
#define TAKE(count)                                                                                \
    { .kind = MG_TAKE, .n = (count) }
#define SKIP(count)                                                                                \
    { .kind = MG_SKIP, .n = (count) }
/* The room for row numbers in each test. */
enum { MOST = 4096 };

/* ---- orders ---- */

/* Reads at most `limit` elements of an order as numbers: for each element its sizes, innermost
 * first, then its rows. Returns how many numbers. */
static int listed(mg_order *o, int64_t *out, int limit, int *n_elements) {
    mg_rows rows = {0};
    bool got = true;
    int n = 0;
    *n_elements = 0;
    /* A pass ends when the order gives no further element. */
    while (*n_elements < limit) {
        assert_int_equal(mg_order_next(o, &rows, &got), MG_OK);
        if (!got) break;
        for (int i = 0; i < rows.rank; i++) out[n++] = rows.dim[i];
        for (int64_t i = 0; i < rows.n; i++) out[n++] = mg_rows_key(&rows, i).row;
        (*n_elements)++;
        assert_in_range(n, 0, MOST / 2);
    }
    mg_free(rows.number);
    return n;
}

/* Asserts that an order over n_rows rows gives exactly these numbers, as `listed` writes them, and
 * announces its length. */
static void check_rows(int64_t n_rows, const mg_stage *stages, int n_stages,
                       const int64_t *expected, int n_expected) {
    int64_t rows[MOST];
    int n_elements;
    mg_order *o = mg_order_new(n_rows, stages, n_stages);
    assert_non_null(o);
    /* Pass 0 from its start. */
    assert_int_equal(mg_order_seek(o, 0, 0), MG_OK);
    const int n = listed(o, rows, MOST, &n_elements);
    assert_int_equal(n, n_expected);
    assert_memory_equal(rows, expected, (size_t)n * sizeof *rows);
    assert_int_equal(mg_order_length(o), n_elements);
    mg_order_free(o);
}
/* check_rows with the expected numbers as arguments. */
#define CHECK_ROWS(n_rows, stages, ...)                                                            \
    check_rows(n_rows, stages, (int)(sizeof(stages) / sizeof(stages)[0]),                          \
               (const int64_t[]){__VA_ARGS__},                                                     \
               (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Each pair of stages in both orders: take before cycle repeats the taken elements, take after it
 * counts over all rounds, and so on. A batch shows its size before its rows. */
static void stages_act_in_their_order(void **state) {
    (void)state;
    static const mg_stage take_cycle[] = {TAKE(2), CYCLE(2)}, cycle_take[] = {CYCLE(2), TAKE(4)},
                          skip_cycle[] = {SKIP(2), CYCLE(2)},
                          endless[] = {CYCLE(MG_ENDLESS), TAKE(7)},
                          batch_cycle[] = {BATCH(2), CYCLE(2)},
                          cycle_batch[] = {CYCLE(2), BATCH(4)}, full[] = {FULL_BATCH(2)},
                          skip_batch[] = {SKIP(1), BATCH(5), TAKE(1)};
    CHECK_ROWS(3, take_cycle, 0, 1, 0, 1);
    CHECK_ROWS(3, cycle_take, 0, 1, 2, 0);
    CHECK_ROWS(3, skip_cycle, 2, 2);
    CHECK_ROWS(3, endless, 0, 1, 2, 0, 1, 2, 0);
    CHECK_ROWS(3, batch_cycle, 2, 0, 1, 1, 2, 2, 0, 1, 1, 2);
    CHECK_ROWS(3, cycle_batch, 4, 0, 1, 2, 0, 2, 1, 2);
    CHECK_ROWS(3, full, 2, 0, 1);
    CHECK_ROWS(3, skip_batch, 2, 1, 2);
}

/* A batch of batches has two sizes. Smaller batches can be batched alone, but not together with
 * larger ones. */
static void batches_of_batches_have_two_sizes(void **state) {
    (void)state;
    /* The inner batches have 2 rows, the outer ones 2 batches. */
    static const mg_stage twice[] = {BATCH(2), BATCH(2)};
    CHECK_ROWS(6, twice, 2, 2, 0, 1, 2, 3, 2, 1, 4, 5);
    CHECK_ROWS(5, twice, 2, 2, 0, 1, 2, 3, 1, 1, 4);
    /* Of 7 rows the last batch has one, and cannot share a batch with one of two. */
    mg_order *o = mg_order_new(7, twice, 2);
    mg_rows rows = {0};
    bool got;
    assert_int_equal(mg_order_seek(o, 0, 1), MG_OK);
    assert_int_equal(mg_order_next(o, &rows, &got), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "sizes {2} and {1}"));
    mg_free(rows.number);
    mg_order_free(o);
}

/* Stages that leave no element end at once, even before an endless cycle. */
static void nothing_comes_of_nothing(void **state) {
    (void)state;
    static const mg_stage stages[][2] = {{TAKE(0), CYCLE(MG_ENDLESS)},
                                         {SKIP(9), SHUFFLE(4, 1)},
                                         {CYCLE(0), BATCH(2)},
                                         {FULL_BATCH(9), CYCLE(MG_ENDLESS)}};
    for (int i = 0; i < 4; i++) check_rows(3, stages[i], 2, NULL, 0);
}

/* 20 passes of a shuffle with a window of 8 over 50 elements: each pass has every element once and
 * a new order; an element comes at most 7 places early, but may come late. */
static void a_shuffle_gives_each_element_once_and_reaches_its_window(void **state) {
    (void)state;
    enum { N = 50, WINDOW = 8 };
    static const mg_stage stages[] = {SHUFFLE(WINDOW, 3)};
    int64_t rows[MOST], again[MOST];
    /* How often an element comes later than its window, and how often each one comes in all. */
    int n, late = 0, seen[N] = {0};
    mg_order *o = mg_order_new(N, stages, 1);
    /* Elements come once, not too early, and not in the order of the pass before. */
    for (uint64_t pass = 0; pass < 20; pass++) {
        assert_int_equal(mg_order_seek(o, pass, 0), MG_OK);
        assert_int_equal(listed(o, rows, N, &n), N);
        for (int i = 0; i < N; i++) {
            assert_true(rows[i] < i + WINDOW);
            late += rows[i] < i - WINDOW;
            seen[rows[i]]++;
        }
        if (pass > 0) assert_memory_not_equal(rows, again, sizeof *rows * N);
        memcpy(again, rows, sizeof *rows * N);
    }
    /* Once in each pass; and some elements stay in the window for long. */
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 20);
    assert_true(late > 20);
    mg_order_free(o);
}

/* Fixed orders. They must never change, on any machine, because saved positions in a pass refer to
 * them. Both halves of the seed count. */
static void a_seed_and_a_pass_decide_the_order(void **state) {
    (void)state;
    static const mg_stage window[] = {SHUFFLE(3, 1)}, all[] = {SHUFFLE(100, 1)},
                          high[] = {SHUFFLE(100, 1 + ((uint64_t)1 << 32))};
    /* A window of three elements, and one of all. */
    CHECK_ROWS(8, window, 2, 3, 4, 0, 5, 7, 6, 1);
    CHECK_ROWS(8, all, 5, 6, 4, 1, 0, 2, 3, 7);
    int64_t rows[MOST], other[MOST];
    int n;
    mg_order *a = mg_order_new(8, all, 1), *b = mg_order_new(8, high, 1);
    /* All eight rows with either seed. */
    mg_order_seek(a, 0, 0), mg_order_seek(b, 0, 0);
    listed(a, rows, 8, &n), listed(b, other, 8, &n);
    assert_memory_not_equal(rows, other, 8 * sizeof *rows);
    mg_order_free(a), mg_order_free(b);
}

/* Each round of a cycle is shuffled as a pass of its own, so no two rounds of two outer passes are
 * equal. */
static void rounds_of_a_cycle_are_shuffled_anew(void **state) {
    (void)state;
    enum { N = 12, ROUNDS = 3 };
    /* A cycle of three rounds, and an endless one read for as long. */
    static const mg_stage chains[2][2] = {{SHUFFLE(N, 5), CYCLE(ROUNDS)},
                                          {SHUFFLE(N, 5), CYCLE(MG_ENDLESS)}};
    int64_t rows[MOST];
    int n;
    for (int c = 0; c < 2; c++) {
        mg_order *o = mg_order_new(N, chains[c], 2);
        for (uint64_t pass = 0; pass < 2; pass++) {
            mg_order_seek(o, pass, 0);
            listed(o, rows + pass * N * ROUNDS, N * ROUNDS, &n);
        }
        /* Every round differs from all earlier ones. */
        for (int i = 0; i < 2 * ROUNDS; i++)
            for (int k = 0; k < i; k++)
                assert_memory_not_equal(rows + i * N, rows + k * N, N * sizeof *rows);
        mg_order_free(o);
    }
}

/* Chains of six stages: from every position the elements are those that reading from the start
 * gives, and behind the end there are none. */
static void seeking_gives_what_reading_would(void **state) {
    (void)state;
    static const mg_stage chains[][6] = {
        {SHUFFLE(5, 1), CYCLE(4), SKIP(3), BATCH(4), TAKE(12), SHUFFLE(2, 9)},
        {SKIP(2), SHUFFLE(100, 2), BATCH(2), CYCLE(3), SHUFFLE(3, 4), FULL_BATCH(1)},
        {CYCLE(MG_ENDLESS), SHUFFLE(7, 3), BATCH(3), SKIP(1), TAKE(20), CYCLE(2)},
        {SHUFFLE(6, 1), SHUFFLE(3, 1), CYCLE(2), SHUFFLE(9, 2), SKIP(4), BATCH(1)},
        {SHUFFLE(4, 8), CYCLE(MG_ENDLESS), FULL_BATCH(3), SKIP(5), BATCH(2), TAKE(11)}};
    int64_t whole[MOST], rest[MOST];
    int count, left;
    for (size_t c = 0; c < sizeof chains / sizeof chains[0]; c++) {
        mg_order *o = mg_order_new(11, chains[c], 6);
        /* All of pass 2, then pass 2 from every position on. */
        mg_order_seek(o, 2, 0);
        const int n = listed(o, whole, MOST, &count);
        assert_int_equal(mg_order_length(o), count);
        for (int at = 0; at <= count + 1; at++) {
            assert_int_equal(mg_order_seek(o, 2, at), MG_OK);
            /* The rest of the pass must be the end of the whole one. */
            const int m = listed(o, rest, MOST, &left);
            assert_int_equal(left, at > count ? 0 : count - at);
            assert_memory_equal(rest, whole + n - m, (size_t)m * sizeof *rest);
        }
        mg_order_free(o);
    }
}

/* Position 2^50 of an endless shuffle is reached without producing the elements before it. */
static void far_positions_are_reached_at_once(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(10, 1), CYCLE(MG_ENDLESS), BATCH(4)};
    int64_t rows[MOST];
    int n;
    mg_order *o = mg_order_new(10, stages, 3);
    assert_int_equal(mg_order_length(o), MG_ENDLESS);
    /* Two batches there: a size and four rows each. */
    mg_order_seek(o, 0, (int64_t)1 << 50);
    assert_int_equal(listed(o, rows, 2, &n), 10);
    mg_order_free(o);
}

/* ---- streams ---- */

/* The size of the tensors in the streams below. */
enum { ROWS = 20, COLUMNS = 3 };

/* Row i is {3i + 0.5, 3i + 1.5, 3i + 2.5} in a float64 table, and i in an int32 column. Owned. */
static mg_tensor *numbers(mg_dtype dtype, int64_t rows) {
    static int32_t whole[ROWS * COLUMNS];
    static double fraction[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) whole[i] = i, fraction[i] = i + 0.5;
    /* Both tensors from the same memory in every call. */
    const mg_shape column = MG_SHAPE(rows), table = MG_SHAPE(rows, COLUMNS);
    return mg_tensor_from_host(dtype == MG_I32 ? (void *)whole : fraction, dtype,
                               dtype == MG_I32 ? &column : &table, mg_device_find("ref:0"));
}

/* A source of the table and the column. Owned. */
static mg_source *rows_source(void) {
    mg_tensor *t[] = {numbers(MG_F64, ROWS), numbers(MG_I32, ROWS)};
    mg_source *s = mg_tensors_source(t, 2);
    assert_non_null(s);
    /* The source keeps its own references to the tensors. */
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    return s;
}

/* What a stream of this source is made from; batches lie on ref:0. */
static mg_stream_spec spec_of(mg_source *source, const mg_stage *stages, int n_stages) {
    mg_stream_spec spec = {.source = source, .stages = stages, .n_stages = n_stages, .threads = 1};
    for (int k = 0; k < MG_SOURCE_FIELDS; k++) spec.device[k] = mg_device_find("ref:0");
    return spec;
}

/* A stream over the table and the column. dense: how many batch axes lie in one buffer; depth: how
 * many elements a thread prepares, 0 for no thread. Owned. */
static mg_stream *stream_of(const mg_stage *stages, int n_stages, int dense, int64_t depth) {
    mg_stream_spec spec = spec_of(rows_source(), stages, n_stages);
    spec.dense = dense;
    spec.depth = depth;
    mg_stream *s = mg_stream_new(&spec);
    mg_source_release(spec.source); /* the stream keeps its own reference */
    assert_non_null(s);
    return s;
}

/* The row numbers of an element, from its int32 column; asserts that the table has the same rows.
 * Returns how many. */
static int rows_of(const mg_element *e, int32_t *rows) {
    int n = 0;
    /* A part is a buffer of each tensor. */
    for (int64_t part = 0; part < e->n_parts; part++) {
        const mg_field_value *table = &e->value[part * 2], *column = table + 1;
        const double *x = table->buffer->data;
        const int32_t *y = column->buffer->data;
        const int64_t count = mg_shape_count(&column->shape);
        assert_int_equal(mg_shape_count(&table->shape), count * COLUMNS);
        for (int64_t i = 0; i < count; i++) {
            /* The table's row with the number y[i]. */
            for (int c = 0; c < COLUMNS; c++)
                assert_true(x[i * COLUMNS + c] == y[i] * COLUMNS + c + 0.5);
            rows[n++] = y[i];
        }
    }
    return n;
}

/* The row numbers of at most `limit` elements of the stream. Returns how many. */
static int read_rows(mg_stream *s, int32_t *rows, int limit) {
    int n = 0;
    for (int i = 0; i < limit; i++) {
        mg_element *e;
        assert_int_equal(mg_stream_next(s, &e), MG_OK);
        if (!e) return n;
        n += rows_of(e, rows + n);
        mg_element_free(e);
    }
    return n;
}

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
        int n_failures = 0;
        const int64_t before = mg_alloc_get_stats().total_calls;
        assert_int_equal(rows_in_spite_of(&spec, 0, expected, &n_failures), 2 * ROWS);
        assert_int_equal(n_failures, 0);
        /* How many allocations there are to fail. */
        const int calls = (int)(mg_alloc_get_stats().total_calls - before);
        for (int fail_at = 1; fail_at <= calls; fail_at++) {
            assert_int_equal(rows_in_spite_of(&spec, fail_at, rows, &n_failures), 2 * ROWS);
            assert_memory_equal(rows, expected, 2 * ROWS * sizeof rows[0]);
        }
        assert_int_equal(n_failures, calls);
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
    /* The table has two axes, of which one is rows; eight batches make nine; nine stages are one
     * too many. */
    const mg_stream_spec spec = spec_of(rows_source(), ninth, 8);
    assert_null(mg_stream_new(&spec));
    assert_non_null(strstr(mg_error_message(), "9 axes, at most 8"));
    mg_source_release(spec.source);
    assert_null(mg_order_new(3, ninth, 9));
    assert_non_null(strstr(mg_error_message(), "more than 8"));
}

/* Teardown of the group: fails if a block of memory or a tensor is left. */
static int nothing_is_left(void **state) {
    (void)state;
    mg_devices_close();
    return mg_alloc_get_stats().live_blocks == 0 && mg_tensor_live_count() == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_act_in_their_order),
        cmocka_unit_test(batches_of_batches_have_two_sizes),
        cmocka_unit_test(nothing_comes_of_nothing),
        cmocka_unit_test(a_shuffle_gives_each_element_once_and_reaches_its_window),
        cmocka_unit_test(a_seed_and_a_pass_decide_the_order),
        cmocka_unit_test(rounds_of_a_cycle_are_shuffled_anew),
        cmocka_unit_test(seeking_gives_what_reading_would),
        cmocka_unit_test(far_positions_are_reached_at_once),
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
