/* Files of cached rows (data/sources/row_file.h) that are damaged, hostile or of other rows: each
 * is refused with an error that names it. */
#define _GNU_SOURCE
#include "cached_rows.h"
#include "data/sources/row_file.h"
#include <errno.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

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
        if (i >= rows && i < rows + padding) continue; /* the only bytes that are never read */
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

/* Writes the file, with the correct hash in the trailer: of the bytes from the table on. The
 * trailer may be unaligned. */
static void write_hostile(const hostile *h, int64_t table) {
    XXH3_state_t state;
    char *hash = (char *)h->trailer + 32;
    memset(hash, 0, 8);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, h->bytes + table, h->n - 48 - (size_t)table);
    XXH3_64bits_update(&state, h->trailer, 48);
    memcpy(hash, &(uint64_t){XXH3_64bits_digest(&state)}, 8);
    put_file(h->bytes, h->n);
}

/* Such a file must be refused as damaged. */
static void check_refused(const hostile *h, const mg_source *like, int64_t table) {
    write_hostile(h, table);
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
        check_refused(&h, inner, h.trailer[3]);
        entry(&h, 2)[0] = offset;
    }
    for (int i = 0; i < 3; i++) {
        entry(&h, 0)[0] = odd[i];
        check_refused(&h, inner, h.trailer[3]);
        entry(&h, 0)[0] = 0;
    }
    /* the number of float32 values in row 1, which ends where row 2 begins */
    char *row = h.bytes + entry(&h, 1)[0];
    const size_t bytes = (size_t)(entry(&h, 2)[0] - entry(&h, 1)[0]);
    for (int i = 0; i < 6; i++) {
        memcpy(row + 4, &odd[i], sizeof odd[i]);
        entry(&h, 1)[1] = (int64_t)XXH3_64bits(row, bytes);
        check_refused(&h, inner, h.trailer[3]);
    }
    free(h.bytes);
    mg_source_release(s), mg_source_release(inner);
}

/* Each number of the trailer, alone and with those that go with it. */
static void hostile_trailers_are_refused(void **state) {
    (void)state;
    enum { N_ROWS, N_FIELDS_HERE, ROWS_END, TABLE };
    static const int64_t odd[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 16, 1 << 20};
    mg_source *inner = mixed(5, 3), *s = cached(mg_source_retain(inner), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    hostile h = {.bytes = NULL};
    h.bytes = file_bytes(&h.n);
    h.trailer = (int64_t *)(void *)(h.bytes + h.n - 48);
    int64_t kept[4], table = h.trailer[TABLE];
    memcpy(kept, h.trailer, sizeof kept);
    const struct {
        int which;
        int64_t value;
    } cases[] = {{N_ROWS, 4},           {N_ROWS, 6},
                 {N_FIELDS_HERE, 0},    {N_FIELDS_HERE, 2},
                 {N_FIELDS_HERE, 4},    {N_FIELDS_HERE, 1024},
                 {N_FIELDS_HERE, 1025}, {ROWS_END, table + 1},
                 {ROWS_END, 0},         {ROWS_END, table - 16},
                 {TABLE, table - 8},    {TABLE, table + 8},
                 {TABLE, table + 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        h.trailer[cases[i].which] = cases[i].value;
        check_refused(&h, inner, table);
        memcpy(h.trailer, kept, sizeof kept);
    }
    for (int which = 0; which < 4; which++)
        for (int i = 0; i < 5; i++) {
            h.trailer[which] = odd[i];
            check_refused(&h, inner, table);
            memcpy(h.trailer, kept, sizeof kept);
        }
    /* half an entry more in the table; then an unaligned table */
    for (int64_t more = 8; more >= 4; more -= 4) {
        const size_t at = more == 8 ? h.n - 48 : (size_t)table;
        hostile longer = {malloc(h.n + 8), h.n + (size_t)more, NULL};
        memcpy(longer.bytes, h.bytes, at);
        memset(longer.bytes + at, 0, 8);
        memcpy(longer.bytes + at + more, h.bytes + at, h.n - at);
        longer.trailer = (int64_t *)(void *)(longer.bytes + longer.n - 48);
        const int64_t moved = more == 8 ? table : table + 4;
        memcpy((char *)longer.trailer + 8 * TABLE, &moved, 8);
        check_refused(&longer, inner, moved);
        free(longer.bytes);
    }
    free(h.bytes);
    mg_source_release(s), mg_source_release(inner);
}

/* Rows of one size must lie one behind the other. */
static void rows_of_a_fixed_size_have_their_places(void **state) {
    (void)state;
    mg_source *inner = column(3), *s = cached(inner, path);
    double table[COLUMNS];
    int32_t number;
    mg_cell cell[] = {{MG_SHAPE(COLUMNS), table}, {{0}, &number}};
    mg_tensor *t[] = {numbers(MG_F64, 3), numbers(MG_I32, 3)};
    mg_row_writer *w = mg_row_writer_new(path, s);
    mg_source *rows = mg_tensors_source(t, 2);
    mg_tensor_release(t[0]), mg_tensor_release(t[1]);
    for (int64_t row = 0; row < 3; row++) {
        assert_int_equal(mg_source_read(rows, (mg_row_key){0, row}, cell), MG_OK);
        assert_int_equal(mg_row_writer_add(w, cell), MG_OK);
    }
    assert_int_equal(mg_row_writer_commit(w), MG_OK);
    mg_row_writer_free(w);
    hostile h = {.bytes = NULL};
    h.bytes = file_bytes(&h.n);
    h.trailer = (int64_t *)(void *)(h.bytes + h.n - 48);
    static const int64_t refused[] = {0, 0, 2, 3}; /* the first row that is; 3: none */
    for (int change = 0; change < 4; change++) {
        const int64_t first = entry(&h, 0)[0], second = entry(&h, 1)[0], end = h.trailer[2];
        if (change == 0) entry(&h, 1)[0] -= 4;                       /* rows of other sizes */
        if (change == 1) entry(&h, 0)[0] += 4, entry(&h, 1)[0] += 4; /* a gap */
        if (change == 2) h.trailer[2] -= 4;                          /* the last one cut */
        for (int row = 0; row < 3; row++) {
            const int64_t from = entry(&h, row)[0],
                          to = row < 2 ? entry(&h, row + 1)[0] : h.trailer[2];
            entry(&h, row)[1] = (int64_t)XXH3_64bits(h.bytes + from, (size_t)(to - from));
        }
        write_hostile(&h, h.trailer[3]);
        mg_row_file *f = mg_row_file_open(path, rows);
        assert_non_null(f);
        for (int64_t row = 0; row <= refused[change] && row < 3; row++)
            assert_int_equal(mg_row_file_read(f, rows, row, cell),
                             row == refused[change] ? MG_DATA : MG_OK);
        mg_row_file_close(f);
        entry(&h, 0)[0] = first, entry(&h, 1)[0] = second, h.trailer[2] = end;
    }
    free(h.bytes);
    mg_source_release(rows), mg_source_release(s);
}

/* Files of other fields, some of which no data set has. */
static void fields_of_other_files_are_named(void **state) {
    (void)state;
    static const struct {
        int32_t record[4]; /* dtype, text, rank, texts */
        int64_t dim;
        const char *part;
    } cases[] = {{{MG_F32, 0, 1, 0}, 5, "field 2 is float32 {5} in "},
                 {{MG_I32, 0, 0, 0}, 0, "field 2 is int32 {} in "},
                 {{MG_U8, 1, 1, 0}, -1, "field 2 is string {-1} in "},
                 {{MG_U8, 0, 1, 3}, -1, "field 2 is 3 strings in "},
                 {{MG_N_DTYPES, 0, 1, 0}, 5, "field 2 is ? {5} in "},
                 {{-1, 0, 9, 0}, 5, "field 2 is ? {} in "},
                 {{INT32_MIN, 0, -1, 0}, 5, "field 2 is ? {} in "}};
    mg_source *inner = mixed(5, 3), *s = cached(mg_source_retain(inner), path);
    assert_int_equal(mg_source_prepare(s), MG_OK);
    hostile h = {.bytes = NULL};
    h.bytes = file_bytes(&h.n);
    h.trailer = (int64_t *)(void *)(h.bytes + h.n - 48);
    char *record = h.bytes + h.n - 48 - 2 * (16 + 8 * MG_MAX_RANK); /* of the second of three */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(record, cases[i].record, 16);
        memcpy(record + 16, &cases[i].dim, 8);
        write_hostile(&h, h.trailer[3]);
        assert_int_equal(read_file(inner), MG_USAGE);
        if (!strstr(mg_error_message(), cases[i].part)) fail_msg("%s", mg_error_message());
        assert_non_null(strstr(mg_error_message(), "but float32 {-1} here: "));
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
             "%s is damaged in row 2: remove the file to have it written again", path);
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
    assert_non_null(strstr(mg_error_message(), "is not a file of cached rows"));
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

/* ---- writing ---- */

/* Writes 4 rows of n numbers. */
static mg_status write_rows(const mg_source *like, void *values) {
    const mg_cell cell = {like->field[0].shape, values};
    mg_row_writer *w = mg_row_writer_new(path, like);
    mg_status status = w ? MG_OK : mg_error_code();
    for (int row = 0; row < 4 && status == MG_OK; row++) status = mg_row_writer_add(w, &cell);
    if (status == MG_OK) status = mg_row_writer_commit(w);
    mg_row_writer_free(w);
    return status;
}

/* All rows of the file are those that were written: zeros. */
static void check_rows(const mg_source *like) {
    const size_t bytes = mg_cell_bytes(&like->field[0], &like->field[0].shape);
    char *values = malloc(bytes);
    mg_cell cell = {like->field[0].shape, values};
    mg_row_file *f = mg_row_file_open(path, like);
    assert_non_null(f);
    for (int64_t row = 0; row < 4; row++) {
        memset(values, 1, bytes);
        assert_int_equal(mg_row_file_read(f, like, row, &cell), MG_OK);
        for (size_t i = 0; i < bytes; i += 1000) assert_int_equal(values[i], 0);
    }
    mg_row_file_close(f);
    free(values);
}

/* Rows that are larger than the writer's buffer, and rows that do not fill it: whichever allocation
 * or file call fails, no file is left. */
static void what_cannot_be_written_leaves_nothing(void **state) {
    (void)state;
    for (int64_t n = 200 << 10; n <= 400 << 10; n += 200 << 10) {
        const mg_shape shape = MG_SHAPE(4, n);
        float *values = calloc(4 * (size_t)n, sizeof *values);
        mg_tensor *t = mg_tensor_from_host(values, MG_F32, &shape, mg_device_find("ref:0"));
        mg_source *like = mg_tensors_source(&t, 1);
        const int64_t blocks = mg_alloc_get_stats().live_blocks;
        for (int memory = 0; memory < 2; memory++)
            for (int64_t k = 1;; k++) {
                const int64_t calls = mg_alloc_get_stats().total_calls;
                remove_file(NULL);
                if (memory)
                    mg_alloc_fail_after(k);
                else
                    mg_io_fail_after(k, ENOSPC);
                const mg_status status = write_rows(like, values);
                mg_alloc_fail_after(0);
                const bool failed =
                    mg_io_fail_stop() || (memory && mg_alloc_get_stats().total_calls - calls >= k);
                assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
                assert_int_equal(mg_io_open_count(), 0);
                if (status == MG_OK) check_rows(like);
                if (status == MG_OK && !failed) break;
                if (status == MG_OK) continue; /* reserving room is allowed to fail */
                assert_int_equal(status, memory ? MG_OOM : MG_IO);
                if (!strstr(mg_error_message(), "is written, but"))
                    assert_false(mg_io_exists(path));
            }
        assert_true(mg_io_exists(path));
        remove_file(NULL);
        mg_source_release(like);
        mg_tensor_release(t);
        free(values);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_damage_is_found),
        TEST(hostile_files_are_refused),
        TEST(hostile_trailers_are_refused),
        TEST(rows_of_a_fixed_size_have_their_places),
        TEST(fields_of_other_files_are_named),
        TEST(damage_is_told_at_the_row),
        TEST(other_files_are_refused),
        TEST(fields_are_compared),
        TEST(what_cannot_be_written_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
