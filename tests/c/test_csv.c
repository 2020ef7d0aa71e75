/* CSV files (data/sources/csv): records, numbers, kinds of columns, and the source. Damaged files
 * are refused with file, line and column; every allocation and file call fails once. */
#include "core/alloc.h"
#include "core/io.h"
#include "core/rng.h"
#include "core/threads.h"
#include "data/sources/csv.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

static char path[] = "/tmp/mgpu_test_csv_XXXXXX", other[] = "/tmp/mgpu_test_csv_XXXXXX";
static const mg_csv_format RFC = {.delimiter = ',', .quote = '"'};
static const char *const NO_VALUE[] = {"", "NA"};

static void write_to(const char *file, const char *text, size_t n) {
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void write_text(const char *text) {
    write_to(path, text, strlen(text));
}

/* ---- records ---- */

/* Asserts what the file's records are: "1:a|b;3:c|d" is a, b from line 1 and c, d from line 3. */
static void records_are(const mg_csv_format *format, const char *expected) {
    char found[4096] = "";
    size_t n = 0;
    const mg_csv_record *e;
    mg_csv_reader *r = mg_csv_reader_open(path, format);
    assert_non_null(r);
    for (;;) {
        if (mg_csv_reader_next(r, &e) != MG_OK) fail_msg("%s", mg_error_message());
        if (!e) break;
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%lld:", n ? ";" : "",
                              (long long)e->line);
        for (int i = 0; i < e->n; i++) {
            assert_int_equal(e->cell[i].bytes, strlen(e->cell[i].text));
            n += (size_t)snprintf(found + n, sizeof found - n, "%s%s", i ? "|" : "",
                                  e->cell[i].text);
        }
    }
    mg_csv_reader_close(r);
    assert_string_equal(found, expected);
}

static void records_follow_the_rfc(void **state) {
    (void)state;
    static const struct {
        const char *text, *records;
    } cases[] = {
        {"", ""},
        {"a,b\nc,d\n", "1:a|b;2:c|d"},
        {"a,b\r\nc,d", "1:a|b;2:c|d"},
        {"a,b\rc,d\r", "1:a|b;2:c|d"},
        {"\n\r\na,b\n\nc,d\n\n", "3:a|b;5:c|d"},
        {",\n", "1:|"},
        {"a,", "1:a|"},
        {"\"\"\n", "1:"},
        {"\"a,b\",\"say \"\"x\"\"\"\n", "1:a,b|say \"x\""},
        {"\"a\nb\",c\nd,e", "1:a\nb|c;3:d|e"},
        {"\"a\r\nb\r\",c\nd,e", "1:a\r\nb\r|c;4:d|e"},
        {"5\" disk, x \n", "1:5\" disk| x "},
        {"\xef\xbb\xbf\"a\",b\n", "1:a|b"},
        {"\"a\",\"b\"", "1:a|b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(cases[i].text);
        records_are(&RFC, cases[i].records);
    }
}

static void formats_can_differ(void **state) {
    (void)state;
    write_text("# head\nmore; head\na; 'b;c' ;d \n#e\n f;#g;\"h\n");
    const mg_csv_format f = {
        .delimiter = ';', .quote = '\'', .comment = '#', .trim = true, .skip = 2};
    records_are(&f, "3:a|b;c|d;5:f|#g|\"h");
    const mg_csv_format plain = {.delimiter = '\t'};
    write_text("\"a\"\tb, c\n\t \n");
    records_are(&plain, "1:\"a\"|b, c;2:| ");
    const mg_csv_format trimmed = {.delimiter = '\t', .trim = true};
    records_are(&trimmed, "1:\"a\"|b, c;2:|");
}

/* Cells, quotes and line ends at every place of a chunk's border. */
static void chunks_make_no_difference(void **state) {
    (void)state;
    enum { CHUNK = 256 << 10 };
    const char tail[] = "\"a\"\"b\r\nc\",d\r\ne,f\r\n\"\",\"\"\r\n";
    for (int shift = 0; shift < (int)sizeof tail; shift++) {
        const size_t head = (size_t)(CHUNK - shift);
        char *text = malloc(head + sizeof tail);
        memset(text, 'x', head);
        text[head / 2] = ',';
        text[head - 1] = '\n';
        memcpy(text + head, tail, sizeof tail);
        write_to(path, text, head + sizeof tail - 1);
        free(text);
        const mg_csv_record *e;
        mg_csv_reader *r = mg_csv_reader_open(path, &RFC);
        assert_int_equal(mg_csv_reader_next(r, &e), MG_OK);
        assert_int_equal(e->cell[0].bytes + e->cell[1].bytes, head - 2);
        assert_int_equal(mg_csv_reader_next(r, &e), MG_OK);
        assert_string_equal(e->cell[0].text, "a\"b\r\nc");
        assert_int_equal(mg_csv_reader_next(r, &e), MG_OK);
        assert_int_equal(e->line, 4);
        assert_string_equal(e->cell[1].text, "f");
        assert_int_equal(mg_csv_reader_next(r, &e), MG_OK);
        assert_int_equal(e->n, 2);
        assert_int_equal(mg_csv_reader_next(r, &e), MG_OK);
        assert_null(e);
        mg_csv_reader_close(r);
    }
}

/* Reads all records; asserts that the n bytes are refused with this message. */
static void refuses(const char *text, size_t n, const char *message) {
    const mg_csv_record *e = NULL;
    mg_status status = MG_OK;
    write_to(path, text, n);
    mg_csv_reader *r = mg_csv_reader_open(path, &RFC);
    if (!r) status = mg_error_code();
    while (r && status == MG_OK && (status = mg_csv_reader_next(r, &e), e)) continue;
    mg_csv_reader_close(r);
    assert_int_equal(status, MG_DATA);
    assert_non_null(strstr(mg_error_message(), path));
    if (!strstr(mg_error_message(), message)) fail_msg("%s", mg_error_message());
}

static void damaged_text_is_refused(void **state) {
    (void)state;
    refuses("a,b\nc,\"d\n\ne", 11, "line 2: the quote that opens here is never closed");
    refuses("a\n\"", 3, "line 2: the quote that opens here is never closed");
    refuses("a\n\"b\" c", 7, "line 2: text behind a closing quote");
    refuses("a\nb\0c\n", 6, "line 2: a zero byte");
    refuses("a\n\"b\n\0\"\n", 9, "line 3: a zero byte");
    refuses("\xff\xfe"
            "a\0",
            4, "UTF-16");
    const size_t n = MG_CSV_RECORD + 100;
    char *text = malloc(n);
    memset(text, 'x', n);
    text[0] = '\n';
    refuses(text, n, "line 2: the record that begins here exceeds 16 MiB");
    text[9] = '\n', text[10] = '"';
    refuses(text, n, "line 3: the quote that opens here is not closed within 16 MiB");
    memset(text, ',', n);
    refuses(text, n, "line 1: more than 1048576 columns");
    free(text);
}

/* ---- numbers ---- */

static void number_is(const char *text, double expected) {
    double v = -77;
    if (!mg_csv_number(text, &v)) fail_msg("%s is no number", text);
    if (memcmp(&v, &expected, sizeof v) != 0) fail_msg("%s: %.17g, not %.17g", text, v, expected);
}

static void numbers_are_the_nearest_doubles(void **state) {
    (void)state;
    static const char *const plain[] = {"0",
                                        "-0",
                                        "1",
                                        "+1.5",
                                        ".5",
                                        "5.",
                                        "-1e-3",
                                        "1E+22",
                                        "1e23",
                                        "9007199254740993",
                                        "0.1",
                                        "1e-400",
                                        "1e400",
                                        "4.9e-324",
                                        "123456789012345678901234567890",
                                        "2.2250738585072011e-308",
                                        "1.7976931348623159e308",
                                        "0.30000000000000004",
                                        "000000000000000000000000001",
                                        "1e-0000000000000000001"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        number_is(plain[i], strtod(plain[i], NULL));
    number_is(" \t 7 ", 7);
    number_is("inf", INFINITY);
    number_is("-Infinity", -INFINITY);
    double v;
    static const char *const none[] = {"",      " ",   ".",   "-",   "1,5", "1e",    "1e+", "0x10",
                                       "1.5.2", "nan", "1 2", "--1", "+-1", "infin", "1f",  "e5"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (mg_csv_number(none[i], &v)) fail_msg("\"%s\" is a number", none[i]);
}

/* Texts of all lengths and exponents, against the C library. */
static void random_numbers_agree_with_strtod(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t w[4];
        char text[64];
        mg_philox(w, 0, i, 5, 0);
        const int digits = 1 + (int)(w[0] % 19), exponent = (int)(w[1] % 60) - 30;
        const double x = (double)w[2] * (double)w[3] * pow(10, (int)(w[0] % 80) - 60);
        if (i % 2)
            snprintf(text, sizeof text, "%.*e", digits, x);
        else
            snprintf(text, sizeof text, "%llu.%u%s%d", (unsigned long long)w[2] >> (w[1] % 30),
                     w[3], i % 4 ? "e" : "E+", i % 4 ? exponent : abs(exponent));
        number_is(text, strtod(text, NULL));
    }
}

/* In many locales a comma stands before the decimals. */
static void the_locale_makes_no_difference(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *found = NULL;
    for (int i = 0; i < 4 && !found; i++) found = setlocale(LC_ALL, names[i]);
    if (!found) skip();
    number_is("1.25", 1.25);
    number_is("0.30000000000000004", 0.1 + 0.2);
    setlocale(LC_ALL, "C");
}

static void integers_are_exact(void **state) {
    (void)state;
    int64_t v;
    assert_true(mg_csv_integer("-9223372036854775808", &v) && v == INT64_MIN);
    assert_true(mg_csv_integer(" +9223372036854775807 ", &v) && v == INT64_MAX);
    assert_true(mg_csv_integer("007", &v) && v == 7);
    assert_false(mg_csv_integer("9223372036854775808", &v));
    assert_false(mg_csv_integer("-9223372036854775809", &v));
    assert_false(mg_csv_integer("1.0", &v));
    assert_false(mg_csv_integer("", &v));
    assert_false(mg_csv_integer("-", &v));
    assert_false(mg_csv_integer("1 1", &v));
}

/* ---- scanning ---- */

static const char *const one_path[] = {path}, *const two_paths[] = {path, other};

static mg_csv_table table_of(int n_paths) {
    return (mg_csv_table){.format = RFC,
                          .paths = n_paths == 1 ? one_path : two_paths,
                          .n_paths = n_paths,
                          .no_value = NO_VALUE,
                          .n_no_value = 2};
}

static void kinds_and_headers_are_found(void **state) {
    (void)state;
    static const mg_csv_kind kinds[] = {MG_CSV_INT32, MG_CSV_INT64, MG_CSV_FLOAT,
                                        MG_CSV_TEXT,  MG_CSV_INT32, MG_CSV_TEXT};
    write_text("a,b,,d,e,f\n1,1,1,1,NA,NA\n-2,3000000000,1e3,2x,,NA\n\n3,7,4,9,5,\"x,y\"\n");
    mg_csv_table t = table_of(1);
    assert_int_equal(mg_csv_scan(&t), MG_OK);
    assert_int_equal(t.header, MG_CSV_HEADER);
    assert_int_equal(t.n_rows, 3);
    assert_int_equal(t.n_columns, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(t.columns[i].kind, kinds[i]);
    assert_string_equal(t.columns[2].name, "");
    assert_int_equal(t.columns[4].missing, 2);
    assert_int_equal(t.columns[3].bytes, 4);
    mg_csv_table_clear(&t);

    t = table_of(1);
    t.header = MG_CSV_NO_HEADER;
    assert_int_equal(mg_csv_scan(&t), MG_OK);
    assert_int_equal(t.n_rows, 4);
    assert_int_equal(t.columns[0].kind, MG_CSV_TEXT);
    assert_null(t.columns[0].name);
    mg_csv_table_clear(&t);

    write_text("5.1,setosa\n4,virginica\n");
    t = table_of(1);
    assert_int_equal(mg_csv_scan(&t), MG_OK);
    assert_int_equal(t.header, MG_CSV_NO_HEADER);
    assert_int_equal(t.n_rows, 2);
    mg_csv_table_clear(&t);
}

static void scan_fails(int n_paths, const char *first, const char *second, const char *message) {
    write_text(first);
    write_to(other, second, strlen(second));
    mg_csv_table t = table_of(n_paths);
    assert_int_equal(mg_csv_scan(&t), MG_DATA);
    mg_csv_table_clear(&t);
    if (!strstr(mg_error_message(), message)) fail_msg("%s", mg_error_message());
}

static void unequal_records_and_headers_are_refused(void **state) {
    (void)state;
    scan_fails(1, "", "", "is empty");
    scan_fails(1, "a,b\n", "", "has a header, but no rows");
    scan_fails(1, "a,b\n1,2\n\n3\n", "", "line 4 has 1 cells, the first record has 2");
    scan_fails(1, "a,b\n1,2,3\n", "", "line 2 has 3 cells, the first record has 2");
    scan_fails(2, "a,b\n1,2\n", "a,c\n1,2\n",
               "line 1: column 2 is called \"c\" here, and \"b\" in the header of");
    scan_fails(2, "a,b\n1,2\n", "a\n1\n", "line 1 has 1 cells, the first record has 2");
    scan_fails(2, "1,2\n", "1,2\n1\n", "line 2 has 1 cells");
}

/* ---- the source ---- */

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
    load_fails("a,b\n1,2\n3,x\n", &f32, MG_DATA, "line 3, column 2 (\"b\"): \"x\" is no number");
    load_fails("1,2\n3,NA\n", &f32, MG_DATA, "line 2, column 2: there is no value; the option");
    load_fails("1,2\n3,1e39\n", &f32, MG_DATA, "1e39 does not fit float32");
    load_fails("1,2\n3,-1e309\n", &f64, MG_DATA, "-1e309 does not fit float64");
    load_fails("1,2\n3,4.5\n", &i32, MG_DATA, "\"4.5\" is no int32: give the column a floating");
    load_fails("1,2\n3,3000000000\n", &i32, MG_DATA, "3000000000 does not fit int32");
    load_fails("1,2\n3,-1\n", &u8, MG_DATA, "-1 does not fit uint8");
    load_fails("1,1\n3,2\n", &b, MG_DATA, "2 does not fit bool");
    load_fails("1,2\n", &f16, MG_USAGE, "a column cannot be read as float16");
    load_fails("1,2\n", &far, MG_USAGE, "there is no column 6: the file has 2");
    load_fails("1,a\n2,\n", &classes, MG_DATA, "line 2, column 2: there is no value");
    load_fails("1,cat\n2,cow\n", &given, MG_DATA, "\"cow\" is none of the 2 classes");
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

/* The file grows, shrinks, or gets longer texts between the two readings. */
static void files_that_change_are_refused(void **state) {
    (void)state;
    static const char *const later[] = {"1,a\n2,b\n3,c\n", "1,a\n", "1\n2\n", "1,a\n2,bbbbbbbb\n"};
    const mg_csv_field fields[] = {numbers(MG_F64, 0),
                                   {.as = MG_CSV_STRINGS, .columns = &COLUMN[1], .n_columns = 1}};
    for (int i = 0; i < 8; i++) {
        if (i == 6) continue; /* a longer text beside the numbers makes no difference */
        mg_class_names *classes;
        mg_csv_table t = table_of(1);
        write_text("1,a\n2,b\n");
        assert_int_equal(mg_csv_scan(&t), MG_OK);
        write_text(later[i / 2]);
        assert_null(mg_csv_source(&t, ZERO, &fields[i % 2], 1, &classes));
        assert_non_null(strstr(mg_error_message(), "changed while it was read"));
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

static void arm_file(int64_t n) {
    mg_io_fail_after(n, EIO);
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

static int make_files(void **state) {
    (void)state;
    const int a = mkstemp(path), b = mkstemp(other);
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return a >= 0 && b >= 0 ? 0 : -1;
}

static int check_all_freed(void **state) {
    (void)state;
    unlink(path);
    unlink(other);
    return mg_alloc_get_stats().live_blocks || mg_io_open_count() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_follow_the_rfc),
        cmocka_unit_test(formats_can_differ),
        cmocka_unit_test(chunks_make_no_difference),
        cmocka_unit_test(damaged_text_is_refused),
        cmocka_unit_test(numbers_are_the_nearest_doubles),
        cmocka_unit_test(random_numbers_agree_with_strtod),
        cmocka_unit_test(the_locale_makes_no_difference),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(kinds_and_headers_are_found),
        cmocka_unit_test(unequal_records_and_headers_are_refused),
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
