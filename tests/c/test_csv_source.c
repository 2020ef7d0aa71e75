/* The source of CSV files (data/sources/csv): matrices, classes, texts, wrong and missing cells.
 * Every allocation and file call fails once. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/threads.h"
#include "data/sources/csv.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>
#include "csv_files.h"

static const int COLUMN[] = {0, 1, 2, 3, 4, 5};
static const mg_csv_missing ZERO[6] = {{.has_number = true}};

static mg_csv_field numbers(mg_dtype dtype, int column) {
    return (mg_csv_field){.dtype = dtype, .columns = &COLUMN[column], .n_columns = 1};
}

/* Scans the file and makes its source. */
static mg_source *load(int n_paths, const mg_csv_missing *missing, const mg_csv_field *fields,
                       int n_fields, mg_class_names **classes) {
    mg_csv_table t = table_of(n_paths);
    mg_source *s = NULL;
    mg_class_names *found = NULL;
    if (mg_csv_scan(&t) == MG_OK) s = mg_csv_source(&t, missing, fields, n_fields, &found);
    if (classes)
        *classes = found;
    else
        mg_class_names_free(found);
    mg_csv_table_clear(&t);
    return s;
}

static void a_matrix_and_its_classes_are_read(void **state) {
    (void)state;
    write_text("w,h,kind\n1.5,2,b\n-3,4e2,a\n");
    write_to(other, "w,h,kind\r\n5,6,c\r\n7,8,a\r\n", 24);
    const mg_csv_field fields[] = {
        {.dtype = MG_F32, .matrix = true, .columns = COLUMN, .n_columns = 2},
        {.as = MG_CSV_CLASSES, .columns = &COLUMN[2], .n_columns = 1}};
    mg_class_names *classes;
    mg_source *s = load(2, ZERO, fields, 2, &classes);
    assert_non_null(s);
    assert_int_equal(s->n_rows, 4);
    assert_int_equal(s->n_fields, 2);
    assert_int_equal(s->field[0].dtype, MG_F32);
    assert_int_equal(s->field[0].shape.rank, 1);
    assert_int_equal(s->field[0].shape.dim[0], 2);
    assert_int_equal(s->field[1].dtype, MG_I32);
    assert_int_equal(s->field[1].shape.rank, 0);
    static const float x[4][2] = {{1.5f, 2}, {-3, 400}, {5, 6}, {7, 8}};
    static const int32_t y[4] = {1, 0, 2, 0};
    for (int64_t i = 3; i >= 0; i--) {
        float values[2];
        int32_t id;
        mg_cell cell[] = {{s->field[0].shape, values}, {s->field[1].shape, &id}};
        assert_int_equal(s->api->read(s, i, cell), MG_OK);
        assert_memory_equal(values, x[i], sizeof values);
        assert_int_equal(id, y[i]);
    }
    mg_source_release(s);
    assert_int_equal(mg_class_names_count(classes), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(mg_class_names_get(classes, i), ((const char *[]){"a", "b", "c"})[i]);
    mg_class_names_free(classes);
}

static void every_dtype_and_text_are_read(void **state) {
    (void)state;
    write_text("f,d,i,l,u,b\n0.1,0.1,-5,3000000000,255,True\nNA,2,7,-1,0,0\n");
    static const mg_dtype dtypes[] = {MG_F32, MG_F64, MG_I32, MG_I64, MG_U8, MG_BOOL};
    mg_csv_field fields[7];
    for (int i = 0; i < 6; i++) fields[i] = numbers(dtypes[i], i);
    fields[6] = (mg_csv_field){.as = MG_CSV_STRINGS, .columns = &COLUMN[0], .n_columns = 1};
    mg_csv_missing missing[6] = {{.has_number = true, .number = -1, .text = "nothing"}};
    mg_source *s = load(1, missing, fields, 7, NULL);
    assert_non_null(s);
    float f;
    double d;
    int32_t i;
    int64_t l;
    uint8_t u, b;
    const mg_shape scalar = {0};
    for (int64_t row = 0; row < 2; row++) {
        mg_cell cell[7] = {{scalar, &f}, {scalar, &d}, {scalar, &i}, {scalar, &l},
                           {scalar, &u}, {scalar, &b}, {{0}, NULL}};
        assert_int_equal(s->api->read(s, row, cell), MG_OK);
        assert_true(row ? f == -1 && d == 2 && i == 7 && l == -1 && u == 0 && b == 0
                        : f == 0.1f && d == 0.1 && i == -5 && l == 3000000000 && u == 255 &&
                              b == 1);
        const char *text = row ? "nothing" : "0.1";
        assert_int_equal(cell[6].shape.dim[0], strlen(text));
        assert_memory_equal(cell[6].data, text, strlen(text));
        mg_free(cell[6].data);
    }
    assert_true(s->field[6].text && mg_field_varies(&s->field[6]));
    mg_source_release(s);
}

static void load_fails(const char *text, const mg_csv_field *f, mg_status code,
                       const char *message) {
    static const mg_csv_missing none[6] = {{0}};
    write_text(text);
    assert_null(load(1, none, f, 1, NULL));
    if (!strstr(mg_error_message(), message)) fail_msg("%s", mg_error_message());
    assert_int_equal(mg_error_code(), code);
}

static void wrong_cells_are_named(void **state) {
    (void)state;
    const mg_csv_field f32 = numbers(MG_F32, 1), f64 = numbers(MG_F64, 1), i32 = numbers(MG_I32, 1),
                       u8 = numbers(MG_U8, 1), b = numbers(MG_BOOL, 1), f16 = numbers(MG_F16, 1),
                       far = numbers(MG_F32, 5);
    const mg_csv_field classes = {.as = MG_CSV_CLASSES, .columns = &COLUMN[1], .n_columns = 1};
    mg_csv_field given = classes, twice = classes;
    given.classes = (const char *const[]){"cat", "dog"}, given.n_classes = 2;
    twice.classes = (const char *const[]){"cat", "cat"}, twice.n_classes = 2;
    load_fails("a,b\n1,2\n3,x\n", &f32, MG_DATA, "line 3, column 2 (\"b\"): \"x\" is not a number");
    load_fails("1,2\n3,NA\n", &f32, MG_DATA, "line 2, column 2: the value is missing; the option");
    load_fails("1,2\n3,1e39\n", &f32, MG_DATA, "1e39 does not fit float32");
    load_fails("1,2\n3,-1e309\n", &f64, MG_DATA, "-1e309 does not fit float64");
    load_fails("1,2\n3,4.5\n", &i32, MG_DATA,
               "\"4.5\" is not of dtype int32: give the column a floating");
    load_fails("1,2\n3,3000000000\n", &i32, MG_DATA, "3000000000 does not fit int32");
    load_fails("1,2\n3,-1\n", &u8, MG_DATA, "-1 does not fit uint8");
    load_fails("1,1\n3,2\n", &b, MG_DATA, "2 does not fit bool");
    load_fails("1,2\n", &f16, MG_USAGE, "a column cannot be read as float16");
    load_fails("1,2\n", &far, MG_USAGE, "there is no column 6: the file has 2");
    load_fails("1,a\n2,\n", &classes, MG_DATA, "line 2, column 2: the value is missing");
    load_fails("1,cat\n2,cow\n", &given, MG_DATA, "\"cow\" is not one of the 2 classes");
    load_fails("1,cat\n2,cow\n", &twice, MG_USAGE, "the class \"cat\" is given twice");
}

/* A value for missing cells is held to the same limits as one in a cell. */
static void values_for_missing_ones_must_fit(void **state) {
    (void)state;
    static const struct {
        mg_dtype dtype;
        double number;
        const char *text; /* how a message spells the number; NULL: it fits */
    } cases[] = {
        {MG_I32, 0.5, "0.5"},
        {MG_I32, 0x1p31, "2147483648"},
        {MG_I64, 0x1p63, "9.2233720368547758e+18"},
        {MG_I64, -0x1p63, NULL},
        {MG_U8, -1, "-1"},
        {MG_F32, 1e39, "9.9999999999999994e+38"},
        {MG_F32, -INFINITY, NULL},
        {MG_F64, 1e39, NULL},
    };
    write_text("1,2\n3,NA\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mg_csv_missing missing[6] = {{0}, {.has_number = true, .number = cases[i].number}};
        const mg_csv_field field = numbers(cases[i].dtype, 1);
        char expected[128];
        mg_source *s = load(1, missing, &field, 1, NULL);
        assert_int_equal(s != NULL, cases[i].text == NULL);
        mg_source_release(s);
        if (!cases[i].text) continue;
        snprintf(expected, sizeof expected,
                 "line 2, column 2: the value for missing ones, %s, does", cases[i].text);
        if (!strstr(mg_error_message(), expected)) fail_msg("%s", mg_error_message());
    }
}

/* Given classes keep their order, and may be more than the file has. */
static void given_classes_have_their_ids(void **state) {
    (void)state;
    write_text("1,cat\n2,ant\n");
    const mg_csv_field f = {.as = MG_CSV_CLASSES,
                            .columns = &COLUMN[1],
                            .n_columns = 1,
                            .classes = (const char *const[]){"dog", "cat", "ant"},
                            .n_classes = 3};
    mg_source *s = load(1, ZERO, &f, 1, NULL);
    int32_t id;
    for (int64_t row = 0; row < 2; row++) {
        mg_cell cell = {{0}, &id};
        assert_int_equal(s->api->read(s, row, &cell), MG_OK);
        assert_int_equal(id, row ? 2 : 1);
    }
    mg_source_release(s);
}

static void many_classes_are_sorted(void **state) {
    (void)state;
    enum { N = 5000 };
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < 3 * N; i++) fprintf(f, "c%04d\n", (i * 7919) % N);
    fclose(f);
    const mg_csv_field field = {.as = MG_CSV_CLASSES, .columns = COLUMN, .n_columns = 1};
    mg_class_names *classes;
    mg_csv_table t = table_of(1);
    t.header = MG_CSV_NO_HEADER;
    assert_int_equal(mg_csv_scan(&t), MG_OK);
    mg_source *s = mg_csv_source(&t, ZERO, &field, 1, &classes);
    mg_csv_table_clear(&t);
    assert_int_equal(mg_class_names_count(classes), N);
    for (int64_t row = 0; row < 3 * N; row++) {
        int32_t id;
        mg_cell cell = {{0}, &id};
        assert_int_equal(s->api->read(s, row, &cell), MG_OK);
        assert_int_equal(id, (row * 7919) % N);
        assert_int_equal(mg_class_names_find(classes, mg_class_names_get(classes, id)), id);
    }
    mg_source_release(s);
    mg_class_names_free(classes);
}

/* The file grows, shrinks, gets longer texts, or other cells of the same lengths between the two
 * readings. */
static void files_that_change_are_refused(void **state) {
    (void)state;
    static const char *const later[] = {"1,a\n2,b\n3,c\n", "1,a\n", "1\n2\n", "1,a\n2,bbbbbbbb\n",
                                        "3,a\n2,c\n"};
    const mg_csv_field fields[] = {numbers(MG_F64, 0),
                                   {.as = MG_CSV_STRINGS, .columns = &COLUMN[1], .n_columns = 1}};
    for (int i = 0; i < 10; i++) {
        mg_class_names *classes;
        mg_csv_table t = table_of(1);
        write_text("1,a\n2,b\n");
        assert_int_equal(mg_csv_scan(&t), MG_OK);
        rewrite(path, later[i / 2], strlen(later[i / 2]));
        assert_null(mg_csv_source(&t, ZERO, &fields[i % 2], 1, &classes));
        assert_non_null(strstr(mg_error_message(), "csv: /tmp/mgpu_test_"));
        assert_non_null(strstr(mg_error_message(), " changed "));
        mg_csv_table_clear(&t);
    }
}

static void gzip_and_interrupts_work(void **state) {
    (void)state;
    gzFile f = gzopen(path, "wb");
    assert_true(gzputs(f, "a,b\n1,2\n3,4\n") > 0);
    gzclose(f);
    const mg_csv_field field = numbers(MG_I32, 1);
    mg_source *s = load(1, ZERO, &field, 1, NULL);
    assert_non_null(s);
    assert_int_equal(s->n_rows, 2);
    mg_source_release(s);
    mg_interrupt();
    assert_null(load(1, ZERO, &field, 1, NULL));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
    assert_false(mg_interrupt_pending());
}

/* In the n-th round `arm` makes the n-th allocation or file call fail. */
static void survives(void (*arm)(int64_t n), mg_status code) {
    const mg_csv_field fields[] = {
        {.dtype = MG_F32, .matrix = true, .columns = COLUMN, .n_columns = 1},
        {.as = MG_CSV_CLASSES, .columns = &COLUMN[1], .n_columns = 1},
        {.as = MG_CSV_STRINGS, .columns = &COLUMN[1], .n_columns = 1}};
    mg_source *s = NULL;
    int64_t n = 1;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    for (; !s; n++) {
        arm(n);
        s = load(2, ZERO, fields, 3, NULL);
        arm(0);
        assert_int_equal(mg_io_open_count(), 0);
        if (s) break;
        assert_int_equal(mg_error_code(), code);
        assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
    }
    assert_true(n > 15);
    mg_source_release(s);
}

static void every_failing_allocation_and_file_call_is_survived(void **state) {
    (void)state;
    write_text("a,b\n1,x\n2,y\n");
    write_to(other, "a,b\n1,z\n", 8);
    survives(mg_alloc_fail_after, MG_OOM);
    survives(arm_file, MG_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_and_its_classes_are_read),
        cmocka_unit_test(every_dtype_and_text_are_read),
        cmocka_unit_test(wrong_cells_are_named),
        cmocka_unit_test(values_for_missing_ones_must_fit),
        cmocka_unit_test(given_classes_have_their_ids),
        cmocka_unit_test(many_classes_are_sorted),
        cmocka_unit_test(files_that_change_are_refused),
        cmocka_unit_test(gzip_and_interrupts_work),
        cmocka_unit_test(every_failing_allocation_and_file_call_is_survived),
    };
    return cmocka_run_group_tests(tests, make_files, check_all_freed);
}
