/* Threads (core/threads): the interrupt flag, which a signal handler sets and long work polls, and
 * the number of cores. And the wish to save and stop. */
#define _GNU_SOURCE
#include "core/threads.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* A signal handler as the program mgpulua has it for Ctrl-C. */
static void on_signal(int number) {
    (void)number;
    mg_interrupt();
}

/* Two signals before the flag is taken count as one. Asking whether an interrupt is pending does
 * not take it. */
static void an_interrupt_is_seen_and_taken_once(void **state) {
    (void)state;
    assert_false(mg_interrupt_pending() || mg_interrupt_take());
    /* raise returns after the handler has run. */
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
    assert_true(mg_interrupt_pending());
    assert_true(mg_interrupt_pending());
    assert_true(mg_interrupt_take());
    assert_false(mg_interrupt_pending() || mg_interrupt_take());
}

/* A stop request is refused while nobody listens, and dropped when the next training starts to
 * listen. */
static void a_stop_request_needs_a_listener(void **state) {
    (void)state;
    assert_false(mg_stop_request(SIGTERM));
    assert_int_equal(mg_stop_requested(), 0);
    mg_stop_listen(true);
    assert_int_equal(mg_stop_requested(), 0);
    assert_true(mg_stop_request(SIGTERM));
    assert_true(mg_stop_request(SIGUSR1)); /* the last one counts */
    assert_int_equal(mg_stop_requested(), SIGUSR1);
    assert_false(mg_stop_saved());
    mg_stop_set_saved();
    mg_stop_listen(false);
    assert_true(mg_stop_saved());
    assert_false(mg_stop_request(SIGTERM));
    mg_stop_listen(true);
    assert_false(mg_stop_saved() || mg_stop_requested());
    assert_false(mg_interrupt_pending());
    /* One that comes too late interrupts. */
    assert_true(mg_stop_request(SIGTERM));
    mg_stop_listen(false);
    assert_true(mg_interrupt_take());
    assert_int_equal(mg_interrupt_signal(), SIGTERM);
}

/* The count follows the CPU affinity of the process, as taskset and containers set it, and not the
 * machine. */
static void cores_are_those_this_process_may_use(void **state) {
    (void)state;
    cpu_set_t all, one;
    const int cores = mg_core_count();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(cores, 1, CPU_COUNT(&all));
    /* The first core that this process may use. */
    size_t first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    /* Restrict the process to its first core, then allow all of them again. */
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mg_core_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(mg_core_count(), cores);
}

/* MGPU_THREADS, then OMP_NUM_THREADS, then the cores. */
static void the_environment_names_the_threads(void **state) {
    (void)state;
    unsetenv("MGPU_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(mg_thread_count(), mg_core_count());
    setenv("OMP_NUM_THREADS", "700", 1);
    assert_int_equal(mg_thread_count(), 700);
    setenv("OMP_NUM_THREADS", " 4 , 2", 1); /* for nested regions; the first number counts */
    assert_int_equal(mg_thread_count(), 4);
    setenv("MGPU_THREADS", "", 1);
    assert_int_equal(mg_thread_count(), 4);
    setenv("MGPU_THREADS", "900", 1);
    assert_int_equal(mg_thread_count(), 900);
    assert_int_equal(mg_thread_count_check(), MG_OK);
}

/* Only MGPU_THREADS is ours, so that a wrong OMP_NUM_THREADS is no error. */
static void a_wrong_number_of_threads_is_ignored_after_the_check(void **state) {
    (void)state;
    static const char *const wrong[] = {"0", "-1", "abc", "2x", "1025", "18446744073709551617"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsetenv("MGPU_THREADS");
        setenv("OMP_NUM_THREADS", wrong[i], 1);
        assert_int_equal(mg_thread_count(), mg_core_count());
        assert_int_equal(mg_thread_count_check(), MG_OK);
        setenv("MGPU_THREADS", wrong[i], 1);
        assert_int_equal(mg_thread_count(), mg_core_count());
        assert_int_equal(mg_thread_count_check(), MG_USAGE);
    }
    unsetenv("MGPU_THREADS");
    unsetenv("OMP_NUM_THREADS");
}

static volatile sig_atomic_t arrived;

static void count_signal(int number) {
    (void)number;
    arrived++;
}

/* While signals are held, their handlers run where they are admitted, and at the end. */
static void held_signals_are_admitted(void **state) {
    (void)state;
    void (*before)(int) = signal(SIGUSR2, count_signal);
    arrived = 0;
    mg_signals_hold();
    raise(SIGUSR2);
    assert_int_equal(arrived, 0);
    mg_signals_admit();
    assert_int_equal(arrived, 1);
    raise(SIGUSR2);
    assert_int_equal(arrived, 1); /* they are held again */
    mg_signals_release();
    assert_int_equal(arrived, 2);
    mg_signals_admit();
    signal(SIGUSR2, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_is_seen_and_taken_once),
        cmocka_unit_test(a_stop_request_needs_a_listener),
        cmocka_unit_test(cores_are_those_this_process_may_use),
        cmocka_unit_test(the_environment_names_the_threads),
        cmocka_unit_test(a_wrong_number_of_threads_is_ignored_after_the_check),
        cmocka_unit_test(held_signals_are_admitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
