/* Cached rows (data/sources/sources.h), in memory and in files: which rows are kept, and failures
 * of disk and memory. Damaged files are in test_row_file.c. */
#define _GNU_SOURCE
#include "cached_rows.h"
#include "core/threads.h"
#include <errno.h>

static int reads_of(mg_source *s) {
    return atomic_exchange(&((mixed_source *)s)->reads, 0);
}

/* The text of all rows, or of those in an order. */
static char *text_of(mg_source *s, const mg_stage *stages, int n_stages, int threads) {
    mg_stream *stream = open_stream(s, stages, n_stages, 0, threads, threads);
    char *text = print_stream(stream);
    mg_stream_free(stream);
    return text;
}

/* ---- kept rows ---- */

/* Rows that vary, and rows that do not: the same as without a cache, with several threads in the
 * first pass and in the second, for which the source is not asked again. */
static void rows_are_read_once(void **state) {
    (void)state;
    static const mg_stage shuffled[] = {SHUFFLE(9, 1), CYCLE(2)};
    for (int i = 0; i < 4; i++) {
        mg_source *inner = mixed(40, i / 2 * 3),
                  *s = cached(mg_source_retain(inner), i % 2 ? path : NULL);
        char *expected = text_of(inner, shuffled, 2, 0);
        reads_of(inner);
        for (int threads = 4; threads >= 0; threads -= 2) {
            char *text = text_of(s, shuffled, 2, threads);
            assert_string_equal(text, expected);
            free(text);
            /* two threads may read a row at the same time */
            assert_in_range(reads_of(inner), threads == 4 ? 40 : 0, threads == 4 ? 80 : 0);
        }
        free(expected);
        mg_source_release(s), mg_source_release(inner);
        remove_file(NULL);
    }
}

static void rows_of_a_fixed_size_are_kept_too(void **state) {
    (void)state;
    static const mg_stage stages[] = {SHUFFLE(ROWS, 1), BATCH(6)};
    for (int in_file = 0; in_file < 2; in_file++) {
        int32_t rows[MOST], expected[MOST];
        mg_source *s = cached(column(ROWS), in_file ? path : NULL);
        for (int i = 0; i < 3; i++) {
            mg_stream *a = open_stream(s, stages, 2, 1, i, i + 1), *b = stream_of(stages, 2, 1, 0);
            assert_int_equal(read_rows(a, rows, MOST), ROWS);
            assert_int_equal(read_rows(b, expected, MOST), ROWS);
            assert_memory_equal(rows, expected, ROWS * sizeof rows[0]);
            mg_stream_free(a), mg_stream_free(b);
        }
        mg_source_release(s);
    }
}

/* A second source finds the file and never reads the rows before it; a source without rows has a
 * file, too. */
static void a_file_serves_other_programs(void **state) {
    (void)state;
    for (int rows = 0; rows < 30; rows += 29) {
        mg_source *one = cached(mixed(rows, 4), path);
        char *expected = text_of(one, NULL, 0, 0);
        mg_source_release(one);
        mg_source *inner = mixed(rows, 4), *two = cached(mg_source_retain(inner), path);
        char *text = text_of(two, NULL, 0, 3);
        assert_string_equal(text, expected);
        assert_int_equal(reads_of(inner), 0);
        free(text), free(expected);
        mg_source_release(two), mg_source_release(inner);
        remove_file(NULL);
    }
}

/* Rows that are larger than the writer's buffer. */
static void large_rows_are_kept(void **state) {
    (void)state;
    enum { N = 3 << 18 };
    float *values = malloc(2 * N * sizeof *values);
    for (int i = 0; i < 2 * N; i++) values[i] = (float)i;
    const mg_shape shape = MG_SHAPE(2, N);
    mg_tensor *t = mg_tensor_from_host(values, MG_F32, &shape, mg_device_find("ref:0"));
    mg_source *inner = mg_tensors_source(&t, 1), *s = cached(inner, path);
    mg_tensor_release(t);
    mg_stream *stream = open_stream(s, NULL, 0, 0, 0, 1);
    mg_element *e;
    for (int row = 0; row < 2; row++) {
        assert_int_equal(mg_stream_next(stream, &e), MG_OK);
        assert_memory_equal(e->value[0].buffer->data, values + row * N, N * sizeof *values);
        mg_element_free(e);
    }
    mg_stream_free(stream);
    mg_source_release(s);
    free(values);
}

/* A cached source describes a row with the text of the source that it caches. */
static void rows_come_from_the_source(void **state) {
    (void)state;
    char text[32];
    for (int in_file = 0; in_file < 2; in_file++) {
        mg_source *s = cached(mixed(9, 3), in_file ? path : NULL);
        mg_source_describe(s, 6, text, sizeof text);
        assert_string_equal(text, "row 7");
        mg_source_release(s);
    }
}

/* A source of one field; reading row 1 for the first time reads this row of `through`, as another
 * thread may do at the same time. */
typedef struct nested_source {
    mg_source base;
    mg_source *through; /* borrowed */
    int reads;
    bool broken;
} nested_source;

static mg_status read_nested(mg_source *base, int64_t row, mg_cell cell[]) {
    nested_source *s = (nested_source *)base;
    const bool varies = mg_field_varies(&base->field[0]);
    int32_t other_value;
    mg_cell other = {{0}, &other_value};
    if (++s->reads, s->broken) return mg_fail(MG_DATA, "nested: row %lld", (long long)row);
    if (row == 1 && s->reads == 1) {
        assert_int_equal(mg_source_read(s->through, (mg_row_key){.row = 1}, &other), MG_OK);
        assert_int_equal(*(int32_t *)other.data, 1);
        if (varies) mg_free(other.data);
    }
    if (varies) *cell = (mg_cell){MG_SHAPE(1), mg_alloc(sizeof(int32_t))};
    const int32_t value = (int32_t)row;
    memcpy(cell->data, &value, sizeof value);
    return MG_OK;
}

static mg_source *nested(bool varies) {
    static const mg_source_api api = {.name = "nested", .read = read_nested, .free = free_mixed};
    nested_source *s = mg_source_alloc(&api, sizeof *s, 1);
    s->base.n_rows = 3;
    s->base.field[0] = (mg_field){.dtype = MG_I32};
    if (varies) s->base.field[0].shape = MG_SHAPE(-1);
    return &s->base;
}

/* Reads a row of one int32, which must be its number. */
static mg_status read_number(mg_source *s, int64_t row) {
    int32_t value = -1;
    mg_cell cell = {{0}, &value};
    if (mg_field_varies(&s->field[0])) cell.data = NULL;
    const mg_status status = mg_source_read(s, (mg_row_key){.row = row}, &cell);
    if (status == MG_OK) assert_int_equal(*(int32_t *)cell.data, row);
    if (cell.data != &value) mg_free(cell.data);
    return status;
}

static void two_threads_may_read_a_row_at_once(void **state) {
    (void)state;
    for (int varies = 0; varies < 2; varies++) {
        mg_source *inner = nested(varies), *s = cached(mg_source_retain(inner), NULL);
        nested_source *n = (nested_source *)inner;
        n->through = s;
        assert_int_equal(read_number(s, 1), MG_OK);
        assert_int_equal(n->reads, 2);
        n->broken = true;
        assert_int_equal(read_number(s, 1), MG_OK); /* kept by one of the two */
        assert_int_equal(read_number(s, 2), MG_DATA);
        assert_string_equal(mg_error_message(), "nested: row 2");
        n->broken = false;
        assert_int_equal(read_number(s, 2), MG_OK);
        mg_source_release(s), mg_source_release(inner);
    }
}

/* ---- failures ---- */

/* A row that cannot be read: a cache in memory reads it again, a cache file is removed. */
static void a_row_that_cannot_be_read_is_not_kept(void **state) {
    (void)state;
    for (int in_file = 0; in_file < 2; in_file++) {
        mg_source *inner = mixed(30, 3),
                  *s = cached(mg_source_retain(inner), in_file ? path : NULL);
        atomic_store(&((mixed_source *)inner)->broken, 20);
        for (int i = 0; i < 2; i++) {
            if (in_file) {
                assert_int_equal(mg_source_prepare(s), MG_DATA);
                assert_string_equal(mg_error_message(), "cache: mixed: row 20");
                assert_false(mg_io_exists(path));
            } else {
                free(text_of(s, NULL, 0, 2));
                assert_string_equal(mg_error_message(), "mixed: row 20");
            }
        }
        atomic_store(&((mixed_source *)inner)->broken, INT64_MAX);
        char *text = text_of(s, NULL, 0, 2), *expected = text_of(inner, NULL, 0, 0);
        assert_string_equal(text, expected);
        free(text), free(expected);
        mg_source_release(s), mg_source_release(inner);
    }
}

/* Each file call of writing and opening a cache fails once: an error that names the file, and
 * nothing but a whole file is left. Then it works. */
static void check_failing_files(mg_source *inner) {
    char *expected = text_of(inner, NULL, 0, 0);
    bool failed = true;
    int n_failures = 0;
    for (int fail_at = 1; failed; fail_at++) {
        mg_source *s = cached(mg_source_retain(inner), path);
        mg_io_fail_after(fail_at, ENOSPC);
        const mg_status status = mg_source_prepare(s);
        failed = mg_io_fail_stop();
        if (status != MG_OK) {
            n_failures++;
            assert_int_equal(status, MG_IO);
            assert_memory_equal(mg_error_message(), "cache: ", 7);
            assert_non_null(strstr(mg_error_message(), folder));
        }
        char *text = text_of(s, NULL, 0, 0);
        assert_string_equal(text, expected);
        free(text);
        mg_source_release(s);
        remove_file(NULL);
    }
    assert_true(n_failures > 5);
    free(expected);
    mg_source_release(inner);
}

static void failing_files_leave_nothing(void **state) {
    (void)state;
    for (int cycle = 0; cycle < 4; cycle += 3) check_failing_files(mixed(10, cycle));
}

static void check_failing_memory(mg_source *inner, int most) {
    char *expected = text_of(inner, NULL, 0, 0);
    for (int in_file = 0; in_file < 2; in_file++) {
        bool failed = true;
        int fail_at = 1;
        mg_device *ref = mg_device_find("ref:0");
        for (; failed; fail_at++) {
            mg_alloc_fail_after(fail_at);
            mg_source *s = in_file ? mg_cache_file_source(inner, path) : mg_cached_source(inner);
            failed = !s;
            if (!s) s = cached(mg_source_retain(inner), in_file ? path : NULL);
            if (mg_source_prepare(s) != MG_OK) {
                assert_int_equal(mg_error_code(), MG_OOM);
                failed = true;
            }
            mg_stream *stream = NULL;
            while (!(stream = mg_stream_new(
                         &(mg_stream_spec){.source = s, .device = (mg_device *[]){ref, ref, ref}})))
                failed = true;
            char *text = malloc(4096);
            size_t n = 0;
            for (mg_element *e;;) {
                if (mg_stream_next(stream, &e) != MG_OK) {
                    failed = true;
                    assert_non_null(strstr(mg_error_message(), "out of memory"));
                    continue;
                }
                if (!e) break;
                n += print_element(e, text + n, 4000 - n);
                n += (size_t)sprintf(text + n, "\n");
                mg_element_free(e);
            }
            mg_alloc_fail_after(0);
            assert_string_equal(text, expected);
            free(text);
            mg_stream_free(stream);
            mg_source_release(s);
            remove_file(NULL);
        }
        assert_true(fail_at > most);
    }
    free(expected);
    mg_source_release(inner);
}

static void failing_memory_leaves_nothing(void **state) {
    (void)state;
    check_failing_memory(mixed(6, 3), 20);
    check_failing_memory(mixed(6, 0), 8);
}

/* More rows than memory has addresses. */
static void too_many_rows_are_an_error(void **state) {
    (void)state;
    for (int cycle = 0; cycle < 4; cycle += 3) {
        mg_source *inner =
            mixed(((int64_t)1 << 62) + 5, cycle); /* 20 times that overflows to 100 */
        assert_null(mg_cached_source(inner));
        assert_int_equal(mg_error_code(), MG_OOM);
        assert_memory_equal(mg_error_message(), "cache: out of memory: give it a path", 36);
        mg_source *s = cached(inner, path);
        assert_int_equal(mg_source_prepare(s), cycle ? MG_OOM : MG_IO);
        assert_non_null(strstr(mg_error_message(),
                               cycle ? "cache: out of memory: a table of 4611686018427387909 rows"
                                     : "rows: it needs 16777216.0 TiB, but the disk has only "));
        mg_source_release(s);
    }
}

/* A folder that is not there, a disk that is too small, and an interrupt. */
static void a_cache_that_cannot_be_made_says_why(void **state) {
    (void)state;
    mg_source *s = cached(mixed(5, 3), "/tmp/mgpu-no-such-folder/rows");
    assert_int_equal(mg_source_prepare(s), MG_IO);
    assert_non_null(strstr(mg_error_message(), "/tmp/mgpu-no-such-folder"));
    mg_source_release(s);
    s = cached(mixed((int64_t)1 << 50, 0), path); /* 2^50 rows of 4 bytes, and 16 in the table */
    assert_int_equal(mg_source_prepare(s), MG_IO);
    assert_non_null(strstr(mg_error_message(), "/rows: it needs 20"));
    assert_non_null(strstr(mg_error_message(), "but the disk has only "));
    mg_source_release(s);
    s = cached(mixed(5, 3), path);
    mg_interrupt();
    assert_int_equal(mg_source_prepare(s), MG_INTERRUPTED);
    assert_false(mg_io_exists(path));
    assert_int_equal(mg_source_prepare(s), MG_OK);
    mg_source_release(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rows_are_read_once),
        TEST(rows_of_a_fixed_size_are_kept_too),
        TEST(a_file_serves_other_programs),
        TEST(large_rows_are_kept),
        TEST(a_row_that_cannot_be_read_is_not_kept),
        TEST(rows_come_from_the_source),
        TEST(two_threads_may_read_a_row_at_once),
        TEST(failing_files_leave_nothing),
        TEST(failing_memory_leaves_nothing),
        TEST(too_many_rows_are_an_error),
        TEST(a_cache_that_cannot_be_made_says_why),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
