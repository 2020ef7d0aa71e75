/* Sources made of sources (data/sources): zip and concatenate. */
#define _GNU_SOURCE
#include "data/sources/sources.h"
#include "free_cells.h"
#include "mixed_source.h"

/* Joins two sources, whose references it takes. */
static mg_source *joined(mg_source *(*join)(mg_source *const *, int), mg_source *a, mg_source *b) {
    mg_source *const parts[] = {a, b};
    mg_source *s = join(parts, 2);
    mg_source_release(a), mg_source_release(b);
    return s;
}

static mg_source *column(int64_t rows) {
    mg_tensor *t = numbers(MG_I32, rows);
    mg_source *s = mg_tensors_source(&t, 1);
    mg_tensor_release(t);
    return s;
}

static void describe_named(const mg_source *s, int64_t row, char *text, size_t room) {
    (void)s;
    snprintf(text, room, "page %lld", (long long)row);
}

static mg_status prepare_named(mg_source *s) {
    return s->n_rows == 3 ? mg_fail(MG_DATA, "named: 3 rows") : MG_OK;
}

/* Rows of an int32 that have names; 3 of them cannot be prepared. */
static mg_source *named(int64_t rows) {
    static const mg_source_api api = {
        .name = "named", .describe = describe_named, .prepare = prepare_named, .free = free_mixed};
    mg_source *s = mg_source_alloc(&api, sizeof *s, 1);
    assert_non_null(s);
    s->n_rows = rows;
    s->field[0] = (mg_field){.dtype = MG_I32};
    return s;
}

static void zip_puts_rows_side_by_side(void **state) {
    (void)state;
    check_stream(joined(mg_zipped_source, column(9), mixed(2, 3)), NULL, 0, 0,
                 "{} 0; {} 0; {1} 0; {} 'row 0'; \n"
                 "{} 1; {} 1; {2} 1 1; {} 'row 1'; \n");
    static const mg_stage pairs[] = {SKIP(2), BATCH(2)};
    check_stream(joined(mg_zipped_source, mixed(4, 1), column(4)), pairs, 2, 1,
                 "{2} 2 3; {2, 1} 2 3; {2} 'row 2' 'row 3'; {2} 2 3; \n");
}

static void concatenate_appends_rows(void **state) {
    (void)state;
    static const mg_stage fives[] = {BATCH(5)};
    check_stream(joined(mg_concatenated_source, column(3), column(2)), fives, 1, 1,
                 "{5} 0 1 2 0 1; \n");
    check_stream(joined(mg_concatenated_source, mixed(1, 1), mixed(2, 2)), NULL, 0, 0,
                 "{} 0; {1} 0; {} 'row 0'; \n"
                 "{} 0; {1} 0; {} 'row 0'; \n"
                 "{} 1; {2} 1 1; {} 'row 1'; \n");
}

/* Tables of 3 columns and of 2 make a field whose size differs from row to row. */
static void sizes_that_differ_become_unknown(void **state) {
    (void)state;
    static const float values[6] = {0, 1, 2, 3, 4, 5};
    const mg_shape rows2 = MG_SHAPE(2, 3), rows3 = MG_SHAPE(3, 2);
    mg_device *ref = mg_device_find("ref:0");
    mg_tensor *wide = mg_tensor_from_host(values, MG_F32, &rows2, ref),
              *narrow = mg_tensor_from_host(values, MG_F32, &rows3, ref);
    mg_source *s =
        joined(mg_concatenated_source, mg_tensors_source(&wide, 1), mg_tensors_source(&narrow, 1));
    mg_tensor_release(wide), mg_tensor_release(narrow);
    assert_int_equal(s->field[0].shape.dim[0], -1);
    static const mg_stage some[] = {SKIP(1), TAKE(2)};
    check_stream(s, some, 2, 0, "{3} 3 4 5; \n{2} 0 1; \n");
}

/* The cells of the parts before it are freed. */
static void a_row_that_a_part_cannot_read_is_an_error(void **state) {
    (void)state;
    mg_source *broken = mixed(3, 2);
    atomic_store(&((mixed_source *)broken)->broken, 1);
    mg_source *s =
        joined(mg_zipped_source, column(3), joined(mg_concatenated_source, mixed(1, 3), broken));
    mg_stream *stream = open_stream(s, NULL, 0, 0, 0, 1);
    mg_source_release(s);
    mg_element *e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mg_stream_next(stream, &e), MG_OK);
        mg_element_free(e);
    }
    assert_int_equal(mg_stream_next(stream, &e), MG_DATA);
    assert_string_equal(mg_error_message(), "mixed: row 1");
    mg_stream_free(stream);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    mg_tensor *t = numbers(MG_F64, 3);
    mg_source *table = mg_tensors_source(&t, 1);
    mg_tensor_release(t);
    assert_null(joined(mg_concatenated_source, mixed(3, 1), column(3)));
    assert_string_equal(mg_error_message(),
                        "concatenate: elements have 3 parts in dataset 1, but 1 in dataset 2");
    assert_null(joined(mg_concatenated_source, column(3), mg_source_retain(table)));
    assert_string_equal(mg_error_message(),
                        "concatenate: field 1 is int32 in dataset 1, but float64 in dataset 2");
    mg_source *texts[] = {mixed(3, 1), mixed(3, 1)};
    texts[1]->field[TEXT].text = false, texts[1]->field[TEXT].texts = 2;
    assert_null(joined(mg_concatenated_source, texts[0], texts[1]));
    assert_string_equal(
        mg_error_message(),
        "concatenate: field 3 has a string count of 1 in dataset 1, but 2 in dataset 2");
    const mg_shape pairs = MG_SHAPE(3, 2);
    static const int32_t values[6];
    mg_tensor *matrix = mg_tensor_from_host(values, MG_I32, &pairs, mg_device_find("ref:0"));
    assert_null(joined(mg_concatenated_source, column(3), mg_tensors_source(&matrix, 1)));
    assert_string_equal(mg_error_message(),
                        "concatenate: field 1 has shape {} in dataset 1, but {2} in dataset 2");
    mg_tensor_release(matrix);
    mg_source *most = column(3), *more = column(3);
    most->n_rows = INT64_MAX;
    assert_null(joined(mg_concatenated_source, more, most));
    assert_string_equal(mg_error_message(), "concatenate: too many rows");
    mg_source *two[] = {table, table}, *three = mixed(1, 1), *many[MG_SOURCE_FIELDS / N_FIELDS + 1];
    mg_source *flat = mg_concatenated_source(two, 2);
    assert_int_equal(flat->n_rows, 6);
    mg_source_release(flat), mg_source_release(table);
    const int n = (int)(sizeof many / sizeof many[0]);
    for (int i = 0; i < n; i++) many[i] = three;
    assert_null(mg_zipped_source(many, n));
    assert_string_equal(mg_error_message(),
                        "zip: a row would have 1026 fields; at most 1024 are possible");
    flat = mg_zipped_source(many, n - 1);
    assert_int_equal(flat->n_fields, MG_SOURCE_FIELDS / N_FIELDS * N_FIELDS);
    mg_source_release(flat), mg_source_release(three);
}

/* A row is described by the first of the zipped sources, or by the concatenated source that
 * contains it. */
static void rows_come_from_the_sources(void **state) {
    (void)state;
    char text[64];
    mg_source *s = joined(mg_zipped_source, named(4), column(4));
    mg_source_describe(s, 2, text, sizeof text);
    assert_string_equal(text, "page 2");
    mg_source_release(s);
    s = joined(mg_concatenated_source, column(3), named(4));
    mg_source_describe(s, 2, text, sizeof text);
    assert_string_equal(text, "row 3");
    mg_source_describe(s, 3, text, sizeof text);
    assert_string_equal(text, "page 0");
    mg_source_release(s);
    s = joined(mg_concatenated_source, named(4), column(3));
    mg_source_describe(s, 6, text, sizeof text);
    assert_string_equal(text, "row 7"); /* among all rows */
    mg_source_release(s);
}

/* Each source is prepared, until one fails. */
static void a_source_that_cannot_be_prepared_is_an_error(void **state) {
    (void)state;
    mg_source *(*const joins[])(mg_source *const *, int) = {mg_zipped_source,
                                                            mg_concatenated_source};
    for (int i = 0; i < 2; i++) {
        mg_source *s = joined(joins[i], column(4), named(4));
        assert_int_equal(mg_source_prepare(s), MG_OK);
        mg_source_release(s);
        s = joined(joins[i], named(3), column(3)); /* 3 rows: it cannot */
        assert_int_equal(mg_source_prepare(s), MG_DATA);
        assert_string_equal(mg_error_message(), "named: 3 rows");
        mg_source_release(s);
    }
}

/* A string field cannot be concatenated with a uint8 field; the error names both kinds. */
static void kinds_of_fields_are_named(void **state) {
    (void)state;
    mg_source *text = mixed(3, 1), *bytes = mixed(3, 1), *again = mixed(3, 1);
    bytes->field[TEXT].text = false;
    assert_null(joined(mg_concatenated_source, text, mg_source_retain(bytes)));
    assert_string_equal(mg_error_message(),
                        "concatenate: field 3 is string in dataset 1, but uint8 in dataset 2");
    assert_null(joined(mg_concatenated_source, bytes, again));
    assert_string_equal(mg_error_message(),
                        "concatenate: field 3 is uint8 in dataset 1, but string in dataset 2");
}

/* Each allocation fails once while two tables of different widths are joined and read. */
static void failing_memory_leaves_nothing(void **state) {
    (void)state;
    static const float values[6] = {0, 1, 2, 3, 4, 5};
    const mg_shape rows2 = MG_SHAPE(2, 3), rows3 = MG_SHAPE(3, 2);
    mg_device *ref = mg_device_find("ref:0");
    mg_tensor *wide = mg_tensor_from_host(values, MG_F32, &rows2, ref),
              *narrow = mg_tensor_from_host(values, MG_F32, &rows3, ref);
    mg_source *parts[] = {mg_tensors_source(&wide, 1), mg_tensors_source(&narrow, 1)};
    mg_tensor_release(wide), mg_tensor_release(narrow);
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (int zipped = 0; zipped < 2; zipped++) {
        mg_status status = MG_OOM;
        int64_t n = 0;
        while (status != MG_OK) {
            float room[2][3];
            mg_cell cell[2] = {{.data = NULL}, {.data = NULL}};
            if (zipped)
                cell[0] = (mg_cell){MG_SHAPE(3), room[0]},
                cell[1] = (mg_cell){MG_SHAPE(2), room[1]};
            mg_alloc_fail_after(++n);
            mg_source *s = (zipped ? mg_zipped_source : mg_concatenated_source)(parts, 2);
            status = s ? mg_source_read(s, (mg_row_key){.row = 1}, cell) : mg_error_code();
            mg_alloc_fail_after(0);
            if (status == MG_OK) assert_memory_equal(cell[0].data, values + 3, 3 * sizeof(float));
            if (status != MG_OK) assert_int_equal(status, MG_OOM);
            if (s && !zipped) free_cells(s, cell);
            mg_source_release(s);
            assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
        }
        assert_int_equal(n, zipped ? 2 : 3);
    }
    mg_source_release(parts[0]), mg_source_release(parts[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zip_puts_rows_side_by_side),
        cmocka_unit_test(concatenate_appends_rows),
        cmocka_unit_test(sizes_that_differ_become_unknown),
        cmocka_unit_test(a_row_that_a_part_cannot_read_is_an_error),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(rows_come_from_the_sources),
        cmocka_unit_test(a_source_that_cannot_be_prepared_is_an_error),
        cmocka_unit_test(kinds_of_fields_are_named),
        cmocka_unit_test(failing_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
