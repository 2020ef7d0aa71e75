/* The text of CSV files (data/sources/csv): records, numbers, and the kinds of columns. Damaged
 * files are refused with file, line and column. */
#include "core/rng.h"
#include "data/sources/csv.h"
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
#include <cmocka.h>
#include "csv_files.h"

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
    write_text("a \t ;b\t\n \t;\t");
    const mg_csv_format ends = {.delimiter = ';', .trim = true};
    records_are(&ends, "1:a|b;2:|");
}

/* The file may end within the lines that are left out. */
static void comments_and_skipped_lines_may_be_the_last(void **state) {
    (void)state;
    const mg_csv_format f = {.delimiter = ',', .comment = '#', .skip = 2};
    static const char *const texts[] = {"", "a", "a\n", "a\nb", "a\rb\r", "a\nb\n#c", "a\nb\n#"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text(texts[i]);
        records_are(&f, "");
    }
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
    refuses("a\n\"b\" c", 7, "line 2: text after a closing quote");
    refuses("a\nb\0c\n", 6, "line 2: a zero byte");
    refuses("a\n\"b\n\0\"\n", 9, "line 3: a zero byte");
    refuses("\xff\xfe"
            "a\0",
            4, "UTF-16");
    refuses("\xfe\xff\0a", 4, "UTF-16");
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

/* Reads all records of the file. */
static mg_status read_all(const mg_csv_format *format) {
    const mg_csv_record *e = NULL;
    mg_csv_reader *r = mg_csv_reader_open(path, format);
    mg_status status = r ? MG_OK : mg_error_code();
    while (r && status == MG_OK && (status = mg_csv_reader_next(r, &e), e)) continue;
    mg_csv_reader_close(r);
    return status;
}

/* Reads the file while the n-th allocation, or the n-th file call, fails, for every n. */
static void fails_cleanly(const mg_csv_format *format) {
    for (int memory = 0; memory < 2; memory++) {
        bool failed = true;
        for (int64_t n = 1; failed; n++) {
            const int64_t calls = mg_alloc_get_stats().total_calls;
            (memory ? mg_alloc_fail_after : arm_file)(n);
            const mg_status status = read_all(format);
            mg_alloc_fail_after(0);
            failed = mg_io_fail_stop() || (memory && mg_alloc_get_stats().total_calls - calls >= n);
            assert_int_equal(status, !failed ? MG_OK : memory ? MG_OOM : MG_IO);
            assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
            assert_int_equal(mg_io_open_count(), 0);
        }
    }
}

/* Wherever in a record or a comment the next chunk cannot be read, or memory is short. */
static void reading_may_fail_at_every_byte(void **state) {
    (void)state;
    enum { CHUNK = 256 << 10 };
    static const mg_csv_format other_format = {
        .delimiter = ',', .quote = '"', .comment = '#', .trim = true, .skip = 1};
    const char tail[] = "\"\"\"b\r\nc\r\",d\r\n#e\r\n\"\nf\"\r\n\r\n";
    static const char *const small[] = {"\"\na\"", "\"\"\"\"", "\"a\r\n\""};
    for (int i = 0; i < 3; i++) { /* no room for a line end or a quote */
        write_text(small[i]);
        fails_cleanly(&RFC);
    }
    char *text = malloc(CHUNK + sizeof tail);
    for (int shift = 0; shift < (int)sizeof tail; shift++) {
        const size_t head = (size_t)(CHUNK - shift);
        memset(text, 'x', head);
        text[head - 1] = '\n';
        memcpy(text + head, tail, sizeof tail);
        write_to(path, text, head + sizeof tail - 1);
        fails_cleanly(&RFC);
        fails_cleanly(&other_format);
    }
    free(text);
}

/* ---- numbers ---- */

static void number_is(const char *text, double expected) {
    double v = -77;
    if (!mg_csv_number(text, &v)) fail_msg("%s is not a number", text);
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

/* In many locales the decimal point is a comma. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_follow_the_rfc),
        cmocka_unit_test(formats_can_differ),
        cmocka_unit_test(chunks_make_no_difference),
        cmocka_unit_test(comments_and_skipped_lines_may_be_the_last),
        cmocka_unit_test(damaged_text_is_refused),
        cmocka_unit_test(reading_may_fail_at_every_byte),
        cmocka_unit_test(numbers_are_the_nearest_doubles),
        cmocka_unit_test(random_numbers_agree_with_strtod),
        cmocka_unit_test(the_locale_makes_no_difference),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(kinds_and_headers_are_found),
        cmocka_unit_test(unequal_records_and_headers_are_refused),
    };
    return cmocka_run_group_tests(tests, make_files, check_all_freed);
}
