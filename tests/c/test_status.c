/* Errors (core/status): each thread's code and message, and the search for the nearest name, which
 * messages suggest for a misspelled one. */
#include "core/status.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* mg_fail returns its code, so that a caller can return it on, and keeps code and message until
 * mg_error_clear. */
static void a_failure_leaves_its_code_and_message(void **state) {
    (void)state;
    assert_int_equal(mg_fail(MG_DATA, "row %d of %s", 3, "x.idx"), MG_DATA);
    assert_int_equal(mg_error_code(), MG_DATA);
    assert_string_equal(mg_error_message(), "row 3 of x.idx");
    mg_error_clear();
    assert_int_equal(mg_error_code(), MG_OK);
    assert_string_equal(mg_error_message(), "");
}

/* A message may contain the previous one, although both are in the same buffer; mg_error_prefix
 * keeps the code. */
static void the_old_message_may_be_part_of_the_new_one(void **state) {
    (void)state;
    /* The previous message is an argument of the new one. */
    mg_fail(MG_IO, "disk full");
    mg_fail(MG_IO, "cannot save: %s", mg_error_message());
    assert_string_equal(mg_error_message(), "cannot save: disk full");
    mg_error_prefix("Dense \"a\"");
    assert_string_equal(mg_error_message(), "Dense \"a\": cannot save: disk full");
    assert_int_equal(mg_error_code(), MG_IO);
}

/* Percent signs in arguments and prefixes are not taken for formats. */
static void a_message_is_no_format(void **state) {
    (void)state;
    /* If it were a format, %n would write to memory. */
    mg_fail(MG_USAGE, "%s", "100%s %n");
    mg_error_prefix("%d");
    assert_string_equal(mg_error_message(), "%d: 100%s %n");
}

/* A message that is longer than its buffer says at its end that something is missing, and stays
 * within the buffer when prefixes are added. */
static void a_very_long_message_is_cut(void **state) {
    (void)state;
    static char text[2 * MG_ERROR_BYTES];
    memset(text, 'x', sizeof text - 1);
    mg_fail(MG_USAGE, "%s", text);
    assert_int_equal(strlen(mg_error_message()), MG_ERROR_BYTES - 1);
    assert_string_equal(mg_error_message() + MG_ERROR_BYTES - 5, "x...");
    /* Of the old message something is left, however long the prefix is. */
    mg_fail(MG_USAGE, "disk full");
    mg_error_prefix(text);
    assert_non_null(strstr(mg_error_message(), "x: disk full"));
    for (int i = 0; i < 5; i++) mg_error_prefix(text);
    assert_string_equal(mg_error_message() + MG_ERROR_BYTES - 5, "x...");
}

/* The cut never leaves a part of a character: each of these takes two bytes. */
static void a_cut_message_is_still_utf8(void **state) {
    (void)state;
    static char text[2 * MG_ERROR_BYTES];
    for (size_t i = 0; i + 2 < sizeof text; i += 2) memcpy(text + i, "\303\244", 3);
    for (int shift = 0; shift < 2; shift++) {
        mg_fail(MG_USAGE, "%s%s", shift ? "x" : "", text);
        const char *message = mg_error_message();
        const size_t n = strlen(message);
        assert_in_range(n, MG_ERROR_BYTES - 2, MG_ERROR_BYTES - 1);
        assert_string_equal(message + n - 5, "\303\244...");
    }
}

/* A path of the greatest length, with what went wrong, is kept whole behind another such path. */
static void two_long_paths_are_kept(void **state) {
    (void)state;
    char path[4096];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    mg_fail(MG_DATA, "%s: line 3: a comma is missing", path);
    mg_error_prefix(path);
    const char *message = mg_error_message();
    assert_string_equal(message + strlen(message) - 28, ": line 3: a comma is missing");
    assert_int_equal(strlen(message), 2 * 4095 + 2 + 28);
}

/* A thread that sets another error. */
static void *fail_elsewhere(void *context) {
    mg_fail(MG_DEVICE, "another thread");
    return context;
}

/* An error in one thread does not change the message of another. */
static void every_thread_has_its_own_message(void **state) {
    (void)state;
    pthread_t thread;
    mg_fail(MG_USAGE, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(mg_error_message(), "mine");
    assert_int_equal(mg_error_code(), MG_USAGE);
}

/* The names are those that Lua programs see in mgpu.error_code(). */
static void every_code_has_a_name(void **state) {
    (void)state;
    static const char *const names[MG_N_STATUS] = {"ok",          "usage",       "data",    "io",
                                                   "oom",         "nonfinite",   "device",  "comm",
                                                   "interrupted", "unsupported", "internal"};
    for (int i = 0; i < MG_N_STATUS; i++)
        assert_string_equal(mg_status_name((mg_status)i), names[i]);
    assert_string_equal(mg_status_name((mg_status)99), "unknown");
}

/* A letter left out, two swapped, one doubled, other case, a missing end; names that are too
 * different suggest nothing. */
static void the_nearest_name_is_the_one_meant(void **state) {
    (void)state;
    static const char *const names[] = {"activation", "kernel_size", "padding", "strides", "units"};
    assert_string_equal(mg_did_you_mean("activaton", names, 5), " (did you mean \"activation\"?)");
    assert_string_equal(mg_did_you_mean("actviation", names, 5), " (did you mean \"activation\"?)");
    assert_string_equal(mg_did_you_mean("paddding", names, 5), " (did you mean \"padding\"?)");
    assert_string_equal(mg_did_you_mean("STRIDES", names, 5), " (did you mean \"strides\"?)");
    assert_string_equal(mg_did_you_mean("unit", names, 5), " (did you mean \"units\"?)");
    /* Too different, too short, empty, and an empty list. */
    assert_string_equal(mg_did_you_mean("use_bias", names, 5), "");
    assert_string_equal(mg_did_you_mean("x", names, 5), "");
    assert_string_equal(mg_did_you_mean("", names, 5), "");
    assert_string_equal(mg_did_you_mean("units", names, 0), "");
}

/* The search is bounded: it does not compare names of 1,000 characters. */
static void a_very_long_name_is_near_to_none(void **state) {
    (void)state;
    /* A name that equals one of the list, but is longer than the search accepts. */
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_string_equal(mg_did_you_mean(text, (const char *const[]){"a", text}, 2), "");
}

/* All names follow, in their order; a list that is too long for the text is cut. */
static void a_hint_lists_the_names(void **state) {
    (void)state;
    static const char *const names[] = {"axis", "keepdims"};
    assert_string_equal(mg_name_hint("axs", names, 2, "option"),
                        " (did you mean \"axis\"?); the options are axis, keepdims");
    assert_string_equal(mg_name_hint("rotate", names, 2, "option"),
                        "; the options are axis, keepdims");
    assert_string_equal(mg_name_hint("rotate", names, 1, "value"), "; the only value is axis");
    assert_string_equal(mg_name_hint("rotate", names, 0, "option"), "; there are no options");
    const char *many[500];
    for (int i = 0; i < 500; i++) many[i] = "keepdims";
    assert_in_range(strlen(mg_name_hint("rotate", many, 500, "option")), 900, 1023);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_leaves_its_code_and_message),
        cmocka_unit_test(the_old_message_may_be_part_of_the_new_one),
        cmocka_unit_test(a_message_is_no_format),
        cmocka_unit_test(a_very_long_message_is_cut),
        cmocka_unit_test(a_cut_message_is_still_utf8),
        cmocka_unit_test(two_long_paths_are_kept),
        cmocka_unit_test(every_thread_has_its_own_message),
        cmocka_unit_test(every_code_has_a_name),
        cmocka_unit_test(the_nearest_name_is_the_one_meant),
        cmocka_unit_test(a_very_long_name_is_near_to_none),
        cmocka_unit_test(a_hint_lists_the_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
