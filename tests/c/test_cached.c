/* Cached rows (data/sources/sources.h), in memory and in files: what is kept, damaged files, and
 * failures of disk and memory. */
#define _GNU_SOURCE
#include "core/io.h"
#include "core/threads.h"
#include "data/sources/sources.h"
#include "data/sources/row_file.h"
#include "mixed_source.h"
#include <errno.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static char folder[] = "/tmp/mgpu-cached-XXXXXX", path[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/rows", folder);
    return 0;
}

/* Also fails if a file, a lock or a temporary file is left. */
static int remove_folder(void **state) {
    return nothing_is_left(state) || mg_io_open_count() != 0 || rmdir(folder) != 0;
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

/* Takes the reference to the source. */
static mg_source *cached(mg_source *inner, const char *file) {
    mg_source *s = file ? mg_cache_file_source(inner, file) : mg_cached_source(inner);
    mg_source_release(inner);
    assert_non_null(s);
    return s;
}

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

static mg_source *column(int64_t rows) {
    mg_tensor *t[] = {numbers(MG_F64, rows), numbers(MG_I32, rows)};
    mg_source *s = mg_tensors_source(t, 2);
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    return s;
}

/* ---- what is kept ---- */

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

/* ---- failures ---- */

/* A row that cannot be read: in memory it is tried again; of a file nothing is left. */
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
static void failing_files_leave_nothing(void **state) {
    (void)state;
    mg_source *inner = mixed(10, 3);
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

static void failing_memory_leaves_nothing(void **state) {
    (void)state;
    mg_source *inner = mixed(6, 3);
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
        assert_true(fail_at > 20);
    }
    free(expected);
    mg_source_release(inner);
}

/* ---- files that are not right ---- */

static char *file_bytes(size_t *n) {
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 16);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

static void put_file(const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    fwrite(bytes, 1, n, f);
    fclose(f);
}

/* Reads all rows of the file at the path. MG_OK or the first failure. */
static mg_status read_file(const mg_source *like) {
    mg_row_file *f = mg_row_file_open(path, like);
    mg_status status = f ? MG_OK : mg_error_code();
    for (int64_t row = 0; status == MG_OK && row < like->n_rows; row++) {
        int32_t number;
        mg_cell cell[N_FIELDS] = {{.data = &number}};
        status = mg_row_file_read(f, like, row, cell);
        mg_free(cell[LIST].data), mg_free(cell[TEXT].data);
    }
    mg_row_file_close(f);
    return status;
}

/* Every byte of a file changed, and every length: an error that names the file, never a crash. */
static void every_damage_is_found(void **state) {
    (void)state;
    mg_source *inner = mixed(5, 3), *s = cached(mg_source_retain(inner), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    assert_int_equal(read_file(inner), MG_OK);
    size_t n;
    char *bytes = file_bytes(&n);
    const size_t rows = 5 * (4 + 8 + 8 + 5) + (1 + 2 + 3 + 1 + 2) * 4, padding = (8 - rows % 8) % 8;
    for (size_t i = 0; i < n; i++) {
        if (i >= rows && i < rows + padding) continue; /* the only bytes that nobody reads */
        bytes[i] ^= 0x10;
        put_file(bytes, n);
        assert_int_equal(read_file(inner), MG_DATA);
        assert_non_null(strstr(mg_error_message(), path));
        assert_non_null(strstr(mg_error_message(), "remove the file"));
        bytes[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < n; cut++) {
        put_file(bytes, cut);
        assert_int_equal(read_file(inner), MG_DATA);
    }
    put_file(bytes, n);
    assert_int_equal(read_file(inner), MG_OK);
    free(bytes);
    mg_source_release(s), mg_source_release(inner);
}

/* A file with hashes that are right, as only its enemies make it: numbers behind `rows` are 8 bytes
 * each. */
typedef struct hostile {
    char *bytes;
    size_t n;
    int64_t *trailer; /* n_rows, n_fields, rows_end, table, hash, magic */
} hostile;

/* The table's entry of a row: offset and hash. */
static int64_t *entry(const hostile *h, int row) {
    return (int64_t *)(void *)(h->bytes + h->trailer[3]) + 2 * row;
}

/* Writes the file, with the trailer's hash made right. It must be refused as damaged. */
static void check_refused(const hostile *h, const mg_source *like) {
    XXH3_state_t state;
    h->trailer[4] = 0;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, h->bytes + h->trailer[3], h->n - 48 - (size_t)h->trailer[3]);
    XXH3_64bits_update(&state, h->trailer, 48);
    h->trailer[4] = (int64_t)XXH3_64bits_digest(&state);
    put_file(h->bytes, h->n);
    assert_int_equal(read_file(like), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "is damaged"));
}

/* Offsets outside the rows and in a wrong order, and sizes of cells that overflow or are more than
 * the row holds: with right hashes, too, they are errors. */
static void hostile_files_are_refused(void **state) {
    (void)state;
    static const int64_t odd[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 4, 1 << 20, 26};
    mg_source *inner = mixed(5, 3), *s = cached(mg_source_retain(inner), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    hostile h = {.bytes = NULL};
    h.bytes = file_bytes(&h.n);
    h.trailer = (int64_t *)(void *)(h.bytes + h.n - 48);
    for (int i = 0; i < 6; i++) {
        const int64_t offset = entry(&h, 2)[0];
        entry(&h, 2)[0] = odd[i];
        check_refused(&h, inner);
        entry(&h, 2)[0] = offset;
    }
    /* the number of float32 values in row 1, which ends where row 2 begins */
    char *row = h.bytes + entry(&h, 1)[0];
    const size_t bytes = (size_t)(entry(&h, 2)[0] - entry(&h, 1)[0]);
    for (int i = 0; i < 6; i++) {
        memcpy(row + 4, &odd[i], sizeof odd[i]);
        entry(&h, 1)[1] = (int64_t)XXH3_64bits(row, bytes);
        check_refused(&h, inner);
    }
    free(h.bytes);
    mg_source_release(s), mg_source_release(inner);
}

static void damage_is_told_at_the_row(void **state) {
    (void)state;
    mg_source *inner = mixed(5, 3), *s = cached(mg_source_retain(inner), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    size_t n;
    char *bytes = file_bytes(&n), expected[200];
    bytes[40] ^= 1; /* a row has 25 bytes and its numbers: the second one's */
    put_file(bytes, n);
    assert_int_equal(read_file(inner), MG_DATA);
    snprintf(expected, sizeof expected,
             "%s is damaged in row 2: remove the file, and it is made anew", path);
    assert_string_equal(mg_error_message(), expected);
    free(bytes);
    mg_source_release(s), mg_source_release(inner);
}

/* Files of rows of other data sets, and other files. */
static void other_files_are_refused(void **state) {
    (void)state;
    mg_source *s = cached(mixed(5, 3), path), *more = cached(mixed(6, 3), path),
              *other = cached(column(5), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    assert_int_equal(mg_source_prepare(more), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "rows has 5 rows, the dataset here has 6: "));
    assert_int_equal(mg_source_prepare(other), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "rows has 3 fields, the rows here have 2: "));
    put_file("once upon a time, in a file far away, there were no rows at all to be found", 76);
    mg_source_release(s), mg_source_release(other);
    assert_int_equal(mg_source_prepare(more), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "is no file of cached rows"));
    mg_source_release(more);
}

static void fields_are_compared(void **state) {
    (void)state;
    mg_tensor *t = numbers(MG_F64, 4), *u = numbers(MG_I32, 4);
    mg_source *a = cached(mg_tensors_source(&t, 1), path),
              *b = cached(mg_tensors_source(&u, 1), path);
    mg_tensor_release(t), mg_tensor_release(u);
    assert_int_equal(mg_source_prepare(a), MG_OK);
    assert_int_equal(mg_source_prepare(b), MG_USAGE);
    assert_non_null(strstr(mg_error_message(), "cache: field 1 is float64 {3} in "));
    assert_non_null(strstr(mg_error_message(), "but int32 {} here: "));
    mg_source_release(a), mg_source_release(b);
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

#define TEST(name) cmocka_unit_test_teardown(name, remove_file)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rows_are_read_once),
        TEST(rows_of_a_fixed_size_are_kept_too),
        TEST(a_file_serves_other_programs),
        TEST(large_rows_are_kept),
        TEST(a_row_that_cannot_be_read_is_not_kept),
        TEST(failing_files_leave_nothing),
        TEST(failing_memory_leaves_nothing),
        TEST(every_damage_is_found),
        TEST(hostile_files_are_refused),
        TEST(damage_is_told_at_the_row),
        TEST(other_files_are_refused),
        TEST(fields_are_compared),
        TEST(a_cache_that_cannot_be_made_says_why),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
