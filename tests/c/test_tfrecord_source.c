/* Rows of TFRecord files (data/sources/tfrecord): cut at every byte, with every bit flipped, with
 * lengths that lie; read by several threads from more files than are open at once; and every
 * allocation and file call fails once. The values are tested by tests/lua/data/tfrecord_*. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/example.h"
#include "data/sources/tfrecord.h"
#include "io/file_set.h"
#include "io/tfrecord.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 5, MANY = 3 * MG_FILE_SET_OPEN, THREADS = 4, ROOM = 4096 };

static char folder[] = "/tmp/mgpu-test-records-XXXXXX", path[64];

/* ---- files ---- */

/* Row i: a list of i integers, a string, and two floats as bytes. */
static void add_row(mg_tfrecord_writer *w, int64_t i) {
    const int64_t list[] = {i, -i, 1, 2, 3, 4, 5, 6};
    const float raw[] = {(float)i, 0.5f};
    char text[32];
    const int length = snprintf(text, sizeof text, "row %lld", (long long)i);
    const mg_feature_value values[] = {{"list", MG_FEATURE_INT64, list, (size_t)(i % 8), NULL},
                                       {"text", MG_FEATURE_BYTES, text, (size_t)length, NULL},
                                       {"raw", MG_FEATURE_BYTES, raw, sizeof raw, NULL}};
    size_t n;
    uint8_t *message = mg_example_encode(values, 3, &n);
    assert_non_null(message);
    assert_int_equal(mg_tfrecord_writer_add(w, message, n), MG_OK);
    mg_free(message);
}

static void write_rows(const char *file, mg_packing packing, int64_t first, int64_t n) {
    mg_tfrecord_writer *w = mg_tfrecord_writer_open(file, packing);
    assert_non_null(w);
    for (int64_t i = 0; i < n; i++) add_row(w, first + i);
    assert_int_equal(mg_tfrecord_writer_finish(w), MG_OK);
    assert_int_equal(mg_tfrecord_writer_commit(w), MG_OK);
    mg_tfrecord_writer_free(w);
}

static size_t read_bytes(unsigned char bytes[ROOM]) {
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, ROOM, f);
    fclose(f);
    return n;
}

static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* ---- reading ---- */

static mg_source *open_files(const char *const *paths, int n, bool skip_bad) {
    mg_record_field fields[] = {
        {mg_strdup("list"), MG_RECORD_LIST, MG_I32, MG_SHAPE(-1), 0, NULL, 0, 0},
        {mg_strdup("text"), MG_RECORD_TEXT, MG_U8, MG_SHAPE(), 0, NULL, 0, 0},
        {mg_strdup("raw"), MG_RECORD_RAW, MG_F32, MG_SHAPE(2), 0, NULL, 0, 0}};
    const bool whole = fields[0].name && fields[1].name && fields[2].name;
    for (int k = 0; k < 3 && !whole; k++) mg_record_field_clear(&fields[k]);
    if (!whole) return NULL;
    const mg_tfrecord_spec spec = {
        .paths = paths, .n_paths = n, .field = fields, .n_fields = 3, .skip_bad = skip_bad};
    return mg_tfrecord_source(&spec);
}

static mg_source *open_file(bool skip_bad) {
    const char *const paths[] = {path};
    return open_files(paths, 1, skip_bad);
}

/* Reads a row and, if `value` is not negative, checks that it is row `value` of add_row. */
static mg_status read_row(mg_source *s, int64_t row, int64_t value) {
    float raw[2] = {0};
    char text[32];
    mg_cell cell[3] = {{0}, {0}, {MG_SHAPE(2), raw}};
    const mg_status status = mg_source_read(s, (mg_row_key){.row = row}, cell);
    if (status == MG_OK && value >= 0) {
        const int length = snprintf(text, sizeof text, "row %lld", (long long)value);
        assert_int_equal(cell[0].shape.dim[0], value % 8);
        if (value % 8 > 1) assert_int_equal(((int32_t *)cell[0].data)[1], -value);
        assert_int_equal(cell[1].shape.dim[0], length);
        assert_memory_equal(cell[1].data, text, (size_t)length);
        assert_true(raw[0] == (float)value && raw[1] == 0.5f);
    }
    mg_free(cell[0].data);
    mg_free(cell[1].data);
    return status;
}

/* Opens the file and reads all rows. The first failure, or MG_OK; *rows: how many there are. */
static mg_status read_all(bool skip_bad, int64_t *rows) {
    mg_source *s = open_file(skip_bad);
    mg_status status = s ? MG_OK : mg_error_code();
    *rows = s ? s->n_rows : 0;
    for (int64_t i = 0; i < *rows && status == MG_OK; i++) status = read_row(s, i, -1);
    mg_source_release(s);
    return status;
}

/* ---- tests ---- */

static void rows_are_those_written(void **state) {
    (void)state;
    for (mg_packing packing = MG_PACKED_NONE; packing <= MG_PACKED_ZLIB; packing++) {
        write_rows(path, packing, 0, 1000);
        mg_source *s = open_file(packing == MG_PACKED_GZIP);
        assert_non_null(s);
        assert_int_equal(s->n_rows, 1000);
        for (int64_t i = 999; i >= 0; i -= 7) assert_int_equal(read_row(s, i, i), MG_OK);
        mg_source_release(s);
    }
}

/* A file cut between two records is a whole one; elsewhere it is refused, and with skip_bad its
 * whole records are left. */
static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    unsigned char bytes[ROOM];
    int64_t rows, whole = 0;
    write_rows(path, MG_PACKED_NONE, 1, ROWS);
    const size_t size = read_bytes(bytes);
    size_t border = 0;
    for (size_t n = 0; n < size; n++) {
        uint64_t length;
        write_bytes(bytes, n);
        if (n == border) {
            assert_int_equal(read_all(false, &rows), MG_OK);
            assert_int_equal(rows, whole++);
            mg_tfrecord_length(bytes + n, &length);
            border = n + length + 16;
            continue;
        }
        assert_int_equal(read_all(false, &rows), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "the file ends within the record"));
        assert_int_equal(read_all(true, &rows), whole == 1 ? MG_DATA : MG_OK);
        assert_int_equal(rows, whole - 1);
    }
}

static void every_flipped_bit_is_noticed(void **state) {
    (void)state;
    unsigned char bytes[ROOM];
    int64_t rows;
    write_rows(path, MG_PACKED_NONE, 1, ROWS);
    const size_t size = read_bytes(bytes);
    for (size_t bit = 0; bit < 8 * size; bit += 3) { /* 3 visits each bit of a byte in turn */
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_bytes(bytes, size);
        assert_int_equal(read_all(false, &rows), MG_DATA);
        assert_non_null(strstr(mg_error_message(), path));
        const mg_status status = read_all(true, &rows);
        assert_int_equal(status, rows ? MG_OK : MG_DATA);
        assert_in_range(rows, 0, ROWS - 1);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* Lengths with the right checksum that no file has room for, or no message has. */
static void lengths_that_lie_take_no_memory(void **state) {
    (void)state;
    static const uint64_t lengths[] = {
        17,        INT32_MAX, UINT32_MAX, (uint64_t)1 << 62, (uint64_t)INT64_MAX, UINT64_MAX - 15,
        UINT64_MAX};
    unsigned char bytes[32], tail[MG_TFRECORD_TAIL];
    int64_t rows;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memset(bytes, 0, sizeof bytes);
        for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)(lengths[i] >> 8 * k);
        const uint32_t check = mg_tfrecord_checksum(bytes, 8);
        for (int k = 0; k < 4; k++) bytes[8 + k] = (unsigned char)(check >> 8 * k);
        write_bytes(bytes, sizeof bytes);
        assert_int_equal(read_all(false, &rows), MG_DATA);
        assert_non_null(strstr(mg_error_message(), "record 1 at byte 0: the file ends within"));
        assert_int_equal(read_all(true, &rows), MG_DATA);
    }
    const char *const paths[] = {path, path};
    assert_null(open_files(paths, 2, true));
    assert_non_null(strstr(mg_error_message(), "and the others: no intact record"));
    assert_int_equal(mg_error_code(), MG_DATA);
    mg_tfrecord_frame(bytes + 12, 16, bytes, tail);
    memcpy(bytes + 28, tail, 4);
    write_bytes(bytes, sizeof bytes);
    assert_int_equal(read_all(false, &rows), MG_DATA); /* intact, but no message */
    assert_non_null(strstr(mg_error_message(), "record 1 at byte 0: no valid tf.train.Example"));
}

/* A file with holes: it has the 2 GiB that its record says, and takes no room. */
static void a_record_of_2_gib_is_refused(void **state) {
    (void)state;
    const int64_t length = (int64_t)INT32_MAX + 1;
    unsigned char head[MG_TFRECORD_HEAD] = {0};
    int64_t rows;
    head[3] = 128;
    const uint32_t check = mg_tfrecord_checksum(head, 8);
    for (int k = 0; k < 4; k++) head[8 + k] = (unsigned char)(check >> 8 * k);
    write_bytes(head, sizeof head);
    assert_int_equal(truncate(path, length + MG_TFRECORD_HEAD + MG_TFRECORD_TAIL), 0);
    assert_int_equal(read_all(false, &rows), MG_UNSUPPORTED);
    assert_non_null(strstr(mg_error_message(), "record 1 at byte 0 has 2.0 GiB; a "
                                               "tf.train.Example has less than 2 GiB"));
}

typedef struct reader {
    mg_source *source;
    unsigned seed;
    mg_status status;
} reader;

static void *read_many(void *context) {
    reader *r = context;
    for (int i = 0; i < 2000 && r->status == MG_OK; i++) {
        r->seed = r->seed * 1664525 + 1013904223;
        const int64_t row = (r->seed >> 8) % (2 * MANY);
        r->status = read_row(r->source, row, -1);
    }
    return NULL;
}

/* Plain and compressed files mixed; each has two rows. */
static void threads_read_from_more_files_than_are_open(void **state) {
    (void)state;
    static char names[MANY][64];
    const char *paths[MANY];
    reader readers[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%s/%04d", folder, i);
        write_rows(paths[i] = names[i], i % 5 ? MG_PACKED_NONE : MG_PACKED_GZIP, 2 * i, 2);
    }
    mg_source *s = open_files(paths, MANY, false);
    assert_non_null(s);
    assert_int_equal(s->n_rows, 2 * MANY);
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (reader){s, (unsigned)i, MG_OK};
        assert_int_equal(pthread_create(&thread[i], NULL, read_many, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(readers[i].status, MG_OK);
    }
    for (int i = 0; i < 2 * MANY; i++) assert_int_equal(read_row(s, i, i), MG_OK);
    assert_in_range(mg_io_open_count(), 2, MG_FILE_SET_OPEN + THREADS + 1);
    /* Sometime all plain files have been closed; one that has another size then is not read. */
    write_rows(names[1], MG_PACKED_NONE, 0, 3);
    assert_int_equal(read_row(s, 2, -1), MG_IO);
    assert_non_null(strstr(mg_error_message(), "has changed since the data set was opened"));
    mg_source_release(s);
    mg_interrupt();
    assert_null(open_files(paths, MANY, false));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
    for (int i = 0; i < MANY; i++) unlink(names[i]);
}

/* In the n-th round the n-th allocation or file call fails. */
static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    for (mg_packing packing = MG_PACKED_NONE; packing <= MG_PACKED_ZLIB; packing++)
        for (int memory = 0; memory < 2; memory++) {
            mg_status status = MG_IO;
            int64_t n = 0, rows;
            write_rows(path, packing, 0, ROWS);
            while (status != MG_OK) {
                const int64_t blocks = mg_alloc_get_stats().live_blocks;
                if (++n, memory)
                    mg_alloc_fail_after(n);
                else
                    mg_io_fail_after(n, EIO);
                status = read_all(packing == MG_PACKED_NONE, &rows);
                mg_alloc_fail_after(0);
                mg_io_fail_stop();
                if (status != MG_OK) assert_int_equal(status, memory ? MG_OOM : MG_IO);
                assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
                assert_int_equal(mg_io_open_count(), 0);
            }
            assert_true(n > 10);
            assert_int_equal(rows, ROWS);
        }
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder) || mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_written),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(lengths_that_lie_take_no_memory),
        cmocka_unit_test(a_record_of_2_gib_is_refused),
        cmocka_unit_test(threads_read_from_more_files_than_are_open),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
