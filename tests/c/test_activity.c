/* What threads are doing (core/activity), and recording it (core/profile). */
#include "core/activity.h"
#include "core/alloc.h"
#include "core/profile.h"
#include "core/threads.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { ROOM = 64 };

static void describe_row(const void *of, int64_t row, char *text, size_t room) {
    snprintf(text, room, "%s: record %lld", (const char *)of, (long long)row);
}

/* What describes the thread, up to the time. */
static const char *doing(const char *name) {
    static char text[500];
    mg_activity_describe(name, text, sizeof text);
    char *time = strstr(text, ", for ");
    if (time) *time = 0;
    return text;
}

static void a_thread_tells_what_it_is_in(void **state) {
    (void)state;
    mg_activity_name("one");
    assert_string_equal(doing("one"), "");
    const int step = mg_activity_begin(MG_SPAN_STEP, "step");
    const mg_span launch = {.kind = MG_SPAN_LAUNCH,
                            .what = "matmul",
                            .device = "cpu:1",
                            .origin = {"train.lua:7", "dense", true}};
    mg_activity_enter(&launch);
    assert_string_equal(doing("one"), "step > matmul (gradient) of dense on cpu:1, train.lua:7");
    mg_activity_name("cpu:1"); /* its own device need not be told */
    assert_string_equal(doing("cpu:1"), "step > matmul (gradient) of dense, train.lua:7");
    mg_activity_begin(MG_SPAN_DATA, "reads rows");
    mg_activity_about(describe_row, "a.tfrecord", 5);
    assert_non_null(strstr(doing("cpu:1"), "> reads rows a.tfrecord: record 5"));
    mg_activity_leave(step); /* as after a jump */
    assert_string_equal(doing("cpu:1"), "");
    assert_int_equal(mg_activity_depth(), 0);
}

/* More spans than a record has room for are counted only; a text that is too long is cut off. */
static void deep_stacks_and_long_texts_do_no_harm(void **state) {
    (void)state;
    char small[8];
    mg_activity_name("deep");
    for (int i = 0; i < 100; i++) assert_int_equal(mg_activity_begin(MG_SPAN_STEP, "inside"), i);
    mg_activity_describe("deep", small, sizeof small);
    assert_int_equal(strlen(small), sizeof small - 1);
    mg_activity_leave(0);
    mg_activity_describe("deep", small, sizeof small);
    assert_string_equal(small, "");
}

/* Own time by kinds: what a span contains does not count for it; launches belong to their step. */
static void times_add_up_by_kinds(void **state) {
    (void)state;
    uint64_t sums[MG_SPAN_KINDS];
    mg_activity_name("sums");
    assert_false(mg_activity_sums(sums));
    const int batch = mg_activity_begin(MG_SPAN_SCRIPT, "batch"); /* is in it when sums begin */
    mg_activity_sum(true);
    const uint64_t before = mg_nanoseconds();
    const int step = mg_activity_begin(MG_SPAN_STEP, "step");
    const int launch = mg_activity_begin(MG_SPAN_LAUNCH, "matmul");
    const int wait = mg_activity_begin(MG_SPAN_WAIT, "wait");
    const uint64_t from = mg_nanoseconds();
    while (mg_nanoseconds() - from < 2000000) {
    }
    mg_activity_leave(wait);
    mg_activity_leave(launch);
    mg_activity_leave(step);
    mg_activity_leave(mg_activity_begin(MG_SPAN_DATA, "reads rows"));
    mg_activity_leave(batch);
    const uint64_t whole = mg_nanoseconds() - before;
    assert_true(mg_activity_sums(sums));
    assert_true(sums[MG_SPAN_WAIT] >= 2000000);
    assert_int_equal(sums[MG_SPAN_LAUNCH], 0);
    assert_int_equal(sums[MG_SPAN_CALLBACK], 0);
    uint64_t all = 0;
    for (int i = 0; i < MG_SPAN_KINDS; i++) all += sums[i];
    /* no time counts twice: the batch began to count a moment before `whole` */
    assert_true(all <= whole + 1000000);
    assert_true(sums[MG_SPAN_STEP] + sums[MG_SPAN_SCRIPT] <= whole + 1000000 - sums[MG_SPAN_WAIT]);
    mg_activity_sum(false);
    assert_false(mg_activity_sums(sums));
}

static void *work(void *argument) {
    mg_activity_name("worker");
    for (int i = 0; i < *(const int *)argument; i++)
        mg_activity_leave(mg_activity_enter(
            &(mg_span){.kind = MG_SPAN_COLLECTIVE, .what = "all_reduce", .number = i + 1}));
    return NULL;
}

static void run_thread(int events) {
    pthread_t thread;
    assert_true(mg_thread_start(&thread, work, &events));
    pthread_join(thread, NULL);
}

static int track_of(const char *name) {
    for (int i = 0; i < MG_PROFILE_TRACKS; i++)
        if (mg_profile_track(i) && strcmp(mg_profile_track(i), name) == 0) return i;
    return -1;
}

/* Threads of one name that follow each other are one track. */
static void a_profile_has_the_spans_of_all_threads(void **state) {
    (void)state;
    size_t n;
    uint64_t lost;
    mg_activity_name("main");
    const int before = mg_activity_begin(MG_SPAN_SCRIPT, "before");
    assert_int_equal(mg_profile_begin(ROOM), MG_OK);
    assert_int_equal(mg_profile_begin(ROOM), MG_USAGE);
    const int outer = mg_activity_begin(MG_SPAN_STEP, "outer");
    mg_activity_leave(mg_activity_begin(MG_SPAN_LAUNCH, "inner"));
    run_thread(2);
    run_thread(3);
    mg_activity_leave(outer);
    mg_activity_leave(before);
    mg_profile_end();
    mg_activity_leave(mg_activity_begin(MG_SPAN_STEP, "after"));

    mg_event *e = mg_profile_events(track_of("main"), &n, &lost);
    assert_int_equal(n, 3);
    assert_int_equal(lost, 0);
    assert_true(mg_profile_kept_from() == mg_profile_from());
    assert_string_equal(e[0].span.what, "before"); /* the part in the profile */
    assert_true(e[0].start == mg_profile_from());
    assert_string_equal(e[1].span.what, "outer");
    assert_string_equal(e[2].span.what, "inner");
    assert_true(e[1].start <= e[2].start && e[2].end <= e[1].end && e[1].end <= e[0].end);
    assert_true(e[0].end <= mg_profile_to());
    mg_free(e);
    e = mg_profile_events(track_of("worker"), &n, &lost);
    assert_int_equal(n, 5);
    for (size_t i = 1; i < n; i++) assert_true(e[i - 1].end <= e[i].start);
    mg_free(e);
    mg_profile_drop();
    assert_int_equal(track_of("main"), -1);
}

static void a_full_ring_keeps_the_newest_events(void **state) {
    (void)state;
    size_t n;
    uint64_t lost;
    assert_int_equal(mg_profile_begin(ROOM), MG_OK);
    run_thread(1000);
    mg_profile_end();
    mg_event *e = mg_profile_events(track_of("worker"), &n, &lost);
    assert_int_equal(n, ROOM - 1);
    assert_int_equal(n + lost, 1000);
    assert_true(mg_profile_kept_from() == e[0].end && e[0].end > mg_profile_from());
    assert_int_equal(e[n - 1].span.number, 1000);
    mg_free(e);
    mg_profile_drop();
}

static void devices_add_events_to_tracks_of_their_own(void **state) {
    (void)state;
    size_t n;
    uint64_t lost;
    const mg_event made = {
        .start = 1, .end = 2, .span = {.kind = MG_SPAN_LAUNCH, .what = "conv2d"}};
    assert_int_equal(mg_profile_begin(ROOM), MG_OK);
    mg_profile_add("gpu", &made);
    mg_profile_add("gpu", &made);
    mg_profile_end();
    mg_event *e = mg_profile_events(track_of("gpu"), &n, &lost);
    assert_int_equal(n, 2);
    assert_string_equal(e[1].span.what, "conv2d");
    mg_free(e);
    mg_profile_drop();
}

/* More threads at a time than there are records share one, and are not recorded. */
static void *hold(void *gate) {
    mg_activity_name("crowd");
    mg_activity_leave(mg_activity_begin(MG_SPAN_STEP, "step"));
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

static void any_number_of_threads_may_have_spans(void **state) {
    (void)state;
    enum { MANY = MG_PROFILE_TRACKS + 20 };
    static pthread_t threads[MANY];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    assert_int_equal(mg_profile_begin(ROOM), MG_OK);
    pthread_mutex_lock(&gate);
    int made = 0;
    while (made < MANY && mg_thread_start(&threads[made], hold, &gate)) made++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++) pthread_join(threads[i], NULL);
    mg_profile_end();
    mg_profile_drop();
    run_thread(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_tells_what_it_is_in),
        cmocka_unit_test(deep_stacks_and_long_texts_do_no_harm),
        cmocka_unit_test(times_add_up_by_kinds),
        cmocka_unit_test(a_profile_has_the_spans_of_all_threads),
        cmocka_unit_test(a_full_ring_keeps_the_newest_events),
        cmocka_unit_test(devices_add_events_to_tracks_of_their_own),
        cmocka_unit_test(any_number_of_threads_may_have_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
