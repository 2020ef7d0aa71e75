/* Interruption from a signal handler, and the count of cores. */
#define _GNU_SOURCE
#include "core/threads.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void on_signal(int number) {
    (void)number;
    mg_interrupt();
}

static void an_interrupt_is_seen_and_taken_once(void **state) {
    (void)state;
    assert_false(mg_interrupt_pending() || mg_interrupt_take());
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
    assert_true(mg_interrupt_pending());
    assert_true(mg_interrupt_pending()); /* looking takes nothing */
    assert_true(mg_interrupt_take());
    assert_false(mg_interrupt_pending() || mg_interrupt_take());
}

static void cores_are_those_this_process_may_use(void **state) {
    (void)state;
    cpu_set_t all, one;
    const int cores = mg_core_count();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(cores, 1, CPU_COUNT(&all));
    size_t first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mg_core_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(mg_core_count(), cores);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_is_seen_and_taken_once),
        cmocka_unit_test(cores_are_those_this_process_may_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
