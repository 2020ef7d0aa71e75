/* The log (core/log): MGPU_LOG lists the topics whose lines are written. Each line goes to a sink,
 * which the Lua binding replaces to show it in the host's own way; tests replace it to read it. */
#include "core/log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* mg_log_on compares whole topics: a prefix or a longer name of a listed topic is off, and so is
 * everything without MGPU_LOG. */
static void only_the_topics_asked_for_are_on(void **state) {
    (void)state;
    unsetenv("MGPU_LOG");
    assert_false(mg_log_on("plan"));
    /* Two topics. */
    setenv("MGPU_LOG", "dispatch,plan", 1);
    assert_true(mg_log_on("plan") && mg_log_on("dispatch"));
    assert_false(mg_log_on("memory") || mg_log_on("pla") || mg_log_on("planner"));
    setenv("MGPU_LOG", ",", 1);
    assert_false(mg_log_on("plan"));
    unsetenv("MGPU_LOG");
}

/* The last line that the sink below has received. */
static char last_line[12000];

/* A sink that keeps the line and counts the calls. */
static void note(const char *line, void *context) {
    strncpy(last_line, line, sizeof last_line - 1);
    ++*(int *)context;
}

/* A line reaches the sink with its topic in front and whole, whatever its length; text in arguments
 * is not taken for a format. */
static void a_line_goes_to_the_sink_however_long(void **state) {
    (void)state;
    int lines = 0;
    char text[10000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    mg_log_set_sink(note, &lines);
    /* The sink receives "%s" as it is. */
    mg_log("plan", "%d steps, %s", 3, "100%s");
    assert_string_equal(last_line, "mgpulua: plan: 3 steps, 100%s");
    /* Longer than any buffer on the stack. */
    mg_log("plan", "%s", text);
    assert_int_equal(strlen(last_line), strlen("mgpulua: plan: ") + strlen(text));
    mg_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_topics_asked_for_are_on),
        cmocka_unit_test(a_line_goes_to_the_sink_however_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
