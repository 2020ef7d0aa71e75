/* An HTTP server in this process, in the plug-in mgpu-httpd.so. It answers at three kinds of paths:
 *
 *     documents   bytes that the program sets; the server's thread sends them, whatever the program
 *                 computes meanwhile
 *     logs        text that grows. A client asks for the bytes from an offset on, and may wait
 *                 until there are some: GET PATH?from=OFFSET&wait=SECONDS. The answer's header
 *                 X-Next is the offset to ask for next, X-First the first one that is still kept,
 *                 if the beginning is gone
 *     requests    all other paths: the program takes each request and answers it
 *
 * One thread serves all connections. A client that waits costs no thread.
 *
 * Functions on documents and logs may be called by any thread; the others by one thread at a time.
 */
#ifndef MG_SERVER_SERVER_H
#define MG_SERVER_SERVER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mg_server mg_server;
typedef struct mg_request mg_request;

typedef struct mg_server_options {
    const char *host;  /* a name or an address of this machine; NULL: 127.0.0.1 */
    int port;          /* 0: a free one */
    const char *token; /* each request must carry it: ?token=T, or Authorization: Bearer T */
    /* What else may be in the header Host, besides the host, and localhost and its addresses. A
     * page of another site that was resolved to this address names its own (DNS rebinding), and is
     * refused. Not checked if there is a token and the host is not a loopback address. */
    const char *const *names;
    int n_names;
    bool has_requests;   /* false: other paths than those of documents and logs get 404 */
    size_t body_bytes;   /* most bytes of a request's body: 413; 0: 64 MiB */
    size_t header_bytes; /* and of its first line with the headers: 431; 0: 32 KiB */
    int connections;     /* most clients at a time, others wait; 0: 2048 */
    int idle_seconds;    /* a client that sends nothing for so long is dropped; 0: 60 */
} mg_server_options;

/* Starts to serve. If the limit on open files (ulimit -n) is lower than the connections need, it is
 * raised as far as allowed. MG_USAGE: an option, an unknown host; MG_IO: the port is in use, or not
 * allowed; MG_UNSUPPORTED: the plug-in is not installed; MG_OOM. NULL after a failure. */
mg_server *mg_server_open(const mg_server_options *o);
int mg_server_port(const mg_server *s);
/* The address that it listens at, such as "127.0.0.1" or "::1". */
const char *mg_server_address(const mg_server *s);
/* The connections that are open now. */
int mg_server_clients(mg_server *s);
/* Accepts no further connections. Requests that have come can still be taken and answered; later
 * ones, on open connections, get 503. */
void mg_server_stop(mg_server *s);
/* Stops, answers 503 to what was not answered, waits until the answers are sent, but not for longer
 * than `seconds`, and frees the server. Requests that were taken stay valid, but have no effect.
 * Accepts NULL. In a copy of the process that was made by fork, only closes what the copy has. */
void mg_server_close(mg_server *s, double seconds);

/* ---- documents and logs: `path` begins with '/' and has no '?' ---- */

/* What GET PATH answers from now on; requests that have begun get the old bytes. bytes NULL:
 * removes the document or the log at the path. MG_USAGE: the path, or a log is there; MG_OOM. */
mg_status mg_server_document(mg_server *s, const char *path, const char *type, const void *bytes,
                             size_t n);
/* Appends to the log, which the first call makes. The last `most` bytes are kept, in whole lines;
 * 0: what was given before, or 4 MiB. Offsets count all bytes that were ever appended. MG_USAGE:
 * the path, or a document is there; MG_OOM: nothing was appended. */
mg_status mg_server_append(mg_server *s, const char *path, const void *bytes, size_t n,
                           size_t most);

/* ---- requests ---- */

/* Waits for the next request, but not for longer than `seconds`. *r: owned, to be answered by
 * mg_request_reply; NULL: none came, or a stop was requested (mg_stop_requested).
 * MG_INTERRUPTED. */
mg_status mg_server_take(mg_server *s, double seconds, mg_request **r);

/* A name, decoded where it is a parameter, and its value. The text lives as long as the request. */
typedef struct mg_pair {
    const char *name, *value;
    size_t name_bytes, value_bytes;
} mg_pair;

typedef struct mg_request_parts {
    const char *method, *path; /* "GET"; the path is decoded, and has no '?' */
    const void *body;
    size_t body_bytes;
    const mg_pair *query, *headers; /* names of headers are in lower case */
    int n_query, n_headers;
} mg_request_parts;

const mg_request_parts *mg_request_get_parts(const mg_request *r);

typedef struct mg_answer {
    int status;       /* 200 */
    const char *type; /* of its content: "application/json" */
    const void *bytes;
    size_t n;
    const mg_pair *headers; /* more headers */
    int n_headers;
} mg_answer;

/* Answers, and frees the request. The answer is copied. MG_USAGE: a header that is none; MG_OOM:
 * the client gets 500. */
mg_status mg_request_reply(mg_request *r, const mg_answer *a);

/* ---- what the plug-in exports ---- */

typedef struct mg_server_api {
    mg_server *(*open)(const mg_server_options *o);
    int (*port)(const mg_server *s);
    const char *(*address)(const mg_server *s);
    int (*clients)(mg_server *s);
    void (*stop)(mg_server *s);
    void (*close)(mg_server *s, double seconds);
    mg_status (*document)(mg_server *s, const char *path, const char *type, const void *bytes,
                          size_t n);
    mg_status (*append)(mg_server *s, const char *path, const void *bytes, size_t n, size_t most);
    mg_status (*take)(mg_server *s, double seconds, mg_request **r);
    const mg_request_parts *(*parts)(const mg_request *r);
    mg_status (*reply)(mg_request *r, const mg_answer *a);
} mg_server_api;
#define MG_SERVER_SYMBOL "mg_server_plugin"

#endif
