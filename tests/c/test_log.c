/* The log: only the topics asked for, each line to the sink. */
#include "core/log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void only_the_topics_asked_for_are_on(void **state) {
    (void)state;
    unsetenv("MGPU_LOG");
    assert_false(mg_log_on("plan"));
    setenv("MGPU_LOG", "dispatch,plan", 1);
    assert_true(mg_log_on("plan") && mg_log_on("dispatch"));
    assert_false(mg_log_on("memory") || mg_log_on("pla") || mg_log_on("planner"));
    setenv("MGPU_LOG", ",", 1);
    assert_false(mg_log_on("plan"));
    unsetenv("MGPU_LOG");
}

static char last_line[12000];

static void note(const char *line, void *context) {
    strncpy(last_line, line, sizeof last_line - 1);
    ++*(int *)context;
}

static void a_line_goes_to_the_sink_however_long(void **state) {
    (void)state;
    int lines = 0;
    char text[10000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    mg_log_set_sink(note, &lines);
    mg_log("plan", "%d steps, %s", 3, "100%s");
    assert_string_equal(last_line, "mgpulua: plan: 3 steps, 100%s");
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
