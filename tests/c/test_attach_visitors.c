/* The connections of a job (program/attach/visitors.h), over socket pairs: commands in their order,
 * what cancelling and leaving do, connections that ask without reading, and both threads at once,
 * for `make tsan`. What visitors.c calls in the rest of the program is replaced here. */
#include "core/alloc.h"
#include "core/visit.h"
#include "program/attach/attach.h"
#include "program/attach/server.h"
#include "program/attach/visitors.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static atomic_int hooks, rings;

void mg_attach_call_hook(void) {
    atomic_fetch_add(&hooks, 1);
}

void mg_attach_ring(void) {
    atomic_fetch_add(&rings, 1);
}

bool mg_attach_knocked(void) {
    return false;
}

size_t mg_server_state(char *text, size_t room, bool paused) {
    return (size_t)snprintf(text, room, "paused=%d\n", paused);
}

size_t mg_server_where(char *text, size_t room) {
    return (size_t)snprintf(text, room, "main: nothing\n");
}

/* ---- the other side ---- */

typedef struct side {
    int fd;
    mg_attach_reader reader;
} side;

static side join(void) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_true(mg_visitors_add(pair[0]));
    return (side){.fd = pair[1]};
}

static void leave(side *s) {
    close(s->fd);
    mg_attach_reader_free(&s->reader);
}

static void say(const side *s, mg_attach_kind kind, const char *body, size_t n) {
    uint8_t head[MG_ATTACH_HEAD];
    mg_attach_head(head, kind, n);
    assert_int_equal(send(s->fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
    if (n) assert_int_equal(send(s->fd, body, n, MSG_NOSIGNAL), n);
}

/* What the thread of the server does once. */
static void serve(int milliseconds) {
    struct pollfd list[MG_VISITORS];
    mg_visitors_poll(list);
    poll(list, MG_VISITORS, milliseconds);
    for (int i = 0; i < MG_VISITORS; i++)
        if (list[i].revents) mg_visitors_serve(i, list[i].revents);
}

/* Whether the next record has come; it is kept in the reader. False, with *ended: never. */
static bool get(side *s, bool *ended) {
    bool complete = false;
    if (s->reader.body && s->reader.got == MG_ATTACH_HEAD + s->reader.bytes)
        mg_attach_next(&s->reader);
    *ended = false;
    while (!complete) {
        size_t wanted;
        void *to = mg_attach_room(&s->reader, &wanted);
        const ssize_t n = recv(s->fd, to, wanted, 0);
        if (n <= 0) {
            *ended = n == 0 || errno != EAGAIN;
            return false;
        }
        assert_int_equal(mg_attach_received(&s->reader, (size_t)n, &complete), MG_OK);
    }
    return true;
}

/* The next record must be this one, with a body that begins so. */
static void expect(side *s, mg_attach_kind kind, const char *body, size_t n) {
    bool ended = false, came = false;
    for (int i = 0; i < 1000 && !came && !ended; i++) {
        serve(0);
        came = get(s, &ended);
    }
    assert_true(came);
    assert_int_equal(mg_attach_kind_of(&s->reader), kind);
    assert_true(s->reader.bytes >= n);
    assert_memory_equal(s->reader.body, body, n);
}

static void expect_end(side *s) {
    bool ended = false;
    for (int i = 0; i < 1000 && !ended; i++) {
        serve(0);
        while (get(s, &ended)) {
        }
    }
    assert_true(ended);
}

/* Lua forgets the sessions of those that have gone. */
static int take_gone(void) {
    int n = 0;
    while (mg_visitors_take_gone()) n++;
    return n;
}

static int set_up(void **state) {
    (void)state;
    atomic_store(&hooks, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    mg_visitors_close();
    take_gone();
    return mg_visit_wanted() || mg_alloc_get_stats().live_blocks != 0;
}

/* ---- tests ---- */

static void commands_are_taken_in_their_order_and_answered(void **state) {
    (void)state;
    side a = join(), b = join();
    mg_command c;
    expect(&a, MG_ATTACH_HELLO, "", 0);
    expect(&b, MG_ATTACH_HELLO, "", 0);
    assert_false(mg_visitors_take(&c));
    say(&b, MG_ATTACH_RUN, "\0\0\0first", 8);
    serve(1000);
    say(&a, MG_ATTACH_RUN, "\0\0\0second", 9);
    serve(1000);
    assert_true(mg_visit_wanted());
    assert_true(mg_visitors_take(&c));
    assert_string_equal((const char *)c.body + MG_ATTACH_AT_CODE, "first");
    mg_visitors_write(&c, MG_ATTACH_OUTPUT, "out", 3);
    mg_visitors_done(&c, MG_ATTACH_FINE, "", 0);
    expect(&b, MG_ATTACH_OUTPUT, "out", 3);
    expect(&b, MG_ATTACH_DONE, "\0", 1);
    assert_true(mg_visitors_take(&c));
    assert_string_equal((const char *)c.body + MG_ATTACH_AT_CODE, "second");
    mg_visitors_done(&c, MG_ATTACH_FAILED, "why", 3);
    expect(&a, MG_ATTACH_DONE, "\1why", 4);
    assert_false(mg_visit_wanted());
    leave(&a);
    leave(&b);
    serve(1000);
    assert_int_equal(take_gone(), 2);
}

static void what_was_cancelled_is_given_up(void **state) {
    (void)state;
    side a = join();
    mg_command c;
    expect(&a, MG_ATTACH_HELLO, "", 0);
    say(&a, MG_ATTACH_RUN, "\0\0\0x", 4);
    serve(1000);
    say(&a, MG_ATTACH_CANCEL, "", 0); /* before it runs */
    expect(&a, MG_ATTACH_DONE, "\2", 1);
    assert_false(mg_visitors_take(&c));
    say(&a, MG_ATTACH_RUN, "\0\0\0y", 4);
    serve(1000);
    assert_true(mg_visitors_take(&c));
    assert_false(mg_attach_wants_hook());
    say(&a, MG_ATTACH_CANCEL, "", 0); /* while it runs */
    serve(1000);
    assert_int_equal(atomic_load(&hooks), 1);
    assert_true(mg_attach_wants_hook() && mg_attach_take_cancel() && !mg_attach_take_cancel());
    mg_visitors_done(&c, MG_ATTACH_FAILED, "interrupted", 11);
    expect(&a, MG_ATTACH_DONE, "\2", 1);
    leave(&a);
}

static void a_command_whose_connection_ends_is_stopped_and_its_place_stays_taken(void **state) {
    (void)state;
    side a = join(), b;
    mg_command c, d;
    say(&a, MG_ATTACH_RUN, "\0\0\0x", 4);
    serve(1000);
    assert_true(mg_visitors_take(&c));
    leave(&a);
    serve(1000);
    assert_true(mg_attach_take_cancel());
    b = join();
    expect(&b, MG_ATTACH_HELLO, "", 0);
    say(&b, MG_ATTACH_RUN, "\0\0\0y", 4);
    serve(1000);
    mg_visitors_write(&c, MG_ATTACH_OUTPUT, "lost", 4); /* nobody gets it */
    mg_visitors_done(&c, MG_ATTACH_FAILED, "", 0);
    assert_true(mg_visitors_take(&d));
    assert_true(d.slot != c.slot && d.id != c.id);
    mg_visitors_done(&d, MG_ATTACH_FINE, "", 0);
    expect(&b, MG_ATTACH_DONE, "\0", 1);
    leave(&b);
}

static void a_half_sent_record_harms_nobody(void **state) {
    (void)state;
    side a = join(), b = join();
    expect(&b, MG_ATTACH_HELLO, "", 0);
    assert_int_equal(send(a.fd, "ma\1\2\xff\0\0\0\0", 9, 0), 9);
    serve(1000);
    say(&b, MG_ATTACH_STATE, "", 0);
    expect(&b, MG_ATTACH_TOLD, "paused=0\n", 9);
    leave(&a);
    say(&b, MG_ATTACH_WHERE, "", 0);
    expect(&b, MG_ATTACH_TOLD, "main: nothing\n", 14);
    leave(&b);
}

static void bytes_that_are_no_record_and_a_second_command_end_the_connection(void **state) {
    (void)state;
    side a = join(), b = join();
    assert_int_equal(send(a.fd, "GET / HTTP/1.1\r\n", 16, 0), 16);
    expect_end(&a);
    say(&b, MG_ATTACH_RUN, "\0\0\0x", 4);
    say(&b, MG_ATTACH_RUN, "\0\0\0y", 4);
    expect_end(&b);
    assert_false(mg_visit_wanted());
    leave(&a);
    leave(&b);
}

static void who_asks_for_a_pause_and_leaves_ends_it(void **state) {
    (void)state;
    side a = join(), b = join();
    expect(&a, MG_ATTACH_HELLO, "", 0);
    expect(&b, MG_ATTACH_HELLO, "", 0);
    say(&a, MG_ATTACH_PAUSE, "", 0);
    expect(&a, MG_ATTACH_DONE, "\0", 1);
    assert_true(mg_visitors_paused() && mg_visit_wanted());
    say(&b, MG_ATTACH_STATE, "", 0);
    expect(&b, MG_ATTACH_TOLD, "paused=1\n", 9);
    leave(&a);
    serve(1000);
    assert_false(mg_visitors_paused());
    say(&b, MG_ATTACH_PAUSE, "", 0);
    expect(&b, MG_ATTACH_DONE, "\0", 1);
    say(&b, MG_ATTACH_CONTINUE, "", 0);
    expect(&b, MG_ATTACH_DONE, "\0", 1);
    assert_false(mg_visitors_paused());
    say(&b, MG_ATTACH_CONTINUE, "", 0);
    expect(&b, MG_ATTACH_DONE, "\0it is not paused", 17);
    leave(&b);
}

static void no_more_than_16_are_let_in(void **state) {
    (void)state;
    side all[MG_VISITORS];
    int pair[2];
    for (int i = 0; i < MG_VISITORS; i++) all[i] = join();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(mg_visitors_add(pair[0]));
    close(pair[0]);
    close(pair[1]);
    for (int i = 0; i < MG_VISITORS; i++) leave(&all[i]);
    serve(1000);
    side again = join();
    leave(&again);
}

/* Output beyond 4 MiB that nobody reads is dropped, which is said once. */
static void a_connection_that_does_not_read_costs_little_memory(void **state) {
    (void)state;
    static char piece[100 << 10];
    side a = join();
    mg_command c;
    bool ended = false;
    expect(&a, MG_ATTACH_HELLO, "", 0);
    say(&a, MG_ATTACH_RUN, "\0\0\0x", 4);
    serve(1000);
    assert_true(mg_visitors_take(&c));
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 200; i++) mg_visitors_write(&c, MG_ATTACH_OUTPUT, piece, sizeof piece);
    mg_visitors_done(&c, MG_ATTACH_FINE, "", 0);
    assert_true(mg_alloc_get_stats().live_bytes < 16 << 20);
    size_t read = 0;
    int dropped = 0;
    for (int i = 0; i < 100000 && !ended; i++) {
        serve(0);
        if (!get(&a, &ended)) continue;
        const mg_attach_kind kind = mg_attach_kind_of(&a.reader);
        if (kind == MG_ATTACH_OUTPUT) read += a.reader.bytes;
        if (kind == MG_ATTACH_ERRORS) dropped++;
        if (kind == MG_ATTACH_DONE) break;
    }
    assert_int_equal(mg_attach_kind_of(&a.reader), MG_ATTACH_DONE);
    assert_int_equal(dropped, 1);
    if (read < 4 << 20 || read >= 5 << 20) fail_msg("%zu bytes came", read);
    leave(&a);
}

/* What comes before the end is whole records. */
static void without_memory_a_connection_is_given_up_and_nothing_else(void **state) {
    (void)state;
    static const char output[300];
    for (int at = 1; at < 6; at++) {
        side a = join();
        mg_command c;
        bool ended = false;
        mg_alloc_fail_after(at);
        say(&a, MG_ATTACH_RUN, "\0\0\0x", 4);
        serve(1000);
        if (mg_visitors_take(&c)) {
            mg_visitors_write(&c, MG_ATTACH_OUTPUT, output, sizeof output);
            mg_alloc_fail_after(0);
            mg_visitors_write(&c, MG_ATTACH_OUTPUT, output, sizeof output);
            mg_visitors_done(&c, MG_ATTACH_FINE, "", 0);
        }
        mg_alloc_fail_after(0);
        for (int i = 0; i < 10; i++) {
            serve(0);
            while (get(&a, &ended)) {
            }
        }
        leave(&a);
        serve(1000);
    }
}

/* ---- both threads ---- */

static atomic_bool over;

static void *server_thread(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) serve(1);
    return NULL;
}

static void the_threads_of_server_and_script_work_at_once(void **state) {
    (void)state;
    enum { ROUNDS = 2000, SIDES = 4 };
    side all[SIDES];
    pthread_t thread;
    int answered = 0, open[SIDES] = {0};
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, server_thread, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        const int k = i % SIDES;
        mg_command c;
        bool ended;
        if (!open[k]) all[k] = join(), open[k] = 1;
        say(&all[k], i % 7 ? MG_ATTACH_RUN : MG_ATTACH_STATE, "\0\0\0x", i % 7 ? 4 : 0);
        if (i % 5 == 0) say(&all[k], MG_ATTACH_CANCEL, "", 0);
        mg_visitors_wait(i % 7 ? 0.01 : 0);
        while (mg_visitors_take(&c)) {
            mg_visitors_write(&c, MG_ATTACH_OUTPUT, "output", 6);
            mg_attach_take_cancel();
            mg_visitors_done(&c, MG_ATTACH_FINE, "", 0);
            answered++;
        }
        while (get(&all[k], &ended)) {
        }
        mg_visitors_paused();
        if (ended || i % 3 == 0) leave(&all[k]), open[k] = 0;
        take_gone();
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    for (int k = 0; k < SIDES; k++)
        if (open[k]) leave(&all[k]);
    assert_true(answered > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commands_are_taken_in_their_order_and_answered, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_was_cancelled_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_command_whose_connection_ends_is_stopped_and_its_place_stays_taken, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_half_sent_record_harms_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            bytes_that_are_no_record_and_a_second_command_end_the_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_asks_for_a_pause_and_leaves_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_than_16_are_let_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_that_does_not_read_costs_little_memory, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_memory_a_connection_is_given_up_and_nothing_else,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_threads_of_server_and_script_work_at_once, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
