/* The hub (world/hub.h) when the world ends: processes that are killed, stopped, cut off, or leave
 * early, and what all others then say: the same sentence. */
#define _GNU_SOURCE
#include "hub_ranks.h"
#include <sched.h>
#include <signal.h>

enum { RANKS = 3 };

/* Three processes that have joined and wait for the end. */
typedef struct world {
    int port;
    rank_process rank[RANKS];
} world;

static void start_world(world *w, const char *what_2) {
    const int listener = listen_anywhere(&w->port);
    for (int i = 0; i < RANKS; i++)
        w->rank[i] =
            start_process(NULL, i, RANKS, w->port, i ? -1 : listener, i == 2 ? what_2 : "wait");
    close(listener);
    for (int i = 0; i < RANKS; i++) expect(&w->rank[i], "joined");
}

/* The rank says a sentence that names the rank `named` and goes on with `what`. */
static void expect_end_by(world *w, int rank, int named, const char *what, char *said,
                          size_t room) {
    char host[256], start[1024];
    gethostname(host, sizeof host);
    snprintf(start, sizeof start, "over: rank %d (host %s, pid %d) %s", named, host,
             w->rank[named].pid, what);
    hear(&w->rank[rank], said, room);
    if (strncmp(said, start, strlen(start)) != 0) fail_msg("\"%s\", not \"%s\"", said, start);
}

/* All ranks but that one say the same sentence about it. */
static void expect_over(world *w, int named, const char *what) {
    char sentence[2048] = "", said[2048];
    for (int i = 0; i < RANKS; i++) {
        if (i == named) continue;
        expect_end_by(w, i, named, what, said, sizeof said);
        if (*sentence) assert_string_equal(said, sentence);
        memcpy(sentence, said, sizeof sentence);
    }
}

static void expect_left(rank_process *p) {
    expect(p, "left");
    assert_int_equal(bury(p), 0);
}

static void a_killed_process_is_named_on_all_others(void **state) {
    (void)state;
    for (int victim = RANKS - 1; victim >= 0; victim--) {
        world w;
        start_world(&w, "wait");
        kill(w.rank[victim].pid, SIGKILL);
        expect_over(&w, victim, "died: its connection ended ");
        for (int i = 0; i < RANKS; i++)
            if (i != victim) expect_left(&w.rank[i]);
        assert_int_equal(bury(&w.rank[victim]), SIGKILL);
    }
}

/* Its connection stays, so that only its silence tells. When it goes on, it says the same. Two
 * worlds at once: in the other one, rank 0 is stopped. */
static void a_stopped_process_is_found_by_its_silence(void **state) {
    (void)state;
    static const char silent[] = "has not answered for 4 s (last seen ";
    world w[2];
    char said[2048];
    setenv("MGPU_SILENCE", "4", 1);
    for (int i = 0; i < 2; i++) start_world(&w[i], "wait");
    unsetenv("MGPU_SILENCE");
    for (int i = 0; i < 2; i++) kill(w[i].rank[i].pid, SIGSTOP);
    for (int i = 0; i < 2; i++) expect_over(&w[i], i, silent);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < RANKS; k++)
            if (k != i) expect_left(&w[i].rank[k]);
    for (int i = 0; i < 2; i++) {
        kill(w[i].rank[i].pid, SIGCONT);
        expect_end_by(&w[i], i, i, silent, said, sizeof said);
        expect_left(&w[i].rank[i]);
    }
}

static void a_process_that_leaves_early_is_named(void **state) {
    (void)state;
    world w;
    start_world(&w, "fail");
    expect_left(&w.rank[2]);
    expect_over(&w, 2, "left the script at step 41 while others go on: exit status 3");
    for (int i = 0; i < 2; i++) expect_left(&w.rank[i]);
}

static void any_process_can_end_the_world(void **state) {
    (void)state;
    world w;
    start_world(&w, "end");
    for (int i = 0; i < RANKS; i++) expect(&w.rank[i], "over: this is the end");
    for (int i = 0; i < RANKS; i++) expect_left(&w.rank[i]);
}

/* ---- rank 1 is a socket of this test ---- */

static void await_over_here(mg_hub *h, int rank, int size) {
    char key[] = "missing";
    void *data;
    size_t bytes;
    (void)rank, (void)size;
    assert_int_equal(mg_hub_get(h, key, LONG, &data, &bytes), MG_COMM);
    assert_string_equal(mg_error_message(), mg_hub_over(h));
    assert_int_equal(mg_hub_put(h, key, "x", 1), MG_COMM);
}

typedef struct by_hand {
    rank_thread zero;
    int fd;
} by_hand;

static void join_by_hand(by_hand *b) {
    int port;
    const int listener = listen_anywhere(&port);
    mg_record_reader reader = {0};
    mg_record r;
    b->zero = (rank_thread){.how = how_of(0, 2, port, listener), .body = await_over_here};
    start_thread(&b->zero);
    b->fd = connect_to(port);
    send_hello(b->fd, 1, 2, VERSION, TOKEN);
    await_record(b->fd, MG_RECORD_START, &reader, &r);
    mg_record_reader_free(&reader);
}

static void expect_end(by_hand *b, const char *sentence) {
    assert_string_equal(join_thread(&b->zero), sentence);
    await_close(b->fd);
}

/* What the last beat has told is in the sentence. */
static void the_sentence_tells_step_and_op(void **state) {
    (void)state;
    by_hand b;
    join_by_hand(&b);
    send_record(b.fd, &(mg_record){.kind = MG_RECORD_BEAT, .value = 41, .text = "conv2d"});
    shutdown(b.fd, SHUT_WR);
    expect_end(
        &b,
        "rank 1 (host b, pid 4711) died: its connection ended (last seen at step 41, in conv2d)");
    join_by_hand(&b);
    send_record(b.fd, &(mg_record){.kind = MG_RECORD_BEAT, .value = 2});
    shutdown(b.fd, SHUT_WR);
    expect_end(&b, "rank 1 (host b, pid 4711) died: its connection ended (last seen at step 2)");
    join_by_hand(&b);
    shutdown(b.fd, SHUT_WR);
    expect_end(
        &b,
        "rank 1 (host b, pid 4711) died: its connection ended (last seen before its first step)");
}

/* The other process may have gone mad, or another one may have got its connection. */
static void records_that_make_no_sense_end_the_world(void **state) {
    (void)state;
    by_hand b;
    join_by_hand(&b);
    send_record(b.fd, &(mg_record){.kind = MG_RECORD_START});
    expect_end(&b,
               "rank 1 (host b, pid 4711) died: its connection broke (a record out of place) (last "
               "seen before its first step)");
    join_by_hand(&b);
    send_record(b.fd, &(mg_record){.kind = MG_RECORD_HELLO});
    expect_end(&b, "rank 1 (host b, pid 4711) died: its connection broke (a record out of place) "
                   "(last seen before its first step)");
    join_by_hand(&b);
    send_bytes(b.fd, "mg\1\5\377\377\377\377", 8);
    expect_end(&b, "rank 1 (host b, pid 4711) died: its connection broke (a record of kind 5 with "
                   "4294967295 bytes) (last seen before its first step)");
}

static void end_at_once(mg_hub *h, int rank, int size) {
    (void)rank, (void)size;
    mg_hub_end(h, "the first");
    mg_hub_end(h, "the second");
}

static void the_first_sentence_wins(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    rank_thread ranks[2] = {{.how = how_of(0, 2, port, listener), .body = end_at_once},
                            {.how = how_of(1, 2, port, -1), .body = end_at_once}};
    for (int i = 0; i < 2; i++) start_thread(&ranks[i]);
    for (int i = 0; i < 2; i++) assert_string_equal(join_thread(&ranks[i]), "the first");
}

/* Rank 0 does not wait for ever for a process that stays. */
static void rank_0_waits_for_goodbyes_for_a_limited_time(void **state) {
    (void)state;
    int port;
    const int listener = listen_anywhere(&port);
    rank_thread zero = {.how = how_of(0, 2, port, listener)},
                one = {.how = how_of(1, 2, port, -1), .body = await_over_here};
    zero.how.patience = 3;
    start_thread(&zero), start_thread(&one);
    join_thread(&zero);
    assert_non_null(strstr(join_thread(&one), " while others go on: exit status 0"));
}

/* ---- two hosts: network namespaces that end with the processes in them ---- */

static int own_network = -1; /* the namespace of the test, while it is in another */

static int enter_network(void **state) {
    (void)state;
    own_network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own_network >= 0 && unshare(CLONE_NEWNET) != 0) close(own_network), own_network = -1;
    return 0;
}

static int leave_network(void **state) {
    (void)state;
    if (own_network < 0) return 0;
    const int failed = setns(own_network, CLONE_NEWNET);
    close(own_network);
    return failed;
}

static bool run(const char *format, int number) {
    char command[256];
    snprintf(command, sizeof command, format, number);
    return system(command) == 0;
}

/* Whether the process has left this host: unshare has run. */
static bool is_elsewhere(pid_t process) {
    char path[64], here[64] = "", there[64] = "";
    snprintf(path, sizeof path, "/proc/%d/ns/net", process);
    return readlink("/proc/thread-self/ns/net", here, sizeof here - 1) > 0 &&
           readlink(path, there, sizeof there - 1) > 0 && strcmp(here, there) != 0;
}

/* Joins this host to that of a process. */
static bool connect_hosts(pid_t other) {
    return run("ip link set lo up", 0) &&
           run("ip link add va type veth peer name vb netns %d", other) &&
           run("ip addr add 10.9.0.1/24 dev va && ip link set va up", 0) &&
           run("nsenter -n -t %d sh -c "
               "'ip addr add 10.9.0.2/24 dev vb && ip link set vb up && ip link set lo up'",
               other);
}

/* No end of a connection is sent over a cut link. */
static void a_cut_link_is_found_by_silence(void **state) {
    (void)state;
    static const char *const other_host[] = {"unshare", "-n", NULL};
    int port;
    char said[2048];
    if (own_network < 0 ||
        !run("ip link show >/dev/null 2>&1 && which unshare nsenter >/dev/null", 0)) {
        print_message("skip: network namespaces need root, iproute2 and util-linux\n");
        skip();
    }
    const int listener = listen_anywhere(&port);
    setenv("MGPU_SILENCE", "4", 1);
    setenv("TEST_ADDRESS", "10.9.0.1", 1);
    world w = {.port = port};
    w.rank[0] = start_process(NULL, 0, 2, port, listener, "wait");
    w.rank[1] = start_process(other_host, 1, 2, port, -1, "wait");
    unsetenv("MGPU_SILENCE"), unsetenv("TEST_ADDRESS");
    close(listener);
    while (!is_elsewhere(w.rank[1].pid)) usleep(10000);
    assert_true(connect_hosts(w.rank[1].pid));
    for (int i = 0; i < 2; i++) expect(&w.rank[i], "joined");
    assert_true(run("ip link set va down", 0));
    for (int i = 0; i < 2; i++) {
        expect_end_by(&w, i, 1 - i, "has not answered for 4 s", said, sizeof said);
        expect_left(&w.rank[i]);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sentence_tells_step_and_op),
        cmocka_unit_test(records_that_make_no_sense_end_the_world),
        cmocka_unit_test(the_first_sentence_wins),
        cmocka_unit_test(rank_0_waits_for_goodbyes_for_a_limited_time),
        cmocka_unit_test(a_killed_process_is_named_on_all_others),
        cmocka_unit_test(a_process_that_leaves_early_is_named),
        cmocka_unit_test(any_process_can_end_the_world),
        cmocka_unit_test(a_stopped_process_is_found_by_its_silence),
        cmocka_unit_test_setup_teardown(a_cut_link_is_found_by_silence, enter_network,
                                        leave_network),
    };
    if (argc == 5) return rank_main(argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
