/* The hub (world/hub.h) while all is well: processes come together in any order, exchange small
 * values, and leave. Here they are threads. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "hub_ranks.h"
#include <fcntl.h>
#include <sys/resource.h>

enum { MOST_RANKS = 64 };

/* Runs a world on threads of this process, which start in the order of `first`, `first` + 1 ... */
static void run_world(int size, int first, void (*body)(mg_hub *h, int rank, int size)) {
    static rank_thread ranks[MOST_RANKS];
    int port;
    const int listener = listen_anywhere(&port);
    for (int i = 0; i < size; i++) {
        const int rank = (first + i) % size;
        ranks[rank] =
            (rank_thread){.how = how_of(rank, size, port, rank ? -1 : listener), .body = body};
        start_thread(&ranks[rank]);
    }
    for (int i = 0; i < size; i++) {
        const char *problem = join_thread(&ranks[i]);
        if (*problem) fail_msg("rank %d: %s", i, problem);
    }
}

/* Each rank puts a value and gets those of all. */
static void exchange(mg_hub *h, int rank, int size) {
    char key[32];
    snprintf(key, sizeof key, "address of %d", rank);
    assert_int_equal(mg_hub_put(h, key, &rank, sizeof rank), MG_OK);
    for (int i = 0; i < size; i++) {
        void *data;
        size_t bytes;
        snprintf(key, sizeof key, "address of %d", i);
        assert_int_equal(mg_hub_get(h, key, LONG, &data, &bytes), MG_OK);
        assert_int_equal(bytes, sizeof i);
        assert_memory_equal(data, &i, sizeof i);
        mg_free(data);
    }
    assert_int_equal(mg_hub_member_of(h, size - 1)->pid, getpid());
    assert_null(mg_hub_over(h));
}

/* Nothing is left behind: no memory, no descriptor. */
static void processes_join_and_exchange_values(void **state) {
    (void)state;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    run_world(1, 0, exchange);
    run_world(2, 0, exchange);
    run_world(2, 1, exchange);
    run_world(5, 3, exchange);
    run_world(MOST_RANKS, 1, exchange);
    const int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(after, before + 1);
    close(after), close(before);
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

/* Rank 0 leaves first or last. */
static void leave_in_turn(mg_hub *h, int rank, int size) {
    (void)h;
    usleep((useconds_t)(20000 * rank));
    (void)size;
}
static void leave_in_reverse(mg_hub *h, int rank, int size) {
    leave_in_turn(h, size - rank, size);
}

static void processes_leave_in_any_order(void **state) {
    (void)state;
    run_world(4, 0, leave_in_turn);
    run_world(4, 0, leave_in_reverse);
    run_world(4, 0, NULL);
}

static void await_departure(mg_hub *h, int rank, int size) {
    uint64_t step;
    const int other = size - 1;
    if (rank == other) {
        assert_false(mg_hub_has_left(h, 0, &step) || mg_hub_has_left(h, rank, &step));
        mg_hub_at(h, 41, "matmul");
        return;
    }
    while (!mg_hub_has_left(h, other, &step)) usleep(1000);
    assert_int_equal(step, 41);
    assert_null(mg_hub_over(h));
    if (rank == 0) return;
    while (!mg_hub_has_left(h, 0, &step)) usleep(1000);
    assert_int_equal(step, 0);
}

static void the_others_learn_that_a_process_has_left(void **state) {
    (void)state;
    run_world(3, 0, await_departure);
}

enum { LARGE = MG_RECORD_VALUE_BYTES };

static void put_large(mg_hub *h, const char *key) {
    uint8_t *large = mg_alloc(LARGE + 1);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE; i++) large[i] = (uint8_t)(i * 2654435761u >> 24);
    assert_int_equal(mg_hub_put(h, "too large", large, LARGE + 1), MG_USAGE);
    assert_string_equal(mg_error_message(),
                        "too large: a value of 16.0 MiB; at most 16.0 MiB are possible");
    assert_int_equal(mg_hub_put(h, key, large, LARGE), MG_OK);
    mg_free(large);
}

static void check_large(mg_hub *h, const char *key) {
    void *data;
    size_t bytes;
    assert_int_equal(mg_hub_get(h, key, LONG, &data, &bytes), MG_OK);
    assert_int_equal(bytes, LARGE);
    for (size_t i = 0; i < LARGE; i += 4097)
        assert_int_equal(((uint8_t *)data)[i], (uint8_t)(i * 2654435761u >> 24));
    mg_free(data);
}

/* Large, empty and missing values, a key that is put twice, and one that is too long. */
static void use_store(mg_hub *h, int rank, int size) {
    char long_key[300];
    void *data;
    size_t bytes;
    (void)size;
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    put_large(h, rank ? "large of 1" : "large of 0");
    check_large(h, "large of 0");
    check_large(h, "large of 1");
    if (rank == 1) assert_int_equal(mg_hub_put(h, "empty", NULL, 0), MG_OK);
    assert_int_equal(mg_hub_get(h, "empty", LONG, &data, &bytes), MG_OK);
    assert_int_equal(bytes, 0);
    mg_free(data);
    assert_int_equal(mg_hub_put(h, "empty", "x", 1), MG_USAGE);
    assert_string_equal(mg_error_message(), "empty was put before: a key is put once");
    assert_int_equal(mg_hub_put(h, long_key, "x", 1), MG_USAGE);
    assert_string_equal(mg_error_message(), "a key of 299 bytes: at most 255 are possible");
    assert_int_equal(mg_hub_get(h, "missing", 0.05, &data, &bytes), MG_COMM);
    assert_string_equal(mg_error_message(), "no process has put missing within 0.05 seconds");
    mg_hub_at(h, 3, "matmul");
    assert_null(mg_hub_over(h));
}

static void the_store_holds_values_of_any_size_up_to_16_mib(void **state) {
    (void)state;
    run_world(2, 0, use_store);
}

static void get_until_interrupted(mg_hub *h, int rank, int size) {
    void *data;
    size_t bytes;
    (void)size;
    if (rank) return;
    mg_interrupt();
    assert_int_equal(mg_hub_get(h, "missing", LONG, &data, &bytes), MG_INTERRUPTED);
}

static void ctrl_c_ends_a_wait_for_a_value(void **state) {
    (void)state;
    run_world(1, 0, get_until_interrupted);
}

/* The child has no thread of the hub: its calls fail, and its leaving changes nothing for the
 * parent. */
static void use_in_fork(mg_hub *h, int rank, int size) {
    int status;
    if (rank == 0) {
        const pid_t child = fork();
        if (child == 0) {
            const bool refused = mg_hub_put(h, "key", "x", 1) == MG_UNSUPPORTED &&
                                 strstr(mg_error_message(), "was forked after");
            mg_hub_end(h, "the child ends nothing");
            mg_hub_leave(h, 1);
            _exit(refused && !mg_hub_over(h) ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    exchange(h, rank, size);
}

static void a_forked_process_is_no_process_of_the_world(void **state) {
    (void)state;
    run_world(2, 0, use_in_fork);
}

/* Each allocation of joining and leaving fails once. */
static void joining_without_memory_fails_cleanly(void **state) {
    (void)state;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    const mg_hub_how how = how_of(0, 1, 0, -1);
    mg_hub *h = NULL;
    for (int64_t n = 1; !h; n++) {
        mg_alloc_fail_after(n);
        h = mg_hub_join(&how);
        if (!h) assert_int_equal(mg_error_code(), MG_OOM);
        assert_true(n < 100);
    }
    mg_alloc_fail_after(1);
    assert_int_equal(mg_hub_put(h, "key", "x", 1), MG_OOM);
    assert_string_equal(mg_error_message(), "no memory for the value of key");
    mg_alloc_fail_after(0);
    mg_hub_leave(h, 0);
    mg_hub_leave(NULL, 0);
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

static void a_world_has_at_most_1024_processes(void **state) {
    (void)state;
    int port;
    const mg_hub_how how = how_of(0, 1025, 1, listen_anywhere(&port));
    assert_null(mg_hub_join(&how));
    assert_int_equal(mg_error_code(), MG_USAGE);
    assert_string_equal(mg_error_message(),
                        "1025 processes: at most 1024 can run a script together");
}

static void the_silence_must_be_a_number(void **state) {
    (void)state;
    const mg_hub_how how = how_of(0, 1, 0, -1);
    static const char *const wrong[] = {"abc", "1", "3x", "nan", "1e9"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("MGPU_SILENCE", wrong[i], 1);
        assert_null(mg_hub_join(&how));
        assert_int_equal(mg_error_code(), MG_USAGE);
        assert_non_null(strstr(mg_error_message(), "must be a number from 2 to"));
    }
    unsetenv("MGPU_SILENCE");
}

/* ---- addresses ---- */

static void addresses_end_with_the_local_one(void **state) {
    (void)state;
    char all[1024], some[16];
    unsetenv("MGPU_INTERFACE");
    assert_int_equal(mg_hub_addresses(all, sizeof all), MG_OK);
    assert_string_equal(all + strlen(all) - strlen("127.0.0.1"), "127.0.0.1");
    assert_int_equal(mg_hub_addresses(some, sizeof some), MG_OK); /* as many as fit */
    assert_true(strlen(some) < sizeof some);
}

static void an_interface_is_named_by_card_or_network(void **state) {
    (void)state;
    char text[256];
    static const char *const good[] = {"lo", "127.0.0.0/8", "127.0.0.1/32"}, *const wrong[] = {
                                                                                 "eth77",
                                                                                 "10.255.255.0/33",
                                                                                 "/8",
                                                                                 "198.51.100.0/24",
                                                                                 "2001:db8::/32"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        setenv("MGPU_INTERFACE", good[i], 1);
        assert_int_equal(mg_hub_addresses(text, sizeof text), MG_OK);
        assert_string_equal(text, "127.0.0.1");
        assert_int_equal(mg_hub_card(text, sizeof text), MG_OK);
        assert_string_equal(text, "lo");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("MGPU_INTERFACE", wrong[i], 1);
        assert_int_equal(mg_hub_card(text, sizeof text), MG_USAGE);
        assert_int_equal(mg_hub_addresses(text, sizeof text), MG_USAGE);
        assert_non_null(strstr(mg_error_message(), "has no such network card or network; it has"));
        assert_non_null(strstr(mg_error_message(), "lo (127.0.0.1)"));
    }
    unsetenv("MGPU_INTERFACE");
    assert_int_equal(mg_hub_card(text, sizeof text), MG_OK);
    assert_string_equal(text, "");
}

static void a_port_in_use_is_named(void **state) {
    (void)state;
    int port, again, listener = listen_anywhere(&port);
    assert_int_equal(mg_hub_listen(&port, &again), MG_COMM);
    char message[128];
    snprintf(message, sizeof message, "port %d is in use on this host", port);
    assert_non_null(strstr(mg_error_message(), message));
    close(listener);
    assert_int_equal(mg_hub_listen(&port, &listener), MG_OK);
    close(listener);
    port = 70000;
    assert_int_equal(mg_hub_listen(&port, &again), MG_USAGE);
}

/* Without a free file descriptor. */
static void without_descriptors_the_message_says_so(void **state) {
    (void)state;
    int port, listener = listen_anywhere(&port), again = 0;
    char text[64];
    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 0;
    mg_hub_how one = how_of(1, 2, port, -1);
    one.patience = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(mg_hub_listen(&again, &(int){0}), MG_COMM);
    assert_non_null(strstr(mg_error_message(), "cannot listen at port 0: Too many open files"));
    assert_int_equal(mg_hub_addresses(text, sizeof text), MG_COMM);
    assert_non_null(strstr(mg_error_message(), "cannot list the network cards of this host: Too"));
    assert_null(mg_hub_join(&one));
    assert_non_null(strstr(mg_error_message(), "127.0.0.1: Too many open files"));
    setrlimit(RLIMIT_NOFILE, &limit);
    close(listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_join_and_exchange_values),
        cmocka_unit_test(processes_leave_in_any_order),
        cmocka_unit_test(the_others_learn_that_a_process_has_left),
        cmocka_unit_test(the_store_holds_values_of_any_size_up_to_16_mib),
        cmocka_unit_test(ctrl_c_ends_a_wait_for_a_value),
        cmocka_unit_test(joining_without_memory_fails_cleanly),
        cmocka_unit_test(a_world_has_at_most_1024_processes),
        cmocka_unit_test(the_silence_must_be_a_number),
        cmocka_unit_test(addresses_end_with_the_local_one),
        cmocka_unit_test(an_interface_is_named_by_card_or_network),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(without_descriptors_the_message_says_so),
        cmocka_unit_test(a_forked_process_is_no_process_of_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
