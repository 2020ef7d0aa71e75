/* Cells with several strings (data/source.h) and packed rows (data/sources/row_file.h): packed rows
 * are unpacked to the same bytes, and bytes that are not a packed row are refused. */
#include "core/alloc.h"
#include "core/status.h"
#include "data/source.h"
#include "data/sources/row_file.h"
#include "data/transform.h"
#include "free_cells.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- several strings in one cell ---- */

static const mg_text TEXTS[] = {{"one", 3}, {"", 0}, {NULL, 0}, {"a\0b", 3}};
enum { N_TEXTS = sizeof TEXTS / sizeof TEXTS[0], TEXT_BYTES = 4 * 8 + 6 };

/* Counts the strings in n bytes, which are copied to a block of that size so that a sanitizer
 * notices reads past them. */
static int count_texts(const char *bytes, size_t n) {
    char *block = malloc(n + 1);
    const char *at = memcpy(block, bytes, n);
    int count = 0;
    for (mg_text t; mg_texts_next(&at, block + n, &t); count++) {
        assert_int_equal(t.n, TEXTS[count].n);
        if (t.n) assert_memory_equal(t.bytes, TEXTS[count].bytes, t.n);
    }
    free(block);
    return count;
}

static void strings_come_back(void **state) {
    (void)state;
    char bytes[TEXT_BYTES];
    assert_int_equal(mg_texts_size(TEXTS, N_TEXTS), TEXT_BYTES);
    mg_texts_pack(TEXTS, N_TEXTS, bytes);
    assert_int_equal(count_texts(bytes, TEXT_BYTES), N_TEXTS);
    assert_int_equal(mg_texts_size(TEXTS, 0), 0);
}

/* Cut anywhere, the whole strings are found; a length that lies ends them. */
static void strings_that_are_not_there_are_not_read(void **state) {
    (void)state;
    static const uint64_t lengths[] = {4, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    static const size_t ends[N_TEXTS] = {11, 19, 27, 38};
    char bytes[TEXT_BYTES];
    mg_texts_pack(TEXTS, N_TEXTS, bytes);
    for (size_t n = 0; n < TEXT_BYTES; n++) {
        int whole = 0;
        while (whole < N_TEXTS && ends[whole] <= n) whole++;
        assert_int_equal(count_texts(bytes, n), whole);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memcpy(bytes + 27, &lengths[i], 8); /* the length of the last string */
        assert_int_equal(count_texts(bytes, TEXT_BYTES), N_TEXTS - 1);
    }
}

/* ---- packed rows ---- */

static void free_source(mg_source *s) {
    mg_free(s);
}

static const mg_source_api api = {.name = "test", .free = free_source};

/* An int32, and pairs of float32, as many as there are. */
static mg_source *pairs_source(void) {
    mg_source *s = mg_source_alloc(&api, sizeof *s, 2);
    assert_non_null(s);
    s->n_rows = 1;
    s->field[0] = (mg_field){.dtype = MG_I32};
    s->field[1] = (mg_field){.dtype = MG_F32, .shape = MG_SHAPE(-1, 2)};
    return s;
}

enum { SIZES = 4, VALUES = SIZES + 16, ROW = VALUES + 3 * 8 };

static void pack_pairs(const mg_source *s, char row[ROW]) {
    int32_t number = 7;
    float table[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    const mg_cell cell[] = {{{0}, &number}, {MG_SHAPE(3, 2), table}};
    assert_int_equal(mg_packed_bytes(s, cell), ROW);
    mg_pack_row(s, cell, row);
}

/* Unpacks n bytes from a copy of exactly that size. */
static mg_status unpack(const mg_source *s, const char *row, size_t n) {
    int32_t number = 0;
    mg_cell cell[2] = {{.data = &number}};
    char *block = malloc(n + 1);
    memcpy(block, row, n);
    const mg_status status = mg_unpack_row(s, block, n, cell);
    if (status == MG_OK) {
        assert_int_equal(number, 7);
        assert_int_equal(cell[1].shape.rank, 2);
        assert_memory_equal(cell[1].data, row + VALUES, n - VALUES);
    }
    free_cells(s, cell);
    free(block);
    return status;
}

static void a_cut_row_is_no_row(void **state) {
    (void)state;
    char row[ROW + 1] = {0};
    mg_source *s = pairs_source();
    pack_pairs(s, row);
    assert_int_equal(unpack(s, row, ROW), MG_OK);
    for (size_t n = 0; n <= ROW + 1; n++) {
        if (n == ROW) continue;
        assert_int_equal(unpack(s, row, n), MG_DATA);
        assert_string_equal(mg_error_message(), "this is not a row");
    }
    mg_alloc_fail_after(1);
    assert_int_equal(unpack(s, row, ROW), MG_OOM);
    mg_alloc_fail_after(0);
    mg_source_release(s);
}

/* Sizes that no memory holds, whose product overflows, or that the field cannot have. */
static void sizes_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {
        {4, 2},         {-1, 2},        {3, 3},  {3, 1},
        {INT64_MIN, 2}, {INT64_MAX, 2}, {3, -1}, {(int64_t)1 << 62, 2},
        {2, 2},         {0, 2}};
    char row[ROW];
    mg_source *s = pairs_source();
    pack_pairs(s, row);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(row + SIZES, sizes[i], sizeof sizes[i]);
        mg_alloc_fail_from(1); /* refused before memory is taken */
        assert_int_equal(unpack(s, row, ROW), i < 8 ? MG_DATA : MG_OOM);
        mg_alloc_fail_after(0);
        assert_int_equal(unpack(s, row, ROW), MG_DATA);
    }
    assert_int_equal(unpack(s, row, VALUES), MG_OK); /* a table without rows */
    memcpy(row + SIZES + 8, &(int64_t){3}, 8);       /* but its rows would be others */
    assert_int_equal(unpack(s, row, VALUES), MG_DATA);
    mg_source_release(s);
}

/* ---- sources ---- */

static void a_row_has_a_limited_number_of_fields(void **state) {
    (void)state;
    mg_source *s = mg_source_alloc(&api, sizeof *s, MG_SOURCE_FIELDS);
    assert_non_null(s);
    mg_source_release(s);
    assert_null(mg_source_alloc(&api, sizeof *s, MG_SOURCE_FIELDS + 1));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_string_equal(mg_error_message(),
                        "test: a row would have 1025 fields; at most 1024 are possible");
    mg_alloc_fail_after(1);
    assert_null(mg_source_alloc(&api, sizeof *s, 1));
    mg_alloc_fail_after(0);
    assert_int_equal(mg_error_code(), MG_OOM);
    mg_source_release(NULL);
    mg_transform_release(NULL);
}

/* Without a better word a row has its number, from 1. */
static void a_row_is_called_by_its_number(void **state) {
    (void)state;
    char text[64];
    mg_source *s = pairs_source();
    mg_source_describe(s, 41, text, sizeof text);
    assert_string_equal(text, "row 42");
    mg_source_describe(s, 41, text, 5);
    assert_string_equal(text, "row ");
    mg_source_release(s);
}

/* The name is put in front of a message only once, and not in front of messages about memory and
 * interrupts. */
static void a_failure_to_open_has_the_name_of_the_function(void **state) {
    (void)state;
    mg_fail(MG_DATA, "wrong");
    mg_source_name_error("csv");
    assert_string_equal(mg_error_message(), "csv: wrong");
    mg_source_name_error("csv");
    assert_string_equal(mg_error_message(), "csv: wrong");
    mg_fail(MG_DATA, "csv files are wrong");
    mg_source_name_error("csv");
    assert_string_equal(mg_error_message(), "csv: csv files are wrong");
    mg_fail(MG_OOM, "out of memory");
    mg_source_name_error("csv");
    assert_string_equal(mg_error_message(), "out of memory");
    mg_fail(MG_INTERRUPTED, "interrupted");
    mg_source_name_error("csv");
    assert_string_equal(mg_error_message(), "interrupted");
}

static int nothing_is_left(void **state) {
    (void)state;
    return mg_alloc_get_stats().live_blocks == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_come_back),
        cmocka_unit_test(strings_that_are_not_there_are_not_read),
        cmocka_unit_test(a_cut_row_is_no_row),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(a_row_has_a_limited_number_of_fields),
        cmocka_unit_test(a_row_is_called_by_its_number),
        cmocka_unit_test(a_failure_to_open_has_the_name_of_the_function),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
