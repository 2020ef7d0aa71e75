/* The hub (world/hub.h): processes come together, exchange small values, and find out about each
 * other's death. The ranks of a world are threads of this process where nothing dies, and processes
 * otherwise: this program again, with the arguments of rank_main. */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/threads.h"
#include "world/hub.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = 64, PATIENCE = 60 };

/* A rank on a thread of its own. */
typedef struct rank_thread {
    mg_hub_how how;
    void (*body)(mg_hub *h, int rank, int size);
    bool joined;
    char problem[512];
    pthread_t thread;
} rank_thread;

static void *rank_thread_main(void *argument) {
    rank_thread *t = argument;
    mg_hub *h = mg_hub_join(&t->how);
    t->joined = h;
    if (!h) snprintf(t->problem, sizeof t->problem, "%s", mg_error_message());
    if (h && t->body) t->body(h, t->how.rank, t->how.size);
    mg_hub_leave(h, 0);
    return NULL;
}

/* Runs a world on threads of this process. */
static void run_world(int size, void (*body)(mg_hub *h, int rank, int size)) {
    static rank_thread ranks[MOST_RANKS];
    int port = 0, listener;
    assert_int_equal(mg_hub_listen(&port, &listener), MG_OK);
    assert_in_range(port, 1, 65535);
    for (int i = 0; i < size; i++) {
        rank_thread *t = &ranks[i];
        *t = (rank_thread){.how = {.rank = i,
                                   .size = size,
                                   .listener = i ? -1 : listener,
                                   .address = "127.0.0.1",
                                   .port = port,
                                   .token = "secret",
                                   .patience = PATIENCE,
                                   .version = 7},
                           .body = body};
        assert_true(mg_thread_start(&t->thread, rank_thread_main, t));
    }
    for (int i = 0; i < size; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (!ranks[i].joined) fail_msg("rank %d: %s", i, ranks[i].problem);
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
        assert_int_equal(mg_hub_get(h, key, PATIENCE, &data, &bytes), MG_OK);
        assert_int_equal(bytes, sizeof i);
        assert_memory_equal(data, &i, sizeof i);
        mg_free(data);
    }
    assert_int_equal(mg_hub_member_of(h, size - 1)->pid, getpid());
    assert_null(mg_hub_over(h));
}

static void processes_join_and_exchange_values(void **state) {
    (void)state;
    const int64_t blocks = mg_alloc_get_stats().live_blocks;
    run_world(1, exchange);
    run_world(2, exchange);
    run_world(5, exchange);
    run_world(MOST_RANKS, exchange);
    assert_int_equal(mg_alloc_get_stats().live_blocks, blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_join_and_exchange_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
