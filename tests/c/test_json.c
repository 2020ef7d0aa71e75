/* JSON (io/json), the text of model files: round trips, damaged text, deep nesting, failing memory.
 */
#include "core/alloc.h"
#include "io/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Asserts that the text is parsed and written again as `expected`; sorted = 1 writes keys in order.
 */
static void comes_back(const char *text, int sorted, const char *expected) {
    size_t n;
    json_t *value = mg_json_parse(text, strlen(text), "test");
    if (!value) fail_msg("%s", mg_error_message());
    char *again = mg_json_text(value, sorted, &n);
    assert_non_null(again);
    assert_string_equal(again, expected);
    assert_int_equal(n, strlen(expected));
    mg_free(again);
    json_decref(value);
}

/* Asserts that the text is refused as MG_DATA, with a message that names the source and contains
 * `part`. */
static void refused(const char *text, const char *part) {
    assert_null(mg_json_parse(text, strlen(text), "model.json"));
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_non_null(strstr(mg_error_message(), "model.json"));
    if (!strstr(mg_error_message(), part)) fail_msg("%s", mg_error_message());
}

/* Every kind of value survives; 17 digits keep a double exact. */
static void values_come_back(void **state) {
    (void)state;
    comes_back("{\"b\": [1, 2.5, true, null], \"a\": \"x\\n\"}", 0,
               "{\"b\":[1,2.5,true,null],\"a\":\"x\\n\"}");
    /* Sorted keys. */
    comes_back("{\"b\": 1, \"a\": 2}", 1, "{\"a\":2,\"b\":1}");
    comes_back("3", 0, "3");
    comes_back("0.1", 0, "0.10000000000000001");
}

/* The message names line and column; duplicate keys, text behind the value, bytes that are not
 * UTF-8 and numbers that overflow are refused, too. */
static void damaged_text_is_refused_with_its_place(void **state) {
    (void)state;
    /* Empty text, and a value that is missing in line 2. */
    refused("", "line 1");
    refused("{\n\"a\": }", "line 2, column");
    refused("{\"a\":1,\"a\":2}", "duplicate");
    refused("[1] 2", "damaged");
    refused("[\"\xff\"]", "damaged");
    refused("[1e999]", "damaged");
}

/* A limit on nesting protects the parser's stack. Brackets inside a string do not count. */
static void nesting_has_a_limit_that_strings_do_not_count_towards(void **state) {
    (void)state;
    char text[2 * MG_JSON_MAX_DEPTH + 3] = "";
    /* Exactly the limit is accepted. */
    memset(text, '[', MG_JSON_MAX_DEPTH);
    memset(text + MG_JSON_MAX_DEPTH, ']', MG_JSON_MAX_DEPTH);
    comes_back(text, 0, text);
    /* One more is refused. */
    memset(text, '[', MG_JSON_MAX_DEPTH + 1);
    memset(text + MG_JSON_MAX_DEPTH + 1, ']', MG_JSON_MAX_DEPTH + 1);
    refused(text, "nests deeper than 128 at byte 128");
    /* As many brackets within a string. */
    memset(text, '[', sizeof text - 1);
    text[0] = text[sizeof text - 2] = '"';
    comes_back(text, 0, text);
}

/* Each allocation of mg_json_text fails once: MG_OOM, and nothing is left. */
static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    const char *text = "[\"a rather long string, so that the text grows more than once\",1,2,3]";
    json_t *value = mg_json_parse(text, strlen(text), "test");
    assert_non_null(value);
    /* Fail the first allocation, then the second one, until the text is written. */
    char *again = NULL;
    for (int64_t n = 1; !again; n++) {
        size_t length;
        mg_alloc_fail_after(n);
        again = mg_json_text(value, 0, &length);
        mg_alloc_fail_after(0);
        if (again) break;
        assert_int_equal(mg_error_code(), MG_OOM);
        assert_int_equal(mg_alloc_get_stats().live_blocks, 0);
    }
    mg_free(again);
    json_decref(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(damaged_text_is_refused_with_its_place),
        cmocka_unit_test(nesting_has_a_limit_that_strings_do_not_count_towards),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
