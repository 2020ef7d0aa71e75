/* The hub (world/hub.h): who is not let in, who does not come, and what each side then says. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "hub_ranks.h"

/* Rank 0 of two, which waits; others try to join before the right rank 1 does. */
typedef struct waiting {
    int port;
    rank_thread zero;
} waiting;

static void start_waiting(waiting *w) {
    const int listener = listen_anywhere(&w->port);
    w->zero = (rank_thread){.how = how_of(0, 2, w->port, listener)};
    start_thread(&w->zero);
}

/* The right rank 1 comes: nothing that happened before has disturbed rank 0. */
static void finish_waiting(waiting *w) {
    rank_thread one = {.how = how_of(1, 2, w->port, -1)};
    start_thread(&one);
    assert_string_equal(join_thread(&one), "");
    assert_string_equal(join_thread(&w->zero), "");
    assert_true(w->zero.joined && one.joined);
}

static void expect_refusal(const mg_hub_how *how, const char *part) {
    assert_null(mg_hub_join(how));
    assert_int_equal(mg_error_code(), MG_COMM);
    if (!strstr(mg_error_message(), part)) fail_msg("%s: not in: %s", part, mg_error_message());
}

static void a_process_that_does_not_belong_here_is_told_why(void **state) {
    (void)state;
    waiting w;
    start_waiting(&w);
    mg_hub_how token = how_of(1, 2, w.port, -1), version = token, size = token, rank = token;
    token.token = "the secret of another run";
    expect_refusal(&token, "rank 0 did not let rank 1 in");
    expect_refusal(&token, "it has another token than rank 0: it belongs to another run");
    token.token = NULL;
    expect_refusal(&token, "it has another token than rank 0");
    version.version = 0xabc;
    expect_refusal(&version, "its program has version abc, that of rank 0 7: install the same");
    size.size = 3;
    expect_refusal(&size, "it is one of 3 processes, rank 0 one of 2");
    rank.rank = 2, rank.size = 3;
    expect_refusal(&rank, "it is one of 3 processes");
    finish_waiting(&w);
}

/* What rank 0 answers to a connection that it does not let in. */
static void expect_refused(int fd, const char *part) {
    mg_record_reader reader = {0};
    mg_record r;
    assert_true(receive_record(fd, &reader, &r));
    assert_int_equal(r.kind, MG_RECORD_REFUSED);
    assert_non_null(memmem(r.data, r.bytes, part, strlen(part)));
    await_close(fd);
    mg_record_reader_free(&reader);
}

/* Ranks outside of the world, which no launcher gives. */
static void a_rank_outside_of_the_world_is_refused(void **state) {
    (void)state;
    static const uint32_t ranks[] = {0, 2, UINT32_MAX};
    waiting w;
    start_waiting(&w);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const int fd = connect_to(w.port);
        send_hello(fd, ranks[i], 2, VERSION, TOKEN);
        expect_refused(fd, "and the others are 1 to 1");
    }
    finish_waiting(&w);
}

/* While rank 1 is here, a second one is refused; when its connection has ended, another may come.
 */
static void a_rank_can_be_here_only_once(void **state) {
    (void)state;
    waiting w;
    mg_record_reader reader = {0};
    mg_record r;
    start_waiting(&w);
    const int fd = connect_to(w.port);
    send_hello(fd, 1, 3, VERSION, TOKEN); /* another size, so that the world does not start */
    await_close(fd);
    const int listener = listen_anywhere(&(int){0});
    close(listener);
    finish_waiting(&w);

    rank_thread zero, two;
    int port;
    const int three = listen_anywhere(&port);
    zero = (rank_thread){.how = how_of(0, 3, port, three)};
    start_thread(&zero);
    const int first = connect_to(port);
    send_hello(first, 1, 3, VERSION, TOKEN);
    await_record(first, MG_RECORD_ACCEPTED, &reader, &r);
    assert_int_equal(r.number, getpid());
    const mg_hub_how again = how_of(1, 3, port, -1);
    expect_refusal(&again, "there is a rank 1 already (host b, pid 4711): give each its own rank");
    close(first);
    rank_thread one = {.how = again};
    two = (rank_thread){.how = how_of(2, 3, port, -1)};
    start_thread(&one), start_thread(&two);
    assert_string_equal(join_thread(&one), "");
    assert_string_equal(join_thread(&two), "");
    assert_string_equal(join_thread(&zero), "");
    mg_record_reader_free(&reader);
}

static void after_the_start_a_second_rank_is_refused(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    mg_record_reader reader = {0};
    mg_record r;
    rank_thread zero = {.how = how_of(0, 2, port, listener)};
    start_thread(&zero);
    const int fd = connect_to(port);
    send_hello(fd, 1, 2, VERSION, TOKEN);
    await_record(fd, MG_RECORD_START, &reader, &r);
    const mg_hub_how again = how_of(1, 2, port, -1);
    expect_refusal(&again, "there is a rank 1 already (host b, pid 4711)");
    send_record(fd, &(mg_record){.kind = MG_RECORD_LEAVE, .value = 1});
    assert_string_equal(join_thread(&zero), "");
    close(fd);
    mg_record_reader_free(&reader);
}

/* It is answered, because its HELLO may look different. */
static void another_version_of_the_protocol_is_refused(void **state) {
    (void)state;
    waiting w;
    start_waiting(&w);
    const int fd = connect_to(w.port);
    send_bytes(fd, "mg\2\0\40\0\0\0", 8);
    expect_refused(fd, "speaks another version of the protocol");
    finish_waiting(&w);
}

/* What port scanners send, a record too large for HELLO, records before HELLO, half of one,
 * nothing, and a process of another version of the protocol. */
static void foreign_connections_do_not_disturb(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } sent[] = {{"GET / HTTP/1.0\r\n\r\n", 18},
                {"mg\1\0\377\377\377\377", 8},
                {"mg\1\0\0\0\0\0", 8},
                {"mg\1\6\40\0\0\0", 8},
                {"mg\2\0\40\0\0\0", 8},
                {"mg\1\377\40\0\0\0", 8},
                {"mg\1\0\15\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\377", 21},
                {"mg\1\0\15\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 21}};
    waiting w;
    start_waiting(&w);
    const int silent = connect_to(w.port), half = connect_to(w.port);
    send_bytes(half, "mg\1\0\40", 5);
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        const int fd = connect_to(w.port);
        send_bytes(fd, sent[i].bytes, sent[i].n);
        await_close(fd);
    }
    close(connect_to(w.port));
    await_close(silent); /* after five seconds */
    await_close(half);
    finish_waiting(&w);
}

/* More connections than a world may have: the rest wait for their turn. */
static void many_foreign_connections_do_not_disturb(void **state) {
    (void)state;
    enum { MANY = 100 };
    int fds[MANY];
    waiting w;
    start_waiting(&w);
    for (int i = 0; i < MANY; i++) fds[i] = connect_to(w.port);
    for (int i = 0; i < MANY; i++) close(fds[i]);
    finish_waiting(&w);
}

static void missing_ranks_are_named_on_all(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    rank_thread zero = {.how = how_of(0, 4, port, listener)}, one = {.how = how_of(1, 4, port, -1)};
    zero.how.patience = 2;
    start_thread(&zero), start_thread(&one);
    assert_string_equal(join_thread(&zero), join_thread(&one));
    assert_false(zero.joined || one.joined);
    /* A machine so slow that rank 1 did not come in time would name it, too. */
    assert_non_null(strstr(zero.problem, "2, 3 of 4 have not come within 2 seconds: look at what"));
}

/* Rank 0 alone: the names of many, and what became of the last that tried. */
static void the_last_refusal_is_told_with_those_who_are_missing(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    rank_thread zero = {.how = how_of(0, 12, port, listener)};
    mg_hub_how wrong = how_of(1, 12, port, -1);
    zero.how.patience = 3;
    wrong.token = "wrong";
    start_thread(&zero);
    mg_hub_join(&wrong);
    join_thread(&zero);
    assert_non_null(strstr(zero.problem, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12 have not"));
    assert_non_null(strstr(zero.problem, "(a process at 127.0.0.1 was not let in: it has another"));
}

static void ctrl_c_ends_the_wait_of_rank_0(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    const mg_hub_how how = how_of(0, 2, port, listener);
    mg_interrupt();
    assert_null(mg_hub_join(&how));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
}

/* ---- rank 0 cannot be reached ---- */

/* Tries to join for a moment. */
static void expect_unreachable(const char *address, int port, const char *part) {
    mg_hub_how how = how_of(1, 2, port, -1);
    how.address = address;
    how.patience = 0.3;
    expect_refusal(&how, part);
    assert_non_null(strstr(mg_error_message(), "rank 1 cannot reach rank 0 at port"));
}

static void a_rank_0_that_is_not_there_is_told(void **state) {
    (void)state;
    int port;
    close(listen_anywhere(&port));
    expect_unreachable("127.0.0.1", port, "127.0.0.1: Connection refused");
    expect_unreachable("::1,127.0.0.1", port, "; 127.0.0.1: Connection refused");
    expect_unreachable("no such host", port, "the host name \"no such host\" does not resolve (");
    mg_hub_how how = how_of(1, 2, port, -1);
    mg_interrupt();
    assert_null(mg_hub_join(&how));
    assert_int_equal(mg_error_code(), MG_INTERRUPTED);
}

/* A server of this test: answers each connection with these bytes (NULL: with none, and does not
 * close it). */
typedef struct other_server {
    int listener;
    const char *bytes;
    size_t n;
    int kept[256];
    int n_kept;
} other_server;

static void *serve_otherwise(void *argument) {
    other_server *s = argument;
    char dropped[512];
    for (;;) {
        const int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) return NULL;
        if (s->bytes) {
            recv(fd, dropped, sizeof dropped, 0);
            send(fd, s->bytes, s->n, MSG_NOSIGNAL);
            close(fd);
        } else {
            s->kept[s->n_kept++] = fd;
        }
    }
}

static void expect_other(const char *bytes, size_t n, const char *part) {
    pthread_t thread;
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    other_server s = {
        .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .bytes = bytes, .n = n};
    assert_int_equal(bind(s.listener, (const struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(s.listener, 16), 0);
    getsockname(s.listener, (struct sockaddr *)&at, &size);
    assert_true(mg_thread_start(&thread, serve_otherwise, &s));
    mg_hub_how how = how_of(1, 2, ntohs(at.sin_port), -1);
    how.patience = 0.3;
    expect_refusal(&how, part);
    shutdown(s.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(s.listener);
    for (int i = 0; i < s.n_kept; i++) close(s.kept[i]);
}

static void another_program_at_rank_0s_port_is_told(void **state) {
    (void)state;
    expect_other("HTTP/1.0 400 Bad Request\r\n", 26, "127.0.0.1: another program listens there");
    expect_other("mg\2\1\40\0\0\0", 8, "another version of mgpulua runs there");
    expect_other("mg\1\4\15\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 21, "another program listens there");
    expect_other("", 0, "the connection was closed without an answer");
    expect_other(NULL, 0, "what listens there does not answer");
}

/* A rank 0 that lets rank 1 in, sends a list of the processes, and closes the connection. */
static void expect_bad_start(const void *list, size_t n, const char *what) {
    int port;
    char dropped[512];
    const int listener = listen_anywhere(&port);
    rank_thread one = {.how = how_of(1, 2, port, -1)};
    start_thread(&one);
    struct pollfd arrival = {listener, POLLIN, 0};
    assert_int_equal(poll(&arrival, 1, LONG * 1000), 1);
    const int fd = accept(listener, NULL, NULL);
    assert_true(recv(fd, dropped, sizeof dropped, 0) > 0);
    send_record(fd, &(mg_record){.kind = MG_RECORD_ACCEPTED, .number = 5, .text = "a"});
    if (n) send_record(fd, &(mg_record){.kind = MG_RECORD_START, .data = list, .bytes = n});
    /* closing with rank 1's beats unread would reset the connection, and lose what was sent */
    shutdown(fd, SHUT_WR);
    while (recv(fd, dropped, sizeof dropped, 0) > 0) {
    }
    close(fd);
    close(listener);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "rank 0 (host a, pid 5) died while the processes were joining: %s", what);
    assert_string_equal(join_thread(&one), sentence);
    assert_false(one.joined);
}

static void a_rank_0_that_ends_during_the_start_is_told(void **state) {
    (void)state;
    static const char broken[] = "its connection broke (a record out of place)";
    expect_bad_start(NULL, 0, "its connection ended");
    expect_bad_start("\5\0\0\0\1a\6\0\0", 9, broken);
    expect_bad_start("\5\0\0\0\1a\6\0\0\0\2b", 12, broken);
    expect_bad_start("\5\0\0\0\1a\6\0\0\0\1bc", 13, broken);
}

/* The first of several addresses that answers is taken, IPv6 or IPv4, and rank 0 may come later. */
static void one_of_several_addresses_is_enough(void **state) {
    (void)state;
    int port, closed;
    const int listener = listen_anywhere(&port);
    close(listen_anywhere(&closed));
    rank_thread one = {.how = how_of(1, 2, port, -1)}, zero = {.how = how_of(0, 2, port, listener)};
    one.how.address = "no such host,::1,localhost,127.0.0.1";
    start_thread(&one), start_thread(&zero);
    assert_string_equal(join_thread(&one), "");
    assert_string_equal(join_thread(&zero), "");

    one.how = how_of(1, 2, closed, -1);
    start_thread(&one);
    usleep(300000); /* it is refused some times */
    int late;
    assert_int_equal(mg_hub_listen(&closed, &late), MG_OK);
    zero = (rank_thread){.how = how_of(0, 2, closed, late)};
    start_thread(&zero);
    assert_string_equal(join_thread(&one), "");
    assert_string_equal(join_thread(&zero), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_does_not_belong_here_is_told_why),
        cmocka_unit_test(a_rank_outside_of_the_world_is_refused),
        cmocka_unit_test(a_rank_can_be_here_only_once),
        cmocka_unit_test(after_the_start_a_second_rank_is_refused),
        cmocka_unit_test(another_version_of_the_protocol_is_refused),
        cmocka_unit_test(foreign_connections_do_not_disturb),
        cmocka_unit_test(many_foreign_connections_do_not_disturb),
        cmocka_unit_test(missing_ranks_are_named_on_all),
        cmocka_unit_test(the_last_refusal_is_told_with_those_who_are_missing),
        cmocka_unit_test(ctrl_c_ends_the_wait_of_rank_0),
        cmocka_unit_test(a_rank_0_that_is_not_there_is_told),
        cmocka_unit_test(another_program_at_rank_0s_port_is_told),
        cmocka_unit_test(a_rank_0_that_ends_during_the_start_is_told),
        cmocka_unit_test(one_of_several_addresses_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
