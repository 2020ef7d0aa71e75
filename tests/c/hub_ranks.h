/* Ranks for the tests of the hub: on threads of the test, as processes of their own (the test's
 * program again, with the arguments of rank_main), and as a socket of which the test writes every
 * byte. No wait depends on speed: LONG only ends a hang. */
#ifndef TESTS_C_HUB_RANKS_H
#define TESTS_C_HUB_RANKS_H

#include "core/threads.h"
#include "world/hub.h"
#include "world/hub_state.h"
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG = 120, VERSION = 7, STEP = 41, LISTENER = 3 };
#define TOKEN "the secret of this run"

static inline mg_hub_how how_of(int rank, int size, int port, int listener) {
    return (mg_hub_how){.rank = rank,
                        .size = size,
                        .listener = listener,
                        .address = "127.0.0.1",
                        .port = port,
                        .token = TOKEN,
                        .patience = LONG,
                        .version = VERSION};
}

static inline int listen_anywhere(int *port) {
    int listener;
    *port = 0;
    assert_int_equal(mg_hub_listen(port, &listener), MG_OK);
    assert_in_range(*port, 1, 65535);
    return listener;
}

/* ---- on a thread ---- */

typedef struct rank_thread {
    mg_hub_how how;
    void (*body)(mg_hub *h, int rank, int size); /* may be NULL */
    int exit_status;
    bool joined;
    char problem[2048]; /* why it could not join, or why the world was over */
    pthread_t thread;
} rank_thread;

static inline void *rank_thread_main(void *argument) {
    rank_thread *t = argument;
    mg_hub *h = mg_hub_join(&t->how);
    t->joined = h;
    if (!h) snprintf(t->problem, sizeof t->problem, "%s", mg_error_message());
    if (h && t->body) t->body(h, t->how.rank, t->how.size);
    if (h && mg_hub_over(h)) snprintf(t->problem, sizeof t->problem, "%s", mg_hub_over(h));
    mg_hub_leave(h, t->exit_status);
    return NULL;
}

static inline void start_thread(rank_thread *t) {
    assert_true(mg_thread_start(&t->thread, rank_thread_main, t));
}

/* Returns why it failed, or "". */
static inline const char *join_thread(rank_thread *t) {
    pthread_join(t->thread, NULL);
    return t->problem;
}

/* ---- as a process ---- */

typedef struct rank_process {
    pid_t pid;
    FILE *says;
} rank_process;

static inline void await_over(mg_hub *h) {
    while (!mg_hub_over(h)) usleep(10000);
}

/* The process of a rank: test RANK SIZE PORT WHAT. It says what happens in lines. */
static inline int rank_main(char **argv) {
    const int rank = atoi(argv[1]), size = atoi(argv[2]), port = atoi(argv[3]);
    const char *what = argv[4], *at = getenv("TEST_ADDRESS");
    mg_hub_how how = how_of(rank, size, port, rank ? -1 : LISTENER);
    if (at) how.address = at;
    mg_hub *h = mg_hub_join(&how);
    setlinebuf(stdout);
    if (!h) {
        printf("failed: %s\n", mg_error_message());
        return 1;
    }
    mg_hub_at(h, STEP, "conv2d");
    printf("joined\n");
    if (strcmp(what, "end") == 0) mg_hub_end(h, "this is the end");
    if (strcmp(what, "wait") == 0 || strcmp(what, "end") == 0) {
        await_over(h);
        printf("over: %s\n", mg_hub_over(h));
    }
    mg_hub_leave(h, strcmp(what, "fail") == 0 ? 3 : 0);
    printf("left\n");
    return 0;
}

/* Starts a process; `listener` is -1, or becomes that of rank 0. */
static inline rank_process start_process(const char *const *prefix, int rank, int size, int port,
                                         int listener, const char *what) {
    extern char **environ;
    char numbers[3][16];
    const char *argv[16];
    int n = 0, ends[2];
    rank_process p;
    posix_spawn_file_actions_t actions;
    snprintf(numbers[0], sizeof numbers[0], "%d", rank);
    snprintf(numbers[1], sizeof numbers[1], "%d", size);
    snprintf(numbers[2], sizeof numbers[2], "%d", port);
    for (; prefix && prefix[n]; n++) argv[n] = prefix[n];
    argv[n++] = "/proc/self/exe";
    static char self[4096];
    if (prefix) { /* another program starts it */
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        assert_true(length > 0);
        self[length] = '\0';
        argv[n - 1] = self;
    }
    for (int i = 0; i < 3; i++) argv[n++] = numbers[i];
    argv[n++] = what;
    argv[n] = NULL;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (listener >= 0) posix_spawn_file_actions_adddup2(&actions, listener, LISTENER);
    assert_int_equal(posix_spawnp(&p.pid, argv[0], &actions, NULL, (char **)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    p.says = fdopen(ends[0], "r");
    assert_non_null(p.says);
    return p;
}

/* The next line that the process says, without its end. */
static inline const char *hear(rank_process *p, char *line, size_t room) {
    if (!fgets(line, (int)room, p->says)) snprintf(line, room, "(nothing)");
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static inline void expect(rank_process *p, const char *line) {
    char said[2048];
    assert_string_equal(hear(p, said, sizeof said), line);
}

/* Waits for its end, and returns the wait status. */
static inline int bury(rank_process *p) {
    int status;
    fclose(p->says);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return status;
}

/* ---- by hand ---- */

static inline int connect_to(int port) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline void send_bytes(int fd, const void *bytes, size_t n) {
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

static inline void send_record(int fd, const mg_record *r) {
    uint8_t head[MG_RECORD_HEAD + MG_RECORD_FIXED + MG_RECORD_TEXT_BYTES];
    const size_t n = mg_record_write(r, head);
    send_bytes(fd, head, n);
    if (r->bytes) send_bytes(fd, r->data, r->bytes);
}

static inline void send_hello(int fd, uint32_t rank, uint32_t size, uint64_t version,
                              const char *token) {
    mg_hello hello = {.size = {(uint8_t)size}, .pid = {0x67, 0x12}}; /* 4711 */
    memcpy(hello.token, token, strlen(token));
    send_record(fd, &(mg_record){.kind = MG_RECORD_HELLO,
                                 .number = rank,
                                 .value = version,
                                 .text = "b",
                                 .data = &hello,
                                 .bytes = sizeof hello});
}

/* The next record that comes: false at the end of the connection. */
static inline bool receive_record(int fd, mg_record_reader *reader, mg_record *r) {
    bool complete = false;
    mg_record_next(reader);
    reader->trusted = true;
    while (!complete) {
        size_t wanted;
        void *to = mg_record_room(reader, &wanted);
        const ssize_t n = recv(fd, to, wanted, 0);
        if (n <= 0) return false;
        assert_int_equal(mg_record_received(reader, (size_t)n, r, &complete), MG_OK);
    }
    return true;
}

/* Receives until a record of the kind has come. */
static inline void await_record(int fd, mg_record_kind kind, mg_record_reader *reader,
                                mg_record *r) {
    do assert_true(receive_record(fd, reader, r));
    while (r->kind != kind);
}

/* Whether the other side has closed; what it sends before is ignored. */
static inline void await_close(int fd) {
    char dropped[4096];
    while (recv(fd, dropped, sizeof dropped, 0) > 0) continue;
    close(fd);
}

#endif
