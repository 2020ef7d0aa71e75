/* The parts of mgpu-httpd.so, which serves with libmicrohttpd: see server.h.
 *
 * libmicrohttpd's thread calls the handler (handler.c) with what clients send. A request that has
 * to wait is suspended; from then on it belongs to one of the lists below, and whoever unlinks it
 * resumes its connection, after which libmicrohttpd's thread calls the handler again and may free
 * it. libmicrohttpd has locks of its own, so it is not called to resume under ours. A second
 * thread, the clock, ends waits and drops clients that are too slow. */
#ifndef MG_SERVER_HTTPD_HTTPD_H
#define MG_SERVER_HTTPD_HTTPD_H

#include "core/alloc.h"
#include "core/threads.h"
#include "server/server.h"
#include <microhttpd.h>
#include <pthread.h>
#include <sys/types.h>

typedef struct document {
    struct document *next;
    char *path;                 /* owned */
    struct MHD_Response *bytes; /* owned; answers that are being sent hold it, too */
} document;

typedef struct growing_log {
    struct growing_log *next;
    char *path;               /* owned */
    char *bytes;              /* owned: those from offset `first` to `end` are at bytes[begin] */
    size_t begin, room, most; /* room: of bytes; most: of what is kept */
    uint64_t first, end;      /* offsets in all that was ever appended */
} growing_log;

/* A client's connection. */
typedef struct client {
    struct client *next, *previous;
    int fd; /* libmicrohttpd's */
    double
        deadline; /* when what it has begun to send must be complete; INFINITY: it waits for us */
} client;

/* A request, from its first line until its answer was sent. Freed by libmicrohttpd's thread. */
typedef struct exchange {
    mg_server *server;
    struct MHD_Connection *connection; /* NULL: its headers are not complete */
    client *client;
    bool has_zero;   /* its first line has "%00", which would end texts in C */
    bool is_counted; /* in the server's `busy` */
    bool for_program, keeps_body;
    /* The body. */
    char *body;
    size_t n, room, dropped;
    /* Its answer, once it is known. */
    struct MHD_Response *answer; /* owned */
    unsigned status;             /* without an answer: a refusal; 0: not yet known */
    const char *reason;          /* of a refusal, a literal */
    /* While it waits for more of a log. */
    const growing_log *log; /* NULL: it does not wait */
    uint64_t from;
    double deadline; /* 0: it has not begun to wait */
    struct exchange *next, *previous;
} exchange;

/* Waits for the program, or was taken by it. Owned by the list of waiting ones, or by who took it.
 */
struct mg_request {
    mg_request_parts parts; /* their memory follows the struct */
    char *body;             /* owned */
    size_t room;            /* of it */
    mg_server *server;      /* NULL: it was closed, nobody waits for the answer */
    exchange *of;
    struct mg_request *next, *previous;
};

struct mg_server {
    struct MHD_Daemon *daemon;
    pid_t process;    /* that opened it */
    char address[64]; /* that it listens at */
    int port;
    bool is_loopback, has_requests;
    char *token;  /* owned; NULL: none is needed */
    char **names; /* owned: accepted in Host */
    int n_names;
    size_t body_bytes;
    double idle_seconds;
    /* Of the lock: all below. */
    pthread_mutex_t lock;
    pthread_cond_t arrived, drained, tick; /* a request; busy is 0; the clock has something to do */
    bool stopping;                         /* no further requests are accepted */
    bool closing;                          /* nothing waits any more */
    int busy;    /* exchanges whose headers have come and whose answers are not yet sent */
    size_t held; /* bytes of bodies in memory */
    document *documents;
    growing_log *logs;
    client *clients;
    int n_clients;
    exchange *waiters;           /* for more of a log */
    mg_request *waiting, *taken; /* waiting: the oldest first */
    mg_request *newest;          /* of waiting */
    pthread_t clock;
};

/* ---- listen.c ---- */

/* The listening socket of the server, whose address, port and is_loopback it sets. -1: MG_USAGE,
 * MG_IO. */
int httpd_listen(mg_server *s, const char *host, int port);
/* Raises the limit on open files for so many connections, if it is lower. Returns how many there
 * can be. */
int httpd_raise_limit(int connections);

/* ---- guards.c: who may ask ---- */

/* Refuses a request (status and reason of e) of another site, or without the token. */
void httpd_guard(exchange *e, const char *version, const char *method);

/* ---- documents.c ---- */

mg_status httpd_check_path(const char *path);
/* The document at the path, or NULL. Locked. */
document *httpd_find_document(const mg_server *s, const char *path);
mg_status httpd_document(mg_server *s, const char *path, const char *type, const void *bytes,
                         size_t n);
void httpd_free_documents(mg_server *s);

/* ---- logs.c ---- */

/* The log at the path, or NULL. Locked. */
growing_log *httpd_find_log(const mg_server *s, const char *path);
mg_status httpd_append(mg_server *s, const char *path, const void *bytes, size_t n, size_t most);
/* Removes the log at the path, if there is one. */
void httpd_remove_log(mg_server *s, const char *path);
/* Sets the answer of a request for a log, or suspends it. Locked. */
void httpd_answer_log(exchange *e, const growing_log *l);
/* Unlinks the waiters of this log (NULL: of any) whose deadline has come (INFINITY: whatever their
 * deadline), or that ask for less than `end`. Returns their list, to be resumed. Locked. */
exchange *httpd_unlink_waiters(mg_server *s, const growing_log *l, double now, uint64_t end);
/* Not locked. */
void httpd_resume(exchange *list);
void httpd_free_logs(mg_server *s);

/* ---- handler.c: libmicrohttpd's callbacks ---- */

void *httpd_on_line(void *server, const char *line, struct MHD_Connection *connection);
enum MHD_Result httpd_on_request(void *server, struct MHD_Connection *connection, const char *path,
                                 const char *method, const char *version, const char *data,
                                 size_t *n, void **context);
void httpd_on_end(void *server, struct MHD_Connection *connection, void **context,
                  enum MHD_RequestTerminationCode how);
/* An answer with the headers that all have. Owned; NULL: out of memory. */
struct MHD_Response *httpd_new_answer(const char *type, const void *bytes, size_t n);

/* ---- clients.c: connections, and the clock ---- */

void httpd_on_client(void *server, struct MHD_Connection *connection, void **context,
                     enum MHD_ConnectionNotificationCode how);
client *httpd_client_of(struct MHD_Connection *connection);
void *httpd_clock(void *server);

/* ---- requests.c ---- */

/* Hands the request to the program, and suspends it. False: out of memory. Locked. */
bool httpd_hand_over(exchange *e, const char *method, const char *path);
mg_status httpd_take(mg_server *s, double seconds, mg_request **r);
const mg_request_parts *httpd_parts(const mg_request *r);
mg_status httpd_reply(mg_request *r, const mg_answer *a);
/* Answers 503 to all requests that wait or were taken. Not locked. */
void httpd_refuse_requests(mg_server *s);

#endif
