/* Printable text (core/printable), and messages and log lines that pass through it. */
#include "core/printable.h"
#include "core/log.h"
#include "core/status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void assert_printable(const char *text, const char *expected) {
    char to[256], again[256];
    assert_int_equal(mg_printable(text, strlen(text), false, to, sizeof to), strlen(expected));
    assert_string_equal(to, expected);
    assert_int_equal(mg_printable(to, strlen(to), false, again, sizeof again), strlen(to));
    assert_string_equal(again, to); /* nothing is escaped twice */
}

static void text_stays_and_control_characters_become_visible(void **state) {
    (void)state;
    assert_printable("", "");
    assert_printable("a name\twith\ntabs and \\27", "a name\twith\ntabs and \\27");
    assert_printable(
        "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80 \xC2\xA0", /* an umlaut ... */
        "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80 \xC2\xA0");
    assert_printable("\x1B[31mred\x1B[0m", "\\27[31mred\\27[0m");
    assert_printable("\x1B"
                     "7\a\r\b\x7F"
                     "1",
                     "\\0277\\7\\13\\8\\1271");
    assert_printable("\xC2\x9B"
                     "31m \xC2\x80\xC2\x9F",
                     "\\u{9B}31m \\u{80}\\u{9F}");
    assert_printable("\xE2\x80\xAE"
                     "drawer\xE2\x81\xA6\xE2\x81\xA9",
                     "\\u{202E}drawer\\u{2066}\\u{2069}");
    /* a lone continuation, a cut character, overlong forms, a surrogate, beyond U+10FFFF */
    assert_printable("\x9B"
                     "31m",
                     "\\15531m");
    assert_printable("\xE2\x82", "\\226\\130");
    assert_printable("\xC0\x9B \xE0\x82\x9B", "\\192\\155 \\224\\130\\155");
    assert_printable("\xED\xA0\x80 \xF4\x90\x80\x80", "\\237\\160\\128 \\244\\144\\128\\128");
    assert_printable("\xF8\xFF", "\\248\\255");
}

static void one_line_and_little_room(void **state) {
    (void)state;
    char to[8];
    assert_int_equal(mg_printable("a\n\tb", 4, true, to, sizeof to), 6);
    assert_string_equal(to, "a\\n\\tb");
    assert_int_equal(mg_printable("a\0b", 3, true, to, sizeof to), 4);
    assert_string_equal(to, "a\\0b");
    /* neither an escape nor a character is cut in two */
    assert_int_equal(mg_printable("abcde\x1Bx", 7, true, to, sizeof to), 9);
    assert_string_equal(to, "abcde");
    assert_int_equal(mg_printable("abcdef\xC3\xBCg", 9, true, to, sizeof to), 9);
    assert_string_equal(to, "abcdef");
    assert_int_equal(mg_printable("\x1B", 1, true, NULL, 0), 3);
}

static char logged[2048];
static void keep(const char *line, void *context) {
    (void)context;
    strcpy(logged, line);
}

static void messages_and_log_lines_are_printable(void **state) {
    (void)state;
    static char name[MG_ERROR_BYTES];
    mg_fail(MG_DATA, "the layer \"%s\" is damaged", "\x1B]0;x\a");
    assert_string_equal(mg_error_message(), "the layer \"\\27]0;x\\7\" is damaged");
    mg_error_prefix("a\rb");
    assert_string_equal(mg_error_message(), "a\\13b: the layer \"\\27]0;x\\7\" is damaged");
    memset(name, '\x1B', sizeof name - 1); /* too long once it is visible */
    mg_fail(MG_DATA, "%s", name);
    const size_t length = strlen(mg_error_message());
    assert_true(length < MG_ERROR_BYTES && length > MG_ERROR_BYTES - 8);
    assert_string_equal(mg_error_message() + length - 6, "\\27...");
    mg_log_set_sink(keep, NULL);
    mg_log("test", "%s", "\x1B[2J\nnext");
    assert_string_equal(logged, "mgpulua: test: \\27[2J\nnext");
    name[400] = 0; /* longer than the line's buffer once it is visible */
    mg_log("test", "%s", name);
    mg_log_set_sink(NULL, NULL);
    assert_int_equal(strlen(logged), strlen("mgpulua: test: ") + 3 * 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays_and_control_characters_become_visible),
        cmocka_unit_test(one_line_and_little_room),
        cmocka_unit_test(messages_and_log_lines_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
